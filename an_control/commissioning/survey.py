"""Lists the sensor topics of a running robot: their types, names, rates and ranges.

It covers topics that a wiring can read: those that are published, with message types that contain
numbers. Nothing is sent.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from an_control.ros.graph import get_owner_node_name
from an_control.ros.inputs import find_strongest_common_qos_of_topic
from an_control.ros.temporary_node import DISCOVERY_S, create_temporary_node
from an_control.wiring.command import MessageConfig
from an_control.wiring.messages import (
    ANGLES,
    DURATION,
    TIME,
    format_element_path,
    import_message_class,
    list_field_types,
    make_stamp_reader,
)

SLICE_S, LOOK_S = 0.05, 0.5
QUATERNION = "geometry_msgs/msg/Quaternion"
ELEMENTS = 16
"""Maximum length of an unnamed array with one channel per element; a longer one gets a wildcard."""
SYSTEM_TOPICS = ("/rosout", "/parameter_events", "/clock", "/diagnostics", "/tf", "/tf_static")
"""Topics that never have readings of a robot's sensors."""
COMMANDS = re.compile(r"cmd|command|setpoint|target", re.IGNORECASE)
"""Pattern in the final part of a topic's name that marks topics with commands, which are not
read."""
POLICY_TOPICS = ("channels", "attention", "keys", "attended", "proposed")
"""Names, below its own, of the topics that a policy node publishes about itself. A node whose
command has several messages proposes each on a topic below `proposed`."""
ANGULAR = re.compile(r"position\[|yaw\(|roll\(|theta|angle|heading", re.IGNORECASE)
"""Pattern in the path of a field that marks numbers which may be angles."""
JUMP, STRAIGHT = 0.5, 0.95
"""A change that differs from 2 pi by less than JUMP rad is a jump of an angle. An angle grows if it
ends more than a turn from its start, and the sum of its changes is at least the share STRAIGHT of
the sum of their magnitudes."""
IMAGES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")


class AngleDetector:
    """Detector of an angle that jumps by a full turn, or grows over more than one turn.

    Pass the successive values of a message field, such as a joint position, to `record_value`.
    """

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = self._travelled = 0.0
        self._jumps = False

    def record_value(self, value: float) -> None:
        """Record the next value of the message field that may be an angle.

        Args:
            value: The value, in rad if the field is an angle.
        """
        if self._first is None:
            self._first = self._last = value
        change = value - self._last
        self._jumps |= abs(abs(change) - math.tau) < JUMP
        self._travelled += abs(change)
        self._last = value

    def make_sine_and_cosine_advice(self, path: str) -> str:
        """Return advice to read an angle's sine and cosine if the angle jumps or grows.

        Args:
            path: The path of the message field, such as "position[hip_1]".

        Returns:
            The advice as text for the user; "" if the field's value neither jumps nor grows.
        """
        moved = abs(self._last - (self._first or 0.0))
        grows = moved > math.tau and moved > STRAIGHT * self._travelled
        if not (self._jumps or grows):
            return ""
        what = "jumps by 2 pi" if self._jumps else "grows over more than a turn"
        return f"{what}: read sin({path}) and cos({path}) instead"


class NameTimes(NamedTuple):
    """Statistics of the arrival times of those messages of a topic that contain one joint's name.

    Attributes:
        messages: The number of these messages.
        first_s: The arrival time of the first one in seconds.
        last_s: The arrival time of the newest one in seconds.
        gap_s: The longest time between two successive ones in seconds.
    """

    messages: int
    first_s: float
    last_s: float
    gap_s: float


@dataclass
class SurveyedTopic:
    """A topic that was listened to, with statistics of its messages.

    Attributes:
        name: The full name.
        type: The message type.
        publishers: The full names of the nodes that publish it.
        messages: The number of messages that arrived.
        first_s: The arrival time of the first message in seconds.
        last_s: The arrival time of the newest message in seconds.
        gap_s: The longest time in seconds between two messages. If messages list joint names, it
            is the longest time between two messages with the same name; names in
            `rarely_sent_joint_names` do not count.
        stamped: Whether any message had a stamp.
        ranges: The lowest and the highest value of each number, by field path.
        joints: The names that the messages list for their elements, such as those of joints; () if
            they list none.
        times: Statistics of the arrival times by joint name, because two drivers may publish
            different joints on one topic. If messages list no names, all are under the name "".
        turning: For each number that may be an angle, by field path, a detector of jumps by a full
            turn and of growth over more than one.
    """

    name: str
    type: str
    publishers: tuple[str, ...] = ()
    messages: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    gap_s: float = 0.0
    stamped: bool = False
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    joints: tuple[str, ...] = ()
    times: dict[str, NameTimes] = field(default_factory=dict)
    turning: dict[str, AngleDetector] = field(default_factory=dict)

    @property
    def rate_hz(self) -> float:
        """Messages per second; 0 if fewer than two arrived.

        If the messages list joint names, only those with the most frequent name are counted.
        """
        every = NameTimes(self.messages, self.first_s, self.last_s, self.gap_s)
        most = max(self.times.values(), key=lambda one: one.messages, default=every)
        spread_s = most.last_s - most.first_s
        return (most.messages - 1) / spread_s if spread_s > 0.0 else 0.0

    @property
    def rarely_sent_joint_names(self) -> dict[str, NameTimes]:
        """The names of joints that appear less than half as often as the most frequent name."""
        most = max((one.messages for one in self.times.values()), default=0)
        return {name: one for name, one in self.times.items() if 2 * one.messages < most}


@dataclass(frozen=True)
class SubscribedTopic:
    """A topic to which other nodes subscribe, probably to get commands on it.

    Attributes:
        name: The full name.
        type: The message type.
        subscribers: The full names of the nodes that subscribe to it.
    """

    name: str
    type: str
    subscribers: tuple[str, ...]


@dataclass(frozen=True)
class Survey:
    """The topics of a robot, as they were observed.

    Attributes:
        topics: The topics on which sensor readings are published.
        subscribed: The topics that may take commands.
        command_messages: If the topics are from a bag that a policy node recorded: the command
            messages of that node's wiring. Otherwise ().
    """

    topics: tuple[SurveyedTopic, ...]
    subscribed: tuple[SubscribedTopic, ...]
    command_messages: tuple[MessageConfig, ...] = ()


def survey_topics(namespace: str, seconds: float) -> Survey:
    """Listen to all topics in a namespace, and return their message types, rates and ranges.

    Args:
        namespace: The namespace of the topics; "" for all topics.
        seconds: How long to listen, from the first message on. If no message arrives, this returns
            after `DISCOVERY_S` seconds.

    Raises:
        ValueError: `namespace` is not a valid namespace.
    """
    prefix = f"/{namespace.strip('/')}/" if namespace.strip("/") else "/"
    topics: dict[str, SurveyedTopic] = {}
    with create_temporary_node("an_control_new", namespace) as node:
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        try:
            until_s, look_s, heard_any = time.monotonic() + DISCOVERY_S, 0.0, False
            while (now_s := time.monotonic()) < until_s:
                if not heard_any and any(one.messages for one in topics.values()):
                    heard_any, until_s = True, now_s + seconds
                if now_s >= look_s:
                    _subscribe_to_new_topics(node, prefix, topics)
                    look_s = now_s + LOOK_S
                executor.spin_once(timeout_sec=min(SLICE_S, until_s - now_s))
            for topic in topics.values():
                infos = node.get_publishers_info_by_topic(topic.name)
                topic.publishers = tuple(sorted({get_owner_node_name(one) for one in infos}))
            heard = tuple(topics[name] for name in sorted(topics) if topics[name].messages)
            return Survey(heard, tuple(_iterate_subscribed_topics(node, prefix, topics)))
        finally:
            executor.remove_node(node)
            executor.shutdown()


def _subscribe_to_new_topics(node: Node, prefix: str, topics: dict[str, SurveyedTopic]) -> None:
    """Subscribe to the sensor topics that have appeared since the previous call."""
    for name, types in node.get_topic_names_and_types():
        if (
            name in topics
            or not may_be_sensor_topic(name, prefix)
            or not node.count_publishers(name)
        ):
            continue
        if _is_command_topic(node, name):
            continue
        try:
            cls = import_message_class(types[0])
        except LookupError:
            continue
        _subscribe_to_topic(node, topics.setdefault(name, SurveyedTopic(name, types[0])), cls)


def _subscribe_to_topic(node: Node, topic: SurveyedTopic, message_class: Any) -> None:
    """Subscribe to a topic, so that each message updates the topic's statistics."""
    stamp_of = make_stamp_reader(message_class)

    def update_statistics_of_topic(message: Any) -> None:
        """Update the topic's statistics with a message that has just arrived."""
        update_topic_statistics(topic, message, stamp_of(message) is not None, time.monotonic())

    qos = find_strongest_common_qos_of_topic(node, topic.name, 10)
    node.create_subscription(message_class, topic.name, update_statistics_of_topic, qos)


def update_topic_statistics(
    topic: SurveyedTopic, message: Any, has_stamp: bool, now_s: float
) -> None:
    """Update a topic's statistics with a new message.

    Args:
        topic: The topic, which is changed.
        message: The message.
        has_stamp: Whether the message has a time stamp.
        now_s: The time in seconds at which the message arrived.
    """
    if not topic.messages:
        topic.first_s = now_s
    names = dict.fromkeys(_read_element_names(message))
    for name in names or ("",):
        count, first_s, last_s, gap_s = topic.times.get(name, NameTimes(0, now_s, now_s, 0.0))
        topic.times[name] = NameTimes(count + 1, first_s, now_s, max(gap_s, now_s - last_s))
    rarely_sent_joint_names = topic.rarely_sent_joint_names
    topic.gap_s = max(
        one.gap_s for name, one in topic.times.items() if name not in rarely_sent_joint_names
    )
    topic.joints = tuple(dict.fromkeys((*topic.joints, *names)))
    topic.messages, topic.last_s = topic.messages + 1, now_s
    topic.stamped |= has_stamp
    if topic.type in IMAGES:
        return
    for path, low, high in iterate_message_number_ranges(message):
        before = topic.ranges.get(path, (low, high))
        # unlike min and max, these leave out NaN
        topic.ranges[path] = float(np.fmin(low, before[0])), float(np.fmax(high, before[1]))
        if low == high and ANGULAR.search(path):
            topic.turning.setdefault(path, AngleDetector()).record_value(low)


def may_be_sensor_topic(name: str, prefix: str) -> bool:
    """Return whether a topic may carry a robot's sensor readings, judged by its name alone.

    Args:
        name: The full name of the topic.
        prefix: The robot's namespace with slashes around it.
    """
    return (
        name.startswith(prefix)
        and name not in SYSTEM_TOPICS
        and not name.endswith("/transition_event")
    )


def _is_command_topic(node: Node, name: str) -> bool:
    """Return whether a topic carries commands, or a policy node's reports about itself."""
    last = name.rpartition("/")[2]
    return bool(COMMANDS.search(last) and node.count_subscribers(name)) or _is_policy_report(
        node, name
    )


def _is_policy_report(node: Node, name: str) -> bool:
    """Return whether a topic carries a policy node's reports about itself."""
    publishers = node.get_publishers_info_by_topic(name)
    return any(is_report_of_policy_node(name, get_owner_node_name(one)) for one in publishers)


def is_report_of_policy_node(name: str, node_name: str) -> bool:
    """Return whether a topic's name is one under which a policy node reports about itself.

    Args:
        name: The full name of the topic.
        node_name: The full name of the node.
    """
    below = name.removeprefix(f"{node_name}/")
    return below != name and (below in POLICY_TOPICS or below.startswith("proposed/"))


def _iterate_subscribed_topics(
    node: Node, prefix: str, topics: dict[str, SurveyedTopic]
) -> Iterator[SubscribedTopic]:
    """Yield the topics to which nodes subscribe, apart from sensors and a policy node's reports."""
    for name, types in sorted(node.get_topic_names_and_types()):
        if name in topics or not may_be_sensor_topic(name, prefix) or _is_policy_report(node, name):
            continue
        infos = node.get_subscriptions_info_by_topic(name)
        subscribers = tuple(sorted({get_owner_node_name(one) for one in infos}))
        if subscribers:
            yield SubscribedTopic(name, types[0], subscribers)


def _read_element_names(message: Any) -> tuple[str, ...]:
    """Return the names that a message lists in its field `name`, such as those of joints.

    Without such a list the result is ().
    """
    names = getattr(message, "name", ())
    return tuple(names) if isinstance(names, list) else ()


def iterate_message_number_ranges(
    message: Any, prefix: str = ""
) -> Iterator[tuple[str, float, float]]:
    """Yield (field path, lowest value, highest value) for each number in a message.

    For example ("linear.x", 0.5, 0.5): both values are the number itself. Each element of an array
    has a path of its own. But a long array without names has a single path, such as "ranges[*]",
    with the lowest and highest of its elements. Stamps and covariances are left out. A quaternion
    is given as roll, pitch and yaw.

    Args:
        message: The message.
        prefix: If the message is a field of another one, its path there with a trailing dot.
    """
    for name, kind in list_field_types(message).items():
        path, value = prefix + name, getattr(message, name)
        if kind.message_type in _SKIPPED or "covariance" in name:
            continue
        if kind.message_type == QUATERNION and not kind.array:
            for angle, one in zip(
                ("roll", "pitch", "yaw"), _convert_quaternion_to_angles(value), strict=True
            ):
                if np.isfinite(one):
                    yield f"{angle}({path})", one, one
        elif kind.message_type and not kind.array:
            yield from iterate_message_number_ranges(value, f"{path}.")
        elif kind.is_numeric and not kind.array:
            if np.isfinite(number := float(value[0] if kind.base == "octet" else value)):
                yield path, number, number
        elif kind.is_numeric and len(value):
            elements = list(b"".join(value)) if kind.base == "octet" else value
            yield from _iterate_element_ranges(
                path, np.asarray(elements, np.float64), _read_element_names(message)
            )


_SKIPPED = {f"{one.replace('/', '/msg/')}" for one in (TIME, DURATION, "std_msgs/Header")}


def _iterate_element_ranges(
    path: str, values: np.ndarray, names: tuple[str, ...]
) -> Iterator[tuple[str, float, float]]:
    """Yield the field path, the lowest value and the highest value of each element of an array.

    Both values are the element itself. A long array without names is yielded as one path with a
    wildcard, such as ranges[*], with the lowest and the highest value of all its elements.
    """
    finite = np.isfinite(values)
    if len(names) == len(values):
        keys: tuple[object, ...] = names
    elif len(values) <= ELEMENTS:
        keys = tuple(range(len(values)))
    else:
        some = values[finite]
        if len(some):
            yield f"{path}[*]", float(some.min()), float(some.max())
        return
    for key, value, there in zip(keys, values.tolist(), finite, strict=True):
        if there:
            yield (
                format_element_path(path, key) if isinstance(key, str) else f"{path}[{key}]",
                value,
                value,
            )


def _convert_quaternion_to_angles(value: Any) -> tuple[float, ...]:
    """Convert a geometry_msgs/Quaternion to the angles (roll, pitch, yaw) in rad."""
    parts = value.x, value.y, value.z, value.w
    return tuple(function(*parts) for function in ANGLES.values())
