"""Score policies: 0 is the random policy's return, 1 the teacher's.

A score is (mean - random) / (teacher - random). All rows of a table play the same episodes in the
same order, each as many as its time allows.
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
from an_control_sim.gym.failure import EnvironmentFailure, Failures

SEED = 1
"""Seed of the episodes; training uses others."""
EPISODES = 10, 100
"""Minimum and maximum number of episodes of a row."""
MIN_EPISODES = 2
"""Minimum number of episodes for a standard error."""
MIN_CHANNELS = 10
"""Minimum number of channels for the row with a tenth of them missing."""
MIN_STEPS = {"100": 200, "25": 50}
"""Minimum mean length of the teacher's episodes for a row with reshuffles to mean something, by
protocol."""


class Case(NamedTuple):
    """Row of the table to play: which policy acts, under which protocol."""

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
    """Returns of a case, one for each episode, and the mean length of its episodes in steps."""

    name: str
    returns: tuple[float, ...]
    steps: float

    @property
    def array(self) -> np.ndarray:
        """Return the returns as an array (E,)."""
        return np.array(self.returns)

    @property
    def mean(self) -> float:
        """Return the mean return."""
        return float(self.array.mean())

    @property
    def error(self) -> float:
        """Return the standard error of the mean return."""
        return float(self.array.std(ddof=1) / math.sqrt(len(self.returns)))

    def score(self, random: Row, teacher: Row) -> float:
        """Return the score of the mean return.

        It is NaN if the teacher is no better than the random policy.
        """
        way = teacher.mean - random.mean
        return (self.mean - random.mean) / way if way > 0.0 else math.nan


class Scoring:
    """Player of a table of scores, row by row.

    Teacher and random policy act on the task's own channels.

    Args:
        env: The environment.
        channels: Ids of the observation's entries, in their order.
        teacher: The teacher.
        model: The student.
    """

    def __init__(
        self, env: gymnasium.Env[Any, Any], channels: Sequence[str], teacher: Teacher, model: Model
    ) -> None:
        self._env, self._channels = env, tuple(channels)
        self._teacher = in_units(teacher, adapter_of(env).units)
        self._policy = make_policy(model)
        self.failures = Failures()
        """Failed episodes, which are left out."""

    def cases(self, rows: Sequence[Row]) -> list[Case]:
        """Return the cases that are meaningful for this task.

        Args:
            rows: The rows of `REFERENCES`.
        """
        steps = rows[1].steps
        few = len(self._channels) < MIN_CHANNELS
        return [
            case
            for case in CASES
            if steps >= MIN_STEPS.get(case.protocol, 0)
            and not (few and case.protocol == "none,missing=0.1")
        ]

    def play(self, case: Case, seconds: float, bounds: tuple[int, int] = EPISODES) -> Row:
        """Play the episodes of a row until a limit of processor time; failed episodes are left out.

        Args:
            case: The row.
            seconds: Limit of processor time, in seconds.
            bounds: Minimum and maximum number of episodes.

        Raises:
            EnvironmentFailure: Nearly all episodes failed.
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
            except EnvironmentFailure as failure:
                self.failures.note(failure)
                last = failure
                continue
            self.failures.succeed()
            over = time.process_time() - begun >= seconds
            if over and len(episodes) >= bounds[0]:
                break
        if len(episodes) < MIN_EPISODES:
            raise EnvironmentFailure(f"{last}; so did nearly all episodes of the row {case.name}")
        returns, steps = zip(*episodes, strict=True)
        return Row(case.name, returns, float(np.mean(steps)))

    def _student(self, disturber: Disturber, start: Start, protocol: Protocol) -> tuple[float, int]:
        """Play an episode of the student and return (return, steps)."""
        policy: Policy = self._policy
        result = play_episode(policy, self._env, self._channels, disturber, start, protocol)
        return result.total, result.steps

    def _unshuffled(self, who: str, disturber: Disturber, start: Start) -> tuple[float, int]:
        """Play an episode of the random policy or the teacher and return (return, steps)."""
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
        """Return the teacher as a function of the observation; missing readings are replaced."""
        newest = NewestReadings()
        return lambda observation: self._teacher(newest(observation))

    def _random(self, start: Start) -> Callable[[np.ndarray], np.ndarray]:
        """Return a random policy as a function of the observation."""
        rng, shape = np.random.default_rng([SEED, start.episode]), self._env.action_space.shape
        return lambda observation: rng.uniform(-1.0, 1.0, shape).astype(np.float32)


def markdown(rows: Sequence[Row]) -> str:
    """Return the table of returns and scores in Markdown, with the standard errors of the rows."""
    lines = ["| | return | score | episodes |", "|---|---|---|---|"]
    random, teacher, *_ = rows
    way = teacher.mean - random.mean
    for row in rows:
        score = row.score(random, teacher)
        shown = "-" if math.isnan(score) else f"{score:.1%} +- {row.error / way:.1%}"
        returns = f"{row.mean:.1f} +- {row.error:.1f}"
        lines.append(f"| {row.name} | {returns} | {shown} | {len(row.returns)} |")
    return "\n".join(lines)
