"""The disturbance settings as options of a verb, made from their table, and as words."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Annotated, Any

import tyro

from an_control.disturbance import SETTINGS, DisturbanceSettings, Setting


class DisturbanceOptions:
    """What is done to the readings."""

    def settings(self) -> DisturbanceSettings:
        """ValueError names an option's bad value."""
        return DisturbanceSettings.read(vars(self))

    def plain(self) -> dict[str, Any]:
        """Return the values as JSON has them: numbers, and texts for shuffles and ranges."""
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
"""The type of a verb's field that holds an option for each setting."""


def defaults(**values: object) -> DisturbanceOptions:
    """The options as they are where nobody gives them; `values` differ from the table."""
    made: DisturbanceOptions = _MADE(**values)
    return made
