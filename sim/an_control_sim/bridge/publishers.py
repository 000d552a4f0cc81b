"""Writes an environment's numbers into ROS messages.

The message objects are made once and refilled at every step, so code that gets one must publish or
read it before the next step. Every value is cast to exactly the type of its field: rclpy does not
check the type, and a wrong type corrupts the number.
"""

from __future__ import annotations

import array
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from an_control.wiring.checked_yaml import WiringError
from an_control.wiring.messages import ARRAY_CODES, CASTS, FieldType, list_field_types
from an_control_sim.bridge.simulation_file import Expression, SimulatedTopicConfig

JOINTS = "sensor_msgs/msg/JointState"
Writer = Callable[[Any], None]
"""A function that writes one value into one field; raises ValueError or TypeError if it does not
fit."""


class SensorTopic:
    """A topic on which a simulation publishes readings; its message object is filled at each step.

    Args:
        config: The topic's entry in the simulation YAML.
        message_class: The class of its message type.
        file: The path of the YAML file, for errors.

    Raises:
        WiringError: The message type lacks a field, or a constant value in the YAML file does not
            fit its field.
    """

    def __init__(self, config: SimulatedTopicConfig, message_class: Any, file: str) -> None:
        self.topic = config.topic
        self.message = message_class()
        self._config, self._where = config, (file, f"publish.{config.topic}.fields")
        types = list_field_types(message_class)
        stamped = "header" in types and types["header"].message_type == "std_msgs/msg/Header"
        self._stamp = self.message.header.stamp if stamped else None
        self._picture = "encoding" in types and {"height", "width", "step", "data"} <= set(types)
        self._writers: list[tuple[Callable[[Any, Mapping[str, Any]], Any], Writer]] = []
        self._expressions: list[tuple[str, Expression]] = []
        for path, value in config.fields.items():
            self._write_constant_or_add_field_writer(path, value)

    def fill_message(self, observation: Any, sensors: Mapping[str, Any], stamp_ns: int) -> Any:
        """Write a step's values and stamp into the message object of this topic, and return it.

        Args:
            observation: The environment's observation.
            sensors: The environment's sensor readings beside the observation, by name.
            stamp_ns: The time stamp of the step in nanoseconds.
        """
        if self._stamp is not None:
            self._stamp.sec, self._stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
        for get, write in self._writers:
            write(get(observation, sensors))
        return self.message

    def check_expressions_fit_fields(self, observation: Any, sensors: Mapping[str, Any]) -> None:
        """Check that every expression in the YAML file, such as observation[0:4], fits its field.

        The message object is filled as a test.

        Args:
            observation: The environment's observation.
            sensors: The environment's sensor readings beside the observation, by name.

        Raises:
            WiringError: An expression does not fit; the error text names it.
        """
        shape = np.shape(observation)
        for (path, expression), (get, write) in zip(self._expressions, self._writers, strict=True):
            try:
                expression.check_slice_is_within_array(observation, sensors)
                write(get(observation, sensors))
            except KeyError:
                known = ", ".join(sorted(sensors)) or "(the environment offers none)"
                raise self._make_value_misfit_error(
                    path, expression, f"sensors.NAME with NAME of {known}"
                ) from None
            except (IndexError, TypeError, ValueError, OverflowError) as error:
                allowed = f"what the field takes from an observation of shape {shape} ({error})"
                raise self._make_value_misfit_error(path, expression, allowed) from None
        self._check_joint_name_count()

    def _check_joint_name_count(self) -> None:
        """Check that a JointState message has as many values in each field as it has names.

        Messages of other types, and fields without values, are not checked.
        """
        if self._config.type != JOINTS:
            return
        names = len(self.message.name)
        for path in ("position", "velocity", "effort"):
            count = len(getattr(self.message, path))
            if names and count and names != count:
                allowed = f"{names} numbers, one for each name, not {count}"
                raise self._make_value_misfit_error(path, self._config.fields[path], allowed)

    def _write_constant_or_add_field_writer(self, path: str, value: Any) -> None:
        """Write a constant into a message field, or add a function that writes it at each step.

        The function is added if the value is an expression such as observation[0].
        """
        parent, name, kind = self._find_parent_name_and_type_of_field(path, value)
        expression = isinstance(value, Expression)
        if self._picture and path == "data" and expression:
            write: Writer | None = lambda pixels: fill_image(parent, pixels)  # noqa: E731
        else:
            write = _make_field_writer(parent, name, kind)
        if write is None:
            raise self._make_value_misfit_error(
                path, value, f"a field of numbers or text, not of {kind.base}"
            )
        if expression and kind.base == "string":
            raise self._make_value_misfit_error(
                path, value, f"a value of type {_format_message_field_type(kind)}"
            )
        if expression:
            self._expressions.append((path, value))
            self._writers.append((value.make_getter(), write))
            return
        if not _does_constant_fit_field(value, parent, name, kind):
            raise self._make_value_misfit_error(
                path, value, f"an expression, or a value of type {_format_message_field_type(kind)}"
            )
        try:
            write(value)
        except (ValueError, TypeError, OverflowError) as error:
            raise self._make_value_misfit_error(
                path, value, f"a value of type {_format_message_field_type(kind)} ({error})"
            ) from None

    def _find_parent_name_and_type_of_field(
        self, path: str, value: Any
    ) -> tuple[Any, str, FieldType]:
        """Return the nested message object that contains a field, the field's name and its type."""
        parent = self.message
        *outer, last = path.split(".")
        for name in [*outer, last]:
            types = (
                list_field_types(parent) if hasattr(parent, "get_fields_and_field_types") else {}
            )
            if name not in types:
                known = ", ".join(types) or "(none)"
                raise self._make_value_misfit_error(
                    path, value, f"a field of {type(parent).__name__}: {known}"
                )
            if name is not last:
                parent = getattr(parent, name)
        return parent, last, types[last]

    def _make_value_misfit_error(self, path: str, value: Any, allowed: str) -> WiringError:
        """Return the error for a value in the YAML file that does not fit its message field."""
        file, key = self._where
        return WiringError(file, f"{key}.{path}", getattr(value, "text", value), allowed)


def _make_field_writer(parent: Any, name: str, kind: FieldType) -> Writer | None:
    """Return a function that writes a value into a message field; None for unsupported fields.

    Supported fields hold numbers or text: a single one, an array, or a vector such as Vector3.
    """
    cast = CASTS.get(kind.base)
    if kind.array and kind.base in ARRAY_CODES:
        return _make_array_writer(
            parent, name, ARRAY_CODES[kind.base], kind.size if kind.fixed else None
        )
    if kind.array and cast is not None:
        return lambda values: setattr(parent, name, [cast(value) for value in values])
    if cast is not None:
        return lambda value: setattr(parent, name, cast(value))
    vector = None if kind.array else _list_field_names_if_vector(parent, name)
    return _make_vector_writer(getattr(parent, name), vector) if vector else None


def _make_array_writer(parent: Any, name: str, type_code: str, length: int | None) -> Writer:
    """Return a function that writes numbers into a message field that is an array of numbers.

    `type_code` is one of Python's module `array`. `length` is None unless the message type fixes
    it.
    """
    dtype = np.dtype(type_code)

    def write_array(value: Any) -> None:
        """Write an array of any length into the field."""
        setattr(parent, name, array.array(type_code, np.asarray(value, dtype).tobytes()))

    def write_array_of_fixed_length(value: Any) -> None:
        """Write an array into the field; raise ValueError if its length is wrong."""
        values = np.array(value, dtype).ravel()
        if len(values) != length:
            raise ValueError(f"{len(values)} values for {length}")
        setattr(parent, name, values)

    return write_array if length is None else write_array_of_fixed_length


def _list_field_names_if_vector(parent: Any, name: str) -> tuple[str, ...] | None:
    """Return the field names of a nested message of doubles only (Vector3, Point), or None."""
    inner = getattr(parent, name)
    types = list_field_types(inner) if hasattr(inner, "get_fields_and_field_types") else {}
    plain = all(kind == FieldType("double") for kind in types.values())
    return tuple(types) if types and plain else None


def _make_vector_writer(inner: Any, names: tuple[str, ...]) -> Writer:
    """Return a function that writes a vector into a nested message, in the order of its fields."""

    def write_vector(value: Any) -> None:
        """Write a vector into the fields of the nested message."""
        values = np.asarray(value, np.float64).tolist()
        for name, one in zip(names, values, strict=True):
            setattr(inner, name, one)

    return write_vector


def _does_constant_fit_field(value: Any, parent: Any, name: str, kind: FieldType) -> bool:
    """Return whether a constant value in the YAML file fits the type of its message field.

    A list fits an array or a vector, a single value fits any other field. Each value must be a
    boolean, a text or a number, whichever the field holds.
    """
    several = kind.array or _list_field_names_if_vector(parent, name) is not None
    if isinstance(value, list) != several:
        return False
    members = value if isinstance(value, list) else [value]
    if kind.base == "boolean":
        return all(isinstance(one, bool) for one in members)
    return all(
        isinstance(one, str) == (kind.base == "string") and not isinstance(one, bool)
        for one in members
    )


def _format_message_field_type(kind: FieldType) -> str:
    """Format a field's type as text, such as "double[36]"."""
    return f"{kind.base}[{kind.size or ''}]" if kind.array else kind.base


def fill_image(message: Any, pixels: Any) -> None:
    """Write pixels into a sensor_msgs/Image, as mono8 or rgb8.

    Args:
        message: The image message.
        pixels: The pixels (H, W) or (H, W, 3) uint8.

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
