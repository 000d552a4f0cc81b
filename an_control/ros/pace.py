"""When to tick in real time, where the sources set the pace: once the newest set is complete.

A set is complete when every source that comes at about the control rate or faster has brought a
message within half a period. Ticks keep a schedule of the control rate: each comes with a complete
set, where one arrives in a window around the time at which it is due, else at the window's end. The
schedule follows sets that come at nearly the control rate.

Whatever comes, no two ticks are closer than half a period or further apart than one and a half, and
WINDOW periods in a row hold WINDOW ticks, or one more or less. That begins once the schedule has
found the first sets; a stall of the executor is not made up for. No clock of its own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

EARLY, LATE = 0.25, 0.25
"""Periods before and after the time at which a tick is due: its window. What the schedule may shift
in WINDOW periods, and the window, are less than a period together."""
WINDOW = 100
"""Periods in which the number of ticks is kept."""
FOLLOW = 0.25
"""Share of a set's earliness or lateness by which the next tick is due earlier or later."""
FIRST_SETS, MAX_SHIFT = 10, 0.005
"""After so many sets, the periods by which each shifts the schedule at most: what comes at another
rate must not set it."""
FOLLOWED = 0.9
"""Mean periods between the messages of sets from which on the schedule follows them."""
PACED = 1.18
"""Mean periods between the messages of a source up to which it is waited for."""
SILENT = 2.0
"""Periods without a message after which a source is not waited for."""
STALL = 0.75
"""Periods by which a tick may be late: after a later one the schedule begins again from it. So it
does where the clock itself moves in such steps, as a simulator's may."""
FORGET, MAX_INTERVAL = 0.1, 2.5
"""How much the newest interval between two messages of a source counts in their mean, and how many
periods of it: a source that was silent is waited for as soon as it comes again."""
NEVER_NS = 1 << 62


class Pace:
    """Follows when sources deliver; times are of one clock, in ns.

    Args:
        sources: their names.
        period_ns: of the control rate.
    """

    def __init__(self, sources: Iterable[str], period_ns: int) -> None:
        self._period_ns = period_ns
        self._interval_ns = dict.fromkeys(sources, float(period_ns))
        """By source, the mean time between two messages lately."""
        self.reset()

    def reset(self) -> None:
        """Take whatever comes next as on time."""
        self._due_ns: int | None = None
        """When the next tick is due; None before the first set."""
        self._ticked_ns: int | None = None
        self._ticks_ns: deque[int] = deque(maxlen=WINDOW + 1)
        """The newest ticks, none before the first sets and none before a stall."""
        self._newest_ns, self._first_ns = -NEVER_NS, NEVER_NS
        """The newest message and the first one."""
        self._last_ns: dict[str, int] = {}
        """By source, the newest message."""
        self._fresh: set[str] = set()
        """The sources that have come since the last tick."""
        self._set_ns: int | None = None
        """When the newest set since the last tick was complete."""
        self._sets = 0
        """How many sets the schedule has followed."""

    def rewire(self, sources: Iterable[str]) -> None:
        """Follow these sources from now on."""
        known = self._interval_ns
        self._interval_ns = {name: known.get(name, float(self._period_ns)) for name in sources}
        self._last_ns = {name: at for name, at in self._last_ns.items() if name in known}

    def arrived(self, source: str, now_ns: int) -> bool:
        """Note a message; return whether to tick on what there is now."""
        if now_ns < self._newest_ns:  # the clock was set back
            self.reset()
        self._newest_ns, self._first_ns = now_ns, min(self._first_ns, now_ns)
        if source in self._last_ns:
            interval_ns = min(now_ns - self._last_ns[source], MAX_INTERVAL * self._period_ns)
            self._interval_ns[source] += FORGET * (interval_ns - self._interval_ns[source])
        self._last_ns[source] = now_ns
        self._fresh.add(source)
        if not self._complete(now_ns):
            return False
        self._set_ns = now_ns
        on_time = now_ns >= self._earliest_ns()
        if self._due_ns is None and not on_time:  # a tick came just before the first set
            self._due_ns = now_ns + self._period_ns
        return on_time

    def next_ns(self, now_ns: int) -> int:
        """Return when to tick, now or later, if no further message comes."""
        earliest_ns = max(self._earliest_ns(), now_ns)
        if self._due_ns is None:
            return now_ns + self._period_ns
        latest_ns = max(self._latest_ns(self._due_ns), earliest_ns)
        if self._set_ns is None:
            return latest_ns
        newer_ns = self._set_ns + self._set_interval_ns()
        return latest_ns if newer_ns <= latest_ns else earliest_ns

    def ticked(self, now_ns: int) -> None:
        """Note a tick, on a set, on a part of it, or on nothing new."""
        due_ns, period_ns = self._due_ns, self._period_ns
        if self._set_ns is not None:
            due_ns = self._followed_ns(self._set_ns if due_ns is None else due_ns, self._set_ns)
        if due_ns is not None:
            stalled = now_ns - due_ns > STALL * period_ns
            if stalled:
                self._ticks_ns.clear()
            self._due_ns = (now_ns if stalled else due_ns) + period_ns
        if self._sets > FIRST_SETS:
            self._ticks_ns.append(now_ns)
        self._ticked_ns, self._set_ns = now_ns, None
        self._fresh.clear()

    def _followed_ns(self, due_ns: int, set_ns: int) -> int:
        """Return when the tick should have been due by a set that was complete at `set_ns`."""
        if self._set_interval_ns() < FOLLOWED * self._period_ns:
            self._sets += 1
            return due_ns
        largest = EARLY if self._sets < FIRST_SETS else MAX_SHIFT
        self._sets += 1
        late = (set_ns - due_ns) / self._period_ns
        shift = FOLLOW * (late - round(late))  # half a period early is as well half one late
        return due_ns + int(min(max(shift, -largest), largest) * self._period_ns)

    def _complete(self, now_ns: int) -> bool:
        """Return whether every source that is waited for has come since the last tick."""
        since_ns = now_ns - self._period_ns // 2
        return all(
            name in self._fresh and self._last_ns[name] >= since_ns for name in self._paced(now_ns)
        )

    def _paced(self, now_ns: int) -> list[str]:
        """Return the sources that are waited for: those that keep the pace and are not silent."""
        heard_ns = now_ns - int(SILENT * self._period_ns)
        return [
            name
            for name, interval_ns in self._interval_ns.items()
            if interval_ns <= PACED * self._period_ns
            and self._last_ns.get(name, self._first_ns) >= heard_ns
        ]

    def _set_interval_ns(self) -> float:
        """Return the mean time between two sets, that of the slowest source which is waited for."""
        paced = [self._interval_ns[name] for name in self._paced(self._newest_ns)]
        return max(paced, default=float(self._period_ns))

    def _earliest_ns(self) -> int:
        """Return when the next tick may come at the earliest."""
        ticks_ns, period_ns = self._ticks_ns, self._period_ns
        earliest_ns = -NEVER_NS
        if self._due_ns is not None:
            earliest_ns = self._due_ns - int(EARLY * period_ns)
        if self._ticked_ns is not None:
            earliest_ns = max(earliest_ns, self._ticked_ns + period_ns // 2)
        if len(ticks_ns) > WINDOW:
            earliest_ns = max(earliest_ns, ticks_ns[0] + WINDOW * period_ns)
        return earliest_ns

    def _latest_ns(self, due_ns: int) -> int:
        """Return when the next tick must come at the latest."""
        latest_ns = due_ns + int(LATE * self._period_ns)
        if len(self._ticks_ns) >= WINDOW:
            return min(latest_ns, self._ticks_ns[1 - WINDOW] + WINDOW * self._period_ns)
        return latest_ns
