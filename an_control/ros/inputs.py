"""Subscribe to the robot's sensor topics; the callbacks only store the newest messages.

A subscription has the quality of service of the topic's publishers, if that is known. When that
quality changes, a new subscription is made. The old one is destroyed when the new one has received
its first message, so that no message is lost. Some publishers keep their last message for later
subscribers (a latched message, durability "transient local"), others do not (durability
"volatile"). If a topic has publishers of both kinds, a separate subscription fetches the latched
messages. A timer looks for changes of publishers. Event callbacks are not used for that, because
rclpy's events executor crashes if a subscription with event callbacks is destroyed (rclpy issue
1644). Everything here runs on the executor's thread.

The age of a reading counts from when its message was published (`Arrivals`). A process that did not
run for a while finds the messages of that time in its queues, and by its own clock all of them are
new. So the times at which the publisher sent them, by the publisher's clock, are compared: a
message that took longer than the fastest recent message counts as older by the difference. A
constant difference between the two clocks has no effect, and each publisher is treated separately.

A source is one topic in the wiring file, with the channels that it feeds. Diagnostics, the log and
`an-control check --live` describe problems of a source that sends messages in the same words: what
was observed, what was expected, and what to do.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from statistics import median
from typing import Any

from rclpy.clock import Clock, ClockType
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.subscription import Subscription

from an_control.record.recorder import NodeRecorder
from an_control.ros.competing_publishers import TopicSenders
from an_control.ros.distributions import MessageInfo, TopicEndpointInfo
from an_control.ros.graph import get_owner_node_name
from an_control.wiring import (
    ChannelTable,
    SourceConfig,
    WiringError,
    has_name_list,
    make_names_reader,
    make_stamp_reader,
)

RATE_RATIO = 1.25
"""Factor by which the message rate of a source may differ from the expected rate before the
difference is reported."""
NEWS_S = 1.0
"""A source whose max_age_s is larger than these seconds is taken to send only when its value
changes, not periodically."""
CLOCK_S = 1.0
"""Seconds between the time stamp and the arrival of a message beyond which the difference is
reported."""
SHOWN = 8
"""Maximum number of channels that one text lists."""


def sends_periodically(config: SourceConfig) -> bool:
    """Return whether a source is expected to send periodically, not only on changes of its value.

    This is assumed if `max_age_s`, the age at which a reading of the source is stale, is above 0
    and at most a second (`NEWS_S`).
    """
    return 0.0 < config.max_age_s <= NEWS_S


def describe_wrong_message_rate(
    config: SourceConfig, rates_hz: Sequence[float], control_hz: float
) -> str:
    """Return a warning if a source's message rate is wrong by more than a factor 1.25, else "".

    Args:
        config: The source.
        rates_hz: The newest measured message rates. There is a warning only if all of them are
            wrong, so that a source that just starts or changes its rate is not reported.
        control_hz: The control rate, which is expected if the source has no `rate_hz`.
    """
    wanted_hz, rate_hz = config.rate_hz or control_hz, median(rates_hz)
    if not sends_periodically(config):
        return ""
    if not (max(rates_hz) < wanted_hz / RATE_RATIO or min(rates_hz) > wanted_hz * RATE_RATIO):
        return ""
    where = f"its rate_hz is {wanted_hz:.3g}"
    if config.rate_hz is None:
        what = "each tick reads its newest message"
        if rate_hz < wanted_hz:
            what = "some ticks have no new reading of it"
        where = f"the policy runs at {wanted_hz:.3g} Hz: {what}"
    older = ""
    if rate_hz * config.max_age_s < 1.0:
        older = f", and raise its max_age_s, which is {config.max_age_s:g}"
    return (
        f"{rate_hz:.3g} messages a second, but {where}; if that is intended, set rate_hz:"
        f" {rate_hz:.3g} in the source{older}"
    )


def describe_wrong_stamp_clock(config: SourceConfig, stamps_ahead_s: float) -> str:
    """Return a warning if stamps and arrival times of messages differ by over 1 s, else "".

    Args:
        config: The source. If it does not send periodically, old stamps are allowed.
        stamps_ahead_s: Seconds by which the stamps are later than the arrival times; negative if
            they are earlier.
    """
    if stamps_ahead_s <= CLOCK_S and (-stamps_ahead_s <= CLOCK_S or not sends_periodically(config)):
        return ""
    where = "ahead of" if stamps_ahead_s > 0.0 else "behind"
    return (
        f"its stamps are {abs(stamps_ahead_s):.1f} s {where} this node's clock: correct the clock"
        " of the sending machine, or set use_sim_time in both nodes or in neither"
    )


def describe_competing_publishers(
    first_node: str, second_node: str, channels: Sequence[str]
) -> str:
    """Return a warning that two nodes send values for the same channels.

    Args:
        first_node: The full name of one node.
        second_node: The full name of the other node, which is the same if one node has two
            publishers.
        channels: The ids of the channels.
    """
    shown = ", ".join(channels[:SHOWN]) + ", ..." * (len(channels) > SHOWN)
    who = (
        f"two publishers of {first_node} both send"
        if first_node == second_node
        else f"{first_node} and {second_node} both send"
    )
    return f"{who} {shown}: stop one of them, or give it a topic of its own"


MEMORY_NS, MEMORY_MESSAGES = 10_000_000_000, 10
"""The fastest message is remembered for at least this time in ns and this number of messages."""
CLOCK_STEP_NS = 10_000_000
"""The wall clock was set if it has moved against the steady clock by more than this time in ns. A
clock that is only slowed down or sped up moves less between two messages."""
MAX_PUBLISHERS = 100
GAP_PERIODS = 2
LIVE_MESSAGES = 3
"""After this number of messages that are sent as fast as they come, a publisher's clock that seems
to have been set back counts as set back."""
NEVER_NS = 1 << 62


class MessageDelay:
    """A meter of how much longer a publisher's messages take than its fastest recent message.

    Call it for each message with the times of publishing and of arrival. If the publisher's clock
    is set back, all later messages seem to take longer, so the measurement starts anew. A sign of
    this is that times of publishing go back, and that the next messages come as fast as they are
    published. Messages from a queue come faster, and only count as late.
    """

    def __init__(self) -> None:
        self._newest_ns: int | None = None
        """The latest time of publishing."""
        self._live_since: tuple[int, int] | None = None
        """The times of publishing and of arrival of the message from which on messages are counted
        that come as fast as they are published, since one was published before an earlier one; None
        if none was."""
        self._live_count = 0
        self._began_ns: int | None = None
        self._count = 0
        self._least_ns = self._before_ns = 0

    def __call__(self, published_ns: int, now_ns: int) -> int:
        """Return by how many ns a message was longer on its way than the fastest recent message.

        Args:
            published_ns: When the message was published, by the publisher's clock, which may differ
                from this machine's clock by a constant.
            now_ns: When it was received, by this machine's clock.
        """
        if self._was_clock_set_back(published_ns, now_ns):
            self._began_ns = self._newest_ns = self._live_since = None
            self._count = 0
        if self._newest_ns is None or published_ns > self._newest_ns:
            self._newest_ns = published_ns
        delay_ns = now_ns - published_ns
        self._count += 1
        if self._began_ns is None:
            self._began_ns, self._least_ns, self._before_ns = now_ns, delay_ns, delay_ns
        elif now_ns - self._began_ns > MEMORY_NS and self._count > MEMORY_MESSAGES:
            self._began_ns, self._count = now_ns, 0
            self._least_ns, self._before_ns = delay_ns, self._least_ns
        self._least_ns = min(self._least_ns, delay_ns)
        return delay_ns - min(self._least_ns, self._before_ns)

    def _was_clock_set_back(self, published_ns: int, now_ns: int) -> bool:
        """Return whether this message shows that the publisher's clock was set back.

        Args:
            published_ns: When the message was published, by the publisher's clock.
            now_ns: When it was received.
        """
        if self._newest_ns is None:
            return False
        if self._live_since is None:
            if published_ns > self._newest_ns - CLOCK_STEP_NS:
                return False
        else:  # also if later than any before: the clock may have been set back by a few periods
            sent_ns = published_ns - self._live_since[0]
            came_ns = now_ns - self._live_since[1]
            if 0 < sent_ns < 2 * came_ns:
                self._live_count += 1
                return self._live_count >= LIVE_MESSAGES
        self._live_since, self._live_count = (published_ns, now_ns), 1
        return False


class Arrivals:
    """A corrector of arrival times, for messages that waited in a queue before they were read.

    A message that took longer than its publisher's fastest recent message counts as arrived earlier
    by the difference. If the executor does not say when messages were published, only pauses are
    corrected: more than two control periods without a tick (control step). A message that is read
    at the end of a pause, or just after it, counts as arrived when the pause began.

    Args:
        period_ns: The control period in ns.
    """

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._lateness: dict[bytes, MessageDelay] = {}
        self._wall_offset_ns = 0
        """Newest difference between the wall clock and the steady clock."""
        self._alive_ns: int | None = None
        self._gap_ns, self._gap_end_ns = 0, -NEVER_NS

    def record_tick(self, now_ns: int) -> None:
        """Record the time of a tick (control step), which shows that this process runs then."""
        last_ns, self._alive_ns = self._alive_ns, now_ns
        if last_ns is not None and now_ns - last_ns > GAP_PERIODS * self._period_ns:
            self._gap_ns, self._gap_end_ns = last_ns, now_ns

    def estimate_arrival_at_process_ns(self, info: Mapping[str, Any] | None, now_ns: int) -> int:
        """Estimate when a message reached this process, in ns; it may have waited to be read.

        Args:
            info: rclpy's MessageInfo of the message; None if the executor gives none.
            now_ns: The time at which the message is read.
        """
        if info is not None and info["source_timestamp"]:
            publisher = bytes((info.get("publisher_gid") or {}).get("data", b""))
            wall_ns = read_wall_clock_ns()
            self._forget_delays_if_clock_was_set(wall_ns - read_steady_clock_ns())
            if publisher not in self._lateness:
                if len(self._lateness) >= MAX_PUBLISHERS:
                    self._lateness.clear()
                self._lateness[publisher] = MessageDelay()
            return now_ns - self._lateness[publisher](info["source_timestamp"], wall_ns)
        last_ns = self._alive_ns
        if last_ns is not None and now_ns - last_ns > GAP_PERIODS * self._period_ns:
            return last_ns
        return self._gap_ns if now_ns <= self._gap_end_ns + self._period_ns else now_ns

    def _forget_delays_if_clock_was_set(self, wall_offset_ns: int) -> None:
        """Forget the delays of all publishers if this machine's wall clock was set.

        Otherwise all messages would seem to take longer by how far it was set forward.

        Args:
            wall_offset_ns: The present difference between the wall clock and the steady clock.
        """
        if abs(wall_offset_ns - self._wall_offset_ns) > CLOCK_STEP_NS:
            self._lateness.clear()
        self._wall_offset_ns = wall_offset_ns


def read_steady_clock_ns() -> int:
    """Return the time of the steady clock in ns, which nobody can set."""
    return time.monotonic_ns()


def read_wall_clock_ns() -> int:
    """Return the time of the wall clock in ns, which publishers put into their messages."""
    return time.time_ns()


WATCH_S = 0.2
FETCH_LOOKS = 10
"""A subscription to latched (kept) messages is destroyed after this number of looks for new
publishers."""
PARTS_DEPTH = 10
"""Queue depth for a topic with several publishers, or with messages that name their elements,
because each message may then hold a part of the readings."""
OnStored = Callable[[str, int | None], None]
"""A function that is called after each stored message, with the name of its source and its time
stamp."""


class Inputs:
    """The subscriptions of all sources of a channel table; several sources may share a topic.

    A source is one topic in the wiring file, with the channels that it feeds.

    Args:
        node: The node that owns the subscriptions.
        table: The channel table, in which the messages are stored.
        now_ns: Returns the time of the clock against which the age of messages is measured.
        on_stored: Called after each stored message with the source's name and the message's stamp.
        depth: The queue depth of a topic. At least 10 (`PARTS_DEPTH`) is used if several messages
            may each hold a part of the readings.
        arrivals: Corrects the arrival times of messages that had to wait in a queue; None: no
            correction.
        with_message_info: Whether the executor passes callbacks a MessageInfo, which says who sent
            a message and when. It must be False for rclpy's events executor, which cannot pass one.
        recorder: Records each message; None: nothing is recorded.

    Raises:
        ValueError: This node already uses a topic with another type. The text names the source.
    """

    def __init__(
        self,
        node: Node,
        table: ChannelTable,
        now_ns: Callable[[], int],
        on_stored: OnStored,
        depth: int,
        arrivals: Arrivals | None = None,
        *,
        with_message_info: bool = False,
        recorder: NodeRecorder | None = None,
    ) -> None:
        self._node = node
        self._recorder = recorder
        self._table = table
        self._now_ns = now_ns
        self._on_stored = on_stored
        self._depth = depth
        self._arrivals, self._with_message_info = arrivals, with_message_info
        self.topics: dict[str, str] = {}
        """The topic of each source, by the source's name."""
        self._readers: dict[str, tuple[str, ...]] = {}
        self._newest: dict[str, tuple[Any, int | None, int]] = {}
        self._unread: set[str] = set()
        self._subscriptions: dict[str, list[Subscription[Any]]] = {}
        self._publishers: dict[str, list[TopicEndpointInfo]] = {}
        """The publishers of each topic, as found at the previous look at the ROS graph."""
        self._senders: dict[str, TopicSenders] = {}
        """For each topic with several publishers, a record of which publisher sent its newest
        messages."""
        self._fetching: dict[str, tuple[Subscription[Any], int]] = {}
        """For a topic, a pair: a subscription to latched (kept) messages, and the number of looks
        at the ROS graph after which it is destroyed."""
        self.resubscribe_and_get_moved_sources(table)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._watch = node.create_timer(WATCH_S, self._resubscribe_on_qos_change, clock=steady)

    def check_message_types(self, table: ChannelTable) -> None:
        """Check that the new topics of a changed wiring carry messages of the expected types.

        A topic that is unknown in the ROS graph passes the check.

        Args:
            table: The channel table of the changed wiring, with the topic and type of each source.

        Raises:
            WiringError: A topic carries only messages of other types.
        """
        moved = [s for s in table.wiring.sources if self.topics.get(s.name) != s.topic]
        carried = dict(self._node.get_topic_names_and_types()) if moved else {}
        for source in moved:
            types = carried.get(self._node.resolve_topic_name(source.topic), [source.type])
            if source.type not in types:
                allowed = f"a topic of {source.type}; this one carries {', '.join(types)}"
                key = f"sources.{source.name}.topic"
                raise WiringError(table.wiring.file, key, source.topic, allowed)

    def resubscribe_and_get_moved_sources(self, table: ChannelTable) -> set[str]:
        """Subscribe to the topics of a changed wiring, and store their messages from now on.

        The subscription of a topic that is no longer read is kept for at least 0.2 s (`WATCH_S`),
        so that no message is missed if the wiring is soon changed back.

        Args:
            table: The channel table of the changed wiring, in which messages are stored.

        Returns:
            The names of the sources (entries of the wiring) that read another topic than before.

        Raises:
            ValueError: A topic cannot be subscribed; then the old table is kept.
        """
        topics = {source.name: source.topic for source in table.wiring.sources}
        before = tuple(self._subscriptions)
        try:
            for source, topic in topics.items():
                self._ensure_subscribed(source, topic, table.message_classes[source])
        except ValueError:
            for topic in self._subscriptions.keys() - before:
                self._unsubscribe(topic)
            raise
        moved = {source for source in topics if topics[source] != self.topics.get(source)}
        self._table = table
        self.topics.clear()
        self.topics.update(topics)
        self._readers = {
            topic: tuple(source for source in topics if topics[source] == topic)
            for topic in topics.values()
        }
        self._unread.difference_update(topics.values())
        return moved

    def store_newest_messages_for_moved_sources(
        self, sources: Iterable[str], is_tick_with_stamp_pending: Callable[[int | None], bool]
    ) -> None:
        """Give each source with a new topic the last message that came there before the change.

        In lockstep with a simulator the next tick (control step) may still need this message.

        Args:
            sources: The names of the sources (entries of the wiring) that now read another topic.
            is_tick_with_stamp_pending: Returns whether a tick still needs a message with the given
                stamp.
        """
        for source in sources:
            newest = self._newest.get(self.topics[source])
            if newest is not None and is_tick_with_stamp_pending(newest[1]):
                if self._recorder is not None:
                    topic = self._node.resolve_topic_name(self.topics[source])
                    self._recorder.record_delivery_to_source(topic, source, self._now_ns())
                self._table.store_message(source, *newest)
                self._on_stored(source, newest[1])

    def describe_competing_publishers(self, source: str) -> list[str]:
        """Return a warning for each pair of nodes that send readings for the same channels.

        The list is empty if the executor does not say who sent a message.

        Args:
            source: The name of the source whose topic the nodes publish.
        """
        topic = self.topics[source]
        if topic not in self._senders:
            return []
        nodes = {
            bytes(one.endpoint_gid): get_owner_node_name(one)
            for one in self._publishers.get(topic, ())
        }
        return [
            describe_competing_publishers(nodes[pair.first], nodes[pair.second], channels)
            for pair in self._senders[topic].find_competing_publishers(self._now_ns())
            if {pair.first, pair.second} <= nodes.keys()
            and (channels := self._table.find_ids_by_element_name(source, pair.names))
        ]

    def close(self) -> None:
        """Destroy all subscriptions."""
        self._node.destroy_timer(self._watch)
        for topic in tuple(self._subscriptions):
            self._unsubscribe(topic)

    def _ensure_subscribed(self, source: str, topic: str, cls: Any) -> None:
        """Subscribe to a source's topic, unless that is done already.

        Args:
            source: The name of the source, for error texts.
            topic: The topic.
            cls: The message class.

        Raises:
            ValueError: This node already reads the topic as another type.
        """
        try:
            held = self._subscriptions.get(topic)
            if held and held[-1].msg_type is not cls and topic not in self._readers:
                self._unsubscribe(topic)
            if topic not in self._subscriptions:
                self._subscribe(topic, cls)
            elif (type_ := self._subscriptions[topic][-1].msg_type) is not cls:
                raise RuntimeError(
                    f"this node already reads it as {type_.__name__}, not as {cls.__name__}"
                )
        except RuntimeError as error:
            raise ValueError(f"source {source!r} cannot read {topic}: {error}") from None

    def _subscribe(self, topic: str, cls: Any) -> None:
        """Subscribe to a topic. An older subscription is kept until the new one gets a message.

        Args:
            topic: The topic.
            cls: The message class.
        """
        qos = find_strongest_common_qos_of_topic(
            self._node, topic, self._choose_queue_depth(topic, cls)
        )
        stamp_of, names_of, arrivals = (
            make_stamp_reader(cls),
            make_names_reader(cls),
            self._arrivals,
        )
        recorder, name, type_ = (
            self._recorder,
            self._node.resolve_topic_name(topic),
            format_message_type_name(cls),
        )

        def store_message(message: Any, info: MessageInfo | None) -> None:
            """Store a message in the channel table, once for each source on the topic."""
            if info is not None and topic in self._senders and names_of is not None:
                publisher = bytes((info.get("publisher_gid") or {}).get("data", b""))
                self._senders[topic].record_message(publisher, names_of(message), self._now_ns())
            while len(mine) > 1 and mine[-1] is new:
                self._node.destroy_subscription(mine.pop(0))
            stamp_ns, now_ns = stamp_of(message), self._now_ns()
            arrival_ns = (
                now_ns
                if arrivals is None
                else arrivals.estimate_arrival_at_process_ns(info, now_ns)
            )
            self._newest[topic] = message, stamp_ns, arrival_ns
            readers = self._readers.get(topic, ())
            if recorder is not None and not readers:
                recorder.record_message(name, type_, message, None, arrival_ns, now_ns)
            for source in readers:
                if recorder is not None:
                    recorder.record_message(name, type_, message, source, arrival_ns, now_ns)
                self._table.store_message(source, message, stamp_ns, arrival_ns)
                self._on_stored(source, stamp_ns)

        def store_message_without_info(message: Any) -> None:
            """Store a message that comes without MessageInfo."""
            store_message(message, None)

        callback = store_message if self._with_message_info else store_message_without_info
        new = self._node.create_subscription(cls, topic, callback, qos)
        mine = self._subscriptions.setdefault(topic, [])
        mine.append(new)
        if len(mine) > 2:
            self._node.destroy_subscription(mine.pop(0))

    def _resubscribe_on_qos_change(self) -> None:
        """Subscribe again to topics whose publishers now offer another quality of service.

        A timer calls this every 0.2 s (`WATCH_S`). It also fetches latched (kept) messages of new
        publishers, and ends subscriptions that no source has used since the previous call.
        """
        unread = self._subscriptions.keys() - self._readers.keys()
        for topic in unread & self._unread:
            self._unsubscribe(topic)
        self._unread = unread
        for topic, mine in self._subscriptions.items():
            cls = mine[-1].msg_type
            before, infos = self._publishers.get(topic, []), find_publishers(self._node, topic)
            self._publishers[topic] = infos
            if len(infos) > 1:
                self._senders.setdefault(topic, TopicSenders())
            else:
                self._senders.pop(topic, None)
            if (
                find_strongest_common_qos(infos, self._choose_queue_depth(topic, cls))
                != mine[-1].qos_profile
            ):
                self._subscribe(topic, cls)
            self._fetch_latched_messages(topic, mine[-1], before, infos)

    def _fetch_latched_messages(
        self,
        topic: str,
        subscription: Subscription[Any],
        previous_infos: Iterable[TopicEndpointInfo],
        infos: Iterable[TopicEndpointInfo],
    ) -> None:
        """Subscribe for a while to get the latched messages of publishers that are new on a topic.

        A publisher with durability "transient local" keeps (latches) its last messages for later
        subscribers. A volatile subscription gets only messages that are sent after it was made. So
        if this node's subscription is volatile, another one that asks for latched messages is made.

        Args:
            topic: The topic.
            subscription: This node's subscription to the topic.
            previous_infos: The topic's publishers at the previous call.
            infos: The topic's publishers now.
        """
        known = {bytes(one.endpoint_gid) for one in previous_infos}
        new = [one for one in infos if is_latched(one) and bytes(one.endpoint_gid) not in known]
        fetcher, looks = self._fetching.pop(topic, (None, 0))
        if new and not is_latched(subscription):
            if fetcher is None:
                qos = QoSProfile(
                    depth=subscription.qos_profile.depth,
                    reliability=subscription.qos_profile.reliability,
                    durability=DurabilityPolicy.TRANSIENT_LOCAL,
                )
                fetcher = self._node.create_subscription(
                    subscription.msg_type, topic, partial(self._store_latched_message, topic), qos
                )
            looks = FETCH_LOOKS
        if fetcher is not None and looks:
            self._fetching[topic] = fetcher, looks - 1
        elif fetcher is not None:
            self._node.destroy_subscription(fetcher)

    def _store_latched_message(self, topic: str, message: Any) -> None:
        """Store a kept (latched) message of a topic, unless a newer message has arrived."""
        stamp_ns, now_ns = make_stamp_reader(type(message))(message), self._now_ns()
        newest = self._newest.get(topic)
        if newest is not None and (stamp_ns is None or (newest[1] or 0) >= stamp_ns):
            return
        self._newest[topic] = message, stamp_ns, now_ns
        recorder, name = self._recorder, self._node.resolve_topic_name(topic)
        readers = self._readers.get(topic, ())
        if recorder is not None and not readers:
            recorder.record_message(
                name, format_message_type_name(type(message)), message, None, now_ns, now_ns
            )
        for source in readers:
            if recorder is not None:
                recorder.record_message(
                    name, format_message_type_name(type(message)), message, source, now_ns, now_ns
                )
            self._table.store_message(source, message, stamp_ns, now_ns)
            self._on_stored(source, stamp_ns)

    def _choose_queue_depth(self, topic: str, cls: Any) -> int:
        """Return the queue depth for a topic with messages of the class `cls`.

        The depth is larger if several messages may each hold a part of the readings.
        """
        several = topic in self._senders or has_name_list(cls)
        return max(self._depth, PARTS_DEPTH) if several else self._depth

    def _unsubscribe(self, topic: str) -> None:
        """Destroy the subscriptions of a topic."""
        self._newest.pop(topic, None)
        self._publishers.pop(topic, None)
        self._senders.pop(topic, None)
        fetcher, _ = self._fetching.pop(topic, (None, 0))
        if fetcher is not None:
            self._node.destroy_subscription(fetcher)
        for subscription in self._subscriptions.pop(topic):
            self._node.destroy_subscription(subscription)


def format_message_type_name(cls: Any) -> str:
    """Return the ROS name of a message class, such as sensor_msgs/msg/JointState."""
    return f"{cls.__module__.partition('.')[0]}/msg/{cls.__name__}"


def find_publishers(node: Node, topic: str) -> list[TopicEndpointInfo]:
    """Return the publishers of a topic, as the ROS graph knows them."""
    return list(node.get_publishers_info_by_topic(topic))


def is_latched(endpoint: TopicEndpointInfo | Subscription[Any]) -> bool:
    """Return whether a publisher or subscription is latched (durability "transient local")."""
    return bool(endpoint.qos_profile.durability == DurabilityPolicy.TRANSIENT_LOCAL)


def find_strongest_common_qos_of_topic(node: Node, topic: str, depth: int) -> QoSProfile:
    """Return the strongest quality of service that all present publishers of a topic offer.

    Reliable is stronger than best effort, and transient local is stronger than volatile.

    Args:
        node: The node whose view of the ROS graph is used.
        topic: The topic.
        depth: The queue depth of the result.
    """
    return find_strongest_common_qos(find_publishers(node, topic), depth)


def find_strongest_common_qos(infos: Iterable[TopicEndpointInfo], depth: int) -> QoSProfile:
    """Return the strongest quality of service that all these publishers offer.

    Reliable is stronger than best effort, and transient local is stronger than volatile. Without
    publishers the result is the ROS default: reliable and volatile.

    Args:
        infos: The publishers of a topic.
        depth: The queue depth of the result.
    """
    offered = [info.qos_profile for info in infos]
    qos = QoSProfile(depth=depth)
    if any(one.reliability == ReliabilityPolicy.BEST_EFFORT for one in offered):
        qos.reliability = ReliabilityPolicy.BEST_EFFORT
    if offered and all(one.durability == DurabilityPolicy.TRANSIENT_LOCAL for one in offered):
        qos.durability = DurabilityPolicy.TRANSIENT_LOCAL
    return qos
