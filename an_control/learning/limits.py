"""Bounds of the numbers in settings files and options, which stand in the types of the fields."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_type_hints

from an_control.learning.command_line import format_flag


@dataclass(frozen=True)
class SettingLimits:
    """Bounds of a number in a settings file or of an option.

    Attributes:
        low: Lower bound.
        high: Upper bound, which is itself allowed.
        over: Whether only numbers above `low` are allowed; if False, `low` itself is allowed too.
    """

    low: float = 0.0
    high: float = math.inf
    over: bool = False

    def __str__(self) -> str:
        if self.over:
            return f"over {self.low:g}"
        if self.high < math.inf:
            return f"from {self.low:g} to {self.high:g}"
        return "" if self.low == -math.inf else f"{self.low:g} or more"

    def allow(self, number: float) -> bool:
        """Return whether a number is within the bounds; infinity only if both are infinite."""
        above = number > self.low if self.over else number >= self.low
        return above and number <= self.high and (number < math.inf or self.low == -math.inf)


Share = Annotated[float, SettingLimits(0.0, 1.0)]
Positive = Annotated[int, SettingLimits(1)]
CountOrZero = Annotated[int, SettingLimits()]
OverZero = Annotated[float, SettingLimits(over=True)]
ZeroOrOver = Annotated[float, SettingLimits()]
AnyNumber = Annotated[float, SettingLimits(-math.inf)]


def check_numbers_within_limits(options: Any) -> None:
    """Check the numbers of an options dataclass against the `SettingLimits` in their types.

    Args:
        options: The options; a number that is None is not checked, of a tuple each number is.

    Raises:
        ValueError: A number is out of bounds. The message names the option as on the command line.
    """
    for name, hint in get_type_hints(type(options), include_extras=True).items():
        given, limits = getattr(options, name), _find_limits(hint)
        for value in given if isinstance(given, tuple) else (given,):
            if limits and value is not None and not limits.allow(value):
                shown = f"{value:g}" if isinstance(value, float) else value
                raise ValueError(
                    f"{format_flag(name)} {shown}: must be {str(limits) or 'a number'}"
                )


def _find_limits(type_hint: Any) -> SettingLimits | None:
    """Return the bounds that stand anywhere in a field's type; None if there are none."""
    if isinstance(type_hint, SettingLimits):
        return type_hint
    return next(filter(None, map(_find_limits, get_args(type_hint))), None)
