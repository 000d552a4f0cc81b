"""Facts about ROS message types: field types, time stamps, paths to numbers in a message.

The functions work on any class with `get_fields_and_field_types()`, as ROS's generator rosidl makes
them. They need no rclpy.

A field path names numbers in a message:

    pose.pose.position.z       a number
    data[3]                    an element, by index
    position[hip_1]            an element, by the name beside it in the message
    position["hip[1]"]         the same in quotes, for a name with brackets or one like a number
    ranges[*]                  every element
    *   twist.*                every number of the message, or of a part of it, but the stamps
    roll(orientation)          an angle (rad) of a quaternion; also pitch and yaw
    gravity_x(orientation)     which way down is, seen from the body; also gravity_y and gravity_z
    sin(position[wheel])       the sine of an angle (rad), also of yaw(orientation); also cos

A message may say that some of its fields are not available. For example, an IMU node that knows no
orientation sends an identity quaternion and sets the first element of `orientation_covariance` to
-1, as the message's definition asks. Without a check for that, the robot would seem to stand
upright for ever. So numbers that a message declares unavailable (`UnavailabilityRule`) count as
missing. Nodes that send NaN or infinity instead need no such rule.
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
"""A function that takes the name of a message type and returns its class. It raises a LookupError
whose text names what is missing."""

TIME = "builtin_interfaces/Time"
DURATION = "builtin_interfaces/Duration"
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}
NUMERIC = {"boolean", "octet", "char", "float", "double", "long double"} | _INTEGERS
ARRAY_CODES = {
    "double": "d", "float": "f", "octet": "B", "char": "B",
    "int8": "b", "uint8": "B", "int16": "h", "uint16": "H",
    "int32": "i", "uint32": "I", "int64": "q", "uint64": "Q",
}  # fmt: skip
"""The type code of Python's `array` and numpy for each numeric field type that has one."""
CASTS: dict[str, Callable[[Any], Any]] = {
    "double": float, "float": float, "boolean": bool, "string": str,
    **{name: int for name in NUMERIC if "int" in name},
}  # fmt: skip
"""For each kind of field, the function that converts a value to exactly the field's type. It is
needed because rclpy does not check types."""
_FIELD_TYPE = re.compile(
    r"sequence<(?P<item>[^<>,]+(?:<\d+>)?)(?:,\s*(?P<bound>\d+))?>"
    r"|(?P<base>[^\[\]]+)(?:\[(?P<size>\d+)\])?"
)


def import_message_class(name: str) -> Any:
    """Import and return the class of a message type such as `sensor_msgs/msg/JointState`.

    Only message packages are imported. A package without a `msg` folder is refused without an
    import.

    Args:
        name: Name of the type.

    Raises:
        LookupError: The name is malformed, or the type is not installed.
    """
    match = MESSAGE_TYPE.fullmatch(name)
    if not match:
        raise LookupError(f"{name!r} is not a message type: write PACKAGE/msg/NAME")
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
        raise LookupError(f"{name!r} is not a message type")
    return found


@dataclass(frozen=True)
class FieldType:
    """Type of one field of a message.

    Attributes:
        base: Type of a value: `double`, `string`, `geometry_msgs/Vector3`, ...
        array: Whether the field holds several values of this type.
        size: Maximum number of values, or the exact number if `fixed`; None if there is no maximum.
        fixed: Whether the array has a fixed size.
    """

    base: str
    array: bool = False
    size: int | None = None
    fixed: bool = False

    @property
    def is_numeric(self) -> bool:
        """Whether the field holds numbers, or booleans, which are read as 0 or 1."""
        return self.base in NUMERIC

    @property
    def message_type(self) -> str | None:
        """Full name of the message type that the field holds; None for other fields."""
        package, slash, name = self.base.rpartition("/")
        return f"{package.removesuffix('/msg')}/msg/{name}" if slash else None


def list_field_types(cls: Any) -> dict[str, FieldType]:
    """Return the types of a message class's fields, by name and in the order of the fields."""
    return {
        name: _parse_field_type(text) for name, text in cls.get_fields_and_field_types().items()
    }


def _parse_field_type(text: str) -> FieldType:
    """Convert a field type from the text that rosidl gives, such as "sequence<double, 3>"."""
    match = _FIELD_TYPE.fullmatch(text)
    if not match:
        return FieldType(text)
    if match["item"]:
        return FieldType(match["item"], True, int(match["bound"]) if match["bound"] else None)
    if match["size"]:
        return FieldType(match["base"], True, int(match["size"]), True)
    return FieldType(match["base"])


def make_stamp_reader(cls: Any) -> Callable[[Any], int | None]:
    """Return a function that reads a message's time stamp (`header.stamp` or `stamp`) in ns.

    The function returns None if the message type has no stamp, or if the stamp is zero because the
    sender did not set it.

    Args:
        cls: Class of the messages.
    """
    if (path := _find_stamp_path(cls)) is None:
        return lambda message: None
    get = attrgetter(path)
    return lambda message: _to_nanoseconds(get(message))


def get_stamp_field(message: Any) -> Any:
    """Return the part of a message that holds its time stamp, or None if its type has none."""
    path = _find_stamp_path(type(message))
    return None if path is None else attrgetter(path)(message)


def _find_stamp_path(cls: Any) -> str | None:
    """Return the attribute path to the time stamp in messages of a class; None without a stamp."""
    fields = cls.get_fields_and_field_types()
    if fields.get("header") == "std_msgs/Header":
        return "header.stamp"
    return "stamp" if fields.get("stamp") == TIME else None


def _to_nanoseconds(stamp: Any) -> int | None:
    """Return a message's time stamp in ns, or None if it is zero."""
    return stamp.sec * 1_000_000_000 + stamp.nanosec or None


_STEP = re.compile(r'([A-Za-z]\w*)(?:\["([^"]+)"\]|\[([^\[\]]+)\])?', re.ASCII)
_CALL = re.compile(r"(\w+)\((.*)\)", re.ASCII)
_GIMBAL = 0.99999
"""Sine of the pitch angle from which on roll and yaw cannot be distinguished (PyBullet's
threshold)."""

SYNTAX = (
    "a path such as pose.position.z, data[3], position[JOINT], ranges[*], twist.*, *, "
    "roll|pitch|yaw|gravity_x|gravity_y|gravity_z(orientation) or sin|cos(position[JOINT])"
)


@dataclass(frozen=True)
class Step:
    """One field of a field path, such as `position[hip_1]`, as the wiring file has it.

    Attributes:
        name: Name of the field. `ALL` ("*") as the final step of a path stands for every number.
        key: Index or name of an array element, or `ALL` ("*") for every element; None if the field
            is written without brackets.
    """

    name: str
    key: int | str | None = None


ALL = "*"
"""As the key of a `Step` it means every element; as the name of the final step of a path, every
number."""


@dataclass(frozen=True)
class FieldPath:
    """Parsed field path, which names one or several numbers in a message.

    Attributes:
        steps: Fields on the way to the number.
        function: Function of a quaternion that gives the number, one of `QUATERNIONS`; None if the
            field itself is the number.
        wave: "sin" or "cos" if the path asks for the sine or cosine of the number, else None.
    """

    steps: tuple[Step, ...]
    function: str | None = None
    wave: str | None = None

    @property
    def is_computed(self) -> bool:
        """Whether the path applies a function, such as "yaw" or "sin", to the field's content."""
        return bool(self.function or self.wave)

    @property
    def may_name_several_elements(self) -> bool:
        """Whether the path may name several array elements.

        Each of them is a channel. The id in the wiring then has a `*`, which stands for the
        element's name or index.
        """
        return any(ALL in (step.name, step.key) for step in self.steps)


def parse_field_path(text: str) -> FieldPath:
    """Parse a field path, such as `position[hip_1]` or `yaw(orientation)`.

    Raises:
        ValueError: The text is not a field path.
    """
    call = _CALL.fullmatch(text)
    if call and call[1] in WAVES:
        inner = parse_field_path(call[2])
        if inner.wave or inner.function not in (None, *ANGLES):
            raise ValueError(f"{call[1]} of {inner.wave or inner.function}")
        return replace(inner, wave=call[1])
    if call:
        if call[1] not in QUATERNIONS:
            raise ValueError(f"unknown function {call[1]!r}")
        return FieldPath(_split_field_path(call[2]), call[1])
    if text == ALL:
        return FieldPath((Step(ALL),))
    if text.endswith(".*"):
        return FieldPath((*_split_field_path(text[:-2]), Step(ALL)))
    return FieldPath(_split_field_path(text))


def _split_field_path(text: str) -> tuple[Step, ...]:
    """Split a field path into its fields, such as `pose.position.z` into three.

    Args:
        text: The path, without a function and without `.*` at its end.

    Raises:
        ValueError: The text is not such a path.
    """
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
    raise ValueError(f"{text!r} is not a field path")


def format_element_path(field: str, name: str) -> str:
    """Return the field path of the array element with this name.

    The name is put in quotes if it has brackets or looks like a number.

    Args:
        field: Path of the array.
        name: Name of the element.

    Example:
        >>> format_element_path("position", "hip_1"), format_element_path("position", "hip[1]")
        ('position[hip_1]', 'position["hip[1]"]')
    """
    plain = not (name.isdecimal() or set(name) & set("[]"))
    return f"{field}[{name}]" if plain else f'{field}["{name}"]'


def compute_roll(x: float, y: float, z: float, w: float) -> float:
    """Return the roll of a quaternion (rad, -pi..pi): the rotation about the fixed x axis.

    At gimbal lock it is 0, as in PyBullet, because the whole rotation then counts as yaw. It is NaN
    if the four numbers are not an attitude (all zero, or not finite). The quaternion need not be
    normalised.
    """
    sine = _compute_sine_of_pitch(x, y, z, w)
    if math.isnan(sine):
        return math.nan
    if abs(sine) >= _GIMBAL:
        return 0.0
    return math.atan2(2.0 * (y * z + w * x), w * w - x * x - y * y + z * z)


def compute_pitch(x: float, y: float, z: float, w: float) -> float:
    """Return the pitch of a quaternion (rad, -pi/2..pi/2): the rotation about the fixed y axis.

    The result is NaN if the four numbers are not an attitude (all zero, or not finite).
    """
    sine = _compute_sine_of_pitch(x, y, z, w)
    if abs(sine) >= _GIMBAL:
        return math.copysign(math.pi / 2, sine)
    return math.asin(sine)


def compute_yaw(x: float, y: float, z: float, w: float) -> float:
    """Return the yaw of a quaternion (rad, -pi..pi): the rotation about the fixed z axis.

    The result is NaN if the four numbers are not an attitude (all zero, or not finite).
    """
    sine = _compute_sine_of_pitch(x, y, z, w)
    if math.isnan(sine):
        return math.nan
    if abs(sine) >= _GIMBAL:
        half = math.atan2(-x, y) if sine > 0.0 else math.atan2(x, -y)
        return math.remainder(2.0 * half, math.tau)
    return math.atan2(2.0 * (x * y + w * z), w * w + x * x - y * y - z * z)


def _compute_sine_of_pitch(x: float, y: float, z: float, w: float) -> float:
    """Return the sine of a quaternion's pitch; NaN if the quaternion is 0 or not finite."""
    return 2.0 * (w * y - x * z) / _compute_squared_length(x, y, z, w)


def compute_gravity_x(x: float, y: float, z: float, w: float) -> float:
    """Return the x component of the unit vector that points down, in the body's frame.

    The quaternion (x, y, z, w) is the body's attitude in the world; the result is NaN if the four
    numbers are all zero or not finite.
    """
    return -2.0 * (x * z - w * y) / _compute_squared_length(x, y, z, w)


def compute_gravity_y(x: float, y: float, z: float, w: float) -> float:
    """Return the y component of the unit vector that points down, in the body's frame.

    The quaternion (x, y, z, w) is the body's attitude in the world; the result is NaN if the four
    numbers are all zero or not finite.
    """
    return -2.0 * (y * z + w * x) / _compute_squared_length(x, y, z, w)


def compute_gravity_z(x: float, y: float, z: float, w: float) -> float:
    """Return the z component of the unit vector that points down, in the body's frame.

    It is -1 if the body stands upright. The quaternion (x, y, z, w) is the body's attitude in the
    world; the result is NaN if the four numbers are all zero or not finite.
    """
    return -(w * w - x * x - y * y + z * z) / _compute_squared_length(x, y, z, w)


def _compute_squared_length(x: float, y: float, z: float, w: float) -> float:
    """Return the squared length of a quaternion; NaN if it is 0 or not finite."""
    square = x * x + y * y + z * z + w * w
    return square if 1e-12 < square < math.inf else math.nan


WAVES = ("sin", "cos")
"""Functions of a number that is an angle (rad)."""

ANGLES: dict[str, Callable[[float, float, float, float], float]] = {
    "roll": compute_roll,
    "pitch": compute_pitch,
    "yaw": compute_yaw,
}
"""Functions of a quaternion that are angles (rad)."""
QUATERNIONS = {
    **ANGLES,
    "gravity_x": compute_gravity_x,
    "gravity_y": compute_gravity_y,
    "gravity_z": compute_gravity_z,
}
"""All functions of a quaternion."""


@dataclass(frozen=True)
class UnavailabilityRule:
    """Rule by which messages of one type tell that some of their fields hold no reading.

    For example, -1 in `orientation_covariance[0]` of an Imu means that `orientation` holds none.

    Attributes:
        fields: Names of the fields that the rule is about.
        absent: Function that returns whether a given message tells that these fields hold no
            reading.
        reason: Text for a log line on why they hold no reading.
    """

    fields: tuple[str, ...]
    absent: Callable[[Any], bool]
    reason: str

    def make_rule_for_containing_message(self, part_path: str) -> UnavailabilityRule:
        """Return a copy of this rule for messages in which a message of the rule's type is a part.

        Args:
            part_path: Dotted attribute path from the whole message to this part; with "" this
                rule itself is returned.
        """
        if not part_path:
            return self
        get, absent = attrgetter(part_path), self.absent
        return UnavailabilityRule(
            self.fields, lambda message: absent(get(message)), f"{part_path}.{self.reason}"
        )


def _make_covariance_rule(field: str) -> UnavailabilityRule:
    """Return the rule for a field of Imu: there is no reading if its covariance begins with -1.

    Args:
        field: Name of the field, such as "orientation".
    """
    name = f"{field}_covariance"
    return UnavailabilityRule(
        (field,),
        lambda message: getattr(message, name)[0] == -1.0,
        f"{name}[0] is -1, by which the sender says that it has no {field}: read it"
        " from another source, or leave the channel out",
    )


_MARKS: dict[str, tuple[UnavailabilityRule, ...]] = {
    "sensor_msgs/msg/Imu": tuple(
        map(_make_covariance_rule, ("orientation", "angular_velocity", "linear_acceleration"))
    ),
    "sensor_msgs/msg/NavSatFix": (
        UnavailabilityRule(
            ("latitude", "longitude", "altitude"),
            lambda message: message.status.status == -1,
            "status.status is -1, by which the sender says that it has no fix: readings count again"
            " once it has one",
        ),
    ),
}


def find_unavailability_rule(cls: Any, field: str) -> UnavailabilityRule | None:
    """Return the rule by which messages of a class say that a field holds no reading, or None.

    Args:
        cls: Class of the messages.
        field: Name of the field.
    """
    marks = _MARKS.get(f"{cls.__module__.partition('.')[0]}/msg/{cls.__name__}", ())
    return next((mark for mark in marks if field in mark.fields), None)
