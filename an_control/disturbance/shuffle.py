"""When signals are permuted, as text: `none`, `reset`, `K` or `reset+K`."""

from __future__ import annotations

from dataclasses import dataclass
from reprlib import repr as short


@dataclass(frozen=True)
class Shuffle:
    """When signals are permuted: at the reset, and every `every` steps after it (0 = never)."""

    at_reset: bool = False
    every: int = 0

    def __str__(self) -> str:
        """The text that `parse` takes."""
        every = str(self.every) if self.every else ""
        return "+".join(filter(None, ("reset" if self.at_reset else "", every))) or "none"

    @classmethod
    def parse(cls, text: str) -> Shuffle:
        """`none`, `reset`, `K` (every K steps, nominal at first) or `reset+K` (both).

        Raises ValueError naming the text and what was allowed.
        """
        start, _, rest = text.strip().partition("+")
        if start == "none" and not rest:
            return cls()
        if start == "reset" and (rest or text.strip() == "reset"):
            return cls(True, _steps(rest, text) if rest else 0)
        return cls(False, _steps(text.strip(), text))


def _steps(number: str, text: str) -> int:
    if not number.isdecimal() or int(number) == 0:
        raise ValueError(f"shuffle: {short(text)} (allowed: none, reset, K, reset+K; K steps >= 1)")
    return int(number)
