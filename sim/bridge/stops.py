"""An e-stop in the middle of an episode: when it comes, how long it lasts, what comes after it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

WALK_S = 8.0
"""How long after a stop the robot's way is measured."""


@dataclass(frozen=True)
class Stops:
    """A stop in each episode: `at_s` after its start or up to `spread_s` later, `for_s` long."""

    at_s: float
    spread_s: float
    for_s: float

    def draw(self, seed: int, step_s: float) -> Stop:
        """The stop of the episode with this seed."""
        at_s = self.at_s + self.spread_s * np.random.default_rng((seed, 12)).uniform()
        return Stop(round(at_s / step_s), round(self.for_s / step_s), round(WALK_S / step_s))


class Stop:
    """One stop, in steps: latched before step `begin`, cleared before step `begin + length`."""

    def __init__(self, begin: int, length: int, window: int) -> None:
        self.begin, self.end = begin, begin + length
        self._until = self.end + window
        self._from_m: float | None = None
        self.walked_m: float | None = None
        """How far the robot came in the WALK_S after the stop, or until it fell; None where it was
        down before the stop ended."""

    def follow(self, step: int, distance_m: float | None) -> None:
        """The robot has come this far before this step."""
        if step == self.end:
            self._from_m = distance_m
        if distance_m is not None and self._from_m is not None and step <= self._until:
            self.walked_m = distance_m - self._from_m
