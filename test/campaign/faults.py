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
from an_control_sim.bridge.process import RELIABLE
from campaign import node_faults, strangers
from campaign.stage import NAMESPACE, Deliver, Stage

Topics = Sequence[str] | Literal["all"]


@contextmanager
def _delivering(stage: Stage, topics: Topics, deliver: Deliver) -> Iterator[None]:
    """Send what goes to `topics` by `deliver`."""
    chosen: Collection[str] = stage.publishers.keys() if topics == "all" else topics

    def choose(topic: str, message: Any) -> None:
        (deliver if topic in chosen else stage.publish)(topic, message)

    chosen = set(chosen)
    stage.deliver = choose
    try:
        yield
    finally:
        stage.deliver = stage.publish


@contextmanager
def silent(stage: Stage, topics: Topics = "all") -> Iterator[None]:
    """Nothing comes."""
    with _delivering(stage, topics, lambda topic, message: None):
        yield


@contextmanager
def late(stage: Stage, topics: Topics = "all", delay_s: float = 0.3) -> Iterator[None]:
    """Everything comes that much later."""
    waiting: deque[tuple[float, str, Any]] = deque()

    def delay(topic: str, message: Any) -> None:
        now_s = time.monotonic()
        waiting.append((now_s + delay_s, topic, message))
        while waiting and waiting[0][0] <= now_s:
            stage.publish(*waiting.popleft()[1:])

    with _delivering(stage, topics, delay):
        yield


@contextmanager
def frozen(stage: Stage, topics: Topics = "all") -> Iterator[None]:
    """The same message, stamp and all, comes again and again."""
    kept: dict[str, Any] = {}
    with _delivering(
        stage, topics, lambda topic, message: stage.publish(topic, kept.setdefault(topic, message))
    ):
        yield


@contextmanager
def filled(stage: Stage, value: float, topics: Topics = "all") -> Iterator[None]:
    """Every floating-point number is `value`, which may be nan or inf."""

    def fill(topic: str, message: Any) -> None:
        _fill(message, value)
        stage.publish(topic, message)

    with _delivering(stage, topics, fill):
        yield


def _fill(message: Any, value: float) -> None:
    for name, kind in field_types(type(message)).items():
        if kind.message and not kind.array and name not in ("header", "stamp"):
            _fill(getattr(message, name), value)
        elif kind.base == "double":
            old = getattr(message, name)
            setattr(message, name, array.array("d", [value] * len(old)) if kind.array else value)


@contextmanager
def resized(stage: Stage, length: int, topics: Topics = "all") -> Iterator[None]:
    """Every array of numbers has another length; the names beside it stay."""

    def resize(topic: str, message: Any) -> None:
        for name in ("position", "velocity", "effort"):
            if hasattr(message, name):
                setattr(message, name, array.array("d", [0.1] * length))
        stage.publish(topic, message)

    with _delivering(stage, topics, resize):
        yield


@contextmanager
def burst(stage: Stage, copies: int, topics: Topics = "all") -> Iterator[None]:
    """Every message comes that many times."""

    def repeat(topic: str, message: Any) -> None:
        for _ in range(copies):
            stage.publish(topic, message)

    with _delivering(stage, topics, repeat):
        yield


@contextmanager
def nothing(stage: Stage) -> Iterator[None]:
    """Nothing is broken: what the others are to be compared with."""
    yield


@contextmanager
def stray_names(
    stage: Stage, count: int, always: bool = False, topic: str = "joint_states"
) -> Iterator[None]:
    """So many joints more, of names never heard before, in the first message or in every one."""
    sent: list[Any] = []

    def add(name: str, message: Any) -> None:
        if name == topic and (always or not sent):
            sent.append(message)
            message.name = [
                *message.name,
                *(f"stray_{stage.random.getrandbits(48):x}" for _ in range(count)),
            ]
            for field in ("position", "velocity"):
                getattr(message, field).extend([0.1] * count)
        stage.publish(name, message)

    with _delivering(stage, [topic], add):
        yield


@contextmanager
def halves(stage: Stage, topic: str = "joint_states") -> Iterator[None]:
    """Two publishers say one half of the joints each, by turns."""
    second = stage.node.create_publisher(stage.publishers[topic].msg_type, topic, RELIABLE)

    def split(name: str, message: Any) -> None:
        other = copy.deepcopy(message)
        half = len(message.name) // 2
        for field in ("name", "position", "velocity"):
            values = getattr(message, field)
            setattr(message, field, values[:half])
            setattr(other, field, values[half:])
        other.header.stamp.nanosec ^= 1  # of its own, as two publishers' are
        stage.publish(name, message)
        second.publish(other)

    with _delivering(stage, [topic], split):
        yield
    stage.node.destroy_publisher(second)


@contextmanager
def flickering(stage: Stage, field: str, topic: str = "joint_states") -> Iterator[None]:
    """An array is in every second message only."""
    turns = itertools.cycle((True, False))

    def empty(name: str, message: Any) -> None:
        if next(turns):
            setattr(message, field, array.array("d"))
        stage.publish(name, message)

    with _delivering(stage, [topic], empty):
        yield


@contextmanager
def thinned(stage: Stage, every: int, topics: Topics = "all") -> Iterator[None]:
    """Of each topic only every n-th message comes."""
    counts: Counter[str] = Counter()

    def thin(topic: str, message: Any) -> None:
        counts[topic] += 1
        if counts[topic] % every == 0:
            stage.publish(topic, message)

    with _delivering(stage, topics, thin):
        yield


@contextmanager
def stamped_off(stage: Stage, by_s: int, topics: Topics = "all") -> Iterator[None]:
    """Stamps are off by that much, as of a machine whose clock is wrong."""

    def shift(topic: str, message: Any) -> None:
        message.header.stamp.sec += by_s
        stage.publish(topic, message)

    with _delivering(stage, topics, shift):
        yield


@contextmanager
def wrong_type(stage: Stage, topic: str) -> Iterator[None]:
    """Somebody publishes another type on a source's topic, beside the right one."""
    context = Context()  # one participant cannot have two types on a topic
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    stranger = Node("stranger", namespace=NAMESPACE, context=context)
    publisher = stranger.create_publisher(String, topic, 10)

    def both(topic: str, message: Any) -> None:
        publisher.publish(String(data="\0" * 1000))
        stage.publish(topic, message)

    with _delivering(stage, [topic], both):
        yield
    stranger.destroy_node()
    rclpy.shutdown(context=context)


@contextmanager
def wrong_qos(stage: Stage) -> Iterator[None]:
    """The publishers come back best-effort."""
    stage.open(QoSProfile(depth=1, reliability=ReliabilityPolicy.BEST_EFFORT))
    yield
    stage.open()


@contextmanager
def twin(stage: Stage, topic: str, value: float) -> Iterator[None]:
    """A second publisher of a source's topic says something else."""
    publisher = stage.node.create_publisher(stage.publishers[topic].msg_type, topic, 10)

    def both(topic: str, message: Any) -> None:
        stage.publish(topic, message)
        _fill(message, value)
        publisher.publish(message)

    with _delivering(stage, [topic], both):
        yield
    stage.node.destroy_publisher(publisher)


@contextmanager
def robot_gone(stage: Stage) -> Iterator[None]:
    """Its publishers vanish, as with a simulator that is killed; later there are new ones."""
    stage.shut()
    stage.broken_s = time.monotonic()
    yield
    stage.open()


@contextmanager
def clock(stage: Stage, jump_s: float | None) -> Iterator[None]:
    """ROS time jumps, or with null stops, for a node that follows /clock."""
    stage.clock_offset_s = jump_s
    yield
    stage.clock_offset_s = 0.0


@contextmanager
def broken(stage: Stage, how: str) -> Iterator[None]:
    """The policy breaks (`campaign.breakable` says how)."""
    stage.policy.breakage.write_text(how)
    stage.policy.signal(signal.SIGUSR1)
    yield
    if how.split()[0] in ("slow", "nan"):
        stage.policy.signal(signal.SIGUSR1)
    if how == "raise":
        node_faults.activate(stage)


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
        strangers.joins,
        strangers.parameter_calls,
        strangers.rewires,
        strangers.two_clocks,
    )
}
