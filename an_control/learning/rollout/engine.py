"""Rollouts: what every engine takes and gives.

An engine plays every candidate model through the same episodes. What an episode is follows from
its `Start` and the disturbance alone, so the returns do not depend on the engine (to float32
rounding) nor on how many workers it has (at all). A rollout that failed is NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from an_control.disturbance import TRAINING_SEEDS, DisturbanceSettings, episode_seed
from an_control.policy import Model

NOTHING = DisturbanceSettings()


class RolloutError(RuntimeError):
    """No rollout at all could be played; the message says why."""


class Start(NamedTuple):
    """Where an episode comes from: the environment's seed, and the disturbance's two."""

    environment: int
    run: int
    episode: int


class Outcomes(NamedTuple):
    """P candidates' R episodes; `failure` says why, where one is NaN."""

    returns: np.ndarray
    """(P, R) float64."""
    steps: np.ndarray
    """(P, R) int64."""
    failure: str | None = None


class Engine(Protocol):
    """Plays episodes."""

    def play(
        self,
        models: Sequence[Model],
        starts: Sequence[Start],
        disturbance: DisturbanceSettings = NOTHING,
    ) -> Outcomes:
        """Every model through every episode; RolloutError where nothing can be played."""

    def close(self) -> None:
        """End workers, if any."""


def evaluation_starts(seed: int, episodes: int) -> list[Start]:
    """The episodes of an evaluation, the same for every protocol and model."""
    return [Start(episode_seed(seed, e), seed, e) for e in range(episodes)]


def training_starts(rng: np.random.Generator, rollouts: int) -> list[Start]:
    """Common random numbers: the episodes that all candidates of a generation play."""
    return [Start(int(s), int(s), 0) for s in rng.integers(*TRAINING_SEEDS, rollouts)]
