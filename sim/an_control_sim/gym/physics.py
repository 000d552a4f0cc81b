"""Mass and friction of robots in simulators that many environments share: MuJoCo and PyBullet."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from an_control_sim.gym.varied_robot import SetPhysics

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
