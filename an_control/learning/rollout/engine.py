"""Interface of the engines that play rollouts, the episodes of candidate policies.

An engine plays every candidate through the same episodes. An episode depends only on its
`EpisodeSeeds` and the disturbance, so the returns are the same with every engine (up to float32
rounding) and with any number of workers (to the last bit). A failed rollout has the return NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from an_control.disturbance import TRAINING_SEEDS, DisturbanceSettings, derive_episode_seed
from an_control.policy import Model

NO_DISTURBANCE = DisturbanceSettings()


class RolloutError(RuntimeError):
    """Error that is raised if rollouts (episodes) could not be played; its message says why."""


class EpisodeSeeds(NamedTuple):
    """Seeds of one episode.

    Attributes:
        environment: Seed of the environment.
        run: Seed of the disturbances, common to all episodes of a run.
        episode: Number of the episode in the run; the disturbances depend on it too.
    """

    environment: int
    run: int
    episode: int


class Outcomes(NamedTuple):
    """Results of R episodes of each of P candidate policies.

    Attributes:
        returns: Return of each episode (P, R) float64, NaN if it failed.
        steps: Number of steps of each episode (P, R) int64.
        failure: Why an episode failed; None if none did.
    """

    returns: np.ndarray
    steps: np.ndarray
    failure: str | None = None


class RolloutEngine(Protocol):
    """Interface of an object that plays episodes with policies."""

    def play(
        self,
        models: Sequence[Model],
        starts: Sequence[EpisodeSeeds],
        disturbance: DisturbanceSettings = NO_DISTURBANCE,
    ) -> Outcomes:
        """Play R episodes with each of P policies, and return the results of all.

        Args:
            models: The P policies.
            starts: Seeds of each of the R episodes, which are the same for all policies.
            disturbance: Disturbance of the readings.

        Raises:
            RolloutError: The episodes could not be played, for example because worker processes
                died.
        """

    def close(self) -> None:
        """Stop the worker processes or threads, if there are any."""


def make_evaluation_seeds(seed: int, episodes: int) -> list[EpisodeSeeds]:
    """Return the seeds of an evaluation's episodes.

    They depend only on the arguments, so that all models and disturbances are compared in the same
    episodes.

    Args:
        seed: Seed of the evaluation.
        episodes: Number of episodes.
    """
    return [EpisodeSeeds(derive_episode_seed(seed, e), seed, e) for e in range(episodes)]


def draw_training_seeds(rng: np.random.Generator, episodes: int) -> list[EpisodeSeeds]:
    """Draw the seeds of the episodes that all candidates of a generation play.

    Playing the same episodes (common random numbers) makes the candidates comparable.

    Args:
        rng: Source of the seeds.
        episodes: Number of episodes.
    """
    return [EpisodeSeeds(int(s), int(s), 0) for s in rng.integers(*TRAINING_SEEDS, episodes)]
