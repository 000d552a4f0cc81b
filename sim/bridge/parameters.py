"""ROS parameters of the simulator and the scrambler: described, bounded, most of them fixed."""

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

from an_control.disturbance import Change, DisturbanceSettings, Shuffle, load_schedule
from an_control.wiring.errors import without_middle

Value = TypeVar("Value", bool, int, float, str)


def declare(
    node: Node,
    name: str,
    default: Value,
    description: str,
    bounds: tuple[float, float] | None = None,
    *,
    read_only: bool = True,
) -> Value:
    """Declare a parameter and return its value.

    Raises ValueError naming the parameter where what was set has another type or is out of bounds.
    """
    descriptor = ParameterDescriptor(description=description, read_only=read_only)
    if bounds is not None and isinstance(default, float):
        low, high = float(bounds[0]), float(bounds[1])
        descriptor.floating_point_range = [FloatingPointRange(from_value=low, to_value=high)]
    elif bounds is not None:
        low, high = int(bounds[0]), int(bounds[1])
        descriptor.integer_range = [IntegerRange(from_value=low, to_value=high)]
    try:
        value: Value = node.declare_parameter(name, default, descriptor).value
    except (InvalidParameterTypeException, InvalidParameterValueException) as error:
        within = f" from {bounds[0]:g} to {bounds[1]:g}" if bounds else ""
        allowed = f"{type(default).__name__}{within}: {description}"
        raise ValueError(
            f"parameter {name}: {without_middle(error)} (allowed: {allowed})"
        ) from None
    return value


SCRAMBLE = {
    "announce": "ids move along with their contents",
    "noise_channels": "channels of noise added",
    "noise_sd": "standard deviation of that noise",
    "drop": "share of channels that is absent",
    "freeze": "share of channels that keeps its value",
    "delay": "ticks by which every content comes late",
    "spike": "chance of a reading to get a spike",
    "spike_sd": "standard deviation of the spikes",
    "nan": "chance of a reading to be NaN",
    "copies": "channels added that repeat others",
    "swap": "how many contents move at each permutation; 0: all",
    "jitter": "standard deviation of noise on every content",
}
"""The parameters of `DisturbanceSettings` beside shuffle, and what each one means."""


def declare_disturbance(
    node: Node, default: DisturbanceSettings | None = None
) -> DisturbanceSettings:
    """Shuffle and SCRAMBLE as parameters that may change at runtime; their values at first.

    Raises ValueError naming one that is out of bounds.
    """
    default = default or DisturbanceSettings()
    described = ParameterDescriptor(
        description="when contents are permuted: none, reset, K (every K steps) or reset+K",
        dynamic_typing=True,
    )
    node.declare_parameter("shuffle", str(default.shuffle), described)
    for name, description in SCRAMBLE.items():
        declare(node, name, getattr(default, name), description, read_only=False)
    try:
        return _scramble(node.get_parameter, ())
    except ValueError as error:
        raise ValueError(f"parameter {error}") from None


def declare_schedule(node: Node) -> tuple[Change, ...]:
    """The parameter schedule, a file's path. Raises WiringError where the file is not right."""
    path = declare(
        node, "schedule", "", "path of a schedule YAML; empty: nothing changes by itself"
    )
    return load_schedule(path) if path else ()


def follow_disturbance(
    node: Node,
    change: Callable[[DisturbanceSettings], object] | None,
    accept: Callable[[DisturbanceSettings], object] | None = None,
) -> None:
    """Give `change` the settings whenever their parameters are set; bad ones are refused.

    `accept` raises ValueError for more that are bad. Without `change`, where nothing is read by
    way of a scrambler, all of them are.
    """

    def check(parameters: list[Parameter[Any]]) -> SetParametersResult:
        reason = ""
        if _concerned(parameters):
            if change is None:
                reason = "there is no scrambler: start with scrambler:=true"
            try:
                settings = _scramble(node.get_parameter, parameters)
                if accept is not None:
                    accept(settings)
            except ValueError as error:
                reason = str(error)
        return SetParametersResult(successful=not reason, reason=reason)

    def take(parameters: list[Parameter[Any]]) -> None:
        if change is not None and _concerned(parameters):
            change(_scramble(node.get_parameter, ()))

    node.add_on_set_parameters_callback(check)
    node.add_post_set_parameters_callback(take)


def _concerned(parameters: list[Parameter[Any]]) -> bool:
    return any(one.name in (*SCRAMBLE, "shuffle") for one in parameters)


def _scramble(
    get: Callable[[str], Parameter[Any]], changed: Sequence[Parameter[Any]]
) -> DisturbanceSettings:
    new = {one.name: one.value for one in changed}
    values = {name: new.get(name, get(name).value) for name in (*SCRAMBLE, "shuffle")}
    return DisturbanceSettings(shuffle=Shuffle.parse(str(values.pop("shuffle"))), **values)
