"""Detect nodes that publish on the same topic and overwrite each other's readings.

An example is a `joint_state_publisher` that was left running beside the robot's own node. Nodes
that share a topic but name different elements, as an arm and its gripper do, are not reported. A
node that replaces an earlier one is not reported either, because two nodes count only if they have
sent alternately. Nothing here reads a clock or asks ROS which nodes there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

TURN_NS = 5_000_000_000
"""Two publishers count as sending alternately for this time in ns after they last did."""
MAX_PUBLISHERS = 20


class RivalPair(NamedTuple):
    """Two publishers that send the same readings.

    Attributes:
        first: The id of one publisher (its GID in the middleware).
        second: The id of the other publisher.
        names: The names of the elements, such as joints, that both publishers send; empty if their
            messages name no elements.
    """

    first: bytes
    second: bytes
    names: tuple[str, ...]


class TopicSenders:
    """A record of the publishers on one topic, and of the order in which their messages come."""

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[bytes, tuple[int, tuple[str, ...]]] = {}
        """For each publisher, a pair: the number of its newest message, and the names in that
        message."""
        self._between_ns: dict[tuple[bytes, bytes], int] = {}
        """For each pair of publishers, the time in ns at which a message of one last came between
        two messages of the other."""

    def record_message(self, publisher: bytes, names: Sequence[str], now_ns: int) -> None:
        """Record that a publisher sent a message, and which elements it contains.

        Args:
            publisher: The id of the message's publisher (its GID in the middleware).
            names: The names of the elements, such as joints, in the message; empty if it names
                none.
            now_ns: The time in ns at which the message arrived.
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

    def find_competing_publishers(self, now_ns: int) -> list[RivalPair]:
        """Return the pairs of publishers that have sent the same readings alternately.

        A pair counts if, in the last 5 s (`TURN_NS`), a message of one came between two messages of
        the other, and if their messages can hold the same readings: they name common elements
        (such as joints), or none at all.

        Args:
            now_ns: The time now in ns.
        """
        found = []
        for (one, other), at_ns in self._between_ns.items():
            names, theirs = self._last[one][1], self._last[other][1]
            shared = tuple(name for name in names if name in theirs)
            if now_ns - at_ns < TURN_NS and (shared or not (names or theirs)):
                found.append(RivalPair(one, other, shared))
        return found
