"""When to act in lockstep: once a stamp, as soon as every source has it or the wait runs out.

Stamps only rise; one that falls back by over a second is a simulator that started again.
"""

from __future__ import annotations

from collections.abc import Iterable

RESTART_NS = 1_000_000_000


class Lockstep:
    """Follows which sources have delivered the pending stamp. No clock of its own."""

    def __init__(self, sources: Iterable[str], wait_ns: int) -> None:
        self._sources = frozenset(sources)
        self._wait_ns = wait_ns
        self.reset()

    def reset(self) -> None:
        """Take whatever stamp comes next as new."""
        self._pending_ns: int | None = None
        self._since_ns = 0
        self._have: set[str] = set()
        self._unstamped: set[str] = set()
        self._acted = False

    def rewire(self, sources: Iterable[str], moved: Iterable[str]) -> int | None:
        """Wait for these sources from now on; returns the stamp to act on where all have it.

        Those that `moved` to another topic have it once that topic has delivered it.
        """
        self._sources = frozenset(sources)
        self._have.difference_update(moved)
        return self._ready_ns()

    def arrived(self, source: str, stamp_ns: int | None, now_ns: int) -> int | None:
        """Note a message; returns the stamp to act on once all have it, else None."""
        if stamp_ns is None:
            self._unstamped.add(source)
        elif self._pending_ns is None or self._is_new(stamp_ns, self._pending_ns):
            self._pending_ns, self._since_ns, self._acted = stamp_ns, now_ns, False
            self._have = {source}
        elif stamp_ns == self._pending_ns:
            self._have.add(source)
        return self._ready_ns()

    def awaits(self, stamp_ns: int | None) -> bool:
        """Whether a message with this stamp, which came some time ago, is still to be acted on."""
        if stamp_ns is None or self._pending_ns is None:
            return False
        return stamp_ns > self._pending_ns or (stamp_ns == self._pending_ns and not self._acted)

    def repeated(self, stamp_ns: int | None) -> bool:
        """Whether this stamp has been acted on, so that its command is asked for again."""
        return self._acted and stamp_ns is not None and stamp_ns == self._pending_ns

    def overdue(self, now_ns: int) -> int | None:
        """The pending stamp once it has waited too long for the missing sources, else None."""
        if self._acted or self._pending_ns is None:
            return None
        return self._pending_ns if now_ns - self._since_ns >= self._wait_ns else None

    def acted(self) -> None:
        """The pending stamp has its command."""
        self._acted = True
        self._unstamped.clear()

    def _ready_ns(self) -> int | None:
        if self._acted or self._pending_ns is None:
            return None
        return self._pending_ns if self._have | self._unstamped >= self._sources else None

    @staticmethod
    def _is_new(stamp_ns: int, pending_ns: int) -> bool:
        return stamp_ns > pending_ns or stamp_ns < pending_ns - RESTART_NS
