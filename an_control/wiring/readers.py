"""Quick readers of message fields: each writes its channels' numbers into a row of float64.

What is not there (an absent joint, an array that is too short) is written as NaN, never as zero.
A reader over a wildcard grows as messages show what there is.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter, itemgetter
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

    def begin_anew(self) -> None:
        """Forget what earlier messages showed: an episode begins."""

    def take_over(self, old: Reader) -> None:
        """Go on from what another reader of the same channels has read."""


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

    def places(self, names: Sequence[str]) -> NDArray[np.intp]:
        """The index of each name (n,), -1 where it is missing or stands there twice."""
        try:
            found = itemgetter(*names)(self._places) if names else ()
        except KeyError:
            found = [self._places.get(name, -1) for name in names]
        return np.array(found, np.intp).reshape(-1)

    def absence(self, name: str) -> str:
        """Why `places` gave -1."""
        return (
            "the message names it twice" if name in self._twice else "the message does not name it"
        )


class Growing(Reader):
    """Channels known by a key each; with a wildcard, those that messages show."""

    def __init__(
        self, channels: Sequence[Channel], keys: Sequence[Any], wildcard: Wildcard | None
    ) -> None:
        super().__init__(channels)
        self.wildcard = wildcard
        self._keys = list(keys)
        self._seen: set[Any] = set()

    @property
    def listed(self) -> bool:
        return self.wildcard is None or self.wildcard.by_name

    @property
    def expected(self) -> int:
        return max(1, len(self.ids) if self.listed else self._count())

    def grow(self, message: Any) -> bool:
        """Take up the channels that this message shows first; whether there were any."""
        raise NotImplementedError

    def _count(self) -> int:
        """How many of the channels the message read last has."""
        raise NotImplementedError

    def _take_up(self, keys: Collection[Any]) -> bool:
        wildcard = self.wildcard
        if self._seen.issuperset(keys):
            return False
        new = [key for key in dict.fromkeys(keys) if key not in self._seen]
        check_size(len(self._seen) + len(new))
        for key in new:
            if wildcard and (id_ := wildcard.take(str(key))) is not None:
                self.ids.append(id_)
                self.configs.append(wildcard.config)
                self._keys.append(key)
        self._seen.update(new)
        return bool(new)


class Elements(Growing):
    """Elements of one array of numbers, by index or by name."""

    def __init__(
        self,
        get: Callable[[Any], NDArray[Any]],
        channels: Sequence[Channel] = (),
        keys: Sequence[int | str] = (),
        names: Names | None = None,
        wildcard: Wildcard | None = None,
    ) -> None:
        super().__init__(channels, keys, wildcard)
        self._get = get
        self._names = names
        self._length = 0
        self._grown = (-1, -1)
        self._aim()

    def grow(self, message: Any) -> bool:
        length = len(self._get(message))
        state = (self._names.version if self._names else 0, length)
        if state == self._grown:
            return False
        names = self._names
        new = self._take_up(names.names[:length] if names else range(len(self._seen), length))
        self._grown = state
        self._aim()
        return new

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

    def _count(self) -> int:
        return int(np.count_nonzero(self._index < self._length))

    def _aim(self) -> None:
        """Find the elements' places anew."""
        if self._names:
            self._version = self._names.version
            self._index = self._names.places(self._keys)
        else:
            self._index = np.array(self._keys, np.intp)
        all_there = self._index.min(initial=0) >= 0
        self._reach = int(self._index.max(initial=-1)) + 1 if all_there else sys.maxsize


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
