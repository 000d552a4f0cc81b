"""Errors, and checks of packages and output paths, that all verbs of the command line use."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from an_control.learning.command_line import format_flag
from an_control.system.files import WriteError, write_file
from an_control.system.ros_source import describe_ros_problem

Command = TypeVar("Command")


class InputError(ValueError):
    """Error for bad input to a verb (subcommand of `an-control`, such as `sim`).

    The program prints its text in one line and ends with exit status 2.
    """


class WorkError(RuntimeError):
    """Error for a verb (subcommand of `an-control`) whose input is right, but whose work fails.

    The program prints its text in one line and ends with exit status 1.
    """


class Output(Enum):
    """Marker for a command line option that names a file or folder to write.

    It stands in the option's type, such as ``Annotated[Path, Output.FILE]``.
    """

    FILE = "file"
    FOLDER = "folder"


class Input(Enum):
    """Marker for a command line option that names a file to read.

    It stands in the option's type, such as ``Annotated[Path, Input.MODEL]``.
    """

    MODEL = "model file"


OutputFile = Annotated[Path, Output.FILE]
OutputFolder = Annotated[Path, Output.FOLDER]
ModelFile = Annotated[Path, Input.MODEL]
"""The path of a model file, or the name of a shipped model, which `replace_model_names_by_paths`
replaces."""


def require_packages(extra: str, *packages: str) -> None:
    """Check that these packages are installed and, for the extra ``ros``, that ROS 2 can be used.

    Args:
        extra: Optional dependency group of an_control that installs the packages, such as ``sim``.
        *packages: Import names of the packages.

    Raises:
        InputError: A package is missing, or ROS 2 cannot be used; the text says what to install.
    """
    for package in packages:
        if importlib.util.find_spec(package) is None:
            source = "source ROS 2, or " if extra == "ros" else ""
            raise InputError(f"needs {package}: {source}pip install 'an_control[{extra}]'")
    if extra == "ros" and (problem := describe_ros_problem()):
        raise InputError(problem)


def check_writable_outputs(verb: Any) -> None:
    """Check that a verb can write its output files, before it starts work that may take hours.

    Args:
        verb: Instance of a verb's dataclass; its fields of type `OutputFile` and `OutputFolder` are
            checked.

    Raises:
        InputError: A path cannot be written; the text names option and path.
    """
    hints = get_type_hints(type(verb), include_extras=True)
    for field in fields(verb):
        path = getattr(verb, field.name)
        kind = next(find_output_path_markers(hints[field.name]), None)
        if kind is None or path is None:
            continue
        if (
            problem := describe_problem_with_writing_file(path)
            if kind is Output.FILE
            else _describe_problem_with_writing_folder(path)
        ):
            raise InputError(f"{format_flag(field.name)} {path}: {problem}")


def replace_model_names_by_paths(verb: Command) -> Command:
    """Replace names of shipped models, such as ``ant``, in a verb's options by file paths.

    A path with a folder or a suffix, or of something that exists, stays as it is.

    Args:
        verb: Instance of a verb's dataclass; its fields of type `ModelFile` are replaced.

    Returns:
        A copy of `verb` with the paths, or `verb` itself if nothing is replaced.

    Raises:
        ModelError: A name is neither a file nor a shipped model.
    """
    hints = get_type_hints(type(verb), include_extras=True)
    found = {}
    for field in fields(verb):  # type: ignore[arg-type]
        path = getattr(verb, field.name)
        if path is None or not _is_model_file_type(hints[field.name]):
            continue
        if not os.path.exists(path):  # unlike Path.exists, False if a folder must not be read
            from an_control.load import find_model_path

            found[field.name] = Path(find_model_path(path))
    return replace(verb, **found) if found else verb  # type: ignore[type-var]


def _is_model_file_type(type_hint: Any) -> bool:
    """Return whether an option of this type is the path of a model file."""
    return any(part is Input.MODEL or _is_model_file_type(part) for part in get_args(type_hint))


def find_output_path_markers(type_hint: Any) -> Iterator[Output]:
    """Yield the `Output` markers in an option's type, which say that it names a file to write.

    Args:
        type_hint: Type of the option's dataclass field, such as ``Annotated[Path, Output.FILE] |
            None``.
    """
    for part in get_args(type_hint):
        if isinstance(part, Output):
            yield part
        else:
            yield from find_output_path_markers(part)


def describe_problem_with_writing_file(path: Path) -> str:
    """Return why a file cannot be written at `path`, as text for an error; "" if it can be."""
    if os.path.isdir(path):
        return "is a folder, must be a file"
    if os.path.exists(path) and not stat.S_ISREG(path.stat().st_mode):
        return "" if os.access(path, os.W_OK) else "is not writable"
    # if `path` is a link, the folder of the file that it leads to
    folder = Path(os.path.realpath(path)).parent
    if not os.path.exists(folder):
        return f"there is no folder {folder}"
    return _describe_problem_with_path(path) or _describe_problem_with_writing_into(folder)


def _describe_problem_with_writing_folder(path: Path) -> str:
    """Return why a folder cannot be created or filled at `path`, as error text; "" if it can be."""
    there = next(one for one in (path, *path.absolute().parents) if os.path.lexists(one))
    return _describe_problem_with_path(path) or _describe_problem_with_writing_into(there)


def _describe_problem_with_path(path: Path) -> str:
    """Return why the system refuses a path, such as a name that is too long; "" if it does not."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _describe_problem_with_writing_into(folder: Path) -> str:
    """Return why nothing can be created in `folder`, as text for an error; "" if it is writable."""
    if not os.path.isdir(folder):
        return f"{folder} is not a folder"
    return "" if os.access(folder, os.W_OK | os.X_OK) else f"folder {folder} is not writable"


def write_json(path: Path | None, result: dict[str, Any]) -> None:
    """Write a verb's result as JSON to the file that the option ``--json`` names.

    Numbers that are not finite, which JSON cannot represent, become null.

    Args:
        path: Path of the file; None if the option is not given, and then nothing is written.
        result: The values to write, by name.

    Raises:
        InputError: The file cannot be written.
    """
    if path is None:
        return
    try:
        write_file(
            path, json.dumps(_replace_non_finite_by_none(result), indent=2, allow_nan=False) + "\n"
        )
    except WriteError as error:
        raise InputError(f"--json {error}") from error


def _replace_non_finite_by_none(value: Any) -> Any:
    """Return a copy of nested dicts and lists with None in place of NaN and infinite numbers."""
    if isinstance(value, Mapping):
        return {name: _replace_non_finite_by_none(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_non_finite_by_none(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
