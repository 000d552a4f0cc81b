"""Value expressions of a simulation YAML: parsed against one fixed form, never evaluated.

    observation     observation[i]     observation[a:b]    observation[a:b:c]    observation[i,j,k]
    sensors.NAME    and sensors.NAME with the same brackets

`observation` is what the environment returned, `sensors` the dict of physical readings that
`env.unwrapped.sensors()` gives where an environment has it (`learning.environments.HasSensors`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Getter = Callable[[Any, Mapping[str, Any]], Any]

FORMS = (
    "observation, observation[i], observation[a:b], observation[a:b:c] (every c-th),"
    " observation[i,j,k], and the same of sensors.NAME"
)
_LOOKS_LIKE_ONE = re.compile(r"(observation|sensors)\s*($|[\[.(])")
_FORM = re.compile(
    r"(?:observation|sensors\.(?P<sensor>[A-Za-z_]\w*))"
    r"(?:\[(?:(?P<index>-?\d{1,9})|(?P<places>\d{1,9}(?:\s*,\s*\d{1,9})+)"
    r"|(?P<start>\d{0,9}):(?P<stop>\d{0,9})(?::(?P<step>[1-9]\d{0,8}))?)\])?"
)


class ExpressionError(ValueError):
    """A text that reads like an expression but has none of the forms."""


@dataclass(frozen=True)
class Expression:
    """`sensor` None means the observation; `part` None means all of it, a tuple these places."""

    text: str
    sensor: str | None
    part: int | slice | tuple[int, ...] | None

    def getter(self) -> Getter:
        """A function of (observation, sensors) that gives the value; may raise Key/IndexError."""
        sensor, part = self.sensor, self.part
        if isinstance(part, tuple):
            places = list(part)
            if sensor is None:
                return lambda observation, sensors: np.asarray(observation)[places]
            return lambda observation, sensors: np.asarray(sensors[sensor])[places]
        if sensor is None:
            if part is None:
                return lambda observation, sensors: observation
            return lambda observation, sensors: observation[part]
        if part is None:
            return lambda observation, sensors: sensors[sensor]
        return lambda observation, sensors: sensors[sensor][part]

    def check_slice(self, observation: Any, sensors: Mapping[str, Any]) -> None:
        """IndexError where a slice asks for more than there is, which Python would let pass."""
        if isinstance(self.part, slice):
            whole = observation if self.sensor is None else sensors[self.sensor]
            start, stop = self.part.start or 0, self.part.stop
            last = stop if stop is not None else len(whole)
            if not start < last <= len(whole):
                raise IndexError(f"[{start}:{last}] of {len(whole)} values")


def parse_expression(text: str) -> Expression | None:
    """The expression that `text` is, or None where it is a plain string.

    Raises ExpressionError where it starts like an expression and is none.
    """
    if not _LOOKS_LIKE_ONE.match(text):
        return None
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ExpressionError(FORMS)
    part: int | slice | tuple[int, ...] | None = None
    if match["index"] is not None:
        part = int(match["index"])
    elif match["places"] is not None:
        part = tuple(map(int, match["places"].split(",")))
    elif match["start"] is not None:
        ends = ("start", "stop", "step")
        part = slice(*(int(match[end]) if match[end] else None for end in ends))
    return Expression(text.strip(), match["sensor"], part)
