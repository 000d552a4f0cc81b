"""Evaluation without ROS: whole episodes under the disturbances that the simulator offers.

Episode e of a run starts from `episode_seed(seed, e)` and its readings pass the same `Scramble` as
over ROS 2, so both give the same returns. Training never uses these seeds (`TRAINING_SEEDS`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import gymnasium
import numpy as np

from an_control.policy import Policy
from an_control.wiring.scramble import Scramble, ScrambleSettings, episode_seed


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


def evaluate(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    channels: Sequence[str],
    episodes: int,
    seed: int,
    scrambling: ScrambleSettings,
    report: Callable[[Result], None] | None = None,
) -> list[Result]:
    """Play `episodes` episodes; `channels` name the observation's numbers in their order."""
    scramble = Scramble(channels, scrambling, seed)
    results = []
    for episode in range(episodes):
        scramble.reset(episode)
        results.append(_play(policy, env, tuple(channels), scramble, episode_seed(seed, episode)))
        if report is not None:
            report(results[-1])
    return results


def _play(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    ids: tuple[str, ...],
    scramble: Scramble,
    seed: int,
) -> Result:
    begin = time.perf_counter()
    observation, info = env.reset(seed=seed)
    policy.reset()
    total, steps, done, fell = 0.0, 0, False, False
    while not done:
        action = policy.step_array(*scramble.apply(observation, ids))
        observation, reward, fell, truncated, info = env.step(action)
        total += float(reward)
        steps += 1
        done = fell or truncated
    distance_m = info.get("distance_m")
    return Result(
        total, steps, scramble.shuffles, bool(fell), distance_m, time.perf_counter() - begin
    )


def summary(results: Sequence[Result], success: float | None = None) -> dict[str, Any]:
    """The distribution of the returns; `success` is the return that counts as one."""
    returns = np.array([result.total for result in results])
    distances = [result.distance_m for result in results if result.distance_m is not None]
    return {
        "mean": float(returns.mean()),
        "sd": float(returns.std()),
        "min": float(returns.min()),
        "median": float(np.median(returns)),
        "max": float(returns.max()),
        "success_share": None if success is None else float((returns > success).mean()),
        "falls": sum(result.fell for result in results),
        "distance_m": float(np.mean(distances)) if distances else None,
        "steps_per_s": sum(r.steps for r in results) / sum(r.wall_s for r in results),
    }
