"""The schedule file: how the scrambling changes during each episode."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from an_control.disturbance.disturber import Change, DisturbanceSettings, Shuffle
from an_control.wiring.errors import WiringError
from an_control.wiring.strict import Entry, read_yaml

SETTINGS = tuple(field.name for field in fields(DisturbanceSettings))


def load_schedule(path: str | Path) -> tuple[Change, ...]:
    """Read a schedule; WiringError names file, key, value and what is allowed.

    ``an_control_schedule: 1`` and ``changes``, a mapping from the step to the settings that have
    other values from then on (see `DisturbanceSettings`)::

        an_control_schedule: 1
        changes:
          200: {drop: 0.25}
          400: {drop: 0, shuffle: 50}
    """
    top = read_yaml(path).fields(("an_control_schedule", "changes"))
    if top["an_control_schedule"].number("1, the version of the format") != 1:
        raise top["an_control_schedule"].error("1, the version of the format")
    return tuple(_change(step, one) for step, one in top["changes"].items("at least one step"))


def _change(step: str, entry: Entry) -> Change:
    if not step.isdecimal():
        raise WiringError(entry.file, entry.key, step, "a step, a whole number from 0")
    given = entry.fields((), SETTINGS)
    values = {name: _value(name, one) for name, one in given.items()}
    for name, one in given.items():
        try:
            DisturbanceSettings(**{name: values[name]})
        except ValueError as error:
            raise one.error(str(error)) from None
    return Change(int(step), values)


def _value(name: str, entry: Entry) -> Any:
    default = getattr(DisturbanceSettings(), name)
    if isinstance(default, Shuffle):
        try:
            return Shuffle.parse(str(entry.value))
        except ValueError as error:
            raise entry.error(str(error)) from None
    if isinstance(default, bool):
        if not isinstance(entry.value, bool):
            raise entry.error("true or false")
        return entry.value
    number = entry.number("a number")
    if isinstance(default, int):
        if number != int(number):
            raise entry.error("a whole number")
        return int(number)
    return number
