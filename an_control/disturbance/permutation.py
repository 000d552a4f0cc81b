"""Which slot carries which signal."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


class Permutation:
    """The places of N signals, nominal at first."""

    def __init__(self, count: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self.signals: NDArray[np.intp] = np.arange(count)
        """(N,): the signal that each slot carries."""
        self.drawn = 0
        """How often `draw` was called."""

    def draw(self, swap: int = 0) -> None:
        """Permute all signals, or move `swap` of them around in a ring."""
        self.drawn += 1
        places = self._rng.permutation(len(self.signals))
        if swap:
            some, moved = places[:swap], self.signals.copy()
            moved[some] = self.signals[np.roll(some, 1)]
            places = moved
        self.signals = places
