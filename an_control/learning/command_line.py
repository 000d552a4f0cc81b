"""Write the options of a training function as the command line that would start the same training.

These command lines are printed on model cards, and in messages that tell how to continue a training
run. The name of a field of the options decides the name of the command's flag: `teacher_minutes`
becomes `--teacher-minutes`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import Field, fields, is_dataclass
from typing import Any, get_type_hints


def format_flag(name: str) -> str:
    """Return the command-line flag of a field of an options dataclass.

    >>> format_flag("teacher_minutes")
    '--teacher-minutes'
    """
    return "--" + name.replace("_", "-")


def get_setting_name_for_user(
    key: str, options: type[Any], other_names: Mapping[str, str], has_recipe: bool = False
) -> str:
    """Return the name by which the user of a command knows a setting, for an error message.

    Args:
        key: Place of the setting in `config.json`, with a dot between the keys of nested dicts,
            such as "settings.population".
        options: The options dataclass of the command.
        other_names: A mapping from setting to flag, for settings that are not named like their
            flag, such as {"population": "--popsize"}.
        has_recipe: Whether the user can also change the setting in a recipe, a file of settings.

    Returns:
        The flag, such as "--popsize". With `has_recipe`, a setting of the recipe is named by its
        key and the flag, such as "student.neuron (--neuron)". A setting without a flag is named by
        its key.
    """
    name = key.removeprefix("settings.")
    if name == key and "." in key:  # of the task, or of a model
        return other_names.get(key.partition(".")[0], key)
    known = {
        part: format_flag(part)
        for part in list_option_names(options)
        if part != "task"  # the positional argument
    }
    flag = next(filter(None, map({**known, **other_names}.get, name.split("."))), None)
    if flag is None:
        return name
    if flag == "--disturb" and not has_recipe:
        return f"{flag} {name.partition('.')[2]}"
    return f"{name} ({flag})" if has_recipe and name != key else flag


def list_option_names(options: type[Any]) -> list[str]:
    """Return the names of all options of a dataclass, also those in nested dataclasses."""
    hints = get_type_hints(options)
    return [
        name
        for one in fields(options)
        for name in (
            list_option_names(hints[one.name]) if is_dataclass(hints[one.name]) else [one.name]
        )
    ]


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
