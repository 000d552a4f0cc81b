"""What a running robot offers: its topics with their types, names, rates and ranges, listened to.

Only what a wiring could read: topics that somebody publishes, of message types that hold numbers.
Nothing is sent.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from an_control.ros.graph import DISCOVERY_S, owner, temporary_node
from an_control.ros.inputs import publishers_qos
from an_control.wiring.messages import (
    ANGLES,
    DURATION,
    TIME,
    element,
    field_types,
    message_class,
    stamp_reader,
)

SLICE_S, LOOK_S = 0.05, 0.5
QUATERNION = "geometry_msgs/msg/Quaternion"
ELEMENTS = 16
"""Elements of an array without names that get a channel each; of a longer one a wildcard."""
OWN = ("/rosout", "/parameter_events", "/clock", "/diagnostics", "/tf", "/tf_static")
"""Topics that say nothing of a robot's sensors."""
COMMANDS = re.compile(r"cmd|command|setpoint|target", re.IGNORECASE)
"""In a topic's last name: it carries commands, and so is nothing to read."""
INSIDE = ("channels", "attention", "keys", "attended", "proposed")
"""What a policy node says of itself."""
ANGULAR = re.compile(r"position\[|yaw\(|roll\(|theta|angle|heading", re.IGNORECASE)
"""In the path of a number that may be an angle."""
JUMP, STRAIGHT = 0.5, 0.95
"""By how much a jump may differ from 2 pi, in rad; the share of all changes that go one way where
an angle grows."""
IMAGES = ("sensor_msgs/msg/Image", "sensor_msgs/msg/CompressedImage")


class Turning:
    """Whether the values of a number jump by a turn, or grow over more than one, as angles may."""

    def __init__(self) -> None:
        self._first: float | None = None
        self._last = self._travelled = 0.0
        self._jumps = False

    def note(self, value: float) -> None:
        """Note the next value."""
        if self._first is None:
            self._first = self._last = value
        change = value - self._last
        self._jumps |= abs(abs(change) - math.tau) < JUMP
        self._travelled += abs(change)
        self._last = value

    def hint(self, path: str) -> str:
        """Return what to read in place of the field at this path, or ""."""
        moved = abs(self._last - (self._first or 0.0))
        grows = moved > math.tau and moved > STRAIGHT * self._travelled
        if not (self._jumps or grows):
            return ""
        what = "jumps by 2 pi" if self._jumps else "grows over more than a turn"
        return f"{what}: read sin({path}) and cos({path}) instead"


@dataclass
class Topic:
    """A topic that was heard: numbers by field path, with their lowest and highest values."""

    name: str
    """In full."""
    type: str
    publishers: tuple[str, ...] = ()
    messages: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    gap_s: float = 0.0
    """The longest time between two messages."""
    stamped: bool = False
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    joints: tuple[str, ...] = ()
    """The names of a JointState."""
    turning: dict[str, Turning] = field(default_factory=dict)
    """By field path, whether a number may be an angle that turns on and on."""

    @property
    def rate_hz(self) -> float:
        """0 where fewer than two messages came."""
        spread_s = self.last_s - self.first_s
        return (self.messages - 1) / spread_s if spread_s > 0.0 else 0.0


@dataclass(frozen=True)
class Taken:
    """A topic that somebody listens to and that is nothing to read: it may take commands."""

    name: str
    type: str
    subscribers: tuple[str, ...]


@dataclass(frozen=True)
class Survey:
    """What was found."""

    topics: tuple[Topic, ...]
    taken: tuple[Taken, ...]


def survey(namespace: str, seconds: float) -> Survey:
    """Listen to all topics in a namespace, by default all, for a time from the first message.

    Where no message comes, it ends after DISCOVERY_S. Raises ValueError where that is no namespace.
    """
    with temporary_node("an_control_new", namespace) as node:
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        try:
            return _survey(node, executor, namespace.strip("/"), seconds)
        finally:
            executor.remove_node(node)
            executor.shutdown()


def _survey(node: Node, executor: SingleThreadedExecutor, namespace: str, seconds: float) -> Survey:
    prefix = f"/{namespace}/" if namespace else "/"
    topics: dict[str, Topic] = {}
    until_s, look_s, heard_any = time.monotonic() + DISCOVERY_S, 0.0, False
    while (now_s := time.monotonic()) < until_s:
        if not heard_any and any(one.messages for one in topics.values()):
            heard_any, until_s = True, now_s + seconds
        if now_s >= look_s:
            _look(node, prefix, topics)
            look_s = now_s + LOOK_S
        executor.spin_once(timeout_sec=min(SLICE_S, until_s - now_s))
    for topic in topics.values():
        infos = node.get_publishers_info_by_topic(topic.name)
        topic.publishers = tuple(sorted({owner(one) for one in infos}))
    heard = tuple(topics[name] for name in sorted(topics) if topics[name].messages)
    return Survey(heard, tuple(_taken(node, prefix, topics)))


def _look(node: Node, prefix: str, topics: dict[str, Topic]) -> None:
    """Listen to the topics that have turned up."""
    for name, types in node.get_topic_names_and_types():
        if name in topics or not _concerns(name, prefix) or not node.count_publishers(name):
            continue
        if _carries_commands(node, name):
            continue
        try:
            cls = message_class(types[0])
        except LookupError:
            continue
        _listen(node, topics.setdefault(name, Topic(name, types[0])), cls)


def _listen(node: Node, topic: Topic, cls: Any) -> None:
    stamp_of = stamp_reader(cls)

    def hear(message: Any) -> None:
        now_s = time.monotonic()
        if topic.messages:
            topic.gap_s = max(topic.gap_s, now_s - topic.last_s)
        else:
            topic.first_s = now_s
        topic.joints = tuple(dict.fromkeys((*topic.joints, *_joints(message))))
        topic.messages, topic.last_s = topic.messages + 1, now_s
        topic.stamped |= stamp_of(message) is not None
        if topic.type in IMAGES:
            return
        for path, low, high in numbers(message):
            before = topic.ranges.get(path, (low, high))
            topic.ranges[path] = min(low, before[0]), max(high, before[1])
            if low == high and ANGULAR.search(path):
                topic.turning.setdefault(path, Turning()).note(low)

    qos = publishers_qos(node, topic.name, 10)
    node.create_subscription(cls, topic.name, hear, qos)


def _concerns(name: str, prefix: str) -> bool:
    """Whether a topic may be one of the robot's own."""
    return name.startswith(prefix) and name not in OWN and not name.endswith("/transition_event")


def _carries_commands(node: Node, name: str) -> bool:
    """Whether a topic drives the robot, or tells what a policy node computes."""
    head, _, last = name.rpartition("/")
    if COMMANDS.search(last) and node.count_subscribers(name):
        return True
    owners = {owner(one) for one in node.get_publishers_info_by_topic(name)}
    return last in INSIDE and head in owners


def _taken(node: Node, prefix: str, topics: dict[str, Topic]) -> Iterator[Taken]:
    for name, types in sorted(node.get_topic_names_and_types()):
        if name in topics or not _concerns(name, prefix):
            continue
        infos = node.get_subscriptions_info_by_topic(name)
        subscribers = tuple(sorted({owner(one) for one in infos}))
        if subscribers:
            yield Taken(name, types[0], subscribers)


def _joints(message: Any) -> tuple[str, ...]:
    """The names that stand beside arrays in a message."""
    names = getattr(message, "name", ())
    return tuple(names) if isinstance(names, list) else ()


def numbers(message: Any, before: str = "") -> Iterator[tuple[str, float, float]]:
    """The numbers of a message as field paths, each with the lowest and highest that it names.

    Stamps and covariances are left out; a quaternion is its three angles.
    """
    for name, kind in field_types(message).items():
        path, value = before + name, getattr(message, name)
        if kind.message in _SKIPPED or "covariance" in name:
            continue
        if kind.message == QUATERNION and not kind.array:
            for angle, one in zip(("roll", "pitch", "yaw"), _angles(value), strict=True):
                if np.isfinite(one):
                    yield f"{angle}({path})", one, one
        elif kind.message and not kind.array:
            yield from numbers(value, f"{path}.")
        elif kind.numeric and not kind.array:
            yield path, float(value), float(value)
        elif kind.numeric and len(value):
            yield from _elements(path, np.asarray(value, np.float64), _joints(message))


_SKIPPED = {f"{one.replace('/', '/msg/')}" for one in (TIME, DURATION, "std_msgs/Header")}


def _elements(
    path: str, values: np.ndarray, names: tuple[str, ...]
) -> Iterator[tuple[str, float, float]]:
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
            yield element(path, key) if isinstance(key, str) else f"{path}[{key}]", value, value


def _angles(value: Any) -> tuple[float, ...]:
    parts = value.x, value.y, value.z, value.w
    return tuple(function(*parts) for function in ANGLES.values())
