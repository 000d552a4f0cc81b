"""Detection of publishers of one topic that overwrite each other's readings.

A `joint_state_publisher` that was left running is such a publisher. Publishers that share a topic
and name different elements, as an arm and its gripper do, are not; nor is a publisher that replaces
another one, as both must have sent in turn. Nothing here reads a clock or the graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

TURN_NS = 5_000_000_000
"""Time for which messages of two publishers in turn count."""
MAX_PUBLISHERS = 20


class RivalPair(NamedTuple):
    """Two publishers, by id, that send the same readings.

    `names` are the elements that both send; empty if their messages have no names.
    """

    first: bytes
    second: bytes
    names: tuple[str, ...]


class TopicSenders:
    """The publishers of one topic, with their newest messages."""

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[bytes, tuple[int, tuple[str, ...]]] = {}
        """Number of each publisher's newest message, and the names in it."""
        self._between_ns: dict[tuple[bytes, bytes], int] = {}
        """Time when a message of one publisher last came between two of another one."""

    def record(self, publisher: bytes, names: Sequence[str], now_ns: int) -> None:
        """Record a message: its publisher, and the names in it, empty if it has none."""
        if publisher not in self._last and len(self._last) >= MAX_PUBLISHERS:
            self._last.clear()
            self._between_ns.clear()
        self._count += 1
        if before := self._last.get(publisher):
            for other, (number, _) in self._last.items():
                if number > before[0]:
                    self._between_ns[min(publisher, other), max(publisher, other)] = now_ns
        self._last[publisher] = self._count, tuple(names)

    def find_rivals(self, now_ns: int) -> list[RivalPair]:
        """Return the pairs of publishers that lately sent the same readings in turn."""
        found = []
        for (one, other), at_ns in self._between_ns.items():
            names, theirs = self._last[one][1], self._last[other][1]
            shared = tuple(name for name in names if name in theirs)
            if now_ns - at_ns < TURN_NS and (shared or not (names or theirs)):
                found.append(RivalPair(one, other, shared))
        return found
