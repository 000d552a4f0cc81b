"""The Ant: AntBulletEnv's task with sensor readings that a robot's wiring file can reproduce.

The environment first computes physical readings, then `clip(reading * scale + offset, -5, 5)` in
float64, then float32. That is the arithmetic of the wiring, so a policy over ROS 2 gets the same
bits as one in this process. Physics, observation, reward and termination are those of
AntBulletEnv-v0 (pybullet-envs-gymnasium; Schulman et al.'s roboschool ant). As in that environment,
the foot contacts in an observation are one step old.

The robot is PyBullet's ant.xml on the stadium floor, simulated with as few calls of PyBullet as
possible. A world is one PyBullet client. The world is rebuilt from the files for every episode,
which takes 5 ms, so that an episode cannot depend on earlier ones.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
import pybullet
import pybullet_data

from an_control.wiring.messages import compute_pitch, compute_roll, compute_yaw
from an_control_sim.envs.tasks import ANT_TASK

STEP_S = 0.0165
SUBSTEPS = 4
SOLVER_ITERATIONS = 5
JOINTS = ("hip_1", "ankle_1", "hip_2", "ankle_2", "hip_3", "ankle_3", "hip_4", "ankle_4")
FEET = ("front_left_foot", "front_right_foot", "left_back_foot", "right_back_foot")
MOTOR_GAIN = 0.1
FLOOR_FRICTION = 0.8


@dataclass(slots=True)
class AntState:
    """The state of the simulated ant at one time, in the world frame and SI units.

    Attributes:
        joint_position: The joint angles (8,) in rad.
        joint_velocity: The joint velocities (8,) in rad/s.
        position: The position (x, y, z) of the torso.
        orientation: The orientation of the torso, a quaternion (x, y, z, w).
        velocity: The velocity (x, y, z) of the torso.
        angular_velocity: The angular velocity (x, y, z) of the torso.
        centre: The mean position (x, y) of the robot's parts and the floor, which counts as one
            more part at (0, 0).
    """

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
        """Factors of the ant's mass and the floor's friction, applied by the next `rebuild`."""
        self._client = pybullet.connect(pybullet.DIRECT)
        self._floor = self._ant = -1
        self.rebuild(np.zeros(len(JOINTS)))

    def rebuild(self, joint_position: np.ndarray) -> None:
        """Replace the world by a new one with the floor and an ant that does not move.

        Args:
            joint_position: The angles of the joints (8,) in rad.
        """
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
        self._find_body_parts_and_release_motors()
        if self.mass != 1.0:
            self._scale_mass()
        for joint, angle in zip(self._joints, joint_position, strict=True):
            pybullet.resetJointState(self._ant, joint, float(angle), 0.0, physicsClientId=client)

    def hang_in_air(self) -> None:
        """Fix the torso in the air, so that the legs hang freely."""
        self._place_torso((0.0, 0.0, HANGING_M), (0.0, 0.0, 0.0, 1.0))
        pybullet.createConstraint(
            self._ant, -1, -1, -1, pybullet.JOINT_FIXED,
            (0.0, 0.0, 0.0), (0.0, 0.0, 0.0), (0.0, 0.0, HANGING_M),
            physicsClientId=self._client,
        )  # fmt: skip

    def turn_on_back(self) -> None:
        """Turn the ant on its back, just above the floor."""
        self._place_torso((0.0, 0.0, ON_BACK_M), (1.0, 0.0, 0.0, 0.0))

    def _place_torso(
        self,
        position: tuple[float, float, float],
        orientation: tuple[float, float, float, float],
    ) -> None:
        """Move the torso to a position and an orientation; the legs move along with it.

        Args:
            position: The position (x, y, z) in m.
            orientation: The orientation, a quaternion (x, y, z, w).
        """
        pybullet.resetBasePositionAndOrientation(
            self._ant, position, orientation, physicsClientId=self._client
        )

    def let_joints_settle(self, seconds: float, joint_damping: float) -> None:
        """Simulate a time without motor torques, in which damping brings the joints to rest.

        Args:
            seconds: The simulated time in seconds.
            joint_damping: The damping of the joints in N m s/rad during this time; it is 0
                afterwards.
        """
        for strength in (joint_damping, 0.0):
            for link in self._links:
                pybullet.changeDynamics(
                    self._ant, link, jointDamping=strength, physicsClientId=self._client
                )
            if strength:
                for _ in range(round(seconds / STEP_S)):
                    self.advance([0.0] * len(JOINTS))

    def _scale_mass(self) -> None:
        """Multiply the mass and the inertia of all parts of the ant by the attribute `mass`."""
        for link in (-1, *self._links):
            info = pybullet.getDynamicsInfo(self._ant, link, physicsClientId=self._client)
            pybullet.changeDynamics(
                self._ant,
                link,
                mass=self.mass * info[0],
                localInertiaDiagonal=[self.mass * one for one in info[2]],
                physicsClientId=self._client,
            )

    def _find_body_parts_and_release_motors(self) -> None:
        """Store the indices of joints and feet, found by name, and switch off PyBullet's motors."""
        client, ant = self._client, self._ant
        number = pybullet.getNumJoints(ant, physicsClientId=client)
        infos = [pybullet.getJointInfo(ant, i, physicsClientId=client) for i in range(number)]
        joint_index = {info[1].decode(): info[0] for info in infos}
        link_index = {info[12].decode(): info[0] for info in infos}
        self._links = list(range(number))
        self._joints = [joint_index[name] for name in JOINTS]
        self._foot = {link_index[name]: place for place, name in enumerate(FEET)}
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
        """Simulate one control step in which the joint motors exert constant torques.

        Args:
            torques: The torques (8,) in N m.
        """
        pybullet.setJointMotorControlArray(
            self._ant,
            self._joints,
            pybullet.TORQUE_CONTROL,
            forces=torques,
            physicsClientId=self._client,
        )
        pybullet.stepSimulation(physicsClientId=self._client)

    def read_state(self) -> AntState:
        """Return the current state of the ant, read from PyBullet."""
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

    def read_foot_contact(self) -> list[float]:
        """Return a number for each of the four feet: 1.0 if it touches the floor, else 0.0."""
        touching = [0.0] * len(FEET)
        for contact in pybullet.getContactPoints(
            self._ant, self._floor, physicsClientId=self._client
        ):
            foot = self._foot.get(contact[3])
            if foot is not None:
                touching[foot] = 1.0
        return touching

    def render(self, target: tuple[float, float, float], width: int, height: int) -> np.ndarray:
        """Render the view of a camera 3 m from a point.

        Args:
            target: The point (x, y, z) in m that the camera looks at.
            width: The width of the picture in pixels.
            height: The height of the picture in pixels.

        Returns:
            The picture (height, width, 3) uint8.
        """
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
        """Disconnect from PyBullet; the world cannot be used afterwards."""
        if self._client >= 0:
            pybullet.disconnect(physicsClientId=self._client)
            self._client = -1


ANT_ACTUATORS = ANT_TASK.actuators
ANT_CHANNELS = ANT_TASK.channels
"""Ids of the 28 sensor channels, in the order of the observation."""

JOINT_LIMITS_DEG = {
    "hip_1": (-40.0, 40.0),
    "ankle_1": (30.0, 100.0),
    "hip_2": (-40.0, 40.0),
    "ankle_2": (-100.0, -30.0),
    "hip_3": (-40.0, 40.0),
    "ankle_3": (-100.0, -30.0),
    "hip_4": (-40.0, 40.0),
    "ankle_4": (30.0, 100.0),
}


def _compute_reading_scales_and_offsets() -> dict[str, tuple[float, float]]:
    """Return for each channel, by its id, the scale and offset that turn SI units into readings.

    A reading is the physical value times the scale, plus the offset. A joint angle is scaled so
    that the limits of the joint become -1 and 1.
    """
    scaling = dict.fromkeys(ANT_CHANNELS, (1.0, 0.0))
    for axis in "xyz":
        scaling[f"velocity.{axis}"] = (0.3, 0.0)
    for joint, (lower, upper) in JOINT_LIMITS_DEG.items():
        scale = 2.0 / math.radians(upper - lower)
        offset = -(upper + lower) / (upper - lower)
        scaling[f"{joint}.position"] = (round(scale, 7), round(offset, 7) + 0.0)
        scaling[f"{joint}.velocity"] = (0.1, 0.0)
    return scaling


ANT_SCALING = _compute_reading_scales_and_offsets()
"""For each channel id the scale and the offset that convert the physical reading to the
observation."""

TORQUE_NM = 250.0
CLIP = 5.0
FALLEN_BELOW_M = 0.26
TARGET_X_M = 1000.0
START_ANGLE_RAD = 0.1
REST_S = 2.0
"""Seconds that the Ant lies without torque before an episode that starts at rest."""
HANGING_M, ON_BACK_M = 2.0, 0.35
"""Heights at which the torso is placed for the poses "hanging" and "on_back"."""
BRAKE_NMS = 10.0
"""Damping of the joints while these poses come to rest, in N m s/rad."""
ELECTRICITY_COST = -2.0
STALL_TORQUE_COST = -0.1
JOINT_AT_LIMIT_COST = -0.1


POSES = ("standing", "hanging", "on_back")


class AntEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """The Ant, which walks towards a target 1 km away, at 60.6 steps per second.

    The action is 8 torques in [-1, 1], times 250 N m. The observation is (28,) float32 in the order
    of `ANT_CHANNELS`.

    With the action a, the reward is the sum of: 1, or -1 if the Ant has fallen; the mean speed
    towards the target in this step, in m/s; -2 mean|a * scaled joint speed|; -0.1 mean a^2;
    and -0.1 for each joint at a limit. `info["distance_m"]` is how much closer the torso has come
    to the target since the reset. An episode ends when the Ant has fallen. If it starts on the
    ground (the reset's option start: rest), it counts as fallen only after it has been upright.

    Args:
        render_mode: None, or "rgb_array" for pictures that follow the torso.
        width: The width of the pictures in pixels.
        height: The height of the pictures in pixels.
        pose: "standing"; "hanging" with the torso fixed in the air; or "on_back", lying on its back
            on the floor. In the last two an episode begins with the legs at rest and never ends.
    """

    channels = ANT_CHANNELS
    actuators = ANT_ACTUATORS
    step_s = STEP_S
    starts = ("rest", "posture")
    metadata = {"render_modes": ["rgb_array"], "render_fps": round(1.0 / STEP_S)}  # noqa: RUF012

    def __init__(
        self,
        render_mode: str | None = None,
        width: int = 320,
        height: int = 240,
        pose: str = "standing",
    ) -> None:
        if pose not in POSES:
            raise ValueError(f"pose: {pose!r} (allowed: {', '.join(POSES)})")
        if render_mode not in (None, "rgb_array"):
            raise ValueError(f"render_mode: {render_mode!r} is neither None nor 'rgb_array'")
        if width < 1 or height < 1:
            raise ValueError(f"picture of {width} x {height} pixels")
        self.render_mode = render_mode
        self._size = (width, height)
        self._pose = pose
        self.observation_space = gymnasium.spaces.Box(-CLIP, CLIP, (len(ANT_CHANNELS),), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (len(JOINTS),), np.float32)
        self._scale, self._offset = np.array([ANT_SCALING[name] for name in ANT_CHANNELS]).T
        self._world = AntWorld()
        self._state = self._world.read_state()

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode whose joint angles depend only on the seed.

        Args:
            seed: The seed of the joint angles.
            options: The key "start" chooses the state of the Ant: "usual" (joints within 0.1 rad of
                straight; the default), "rest" (the same, and then 2 s without torque, so that the
                Ant lies on the ground), or "posture" (joints anywhere within their limits).
        """
        super().reset(seed=seed)
        start = (options or {}).get("start", "usual")
        reach = np.full((2, len(JOINTS)), [[-START_ANGLE_RAD], [START_ANGLE_RAD]])
        if start == "posture":
            reach = np.radians(list(JOINT_LIMITS_DEG.values())).T
        elif start not in ("usual", "rest"):
            raise ValueError(f"start: {start!r} (allowed: usual, {', '.join(self.starts)})")
        if self._pose != "standing":
            reach += np.radians(list(JOINT_LIMITS_DEG.values())).mean(axis=1)
        self._world.rebuild(self.np_random.uniform(*reach))
        if self._pose != "standing":
            self._place_in_pose_and_let_legs_rest()
        self._start = self._world.read_state().position
        self._down = start == "rest"
        if self._down:
            for _ in range(round(REST_S / STEP_S)):
                self._world.advance([0.0] * len(JOINTS))
        self._state = state = self._world.read_state()
        self._contact = self._world.read_foot_contact() if self._down else [0.0] * 4
        observation = self._make_observation(state)
        self._potential = self._compute_reward_potential(state)
        return observation, {"distance_m": 0.0}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Make one control step of 0.0165 s.

        Raises:
            ValueError: The action is not (8,) or not finite.
        """
        action = np.asarray(action)
        if action.shape != (len(JOINTS),) or not np.isfinite(action).all():
            raise ValueError(f"action {action!r} is not {len(JOINTS)} finite numbers")
        wide = action.astype(np.float64)
        self._world.advance((TORQUE_NM * np.minimum(np.maximum(wide, -1.0), 1.0)).tolist())
        self._state = state = self._world.read_state()
        observation = self._make_observation(state)
        reward, fallen = self._compute_reward_and_check_fall(state, wide)
        self._contact = self._world.read_foot_contact()
        fallen = fallen and self._pose == "standing"
        return (
            observation,
            reward,
            fallen,
            False,
            {"distance_m": self._compute_progress_since_start_m(state)},
        )

    def _place_in_pose_and_let_legs_rest(self) -> None:
        """Hang the Ant up or turn it on its back, as `pose` says, and let its legs come to rest."""
        if self._pose == "hanging":
            self._world.hang_in_air()
        else:
            self._world.turn_on_back()
        self._world.let_joints_settle(REST_S, BRAKE_NMS)

    def set_physics(self, mass: float, friction: float) -> None:
        """Set the mass of the Ant and the friction of the floor, from the next reset on.

        Args:
            mass: The factor by which mass and inertia are multiplied.
            friction: The factor by which the friction of the floor is multiplied.
        """
        self._world.mass, self._world.friction = mass, friction

    def sensors(self) -> dict[str, float | np.ndarray]:
        """Return the physical readings from which the newest observation was computed, by name.

        They are in SI units. The heading frame is the world frame, turned by the yaw of the torso.

        Returns:
            "height" above the start, "goal" (2,) the unit direction to the target in the heading
            frame, "velocity" (3,) in the heading frame, "orientation" (4,) as x y z w,
            "angular_velocity" (3,) in the torso's frame, "position" (3,) relative to the start,
            "joint_position" (8,), "joint_velocity" (8,) and "foot_contact" (4,) of 0 or 1.
        """
        state = self._state
        return {
            "height": self._readings[0],
            "goal": np.array([self._readings[2], self._readings[1]]),
            "velocity": np.array(self._readings[3:6]),
            "orientation": np.array(state.orientation),
            "angular_velocity": _rotate_from_world_into_frame(
                state.orientation, state.angular_velocity
            ),
            "position": np.subtract(state.position, self._start),
            "joint_position": np.array(state.joint_position),
            "joint_velocity": np.array(state.joint_velocity),
            "foot_contact": np.array(self._readings[-4:]),
        }

    def render(self) -> np.ndarray | None:
        """Return a picture (height, width, 3) uint8, or None without a render mode."""
        if self.render_mode is None:
            return None
        return self._world.render(self._state.position, *self._size)

    def close(self) -> None:
        """Close the physics engine."""
        self._world.close()

    def _make_observation(self, state: AntState) -> np.ndarray:
        """Return the observation (28,) of a state.

        The unscaled readings are stored for `sensors`, in the order of `ANT_CHANNELS`.
        """
        heading = compute_yaw(*state.orientation)
        bearing = math.atan2(-state.centre[1], TARGET_X_M - state.centre[0]) - heading
        cos, sin = math.cos(heading), math.sin(heading)
        vx, vy, vz = state.velocity
        readings = [
            state.position[2] - self._start[2],
            math.sin(bearing),
            math.cos(bearing),
            cos * vx + sin * vy,
            cos * vy - sin * vx,
            vz,
            compute_roll(*state.orientation),
            compute_pitch(*state.orientation),
        ]
        for joint in zip(state.joint_position, state.joint_velocity, strict=True):
            readings += joint
        readings += self._contact
        self._readings = readings
        self._scaled = scaled = np.array(readings) * self._scale + self._offset
        return np.minimum(np.maximum(scaled, -CLIP), CLIP).astype(np.float32)

    def _compute_reward_and_check_fall(
        self, state: AntState, action: np.ndarray
    ) -> tuple[float, bool]:
        """Return the reward of a step, and whether the Ant has fallen.

        This also stores the state's potential (see `_compute_reward_potential`), from which the
        progress in the next step is computed.

        Args:
            state: The state after the step.
            action: The action (8,) float64.
        """
        scaled, effort = self._scaled, np.abs(action)
        upright = state.position[2] > FALLEN_BELOW_M and math.isfinite(scaled.dot(scaled))
        before, self._potential = self._potential, self._compute_reward_potential(state)
        at_limit = np.count_nonzero(np.abs(scaled[8:24:2]) > 0.99)
        reward = (
            (1.0 if upright else -1.0)
            + (self._potential - before)
            + ELECTRICITY_COST * _sum_products(effort, np.abs(scaled[9:24:2])) / len(JOINTS)
            + STALL_TORQUE_COST * _sum_products(action, action) / len(JOINTS)
            + JOINT_AT_LIMIT_COST * float(at_limit)
        )
        self._down = self._down and not upright
        return reward, not (upright or self._down)

    def _compute_reward_potential(self, state: AntState) -> float:
        """Return the negative distance to the target (m), divided by the step length (s).

        The change of this value in a step is the reward for progress.
        """
        return -math.hypot(TARGET_X_M - state.centre[0], state.centre[1]) / STEP_S

    def _compute_progress_since_start_m(self, state: AntState) -> float:
        """Return by how many metres the torso is closer to the target than at the start."""
        before = math.hypot(TARGET_X_M - self._start[0], self._start[1])
        return before - math.hypot(TARGET_X_M - state.position[0], state.position[1])


def _sum_products(left: np.ndarray, right: np.ndarray) -> float:
    """Return the sum of the products of two vectors' elements.

    It is the same to the last bit on every processor, which `left.dot(right)` is not.
    """
    return math.fsum((left * right).tolist())


def _rotate_from_world_into_frame(
    orientation: tuple[float, float, float, float], vector: tuple[float, float, float]
) -> np.ndarray:
    """Express a vector of the world frame in a frame with another orientation.

    Args:
        orientation: The orientation of the frame, a quaternion (x, y, z, w).
        vector: The vector (x, y, z) in the world frame.

    Returns:
        The vector (3,) in the other frame.
    """
    axis, w = -np.array(orientation[:3]), orientation[3]
    across = 2.0 * np.cross(axis, vector)
    return np.asarray(vector) + w * across + np.cross(axis, across)
