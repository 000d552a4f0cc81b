"""How much of what should be there is there, where the wiring weighs sources or channels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.feed import Feed
from an_control.wiring.readers import Growing, Reader


class _Group(NamedTuple):
    """Channels that share a weight; None: each of them weighs 1."""

    weight: float | None
    places: NDArray[np.intp]
    feed: Feed | None
    readers: tuple[Reader, ...]
    fixed: int

    def expected(self) -> int:
        if self.feed is not None:
            return self.feed.expected
        return self.fixed + sum(reader.expected for reader in self.readers)


class Weights:
    """The weights of a table's channels, as they are laid out.

    A source's weight is shared by its channels, that of an entry with a `*` by its elements.
    """

    def __init__(self, feeds: Iterable[Feed]) -> None:
        self._groups: list[_Group] = []
        for feed in feeds:
            if feed.config.weight is not None or not _weighs(feed):
                places = np.arange(feed.start, feed.stop)
                self._groups.append(_Group(feed.config.weight, places, feed, (), 0))
            else:
                self._add_entries(feed)

    def _add_entries(self, feed: Feed) -> None:
        """One group an entry of the wiring, and one for all channels that each weigh 1."""
        places: dict[int, list[int]] = {}
        weights: dict[int, float | None] = {}
        readers: dict[int, list[Reader]] = {}
        start = feed.start
        for reader in feed.readers:
            if isinstance(reader, Growing) and reader.wildcard:
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
        """The weight of the channels that are `ok` (N,), and of all that are expected."""
        there = of = 0.0
        for group in self._groups:
            expected = group.expected()
            present = min(int(np.count_nonzero(ok[group.places])), expected)
            if group.weight is None:
                there, of = there + present, of + expected
            elif expected:
                there, of = there + group.weight * (present / expected), of + group.weight
        return there, of


def weighs(feeds: Iterable[Feed]) -> bool:
    """Whether any source or channel has a weight."""
    return any(feed.config.weight is not None or _weighs(feed) for feed in feeds)


def _weighs(feed: Feed) -> bool:
    """Whether any of a source's channels has a weight of its own."""
    configs = [config for reader in feed.readers for config in reader.configs]
    wildcards = [reader.wildcard.config for reader in feed.growing if reader.wildcard]
    return any(config.weight is not None for config in [*configs, *wildcards])
