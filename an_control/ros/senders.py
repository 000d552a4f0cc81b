"""Which publishers of one topic send the same readings, so that each overwrites the other's.

A `joint_state_publisher` that was left running is such a one. Publishers that share a topic and
name different elements, as an arm and its gripper do, are not. One that takes over from another is
none either: both must have sent in turn. No clock and no graph of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

TURN_NS = 5_000_000_000
"""For so long a message in turn with another publisher's counts."""
MAX_PUBLISHERS = 20


class Rivals(NamedTuple):
    """Two publishers, by id, that send the same readings; `names` of those that both send, empty
    where their messages name nothing and so are the same readings altogether."""

    first: bytes
    second: bytes
    names: tuple[str, ...]


class Senders:
    """The publishers of one topic, by the messages that came from them."""

    def __init__(self) -> None:
        self._count = 0
        self._last: dict[bytes, tuple[int, tuple[str, ...]]] = {}
        """The number of each publisher's newest message, and what that named."""
        self._between_ns: dict[tuple[bytes, bytes], int] = {}
        """When one publisher's message last came between two of another one."""

    def note(self, publisher: bytes, names: Sequence[str], now_ns: int) -> None:
        """Note a message: who sent it, and what it names, nothing where it has no names."""
        if publisher not in self._last and len(self._last) >= MAX_PUBLISHERS:
            self._last.clear()
            self._between_ns.clear()
        self._count += 1
        if before := self._last.get(publisher):
            for other, (number, _) in self._last.items():
                if number > before[0]:
                    self._between_ns[min(publisher, other), max(publisher, other)] = now_ns
        self._last[publisher] = self._count, tuple(names)

    def rivals(self, now_ns: int) -> list[Rivals]:
        """Return the pairs that lately sent the same readings in turn."""
        found = []
        for (one, other), at_ns in self._between_ns.items():
            names, theirs = self._last[one][1], self._last[other][1]
            shared = tuple(name for name in names if name in theirs)
            if now_ns - at_ns < TURN_NS and (shared or not (names or theirs)):
                found.append(Rivals(one, other, shared))
        return found
