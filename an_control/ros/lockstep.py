"""Decide when to act in lockstep, where node and simulator wait for each other at each step.

The node acts once for each time stamp: when all sources (subscribed topics) have delivered a
message with this stamp, or when the node has waited long enough for them. Stamps only increase. A
stamp that is more than a second lower than the newest one means that the simulator was restarted.
"""

from __future__ import annotations

from collections.abc import Iterable

RESTART_NS = 1_000_000_000


class Lockstep:
    """A record of which sources (subscribed topics) have sent a message with the newest stamp.

    In lockstep a simulator waits for each command, and all messages of a step have the same time
    stamp. This object says when to act on a stamp. It reads no clock; all times are arguments.

    Args:
        sources: The names of the sources.
        wait_ns: The longest time in ns to wait until all sources have sent the newest stamp. The
            wait starts at the first new stamp after the node's last control step. Further new
            stamps do not restart it, so a source that always lags behind cannot block the node.
    """

    def __init__(self, sources: Iterable[str], wait_ns: int) -> None:
        self._sources = frozenset(sources)
        self._wait_ns = wait_ns
        self.forget_stamps()

    def forget_stamps(self) -> None:
        """Forget all stamps, so that any next stamp is accepted as new."""
        self._pending_ns: int | None = None
        self._since_ns = 0
        self._have: set[str] = set()
        self._unstamped: set[str] = set()
        self._acted = False

    def set_sources_and_find_ready_stamp_ns(
        self, sources: Iterable[str], sources_with_new_topic: Iterable[str]
    ) -> int | None:
        """Replace the sources to wait for. Return the stamp to act on now, or None.

        Args:
            sources: The names of all sources.
            sources_with_new_topic: The names of the sources that now read another topic. Messages
                that they have got on their old topic no longer count.

        Returns:
            The newest stamp if all these sources have sent a message with it and the node has not
            acted on it yet, else None.
        """
        self._sources = frozenset(sources)
        self._have.difference_update(sources_with_new_topic)
        return self._find_ready_stamp_ns()

    def record_message_and_find_ready_stamp_ns(
        self, source: str, stamp_ns: int | None, now_ns: int
    ) -> int | None:
        """Record a message. Return the time stamp to act on now, or None.

        Args:
            source: The name of the source that got the message.
            stamp_ns: The message's stamp; None if the message type has no stamp.
            now_ns: The time of the message's arrival.

        Returns:
            The newest stamp if all sources have sent a message with it and the node has not acted
            on it yet, else None. A source without stamps only needs to have sent any message.
        """
        if stamp_ns is None:
            self._unstamped.add(source)
        elif self._pending_ns is None or self._is_new_stamp(stamp_ns, self._pending_ns):
            if self._acted or self._pending_ns is None:
                self._since_ns = now_ns
            self._pending_ns, self._acted = stamp_ns, False
            self._have = {source}
        elif stamp_ns == self._pending_ns:
            self._have.add(source)
        return self._find_ready_stamp_ns()

    def is_tick_with_stamp_pending(self, stamp_ns: int | None) -> bool:
        """Return whether the tick (control step) for messages with this stamp is still to come.

        Args:
            stamp_ns: The stamp of a message; None if it has no stamp, for which the result is
                False.
        """
        if stamp_ns is None or self._pending_ns is None:
            return False
        return stamp_ns > self._pending_ns or (stamp_ns == self._pending_ns and not self._acted)

    def is_stamp_repeated(self, stamp_ns: int | None) -> bool:
        """Return whether a message repeats the newest stamp, on which the node has already acted.

        The simulator sends a stamp again only if the command for it was lost.

        Args:
            stamp_ns: The stamp of the message; None if it has no stamp.
        """
        return self._acted and stamp_ns is not None and stamp_ns == self._pending_ns

    def find_overdue_stamp_ns(self, now_ns: int) -> int | None:
        """Return the newest stamp if the node has waited for `wait_ns` to act on it, else None."""
        if self._acted or self._pending_ns is None:
            return None
        return self._pending_ns if now_ns - self._since_ns >= self._wait_ns else None

    def mark_stamp_as_acted_on(self) -> None:
        """Record that the node has acted on the newest stamp and must not act on it again."""
        self._acted = True
        self._unstamped.clear()

    def _find_ready_stamp_ns(self) -> int | None:
        """Return the pending stamp if the node should act on it now, else None.

        It should once all sources have delivered the stamp, unless it has acted on it already. A
        source whose messages have no stamp only needs to have sent a message since the last tick.
        """
        if self._acted or self._pending_ns is None:
            return None
        return self._pending_ns if self._have | self._unstamped >= self._sources else None

    @staticmethod
    def _is_new_stamp(stamp_ns: int, pending_ns: int) -> bool:
        """Return whether a stamp is newer than the pending one or from a restarted simulator.

        A stamp counts as from a restarted simulator if it is more than a second (`RESTART_NS`)
        older than the pending stamp.
        """
        return stamp_ns > pending_ns or stamp_ns < pending_ns - RESTART_NS
