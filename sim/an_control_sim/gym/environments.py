"""Makes gymnasium environments, adapts them to policies, and describes them for model files.

Any environment in gymnasium's registry can be used if its readings and actions are numbers, choices
and bits (see `spaces`). It may offer more, by having the attributes of one of the protocols below:

    protocol        what it offers                                    who uses it
    HasChannels     ids of the readings                               model files, everything
    HasActuators    names of the actuators                            model files
    HasStepLength   seconds per step                                  model files
    HasBatch        compiled physics of many episodes at once         the compiled engine
    HasTeacher      a teacher that reads the simulator's state        `distill` from patches
    HasFrames       the camera's pictures behind the patches          `distill` from patches
    HasBackgrounds  other pictures behind what the camera shows       `evaluate --table`
    HasSensors      physical readings beside the observation          the bridge to ROS 2
    HasPhysics      other masses, other friction                      `mass=`, `friction=`
    HasStarts       other ways to start                               `start=`

All code asks `isinstance(env.unwrapped, PROTOCOL)`, so an environment of a user can offer the same
as the environments of this package. `mass=` and `friction=` are settings of a disturbance
(`evaluate --table`); environments of MuJoCo (gymnasium's) and PyBullet (pybullet_envs_gymnasium's)
support them without HasPhysics. The `info` of a step may have "distance_m", the distance covered,
which evaluation reports.

`make_environment` is the only place that adapts an environment to policies. Readings become float32
arrays (N,), copied, in ordinary units, NaN where missing; actions are numbers (A,) in [-1, 1].
Output of the environment is captured, and its exceptions become a `BrokenEnvironmentError`.
"""

from __future__ import annotations

import importlib
import math
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Real
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, Protocol, runtime_checkable

import gymnasium
import numpy as np
from gymnasium import spaces

from an_control.policy.task import Task
from an_control.system.environment_output import OUTPUT, discard_native_output
from an_control_sim.gym.failure import BrokenEnvironmentError, make_broken_environment_error
from an_control_sim.gym.spaces import (
    READINGS,
    ReadingConversion,
    make_action_conversion,
    make_reading_conversion,
)
from an_control_sim.gym.units import UNSCALED, Units
from an_control_sim.gym.varied_robot import (
    VariedRobot,
    make_physics_setter,
    redirect_mujoco_warnings_to_stderr,
)

DEFAULT_MAX_STEPS = 1000
"""Maximum length of an episode if the environment is registered without a time limit."""
OWN_LIMITS = ("max_episode_steps", "_max_episode_steps", "max_steps", "_max_steps")
MAX_OWN_LIMIT = 100_000
"""OWN_LIMITS names the attributes in which environments keep a step limit of their own; a larger
limit than this is ignored."""


@runtime_checkable
class HasChannels(Protocol):
    """An environment that names its readings.

    The readings of any other environment are named observation.0, observation.1 and so on.

    Attributes:
        channels: The ids (N,) in the observation's order.
    """

    channels: Sequence[str]


@runtime_checkable
class HasActuators(Protocol):
    """An environment that names its actuators.

    The actuators of any other environment are named action.0, action.1 and so on.

    Attributes:
        actuators: The names (A,) in the action's order.
    """

    actuators: Sequence[str]


@runtime_checkable
class HasStepLength(Protocol):
    """An environment that defines the length of its steps; see `get_step_length_s`.

    Attributes:
        step_s: The length of a step in seconds.
    """

    step_s: float


class EnvironmentBatch(NamedTuple):
    """Compiled physics of B episodes at once; each column of the state array is one episode.

    `observe` and `advance` are numba functions that are compiled for exactly these contiguous
    arrays. A single environment must run the same functions with B = 1.

    Attributes:
        start: Returns, for a seed, the state (S,) float64 from which `reset(seed=...)` starts.
        observe: Reads the states (S, B) float64 and writes the observations (N, B) float32.
        advance: Advances the states (S, B) float64 in place by the actions (A, B) float32. It
            writes the rewards (B,) float64, and whether each episode has ended (B,) bool.
        states: The number S of values in the state of an episode.
        steps: The maximum number of steps of an episode.
    """

    start: Callable[[int], np.ndarray]
    observe: Callable[[np.ndarray, np.ndarray], None]
    advance: Callable[[np.ndarray, np.ndarray, np.ndarray, np.ndarray], None]
    states: int
    steps: int


@runtime_checkable
class HasBatch(Protocol):
    """An environment with compiled physics for many episodes at once.

    Attributes:
        batch: The compiled physics.
    """

    batch: EnvironmentBatch


class StateTeacher(Protocol):
    """A teacher that reads the simulator's state, which the student policy cannot see."""

    @property
    def is_helping(self) -> bool:
        """Whether the teacher should act in place of the student, because the student is lost."""

    @property
    def is_hopeless(self) -> bool:
        """Whether to end the episode, because the teacher has acted for long without success."""

    def start_episode(self) -> None:
        """Prepare for a new episode; called after each reset of the environment."""

    def __call__(self) -> np.ndarray:
        """Return the teacher's action (A,) in [-1, 1] for the simulator's current state.

        It is called once per step.
        """


@runtime_checkable
class HasTeacher(Protocol):
    """An environment that offers a teacher, from which a student policy can learn."""

    def teacher(self) -> StateTeacher:
        """Return a teacher that chooses actions by the state of this environment object."""


@runtime_checkable
class HasFrames(Protocol):
    """An environment whose observations are camera pictures, cut into patches (N, f, p, p).

    These are N patches of p x p pixels from the newest f pictures.
    """

    @property
    def frames(self) -> np.ndarray:
        """The newest f gray pictures (f, H, W) uint8, oldest first.

        The N patches of the observation are these pictures, cut into squares row by row.
        """


@runtime_checkable
class HasBackgrounds(Protocol):
    """An environment that can show other backgrounds in its camera's pictures.

    Attributes:
        plain: The name of the environment's usual background.
    """

    plain: str

    def show(self, name: str) -> None:
        """Show the background picture of this name, at the latest from the next reset on.

        Raises:
            ValueError: There is no background of that name.
        """


@runtime_checkable
class HasSensors(Protocol):
    """An environment that offers physical readings beside the observation."""

    def sensors(self) -> Mapping[str, Any]:
        """Return the sensor readings at the time of the newest observation.

        Returns:
            A mapping from the name of each sensor to its reading, a number or an array. Physical
            quantities are in SI units.
        """


@runtime_checkable
class HasPhysics(Protocol):
    """An environment whose robot's mass and ground friction can be changed."""

    def set_physics(self, mass: float, friction: float) -> None:
        """Scale the robot's mass, inertia and friction with the ground, from the next reset on.

        Args:
            mass: The factor of mass and inertia, relative to the nominal robot; 1 restores that
                exactly.
            friction: The factor of the friction, relative to the nominal one; 1 restores that
                exactly.
        """


@runtime_checkable
class HasStarts(Protocol):
    """An environment that can start in unusual states, by `reset(options={"start": NAME})`.

    Attributes:
        starts: The accepted values of NAME: "rest" (the robot has been without torque for 2 s),
            "posture" (the joints are anywhere within their limits), or both.
    """

    starts: Sequence[str]


TASK_ENVIRONMENTS = {
    "ant": "an_control_sim:an_control/Ant-v0",
    "car_racing": "an_control_sim:an_control/CarRacing-v0",
    "cartpole": "an_control_sim:an_control/CartPoleSwingUpHarder-v0",
    "pong": "an_control_sim:an_control/PuzzlePong-v0",
}
"""Gymnasium ids of the tasks known by a short name."""


def find_environment_id(task: str) -> str:
    """Return the gymnasium id of a task; any other name is returned unchanged.

    >>> find_environment_id("ant")
    'an_control_sim:an_control/Ant-v0'
    >>> find_environment_id("CartPole-v1")
    'CartPole-v1'

    Args:
        task: The short name of a task, such as "ant", or a gymnasium id.
    """
    return TASK_ENVIRONMENTS.get(task, task)


def open_environment(
    environment: str, *, limit_steps: bool = False, **arguments: Any
) -> gymnasium.Env[Any, Any]:
    """Make a gymnasium environment whose observations and actions are not converted.

    `vary_robot` can change its robot, for example the mass. `make_environment` instead makes an
    environment whose observations and actions are arrays of numbers.

    Args:
        environment: A gymnasium id, or ``module:id``; importing the module, which may be in the
            current directory, registers the id.
        limit_steps: Whether to end episodes after a number of steps if the environment is
            registered without such a limit.
        **arguments: Passed to `gymnasium.make`.

    Raises:
        ValueError: There is no such environment, it cannot be made, or it does not take the
            arguments.
    """
    module = environment.rpartition(":")[0]
    try:
        with discard_native_output(), OUTPUT:  # PyBullet prints where it is imported and connected
            if module:
                import_module(module)
            env = gymnasium.make(environment, **arguments)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        text = " ".join(str(error).split())
        raise ValueError(f"environment {environment!r}: {text}") from error
    except Exception as error:
        _print_traceback(error)
        raise ValueError(
            str(make_broken_environment_error(environment, "making it", error))
        ) from error
    redirect_mujoco_warnings_to_stderr()
    inner = env.unwrapped
    if limit_steps and (env.spec is None or env.spec.max_episode_steps is None):
        env = _StepLimit(env, environment)
    physics = inner.set_physics if isinstance(inner, HasPhysics) else make_physics_setter(inner)
    return VariedRobot(env, inner.starts if isinstance(inner, HasStarts) else (), physics)


def _print_traceback(error: BaseException) -> None:
    """Write the traceback of an exception to `OUTPUT`, where all output of environments goes."""
    OUTPUT.write("".join(traceback.format_exception(error)))


class _StepLimit(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that ends the episodes of an environment registered without a limit of steps.

    They end after `DEFAULT_MAX_STEPS` steps. If the environment has a larger limit in one of the
    attributes that `OWN_LIMITS` names, such as max_steps, they end after that number of steps.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], environment: str) -> None:
        super().__init__(env)
        own = [getattr(env.unwrapped, name, None) for name in OWN_LIMITS]
        limits = [int(one) for one in own if isinstance(one, int | float) and one < MAX_OWN_LIMIT]
        self._limit, self._environment, self._steps = max(limits, default=0), environment, 0
        self._limit = max(DEFAULT_MAX_STEPS, self._limit)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Reset the environment and the count of steps."""
        self._steps = 0
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make a step, and end (truncate) the episode if it has reached the limit of steps."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        self._steps += 1
        if self._steps >= self._limit and not (terminated or truncated):
            truncated = True
            OUTPUT.add_note(
                f"environment {self._environment!r} has no time limit: its episodes are cut off"
                f" after {self._limit} steps; register it with max_episode_steps=N for another"
                " number"
            )
        return observation, reward, terminated, truncated, info


def import_module(name: str) -> ModuleType:
    """Import a module, which may lie in the current directory, and return it.

    Raises:
        ImportError: The module is missing, or raises an error while it is imported.
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
    environment: str, units: Units = UNSCALED, **arguments: Any
) -> gymnasium.Env[Any, Any]:
    """Make an environment for a policy: its observations and actions are arrays of numbers.

    An observation is an array of readings (N,) float32, NaN where a number is not finite, or image
    patches (N, f, p, p) uint8: p x p pixels of the newest f frames. An action is an array (A,) of
    numbers in [-1, 1].

    Args:
        environment: A gymnasium id, or ``module:id``; see `open_environment`.
        units: The scale and the offset by which each of the environment's numbers becomes a
            reading; by default the numbers are not changed.
        **arguments: Passed to `gymnasium.make`.

    Raises:
        ValueError: The environment cannot be made, its spaces have no numbers to learn from, or the
            units are for another number of readings.
    """
    reopen = partial(open_environment, environment, limit_steps=True, **arguments)
    env = reopen()
    _note_running_statistics(env, environment)
    try:
        return AdaptedEnvironment(env, environment, units, reopen)
    except ValueError as error:
        env.close()
        raise ValueError(f"environment {environment!r}: {error}") from error


def _note_running_statistics(env: gymnasium.Env[Any, Any], environment: str) -> None:
    """Tell the user, by a note in the output, if a wrapper normalises by running statistics.

    Args:
        env: The environment, with all its wrappers.
        environment: The gymnasium id.
    """
    layer = env
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, gymnasium.wrappers.NormalizeObservation):
            OUTPUT.add_note(
                f"environment {environment!r}: its wrapper NormalizeObservation computes means and"
                " variances anew in each process; they are no part of a policy, and a robot lacks"
                " them. Leave it out: training measures offsets and scales, and keeps them in the"
                " model",
                "running statistics",
            )
        layer = layer.env


class _RestoreThreads:
    """A context that restores torch's number of threads at its end.

    The code of an environment that is run in this context may change that number.
    """

    def __enter__(self) -> None:
        torch = sys.modules.get("torch")
        self._threads = 0 if torch is None else torch.get_num_threads()

    def __exit__(self, *_: object) -> None:
        if self._threads and (torch := sys.modules["torch"]).get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)


RESTORE_THREADS = _RestoreThreads()


class AdaptedEnvironment(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper whose observations are readings (N,) and whose actions are arrays (A,).

    `reset` and `step` return scaled readings: number * scale + offset. Image patches are not
    scaled. Any error in the environment becomes a BrokenEnvironmentError; the environment is then
    made again, since the old one may be broken.

    Args:
        env: The environment to wrap.
        environment: Its gymnasium id.
        units: The scale and the offset of each reading.
        reopen: Makes the environment again.

    Attributes:
        actions: The conversion of arrays (A,) to the environment's actions.
        readings: The conversion of observations to numbers that are not scaled; None for image
            patches.
        units: The argument `units`.
        numbers: The newest observation as numbers (N,) that are not scaled; do not change it.
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
        self.actions = make_action_conversion(env.action_space)
        self.readings: ReadingConversion | None = None
        self._steps = 0
        if has_patch_observations(env):
            self.observation_space = env.observation_space
        else:
            self.readings = make_reading_conversion(env.observation_space)
            units.check_reading_count(len(self.readings.ids))
            shape = (len(self.readings.ids),)
            self.observation_space = spaces.Box(-np.inf, np.inf, shape, np.float32)
        self.action_space = spaces.Box(-1.0, 1.0, (len(self.actions.names),), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode and return the readings (N,) and the environment's info.

        Raises:
            BrokenEnvironmentError: The environment raised an error.
        """
        self._steps = 0
        try:
            with OUTPUT, RESTORE_THREADS:
                observation, info = self.env.reset(seed=seed, options=options)
            return self._convert_observation(observation), info
        except Exception as error:
            self._reopen_and_raise(f"reset with seed {seed}", error)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Make a step with an action.

        Args:
            action: The action (A,), numbers in [-1, 1].

        Returns:
            The readings (N,), the reward, whether the episode has terminated, whether it was
            truncated, and the environment's info.

        Raises:
            BrokenEnvironmentError: The environment raised an error.
        """
        self._steps += 1
        native = self.actions.to_action(action)
        try:
            with OUTPUT, RESTORE_THREADS:
                observation, reward, terminated, truncated, info = self.env.step(native)
            return (
                self._convert_observation(observation),
                float(reward),
                bool(terminated),
                bool(truncated),
                info,
            )
        except Exception as error:
            self._reopen_and_raise(f"step {self._steps}", error)

    def close(self) -> None:
        """Close the environment; an error while it closes is logged but not raised."""
        try:
            with OUTPUT:
                self.env.close()
        except Exception as error:  # the work is done
            _print_traceback(error)

    def _convert_observation(self, observation: Any) -> np.ndarray:
        """Convert an observation to a new array of readings (N,).

        The observation in the environment's own units is stored in the attribute `numbers`. An
        observation of image patches is only copied.
        """
        if self.readings is None:
            return np.array(observation)
        self.numbers = self.readings.flatten(observation)
        readings = self.units.to_readings(self.numbers)
        if not np.isfinite(readings).all():
            readings[~np.isfinite(readings)] = np.nan
        return readings

    def _reopen_and_raise(self, activity: str, error: Exception) -> NoReturn:
        """Make the environment again, and raise a BrokenEnvironmentError for the old one's error.

        Args:
            activity: What the environment was doing, such as "step 3".
            error: The error that the environment raised.
        """
        _print_traceback(error)
        self.close()
        try:
            self.env = self._reopen()
        except ValueError as reopening:
            raise BrokenEnvironmentError(str(reopening)) from error
        raise make_broken_environment_error(self._environment, activity, error) from error


def has_patch_observations(env: gymnasium.Env[Any, Any]) -> bool:
    """Return whether observations are image patches (N, f, p, p) uint8, not arrays of readings.

    These are N patches of p x p pixels from the newest f frames.

    Args:
        env: The environment.
    """
    space = env.observation_space
    return isinstance(space, spaces.Box) and len(space.shape) == 4 and space.dtype == np.uint8


def count_action_numbers_by_choice(env: gymnasium.Env[Any, Any]) -> tuple[int, ...]:
    """Return for each choice in an environment's actions by how many numbers it is encoded.

    A choice among k options has k numbers, of which the largest wins; a bit has one number. For
    example, Discrete(3) gives (3,). The result is () if any part of the action is a Box.

    Args:
        env: An environment that `make_environment` made.
    """
    adapted = _find_adapter_or_none(env)
    return () if adapted is None else adapted.actions.choices


def find_adapter(env: gymnasium.Env[Any, Any]) -> AdaptedEnvironment:
    """Return the AdaptedEnvironment within an environment that `make_environment` made.

    Args:
        env: The environment, to which other wrappers may have been added.

    Raises:
        TypeError: The environment has no AdaptedEnvironment.
    """
    if (adapted := _find_adapter_or_none(env)) is None:
        raise TypeError(f"{env} was not opened by make_environment")
    return adapted


def _find_adapter_or_none(env: gymnasium.Env[Any, Any]) -> AdaptedEnvironment | None:
    """Return the AdaptedEnvironment among an environment's wrappers, or None if there is none."""
    while not isinstance(env, AdaptedEnvironment) and isinstance(env, gymnasium.Wrapper):
        env = env.env
    return env if isinstance(env, AdaptedEnvironment) else None


def describe_task(env: gymnasium.Env[Any, Any], name: str, environment: str) -> Task:
    """Return a description of an environment: its channels, actuators, step length and so on.

    A model file stores it as `task`, to show which environment the model is for.

    Args:
        env: An environment that `make_environment` made.
        name: The name of the task.
        environment: The gymnasium id.

    Raises:
        ValueError: The environment gives more or fewer names than it has readings or actuators.
    """
    inner: Any = env.unwrapped
    adapted = find_adapter(env)
    readings, actuators = env.observation_space.shape, adapted.actions.names
    assert readings is not None
    channels: Sequence[str] = [f"{READINGS}.{i}" for i in range(readings[0])]
    if adapted.readings is not None:
        channels = adapted.readings.ids
    if isinstance(inner, HasChannels) and _is_name_list(inner.channels):
        channels = _check_names_and_return_them(
            "channels", inner.channels, len(channels), environment
        )
    if isinstance(inner, HasActuators) and _is_name_list(inner.actuators):
        actuators = tuple(
            _check_names_and_return_them("actuators", inner.actuators, len(actuators), environment)
        )
    return Task(
        name=name,
        environment=environment.rpartition(":")[2],
        channels=tuple(channels),
        actuators=tuple(actuators),
        step_s=get_step_length_s(env),
        units=adapted.units.scale_offset_pairs,
    )


def _is_name_list(names: Any) -> bool:
    """Return whether a value is a list or tuple of texts.

    Args:
        names: The attribute `channels` or `actuators` of an environment. It may be anything,
            because the environment may use that name for another purpose.
    """
    return isinstance(names, list | tuple) and all(isinstance(one, str) for one in names)


def _check_names_and_return_them(
    attribute: str, names: Sequence[str], count: int, environment: str
) -> Sequence[str]:
    """Check that an environment gives the right number of different names, and return them.

    Args:
        attribute: The name of the environment's attribute that has the names, for error texts.
        names: The names.
        count: The right number.
        environment: The gymnasium id, for error texts.

    Raises:
        ValueError: The number is wrong, or two names are equal.
    """
    if len(names) != count or len(set(names)) != count:
        raise ValueError(
            f"environment {environment!r}: its attribute {attribute} has {len(names)} names"
            f" ({len(set(names))} distinct); it must have {count} distinct names"
        )
    return names


def get_step_length_s(env: gymnasium.Env[Any, Any]) -> float:
    """Return the length of an environment's step in seconds.

    The first of these that exists is returned: the attribute `step_s`; the attribute `dt`, which
    MuJoCo's and some classic environments have; 1 / metadata["render_fps"]; 1/50 s.

    Raises:
        ValueError: The attribute `step_s` is not a positive number.
    """
    inner: Any = env.unwrapped
    if isinstance(inner, HasStepLength):
        step_s: Any = inner.step_s
        if not isinstance(step_s, Real) or not 0.0 < float(step_s) < math.inf:
            raise ValueError(
                f"{type(inner).__name__}: its attribute step_s is {step_s!r}; it must be the"
                " seconds of a step, more than 0"
            )
        return float(step_s)
    dt = getattr(inner, "dt", None)
    if isinstance(dt, float) and 0.0 < dt < math.inf:
        return dt
    return 1.0 / (inner.metadata.get("render_fps") or 50)
