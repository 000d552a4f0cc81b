"""What the wiring knows about message types: names, field types, stamps.

Works on any class with `get_fields_and_field_types()`, as rosidl generates them; needs no rclpy.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
from collections.abc import Callable
from dataclasses import dataclass
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
