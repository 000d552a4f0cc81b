"""Find which channels (inputs of the policy) are missing and why, and note what changes.

A source is a subscribed topic, which feeds channels. A notice is made once, when a source or some
of its channels are lost, come back, or are new.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.readers import PROVEN_NS
from an_control.wiring.source_feed import Feed

_SHOWN_CHANNELS = 5
_KEPT_NOTICES = 256
_EXPLAINED = 8


@dataclass(frozen=True)
class SourceStatus:
    """The state of a source (subscribed topic) when the channels were last read.

    Attributes:
        name: Name of the source.
        topic: The topic of the source.
        messages: Number of messages received.
        age_s: Age of the newest message in seconds; None before the first message.
        stamp_ns: Time stamp of the newest message in ns; None if it has none.
        fresh: Whether the newest message can be used, because it is not too old.
        repeats: Number of messages that have repeated the stamp of the message before.
        present: Number of channels with a valid reading.
        expected: Number of channels that should have a valid reading.
        missing: Ids of the expected channels that are missing.
        reasons: Why channels are missing, each reason once.
        unexpected: Number of channels of a wildcard (`*`) that are not expected, because they have
            not yet been present for 1 s.
        dropped: Number of channels of a wildcard that were removed, as they were present only
            briefly.
        error: Why the newest message could not be read; "" if it could.
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
    """A notice that a source or some of its channels were lost, came back, or are new.

    Attributes:
        kind: "lost", "recovered" or "new". The kind "new" is for channels of a wildcard (`*`) that
            the source's first message did not have.
        source: Name of the source (subscribed topic).
        channels: Ids of the channels concerned; empty if the whole source is meant.
        reason: Text for a log line: why the source or the channels were lost, or for new channels
            from when on they are expected.
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
    """A report on which channels of a `ChannelTable` are missing, and which were lost or came back.

    Args:
        feeds: The sources (subscribed topics) of the `ChannelTable`.
    """

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._feeds = tuple(feeds)
        self._required = [feed for feed in self._feeds if feed.config.required]
        self._ids: tuple[str, ...] = ()
        self._ok = np.zeros(0, bool)
        """Which of the table's N channels were valid at the newest read."""
        self._fine = np.zeros(0, bool)
        """Which of the N channels are fine, so that a notice is due when they become invalid."""
        self._last: tuple[bytes, list[bool]] | None = None
        """A pair for the newest read: which channels were valid, as bytes, and which sources could
        be used. None before it."""
        self._read_ns: int | None = None
        """Time of the newest read in real time; None in lockstep."""
        self._notices: deque[Notice] = deque(maxlen=_KEPT_NOTICES)
        self._invalid_wildcards: set[str] = set()
        """The first channel of each wildcard over elements by index whose elements are reported as
        lost, because none of them was valid."""

    def set_channels(self, ids: tuple[str, ...], previous: MissingReport) -> None:
        """Replace the channels that the report is about by those that the `ChannelTable` has now.

        Args:
            ids: Ids of the N channels of the `ChannelTable`.
            previous: The report until now, which may be this object. Channels that it has reported
                as lost are not reported again.
        """
        known = dict(zip(previous._ids, previous._fine.tolist(), strict=True))
        self._fine = np.array([known.get(id_, True) for id_ in ids], bool)
        self._ids, self._ok, self._last = ids, np.zeros(len(ids), bool), None
        self._invalid_wildcards = set(previous._invalid_wildcards)

    def add_notices_and_get_ok_bytes(
        self, ok: NDArray[np.bool_], fresh: list[bool], now_ns: int, stamp_ns: int | None
    ) -> bytes:
        """Add notices of sources and channels that were lost or came back since the last read.

        Args:
            ok: Which of the N channels are valid at this read, as bools (N,).
            fresh: For each source, whether its newest message can be used.
            now_ns: Time of the read in ns.
            stamp_ns: In lockstep the simulated time of the step in ns; None in real time.

        Returns:
            `ok` as bytes, which identify the set of valid channels.
        """
        self._read_ns = now_ns if stamp_ns is None else None
        pattern = ok.tobytes()
        if (pattern, fresh) != self._last:
            self._last, self._ok = (pattern, fresh), ok
            for feed, usable in zip(self._feeds, fresh, strict=True):
                self._add_notice_if_source_changed(feed, usable, now_ns)
                feed.fresh = usable
                if usable:
                    read_ns = now_ns if stamp_ns is None else feed.received.arrival_ns
                    self._add_notices_of_changed_channels(feed, read_ns)
                    self._add_notices_of_changed_wildcards(feed, read_ns)
        return pattern

    def _add_notice_if_source_changed(self, feed: Feed, usable: bool, now_ns: int) -> None:
        """Add a notice if a source was lost, or came back, since the previous read.

        Args:
            feed: The source. Its attribute `fresh` says whether its message could be used at the
                previous read.
            usable: Whether the source's newest message can be used at this read.
            now_ns: Time of the read in ns.
        """
        name = feed.config.name
        if usable and not feed.fresh:
            self._notices.append(Notice("recovered", name))
        elif feed.fresh and not usable:
            reason = feed.error or feed.explain_lateness(now_ns)
            self._notices.append(Notice("lost", name, (), reason, not feed.received.count))

    def _add_notices_of_changed_channels(self, feed: Feed, now_ns: int) -> None:
        """Add notices of a source's channels that were lost, or came back, since the previous read.

        Channels that were lost for the same reason share a notice.

        Args:
            feed: The source.
            now_ns: Time of the read in ns, from which the ages of messages are computed.
        """
        ok, fine, ids = self._ok[feed.place], self._fine[feed.place], self._ids[feed.place]
        groups: dict[tuple[Literal["lost", "recovered"], str], list[str]] = defaultdict(list)
        details: dict[str, str] = {}
        for index in np.flatnonzero(
            (ok != fine) & feed.make_mask_of_channels_to_report_if_lost()
        ).tolist():
            if ok[index]:
                groups["recovered", ""].append(ids[index])
            else:
                reason = feed.explain_missing_channel(index, now_ns)
                details.setdefault(reason, feed.describe_likely_cause_of_absence(index))
                groups["lost", reason].append(ids[index])
        fine[:] = ok
        for (kind, reason), changed in groups.items():
            reason = _append_detail(reason, details.get(reason, ""))
            self._notices.append(Notice(kind, feed.config.name, tuple(changed), reason))

    def _add_notices_of_changed_wildcards(self, feed: Feed, now_ns: int) -> None:
        """Add notices of wildcards over elements by index of which none is valid, or some is again.

        Such elements come and go one by one without a notice, as the beams of a laser scanner do.

        Args:
            feed: The source.
            now_ns: Time of the read in ns, from which the ages of messages are computed.
        """
        for place in feed.iterate_wildcards_by_index():
            ids, invalid = self._ids[feed.place][place], not self._ok[feed.place][place].any()
            if invalid and ids[0] not in self._invalid_wildcards:
                self._invalid_wildcards.add(ids[0])
                reason = feed.explain_missing_channel(place.start, now_ns)
                self._notices.append(Notice("lost", feed.config.name, ids, reason))
            elif not invalid and ids[0] in self._invalid_wildcards:
                self._invalid_wildcards.discard(ids[0])
                self._notices.append(Notice("recovered", feed.config.name, ids))

    def add_notices_of_new_channels(self) -> None:
        """Add notices of channels that a wildcard (`*`) added after a source's first message."""
        for feed in self._feeds:
            new = dict.fromkeys(id_ for reader in feed.growing for id_ in reader.appeared)
            for reader in feed.growing:
                reader.appeared.clear()
            if new:
                reason = f"expected once they have come for {PROVEN_NS / 1e9:g} s"
                self._notices.append(Notice("new", feed.config.name, tuple(new), reason))

    def pop_notices(self) -> list[Notice]:
        """Return all notices since the previous call, and clear them."""
        notices = list(self._notices)
        self._notices.clear()
        return notices

    def clear_notices_and_report_anew(self) -> None:
        """Clear all notices; the next read then adds notices of all that is missing."""
        self._notices.clear()
        self._last = None
        self._fine[:] = True
        self._invalid_wildcards.clear()
        for feed in self._feeds:
            feed.fresh = True

    def list_missing_sources(self) -> list[str]:
        """Return the required sources that had no fresh, readable message at the newest read."""
        return [feed.config.name for feed in self._required if not feed.fresh]

    def explain_missing_channels(self, now_ns: int) -> dict[str, list[str]]:
        """Return why channels were missing at the newest read, as {reason: ids of channels}.

        Args:
            now_ns: Present time in ns, on the clock of the arrival times.
        """
        found: dict[str, list[str]] = {}
        for feed in self._feeds:
            usable = feed.fresh and feed.received.count
            lost = "" if usable else feed.error or feed.explain_lateness(now_ns)
            first: dict[str, str] = {}
            for index in self._find_missing_channel_indices(feed):
                reason = lost or feed.explain_missing_channel(index, now_ns)
                if reason not in first:
                    first[reason] = (
                        reason
                        if lost
                        else _append_detail(reason, feed.describe_likely_cause_of_absence(index))
                    )
                found.setdefault(first[reason], []).append(self._ids[feed.place][index])
        return found

    def list_source_statuses(self, now_ns: int) -> list[SourceStatus]:
        """Return the state that each source had at the newest read, for diagnostics.

        Args:
            now_ns: Present time in ns, from which the ages of messages are computed.
        """
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
                expected=feed.expected_channel_count,
                missing=tuple(
                    self._ids[feed.place][index]
                    for index in self._find_missing_channel_indices(feed)
                ),
                reasons=self._list_missing_reasons(feed),
                unexpected=sum(reader.no_longer_expected_channel_count for reader in feed.growing),
                dropped=sum(reader.dropped for reader in feed.growing),
                error=feed.error,
            )
            for feed in self._feeds
        ]

    def _find_missing_channel_indices(self, feed: Feed) -> list[int]:
        """Return which channels of a source are missing although they should be present.

        The result is their indices among the source's channels.
        """
        missing: list[int] = np.flatnonzero(
            feed.make_mask_of_channels_to_report_if_lost() & ~self._ok[feed.place]
        ).tolist()
        return missing

    def _list_missing_reasons(self, feed: Feed) -> tuple[str, ...]:
        """Return the different reasons for which channels of a source are missing, as texts.

        Only the first 8 missing channels are examined. The result is empty if the source itself has
        no usable message.
        """
        if not feed.fresh or not feed.received.count:
            return ()
        read_ns = feed.received.arrival_ns if self._read_ns is None else self._read_ns
        missing = feed.make_mask_of_channels_with_explained_absence() & ~self._ok[feed.place]
        found: dict[str, str] = {}
        for index in np.flatnonzero(missing)[:_EXPLAINED].tolist():
            reason = feed.explain_missing_channel(index, read_ns)
            if reason not in found:
                found[reason] = _append_detail(reason, feed.describe_likely_cause_of_absence(index))
        return tuple(found.values())


def _append_detail(reason: str, detail: str) -> str:
    return f"{reason}: {detail}" if detail else reason
