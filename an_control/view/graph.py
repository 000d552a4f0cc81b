"""Discovery of a robot's nodes and topics in the ROS graph, by the services of the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from nav_msgs.msg import Odometry
from rcl_interfaces.msg import ParameterEvent
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64MultiArray

from an_control.ros.graph import UNKNOWN, get_owner_node_name
from an_control.view.listener import LATCHED, NEWEST, SEVERAL, TopicSubscription

TRIGGER = "std_srvs/srv/Trigger"
KINDS = {
    "policy": {"/reload_wiring": TRIGGER},
    "scrambler": {"/shuffle": TRIGGER},
    "simulator": {"/pause": "std_srvs/srv/SetBool", "/reset": TRIGGER},
}
"""Services, with their types, by which each kind of node is recognised.

The types are needed because a player of recordings also has a service named pause, but is no
simulator.
"""
SCRAMBLED = "scrambled"
"""Name of the scrambler's topic, in the robot's namespace."""
FIXED = {
    "diagnostics": TopicSubscription("/diagnostics", DiagnosticArray, SEVERAL),
    "events": TopicSubscription("/parameter_events", ParameterEvent, SEVERAL),
}
_INSIDE = {
    "channels": JointState,
    "attention": Float64MultiArray,
    "keys": Float64MultiArray,
}
SENSORS = {
    "joints": ("sensor_msgs/msg/JointState", JointState, ("joint_states",)),
    "pose": ("nav_msgs/msg/Odometry", Odometry, ("odometry", "odom")),
    "image": ("sensor_msgs/msg/Image", Image, ("camera/image_raw",)),
}
"""A mapping from each sensor that is drawn to three values: the type of its topic, the class of the
messages, and the usual names of the topic. The first of these names that is found is used."""


@dataclass(frozen=True)
class RobotGraph:
    """The nodes and topics of a robot.

    Attributes:
        policy: Full name of the policy node; "" if there is none.
        scrambler: Full name of the scrambler, which disturbs readings; "" if there is none.
        simulator: Full name of the simulator; "" if there is none.
        others: Policy nodes of other robots.
        topics: Maps the name that the live page uses for a topic, such as "joints", to the topic to
            subscribe to.
    """

    policy: str = ""
    scrambler: str = ""
    simulator: str = ""
    others: tuple[str, ...] = ()
    topics: Mapping[str, TopicSubscription] = field(default_factory=dict)


def find_robot_in_ros_graph(node: Node, robot: str = "", shown_policy: str = "") -> RobotGraph:
    """Find the nodes and topics of a robot in the ROS graph.

    Args:
        node: The node whose view of the ROS graph is searched.
        robot: Namespace of the robot; "" allows any robot.
        shown_policy: Full name of the policy node that the live web page shows now; "" if none. Of
            several policy nodes that `robot` allows, this one is chosen if it still exists, so that
            the page keeps its robot. Otherwise the first by name is chosen.
    """
    offers = _find_nodes_by_kind(node)
    policies = offers["policy"]
    mine = [one for one in policies if not robot or _get_namespace(one) == robot.rstrip("/")]
    if not mine:
        return RobotGraph(others=tuple(policies), topics=FIXED)
    policy = shown_policy if shown_policy in mine else mine[0]
    space = _get_namespace(policy)
    scrambler, simulator = (
        next((one for one in offers[kind] if _get_namespace(one) == space), "")
        for kind in ("scrambler", "simulator")
    )
    topics = dict(FIXED)
    topics |= {
        name: TopicSubscription(f"{policy}/{name}", type_, NEWEST)
        for name, type_ in _INSIDE.items()
    }
    if scrambler:
        topics["order"] = TopicSubscription(f"{scrambler}/order", DiagnosticStatus, LATCHED)
    if simulator:
        topics["progress"] = TopicSubscription(f"{simulator}/progress", JointState)
    topics |= _find_drawing_topics(node, space, policy)
    others = tuple(one for one in policies if one != policy)
    return RobotGraph(policy, scrambler, simulator, others, topics)


def _find_nodes_by_kind(node: Node) -> dict[str, list[str]]:
    """Return the full names of the nodes of each kind (policy, scrambler, simulator), sorted."""
    types: dict[str, dict[str, list[str]]] = {}
    for service, offered in node.get_service_names_and_types():
        name, _, ending = service.rpartition("/")
        types.setdefault(name, {})[f"/{ending}"] = offered
    return {
        kind: sorted(
            name
            for name, there in types.items()
            if all(type_ in there.get(ending, ()) for ending, type_ in services.items())
        )
        for kind, services in KINDS.items()
    }


def _find_drawing_topics(
    node: Node, robot_namespace: str, policy: str
) -> dict[str, TopicSubscription]:
    """Return the topics from which a robot can be drawn, by kind of sensor (see `SENSORS`).

    If the policy uses a camera, the image that the policy sees is drawn.
    """
    there: dict[str, list[str]] = {}
    for topic, types in node.get_topic_names_and_types():
        if topic.startswith(f"{robot_namespace}/") and node.count_publishers(topic):
            for type_ in types:
                there.setdefault(type_, []).append(topic)
    found = {}
    for name, (type_, cls, usual) in SENSORS.items():
        topics = [
            one
            for one in there.get(type_, ())
            if "/" not in one.removeprefix(f"{robot_namespace}/").replace("camera/", "")
            and one != f"{robot_namespace}/{SCRAMBLED}"
            and not _find_publisher_names(node, one) & {policy, UNKNOWN}
        ]
        wanted = [
            f"{robot_namespace}/{one}" for one in usual if f"{robot_namespace}/{one}" in topics
        ]
        if wanted or topics:
            found[name] = TopicSubscription((wanted or sorted(topics))[0], cls)
    attended = f"{policy}/attended"
    if attended in there.get("sensor_msgs/msg/Image", ()):
        found["image"] = TopicSubscription(attended, Image)
        found.pop("joints", None)
    return found


def _find_publisher_names(node: Node, topic: str) -> set[str]:
    """Return the names of the nodes that publish a topic."""
    return {get_owner_node_name(one) for one in node.get_publishers_info_by_topic(topic)}


def _get_namespace(node: str) -> str:
    """Return the namespace of a node, without a slash at its end."""
    return node.rpartition("/")[0]
