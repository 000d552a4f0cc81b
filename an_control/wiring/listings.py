"""The names beside arrays: which element of a message is which."""

from __future__ import annotations

import difflib
import unicodedata
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

MISSING, TWICE = -1, -2
"""Where a name stands that the message does not have, or has twice."""
KEPT_LISTINGS = 16
_SHOWN = 5
"""Names that one sentence lists."""


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


def nearest(name: str, names: Sequence[str]) -> str:
    """Return which of a message's names comes nearest to a missing one, as text for a log line.

    Where none is near, the text lists the names that the message has.
    """
    for alike, difference in _DIFFERENCES:
        for other in names:
            if alike(name, other):
                return f"it names {_quoted(other)}, which differs in {difference}"
    for other in names:
        if _ends_with(other, name) or _ends_with(name, other):
            return f"it names {_quoted(other)}, which differs in its prefix"
    if close := difflib.get_close_matches(name, names, 1):
        return f"it names {_quoted(close[0])}, which is similar"
    if not names:
        return "it names nothing"
    more = len(names) - _SHOWN
    shown = ", ".join(map(_quoted, names[:_SHOWN]))
    return f"it names {shown}{f' and {more} more' if more > 0 else ''}"


_DIFFERENCES = (
    (lambda one, other: one.strip() == other.strip(), "blanks"),
    (lambda one, other: _plain(one) == _plain(other), "how its characters are encoded"),
    (lambda one, other: _plain(one).casefold() == _plain(other).casefold(), "case"),
    (
        lambda one, other: _plain(one).casefold().strip() == _plain(other).casefold().strip(),
        "case and blanks",
    ),
)
"""When two names are nearly the same, and in what they differ."""


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", name)


def _ends_with(long: str, short: str) -> bool:
    """Return whether a name is another one behind a prefix."""
    before = long.casefold().removesuffix(short.casefold())
    return bool(short) and before != long.casefold() and before[-1:] in {"/", ".", ":", "_", "-"}


def _quoted(name: str) -> str:
    """Return a name as it is, or in quotes where one could not see all of it."""
    visible = name.isprintable() and name and not any(map(str.isspace, name))
    return name if visible else repr(name)
