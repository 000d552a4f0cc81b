"""One source at runtime: its newest messages, whether they count, and the numbers they hold.

Several publishers may share a topic, each sending some of its named elements. Elements that a
message does not have keep their value of an earlier message, each with an age of its own. In real
time this needs a maximum age; in lockstep it holds for the messages of one step.
"""

from __future__ import annotations

import copy
import itertools
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.config import MessageNames, SourceConfig
from an_control.wiring.readers import ElementReader, GrowingReader, Reader, Row

NEVER_NS = 1 << 62
"""An age that no message reaches; as a limit, it means no limit."""
_MAX_UNREAD = 64
"""Maximum number of unread messages where several publishers may share a topic."""
_MAX_SHAPES = 16
"""Maximum number of shapes whose newest message is kept."""
_NO_STAMP = -1
MessageShape = tuple[int, ...]
"""Identifies which names a message has and how long its arrays are."""
_ALL_CHANNELS: MessageShape = ()
"""The shape of a message that has all channels, or counts for all."""


def limit_ns(source: SourceConfig, max_age_s: float | None = None) -> int:
    """Return the maximum age in ns of a message; a channel's `max_age_s` overrides the source's."""
    limit_s = source.max_age_s if max_age_s is None else max_age_s
    return max(1, int(limit_s * 1e9)) if limit_s > 0.0 else NEVER_NS


@dataclass(frozen=True)
class SourceStatus:
    """The state of a source as of the last read, for diagnostics.

    Attributes:
        name: Name of the source.
        topic: Its topic.
        messages: Number of messages received.
        age_s: Age of the newest message, None before the first.
        stamp_ns: Stamp of the newest message, None if it has none.
        fresh: Whether the newest message counts.
        repeats: Number of messages since the newest one with a new stamp.
        present: Number of channels with a valid reading.
        expected: Number of channels that should have one.
        missing: Ids of the expected channels that are missing.
        reasons: Why they are missing, each reason once.
        unexpected: Number of wildcard elements that have not come long enough to be expected.
        dropped: Number of wildcard elements that came only briefly.
        error: Why the newest message could not be read, "" if it could.
    """

    name: str
    topic: str
    messages: int
    age_s: float | None
    stamp_ns: int | None
    fresh: bool
    repeats: int
    present: int
    expected: int
    missing: tuple[str, ...]
    reasons: tuple[str, ...]
    unexpected: int
    dropped: int
    error: str


StoredMessage = tuple[Any, int | None, int]
"""A message, its stamp and its arrival (ns); a repeated stamp keeps the first one's arrival."""


def _time_ns(stored: StoredMessage, lockstep: bool) -> int:
    """Return the time of a message: its stamp in lockstep if it has one, else its arrival."""
    _, stamp_ns, arrival_ns = stored
    return stamp_ns if lockstep and stamp_ns is not None else arrival_ns


class Feed:
    """One source at runtime: its newest messages, and the place of its channels in the table."""

    def __init__(
        self, config: SourceConfig, readers: Sequence[Reader], names: Sequence[MessageNames]
    ) -> None:
        self.config = config
        self.readers = tuple(readers)
        self.growing = tuple(
            reader for reader in readers if isinstance(reader, GrowingReader) and reader.wildcard
        )
        for reader in self.growing:
            if (own_ns := limit_ns(config, reader.max_age_s)) < NEVER_NS:
                reader.set_gone_after(own_ns)
        self._settled = sum(r.expected for r in readers if r not in self.growing)
        self._names = tuple(names)
        merging = [reader for reader in readers if reader.merges]
        self._arrays = tuple(reader for reader in merging if isinstance(reader, ElementReader))
        self._nested = len(self._arrays) < len(merging)
        self.unread: deque[StoredMessage] = deque(maxlen=_MAX_UNREAD if merging else 1)
        """The messages to read, oldest first."""
        self._kept: dict[MessageShape, StoredMessage] = {}
        """The newest message of each shape; the table's numbers were read from these, in order."""
        self._count = itertools.count()
        self.stamp_ns: int | None = None
        self.arrival_ns = 0
        self.messages = 0
        self.repeats = 0
        """Messages since the newest one whose stamp was new."""
        self.messages_read = 0
        self.new = False
        """Whether a message that repeats no stamp has come since the last read."""
        self.partial = False
        """Whether its channels come from messages of different ages."""
        self.fresh = True
        self.error = ""

    def store(self, message: Any, stamp_ns: int | None, arrival_ns: int) -> None:
        """Keep a message until it is read."""
        if stamp_ns is None or stamp_ns != self.stamp_ns:
            self.arrival_ns = arrival_ns
            self.new = True
            self.repeats = 0
        else:
            self.repeats += 1
        self.stamp_ns = stamp_ns or None
        self.messages += 1
        self.unread.append((message, self.stamp_ns, self.arrival_ns))

    def lay_out(self, start: int, raw: Row) -> int:
        """Take a place in the table from `start` on, set all messages unread, return its end."""
        self.start = self.stop = start
        self._reads: list[tuple[Reader, Row, slice]] = []
        limits: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        for reader in self.readers:
            first, self.stop = self.stop, self.stop + len(reader.ids)
            self._reads.append(
                (reader, raw[first : self.stop], slice(first - start, self.stop - start))
            )
            limits.append(self._limits_of(reader))
        self.limits = np.concatenate(limits)
        own = self.limits if len(self.limits) else np.array([limit_ns(self.config)])
        self.shortest, self.longest = int(own.min()), int(own.max())
        self.arrivals = np.full(len(self.limits), -NEVER_NS)
        self._stamps = np.full(len(self.limits), _NO_STAMP)
        self._last: StoredMessage | None = None
        self.partial = False
        self.unread = deque([*self._kept.values(), *self.unread], self.unread.maxlen)
        return self.stop

    def _limits_of(self, reader: Reader) -> NDArray[np.int64]:
        """Return the maximum age of a message for each channel of a reader, (n,) ns."""
        ages_s = {config.max_age_s for config in reader.configs}
        limits = {age_s: limit_ns(self.config, age_s) for age_s in ages_s}
        if len(limits) == 1:
            return np.full(len(reader.ids), limits.popitem()[1], np.int64)
        return np.array([limits[config.max_age_s] for config in reader.configs], np.int64)

    def with_config(self, config: SourceConfig) -> Feed:
        """Return a feed of the same channels for another table, with this feed's state.

        The readers are the same objects: once the other table reads, this feed must not.
        """
        feed = copy.copy(self)
        feed.config = config
        feed._kept, feed.unread = dict(self._kept), self.unread.copy()
        return feed

    def copy_state(self, old: Feed) -> None:
        """Copy the newest messages and the state of another feed of the same message type."""
        self.stamp_ns, self.arrival_ns = old.stamp_ns, old.arrival_ns
        self.messages, self.messages_read = old.messages, old.messages_read
        self.repeats = old.repeats
        self.new, self.fresh = old.new, old.fresh
        self.unread.extend([*old._kept.values(), *old.unread])
        for mine, theirs in zip(self.readers, old.readers, strict=False):
            if mine not in self.growing:
                mine.copy_state(theirs)
        for mine, theirs in itertools.product(self.growing, old.growing):
            if mine.has_same_wildcard(theirs):
                mine.copy_state(theirs)

    def reset(self) -> None:
        """Forget what earlier messages showed, because a new episode starts."""
        for reader in self.readers:
            reader.reset()

    @property
    def expected(self) -> int:
        """Number of channels that should be present."""
        return self._settled + sum([reader.expected for reader in self.growing])

    def reported_channels(self) -> NDArray[np.bool_]:
        """Return for which channels (stop - start,) a loss is reported."""
        masks = [reader.reported_channels() for reader in self.readers]
        return np.concatenate(masks) if masks else np.zeros(0, bool)

    def explained_channels(self) -> NDArray[np.bool_]:
        """Return for which channels (stop - start,) diagnostics say why they are missing.

        These are the listed channels and all elements that are known by their index.
        """
        masks = [
            np.ones(len(reader.ids), bool)
            if reader in self.growing and not reader.merges
            else reader.reported_channels()
            for reader in self.readers
        ]
        return np.concatenate(masks) if masks else np.zeros(0, bool)

    def age_ns(self, now_ns: int) -> int:
        """Return the age of the newest message; NEVER_NS if the clock was set back since."""
        age = now_ns - self.arrival_ns
        return age if age >= 0 else NEVER_NS

    def is_in_time(self, now_ns: int, stamp_ns: int | None) -> bool:
        """Return whether the newest message counts at this tick for at least one channel."""
        if stamp_ns is None:
            return self.messages > 0 and self.age_ns(now_ns) <= self.longest
        if self.stamp_ns is None:
            return self.messages > self.messages_read
        return self.stamp_ns == stamp_ns

    def why_late(self, now_ns: int, stamp_ns: int | None) -> str:
        """Return the reason why `is_in_time` is false, as text for a log line."""
        if not self.messages:
            return f"no message yet on {self.config.topic}"
        if stamp_ns is not None:
            return f"no message of the step at {stamp_ns / 1e9:.6f} s"
        if now_ns < self.arrival_ns:
            return "the clock was set back"
        if self.messages == 1:
            return (
                f"its only message came {(now_ns - self.arrival_ns) / 1e9:.1f} s ago, but a message"
                f" counts only for {self.longest / 1e9:g} s; max_age_s: 0 lets it count forever"
            )
        if self.repeats and self.stamp_ns is not None:
            return (
                f"{self.repeats} messages repeat the stamp {self.stamp_ns / 1e9:.6f} s, so none"
                f" has been new for more than {self.longest / 1e9:g} s: the sender must give each"
                " message a new stamp, or leave the stamp 0"
            )
        return f"no message for more than {self.longest / 1e9:g} s"

    def scan(self, lockstep: bool) -> bool:
        """Update names and wildcards from the unread messages; return whether the ids have changed.

        Of several unread messages of one shape, only the newest is kept.
        """
        self.error = ""
        if len(self.unread) > 1:
            self._drop_replaced()
        changed = False
        for stored in self.unread if self._names or self.growing else ():
            self.error = ""
            try:
                for names in self._names:
                    names.update(stored[0])
                for reader in self.growing:
                    changed |= reader.grow(stored[0], _time_ns(stored, lockstep))
            except Exception as error:
                self.error = f"unreadable message ({error})"
        return changed

    def extract(self, lockstep: bool) -> None:
        """Write the numbers of the unread messages into the table; call `scan` before."""
        if len(self.unread) == 1 and not (self.partial or self.growing or self.error):
            message = self.unread[0][0]
            try:
                if all([reader.read(message, row) is None for reader, row, _ in self._reads]):
                    self._last = self.unread.popleft()
                    self._kept = {_ALL_CHANNELS: self._last}
                    return
            except Exception:  # the message is read again below, where the error is kept
                pass
        unread = tuple(self.unread)
        self.unread.clear()
        for stored in unread:
            try:
                if len(unread) > 1:
                    self.error = ""
                    for names in self._names:
                        names.update(stored[0])
                if not self.error:
                    shape = self._read(stored, lockstep, after_another=stored is not unread[0])
            except Exception as error:
                self.error = f"unreadable message ({error})"
            if self.error:
                for _, row, _ in self._reads:
                    row[:] = np.nan
                self.partial, shape = False, _ALL_CHANNELS
            self._last = stored
            self._remember(stored, shape)

    def _read(self, stored: StoredMessage, lockstep: bool, after_another: bool) -> MessageShape:
        """Write one message's numbers into the table, and return the message's shape.

        A number that the message does not have keeps its earlier value where that is allowed: in
        real time if the channel has a maximum age, in lockstep if the earlier value is of the same
        step.

        Args:
            stored: The message to read.
            lockstep: Whether the table is read in lockstep.
            after_another: Whether an earlier message was read at this tick.
        """
        merges = True
        if lockstep:
            same = self._last is not None and self._last[1] == stored[1]
            merges = same and (after_another or stored[1] is not None)
            if not merges:
                self._kept.clear()
        stays: NDArray[np.bool_] | None = None
        for reader, row, place in self._reads:
            there = reader.read(stored[0], row)
            reader.record_presence(there, _time_ns(stored, lockstep))
            if there is None:
                continue
            if merges and reader.merges:
                stays = np.zeros(len(self.limits), bool) if stays is None else stays
                stays[place] = ~there if lockstep else ~there & (self.limits[place] < NEVER_NS)
                there = there | stays[place]
            row[~there] = np.nan
        if stays is None and not self.partial:
            return _ALL_CHANNELS
        if stays is None:
            stays = np.zeros(len(self.limits), bool)
        self._set_ages(stored, ~stays)
        return self._shape_of(stored[0]) if stays.any() else _ALL_CHANNELS

    def _set_ages(self, stored: StoredMessage, mine: NDArray[np.bool_]) -> None:
        """Set the age of the channels in `mine` to this message's, or the first's of its stamp."""
        if not self.partial and self._last is not None:
            self.arrivals[:] = self._last[2]
            self._stamps[:] = self._last[1] or _NO_STAMP
        stamp_ns, arrival_ns = stored[1] or _NO_STAMP, stored[2]
        new = mine & ((self._stamps != stamp_ns) | (stamp_ns == _NO_STAMP))
        self.arrivals[new] = arrival_ns
        self._stamps[mine] = stamp_ns
        self.partial = bool((self.arrivals != arrival_ns).any() or (self._stamps != stamp_ns).any())

    def _shape_of(self, message: Any) -> MessageShape:
        """Return the shape of a message; always a new one if elements are nested in lists."""
        if self._nested:
            return (next(self._count),)
        numbers = [names.update(message) for names in self._names]
        return (*numbers, *[reader.length(message) for reader in self._arrays])

    def _remember(self, stored: StoredMessage, shape: MessageShape) -> None:
        """Remember a message, so that it can be read again when the table's layout changes."""
        if shape == _ALL_CHANNELS:
            self._kept.clear()
        self._kept.pop(shape, None)
        self._kept[shape] = stored
        if len(self._kept) > _MAX_SHAPES:
            del self._kept[next(iter(self._kept))]

    def _drop_replaced(self) -> None:
        """Drop the unread messages that a newer one of the same shape replaces."""
        newest: dict[MessageShape | int, StoredMessage] = {}
        for place, stored in enumerate(self.unread):
            shape: MessageShape | int = place
            with suppress(Exception):
                shape = self._shape_of(stored[0])
            newest.pop(shape, None)
            newest[shape] = stored
        self.unread = deque(newest.values(), self.unread.maxlen)

    def why_missing(self, index: int, now_ns: int) -> str:
        """Return why a channel, by its place in the source, is missing in a fresh source."""
        arrival_ns = int(self.arrivals[index]) if self.partial else self.arrival_ns
        if now_ns - arrival_ns > self.limits[index] and arrival_ns > -NEVER_NS:
            what = "no message with it" if self.partial else "no message"
            return f"{what} for more than {self.limits[index] / 1e9:g} s"
        reader, place = self._reader_of(index)
        return reader.why_absent(place) or reader.why_invalid(place)

    def detail(self, index: int) -> str:
        """Return more about a missing channel, given by its place in the source, or ""."""
        reader, place = self._reader_of(index)
        if self.partial and self.arrivals[index] > -NEVER_NS:  # an earlier message had it
            return reader.replacement(place)
        return reader.detail(place) if reader.why_absent(place) else ""

    def _reader_of(self, index: int) -> tuple[Reader, int]:
        """Return the reader of a channel and the channel's place in it."""
        for reader in self.readers:
            if index < len(reader.ids):
                return reader, index
            index -= len(reader.ids)
        raise IndexError(index)
