"""When a reading was published, by the clock of its reader: readings age from then on.

A process that was stopped, or kept from running, finds what came meanwhile in its queues. By its
own clock all that is new, so the publisher's is asked: a message that took longer than the quickest
lately did is that much older. Clocks that differ by a constant therefore do not matter, and each
publisher has its own.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

MEMORY_NS, MEMORY_MESSAGES = 10_000_000_000, 10
"""For so long, and for so many messages, at least, the quickest message is remembered."""
MAX_PUBLISHERS = 100
GAP_PERIODS = 2
NEVER_NS = 1 << 62


class Lateness:
    """How much later than the quickest one the messages of one publisher arrive."""

    def __init__(self) -> None:
        self._began_ns: int | None = None
        self._count = 0
        self._least_ns = self._before_ns = 0

    def __call__(self, published_ns: int, now_ns: int) -> int:
        """Of a message (ns); both times are of clocks that need not agree."""
        delay_ns = now_ns - published_ns
        self._count += 1
        if self._began_ns is None:
            self._began_ns, self._least_ns, self._before_ns = now_ns, delay_ns, delay_ns
        elif now_ns - self._began_ns > MEMORY_NS and self._count > MEMORY_MESSAGES:
            self._began_ns, self._count = now_ns, 0
            self._least_ns, self._before_ns = delay_ns, self._least_ns
        self._least_ns = min(self._least_ns, delay_ns)
        return delay_ns - min(self._least_ns, self._before_ns)


class Arrivals:
    """When messages arrived, less what they were late.

    Where the executor does not say when a message was published, what arrives within a period
    after a gap between ticks counts as from the gap's beginning.

    Args:
        period_ns: of the control rate.
    """

    def __init__(self, period_ns: int) -> None:
        self._period_ns = period_ns
        self._lateness: dict[bytes, Lateness] = {}
        self._alive_ns: int | None = None
        self._gap_ns, self._gap_end_ns = 0, -NEVER_NS

    def ticked(self, now_ns: int) -> None:
        """A tick was made."""
        last_ns, self._alive_ns = self._alive_ns, now_ns
        if last_ns is not None and now_ns - last_ns > GAP_PERIODS * self._period_ns:
            self._gap_ns, self._gap_end_ns = last_ns, now_ns

    def of(self, info: Mapping[str, Any] | None, now_ns: int) -> int:
        """When a message arrived that is heard now; `info` is what rclpy says of it."""
        if info is not None and info["source_timestamp"]:
            publisher = bytes((info.get("publisher_gid") or {}).get("data", b""))
            if publisher not in self._lateness:
                if len(self._lateness) >= MAX_PUBLISHERS:
                    self._lateness.clear()
                self._lateness[publisher] = Lateness()
            return now_ns - self._lateness[publisher](info["source_timestamp"], wall_ns())
        last_ns = self._alive_ns
        if last_ns is not None and now_ns - last_ns > GAP_PERIODS * self._period_ns:
            return last_ns
        return self._gap_ns if now_ns <= self._gap_end_ns + self._period_ns else now_ns


def wall_ns() -> int:
    """The clock that publishers stamp by."""
    return time.time_ns()
