"""Simulated robots: gymnasium environments and what serves them over ROS 2.

Importing the package registers the environments, as does
`gymnasium.make("an_control_sim:an_control/Ant-v0")`. Their own imports wait until one is made, so
that the parts which need no simulator run where none is installed.
"""

import importlib.util

ENVIRONMENTS = {
    "an_control/Ant-v0": ("an_control_sim.envs.ant:AntEnv", 1000),
    "an_control/CarRacing-v0": ("an_control_sim.envs.car_racing:CarRacingEnv", 1000),
    "an_control/CartPoleSwingUpHarder-v0": (
        "an_control_sim.envs.cartpole:CartPoleSwingUpHarder",
        1000,
    ),
    "an_control/MobileBase-v0": ("an_control_sim.envs.mobile_base:MobileBaseEnv", 600),
    "an_control/PuzzlePong-v0": ("an_control_sim.envs.puzzle_pong:PuzzlePongEnv", 27_000),
}
"""Environment id -> (entry point, steps an episode at most)."""


def register_envs() -> None:
    """Register the environments with gymnasium; again does no harm."""
    from gymnasium.envs.registration import register, registry

    for name, (entry_point, steps) in ENVIRONMENTS.items():
        if name not in registry:
            register(id=name, entry_point=entry_point, max_episode_steps=steps)


if importlib.util.find_spec("gymnasium") is not None:
    register_envs()
