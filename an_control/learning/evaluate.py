"""Evaluation without ROS: whole episodes under the disturbances that the simulator offers.

Episode e of a run starts from `episode_seed(seed, e)` and its readings pass the same `Scramble` as
over ROS 2, so both give the same returns. Training never uses these seeds (`TRAINING_SEEDS`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import numpy as np

from an_control.learning.protocol import Protocol
from an_control.policy import AttentionNeuron, Policy
from an_control.wiring.scramble import Scramble, ScrambleSettings, episode_seed

Watch = Callable[[Policy, Scramble], None]
"""Called after each action of an episode."""


@dataclass(frozen=True)
class Result:
    """One episode; `fell` where the environment ended it, `distance_m` where it says.

    `rewards` has one number a step, `rewired` the steps before which contents were permuted.
    """

    total: float
    steps: int
    shuffles: int
    fell: bool
    distance_m: float | None
    wall_s: float
    rewards: np.ndarray = field(default_factory=lambda: np.zeros(0), repr=False, compare=False)
    rewired: tuple[int, ...] = field(default=(), repr=False)

    def line(self) -> dict[str, Any]:
        """As `--json` has it."""
        return {
            "return": self.total,
            "steps": self.steps,
            "shuffles": self.shuffles,
            "fell": self.fell,
            "distance_m": self.distance_m,
        }


def evaluate(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    channels: Sequence[str],
    episodes: int,
    seed: int,
    protocol: Protocol | ScrambleSettings,
    report: Callable[[Result], None] | None = None,
    watch: Watch | None = None,
) -> list[Result]:
    """Play `episodes` episodes; `channels` name the observation's numbers in their order.

    The same seed gives the same starts and the same permutations under every protocol.
    """
    if isinstance(protocol, ScrambleSettings):
        protocol = Protocol(protocol)
    scramble = Scramble(channels, protocol.scrambling, seed)
    results = []
    for episode in range(episodes):
        scramble.reset(episode)
        start = episode_seed(seed, episode)
        results.append(_play(policy, env, tuple(channels), scramble, start, protocol, watch))
        if report is not None:
            report(results[-1])
    return results


def _play(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    ids: tuple[str, ...],
    scramble: Scramble,
    seed: int,
    protocol: Protocol,
    watch: Watch | None,
) -> Result:
    begin = time.perf_counter()
    observation, info = env.reset(seed=seed)
    policy.reset()
    rewards: list[float] = []
    rewired: list[int] = []
    total, done, fell = 0.0, False, False
    while not done:
        shuffles = scramble.shuffles
        values, names = scramble.apply(observation, ids)
        if scramble.shuffles > shuffles:
            rewired.append(len(rewards))
        if protocol.forgets(scramble.shuffles > shuffles):
            forget(policy)
        action = policy.step_array(values, names)
        if watch is not None:
            watch(policy, scramble)
        observation, reward, fell, truncated, info = env.step(action)
        total += float(reward)
        rewards.append(float(reward))
        done = fell or truncated
    return Result(
        total,
        len(rewards),
        scramble.shuffles,
        bool(fell),
        info.get("distance_m"),
        time.perf_counter() - begin,
        np.array(rewards),
        tuple(rewired),
    )


def forget(policy: Policy) -> None:
    """Let every neuron start anew; the previous action, which all of them share, stays."""
    if isinstance(policy, AttentionNeuron):
        previous = policy.previous_action
        policy.reset()
        policy.previous_action = previous


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
