"""The command line that asks for the same as the options of a training function.

It stands on the cards of models and behind "to continue". The options' names are those of the
command line: the field `teacher_minutes` is typed as `--teacher-minutes`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import Field, fields, is_dataclass
from typing import Any


def option(name: str) -> str:
    """Return the field of this name as it is typed: --teacher-minutes."""
    return "--" + name.replace("_", "-")


def command(options: Any, name: str) -> str:
    """Return the command line of verb `name` with these options, where they differ from the
    defaults."""
    first, *others = fields(options)
    words = ["an-control", name, str(getattr(options, first.name))]
    return shlex.join([*words, *_typed(options, others)])


def _typed(given: Any, some: Iterable[Field[Any]]) -> list[str]:
    """Return these fields as words; those of a group, which has no name, beside the others."""
    words = []
    for field in some:
        value, typed = getattr(given, field.name), option(field.name)
        if is_dataclass(value):
            words += _typed(value, fields(value))
        elif field.name == "resume" or value == field.default:
            continue
        elif isinstance(value, bool):
            words.append(typed if value else typed.replace("--", "--no-", 1))
        else:
            words += [typed, *map(str, value if isinstance(value, tuple) else [value])]
    return words
