"""The order of the signals over ROS 2: the parameter `order` sets it, the topic `~/order` tells it.

An entry of the parameter is CHANNEL=SIGNAL: from the next tick on that channel carries the signal
of this other channel, `noise`, or nothing. Channels that are not named keep what they carry.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence

from diagnostic_msgs.msg import DiagnosticStatus, KeyValue
from rcl_interfaces.msg import ParameterDescriptor, SetParametersResult
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile

PARAMETER = "order"
LATCHED = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
"""Who comes late gets the order too."""


class OrderTopic:
    """Publishes what each channel carries, by its id, where that has changed."""

    def __init__(self, node: Node) -> None:
        self._publisher = node.create_publisher(DiagnosticStatus, f"~/{PARAMETER}", LATCHED)
        self._told: Hashable = None

    def tell(self, version: Hashable, order: Callable[[], Mapping[str, str]]) -> None:
        """Publish the order of this version, unless that was the last one."""
        if version == self._told:
            return
        self._told = version
        values = [KeyValue(key=channel, value=signal) for channel, signal in order().items()]
        self._publisher.publish(DiagnosticStatus(name=PARAMETER, values=values))


def follow_order(
    node: Node,
    channels: Callable[[], Sequence[str]],
    check: Callable[[Mapping[str, str]], object],
    change: Callable[[Mapping[str, str]], object],
) -> None:
    """Declare the parameter and give `change` what is set; refuse what `check` raises for.

    `channels` are those that an entry may name.
    """
    node.declare_parameter(
        PARAMETER,
        Parameter.Type.STRING_ARRAY,
        ParameterDescriptor(
            description="what channels carry from now on: another one's signal, noise or nothing",
            additional_constraints="entries CHANNEL=SIGNAL, CHANNEL=noise or CHANNEL=",
        ),
    )
    if node.get_parameter_or(PARAMETER).value is None:  # that hides all others from a dump
        node.set_parameters([Parameter(PARAMETER, Parameter.Type.STRING_ARRAY, [])])

    def refuse(parameters: list[Parameter]) -> SetParametersResult:
        try:
            for entries in _set(parameters):
                check(parse_order(entries, channels()))
        except ValueError as error:
            return SetParametersResult(successful=False, reason=f"{PARAMETER}: {error}")
        return SetParametersResult(successful=True)

    def take(parameters: list[Parameter]) -> None:
        for entries in _set(parameters):
            change(parse_order(entries, channels()))

    node.add_on_set_parameters_callback(refuse)
    node.add_post_set_parameters_callback(take)


def parse_order(entries: Sequence[str], channels: Sequence[str]) -> dict[str, str]:
    """Entries CHANNEL=SIGNAL by channel; ValueError names one that is none, or comes twice.

    An id may hold a `=`: the channel is the longest known one before a `=`.
    """
    order: dict[str, str] = {}
    for entry in entries:
        parts = entry.split("=")
        heads = ["=".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]
        channel = next((head for head in heads if head in channels), heads[-1] if heads else "")
        if not channel:
            raise ValueError(f"{entry!r} (allowed: CHANNEL=SIGNAL, CHANNEL=noise or CHANNEL=)")
        if channel in order:
            raise ValueError(f"{channel} is named twice")
        order[channel] = entry[len(channel) + 1 :]
    return order


def _set(parameters: list[Parameter]) -> list[Sequence[str]]:
    return [one.value or () for one in parameters if one.name == PARAMETER]
