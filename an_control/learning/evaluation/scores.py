"""Scores: returns as shares of the way from the random policy to the teacher.

A score is (mean - random) / (teacher - random). Every row of a table of scores plays the same
episodes from their beginning; each is played until its share of the time is spent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from an_control.disturbance import Disturber
from an_control.learning.rollout.engine import Start, evaluation_starts
from an_control.learning.rollout.episode import LiveEpisode, NewestReadings, play_episode
from an_control.learning.rollout.evaluation_protocol import Protocol
from an_control.learning.teacher.teachers import Teacher, in_units
from an_control.load import make_policy
from an_control.policy import Model, Policy
from an_control_sim.gym.environments import adapter_of
from an_control_sim.gym.failure import BrokenEnvironmentError, Failures

SEED = 1
"""Of the episodes; training takes others."""
EPISODES = 10, 100
"""Of a row, at least and at most."""
MIN_EPISODES = 2
"""Of a row that has a standard error."""
MIN_CHANNELS = 10
"""Of a task whose table has a row with a tenth of the channels missing."""
MIN_STEPS = {"100": 200, "25": 50}
"""The teacher's mean episode length from which on a row of reshuffles says something."""


class Case(NamedTuple):
    """A row: who acts, and under what."""

    name: str
    who: str
    """random, teacher or student."""
    protocol: str = "none"


REFERENCES = (Case("random policy", "random"), Case("teacher", "teacher"))
CASES = (
    Case("teacher, delay=1", "teacher", "none,delay=1"),
    Case("teacher, noise 0.02", "teacher", "none,jitter=0.02"),
    Case("teacher, lose=0.1", "teacher", "none,lose=0.1"),
    Case("teacher, repeat=0.1", "teacher", "none,repeat=0.1"),
    Case("student, clean", "student"),
    Case("student, shuffled at the reset", "student", "reset"),
    Case("student, reshuffled every 100 steps", "student", "100"),
    Case("student, reshuffled every 25 steps", "student", "25"),
    Case("student, 10% of the channels missing", "student", "none,missing=0.1"),
    Case("student, delay=1", "student", "none,delay=1"),
    Case("student, noise 0.02", "student", "none,jitter=0.02"),
    Case("student, lose=0.1", "student", "none,lose=0.1"),
    Case("student, repeat=0.1", "student", "none,repeat=0.1"),
)


@dataclass(frozen=True)
class Row:
    """A case's returns, one an episode, and the mean steps of its episodes."""

    name: str
    returns: tuple[float, ...]
    steps: float

    @property
    def array(self) -> np.ndarray:
        """The returns (E,)."""
        return np.array(self.returns)

    @property
    def mean(self) -> float:
        return float(self.array.mean())

    @property
    def error(self) -> float:
        """The standard error of the mean."""
        return float(self.array.std(ddof=1) / math.sqrt(len(self.returns)))

    def score(self, random: Row, teacher: Row) -> float:
        """NaN where the teacher is no better than the random policy."""
        way = teacher.mean - random.mean
        return (self.mean - random.mean) / way if way > 0.0 else math.nan


class Scoring:
    """A task's table of scores, row by row; an action is taken on the task's own channels."""

    def __init__(
        self, env: gymnasium.Env[Any, Any], channels: Sequence[str], teacher: Teacher, model: Model
    ) -> None:
        self._env, self._channels = env, tuple(channels)
        self._teacher = in_units(teacher, adapter_of(env).units)
        self._policy = make_policy(model)
        self.failures = Failures()
        """Of the episodes, which are left out."""

    def cases(self, rows: Sequence[Row]) -> list[Case]:
        """What is to be played, once the rows of `REFERENCES` are there."""
        steps = rows[1].steps
        few = len(self._channels) < MIN_CHANNELS
        return [
            case
            for case in CASES
            if steps >= MIN_STEPS.get(case.protocol, 0)
            and not (few and case.protocol == "none,missing=0.1")
        ]

    def play(self, case: Case, seconds: float, bounds: tuple[int, int] = EPISODES) -> Row:
        """A row: episodes until so much processor time is spent, so many at least and at most.

        Those that fail are left out; BrokenEnvironmentError where nearly all do.
        """
        protocol = Protocol.parse(case.protocol)
        disturber = Disturber(self._channels, protocol.disturbance, SEED)
        begun = time.process_time()
        episodes: list[tuple[float, int]] = []
        for start in evaluation_starts(SEED, bounds[1]):
            try:
                if case.who == "student":
                    episodes.append(self._student(disturber, start, protocol))
                else:
                    episodes.append(self._unshuffled(case.who, disturber, start))
            except BrokenEnvironmentError as failure:
                self.failures.note(failure)
                last = failure
                continue
            self.failures.succeed()
            over = time.process_time() - begun >= seconds
            if over and len(episodes) >= bounds[0]:
                break
        if len(episodes) < MIN_EPISODES:
            raise BrokenEnvironmentError(
                f"{last}; so did nearly all episodes of the row {case.name}"
            )
        returns, steps = zip(*episodes, strict=True)
        return Row(case.name, returns, float(np.mean(steps)))

    def _student(self, disturber: Disturber, start: Start, protocol: Protocol) -> tuple[float, int]:
        policy: Policy = self._policy
        result = play_episode(policy, self._env, self._channels, disturber, start, protocol)
        return result.total, result.steps

    def _unshuffled(self, who: str, disturber: Disturber, start: Start) -> tuple[float, int]:
        disturber.reset(start.episode)
        act = self._random(start) if who == "random" else self._taught()
        episode = LiveEpisode(self._env, start.environment, disturber, self._channels)
        for tick in episode:
            action = episode.sent
            if action is None or tick.arrived:
                readings = dict(zip(tick.ids, tick.values, strict=True))
                action = act(np.array([readings[name] for name in self._channels], np.float32))
            episode.act(action)
        return episode.total, len(episode.rewards)

    def _taught(self) -> Callable[[np.ndarray], np.ndarray]:
        newest = NewestReadings()
        return lambda observation: self._teacher(newest(observation))

    def _random(self, start: Start) -> Callable[[np.ndarray], np.ndarray]:
        rng, shape = np.random.default_rng([SEED, start.episode]), self._env.action_space.shape
        return lambda observation: rng.uniform(-1.0, 1.0, shape).astype(np.float32)


def markdown(rows: Sequence[Row]) -> str:
    """The table: returns and scores, with the standard errors of the rows' own means."""
    lines = ["| | return | score | episodes |", "|---|---|---|---|"]
    random, teacher, *_ = rows
    way = teacher.mean - random.mean
    for row in rows:
        score = row.score(random, teacher)
        shown = "-" if math.isnan(score) else f"{score:.1%} +- {row.error / way:.1%}"
        returns = f"{row.mean:.1f} +- {row.error:.1f}"
        lines.append(f"| {row.name} | {returns} | {shown} | {len(row.returns)} |")
    return "\n".join(lines)
