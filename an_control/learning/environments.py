"""Environments: gymnasium's, what they may offer beyond it, and what a model file says of them.

Any environment of gymnasium's registry trains if it has a Box of readings and a Box or Discrete
action. It may offer more; what, is said by the protocols below, one for each offer. All code asks
`isinstance(env.unwrapped, PROTOCOL)`, so that a user's environment gets what ours get:

    offer           what it is                                        who uses it
    HasChannels     ids of the readings                               model files, everything
    HasActuators    names of the actuators                            model files
    HasStepLength   seconds a step                                    model files
    Batched         compiled physics of many episodes side by side    the compiled engine
    HasTeacher      a teacher that reads the simulator's state        `distill` from patches
    HasFrames       the camera's pictures behind the patches          `distill` from patches
    HasBackgrounds  other pictures behind what the camera shows       `evaluate --table`
    HasSensors      physical readings beside the observation          the bridge to ROS 2
    HasPhysics      other masses, other friction                      `mass=`, `friction=`
    HasStarts       other ways to start                               `start=`

`mass=` and `friction=` are words of a disturbance (`evaluate --table`); environments of MuJoCo
(gymnasium's) and PyBullet (pybullet_envs_gymnasium's) have them without HasPhysics.

The `info` of a step may hold "distance_m", how far the robot has come; evaluation reports it.

Policies act in [-1, 1]: a bounded Box is scaled to that, and of a Discrete space the action with
the largest number is taken.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium import spaces

from an_control.learning.physics import physics_of, print_mujoco_warnings
from an_control.learning.varied_robot import VariedRobot


@runtime_checkable
class HasChannels(Protocol):
    """Names its readings; without it they are observation.0, observation.1 and so on."""

    channels: Sequence[str]
    """(N,) ids in the observation's order."""


@runtime_checkable
class HasActuators(Protocol):
    """Names its actuators; without it they are action.0, action.1 and so on."""

    actuators: Sequence[str]
    """(A,) names in the action's order."""


@runtime_checkable
class HasStepLength(Protocol):
    """Says how long a step is; see `step_length`."""

    step_s: float
    """Seconds."""


class Batch(Protocol):
    """Compiled physics of B episodes, one a column; S numbers are an episode's state.

    `observe` and `advance` are numba functions that were compiled for exactly these arrays, all of
    them contiguous. A single environment must run the same functions, with B = 1.
    """

    steps: int
    """An episode's steps at most."""
    states: int
    """S"""
    start: Callable[[int], np.ndarray]
    """The state (S,) float64 from which `reset(seed=...)` starts."""
    observe: Callable[[np.ndarray, np.ndarray], None]
    """Reads state (S, B) float64, writes observation (N, B) float32."""
    advance: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], None]
    """One step of state (S, B) float64, in place, by action (A, B) float32; writes reward (B,)
    float64 and ended (B,) bool."""


@runtime_checkable
class Batched(Protocol):
    """Plays many episodes side by side."""

    batch: Batch


class StateTeacher(Protocol):
    """Knows what the student cannot see."""

    @property
    def helps(self) -> bool:
        """Whether the teacher acts itself, because the student is lost."""

    @property
    def hopeless(self) -> bool:
        """Whether the episode should end, because help takes too long."""

    def start(self) -> None:
        """Called after each reset of the environment."""

    def __call__(self) -> np.ndarray:
        """The action (A,) in [-1, 1] that it would take now; called once a step."""


@runtime_checkable
class HasTeacher(Protocol):
    """Brings a teacher of its own."""

    def teacher(self) -> StateTeacher:
        """A teacher of this very environment."""


@runtime_checkable
class HasFrames(Protocol):
    """Shows patches (N, f, p, p) of pictures."""

    @property
    def frames(self) -> np.ndarray:
        """The pictures (f, H, W) uint8, gray, newest last; the patches in rows make (H, W)."""


@runtime_checkable
class HasBackgrounds(Protocol):
    """Can put other pictures behind what its camera shows."""

    plain: str
    """The name of its own background."""

    def show(self, name: str) -> None:
        """Take the background of that name from the next reset on; ValueError where it has none."""


@runtime_checkable
class HasSensors(Protocol):
    """Has physical readings beside the observation."""

    def sensors(self) -> Mapping[str, Any]:
        """Numbers and arrays in SI units by name, as of the last observation."""


@runtime_checkable
class HasPhysics(Protocol):
    """Can make its robot heavier, and its ground more slippery."""

    def set_physics(self, mass: float, friction: float) -> None:
        """Factors of the robot's nominal mass (with its inertia) and of the friction between it
        and the ground, from the next reset on; 1 and 1 give the nominal robot, to the last bit."""


@runtime_checkable
class HasStarts(Protocol):
    """Can start otherwise than usual, by `reset(options={"start": NAME})`."""

    starts: Sequence[str]
    """Of "rest" (the robot has been limp for 2 s) and "posture" (joints anywhere, by the seed)."""


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


def open_environment(environment: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """The environment of an id, or of ``module:id`` where the module registers it.

    It is as it is, but its robot can be `varied`.

    The module may lie in the current directory. ValueError where there is no such environment, or
    where it does not take these arguments of `gymnasium.make`.
    """
    module = environment.rpartition(":")[0]
    try:
        if module:
            _import_module(module)
        env = gymnasium.make(environment, **arguments)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"environment {environment!r}: {text}") from error
    print_mujoco_warnings()
    inner = env.unwrapped
    physics = inner.set_physics if isinstance(inner, HasPhysics) else physics_of(inner)
    return VariedRobot(env, inner.starts if isinstance(inner, HasStarts) else (), physics)


def _import_module(name: str) -> None:
    """Import what registers an environment; ImportError whatever is wrong with it."""
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # last: nothing that is installed is hidden by it
    try:
        importlib.import_module(name)
    except ImportError:
        raise
    except Exception as error:
        raise ImportError(f"importing {name} failed: {error!r}") from error


def make_environment(environment: str, **arguments: Any) -> gymnasium.Env[Any, Any]:
    """The environment of an id or ``module:id`` as policies need it, see `open_environment`.

    Its observations come flat and as float32, but for image patches (N, f, p, p) uint8; its
    actions are flat and in [-1, 1]. ValueError also where its spaces are no Box of readings and
    Box or Discrete of actions.
    """
    env = open_environment(environment, **arguments)
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


def of_choices(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether an environment of `make_environment` takes the largest action's place: Discrete."""
    return isinstance(env, _Largest)


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
    inner: Any = env.unwrapped
    readings, actions = env.observation_space.shape, env.action_space.shape
    assert readings is not None and actions is not None
    channels: Sequence[str] = [f"observation.{i}" for i in range(readings[0])]
    actuators: Sequence[str] = [f"action.{i}" for i in range(actions[0])]
    return {
        "name": name,
        "environment": environment.rpartition(":")[2],
        "channels": list(inner.channels if isinstance(inner, HasChannels) else channels),
        "actuators": list(inner.actuators if isinstance(inner, HasActuators) else actuators),
        "step_s": step_length(env),
    }


def step_length(env: gymnasium.Env[Any, Any]) -> float:
    """Seconds of a step: the environment's `step_s`; without it its `dt`, as MuJoCo's and some
    classic ones have, or 1 / metadata["render_fps"], or 1/50 s."""
    inner: Any = env.unwrapped
    if isinstance(inner, HasStepLength):
        return float(inner.step_s)
    dt = getattr(inner, "dt", None)
    if isinstance(dt, float) and 0.0 < dt < math.inf:
        return dt
    return 1.0 / (inner.metadata.get("render_fps") or 50)
