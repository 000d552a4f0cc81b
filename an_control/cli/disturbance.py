"""The disturbance settings as options of a verb, made from their table."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Annotated, Any

import tyro

from an_control.disturbance import SETTINGS, DisturbanceSettings, Setting


class DisturbanceOptions:
    """The disturbances."""

    def settings(self) -> DisturbanceSettings:
        """Return the settings; raise ValueError that names an option's bad value."""
        return DisturbanceSettings.from_values(vars(self))

    def plain(self) -> dict[str, Any]:
        """Return the values for JSON: numbers, and texts for shuffles and ranges."""
        return {one.name: one.plain_value(self.settings()) for one in SETTINGS}


def _help(one: Setting) -> str:
    allowed = "" if one.kind is bool else f": {one.allowed}"
    return f"{one.meaning[0].upper()}{one.meaning[1:]}{allowed}."


_MADE = make_dataclass(
    "_MADE",
    [
        (
            one.name,
            Annotated[
                str if one.textual else one.kind,
                tyro.conf.arg(help=_help(one)),
                tyro.conf.FlagCreatePairsOff,
            ],
            one.plain,
        )
        for one in SETTINGS
    ],
    bases=(DisturbanceOptions,),
    namespace={"__doc__": DisturbanceOptions.__doc__},
    frozen=True,
)
Options = Annotated[DisturbanceOptions, tyro.conf.arg(name="", constructor=_MADE)]
"""The type of a verb's field that becomes an option for each setting."""


def default_options(**values: object) -> DisturbanceOptions:
    """Return the options at their defaults, but for `values`."""
    made: DisturbanceOptions = _MADE(**values)
    return made
