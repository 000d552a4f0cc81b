"""Which elements of a wildcard are expected: those that have come for a while.

One odd message, or a publisher of ever new names, changes nothing for long: an element is expected
once it has come for PROVEN_NS, and what is not expected is dropped when it is too old. The time
is that of the source's messages, so that a silent source loses nothing.
"""

from __future__ import annotations

import copy

import numpy as np
from numpy.typing import NDArray

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
