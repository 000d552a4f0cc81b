"""Output of environments and libraries: kept out of the terminal, in a file of the run's folder.

An environment may print at every step, and a library warns once a process. All of that, and the
tracebacks of errors in environments, goes to `environment.log`; the command reports this once.
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
"""Maximum length of a run's file; more output is counted, but not kept."""


class BrokenEnvironmentError(Exception):
    """An error of an environment, or a result of it that no policy can be trained with.

    The message names the environment, what it did, and the line of its code if that is known.
    """


class PrintedOutput(NamedTuple):
    """Output since the last call of `take`.

    Attributes:
        text: The beginning of the output.
        lines: Number of lines of all of it.
        notes: Sentences for the user, and their kinds.
    """

    text: str = ""
    lines: int = 0
    notes: tuple[tuple[str, str], ...] = ()


class EnvironmentOutput(io.TextIOBase):
    """A stream that replaces standard output and error while an environment's code runs.

        with OUTPUT:
            env.step(action)

    It is not for several threads. It may be entered again while it is entered.
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
        """The file that was written last."""
        self._notes: dict[str, tuple[str, bool]] = {}

    def __enter__(self) -> EnvironmentOutput:
        self._streams.append((sys.stdout, sys.stderr))
        sys.stdout = sys.stderr = self
        return self

    def __exit__(self, *_: object) -> None:
        sys.stdout, sys.stderr = self._streams[-1]
        self._streams.pop()  # last, since `suspended` may be entered by a signal at any moment

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Show output in this block, even while an environment's code runs.

        It is meant for signal handlers.
        """
        before = sys.stdout, sys.stderr
        if self._streams:
            sys.stdout, sys.stderr = self._streams[0]
        try:
            yield
        finally:
            sys.stdout, sys.stderr = before

    def write(self, text: str, lines: int | None = None) -> int:
        """Store a text, unless too much is stored already; return its length.

        Args:
            text: The text.
            lines: Its number of lines; None: they are counted.
        """
        self.lines += text.count("\n") if lines is None else lines
        if not self.first:
            self.first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        if (room := MAX_CHARACTERS - self._kept) > 0:
            self._kept += min(room, len(text))
            self._waiting.append(text[:room])
            self._save()
        return len(text)

    def writable(self) -> bool:
        """Return True, as a stream for output does."""
        return True

    def note(self, text: str, kind: str = "") -> None:
        """Store a sentence for the user.

        Args:
            text: The sentence.
            kind: Its kind, of which only the first sentence is stored; "": no kind.
        """
        self._notes.setdefault(kind or text, (text, False))

    def notes(self) -> list[str]:
        """Return the notes that were not returned before."""
        if self._saved is not None and not self._saved.exists():  # the run never started
            self._notes.pop(PRINTED, None)
        fresh = [text for text, given in self._notes.values() if not given]
        self._notes = {kind: (text, True) for kind, (text, _) in self._notes.items()}
        return fresh

    @contextmanager
    def saved_to(self, folder: Path) -> Iterator[None]:
        """Append earlier and later output to a file in a folder, within this block.

        Inside another such block, the outer one's file is used.

        Args:
            folder: The folder, in which the file is `environment.log`.
        """
        if self._file is not None:
            yield
            return
        self._file = folder / FILE
        self._save()
        try:
            yield
        finally:
            self._file = None

    @contextmanager
    def reported(self) -> Iterator[None]:
        """Print the remaining notes after this block, and how much output was not stored in a file.

        Nothing is printed if the block ends by an environment's failure or a refusal, whose message
        says more.
        """
        try:
            yield
        except (BrokenEnvironmentError, ValueError):
            self._reset()
            raise
        finally:
            if self._saved is not None:  # output of the evaluation after a run
                with self.saved_to(self._saved.parent):
                    self.print_notes()
            self.print_notes()
            if self._waiting:
                print(
                    f"the environment printed {self.lines} lines, which are not shown; the first:"
                    f" {self.first}",
                    file=sys.stderr,
                )
            self._reset()

    def print_notes(self) -> None:
        """Print the notes that were not returned before."""
        for note in self.notes():
            print(note, file=sys.stderr)

    def take(self) -> PrintedOutput:
        """Return the output of a worker's environments since the last call."""
        notes = tuple((text, kind) for kind, (text, given) in self._notes.items() if not given)
        printed = PrintedOutput("".join(self._waiting), self.lines - self._taken, notes)
        self._waiting, self._taken = [], self.lines
        self.notes()
        return printed

    def add(self, printed: PrintedOutput) -> None:
        """Add the output and the notes of a worker process, as its `take` returned them."""
        if printed.text or printed.lines:
            self.write(printed.text, printed.lines)
        for text, kind in printed.notes:
            self.note(text, kind)

    def _save(self) -> None:
        """Append output that was not saved yet to the file, if there is one."""
        if self._file is None or not self._waiting or not self._file.parent.is_dir():
            return
        try:
            with self._file.open("a", encoding="utf-8", errors="replace") as file:
                file.write("".join(self._waiting))
        except OSError:  # a full disk is reported by more important writers
            return
        self._waiting, self._saved = [], self._file
        self.note(f"what the environment prints is in {self._file}", PRINTED)


OUTPUT = EnvironmentOutput()
"""The output of this process's environments."""


@contextmanager
def no_native_output() -> Iterator[None]:
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
