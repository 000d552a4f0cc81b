"""Messages on their way: they come late, are lost, or repeat the one before them."""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

import numpy as np

from an_control.disturbance.settings import DisturbanceSettings

T = TypeVar("T")


class Late(Generic[T]):
    """Gives back what it got some ticks ago; until there is such, the first."""

    def __init__(self) -> None:
        self._kept: deque[T] = deque()

    def forget(self) -> None:
        """Begin with the next one."""
        self._kept.clear()

    def __call__(self, newest: T, ticks: int) -> T:
        self._kept.append(newest)
        while len(self._kept) > ticks + 1:
            self._kept.popleft()
        return self._kept[0]


class Delivery(Generic[T]):
    """One message a tick, or none. The first one always arrives, and is new."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._last: T | None = None
        self.arrived = self.new = True
        """Whether a message came in this tick, and whether it says what no other has said."""

    def __call__(self, message: T, settings: DisturbanceSettings) -> T:
        """The newest message that the receiver has got, in a tick for which this one was sent."""
        self.arrived = self.new = True
        if settings.lose or settings.repeat:
            lost, repeated = self._rng.random(2) < (settings.lose.value, settings.repeat.value)
            if self._last is not None and (lost or repeated):
                self.arrived, self.new = not lost, False
                return self._last
        self._last = message
        return message
