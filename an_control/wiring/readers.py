"""Quick readers of message fields: each writes its channels' numbers into a row of float64.

What is not there (an absent joint, an array that is too short) is written as NaN, never as zero.
A reader over a wildcard grows as messages show what there is.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.config import ChannelConfig
from an_control.wiring.fields import ALL, ANGLES

Row = NDArray[np.float64]
Channel = tuple[str, ChannelConfig]
"""A channel's id, and the entry of the wiring that it comes from."""
MAX_ELEMENTS = 20_000
"""Channels that one wildcard may grow to; a message with more counts as unreadable."""


class Reader:
    """Reads some channels of one source.

    `ids` and `configs` name the channels in the order of the row.  Any exception from `grow` or
    `read` means that the message is not what its type promises, or larger than allowed.
    """

    invalid = "the value is not finite"
    """Why a channel is absent whose number is there."""

    def __init__(self, channels: Sequence[Channel]) -> None:
        self.ids = [id_ for id_, _ in channels]
        self.configs = [config for _, config in channels]

    @property
    def expected(self) -> int:
        """How many channels should have a number."""
        return len(self.ids)

    @property
    def listed(self) -> bool:
        """Whether the loss of a channel is worth a notice: not where elements come and go."""
        return True

    def read(self, message: Any, row: Row) -> None:
        """Write the channels' numbers into row (len(ids),), NaN where absent."""
        raise NotImplementedError

    def absence(self, index: int) -> str | None:
        """Why a channel is not in the message read last, None where it is."""
        return None


class Scalars(Reader):
    """Numbers at the end of a path of attributes."""

    def __init__(self, channels: Sequence[Channel], paths: Sequence[str]) -> None:
        super().__init__(channels)
        self._get = attrgetter(*paths)

    def read(self, message: Any, row: Row) -> None:
        row[:] = self._get(message)


class Angles(Reader):
    """Roll, pitch or yaw (rad) of one quaternion."""

    invalid = "the quaternion is zero or not finite"

    def __init__(self, channels: Sequence[Channel], path: str, functions: Sequence[str]) -> None:
        super().__init__(channels)
        self._get = attrgetter(*(f"{path}.{axis}" for axis in "xyzw"))
        self._functions = [ANGLES[name] for name in functions]

    def read(self, message: Any, row: Row) -> None:
        x, y, z, w = self._get(message)
        for index, function in enumerate(self._functions):
            row[index] = function(x, y, z, w)


class Wildcard:
    """What an open reader takes up: ids made from the channel's pattern, each only once a table.

    by_name: whether elements are told apart by name.  Then an element once seen is expected from
    then on; elements known by index come and go with each message.
    """

    def __init__(self, config: ChannelConfig, prefix: str, taken: set[str], by_name: bool) -> None:
        self.config = config
        self.by_name = by_name
        self._prefix = prefix
        self._taken = taken

    def take(self, label: str) -> str | None:
        """The id of a new element, None where another channel has that id."""
        id_ = self.config.id.replace(ALL, f"{self._prefix}{label}")
        if id_ in self._taken:
            return None
        self._taken.add(id_)
        return id_


class Names:
    """The names beside an array, and where each stands; shared by all arrays of the message."""

    def __init__(self, path: str) -> None:
        self._get = attrgetter(path)
        self._places: dict[str, int] = {}
        self._twice: set[str] = set()
        self.names: list[str] = []
        self.version = 0

    def update(self, message: Any) -> None:
        """Take over the message's names; `version` changes when they do."""
        names = self._get(message)
        if names == self.names:
            return
        names = list(names)
        places = dict(zip(names, range(len(names)), strict=True))
        twice = set()
        if len(places) < len(names):
            twice = {name for name, count in Counter(names).items() if count > 1}
            for name in twice:
                del places[name]
        self.names, self._places, self._twice = names, places, twice
        self.version += 1

    def place(self, name: str) -> int:
        """The index of a name, -1 where it is missing or stands there twice."""
        return self._places.get(name, -1)

    def absence(self, name: str) -> str:
        """Why `place` gave -1."""
        there = "twice" if name in self._twice else "not"
        return f"{name!r} is {there} among the message's names"


class Elements(Reader):
    """Elements of one array of numbers, by index or by name."""

    def __init__(
        self,
        get: Callable[[Any], NDArray[Any]],
        channels: Sequence[Channel] = (),
        keys: Sequence[int | str] = (),
        names: Names | None = None,
        wildcard: Wildcard | None = None,
    ) -> None:
        super().__init__(channels)
        self.wildcard = wildcard
        self._get = get
        self._names = names
        self._keys: list[Any] = list(keys)
        self._length = 0
        self._seen: set[Any] = set()
        self._grown = (-1, -1)
        self._aim()

    @property
    def expected(self) -> int:
        if self.listed:
            return len(self.ids) or 1
        return max(1, int(np.count_nonzero(self._index < self._length)))

    @property
    def listed(self) -> bool:
        return self.wildcard is None or self.wildcard.by_name

    def grow(self, message: Any) -> bool:
        """Take up the elements that this message shows first; whether there were any."""
        wildcard, length = self.wildcard, len(self._get(message))
        state = (self._names.version if self._names else 0, length)
        if wildcard is None or state == self._grown:
            return False
        keys = self._names.names[:length] if self._names else range(len(self._seen), length)
        new = [key for key in keys if key not in self._seen]
        _check_size(len(self._seen) + len(new))
        for key in new:
            if key not in self._seen and (id_ := wildcard.take(str(key))) is not None:
                self.ids.append(id_)
                self.configs.append(wildcard.config)
                self._keys.append(key)
            self._seen.add(key)
        self._grown = state
        self._aim()
        return bool(new)

    def read(self, message: Any, row: Row) -> None:
        data = self._get(message)
        if self._names and self._version != self._names.version:
            self._aim()
        self._length = len(data)
        if self._length >= self._reach:
            row[:] = data[self._index]
            return
        there = (self._index >= 0) & (self._index < self._length)
        row[:] = math.nan
        row[there] = data[self._index[there]]

    def absence(self, index: int) -> str | None:
        place = self._index[index]
        if place < 0 and self._names:
            return self._names.absence(self._keys[index])
        return f"the array has {self._length} elements" if place >= self._length else None

    def _aim(self) -> None:
        """Find the elements' places anew."""
        if self._names:
            self._version = self._names.version
            places = [key if type(key) is int else self._names.place(key) for key in self._keys]
        else:
            places = self._keys
        self._index = np.array(places, np.intp)
        self._reach = max(places, default=-1) + 1 if -1 not in places else sys.maxsize


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


class Walk(Reader):
    """Whatever lies behind a list of messages; slow, as it goes from attribute to attribute."""

    def __init__(
        self,
        hops: Sequence[Hop],
        function: str | None,
        channels: Sequence[Channel] = (),
        wildcard: Wildcard | None = None,
    ) -> None:
        super().__init__(channels)
        self.wildcard = wildcard
        self._hops = tuple(hops)
        self._angle = ANGLES[function] if function else None
        own = ".".join(part for hop in self._hops for part in hop.labels(hop.key))
        self._keys = [own] * len(self.ids)
        self._seen: set[str] = set()
        self._found: dict[str, float] = {}

    @property
    def expected(self) -> int:
        if self.listed:
            return len(self.ids) or 1
        return max(1, sum(key in self._found for key in self._keys))

    @property
    def listed(self) -> bool:
        return self.wildcard is None or self.wildcard.by_name

    def grow(self, message: Any) -> bool:
        """Take up what this message shows first; whether there was anything."""
        if self.wildcard is None:
            return False
        new = [label for label in self._walk_all(message) if label not in self._seen]
        _check_size(len(self._seen) + len(new))
        for label in new:
            if (id_ := self.wildcard.take(label)) is not None:
                self.ids.append(id_)
                self.configs.append(self.wildcard.config)
                self._keys.append(label)
            self._seen.add(label)
        return bool(new)

    def read(self, message: Any, row: Row) -> None:
        self._found = self._walk_all(message)
        row[:] = [self._found.get(key, math.nan) for key in self._keys]

    def absence(self, index: int) -> str | None:
        return None if self._keys[index] in self._found else "the message has no such element"

    def _walk_all(self, message: Any) -> dict[str, float]:
        found: dict[str, float] = {}
        for parts, value in self._walk(message, self._hops, None, ()):
            label = ".".join(parts)
            found[label] = math.nan if label in found else value
            _check_size(len(found))
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


def _items(field: Any, key: int | str | None, names: Any) -> Iterator[tuple[int | str | None, Any]]:
    """The elements of a field that a key means, each with its own name or index."""
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


def _check_size(count: int) -> None:
    if count > MAX_ELEMENTS:
        raise ValueError(f"the message has more than {MAX_ELEMENTS} elements for one wildcard")
