"""Make options for disturbing sensors, commands or the robot, from a table of settings."""

from __future__ import annotations

from dataclasses import make_dataclass
from typing import Annotated, Any

import tyro

from an_control.disturbance import SETTINGS, DisturbanceSettings, Setting


class DisturbanceOptions:
    """Command line options that disturb the robot's sensors, commands or body.

    There is one option for each setting of a disturbance, such as ``--missing 0.1``.
    """

    def to_settings(self) -> DisturbanceSettings:
        """Return the disturbance that the options describe.

        Raises:
            ValueError: A value is not allowed; the text names the option and the value.
        """
        return DisturbanceSettings.from_values(vars(self))

    def to_json_values(self) -> dict[str, Any]:
        """Return the values of the options, by name, in a form that JSON can represent.

        Most values are numbers. Values such as "reset" or the range "0..2" are texts.
        """
        return {setting.name: setting.get_plain_value(self.to_settings()) for setting in SETTINGS}


def _make_help_text(setting: Setting) -> str:
    """Return the help text of the option for a setting: its meaning and the allowed values."""
    allowed = "" if setting.kind is bool else f": {setting.allowed_values_text}"
    return f"{setting.help_with_unit[0].upper()}{setting.help_with_unit[1:]}{allowed}."


_GeneratedOptions = make_dataclass(
    "_GeneratedOptions",
    [
        (
            setting.name,
            Annotated[
                str if setting.is_given_as_text else setting.kind,
                tyro.conf.arg(help=_make_help_text(setting)),
                tyro.conf.FlagCreatePairsOff,
            ],
            setting.default_as_plain_value,
        )
        for setting in SETTINGS
    ],
    bases=(DisturbanceOptions,),
    namespace={"__doc__": DisturbanceOptions.__doc__},
    frozen=True,
)
Options = Annotated[DisturbanceOptions, tyro.conf.arg(name="", constructor=_GeneratedOptions)]
"""Type for a field of a verb's dataclass; such a field becomes one option for each setting."""


def make_disturbance_options(**values: object) -> DisturbanceOptions:
    """Return disturbance options with the given values; all others have their default values."""
    made: DisturbanceOptions = _GeneratedOptions(**values)
    return made
