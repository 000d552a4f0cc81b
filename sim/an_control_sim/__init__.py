"""Simulated robots: gymnasium environments, and nodes that serve them over ROS 2.

Importing the package registers the environments with gymnasium, as does
`gymnasium.make("an_control_sim:an_control/Ant-v0")`. Their modules are imported when an environment
is made, so that this package can be imported without any simulator.
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
"""Gymnasium id -> (entry point, maximum number of steps of an episode)."""


def register_envs() -> None:
    """Register the environments with gymnasium; further calls have no effect."""
    from gymnasium.envs.registration import register, registry

    for name, (entry_point, steps) in ENVIRONMENTS.items():
        if name not in registry:
            register(id=name, entry_point=entry_point, max_episode_steps=steps)


if importlib.util.find_spec("gymnasium") is not None:
    register_envs()
