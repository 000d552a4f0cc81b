"""Environments by gymnasium id, and what a model file says of the task that they pose.

An environment may describe itself by three attributes: `channels` (ids in the observation's
order), `actuators` (names in the action's order), `step_s`. Without them channels and actuators
are numbered and a step lasts 1 / metadata["render_fps"]. Policies act in [-1, 1]: a bounded Box
is scaled to that, and of a Discrete space the action with the largest number is taken.
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

ENVIRONMENTS = {
    "ant": "an_control_sim:an_control/Ant-v0",
    "car_racing": "an_control_sim:an_control/CarRacing-v0",
    "cartpole": "an_control_sim:an_control/CartPoleSwingUpHarder-v0",
    "pong": "an_control_sim:an_control/PuzzlePong-v0",
}
"""Tasks known by a short name."""


def environment_of(task: str) -> str:
    """The gymnasium id of a task's short name; any other name counts as an id itself."""
    return ENVIRONMENTS.get(task, task)


def make_environment(environment: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """The environment of an id, or of ``module:id`` where importing the module registers it.

    Its observations come flat and as float32, but for image patches (N, f, p, p) uint8; its
    actions are flat and in [-1, 1]. ValueError where there is no such environment, or where its
    spaces are no Box of readings and Box or Discrete of actions.
    """
    try:
        env: gymnasium.Env[Any, Any] = gymnasium.make(environment, **arguments)
    except (gymnasium.error.Error, ImportError) as error:
        raise ValueError(f"environment {environment!r}: {error}") from error
    readings, actions = env.observation_space, env.action_space
    if not isinstance(readings, spaces.Box):
        env.close()
        raise ValueError(
            f"environment {environment!r}: its observation space is {readings},"
            " only a Box can be learned here"
        )
    if not isinstance(actions, spaces.Box | spaces.Discrete):
        env.close()
        raise ValueError(
            f"environment {environment!r}: its action space is {actions},"
            " only a Box or a Discrete one can be learned here"
        )
    if len(readings.shape) != 1 and not of_patches(env):
        env = gymnasium.wrappers.FlattenObservation(env)
    if readings.dtype != np.float32 and not of_patches(env):
        env = _single(env)
    return _Largest(env) if isinstance(actions, spaces.Discrete) else _scaled(env, actions)


def of_patches(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether what the environment shows are image patches (N, f, p, p) uint8."""
    space = env.observation_space
    return isinstance(space, spaces.Box) and len(space.shape) == 4 and space.dtype == np.uint8


def has_lanes(task: str) -> bool:
    """Whether a task has an environment, and it offers compiled functions over lanes."""
    try:
        env = make_environment(environment_of(task))
    except ValueError:
        return False
    env.close()
    return hasattr(env.unwrapped, "lanes")


def _single(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """The environment with float32 observations, which is what policies read."""
    space = env.observation_space
    assert isinstance(space, spaces.Box)
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    return gymnasium.wrappers.TransformObservation(
        env, lambda observation: observation.astype(np.float32), spaces.Box(low, high)
    )


class _Largest(gymnasium.ActionWrapper[Any, Any, Any]):
    """Acts by the place of the largest of as many numbers as there are actions."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        assert isinstance(env.action_space, spaces.Discrete)
        self._first = int(env.action_space.start)
        self.action_space = spaces.Box(-1.0, 1.0, (int(env.action_space.n),), np.float32)

    def action(self, action: np.ndarray) -> int:
        return self._first + int(np.argmax(action))


class _Shaped(gymnasium.ActionWrapper[Any, Any, Any]):
    """Takes flat actions in [-1, 1] and gives them the shape and bounds of the environment's."""

    def __init__(self, env: gymnasium.Env[Any, Any]) -> None:
        super().__init__(env)
        space = env.action_space
        assert isinstance(space, spaces.Box)
        self._shape, self._dtype = space.shape, space.dtype
        self._middle, self._reach = _scale(space)
        self.action_space = spaces.Box(-1.0, 1.0, (int(np.prod(space.shape)),), np.float32)

    def action(self, action: np.ndarray) -> np.ndarray:
        wide = np.asarray(action, np.float64).reshape(self._shape)
        return (self._middle + self._reach * wide).astype(self._dtype)


def to_unit(space: spaces.Box, action: np.ndarray) -> np.ndarray:
    """An action of this space as the flat one (A,) in [-1, 1] that stands for it."""
    middle, reach = _scale(space)
    return ((np.asarray(action, np.float64) - middle) / reach).ravel()


def _scale(space: spaces.Box) -> tuple[np.ndarray, np.ndarray]:
    """What 0 stands for, and how far 1 is from it; numbers without bounds stand for themselves."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, (low + high) / 2.0, 0.0), np.where(bounded, (high - low) / 2.0, 1.0)


def _scaled(env: gymnasium.Env[Any, Any], actions: spaces.Box) -> gymnasium.Env[Any, Any]:
    """The environment for actions (A,) in [-1, 1]; itself where it takes these."""
    if len(actions.shape) == 1 and (actions.low == -1.0).all() and (actions.high == 1.0).all():
        return env
    return _Shaped(env)


def describe(env: gymnasium.Env[Any, Any], name: str, environment: str) -> dict[str, Any]:
    """The `task` of a model file for this environment."""
    inner = env.unwrapped
    readings, actions = env.observation_space.shape, env.action_space.shape
    assert readings is not None and actions is not None
    channels = getattr(inner, "channels", [f"observation.{i}" for i in range(readings[0])])
    actuators = getattr(inner, "actuators", [f"action.{i}" for i in range(actions[0])])
    step_s = getattr(inner, "step_s", None) or 1.0 / (inner.metadata.get("render_fps") or 50)
    return {
        "name": name,
        "environment": environment.rpartition(":")[2],
        "channels": list(channels),
        "actuators": list(actuators),
        "step_s": float(step_s),
    }
