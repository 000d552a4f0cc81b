"""The schedule file: how the disturbance changes during each episode."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from an_control.disturbance.settings import SETTINGS, TABLE, DisturbanceSettings, Setting
from an_control.wiring.checked_yaml import Entry, read_yaml
from an_control.wiring.errors import WiringError


class Change(NamedTuple):
    """From this step of every episode on, these settings have other values."""

    step: int
    values: Mapping[str, Any]


def load_schedule(path: str | Path) -> tuple[Change, ...]:
    """Read a schedule; WiringError names file, key, value and what is allowed.

    ``an_control_schedule: 1`` and ``changes``, a mapping from the step to the settings that have
    other values from then on (see `DisturbanceSettings`)::

        an_control_schedule: 1
        changes:
          200: {missing: 0.25}
          400: {missing: 0, shuffle: 50}
    """
    top = read_yaml(path).fields(("an_control_schedule", "changes"))
    if top["an_control_schedule"].number("1, the version of the format") != 1:
        raise top["an_control_schedule"].error("1, the version of the format")
    return tuple(_change(step, one) for step, one in top["changes"].items("at least one step"))


def stages(
    settings: DisturbanceSettings, schedule: Sequence[Change]
) -> Iterator[DisturbanceSettings]:
    """The settings that an episode goes through, in the order of the steps."""
    yield settings
    for change in sorted(schedule, key=lambda one: one.step):
        settings = replace(settings, **change.values)
        yield settings


def _change(step: str, entry: Entry) -> Change:
    if not step.isdecimal():
        raise WiringError(entry.file, entry.key, step, "a step, a whole number from 0")
    given = entry.fields((), tuple(one.name for one in SETTINGS if one.scheduled))
    return Change(int(step), {name: _value(TABLE[name], one) for name, one in given.items()})


def _value(setting: Setting, entry: Entry) -> Any:
    try:
        if not setting.textual and isinstance(entry.value, str):
            raise setting.error(entry.value)
        return setting.read(entry.value)
    except ValueError:
        raise entry.error(setting.allowed) from None
