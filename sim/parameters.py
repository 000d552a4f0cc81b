"""ROS parameters of the simulator and the scrambler: described, bounded, fixed at the start."""

from __future__ import annotations

from typing import Any, TypeVar

from rcl_interfaces.msg import FloatingPointRange, IntegerRange, ParameterDescriptor
from rclpy.exceptions import InvalidParameterTypeException, InvalidParameterValueException
from rclpy.node import Node

from an_control.wiring.scramble import ScrambleSettings, Shuffle

Value = TypeVar("Value", bool, int, float, str)


def declare(
    node: Node,
    name: str,
    default: Value,
    description: str,
    bounds: tuple[float, float] | None = None,
) -> Value:
    """Declare a read-only parameter and return its value.

    Raises ValueError naming the parameter where what was set has another type or is out of bounds.
    """
    descriptor = ParameterDescriptor(description=description, read_only=True)
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
        raise ValueError(f"parameter {name}: {error} (allowed: {allowed})") from None
    return value


def declare_scramble(node: Node) -> ScrambleSettings:
    """The parameters shuffle, announce, noise_channels and drop. Raises ValueError."""
    described = ParameterDescriptor(
        description="when contents are permuted: none, reset, K (every K steps) or reset+K",
        read_only=True,
        dynamic_typing=True,
    )
    shuffle: Any = node.declare_parameter("shuffle", "none", described).value
    return ScrambleSettings(
        shuffle=Shuffle.parse(str(shuffle)),
        announce=declare(node, "announce", False, "ids move along with their contents"),
        noise_channels=declare(node, "noise_channels", 0, "channels of noise added", (0, 10_000)),
        drop=declare(node, "drop", 0.0, "share of channels that is absent", (0.0, 1.0)),
    )
