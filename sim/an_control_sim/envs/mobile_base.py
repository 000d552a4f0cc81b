"""A wheeled base that drives to a goal among walls and pillars, guided by a laser scanner.

The environment first computes the sensors' readings, then the observation by the arithmetic of the
wiring file (config/mobile_base.yaml): a beam without an echo counts as the scanner's maximum range,
a lost beam counts as missing, and a sector of five beams reads the distance of its nearest
obstacle. So a policy over ROS 2 gets the same bits as one in this process.
"""

from __future__ import annotations

import math
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from an_control.wiring.readers import pool_values

STEP_S = 0.05
ARENA_M, PILLARS, PILLAR_M = 4.0, 9, (0.15, 0.45)
"""Half the width of the arena, the maximum number of pillars, and the bounds of their radii."""
ROBOT_M, GOAL_M, FAR_M = 0.2, 0.3, 4.0
"""Radius of the robot, the distance at which it has reached the goal, and the goal's minimum
distance from the start."""
FORWARD_MPS, TURN_RADPS = 0.8, 2.0
ACCELERATION = np.array([2.0, 8.0])
"""Maximum accelerations in m/s^2 and rad/s^2."""
BEAMS, SECTOR, RANGE_M, RANGE_SD_M = 60, 5, 3.0, 0.01
ANGLES = (np.arange(BEAMS) + 0.5) * (2.0 * np.pi / BEAMS) - np.pi
"""Angles of the beams in rad, from the robot's nose to the left."""
GYRO_SD_RADPS, ACCELERATION_SD_MPS2 = 0.02, 0.1
SECTORS = BEAMS // SECTOR
MOBILE_BASE_CHANNELS = (
    *(f"scan.right.{sector}" for sector in range(SECTORS // 2)),
    *(f"scan.left.{sector}" for sector in range(SECTORS // 2)),
    "goal.x",
    "goal.y",
    "goal.distance",
    "velocity.forward",
    "velocity.turn",
    "gyro",
    "acceleration",
)
"""Ids of the channels in the order of the observation; the sectors run from behind over the right,
the nose and the left to behind."""
SIDE = np.repeat([1.0, -1.0], SECTORS // 2)
"""Sign of each sector's reading: the nearer an obstacle, the more negative on the right and the
more positive on the left."""
DISTANCE_SCALE, ACCELERATION_SCALE = 0.3, 0.5
ARRIVED, CRASHED = 10.0, -10.0
Values = NDArray[np.float64]


class MobileBaseEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """A wheeled base that drives to a goal without touching anything, at 20 steps per second.

    The observation is (19,) float32 in the order of `MOBILE_BASE_CHANNELS`. Each sector (group of
    five laser beams) has one reading. On the robot's left it is 3 m minus the smallest distance
    that the beams measure; on its right, the same number with a minus sign. It is NaN if all beams
    of the sector are lost. The action is (2,) in [-1, 1]: the wanted forward speed in units of
    `FORWARD_MPS`, and the wanted turn rate in units of `TURN_RADPS`. The reward is the distance
    gained towards the goal in m, + 10 at the goal, - 10 for a crash; both end the episode.

    Args:
        lost_beams: The share (0..1) of the beams that give no reading. These beams are chosen at
            random for each episode.
    """

    channels = MOBILE_BASE_CHANNELS
    actuators = ("forward", "turn")
    step_s = STEP_S
    metadata = {"render_modes": []}  # noqa: RUF012

    def __init__(self, lost_beams: float = 0.0) -> None:
        if not 0.0 <= lost_beams <= 1.0:
            raise ValueError(f"lost_beams {lost_beams}: must be a share from 0 to 1")
        self._lost_count = round(lost_beams * BEAMS)
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (19,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode whose arena, start and goal depend only on the seed."""
        super().reset(seed=seed)
        rng = self.np_random
        self._place, self._goal = self._draw_random_start_and_goal_positions()
        count = int(rng.integers(4, PILLARS + 1))
        self._pillars = rng.uniform(-ARENA_M, ARENA_M, (count, 2))
        room = np.minimum(*(np.hypot(*(self._pillars - p).T) for p in (self._place, self._goal)))
        self._radii = np.minimum(rng.uniform(*PILLAR_M, count), room - 3.0 * ROBOT_M)
        solid = self._radii > 0.0
        self._pillars, self._radii = self._pillars[solid], self._radii[solid]
        self._heading = float(rng.uniform(-np.pi, np.pi))
        self._speed = np.zeros(2)
        self._acceleration = 0.0
        self._lost = rng.permutation(BEAMS)[: self._lost_count]
        self._simulate_sensor_readings()
        return self._make_observation(), {"distance_m": 0.0}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Make one step of 0.05 s.

        Args:
            action: The action (2,), which is clipped to [-1, 1].

        Raises:
            ValueError: The action is not two finite numbers.
        """
        action = np.asarray(action, np.float64)
        if action.shape != (2,) or not np.isfinite(action).all():
            raise ValueError(f"action {action!r} is not two finite numbers")
        wanted = np.clip(action, -1.0, 1.0) * (FORWARD_MPS, TURN_RADPS)
        before, left_m = self._speed, self._left_m
        change = ACCELERATION * STEP_S
        self._speed = before + np.clip(wanted - before, -change, change)
        self._acceleration = float(self._speed[0] - before[0]) / STEP_S
        self._heading += float(self._speed[1]) * STEP_S
        ahead = np.array([math.cos(self._heading), math.sin(self._heading)])
        self._place = self._place + self._speed[0] * STEP_S * ahead
        self._simulate_sensor_readings()
        arrived = self._left_m < GOAL_M
        crashed = bool(self._compute_clearance_m() < ROBOT_M)
        reward = left_m - self._left_m + ARRIVED * arrived + CRASHED * crashed
        return self._make_observation(), reward, arrived or crashed, False, {}

    def sensors(self) -> dict[str, Any]:
        """Return the robot's sensor readings by name, in SI units.

        "goal" is the unit direction to the goal in the robot's frame, "ranges" the distance along
        each beam (inf for nothing within reach, NaN for a lost beam).
        """
        half = self._heading / 2.0
        return {
            "ranges": self._ranges,
            "position": self._place,
            "orientation": np.array([0.0, 0.0, math.sin(half), math.cos(half)]),
            "velocity": self._speed,
            "gyro": self._gyro,
            "acceleration": self._accelerometer,
            "goal": self._direction,
            "goal_distance": self._distance,
        }

    def _simulate_sensor_readings(self) -> None:
        """Simulate the current readings of all sensors, with random noise, and store them."""
        rng = self.np_random
        ranges = self._measure_beam_distances() + RANGE_SD_M * rng.standard_normal(BEAMS)
        ranges[ranges > RANGE_M] = np.inf
        ranges[self._lost] = np.nan
        self._ranges = ranges.astype(np.float32)
        self._gyro = float(self._speed[1] + GYRO_SD_RADPS * rng.standard_normal())
        noise = ACCELERATION_SD_MPS2 * rng.standard_normal()
        self._accelerometer = float(self._acceleration + noise)
        east, north = self._goal - self._place
        self._left_m = math.hypot(east, north)
        self._distance = float(np.float32(self._left_m))
        angle = math.atan2(north, east) - self._heading
        self._direction = np.array([math.cos(angle), math.sin(angle)])

    def _make_observation(self) -> np.ndarray:
        """Return the observation (19,) that follows from the stored sensor readings."""
        ranges = self._ranges.astype(np.float64)
        ranges[np.isposinf(ranges)] = RANGE_M
        nearest = pool_values(ranges, SECTOR, "min")
        return np.array(
            [
                *(nearest * SIDE - RANGE_M * SIDE),
                *self._direction,
                self._distance * DISTANCE_SCALE,
                *self._speed,
                self._gyro,
                self._accelerometer * ACCELERATION_SCALE,
            ],
            np.float32,
        )

    def _draw_random_start_and_goal_positions(self) -> tuple[Values, Values]:
        """Draw a random start and goal that are at least 4 m apart and clear of the walls.

        Returns:
            The positions (x, y) of the start and of the goal in metres.
        """
        while True:
            inside = ARENA_M - 3.0 * ROBOT_M
            start, goal = self.np_random.uniform(-inside, inside, (2, 2))
            if np.hypot(*(goal - start)) >= FAR_M:
                return start, goal

    def _measure_beam_distances(self) -> Values:
        """Return the exact distance in metres along each beam to the first wall or pillar."""
        angles = self._heading + ANGLES
        along = np.stack([np.cos(angles), np.sin(angles)], 1)
        with np.errstate(divide="ignore"):
            walls = ((np.sign(along) * ARENA_M - self._place) / along).min(axis=1)
        if not len(self._radii):
            return walls
        to = self._pillars - self._place
        middle = along @ to.T
        half = self._radii**2 - (to**2).sum(1) + middle**2
        hit = middle - np.sqrt(np.maximum(half, 0.0))
        hit[(half < 0.0) | (hit < 0.0)] = np.inf
        return np.minimum(walls, hit.min(axis=1))

    def _compute_clearance_m(self) -> float:
        """Return the distance from the robot's centre to the nearest wall or pillar, in m."""
        pillars = np.hypot(*(self._pillars - self._place).T) - self._radii
        return float(min(ARENA_M - np.abs(self._place).max(), pillars.min(initial=np.inf)))


HEADINGS = np.linspace(-np.pi, np.pi, 48, endpoint=False)
MIDDLES = ANGLES.reshape(SECTORS, SECTOR).mean(axis=1)


def teacher(observation: np.ndarray) -> np.ndarray:
    """Return the action (2,) in [-1, 1] of a scripted controller that policies can learn from.

    The controller turns towards the free heading nearest to the goal's direction, and slows down
    beside obstacles.

    Args:
        observation: The observation (19,) of a `MobileBaseEnv`; directions without a distance
            reading (NaN) count as free.
    """
    free_m = np.nan_to_num(RANGE_M - np.abs(observation[:SECTORS]), nan=RANGE_M)
    goal = math.atan2(observation[SECTORS + 1], observation[SECTORS])
    left_m = observation[SECTORS + 2] / DISTANCE_SCALE
    apart = np.abs(_wrap_angle(HEADINGS[:, None] - MIDDLES))
    needed_m = min(1.2, left_m)
    blocked = np.clip((needed_m - free_m) / 0.8, 0.0, 1.0) * np.clip(1.6 - apart / 0.5, 0.0, 1.0)
    cost = np.abs(_wrap_angle(HEADINGS - goal)) + 0.3 * np.abs(HEADINGS) + 4.0 * blocked.max(axis=1)
    weight = np.exp(-8.0 * (cost - cost.min()))
    heading = math.atan2(weight @ np.sin(HEADINGS), weight @ np.cos(HEADINGS))
    front = np.abs(MIDDLES) < 0.6
    ahead_m = float(free_m[front].min())
    forward = max(0.0, math.cos(heading)) * np.clip((ahead_m - 0.3) / 0.6, 0.0, 1.0)
    forward *= np.clip((float(free_m.min()) - 0.2) / 0.5, 0.3, 1.0)
    return np.clip([forward, 1.5 * heading], -1.0, 1.0).astype(np.float32)


def _wrap_angle(angle: Any) -> Any:
    """Return the equivalent angle in [-pi, pi), in rad."""
    return (angle + np.pi) % (2.0 * np.pi) - np.pi
