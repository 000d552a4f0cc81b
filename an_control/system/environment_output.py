"""Keep the output of gymnasium environments and libraries out of the terminal, in a file.

An environment may print at every step, and a library may warn once in each process. All of that,
and the tracebacks of errors in environments, goes to `environment.log` in the folder of the
training run. The command says once that there is such output.
"""

from __future__ import annotations

import ctypes
import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

FILE = "environment.log"
PRINTED = "printed"
MAX_CHARACTERS = 1_000_000
"""Maximum length of `environment.log` in characters; further output is counted, but not kept."""


class BrokenEnvironmentError(Exception):
    """An error in an environment, or a result of an environment that training cannot use.

    The message names the environment, what the environment did, and the line of the environment's
    code if that is known.
    """


class PrintedOutput(NamedTuple):
    """What an environment printed between two calls of `EnvironmentOutput.pop_new_output`.

    Attributes:
        text: The beginning of the output.
        lines: Number of lines of the whole output.
        notes: Sentences for the user, each with its kind (see `EnvironmentOutput.add_note`).
    """

    text: str = ""
    lines: int = 0
    notes: tuple[tuple[str, str], ...] = ()


class EnvironmentOutput(io.TextIOBase):
    """A stream that collects what an environment's code prints, for the file `environment.log`.

    In a block of this module's `OUTPUT` it replaces standard output and standard error:

        with OUTPUT:
            env.step(action)

    Such blocks may be nested, on one thread only.
    """

    def __init__(self) -> None:
        self._file: Path | None = None
        self._streams: list[tuple[Any, Any]] = []
        self._reset()

    def _reset(self) -> None:
        """Remove everything that was printed and noted."""
        self.lines = 0
        """Number of lines printed in this process, and in workers whose output was added."""
        self.first = ""
        """The first line that was not empty."""
        self._waiting: list[str] = []
        self._kept = self._taken = 0
        self._saved: Path | None = None
        """The file to which output was last appended."""
        self._notes: dict[str, tuple[str, bool]] = {}

    def __enter__(self) -> EnvironmentOutput:
        self._streams.append((sys.stdout, sys.stderr))
        sys.stdout = sys.stderr = self
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout, sys.stderr = self._streams[-1]
        self._streams.pop()  # last, since a signal may enter `suspend_capture` at any moment

    @contextmanager
    def suspend_capture(self) -> Iterator[None]:
        """Let output in this block reach the terminal, even while an environment's code runs.

        This is meant for signal handlers, which may interrupt that code.
        """
        before = sys.stdout, sys.stderr
        if self._streams:
            sys.stdout, sys.stderr = self._streams[0]
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before

    def write(self, text: str, lines: int | None = None) -> int:
        """Store text, up to a million characters (`MAX_CHARACTERS`) in all. Return its length.

        Args:
            text: The text.
            lines: The number of lines to count, if `text` is only the beginning of a longer output;
                None: the lines of `text`.
        """
        self.lines += text.count("\n") if lines is None else lines
        if not self.first:
            self.first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        if (room := MAX_CHARACTERS - self._kept) > 0:
            self._kept += min(room, len(text))
            self._waiting.append(text[:room])
            self._append_to_file()
        return len(text)

    def writable(self) -> bool:
        """Return True, as a stream for output does."""
        return True

    def add_note(self, text: str, kind: str = "") -> None:
        """Store a sentence for the user.

        Args:
            text: The sentence.
            kind: A name that similar sentences share. Only the first sentence of a kind is stored;
                "": the sentence is always stored.
        """
        self._notes.setdefault(kind or text, (text, False))

    def pop_new_notes(self) -> list[str]:
        """Return the sentences from `add_note` that were not returned before."""
        if self._saved is not None and not self._saved.exists():  # the run never started
            self._notes.pop(PRINTED, None)
        fresh = [text for text, given in self._notes.values() if not given]
        self._notes = {kind: (text, True) for kind, (text, _) in self._notes.items()}
        return fresh

    @contextmanager
    def save_to_folder(self, folder: Path) -> Iterator[None]:
        """Append all output to the file `environment.log` of a folder, while this block runs.

        Output that was stored before the block is appended too. Within another such block, the file
        of the outer block is used.

        Args:
            folder: The folder in which `environment.log` is written.
        """
        if self._file is not None:
            yield
            return
        self._file = folder / FILE
        self._append_to_file()
        try:
            yield
        finally:
            self._file = None

    @contextmanager
    def print_remaining_notes_at_end(self) -> Iterator[None]:
        """Print those notes of `add_note` that were not shown yet, at the end of the `with` block.

        Also say if output was not saved to a file by `save_to_folder`. If the block raises
        BrokenEnvironmentError or ValueError, print nothing, because the error says more.
        """
        try:
            yield
        except (BrokenEnvironmentError, ValueError):
            self._reset()
            raise
        finally:
            if self._saved is not None:  # output of the evaluation after a run
                with self.save_to_folder(self._saved.parent):
                    self.print_new_notes()
            self.print_new_notes()
            if self._waiting:
                print(
                    f"the environment printed {self.lines} lines, which are not shown; the first:"
                    f" {self.first}",
                    file=sys.stderr,
                )
            self._reset()

    def print_new_notes(self) -> None:
        """Print the new notes (see `pop_new_notes`) to standard error."""
        for note in self.pop_new_notes():
            print(note, file=sys.stderr)

    def pop_new_output(self) -> PrintedOutput:
        """Return what this worker process's environments printed since the previous call."""
        notes = tuple((text, kind) for kind, (text, given) in self._notes.items() if not given)
        printed = PrintedOutput("".join(self._waiting), self.lines - self._taken, notes)
        self._waiting, self._taken = [], self.lines
        self.pop_new_notes()
        return printed

    def add_worker_output(self, printed: PrintedOutput) -> None:
        """Add the output and notes that a worker process has got from its `pop_new_output`."""
        if printed.text or printed.lines:
            self.write(printed.text, printed.lines)
        for text, kind in printed.notes:
            self.add_note(text, kind)

    def _append_to_file(self) -> None:
        """Append output that is not in the file yet, if `save_to_folder` has set a file."""
        if self._file is None or not self._waiting or not self._file.parent.is_dir():
            return
        try:
            with self._file.open("a", encoding="utf-8", errors="replace") as file:
                file.write("".join(self._waiting))
        except OSError:  # a full disk is reported by more important writers
            return
        self._waiting, self._saved = [], self._file
        self.add_note(f"what the environment prints is in {self._file}", PRINTED)


OUTPUT = EnvironmentOutput()
"""The output of this process's environments."""


@contextmanager
def discard_native_output() -> Iterator[None]:
    """Discard standard output in this block, also output that C libraries write directly.

    The whole process is affected, so nothing else should print meanwhile.
    """
    libc = ctypes.CDLL(None)
    sys.stdout.flush()
    libc.fflush(None)
    kept = os.dup(1)
    try:
        with open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), 1)
        yield
    finally:
        sys.stdout.flush()
        libc.fflush(None)
        os.dup2(kept, 1)
        os.close(kept)
