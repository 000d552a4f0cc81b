"""When to tick in real time, where the sources set the pace: once the newest set is complete.

A set is complete when every source that keeps the pace has brought a message within half a period.
Sources that come more slowly than the control rate are not waited for, and of sources that come
faster only as many sets are taken as there are periods. No clock of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

LATE = 0.25
"""Periods after a set was due at which the tick no longer waits for what is missing."""
EARLY = 0.5
"""Periods before it is due from which on a set is taken."""
FOLLOW = 0.25
"""Share of a set's earliness or lateness by which the next one is expected earlier or later."""
FORGET, PACED = 0.1, 0.85
"""A source is waited for while its share of ticks with a new message, lately, is more than PACED;
each tick counts for FORGET."""
NEVER_NS = 1 << 62


class Pace:
    """Follows when sources deliver; times are of one clock, in ns.

    Args:
        sources: their names.
        period_ns: of the control rate.
    """

    def __init__(self, sources: Iterable[str], period_ns: int) -> None:
        self._period_ns = period_ns
        self._share = dict.fromkeys(sources, 1.0)
        self.reset()

    def reset(self) -> None:
        """Take whatever comes next as on time."""
        self._due_ns = self._newest_ns = -NEVER_NS
        self._arrived_ns: dict[str, int] = {}
        """By source, what has arrived since the last tick that had anything new."""

    def rewire(self, sources: Iterable[str]) -> None:
        """Follow these sources from now on."""
        self._share = {name: self._share.get(name, 1.0) for name in sources}

    def arrived(self, source: str, now_ns: int) -> bool:
        """Note a message; whether to tick on what there is now."""
        if now_ns < self._newest_ns:  # the clock was set back
            self.reset()
        self._newest_ns = self._arrived_ns[source] = now_ns
        if now_ns < self._due_ns - EARLY * self._period_ns:
            return False
        oldest_ns = now_ns - self._period_ns // 2
        return all(
            share <= PACED or self._arrived_ns.get(name, -NEVER_NS) >= oldest_ns
            for name, share in self._share.items()
        )

    def wait_ns(self, now_ns: int) -> int:
        """How long to wait for a set, from now on, before a tick without it."""
        left_ns = self._due_ns + int(LATE * self._period_ns) - now_ns
        return left_ns if 0 < left_ns < 2 * self._period_ns else self._period_ns

    def ticked(self, now_ns: int) -> None:
        """A tick was made, on a set, on a part of it, or on nothing new."""
        if not self._arrived_ns:
            return
        for name, share in self._share.items():
            self._share[name] += FORGET * ((name in self._arrived_ns) - share)
        self._arrived_ns.clear()
        late_ns = now_ns - self._due_ns
        if abs(late_ns) > self._period_ns:
            self._due_ns = now_ns
            late_ns = 0
        self._due_ns += self._period_ns + int(FOLLOW * late_ns)
