"""A controller of CarRacing's car that knows the track, and from which policies can learn.

It steers by pure pursuit (Coulter 1992), towards a point ahead on the centre line of the road. The
faster the car is, the further away is this point. The speed is as high as the curves of the next
100 m allow.
"""

from __future__ import annotations

import math

import numpy as np

from an_control_sim.envs.car_racing_game import QuickCarRacing, game

NEAR_M, NEAR_S = 8.0, 0.2
"""The point that the car steers to is NEAR_M + NEAR_S * speed ahead."""
STEERING = 0.85
"""Steering per radian of angle to the point that the car steers to."""
FASTEST_MPS, SLOWEST_SHARE = 65.0, 0.2
SIDEWAYS_MPS2, BRAKING_MPS2 = 135.0, 45.0
GAS, BRAKE = 0.08, 0.09
"""Share of full gas or brake for each m/s too slow or too fast."""
HARDEST_BRAKE = 0.8
AHEAD = np.arange(30)
LOST_M, LOST_RAD, LOST_MPS = 5.5, 0.6, 12.0
FOUND_M, FOUND_RAD = 3.0, 0.25
HOPELESS_STEPS = 80
SLOW_STEPS = 15
START_STEPS = 40
HELP_STEPS, MORE_STEPS = 25, 5


class CarRacingTeacher:
    """A controller of CarRacing's car that knows the track, from which policies can learn.

    Call `start_episode` after each reset of the game. Then call this object once in each step; it
    returns the teacher's action.

    Args:
        game: The game whose car the teacher controls.
    """

    def __init__(self, game: QuickCarRacing) -> None:
        self._game = game

    def start_episode(self) -> None:
        """Read the new track from the game, and compute the curvature at each of its points."""
        self._points = np.array(self._game.track)[:, 2:4]
        along = np.roll(self._points, -1, axis=0) - self._points
        self._heading = np.arctan2(along[:, 1], along[:, 0])
        turn = np.abs(_wrap_angle(np.roll(self._heading, -1) - self._heading))
        curvature = turn / game.TRACK_DETAIL_STEP
        around = np.concatenate([curvature[-2:], curvature, curvature[:2]])
        self._curvature = np.convolve(around, np.full(5, 0.2), "valid")
        self._place = self._steps = self._slow = self._helping = self._helped = 0

    def __call__(self) -> np.ndarray:
        """Return the action (3,) float32 in [-1, 1] for the game's current state."""
        car = self._game.car.hull
        position, speed = np.array(car.position), float(np.hypot(*car.linearVelocity))
        self._update_index_of_nearest_track_point(position)
        ahead_m = NEAR_M + NEAR_S * speed
        angle = self._compute_angle_to_point(
            self._compute_track_point_ahead(ahead_m), position, car.angle
        )
        steering = float(np.clip(-STEERING * angle, -1.0, 1.0))
        too_slow = self._compute_allowed_speed_mps(angle) - speed
        gas = np.clip(GAS * too_slow, 0.0, 1.0) * (1.0 - 0.6 * abs(steering))
        brake = np.clip(-BRAKE * too_slow, 0.0, HARDEST_BRAKE)
        self._update_whether_teacher_should_drive(position, speed, car.angle)
        return np.array([steering, 2.0 * gas - 1.0, 2.0 * brake - 1.0], np.float32)

    @property
    def is_helping(self) -> bool:
        """Whether the teacher should drive, because the student is off the road or stuck."""
        return self._helping > 0

    @property
    def is_hopeless(self) -> bool:
        """Whether to end the episode, because the teacher cannot bring the car back to the road."""
        return self._helped > HOPELESS_STEPS

    def _update_index_of_nearest_track_point(self, car_position: np.ndarray) -> None:
        """Find the point of the track that is nearest to the car, and store its index.

        Only points near the previous nearest one are searched, or all points if the car is more
        than 20 m from these.

        Args:
            car_position: The car's position (x, y) in m.
        """
        near = (self._place + np.arange(-8, 25)) % len(self._points)
        distance = np.hypot(*(self._points[near] - car_position).T)
        self._place = int(near[distance.argmin()])
        if distance.min() > 20.0:
            self._place = int(np.hypot(*(self._points - car_position).T).argmin())

    def _compute_track_point_ahead(self, ahead_m: float) -> np.ndarray:
        """Return a point (x, y) on the centre line of the road, ahead of the car.

        Args:
            ahead_m: The distance in metres along the centre line, from its point nearest to the
                car.
        """
        tiles, part = divmod(ahead_m / game.TRACK_DETAIL_STEP, 1.0)
        first = (self._place + int(tiles)) % len(self._points)
        second = (first + 1) % len(self._points)
        return self._points[first] * (1.0 - part) + self._points[second] * part

    def _compute_angle_to_point(
        self, point: np.ndarray, car_position: np.ndarray, car_angle: float
    ) -> float:
        """Return the angle in rad from the car's direction to the direction of a point.

        It is positive if the point is to the left of the car.

        Args:
            point: The point (x, y).
            car_position: The car's position (x, y).
            car_angle: The angle of the car's body in rad; 0 if it points along the y axis.
        """
        x, y = point - car_position
        return float(_wrap_angle(math.atan2(y, x) - car_angle - math.pi / 2))

    def _compute_allowed_speed_mps(self, steering_angle: float) -> float:
        """Return the highest speed in m/s at which the car can still brake for the curves ahead.

        Args:
            steering_angle: The angle in rad from the car's direction to the point that it steers
                to. The larger it is, the lower is the speed.
        """
        curvature = self._curvature[(self._place + AHEAD) % len(self._points)]
        in_curve = SIDEWAYS_MPS2 / np.maximum(curvature, 1e-3)
        allowed = np.sqrt(in_curve + 2.0 * BRAKING_MPS2 * game.TRACK_DETAIL_STEP * AHEAD).min()
        turned = max(SLOWEST_SHARE, 1.0 - 1.2 * max(0.0, abs(steering_angle) - 0.3))
        return float(min(allowed, FASTEST_MPS * min(1.0, turned)))

    def _update_whether_teacher_should_drive(
        self, car_position: np.ndarray, speed_mps: float, car_angle: float
    ) -> None:
        """Decide whether the teacher should drive instead of the student, for `is_helping`.

        Call this once in each step. The teacher begins to drive if the car is far off the centre
        line, points in a wrong direction, or has been slow for several steps. It stops after a
        number of steps, or later if the car does not follow the road again by then.

        Args:
            car_position: The car's position (x, y) in m.
            speed_mps: The car's speed in m/s.
            car_angle: The angle of the car's body in rad; 0 if it points along the y axis.
        """
        x, y = car_position - self._points[self._place]
        heading = float(self._heading[self._place])
        off_m = abs(math.cos(heading) * y - math.sin(heading) * x)
        off_rad = abs(float(_wrap_angle(car_angle + math.pi / 2 - heading)))
        self._steps += 1
        self._slow = self._slow + 1 if speed_mps < LOST_MPS and self._steps > START_STEPS else 0
        if self._helping:
            self._helping -= 1
            if not self._helping and (off_m > FOUND_M or off_rad > FOUND_RAD):
                self._helping = MORE_STEPS
        elif off_m > LOST_M or off_rad > LOST_RAD or self._slow > SLOW_STEPS:
            self._helping = HELP_STEPS
        self._helped = self._helped + 1 if self._helping else 0


def _wrap_angle(angle: np.ndarray | float) -> np.ndarray | float:
    """Return the equivalent angle in [-pi, pi), in rad."""
    return (angle + np.pi) % (2.0 * np.pi) - np.pi
