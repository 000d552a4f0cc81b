"""Declares the ROS parameters of the simulator and the scrambler; most of them are read-only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from rcl_interfaces.msg import (
    FloatingPointRange,
    IntegerRange,
    ParameterDescriptor,
    SetParametersResult,
)
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node
from rclpy.parameter import Parameter

from an_control.disturbance import SETTINGS, DisturbanceSettings, ScheduledChange, load_schedule
from an_control.ros.parameters import correct_type_of_yaml_value
from an_control.wiring.checked_yaml import shorten_error

Value = TypeVar("Value", bool, int, float, str)
NAMES = tuple(one.name for one in SETTINGS)


def declare_parameter(
    node: Node,
    name: str,
    default: Value,
    description: str,
    bounds: tuple[float, float] | None = None,
) -> Value:
    """Declare a read-only parameter and return its value.

    Args:
        node: The node.
        name: The name of the parameter.
        default: The default value, which also sets the type.
        description: What the parameter means, for `ros2 param describe` and for errors.
        bounds: The minimum and the maximum of a number, inclusive.

    Raises:
        ValueError: The value has another type or is out of bounds; the message names the parameter.
    """
    descriptor = ParameterDescriptor(description=description, read_only=True)
    if bounds is not None and isinstance(default, float):
        low, high = float(bounds[0]), float(bounds[1])
        descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
    elif bounds is not None:
        low, high = int(bounds[0]), int(bounds[1])
        descriptor.integer_range = [IntegerRange(from_value=low, to_value=high)]
    within = f" from {bounds[0]:g} to {bounds[1]:g}" if bounds else ""
    allowed = f"{type(default).__name__}{within}: {description}"
    return _declare_checked_parameter(node, name, default, descriptor, allowed)


def declare_disturbance_parameters(
    node: Node, default: DisturbanceSettings | None = None
) -> DisturbanceSettings:
    """Declare every setting of the disturbance as a parameter, and return their values.

    The disturbance is what is done to readings, commands and robot on purpose. At run time clients
    may change only those settings that act on readings.

    Args:
        node: The node.
        default: The default values; None for a disturbance that changes nothing.

    Raises:
        ValueError: A value is out of bounds; the message names the parameter.
    """
    given = default or DisturbanceSettings()
    for one in SETTINGS:
        value = getattr(given, one.name)
        # With a range in the descriptor, rclpy's error would not name the allowed values.
        descriptor = ParameterDescriptor(
            description=one.help_with_unit,
            additional_constraints=one.allowed_values_text,
            read_only=one.target != "readings",
            dynamic_typing=one.is_given_as_text,
        )
        _declare_checked_parameter(
            node,
            one.name,
            str(value) if one.is_given_as_text else value,
            descriptor,
            f"{one.allowed_values_text}: {one.help_with_unit}",
        )
    try:
        return _read_disturbance_settings(node, ())
    except ValueError as error:
        raise ValueError(f"parameter {error}") from None


def declare_schedule_parameter(node: Node) -> tuple[ScheduledChange, ...]:
    """Declare the parameter `schedule`, the path of a YAML file, and return the file's content.

    The file lists changes of the disturbance within each episode. The result is () without a file.

    Raises:
        WiringError: The file is not valid.
    """
    path = declare_parameter(
        node, "schedule", "", "path of a schedule YAML; empty: nothing changes by itself"
    )
    return load_schedule(path) if path else ()


def call_when_disturbance_changes(
    node: Node,
    apply_settings: Callable[[DisturbanceSettings], object] | None,
    check_settings: Callable[[DisturbanceSettings], object] | None = None,
) -> None:
    """Make a node call a function whenever a client sets parameters of the disturbance.

    The node refuses values that are not valid.

    Args:
        node: The node, with the parameters of `declare_disturbance_parameters`.
        apply_settings: Called with the new settings. If it is None, the node refuses every change,
            because it has no scrambler that could disturb readings.
        check_settings: Called with the new settings before each change; raises ValueError to refuse
            them. None for no such check.
    """

    def accept_or_refuse_settings(parameters: list[Parameter[Any]]) -> SetParametersResult:
        """Check new values of parameters, and return whether the node accepts them."""
        reason = ""
        if _has_disturbance_setting(parameters):
            if apply_settings is None:
                reason = "there is no scrambler: start with scrambler:=true"
            try:
                settings = _read_disturbance_settings(node, parameters)
                if check_settings is not None:
                    check_settings(settings)
            except ValueError as error:
                reason = str(error)
        return SetParametersResult(successful=not reason, reason=reason)

    def apply_new_settings(parameters: list[Parameter[Any]]) -> None:
        """Call `apply_settings` with the new settings, after the node has accepted them."""
        if apply_settings is not None and _has_disturbance_setting(parameters):
            apply_settings(_read_disturbance_settings(node, ()))

    def correct_types(parameters: list[Parameter[Any]]) -> list[Parameter[Any]]:
        """Return new values of parameters with integers as floats where the parameter is one."""
        return [
            correct_type_of_yaml_value(one, node.get_parameter(one.name).value)
            if one.name in NAMES
            else one
            for one in parameters
        ]

    node.add_pre_set_parameters_callback(correct_types)
    node.add_on_set_parameters_callback(accept_or_refuse_settings)
    node.add_post_set_parameters_callback(apply_new_settings)


def _has_disturbance_setting(parameters: list[Parameter[Any]]) -> bool:
    """Return whether any of the parameters is a setting of the disturbance."""
    return any(one.name in NAMES for one in parameters)


def _read_disturbance_settings(
    node: Node, changed_parameters: Sequence[Parameter[Any]]
) -> DisturbanceSettings:
    """Return the disturbance that a node's parameters describe.

    Args:
        node: The node.
        changed_parameters: Parameters that are used in place of the node's parameters of the same
            names, because they are to be set but have not been yet.
    """
    values = {name: node.get_parameter(name).value for name in NAMES}
    values.update({one.name: one.value for one in changed_parameters if one.name in NAMES})
    return DisturbanceSettings.from_values(values)


def _declare_checked_parameter(
    node: Node, name: str, default: Value, descriptor: ParameterDescriptor, allowed: str
) -> Value:
    """Declare a parameter and return its value.

    Args:
        node: The node.
        name: The name of the parameter.
        default: The default value.
        descriptor: What ROS reports about the parameter: description, allowed range and so on.
        allowed: The allowed values in words, for error texts.

    Raises:
        ValueError: The value is not allowed.
    """
    overrides = node._parameter_overrides
    if name in overrides:
        overrides[name] = correct_type_of_yaml_value(overrides[name], default)
    try:
        value: Value = node.declare_parameter(name, default, descriptor).value
    except (InvalidParameterTypeException, InvalidParameterValueException) as error:
        raise ValueError(f"parameter {name}: {shorten_error(error)} (allowed: {allowed})") from None
    return value
