"""Readings that come late or with noise, in the words of `disturbance`: drawn for each episode."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from an_control.disturbance import DisturbanceSettings
from an_control.disturbance.seeds import Streams
from an_control.disturbance.sensor_faults import Faults
from an_control.learning.yaml_settings import Positive, Share


@dataclass(frozen=True)
class FaultSettings:
    """Chances that all readings of an episode, or of a stream's row, are disturbed so."""

    delay: Share = 0.0
    max_delay: Positive = 1
    """Ticks; from 1 on each delay is as likely."""
    jitter: Share = 0.0
    max_jitter: float = 0.02
    """Standard deviation, in scaled readings; drawn uniformly below it."""

    def draw(self, rng: np.random.Generator) -> DisturbanceSettings:
        """The faults of one episode; a chance of 0 takes no random number."""
        delay, jitter = 0, 0.0
        if self.delay and rng.random() < self.delay:
            delay = int(rng.integers(1, self.max_delay + 1))
        if self.jitter and rng.random() < self.jitter:
            jitter = self.max_jitter * rng.random()
        return DisturbanceSettings(delay=delay, jitter=jitter)

    def signals(
        self, channels: int, rng: np.random.Generator
    ) -> Callable[[np.ndarray], np.ndarray]:
        """What makes of each tick's readings (N,) of one episode, in turn, those that are seen."""
        drawn = self.draw(rng)
        if not drawn.active:
            return lambda readings: readings
        return Faults(channels, Streams.of(int(rng.integers(2**31)), 0), drawn).apply


def faulty(
    observations: np.ndarray, faults: DisturbanceSettings, rng: np.random.Generator
) -> np.ndarray:
    """A whole episode's observations (T, N) as they are read; the first ones come until it moves.

    Of `faults`, `delay` and `jitter` count.
    """
    if faults.delay:
        observations = observations[np.maximum(np.arange(len(observations)) - faults.delay, 0)]
    if faults.jitter:
        noise = rng.normal(0.0, faults.jitter, observations.shape)
        observations = observations + noise.astype(observations.dtype)
    return observations
