"""One episode of an environment, tick by tick, under a disturbance: the only loop that plays one.

    episode = LiveEpisode(env, seed, disturber, channels)
    for tick in episode:
        episode.act(policy.step_array(tick.values, tick.ids))

Evaluation, the recording of episodes and learning all play so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np


class BadStep(ValueError):
    """An environment gave a reading or reward that is not finite."""


class Disturbance(Protocol):
    """What is done to the readings on their way; a `Disturber` after its `reset`, for one."""

    @property
    def shuffles(self) -> int:
        """How often signals have moved so far."""

    def apply(
        self, values: np.ndarray, channels: Sequence[str]
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """The readings and the ids of their slots, for one tick's readings of these channels."""


class Tick(NamedTuple):
    """What is known when an action is due."""

    observation: np.ndarray
    """(N, ...) as the environment gave it, in nominal order."""
    values: np.ndarray
    """(n, ...) as the disturbance leaves it."""
    ids: tuple[str, ...]
    """(n,) of the slots; empty without a disturbance."""
    moved: bool
    """Whether signals have moved since the last tick."""


class LiveEpisode:
    """An episode from `seed` on, for `limit` steps at most; each tick is answered by `act`.

    `disturbance` gets the readings under the names `channels`.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        seed: int,
        disturbance: Disturbance | None = None,
        channels: Sequence[str] = (),
        limit: int | None = None,
    ) -> None:
        self._env, self._disturbance, self._limit = env, disturbance, limit
        self._channels = tuple(channels)
        self.observation, self.info = env.reset(seed=seed)
        """The newest ones."""
        self.rewards: list[float] = []
        """One a step so far."""
        self.total = 0.0
        """Their sum."""
        self.fell = False
        """Whether the environment ended the episode."""
        self.done = False

    def __iter__(self) -> Iterator[Tick]:
        disturbance, channels, rewards = self._disturbance, self._channels, self.rewards
        steps, moves = 0, 0 if disturbance is None else disturbance.shuffles
        while not self.done:
            seen = self.observation
            if disturbance is None:
                yield Tick(seen, seen, (), False)
            else:
                values, ids = disturbance.apply(seen, channels)
                before, moves = moves, disturbance.shuffles
                yield Tick(seen, values, ids, moves > before)
            steps += 1
            if len(rewards) != steps:
                raise RuntimeError(f"step {steps}: {len(rewards)} actions were given so far")

    def act(self, action: np.ndarray) -> float:
        """One step of the environment with this action (A,); its reward.

        BadStep where it gives a reward or readings that are not finite.
        """
        observation, reward, self.fell, truncated, self.info = self._env.step(action)
        self.observation, reward = observation, float(reward)
        self.rewards.append(reward)
        self.total = total = self.total + reward
        if not math.isfinite(total) or not np.isfinite(observation).all():
            step = len(self.rewards)
            raise BadStep(f"step {step} gave reward {reward} and readings {observation}")
        self.done = self.fell or truncated or len(self.rewards) == self._limit
        return reward
