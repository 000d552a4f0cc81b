"""Fixed queries: the sinusoidal table of positions (section 3.2 of the paper)."""

from __future__ import annotations

import numpy as np


def positional_table(rows: int, columns: int) -> np.ndarray:
    """The fixed sinusoidal queries (rows, columns): ``i / 10000^(2 (j // 2) / columns)``."""
    i, j = np.arange(rows)[:, None], np.arange(columns)[None]
    angle = i / 10000.0 ** (2 * (j // 2) / columns)
    return np.where(j % 2 == 0, np.sin(angle), np.cos(angle))
