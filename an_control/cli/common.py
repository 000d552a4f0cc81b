"""Code that the verbs share: errors, missing packages, and checks of output paths."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import fields
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

from an_control.learning.command_line import format_flag
from an_control.system.files import WriteError, write_file
from an_control.system.ros_source import describe_ros_problem


class InputError(ValueError):
    """Bad input to a verb; ends it with exit status 2 and prints the text in one line."""


class WorkError(RuntimeError):
    """Work that cannot be done; ends a verb with exit status 1 and prints the text in one line."""


class Output(Enum):
    """The kind of output that a verb writes at the path of an option."""

    FILE = "file"
    FOLDER = "folder"


OutputFile = Annotated[Path, Output.FILE]
OutputFolder = Annotated[Path, Output.FOLDER]


def require_packages(extra: str, *packages: str) -> None:
    """Raise InputError if one of these packages is not installed or ROS 2 cannot be used.

    Args:
        extra: The extra of an_control that installs the packages, such as ``sim``.
        packages: The names of the packages.
    """
    for package in packages:
        if importlib.util.find_spec(package) is None:
            source = "source ROS 2, or " if extra == "ros" else ""
            raise InputError(f"needs {package}: {source}pip install 'an_control[{extra}]'")
    if extra == "ros" and (problem := describe_ros_problem()):
        raise InputError(problem)


def check_outputs(verb: Any) -> None:
    """Raise InputError naming option and path if a result of the verb could not be written.

    Checks the fields of type `OutputFile` and `OutputFolder`. Call it before the work, which may
    take hours.
    """
    hints = get_type_hints(type(verb), include_extras=True)
    for field in fields(verb):
        path = getattr(verb, field.name)
        kind = next(outputs_in(hints[field.name]), None)
        if kind is None or path is None:
            continue
        if problem := file_problem(path) if kind is Output.FILE else _folder_problem(path):
            raise InputError(f"{format_flag(field.name)} {path}: {problem}")


def outputs_in(hint: Any) -> Iterator[Output]:
    """Yield each `Output` in a type such as ``Annotated[Path, Output.FILE] | None``."""
    for part in get_args(hint):
        if isinstance(part, Output):
            yield part
        else:
            yield from outputs_in(part)


def file_problem(path: Path) -> str:
    """Return why no file can be written here, or ""."""
    if path.is_dir():
        return "is a folder, must be a file"
    if path.exists() and not stat.S_ISREG(path.stat().st_mode):
        return "" if os.access(path, os.W_OK) else "is not writable"
    folder = path.resolve().parent  # of the file that a link leads to
    return _writable(folder) if folder.exists() else f"there is no folder {folder}"


def _folder_problem(path: Path) -> str:
    """Return why no folder can be made or filled here, or ""."""
    there = next(one for one in (path, *path.absolute().parents) if one.exists())
    return _writable(there)


def _writable(folder: Path) -> str:
    if not folder.is_dir():
        return f"{folder} is no folder"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"folder {folder} is not writable"


def write_json(path: Path | None, result: dict[str, Any]) -> None:
    """Write a verb's result to the file of ``--json``; do nothing for None.

    Numbers that are not finite, which JSON cannot represent, become null.

    Raises:
        InputError: The file cannot be written.
    """
    if path is None:
        return
    try:
        write_file(path, json.dumps(_finite(result), indent=2, allow_nan=False) + "\n")
    except WriteError as error:
        raise InputError(f"--json {error}") from error


def _finite(value: Any) -> Any:
    """Return the value with None in place of numbers that are not finite."""
    if isinstance(value, Mapping):
        return {name: _finite(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
