"""What a policy takes at a tick, checked: readings that are numbers, and ids that come once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def real_numbers(values: np.ndarray, count: int) -> np.ndarray:
    """The readings (count,) of so many ids, float32 or float64; ValueError for another shape,
    TypeError where they are no real numbers."""
    values = np.asarray(values)
    if values.dtype.char not in "fd":
        values = values.astype(np.float64, casting="same_kind")
    if values.ndim != 1 or len(values) != count:
        raise ValueError(f"values of shape {values.shape} for {count} ids")
    return values


def distinct(ids: Sequence[str]) -> tuple[str, ...]:
    """These ids; ValueError where one comes twice."""
    ids = tuple(ids)
    if len(set(ids)) != len(ids):
        twice = next(name for name in ids if ids.count(name) > 1)
        raise ValueError(f"channel id {str(twice)!r} is given twice")
    return ids
