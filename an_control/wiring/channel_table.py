"""The channel table stores the newest messages and reads all channels once a tick.

A source is a subscribed topic, a channel is one number (or image patch) from its messages that the
policy reads, and a tick is one control step. `ChannelTable.store_message` only keeps a message.
`ChannelTable.read` extracts the numbers, once for each message. Call both on the same thread. Time
is an argument, because the table reads no clock. A channel whose message has not come, is too old,
or holds no finite number counts as missing, never as zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Reversible, Sequence
from itertools import compress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.camera import CameraReader
from an_control.wiring.checked_yaml import WiringError
from an_control.wiring.compile import Sources, make_readers, resolve_field_path
from an_control.wiring.config import ChannelConfig, MessageNames, Wiring
from an_control.wiring.messages import Resolver, format_element_path, import_message_class
from an_control.wiring.missing import MissingReport, Notice, SourceStatus
from an_control.wiring.readers import GrowingReader, Reader
from an_control.wiring.source_feed import Feed, StoredMessage


class _WeightGroup(NamedTuple):
    """A group of channels that share one weight equally, or of which each has the weight 1.

    Attributes:
        weight: The weight of all channels of the group together; None if each channel has the
            weight 1.
        places: Indices (n,) of the group's channels in the table.
        feed: The source to which the group belongs, if the group is all channels of that source;
            else None.
        readers: The readers of a wildcard (`*`) if the group is the channels of the wildcard.
        fixed: Number of the group's channels that do not come from a wildcard; not used if `feed`
            is given.
    """

    weight: float | None
    places: NDArray[np.intp]
    feed: Feed | None
    readers: tuple[Reader, ...]
    fixed: int

    def count_expected_channels(self) -> int:
        """Return the number of channels of this group that should have a reading."""
        if self.feed is not None:
            return self.feed.expected_channel_count
        return self.fixed + sum(reader.expected_channel_count for reader in self.readers)


class ChannelWeights:
    """Weights of all channels, by which the share of present channels is computed.

    A weight in the wiring file belongs to a source (subscribed topic) or to a channel entry. The
    channels of the source share its weight equally, and so do the channels of an entry with a `*`.

    Args:
        feeds: The sources, in the order of their channels in the `ChannelTable`.
    """

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._groups: list[_WeightGroup] = []
        for feed in feeds:
            if feed.config.weight is not None or not _has_channel_with_own_weight(feed):
                places = np.arange(feed.place.start, feed.place.stop)
                self._groups.append(_WeightGroup(feed.config.weight, places, feed, (), 0))
            else:
                self._add_weight_groups(feed)

    def _add_weight_groups(self, feed: Feed) -> None:
        """Add the weight groups of a source in which some channel entries have their own weight.

        All channels of a group share one weight. Each entry with a weight or a `*` forms a group of
        its own; all other entries of the source form one more group.
        """
        places: dict[int, list[int]] = {}
        weights: dict[int, float | None] = {}
        readers: dict[int, list[Reader]] = {}
        start = feed.place.start
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
            self._groups.append(
                _WeightGroup(weight, np.array(places[key], np.intp), None, mine, fixed)
            )

    def sum_valid_and_expected_weights(self, ok: NDArray[np.bool_]) -> tuple[float, float]:
        """Return a pair: the total weight of the valid channels, and of those that should be valid.

        Args:
            ok: Which of all N channels are valid, as bools (N,).
        """
        there = of = 0.0
        for group in self._groups:
            expected = group.count_expected_channels()
            present = min(int(np.count_nonzero(ok[group.places])), expected)
            if group.weight is None:
                there, of = there + present, of + expected
            elif expected:
                there, of = there + group.weight * (present / expected), of + group.weight
        return there, of


def has_weights(feeds: Iterable[Feed]) -> bool:
    """Return whether the wiring gives a weight to any of these sources or their channels."""
    return any(
        feed.config.weight is not None or _has_channel_with_own_weight(feed) for feed in feeds
    )


def _has_channel_with_own_weight(feed: Feed) -> bool:
    """Return whether any channel entry of a source has a weight of its own in the wiring."""
    configs = [config for reader in feed.readers for config in reader.configs]
    wildcards = [reader.wildcard.config for reader in feed.growing if reader.wildcard]
    return any(config.weight is not None for config in [*configs, *wildcards])


class MeasuredPositions:
    """The measured positions of the actuators, read from sensor messages.

    The command section of the wiring names the sources (subscribed topics) that measure them.
    Positions are read only for actuators whose safe command is to hold the position, or that have a
    start pose.

    Args:
        wiring: The wiring.
        classes: The message class of each source, by the source's name.
        resolve: A function that returns the class of a message type, given its name.

    Raises:
        WiringError: A `measured.field` in the file leads to no number.
    """

    def __init__(self, wiring: Wiring, classes: Mapping[str, Any], resolve: Resolver) -> None:
        command, file = wiring.command, wiring.file
        self.values: NDArray[np.float64] = np.full(len(command.actuators), np.nan)
        """(A,) newest finite position of each actuator, in the units of the commands.

        NaN before the first position, and for actuators whose position is not needed.
        """
        self.is_old: NDArray[np.bool_] = np.zeros(len(command.actuators), bool)
        """(A,) whether each position was older than its source's largest age at the newest read."""
        self._arrivals_ns = np.zeros(len(command.actuators), np.int64)
        self._max_ages_ns = np.full(len(command.actuators), np.iinfo(np.int64).max)
        self.needed = np.array([a.safe == "hold" or a.start is not None for a in command.actuators])
        """(A,) whether the position of each actuator is needed."""
        self._labels = [""] * len(command.actuators)
        """(A,) for each actuator whose position is needed, its name, and where it is measured."""
        self._readers: dict[str, list[_PositionReader]] = {}
        for number, (message, span) in enumerate(
            zip(command.messages, command.message_slices, strict=True)
        ):
            measured = message.measured
            if measured is None:
                continue
            places = {command.names[i]: i for i in range(span.start, span.stop) if self.needed[i]}
            if max_age_s := wiring.find_source(measured.source).max_age_s:
                self._max_ages_ns[span] = round(max_age_s * 1e9)
            channels = [
                ChannelConfig(
                    one.name,
                    measured.source,
                    _insert_actuator_name(measured.field, one.name_in_messages),
                )
                for one in message.actuators
                if one.name in places
            ]
            for one in channels:
                self._labels[places[one.id]] = f"{one.id} ({one.source}: {one.field})"
            cls = classes[measured.source]
            try:
                leaves = [
                    leaf for one in channels for leaf in resolve_field_path(one, cls, resolve, file)
                ]
            except WiringError as error:
                key = f"{command.format_message_key(number)}.measured.field"
                raise WiringError(file, key, measured.field, error.allowed) from None
            positions = _PositionReader(*make_readers(leaves, set()), places)
            self._readers.setdefault(measured.source, []).append(positions)

    @property
    def has_all_positions(self) -> bool:
        """Whether every position that is needed has been measured."""
        return bool(np.isfinite(self.values[self.needed]).all())

    def list_unmeasured_actuators(self) -> list[str]:
        """Return the actuators whose position is needed and has not been measured yet.

        Each is a text that names the actuator, and the source and field of its position.
        """
        unknown = self.needed & ~np.isfinite(self.values)
        return [self._labels[place] for place in np.flatnonzero(unknown).tolist()]

    @property
    def are_too_old(self) -> bool:
        """Whether a position that `safe: hold` or `start` needs was too old at the newest read."""
        return bool(self.is_old[self.needed].any())

    @property
    def source_names(self) -> tuple[str, ...]:
        """Names of the sources (subscribed topics) that measure positions."""
        return tuple(self._readers)

    def update_from_messages(self, source: str, unread: Reversible[StoredMessage]) -> None:
        """Update the positions in `values` from a source's unread messages.

        Several senders may share a source, each with some of the actuators. The newest message that
        has an actuator's position counts. A position that no message has, or that is not finite,
        stays as it was.

        Args:
            source: Name of a source that measures positions.
            unread: The messages, oldest first.
        """
        self.values = self.values.copy()
        for reader in self._readers[source]:
            lacking = np.ones(len(reader.places), bool)
            for message, _, arrival_ns in reversed(unread):
                measured = reader.read_positions(message)
                new = lacking & np.isfinite(measured)
                self.values[reader.places[new]] = measured[new]
                self._arrivals_ns[reader.places[new]] = arrival_ns
                lacking &= ~new
                if not lacking.any():
                    break

    def mark_old_positions(self, now_ns: int, *, lockstep: bool) -> None:
        """Update `is_old`, which says which positions are too old to be used.

        In lockstep, where a simulator waits for each command, no position becomes old.

        Args:
            now_ns: Time of the read in ns, on the clock of the arrival times.
            lockstep: Whether a simulator waits for each command.
        """
        if not lockstep:
            self.is_old = now_ns - self._arrivals_ns > self._max_ages_ns

    def copy_positions_from(self, other: MeasuredPositions) -> None:
        """Take over the positions that another object for the same actuators has measured."""
        self.values, self._arrivals_ns = other.values, other._arrivals_ns.copy()


def _insert_actuator_name(field: str, name: str) -> str:
    """Return a field path with the `*` replaced by an actuator's name, quoted if needed."""
    before, starred, after = field.partition("[*]")
    return format_element_path(before, name) + after if starred else field.replace("*", name)


class _PositionReader:
    """A reader of the positions of actuators from the messages of one source.

    Args:
        readers: The readers of the single numbers in a message. Their channels have the names of
            the actuators as ids.
        names: The lists of element names in a message by which `readers` find their elements.
        command_indices: A mapping from an actuator's name to its index in the command.
    """

    def __init__(
        self, readers: list[Reader], names: list[MessageNames], command_indices: Mapping[str, int]
    ) -> None:
        self._readers, self._names = readers, names
        found = [name for reader in readers for name in reader.ids]
        self.places = np.array([command_indices[name] for name in found], np.intp)
        """Indices (n,) in the command of the actuators whose positions are read."""

    def read_positions(self, message: Any) -> NDArray[np.float64]:
        """Return the positions (n,) in a message of the source, NaN where it has none."""
        row, start = np.full(len(self.places), np.nan), 0
        try:
            for names in self._names:
                names.set_names_and_get_list_number(message)
            for reader in self._readers:
                reader.read_into_row(message, row[start : start + len(reader.ids)])
                start += len(reader.ids)
        except Exception:  # the feed reports why the message cannot be read
            row[:] = np.nan
        return row


_ROUNDING = 1e-10
"""Tolerance when a share of channels is compared with the required share, because sums of weights
are rounded."""


class Readings(NamedTuple):
    """The values of the present channels at one tick.

    Attributes:
        values: Readings of the N present channels, float32 (N,) and all finite; for cameras the
            pixels of the patches, uint8 (N, stack, patch, patch).
        ids: Ids of these N channels. It is the same tuple object for as long as the same channels
            are present.
        expected: Number of channels that should be present. A channel entry with a `*` that has
            matched nothing yet counts as one.
        new: Whether any message came since the previous read.
        since_ns: Arrival time of the oldest message that came since the previous read. If none
            came, arrival time of the newest message.
        weights: A pair: the total weight of the present channels, and that of the expected
            channels. None if the wiring has no weights.
    """

    values: NDArray[Any]
    ids: tuple[str, ...]
    expected: int
    new: bool = True
    since_ns: int = 0
    weights: tuple[float, float] | None = None

    @property
    def present_share(self) -> float:
        """Share (0..1) of the expected channels that is present, weighted if there are weights."""
        there, of = self.weights or (len(self.ids), self.expected)
        return there / of if of else 1.0

    def has_min_present_share(self, min_share: float) -> bool:
        """Return whether enough channels are present: at least one, and at least a given share.

        Args:
            min_share: The share (0..1) of the expected channels that must be present, by weight if
                the wiring has weights.
        """
        there, of = self.weights or (len(self.ids), self.expected)
        return bool(self.ids) and there >= (min_share - _ROUNDING) * of


_FLOAT32 = float(np.finfo(np.float32).max)
_KEPT_PATTERNS = 16


class Conversion:
    """Converter of the numbers (N,) in messages to the readings of N channels.

    Args:
        readers: The readers of all channels, in the order of the channels.
        previous: The converter that this one replaces, or None. If it has equal ids, its tuple
            object `ids` is used again, so that ids can be compared by identity.
    """

    def __init__(self, readers: Sequence[Reader], previous: Conversion | None) -> None:
        configs = [config for reader in readers for config in reader.configs]
        clips = [config.clip or (-np.inf, np.inf) for config in configs]
        self.ids = tuple(id_ for reader in readers for id_ in reader.ids)
        """Ids (N,) of all channels, present or not."""
        if previous is not None and previous.ids == self.ids:
            self.ids = previous.ids
        self.raw = np.full(len(self.ids), np.nan)
        """(N,) numbers as in the messages. `Feed` objects write into it."""
        self.values = np.empty(len(self.ids))
        """(N,) readings from the newest call of `convert_raw_numbers_and_find_valid`."""
        self.numbers = self.raw
        """(N,) numbers from the newest call of `convert_raw_numbers_and_find_valid`, after
        functions of angles and before scale, offset and clip."""
        self._curves = _find_angle_functions_and_channels(configs)
        self._scale = np.array([config.scale for config in configs])
        self._offset = np.array([config.offset for config in configs])
        self._low, self._high = np.array(clips).reshape(-1, 2).T.copy()
        self._bound = np.where(np.isfinite(self._low), np.finfo(np.float64).max, _FLOAT32)
        self._present: dict[bytes, tuple[str, ...]] = {}

    def convert_raw_numbers_and_find_valid(self) -> NDArray[np.bool_]:
        """Convert the numbers in `raw` to readings in `values`; return which are valid, as (N,).

        Where the wiring says so, angles are brought into -pi..pi or turned into sines or cosines.
        Then scale, offset and clip are applied. A reading is valid if it is a finite float32.
        """
        raw = self.raw
        if self._curves:
            raw = raw.copy()
            for function, places in self._curves:
                raw[places] = function(raw[places])
        self.numbers = raw
        values = np.multiply(raw, self._scale, out=self.values)
        values += self._offset
        ok = np.abs(values) <= self._bound
        np.maximum(values, self._low, out=values)
        np.minimum(values, self._high, out=values)
        return ok

    def select_present_ids(self, ok_bytes: bytes, ok: NDArray[np.bool_]) -> tuple[str, ...]:
        """Return the ids of the valid channels, as the same tuple object for the same channels.

        Args:
            ok_bytes: The bytes of `ok`, the key under which the result is stored for later calls.
            ok: Which channels are valid, as bools (N,).
        """
        ids = self._present.get(ok_bytes)
        if ids is None:
            if len(self._present) >= _KEPT_PATTERNS:
                self._present.clear()
            ids = self._present[ok_bytes] = tuple(compress(self.ids, ok.tolist()))
        return ids


class ChannelTable:
    """The readings of all channels (inputs of the policy) that a wiring file names.

    Args:
        wiring: The robot's wiring.
        resolve: A function that returns the class of a message type, given its name.
        previous: An earlier table, whose stored messages and state are copied (see
            `make_rewired_table`); None for a new table.

    Raises:
        WiringError: A message type is not installed, or a field path leads to no number.
    """

    def __init__(
        self,
        wiring: Wiring,
        resolve: Resolver = import_message_class,
        previous: ChannelTable | None = None,
    ) -> None:
        self.wiring = wiring
        self._sources: Sources = Sources(
            wiring, resolve, None if previous is None else previous._sources
        )
        self._feeds = self._sources.feeds
        self.measured: MeasuredPositions | None = None
        """Positions of the actuators, if the wiring says where they are measured."""
        if wiring.command.measured_configs:
            self.measured = MeasuredPositions(wiring, self.message_classes, resolve)
            if previous is not None and previous.measured is not None:
                self.measured.copy_positions_from(previous.measured)
        readers = [reader for feed in self._feeds.values() for reader in feed.readers]
        self.cameras = [reader for reader in readers if isinstance(reader, CameraReader)]
        """Readers of the image patches, in channel order; empty if channels are numbers."""
        self._missing = MissingReport(self._feeds.values())
        self._assign_channel_indices(previous)

    def _assign_channel_indices(self, previous: ChannelTable | None) -> None:
        """Give every channel an index in the table's arrays, and create these arrays.

        Args:
            previous: An earlier table or None. Whether it has reported a channel as lost is copied
                to the channel with the same id.
        """
        feeds = self._feeds.values()
        readers = [reader for feed in feeds for reader in feed.readers]
        self._conversion: Conversion = Conversion(
            readers, None if previous is None else previous._conversion
        )
        self._missing.set_channels(
            self.ids, self._missing if previous is None else previous._missing
        )
        stop = 0
        for feed in feeds:
            stop = feed.assign_array_part_and_get_end(stop, self._conversion.raw)
        self._weights = ChannelWeights(feeds) if has_weights(feeds) else None

    def store_message(
        self, source: str, message: Any, stamp_ns: int | None, arrival_ns: int
    ) -> None:
        """Store a source's newest message, without reading its content.

        A message that repeats the time stamp of the previous message does not count as newer. So a
        source that repeats one message for ever becomes stale.

        Args:
            source: Name of the source.
            message: A ROS message of the source's type.
            stamp_ns: Stamp of the message in ns; None or 0 if it has none (see
                `make_stamp_reader`).
            arrival_ns: Time of arrival in ns, on the clock of `now_ns` in `read`.

        Raises:
            KeyError: There is no such source.
        """
        self._feeds[source].received.store_message(message, stamp_ns, arrival_ns)

    def read(self, now_ns: int, stamp_ns: int | None = None) -> Readings:
        """Return the readings of this tick (control step), from the stored messages.

        In real time a message is used until it is older than its maximum age. In lockstep with a
        simulator only messages with the time stamp `stamp_ns` are used, or messages without a stamp
        that came since the previous read.

        Args:
            now_ns: Time of the tick in ns, on the clock of the arrival times.
            stamp_ns: In lockstep the simulated time of the step in ns; None in real time.
        """
        feeds, lockstep = tuple(self._feeds.values()), stamp_ns is not None
        with np.errstate(over="ignore", invalid="ignore"):
            if self.measured is not None:  # before messages that no channel needs are dropped
                for source in self.measured.source_names:
                    if unread := self._feeds[source].received.unread:
                        self.measured.update_from_messages(source, unread)
                self.measured.mark_old_positions(now_ns, lockstep=lockstep)
            if any([feed.received.unread and feed.add_channels_if_new(lockstep) for feed in feeds]):
                self._assign_channel_indices(self)
                self._missing.add_notices_of_new_channels()
            for feed in feeds:
                feed.write_numbers_of_unread_messages(lockstep)
            ok = self._conversion.convert_raw_numbers_and_find_valid()
        new_ns = [feed.received.arrival_ns for feed in feeds if feed.received.new]
        fresh = [feed.mark_stale_channels_and_tell_if_fresh(ok, now_ns, stamp_ns) for feed in feeds]
        pattern = self._missing.add_notices_and_get_ok_bytes(ok, fresh, now_ns, stamp_ns)
        ids = self._conversion.select_present_ids(pattern, ok)
        if self.cameras:
            values = np.concatenate([camera.patches for camera in self.cameras])[ok]
        elif len(ids) == len(self.ids):
            values = self._conversion.values.astype(np.float32)
        else:
            values = self._conversion.values[ok].astype(np.float32)
        since_ns = min(new_ns) if new_ns else max([feed.received.arrival_ns for feed in feeds])
        weights = (
            None if self._weights is None else self._weights.sum_valid_and_expected_weights(ok)
        )
        return Readings(
            values, ids, max(self.expected_channel_count, len(ids)), bool(new_ns), since_ns, weights
        )

    def make_rewired_table(self, wiring: Wiring) -> ChannelTable:
        """Return a new table for another wiring, with a copy of the messages stored in this table.

        A source with an unchanged message type gets its messages, even if it reads another topic
        now. The new table uses them until a message comes from the new topic, or until they are too
        old (in lockstep: until the next step). This table is not changed.

        Args:
            wiring: The wiring of the new table.

        Raises:
            WiringError: A message type is not installed, or a field path leads to no number.
        """
        return ChannelTable(wiring, self._sources.resolve, self)

    @property
    def message_classes(self) -> dict[str, Any]:
        """The message class of each source, by the source's name."""
        return self._sources.message_classes

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of all channels, present or missing."""
        return self._conversion.ids

    @property
    def numbers(self) -> NDArray[np.float64]:
        """Numbers (N,) of all channels at the newest read, before scale, offset and clip.

        A function of an angle that the wiring asks for is applied already. The array is in the
        order of `ids` and must not be modified. A missing channel may have an old number.
        """
        return self._conversion.numbers

    @property
    def configs(self) -> dict[str, ChannelConfig]:
        """Settings of each channel, by the channel's own id.

        The settings are an entry of the wiring file. If the id of the entry has a `*`, all channels
        that the `*` stands for have the same settings, each under an id without `*`.
        """
        readers = [reader for feed in self._feeds.values() for reader in feed.readers]
        return {
            id_: config
            for reader in readers
            for id_, config in zip(reader.ids, reader.configs, strict=True)
        }

    @property
    def expected_channel_count(self) -> int:
        """Number of channels that should have a reading; a channel without one is missing."""
        return sum([feed.expected_channel_count for feed in self._feeds.values()])

    def stop_expecting_absent_channels(self) -> None:
        """Stop expecting channels of a wildcard (`*`) that have been missing for a long time.

        They then no longer count as missing. A long time is more than the channel's maximum age (1
        s if it has none) plus 1 s.
        """
        for feed in self._feeds.values():
            for reader in feed.growing:
                reader.stop_expecting_absent_channels()

    def discard_camera_frames(self) -> None:
        """Discard the camera frames of earlier messages, because a new episode starts."""
        for feed in self._feeds.values():
            feed.discard_camera_frames()

    def find_ids_by_element_name(self, source: str, element_names: Collection[str]) -> list[str]:
        """Return the ids of a source's channels that read array elements with certain names.

        The field `position[hip_1]`, for example, reads the element with the name "hip_1". Channels
        that are not identified by such a name are always included.

        Args:
            source: Name of the source (subscribed topic).
            element_names: Names of array elements in the messages. If it is empty, all channels of
                the source are returned.
        """
        readers = self._feeds[source].readers
        return [id_ for reader in readers for id_ in reader.find_ids_by_element_name(element_names)]

    def list_missing_sources(self) -> list[str]:
        """Return the required sources that had no fresh, readable message at the newest read."""
        return self._missing.list_missing_sources()

    def explain_missing_channels(self, now_ns: int) -> dict[str, list[str]]:
        """Return why channels were missing at the newest read, as {reason: ids of channels}.

        Args:
            now_ns: Present time in ns, on the clock of the arrival times.
        """
        return self._missing.explain_missing_channels(now_ns)

    def explain_lateness(self, source: str, now_ns: int) -> str:
        """Return text on why a source's newest message is too old.

        Args:
            source: Name of the source (subscribed topic).
            now_ns: Present time in ns, on the clock of the arrival times.
        """
        return self._feeds[source].explain_lateness(now_ns)

    def list_source_statuses(self, now_ns: int) -> list[SourceStatus]:
        """Return the state that each source had at the newest read, for diagnostics.

        Args:
            now_ns: Present time in ns, from which the ages of messages are computed.
        """
        return self._missing.list_source_statuses(now_ns)

    def pop_notices(self) -> list[Notice]:
        """Return the notices of what was lost or came back since the previous call, and clear them.

        A notice is about a source (subscribed topic) or some of its channels.
        """
        return self._missing.pop_notices()

    def clear_notices_and_report_anew(self) -> None:
        """Clear all notices; the next read then adds notices of all that is missing."""
        self._missing.clear_notices_and_report_anew()


def _wrap_angles(angles: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return angles (n,) in -pi..pi that differ from the given ones by whole turns."""
    wrapped: NDArray[np.float64] = angles - math.tau * np.round(angles / math.tau)
    return wrapped


Curve = Callable[[NDArray[np.float64]], NDArray[np.float64]]
_CURVES: dict[str, Curve] = {"wrap": _wrap_angles, "sin": np.sin, "cos": np.cos}
"""Functions of an angle (rad) that a channel's entry may ask for, by name; they are applied before
the scale."""


def _find_angle_functions_and_channels(
    configs: Sequence[ChannelConfig],
) -> list[tuple[Curve, NDArray[np.intp]]]:
    """Find which channels are angles to be wrapped to -pi..pi or turned into a sine or cosine.

    Args:
        configs: Settings of each channel.

    Returns:
        A list of pairs: one of these functions of an angle, and the indices (n,) of the channels to
        which it is to be applied.
    """
    names = {id(one): "wrap" if one.wrap else one.sine_or_cosine for one in configs}
    found: list[tuple[Curve, NDArray[np.intp]]] = []
    for name, function in _CURVES.items():
        places = [place for place, one in enumerate(configs) if names[id(one)] == name]
        if places:
            found.append((function, np.array(places, np.intp)))
    return found
