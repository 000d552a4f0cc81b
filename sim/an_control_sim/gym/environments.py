"""Environments: gymnasium's, what they may offer beyond it, and what a model file says of them.

Any environment of gymnasium's registry trains whose readings and actions are numbers, choices and
bits (see `spaces`). It may offer more; what, is said by the protocols below, one for each offer.
All code asks `isinstance(env.unwrapped, PROTOCOL)`, so that a user's environment gets what ours
get (`offers` has the words for `--help`):

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

`make_environment` is the one place that adapts an environment to policies. Readings come as float32
numbers (N,), copied, in ordinary units, NaN where there is none; actions are numbers (A,) in
[-1, 1]. What the environment prints is kept, what it raises becomes an `BrokenEnvironmentError`.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import ModuleType
from typing import Any, NoReturn, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium import spaces

from an_control.system.environment_output import OUTPUT, no_native_output
from an_control_sim.gym.failure import BrokenEnvironmentError, failure_of
from an_control_sim.gym.spaces import READINGS, Readings, actions_of, readings_of
from an_control_sim.gym.units import AS_THEY_ARE, Units
from an_control_sim.gym.varied_robot import VariedRobot, physics_of, print_mujoco_warnings

MAX_STEPS = 1000
"""Of an episode, in an environment that is registered without a time limit."""
OWN_LIMITS = ("max_episode_steps", "_max_episode_steps", "max_steps", "_max_steps")
"""Attributes by which environments limit themselves, and up to which number that is believed."""
MAX_OWN_LIMIT = 100_000


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


def open_environment(
    environment: str, *, limited: bool = False, **arguments: Any
) -> gymnasium.Env[Any, Any]:
    """Return the environment of an id, or of ``module:id`` where the module registers it.

    Its spaces are its own, but its robot can be `varied`. Where it is `limited`, its episodes end
    also if it is registered without a time limit.

    The module may lie in the current directory. ValueError where there is no such environment,
    where it cannot be made, or where it does not take these arguments of `gymnasium.make`.
    """
    module = environment.rpartition(":")[0]
    try:
        with no_native_output(), OUTPUT:  # PyBullet prints where it is imported and connected
            if module:
                import_module(module)
            env = gymnasium.make(environment, **arguments)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"environment {environment!r}: {text}") from error
    except Exception as error:
        _print_traceback(error)
        raise ValueError(str(failure_of(environment, "making it", error))) from error
    print_mujoco_warnings()
    inner = env.unwrapped
    if limited and (env.spec is None or env.spec.max_episode_steps is None):
        env = _StepLimit(env, environment)
    physics = inner.set_physics if isinstance(inner, HasPhysics) else physics_of(inner)
    return VariedRobot(env, inner.starts if isinstance(inner, HasStarts) else (), physics)


def _print_traceback(error: BaseException) -> None:
    OUTPUT.write("".join(traceback.format_exception(error)))


class _StepLimit(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Cuts off the episodes of an environment that is registered without a time limit.

    One that limits itself to more steps, by an attribute of a usual name, gets these.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], environment: str) -> None:
        super().__init__(env)
        own = [getattr(env.unwrapped, name, None) for name in OWN_LIMITS]
        limits = [int(one) for one in own if isinstance(one, int | float) and one < MAX_OWN_LIMIT]
        self._limit, self._environment, self._steps = max(limits, default=0), environment, 0
        self._limit = max(MAX_STEPS, self._limit)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        if self._steps >= self._limit and not (terminated or truncated):
            truncated = True
            OUTPUT.note(
                f"environment {self._environment!r} has no time limit: its episodes are cut off"
                f" after {self._limit} steps; register it with max_episode_steps=N for another"
                " number"
            )
        return observation, reward, terminated, truncated, info


def import_module(name: str) -> ModuleType:
    """Import a module of the user's, which may lie in the current directory.

    ImportError whatever is wrong with it.
    """
    here = os.getcwd()
    if here not in sys.path:
        sys.path.append(here)  # last: nothing that is installed is hidden by it
    try:
        return importlib.import_module(name)
    except ImportError:
        raise
    except Exception as error:
        raise ImportError(f"importing {name} failed: {error!r}") from error


def make_environment(
    environment: str, units: Units = AS_THEY_ARE, **arguments: Any
) -> gymnasium.Env[Any, Any]:
    """Return the environment of an id or ``module:id`` as policies need it.

    Observations are readings (N,) float32 in these units, new arrays, NaN where the environment
    gave no finite number; image patches (N, f, p, p) uint8 stay as they are. Actions are numbers
    (A,) in [-1, 1].

    ValueError as of `open_environment`, also where the spaces hold no numbers to learn, or the
    units are those of another number of readings.
    """
    reopen = partial(open_environment, environment, limited=True, **arguments)
    env = reopen()
    try:
        return Adapted(env, environment, units, reopen)
    except ValueError as error:
        env.close()
        raise ValueError(f"environment {environment!r}: {error}") from error


class _OwnThreads:
    """A context after which torch has its number of threads again, which an environment's code
    may have set."""

    def __enter__(self) -> None:
        torch = sys.modules.get("torch")
        self._threads = 0 if torch is None else torch.get_num_threads()

    def __exit__(self, *_: object) -> None:
        if self._threads and (torch := sys.modules["torch"]).get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)


THREADS = _OwnThreads()


class Adapted(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Readings and actions as numbers; what goes wrong inside is an BrokenEnvironmentError.

    After a failure the environment is made anew, since the old one may be broken.

    Attributes:
        actions: how numbers become its actions.
        readings: how its observations become numbers; None where they are image patches.
        units: of the readings.
        numbers: (N,) the newest observation in the environment's own numbers, not to be changed.
    """

    numbers: np.ndarray

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        environment: str,
        units: Units,
        reopen: Callable[[], gymnasium.Env[Any, Any]],
    ) -> None:
        super().__init__(env)
        self._environment, self._reopen, self.units = environment, reopen, units
        self.actions = actions_of(env.action_space)
        self.readings: Readings | None = None
        self._steps = 0
        if of_patches(env):
            self.observation_space = env.observation_space
        else:
            self.readings = readings_of(env.observation_space)
            units.check(len(self.readings.ids))
            shape = (len(self.readings.ids),)
            self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (len(self.actions.names),), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self._steps = 0
        try:
            with OUTPUT, THREADS:
                observation, info = self.env.reset(seed=seed, options=options)
            return self._read(observation), info
        except Exception as error:
            self._fail(f"reset with seed {seed}", error)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self._steps += 1
        native = self.actions.native(action)
        try:
            with OUTPUT, THREADS:
                observation, reward, terminated, truncated, info = self.env.step(native)
            return self._read(observation), float(reward), bool(terminated), bool(truncated), info
        except Exception as error:
            self._fail(f"step {self._steps}", error)

    def close(self) -> None:
        try:
            with OUTPUT:
                self.env.close()
        except Exception as error:  # the work is done
            _print_traceback(error)

    def _read(self, observation: Any) -> np.ndarray:
        """Return the observation as a new array, which the environment does not know."""
        if self.readings is None:
            return np.array(observation)
        self.numbers = self.readings.flatten(observation)
        readings = self.units.scaled(self.numbers)
        if not np.isfinite(readings).all():
            readings[~np.isfinite(readings)] = np.nan
        return readings

    def _fail(self, what: str, error: Exception) -> NoReturn:
        _print_traceback(error)
        self.close()
        try:
            self.env = self._reopen()
        except ValueError as reopening:
            raise BrokenEnvironmentError(str(reopening)) from error
        raise failure_of(self._environment, what, error) from error


def of_patches(env: gymnasium.Env[Any, Any]) -> bool:
    """Whether what the environment shows are image patches (N, f, p, p) uint8."""
    space = env.observation_space
    return isinstance(space, spaces.Box) and len(space.shape) == 4 and space.dtype == np.uint8


def choices_of(env: gymnasium.Env[Any, Any]) -> tuple[int, ...]:
    """Return the sizes of the groups of actions of which the largest is taken, 1 for a bit.

    Empty where some action of this environment of `make_environment` is a number of a Box.
    """
    adapted = _adapter_of(env)
    return () if adapted is None else adapted.actions.choices


def adapter_of(env: gymnasium.Env[Any, Any]) -> Adapted:
    """Return what adapts an environment of `make_environment`, which may be wrapped."""
    if (adapted := _adapter_of(env)) is None:
        raise TypeError(f"{env} was not opened by make_environment")
    return adapted


def _adapter_of(env: gymnasium.Env[Any, Any]) -> Adapted | None:
    while not isinstance(env, Adapted) and isinstance(env, gymnasium.Wrapper):
        env = env.env
    return env if isinstance(env, Adapted) else None


def describe(env: gymnasium.Env[Any, Any], name: str, environment: str) -> dict[str, Any]:
    """Return the `task` of a model file for this environment of `make_environment`.

    ValueError where it names other readings or actuators than it has.
    """
    inner: Any = env.unwrapped
    adapted = adapter_of(env)
    readings, actuators = env.observation_space.shape, adapted.actions.names
    assert readings is not None
    channels: Sequence[str] = [f"{READINGS}.{i}" for i in range(readings[0])]
    if adapted.readings is not None:
        channels = adapted.readings.ids
    if isinstance(inner, HasChannels) and _are_names(inner.channels):
        channels = _named("channels", inner.channels, len(channels), environment)
    if isinstance(inner, HasActuators) and _are_names(inner.actuators):
        actuators = tuple(_named("actuators", inner.actuators, len(actuators), environment))
    task = {
        "name": name,
        "environment": environment.rpartition(":")[2],
        "channels": list(channels),
        "actuators": list(actuators),
        "step_s": step_length(env),
    }
    return task | ({"units": adapted.units.pairs} if adapted.units else {})


def _are_names(names: Any) -> bool:
    """Return whether an attribute holds names; another one of its name may hold anything."""
    return isinstance(names, list | tuple) and all(isinstance(one, str) for one in names)


def _named(what: str, names: Sequence[str], count: int, environment: str) -> Sequence[str]:
    """Return an environment's own names; ValueError unless they are `count` that differ."""
    if len(names) != count or len(set(names)) != count:
        raise ValueError(
            f"environment {environment!r}: its {what} are {len(names)} names"
            f" ({len(set(names))} different ones), but there are {count}"
        )
    return names


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
