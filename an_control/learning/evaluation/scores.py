"""Scores of policies on a scale where 0 is the random policy's return and 1 the teacher's.

A score is (mean - random) / (teacher - random). A table of scores has one row for each policy and
disturbance. All rows play the same episodes in the same order, but each row plays only as many as
its time limit allows. The standard error of a score takes into account that the episodes are the
same (paired differences).
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from an_control.disturbance import Disturber
from an_control.learning.rollout.engine import EpisodeSeeds, make_evaluation_seeds
from an_control.learning.rollout.episode import LiveEpisode, NewestReadings, play_episode
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol
from an_control.learning.runs.card import (
    compute_mean_return,
    compute_standard_error,
    count_failed_episodes,
)
from an_control.learning.teacher.teachers import Teacher, convert_teacher_to_units
from an_control.load import make_policy
from an_control.policy import Model
from an_control_sim.gym.environments import find_adapter
from an_control_sim.gym.failure import BrokenEnvironmentError, FailureCounter

SEED = 1
"""Seed of the episodes; training uses others."""
EPISODES = 10, 100
"""Minimum and maximum number of episodes that are played for one row of the table."""
MIN_EPISODES = 2
"""Minimum number of episodes from which a standard error is computed."""
MIN_CHANNELS = 10
"""Minimum number of channels of a task. If a task has fewer, the table has no row in which a tenth
of the channels are missing."""
MIN_STEPS = {"100": 200, "25": 50}
"""A mapping from a protocol that permutes the signals again and again to a number of steps. If the
mean length of the teacher's episodes is shorter, the table has no row for this protocol."""


class ScoreCase(NamedTuple):
    """One case to evaluate for a table of scores: a policy, and how its episodes are disturbed.

    Attributes:
        name: Title of the case, such as "student, delay=1".
        actor: Policy that acts: "random", "teacher" or "student".
        protocol: How the signals are permuted, and the disturbances, as text: "none,delay=1" is no
            permutation and a delay.
    """

    name: str
    actor: str
    protocol: str = "none"


REFERENCES = (ScoreCase("random policy", "random"), ScoreCase("teacher", "teacher"))
CASES = (
    ScoreCase("teacher, delay=1", "teacher", "none,delay=1"),
    ScoreCase("teacher, noise 0.02", "teacher", "none,jitter=0.02"),
    ScoreCase("teacher, lose=0.1", "teacher", "none,lose=0.1"),
    ScoreCase("teacher, repeat=0.1", "teacher", "none,repeat=0.1"),
    ScoreCase("student, clean", "student"),
    ScoreCase("student, shuffled at the reset", "student", "reset"),
    ScoreCase("student, reshuffled every 100 steps", "student", "100"),
    ScoreCase("student, reshuffled every 25 steps", "student", "25"),
    ScoreCase("student, 10% of the channels missing", "student", "none,missing=0.1"),
    ScoreCase("student, delay=1", "student", "none,delay=1"),
    ScoreCase("student, noise 0.02", "student", "none,jitter=0.02"),
    ScoreCase("student, lose=0.1", "student", "none,lose=0.1"),
    ScoreCase("student, repeat=0.1", "student", "none,repeat=0.1"),
)


@dataclass(frozen=True)
class ScoreRow:
    """Result of a case (`ScoreCase`), from which a row of the table of scores is made.

    Attributes:
        name: Title of the case.
        returns: Return of each episode, NaN for one that failed.
        steps: Mean length of the episodes in steps.
    """

    name: str
    returns: tuple[float, ...]
    steps: float

    @property
    def return_array(self) -> np.ndarray:
        """Return the returns of the E episodes as an array (E,)."""
        return np.array(self.returns)

    @property
    def mean_return(self) -> float:
        """Return the mean of the returns, without failed episodes."""
        return compute_mean_return(self.return_array)

    @property
    def standard_error(self) -> float:
        """Return the standard error of the mean return."""
        return compute_standard_error(self.return_array)

    def compute_score_relative_to_teacher(
        self, random_row: ScoreRow, teacher_row: ScoreRow
    ) -> float:
        """Return the score, on a scale where the random policy has 0 and the teacher has 1.

        It is NaN if the teacher's mean return is not above that of the random policy.

        Args:
            random_row: Result of the random policy.
            teacher_row: Result of the teacher.
        """
        way = teacher_row.mean_return - random_row.mean_return
        return (self.mean_return - random_row.mean_return) / way if way > 0.0 else math.nan

    def compute_standard_error_of_score(self, random_row: ScoreRow, teacher_row: ScoreRow) -> float:
        """Return the standard error of the score that `compute_score_relative_to_teacher` returns.

        All policies play the same episodes, so that their errors partly cancel. Let x, r and t be
        the returns of this result, the random policy and the teacher in one episode. The error is
        the standard error of the mean of (x - r) - score * (t - r), divided by the mean of t - r.

        Args:
            random_row: Result of the random policy.
            teacher_row: Result of the teacher.
        """
        score = self.compute_score_relative_to_teacher(random_row, teacher_row)
        rows = ((self, 1.0), (random_row, score - 1.0), (teacher_row, -score))
        count = max(len(row.returns) for row, _ in rows)
        deviations = np.zeros(count)
        for row, factor in rows:
            apart = row.return_array - row.mean_return
            known = np.isfinite(apart)
            deviations[: len(apart)] += np.where(known, factor * apart / known.sum(), 0.0)
        fewest = min(int(np.isfinite(row.return_array).sum()) for row, _ in rows)
        error = math.sqrt(float(deviations @ deviations) * fewest / (fewest - 1))
        return error / (teacher_row.mean_return - random_row.mean_return)


class ScorePlayer:
    """Player of the episodes for a table of scores, which compares a student with its teacher.

    Only the student gets shuffled channels. The teacher and a random policy always get them in the
    environment's order.

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
        self._teacher = convert_teacher_to_units(teacher, find_adapter(env).units)
        self._policy = make_policy(model)
        self.failures = FailureCounter()
        """Counter of the episodes that failed, which are left out of the rows."""

    def select_score_cases_for_task(self, reference_rows: Sequence[ScoreRow]) -> list[ScoreCase]:
        """Choose the cases of `CASES` that make sense for the task and return them.

        The case with missing channels needs a task with at least `MIN_CHANNELS` channels. The cases
        in which signals are permuted again and again need long episodes (`MIN_STEPS`).

        Args:
            reference_rows: Result of the random policy, then that of the teacher. The teacher's
                mean length of an episode decides whether episodes are long.
        """
        steps = reference_rows[1].steps
        few = len(self._channels) < MIN_CHANNELS
        return [
            case
            for case in CASES
            if steps >= MIN_STEPS.get(case.protocol, 0)
            and not (few and case.protocol == "none,missing=0.1")
        ]

    def play_episodes_of_score_case(
        self, case: ScoreCase, time_limit_s: float, episode_bounds: tuple[int, int] = EPISODES
    ) -> ScoreRow:
        """Play the episodes of one case until a time limit, and return the result.

        Episodes that fail have the return NaN.

        Args:
            case: The policy to play and the disturbances of its episodes.
            time_limit_s: Limit of processor time, in seconds.
            episode_bounds: Minimum and maximum number of episodes. The minimum is played even if
                that exceeds the time limit.

        Raises:
            BrokenEnvironmentError: Nearly all episodes failed.
        """
        protocol = EvaluationProtocol.parse(case.protocol)
        disturber = Disturber(self._channels, protocol.disturbance, SEED)
        begun = time.process_time()
        returns: list[float] = []
        steps: list[int] = []  # of the episodes that did not fail
        for start in make_evaluation_seeds(SEED, episode_bounds[1]):
            try:
                if case.actor == "student":
                    result = play_episode(
                        self._policy, self._env, self._channels, disturber, start, protocol
                    )
                    total, count = result.total, result.steps
                else:
                    total, count = self._play_in_nominal_order(case.actor, disturber, start)
            except BrokenEnvironmentError as failure:
                self.failures.count_failure(failure)
                last = failure
                returns.append(math.nan)
                continue
            self.failures.reset_consecutive_failures()
            returns.append(total)
            steps.append(count)
            over = time.process_time() - begun >= time_limit_s
            if over and len(steps) >= episode_bounds[0]:
                break
        if len(steps) < MIN_EPISODES:
            raise BrokenEnvironmentError(
                f"{last}; nearly all episodes of the row {case.name!r} failed"
            )
        return ScoreRow(case.name, tuple(returns), float(np.mean(steps)))

    def _play_in_nominal_order(
        self, actor: str, disturber: Disturber, start: EpisodeSeeds
    ) -> tuple[float, int]:
        """Play an episode with the random policy or the teacher; return its return and steps.

        All disturbances except a permutation apply. The teacher gets the last reading of a missing
        channel.
        """
        disturber.start_episode(start.episode)
        rng, newest = np.random.default_rng([SEED, start.episode]), NewestReadings()
        episode = LiveEpisode(self._env, start.environment, disturber, self._channels)
        for tick in episode:
            action = episode.sent
            if action is None or tick.arrived:
                readings = dict(zip(tick.ids, tick.values, strict=True))
                observation = np.array([readings[name] for name in self._channels], np.float32)
                if actor == "random":
                    shape = self._env.action_space.shape
                    action = rng.uniform(-1.0, 1.0, shape).astype(np.float32)
                else:
                    action = self._teacher(newest(observation))
            episode.send_action(action)
        return episode.total, len(episode.rewards)


def format_score_table(rows: Sequence[ScoreRow]) -> str:
    """Return the table of returns and scores in Markdown, with standard errors.

    Args:
        rows: Results that become the rows of the table: first that of the random policy, then that
            of the teacher, then all others.
    """
    lines = ["| | return | score | episodes |", "|---|---|---|---|"]
    random, teacher, *_ = rows
    for row in rows:
        score = row.compute_score_relative_to_teacher(random, teacher)
        shown = "-" if math.isnan(score) else f"{score:.1%}"
        is_reference = row is random or row is teacher  # whose scores are 0 and 1 by definition
        if not is_reference and not math.isnan(score):
            shown += f" +- {row.compute_standard_error_of_score(random, teacher):.1%}"
        returns = f"{row.mean_return:.1f} +- {row.standard_error:.1f}"
        episodes = len(row.returns) - count_failed_episodes(row.return_array)
        lines.append(f"| {row.name} | {returns} | {shown} | {episodes} |")
    return "\n".join(lines)
