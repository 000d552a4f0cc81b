"""What an off-policy learner has seen, on disk: an append-only file beside the checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from an_control.learning.runs.run_folder import RunError

PARTS = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


class ReplayFile:
    """Keeps the transitions of a replay buffer of one environment; one record each, float32.

    A checkpoint names how many records count; what a killed run has written beyond is dropped.
    RunError where the disk refuses, or the file is shorter than its checkpoint says.
    """

    def __init__(self, path: Path, buffer: Any) -> None:
        self._path, self._buffer = path, buffer
        self._kept = 0

    def append(self, count: int) -> None:
        """Write what the buffer got since the last call; `count` transitions were ever added."""
        if count == self._kept:
            return
        places = np.arange(self._kept, count) % self._buffer.buffer_size
        rows = [getattr(self._buffer, part)[places].reshape(len(places), -1) for part in PARTS]
        records = np.concatenate(rows, axis=1, dtype=np.float32)
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("r+b" if self._path.exists() else "wb") as file:
                file.seek(self._kept * records.shape[1] * 4)
                file.truncate()
                file.write(records.tobytes())
        except OSError as error:
            raise RunError(f"{self._path}: {error.strerror}") from error
        self._kept = count

    def restore(self, count: int) -> None:
        """Fill the buffer as it was after `count` transitions."""
        buffer = self._buffer
        widths = [int(np.prod(getattr(buffer, part).shape[1:])) for part in PARTS]
        width, size = sum(widths), buffer.buffer_size
        first = max(0, count - size)
        try:
            numbers = np.fromfile(
                self._path, "<f4", (count - first) * width, offset=first * width * 4
            )
        except OSError as error:
            raise RunError(f"{self._path}: {error.strerror}") from error
        if len(numbers) != (count - first) * width:
            raise RunError(f"{self._path}: is shorter than the checkpoint says")
        columns = np.split(numbers.reshape(-1, width), np.cumsum(widths)[:-1], axis=1)
        places = np.arange(first, count) % size
        for part, column in zip(PARTS, columns, strict=True):
            array = getattr(buffer, part)
            array[places] = column.reshape(len(places), *array.shape[1:])
        buffer.pos, buffer.full = count % size, count >= size
        self._kept = count
