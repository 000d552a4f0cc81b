"""Recorded episodes: what a student learns from, the teacher's action beside every step.

An episode is driven by the teacher, by a blend of disturbances, or by the student itself
(DAgger, Ross et al. 2011); the label is always what the teacher would have done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np

from an_control.disturbance import TRAINING_SEEDS, DisturbanceSettings
from an_control.learning.faults import NOTHING, disturber, ids_of
from an_control.learning.rollout.live_episode import LiveEpisode, NewestReadings
from an_control.learning.teacher.teachers import Teacher
from an_control.policy import Policy


class Episode(NamedTuple):
    """T steps: observations (T, N) in nominal order, NaN where a reading is missing, the actions
    before them, the labels (T, A)."""

    observations: np.ndarray
    previous: np.ndarray
    labels: np.ndarray
    total: float = 0.0


class Driver(Protocol):
    """Chooses the action of each step of one episode."""

    def act(self, observation: np.ndarray, label: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """The action (A,), given what is seen (N,), NaN where it is missing, the teacher's and the
        previous action."""


def record(
    env: gymnasium.Env[Any, Any],
    teacher: Teacher,
    driver: Driver,
    rng: np.random.Generator,
    fault: DisturbanceSettings = NOTHING,
) -> Episode:
    """One episode under a fault to its end; only `rng` decides it.

    What is recorded is what was there; what the driver sees is what arrived. EnvironmentFailure as
    of `LiveEpisode`.
    """
    seed = int(rng.integers(*TRAINING_SEEDS))
    (channels,) = env.observation_space.shape or (0,)
    disturbed = disturber(channels, fault, rng)
    episode = LiveEpisode(env, seed, disturbed, ids_of(channels))
    previous = np.zeros(env.action_space.shape or (), np.float32)
    observations, actions, labels = [], [], []
    newest = NewestReadings()
    for tick in episode:
        label = teacher(newest(tick.observation))
        observations.append(tick.observation)
        actions.append(previous)
        labels.append(label)
        action = previous
        if tick.arrived:
            action = np.clip(driver.act(tick.values, label, previous), -1.0, 1.0)
        episode.act(action.astype(np.float32))
        assert episode.sent is not None
        previous = episode.sent
    return Episode(np.array(observations), np.array(actions), np.array(labels), episode.total)


class NoisyTeacher:
    """The teacher, with normal noise of a strength drawn once for the episode."""

    def __init__(self, rng: np.random.Generator, max_sd: float) -> None:
        self._rng = rng
        self._sd = max_sd * rng.random()

    def act(self, observation: np.ndarray, label: np.ndarray, previous: np.ndarray) -> np.ndarray:
        return label + self._sd * self._rng.standard_normal(label.shape)


class PerturbedTeacher:
    """The teacher between stretches of no, random, or wrongly wired actions.

    It visits what a student meets before it knows its channels, and then shows the way out.
    """

    def __init__(self, rng: np.random.Generator, teacher: Teacher, noise: float) -> None:
        self._rng, self._teacher = rng, teacher
        self._noise = NoisyTeacher(rng, noise)
        self._left = int(rng.integers(0, 40))
        self._mode = str(rng.choice(["still", "random", "shuffled", "swapped"]))
        self._first = True
        self._newest = NewestReadings()
        self._order: np.ndarray | None = None
        self._walk: np.ndarray | None = None

    def act(self, observation: np.ndarray, label: np.ndarray, previous: np.ndarray) -> np.ndarray:
        if self._left <= 0:
            self._switch()
        self._left -= 1
        seen = self._newest(observation)
        return self._noise.act(seen, self._choose(seen, label), previous)

    def _switch(self) -> None:
        self._first = False
        self._order = self._walk = None
        self._mode = str(self._rng.choice(["teacher"] * 4 + ["random", "shuffled", "swapped"]))
        brief = self._mode in ("random", "shuffled")
        self._left = int(self._rng.integers(3, 20) if brief else self._rng.integers(20, 120))

    def _choose(self, observation: np.ndarray, label: np.ndarray) -> np.ndarray:
        if self._mode == "teacher":
            return label
        if self._mode == "still":
            return np.zeros_like(label)
        if self._mode == "random":
            step = self._rng.standard_normal(label.shape)
            start = self._rng.random() * step if self._walk is None else self._walk
            self._walk = 0.8 * start + 0.42 * step
            return self._walk
        if self._order is None:
            self._order = self._wiring(len(observation))
        return self._teacher(observation[self._order]) * (0.5 if self._first else 1.0)

    def _wiring(self, channels: int) -> np.ndarray:
        """All channels shuffled, or a few of them swapped."""
        if self._mode == "shuffled":
            return self._rng.permutation(channels)
        order = np.arange(channels)
        if channels == 1:
            return order
        some = self._rng.choice(channels, int(self._rng.integers(2, min(9, channels + 1))), False)
        order[some] = self._rng.permutation(some)
        return order


@dataclass(frozen=True)
class RolloutSettings:
    """How a student's own episodes are disturbed; chances are for a step or an episode."""

    teacher_share: float = 0.0
    noise: float = 0.0
    reshuffle: float = 0.0
    missing: float = 0.0
    noise_channels: float = 0.0
    copies: float = 0.0
    faulty: bool = False
    """Whether the run's faults are drawn for the episode too."""


class StudentRollout:
    """The student on shuffled channels, the teacher taking over in between.

    Some channels may be missing, others come several times, and up to a fifth as many noise
    channels be added.
    """

    def __init__(
        self, rng: np.random.Generator, policy: Policy, channels: int, how: RolloutSettings
    ) -> None:
        self._rng, self._policy, self._how = rng, policy, how
        self._noise = NoisyTeacher(rng, how.noise)
        self._order = rng.permutation(channels)
        if rng.random() < how.missing and channels > 1:
            self._order = self._order[: channels - int(rng.integers(1, max(1, channels // 4) + 1))]
        if how.copies and rng.random() < how.copies:
            copies = rng.choice(self._order, int(rng.integers(1, channels + 1)))
            self._order = np.concatenate([self._order, copies])
        self._noise_channels = 0
        if rng.random() < how.noise_channels:
            self._noise_channels = int(rng.integers(1, channels // 5 + 2))
        slots = len(self._order) + self._noise_channels
        self._ids = tuple(str(slot) for slot in range(slots))
        self._teaching, self._left = False, 0
        policy.reset()

    def act(self, observation: np.ndarray, label: np.ndarray, previous: np.ndarray) -> np.ndarray:
        if self._rng.random() < self._how.reshuffle:
            self._order = self._rng.permutation(self._order)
        if self._left <= 0:
            self._teaching = self._rng.random() < self._how.teacher_share
            self._left = int(self._rng.integers(20, 100))
        self._left -= 1
        self._policy.previous_action = previous
        noise = self._rng.standard_normal(self._noise_channels)
        seen = np.concatenate([observation[self._order], noise])
        own = self._policy.step_array(seen, self._ids)
        return self._noise.act(observation, label if self._teaching else own, previous)
