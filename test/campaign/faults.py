"""What the campaign can do to the policy node: each a context manager that breaks, then mends.

`topics` are the sources' topics, or all of them.
"""

from __future__ import annotations

import array
import copy
import itertools
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from std_msgs.msg import String

from an_control.wiring.messages import field_types
from an_control_sim.process import RELIABLE
from campaign import node_faults, participants
from campaign.robot_under_test import NAMESPACE, Deliver, RobotUnderTest

Topics = Sequence[str] | Literal["all"]


@contextmanager
def _delivering(robot: RobotUnderTest, topics: Topics, deliver: Deliver) -> Iterator[None]:
    """Send what goes to `topics` by `deliver`."""
    chosen: Collection[str] = robot.publishers.keys() if topics == "all" else topics

    def choose(topic: str, message: Any) -> None:
        (deliver if topic in chosen else robot.publish)(topic, message)

    chosen = set(chosen)
    robot.deliver = choose
    try:
        yield
    finally:
        robot.deliver = robot.publish


@contextmanager
def silent(robot: RobotUnderTest, topics: Topics = "all") -> Iterator[None]:
    """Nothing comes."""
    with _delivering(robot, topics, lambda topic, message: None):
        yield


@contextmanager
def late(robot: RobotUnderTest, topics: Topics = "all", delay_s: float = 0.3) -> Iterator[None]:
    """Everything comes that much later."""
    waiting: deque[tuple[float, str, Any]] = deque()

    def delay(topic: str, message: Any) -> None:
        now_s = time.monotonic()
        waiting.append((now_s + delay_s, topic, message))
        while waiting and waiting[0][0] <= now_s:
            robot.publish(*waiting.popleft()[1:])

    with _delivering(robot, topics, delay):
        yield


@contextmanager
def frozen(robot: RobotUnderTest, topics: Topics = "all") -> Iterator[None]:
    """The same message, stamp and all, comes again and again."""
    kept: dict[str, Any] = {}
    with _delivering(
        robot, topics, lambda topic, message: robot.publish(topic, kept.setdefault(topic, message))
    ):
        yield


@contextmanager
def filled(robot: RobotUnderTest, value: float, topics: Topics = "all") -> Iterator[None]:
    """Every floating-point number is `value`, which may be nan or inf."""

    def fill(topic: str, message: Any) -> None:
        _fill(message, value)
        robot.publish(topic, message)

    with _delivering(robot, topics, fill):
        yield


def _fill(message: Any, value: float) -> None:
    for name, kind in field_types(type(message)).items():
        if kind.message and not kind.array and name not in ("header", "stamp"):
            _fill(getattr(message, name), value)
        elif kind.base == "double":
            old = getattr(message, name)
            setattr(message, name, array.array("d", [value] * len(old)) if kind.array else value)


@contextmanager
def resized(robot: RobotUnderTest, length: int, topics: Topics = "all") -> Iterator[None]:
    """Every array of numbers has another length; the names beside it stay."""

    def resize(topic: str, message: Any) -> None:
        for name in ("position", "velocity", "effort"):
            if hasattr(message, name):
                setattr(message, name, array.array("d", [0.1] * length))
        robot.publish(topic, message)

    with _delivering(robot, topics, resize):
        yield


@contextmanager
def burst(robot: RobotUnderTest, copies: int, topics: Topics = "all") -> Iterator[None]:
    """Every message comes that many times."""

    def repeat(topic: str, message: Any) -> None:
        for _ in range(copies):
            robot.publish(topic, message)

    with _delivering(robot, topics, repeat):
        yield


@contextmanager
def nothing(robot: RobotUnderTest) -> Iterator[None]:
    """Nothing is broken: what the others are to be compared with."""
    yield


@contextmanager
def stray_names(
    robot: RobotUnderTest, count: int, always: bool = False, topic: str = "joint_states"
) -> Iterator[None]:
    """So many joints more, of names never heard before, in the first message or in every one."""
    sent: list[Any] = []

    def add(name: str, message: Any) -> None:
        if name == topic and (always or not sent):
            sent.append(message)
            message.name = [
                *message.name,
                *(f"stray_{robot.random.getrandbits(48):x}" for _ in range(count)),
            ]
            for field in ("position", "velocity"):
                getattr(message, field).extend([0.1] * count)
        robot.publish(name, message)

    with _delivering(robot, [topic], add):
        yield


@contextmanager
def halves(robot: RobotUnderTest, topic: str = "joint_states") -> Iterator[None]:
    """Two publishers say one half of the joints each, by turns."""
    second = robot.node.create_publisher(robot.publishers[topic].msg_type, topic, RELIABLE)

    def split(name: str, message: Any) -> None:
        other = copy.deepcopy(message)
        half = len(message.name) // 2
        for field in ("name", "position", "velocity"):
            values = getattr(message, field)
            setattr(message, field, values[:half])
            setattr(other, field, values[half:])
        other.header.stamp.nanosec ^= 1  # of its own, as two publishers' are
        robot.publish(name, message)
        second.publish(other)

    with _delivering(robot, [topic], split):
        yield
    robot.node.destroy_publisher(second)


@contextmanager
def flickering(robot: RobotUnderTest, field: str, topic: str = "joint_states") -> Iterator[None]:
    """An array is in every second message only."""
    turns = itertools.cycle((True, False))

    def empty(name: str, message: Any) -> None:
        if next(turns):
            setattr(message, field, array.array("d"))
        robot.publish(name, message)

    with _delivering(robot, [topic], empty):
        yield


@contextmanager
def thinned(robot: RobotUnderTest, every: int, topics: Topics = "all") -> Iterator[None]:
    """Of each topic only every n-th message comes."""
    counts: Counter[str] = Counter()

    def thin(topic: str, message: Any) -> None:
        counts[topic] += 1
        if counts[topic] % every == 0:
            robot.publish(topic, message)

    with _delivering(robot, topics, thin):
        yield


@contextmanager
def stamped_off(robot: RobotUnderTest, by_s: int, topics: Topics = "all") -> Iterator[None]:
    """Stamps are off by that much, as of a machine whose clock is wrong."""

    def shift(topic: str, message: Any) -> None:
        message.header.stamp.sec += by_s
        robot.publish(topic, message)

    with _delivering(robot, topics, shift):
        yield


@contextmanager
def wrong_type(robot: RobotUnderTest, topic: str) -> Iterator[None]:
    """Somebody publishes another type on a source's topic, beside the right one."""
    context = Context()  # one participant cannot have two types on a topic
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    other = Node("other", namespace=NAMESPACE, context=context)
    publisher = other.create_publisher(String, topic, 10)

    def both(topic: str, message: Any) -> None:
        publisher.publish(String(data="\0" * 1000))
        robot.publish(topic, message)

    with _delivering(robot, [topic], both):
        yield
    other.destroy_node()
    rclpy.shutdown(context=context)


@contextmanager
def wrong_qos(robot: RobotUnderTest) -> Iterator[None]:
    """The publishers come back best-effort."""
    robot.open(QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT))
    yield
    robot.open()


@contextmanager
def twin(robot: RobotUnderTest, topic: str, value: float) -> Iterator[None]:
    """A second publisher of a source's topic says something else."""
    publisher = robot.node.create_publisher(robot.publishers[topic].msg_type, topic, 10)

    def both(topic: str, message: Any) -> None:
        robot.publish(topic, message)
        _fill(message, value)
        publisher.publish(message)

    with _delivering(robot, [topic], both):
        yield
    robot.node.destroy_publisher(publisher)


@contextmanager
def robot_gone(robot: RobotUnderTest) -> Iterator[None]:
    """Its publishers vanish, as with a simulator that is killed; later there are new ones."""
    robot.shut()
    robot.broken_s = time.monotonic()
    yield
    robot.open()


@contextmanager
def clock(robot: RobotUnderTest, jump_s: float | None) -> Iterator[None]:
    """ROS time jumps, or with null stops, for a node that follows /clock."""
    robot.clock_offset_s = jump_s
    yield
    robot.clock_offset_s = 0.0


@contextmanager
def broken(robot: RobotUnderTest, how: str) -> Iterator[None]:
    """The policy breaks (`campaign.breakable` says how)."""
    robot.policy.breakage.write_text(how)
    robot.policy.signal(signal.SIGUSR1)
    yield
    if how.split()[0] in ("slow", "nan"):
        robot.policy.signal(signal.SIGUSR1)
    if how == "raise":
        node_faults.activate(robot)


FAULTS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        nothing,
        silent,
        late,
        frozen,
        filled,
        resized,
        burst,
        stray_names,
        halves,
        flickering,
        thinned,
        stamped_off,
        wrong_type,
        wrong_qos,
        twin,
        robot_gone,
        clock,
        broken,
        node_faults.estop,
        node_faults.inactive,
        node_faults.other_model,
        node_faults.rewired,
        node_faults.ended,
        node_faults.two_policies,
        node_faults.hostile_parameters,
        node_faults.garbage_model,
        node_faults.disk_full,
        node_faults.stalled,
        node_faults.interrupted_start,
        node_faults.large_model,
        node_faults.fifo_wiring,
        participants.joins,
        participants.parameter_calls,
        participants.rewires,
        participants.two_clocks,
    )
}
