"""Environments by gymnasium id, and what a model file says of the task that they pose.

An environment may describe itself by three attributes: `channels` (ids in the observation's
order), `actuators` (names in the action's order), `step_s`. Without them channels and actuators
are numbered and a step lasts 1 / metadata["render_fps"].
"""

from __future__ import annotations

from typing import Any

import gymnasium

ENVIRONMENTS = {"ant": "an_control_sim:an_control/Ant-v0"}
"""Tasks known by a short name."""
TRAINING_SEEDS = (2**31, 2**32)
"""Training draws its environment seeds from here; evaluation's all lie below (`episode_seed`)."""


def environment_of(task: str) -> str:
    """The gymnasium id of a task's short name; any other name counts as an id itself."""
    return ENVIRONMENTS.get(task, task)


def make_environment(environment: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """The environment of an id, or of ``module:id`` where importing the module registers it.

    ValueError where there is none, or where it is not one of flat readings and flat actions.
    """
    try:
        env: gymnasium.Env[Any, Any] = gymnasium.make(environment, **arguments)
    except (gymnasium.error.Error, ModuleNotFoundError) as error:
        raise ValueError(f"environment {environment!r}: {error}") from error
    for name, space in (("observation", env.observation_space), ("action", env.action_space)):
        if not isinstance(space, gymnasium.spaces.Box) or len(space.shape) != 1:
            env.close()
            raise ValueError(
                f"environment {environment!r}: its {name} space is {space},"
                " only a flat Box can be learned here"
            )
    return env


def describe(env: gymnasium.Env[Any, Any], name: str, environment: str) -> dict[str, Any]:
    """The `task` of a model file for this environment."""
    inner = env.unwrapped
    readings, actions = env.observation_space.shape, env.action_space.shape
    assert readings is not None and actions is not None
    channels = getattr(inner, "channels", [f"observation.{i}" for i in range(readings[0])])
    actuators = getattr(inner, "actuators", [f"action.{i}" for i in range(actions[0])])
    step_s = getattr(inner, "step_s", None) or 1.0 / inner.metadata.get("render_fps", 50)
    return {
        "name": name,
        "environment": environment.rpartition(":")[2],
        "channels": list(channels),
        "actuators": list(actuators),
        "step_s": float(step_s),
    }
