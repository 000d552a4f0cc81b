"""What the campaign can do to the policy node: each a context manager that breaks, then mends.

`topics` are the sources' topics, or all of them.
"""

from __future__ import annotations

import array
import copy
import itertools
import math
import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from typing import Any, Literal

import rclpy
from geometry_msgs.msg import Quaternion
from rclpy.clock import Clock, ClockType
from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState
from std_msgs.msg import String

from an_control.ros.outputs import set_stamp
from an_control.wiring.messages import import_message_class, list_field_types
from an_control_sim.process import RELIABLE
from campaign import node_faults, participants
from campaign.robot_under_test import NAMESPACE, OTHER, Deliver, RobotUnderTest

Topics = Sequence[str] | Literal["all"]
KEEPS = QoSProfile(depth=1, durability=DurabilityPolicy.TRANSIENT_LOCAL)
TURNING, TURNS_RAD_S = "turning", 8.0
PROPOSED = 0.7
"""The share of the policy's rate at which it must at least propose."""


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
    for name, kind in list_field_types(type(message)).items():
        if kind.message_type and not kind.array and name not in ("header", "stamp"):
            _fill(getattr(message, name), value)
        elif kind.base == "double":
            old = getattr(message, name)
            setattr(message, name, array.array("d", [value] * len(old)) if kind.array else value)


@contextmanager
def resized(
    robot: RobotUnderTest,
    length: int,
    topics: Topics = "all",
    fields: Sequence[str] = ("position", "velocity", "effort"),
) -> Iterator[None]:
    """These arrays of numbers have another length; the names beside them stay."""

    def resize(topic: str, message: Any) -> None:
        for name in fields:
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
def stamped_alike(robot: RobotUnderTest, topics: Topics = "all") -> Iterator[None]:
    """Every message of a topic has the stamp of the first, as of a driver that stamps once."""
    stamps: dict[str, Any] = {}

    def stamp(topic: str, message: Any) -> None:
        message.header.stamp = stamps.setdefault(topic, message.header.stamp)
        robot.publish(topic, message)

    with _delivering(robot, topics, stamp):
        yield


@contextmanager
def doubled(robot: RobotUnderTest, topics: Topics = "all") -> Iterator[None]:
    """Between two messages of a topic comes one more, with a stamp of its own."""
    newest: dict[str, Any] = {}

    def keep(topic: str, message: Any) -> None:
        newest[topic] = message
        robot.publish(topic, message)

    def repeat() -> None:
        for topic, message in newest.items():
            set_stamp(message.header.stamp, time.time_ns())
            robot.publish(topic, message)

    with _repeating(robot, repeat), _delivering(robot, topics, keep):
        yield


@contextmanager
def renamed(robot: RobotUnderTest, form: str, topic: str = "joint_states") -> Iterator[None]:
    """Every joint has another name: `form`, with {name} or {NAME} in it."""

    def rename(name: str, message: Any) -> None:
        message.name = [form.format(name=one, NAME=one.upper()) for one in message.name]
        robot.publish(name, message)

    with _delivering(robot, [topic], rename):
        yield


@contextmanager
def unoriented(robot: RobotUnderTest, topic: str = "imu") -> Iterator[None]:
    """An Imu says that it has no orientation, beside an identity quaternion, as drivers do."""

    def unorient(name: str, message: Any) -> None:
        message.orientation = Quaternion(w=1.0)
        message.orientation_covariance[0] = -1.0
        robot.publish(name, message)

    with _delivering(robot, [topic], unorient):
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
def twin(robot: RobotUnderTest, topic: str, value: float, form: str = "{name}") -> Iterator[None]:
    """Another node publishes something else on a source's topic, of the names `form`."""
    with _other_node(robot, "joint_state_publisher") as other:
        publisher = other.create_publisher(robot.publishers[topic].msg_type, topic, 10)

        def both(topic: str, message: Any) -> None:
            robot.publish(topic, message)
            _fill(message, value)
            message.name = [form.format(name=one) for one in message.name]
            message.header.stamp.nanosec ^= 1  # of its own, as two publishers' are
            publisher.publish(message)

        with _delivering(robot, [topic], both):
            yield


@contextmanager
def latched(robot: RobotUnderTest, source: str) -> Iterator[None]:
    """A source moves to a topic with one latched message, and a silent publisher that is volatile.

    The policy node must get that message, which was sent before it listened.
    """
    (topic,) = [one.topic for one in robot.wiring.sources if one.name == source]
    other, kind = f"{topic}_latched", robot.publishers[topic].msg_type
    sent: list[Any] = []
    with _other_node(robot, "planner") as planner, _other_node(robot, "joystick") as joystick:
        joystick.create_publisher(kind, other, 10)
        publisher = planner.create_publisher(kind, other, KEEPS)

        def once(name: str, message: Any) -> None:
            if not sent:
                sent.append(message)
                publisher.publish(message)
            robot.publish(name, message)

        with _delivering(robot, [topic], once):
            robot.play(participants.DISCOVERY_S)
        robot.begin()
        node_faults.set_parameter(robot, f"sources.{source}.topic", other)
        robot.diagnosed.clear()
        yield
        node_faults.set_parameter(robot, f"sources.{source}.topic", topic)


@contextmanager
def taken_over(robot: RobotUnderTest, value: float, shadow_s: float) -> Iterator[None]:
    """Another controller commands `value` while the policy node proposes; then it commands too."""
    command = robot.wiring.command
    with _other_node(robot, "other_controller") as other:
        publisher = other.create_publisher(JointState, command.messages[0].topic, 10)
        message = JointState(
            name=list(command.names), effort=array.array("d", [value] * len(command.names))
        )
        message.header.frame_id = OTHER
        robot.begin()
        with _repeating(robot, lambda: publisher.publish(message)):
            node_faults.set_parameter(robot, "shadow", True)
            robot.play(participants.DISCOVERY_S)
            before = len(robot.heard.at_s)
            robot.play(shadow_s)
            if more := len(robot.heard.at_s) - before:
                robot.complaints.append(f"{more} commands in shadow")
            node_faults.set_parameter(robot, "shadow", False)
            robot.broken_s = time.monotonic()
            yield


@contextmanager
def _other_node(robot: RobotUnderTest, name: str) -> Iterator[Node]:
    """Have another node in the robot's namespace; it is not spun."""
    context = robot.node.context
    other = Node(name, namespace=NAMESPACE, context=context, start_parameter_services=False)
    try:
        yield other
    finally:
        other.destroy_node()


@contextmanager
def reloaded(
    robot: RobotUnderTest, changes: dict[str, Any], messages: dict[str, dict[str, Any]]
) -> Iterator[None]:
    """The wiring's file changes and is read again; another node, a driver, sends `messages`.

    messages  by topic the `type`, and `values` by path, in which TURNING stands for an angle of a
              wheel that turns on and on; with `latched` it is sent once only
    """
    with _other_node(robot, "driver") as driver:
        repeated = []
        for topic, one in messages.items():
            kind, latches = import_message_class(one["type"]), one.get("latched", False)
            publisher = driver.create_publisher(kind, topic, KEEPS if latches else 10)
            send = partial(_send, publisher, kind(), one["values"])
            if latches:
                send()
            else:
                repeated.append(send)
        with _repeating(robot, lambda: [send() for send in repeated]):
            robot.play(participants.DISCOVERY_S)
            with node_faults.changed_file(robot, changes):
                yield


def _send(publisher: Any, message: Any, values: dict[str, Any]) -> None:
    for path, value in values.items():
        *inside, name = path.split(".")
        setattr(reduce(getattr, inside, message), name, _turned(value))
    set_stamp(message.header.stamp, time.time_ns())
    publisher.publish(message)


@contextmanager
def _repeating(robot: RobotUnderTest, send: Callable[[], object]) -> Iterator[None]:
    """Call `send` at the robot's rate, and never after the end, as a timer alone might."""
    running = True
    clock = Clock(clock_type=ClockType.STEADY_TIME)
    timer = robot.node.create_timer(robot.step_s, lambda: running and send(), clock=clock)
    try:
        yield
    finally:
        running = False
        robot.node.destroy_timer(timer)


def _turned(value: Any) -> Any:
    """Return the value with an angle (rad), within -pi..pi, in place of each TURNING."""
    if isinstance(value, list):
        return [_turned(one) for one in value]
    return math.remainder(TURNS_RAD_S * time.monotonic(), math.tau) if value == TURNING else value


@contextmanager
def latching_driver(robot: RobotUnderTest) -> Iterator[None]:
    """A driver subscribes to the commands and wants what was latched, which they never are."""
    command = robot.wiring.command.messages[0]
    with _other_node(robot, "driver") as driver:
        kind = import_message_class(command.type)
        driver.create_subscription(kind, command.topic, lambda message: None, KEEPS)
        yield


@contextmanager
def proposing(robot: RobotUnderTest, changes: dict[str, Any]) -> Iterator[None]:
    """The policy node is started in shadow on a changed wiring: it must propose at its rate."""
    type_ = import_message_class(robot.wiring.command.messages[0].type)
    proposed: list[tuple[float, ...]] = []
    content = robot.policy.wiring.read_bytes()
    robot.policy.stop()
    robot.begin()
    robot.policy.change_wiring(changes)
    robot.policy.start({"shadow": True})
    topic = f"{robot.policy.name}/proposed"
    heard = robot.node.create_subscription(
        type_, topic, lambda message: proposed.append(tuple(message.position)), 1000
    )
    robot.until(lambda: bool(proposed), participants.START_S)
    proposed.clear()
    robot.broken_s = time.monotonic()
    yield
    lasted_s = time.monotonic() - robot.broken_s
    if len(set(proposed)) < (least := PROPOSED * lasted_s / robot.step_s):
        robot.complaints.append(
            f"{len(set(proposed))} proposals in {lasted_s:.1f} s, {least:.0f} wanted"
        )
    robot.node.destroy_subscription(heard)
    robot.policy.stop()
    robot.policy.wiring.write_bytes(content)
    robot.policy.start()


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
        stamped_alike,
        doubled,
        renamed,
        unoriented,
        wrong_type,
        wrong_qos,
        twin,
        latched,
        taken_over,
        reloaded,
        latching_driver,
        proposing,
        robot_gone,
        clock,
        broken,
        node_faults.estop,
        node_faults.inactive,
        node_faults.other_model,
        node_faults.rewired,
        node_faults.started,
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
