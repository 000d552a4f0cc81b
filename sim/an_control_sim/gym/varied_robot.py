"""An environment whose robot can differ from the nominal one: `gain`, `lag`, `mass` and so on.

Every environment that is opened here is one; the same wrapper serves evaluation, learning and the
bridge to ROS 2, so that a word means the same everywhere. Mass and friction are those of robots in
MuJoCo and PyBullet, the simulators that many environments share.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeAlias

import gymnasium
import numpy as np
from gymnasium import spaces

from an_control.disturbance import DisturbanceSettings, motor_output
from an_control.system.environment_output import no_native_output

SetPhysics: TypeAlias = Callable[[float, float], None]
"""Takes the factors of mass and friction, from the next reset on."""
NOMINAL = DisturbanceSettings()


class VariedRobot(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Passes everything on as it is, until `vary` says otherwise.

    `starts` are those that the environment's `reset` takes as `options["start"]`; `physics` sets
    mass and friction, None where the environment offers no way to.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        starts: Sequence[str] = (),
        physics: SetPhysics | None = None,
    ) -> None:
        super().__init__(env)
        self._starts, self._physics = tuple(starts), physics
        self._settings, self._is_worn = NOMINAL, False
        self._effect: np.ndarray | None = None
        self._was_reset = False

    def check(self, settings: DisturbanceSettings) -> None:
        """ValueError naming what the environment does not offer of what is asked of the robot."""
        for one in settings.changed:
            if one.target != "robot":
                continue
            reason = {"start": self._no_start, "gain": self._no_box, "lag": self._no_box}.get(
                one.name, self._no_physics
            )(settings)
            if reason:
                value, name = getattr(settings, one.name), type(self.unwrapped).__name__
                raise ValueError(f"{one.name}: {value} ({name} {reason})")

    def vary(self, settings: DisturbanceSettings) -> None:
        """The robot of these settings from the next reset on; ValueError as of `check`."""
        self.check(settings)
        before, self._settings = self._settings, settings
        self._is_worn = settings.gain != NOMINAL.gain or bool(settings.lag)
        now = settings.mass, settings.friction
        if self._physics is not None and now != (before.mass, before.friction):
            self._physics(settings.mass.value, settings.friction.value)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        self._effect = None
        if self._settings.start != NOMINAL.start:
            options = {**(options or {}), "start": self._settings.start}
        connects = "pybullet" in sys.modules and not self._was_reset
        self._was_reset = True
        with no_native_output() if connects else nullcontext():  # PyBullet prints its arguments
            return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        if self._is_worn:
            action = self._worn(np.asarray(action))
        return self.env.step(action)

    def _worn(self, action: np.ndarray) -> np.ndarray:
        """What the motors make of an action; gain and lag count from the middle of its space."""
        middle = _middle(self.action_space)
        wanted = action.astype(np.float64) - middle
        self._effect = motor_output(self._settings, wanted, self._effect)
        return (middle + self._effect).astype(action.dtype)

    def _no_start(self, settings: DisturbanceSettings) -> str:
        if settings.start in self._starts:
            return ""
        return f"starts {' or '.join(('usual', *self._starts))}"

    def _no_box(self, settings: DisturbanceSettings) -> str:
        box = isinstance(self.action_space, spaces.Box)
        return "" if box else f"takes {self.action_space}: no number to scale"

    def _no_physics(self, settings: DisturbanceSettings) -> str:
        return "has no set_physics" if self._physics is None else ""


def _middle(space: spaces.Space[Any]) -> np.ndarray:
    """The action that does nothing: halfway between the bounds, 0 where there are none."""
    assert isinstance(space, spaces.Box)
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, (low + high) / 2.0, 0.0)


def varied(env: gymnasium.Env[Any, Any], settings: DisturbanceSettings = NOMINAL) -> None:
    """Let the robot of an environment be that of the settings, from the next reset on.

    ValueError naming a setting that the environment does not offer, or that has a range still.
    """
    robot = _robot(env)
    if robot is not None:
        robot.vary(settings)
    elif settings.active_on("robot"):
        raise ValueError(f"{settings}: {env} was not opened by `open_environment`")


def check_robot(env: gymnasium.Env[Any, Any], settings: DisturbanceSettings) -> None:
    """ValueError naming a setting that the environment does not offer."""
    robot = _robot(env)
    if robot is not None:
        robot.check(settings)


def _robot(env: gymnasium.Env[Any, Any]) -> VariedRobot | None:
    while not isinstance(env, VariedRobot):
        if not isinstance(env, gymnasium.Wrapper):
            return None
        env = env.env
    return env


FRICTION = 0
"""MuJoCo's sliding friction, of the three that a geom has."""


def physics_of(inner: Any) -> SetPhysics | None:
    """What sets an unwrapped environment's physics, where its simulator is known; else None."""
    model, robot = getattr(inner, "model", None), getattr(inner, "robot", None)
    if hasattr(model, "body_mass") and hasattr(model, "geom_friction"):
        return MujocoPhysics(model)
    if hasattr(robot, "robot_specific_reset"):
        return BulletPhysics(inner)
    return None


def print_mujoco_warnings() -> None:
    """Let MuJoCo, once imported, print its warnings; it would write them to MUJOCO_LOG.TXT in the
    current directory too."""
    mujoco = sys.modules.get("mujoco")
    if mujoco is not None:
        mujoco.set_mju_user_warning(lambda text: print(f"MuJoCo: {text}", file=sys.stderr))


class MujocoPhysics:
    """Of gymnasium's MuJoCo environments: all bodies' mass and inertia, all geoms' friction."""

    def __init__(self, model: Any) -> None:
        self._model = model
        self._nominal = {
            name: getattr(model, name).copy()
            for name in ("body_mass", "body_inertia", "geom_friction")
        }

    def __call__(self, mass: float, friction: float) -> None:
        import mujoco  # type: ignore[import-not-found, import-untyped, unused-ignore]

        model, nominal = self._model, self._nominal
        model.body_mass[:] = mass * nominal["body_mass"]
        model.body_inertia[:] = mass * nominal["body_inertia"]
        model.geom_friction[:] = nominal["geom_friction"]
        model.geom_friction[:, FRICTION] *= friction
        mujoco.mj_setConst(model, mujoco.MjData(model))


class BulletPhysics:
    """Of pybullet_envs_gymnasium: mass, inertia and friction of the robot's links."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self._nominal: dict[tuple[int, int], tuple[Any, ...]] = {}

    def __call__(self, mass: float, friction: float) -> None:
        if not self._nominal:
            self._nominal = self._links()
        for (body, link), info in self._nominal.items():
            self._inner._p.changeDynamics(
                body,
                link,
                mass=mass * info[0],
                lateralFriction=friction * info[1],
                localInertiaDiagonal=np.multiply(mass, info[2]).tolist(),
            )

    def _links(self) -> dict[tuple[int, int], tuple[Any, ...]]:
        """What the simulator says of each link of each body that has a mass."""
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
