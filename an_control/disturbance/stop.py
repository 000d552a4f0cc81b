"""A stop in the middle of an episode: when it comes, how long it lasts, what comes after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from an_control.disturbance.settings import DisturbanceSettings

BEGIN_S = (3.0, 6.0)
"""The time into an episode between which a stop begins."""
WALK_S = 8.0
"""How long after a stop the robot's way is measured."""


def after_stops(walked_m: Sequence[float], walk_m: float | None) -> str:
    """How robots that were up at the end of their stops came on, in words.

    `walk_m` is how far one must come to count as walking again, None where no such way is known.
    """
    again = "" if walk_m is None else f"{sum(one >= walk_m for one in walked_m)} of "
    distance = "" if walk_m is None else f" came {walk_m:g} m or more"
    return (
        f"{again}{len(walked_m)} still up when the stop ended{distance} in the {WALK_S:g} s after"
        f" it, median {np.median(walked_m):.1f} m"
    )


class Stop:
    """One stop, in steps: the safe command is sent from step `begin` to before step `end`."""

    def __init__(self, begin: int, length: int, window: int) -> None:
        self.begin, self.end = begin, begin + length
        self._until = self.end + window
        self._from_m: float | None = None
        self.walked_m: float | None = None
        """How far the robot came in the WALK_S after the stop, or until it fell; None where it was
        down before the stop ended."""

    @classmethod
    def draw(
        cls, rng: np.random.Generator, settings: DisturbanceSettings, step_s: float
    ) -> Stop | None:
        """The stop of an episode, None where the settings have none."""
        if not settings.stop:
            return None
        begin_s = rng.uniform(*BEGIN_S)
        return cls(
            round(begin_s / step_s), round(settings.stop.value / step_s), round(WALK_S / step_s)
        )

    def follow(self, step: int, distance_m: float | None) -> None:
        """The robot has come this far before this step."""
        if step == self.end:
            self._from_m = distance_m
        if distance_m is not None and self._from_m is not None and step <= self._until:
            self.walked_m = distance_m - self._from_m
