"""The state of a pycma strategy as plain values, for a checkpoint.

pycma offers only pickle, and whoever unpickles a file runs the code that the file names. pycma also
evaluates options that are text, so even an unpickler that admits nothing but pycma's classes is
unsafe. Here the attributes of pycma's own objects that are numbers, arrays, lists of these or None
are stored by their path (`.sm.C`), and restored by the same paths in a strategy that was
constructed with the same settings. Text, functions and classes are settings: they come from the
constructor alone. A file can therefore change numbers, and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from an_control.learning.runs.checkpoint import CheckpointError

NUMBERS = bool | int | float | np.bool_ | np.integer | np.floating
SKIPPED = frozenset(
    {
        *(".inputargs", ".inopts", ".opts.bounds", ".sp"),  # settings
        *(".logger", ".timer"),  # wall clocks
        *(".ary", ".pop_sorted", "._tell2_args", ".mean_old_old"),  # the past; pycma ignores them
        *(".B", ".C", ".D", ".dC"),  # the sampler's, see `_updateBDfromSM`
    }
)
"""Attributes that no later generation needs from a checkpoint."""


def collect_values(strategy: Any) -> dict[str, Any]:
    """Return the plain values of a strategy between two generations, by their paths."""
    return {path: _plain(owner[key]) for path, (owner, key) in _slots(strategy).items()}


def restore_values(strategy: Any, values: Mapping[str, Any]) -> None:
    """Put collected values into a strategy of the same settings that has the same attributes.

    Raise CheckpointError naming the path of a value that is unknown, missing, or of another type
    or shape.
    """
    slots = _slots(strategy)
    for path in sorted(slots.keys() ^ values.keys()):
        what = "missing" if path in slots else "unknown"
        raise CheckpointError(f"strategy{path}: {what} in the installed pycma's strategy")
    for path, (owner, key) in slots.items():
        owner[key] = _like(owner[key], values[path], path)
    strategy._updateBDfromSM()


def _slots(strategy: Any) -> dict[str, tuple[dict[Any, Any], Any]]:
    """Return the dict and the key that hold each plain value of pycma's objects, by path."""
    found: dict[str, tuple[dict[Any, Any], Any]] = {}
    seen = set()

    def visit(value: Any, path: str) -> None:
        if id(value) in seen:
            return
        seen.add(id(value))
        own = vars(value) if _is_pycma(value) else {}
        for owner in (own, value) if isinstance(value, dict) else (own,):
            for key, entry in owner.items():
                place = f"{path}.{key}"
                if place in SKIPPED:
                    continue
                if _is_plain(entry):
                    found[place] = owner, key
                elif isinstance(entry, dict) or _is_pycma(entry):
                    visit(entry, place)
                elif not (isinstance(entry, str) or callable(entry)):
                    raise TypeError(f"strategy{place}: a {type(entry).__name__} cannot be stored")

    visit(strategy, "")
    return found


def _is_pycma(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "cma"


def _is_plain(value: Any) -> bool:
    if type(value) in (list, tuple, range):
        return all(isinstance(entry, NUMBERS | np.ndarray) and _is_plain(entry) for entry in value)
    if isinstance(value, np.ndarray):
        return value.dtype.kind in "bif"
    return value is None or isinstance(value, NUMBERS)


def _plain(value: Any) -> Any:
    """Return a plain value as a checkpoint holds it: numbers are Python's, sequences lists."""
    if isinstance(value, list | tuple | range):
        return [_plain(entry) for entry in value]
    return value.item() if isinstance(value, np.generic) else value


def _like(known: Any, value: Any, path: str) -> Any:
    """Return a value of a checkpoint with the type and the memory layout of the known one."""
    expected = _plain(known)
    if _form(value) != _form(expected):
        raise CheckpointError(f"strategy{path}: {_form(value)}, not {_form(expected)}")
    if isinstance(known, np.ndarray):
        array = np.empty_like(known)  # the layout decides how BLAS rounds
        array[...] = value
        return array
    if isinstance(value, list):
        entries = [entry.copy() if isinstance(entry, np.ndarray) else entry for entry in value]
        return tuple(entries) if isinstance(known, tuple) else entries
    return None if known is None else type(known)(value)


def _form(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"array {value.shape} of {value.dtype}"
    if isinstance(value, list) and not _is_plain(value):
        return "list of other than numbers"
    return type(value).__name__
