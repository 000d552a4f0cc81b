"""Write the options of a training function as the command line that would start the same training.

These command lines are printed on model cards, and in messages that tell how to continue a training
run. The name of a field of the options decides the name of the command's flag: `teacher_minutes`
becomes `--teacher-minutes`.
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
    """Return the command line `an-control NAME ...` that starts a run with these options.

    Options that have their default value are left out.

    Args:
        options: Instance of an options dataclass whose first field is the positional argument.
        name: The command, such as "distill".
    """
    first, *others = fields(options)
    words = ["an-control", name, str(getattr(options, first.name))]
    return shlex.join([*words, *_format_changed_options(options, others)])


def _format_changed_options(options: Any, options_fields: Iterable[Field[Any]]) -> list[str]:
    """Return the words, such as "--seed" and "2", of all options that differ from their defaults.

    If a value is itself a dataclass, the fields of that dataclass are written instead.
    """
    words = []
    for field in options_fields:
        value, typed = getattr(options, field.name), format_flag(field.name)
        if is_dataclass(value):
            words += _format_changed_options(value, fields(value))
        elif field.name == "resume" or value == field.default:
            continue
        elif isinstance(value, bool):
            words.append(typed if value else typed.replace("--", "--no-", 1))
        else:
            words += [typed, *map(str, value if isinstance(value, tuple) else [value])]
    return words
