"""Define the interface of the engines that play rollouts.

An engine plays every candidate model through the same episodes. An episode depends only on its
`EpisodeStart` and the disturbance, so the returns are the same with every engine (up to float32
rounding) and with any number of workers (to the last bit). A failed rollout has the return NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from an_control.disturbance import TRAINING_SEEDS, DisturbanceSettings, episode_seed
from an_control.policy import Model

NO_DISTURBANCE = DisturbanceSettings()


class RolloutError(RuntimeError):
    """Error if not a single rollout could be played; the message says why."""


class EpisodeStart(NamedTuple):
    """Seeds of an episode: the environment's, and the disturbance's run and episode."""

    environment: int
    run: int
    episode: int


class Outcomes(NamedTuple):
    """Returns and lengths of R episodes for each of P candidates.

    Attributes:
        returns: Returns (P, R) float64, NaN for a failed rollout.
        steps: Number of steps (P, R) int64.
        failure: Why a rollout failed; None if none did.
    """

    returns: np.ndarray
    steps: np.ndarray
    failure: str | None = None


class RolloutEngine(Protocol):
    """Interface of objects that play rollouts."""

    def play(
        self,
        models: Sequence[Model],
        starts: Sequence[EpisodeStart],
        disturbance: DisturbanceSettings = NO_DISTURBANCE,
    ) -> Outcomes:
        """Play every model through every episode.

        Args:
            models: P candidate models.
            starts: R episodes.
            disturbance: Disturbance of the readings.

        Raises:
            RolloutError: Nothing could be played.
        """

    def close(self) -> None:
        """Stop the workers, if there are any."""


def make_evaluation_starts(seed: int, episodes: int) -> list[EpisodeStart]:
    """Return the episodes of an evaluation, the same for every protocol and model."""
    return [EpisodeStart(episode_seed(seed, e), seed, e) for e in range(episodes)]


def draw_training_starts(rng: np.random.Generator, rollouts: int) -> list[EpisodeStart]:
    """Draw the episodes that all candidates of a generation play (common random numbers)."""
    return [EpisodeStart(int(s), int(s), 0) for s in rng.integers(*TRAINING_SEEDS, rollouts)]
