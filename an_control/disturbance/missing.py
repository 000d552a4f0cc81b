"""Which signals are missing, and which ones come a second time as copies."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def draw_present(rng: np.random.Generator, count: int, missing: float) -> NDArray[np.bool_]:
    """(count,): False for the share `missing` of them."""
    present = np.ones(count, dtype=bool)
    present[rng.permutation(count)[: round(missing * count)]] = False
    return present


def draw_copied(
    rng: np.random.Generator, present: NDArray[np.bool_], copies: int
) -> NDArray[np.intp]:
    """(copies,): the signals that copies repeat, none twice before all are.

    (0,) where every signal is missing.
    """
    there = np.flatnonzero(present)
    rounds = -(-copies // len(there)) if len(there) else 0
    drawn = [rng.permutation(there) for _ in range(rounds)]
    return np.concatenate([there[:0], *drawn])[:copies]
