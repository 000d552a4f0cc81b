"""Fast readers of message fields: each writes its channels' numbers into a row of float64.

A number that is not finite or not in the message (an array that is too short) is written as NaN,
never as zero. `Repairs` may then replace NaN, inf, -inf or a value outside the valid range, and
pooling makes one reading of each sector of beams. A channel that is still NaN is missing.

The reader of a wildcard grows: it adds channels for the elements that messages show. An element is
expected once it has come for PROVEN_NS, and an element that is not expected is dropped when it is
too old; so one odd message, or a publisher that keeps inventing names, has no lasting effect. Time
is taken from the source's messages, so a source that sends nothing loses no channels.
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
from an_control.wiring.messages import ALL, QUATERNIONS, Mark

Values = NDArray[np.float64]


class Repairs:
    """A function that replaces unusable numbers of some channels as the wiring says.

    With one config, it holds for all channels.
    """

    def __init__(self, configs: Sequence[ChannelConfig]) -> None:
        self._single = len(configs) == 1

        def column(name: str) -> Values:
            """Return one setting of all channels as an array, NaN where it is None."""
            values = [getattr(config, name) for config in configs]
            return np.array([np.nan if one is None else one for one in values], np.float64)

        ranges = [config.valid or (-np.inf, np.inf) for config in configs]
        self._low, self._high = np.array(ranges, np.float64).T.copy()
        self._nan, self._outside = column("nan"), column("outside")
        self._inf, self._minus_inf = column("inf"), column("minus_inf")

    def __call__(self, numbers: Any, where: slice | NDArray[np.bool_]) -> Values:
        """Return the numbers (n,) of channels `where` with replacements; NaN is missing."""
        raw = np.asarray(numbers, np.float64)

        def of(column: Values) -> Values:
            """Return the part of a column that belongs to the channels `where`."""
            return column if self._single else column[where]

        values = np.where((raw < of(self._low)) | (raw > of(self._high)), of(self._outside), raw)
        values = np.where(np.isnan(raw), of(self._nan), values)
        values = np.where(np.isposinf(raw), of(self._inf), values)
        return np.where(np.isneginf(raw), of(self._minus_inf), values)


def make_repairs(configs: Sequence[ChannelConfig]) -> Repairs | None:
    """Return the repairs of these channels, or None if none of them has any."""
    if any(config.repaired for config in configs):
        return Repairs(configs)
    return None


def make_pooled_getter(
    get: Callable[[Any], NDArray[Any]], config: ChannelConfig
) -> Callable[[Any], Values]:
    """Return a function that reads a message's array and returns repaired readings by sectors."""
    assert config.pool is not None
    size, by, repair = config.pool.size, config.pool.by, make_repairs([config])
    taken = slice(*(config.pool.elements or (None,)))

    def read(message: Any) -> Values:
        values = np.asarray(get(message)[taken], np.float64)
        return pool(values if repair is None else repair(values, slice(None)), size, by)

    return read


def pool(values: Values, size: int, by: Literal["min", "mean"]) -> Values:
    """Return the minimum or mean of every `size` neighbouring values, as (ceil(n / size),).

    The last sector may have fewer values. Values that are not finite are left out; a sector without
    finite values is NaN.
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
"""Duration for which an element must have come before it is expected."""


class Presence:
    """A record of when each element of a wildcard was in a message.

    `count` is the number of elements that are expected or are in the newest message.

    Args:
        proves: Whether elements become expected at all; if not, they come and go with each message.
    """

    gone_ns = PROVEN_NS
    """Time for which an element must be missing before it may be dropped."""

    def __init__(self, proves: bool) -> None:
        self._proves = proves
        self._since_ns = np.zeros(0, np.int64)
        self._last_ns = np.zeros(0, np.int64)
        self._now_ns = 0
        self.expected = np.zeros(0, bool)
        self.count = 0
        self.complete = True
        """Whether the newest message has all elements."""

    def record(self, there: NDArray[np.bool_] | None, now_ns: int) -> None:
        """Record that a message of time `now_ns` has these elements; None means all."""
        if there is None and self._settled and self.complete:
            self._now_ns = now_ns
            return
        if self.complete:
            self._last_ns[:] = self._now_ns
        before_ns, self._now_ns = self._now_ns, now_ns
        self.complete = there is None
        if there is None:
            there = np.ones(len(self.expected), bool)
        again = there & (self._last_ns != before_ns) & self._gone()
        self._since_ns[again] = now_ns
        self._last_ns[there] = now_ns
        if self._proves:
            self.expected |= self._last_ns - self._since_ns >= PROVEN_NS
        self.count = int(np.count_nonzero(self.expected | there))

    def stale(self) -> NDArray[np.bool_]:
        """Return which elements (n,) are not expected and have been missing for too long."""
        if self.complete:
            return np.zeros(len(self.expected), bool)
        return ~self.expected & self._gone()

    def resize(self, places: NDArray[np.intp], now_ns: int) -> None:
        """Keep the elements at `places`, in this order; -1 means a new one that is present now."""
        if self.complete:
            self._last_ns[:] = self._now_ns
        old, new = places >= 0, len(places)
        since, last = np.full(new, now_ns, np.int64), np.full(new, now_ns, np.int64)
        expected = np.zeros(new, bool)
        for array, before in (
            (since, self._since_ns),
            (last, self._last_ns),
            (expected, self.expected),
        ):
            array[old] = before[places[old]]
        self._since_ns, self._last_ns, self.expected = since, last, expected
        self.complete = False
        self.count = int(np.count_nonzero(expected | (last == now_ns)))

    def expect_present(self) -> None:
        """Stop expecting elements that have been missing for PROVEN_NS."""
        if not self.complete:
            self.expected &= np.abs(self._now_ns - self._last_ns) <= self.gone_ns + PROVEN_NS
            self.count = int(np.count_nonzero(self.expected))

    def copy(self) -> Presence:
        """Return a copy with arrays of its own."""
        return copy.deepcopy(self)

    def _gone(self) -> NDArray[np.bool_]:
        """Return which elements (n,) have been missing for longer than `gone_ns`."""
        gone: NDArray[np.bool_] = np.abs(self._now_ns - self._last_ns) > self.gone_ns
        return gone

    @property
    def _settled(self) -> bool:
        """Whether no element can become expected any more."""
        return not self._proves or bool(self.expected.all())


Row = NDArray[np.float64]
Mask = NDArray[np.bool_]
Channel = tuple[str, ChannelConfig]
"""A channel's id, and the entry of the wiring that it comes from."""
MAX_ELEMENTS = 20_000
"""Maximum number of channels of one wildcard; a message with more counts as unreadable."""
_ALL = slice(None)
_STANDS_FOR = "the channel's keys nan, inf, -inf and outside can name a value to use instead"
_ONE_EACH = "the sender must send one for each name"


class Reader(ABC):
    """A reader of some channels of one source.

    `ids` and `configs` name the channels in the order of the row. An exception from `grow` or
    `read` means that the message does not match its type, or is larger than allowed.
    """

    invalid = f"the value is not finite: {_STANDS_FOR}"
    """Default reason why a number counts as missing."""
    merges = False
    """Whether a message may hold only some of the channels, distinguished by name."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        self.ids = [id_ for id_, _ in channels]
        self.configs = [config for _, config in channels]
        self._repairs = make_repairs(self.configs)

    @property
    def expected(self) -> int:
        """Number of channels that should be present."""
        return len(self.ids)

    def reported_channels(self) -> Mask:
        """Return for which channels (len(ids),) a loss is reported."""
        return np.ones(len(self.ids), bool)

    @abstractmethod
    def read(self, message: Any, row: Row) -> Mask | None:
        """Write the channels' numbers into row (len(ids),), NaN where they are unknown.

        Returns:
            Which channels (len(ids),) the message has, or None for all. The places of the others
            are left
            as they are.
        """

    def why_invalid(self, index: int) -> str:
        """Return why a channel is missing although the message holds its number."""
        config = self.configs[index]
        if config.pool is not None:
            return f"none of its {config.pool.size} elements is valid"
        if config.valid is not None and config.outside is None:
            low, high = config.valid
            return f"the value is not finite, or outside {low:g} to {high:g}: {_STANDS_FOR}"
        return self.invalid

    def _write(self, row: Row, where: slice | Mask, numbers: Any) -> None:
        """Write a message's numbers for the channels `where` into the row, repaired."""
        row[where] = numbers if self._repairs is None else self._repairs(numbers, where)

    def record_presence(self, there: Mask | None, time_ns: int) -> None:
        """Record that a message of this time had these channels; None means all."""
        return

    def why_absent(self, index: int) -> str | None:
        """Return why a channel is not in the message read last, or None if it is."""
        return None

    def detail(self, index: int) -> str:
        """Return more about an absent channel, such as the nearest name in the message, or ""."""
        return ""

    def replacement(self, index: int) -> str:
        """Return what the newest message has in place of a channel of an earlier one, or ""."""
        return ""

    def ids_with_names(self, names: Collection[str]) -> list[str]:
        """Return the ids of channels in messages with these names; all if `names` is empty."""
        return list(self.ids)

    def reset(self) -> None:
        """Forget what earlier messages showed, because a new episode starts."""
        return

    def copy_state(self, old: Reader) -> None:
        """Copy the state of another reader of the same channels."""
        return


class ScalarReader(Reader):
    """A reader of numbers at the end of attribute paths."""

    def __init__(self, channels: Sequence[Channel], paths: Sequence[str]) -> None:
        super().__init__(channels)
        self._get = attrgetter(*paths)

    def read(self, message: Any, row: Row) -> Mask | None:
        """Write the numbers at the attribute paths into the row."""
        self._write(row, _ALL, self._get(message))
        return None


class AngleReader(Reader):
    """A reader of roll, pitch or yaw (rad) of one quaternion."""

    invalid = "the quaternion is zero or not finite"

    def __init__(self, channels: Sequence[Channel], path: str, functions: Sequence[str]) -> None:
        super().__init__(channels)
        self._get = attrgetter(*(f"{path}.{axis}" for axis in "xyzw"))
        self._functions = [QUATERNIONS[name] for name in functions]

    def read(self, message: Any, row: Row) -> Mask | None:
        """Write the angles of the message's quaternion into the row."""
        x, y, z, w = self._get(message)
        self._write(row, _ALL, [function(x, y, z, w) for function in self._functions])
        return None


class MarkedReader(Reader):
    """A reader of numbers that the message may mark as not available."""

    def __init__(self, reader: Reader, mark: Mark) -> None:
        super().__init__(list(zip(reader.ids, reader.configs, strict=True)))
        self._reader, self._mark, self._absent = reader, mark, False

    def read(self, message: Any, row: Row) -> Mask | None:
        """Write the numbers into the row, or NaN if the message marks them as not available."""
        self._absent = self._mark.absent(message)
        if not self._absent:
            return self._reader.read(message, row)
        row[:] = math.nan
        return None

    def why_invalid(self, index: int) -> str:
        """Return the mark's reason if the last message had the mark, else the usual reason."""
        return self._mark.reason if self._absent else self._reader.why_invalid(index)


class Wildcard:
    """A maker of channel ids for elements that messages show, from a pattern with a `*`.

    Args:
        config: The entry of the wiring with the `*`.
        prefix: Text before the element's label in the id.
        taken: Ids that are in use, shared by all wildcards of a table; an id is given only once.
        by_name: Whether elements are distinguished by name, and so may be spread over messages.
    """

    def __init__(self, config: ChannelConfig, prefix: str, taken: set[str], by_name: bool) -> None:
        self.config = config
        self.prefix = prefix
        self.by_name = by_name
        self._taken = taken

    def reserve_id(self, label: str) -> str | None:
        """Return the id for a new element and reserve it, or None if another channel has it."""
        id_ = self.config.id.replace(ALL, f"{self.prefix}{label}")
        if id_ in self._taken:
            return None
        self._taken.add(id_)
        return id_

    def release_id(self, id_: str) -> None:
        """Make the id of a dropped element available again."""
        self._taken.discard(id_)


class GrowingReader(Reader):
    """A reader of channels with keys; with a wildcard, it adds the elements that messages show."""

    def __init__(
        self, channels: Sequence[Channel], keys: Sequence[Any], wildcard: Wildcard | None
    ) -> None:
        super().__init__(channels)
        if wildcard is not None and wildcard.config.pool is None:
            self._repairs = make_repairs([wildcard.config])
        self.wildcard = wildcard
        self._unmatched = 0 if wildcard and wildcard.config.weight == 0.0 else 1
        self._keys = list(keys)
        self._seen: set[Any] = set()
        self._presence = Presence(self.by_name)
        self.appeared: list[str] = []
        """Ids added by messages after the first; the table clears them when it reports them."""
        self.dropped = 0

    def reported_channels(self) -> Mask:
        """Return for which channels (len(ids),) a loss is reported; of a wildcard, the expected."""
        return self._presence.expected.copy() if self.wildcard else super().reported_channels()

    @property
    def max_age_s(self) -> float | None:
        """Maximum age of the wildcard's channels, if the wiring gives them one of their own."""
        return self.wildcard.config.max_age_s if self.wildcard else None

    @property
    def by_name(self) -> bool:
        """Whether it adds elements by their names."""
        return self.wildcard is not None and self.wildcard.by_name

    @property
    def expected(self) -> int:
        """Number of channels that should be present; at least 1 for a wildcard without matches."""
        return max(self._unmatched, self._presence.count if self.wildcard else len(self.ids))

    @property
    def unexpected(self) -> int:
        """Number of channels that are or were lately present without being expected."""
        return (
            len(self.ids) - int(np.count_nonzero(self.reported_channels())) if self.by_name else 0
        )

    @abstractmethod
    def grow(self, message: Any, time_ns: int) -> bool:
        """Add channels for new elements of this message; return whether the ids have changed."""

    def record_presence(self, there: Mask | None, time_ns: int) -> None:
        """Record that a message of this time had these channels; None means all."""
        if self.wildcard:
            self._presence.record(there, time_ns)

    def set_gone_after(self, limit_ns: int) -> None:
        """Set the time in ns for which an element must be missing before it may be dropped."""
        self._presence.gone_ns = limit_ns

    def expect_present(self) -> None:
        """Stop expecting elements that have not come lately."""
        self._presence.expect_present()

    def has_same_wildcard(self, other: GrowingReader) -> bool:
        """Return whether both readers add the same elements."""
        mine, theirs = self.wildcard, other.wildcard
        return bool(
            mine and theirs and (mine.config, mine.prefix) == (theirs.config, theirs.prefix)
        )

    def copy_state(self, old: Reader) -> None:
        """Copy the elements and their presence from another reader with a wildcard."""
        if not (isinstance(old, GrowingReader) and self.wildcard and old.wildcard):
            return
        for key in old._keys:
            self._add(key)
        if len(self.ids) == len(old.ids):
            self._presence = old._presence.copy()
        else:
            self._presence.resize(np.full(len(self.ids), MISSING, np.intp), 0)
        self._update_after_change()

    def _add_new_elements(self, keys: Collection[Any], time_ns: int) -> bool:
        """Add new elements and drop stale ones; return whether the ids have changed."""
        stale = self._presence.stale()
        if self._seen.issuperset(keys) and 2 * np.count_nonzero(stale) <= len(stale):
            return False
        first, keys = not self._seen, dict.fromkeys(keys)
        gone = {place for place in np.flatnonzero(stale).tolist() if self._keys[place] not in keys}
        seen = self._seen - {self._keys[place] for place in gone}
        new = [key for key in keys if key not in seen]
        check_size(len(seen) + len(new))
        kept = [place for place in range(len(self.ids)) if place not in gone]
        self._drop(gone, kept)
        for key in new:
            self._add(key)
        added = len(self.ids) - len(kept)
        if not first and self.by_name:
            self.appeared += self.ids[len(kept) :]
        self._presence.resize(np.array(kept + added * [MISSING], np.intp), time_ns)
        self._update_after_change()
        return bool(gone or added)

    def _add(self, key: Any) -> None:
        """Add one element, unless another channel has its id."""
        self._seen.add(key)
        if self.wildcard and (id_ := self.wildcard.reserve_id(str(key))) is not None:
            self.ids.append(id_)
            self.configs.append(self.wildcard.config)
            self._keys.append(key)

    def _drop(self, gone: set[int], kept: list[int]) -> None:
        """Remove the elements at the places `gone`, and keep those at `kept`."""
        if not (self.wildcard and gone):
            return
        for place in gone:
            self.wildcard.release_id(self.ids[place])
            self._seen.discard(self._keys[place])
        self.dropped += len(gone)
        self.ids = [self.ids[place] for place in kept]
        self._keys = [self._keys[place] for place in kept]
        self.configs = [self.wildcard.config] * len(kept)

    def _update_after_change(self) -> None:
        """Update what depends on the keys, after they have changed."""


class ElementReader(GrowingReader):
    """A reader of elements of one array of numbers, by index or by name.

    Args:
        field: The array's path, for reasons.
        get: Returns a message's array.
        channels: The channels that are known from the start.
        keys: The index or name of each of these channels.
        names: The names beside the array. If they are fewer than the elements, all elements count
            as
            missing, because it is not known which name belongs to which.
        wildcard: Makes ids for the elements that messages show.
    """

    def __init__(
        self,
        field: str,
        get: Callable[[Any], NDArray[Any]],
        channels: Sequence[Channel] = (),
        keys: Sequence[int | str] = (),
        names: MessageNames | None = None,
        wildcard: Wildcard | None = None,
    ) -> None:
        super().__init__(channels, keys, wildcard)
        self.merges = names is not None
        self._field, self._get = field, get
        self._names = names
        self._length = 0
        self._grown_for: tuple[int, int] | None = None
        self._update_after_change()

    def length(self, message: Any) -> int:
        """Return the number of elements of the message's array."""
        return len(self._get(message))

    def grow(self, message: Any, time_ns: int) -> bool:
        """Add channels for elements that this message shows for the first time."""
        length, names = self.length(message), self._names
        shape = (names.listing.number if names else 0, length)
        if shape == self._grown_for and self._presence.complete:
            return False
        labels = names.listing.names[:length] if names else range(length)
        changed = self._add_new_elements(labels, time_ns)
        self._grown_for = shape
        return changed

    def read(self, message: Any, row: Row) -> Mask | None:
        """Write the elements of the message into the row; return which it has, None for all."""
        data = self._get(message)
        if self._names and self._names.listing.number != self._number:
            self._find_places()
        length = self._length = len(data)
        if self._reach <= length <= self._longest:
            self._write(row, _ALL, data[self._index])
            return None
        here = (self._index >= 0) & (self._index < length) & (length <= self._longest)
        self._write(row, here, data[self._index[here]])
        if not self._names:
            return here
        there = (self._index != MISSING) & (length > 0)
        row[there & ~here] = math.nan
        return there

    def why_absent(self, index: int) -> str | None:
        """Return why an element is not in the message read last, or None if it is."""
        place, length, names = self._index[index], self._length, self._longest
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
        of, more = (f" of {names}", f": {_ONE_EACH}") if self._names else ("", "")
        return f"{self._field} has {length}{of} elements{more}"

    def ids_with_names(self, names: Collection[str]) -> list[str]:
        """Return the ids of channels in messages with these names; all if `names` is empty."""
        if not (self._names and names):
            return list(self.ids)
        return [id_ for id_, key in zip(self.ids, self._keys, strict=True) if key in names]

    def detail(self, index: int) -> str:
        """Return the message's name that is nearest to an absent element's, as text, or ""."""
        if self._names is None or self._index[index] != MISSING:
            return ""
        return describe_nearest_name(str(self._keys[index]), self._message_names())

    def replacement(self, index: int) -> str:
        """Return the newest message's name that may be another spelling of this one, or ""."""
        if self._names is None:
            return ""
        if self._index[index] != MISSING:
            return "" if self._length else f"in the newest one {self._field} is empty"
        other = describe_other_spelling(str(self._keys[index]), self._message_names())
        return f"the newest one names {other}" if other else ""

    def _message_names(self) -> list[str]:
        """Return the names in the message read last."""
        names = self._names.listing.names if self._names else ()
        return [name for name in names if isinstance(name, str)]

    def _update_after_change(self) -> None:
        """Find the elements' places again, after the keys have changed."""
        self._aims: dict[int, NDArray[np.intp]] = {}
        self._find_places()

    def _find_places(self) -> None:
        """Find the elements' places in messages with the current list of names."""
        self._number = self._names.listing.number if self._names else 0
        index = self._aims.get(self._number)
        if index is None:
            if len(self._aims) >= KEPT_NAME_LISTS:
                self._aims.clear()
            names = self._names
            index = names.listing.places(self._keys) if names else np.array(self._keys, np.intp)
            self._aims[self._number] = index
        self._index = index
        self._longest = len(self._names.listing.names) if self._names else sys.maxsize
        whole = index.min(initial=0) >= 0
        self._reach = int(index.max(initial=-1)) + 1 if whole else sys.maxsize


def make_array_getter(path: str, octets: bool) -> Callable[[Any], NDArray[Any]]:
    """Return a function that returns a message's array of numbers (n,), uncopied if possible."""
    get = attrgetter(path)
    if octets:
        return lambda message: np.frombuffer(b"".join(get(message)), np.uint8)

    def read(message: Any) -> NDArray[Any]:
        data: NDArray[Any] = np.asarray(get(message))
        if data.ndim != 1:
            raise ValueError(f"{path} is no list of numbers")
        return data

    return read


def check_size(count: int) -> None:
    """Check that a wildcard does not grow beyond MAX_ELEMENTS.

    Raises:
        ValueError: If `count` is larger.
    """
    if count > MAX_ELEMENTS:
        raise ValueError(f"the message has more than {MAX_ELEMENTS} elements for one wildcard")


@dataclass(frozen=True)
class Hop:
    """One field on the way from a message to a number.

    Attributes:
        name: Name of the field.
        key: Index or name of the element, or `*`; None if the field is no array.
        names: Name of the list of names in the message that has the field, if there is one.
        label: Whether the field's name, and whether its key, become part of the channel's label.
    """

    name: str
    key: int | str | None = None
    names: str | None = None
    label: tuple[bool, bool] = (False, False)

    def labels(self, key: int | str | None) -> tuple[str, ...]:
        """Return this hop's part of a channel's label, with `key` in place of a `*`."""
        name, element = self.label
        return (self.name,) * name + (str(key),) * element


class NestedReader(GrowingReader):
    """A slow reader of numbers in lists of messages, angles in such lists, and single octets."""

    def __init__(
        self,
        hops: Sequence[Hop],
        function: str | None,
        channels: Sequence[Channel] = (),
        wildcard: Wildcard | None = None,
    ) -> None:
        own = ".".join(part for hop in hops for part in hop.labels(hop.key))
        super().__init__(channels, [own] * len(channels), wildcard)
        self._hops = tuple(hops)
        self.merges = _selects_by_name(hops)
        self._angle = QUATERNIONS[function] if function else None
        self._found: dict[str, float] = {}

    def grow(self, message: Any, time_ns: int) -> bool:
        """Add channels for numbers that this message shows for the first time."""
        return self._add_new_elements(self._walk_all(message), time_ns)

    def read(self, message: Any, row: Row) -> Mask | None:
        """Write the numbers of the message into the row; return which it has, None for all."""
        found = self._found = self._walk_all(message)
        there = np.array([key in found for key in self._keys], bool)
        self._write(row, there, [found[key] for key in self._keys if key in found])
        return None if there.all() else there

    def why_absent(self, index: int) -> str | None:
        """Return why a number is not in the message read last, or None if it is."""
        return None if self._keys[index] in self._found else "the message has no such element"

    def _walk_all(self, message: Any) -> dict[str, float]:
        """Return the numbers of a message by label; NaN where a label occurs twice."""
        found: dict[str, float] = {}
        for parts, value in self._walk(message, self._hops, None, ()):
            label = ".".join(parts)
            found[label] = math.nan if label in found else value
            check_size(len(found))
        return found

    def _walk(
        self, node: Any, hops: tuple[Hop, ...], names: Any, parts: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], float]]:
        """Yield the label parts and the value of each number below a node of the message."""
        if not hops:
            yield parts, self._number(node)
            return
        hop, rest = hops[0], hops[1:]
        names = getattr(node, hop.names) if hop.names else names
        field = getattr(node, hop.name)
        for key, item in _select_elements(field, hop.key, names):
            yield from self._walk(item, rest, names, parts + hop.labels(key))

    def _number(self, value: Any) -> float:
        """Return a leaf of the message as a number, or the angle of a quaternion."""
        if self._angle:
            return self._angle(value.x, value.y, value.z, value.w)
        return float(value[0] if isinstance(value, bytes) else value)


def _selects_by_name(hops: Sequence[Hop]) -> bool:
    """Return whether any element on the way is selected by its name."""
    named = False
    for hop in hops:
        named |= hop.names is not None
        if named and isinstance(hop.key, str):
            return True
    return False


def _select_elements(
    field: Any, key: int | str | None, names: Any
) -> Iterator[tuple[int | str | None, Any]]:
    """Yield the elements of a field that `key` selects, each with its own name or index.

    Nothing is yielded for a list that is longer than its names, because it is not known which name
    belongs to which element.
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
