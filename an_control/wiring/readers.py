"""Quick readers of message fields: each writes its channels' numbers into a row of float64.

What is not finite or unknown (an array that is too short) is written as NaN, never as zero. Then
`Repairs` may put a value in place of NaN, inf, -inf or what lies outside the valid range, and make
sectors of beams one reading each; what still has no value is missing.

A reader over a wildcard grows as messages show what there is. One odd message, or a publisher of
ever new names, changes nothing for long: an element is expected once it has come for PROVEN_NS, and
what is not expected is dropped when it is too old. The time is that of the source's messages, so
that a silent source loses nothing.
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
    KEPT_LISTINGS,
    MISSING,
    TWICE,
    ChannelConfig,
    Names,
    nearest,
    variant,
)
from an_control.wiring.messages import ALL, QUATERNIONS, Mark

Values = NDArray[np.float64]


class Repairs:
    """Repairs numbers of some channels; one entry of the wiring may stand for all of them."""

    def __init__(self, configs: Sequence[ChannelConfig]) -> None:
        self._single = len(configs) == 1

        def column(name: str) -> Values:
            values = [getattr(config, name) for config in configs]
            return np.array([np.nan if one is None else one for one in values], np.float64)

        ranges = [config.valid or (-np.inf, np.inf) for config in configs]
        self._low, self._high = np.array(ranges, np.float64).T.copy()
        self._nan, self._outside = column("nan"), column("outside")
        self._inf, self._minus_inf = column("inf"), column("minus_inf")

    def __call__(self, numbers: Any, where: slice | NDArray[np.bool_]) -> Values:
        """The numbers (n,), which are those of the channels `where`, repaired; NaN is missing."""
        raw = np.asarray(numbers, np.float64)

        def of(column: Values) -> Values:
            return column if self._single else column[where]

        values = np.where((raw < of(self._low)) | (raw > of(self._high)), of(self._outside), raw)
        values = np.where(np.isnan(raw), of(self._nan), values)
        values = np.where(np.isposinf(raw), of(self._inf), values)
        return np.where(np.isneginf(raw), of(self._minus_inf), values)


def repairs(configs: Sequence[ChannelConfig]) -> Repairs | None:
    """What repairs the numbers of these channels; None where nothing does."""
    if any(config.repaired for config in configs):
        return Repairs(configs)
    return None


def pooled(get: Callable[[Any], NDArray[Any]], config: ChannelConfig) -> Callable[[Any], Values]:
    """A function that gives a message's repaired numbers by sectors."""
    assert config.pool is not None
    size, by, repair = config.pool.size, config.pool.by, repairs([config])
    taken = slice(*(config.pool.elements or (None,)))

    def read(message: Any) -> Values:
        values = np.asarray(get(message)[taken], np.float64)
        return pool(values if repair is None else repair(values, slice(None)), size, by)

    return read


def pool(values: Values, size: int, by: Literal["min", "mean"]) -> Values:
    """(ceil(n / size),) of values (n,): the least or the mean of every `size` of them.

    The last sector has the rest. What is not finite is left out; NaN where nothing is left.
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


class Presence:
    """When each element was there; `count` of them are expected, or are in the newest message.

    proves: whether elements become expected at all; others come and go with each message.
    """

    gone_ns = PROVEN_NS
    """Without an element for so long, it is gone."""

    def __init__(self, proves: bool) -> None:
        self._proves = proves
        self._since_ns = np.zeros(0, np.int64)
        self._last_ns = np.zeros(0, np.int64)
        self._now_ns = 0
        self.expected = np.zeros(0, bool)
        self.count = 0
        self.complete = True
        """Whether the newest message has all elements."""

    def note(self, there: NDArray[np.bool_] | None, now_ns: int) -> None:
        """A message of that time has these elements, None for all."""
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
        """(n,): what is not expected and is gone."""
        if self.complete:
            return np.zeros(len(self.expected), bool)
        return ~self.expected & self._gone()

    def resize(self, places: NDArray[np.intp], now_ns: int) -> None:
        """Keep the elements of these places, in this order; a new one, there now, for each -1."""
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
        """Expect no longer what has been gone for PROVEN_NS."""
        if not self.complete:
            self.expected &= np.abs(self._now_ns - self._last_ns) <= self.gone_ns + PROVEN_NS
            self.count = int(np.count_nonzero(self.expected))

    def copy(self) -> Presence:
        """The same in arrays of its own."""
        return copy.deepcopy(self)

    def _gone(self) -> NDArray[np.bool_]:
        gone: NDArray[np.bool_] = np.abs(self._now_ns - self._last_ns) > self.gone_ns
        return gone

    @property
    def _settled(self) -> bool:
        return not self._proves or bool(self.expected.all())


Row = NDArray[np.float64]
Mask = NDArray[np.bool_]
Channel = tuple[str, ChannelConfig]
"""A channel's id, and the entry of the wiring that it comes from."""
MAX_ELEMENTS = 20_000
"""Channels that one wildcard may grow to; a message with more counts as unreadable."""
_ALL = slice(None)
_STANDS_FOR = "the channel's nan, inf, minus_inf or outside may say what it stands for"
_ONE_EACH = "the sender must send one for each name"


class Reader(ABC):
    """Reads some channels of one source.

    `ids` and `configs` name the channels in the order of the row.  Any exception from `grow` or
    `read` means that the message is not what its type promises, or larger than allowed.
    """

    invalid = f"the value is not finite: {_STANDS_FOR}"
    """Why a number counts as missing, as a rule."""
    merges = False
    """Whether messages may each hold some of the channels, distinguished by name."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        self.ids = [id_ for id_, _ in channels]
        self.configs = [config for _, config in channels]
        self._repairs = repairs(self.configs)

    @property
    def expected(self) -> int:
        """How many channels should have a number."""
        return len(self.ids)

    def listed(self) -> Mask:
        """(len(ids),): which channels' loss is worth a notice."""
        return np.ones(len(self.ids), bool)

    @abstractmethod
    def read(self, message: Any, row: Row) -> Mask | None:
        """Write the channels' numbers into row (len(ids),), NaN where they are unknown.

        Returns which channels the message has, None for all; the others' places stay as they are.
        """

    def why_invalid(self, index: int) -> str:
        """Why a channel is missing whose number is there."""
        config = self.configs[index]
        if config.pool is not None:
            return f"none of its {config.pool.size} elements is valid"
        if config.valid is not None and config.outside is None:
            low, high = config.valid
            return f"the value is not finite, or outside {low:g} to {high:g}: {_STANDS_FOR}"
        return self.invalid

    def _put(self, row: Row, where: slice | Mask, numbers: Any) -> None:
        """Write what a message says about the channels `where`."""
        row[where] = numbers if self._repairs is None else self._repairs(numbers, where)

    def note(self, there: Mask | None, time_ns: int) -> None:
        """A message of that time had these channels, None for all."""
        return

    def absence(self, index: int) -> str | None:
        """Why a channel is not in the message read last, None where it is."""
        return None

    def detail(self, index: int) -> str:
        """Return what else to say of a channel that is absent, such as the nearest name; or ""."""
        return ""

    def replacement(self, index: int) -> str:
        """Return what the newest message has instead of a channel of an earlier one; or ""."""
        return ""

    def ids_named(self, names: Collection[str]) -> list[str]:
        """Return the ids of the channels that messages with these names hold; all without names."""
        return list(self.ids)

    def reset(self) -> None:
        """Forget what earlier messages showed: an episode begins."""
        return

    def take_over(self, old: Reader) -> None:
        """Continue from what another reader of the same channels has read."""
        return


class Scalars(Reader):
    """Numbers at the end of a path of attributes."""

    def __init__(self, channels: Sequence[Channel], paths: Sequence[str]) -> None:
        super().__init__(channels)
        self._get = attrgetter(*paths)

    def read(self, message: Any, row: Row) -> Mask | None:
        self._put(row, _ALL, self._get(message))
        return None


class Angles(Reader):
    """Roll, pitch or yaw (rad) of one quaternion."""

    invalid = "the quaternion is zero or not finite"

    def __init__(self, channels: Sequence[Channel], path: str, functions: Sequence[str]) -> None:
        super().__init__(channels)
        self._get = attrgetter(*(f"{path}.{axis}" for axis in "xyzw"))
        self._functions = [QUATERNIONS[name] for name in functions]

    def read(self, message: Any, row: Row) -> Mask | None:
        x, y, z, w = self._get(message)
        self._put(row, _ALL, [function(x, y, z, w) for function in self._functions])
        return None


class Marked(Reader):
    """Numbers of which a message may say by a mark that it does not have them."""

    def __init__(self, reader: Reader, mark: Mark) -> None:
        super().__init__(list(zip(reader.ids, reader.configs, strict=True)))
        self._reader, self._mark, self._absent = reader, mark, False

    def read(self, message: Any, row: Row) -> Mask | None:
        self._absent = self._mark.absent(message)
        if not self._absent:
            return self._reader.read(message, row)
        row[:] = math.nan
        return None

    def why_invalid(self, index: int) -> str:
        return self._mark.reason if self._absent else self._reader.why_invalid(index)


class Wildcard:
    """What an open reader takes up: ids made from the channel's pattern, each only once a table.

    by_name: whether elements are distinguished by name, and so may come in several messages.
    """

    def __init__(self, config: ChannelConfig, prefix: str, taken: set[str], by_name: bool) -> None:
        self.config = config
        self.prefix = prefix
        self.by_name = by_name
        self._taken = taken

    def take(self, label: str) -> str | None:
        """The id of a new element, None where another channel has that id."""
        id_ = self.config.id.replace(ALL, f"{self.prefix}{label}")
        if id_ in self._taken:
            return None
        self._taken.add(id_)
        return id_

    def release(self, id_: str) -> None:
        """The element of that id was dropped."""
        self._taken.discard(id_)


class Growing(Reader):
    """Channels known by a key each; with a wildcard, those that messages show."""

    def __init__(
        self, channels: Sequence[Channel], keys: Sequence[Any], wildcard: Wildcard | None
    ) -> None:
        super().__init__(channels)
        if wildcard is not None and wildcard.config.pool is None:
            self._repairs = repairs([wildcard.config])
        self.wildcard = wildcard
        self._unmatched = 0 if wildcard and wildcard.config.weight == 0.0 else 1
        self._keys = list(keys)
        self._seen: set[Any] = set()
        self._presence = Presence(self.by_name)
        self.appeared: list[str] = []
        """Ids that messages after the first have shown, for whoever takes them."""
        self.dropped = 0

    def listed(self) -> Mask:
        return self._presence.expected.copy() if self.wildcard else super().listed()

    @property
    def max_age_s(self) -> float | None:
        """The greatest age that the wildcard's channels have of their own."""
        return self.wildcard.config.max_age_s if self.wildcard else None

    @property
    def by_name(self) -> bool:
        """Whether it takes up elements by their names."""
        return self.wildcard is not None and self.wildcard.by_name

    @property
    def expected(self) -> int:
        return max(self._unmatched, self._presence.count if self.wildcard else len(self.ids))

    @property
    def unexpected(self) -> int:
        """How many channels are there, or were lately, that are not expected."""
        return len(self.ids) - int(np.count_nonzero(self.listed())) if self.by_name else 0

    @abstractmethod
    def grow(self, message: Any, time_ns: int) -> bool:
        """Take up the channels that this message shows first; whether the ids have changed."""

    def note(self, there: Mask | None, time_ns: int) -> None:
        if self.wildcard:
            self._presence.note(there, time_ns)

    def set_gone(self, limit_ns: int) -> None:
        """Without an element for so long, it is gone."""
        self._presence.gone_ns = limit_ns

    def expect_present(self) -> None:
        """Expect no longer what has not come lately."""
        self._presence.expect_present()

    def same_wildcard(self, other: Growing) -> bool:
        """Whether both take up the same elements."""
        mine, theirs = self.wildcard, other.wildcard
        return bool(
            mine and theirs and (mine.config, mine.prefix) == (theirs.config, theirs.prefix)
        )

    def take_over(self, old: Reader) -> None:
        if not (isinstance(old, Growing) and self.wildcard and old.wildcard):
            return
        for key in old._keys:
            self._add(key)
        if len(self.ids) == len(old.ids):
            self._presence = old._presence.copy()
        else:
            self._presence.resize(np.full(len(self.ids), MISSING, np.intp), 0)
        self._changed()

    def _take_up(self, keys: Collection[Any], time_ns: int) -> bool:
        """Add these elements where they are new; drop others that were there only briefly."""
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
        self._changed()
        return bool(gone or added)

    def _add(self, key: Any) -> None:
        self._seen.add(key)
        if self.wildcard and (id_ := self.wildcard.take(str(key))) is not None:
            self.ids.append(id_)
            self.configs.append(self.wildcard.config)
            self._keys.append(key)

    def _drop(self, gone: set[int], kept: list[int]) -> None:
        if not (self.wildcard and gone):
            return
        for place in gone:
            self.wildcard.release(self.ids[place])
            self._seen.discard(self._keys[place])
        self.dropped += len(gone)
        self.ids = [self.ids[place] for place in kept]
        self._keys = [self._keys[place] for place in kept]
        self.configs = [self.wildcard.config] * len(kept)

    def _changed(self) -> None:
        """The keys have changed."""


class Elements(Growing):
    """Elements of one array of numbers, by index or by name.

    Args:
        field: the array's path, for reasons.
        get: gives a message's array.
        channels, keys: the channels that are known, and the index or name of each.
        names: the names beside the array; where they are fewer than the elements, it is not known
            which element has which, and all count as missing.
        wildcard: takes up the elements that messages show.
    """

    def __init__(
        self,
        field: str,
        get: Callable[[Any], NDArray[Any]],
        channels: Sequence[Channel] = (),
        keys: Sequence[int | str] = (),
        names: Names | None = None,
        wildcard: Wildcard | None = None,
    ) -> None:
        super().__init__(channels, keys, wildcard)
        self.merges = names is not None
        self._field, self._get = field, get
        self._names = names
        self._length = 0
        self._grown: tuple[int, int] | None = None
        self._changed()

    def length(self, message: Any) -> int:
        """How many elements the message's array has."""
        return len(self._get(message))

    def grow(self, message: Any, time_ns: int) -> bool:
        length, names = self.length(message), self._names
        form = (names.listing.number if names else 0, length)
        if form == self._grown and self._presence.complete:
            return False
        labels = names.listing.names[:length] if names else range(length)
        changed = self._take_up(labels, time_ns)
        self._grown = form
        return changed

    def read(self, message: Any, row: Row) -> Mask | None:
        data = self._get(message)
        if self._names and self._names.listing.number != self._number:
            self._aim()
        length = self._length = len(data)
        if self._reach <= length <= self._longest:
            self._put(row, _ALL, data[self._index])
            return None
        here = (self._index >= 0) & (self._index < length) & (length <= self._longest)
        self._put(row, here, data[self._index[here]])
        if not self._names:
            return here
        there = (self._index != MISSING) & (length > 0)
        row[there & ~here] = math.nan
        return there

    def absence(self, index: int) -> str | None:
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

    def ids_named(self, names: Collection[str]) -> list[str]:
        if not (self._names and names):
            return list(self.ids)
        return [id_ for id_, key in zip(self.ids, self._keys, strict=True) if key in names]

    def detail(self, index: int) -> str:
        if self._names is None or self._index[index] != MISSING:
            return ""
        return nearest(str(self._keys[index]), self._named())

    def replacement(self, index: int) -> str:
        if self._names is None:
            return ""
        if self._index[index] != MISSING:
            return "" if self._length else f"in the newest one {self._field} is empty"
        other = variant(str(self._keys[index]), self._named())
        return f"the newest one names {other}" if other else ""

    def _named(self) -> list[str]:
        names = self._names.listing.names if self._names else ()
        return [name for name in names if isinstance(name, str)]

    def _changed(self) -> None:
        self._aims: dict[int, NDArray[np.intp]] = {}
        self._aim()

    def _aim(self) -> None:
        """Find the elements' places in a message of these names."""
        self._number = self._names.listing.number if self._names else 0
        index = self._aims.get(self._number)
        if index is None:
            if len(self._aims) >= KEPT_LISTINGS:
                self._aims.clear()
            names = self._names
            index = names.listing.places(self._keys) if names else np.array(self._keys, np.intp)
            self._aims[self._number] = index
        self._index = index
        self._longest = len(self._names.listing.names) if self._names else sys.maxsize
        whole = index.min(initial=0) >= 0
        self._reach = int(index.max(initial=-1)) + 1 if whole else sys.maxsize


def array_getter(path: str, octets: bool) -> Callable[[Any], NDArray[Any]]:
    """A function that gives a message's array of numbers (n,) without copying where it can."""
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
    """Refuse a message that would make a wildcard too large (ValueError)."""
    if count > MAX_ELEMENTS:
        raise ValueError(f"the message has more than {MAX_ELEMENTS} elements for one wildcard")


@dataclass(frozen=True)
class Hop:
    """One field on the way to a number.

    names  the list of names in the message that has the field, if it has one
    label  what of the hop goes into the channel's label: its name, its key
    """

    name: str
    key: int | str | None = None
    names: str | None = None
    label: tuple[bool, bool] = (False, False)

    def labels(self, key: int | str | None) -> tuple[str, ...]:
        """The hop's part of a channel's label, the key in place of a `*`."""
        name, element = self.label
        return (self.name,) * name + (str(key),) * element


class Walk(Growing):
    """Numbers behind a list of messages, an angle of a quaternion in a list, single octets."""

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
        self.merges = _by_name(hops)
        self._angle = QUATERNIONS[function] if function else None
        self._found: dict[str, float] = {}

    def grow(self, message: Any, time_ns: int) -> bool:
        return self._take_up(self._walk_all(message), time_ns)

    def read(self, message: Any, row: Row) -> Mask | None:
        found = self._found = self._walk_all(message)
        there = np.array([key in found for key in self._keys], bool)
        self._put(row, there, [found[key] for key in self._keys if key in found])
        return None if there.all() else there

    def absence(self, index: int) -> str | None:
        return None if self._keys[index] in self._found else "the message has no such element"

    def _walk_all(self, message: Any) -> dict[str, float]:
        found: dict[str, float] = {}
        for parts, value in self._walk(message, self._hops, None, ()):
            label = ".".join(parts)
            found[label] = math.nan if label in found else value
            check_size(len(found))
        return found

    def _walk(
        self, node: Any, hops: tuple[Hop, ...], names: Any, parts: tuple[str, ...]
    ) -> Iterator[tuple[tuple[str, ...], float]]:
        if not hops:
            yield parts, self._number(node)
            return
        hop, rest = hops[0], hops[1:]
        names = getattr(node, hop.names) if hop.names else names
        field = getattr(node, hop.name)
        for key, item in _items(field, hop.key, names):
            yield from self._walk(item, rest, names, parts + hop.labels(key))

    def _number(self, value: Any) -> float:
        if self._angle:
            return self._angle(value.x, value.y, value.z, value.w)
        return float(value[0] if isinstance(value, bytes) else value)


def _by_name(hops: Sequence[Hop]) -> bool:
    """Whether elements on the way are distinguished by name."""
    named = False
    for hop in hops:
        named |= hop.names is not None
        if named and isinstance(hop.key, str):
            return True
    return False


def _items(field: Any, key: int | str | None, names: Any) -> Iterator[tuple[int | str | None, Any]]:
    """The elements of a field that a key means, each with its own name or index.

    Of a list that is longer than its names it is not known which element has which: none.
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
