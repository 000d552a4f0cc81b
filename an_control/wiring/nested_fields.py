"""The slow reader, for what lies behind lists of messages: it goes from attribute to attribute."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from an_control.wiring.fields import ALL, ANGLES
from an_control.wiring.readers import Channel, Growing, Mask, Row, Wildcard, check_size


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
        self._angle = ANGLES[function] if function else None
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
