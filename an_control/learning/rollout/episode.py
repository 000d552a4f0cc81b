"""Play episodes of a gymnasium environment tick by tick, under a disturbance.

    episode = LiveEpisode(env, seed, disturber, channels)
    for tick in episode:
        episode.send_action(policy.step_array(tick.values, tick.ids))

This is the only such loop: evaluation, recording and learning all use it.
"""

from __future__ import annotations

import math
import pickle
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from an_control.disturbance import DisturbanceSettings, Disturber, RobotStop
from an_control.disturbance.patches import PatchDisturber
from an_control.learning.rollout.engine import EpisodeSeeds
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol
from an_control.load import make_policy
from an_control.policy import Model, Policy
from an_control.system.environment_output import OUTPUT, PrintedOutput
from an_control_sim.gym.environments import (
    get_step_length_s,
    has_patch_observations,
    make_environment,
)
from an_control_sim.gym.failure import BrokenEnvironmentError, make_broken_environment_error
from an_control_sim.gym.units import Units
from an_control_sim.gym.varied_robot import vary_robot

MAX_BLIND = 100
"""Number of steps in a row without any reading after which an episode has failed."""


class NewestReadings:
    """Filter that replaces a missing reading (NaN) by its channel's newest reading.

    If the channel has had no reading yet, 0 replaces it. Teachers, and all other networks that need
    every reading, get the filtered readings.
    """

    def __init__(self) -> None:
        self._newest: np.ndarray | None = None

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the readings (N, ...) of a tick with all missing ones replaced."""
        missing = np.isnan(values)
        if missing.any():
            newest = np.zeros_like(values) if self._newest is None else self._newest
            values = np.where(missing, newest, values)
        self._newest = values
        return values


EpisodeDisturbance = Disturber | PatchDisturber
"""What disturbs an episode: a `Disturber` after its `start_episode`, or its form for patches."""


class Tick(NamedTuple):
    """Readings of one tick (control step), for which an action is due.

    Attributes:
        observation: The environment's readings (N, ...) in its own order, NaN where missing.
        values: The disturbed readings (n, ...), NaN where missing.
        ids: Ids of the n input slots at which the disturbed readings arrive; () without a
            disturbance.
        moved: Whether signals have changed their input slots since the last tick.
        arrived: Whether `values` come from a new message; False if this tick's message was lost or
            has no reading. If it is False, the last action is sent again, and the policy does not
            step unless it was trained to step on old readings.
    """

    observation: np.ndarray
    values: np.ndarray
    ids: tuple[str, ...]
    moved: bool
    arrived: bool = True


class LiveEpisode:
    """Running episode of an environment, an iterable of ticks with the readings.

    Call `send_action` once for each tick.

    Args:
        env: The environment; this resets it.
        seed: Seed of the environment.
        disturbance: Object that disturbs readings, commands and robot; None for no disturbance.
        channels: Ids of the observation's entries, in their order.
        limit: Maximum number of steps; None for the environment's own.

    Raises:
        ValueError: The environment does not support the disturbance.
        BrokenEnvironmentError: The environment raises an error, gives a reward that is not finite,
            or gives no reading for more than `MAX_BLIND` (100) steps or a whole episode.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        seed: int,
        disturbance: EpisodeDisturbance | None = None,
        channels: Sequence[str] = (),
        limit: int | None = None,
    ) -> None:
        self._env, self._disturbance, self._limit = env, disturbance, limit
        self._channels = tuple(channels)
        self.stop: RobotStop | None = None
        """When the safe command, which is an action of zeros, replaces the actions; None for never.
        """
        if disturbance is None:
            vary_robot(env)
        else:
            vary_robot(env, disturbance.settings)
            self.stop = disturbance.draw_robot_stop(get_step_length_s(env))
        self._blind = 0
        self.observation, self.info = env.reset(seed=seed)
        """The environment's newest observation and info."""
        self.sent: np.ndarray | None = None
        """The action that was sent last."""
        self.rewards: list[float] = []
        """The rewards of the steps so far."""
        self.total = 0.0
        """The sum of the rewards."""
        self.fell = False
        """Whether the environment ended the episode (terminated)."""
        self.done = False
        self._check_readings_arrive(episode_has_ended=False)

    def __iter__(self) -> Iterator[Tick]:
        disturbance, channels, rewards = self._disturbance, self._channels, self.rewards
        steps, moves = 0, 0 if disturbance is None else disturbance.shuffle_count
        while not self.done:
            seen = self.observation
            if self.stop is not None and steps == self.stop.begin and self.sent is not None:
                self.sent = np.zeros_like(self.sent)  # a stop takes effect between two ticks
            if disturbance is None:
                yield Tick(seen, seen, (), False, not self._blind)
            else:
                values, ids = disturbance.disturb(seen, channels)
                before, moves = moves, disturbance.shuffle_count
                arrived = disturbance.has_message_arrived and not self._blind
                yield Tick(seen, values, ids, moves > before, arrived)
            steps += 1
            if len(rewards) != steps:
                raise RuntimeError(
                    f"step {steps}: `send_action` was called {len(rewards)} times"
                    " (allowed: once per tick)"
                )

    def send_action(self, action: np.ndarray) -> float:
        """Send an action (A,) to the environment for one step and return the reward.

        While the robot is stopped, zeros are sent instead. If the newest observation had no
        reading, and the action is not finite, the last action is sent again.
        """
        stop, step = self.stop, len(self.rewards)
        if self._blind and not np.isfinite(action).all():
            action = np.zeros_like(action) if self.sent is None else self.sent
        if stop is not None and stop.begin <= step < stop.end:
            action = np.zeros_like(action)
        self.sent = action
        observation, reward, self.fell, truncated, self.info = self._env.step(action)
        self.observation, reward = observation, float(reward)
        self.rewards.append(reward)
        self.total = total = self.total + reward
        if not math.isfinite(total):
            raise self._make_error(f"gave the reward {reward}")
        over = self.fell or truncated
        self._check_readings_arrive(over)
        self.done = over or len(self.rewards) == self._limit
        if stop is not None:
            stop.update_walked_distance(step + 1, self.info.get("distance_m"))
        return reward

    def _check_readings_arrive(self, episode_has_ended: bool) -> None:
        """Check that the environment still gives readings.

        Args:
            episode_has_ended: Whether the episode has ended.

        Raises:
            BrokenEnvironmentError: Too many successive steps, or the whole episode, had no reading.
        """
        if np.isfinite(self.observation).any():
            self._blind = 0
            return
        self._blind += 1
        if self._blind > MAX_BLIND or (episode_has_ended and self._blind > len(self.rewards)):
            raise self._make_error(
                f"gave no finite reading, nor did the {self._blind - 1} steps before"
            )

    def _make_error(self, problem: str) -> BrokenEnvironmentError:
        """Return an error that names the environment and the step.

        Args:
            problem: What happened, a phrase that follows "step 7", such as "gave the reward nan".
        """
        spec = self._env.spec
        name = type(self._env.unwrapped).__name__ if spec is None else spec.id
        return BrokenEnvironmentError(f"environment {name!r}: step {len(self.rewards)} {problem}")


Watch = Callable[[Policy, Disturber], None]
"""Function that is called after each action of an episode."""

TRIES = 2
"""Number of times that a rollout is tried if it fails, each time in a new environment."""


@dataclass(frozen=True)
class PlayedEpisode:
    """Result of one episode.

    Attributes:
        total: The episode's return.
        steps: Number of steps.
        shuffles: How often signals were permuted among the input slots.
        fell: Whether the environment ended the episode (terminated).
        distance_m: Distance covered in metres; None if the environment does not report one.
        wall_s: Wall-clock time in seconds.
        rewards: Reward of each step; empty if compiled code played the episode.
        rewired: Numbers of the steps at whose start signals were permuted.
        detected: How often the identity monitor detected a permutation.
        walked_m: Distance in metres that the robot covered in the first 8 s after the end of a stop
            by the safe command; None without such a stop, or if the robot fell during it.
    """

    total: float
    steps: int
    shuffles: int
    fell: bool
    distance_m: float | None
    wall_s: float
    rewards: np.ndarray = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)
    rewired: tuple[int, ...] = field(default=(), repr=False)
    detected: int = 0
    walked_m: float | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return the results that the command line writes with `--json`, by name."""
        return {
            "return": self.total,
            "steps": self.steps,
            "shuffles": self.shuffles,
            "detected": self.detected,
            "fell": self.fell,
            "distance_m": self.distance_m,
            "walked_m": self.walked_m,
        }


class WorkerResult(NamedTuple):
    """Results of one model's R episodes, as a worker process returns them.

    Attributes:
        returns: Return of each episode (R,), NaN if it failed.
        steps: Number of steps of each episode (R,).
        failure: Why an episode failed; None if none did.
        printed: Text that the environment printed.
    """

    returns: np.ndarray
    steps: np.ndarray
    failure: str | None
    printed: PrintedOutput


def play_episode(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    channels: tuple[str, ...],
    disturber: Disturber,
    start: EpisodeSeeds,
    protocol: EvaluationProtocol | None = None,
    watch: Watch | None = None,
) -> PlayedEpisode:
    """Play one episode of a policy to its end.

    Args:
        policy: The policy; this function resets it.
        env: The environment.
        channels: Ids of the observation's entries, in their order.
        disturber: Disturbs the episode; this function resets it to the episode with the number
            `start.episode`.
        start: Seeds of the episode.
        protocol: Decides before which steps the state of the policy's sensory neurons is cleared;
            None for never.
        watch: Function (policy, disturber) that is called in each step, after the policy has acted;
            None for none.

    Raises:
        BrokenEnvironmentError: The environment fails; see `LiveEpisode`.
    """
    begin = time.perf_counter()
    disturber.start_episode(start.episode)
    policy.reset()
    disturbance = PatchDisturber(disturber) if has_patch_observations(env) else disturber
    episode = LiveEpisode(env, start.environment, disturbance, channels)
    rewired: list[int] = []
    wanted: np.ndarray | None = None
    repeats = policy.model.task.repeats
    for tick in episode:
        if tick.moved:
            rewired.append(len(episode.rewards))
        forgets = protocol is not None and protocol.should_clear_state(tick.moved)
        if forgets and policy.channel_state is not None:
            policy.channel_state.reset_channels()
        action = episode.sent
        if action is None or tick.arrived or repeats:
            if action is not None and action is not wanted:  # the safe command was sent instead
                policy.previous_action = action
            action = wanted = policy.step_array(tick.values, tick.ids)
        if watch is not None:
            watch(policy, disturber)
        episode.send_action(action)
    return PlayedEpisode(
        episode.total,
        len(episode.rewards),
        disturber.shuffle_count,
        bool(episode.fell),
        episode.info.get("distance_m"),
        time.perf_counter() - begin,
        np.array(episode.rewards),
        tuple(rewired),
        0 if policy.monitor_report is None else policy.monitor_report.rewires,
        None if episode.stop is None else episode.stop.walked_m,
    )


def play_pickled_model(
    environment: str,
    channels: tuple[str, ...],
    pickled_model: bytes,
    starts: Sequence[EpisodeSeeds],
    disturbance: DisturbanceSettings,
) -> WorkerResult:
    """Play one model through several episodes, as the task of a worker process.

    The worker process makes the environment. An episode that fails is tried once more. If it fails
    again, its return is NaN, and the remaining episodes are still played.

    Args:
        environment: The gymnasium id.
        channels: Ids of the observation's entries, in their order.
        pickled_model: The pickled `Model`.
        starts: Seeds of each episode.
        disturbance: Disturbance of the readings.
    """
    model: Model = pickle.loads(pickled_model)
    policy, units = make_policy(model, "off"), Units.from_task(model.task)
    returns, steps = np.full(len(starts), np.nan), np.zeros(len(starts), np.int64)
    failure = None
    for number, start in enumerate(starts):
        for _ in range(TRIES):
            try:
                result = play_episode(
                    policy,
                    _get_or_make_environment(environment, units),
                    channels,
                    Disturber(channels, disturbance, start.run, episode=None),
                    start,
                )
            except Exception as error:  # an environment may raise anything
                problem = str(error)
                if not isinstance(error, BrokenEnvironmentError):
                    problem = str(make_broken_environment_error(environment, "an episode", error))
                with suppress(Exception):
                    _get_or_make_environment(environment, units).close()
                _get_or_make_environment.cache_clear()
                continue
            returns[number], steps[number] = result.total, result.steps
            break
        else:
            failure = problem
    return WorkerResult(returns, steps, failure, OUTPUT.pop_new_output())


@lru_cache(maxsize=1)
def _get_or_make_environment(environment: str, units: Units) -> gymnasium.Env[Any, Any]:
    """Return the environment of the last call if the arguments are the same, else make a new one.

    Args:
        environment: The gymnasium id.
        units: Offsets and scales of the readings.
    """
    return make_environment(environment, units)
