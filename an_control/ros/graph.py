"""Who else is there: the publishers and subscriptions of a topic, and nodes of one name.

Each look costs some 0.1 ms: for diagnostics, not for ticks.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from rclpy.node import Node
from rclpy.qos import QoSCompatibility, QoSProfile, qos_check_compatible

from an_control.ros.distributions import TopicEndpointInfo

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
