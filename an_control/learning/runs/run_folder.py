"""A run's folder: what it was asked to do, what it did, and how to go on with it.

    config.json         settings, seed, task, versions
    metrics.jsonl       one line a generation or round
    checkpoint.pickle   the whole state after the newest finished one
    model.safetensors   the policy, model.md its card, curve.png the learning curve
    tensorboard/        the metrics, where tensorboard is installed

Every file is written whole or not at all, so that a run that is stopped at any
moment leaves its last checkpoint whole. A checkpoint is only ever read by the run that wrote it.
"""

from __future__ import annotations

import json
import pickle
import platform
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import an_control
from an_control.files import read_regular, write_whole

UNREADABLE = (pickle.UnpicklingError, ValueError, EOFError, AttributeError, ImportError)
PACKAGES = ("numpy", "numba", "torch", "cma", "gymnasium")


class RunError(RuntimeError):
    """A run that cannot begin or go on; the message names the folder and the reason."""


class RunFolder:
    """One run's files. RunError where the folder holds another run, or cannot be written."""

    def __init__(self, path: Path, config: Mapping[str, Any], resume: bool = False) -> None:
        self.path = path
        ours = json.loads(json.dumps(config))
        there = self._config()
        if there is None and resume:
            raise RunError(f"{path}: there is no run to resume")
        if there is not None and {k: v for k, v in there.items() if k != "versions"} != ours:
            raise RunError(f"{path}: this folder holds a run with other settings; take another")
        if there is not None and not resume and self.has("checkpoint.pickle"):
            raise RunError(f"{path}: this folder holds a run; go on with it by --resume")
        if there is None:
            self.write("config.json", json.dumps({**ours, "versions": versions()}, indent=2) + "\n")

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    def write(self, name: str, content: str | bytes) -> None:
        """Put a file into its place, whole; RunError where the disk refuses."""
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content)
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from error

    def checkpoint(self, state: Mapping[str, Any]) -> None:
        """Save the state; what it holds is pickled."""
        self.write("checkpoint.pickle", pickle.dumps(dict(state)))

    def last_checkpoint(self) -> dict[str, Any] | None:
        """The state that was saved last, None where there is none yet."""
        path = self.path / "checkpoint.pickle"
        if not path.exists():
            return None
        try:
            state: dict[str, Any] = pickle.loads(read_regular(path))
        except (*UNREADABLE, OSError) as error:
            raise RunError(f"{path}: {error}") from error
        return state

    def keep_metrics(self, lines: int) -> list[dict[str, Any]]:
        """Forget the metrics behind the first `lines`, which a resumed run will make again."""
        path = self.path / "metrics.jsonl"
        kept = read_regular(path).decode().splitlines()[:lines] if path.exists() else []
        self.write("metrics.jsonl", "".join(line + "\n" for line in kept))
        return [json.loads(line) for line in kept]

    def add_metrics(self, line: Mapping[str, Any]) -> None:
        """Append one line."""
        path = self.path / "metrics.jsonl"
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from error

    def _config(self) -> dict[str, Any] | None:
        path = self.path / "config.json"
        try:
            config: dict[str, Any] = json.loads(read_regular(path))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise RunError(f"{path}: {error}") from error
        return config


def versions() -> dict[str, str]:
    """Of this code, of Python, and of the packages that decide a run's bits."""
    found = {"an_control": an_control.__version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def plain(value: Any) -> Any:
    """Numpy numbers as Python's, for JSON."""
    return value.item() if isinstance(value, np.generic) else value
