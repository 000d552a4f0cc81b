"""A wrapper of environments that can change the robot, such as its motor gain, lag and mass.

Every environment that `open_environment` makes has this wrapper. Evaluation, training and the
bridge to ROS 2 use the same wrapper, so that a setting means the same everywhere. Mass and friction
are supported for robots in MuJoCo and PyBullet.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from an_control.disturbance import DisturbanceSettings, compute_worn_motor_output
from an_control.system.environment_output import discard_native_output

SetPhysics: TypeAlias = Callable[[float, float], None]
"""A function that sets the factors of mass and friction, from the next reset on."""
NOMINAL = DisturbanceSettings()


class VariedRobot(gymnasium.Wrapper[Any, Any, Any, Any]):
    """A wrapper that can change an environment's robot: motors, mass, friction and start state.

    It changes nothing until `vary_robot` is called.

    Args:
        env: The environment.
        starts: The names that the environment's `reset` accepts as `options["start"]`.
        physics: Sets the factors of mass and friction; None if the environment does not support
            that.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        starts: Sequence[str] = (),
        physics: SetPhysics | None = None,
    ) -> None:
        super().__init__(env)
        self._starts, self._physics = tuple(starts), physics
        self._settings, self._has_motor_effects = NOMINAL, False
        self._effect: np.ndarray | None = None
        self._was_reset = False

    def check_settings(self, settings: DisturbanceSettings) -> None:
        """Check that the environment supports a disturbance's settings of the robot, such as mass.

        Raises:
            ValueError: The environment does not support a setting; the message names it.
        """
        for one in settings.non_default_settings:
            if one.target == "robot" and (reason := self._describe_problem(one.name, settings)):
                value, name = getattr(settings, one.name), type(self.unwrapped).__name__
                raise ValueError(f"{one.name}: {value} ({name} {reason})")

    def vary_robot(self, settings: DisturbanceSettings) -> None:
        """Set the robot's motors, mass, friction and start state; they change at the next reset.

        Args:
            settings: A disturbance, of which only the settings of the robot are used.

        Raises:
            ValueError: The environment does not support a setting; see `check_settings`.
        """
        self.check_settings(settings)
        before, self._settings = self._settings, settings
        self._has_motor_effects = settings.gain != NOMINAL.gain or bool(settings.lag)
        now = settings.mass, settings.friction
        if self._physics is not None and now != (before.mass, before.friction):
            self._physics(settings.mass.value, settings.friction.value)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start an episode in the robot state that was chosen by `vary_robot`.

        The state is "usual", "rest" (after 2 s without torque) or "posture" (at random joint
        positions).
        """
        self._effect = None
        if self._settings.start != NOMINAL.start:
            options = {**(options or {}), "start": self._settings.start}
        connects = "pybullet" in sys.modules and not self._was_reset
        self._was_reset = True
        with (
            discard_native_output() if connects else nullcontext()
        ):  # PyBullet prints its arguments
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Make a step with the action that results from the motors' gain and lag, if set."""
        if self._has_motor_effects:
            action = self._compute_motor_output(np.asarray(action))
        return self.env.step(action)

    def _compute_motor_output(self, action: np.ndarray) -> np.ndarray:
        """Return the action that the motors carry out: the given one after their gain and lag.

        Gain and lag apply to the difference of the action from the middle of the action space.
        """
        middle = _compute_middle_of_bounds(self.action_space)
        wanted = action.astype(np.float64) - middle
        self._effect = compute_worn_motor_output(self._settings, wanted, self._effect)
        output = middle + self._effect
        if np.issubdtype(action.dtype, np.integer):  # above 255, for example, uint8 begins at 0
            limits = np.iinfo(action.dtype)
            output = np.clip(output, limits.min, limits.max)
        return output.astype(action.dtype)

    def _describe_problem(self, setting: str, settings: DisturbanceSettings) -> str:
        """Return why the environment does not support a setting of the robot; "" if it does."""
        if setting == "start":
            usable = settings.start in self._starts
            return "" if usable else f"supports only {' and '.join(('usual', *self._starts))}"
        if setting in ("gain", "lag"):
            box = isinstance(self.action_space, spaces.Box)
            return "" if box else f"has the actions {self.action_space}, which cannot be scaled"
        return "cannot change it: it has no set_physics" if self._physics is None else ""


def _compute_middle_of_bounds(space: spaces.Space[Any]) -> np.ndarray:
    """Return the middle between the bounds of each number of a Box; 0 where a bound is missing."""
    assert isinstance(space, spaces.Box)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, (low + high) / 2.0, 0.0)


def vary_robot(env: gymnasium.Env[Any, Any], settings: DisturbanceSettings = NOMINAL) -> None:
    """Change the robot of an environment (motors, mass, friction, start) from the next reset on.

    Args:
        env: An environment that `open_environment` made; other wrappers may have been added to it.
        settings: A disturbance, of which only the settings of the robot are used; by default they
            restore the nominal robot.

    Raises:
        ValueError: The environment does not support a setting, or a setting is a range such as
            0.6..1 instead of a number.
    """
    robot = _find_varied_robot(env)
    if robot is not None:
        robot.vary_robot(settings)
    elif settings.does_disturb_target("robot"):
        raise ValueError(f"{settings}: {env} was not opened by `open_environment`")


def check_robot_settings(env: gymnasium.Env[Any, Any], settings: DisturbanceSettings) -> None:
    """Check that an environment supports a disturbance's settings of the robot, such as mass.

    Raises:
        ValueError: The environment does not support a setting; the message names it.
    """
    robot = _find_varied_robot(env)
    if robot is not None:
        robot.check_settings(settings)


def _find_varied_robot(env: gymnasium.Env[Any, Any]) -> VariedRobot | None:
    """Return the VariedRobot among an environment's wrappers, or None if there is none."""
    while not isinstance(env, VariedRobot):
        if not isinstance(env, gymnasium.Wrapper):
            return None
        env = env.env
    return env


FRICTION = 0
"""Column of the sliding friction among the three frictions that MuJoCo has for each shape
(geom)."""


def make_physics_setter(unwrapped: Any) -> SetPhysics | None:
    """Return a function that changes mass and friction of the robot in an environment.

    Args:
        unwrapped: The environment without wrappers.

    Returns:
        A function of two factors, that of mass and that of friction. None if the environment is
        neither one of gymnasium's MuJoCo environments nor one of pybullet_envs_gymnasium.
    """
    model, robot = getattr(unwrapped, "model", None), getattr(unwrapped, "robot", None)
    if hasattr(model, "body_mass") and hasattr(model, "geom_friction"):
        return MujocoPhysics(model)
    if hasattr(robot, "robot_specific_reset"):
        return BulletPhysics(unwrapped)
    return None


def redirect_mujoco_warnings_to_stderr() -> None:
    """Make MuJoCo print its warnings to stderr only, if MuJoCo is imported.

    By default it also writes MUJOCO_LOG.TXT in the current directory.
    """
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None:
        mujoco.set_mju_user_warning(lambda text: print(f"MuJoCo: {text}", file=sys.stderr))


class MujocoPhysics:
    """A function object that scales mass, inertia and friction in gymnasium's MuJoCo environments.

    It changes all bodies, also those that are not part of the robot.

    Args:
        model: The environment's MuJoCo model.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._nominal = {
            name: getattr(model, name).copy()
            for name in ("body_mass", "body_inertia", "geom_friction")
        }

    def __call__(self, mass: float, friction: float) -> None:
        """Set mass and friction to multiples of those of the nominal robot.

        Args:
            mass: The factor of mass and inertia.
            friction: The factor of the sliding friction.
        """
        import mujoco  # type: ignore[import-not-found, import-untyped, unused-ignore]

        model, nominal = self._model, self._nominal
        model.body_mass[:] = mass * nominal["body_mass"]
        model.body_inertia[:] = mass * nominal["body_inertia"]
        model.geom_friction[:] = nominal["geom_friction"]
        model.geom_friction[:, FRICTION] *= friction
        mujoco.mj_setConst(model, mujoco.MjData(model))


class BulletPhysics:
    """Physics of an environment of pybullet_envs_gymnasium, with scalable mass and friction.

    Args:
        inner: The environment without wrappers.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._nominal: dict[tuple[int, int], tuple[Any, ...]] = {}

    def __call__(self, mass: float, friction: float) -> None:
        """Set mass and friction to multiples of those of the nominal robot.

        Args:
            mass: The factor of mass and inertia.
            friction: The factor of the lateral friction.
        """
        if not self._nominal:
            self._nominal = self._read_dynamics_by_body_and_link()
        for (body, link), info in self._nominal.items():
            self._inner._p.changeDynamics(
                body,
                link,
                mass=mass * info[0],
                lateralFriction=friction * info[1],
                localInertiaDiagonal=np.multiply(mass, info[2]).tolist(),
            )

    def _read_dynamics_by_body_and_link(self) -> dict[tuple[int, int], tuple[Any, ...]]:
        """Return what PyBullet's getDynamicsInfo says about each link of the robot's bodies.

        Bodies without any mass are left out.

        Returns:
            For each pair (index of the body, index of the link) the info, such as the link's mass.
        """
        if self._inner.scene is None:  # the first reset loads the robot
            self._inner.reset()
        client, parts = self._inner._p, self._inner.robot.parts.values()
        found: dict[tuple[int, int], tuple[Any, ...]] = {}
        for body in {part.bodies[part.bodyIndex] for part in parts}:
            links = range(-1, client.getNumJoints(body))
            infos = {(body, link): client.getDynamicsInfo(body, link) for link in links}
            if any(info[0] for info in infos.values()):
                found |= infos
        return found
