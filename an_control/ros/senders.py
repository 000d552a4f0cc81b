"""Detection of nodes that publish on the same topic and overwrite each other's readings.

Such a node is a `joint_state_publisher` that was left running. Nodes that share a topic but name
different elements, as an arm and its gripper do, are not reported; nor is a node that replaces
another one, as two nodes must have sent alternately. Nothing here reads a clock or the ROS graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

TURN_NS = 5_000_000_000
"""Time in ns for which it counts that two publishers have sent alternately."""
MAX_PUBLISHERS = 20


class RivalPair(NamedTuple):
    """Two publishers that send the same readings.

    Attributes:
        first: The id (GID) of one publisher.
        second: The id of the other publisher.
        names: The names of the elements that both send; empty if their messages have no names.
    """

    first: bytes
    second: bytes
    names: tuple[str, ...]


class TopicSenders:
    """A record of which publishers send on one topic, and in what order their messages come."""

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[bytes, tuple[int, tuple[str, ...]]] = {}
        """Number of each publisher's newest message, and the names in it."""
        self._between_ns: dict[tuple[bytes, bytes], int] = {}
        """Time at which a message of one publisher last came between two messages of another
        one."""

    def record(self, publisher: bytes, names: Sequence[str], now_ns: int) -> None:
        """Record a message.

        Args:
            publisher: The id (GID) of its publisher.
            names: The names of the elements in it; empty if the message has no names.
            now_ns: The time of its arrival.
        """
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
        """Return the pairs of publishers that have recently sent the same readings alternately."""
        found = []
        for (one, other), at_ns in self._between_ns.items():
            names, theirs = self._last[one][1], self._last[other][1]
            shared = tuple(name for name in names if name in theirs)
            if now_ns - at_ns < TURN_NS and (shared or not (names or theirs)):
                found.append(RivalPair(one, other, shared))
        return found
