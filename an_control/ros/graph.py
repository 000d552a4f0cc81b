"""Nodes of ours, and who else is there: publishers and subscriptions of a topic, nodes of one name.

Each look at the graph costs some 0.1 ms: it is for diagnostics, not for ticks.

A `QuietNode` handles no events of the middleware. By default rclpy asks of each publisher and
subscription for incompatible types and quality of service, to log them. Where the middleware's
threads report one while the events executor adds or removes it, the process can crash
(ros2/rclpy#1644) or stand still (ros2/rmw_fastrtps#890). What does not match is said by the
diagnostics instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import rclpy
from rclpy.event_handler import PublisherEventCallbacks, SubscriptionEventCallbacks
from rclpy.exceptions import NameValidationException
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible
from rclpy.signals import SignalHandlerOptions
from rclpy.subscription import Subscription

from an_control.ros.distributions import TopicEndpointInfo
from an_control.ros.shared_memory import without_shared_memory

_OF_PUBLISHERS = PublisherEventCallbacks(use_default_callbacks=False)
_OF_SUBSCRIPTIONS = SubscriptionEventCallbacks(use_default_callbacks=False)


class QuietNode(Node):
    """A node that handles no events; nor does what rclpy itself creates on it."""

    def create_publisher(self, *args: Any, **options: Any) -> Publisher:
        """As of any node; `event_callbacks` are none unless given."""
        options["event_callbacks"] = options.get("event_callbacks") or _OF_PUBLISHERS
        return super().create_publisher(*args, **options)

    def create_subscription(self, *args: Any, **options: Any) -> Subscription:
        """As of any node; `event_callbacks` are none unless given."""
        options["event_callbacks"] = options.get("event_callbacks") or _OF_SUBSCRIPTIONS
        return super().create_subscription(*args, **options)


UNKNOWN = "a node whose name is not known yet"


def owner(info: TopicEndpointInfo) -> str:
    """The full name of the node that a publisher or subscription belongs to, or UNKNOWN.

    A participant's topics can be discovered before its nodes.
    """
    if info.node_name == "_NODE_NAME_UNKNOWN_":
        return UNKNOWN
    return f"{info.node_namespace.rstrip('/')}/{info.node_name}"


def of_type(infos: Iterable[TopicEndpointInfo], type_: str) -> list[TopicEndpointInfo]:
    """Those of the message type."""
    return [one for one in infos if one.topic_type == type_]


def wrong_types(infos: Iterable[TopicEndpointInfo], type_: str, topic: str) -> str:
    """In words, those of other types than `type_`; empty where there are none."""
    others = sorted(
        {f"{one.topic_type} ({owner(one)})" for one in infos if one.topic_type != type_}
    )
    return f"{', '.join(others)} on {topic}, expected {type_}" if others else ""


def unheard_commands(
    subscriptions: Sequence[TopicEndpointInfo], topic: str, type_: str, qos: QoSProfile
) -> str:
    """Return who cannot hear commands that are sent with `qos`, why, and what to do; or ""."""
    listeners = of_type(subscriptions, type_)
    deaf = []
    for one in listeners:
        compatible, reason = qos_check_compatible(qos, one.qos_profile)
        if compatible == QoSCompatibility.ERROR:
            why = reason.replace("ERROR: ", "").strip(";").replace(";", ", ")
            deaf.append(f"{owner(one)} asks for another quality of service ({why})")
    if not listeners:
        return f"nobody hears commands on {topic}: there is no subscription"
    if not deaf:
        return ""
    who = "nobody hears" if len(deaf) == len(listeners) else "not all hear"
    return f"{who} commands on {topic}: {', '.join(deaf)}: let it subscribe with the default one"


def same_name_count(node: Node) -> int:
    """How many nodes have this node's full name, itself among them."""
    own = (node.get_name(), node.get_namespace())
    return node.get_node_names_and_namespaces().count(own)


def elsewhere(node: Node, topic: str, type_: str) -> str:
    """Return where messages of a type are published while nobody publishes `topic`, as text
    after "no publisher"; or ""."""
    name = node.resolve_topic_name(topic)
    others = [
        other
        for other, types in node.get_topic_names_and_types()
        if type_ in types and other != name and node.count_publishers(other)
    ]
    near = difflib.get_close_matches(name, others, 1, 0.0)
    return f"; {near[0]} is published with this type" if near else ""


DISCOVERY_S = 10.0
"""How long others may take to be found: a node that misses DDS's first announcements, as on a busy
machine, hears the next ones after 3 s."""


@contextmanager
def temporary_node(name: str, namespace: str = "") -> Iterator[Node]:
    """A node, with rclpy from here to the end of the block; Ctrl-C is left to the caller.

    It joins with as little as it can, for the sake of the nodes that act: by UDP, without services
    and without a topic for its log.

    Raises ValueError where ROS takes no such name, also for one that is used in the block.
    """
    try:
        with without_shared_memory():
            rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
            node = QuietNode(
                name, namespace=namespace, start_parameter_services=False, enable_rosout=False
            )
        try:
            yield node
        finally:
            node.destroy_node()
    except NameValidationException as error:
        raise ValueError(" ".join(str(error).split())) from error
    finally:
        rclpy.try_shutdown()
