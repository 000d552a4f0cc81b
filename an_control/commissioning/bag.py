"""Examines a recording (a ROS 2 bag) for rates, gaps, stamps and ranges of the robot's sensors.

`listen` and `survey` do the same on a running robot. Times are those at which the messages were
recorded, and readings come from the same channel table that the policy node uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Any

from an_control.commissioning.listen import (
    ENOUGH,
    KEPT,
    HeardSource,
    ListenResult,
    ReadingRange,
    describe_disagreements,
    describe_unmeasured_actuators,
    update_reading_ranges,
)
from an_control.commissioning.survey import (
    COMMANDS,
    SubscribedTopic,
    Survey,
    SurveyedTopic,
    is_report_of_policy_node,
    may_be_sensor_topic,
    update_topic_statistics,
)
from an_control.record.layout import ATTACHMENT, EVENTS, TYPES, BagEntry, BagError, decode_event
from an_control.record.reader import Bag, is_same_topic, load_recorded_wiring
from an_control.wiring import ChannelTable, Wiring, make_names_reader, make_stamp_reader
from an_control.wiring.command import MessageConfig
from an_control.wiring.messages import import_message_class

Deserialize = Callable[[bytes, Any], Any]
JUMP_S = 1.0
"""Seconds by which the time between two stamps may differ from the time between the recordings of
their messages; if it differs more, the stamp counts as a jump."""
OTHER_CLOCK_S = 1e7
"""If the stamp of a message and the time of its recording differ by more than these seconds, the
stamps are taken to belong to another clock."""
MAX_READS = 100_000
"""Maximum number of times that readings are taken from a bag; the rest of a longer bag is only read
for its message rates."""
MAX_TOPICS = 1000
PACE = 1.25
"""Stamps that pass so many times as fast or as slowly as the recording time are a simulation's."""
PAUSE_S = 2.0
"""If a bag has no message of any topic for more than these seconds, the recording was paused."""
TRANSITIONS = "/transition_event"
"""End of the name of the topic that marks a lifecycle node, such as a policy node."""
SENDER = "the bag"


@dataclass
class BagSource(HeardSource):
    """The messages of one source (topic in the wiring file) that a bag holds.

    Attributes:
        jumps: The number of messages whose time stamp is earlier than the previous one, or has
            advanced by over a second more or less than the recording time.
        topics: The topics of the bag that feed the source, each once.
        orders: The different orders in which messages list their elements, such as joints; each is
            a tuple of names.
    """

    jumps: int = 0
    topics: list[str] = field(default_factory=list)
    orders: set[tuple[str, ...]] = field(default_factory=set)

    @property
    def delay_s(self) -> float | None:
        """Median delay in seconds from a message's stamp to its recording.

        It is None if the messages have no stamps, or if the stamps come from another clock.
        """
        delay_s = super().delay_s
        return None if delay_s is None or abs(delay_s) > OTHER_CLOCK_S else delay_s

    @property
    def stamp_pace(self) -> float:
        """How many times as fast as the recording time the stamps pass; 1 if that is not clear."""
        stamps = [one for one in self.stamps_ns if one is not None]
        if self.jumps or len(stamps) < max(ENOUGH, len(self.times_s)):
            return 1.0
        passed_s = (stamps[-1] - stamps[0]) / 1e9
        recorded_s = passed_s + self.delays_s[-1] - self.delays_s[0]
        return passed_s / recorded_s if passed_s > 0.0 and recorded_s > 0.0 else 1.0

    @property
    def is_simulated(self) -> bool:
        """Whether the stamps are of a simulation that was faster or slower than the recording."""
        return not 1.0 / PACE < self.stamp_pace < PACE

    def describe_source_problem(self, observed_s: float, control_hz: float) -> str:
        """Return what is wrong with this source, such as "no message in 5 s"; "" if nothing is.

        Args:
            observed_s: The duration of the recording in seconds.
            control_hz: The control rate of the policy in Hz.
        """
        if len(self.topics) > 1:
            return (
                f"messages of {', '.join(self.topics)}: choose one of them by --namespace, or by"
                " its full name in the wiring"
            )
        if self.is_simulated and not self.other_types:
            return ""
        found = (
            super()
            .describe_source_problem(observed_s, control_hz)
            .replace("no publisher", "is not in the bag")
        )
        jumps = f"its stamps jump {self.jumps} times" if self.jumps else ""
        return "; ".join(filter(None, [found, jumps]))

    def list_notes_on_joint_name_order(self) -> list[str]:
        """Return a list with a note if messages list their joints in changing orders, else [].

        Such a change is not a problem, because each element is read by its name.
        """
        if len(self.orders) < 2:
            return []
        alike = len({frozenset(one) for one in self.orders}) == 1
        what = "orders" if alike else "orders or selections"
        count = len(self.orders)
        return [
            f"source {self.config.name}: its names come in {count} {what}; each is read by name"
        ]


class _BagMessages:
    """Reader of the ROS messages in a bag.

    Args:
        bag: The bag.
        deserialize: Makes a ROS message from its bytes and its message class.
    """

    def __init__(self, bag: Bag, deserialize: Deserialize) -> None:
        self._bag, self._deserialize = bag, deserialize
        self._classes: dict[str, Any] = {}
        self.types: dict[str, str] = {}
        """The message type of each topic."""
        self.now_s = 0.0
        """The time of the newest entry in seconds, without the pauses before it."""
        self.pauses_s: list[float] = []
        """The durations of the pauses of the recording."""
        self.most_behind_s = 0.0
        """The longest time by which a message was recorded before one that precedes it."""

    def iterate_entries(self) -> Iterator[BagEntry]:
        """Yield the entries of the bag that are messages, not attached files.

        The message types of their topics are stored in `types`, and `now_s`, `pauses_s` and
        `most_behind_s` are updated.

        Raises:
            BagError: The bag has no message, or cannot be read.
        """
        newest_ns: int | None = None
        paused_ns = 0
        for entry in self._bag.iterate_entries():
            if entry.type != ATTACHMENT:
                if len(self.types) < MAX_TOPICS:
                    self.types.setdefault(entry.topic, entry.type)
                newest_ns = entry.log_ns if newest_ns is None else newest_ns
                passed_ns = entry.log_ns - newest_ns
                if passed_ns > PAUSE_S * 1e9:
                    self.pauses_s.append(passed_ns / 1e9)
                    paused_ns += passed_ns
                self.most_behind_s = max(self.most_behind_s, -passed_ns / 1e9)
                newest_ns = max(newest_ns, entry.log_ns)
                self.now_s = (entry.log_ns - paused_ns) / 1e9
                yield entry
        if newest_ns is None:
            why = self._bag.format_first_notes()
            raise BagError(f"{self._bag.path}: holds no message of ROS 2{why}")

    def list_notes_on_times(self, step_s: float) -> list[str]:
        """Return notes on pauses of the recording, and on messages that are not in order.

        Args:
            step_s: The period of the control ticks; a message may be behind by so many seconds.
        """
        notes = []
        if self.pauses_s:
            notes.append(
                f"the recording pauses {len(self.pauses_s)} times, for up to"
                f" {max(self.pauses_s):.3g} s without any message; this is no gap of a source"
            )
        if self.most_behind_s > step_s:
            notes.append(
                f"messages are up to {self.most_behind_s:.3g} s behind earlier ones, and so may"
                " count as missing: put them into the order of their times (mcap sort)"
            )
        return notes

    def find_message_class(self, type_: str) -> Any:
        """Return the class of a message type, or None if it is not installed."""
        if type_ not in self._classes:
            try:
                self._classes[type_] = import_message_class(type_)
            except LookupError:
                self._classes[type_] = None
        return self._classes[type_]

    def deserialize(self, entry: BagEntry) -> Any:
        """Convert an entry of the bag to a ROS message."""
        try:
            return self._deserialize(entry.data, self.find_message_class(entry.type))
        except Exception as error:
            raise BagError(
                f"{self._bag.path}: topic {entry.topic}: no message of type {entry.type}"
                f" ({' '.join(str(error).split())[:100]})"
            ) from error


def listen_to_bag_and_list_notes(
    wiring: Wiring, bag: Bag, namespace: str, deserialize: Deserialize
) -> tuple[ListenResult, list[str]]:
    """Return what a bag shows of a robot's topics and channels, and remarks on it for the user.

    It shows message rates, gaps, time stamps and sensor ranges, in the same form as
    `listen_to_sources` returns them for a running robot.

    Args:
        wiring: The robot's wiring: the YAML file that connects topics to the policy's channels.
        bag: The bag.
        namespace: The robot's namespace; "" finds a relative topic in any namespace.
        deserialize: Makes a ROS message from its bytes and its message class.

    Returns:
        A pair: what was observed of all topics and channels, and the remarks (notes). Each is a
        sentence on something that is no fault of the wiring, such as an unfinished file.

    Raises:
        WiringError: The wiring does not fit its message types.
        BagError: The bag cannot be read.
    """
    table, messages = ChannelTable(wiring), _BagMessages(bag, deserialize)
    heard = {one.name: BagSource(one) for one in wiring.sources}
    stamps = {name: make_stamp_reader(cls) for name, cls in table.message_classes.items()}
    names = {name: make_names_reader(cls) for name, cls in table.message_classes.items()}
    ranges: dict[str, ReadingRange] = {}
    history: list[tuple[float, dict[str, float]]] = []
    readers: dict[str, list[str]] = {}
    begin_ns = now_ns = next_ns = 0
    reads, step_ns = 0, int(1e9 / wiring.rate_hz)
    for entry in messages.iterate_entries():
        if entry.topic not in readers:
            readers[entry.topic] = [
                one.name
                for one in wiring.sources
                if is_same_topic(one.topic, entry.topic, namespace)
            ]
        begin_ns, now_ns = begin_ns or entry.log_ns, max(now_ns, entry.log_ns)
        next_ns = next_ns or begin_ns + step_ns
        while now_ns >= next_ns and reads < MAX_READS:
            update_reading_ranges(table, ranges, next_ns, history)
            reads += 1
            next_ns = max(next_ns + step_ns, now_ns - 100 * step_ns)
        for name in readers[entry.topic]:
            one = heard[name]
            one.topic = entry.topic
            if entry.type != one.config.type:
                one.other_types = f"{entry.type}, where the wiring says {one.config.type}"
                continue
            one.publishers = (SENDER,)
            if entry.topic not in one.topics:
                one.topics.append(entry.topic)
            message = messages.deserialize(entry)
            stamp_ns = stamps[name](message)
            _append_message_times(one, messages.now_s, entry.log_ns, stamp_ns)
            if (names_of := names[name]) is not None and len(one.orders) < 10:
                one.orders.add(tuple(names_of(message)))
            table.store_message(name, message, stamp_ns, entry.log_ns)
    update_reading_ranges(table, ranges, now_ns, history)
    for one in heard.values():
        if not one.topic:
            one.topic = one.config.topic
            others = [t for t, type_ in messages.types.items() if type_ == one.config.type]
            if others:
                one.elsewhere = f"; of its type there: {', '.join(sorted(others)[:5])}"
    commands = tuple(
        f"{message.topic}: commands are in the bag"
        for message in wiring.command.messages
        if any(is_same_topic(message.topic, topic, namespace) for topic in readers)
    )
    simulated = [one for one in heard.values() if one.is_simulated]
    notes = [*bag.notes, *messages.list_notes_on_times(step_ns / 1e9)]
    if simulated:
        notes.append(
            f"the stamps of {', '.join(one.config.name for one in simulated)} pass"
            f" {simulated[0].stamp_pace:.3g} times as fast as the time of the recording, as in a"
            " simulation, so rates, gaps and changes are not judged"
        )
    listened = ListenResult(
        (now_ns - begin_ns) / 1e9,
        tuple(heard.values()),
        ranges,
        reads + 1,
        table.explain_missing_channels(now_ns),
        wiring.rate_hz,
        commands=commands,
        wrong_commands=describe_unmeasured_actuators(table),
        disagreements=() if simulated else describe_disagreements(table, history),
    )
    notes += [note for one in heard.values() for note in one.list_notes_on_joint_name_order()]
    return listened, notes


def _append_message_times(
    source: BagSource, now_s: float, log_ns: int, stamp_ns: int | None
) -> None:
    """Append the recording time, stamp and delay of a message to the lists of its source.

    If the stamp jumps relative to the previous message, `source.jumps` is increased.

    Args:
        source: The source, which is changed.
        now_s: The recording time in seconds without the pauses of the recording.
        log_ns: The recording time.
        stamp_ns: The stamp of the message; None if it has none.
    """
    if len(source.times_s) >= KEPT:
        return
    if stamp_ns is not None:
        delay_s = (log_ns - stamp_ns) / 1e9
        if source.stamps_ns and (before_ns := source.stamps_ns[-1]) is not None:
            away_s = delay_s - source.delays_s[-1]
            source.jumps += stamp_ns < before_ns or abs(away_s) > JUMP_S
        source.delays_s.append(delay_s)
    source.times_s.append(now_s)
    source.stamps_ns.append(stamp_ns)


def survey_bag_topics(bag: Bag, namespace: str, deserialize: Deserialize) -> Survey:
    """List the topics of a bag with their message types, rates and ranges of values.

    `an-control new` drafts a robot's wiring file from them.

    Args:
        bag: The bag.
        namespace: The namespace of the topics; "" for all topics.
        deserialize: Makes a ROS message from its bytes and its message class.

    Returns:
        The topics with sensor readings, and the topics with commands. Topics on which policy nodes
        report about themselves are left out. If a policy node recorded the bag with its wiring, the
        command messages of this wiring are included.

    Raises:
        BagError: The bag cannot be read.
        WiringError: The recorded wiring cannot be used.
    """
    prefix = f"/{namespace.strip('/')}/" if namespace.strip("/") else "/"
    messages = _BagMessages(bag, deserialize)
    topics: dict[str, SurveyedTopic] = {}
    taken: dict[str, str] = {}
    own = tuple(f"/{name}" for name in TYPES if "/" in name)
    nodes: set[str] = set()
    wired: dict[str, tuple[MessageConfig, ...]] = {}
    for entry in messages.iterate_entries():
        name = entry.topic
        if name.endswith(own):
            node = name.rpartition("/record/")[0]
            nodes.add(node)
            if name.startswith(prefix) and name.endswith(f"/{EVENTS}"):
                wired[node] = _read_command_messages(entry, bag) or wired.get(node, ())
            continue
        if name.endswith(TRANSITIONS):
            nodes.add(name.removesuffix(TRANSITIONS))
        if name not in messages.types or not may_be_sensor_topic(name, prefix):
            continue
        if COMMANDS.search(PurePosixPath(name).name):
            taken[name] = entry.type
            continue
        cls = messages.find_message_class(entry.type)
        if cls is None:
            continue
        topic = topics.setdefault(name, SurveyedTopic(name, entry.type, (SENDER,)))
        if topic.type != entry.type:
            continue
        message = messages.deserialize(entry)
        update_topic_statistics(
            topic, message, make_stamp_reader(cls)(message) is not None, messages.now_s
        )
    reports = {
        name
        for name in (*topics, *taken)
        if any(is_report_of_policy_node(name, node) for node in nodes)
    }
    heard = tuple(topics[name] for name in sorted(topics) if name not in reports)
    commands = [
        SubscribedTopic(name, type_, (SENDER,))
        for name, type_ in taken.items()
        if name not in reports
    ]
    by_topic = {one.topic: one for some in wired.values() for one in some}
    return Survey(heard, tuple(commands), tuple(by_topic.values()))


def _read_command_messages(entry: BagEntry, bag: Bag) -> tuple[MessageConfig, ...]:
    """Return the command messages of the wiring that an event of a policy node holds; else ()."""
    event = decode_event(entry.data)
    if event["event"] != "wiring":
        return ()
    return load_recorded_wiring(str(event.get("text", "")), bag.path).command.messages
