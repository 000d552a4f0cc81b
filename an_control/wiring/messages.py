"""What the wiring knows about message types: names, field types, stamps, field paths, marks.

Works on any class with `get_fields_and_field_types()`, as rosidl generates them; needs no rclpy.

Field paths are the notation that names numbers in a message:

    pose.pose.position.z       a number
    data[3]                    an element, by index
    position[hip_1]            an element, by the name beside it in the message
    position["hip[1]"]         the same in quotes, for a name with brackets or one like a number
    ranges[*]                  every element
    *   twist.*                every number of the message, or of a part of it, but the stamps
    roll(orientation)          an angle (rad) of a quaternion; also pitch and yaw
    gravity_x(orientation)     which way down is, seen from the body; also gravity_y and gravity_z
    sin(position[wheel])       the sine of an angle (rad), also of yaw(orientation); also cos

A message may say that it has no reading. A driver without an orientation sends an identity
quaternion and sets the first element of `orientation_covariance` to -1, as the message's definition
asks: read as it is, the robot would stand upright for ever. What is marked so (`Mark`) counts as
missing. Marks that are no finite number (NaN, infinity) need nothing here.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

MESSAGE_TYPE = re.compile(r"([a-z][a-z0-9_]*)/msg/([A-Z][A-Za-z0-9]*)", re.ASCII)
Resolver = Callable[[str], Any]
"""From a type's name to its class; raises LookupError saying what is missing."""

TIME = "builtin_interfaces/Time"
DURATION = "builtin_interfaces/Duration"
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
NUMERIC = {"boolean", "octet", "char", "float", "double", "long double"} | _INTEGERS
ARRAY_CODES = {
    "double": "d", "float": "f", "octet": "B", "char": "B",
    "int8": "b", "uint8": "B", "int16": "h", "uint16": "H",
    "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q",
}  # fmt: skip
"""The code of Python's arrays and numpy for each type of number that has one."""
CASTS: dict[str, Callable[[Any], Any]] = {
    "double": float, "float": float, "boolean": bool, "string": str,
    **{name: int for name in NUMERIC if "int" in name},
}  # fmt: skip
"""What makes a value exactly what a field of that type takes; rclpy does not check it."""
_FIELD_TYPE = re.compile(
    r"sequence<(?P<item>[^<>,]+(?:<\d+>)?)(?:,\s*(?P<bound>\d+))?>"
    r"|(?P<base>[^\[\]]+)(?:\[(?P<size>\d+)\])?"
)


def message_class(name: str) -> Any:
    """The class of a message type such as `sensor_msgs/msg/JointState`.

    Imports nothing but message packages: a package without a `msg` folder is left alone.
    Raises LookupError naming what is missing.
    """
    match = MESSAGE_TYPE.fullmatch(name)
    if not match:
        raise LookupError(f"{name!r} is no message type: write PACKAGE/msg/NAME")
    package, cls = match.groups()
    spec = importlib.util.find_spec(package)
    places = (spec.submodule_search_locations if spec else None) or []
    if not any((Path(place) / "msg").is_dir() for place in places):
        raise LookupError(f"no message package {package!r} is installed")
    try:
        found = getattr(importlib.import_module(f"{package}.msg"), cls)
    except (ImportError, AttributeError):
        raise LookupError(f"package {package!r} has no message {cls!r}") from None
    if not hasattr(found, "get_fields_and_field_types"):
        raise LookupError(f"{name!r} is no message type")
    return found


@dataclass(frozen=True)
class FieldType:
    """The type of one field of a message.

    base   `double`, `string`, `geometry_msgs/Vector3`, ...
    array  whether the field holds several of these
    size   how many at most, None = any number; for an array with `fixed`, exactly
    """

    base: str
    array: bool = False
    size: int | None = None
    fixed: bool = False

    @property
    def numeric(self) -> bool:
        """Whether it holds numbers (a boolean counts as 0 or 1, text does not count)."""
        return self.base in NUMERIC

    @property
    def message(self) -> str | None:
        """The type's full name where the field holds messages, else None."""
        package, slash, name = self.base.rpartition("/")
        return f"{package.removesuffix('/msg')}/msg/{name}" if slash else None


def field_types(cls: Any) -> dict[str, FieldType]:
    """The fields of a message class, in order."""
    return {name: _field_type(text) for name, text in cls.get_fields_and_field_types().items()}


def _field_type(text: str) -> FieldType:
    match = _FIELD_TYPE.fullmatch(text)
    if not match:
        return FieldType(text)
    if match["item"]:
        return FieldType(match["item"], True, int(match["bound"]) if match["bound"] else None)
    if match["size"]:
        return FieldType(match["base"], True, int(match["size"]), True)
    return FieldType(match["base"])


def stamp_reader(cls: Any) -> Callable[[Any], int | None]:
    """A function that gives a message's stamp in ns, from `header.stamp` or `stamp`.

    It gives None where the type has none, or where the stamp is zero, as in a message that
    nobody stamped.
    """
    if (path := _stamp_path(cls)) is None:
        return lambda message: None
    get = attrgetter(path)
    return lambda message: _nanoseconds(get(message))


def stamp_of(message: Any) -> Any:
    """The part of a message that holds its stamp; None where its type has none."""
    path = _stamp_path(type(message))
    return None if path is None else attrgetter(path)(message)


def _stamp_path(cls: Any) -> str | None:
    fields = cls.get_fields_and_field_types()
    if fields.get("header") == "std_msgs/Header":
        return "header.stamp"
    return "stamp" if fields.get("stamp") == TIME else None


def _nanoseconds(stamp: Any) -> int | None:
    return stamp.sec * 1_000_000_000 + stamp.nanosec or None


_STEP = re.compile(r'([A-Za-z]\w*)(?:\["([^"]+)"\]|\[([^\[\]]+)\])?', re.ASCII)
_CALL = re.compile(r"(\w+)\((.*)\)", re.ASCII)
_GIMBAL = 0.99999
"""Sine of pitch from which roll and yaw cannot be distinguished (PyBullet's threshold)."""

SYNTAX = (
    "a path such as pose.position.z, data[3], position[JOINT], ranges[*], twist.*, *, "
    "roll|pitch|yaw|gravity_x|gravity_y|gravity_z(orientation) or sin|cos(position[JOINT])"
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
    """A parsed field path; `function` is one of QUATERNIONS or None, `wave` sin, cos or None."""

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
        if inner.wave or inner.function not in (None, *ANGLES):
            raise ValueError(f"{call[1]} of {inner.wave or inner.function}")
        return replace(inner, wave=call[1])
    if call:
        if call[1] not in QUATERNIONS:
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


def gravity_x(x: float, y: float, z: float, w: float) -> float:
    """Return the x component of the unit vector that points down, in the frame of a body whose
    attitude in the world is the quaternion; NaN as in `roll`."""
    return -2.0 * (x * z - w * y) / _square(x, y, z, w)


def gravity_y(x: float, y: float, z: float, w: float) -> float:
    """Return the y component, see `gravity_x`."""
    return -2.0 * (y * z + w * x) / _square(x, y, z, w)


def gravity_z(x: float, y: float, z: float, w: float) -> float:
    """Return the z component, see `gravity_x`: -1 where the body stands upright."""
    return -(w * w - x * x - y * y + z * z) / _square(x, y, z, w)


def _square(x: float, y: float, z: float, w: float) -> float:
    """Return the squared length of a quaternion; NaN where it is no attitude."""
    square = x * x + y * y + z * z + w * w
    return square if 1e-12 < square < math.inf else math.nan


def _sine_of_pitch(x: float, y: float, z: float, w: float) -> float:
    return 2.0 * (w * y - x * z) / _square(x, y, z, w)


WAVES = ("sin", "cos")
"""Functions of a number that is an angle (rad)."""

ANGLES: dict[str, Callable[[float, float, float, float], float]] = {
    "roll": roll,
    "pitch": pitch,
    "yaw": yaw,
}
"""Functions of a quaternion that are angles (rad)."""
QUATERNIONS = {
    **ANGLES,
    "gravity_x": gravity_x,
    "gravity_y": gravity_y,
    "gravity_z": gravity_z,
}
"""All functions of a quaternion."""


@dataclass(frozen=True)
class Mark:
    """How a message says that some of its fields hold no reading.

    fields  their names
    absent  whether a message says so
    reason  as a text for a log line
    """

    fields: tuple[str, ...]
    absent: Callable[[Any], bool]
    reason: str

    def inside(self, path: str) -> Mark:
        """Return the mark of a message that lies at this path in another one."""
        if not path:
            return self
        get, absent = attrgetter(path), self.absent
        return Mark(self.fields, lambda message: absent(get(message)), f"{path}.{self.reason}")


def _covariance(field: str) -> Mark:
    name = f"{field}_covariance"
    return Mark(
        (field,),
        lambda message: getattr(message, name)[0] == -1.0,
        f"{name}[0] is -1, by which the sender says that it has no {field}: read it"
        " from another source, or leave the channel out",
    )


_MARKS: dict[str, tuple[Mark, ...]] = {
    "sensor_msgs/msg/Imu": tuple(
        map(_covariance, ("orientation", "angular_velocity", "linear_acceleration"))
    ),
    "sensor_msgs/msg/NavSatFix": (
        Mark(
            ("latitude", "longitude", "altitude"),
            lambda message: message.status.status == -1,
            "status.status is -1, by which the sender says that it has no fix: it counts again once"
            " there is one",
        ),
    ),
}


def mark_of(cls: Any, field: str) -> Mark | None:
    """Return the mark that the definition of a message class has for one of its fields."""
    marks = _MARKS.get(f"{cls.__module__.partition('.')[0]}/msg/{cls.__name__}", ())
    return next((mark for mark in marks if field in mark.fields), None)
