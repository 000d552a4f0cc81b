"""Measure whether motions of an Ant find the order of its channels: on the ground, or walking."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from an_control import load_policy
from an_control.monitor.exciting_policy import ExcitingPolicy
from an_control.policy.interface import Policy
from an_control_sim.gym.environments import open_environment

ANT = "an_control_sim:an_control/Ant-v0"
MOST_TICKS = 1600
"""Ticks after which the order counts as not found: five plays of the motions."""


class ExcitedEpisode(NamedTuple):
    """The result of one test of `measure_order_finding_by_excitation`.

    The policy finds the order of its channels by small motions, and then plays an episode.
    """

    seed: int
    found: bool
    """Whether the policy acted in the end, in the order that it had found."""
    ticks: int
    """The number of ticks until it acted."""
    wrong: list[str]
    """Channels for which it read another channel's slot when it began to act."""
    total: float
    """Return of the episode, in the order that was found."""
    clean: float
    """Return of the same episode in the known order, without a monitor."""
    wrong_at_end: list[str]
    """Channels for which it read another channel's slot at the end of the episode."""


def measure_order_finding_by_excitation(
    path: Path, seeds: Sequence[int], steps: int = 1000, *, on_ground: bool = True
) -> list[ExcitedEpisode]:
    """Test whether a policy finds the order of the Ant's channels by small motions (excitation).

    For each seed the channels are permuted at random. The policy plays its motions, finds from
    their effects which reading belongs to which channel, and then plays an episode of at most
    `steps` steps. The motions are played while the Ant lies on the ground before the episode or,
    unless `on_ground`, at its start.
    """
    env = open_environment(ANT)
    policy, alone = load_policy(path), load_policy(path, "off")
    if not isinstance(policy, ExcitingPolicy):
        raise ValueError(f"{path}: names no excitation")
    ids, channels = policy.nominal_ids, tuple(env.get_wrapper_attr("channels"))
    nominal = np.array([channels.index(name) for name in ids])
    measured = []
    for seed in seeds:
        order = nominal[np.random.default_rng(seed).permutation(len(ids))]
        policy.order_known = False
        policy.reset()
        if on_ground:
            readings, _ = env.reset(seed=1000 + seed, options={"start": "rest"})
        else:
            readings, _ = env.reset(seed=2000 + seed)
        ticks, total = 0, 0.0
        while ticks < (MOST_TICKS if on_ground else steps):
            action = policy.step_array(np.asarray(readings, np.float32)[order], ids)
            if policy.order_known:
                break
            readings, reward, terminated, *_ = env.step(action)
            total += float(reward)
            ticks += 1
            if terminated:
                break
        wrong, found = _list_wrong_channels(policy, order, channels), policy.order_known
        if on_ground:
            policy.reset()
            readings, _ = env.reset(seed=2000 + seed)
            total = (
                _finish_episode_and_sum_rewards(policy, env, readings, order, steps)
                if found
                else 0.0
            )
        elif found:
            readings, reward, *_ = env.step(action)
            total += float(reward)
            total += _finish_episode_and_sum_rewards(
                policy, env, readings, order, steps - ticks - 1
            )
        wrong_at_end = _list_wrong_channels(policy, order, channels)
        alone.reset()
        readings, _ = env.reset(seed=2000 + seed)
        clean = _finish_episode_and_sum_rewards(alone, env, readings, nominal, steps)
        measured.append(ExcitedEpisode(seed, found, ticks, wrong, total, clean, wrong_at_end))
        print(measured[-1], flush=True)
    env.close()
    return measured


def summarise_excitation(measured: Sequence[ExcitedEpisode]) -> dict[str, Any]:
    """Return means and counts over tests of `measure_order_finding_by_excitation`, by name."""
    totals, clean = (
        np.array([getattr(one, name) for one in measured]) for name in ("total", "clean")
    )
    shares = totals / clean
    return {
        "episodes": len(measured),
        "order found": sum(one.found for one in measured),
        "ticks": max(one.ticks for one in measured),
        "wrong but for foot contacts": sum(
            any("contact" not in name for name in one.wrong) for one in measured
        ),
        "mean return": round(float(totals.mean()), 1),
        "mean clean return": round(float(clean.mean()), 1),
        "mean share": round(float(shares.mean()), 4),
        "standard error": round(float(shares.std(ddof=1) / len(shares) ** 0.5), 4)
        if len(shares) > 1
        else 0.0,
        "lowest share": round(float(shares.min()), 4),
        "wrong at the end": sum(bool(one.wrong_at_end) for one in measured),
        "returns": [[round(one.total, 1), round(one.clean, 1)] for one in measured],
    }


def _list_wrong_channels(
    policy: ExcitingPolicy, order: np.ndarray, channels: Sequence[str]
) -> list[str]:
    """Return the channels for which a policy reads an input slot with another channel's signal."""
    slots = policy.policy.monitor.slot_by_channel
    return [name for k, name in enumerate(policy.nominal_ids) if channels[order[slots[k]]] != name]


def _finish_episode_and_sum_rewards(
    policy: Policy,
    env: gymnasium.Env[Any, Any],
    readings: np.ndarray,
    order: np.ndarray,
    steps: int,
) -> float:
    """Play a running episode to its end, and return the sum of the rewards from now on."""
    total = 0.0
    for _ in range(steps):
        action = policy.step_array(np.asarray(readings, np.float32)[order], policy.nominal_ids)
        readings, reward, terminated, truncated, _ = env.step(action)
        total += float(reward)
        if terminated or truncated:
            break
    return total
