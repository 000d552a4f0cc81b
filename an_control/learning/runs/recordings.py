"""What the steps of a run recorded: `episodes_NNN.npz` in its folder, one file a step."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

import numpy as np

from an_control.learning.runs.run_folder import RunError
from an_control.system.files import read_regular, write_whole

E = TypeVar("E", bound=Any)


class Recordings(Generic[E]):
    """Episodes of one NamedTuple `kind`, whose fields are arrays (T, ...) or numbers.

    RunError where the disk refuses, or a file does not hold such episodes.
    """

    def __init__(self, folder: Path, kind: type[E]) -> None:
        self._folder, self._kind = folder, kind

    def write(self, number: int, episodes: Sequence[E]) -> None:
        """Put the episodes of step `number` into its file, whole."""
        arrays: dict[str, np.ndarray] = {}
        for name, column in zip(self._kind._fields, zip(*episodes, strict=True), strict=True):
            if isinstance(column[0], np.ndarray):
                arrays[f"{name}.lengths"] = np.array([len(part) for part in column])
                arrays[name] = np.concatenate(column)
            else:
                arrays[name] = np.array(column)
        content = io.BytesIO()
        np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
        path = self._path(number)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, content.getvalue())
        except OSError as error:
            raise RunError(f"{path}: {error.strerror}") from error

    def read(self, number: int) -> list[E]:
        """The episodes of step `number`."""
        path = self._path(number)
        try:
            with np.load(io.BytesIO(read_regular(path))) as stored:
                columns = [self._column(stored, name) for name in self._kind._fields]
        except (OSError, ValueError, KeyError) as error:
            raise RunError(f"{path}: {error}") from error
        return [self._kind(*parts) for parts in zip(*columns, strict=True)]

    def _path(self, number: int) -> Path:
        return self._folder / f"episodes_{number:03}.npz"

    @staticmethod
    def _column(stored: Any, name: str) -> list[Any]:
        if f"{name}.lengths" not in stored:
            numbers: list[Any] = stored[name].tolist()
            return numbers
        return np.split(stored[name], np.cumsum(stored[f"{name}.lengths"])[:-1])
