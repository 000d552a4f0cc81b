"""Write the options of a training function as the command line that asks for the same.

Such command lines stand on model cards and in messages on how to continue a run. A field's name
decides its flag: `teacher_minutes` becomes `--teacher-minutes`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import Field, fields, is_dataclass
from typing import Any


def format_flag(name: str) -> str:
    """Return the command-line flag of a field of an options dataclass.

    >>> format_flag("teacher_minutes")
    '--teacher-minutes'
    """
    return "--" + name.replace("_", "-")


def format_command(options: Any, name: str) -> str:
    """Return the command line `an-control NAME ...` that sets the same options.

    Options at their default are left out.

    Args:
        options: Instance of an options dataclass whose first field is the positional argument.
        name: The command, such as "distill".
    """
    first, *others = fields(options)
    words = ["an-control", name, str(getattr(options, first.name))]
    return shlex.join([*words, *_format_fields(options, others)])


def _format_fields(options: Any, options_fields: Iterable[Field[Any]]) -> list[str]:
    """Return the words of a command line for those fields that differ from their defaults.

    Args:
        options: Instance of an options dataclass.
        options_fields: Fields to write; a field that is a dataclass is replaced by its own fields.
    """
    words = []
    for field in options_fields:
        value, typed = getattr(options, field.name), format_flag(field.name)
        if is_dataclass(value):
            words += _format_fields(value, fields(value))
        elif field.name == "resume" or value == field.default:
            continue
        elif isinstance(value, bool):
            words.append(typed if value else typed.replace("--", "--no-", 1))
        else:
            words += [typed, *map(str, value if isinstance(value, tuple) else [value])]
    return words
