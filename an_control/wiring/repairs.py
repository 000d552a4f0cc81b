"""What stands for numbers that are no readings, before scale, offset and clip.

A number is one of five: NaN, inf, -inf, outside the valid range, or a reading. What has no value
that stands for it is missing. Then sectors of beams become one reading each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.config import ChannelConfig

Values = NDArray[np.float64]


class Repairs:
    """Repairs numbers of some channels; one entry of the wiring may stand for all of them."""

    def __init__(self, configs: Sequence[ChannelConfig]) -> None:
        self._single = len(configs) == 1

        def column(name: str) -> Values:
            values = [getattr(config, name) for config in configs]
            return np.array([np.nan if one is None else one for one in values], np.float64)

        ranges = [config.valid or (-np.inf, np.inf) for config in configs]
        self._low, self._high = np.array(ranges, np.float64).T.copy()
        self._nan, self._outside = column("nan"), column("outside")
        self._inf, self._minus_inf = column("inf"), column("minus_inf")

    def __call__(self, numbers: Any, where: slice | NDArray[np.bool_]) -> Values:
        """The numbers (n,), which are those of the channels `where`, repaired; NaN is missing."""
        raw = np.asarray(numbers, np.float64)

        def of(column: Values) -> Values:
            return column if self._single else column[where]

        values = np.where((raw < of(self._low)) | (raw > of(self._high)), of(self._outside), raw)
        values = np.where(np.isnan(raw), of(self._nan), values)
        values = np.where(np.isposinf(raw), of(self._inf), values)
        return np.where(np.isneginf(raw), of(self._minus_inf), values)


def repairs(configs: Sequence[ChannelConfig]) -> Repairs | None:
    """What repairs the numbers of these channels; None where nothing does."""
    if any(config.repaired for config in configs):
        return Repairs(configs)
    return None


def pooled(get: Callable[[Any], NDArray[Any]], config: ChannelConfig) -> Callable[[Any], Values]:
    """A function that gives a message's repaired numbers by sectors."""
    assert config.pool is not None
    size, by, repair = config.pool.size, config.pool.by, repairs([config])
    taken = slice(*(config.pool.elements or (None,)))

    def read(message: Any) -> Values:
        values = np.asarray(get(message)[taken], np.float64)
        return pool(values if repair is None else repair(values, slice(None)), size, by)

    return read


def pool(values: Values, size: int, by: Literal["min", "mean"]) -> Values:
    """(ceil(n / size),) of values (n,): the least or the mean of every `size` of them.

    The last sector has the rest. What is not finite is left out; NaN where nothing is left.
    """
    if not len(values):
        return np.zeros(0)
    starts = np.arange(0, len(values), size)
    finite = np.isfinite(values)
    if by == "min":
        return np.fmin.reduceat(np.where(finite, values, np.nan), starts)
    counts = np.add.reduceat(finite.astype(np.float64), starts)
    sums = np.add.reduceat(np.where(finite, values, 0.0), starts)
    return np.where(counts > 0.0, sums / np.maximum(counts, 1.0), np.nan)
