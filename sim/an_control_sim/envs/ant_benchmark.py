"""Measures how fast the Ant steps compared with the AntBulletEnv of pybullet-envs-gymnasium."""

from __future__ import annotations

import time
import warnings
from statistics import median
from typing import Any

import numpy as np

from an_control_sim.envs.ant import AntEnv

ROUNDS = 5
STEPS = 400


def compare_ant_simulation_speeds(rounds: int = ROUNDS, steps: int = STEPS) -> dict[str, Any]:
    """Compare how fast this package and pybullet-envs-gymnasium simulate the Ant on one core.

    In each round both environments get the same start and the same small actions, which keep the
    ant mostly on its feet. The environments take turns, so that other load on the machine affects
    both of them.

    Args:
        rounds: The number of rounds.
        steps: The number of steps in a round.

    Returns:
        The steps per second of each environment and their ratio, by name; medians of the rounds.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pybullet_envs_gymnasium.gym_locomotion_envs import AntBulletEnv

        ours, theirs = AntEnv(), AntBulletEnv()
        own, packaged = [], []
        for seed in range(rounds):
            actions = _make_actions(seed, steps)
            packaged.append(_measure_steps_per_s(theirs, seed, actions))
            own.append(_measure_steps_per_s(ours, seed, actions))
        ours.close()
        theirs.close()
    return {
        "ant_steps_per_s": median(own),
        "package_steps_per_s": median(packaged),
        "ratio": median(mine / other for mine, other in zip(own, packaged, strict=True)),
    }


def _make_actions(seed: int, steps: int) -> np.ndarray:
    """Make small periodic actions of the Ant, which differ for each seed.

    Args:
        seed: The seed.
        steps: The number of steps.

    Returns:
        The actions (steps, 8).
    """
    phase = np.random.default_rng(seed).uniform(0.0, 2.0 * np.pi, 8)
    return (0.4 * np.sin(0.3 * np.arange(steps)[:, None] + phase)).astype(np.float32)


def _measure_steps_per_s(env: Any, seed: int, actions: np.ndarray) -> float:
    """Run an environment, and return how many steps per second of wall-clock time it made.

    Args:
        env: The environment.
        seed: The seed of the start.
        actions: The actions (steps, 8).
    """
    env.reset(seed=seed)
    begin = time.perf_counter()
    for action in actions:
        env.step(action)
    return len(actions) / (time.perf_counter() - begin)
