"""Measure the return of an Ant's policy whose joint positions, or roll and pitch, are all off.

    python -m experiments.ant_policy.constant_bias models/ant.safetensors [--episodes 10]

The same constant is added to the scaled readings of some sensors for the whole episode, as by
encoders with a wrong zero or an Imu that is mounted at an angle. The command prints a table.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from an_control import load_policy
from an_control.disturbance import DisturbanceSettings, Disturber
from an_control.learning.rollout.engine import make_evaluation_seeds
from an_control.learning.rollout.episode import play_episode
from an_control_sim.envs.ant import ANT_CHANNELS
from an_control_sim.gym.environments import find_environment_id, make_environment
from experiments.learned_runs import compute_mean_and_standard_error, make_markdown_table

SENSORS = {
    "all joint positions": [name for name in ANT_CHANNELS if name.endswith(".position")],
    "roll and pitch": ["roll", "pitch"],
}
CASES = (
    (0.05, "all joint positions"),
    (-0.05, "all joint positions"),
    (0.1, "all joint positions"),
    (0.05, "roll and pitch"),
    (-0.05, "roll and pitch"),
)
SEED = 1


class BiasedReadings(gymnasium.ObservationWrapper[Any, Any, Any]):
    """A gymnasium wrapper that adds a constant to each reading, like sensors with a wrong zero.

    Args:
        env: The environment.
        offsets: The constants (N,), one for each reading.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], offsets: np.ndarray) -> None:
        super().__init__(env)
        self._offsets = offsets

    def observation(self, observation: np.ndarray) -> np.ndarray:
        """Return the observation (N,) with the constants added."""
        return observation + self._offsets


def measure_returns_with_sensor_bias(
    model: Path, bias: float, sensors: str, episodes: int
) -> list[float]:
    """Play episodes in which a constant is added to some sensors; return each episode's return.

    Args:
        model: The model file.
        bias: The constant, in units of the scaled readings.
        sensors: The sensors, a key of `SENSORS` such as "roll and pitch".
        episodes: The number of episodes.
    """
    offsets = np.float32(bias) * np.isin(ANT_CHANNELS, SENSORS[sensors]).astype(np.float32)
    env = BiasedReadings(make_environment(find_environment_id("ant")), offsets)
    policy, disturber = load_policy(model), Disturber(ANT_CHANNELS, DisturbanceSettings(), SEED)
    try:
        return [
            play_episode(policy, env, ANT_CHANNELS, disturber, start).total
            for start in make_evaluation_seeds(SEED, episodes)
        ]
    finally:
        env.close()


def main() -> None:
    """Print a table of an Ant policy's returns while its sensors have a constant error."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("model", type=Path)
    parser.add_argument("--episodes", type=int, default=10)
    options = parser.parse_args()
    rows = []
    for bias, sensors in CASES:
        mean, error = compute_mean_and_standard_error(
            measure_returns_with_sensor_bias(options.model, bias, sensors, options.episodes)
        )
        rows.append([f"{bias:+g} on {sensors}", f"{mean:.0f} +- {error:.0f}"])
    print(make_markdown_table(["constant, of the scaled reading", "return"], rows))


if __name__ == "__main__":
    main()
