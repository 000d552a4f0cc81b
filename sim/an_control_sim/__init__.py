"""Simulated robots: gymnasium environments, and nodes that serve them over ROS 2.

Importing this package registers the environments with gymnasium.
`gymnasium.make("an_control_sim:an_control/Ant-v0")` imports it too. The module of an environment is
imported only when the environment is made, so that this package can be imported where no simulator
is installed.

    >>> from an_control_sim import describe_task, make_environment
    >>> env = make_environment("CartPole-v1")
    >>> describe_task(env, "balance", "CartPole-v1").channels
    ('observation.0', 'observation.1', 'observation.2', 'observation.3')
    >>> env.action_space.shape  # a number in [-1, 1] for each choice; the largest is taken
    (2,)
"""

from __future__ import annotations

import importlib.util

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from an_control_sim.gym.environments import describe_task, make_environment
    from an_control_sim.gym.probe import measure_units
    from an_control_sim.gym.units import Units

__all__ = [
    "ENVIRONMENTS",
    "Units",
    "describe_task",
    "make_environment",
    "measure_units",
    "register_envs",
]

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
"""For each gymnasium id a pair: the entry point, and the maximum number of steps of an episode."""


def register_envs() -> None:
    """Register this package's environments, so that `gymnasium.make` finds them by their ids.

    Importing the package already calls this. Further calls have no effect.
    """
    from gymnasium.envs.registration import register, registry

    for name, (entry_point, steps) in ENVIRONMENTS.items():
        if name not in registry:
            register(id=name, entry_point=entry_point, max_episode_steps=steps)


def __getattr__(name: str) -> Any:
    """Import a public function or class of this package when it is first used, and return it.

    Python calls this for a name that the package does not hold yet. Because of this, `import
    an_control_sim` alone does not import the modules of environments.

    Args:
        name: The name of the function or class.
    """
    if name in ("describe_task", "make_environment"):
        from an_control_sim.gym import environments

        return getattr(environments, name)
    if name == "measure_units":
        from an_control_sim.gym.probe import measure_units

        return measure_units
    if name == "Units":
        from an_control_sim.gym.units import Units

        return Units
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Return the names that `dir` and `help` show for this package, the public ones included."""
    return sorted({*globals(), *__all__})


if importlib.util.find_spec("gymnasium") is not None:
    register_envs()
