"""A number, or the two between which one is drawn for each episode, as text: `1`, `0..2`."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Real


@dataclass(frozen=True)
class Range:
    """From `low` to `high`, both included; the same twice is a number."""

    low: float
    high: float

    def __str__(self) -> str:
        """The text that `read` takes."""
        return f"{self.low:g}" if self.low == self.high else f"{self.low:g}..{self.high:g}"

    def __bool__(self) -> bool:
        """Whether it can be anything but 0."""
        return bool(self.low or self.high)

    @property
    def value(self) -> float:
        """The number; ValueError where one is still to be drawn."""
        if self.low != self.high:
            raise ValueError(f"{self}: no number has been drawn from it")
        return self.low

    @property
    def count(self) -> int:
        """The number, of a setting that is a whole one."""
        return int(self.value)

    @classmethod
    def read(cls, value: object) -> Range:
        """From a number or its text; ValueError where it is neither."""
        if isinstance(value, Range):
            return value
        if isinstance(value, Real) and not isinstance(value, bool):
            return cls(float(value), float(value))
        low, dots, high = str(value).partition("..")
        return cls(float(low), float(high if dots else low))

    def at(self, place: float, *, whole: bool) -> Range:
        """The number at a place from 0 (low) to 1 (high); each whole one has as much room."""
        if whole:
            number = min(self.high, self.low + int(place * (self.high - self.low + 1.0)))
        else:
            number = self.low + place * (self.high - self.low)
        return Range(number, number)
