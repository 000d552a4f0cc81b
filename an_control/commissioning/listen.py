"""Listens to the sensor topics of a running robot: their rates, gaps, stamps and readings.

The topics are those of a wiring, the YAML file that connects them to a policy. Nothing is sent, and
readings come from the same channel table that the policy node uses.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from an_control.commissioning.doctor.data_checks import Series, describe_inconsistent_readings
from an_control.commissioning.doctor.recorder import DrivenRecorder
from an_control.commissioning.survey import ANGULAR, AngleDetector
from an_control.control.model_wiring_check import join_names_shortened
from an_control.policy import Model
from an_control.ros.graph import (
    describe_endpoints_of_wrong_type,
    describe_incompatible_subscriptions,
    get_owner_node_name,
    select_endpoints_by_type,
    suggest_similar_topic,
)
from an_control.ros.inputs import (
    Inputs,
    describe_wrong_message_rate,
    describe_wrong_stamp_clock,
    find_strongest_common_qos_of_topic,
)
from an_control.ros.outputs import COMMAND_QOS
from an_control.ros.temporary_node import DISCOVERY_S, create_temporary_node
from an_control.wiring import ChannelTable, SourceConfig, Wiring
from an_control.wiring.command import MessageFields

SLICE_S = 0.05
ENOUGH = 5
"""Minimum number of messages from which a rate is judged."""
KEPT = 100_000
"""Maximum number of messages of a source whose times are kept."""
KEPT_READINGS = 3_000_000
"""Maximum number of readings of all channels that are kept to be checked against each other."""


@dataclass
class HeardSource:
    """The messages that arrived from one source (topic in the wiring) during the observation.

    Attributes:
        config: The entry of the source in the wiring.
        topic: The full name of the topic.
        publishers: The full names of the nodes that publish it.
        quality: The quality of service of the publishers, as text.
        other_types: A text on publishers that send another message type than the wiring names; ""
            if none does.
        elsewhere: The end of an error text if nobody publishes the topic, such as "; /joint_states
            is published with this type"; "" if no similar topic is known.
        rivals: A warning for each pair of nodes that send the same channels.
        times_s: The arrival times of the messages, by the steady clock.
        stamps_ns: The stamps of the messages; None for one without a stamp.
        delays_s: The seconds from each stamp to the arrival of its message, by the node's clock;
            empty if the stamps are in simulated time.
    """

    config: SourceConfig
    topic: str = ""
    publishers: tuple[str, ...] = ()
    quality: str = ""
    other_types: str = ""
    elsewhere: str = ""
    rivals: tuple[str, ...] = ()
    times_s: list[float] = field(default_factory=list)
    stamps_ns: list[int | None] = field(default_factory=list)
    delays_s: list[float] = field(default_factory=list)

    @property
    def rate_hz(self) -> float | None:
        """Messages per second; None if fewer than two arrived."""
        if len(self.times_s) < 2 or self.times_s[-1] <= self.times_s[0]:
            return None
        return (len(self.times_s) - 1) / (self.times_s[-1] - self.times_s[0])

    @property
    def longest_gap_s(self) -> float | None:
        """Longest time between two messages in seconds; None if fewer than two arrived."""
        return float(np.diff(self.times_s).max()) if len(self.times_s) > 1 else None

    @property
    def delay_s(self) -> float | None:
        """Median delay in seconds from a message's stamp to its arrival; None without stamps."""
        return float(np.median(self.delays_s)) if self.delays_s else None

    def describe_source_problem(self, observed_s: float, control_hz: float) -> str:
        """Return what is wrong with this source, such as "no message in 5 s"; "" if nothing is.

        Args:
            observed_s: How long the robot was observed, in seconds.
            control_hz: The control rate of the policy in Hz.
        """
        if self.other_types:
            return f"publisher of {self.other_types}"
        if not self.publishers:
            return f"no publisher{self.elsewhere}"
        if not self.times_s:
            return f"no message in {observed_s:g} s"
        stamps = [one for one in self.stamps_ns if one is not None]
        if len(stamps) > 2 and len(set(stamps)) == 1:
            return (
                "every message has the same stamp, and so only the first one counts: the sender"
                " must give each message a new stamp, or leave the stamp 0"
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
            wrong.append(describe_wrong_message_rate(self.config, [self.rate_hz], control_hz))
        delay_s = self.delay_s or 0.0
        if len(self.publishers) > 1 and len(self.delays_s) >= ENOUGH:
            delay_s = sorted(self.delays_s, key=abs)[-ENOUGH]  # one clock may be wrong
        wrong.append(describe_wrong_stamp_clock(self.config, -delay_s))
        return "; ".join(filter(None, wrong))


@dataclass
class ReadingRange:
    """The range of a channel's readings, scaled and clipped as the policy gets them.

    Attributes:
        count: The number of readings.
        low: The lowest reading.
        high: The highest reading.
        clipped: The number of readings at or beyond the clip bounds of the wiring.
        turning: Detector of an angle that jumps by a full turn or grows over more than one. A
            policy should read the sine and cosine of such an angle instead.
        turns: What `turning` has found and the advice to read sine and cosine, as text; "" if the
            channel is no such angle.
    """

    count: int = 0
    low: float = np.inf
    high: float = -np.inf
    clipped: int = 0
    turning: AngleDetector = field(default_factory=AngleDetector)
    turns: str = ""


@dataclass(frozen=True)
class ListenResult:
    """Everything that was observed of a robot's sensors.

    Attributes:
        seconds: How long the robot was observed.
        sources: The messages of each source.
        ranges: The range of each channel's readings by its id (see `update_reading_ranges`).
        reads: How many times all channels were read.
        missing: The ids of the channels without a valid reading at the end, by the reason for it.
        control_hz: The control rate of the policy.
        commands: For each command topic a text that names its subscribers and its present
            publishers.
        wrong_commands: Problems of the command topics, as texts.
        disagreements: Contradictions between readings, as texts; see
            `describe_inconsistent_readings`.
    """

    seconds: float
    sources: tuple[HeardSource, ...]
    ranges: dict[str, ReadingRange]
    reads: int
    missing: dict[str, list[str]]
    control_hz: float
    commands: tuple[str, ...]
    wrong_commands: tuple[str, ...]
    disagreements: tuple[str, ...] = ()


class LiveRecorder(DrivenRecorder):
    """Recorder of a running robot's sensors and commands, by subscriptions to its topics.

    Each command gives one recorded tick: the command, and the newest readings before it.

    Args:
        wiring: The robot's wiring.
        model_path: Path of the model file, for error messages.
        model: The model whose channels and actuators are recorded.
    """

    def __init__(self, wiring: Wiring, model_path: str, model: Model) -> None:
        super().__init__(wiring, model_path, model)
        self._topics = [one.topic for one in wiring.command.messages]

    def subscribe_to_robot(self, node: Node) -> None:
        """Subscribe to the sensor and command topics of the wiring, so that ticks are recorded."""
        self._inputs = Inputs(
            node, self.recorder.table, time.monotonic_ns, lambda *_: None, 1, with_message_info=True
        )
        for number, (topic, message) in enumerate(zip(self._topics, self.messages, strict=True)):
            hear = partial(self._record_command, number)
            node.create_subscription(type(message.message), topic, hear, 10)

    def close(self) -> None:
        """Destroy the subscriptions to the sensor topics."""
        self._inputs.close()

    def _record_command(self, topic_index: int, message: Any) -> None:
        """Add a command message that has just arrived; see `DrivenRecorder.add_command_message`."""
        self.add_command_message(topic_index, message, time.monotonic_ns())


def listen_to_sources(
    wiring: Wiring, namespace: str, seconds: float, recorder: LiveRecorder | None = None
) -> ListenResult:
    """Listen to the sensor topics of a running robot, and return rates, ranges and problems.

    Args:
        wiring: The robot's wiring, which names the topics and says which channel reads which field.
        namespace: The robot's namespace.
        seconds: How long to listen.
        recorder: Recorder that receives the readings and commands at the same time; None for none.

    Raises:
        WiringError: The wiring does not fit its message types.
        ValueError: `namespace` is not a valid namespace.
    """
    table = ChannelTable(wiring)
    with create_temporary_node("an_control_check", namespace) as node:
        executor = SingleThreadedExecutor()
        executor.add_node(node)
        try:
            heard = {one.name: HeardSource(one) for one in wiring.sources}
            ranges: dict[str, ReadingRange] = {}
            history: list[tuple[float, dict[str, float]]] = []
            inputs = Inputs(
                node,
                table,
                time.monotonic_ns,
                partial(_append_message_times, node, heard),
                1,
                with_message_info=True,
            )
            if recorder is not None:
                recorder.subscribe_to_robot(node)
            wait_for_publishers(node, executor, [one.topic for one in wiring.sources])
            until_s, reads, read_s = time.monotonic() + seconds, 0, 0.0
            while (now_s := time.monotonic()) < until_s:
                executor.spin_once(timeout_sec=min(SLICE_S, until_s - now_s))
                if time.monotonic() - read_s >= 1.0 / wiring.rate_hz:
                    read_s, reads = time.monotonic(), reads + 1
                    update_reading_ranges(table, ranges, time.monotonic_ns(), history)
            missing = table.explain_missing_channels(time.monotonic_ns())
            for one in heard.values():
                _store_publishers_of_source(node, one)
                one.rivals = tuple(inputs.describe_competing_publishers(one.config.name))
                if node.count_publishers("/clock"):  # not the clock by which delays were measured
                    one.delays_s.clear()
            said = [
                _describe_command_topic_and_problems(node, message)
                for message in wiring.command.messages
            ]
            inputs.close()
            if recorder is not None:
                recorder.close()
            return ListenResult(
                seconds,
                tuple(heard.values()),
                ranges,
                reads,
                missing,
                wiring.rate_hz,
                commands=tuple(text for text, _ in said),
                wrong_commands=(
                    *(text for _, wrong in said for text in wrong),
                    *describe_unmeasured_actuators(table),
                ),
                disagreements=describe_disagreements(table, history),
            )
        finally:
            executor.remove_node(node)
            executor.shutdown()


def describe_disagreements(
    table: ChannelTable, history: list[tuple[float, dict[str, float]]]
) -> tuple[str, ...]:
    """Return the contradictions between readings as texts; see `describe_inconsistent_readings`.

    Args:
        table: The channel table from which the readings came.
        history: Pairs of a time in seconds, and the unscaled readings at that time by channel id.
    """
    ids = tuple(dict.fromkeys(id_ for _, row in history for id_ in row))
    raw = np.array([[row.get(id_, np.nan) for id_ in ids] for _, row in history])
    times_s = np.array([time_s for time_s, _ in history])
    series = Series(ids, times_s, raw.reshape(len(history), len(ids)))
    return tuple(describe_inconsistent_readings(series, table.configs))


def describe_unmeasured_actuators(table: ChannelTable) -> tuple[str, ...]:
    """Return a text that names actuators whose position is needed but never came; () if all came.

    Args:
        table: The channel table, after it has read messages.
    """
    unmeasured = [] if table.measured is None else table.measured.list_unmeasured_actuators()
    if not unmeasured:
        return ()
    return (f"no position has been measured of {join_names_shortened(unmeasured)}",)


def wait_for_publishers(
    node: Node, executor: SingleThreadedExecutor, topics: Collection[str]
) -> None:
    """Wait until each of the topics has a publisher, or until `DISCOVERY_S` seconds have passed."""
    until_s = time.monotonic() + DISCOVERY_S
    while time.monotonic() < until_s and not all(map(node.count_publishers, topics)):
        executor.spin_once(timeout_sec=SLICE_S)


def _append_message_times(
    node: Node, sources: dict[str, HeardSource], source_name: str, stamp_ns: int | None
) -> None:
    """Append the arrival time, stamp and delay of a new message to the lists of its source."""
    one = sources[source_name]
    if len(one.times_s) < KEPT:
        one.times_s.append(time.monotonic())
        one.stamps_ns.append(stamp_ns)
        if stamp_ns is not None:
            one.delays_s.append((node.get_clock().now().nanoseconds - stamp_ns) / 1e9)


def update_reading_ranges(
    table: ChannelTable,
    ranges: dict[str, ReadingRange],
    now_ns: int,
    history: list[tuple[float, dict[str, float]]],
) -> None:
    """Update the lowest and highest reading of each channel by the newest messages.

    All patches of a camera share a range, under the id of their entry in the wiring, such as
    `camera.*`.

    Args:
        table: The channel table, which stores the newest messages and reads channels from them.
        ranges: The range of each channel by its id, which is updated.
        now_ns: The current time in nanoseconds, from which the age of readings is computed.
        history: List of pairs (time in seconds, unscaled readings by channel id), to which a pair
            is appended if any reading is new, up to `KEPT_READINGS` readings.
    """
    readings = table.read(now_ns)
    configs = table.configs
    if table.cameras:
        entries = np.array([configs[id_].id for id_ in readings.ids])
        for id_ in sorted(set(entries)):
            pixels, one = readings.values[entries == id_], ranges.setdefault(id_, ReadingRange())
            one.count += 1
            one.low, one.high = min(one.low, int(pixels.min())), max(one.high, int(pixels.max()))
        return
    raw: dict[str, float] = {}
    if readings.new and len(history) * len(readings.ids) < KEPT_READINGS:
        history.append((now_ns / 1e9, raw))
    for id_, value in zip(readings.ids, readings.values.tolist(), strict=True):
        one = ranges.setdefault(id_, ReadingRange())
        one.count, one.low, one.high = one.count + 1, min(one.low, value), max(one.high, value)
        config = configs[id_]
        clip = config.clip
        is_clipped = clip is not None and not clip[0] < value < clip[1]
        one.clipped += is_clipped
        if not is_clipped:
            raw[id_] = (value - config.offset) / config.scale
        if ANGULAR.search(config.field) and not (config.sine_or_cosine or config.wrap):
            one.turning.record_value((value - config.offset) / config.scale)
            one.turns = one.turning.make_sine_and_cosine_advice(config.field.replace("*", "NAME"))


def _store_publishers_of_source(node: Node, source: HeardSource) -> None:
    """Store in a source who publishes its topic: the nodes, their quality of service and types."""
    source.topic = node.resolve_topic_name(source.config.topic)
    infos = node.get_publishers_info_by_topic(source.config.topic)
    right = select_endpoints_by_type(infos, source.config.type)
    source.publishers = tuple(sorted(get_owner_node_name(info) for info in right))
    source.other_types = describe_endpoints_of_wrong_type(infos, source.config.type, source.topic)
    if not infos:
        source.elsewhere = suggest_similar_topic(node, source.topic, source.config.type)
    source.quality = (
        _describe_quality_of_service(
            find_strongest_common_qos_of_topic(node, source.config.topic, 1)
        )
        if right
        else ""
    )


def _describe_quality_of_service(qos: QoSProfile) -> str:
    """Return a quality of service in words, such as "reliable, transient local"."""
    best_effort = qos.reliability == ReliabilityPolicy.BEST_EFFORT
    latched = qos.durability == DurabilityPolicy.TRANSIENT_LOCAL
    return ("best effort" if best_effort else "reliable") + (", transient local" if latched else "")


def _describe_command_topic_and_problems(
    node: Node, message: MessageFields
) -> tuple[str, list[str]]:
    """Describe which nodes publish on a command topic, which receive from it, and what is wrong."""
    topic, type_ = message.topic, message.type
    name = node.resolve_topic_name(topic)
    own = node.get_fully_qualified_name()  # a recorder subscribes to the commands, too
    infos = [
        one
        for one in node.get_subscriptions_info_by_topic(topic)
        if get_owner_node_name(one) != own
    ]
    readers = sorted({get_owner_node_name(one) for one in select_endpoints_by_type(infos, type_)})
    senders = sorted(get_owner_node_name(one) for one in node.get_publishers_info_by_topic(topic))
    said = f"{name}: heard by {', '.join(readers) or 'nobody'}"
    said += f"; commanded now by {', '.join(senders)}" if senders else ""
    wrong = []
    if len(senders) > 1:
        who = ", ".join(senders)
        wrong.append(f"{len(senders)} publishers command {name} ({who}): stop one of them")
    other = "" if readers else describe_endpoints_of_wrong_type(infos, type_, name)
    if other:
        wrong.append(f"nobody hears commands on {name}: subscription of {other}")
    elif unheard := describe_incompatible_subscriptions(infos, name, type_, COMMAND_QOS):
        wrong.append(unheard)
    return said, wrong
