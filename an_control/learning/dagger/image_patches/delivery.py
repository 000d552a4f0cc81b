"""Which frames of an episode a student sees where they are late, lost or repeated."""

from __future__ import annotations

import numpy as np

from an_control.disturbance import DisturbanceSettings
from an_control.learning.faults import disturber, ids_of
from an_control.learning.rollout.episode import DisturbedPatches

CHANNEL = ids_of(1)


def in_time(steps: int, stack: int) -> np.ndarray:
    """(T, f): the numbers of the frames that are seen at each step, where nothing is disturbed."""
    return np.maximum(np.arange(steps)[:, None] - np.arange(stack)[::-1], 0)


def as_seen(
    steps: int, stack: int, drawn: DisturbanceSettings, rng: np.random.Generator, *, repeats: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The frames (K, f) that are seen at the steps (K,) in which the student acts.

    These are all where it `repeats`, a step on frames that it has seen; else those in which a
    frame arrives. What an evaluation does to patches is done to the frames' numbers.
    """
    frames = in_time(steps, stack)
    disturbing = disturber(1, drawn, rng)
    if disturbing is None:
        return frames, np.arange(steps)
    delivery = DisturbedPatches(disturbing)
    seen, acted = [], []
    for step, numbers in enumerate(frames):
        shown, _ = delivery.apply(numbers.reshape(1, stack, 1, 1), CHANNEL)
        if repeats or delivery.arrived:
            seen.append(shown.reshape(stack))
            acted.append(step)
    return np.array(seen), np.array(acted)
