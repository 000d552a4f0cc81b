"""Field paths: the notation that names numbers in a message.

pose.pose.position.z       a number
data[3]                    an element, by index
position[hip_1]            an element, by the name beside it in the message
position["hip[1]"]         the same in quotes, for a name with brackets or one like a number
ranges[*]                  every element
*   twist.*                every number of the message, or of a part of it, but the stamps
roll(orientation)          an angle (rad) of a quaternion; also pitch and yaw
sin(position[wheel])       the sine of an angle (rad), also of yaw(orientation); also cos
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

_STEP = re.compile(r'([A-Za-z]\w*)(?:\["([^"]+)"\]|\[([^\[\]]+)\])?', re.ASCII)
_CALL = re.compile(r"(\w+)\((.*)\)", re.ASCII)
_GIMBAL = 0.99999
"""Sine of pitch from which roll and yaw cannot be distinguished (PyBullet's threshold)."""

SYNTAX = (
    "a path such as pose.position.z, data[3], position[JOINT], ranges[*], twist.*, *, "
    "roll|pitch|yaw(orientation) or sin|cos(position[JOINT])"
)


@dataclass(frozen=True)
class Step:
    """One field on the way: its name, and which element where it holds several.

    key: an index, a name, ALL, or None where the field is no array.
    """

    name: str
    key: int | str | None = None


ALL = "*"
"""As a step's key: every element.  As a step's name, which is then the last: every number."""


@dataclass(frozen=True)
class Field:
    """A parsed field path; `function` is roll, pitch, yaw or None, `wave` sin, cos or None."""

    steps: tuple[Step, ...]
    function: str | None = None
    wave: str | None = None

    @property
    def computed(self) -> bool:
        """Whether a function is applied to what the message holds."""
        return bool(self.function or self.wave)

    @property
    def many(self) -> bool:
        """Whether it may name several numbers, so that the channel's id needs a `*`."""
        return any(ALL in (step.name, step.key) for step in self.steps)


def parse_field(text: str) -> Field:
    """Parse a field path; ValueError where it is none."""
    call = _CALL.fullmatch(text)
    if call and call[1] in WAVES:
        inner = parse_field(call[2])
        if inner.wave:
            raise ValueError(f"{call[1]} of {inner.wave}")
        return replace(inner, wave=call[1])
    if call:
        if call[1] not in ANGLES:
            raise ValueError(f"unknown function {call[1]!r}")
        return Field(_parse_steps(call[2]), call[1])
    if text == ALL:
        return Field((Step(ALL),))
    if text.endswith(".*"):
        return Field((*_parse_steps(text[:-2]), Step(ALL)))
    return Field(_parse_steps(text))


def _parse_steps(text: str) -> tuple[Step, ...]:
    steps, position = [], 0
    while match := _STEP.match(text, position):
        name, in_quotes, key = match.groups()
        is_index = key is not None and key.isdecimal() and key.isascii()
        if is_index and len(key) > 9:
            raise ValueError(f"index {key} is too large")
        steps.append(Step(name, int(key) if is_index else in_quotes or key))
        position = match.end() + 1
        if match.end() == len(text):
            return tuple(steps)
        if text[match.end()] != ".":
            break
    raise ValueError(f"{text!r} is no field path")


def element(field: str, name: str) -> str:
    """Return the path of the element of that name, in quotes where it needs them.

    Example:
        >>> element("position", "hip_1"), element("position", "hip[1]")
        ('position[hip_1]', 'position["hip[1]"]')
    """
    plain = not (name.isdecimal() or set(name) & set("[]"))
    return f"{field}[{name}]" if plain else f'{field}["{name}"]'


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


WAVES = ("sin", "cos")
"""Functions of a number that is an angle (rad)."""

ANGLES: dict[str, Callable[[float, float, float, float], float]] = {
    "roll": roll,
    "pitch": pitch,
    "yaw": yaw,
}
