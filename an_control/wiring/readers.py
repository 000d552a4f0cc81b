"""Read numbers from message fields fast, into a part of an array of float64.

A channel is one number that the policy reads. A reader object reads some channels from the messages
of one source (subscribed topic), and writes them into its row, the part of the array that it is
given. A number that is not in the message (as in an array that is too short) is written as NaN,
never as zero. `Repairs` may replace NaN, infinity, minus infinity or a value outside the valid
range, as the wiring file says. Pooling combines neighbouring elements of an array into one number.
A channel that is not finite in the end is missing.

The reader of a wildcard (a channel id with a `*`) adds channels for array elements as messages
bring them. An element is expected in further messages once it has come for PROVEN_NS. An element
that is not expected is dropped when it has been missing for too long. So one odd message, or a
publisher that keeps inventing names, has no lasting effect. Time is taken from the messages of the
source, so a source without messages loses no channels.
"""

from __future__ import annotations

import copy
import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.config import (
    KEPT_NAME_LISTS,
    MISSING,
    TWICE,
    ChannelConfig,
    MessageNames,
    describe_nearest_name,
    describe_other_spelling,
)
from an_control.wiring.messages import ALL, QUATERNIONS, UnavailabilityRule

Values = NDArray[np.float64]


class Repairs:
    """Object that replaces unusable numbers (NaN, infinite, out of range) by the wiring's values.

    Args:
        configs: Settings of each of N channels, with the values. If there is only one item, it is
            used for all numbers.
    """

    def __init__(self, configs: Sequence[ChannelConfig]) -> None:
        self._single = len(configs) == 1

        def read_setting(name: str) -> Values:
            """Return a setting of all channels as an array (N,), with NaN for None."""
            values = [getattr(config, name) for config in configs]
            return np.array([np.nan if one is None else one for one in values], np.float64)

        ranges = [config.valid or (-np.inf, np.inf) for config in configs]
        self._low, self._high = np.array(ranges, np.float64).T.copy()
        self._nan, self._outside = read_setting("nan"), read_setting("outside")
        self._inf, self._minus_inf = read_setting("inf"), read_setting("minus_inf")

    def replace_unusable_numbers(self, numbers: Any, channels: slice | NDArray[np.bool_]) -> Values:
        """Return a copy of the numbers in which each unusable one is replaced.

        NaN, infinity, minus infinity and a number outside the channel's valid range are unusable.
        The wiring file may give a replacement for each of these cases. Without one the result is
        NaN, which means that the channel is missing.

        Args:
            numbers: The numbers (n,).
            channels: Which n of the N channels the numbers belong to, as a slice or a mask (N,).
        """
        raw = np.asarray(numbers, np.float64)

        def select_channel_values(setting_values: Values) -> Values:
            """Return a setting's values for those channels to which the numbers belong."""
            return setting_values if self._single else setting_values[channels]

        values = np.where(
            (raw < select_channel_values(self._low)) | (raw > select_channel_values(self._high)),
            select_channel_values(self._outside),
            raw,
        )
        values = np.where(np.isnan(raw), select_channel_values(self._nan), values)
        values = np.where(np.isposinf(raw), select_channel_values(self._inf), values)
        return np.where(np.isneginf(raw), select_channel_values(self._minus_inf), values)


def make_repairs_of_invalid_numbers(configs: Sequence[ChannelConfig]) -> Repairs | None:
    """Return an object that replaces unusable numbers (NaN, infinite, out of range), or None.

    Args:
        configs: Settings of each channel. If none says how to treat such numbers, the result is
            None.
    """
    if any(config.has_invalid_reading_settings for config in configs):
        return Repairs(configs)
    return None


def make_pooled_array_getter(
    get_array: Callable[[Any], NDArray[Any]], config: ChannelConfig
) -> Callable[[Any], Values]:
    """Return a function that reads a message's array and combines neighbouring elements.

    The function first replaces elements such as NaN by values that `config` gives for them.

    Args:
        get_array: Function that returns a message's array.
        config: Settings of the channel, of which `pool` says how elements are combined.
    """
    assert config.pool is not None
    size, by, repairs = config.pool.size, config.pool.by, make_repairs_of_invalid_numbers([config])
    taken = slice(*(config.pool.elements or (None,)))

    def read_pooled_values(message: Any) -> Values:
        """Read a message's array; return one number for each group of neighbouring elements."""
        values = np.asarray(get_array(message)[taken], np.float64)
        if repairs is not None:
            values = repairs.replace_unusable_numbers(values, slice(None))
        return pool_values(values, size, by)

    return read_pooled_values


def pool_values(values: Values, size: int, by: Literal["min", "mean"]) -> Values:
    """Combine each group of `size` neighbouring values into its minimum or mean.

    Values that are not finite are left out; a group without finite values becomes NaN. The final
    group may have fewer values.

    Args:
        values: The values (n,).
        size: Number of values in a group.
        by: "min" for the minimum, "mean" for the mean.

    Returns:
        One value for each group, as an array (ceil(n / size),).
    """
    if not len(values):
        return np.zeros(0)
    starts = np.arange(0, len(values), size)
    finite = np.isfinite(values)
    if by == "min":
        return np.fmin.reduceat(np.where(finite, values, np.nan), starts)
    counts = np.add.reduceat(finite.astype(np.float64), starts)
    sums = np.add.reduceat(np.where(finite, values, 0.0), starts)
    return np.where(counts > 0.0, sums / np.maximum(counts, 1.0), np.nan)


PROVEN_NS = 1_000_000_000
"""Time in ns for which an element must have come before it is expected in further messages."""


class ElementPresence:
    """Record of which of n array elements the messages of a source have had, and when.

    Each element has a channel, made from a wildcard (a channel id with a `*`).

    Args:
        expects_elements: Whether an element that messages have had for `PROVEN_NS` (1 s) is
            expected in further messages. If False, no element is ever expected.

    Attributes:
        expected: For each of the n elements, whether it is expected in further messages.
        count: Number of elements that are expected or are in the newest message.
        complete: Whether the newest message has all elements.
        gone_ns: Time in ns for which an element must be missing before it may be dropped.
    """

    gone_ns = PROVEN_NS
    """Time in ns for which an element must be missing before it may be dropped."""

    def __init__(self, expects_elements: bool) -> None:
        self._expects_elements = expects_elements
        self._since_ns = np.zeros(0, np.int64)
        self._last_ns = np.zeros(0, np.int64)
        self._now_ns = 0
        self.expected = np.zeros(0, bool)
        self.count = 0
        self.complete = True
        """Whether the newest message has all elements."""

    def record_present_elements(self, present: NDArray[np.bool_] | None, message_ns: int) -> None:
        """Record which of the n elements a message has, and update which are expected.

        Args:
            present: Mask (n,) of the elements that the message has; None means that it has all.
            message_ns: Time of the message in ns.
        """
        if present is None and self._are_expectations_final and self.complete:
            self._now_ns = message_ns
            return
        if self.complete:
            self._last_ns[:] = self._now_ns
        before_ns, self._now_ns = self._now_ns, message_ns
        self.complete = present is None
        if present is None:
            present = np.ones(len(self.expected), bool)
        again = present & (self._last_ns != before_ns) & self._make_disappeared_elements_mask()
        self._since_ns[again] = message_ns
        self._last_ns[present] = message_ns
        if self._expects_elements:
            self.expected |= self._last_ns - self._since_ns >= PROVEN_NS
        self.count = int(np.count_nonzero(self.expected | present))

    def make_droppable_elements_mask(self) -> NDArray[np.bool_]:
        """Return a mask (n,) of the elements whose channels may be removed.

        Such an element is not expected, and has been missing for longer than `gone_ns`.
        """
        if self.complete:
            return np.zeros(len(self.expected), bool)
        return ~self.expected & self._make_disappeared_elements_mask()

    def reorder_elements(self, previous_indices: NDArray[np.intp], now_ns: int) -> None:
        """Adapt the record after elements were reordered, dropped or added.

        Args:
            previous_indices: For each of the n elements after the change, its index before the
                change, or -1 if it is new. A new element counts as present now.
            now_ns: Present time in ns.
        """
        if self.complete:
            self._last_ns[:] = self._now_ns
        old, new = previous_indices >= 0, len(previous_indices)
        since, last = np.full(new, now_ns, np.int64), np.full(new, now_ns, np.int64)
        expected = np.zeros(new, bool)
        for array, before in (
            (since, self._since_ns),
            (last, self._last_ns),
            (expected, self.expected),
        ):
            array[old] = before[previous_indices[old]]
        self._since_ns, self._last_ns, self.expected = since, last, expected
        self.complete = False
        self.count = int(np.count_nonzero(expected | (last == now_ns)))

    def stop_expecting_absent_elements(self) -> None:
        """Stop expecting further messages to have elements that have been missing for long.

        The limit is 1 s more than `gone_ns`, the time in ns after which an element may be dropped.
        """
        if not self.complete:
            self.expected &= np.abs(self._now_ns - self._last_ns) <= self.gone_ns + PROVEN_NS
            present = self._last_ns == self._now_ns
            self.count = int(np.count_nonzero(self.expected | present))

    def copy(self) -> ElementPresence:
        """Return a copy, which does not change when this record changes."""
        return copy.deepcopy(self)

    def _make_disappeared_elements_mask(self) -> NDArray[np.bool_]:
        """Return a mask (n,) of the elements that have been missing for longer than `gone_ns`."""
        gone: NDArray[np.bool_] = np.abs(self._now_ns - self._last_ns) > self.gone_ns
        return gone

    @property
    def _are_expectations_final(self) -> bool:
        """Whether all elements are expected already, or none may ever become expected."""
        return not self._expects_elements or bool(self.expected.all())


Row = NDArray[np.float64]
Mask = NDArray[np.bool_]
Channel = tuple[str, ChannelConfig]
"""A pair: the id of a channel, and its settings from the wiring file."""
MAX_ELEMENTS = 20_000
"""Maximum number of channels of one wildcard (`*`). A message with more elements counts as
unreadable."""
_ALL = slice(None)
_STANDS_FOR = "the channel's keys nan, inf, -inf and outside can name a value to use instead"
_ONE_EACH = "the sender must send one for each name"


class Reader(ABC):
    """Base class of objects that read the numbers of some channels from one source's messages.

    If `read_into_row` raises an exception, the message does not match its type, or is larger than
    allowed.

    Args:
        channels: Id and settings of each channel, in the order in which `read_into_row` writes
            them.
    """

    invalid = f"the value is not finite: {_STANDS_FOR}"
    """Default reason why a number counts as missing."""
    merges = False
    """Whether a message may hold only some of the channels, which are identified by name."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        self.ids = [id_ for id_, _ in channels]
        self.configs = [config for _, config in channels]
        self._repairs = make_repairs_of_invalid_numbers(self.configs)

    @property
    def expected_channel_count(self) -> int:
        """Number of channels that should have a reading: here all channels of the reader."""
        return len(self.ids)

    def make_mask_of_channels_to_report_if_lost(self) -> Mask:
        """Return a mask (N,) of the channels whose loss is reported to the user: here all N."""
        return np.ones(len(self.ids), bool)

    @abstractmethod
    def read_into_row(self, message: Any, row: Row) -> Mask | None:
        """Write the numbers that a message has for the N channels of this reader into an array.

        An unusable number, such as NaN or one outside the valid range, is replaced by the value
        that the wiring file gives for this case. Without such a value, NaN is written.

        Args:
            message: Message of the source.
            row: The array (N,) to write into. It is not changed for channels that the message does
                not have.

        Returns:
            A mask (N,) of the channels that the message has; None means that it has all.
        """

    def explain_invalid_number(self, channel_index: int) -> str:
        """Return text on why a number in a message cannot be used, so that its channel is missing.

        Args:
            channel_index: Index of the channel among those of this reader.
        """
        config = self.configs[channel_index]
        if config.pool is not None:
            return f"none of its {config.pool.size} elements is valid"
        if config.valid is not None and config.outside is None:
            low, high = config.valid
            return f"the value is not finite, or outside {low:g} to {high:g}: {_STANDS_FOR}"
        return self.invalid

    def _write_with_replacements(self, row: Row, channels: slice | Mask, numbers: Any) -> None:
        """Write numbers into an array, with the wiring file's replacements for unusable ones.

        Args:
            row: The array to write into, one number for each of the N channels.
            channels: Which n of the channels the numbers belong to, as a slice or a mask (N,).
            numbers: The numbers (n,).
        """
        row[channels] = (
            numbers
            if self._repairs is None
            else self._repairs.replace_unusable_numbers(numbers, channels)
        )

    def record_present_channels(self, present: Mask | None, time_ns: int) -> None:
        """Do nothing; subclasses that can add channels store here which channels a message has.

        Args:
            present: Mask (N,) of the channels that the message has; None means that it has all.
            time_ns: Time of the message in ns.
        """
        return

    def explain_absence_from_message(self, channel_index: int) -> str | None:
        """Return text on why the newest message lacks a channel; None if the message has it.

        Args:
            channel_index: Index of the channel among those of this reader.
        """
        return None

    def describe_likely_cause_of_absence(self, channel_index: int) -> str:
        """Describe, for a log line, why a message may lack a channel, such as a misspelt name.

        Args:
            channel_index: Index of the channel among those of this reader.

        Returns:
            The text, or "" if nothing is known.
        """
        return ""

    def describe_replacement_of_absent_element(self, channel_index: int) -> str:
        """Return text on what the newest message has in place of an element of earlier ones.

        For example, it may spell the name of the element differently.

        Args:
            channel_index: Index of the channel among those of this reader.

        Returns:
            Text for a log line, or "" if nothing is known.
        """
        return ""

    def find_ids_by_element_name(self, element_names: Collection[str]) -> list[str]:
        """Return the ids of the channels that read array elements with certain names.

        The field `position[hip_1]`, for example, reads the element with the name "hip_1". Channels
        that are not identified by such a name are always included.

        Args:
            element_names: Names of array elements in messages. If it is empty, all ids are
                returned.
        """
        return list(self.ids)

    def discard_camera_frames(self) -> None:
        """Discard camera frames of earlier messages, because a new episode starts."""
        return

    def copy_state_from(self, other: Reader) -> None:
        """Copy from another reader of the same channels what it has stored of earlier messages."""
        return


class FieldReader(Reader):
    """Reader of numbers from single fields of a message, not from elements of an array.

    Args:
        channels: Id and settings of each of N channels.
        get: Function that returns the numbers (N,) in a message.
        rule: Rule by which a message declares all these numbers unavailable, such as a missing
            orientation; None if there is none.
        invalid: Text on why a number counts as missing; None: that it is not finite.
    """

    def __init__(
        self,
        channels: Sequence[Channel],
        get: Callable[[Any], Any],
        rule: UnavailabilityRule | None,
        invalid: str | None = None,
    ) -> None:
        super().__init__(channels)
        self._get, self._rule, self._is_unavailable = get, rule, False
        self.invalid = invalid or self.invalid

    def read_into_row(self, message: Any, row: Row) -> Mask | None:
        """Write the numbers into `row` (N,), or NaN if the message declares them unavailable.

        Returns:
            None, which means that the message has all channels. A channel whose number is declared
            unavailable counts as one that the message has.
        """
        if self._rule is not None:
            self._is_unavailable = self._rule.absent(message)
        if self._is_unavailable:
            row[:] = math.nan
        else:
            self._write_with_replacements(row, _ALL, self._get(message))
        return None

    def explain_invalid_number(self, channel_index: int) -> str:
        """Return text on why a number in a message cannot be used, so that its channel is missing.

        For example, another field of the message may say that the number is not available.

        Args:
            channel_index: Index of the channel among those of this reader.
        """
        if self._rule is not None and self._is_unavailable:
            return self._rule.reason
        return super().explain_invalid_number(channel_index)


INVALID_QUATERNION = "the quaternion is zero or not finite"


def make_quaternion_getter(path: str, names: Sequence[str]) -> Callable[[Any], list[float]]:
    """Return a function that computes numbers, such as the yaw, from a message's quaternion.

    Args:
        path: Dotted attribute path of the quaternion.
        names: Names of the numbers: "roll", "pitch" or "yaw" (angles in rad), or "gravity_x",
            "gravity_y" or "gravity_z" (of the unit vector that points down, in the body's frame).
    """
    get = attrgetter(*(f"{path}.{axis}" for axis in "xyzw"))
    functions = [QUATERNIONS[name] for name in names]

    def compute_numbers(message: Any) -> list[float]:
        """Compute the numbers of the message's quaternion."""
        x, y, z, w = get(message)
        return [function(x, y, z, w) for function in functions]

    return compute_numbers


class Wildcard:
    """Channel id with a `*`, from which the ids of channels for array elements are made.

    Args:
        config: Entry in the wiring file of the channel with the `*`.
        prefix: Text before the element's name or index; both together replace the `*`.
        taken_ids: Ids that are in use. All wildcards of a wiring share this set, so that no id is
            given twice.
        by_name: True if elements are identified by name, False if by index. With names, one message
            may hold other elements than the message before.
    """

    def __init__(
        self, config: ChannelConfig, prefix: str, taken_ids: set[str], by_name: bool
    ) -> None:
        self.config = config
        self.prefix = prefix
        self.by_name = by_name
        self._taken = taken_ids

    def reserve_channel_id_if_free(self, label: str) -> str | None:
        """Return and reserve the channel id for a new array element; None if the id is in use.

        Args:
            label: Name or index of the element.
        """
        id_ = self.config.id.replace(ALL, f"{self.prefix}{label}")
        if id_ in self._taken:
            return None
        self._taken.add(id_)
        return id_

    def release_channel_id(self, id_: str) -> None:
        """Make the channel id of a dropped array element available again."""
        self._taken.discard(id_)


class GrowingReader(Reader):
    """Base class of readers that can add channels for the array elements in messages.

    Args:
        channels: Id and settings of each channel that is known from the start.
        keys: Name or index of the array element for each of these channels.
        wildcard: Makes the ids of further channels; None if none are added.
    """

    def __init__(
        self, channels: Sequence[Channel], keys: Sequence[Any], wildcard: Wildcard | None
    ) -> None:
        super().__init__(channels)
        if wildcard is not None and wildcard.config.pool is None:
            self._repairs = make_repairs_of_invalid_numbers([wildcard.config])
        self.wildcard = wildcard
        self._unmatched = 0 if wildcard and wildcard.config.weight == 0.0 else 1
        self._keys = list(keys)
        self._seen: set[Any] = set()
        self._presence = ElementPresence(self.adds_channels_by_name)
        self.appeared: list[str] = []
        """Ids of channels that messages after the first have added. The table clears the list when
        it has reported them."""
        self.dropped = 0

    def make_mask_of_channels_to_report_if_lost(self) -> Mask:
        """Return a mask (N,) of the channels whose loss is reported to the user.

        A wildcard adds a channel for each element of an array. If the array has become shorter,
        the channels of the elements that are gone are not reported.
        """
        return (
            self._presence.expected.copy()
            if self.wildcard
            else super().make_mask_of_channels_to_report_if_lost()
        )

    @property
    def max_age_s(self) -> float | None:
        """Maximum age of the wildcard's channels in seconds; None if the wiring file gives none."""
        return self.wildcard.config.max_age_s if self.wildcard else None

    @property
    def adds_channels_by_name(self) -> bool:
        """Whether array elements get channels of their own, and are told apart by their names."""
        return self.wildcard is not None and self.wildcard.by_name

    @property
    def has_elements_by_index(self) -> bool:
        """Whether channels are array elements by index, and the newest message has any."""
        by_index = self.wildcard is not None and not self.wildcard.by_name
        return by_index and self._presence.count > 0

    @property
    def expected_channel_count(self) -> int:
        """Number of channels that should have a reading; a channel without one is missing.

        With a wildcard (`*`) these are the array elements that are in the newest message or were in
        earlier ones long enough to be expected (see `ElementPresence`). If there are none, the
        wildcard counts as one channel, unless its weight is 0.
        """
        return max(self._unmatched, self._presence.count if self.wildcard else len(self.ids))

    @property
    def no_longer_expected_channel_count(self) -> int:
        """Number of channels, made from a wildcard by name, that further messages need not have.

        It is 0 if the wildcard takes elements by index, or if there is none.
        """
        return (
            len(self.ids) - int(np.count_nonzero(self.make_mask_of_channels_to_report_if_lost()))
            if self.adds_channels_by_name
            else 0
        )

    @abstractmethod
    def add_channels_if_new(self, message: Any, time_ns: int) -> bool:
        """Add channels for array elements that come for the first time in a message.

        Channels whose elements have been missing for long (see `set_removal_delay_ns`) may be
        dropped.

        Args:
            message: Message of the source.
            time_ns: Time of the message in ns.

        Returns:
            Whether the ids have changed.
        """

    def record_present_channels(self, present: Mask | None, time_ns: int) -> None:
        """Record which channels a message has, to decide which are expected in further messages.

        Args:
            present: Mask (N,) of the channels that the message has; None means that it has all.
            time_ns: Time of the message in ns.
        """
        if self.wildcard:
            self._presence.record_present_elements(present, time_ns)

    def set_removal_delay_ns(self, delay_ns: int) -> None:
        """Set for how many ns an element must be missing before its channel may be dropped."""
        self._presence.gone_ns = delay_ns

    def stop_expecting_absent_channels(self) -> None:
        """Stop expecting elements that have been missing 1 s longer than the removal delay."""
        self._presence.stop_expecting_absent_elements()

    def has_same_wildcard(self, other: GrowingReader) -> bool:
        """Return whether both readers add channels for the same `*` of the wiring file."""
        mine, theirs = self.wildcard, other.wildcard
        return bool(
            mine and theirs and (mine.config, mine.prefix) == (theirs.config, theirs.prefix)
        )

    def copy_state_from(self, other: Reader) -> None:
        """Copy another reader's array elements, and its record of when messages had them."""
        if not (isinstance(other, GrowingReader) and self.wildcard and other.wildcard):
            return
        for key in other._keys:
            self._add_channel_if_id_free(key)
        if len(self.ids) == len(other.ids):
            delay_ns = self._presence.gone_ns  # of this reader's wiring
            self._presence = other._presence.copy()
            self._presence.gone_ns = delay_ns
        else:
            self._presence.reorder_elements(np.full(len(self.ids), MISSING, np.intp), 0)
        self._update_element_lookup()

    def _add_elements_if_new(self, keys: Collection[Any], time_ns: int) -> bool:
        """Add channels for new elements, and remove channels of elements missing for too long.

        Args:
            keys: Names or indices of all array elements in a message.
            time_ns: Time of the message in ns.

        Returns:
            Whether the ids have changed.
        """
        stale = self._presence.make_droppable_elements_mask()
        if self._seen.issuperset(keys) and 2 * np.count_nonzero(stale) <= len(stale):
            return False
        first, keys = not self._seen, dict.fromkeys(keys)
        gone = {place for place in np.flatnonzero(stale).tolist() if self._keys[place] not in keys}
        seen = self._seen - {self._keys[place] for place in gone}
        new = [key for key in keys if key not in seen]
        check_element_count(len(seen) + len(new))
        kept = [place for place in range(len(self.ids)) if place not in gone]
        self._drop_channels(gone, kept)
        for key in new:
            self._add_channel_if_id_free(key)
        added = len(self.ids) - len(kept)
        if not first and self.adds_channels_by_name:
            self.appeared += self.ids[len(kept) :]
        self._presence.reorder_elements(np.array(kept + added * [MISSING], np.intp), time_ns)
        self._update_element_lookup()
        return bool(gone or added)

    def _add_channel_if_id_free(self, key: Any) -> None:
        """Add a channel for one element, unless another channel has its id.

        Args:
            key: Name or index of the element.
        """
        self._seen.add(key)
        if (
            self.wildcard
            and (id_ := self.wildcard.reserve_channel_id_if_free(str(key))) is not None
        ):
            self.ids.append(id_)
            self.configs.append(self.wildcard.config)
            self._keys.append(key)

    def _drop_channels(self, gone_indices: set[int], kept_indices: list[int]) -> None:
        """Remove the channels of some elements.

        Args:
            gone_indices: Indices of the channels to remove.
            kept_indices: Indices of the channels that stay, in order.
        """
        if not (self.wildcard and gone_indices):
            return
        for place in gone_indices:
            self.wildcard.release_channel_id(self.ids[place])
            self._seen.discard(self._keys[place])
        self.dropped += len(gone_indices)
        self.ids = [self.ids[place] for place in kept_indices]
        self._keys = [self._keys[place] for place in kept_indices]
        self.configs = [self.wildcard.config] * len(kept_indices)

    def _update_element_lookup(self) -> None:
        """Adapt the stored places of elements in messages, after elements were added or dropped.

        Nothing is stored here. Subclasses that store places override the method.
        """


class ElementReader(GrowingReader):
    """Reader of elements of one array of numbers, by index or by name.

    If a message has names, but fewer than array elements, all elements count as missing: it is not
    known which name belongs to which element.

    Args:
        field: Path of the array, for messages to the user.
        get_array: Function that returns a message's array.
        channels: Id and settings of each channel that is known from the start.
        keys: Index or name of the array element for each of these channels.
        names: Reads the names of the array's elements; None if elements are identified by index.
        wildcard: Makes the ids of further channels; None if none are added.
    """

    def __init__(
        self,
        field: str,
        get_array: Callable[[Any], NDArray[Any]],
        channels: Sequence[Channel] = (),
        keys: Sequence[int | str] = (),
        names: MessageNames | None = None,
        wildcard: Wildcard | None = None,
    ) -> None:
        super().__init__(channels, keys, wildcard)
        self.merges = names is not None
        self._field, self._get = field, get_array
        self._names = names
        self._length = 0
        self._grown_for: tuple[int, int] | None = None
        self._update_element_lookup()

    def count_elements(self, message: Any) -> int:
        """Return the number of elements of a message's array."""
        return len(self._get(message))

    def add_channels_if_new(self, message: Any, time_ns: int) -> bool:
        """Add channels for elements that come for the first time in a message.

        Args:
            message: Message of the source.
            time_ns: Time of the message in ns.

        Returns:
            Whether the ids have changed.
        """
        length, names = self.count_elements(message), self._names
        shape = (names.listing.number if names else 0, length)
        if shape == self._grown_for and self._presence.complete:
            return False
        labels = names.listing.names[:length] if names else range(length)
        changed = self._add_elements_if_new(labels, time_ns)
        self._grown_for = shape
        return changed

    def read_into_row(self, message: Any, row: Row) -> Mask | None:
        """Write the elements of a message's array into `row`.

        Args:
            message: Message of the source.
            row: The array to write into, one number for each of the N channels.

        Returns:
            A mask (N,) of the channels that the message has; None means that it has all.
        """
        data = self._get(message)
        if self._names and self._names.listing.number != self._number:
            self._update_indices_of_named_elements()
        length = self._length = len(data)
        if self._reach <= length <= self._longest:
            self._write_with_replacements(row, _ALL, data[self._index])
            return None
        here = (self._index >= 0) & (self._index < length) & (length <= self._longest)
        self._write_with_replacements(row, here, data[self._index[here]])
        if not self._names:
            return here
        there = (self._index != MISSING) & (length > 0)
        row[there & ~here] = math.nan
        return there

    def explain_absence_from_message(self, channel_index: int) -> str | None:
        """Return text on why the newest message lacks an element; None if the message has it.

        Args:
            channel_index: Index of the element's channel among those of this reader.
        """
        place, length, names = self._index[channel_index], self._length, self._longest
        if place < 0:
            return (
                "the message names it twice" if place == TWICE else "the message does not name it"
            )
        if length > names:
            return f"{self._field} has {length} elements for {names} names: {_ONE_EACH}"
        if place < length:
            return None
        if not length:
            return f"{self._field} is empty"
        if self.wildcard and self.wildcard.config.pool:
            return f"{self._field} has elements for {length} channels only"
        of, more = (f" of {names}", f": {_ONE_EACH}") if self._names else ("", "")
        return f"{self._field} has {length}{of} elements{more}"

    def find_ids_by_element_name(self, element_names: Collection[str]) -> list[str]:
        """Return the ids of the channels that read array elements with certain names.

        Args:
            element_names: Names of the elements in the message. If it is empty, or the array has no
                names, all ids are returned.
        """
        if not (self._names and element_names):
            return list(self.ids)
        return [id_ for id_, key in zip(self.ids, self._keys, strict=True) if key in element_names]

    def describe_likely_cause_of_absence(self, channel_index: int) -> str:
        """Return text on the name in the message that is most similar to a missing element's name.

        Args:
            channel_index: Index of the channel for the missing element.

        Returns:
            Text for a log line, or "" if the absence has another cause than the name.
        """
        if self._names is None or self._index[channel_index] != MISSING:
            return ""
        return describe_nearest_name(str(self._keys[channel_index]), self._list_message_names())

    def describe_replacement_of_absent_element(self, channel_index: int) -> str:
        """Return text on what the newest message has in place of an absent element.

        Args:
            channel_index: Index of the channel for the absent element.

        Returns:
            Text for a log line: another spelling of the element's name, or that the array is
            empty; "" if neither is the case.
        """
        if self._names is None:
            return ""
        if self._index[channel_index] != MISSING:
            return "" if self._length else f"in the newest one {self._field} is empty"
        other = describe_other_spelling(str(self._keys[channel_index]), self._list_message_names())
        return f"the newest one names {other}" if other else ""

    def _list_message_names(self) -> list[str]:
        """Return the names of array elements in the newest message; [] if there are none."""
        names = self._names.listing.names if self._names else ()
        return [name for name in names if isinstance(name, str)]

    def _update_element_lookup(self) -> None:
        """Find the places of all elements in messages anew, after some were added or dropped."""
        self._aims: dict[int, NDArray[np.intp]] = {}
        self._update_indices_of_named_elements()

    def _update_indices_of_named_elements(self) -> None:
        """Store the index of each element in the arrays of messages with the newest name list."""
        self._number = self._names.listing.number if self._names else 0
        index = self._aims.get(self._number)
        if index is None:
            if len(self._aims) >= KEPT_NAME_LISTS:
                self._aims.clear()
            names = self._names
            index = (
                names.listing.find_indices(self._keys) if names else np.array(self._keys, np.intp)
            )
            self._aims[self._number] = index
        self._index = index
        self._longest = len(self._names.listing.names) if self._names else sys.maxsize
        whole = index.min(initial=0) >= 0
        self._reach = int(index.max(initial=-1)) + 1 if whole else sys.maxsize


def make_array_getter(path: str, octets: bool) -> Callable[[Any], NDArray[Any]]:
    """Return a function that gets an array field of a message as a numpy array (n,).

    The numpy array shares the message's memory if possible.

    Args:
        path: Dotted attribute path of the array.
        octets: Whether the array holds octets, which rclpy represents as bytes objects.
    """
    get = attrgetter(path)
    if octets:
        return lambda message: np.frombuffer(b"".join(get(message)), np.uint8)

    def read_array(message: Any) -> NDArray[Any]:
        """Return the array of a message; raise a ValueError if it is not a list of numbers."""
        data: NDArray[Any] = np.asarray(get(message))
        if data.ndim != 1:
            raise ValueError(f"{path} is not a list of numbers")
        return data

    return read_array


def check_element_count(count: int) -> None:
    """Check that a wildcard (`*`) does not have more than `MAX_ELEMENTS` (20000) array elements.

    Args:
        count: Number of elements.

    Raises:
        ValueError: There are more elements.
    """
    if count > MAX_ELEMENTS:
        raise ValueError(f"the message has more than {MAX_ELEMENTS} elements for one wildcard")


@dataclass(frozen=True)
class FieldAccess:
    """One field on the way from a message to a number, and the element that is chosen in it.

    Attributes:
        name: Name of the field.
        key: Index or name of the element, or `*` for all; None if the field is not an array.
        names: Name of the neighbouring field that lists the names of the elements, such as `name`
            in a JointState; None if there is no such field.
        label: Two bools: whether `name` is a part of the channel's id, and whether `key` is one.
    """

    name: str
    key: int | str | None = None
    names: str | None = None
    label: tuple[bool, bool] = (False, False)

    def make_id_parts(self, key: int | str | None) -> tuple[str, ...]:
        """Return what this field adds to a channel's id: its name, the key, both, or nothing.

        The attribute `label` says which of these; the result for nothing is ().

        Args:
            key: Index or name of the element.
        """
        name, element = self.label
        return (self.name,) * name + (str(key),) * element


class NestedReader(GrowingReader):
    """Reader of numbers and angles in lists of messages, and of single octets; it is slow.

    Args:
        accesses: The fields and elements that lead, one inside the other, from the message to the
            number.
        function: Function of a quaternion that gives the number, such as "yaw"; None if the field
            itself is the number.
        channels: Id and settings of the channel, if it is known from the start.
        wildcard: Makes the ids of further channels; None if none are added.
    """

    def __init__(
        self,
        accesses: Sequence[FieldAccess],
        function: str | None,
        channels: Sequence[Channel] = (),
        wildcard: Wildcard | None = None,
    ) -> None:
        own = ".".join(part for access in accesses for part in access.make_id_parts(access.key))
        super().__init__(channels, [own] * len(channels), wildcard)
        self._accesses = tuple(accesses)
        self.merges = _selects_any_element_by_name(accesses)
        self._angle = QUATERNIONS[function] if function else None
        self._found: dict[str, float] = {}

    def add_channels_if_new(self, message: Any, time_ns: int) -> bool:
        """Add channels for numbers that a message has for the first time.

        Args:
            message: Message of the source.
            time_ns: Time of the message in ns.

        Returns:
            Whether the ids have changed.
        """
        return self._add_elements_if_new(self._read_all_numbers(message), time_ns)

    def read_into_row(self, message: Any, row: Row) -> Mask | None:
        """Write the numbers of a message into `row`.

        Args:
            message: Message of the source.
            row: The array to write into, one number for each of the N channels.

        Returns:
            A mask (N,) of the channels that the message has; None means that it has all.
        """
        found = self._found = self._read_all_numbers(message)
        there = np.array([key in found for key in self._keys], bool)
        self._write_with_replacements(
            row, there, [found[key] for key in self._keys if key in found]
        )
        return None if there.all() else there

    def explain_absence_from_message(self, channel_index: int) -> str | None:
        """Return text on why the newest message lacks a number; None if the message has it.

        Args:
            channel_index: Index of the number's channel among those of this reader.
        """
        return (
            None if self._keys[channel_index] in self._found else "the message has no such element"
        )

    def find_ids_by_element_name(self, element_names: Collection[str]) -> list[str]:
        """Return the ids of the channels whose numbers lie inside certain elements of the message.

        Args:
            element_names: Names of the elements. If it is empty, or the elements at the top of the
                message are not found by name, all ids are returned.
        """
        first = self._accesses[0]
        if not element_names or first.names is None or not isinstance(first.key, str):
            return list(self.ids)
        if first.key != ALL:
            return list(self.ids) if first.key in element_names else []
        starts = tuple(".".join([*first.make_id_parts(name), ""]) for name in element_names)
        keys = zip(self.ids, self._keys, strict=True)
        return [id_ for id_, key in keys if f"{key}.".startswith(starts)]

    def _read_all_numbers(self, message: Any) -> dict[str, float]:
        """Return all numbers of a message by label; a label that occurs twice gets NaN.

        A label is the text that replaces the `*` in the channel's id. It is made of the names and
        indices that lead to the number.
        """
        found: dict[str, float] = {}
        for parts, value in self._iterate_labels_and_numbers(message, self._accesses, None, ()):
            label = ".".join(parts)
            found[label] = math.nan if label in found else value
            check_element_count(len(found))
        return found

    def _iterate_labels_and_numbers(
        self,
        message_part: Any,
        accesses: tuple[FieldAccess, ...],
        names: Any,
        label_parts: tuple[str, ...],
    ) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield a pair for each number in a part of a message: its label's parts, and its value.

        Args:
            message_part: Part of the message.
            accesses: The fields and elements that lead from this part to the number.
            names: List of names of the elements in the part, or None.
            label_parts: Parts of the label that belong to the way from the message to this part.
        """
        if not accesses:
            yield label_parts, self._to_number(message_part)
            return
        access, rest = accesses[0], accesses[1:]
        names = getattr(message_part, access.names) if access.names else names
        field = getattr(message_part, access.name)
        for key, item in _iterate_selected_elements(field, access.key, names):
            yield from self._iterate_labels_and_numbers(
                item, rest, names, label_parts + access.make_id_parts(key)
            )

    def _to_number(self, value: Any) -> float:
        """Convert a field's content to a number, by the reader's function if it is a quaternion.

        Args:
            value: A number, a single byte, or a quaternion message.
        """
        if self._angle:
            return self._angle(value.x, value.y, value.z, value.w)
        return float(value[0] if isinstance(value, bytes) else value)


def _selects_any_element_by_name(accesses: Sequence[FieldAccess]) -> bool:
    """Return whether the way to a number selects any array element by its name.

    Args:
        accesses: The fields and elements that lead, one inside the other, from a message to the
            number.
    """
    named = False
    for access in accesses:
        named |= access.names is not None
        if named and isinstance(access.key, str):
            return True
    return False


def _iterate_selected_elements(
    field: Any, key: int | str | None, names: Any
) -> Iterator[tuple[int | str | None, Any]]:
    """Yield a pair for each element of a field that a key selects: its name or index, its content.

    Nothing is yielded for a list that is longer than its names, because it is not known which name
    belongs to which element.

    Args:
        field: Content of the field.
        key: Index or name of an element, or `*` for all; None if the field is not an array.
        names: Names of the elements, or None if they have none.
    """
    if isinstance(key, str) and names is not None and len(field) > len(names):
        return
    if key is None:
        yield None, field
    elif isinstance(key, int):
        if key < len(field):
            yield key, field[key]
    elif key == ALL:
        yield from zip(names if names is not None else range(len(field)), field, strict=False)
    else:
        places = [place for place, name in enumerate(names) if name == key]
        if len(places) == 1 and places[0] < len(field):
            yield key, field[places[0]]
