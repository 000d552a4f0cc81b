"""Playing episodes one by one with a gymnasium environment: what every worker process does."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from an_control.disturbance import DisturbanceSettings, Disturber, Late, Stop
from an_control.learning.rollout.engine import Start
from an_control.learning.rollout.evaluation_protocol import Protocol
from an_control.learning.rollout.live_episode import LiveEpisode
from an_control.load import make_policy
from an_control.policy import Model, Policy
from an_control.system.environment_output import OUTPUT, Printed
from an_control_sim.gym.environments import make_environment, of_patches
from an_control_sim.gym.failure import EnvironmentFailure, failure_of
from an_control_sim.gym.units import Units

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
    printed: Printed


def play_episode(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    channels: tuple[str, ...],
    disturber: Disturber,
    start: Start,
    protocol: Protocol | None = None,
    watch: Watch | None = None,
) -> Result:
    """One episode to its end; EnvironmentFailure as of `LiveEpisode`."""
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


class DisturbedPatches:
    """One episode's patches (N, f, p, p), disturbed as the image that they are cut from would be.

    Signals that move on the way take their places from the next frame on, so that for some ticks
    a slot's stack has frames of its old and of its new signal; a slot that was missing begins with
    its newest frame. A stack is of the frames that arrived. ValueError for a setting that cannot
    disturb image patches.
    """

    def __init__(self, disturber: Disturber) -> None:
        disturber.check_observation("image patches")
        self._disturber = disturber
        self._carried: list[dict[str, int]] = []
        self._late: Late[np.ndarray] = Late()
        self._stack: np.ndarray | None = None
        self._shown: tuple[np.ndarray, tuple[str, ...]] | None = None

    @property
    def settings(self) -> DisturbanceSettings:
        return self._disturber.settings

    @property
    def shuffles(self) -> int:
        return self._disturber.shuffles

    @property
    def arrived(self) -> bool:
        return self._disturber.arrived

    def stop(self, step_s: float) -> Stop | None:
        """See `Disturber`."""
        return self._disturber.stop(step_s)

    def apply(
        self, patches: np.ndarray, channels: Sequence[str]
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """One tick: what each slot shows (m, f, p, p), and the slots' ids."""
        numbers, ids = self._disturber.apply(np.arange(len(channels), dtype=np.float32), channels)
        newest = self._late(patches, self.settings.delay.count)
        if self._shown is not None and not self.arrived:
            return self._shown
        self._shown = self._show(self._stacked(newest), numbers, ids)
        return self._shown

    def _stacked(self, newest: np.ndarray) -> np.ndarray:
        """The frames (N, f, p, p) that have arrived, of patches (N, f, p, p) as they are sent."""
        if self._stack is None or not (self.settings.lose or self.settings.repeat):
            self._stack = newest
        else:
            frame = newest if self._disturber.new else self._stack
            self._stack = np.concatenate([self._stack[:, 1:], frame[:, -1:]], axis=1)
        return self._stack

    def _show(
        self, patches: np.ndarray, numbers: np.ndarray, ids: tuple[str, ...]
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """Patches (N, f, p, p) by the slots that carry them."""
        places = numbers.astype(np.intp)
        now = dict(zip(ids, places.tolist(), strict=True))
        shown, frames = patches[places], patches.shape[1]
        history = [*self._carried[:1] * (frames - 1 - len(self._carried)), *self._carried]
        seen = np.ones(len(ids), bool)
        for age, before in enumerate(reversed(history), start=1):
            if before != now or not seen.all():
                seen &= [name in before for name in ids]
                older = patches[[before.get(name, 0) for name in ids], -1 - age]
                shown[:, -1 - age] = np.where(seen[:, None, None], older, shown[:, -age])
        self._carried = [*self._carried, now][1 - frames :]
        return shown, ids


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
                if not isinstance(error, EnvironmentFailure):
                    failure = str(failure_of(environment, "an episode", error))
                _environment.cache_clear()
                continue
            returns[number], steps[number] = result.total, result.steps
            break
    return Played(returns, steps, failure, OUTPUT.take())


@lru_cache(maxsize=1)
def _environment(environment: str, units: Units) -> gymnasium.Env[Any, Any]:
    return make_environment(environment, units)
