"""The channel table: stores the newest message of each source and reads all channels once a tick.

`store` only keeps a message; `read` extracts the numbers, once a message, on the thread that ticks.
Both must be called from one thread. Time is an argument: the table reads no clock. A channel whose
message has not come, is stale, or holds no finite number counts as missing, never as zero.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from operator import is_
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.camera import CameraReader, is_image, is_opencv_missing
from an_control.wiring.checked_yaml import Description, WiringError
from an_control.wiring.command import CommandConfig
from an_control.wiring.compile import NumberField, compile_source, follow_field
from an_control.wiring.config import ChannelConfig, MessageNames, SourceConfig, Wiring
from an_control.wiring.feed import NEVER_NS, Feed, SourceStatus, limit_ns
from an_control.wiring.messages import Resolver, element_path, message_class
from an_control.wiring.readers import PROVEN_NS, GrowingReader, Reader


class _Group(NamedTuple):
    """A group of channels that share a weight; with `weight` None each of them weighs 1."""

    weight: float | None
    places: NDArray[np.intp]
    feed: Feed | None
    readers: tuple[Reader, ...]
    fixed: int

    def expected(self) -> int:
        """Return the number of channels of this group that should be present."""
        if self.feed is not None:
            return self.feed.expected
        return self.fixed + sum(reader.expected for reader in self.readers)


class ChannelWeights:
    """The weights of a table's channels, in the table's layout.

    A source's weight is shared by its channels, the weight of an entry with a `*` by its elements.
    """

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._groups: list[_Group] = []
        for feed in feeds:
            if feed.config.weight is not None or not _has_own_weights(feed):
                places = np.arange(feed.start, feed.stop)
                self._groups.append(_Group(feed.config.weight, places, feed, (), 0))
            else:
                self._add_entries(feed)

    def _add_entries(self, feed: Feed) -> None:
        """Add one group for each weighted entry and one for all channels of weight 1."""
        places: dict[int, list[int]] = {}
        weights: dict[int, float | None] = {}
        readers: dict[int, list[Reader]] = {}
        start = feed.start
        for reader in feed.readers:
            if isinstance(reader, GrowingReader) and reader.wildcard:
                config = reader.wildcard.config
                weights[id(config)] = config.weight
                readers.setdefault(id(config), []).append(reader)
                places.setdefault(id(config), [])
            for place, config in enumerate(reader.configs, start):
                key = 0 if config.weight is None and id(config) not in readers else id(config)
                weights[key] = config.weight
                places.setdefault(key, []).append(place)
            start += len(reader.ids)
        for key, weight in weights.items():
            mine = tuple(readers.get(key, ()))
            fixed = len(places[key]) - sum(len(reader.ids) for reader in mine)
            self._groups.append(_Group(weight, np.array(places[key], np.intp), None, mine, fixed))

    def __call__(self, ok: NDArray[np.bool_]) -> tuple[float, float]:
        """Return the total weight of the channels that are `ok` (N,), and of the expected ones."""
        there = of = 0.0
        for group in self._groups:
            expected = group.expected()
            present = min(int(np.count_nonzero(ok[group.places])), expected)
            if group.weight is None:
                there, of = there + present, of + expected
            elif expected:
                there, of = there + group.weight * (present / expected), of + group.weight
        return there, of


def has_weights(feeds: Iterable[Feed]) -> bool:
    """Return whether any source or channel of these feeds has a weight."""
    return any(feed.config.weight is not None or _has_own_weights(feed) for feed in feeds)


def _has_own_weights(feed: Feed) -> bool:
    """Return whether any channel of a source has a weight of its own."""
    configs = [config for reader in feed.readers for config in reader.configs]
    wildcards = [reader.wildcard.config for reader in feed.growing if reader.wildcard]
    return any(config.weight is not None for config in [*configs, *wildcards])


class MeasuredPositions:
    """The positions of the actuators, read from the messages of the sources that the command names.

    Only actuators that hold their position or are moved to a start pose are read.

    Args:
        command: The wiring's command.
        classes: The message class of each source.
        resolve: Returns the message class of a type's name.
        file: The wiring's file, for errors.

    Raises:
        WiringError: If a `measured.field` leads to no number.
    """

    def __init__(
        self, command: CommandConfig, classes: Mapping[str, Any], resolve: Resolver, file: str
    ) -> None:
        self.values: NDArray[np.float64] = np.full(len(command.actuators), np.nan)
        """(A,) last finite position of each actuator, in the units of the commands.

        NaN before the first position, and for actuators whose position is not needed.
        """
        self.needed = np.array([a.safe == "hold" or a.start is not None for a in command.actuators])
        """(A,) whether the position of each actuator is needed."""
        self._readers: dict[str, list[_PositionReader]] = {}
        for number, (message, span) in enumerate(
            zip(command.messages, command.slices, strict=True)
        ):
            measured = message.measured
            if measured is None:
                continue
            places = {command.names[i]: i for i in range(span.start, span.stop) if self.needed[i]}
            channels = [
                ChannelConfig(name, measured.source, _with_actuator_name(measured.field, name))
                for name in places
            ]
            cls = classes[measured.source]
            try:
                leaves = [
                    leaf for one in channels for leaf in follow_field(one, cls, resolve, file)
                ]
            except WiringError as error:
                key = f"{command.key(number)}.measured.field"
                raise WiringError(file, key, measured.field, error.allowed) from None
            positions = _PositionReader(*compile_source(leaves, set()), places)
            self._readers.setdefault(measured.source, []).append(positions)

    @property
    def sources(self) -> tuple[str, ...]:
        """Names of the sources that measure positions."""
        return tuple(self._readers)

    @property
    def all_measured(self) -> bool:
        """Whether every position that is needed has been measured."""
        return bool(np.isfinite(self.values[self.needed]).all())

    def read(self, source: str, message: Any) -> None:
        """Update `values` from a message; positions that it lacks or are not finite stay."""
        for positions in self._readers[source]:
            self.values = positions.read(message, self.values)


def _with_actuator_name(field: str, name: str) -> str:
    """Return a field path with the actuator's name for the `*`, in quotes where it needs them."""
    before, starred, after = field.partition("[*]")
    return element_path(before, name) + after if starred else field.replace("*", name)


class _PositionReader:
    """A reader of the positions in one message of a source.

    `places` gives the index in the command for each actuator's name.
    """

    def __init__(
        self, readers: list[Reader], names: list[MessageNames], places: Mapping[str, int]
    ) -> None:
        self._readers, self._names = readers, names
        found = [name for reader in readers for name in reader.ids]
        self._places = np.array([places[name] for name in found], np.intp)
        self._row = np.full(len(found), np.nan)

    def read(self, message: Any, before: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return a copy of `before` (A,), updated with the finite positions of this message."""
        start = 0
        try:
            for names in self._names:
                names.update(message)
            for reader in self._readers:
                reader.read(message, self._row[start : start + len(reader.ids)])
                start += len(reader.ids)
        except Exception:  # the feed reports why the message cannot be read
            return before
        values, finite = before.copy(), np.isfinite(self._row)
        values[self._places[finite]] = self._row[finite]
        return values


_SHOWN_CHANNELS = 5
_ROUNDING = 1e-10
"""Tolerance of a share when it is compared with its minimum, as sums of weights are rounded."""


class Readings(NamedTuple):
    """The values of the present channels at one tick.

    Attributes:
        values: Readings of the present channels, float32 (N,) and all finite; for cameras the
            patches,
            uint8 (N, stack, patch, patch).
        ids: Ids (N,) of these channels; the same tuple object for as long as the same are present.
        expected: Number of channels that should be present; a wildcard that has matched nothing yet
            counts as one.
        new: Whether any message came since the previous read.
        since_ns: Arrival of the oldest message that came since the previous read; if none came,
            arrival of the newest message of all.
        weights: Total weight of the present and of the expected channels, or None if the wiring has
            no
            weights.
    """

    values: NDArray[Any]
    ids: tuple[str, ...]
    expected: int
    new: bool = True
    since_ns: int = 0
    weights: tuple[float, float] | None = None

    @property
    def present_share(self) -> float:
        """Share of the expected channels that is present, by weight, 0..1."""
        there, of = self.weights or (len(self.ids), self.expected)
        return there / of if of else 1.0

    def has_share(self, share: float) -> bool:
        """Return whether any channel and at least `share` (0..1) of the expected are present."""
        there, of = self.weights or (len(self.ids), self.expected)
        return bool(self.ids) and there >= (share - _ROUNDING) * of


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


_FLOAT32 = float(np.finfo(np.float32).max)
_KEPT_PATTERNS = 16
_KEPT_NOTICES = 256
_EXPLAINED = 8


class ChannelTable:
    """The readings of a wiring's channels.

    Args:
        wiring: The robot's wiring.
        resolve: Returns the message class of a type's name.
        like: An earlier table; its parts are used again where the two wirings agree.

    Raises:
        WiringError: If a message type is not installed, or a field path leads to no number.
    """

    def __init__(
        self,
        wiring: Wiring,
        resolve: Resolver = message_class,
        like: ChannelTable | None = None,
    ) -> None:
        self.wiring = wiring
        self.message_classes: dict[str, Any] = {}
        """The message class of each source."""
        self._resolve = resolve
        self._notices: deque[Notice] = deque(maxlen=_KEPT_NOTICES)
        self._read_ns: int | None = None
        self._channels: dict[str, list[ChannelConfig]] = {one.name: [] for one in wiring.sources}
        for channel in wiring.channels:
            self._channels[channel.source].append(channel)
        self._leaves: dict[int, tuple[ChannelConfig, Any, list[NumberField]]] = {}
        taken = {channel.id for channel in wiring.channels if "*" not in channel.id}
        self._open = len(taken) < len(wiring.channels)
        self._feeds = {one.name: self._make_feed(one, taken, like) for one in wiring.sources}
        self._required = [feed for feed in self._feeds.values() if feed.config.required]
        self.measured: MeasuredPositions | None = None
        """Positions of the actuators, if the wiring says where they are measured."""
        if wiring.command.measured:
            self.measured = MeasuredPositions(
                wiring.command, self.message_classes, resolve, wiring.file
            )
        self._of_images = bool(wiring.images)
        self._ids: tuple[str, ...] = ()
        self._fine = np.zeros(0, bool)
        self._lay_out()

    def _make_feed(self, source: SourceConfig, taken: set[str], like: ChannelTable | None) -> Feed:
        """Return the feed of a source, taken from `like` with its state if the source is unchanged.

        With wildcards, feeds depend on each other, and every feed is made again.
        """
        file = self.wiring.file
        try:
            cls = self._resolve(source.type)
        except LookupError as error:
            key = f"sources.{source.name}.type"
            raise WiringError(file, key, source.type, f"an installed type ({error})") from None
        self.message_classes[source.name] = cls
        channels = self._channels[source.name]
        if like is not None and not (self._open or like._open):
            old = like._feeds.get(source.name)
            if old is not None and source == replace(old.config, topic=source.topic):
                before = like._channels[source.name]
                if len(before) == len(channels) and all(map(is_, before, channels)):
                    self._leaves |= {id(one): like._leaves[id(one)] for one in channels}
                    return old.with_config(source)
        if self.wiring.images:
            return Feed(source, [self._make_camera_reader(c, cls, source) for c in channels], ())
        for one in channels:
            known = None if like is None else like._leaves.get(id(one))
            if known is None or known[1] is not cls:
                known = one, cls, follow_field(one, cls, self._resolve, file)
            self._leaves[id(one)] = known
        leaves = [leaf for one in channels for leaf in self._leaves[id(one)][2]]
        return Feed(source, *compile_source(leaves, taken))

    def _make_camera_reader(
        self, channel: ChannelConfig, cls: Any, source: SourceConfig
    ) -> CameraReader:
        """Return the reader of a camera channel; raise WiringError if it cannot be read."""
        key = f"channels.{channel.id}.image"
        fields = cls.get_fields_and_field_types()
        if not is_image(fields):
            allowed = "a source of sensor_msgs/msg/Image or sensor_msgs/msg/CompressedImage"
            raise WiringError(self.wiring.file, key, source.type, allowed)
        if is_opencv_missing():
            allowed = "an installed OpenCV (pip install 'an_control[camera]')"
            raise WiringError(self.wiring.file, key, Description("an image"), allowed)
        return CameraReader(channel, fields, limit_ns(source, channel.max_age_s))

    def _lay_out(self) -> None:
        """Assign every channel its place in the arrays; keep what is known of it by its id."""
        fine = dict(zip(self._ids, self._fine.tolist(), strict=True))
        readers = [reader for feed in self._feeds.values() for reader in feed.readers]
        configs = [config for reader in readers for config in reader.configs]
        clips = [config.clip or (-np.inf, np.inf) for config in configs]
        self._ids = tuple(id_ for reader in readers for id_ in reader.ids)
        self._raw = np.full(len(self._ids), np.nan)
        self._values = np.empty(len(self._ids))
        self._curves = _find_curves(configs)
        self._scale = np.array([config.scale for config in configs])
        self._offset = np.array([config.offset for config in configs])
        self._low, self._high = np.array(clips).reshape(-1, 2).T.copy()
        self._bound = np.where(np.isfinite(self._low), np.finfo(np.float64).max, _FLOAT32)
        self._fine = np.array([fine.get(id_, True) for id_ in self._ids], bool)
        self._ok = np.zeros(len(self._ids), bool)
        self._present: dict[bytes, tuple[str, ...]] = {}
        self._last: tuple[bytes, list[bool]] | None = None
        stop = 0
        for feed in self._feeds.values():
            stop = feed.lay_out(stop, self._raw)
        self._weights = (
            ChannelWeights(self._feeds.values()) if has_weights(self._feeds.values()) else None
        )

    def store(self, source: str, message: Any, stamp_ns: int | None, arrival_ns: int) -> None:
        """Keep a source's newest message. This is cheap and never fails on a message's content.

        A message that repeats the last stamp does not count as newer, so a frozen source grows
        stale.

        Args:
            source: Name of the source.
            message: A ROS message of the source's type.
            stamp_ns: Stamp of the message in ns; None or 0 if it has none (see `stamp_reader`).
            arrival_ns: Time of arrival, on the clock of `now_ns` in `read`.

        Raises:
            KeyError: If there is no such source.
        """
        self._feeds[source].store(message, stamp_ns, arrival_ns)

    def has_step(self, stamp_ns: int) -> bool:
        """Return whether every source has its message of the step with this stamp (lockstep)."""
        return all([feed.is_in_time(0, stamp_ns) for feed in self._feeds.values()])

    def read(self, now_ns: int, stamp_ns: int | None = None) -> Readings:
        """Return the readings of this tick.

        In real time (`stamp_ns` None) a message counts until it is older than its maximum age. In
        lockstep only messages with exactly this stamp count; of a source without stamps, the
        message that came since the previous read counts.

        Args:
            now_ns: Time of the tick, on the clock of the arrival times.
            stamp_ns: Stamp of the step in lockstep, None in real time.
        """
        feeds, lockstep = tuple(self._feeds.values()), stamp_ns is not None
        self._read_ns = None if lockstep else now_ns
        with np.errstate(over="ignore", invalid="ignore"):
            if any([feed.unread and feed.scan(lockstep) for feed in feeds]):
                self._lay_out()
                self._add_new_notices()
            if self.measured is not None:
                for source in self.measured.sources:
                    for message, _, _ in self._feeds[source].unread:
                        self.measured.read(source, message)
            for feed in feeds:
                if feed.unread:
                    feed.extract(lockstep)
            ok = self._convert()
        new, since_ns = False, NEVER_NS
        fresh = [not feed.error and feed.is_in_time(now_ns, stamp_ns) for feed in feeds]
        for feed, in_time in zip(feeds, fresh, strict=True):
            if not in_time:
                ok[feed.start : feed.stop] = False
            elif stamp_ns is None and feed.partial:
                ages_ns = now_ns - feed.arrivals
                ok[feed.start : feed.stop] &= (ages_ns >= 0) & (ages_ns <= feed.limits)
            elif stamp_ns is None and not 0 <= now_ns - feed.arrival_ns <= feed.shortest:
                ok[feed.start : feed.stop] &= feed.limits >= feed.age_ns(now_ns)
            feed.messages_read = feed.messages
            if feed.new:
                new, since_ns, feed.new = True, min(since_ns, feed.arrival_ns), False
        if not new:
            since_ns = max([feed.arrival_ns for feed in feeds])
        pattern = ok.tobytes()
        if (pattern, fresh) != self._last:
            self._last = pattern, fresh
            self._ok = ok
            self._add_notices(fresh, now_ns, stamp_ns)
        ids = self._present_ids(pattern, ok)
        if self._of_images:
            values = np.concatenate([camera.patches for camera in self.cameras])[ok]
        elif len(ids) == len(self._ids):
            values = self._values.astype(np.float32)
        else:
            values = self._values[ok].astype(np.float32)
        weights = None if self._weights is None else self._weights(ok)
        return Readings(values, ids, max(self.expected, len(ids)), new, since_ns, weights)

    @property
    def cameras(self) -> list[CameraReader]:
        """Readers of the image patches, in channel order; empty if channels are numbers."""
        readers = [reader for feed in self._feeds.values() for reader in feed.readers]
        return [reader for reader in readers if isinstance(reader, CameraReader)]

    def expect_present(self) -> None:
        """Stop expecting wildcard elements that have not come lately.

        The elements that are present now become the expected ones.
        """
        for feed in self._feeds.values():
            for reader in feed.growing:
                reader.expect_present()

    def reset(self) -> None:
        """Forget earlier camera frames, because a new episode starts."""
        for feed in self._feeds.values():
            feed.reset()

    def _convert(self) -> NDArray[np.bool_]:
        """Apply curve, scale, offset and clip to all raw numbers; return which are valid (N,).

        A value is valid if it is a finite float32. Angles are wrapped or turned into sines and
        cosines before scale and offset are applied.
        """
        raw = self._raw
        if self._curves:
            raw = raw.copy()
            for function, places in self._curves:
                raw[places] = function(raw[places])
        values = np.multiply(raw, self._scale, out=self._values)
        values += self._offset
        ok = np.abs(values) <= self._bound
        np.maximum(values, self._low, out=values)
        np.minimum(values, self._high, out=values)
        return ok

    def _present_ids(self, pattern: bytes, ok: NDArray[np.bool_]) -> tuple[str, ...]:
        """Return the ids of the channels that are `ok` (N,); `pattern` holds the same as bytes."""
        ids = self._present.get(pattern)
        if ids is None:
            if len(self._present) >= _KEPT_PATTERNS:
                self._present.clear()
            ids = self._present[pattern] = tuple(compress(self._ids, ok.tolist()))
        return ids

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all channels, present or not."""
        return self._ids

    @property
    def configs(self) -> dict[str, ChannelConfig]:
        """Entry of the wiring that each channel comes from, by the channel's id."""
        readers = [reader for feed in self._feeds.values() for reader in feed.readers]
        return {
            id_: config
            for reader in readers
            for id_, config in zip(reader.ids, reader.configs, strict=True)
        }

    @property
    def expected(self) -> int:
        """Number of channels that should be present."""
        return sum([feed.expected for feed in self._feeds.values()])

    def ids_with_names(self, source: str, names: Collection[str]) -> list[str]:
        """Return the ids of a source's channels that messages with these names hold.

        All channels of the source are returned if `names` is empty.
        """
        readers = self._feeds[source].readers
        return [id_ for reader in readers for id_ in reader.ids_with_names(names)]

    def why_missing(self, now_ns: int) -> dict[str, list[str]]:
        """Return the ids of the channels that were missing at the last read, by reason."""
        found: dict[str, list[str]] = {}
        for feed in self._feeds.values():
            late = "" if feed.fresh and feed.messages else feed.why_late(now_ns, None)
            first: dict[str, str] = {}
            wanted = feed.reported_channels() & ~self._ok[feed.start : feed.stop]
            for place in np.flatnonzero(wanted).tolist():
                reason = late or feed.error or feed.why_missing(place, now_ns)
                if reason not in first:
                    first[reason] = reason if late else _join_detail(reason, feed.detail(place))
                found.setdefault(first[reason], []).append(self._ids[feed.start + place])
        return found

    def why_late(self, source: str, now_ns: int) -> str:
        """Return the reason why a source's newest message does not count, in real time."""
        return self._feeds[source].why_late(now_ns, None)

    def missing(self) -> list[str]:
        """Return the names of the required sources that were missing at the last read."""
        return [feed.config.name for feed in self._required if not feed.fresh]

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
        for feed in self._feeds.values():
            feed.fresh = True

    def _add_notices(self, fresh: list[bool], now_ns: int, stamp_ns: int | None) -> None:
        """Add notices of the sources and channels whose state differs from the previous read."""
        for feed, in_time in zip(self._feeds.values(), fresh, strict=True):
            name = feed.config.name
            if in_time and not feed.fresh:
                self._notices.append(Notice("recovered", name))
            elif feed.fresh and not in_time:
                reason = feed.error or feed.why_late(now_ns, stamp_ns)
                self._notices.append(Notice("lost", name, (), reason, not feed.messages))
            feed.fresh = in_time
            if in_time:
                self._add_channel_notices(feed, now_ns if stamp_ns is None else feed.arrival_ns)

    def _add_new_notices(self) -> None:
        """Add notices of the elements that wildcards added after their first message."""
        for feed in self._feeds.values():
            new = [id_ for reader in feed.growing for id_ in reader.appeared]
            for reader in feed.growing:
                reader.appeared.clear()
            if new:
                reason = f"expected once they have come for {PROVEN_NS / 1e9:g} s"
                self._notices.append(Notice("new", feed.config.name, tuple(new), reason))

    def _add_channel_notices(self, feed: Feed, now_ns: int) -> None:
        """Add notices of single channels, one notice for all channels with the same reason."""
        span = slice(feed.start, feed.stop)
        ok, fine = self._ok[span], self._fine[span]
        groups: dict[tuple[Literal["lost", "recovered"], str], list[str]] = defaultdict(list)
        details: dict[str, str] = {}
        for index in np.flatnonzero((ok != fine) & feed.reported_channels()).tolist():
            id_ = self._ids[feed.start + index]
            if ok[index]:
                groups["recovered", ""].append(id_)
            else:
                reason = feed.why_missing(index, now_ns)
                details.setdefault(reason, feed.detail(index))
                groups["lost", reason].append(id_)
        fine[:] = ok
        for (kind, reason), ids in groups.items():
            reason = _join_detail(reason, details.get(reason, ""))
            self._notices.append(Notice(kind, feed.config.name, tuple(ids), reason))

    def status(self, now_ns: int) -> list[SourceStatus]:
        """Return the state of each source as of the last read, for diagnostics."""
        return [
            SourceStatus(
                name=feed.config.name,
                topic=feed.config.topic,
                messages=feed.messages,
                age_s=(now_ns - feed.arrival_ns) / 1e9 if feed.messages else None,
                stamp_ns=feed.stamp_ns,
                fresh=feed.fresh and feed.messages > 0,
                repeats=feed.repeats,
                present=int(np.count_nonzero(self._ok[feed.start : feed.stop])),
                expected=feed.expected,
                missing=self._missing_ids(feed),
                reasons=self._missing_reasons(feed),
                unexpected=sum(reader.unexpected for reader in feed.growing),
                dropped=sum(reader.dropped for reader in feed.growing),
                error=feed.error,
            )
            for feed in self._feeds.values()
        ]

    def _missing_ids(self, feed: Feed) -> tuple[str, ...]:
        """Return the ids of a source's channels that should be present and are missing."""
        wanted = feed.reported_channels() & ~self._ok[feed.start : feed.stop]
        return tuple(compress(self._ids[feed.start : feed.stop], wanted.tolist()))

    def _missing_reasons(self, feed: Feed) -> tuple[str, ...]:
        """Return why the first channels of a source are missing; empty if the source is missing."""
        if not feed.fresh or not feed.messages:
            return ()
        read_ns = feed.arrival_ns if self._read_ns is None else self._read_ns
        missing = feed.explained_channels() & ~self._ok[feed.start : feed.stop]
        found: dict[str, str] = {}
        for place in np.flatnonzero(missing)[:_EXPLAINED].tolist():
            reason = feed.why_missing(place, read_ns)
            if reason not in found:
                found[reason] = _join_detail(reason, feed.detail(place))
        return tuple(found.values())

    def rewired(self, wiring: Wiring) -> ChannelTable:
        """Return a table for another wiring, with the messages of each source of the same type.

        A source that moved to another topic keeps its old message, too, which counts until a
        message comes from the new topic or its age or stamp rules it out. This table is not
        changed.

        Raises:
            WiringError: As from the constructor.
        """
        table = ChannelTable(wiring, self._resolve, self)
        for name, feed in table._feeds.items():
            old = self._feeds.get(name)
            if old is not None and old.config.type == feed.config.type and not feed.messages:
                feed.copy_state(old)
        if table._open:
            table._lay_out()  # for what wildcards had taken up
        if table.measured is not None and self.measured is not None:
            table.measured.values = self.measured.values
        if table._ids == self._ids:
            table._ids, table._fine = self._ids, self._fine.copy()
            return table
        known = dict(zip(self._ids, self._fine.tolist(), strict=True))
        table._fine = np.array([known.get(id_, True) for id_ in table._ids], bool)
        return table


def _join_detail(reason: str, detail: str) -> str:
    return f"{reason}: {detail}" if detail else reason


def _wrap_angles(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return angles (n,) brought into -pi..pi; angles in that range keep every bit."""
    wrapped: NDArray[np.float64] = angles - math.tau * np.round(angles / math.tau)
    return wrapped


Curve = Callable[[NDArray[np.float64]], NDArray[np.float64]]
_CURVES: dict[str, Curve] = {"wrap": _wrap_angles, "sin": np.sin, "cos": np.cos}
"""Functions of an angle (rad) that an entry of the wiring may ask for; applied before scale."""


def _find_curves(configs: Sequence[ChannelConfig]) -> list[tuple[Curve, NDArray[np.intp]]]:
    """Return the functions to apply to readings, each with the places (n,) of its readings."""
    names = {id(one): "wrap" if one.wrap else one.wave for one in configs}
    found: list[tuple[Curve, NDArray[np.intp]]] = []
    for name, function in _CURVES.items():
        places = [place for place, one in enumerate(configs) if names[id(one)] == name]
        if places:
            found.append((function, np.array(places, np.intp)))
    return found
