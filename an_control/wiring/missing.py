"""Which channels are missing and why, as of the last read, and notices of what has changed.

A notice is made once, when a source or some of its channels are lost, come back, or are new.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.feed import Feed
from an_control.wiring.readers import PROVEN_NS

_SHOWN_CHANNELS = 5
_KEPT_NOTICES = 256
_EXPLAINED = 8


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


@dataclass(frozen=True)
class Notice:
    """A note, made once, that a source or some of its channels were lost, came back, or are new.

    Attributes:
        kind: "new" is used for elements of a wildcard that were not in its first message.
        source: Name of the source.
        channels: Ids of the channels concerned; empty if the whole source is meant.
        reason: Why they were lost, as text for a log line.
        never: Whether the source has never sent a message.
    """

    kind: Literal["lost", "recovered", "new"]
    source: str
    channels: tuple[str, ...] = ()
    reason: str = ""
    never: bool = False

    def __str__(self) -> str:
        what = f"source {self.source!r}"
        if self.channels:
            more = len(self.channels) - _SHOWN_CHANNELS
            shown = ", ".join(self.channels[:_SHOWN_CHANNELS])
            what = f"{what}: {shown}{f' and {more} more' if more > 0 else ''}"
        if self.never:
            return f"{what}: {self.reason}"
        return f"{what} {self.kind}" + (f": {self.reason}" if self.reason else "")


class MissingReport:
    """The channels of a table that were missing at the last read, and what changed since before.

    Args:
        feeds: The table's sources.
    """

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._feeds = tuple(feeds)
        self._required = [feed for feed in self._feeds if feed.config.required]
        self._ids: tuple[str, ...] = ()
        self._ok = np.zeros(0, bool)
        """Which channels (N,) were valid at the last read."""
        self._fine = np.zeros(0, bool)
        """Which channels (N,) are not reported as lost."""
        self._last: tuple[bytes, list[bool]] | None = None
        """The channels that were valid and the sources that counted, at the last read."""
        self._read_ns: int | None = None
        """Time of the last read in real time."""
        self._notices: deque[Notice] = deque(maxlen=_KEPT_NOTICES)

    def lay_out(self, ids: tuple[str, ...], like: MissingReport) -> None:
        """Follow the channels with these ids (N,), with what `like` knows of them by id."""
        known = dict(zip(like._ids, like._fine.tolist(), strict=True))
        self._fine = np.array([known.get(id_, True) for id_ in ids], bool)
        self._ids, self._ok, self._last = ids, np.zeros(len(ids), bool), None

    def update(
        self, ok: NDArray[np.bool_], fresh: list[bool], now_ns: int, stamp_ns: int | None
    ) -> bytes:
        """Follow a read, and add notices of what changed; return `ok` as bytes.

        Args:
            ok: Which channels (N,) are valid.
            fresh: Which sources count.
            now_ns: Time of the read.
            stamp_ns: Its stamp in lockstep, None in real time.
        """
        self._read_ns = now_ns if stamp_ns is None else None
        pattern = ok.tobytes()
        if (pattern, fresh) != self._last:
            self._last, self._ok = (pattern, fresh), ok
            for feed, in_time in zip(self._feeds, fresh, strict=True):
                self._add_notice(feed, in_time, now_ns, stamp_ns)
                feed.fresh = in_time
                if in_time:
                    read_ns = now_ns if stamp_ns is None else feed.received.arrival_ns
                    self._add_channel_notices(feed, read_ns)
        return pattern

    def _add_notice(self, feed: Feed, in_time: bool, now_ns: int, stamp_ns: int | None) -> None:
        """Add a notice if a source was lost or came back."""
        name = feed.config.name
        if in_time and not feed.fresh:
            self._notices.append(Notice("recovered", name))
        elif feed.fresh and not in_time:
            reason = feed.error or feed.why_late(now_ns, stamp_ns)
            self._notices.append(Notice("lost", name, (), reason, not feed.received.count))

    def _add_channel_notices(self, feed: Feed, now_ns: int) -> None:
        """Add notices of single channels, one notice for all channels with the same reason."""
        ok, fine, ids = self._ok[feed.place], self._fine[feed.place], self._ids[feed.place]
        groups: dict[tuple[Literal["lost", "recovered"], str], list[str]] = defaultdict(list)
        details: dict[str, str] = {}
        for index in np.flatnonzero((ok != fine) & feed.reported_channels()).tolist():
            if ok[index]:
                groups["recovered", ""].append(ids[index])
            else:
                reason = feed.why_missing(index, now_ns)
                details.setdefault(reason, feed.detail(index))
                groups["lost", reason].append(ids[index])
        fine[:] = ok
        for (kind, reason), changed in groups.items():
            reason = _join_detail(reason, details.get(reason, ""))
            self._notices.append(Notice(kind, feed.config.name, tuple(changed), reason))

    def add_new_notices(self) -> None:
        """Add notices of the elements that wildcards added after their first message."""
        for feed in self._feeds:
            new = [id_ for reader in feed.growing for id_ in reader.appeared]
            for reader in feed.growing:
                reader.appeared.clear()
            if new:
                reason = f"expected once they have come for {PROVEN_NS / 1e9:g} s"
                self._notices.append(Notice("new", feed.config.name, tuple(new), reason))

    def take_notices(self) -> list[Notice]:
        """Return and clear the notices of what was lost and what came back since the last call."""
        notices = list(self._notices)
        self._notices.clear()
        return notices

    def reset_notices(self) -> None:
        """Clear all notices, so that the next read reports everything that is lost by then."""
        self._notices.clear()
        self._last = None
        self._fine[:] = True
        for feed in self._feeds:
            feed.fresh = True

    def required_sources(self) -> list[str]:
        """Return the names of the required sources that were missing at the last read."""
        return [feed.config.name for feed in self._required if not feed.fresh]

    def reasons(self, now_ns: int) -> dict[str, list[str]]:
        """Return the ids of the channels that were missing at the last read, by reason."""
        found: dict[str, list[str]] = {}
        for feed in self._feeds:
            late = "" if feed.fresh and feed.received.count else feed.why_late(now_ns, None)
            first: dict[str, str] = {}
            for index in self._reported(feed):
                reason = late or feed.error or feed.why_missing(index, now_ns)
                if reason not in first:
                    first[reason] = reason if late else _join_detail(reason, feed.detail(index))
                found.setdefault(first[reason], []).append(self._ids[feed.place][index])
        return found

    def status(self, now_ns: int) -> list[SourceStatus]:
        """Return the state of each source as of the last read, for diagnostics."""
        return [
            SourceStatus(
                name=feed.config.name,
                topic=feed.config.topic,
                messages=feed.received.count,
                age_s=(now_ns - feed.received.arrival_ns) / 1e9 if feed.received.count else None,
                stamp_ns=feed.received.stamp_ns,
                fresh=feed.fresh and feed.received.count > 0,
                repeats=feed.received.repeats,
                present=int(np.count_nonzero(self._ok[feed.place])),
                expected=feed.expected,
                missing=tuple(self._ids[feed.place][index] for index in self._reported(feed)),
                reasons=self._explain(feed),
                unexpected=sum(reader.unexpected for reader in feed.growing),
                dropped=sum(reader.dropped for reader in feed.growing),
                error=feed.error,
            )
            for feed in self._feeds
        ]

    def _reported(self, feed: Feed) -> list[int]:
        """Return the places in a source of the channels that should be present and are missing."""
        missing: list[int] = np.flatnonzero(
            feed.reported_channels() & ~self._ok[feed.place]
        ).tolist()
        return missing

    def _explain(self, feed: Feed) -> tuple[str, ...]:
        """Return why the first channels of a source are missing; empty if the source is missing."""
        if not feed.fresh or not feed.received.count:
            return ()
        read_ns = feed.received.arrival_ns if self._read_ns is None else self._read_ns
        missing = feed.explained_channels() & ~self._ok[feed.place]
        found: dict[str, str] = {}
        for index in np.flatnonzero(missing)[:_EXPLAINED].tolist():
            reason = feed.why_missing(index, read_ns)
            if reason not in found:
                found[reason] = _join_detail(reason, feed.detail(index))
        return tuple(found.values())


def _join_detail(reason: str, detail: str) -> str:
    return f"{reason}: {detail}" if detail else reason
