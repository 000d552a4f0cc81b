"""Field paths: which number of a message feeds a channel, compiled once into a quick reader."""

import math

_GIMBAL = 0.99999
"""Sine of pitch from which roll and yaw cannot be told apart (PyBullet's threshold)."""


def roll(x: float, y: float, z: float, w: float) -> float:
    """Rotation about x (rad, -pi..pi) of a quaternion, fixed axes, as PyBullet gives it.

    Zero at gimbal lock, where all of the turn counts as yaw; NaN where the four numbers are
    no attitude (all zero, or not finite).  The quaternion need not be normalised.
    """
    sine = _sine_of_pitch(x, y, z, w)
    if math.isnan(sine):
        return math.nan
    if abs(sine) >= _GIMBAL:
        return 0.0
    return math.atan2(2.0 * (y * z + w * x), w * w - x * x - y * y + z * z)


def pitch(x: float, y: float, z: float, w: float) -> float:
    """Rotation about y (rad, -pi/2..pi/2) of a quaternion; NaN as in `roll`."""
    sine = _sine_of_pitch(x, y, z, w)
    if abs(sine) >= _GIMBAL:
        return math.copysign(math.pi / 2, sine)
    return math.asin(sine)


def yaw(x: float, y: float, z: float, w: float) -> float:
    """Rotation about z (rad, -pi..pi) of a quaternion; NaN as in `roll`."""
    sine = _sine_of_pitch(x, y, z, w)
    if math.isnan(sine):
        return math.nan
    if abs(sine) >= _GIMBAL:
        half = math.atan2(-x, y) if sine > 0.0 else math.atan2(x, -y)
        return math.remainder(2.0 * half, math.tau)
    return math.atan2(2.0 * (x * y + w * z), w * w + x * x - y * y - z * z)


def _sine_of_pitch(x: float, y: float, z: float, w: float) -> float:
    square = x * x + y * y + z * z + w * w
    if not 1e-12 < square < math.inf:
        return math.nan
    return 2.0 * (w * y - x * z) / square
