"""The decision when to act in lockstep: once per stamp, when all sources have it or the wait ends.

Stamps only rise; one that falls by over a second means that the simulator was started again.
"""

from __future__ import annotations

from collections.abc import Iterable

RESTART_NS = 1_000_000_000


class Lockstep:
    """The state of the pending stamp: which sources have delivered it. It reads no clock.

    Args:
        sources: Names of the sources.
        wait_ns: Time to wait for the missing sources of a stamp.
    """

    def __init__(self, sources: Iterable[str], wait_ns: int) -> None:
        self._sources = frozenset(sources)
        self._wait_ns = wait_ns
        self.reset()

    def reset(self) -> None:
        """Accept any stamp as new."""
        self._pending_ns: int | None = None
        self._since_ns = 0
        self._have: set[str] = set()
        self._unstamped: set[str] = set()
        self._acted = False

    def rewire(self, sources: Iterable[str], moved: Iterable[str]) -> int | None:
        """Wait for these sources from now on; return the stamp to act on if all have it, else None.

        Sources in `moved` read another topic now, and have the stamp once that topic delivers it.
        """
        self._sources = frozenset(sources)
        self._have.difference_update(moved)
        return self._ready_ns()

    def record_message(self, source: str, stamp_ns: int | None, now_ns: int) -> int | None:
        """Record a message of a source; return the stamp to act on if all have it, else None."""
        if stamp_ns is None:
            self._unstamped.add(source)
        elif self._pending_ns is None or self._is_new(stamp_ns, self._pending_ns):
            self._pending_ns, self._since_ns, self._acted = stamp_ns, now_ns, False
            self._have = {source}
        elif stamp_ns == self._pending_ns:
            self._have.add(source)
        return self._ready_ns()

    def is_awaited(self, stamp_ns: int | None) -> bool:
        """Return whether a message with this stamp, which came earlier, is still to be acted on."""
        if stamp_ns is None or self._pending_ns is None:
            return False
        return stamp_ns > self._pending_ns or (stamp_ns == self._pending_ns and not self._acted)

    def is_repeated(self, stamp_ns: int | None) -> bool:
        """Return whether this stamp has been acted on, so that its command is asked for again."""
        return self._acted and stamp_ns is not None and stamp_ns == self._pending_ns

    def overdue_stamp_ns(self, now_ns: int) -> int | None:
        """Return the pending stamp if it has waited too long for missing sources, else None."""
        if self._acted or self._pending_ns is None:
            return None
        return self._pending_ns if now_ns - self._since_ns >= self._wait_ns else None

    def record_action(self) -> None:
        """Record that the pending stamp has its command."""
        self._acted = True
        self._unstamped.clear()

    def _ready_ns(self) -> int | None:
        """Return the pending stamp if every source has it and it needs a command, else None."""
        if self._acted or self._pending_ns is None:
            return None
        return self._pending_ns if self._have | self._unstamped >= self._sources else None

    @staticmethod
    def _is_new(stamp_ns: int, pending_ns: int) -> bool:
        """Return whether a stamp replaces the pending one."""
        return stamp_ns > pending_ns or stamp_ns < pending_ns - RESTART_NS
