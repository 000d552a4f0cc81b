"""Playing episodes one by one with a gymnasium environment: what every worker process does."""

from __future__ import annotations

import pickle
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from an_control.learning.rollouts import Start
from an_control.learning.tasks import make_environment
from an_control.policy import Model, Policy, make_policy
from an_control.wiring.scramble import Scramble, ScrambleSettings

TRIES = 2
"""A rollout that failed is tried again once, in a new environment."""


@dataclass(frozen=True)
class Result:
    """One episode; `fell` where the environment ended it, `distance_m` where it says."""

    total: float
    steps: int
    shuffles: int
    fell: bool
    distance_m: float | None
    wall_s: float

    def line(self) -> dict[str, Any]:
        """As `--json` has it."""
        line = {"return": self.total, **asdict(self)}
        del line["total"], line["wall_s"]
        return line


class Played(NamedTuple):
    """One model's episodes: returns and steps (R,), and why one failed, if so."""

    returns: np.ndarray
    steps: np.ndarray
    failure: str | None


class BadStep(ValueError):
    """An environment gave a reading or reward that is not finite."""


def play_episode(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    channels: tuple[str, ...],
    scramble: Scramble,
    start: Start,
) -> Result:
    """One episode to its end; BadStep where a reward or reading is not finite."""
    begin = time.perf_counter()
    scramble.reset(start.episode)
    observation, info = env.reset(seed=start.environment)
    policy.reset()
    total, steps, done, fell = 0.0, 0, False, False
    while not done:
        action = policy.step_array(*scramble.apply(observation, channels))
        observation, reward, fell, truncated, info = env.step(action)
        total += float(reward)
        steps += 1
        if not np.isfinite(total) or not np.isfinite(observation).all():
            raise BadStep(f"step {steps} gave reward {float(reward)} and readings {observation}")
        done = fell or truncated
    distance_m = info.get("distance_m")
    return Result(
        total, steps, scramble.shuffles, bool(fell), distance_m, time.perf_counter() - begin
    )


def play(
    environment: str,
    channels: tuple[str, ...],
    pickled_model: bytes,
    starts: Sequence[Start],
    scrambling: ScrambleSettings,
) -> Played:
    """One model through these episodes, in this process's own environment.

    An episode that fails twice counts as NaN; it never ends the others.
    """
    model: Model = pickle.loads(pickled_model)
    policy = make_policy(model)
    returns, steps = np.full(len(starts), np.nan), np.zeros(len(starts), np.int64)
    failure = None
    for number, start in enumerate(starts):
        for _ in range(TRIES):
            try:
                result = play_episode(
                    policy,
                    _environment(environment),
                    channels,
                    Scramble(channels, scrambling, start.run),
                    start,
                )
            except Exception as error:  # an environment may raise anything; it is its own fault
                failure = f"{environment}: {type(error).__name__}: {error}"
                _environment.cache_clear()
                continue
            returns[number], steps[number] = result.total, result.steps
            break
    return Played(returns, steps, failure)


@lru_cache(maxsize=1)
def _environment(environment: str) -> gymnasium.Env[Any, Any]:
    return make_environment(environment)
