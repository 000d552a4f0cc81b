"""Playing episodes one by one with a gymnasium environment: what every worker process does.

One episode of an environment, tick by tick, under a disturbance: the only loop that plays one.

    episode = LiveEpisode(env, seed, disturber, channels)
    for tick in episode:
        episode.act(policy.step_array(tick.values, tick.ids))

Evaluation, the recording of episodes and learning all play so.
"""

from __future__ import annotations

import math
import pickle
import time
import typing
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from an_control.disturbance import DisturbanceSettings, Disturber, Stop
from an_control.disturbance.patches import DisturbedPatches
from an_control.learning.rollout.engine import Start
from an_control.learning.rollout.evaluation_protocol import Protocol
from an_control.load import make_policy
from an_control.policy import Model, Policy
from an_control.system.environment_output import OUTPUT, PrintedOutput
from an_control_sim.gym.environments import make_environment, of_patches, step_length
from an_control_sim.gym.failure import BrokenEnvironmentError, failure_of
from an_control_sim.gym.units import Units
from an_control_sim.gym.varied_robot import varied

MAX_BLIND = 100
"""Steps in a row without any reading after which an episode has failed."""


class NewestReadings:
    """Replaces readings that are missing (NaN) by the newest ones there were, at first 0.

    A teacher and every other network that needs all its readings acts on these.
    """

    def __init__(self) -> None:
        self._newest: np.ndarray | None = None

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Return the readings (N, ...) of a tick, all of them finite."""
        missing = np.isnan(values)
        if missing.any():
            newest = np.zeros_like(values) if self._newest is None else self._newest
            values = np.where(missing, newest, values)
        self._newest = values
        return values


class Disturbance(typing.Protocol):
    """What is done in an episode; a `Disturber` after its `reset`, for one."""

    @property
    def settings(self) -> DisturbanceSettings:
        """Of this episode, without ranges; those of the robot count from its beginning."""

    @property
    def shuffles(self) -> int:
        """How often signals have moved so far."""

    @property
    def arrived(self) -> bool:
        """Whether a message came in this tick."""

    def stop(self, step_s: float) -> Stop | None:
        """When the safe command stops the robot; called once, before the first tick."""

    def apply(
        self, values: np.ndarray, channels: Sequence[str]
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """The readings and the ids of their slots, for one tick's readings of these channels."""


class Tick(NamedTuple):
    """What is known when an action is due."""

    observation: np.ndarray
    """(N, ...) as the environment gave it, in nominal order; NaN where a reading is missing."""
    values: np.ndarray
    """(n, ...) as the disturbance leaves it, with the same NaN."""
    ids: tuple[str, ...]
    """(n,) of the slots; empty without a disturbance."""
    moved: bool
    """Whether signals have moved since the last tick."""
    arrived: bool = True
    """Whether the values are those of a new message; where it was lost, or holds no reading, a
    policy does not step and what was sent last is sent again (unless it was trained to step on what
    it has seen)."""


class LiveEpisode:
    """An episode from `seed` on, for `limit` steps at most; each tick is answered by `act`.

    `disturbance` gets the readings under the names `channels`. ValueError where it asks for a
    robot that the environment does not offer. BrokenEnvironmentError where it raises an
    error, gives a reward that is not finite, or no reading at all for many steps or a whole
    episode.
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
        self.stop: Stop | None = None
        """When the safe command, no action at all, takes the place of what is given."""
        if disturbance is None:
            varied(env)
        else:
            varied(env, disturbance.settings)
            self.stop = disturbance.stop(step_length(env))
        self._blind = 0
        self.observation, self.info = env.reset(seed=seed)
        """The newest ones."""
        self.sent: np.ndarray | None = None
        """The action that was sent last."""
        self.rewards: list[float] = []
        """One a step so far."""
        self.total = 0.0
        """Their sum."""
        self.fell = False
        """Whether the environment ended the episode."""
        self.done = False
        self._look(over=False)

    def __iter__(self) -> Iterator[Tick]:
        disturbance, channels, rewards = self._disturbance, self._channels, self.rewards
        steps, moves = 0, 0 if disturbance is None else disturbance.shuffles
        while not self.done:
            seen = self.observation
            if self.stop is not None and steps == self.stop.begin and self.sent is not None:
                self.sent = np.zeros_like(self.sent)  # a stop sends it at once, between two ticks
            if disturbance is None:
                yield Tick(seen, seen, (), False, not self._blind)
            else:
                values, ids = disturbance.apply(seen, channels)
                before, moves = moves, disturbance.shuffles
                arrived = disturbance.arrived and not self._blind
                yield Tick(seen, values, ids, moves > before, arrived)
            steps += 1
            if len(rewards) != steps:
                raise RuntimeError(f"step {steps}: {len(rewards)} actions were given so far")

    def act(self, action: np.ndarray) -> float:
        """Make one step of the environment with this action (A,) and return its reward.

        Without any reading a policy may know no action: what was sent last is sent again.
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
            raise self._failure(f"gave the reward {reward}")
        over = self.fell or truncated
        self._look(over)
        self.done = over or len(self.rewards) == self._limit
        if stop is not None:
            stop.follow(step + 1, self.info.get("distance_m"))
        return reward

    def _look(self, over: bool) -> None:
        """Count the steps without any reading; too many are a failure, as is a whole episode."""
        if np.isfinite(self.observation).any():
            self._blind = 0
            return
        self._blind += 1
        if self._blind > MAX_BLIND or (over and self._blind > len(self.rewards)):
            raise self._failure(
                f"gave no finite reading, nor did the {self._blind - 1} steps before"
            )

    def _failure(self, what: str) -> BrokenEnvironmentError:
        spec = self._env.spec
        name = type(self._env.unwrapped).__name__ if spec is None else spec.id
        return BrokenEnvironmentError(f"environment {name!r}: step {len(self.rewards)} {what}")


Watch = Callable[[Policy, Disturber], None]
"""Called after each action of an episode."""

TRIES = 2
"""A rollout that failed is tried again once, in a new environment."""


@dataclass(frozen=True)
class Result:
    """One episode; `fell` where the environment ended it, `distance_m` where it says.

    `rewards` has one number a step, `rewired` the steps before which signals were permuted,
    `detected` is how often a monitor found that they had, `walked_m` how far the robot came in the
    8 s after a stop: None where there was none, or it was down before the stop ended.
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

    def line(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "return": self.total,
            "steps": self.steps,
            "shuffles": self.shuffles,
            "detected": self.detected,
            "fell": self.fell,
            "distance_m": self.distance_m,
            "walked_m": self.walked_m,
        }


class Played(NamedTuple):
    """One model's episodes: returns and steps (R,), why one failed, if so, and what was printed."""

    returns: np.ndarray
    steps: np.ndarray
    failure: str | None
    printed: PrintedOutput


def play_episode(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    channels: tuple[str, ...],
    disturber: Disturber,
    start: Start,
    protocol: Protocol | None = None,
    watch: Watch | None = None,
) -> Result:
    """One episode to its end; BrokenEnvironmentError as of `LiveEpisode`."""
    begin = time.perf_counter()
    disturber.reset(start.episode)
    policy.reset()
    disturbance = DisturbedPatches(disturber) if of_patches(env) else disturber
    episode = LiveEpisode(env, start.environment, disturbance, channels)
    rewired: list[int] = []
    wanted: np.ndarray | None = None
    repeats = bool(policy.model.task.get("repeats"))
    for tick in episode:
        if tick.moved:
            rewired.append(len(episode.rewards))
        forgets = protocol is not None and protocol.forgets(tick.moved)
        if forgets and policy.channel_state is not None:
            policy.channel_state.reset_channels()
        action = episode.sent
        if action is None or tick.arrived or repeats:
            if action is not None and action is not wanted:  # the safe command was sent instead
                policy.previous_action = action
            action = wanted = policy.step_array(tick.values, tick.ids)
        if watch is not None:
            watch(policy, disturber)
        episode.act(action)
    return Result(
        episode.total,
        len(episode.rewards),
        disturber.shuffles,
        bool(episode.fell),
        episode.info.get("distance_m"),
        time.perf_counter() - begin,
        np.array(episode.rewards),
        tuple(rewired),
        0 if policy.monitor_report is None else policy.monitor_report.rewires,
        None if episode.stop is None else episode.stop.walked_m,
    )


def play(
    environment: str,
    channels: tuple[str, ...],
    pickled_model: bytes,
    starts: Sequence[Start],
    disturbance: DisturbanceSettings,
) -> Played:
    """One model through these episodes, in this process's own environment.

    An episode that fails twice counts as NaN; it never ends the others.
    """
    model: Model = pickle.loads(pickled_model)
    policy, units = make_policy(model, "off"), Units.of_task(model.task)
    returns, steps = np.full(len(starts), np.nan), np.zeros(len(starts), np.int64)
    failure = None
    for number, start in enumerate(starts):
        for _ in range(TRIES):
            try:
                result = play_episode(
                    policy,
                    _environment(environment, units),
                    channels,
                    Disturber(channels, disturbance, start.run, episode=None),
                    start,
                )
            except Exception as error:  # an environment may raise anything; it is its own fault
                failure = str(error)
                if not isinstance(error, BrokenEnvironmentError):
                    failure = str(failure_of(environment, "an episode", error))
                _environment.cache_clear()
                continue
            returns[number], steps[number] = result.total, result.steps
            break
    return Played(returns, steps, failure, OUTPUT.take())


@lru_cache(maxsize=1)
def _environment(environment: str, units: Units) -> gymnasium.Env[Any, Any]:
    return make_environment(environment, units)
