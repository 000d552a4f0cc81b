"""The disturbance settings as options of a verb, made from their table, and as words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import make_dataclass
from typing import Annotated, Any

import tyro

from an_control.cli.common import InputError
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


def mixture(texts: Sequence[str], channels: int) -> tuple[DisturbanceSettings, ...]:
    """What --shuffle of train and distill says, for so many channels; InputError for a bad text."""
    found = []
    for text in texts:
        try:
            found.append(DisturbanceSettings.parse(text))
            found[-1].check_channels(channels)
        except ValueError as error:
            raise InputError(f"--shuffle {text}: {error}") from error
    return tuple(found)


DisturbTexts = Annotated[tuple[str, ...], tyro.conf.arg(aliases=("--faults",))]
"""The type of a training verb's field `disturb`: disturbances, each a text of words."""
DisturbShare = Annotated[float, tyro.conf.arg(aliases=("--fault-share",))]
"""The type of its field `disturb_share`."""


def defaults(**values: object) -> DisturbanceOptions:
    """The options as they are where nobody gives them; `values` differ from the table."""
    made: DisturbanceOptions = _MADE(**values)
    return made
