"""The task that a policy was trained for, as its model file describes it.

A `Task` is checked when it is made from a file's header, so that later code may rely on every
field.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from reprlib import repr as short
from typing import Any

MIN_STEP_S, MAX_STEP_S = 1e-6, 3600.0
MAX_RAMP_S = 3600.0
MAX_RECOVERY = 1.0
BOUNDS = {
    "ramp_s": (0.0, MAX_RAMP_S, " s"),
    "recovery": (0.0, MAX_RECOVERY, ""),
    "step_s": (MIN_STEP_S, MAX_STEP_S, " s"),
}
"""The lowest and the highest number that is allowed under a key, and the unit for messages."""


@dataclass(frozen=True)
class Task:
    """The robot or environment that a policy was trained for; each field may be unknown.

    Attributes:
        name: The task's name on the command line; "" if unknown.
        environment: The gymnasium id; "" if unknown.
        channels: The ids of the N channels in the environment's order; () if unknown.
        actuators: The names of the A actuators in the environment's order; () if unknown.
        step_s: The seconds between two steps; 0 if unknown.
        ramp_s: The longest ramp that the policy was trained with, in seconds; a ramp brings the
            commands up gradually at the start.
        recovery: The mean change of the readings below which a robot counts as standing still, see
            `RecoveringPolicy`; 0 if the policy was trained without recovery.
        repeats: Whether the policy was trained to also act in ticks without a new reading.
        units: The scale and the offset of each channel's numbers, if the policy was trained on
            scaled numbers.
    """

    name: str = ""
    environment: str = ""
    channels: tuple[str, ...] = ()
    actuators: tuple[str, ...] = ()
    step_s: float = 0.0
    ramp_s: float = 0.0
    recovery: float = 0.0
    repeats: bool = False
    units: tuple[tuple[float, float], ...] = ()

    @classmethod
    def from_header(cls, header: Mapping[str, Any]) -> Task:
        """Return the task that a model file's header describes.

        Raises:
            ValueError: A key is unknown, or a value is of the wrong type or out of bounds; the
                message names the key, the value and what is allowed.
        """
        _check_header_keys_and_types(header)
        for key in ("channels", "actuators"):
            names = header.get(key, [])
            if not all(isinstance(name, str) for name in names) or len(set(names)) != len(names):
                raise ValueError(f"task.{key}: must be a list of strings that differ")
        if "units" in header:
            _check_channel_units(header["units"], len(header.get("channels", [])))
        for key, (low, high, unit) in BOUNDS.items():
            if key in header and not low <= header[key] <= high:
                raise ValueError(
                    f"task.{key}: {header[key]!r} is not between {low:g} and {high:g}{unit}"
                )
        values = {
            key: _convert_to_tuples(value) if isinstance(value, list) else value
            for key, value in header.items()
        }
        return cls(**values)

    def to_header(self) -> dict[str, Any]:
        """Return the fields that are known, as JSON values for a model file's header."""
        values = ((one.name, getattr(self, one.name), one.default) for one in fields(self))
        return {
            name: _convert_to_lists(value) for name, value, default in values if value != default
        }


def _convert_to_tuples(value: Any) -> Any:
    """Return a JSON value with tuples in place of lists, at all depths."""
    return tuple(map(_convert_to_tuples, value)) if isinstance(value, list) else value


def _convert_to_lists(value: Any) -> Any:
    """Return a value with lists in place of tuples, at all depths, as JSON needs them."""
    return list(map(_convert_to_lists, value)) if isinstance(value, tuple) else value


def _check_header_keys_and_types(header: Mapping[str, Any]) -> None:
    """Check that a header has known keys only, with values of the right types.

    Raises:
        ValueError: A key is unknown or a value has the wrong type; the message names it.
    """
    defaults = {one.name: one.default for one in fields(Task)}
    for key, value in header.items():
        if key not in defaults:
            raise ValueError(f"task.{key}: unknown, allowed are {', '.join(defaults)}")
        kind = type(defaults[key])
        wanted = list if kind is tuple else (int, float) if kind is float else kind
        if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
            raise ValueError(f"task.{key}: {short(value)} is of the wrong type")


def _check_channel_units(units: list[Any], channels: int) -> None:
    """Check that each channel has a valid pair of numbers: a scale that is not 0, and an offset.

    Args:
        units: The pairs, as read from the header.
        channels: The number of channels.

    Raises:
        ValueError: A pair is missing or is not valid.
    """
    if len(units) != channels:
        raise ValueError(f"task.units: {len(units)} pairs for {channels} channels")
    for pair in units:
        numbers = isinstance(pair, list) and [type(one) in (int, float) for one in pair]
        if numbers != [True, True] or not all(map(math.isfinite, pair)) or not pair[0]:
            raise ValueError(f"task.units: {short(pair)} is not a pair of scale and offset")
