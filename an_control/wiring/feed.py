"""One source at runtime: its newest message, whether that counts, and what it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from an_control.wiring.config import SourceConfig
from an_control.wiring.readers import Growing, Names, Reader, Row

NEVER_NS = 1 << 62
"""An age that no message reaches; as a limit, no limit."""


def limit_ns(source: SourceConfig, max_age_s: float | None = None) -> int:
    """How old a message may be for a channel, whose own `max_age_s` goes before the source's."""
    limit_s = source.max_age_s if max_age_s is None else max_age_s
    return max(1, int(limit_s * 1e9)) if limit_s > 0.0 else NEVER_NS


@dataclass(frozen=True)
class SourceStatus:
    """How a source is doing, for diagnostics.

    age_s is None before the first message; `present` of `expected` channels as of the last read;
    `error` says why the newest message could not be read, empty where it could.
    """

    name: str
    topic: str
    messages: int
    age_s: float | None
    stamp_ns: int | None
    fresh: bool
    present: int
    expected: int
    error: str


class Feed:
    """One source: its newest message, and where its channels stand in the table."""

    def __init__(
        self, config: SourceConfig, readers: Sequence[Reader], names: Sequence[Names]
    ) -> None:
        self.config = config
        self.readers = tuple(readers)
        self._growing = tuple(
            reader for reader in readers if isinstance(reader, Growing) and reader.wildcard
        )
        self._settled = sum(r.expected for r in readers if r not in self._growing)
        self._names = tuple(names)
        self.message: Any = None
        self.stamp_ns: int | None = None
        self.arrival_ns = 0
        self.messages = 0
        self.messages_read = 0
        self.unread = False
        self.new = False
        """Whether a message that repeats no stamp has come since the last read."""
        self.fresh = True
        self.error = ""

    def lay_out(self, start: int, raw: Row) -> int:
        """Take a place in the table from `start` on; gives its end."""
        self.start = self.stop = start
        self._reads: list[tuple[Callable[[Any, Row], None], Row]] = []
        limits, listed = [], []
        for reader in self.readers:
            self.stop += len(reader.ids)
            self._reads.append((reader.read, raw[self.stop - len(reader.ids) : self.stop]))
            limits += [limit_ns(self.config, config.max_age_s) for config in reader.configs]
            listed += [reader.listed] * len(reader.ids)
        self.listed = np.array(listed, bool)
        self.limits = np.array(limits, np.int64)
        self.shortest = min(limits, default=limit_ns(self.config))
        self.longest = max(limits, default=limit_ns(self.config))
        self.unread = self.message is not None
        return self.stop

    def take_over(self, old: Feed) -> None:
        """Go on with the newest message of another feed of the same message type."""
        self.message, self.stamp_ns, self.arrival_ns = old.message, old.stamp_ns, old.arrival_ns
        self.messages, self.messages_read = old.messages, old.messages_read
        self.unread, self.new, self.fresh = old.message is not None, old.new, old.fresh
        for mine, theirs in zip(self.readers, old.readers, strict=False):
            mine.take_over(theirs)

    def begin_anew(self) -> None:
        """Forget what earlier messages showed: an episode begins."""
        for reader in self.readers:
            reader.begin_anew()

    @property
    def expected(self) -> int:
        """How many channels there should be."""
        return self._settled + sum([reader.expected for reader in self._growing])

    def age_ns(self, now_ns: int) -> int:
        """Age of the newest message; after a clock that was set back, too old for any limit."""
        age = now_ns - self.arrival_ns
        return age if age >= 0 else NEVER_NS

    def in_time(self, now_ns: int, stamp_ns: int | None) -> bool:
        """Whether the newest message counts at this tick, for at least one of its channels."""
        if stamp_ns is None:
            return self.messages > 0 and self.age_ns(now_ns) <= self.longest
        if self.stamp_ns is None:
            return self.messages > self.messages_read
        return self.stamp_ns == stamp_ns

    def why_late(self, now_ns: int, stamp_ns: int | None) -> str:
        """Why `in_time` says no."""
        if not self.messages:
            return f"no message yet on {self.config.topic}"
        if stamp_ns is not None:
            return f"no message of the step at {stamp_ns / 1e9:.6f} s"
        if now_ns < self.arrival_ns:
            return "the clock was set back"
        return f"no message for more than {self.longest / 1e9:g} s"

    def look(self) -> bool:
        """Look at what the newest message has; whether the source needs a larger place."""
        self.error = ""
        if not (self._names or self._growing):
            return False
        try:
            for names in self._names:
                names.update(self.message)
            for reader in self._growing:
                reader.grow(self.message)
        except Exception as error:
            self.error = f"unreadable message ({error})"
        if not self._growing:
            return False
        return sum([len(reader.ids) for reader in self.readers]) > self.stop - self.start

    def extract(self) -> None:
        """Bring the newest message's numbers into the table, after `look`."""
        self.unread = False
        try:
            if not self.error:
                for read, row in self._reads:
                    read(self.message, row)
                return
        except Exception as error:
            self.error = f"unreadable message ({error})"
        for _, row in self._reads:
            row[:] = np.nan

    def absence(self, index: int) -> str:
        """Why a channel, by its place in the source, is absent though the source is fresh."""
        for reader in self.readers:
            if index < len(reader.ids):
                return reader.absence(index) or reader.invalid
            index -= len(reader.ids)
        raise IndexError(index)
