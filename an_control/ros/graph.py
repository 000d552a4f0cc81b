"""Nodes that handle no middleware events, and questions about the other nodes (ROS graph).

The ROS graph is what the middleware knows about all nodes and their topics. Each query takes some
0.1 ms, so query it for diagnostics, not in every control step.

A `QuietNode` handles no events of the middleware. By default rclpy asks each publisher and
subscription for events about incompatible types and quality of service, to log them. If the
middleware's threads report such an event while rclpy's events executor adds or removes the event's
handler, the process can crash (ros2/rclpy#1644) or hang (ros2/rmw_fastrtps#890). The diagnostics
report incompatible nodes instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible
from rclpy.subscription import Subscription

from an_control.ros.distributions import TopicEndpointInfo

_NO_PUBLISHER_EVENTS = PublisherEventCallbacks(use_default_callbacks=False)
_NO_SUBSCRIPTION_EVENTS = SubscriptionEventCallbacks(use_default_callbacks=False)


class QuietNode(Node):
    """A node whose publishers and subscriptions handle no middleware events.

    This includes the publishers and subscriptions that rclpy itself creates for the node.
    """

    def create_publisher(self, *args: Any, **options: Any) -> Publisher:
        """Create a publisher as Node does, but without event callbacks unless they are given."""
        options["event_callbacks"] = options.get("event_callbacks") or _NO_PUBLISHER_EVENTS
        return super().create_publisher(*args, **options)

    def create_subscription(self, *args: Any, **options: Any) -> Subscription:
        """Create a subscription as Node does, but without event callbacks unless they are given."""
        options["event_callbacks"] = options.get("event_callbacks") or _NO_SUBSCRIPTION_EVENTS
        return super().create_subscription(*args, **options)


UNKNOWN = "a node whose name is not known yet"
"""The text in place of a node's name if only a publisher or subscription of the node is known
yet."""


def get_owner_node_name(info: TopicEndpointInfo) -> str:
    """Return the full name of the node that owns a publisher or subscription.

    DDS can discover a publisher before it knows the node's name. In this case the result is the
    text `UNKNOWN`, "a node whose name is not known yet".
    """
    if info.node_name == "_NODE_NAME_UNKNOWN_":
        return UNKNOWN
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


def select_endpoints_by_type(
    infos: Iterable[TopicEndpointInfo], type_: str
) -> list[TopicEndpointInfo]:
    """Return the publishers or subscriptions in `infos` whose message type is `type_`."""
    return [one for one in infos if one.topic_type == type_]


def describe_endpoints_of_wrong_type(
    infos: Iterable[TopicEndpointInfo], type_: str, topic: str
) -> str:
    """Return text that lists the publishers or subscriptions of a wrong message type, or "".

    Args:
        infos: The publishers or subscriptions of a topic.
        type_: The expected message type, such as sensor_msgs/msg/JointState.
        topic: The topic's name, for the text.
    """
    others = sorted(
        {
            f"{one.topic_type} ({get_owner_node_name(one)})"
            for one in infos
            if one.topic_type != type_
        }
    )
    return f"{', '.join(others)} on {topic}, expected {type_}" if others else ""


def describe_incompatible_subscriptions(
    subscriptions: Sequence[TopicEndpointInfo], topic: str, type_: str, qos: QoSProfile
) -> str:
    """Return text on the nodes that cannot receive this node's commands; "" if all can.

    The text says which nodes these are, why they receive nothing, and what to do.

    Args:
        subscriptions: The subscriptions of the command topic.
        topic: The command topic.
        type_: The message type of the commands.
        qos: The quality of service with which the commands are published.
    """
    listeners = select_endpoints_by_type(subscriptions, type_)
    deaf = []
    for one in listeners:
        compatible, reason = qos_check_compatible(qos, one.qos_profile)
        if compatible == QoSCompatibility.ERROR:
            why = reason.replace("ERROR: ", "").strip(";").replace(";", ", ")
            deaf.append(f"{get_owner_node_name(one)} asks for another quality of service ({why})")
    if not listeners:
        return f"nobody hears commands on {topic}: there is no subscription"
    if not deaf:
        return ""
    who = "nobody hears" if len(deaf) == len(listeners) else "not all hear"
    return (
        f"{who} commands on {topic}: {', '.join(deaf)}: subscribe with the default quality of"
        " service"
    )


def count_nodes_of_same_name(node: Node) -> int:
    """Return the number of running nodes with this node's full name, including this node."""
    own = (node.get_name(), node.get_namespace())
    return node.get_node_names_and_namespaces().count(own)


def suggest_similar_topic(node: Node, topic: str, type_: str) -> str:
    """Suggest a published topic with a name similar to that of a topic without a publisher.

    Args:
        node: The node whose view of the ROS graph is searched.
        topic: The topic without a publisher.
        type_: The message type of the topic; only topics of this type are considered.

    Returns:
        The end of an error text, such as "; /joint_states is published with this type". It is "" if
        no topic of this type is published, apart from those of policy nodes and of `node` itself.
    """
    name, own = node.resolve_topic_name(topic), node.get_fully_qualified_name()
    topics = node.get_topic_names_and_types()
    there = {other for other, _ in topics}
    others = []
    for other, types in topics:
        if type_ in types and other != name:
            infos = node.get_publishers_info_by_topic(other)
            owners = {get_owner_node_name(one) for one in infos} - {own}
            # A policy node sends commands and reports, no readings.
            if any(f"{owner}/channels" not in there for owner in owners):
                others.append(other)
    near = difflib.get_close_matches(name, others, 1, 0.0)
    return f"; {near[0]} is published with this type" if near else ""
