"""The Ant's physics: PyBullet's ant.xml on the stadium floor, in as few calls as it takes.

One world is one PyBullet client of its own. It is rebuilt from the files for every episode
(5 ms), so that an episode cannot depend on what the world has been through before.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
import pybullet
import pybullet_data

STEP_S = 0.0165
SUBSTEPS = 4
SOLVER_ITERATIONS = 5
JOINTS = ("hip_1", "ankle_1", "hip_2", "ankle_2", "hip_3", "ankle_3", "hip_4", "ankle_4")
FEET = ("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot")
MOTOR_GAIN = 0.1
FLOOR_FRICTION = 0.8


@dataclass(slots=True)
class AntState:
    """What one look at the world gives; world frame, SI units."""

    joint_position: list[float]  # rad
    joint_velocity: list[float]  # rad/s
    position: tuple[float, float, float]
    orientation: tuple[float, float, float, float]  # x, y, z, w
    velocity: tuple[float, float, float]
    angular_velocity: tuple[float, float, float]
    centre: tuple[float, float]  # mean x, y of the robot's parts and the floor


class AntWorld:
    """A PyBullet world with one ant."""

    def __init__(self) -> None:
        self.mass = self.friction = 1.0
        """Factors of the ant's mass and the floor's friction, from the next `rebuild` on."""
        self._client = pybullet.connect(pybullet.DIRECT)
        self._floor = self._ant = -1
        self.rebuild(np.zeros(len(JOINTS)))

    def rebuild(self, joint_position: np.ndarray) -> None:
        """Start from the files again, the joints (8,) at `joint_position` (rad) and at rest."""
        client = self._client
        pybullet.resetSimulation(physicsClientId=client)
        pybullet.setGravity(0.0, 0.0, -9.8, physicsClientId=client)
        pybullet.setDefaultContactERP(0.9, physicsClientId=client)
        pybullet.setPhysicsEngineParameter(
            fixedTimeStep=STEP_S,
            numSubSteps=SUBSTEPS,
            numSolverIterations=SOLVER_ITERATIONS,
            deterministicOverlappingPairs=1,
            physicsClientId=client,
        )
        data = pybullet_data.getDataPath()
        (self._floor,) = pybullet.loadSDF(
            os.path.join(data, "plane_stadium.sdf"), physicsClientId=client
        )
        pybullet.changeDynamics(
            self._floor,
            -1,
            lateralFriction=FLOOR_FRICTION * self.friction,
            restitution=0.5,
            physicsClientId=client,
        )
        flags = (
            pybullet.URDF_USE_SELF_COLLISION
            | pybullet.URDF_USE_SELF_COLLISION_EXCLUDE_ALL_PARENTS
            | pybullet.URDF_GOOGLEY_UNDEFINED_COLORS
        )
        (self._ant,) = pybullet.loadMJCF(
            os.path.join(data, "mjcf", "ant.xml"), flags=flags, physicsClientId=client
        )
        self._find_parts()
        if self.mass != 1.0:
            self._weigh()
        for joint, angle in zip(self._joints, joint_position, strict=True):
            pybullet.resetJointState(self._ant, joint, float(angle), 0.0, physicsClientId=client)

    def _weigh(self) -> None:
        """Give all parts their share of another mass."""
        for link in (-1, *self._links):
            info = pybullet.getDynamicsInfo(self._ant, link, physicsClientId=self._client)
            pybullet.changeDynamics(
                self._ant,
                link,
                mass=self.mass * info[0],
                localInertiaDiagonal=[self.mass * one for one in info[2]],
                physicsClientId=self._client,
            )

    def _find_parts(self) -> None:
        """Look joints and feet up by name and switch the default motors off."""
        client, ant = self._client, self._ant
        number = pybullet.getNumJoints(ant, physicsClientId=client)
        infos = [pybullet.getJointInfo(ant, i, physicsClientId=client) for i in range(number)]
        joint_index = {info[1].decode(): info[0] for info in infos}
        link_index = {info[12].decode(): info[0] for info in infos}
        self._links = list(range(number))
        self._joints = [joint_index[name] for name in JOINTS]
        self._foot = {link_index[name]: place for place, name in enumerate(FEET)}
        self.joint_lower = np.array([infos[i][8] for i in self._joints])
        self.joint_upper = np.array([infos[i][9] for i in self._joints])
        for joint in self._links:
            pybullet.setJointMotorControl2(
                ant,
                joint,
                pybullet.POSITION_CONTROL,
                positionGain=MOTOR_GAIN,
                velocityGain=MOTOR_GAIN,
                force=0.0,
                physicsClientId=client,
            )

    def advance(self, torques: list[float]) -> None:
        """One control step under these torques (8,), N m."""
        pybullet.setJointMotorControlArray(
            self._ant,
            self._joints,
            pybullet.TORQUE_CONTROL,
            forces=torques,
            physicsClientId=self._client,
        )
        pybullet.stepSimulation(physicsClientId=self._client)

    def state(self) -> AntState:
        """Joints, torso and the parts' centre as they are now."""
        client, ant = self._client, self._ant
        joints = pybullet.getJointStates(ant, self._joints, physicsClientId=client)
        position, orientation = pybullet.getBasePositionAndOrientation(ant, physicsClientId=client)
        velocity, angular = pybullet.getBaseVelocity(ant, physicsClientId=client)
        x, y = position[0], position[1]
        for link in pybullet.getLinkStates(ant, self._links, physicsClientId=client):
            place = link[0]
            x += place[0]
            y += place[1]
        parts = len(self._links) + 2
        return AntState(
            [joint[0] for joint in joints],
            [joint[1] for joint in joints],
            position,
            orientation,
            velocity,
            angular,
            (x / parts, y / parts),
        )

    def foot_contact(self) -> list[float]:
        """1.0 for each foot (4,) that touches the floor, else 0.0."""
        touching = [0.0] * len(FEET)
        for contact in pybullet.getContactPoints(
            self._ant, self._floor, physicsClientId=self._client
        ):
            foot = self._foot.get(contact[3])
            if foot is not None:
                touching[foot] = 1.0
        return touching

    def picture(self, target: tuple[float, float, float], width: int, height: int) -> np.ndarray:
        """What a camera 3 m from `target` sees, (height, width, 3) uint8."""
        client = self._client
        view = pybullet.computeViewMatrixFromYawPitchRoll(
            target,
            distance=3.0,
            yaw=20.0,
            pitch=-25.0,
            roll=0.0,
            upAxisIndex=2,
            physicsClientId=client,
        )
        lens = pybullet.computeProjectionMatrixFOV(
            fov=60.0, aspect=width / height, nearVal=0.1, farVal=100.0, physicsClientId=client
        )
        image = pybullet.getCameraImage(
            width,
            height,
            view,
            lens,
            renderer=pybullet.ER_TINY_RENDERER,
            flags=pybullet.ER_NO_SEGMENTATION_MASK,
            physicsClientId=client,
        )
        rgba = np.reshape(np.asarray(image[2], np.uint8), (height, width, 4))
        return np.ascontiguousarray(rgba[:, :, :3])

    def close(self) -> None:
        """Give the client back; the world is of no use after that."""
        if self._client >= 0:
            pybullet.disconnect(physicsClientId=self._client)
            self._client = -1
