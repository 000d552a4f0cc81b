"""What a wiring's sources say on a running robot, for a while: rates, gaps, stamps and readings.

Nothing is sent, and the topics are read by the very table that the policy node reads them by.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial

import numpy as np
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from an_control.commissioning.doctor.data_checks import Series, check_series
from an_control.commissioning.doctor.live import LiveRecorder
from an_control.commissioning.survey import ANGULAR, Turning
from an_control.ros.graph import (
    DISCOVERY_S,
    elsewhere,
    of_type,
    owner,
    temporary_node,
    unheard_commands,
    wrong_types,
)
from an_control.ros.inputs import Inputs, publishers_qos, wrong_clock, wrong_rate
from an_control.ros.outputs import COMMAND_QOS
from an_control.wiring import ChannelTable, SourceConfig, Wiring
from an_control.wiring.command import MessageFields

SLICE_S = 0.05
ENOUGH = 5
"""Messages from which on a rate is judged."""
KEPT = 100_000
"""Messages of a source whose times are kept."""


@dataclass
class Heard:
    """One source: how its messages came. Times are of the steady clock, in seconds."""

    config: SourceConfig
    topic: str = ""
    """With its namespace."""
    publishers: tuple[str, ...] = ()
    quality: str = ""
    other_types: str = ""
    """Publishers of other types, in words."""
    elsewhere: str = ""
    """Where messages of its type are to be had, in words."""
    rivals: tuple[str, ...] = ()
    """What to say of nodes that send the same channels."""
    times_s: list[float] = field(default_factory=list)
    stamps_ns: list[int | None] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)
    """From each stamp to the arrival, by the node's clock."""

    @property
    def rate_hz(self) -> float | None:
        """Messages per second; None where fewer than two came."""
        if len(self.times_s) < 2 or self.times_s[-1] <= self.times_s[0]:
            return None
        return (len(self.times_s) - 1) / (self.times_s[-1] - self.times_s[0])

    @property
    def longest_gap_s(self) -> float | None:
        """Between two messages."""
        return float(np.diff(self.times_s).max()) if len(self.times_s) > 1 else None

    @property
    def delay_s(self) -> float | None:
        """The usual one; None without stamps."""
        return float(np.median(self.delays_s)) if self.delays_s else None

    def problem(self, seconds: float, control_hz: float) -> str:
        """Return what is wrong with it for a policy at `control_hz`, or ""."""
        if self.other_types:
            return f"publisher of {self.other_types}"
        if not self.publishers:
            return f"no publisher{self.elsewhere}"
        if not self.times_s:
            return f"no message in {seconds:g} s"
        stamps = [one for one in self.stamps_ns if one is not None]
        if len(stamps) > 2 and len(set(stamps)) == 1:
            return (
                "every message has the same stamp, and so only the first one counts: the sender"
                " must stamp each message anew, or leave the stamp 0"
            )
        if self.rivals:
            return "; ".join(self.rivals)
        gap_s, limit_s = self.longest_gap_s, self.config.max_age_s
        wrong = []
        if gap_s is not None and 0.0 < limit_s < gap_s:
            wrong.append(
                f"up to {gap_s:.3g} s without a message, but max_age_s is {limit_s:g}: raise it, or"
                " find out what delays the messages"
            )
        if self.rate_hz and len(self.times_s) >= ENOUGH and len(self.publishers) == 1:
            wrong.append(wrong_rate(self.config, [self.rate_hz], control_hz))
        wrong.append(wrong_clock(self.config, -(self.delay_s or 0.0)))
        return "; ".join(filter(None, wrong))


@dataclass
class Range:
    """What a channel read, scaled and clipped as the policy gets it."""

    count: int = 0
    low: float = np.inf
    high: float = -np.inf
    clipped: int = 0
    turning: Turning = field(default_factory=Turning)
    turns: str = ""
    """What to say of an angle that turns on and on."""


@dataclass(frozen=True)
class Listened:
    """All that was heard in `seconds`."""

    seconds: float
    sources: tuple[Heard, ...]
    ranges: dict[str, Range]
    """By channel id; a camera's patches are not among them."""
    reads: int
    """How often the readings were taken."""
    missing: dict[str, list[str]]
    """By reason, the channels that should be there and are not, at the end."""
    control_hz: float
    commands: tuple[str, ...]
    """Of each topic of the commands, who hears it and who sends on it now."""
    wrong_commands: tuple[str, ...]
    """Why nobody would hear commands, or who else commands."""
    disagreements: tuple[str, ...] = ()
    """What the readings say against each other, see `check_series`."""


def listen(
    wiring: Wiring, namespace: str, seconds: float, recorder: LiveRecorder | None = None
) -> Listened:
    """Listen to a wiring's sources in a namespace; let `recorder` record meanwhile.

    WiringError where it does not fit its types, ValueError where that is no namespace.
    """
    table = ChannelTable(wiring)
    with temporary_node("an_control_check", namespace) as node:
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        try:
            return _listen(node, executor, table, seconds, recorder)
        finally:
            executor.remove_node(node)
            executor.shutdown()


def _listen(
    node: Node,
    executor: SingleThreadedExecutor,
    table: ChannelTable,
    seconds: float,
    recorder: LiveRecorder | None,
) -> Listened:
    wiring = table.wiring
    heard = {one.name: Heard(one) for one in wiring.sources}
    ranges: dict[str, Range] = {}
    history: list[tuple[float, dict[str, float]]] = []
    inputs = Inputs(node, table, time.monotonic_ns, partial(_note, node, heard), 1, informed=True)
    if recorder is not None:
        recorder.open(node)
    find(node, executor, [one.topic for one in wiring.sources])
    until_s, reads, read_s = time.monotonic() + seconds, 0, 0.0
    while (now_s := time.monotonic()) < until_s:
        executor.spin_once(timeout_sec=min(SLICE_S, until_s - now_s))
        if time.monotonic() - read_s >= 1.0 / wiring.rate_hz:
            read_s, reads = time.monotonic(), reads + 1
            _range(table, ranges, history)
    for one in heard.values():
        _look(node, one)
        one.rivals = tuple(inputs.rivals(one.config.name))
    missing = table.why_missing(time.monotonic_ns())
    said = [_command(node, message) for message in wiring.command.messages]
    inputs.close()
    if recorder is not None:
        recorder.close()
    return Listened(
        seconds,
        tuple(heard.values()),
        ranges,
        reads,
        missing,
        wiring.rate_hz,
        commands=tuple(text for text, _ in said),
        wrong_commands=tuple(text for _, wrong in said for text in wrong),
        disagreements=tuple(check_series(_series(history), table.configs)),
    )


def _series(history: list[tuple[float, dict[str, float]]]) -> Series:
    """Return what was read as arrays."""
    ids = tuple(dict.fromkeys(id_ for _, row in history for id_ in row))
    raw = np.array([[row.get(id_, np.nan) for id_ in ids] for _, row in history])
    times_s = np.array([time_s for time_s, _ in history])
    return Series(ids, times_s, raw.reshape(len(history), len(ids)))


def find(node: Node, executor: SingleThreadedExecutor, topics: Collection[str]) -> None:
    """Wait until each of these topics has a publisher, DISCOVERY_S at most."""
    until_s = time.monotonic() + DISCOVERY_S
    while time.monotonic() < until_s and not all(map(node.count_publishers, topics)):
        executor.spin_once(timeout_sec=SLICE_S)


def _note(node: Node, heard: dict[str, Heard], source: str, stamp_ns: int | None) -> None:
    one = heard[source]
    if len(one.times_s) < KEPT:
        one.times_s.append(time.monotonic())
        one.stamps_ns.append(stamp_ns)
        if stamp_ns is not None:
            one.delays_s.append((node.get_clock().now().nanoseconds - stamp_ns) / 1e9)


def _range(
    table: ChannelTable,
    ranges: dict[str, Range],
    history: list[tuple[float, dict[str, float]]],
) -> None:
    readings = table.read(time.monotonic_ns())
    if readings.values.ndim > 1:
        return
    configs = table.configs
    if readings.new and len(history) < KEPT:
        history.append((time.monotonic(), {}))
        raw = history[-1][1]
    else:
        raw = {}
    for id_, value in zip(readings.ids, readings.values.tolist(), strict=True):
        one = ranges.setdefault(id_, Range())
        one.count, one.low, one.high = one.count + 1, min(one.low, value), max(one.high, value)
        config = configs[id_]
        raw[id_] = (value - config.offset) / config.scale
        if ANGULAR.search(config.field) and not (config.wave or config.wrap):
            one.turning.note((value - config.offset) / config.scale)
            one.turns = one.turning.hint(config.field.replace("*", "NAME"))
        clip = config.clip
        one.clipped += clip is not None and not clip[0] < value < clip[1]


def _look(node: Node, one: Heard) -> None:
    """Who publishes a source's topic, and with which quality of service."""
    one.topic = node.resolve_topic_name(one.config.topic)
    infos = node.get_publishers_info_by_topic(one.config.topic)
    right = of_type(infos, one.config.type)
    one.publishers = tuple(sorted(owner(info) for info in right))
    one.other_types = wrong_types(infos, one.config.type, one.topic)
    if not infos:
        one.elsewhere = elsewhere(node, one.topic, one.config.type)
    one.quality = _quality(publishers_qos(node, one.config.topic, 1)) if right else ""


def _quality(qos: QoSProfile) -> str:
    best_effort = qos.reliability == ReliabilityPolicy.BEST_EFFORT
    latched = qos.durability == DurabilityPolicy.TRANSIENT_LOCAL
    return ("best effort" if best_effort else "reliable") + (", transient local" if latched else "")


def _command(node: Node, message: MessageFields) -> tuple[str, list[str]]:
    """Return who hears a topic of the commands and who sends on it, as text, and what is wrong.

    What is wrong is one text for each problem.
    """
    topic, type_ = message.topic, message.type
    name = node.resolve_topic_name(topic)
    infos = node.get_subscriptions_info_by_topic(topic)
    readers = sorted({owner(one) for one in of_type(infos, type_)})
    senders = sorted(owner(one) for one in node.get_publishers_info_by_topic(topic))
    said = f"{name}: heard by {', '.join(readers) or 'nobody'}"
    said += f"; commanded now by {', '.join(senders)}" if senders else ""
    wrong = []
    if len(senders) > 1:
        who = ", ".join(senders)
        wrong.append(f"{len(senders)} publishers command {name} ({who}): stop one of them")
    other = "" if readers else wrong_types(infos, type_, name)
    if other:
        wrong.append(f"nobody hears commands on {name}: subscription of {other}")
    elif unheard := unheard_commands(infos, name, type_, COMMAND_QOS):
        wrong.append(unheard)
    return said, wrong
