"""Write an environment's numbers into ROS messages, with writers that are made once.

The message objects are made once and refilled at every step, so a receiver must have published or
read them before the next step. Every value is cast to exactly its field's type: rclpy does not
check it, and a wrong type corrupts the number.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from an_control.wiring.checked_yaml import WiringError
from an_control.wiring.messages import ARRAY_CODES, CASTS, FieldType, field_types
from an_control_sim.bridge.simulation_file import Expression, SimulatedTopicConfig

JOINTS = "sensor_msgs/msg/JointState"
Writer = Callable[[Any], None]
"""Function that writes one value into one field; raises ValueError or TypeError if it does not
fit."""


class Outlet:
    """Published topic with its one message.

    Args:
        config: The topic's entry in the simulation YAML.
        message_class: Class of its message type.
        file: The YAML file, for errors.

    Raises:
        WiringError: The message type lacks a field, or a literal does not fit its field.
    """

    def __init__(self, config: SimulatedTopicConfig, message_class: Any, file: str) -> None:
        self.topic = config.topic
        self.message = message_class()
        self._config, self._where = config, (file, f"publish.{config.topic}.fields")
        types = field_types(message_class)
        stamped = "header" in types and types["header"].message == "std_msgs/msg/Header"
        self._stamp = self.message.header.stamp if stamped else None
        self._picture = "encoding" in types and {"height", "width", "step", "data"} <= set(types)
        self._writers: list[tuple[Callable[[Any, Mapping[str, Any]], Any], Writer]] = []
        self._expressions: list[tuple[str, Expression]] = []
        for path, value in config.fields.items():
            self._compile(path, value)

    def fill(self, observation: Any, sensors: Mapping[str, Any], stamp_ns: int) -> Any:
        """Write a step's values and stamp into the message and return it.

        It is the same object at every step.

        Args:
            observation: The environment's observation.
            sensors: Its physical readings by name.
            stamp_ns: The stamp.
        """
        if self._stamp is not None:
            self._stamp.sec, self._stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
        for get, write in self._writers:
            write(get(observation, sensors))
        return self.message

    def check(self, observation: Any, sensors: Mapping[str, Any]) -> None:
        """Write real values once, to find expressions that cannot work.

        Args:
            observation: The environment's observation.
            sensors: Its physical readings by name.

        Raises:
            WiringError: An expression does not fit; the message names it.
        """
        shape = np.shape(observation)
        for (path, expression), (get, write) in zip(self._expressions, self._writers, strict=True):
            try:
                expression.check_slice(observation, sensors)
                write(get(observation, sensors))
            except KeyError:
                known = ", ".join(sorted(sensors)) or "(the environment offers none)"
                raise self._error(path, expression, f"sensors.NAME with NAME of {known}") from None
            except (IndexError, TypeError, ValueError, OverflowError) as error:
                allowed = f"what the field takes from an observation of shape {shape} ({error})"
                raise self._error(path, expression, allowed) from None
        self._check_names()

    def _check_names(self) -> None:
        """Raise WiringError if a JointState has another number of names than of values."""
        if self._config.type != JOINTS:
            return
        names = len(self.message.name)
        for path in ("position", "velocity", "effort"):
            count = len(getattr(self.message, path))
            if names and count and names != count:
                allowed = f"{names} numbers, one for each name, not {count}"
                raise self._error(path, self._config.fields[path], allowed)

    def _compile(self, path: str, value: Any) -> None:
        """Add the writer of a field, or write its literal; raise WiringError if it does not fit."""
        parent, name, kind = self._field(path, value)
        expression = isinstance(value, Expression)
        if self._picture and path == "data" and expression:
            write: Writer | None = lambda pixels: fill_image(parent, pixels)  # noqa: E731
        else:
            write = _make_writer(parent, name, kind)
        if write is None:
            raise self._error(path, value, f"a field of numbers or text, not of {kind.base}")
        if expression and kind.base == "string":
            raise self._error(path, value, f"a value of type {_format_type(kind)}")
        if expression:
            self._expressions.append((path, value))
            self._writers.append((value.getter(), write))
            return
        if not _literal_fits(value, parent, name, kind):
            raise self._error(
                path, value, f"an expression, or a value of type {_format_type(kind)}"
            )
        try:
            write(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise self._error(
                path, value, f"a value of type {_format_type(kind)} ({error})"
            ) from None

    def _field(self, path: str, value: Any) -> tuple[Any, str, FieldType]:
        """Return the message object that holds a field, the field's name and its type."""
        parent = self.message
        *outer, last = path.split(".")
        for name in [*outer, last]:
            types = field_types(parent) if hasattr(parent, "get_fields_and_field_types") else {}
            if name not in types:
                known = ", ".join(types) or "(none)"
                raise self._error(path, value, f"a field of {type(parent).__name__}: {known}")
            if name is not last:
                parent = getattr(parent, name)
        return parent, last, types[last]

    def _error(self, path: str, value: Any, allowed: str) -> WiringError:
        """Return the error for a field's value."""
        file, key = self._where
        return WiringError(file, f"{key}.{path}", getattr(value, "text", value), allowed)


def _make_writer(parent: Any, name: str, kind: FieldType) -> Writer | None:
    """Return the writer for a field, or None if it takes neither numbers nor text."""
    cast = CASTS.get(kind.base)
    if kind.array and kind.base in ARRAY_CODES:
        return _make_numbers_writer(
            parent, name, ARRAY_CODES[kind.base], kind.size if kind.fixed else None
        )
    if kind.array and cast is not None:
        return lambda values: setattr(parent, name, [cast(value) for value in values])
    if cast is not None:
        return lambda value: setattr(parent, name, cast(value))
    vector = None if kind.array else _vector_fields(parent, name)
    return _make_vector_writer(getattr(parent, name), vector) if vector else None


def _make_numbers_writer(parent: Any, name: str, code: str, length: int | None) -> Writer:
    """Return the writer for an array of numbers, of a fixed length if one is given."""
    dtype = np.dtype(code)

    def write(value: Any) -> None:
        setattr(parent, name, array.array(code, np.asarray(value, dtype).tobytes()))

    def write_fixed(value: Any) -> None:
        values = np.array(value, dtype).ravel()
        if len(values) != length:
            raise ValueError(f"{len(values)} values for {length}")
        setattr(parent, name, values)

    return write if length is None else write_fixed


def _vector_fields(parent: Any, name: str) -> tuple[str, ...] | None:
    """Return the field names of a message of doubles only (Vector3, Point), else None."""
    inner = getattr(parent, name)
    types = field_types(inner) if hasattr(inner, "get_fields_and_field_types") else {}
    plain = all(kind == FieldType("double") for kind in types.values())
    return tuple(types) if types and plain else None


def _make_vector_writer(inner: Any, names: tuple[str, ...]) -> Writer:
    """Return a writer that puts a vector into such a message, in the order of its fields."""

    def write(value: Any) -> None:
        values = np.asarray(value, np.float64).tolist()
        for name, one in zip(names, values, strict=True):
            setattr(inner, name, one)

    return write


def _literal_fits(value: Any, parent: Any, name: str, kind: FieldType) -> bool:
    """Return whether a literal has the form of the field: one or several, number or text."""
    several = kind.array or _vector_fields(parent, name) is not None
    if isinstance(value, list) != several:
        return False
    members = value if isinstance(value, list) else [value]
    if kind.base == "boolean":
        return all(isinstance(one, bool) for one in members)
    return all(
        isinstance(one, str) == (kind.base == "string") and not isinstance(one, bool)
        for one in members
    )


def _format_type(kind: FieldType) -> str:
    """Return a field's type as text, such as "double[36]"."""
    return f"{kind.base}[{kind.size or ''}]" if kind.array else kind.base


def fill_image(message: Any, pixels: Any) -> None:
    """Write pixels into a sensor_msgs/Image, as mono8 or rgb8.

    Args:
        message: The image message.
        pixels: Pixels (H, W) or (H, W, 3) uint8.

    Raises:
        ValueError: The pixels have another shape or type.
    """
    if not isinstance(pixels, np.ndarray) or pixels.dtype != np.uint8:
        raise ValueError("a picture is an array of uint8")
    if pixels.ndim != 2 and (pixels.ndim != 3 or pixels.shape[2] != 3):
        raise ValueError(f"a picture has the shape (H, W) or (H, W, 3), not {pixels.shape}")
    message.height, message.width = pixels.shape[:2]
    message.encoding = "mono8" if pixels.ndim == 2 else "rgb8"
    message.step = message.width * (1 if pixels.ndim == 2 else 3)
    message.data = array.array("B", pixels.tobytes())
