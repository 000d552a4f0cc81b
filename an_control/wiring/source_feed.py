"""One source (subscribed topic) at runtime: its newest messages and the numbers in them.

Each number that the policy reads is a channel of the channel table. Several publishers may share a
topic, each sending some of the named elements. Elements that a message does not have keep their
value from an earlier message, and each has an age of its own. In real time this is only done for
channels with a maximum age. In lockstep, where a simulator waits for each command, it is only done
among the messages of one step.
"""

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.config import MessageNames, SourceConfig
from an_control.wiring.readers import ElementReader, GrowingReader, Reader, Row

TOO_OLD = "no message for more than"
"""Beginning of the reason if a source is lost because of its largest age."""
NEVER_NS = 1 << 62
"""An age in ns that no message reaches; as a maximum age it means "no maximum"."""
_MAX_UNREAD = 64
"""Maximum number of messages that wait to be read, if several publishers may share a topic."""
_MAX_SHAPES = 16
"""Maximum number of different message shapes (see `MessageShape`) whose newest message is kept."""
_NO_STAMP = -1
MessageShape = tuple[int, ...]
"""Identifies which element names a message has and how long its arrays are, so that messages of the
same shape replace each other."""
_ALL_CHANNELS: MessageShape = ()
"""The shape of a message that has all channels, or is treated so."""


def compute_max_message_age_ns(source: SourceConfig, max_age_s: float | None = None) -> int:
    """Return the age in ns up to which a channel's message may be used.

    It is `NEVER_NS` if there is no maximum.

    Args:
        source: Settings of the channel's source, with the maximum age of its messages.
        max_age_s: The channel's own maximum age, which replaces that of the source; None if the
            channel has none of its own.
    """
    limit_s = source.max_age_s if max_age_s is None else max_age_s
    return max(1, int(limit_s * 1e9)) if limit_s > 0.0 else NEVER_NS


StoredMessage = tuple[Any, int | None, int]
"""A message, its time stamp in ns or None, and its arrival time in ns. Messages with the same stamp
get the arrival time of the first of them."""


def _get_message_time_ns(stored: StoredMessage, lockstep: bool) -> int:
    """Return a message's time in ns: in lockstep its time stamp, if any; else its arrival time."""
    _, stamp_ns, arrival_ns = stored
    return stamp_ns if lockstep and stamp_ns is not None else arrival_ns


class ReceivedMessages:
    """The messages of a source (subscribed topic) that have arrived and have not been read yet.

    Args:
        max_unread: Maximum number of unread messages. If there are more, the oldest are dropped.
    """

    def __init__(self, max_unread: int) -> None:
        self.unread: deque[StoredMessage] = deque(maxlen=max_unread)
        """The messages to read, oldest first."""
        self.stamp_ns: int | None = None
        """Time stamp of the newest message in ns; None if it has none."""
        self.arrival_ns = 0
        """Arrival time in ns of the newest message, or of the first message with the same stamp."""
        self.last_arrival_ns = 0
        """Arrival time in ns of the newest message, also of one that repeats a stamp."""
        self.count = 0
        self.count_read = 0
        """The value of `count`, the number of messages so far, at the newest read."""
        self.repeats = 0
        """Number of messages that have repeated the stamp of the message before."""
        self.new = False
        """Whether a message with a new stamp, or without a stamp, has come since the newest
        read."""

    def store_message(self, message: Any, stamp_ns: int | None, arrival_ns: int) -> None:
        """Store a message that has arrived, until it is read.

        Args:
            message: The message.
            stamp_ns: Its time stamp in ns; None or 0 if it has none.
            arrival_ns: Its time of arrival in ns. If the message repeats the time stamp of the
                previous message, the arrival time of that message is used instead.
        """
        if stamp_ns is None or stamp_ns != self.stamp_ns:
            self.arrival_ns = arrival_ns
            self.new = True
            self.repeats = 0
        else:
            self.repeats += 1
        self.stamp_ns, self.last_arrival_ns = stamp_ns or None, arrival_ns
        self.count += 1
        self.unread.append((message, self.stamp_ns, self.arrival_ns))

    def compute_age_ns(self, now_ns: int) -> int:
        """Return the age of the newest message in ns.

        If the clock was set back since the message came, the result is `NEVER_NS`, which is more
        than any maximum age.
        """
        age = now_ns - self.arrival_ns
        return age if age >= 0 else NEVER_NS

    def pop_unread(self) -> tuple[StoredMessage, ...]:
        """Return the unread messages, oldest first, and remove them from this object."""
        unread = tuple(self.unread)
        self.unread.clear()
        return unread

    def put_back_unread(self, earlier_messages: Iterable[StoredMessage]) -> None:
        """Insert earlier messages before the unread ones, so that they are read again."""
        self.unread = deque([*earlier_messages, *self.unread], self.unread.maxlen)

    def copy(self, max_unread: int | None = None) -> ReceivedMessages:
        """Return a copy, to which messages can be added without changing this object.

        Args:
            max_unread: Maximum number of unread messages in the copy; None: as in this object.
        """
        other = copy.copy(self)
        other.unread = deque(self.unread, max_unread or self.unread.maxlen)
        return other


class KeptMessages:
    """Store of messages that were read from a source and may have to be read again.

    It keeps the newest message of each shape. Messages with equal element names and array lengths
    have the same shape.

    Args:
        readers: The source's readers.
        names: Readers of the name lists in a message (such as `JointState.name`) by which `readers`
            find their elements.
        measures_positions: Whether the measured positions of actuators are read from the messages.
    """

    def __init__(
        self,
        readers: Iterable[Reader],
        names: Sequence[MessageNames],
        *,
        measures_positions: bool,
    ) -> None:
        self.names = tuple(names)
        merging = [reader for reader in readers if reader.merges]
        self._arrays = tuple(reader for reader in merging if isinstance(reader, ElementReader))
        self._nested = len(self._arrays) < len(merging)
        self._count = itertools.count()
        self._newest: dict[MessageShape, StoredMessage] = {}
        self.max_unread = _MAX_UNREAD if merging or measures_positions else 1
        """Maximum number of unread messages that are needed for one reading of the table."""

    @property
    def messages(self) -> tuple[StoredMessage, ...]:
        """The stored messages, in the order in which they were read."""
        return tuple(self._newest.values())

    def update_name_lists_and_get_numbers(self, message: Any) -> list[int]:
        """Store a message's lists of element names; return a number that identifies each list.

        Equal lists have equal numbers.
        """
        return [names.set_names_and_get_list_number(message) for names in self.names]

    def find_message_shape(self, message: Any) -> MessageShape:
        """Return a tuple that identifies which element names and array lengths a message has.

        If some channels are elements in lists of messages, every message gets a shape of its own.
        """
        if self._nested:
            return (next(self._count),)
        numbers = self.update_name_lists_and_get_numbers(message)
        return (*numbers, *[reader.count_elements(message) for reader in self._arrays])

    def add_message(self, stored: StoredMessage, shape: MessageShape) -> None:
        """Store a message that was read, in place of the stored message with an equal shape.

        Args:
            stored: The message.
            shape: The message's shape from `find_message_shape`; () if the message has all
                channels. Such a message replaces all stored ones.
        """
        if shape == _ALL_CHANNELS:
            self._newest = {shape: stored}
            return
        self._newest.pop(shape, None)
        self._newest[shape] = stored
        if len(self._newest) > _MAX_SHAPES:
            del self._newest[next(iter(self._newest))]

    def clear(self) -> None:
        """Remove all stored messages, so that they are not read again."""
        self._newest.clear()

    def select_newest_of_each_shape(self, unread: Iterable[StoredMessage]) -> list[StoredMessage]:
        """Return those of the unread messages that are the newest of their shape, oldest first.

        Args:
            unread: The messages, oldest first. Their shape is which element names they have, and
                how long their arrays are.
        """
        newest: dict[MessageShape | int, StoredMessage] = {}
        for place, stored in enumerate(unread):
            shape: MessageShape | int = place
            with suppress(Exception):
                shape = self.find_message_shape(stored[0])
            newest.pop(shape, None)
            newest[shape] = stored
        return list(newest.values())

    def copy(self) -> KeptMessages:
        """Return a copy, to which messages can be added without changing this object."""
        other = copy.copy(self)
        other._newest = dict(self._newest)
        return other


class ChannelAges:
    """A record of when each of a source's n channels was received, and how old it may become.

    Channels may have different times, because a message may have only some of them.
    """

    def __init__(self, config: SourceConfig, readers: Iterable[Reader]) -> None:
        limits = [_compute_max_ages_ns(config, reader) for reader in readers]
        self.limits = np.concatenate([np.zeros(0, np.int64), *limits])
        """Maximum age in ns of the message of each channel, (n,) for the n channels of the
        source."""
        own = self.limits if len(self.limits) else np.array([compute_max_message_age_ns(config)])
        self.shortest, self.longest = int(own.min()), int(own.max())
        self.partial = False
        """Whether the channels come from messages of different ages."""
        self.arrivals = np.full(len(self.limits), -NEVER_NS)
        """Arrival time in ns of each channel's message (n,); used only while `partial` is true."""
        self._stamps = np.full(len(self.limits), _NO_STAMP)

    def set_arrival_times(
        self,
        channels_in_message: NDArray[np.bool_],
        stored: StoredMessage,
        previous: StoredMessage | None,
    ) -> None:
        """Set the arrival times of the channels in a message that was just read.

        A channel keeps its arrival time if the last message with this channel had the same time
        stamp.

        Args:
            channels_in_message: Which of the source's n channels the message has, as bools (n,).
            stored: The message.
            previous: The message that was read before this one, or None. It has the arrival time
                of all channels as long as the attribute `partial` is False.
        """
        if not self.partial and previous is not None:
            self.arrivals[:] = previous[2]
            self._stamps[:] = previous[1] or _NO_STAMP
        stamp_ns, arrival_ns = stored[1] or _NO_STAMP, stored[2]
        new = channels_in_message & ((self._stamps != stamp_ns) | (stamp_ns == _NO_STAMP))
        self.arrivals[new] = arrival_ns
        self._stamps[channels_in_message] = stamp_ns
        self.partial = bool((self.arrivals != arrival_ns).any() or (self._stamps != stamp_ns).any())


def _compute_max_ages_ns(config: SourceConfig, reader: Reader) -> NDArray[np.int64]:
    """Return for each of a reader's n channels the maximum age (n,) of its message in ns."""
    limits = {
        one.max_age_s: compute_max_message_age_ns(config, one.max_age_s) for one in reader.configs
    }
    if len(limits) == 1:
        return np.full(len(reader.ids), limits.popitem()[1], np.int64)
    return np.array([limits[one.max_age_s] for one in reader.configs], np.int64)


class Feed:
    """One source (subscribed topic) at runtime, which writes its numbers into a channel table.

    Args:
        config: The settings of the source.
        readers: The readers of its channels.
        names: Readers of the name lists in a message by which `readers` find their elements.
        measures_positions: Whether the measured positions of actuators are read from the messages.
    """

    def __init__(
        self,
        config: SourceConfig,
        readers: Sequence[Reader],
        names: Sequence[MessageNames],
        *,
        measures_positions: bool = False,
    ) -> None:
        self.config = config
        self.readers = tuple(readers)
        self.growing = tuple(
            reader for reader in readers if isinstance(reader, GrowingReader) and reader.wildcard
        )
        for reader in self.growing:
            if (own_ns := compute_max_message_age_ns(config, reader.max_age_s)) < NEVER_NS:
                reader.set_removal_delay_ns(own_ns)
        self._settled = sum(r.expected_channel_count for r in readers if r not in self.growing)
        self._kept = KeptMessages(readers, names, measures_positions=measures_positions)
        self._last: StoredMessage | None = None
        """The message that was read last since `assign_array_part_and_get_end`, or None."""
        self.received = ReceivedMessages(self._kept.max_unread)
        self.fresh = True
        """Whether the newest message could be used (was new enough) at the newest read."""
        self.error = ""
        """Why the newest message could not be read; "" if it could."""
        self._step_ns: int | None = None
        """In lockstep the simulated time of the step at the newest read; None in real time."""
        self._earlier_ns = 0
        """In lockstep, by how many ns the newest message's stamp was earlier than that step."""

    def assign_array_part_and_get_end(self, start: int, table_array: Row) -> int:
        """Set the part of a `ChannelTable`'s array into which this source writes its numbers.

        The messages that were read last become unread again, so that their numbers are written
        into this part.

        Args:
            start: Index of the source's first channel in `table_array`.
            table_array: The array (N,) of the numbers of all channels.

        Returns:
            The index behind the source's last channel.
        """
        stop = start
        self._reads: list[tuple[Reader, Row, slice]] = []
        for reader in self.readers:
            first, stop = stop, stop + len(reader.ids)
            self._reads.append(
                (reader, table_array[first:stop], slice(first - start, stop - start))
            )
        self.place = slice(start, stop)
        """The part of the table's arrays that holds the source's channels."""
        self.ages = ChannelAges(self.config, self.readers)
        self._last = None
        self.received.put_back_unread(self._kept.messages)
        return stop

    def with_config(self, config: SourceConfig) -> Feed:
        """Return a copy of this object for another table, with other settings of the source.

        The copy shares its readers with this object. So do not use this object any more once the
        other table has read messages.

        Args:
            config: The new settings of the source, whose channels must be unchanged.
        """
        feed = copy.copy(self)
        feed.config = config
        feed._kept, feed.received = self._kept.copy(), self.received.copy()
        return feed

    def copy_state_from(self, old: Feed) -> None:
        """Copy the messages, and the state of the readers, from an earlier source object.

        Args:
            old: The object that this one replaces. It must have the same message type.
        """
        self.fresh = old.fresh
        self._step_ns, self._earlier_ns = old._step_ns, old._earlier_ns
        self.received = old.received.copy(self._kept.max_unread)
        self.received.put_back_unread(old._kept.messages)
        for mine, theirs in zip(self.readers, old.readers, strict=False):
            if mine not in self.growing:
                mine.copy_state_from(theirs)
        for mine, theirs in itertools.product(self.growing, old.growing):
            if mine.has_same_wildcard(theirs):
                mine.copy_state_from(theirs)

    def discard_camera_frames(self) -> None:
        """Discard the camera frames of earlier messages, because a new episode starts."""
        for reader in self.readers:
            reader.discard_camera_frames()

    @property
    def expected_channel_count(self) -> int:
        """Number of channels that should have a reading; a channel without one is missing."""
        return self._settled + sum([reader.expected_channel_count for reader in self.growing])

    def make_mask_of_channels_to_report_if_lost(self) -> NDArray[np.bool_]:
        """Return a mask (n,) of the source's n channels whose loss is reported to the user.

        They are all but those channels of a wildcard (`*`) that are not expected in later messages.
        """
        masks = [reader.make_mask_of_channels_to_report_if_lost() for reader in self.readers]
        return np.concatenate(masks) if masks else np.zeros(0, bool)

    def make_mask_of_channels_with_explained_absence(self) -> NDArray[np.bool_]:
        """Return a mask (n,), True for channels of which the diagnostics say why they are absent.

        They are the channels whose loss is reported to the user, and all channels of a wildcard
        (`*`) whose array elements are identified by index, because the array may be shorter.
        """
        masks = [
            np.ones(len(reader.ids), bool)
            if reader in self.growing and not reader.merges
            else reader.make_mask_of_channels_to_report_if_lost()
            for reader in self.readers
        ]
        return np.concatenate(masks) if masks else np.zeros(0, bool)

    def iterate_wildcards_by_index(self) -> Iterator[slice]:
        """Yield the places (among the source's channels) of each wildcard's elements by index.

        A wildcard is left out if its array in the newest message is empty.
        """
        stop = 0
        for reader in self.readers:
            start, stop = stop, stop + len(reader.ids)
            if isinstance(reader, GrowingReader) and reader.has_elements_by_index:
                yield slice(start, stop)

    def is_newest_message_usable(self, now_ns: int, stamp_ns: int | None) -> bool:
        """Return whether the newest message is new enough to be used for at least one channel.

        Args:
            now_ns: Time of the read in ns.
            stamp_ns: In lockstep the simulated time of the step in ns; None in real time. In
                lockstep a message is new enough if it has this time stamp, or has none and came
                since the last read.
        """
        received = self.received
        if stamp_ns is None:
            return received.count > 0 and received.compute_age_ns(now_ns) <= self.ages.longest
        if received.stamp_ns is None:
            return received.count > received.count_read
        return received.stamp_ns == stamp_ns

    def mark_stale_channels_and_tell_if_fresh(
        self, ok: NDArray[np.bool_], now_ns: int, stamp_ns: int | None
    ) -> bool:
        """Set `ok` to False for all channels of this source whose message is too old.

        This ends a read of the source: messages that arrive later count as new.

        Args:
            ok: Which of all N channels (of all sources) have a valid number, as bools (N,);
                changed in place.
            now_ns: Time of the read in ns.
            stamp_ns: In lockstep the simulated time of the step in ns; None in real time.

        Returns:
            Whether the newest message can be read, and is new enough for at least one channel.
        """
        received, ages = self.received, self.ages
        self._step_ns = stamp_ns
        self._earlier_ns = (stamp_ns or 0) - (received.stamp_ns or stamp_ns or 0)
        in_time = not self.error and self.is_newest_message_usable(now_ns, stamp_ns)
        received.count_read, received.new = received.count, False
        if not in_time:
            ok[self.place] = False
        elif stamp_ns is None and ages.partial:
            ages_ns = now_ns - ages.arrivals
            ok[self.place] &= (ages_ns >= 0) & (ages_ns <= ages.limits)
        elif stamp_ns is None and not 0 <= now_ns - received.arrival_ns <= ages.shortest:
            ok[self.place] &= ages.limits >= received.compute_age_ns(now_ns)
        return in_time

    def explain_lateness(self, now_ns: int) -> str:
        """Return text for a log line on why the newest message is too old, or that there is none.

        Args:
            now_ns: Time of the read in ns.
        """
        received, longest_s = self.received, self.ages.longest / 1e9
        if not received.count:
            return f"no message yet on {self.config.topic}"
        if self._step_ns is not None:
            where = "earlier" if self._earlier_ns > 0 else "later"
            lag = f"; its newest stamp is {abs(self._earlier_ns) / 1e9:g} s {where}"
            return f"no message of the step at {self._step_ns / 1e9:.6f} s" + (
                lag if self._earlier_ns else ""
            )
        if now_ns < received.arrival_ns:
            return "the clock was set back"
        if received.count == 1:
            return (
                f"its only message came {(now_ns - received.arrival_ns) / 1e9:.1f} s ago, but a"
                f" message counts only for {longest_s:g} s; max_age_s: 0 lets it count forever"
            )
        repeating = now_ns - received.last_arrival_ns <= self.ages.longest
        if repeating and received.repeats and received.stamp_ns is not None:
            return (
                f"{received.repeats} messages repeat the stamp {received.stamp_ns / 1e9:.6f} s, so"
                f" none has been new for more than {longest_s:g} s: the sender must give each"
                " message a new stamp, or leave the stamp 0"
            )
        return f"{TOO_OLD} {longest_s:g} s"

    def add_channels_if_new(self, lockstep: bool) -> bool:
        """Add channels for array elements that unread messages have for the first time.

        Channels whose elements have been missing for long may be removed. Of unread messages with
        the same element names and array lengths only the newest is kept.

        Args:
            lockstep: Whether a simulator and the node wait for each other at every step.

        Returns:
            Whether the ids of the source's channels have changed.
        """
        self.error = ""
        received = self.received
        if len(received.unread) > 1:
            newest = self._kept.select_newest_of_each_shape(received.pop_unread())
            received.put_back_unread(newest)
        changed = False
        for stored in received.unread if self._kept.names or self.growing else ():
            self.error = ""
            try:
                self._kept.update_name_lists_and_get_numbers(stored[0])
                for reader in self.growing:
                    changed |= reader.add_channels_if_new(
                        stored[0], _get_message_time_ns(stored, lockstep)
                    )
            except Exception as error:
                self.error = f"unreadable message ({error})"
        return changed

    def write_numbers_of_unread_messages(self, lockstep: bool) -> None:
        """Write into the `ChannelTable` the numbers in messages that came since the last call.

        Call `add_channels_if_new` before, so that the table has a place for each number.

        Args:
            lockstep: Whether a simulator and the node wait for each other at every step.
        """
        unread = self.received.pop_unread()
        for stored in unread:
            try:
                if len(unread) > 1:
                    self.error = ""
                    self._kept.update_name_lists_and_get_numbers(stored[0])
                if not self.error:
                    shape = self._write_message_numbers_and_get_shape(
                        stored, lockstep, is_further_message=stored is not unread[0]
                    )
            except Exception as error:
                self.error = f"unreadable message ({error})"
            if self.error:
                for _, row, _ in self._reads:
                    row[:] = np.nan
                self.ages.partial, shape = False, _ALL_CHANNELS
            self._last = stored
            self._kept.add_message(stored, shape)

    def _write_message_numbers_and_get_shape(
        self, stored: StoredMessage, lockstep: bool, is_further_message: bool
    ) -> MessageShape:
        """Write one message's numbers into the table.

        A channel that the message does not have becomes missing. If the channel is an array element
        that is identified by a name, its earlier value stays in two cases: in real time if the
        channel has a maximum age, and in lockstep if the earlier value is from this step.

        Args:
            stored: The message to read.
            lockstep: Whether a simulator and the node wait for each other at every step.
            is_further_message: Whether an earlier message of the source was read at this tick.

        Returns:
            The message's shape, which identifies its element names and array lengths; () if no
            earlier value stays.
        """
        merges, ages = True, self.ages
        if lockstep:
            same = self._last is not None and self._last[1] == stored[1]
            merges = same and (is_further_message or stored[1] is not None)
            if not merges:
                self._kept.clear()
        stays: NDArray[np.bool_] | None = None
        for reader, row, place in self._reads:
            there = reader.read_into_row(stored[0], row)
            if self.growing:
                reader.record_present_channels(there, _get_message_time_ns(stored, lockstep))
            if there is None:
                continue
            if merges and reader.merges:
                stays = np.zeros(len(ages.limits), bool) if stays is None else stays
                stays[place] = ~there if lockstep else ~there & (ages.limits[place] < NEVER_NS)
                there = there | stays[place]
            row[~there] = np.nan
        if stays is None and not ages.partial:
            return _ALL_CHANNELS
        if stays is None:
            stays = np.zeros(len(ages.limits), bool)
        ages.set_arrival_times(~stays, stored, self._last)
        return self._kept.find_message_shape(stored[0]) if stays.any() else _ALL_CHANNELS

    def explain_missing_channel(self, channel_index: int, now_ns: int) -> str:
        """Return text on why a channel is missing although the source's newest message can be used.

        Args:
            channel_index: Index of the channel among the source's channels.
            now_ns: Time of the read in ns.
        """
        ages = self.ages
        arrival_ns = int(ages.arrivals[channel_index]) if ages.partial else self.received.arrival_ns
        if now_ns - arrival_ns > ages.limits[channel_index] and arrival_ns > -NEVER_NS:
            what = "no message with it" if ages.partial else "no message"
            return f"{what} for more than {ages.limits[channel_index] / 1e9:g} s"
        reader, place = self._find_reader_and_index(channel_index)
        return reader.explain_absence_from_message(place) or reader.explain_invalid_number(place)

    def describe_likely_cause_of_absence(self, channel_index: int) -> str:
        """Return text on a possible cause of a channel's absence, such as a misspelt name.

        Args:
            channel_index: Index of the channel among the source's channels.

        Returns:
            Text for a log line, or "" if no cause is known.
        """
        reader, place = self._find_reader_and_index(channel_index)
        if (
            self.ages.partial and self.ages.arrivals[channel_index] > -NEVER_NS
        ):  # an earlier message had it
            return reader.describe_replacement_of_absent_element(place)
        return (
            reader.describe_likely_cause_of_absence(place)
            if reader.explain_absence_from_message(place)
            else ""
        )

    def _find_reader_and_index(self, channel_index: int) -> tuple[Reader, int]:
        """Return the reader that reads a channel, and the channel's index in that reader.

        Args:
            channel_index: Index of the channel among the source's channels.
        """
        for reader in self.readers:
            if channel_index < len(reader.ids):
                return reader, channel_index
            channel_index -= len(reader.ids)
        raise IndexError(channel_index)
