"""The names beside arrays: which element of a message is which."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING, TWICE = -1, -2
"""Where a name stands that the message does not have, or has twice."""
KEPT_LISTINGS = 16


class Listing:
    """One list of names, and where each stands."""

    def __init__(self, number: int, names: Sequence[str]) -> None:
        self.number = number
        self.names = list(names)
        self._places = dict(zip(names, range(len(names)), strict=True))
        if len(self._places) < len(names):
            self._places |= {name: TWICE for name, count in Counter(names).items() if count > 1}

    def places(self, names: Sequence[str]) -> NDArray[np.intp]:
        """The index of each name (n,), MISSING or TWICE where it has none."""
        try:
            found = itemgetter(*names)(self._places) if names else ()
        except KeyError:
            found = [self._places.get(name, MISSING) for name in names]
        return np.array(found, np.intp).reshape(-1)


class Names:
    """The names beside an array; shared by all arrays of the message.

    Lists that come again and again, as where several publishers share a topic, are kept.
    """

    def __init__(self, path: str) -> None:
        self._get = attrgetter(path)
        self._kept: dict[tuple[str, ...], Listing] = {}
        self._count = 0
        self.listing = Listing(0, ())

    def update(self, message: Any) -> int:
        """Take over the message's names; the number of their listing."""
        names = self._get(message)
        if names != self.listing.names:
            key = tuple(names)
            listing = self._kept.get(key)
            if listing is None:
                self._count += 1
                listing = Listing(self._count, key)
                if len(self._kept) >= KEPT_LISTINGS:
                    self._kept.clear()
                self._kept[key] = listing
            self.listing = listing
        return self.listing.number
