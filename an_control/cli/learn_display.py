"""One progress display for the steps of ``an-control learn``: a bar each, by rich."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from an_control.learning.runs.run_loop import RunLoop
from an_control.learning.runs.terminal import Clock, is_live, progress_of, shown
from an_control.system.environment_output import OUTPUT

EVERY_S = 30.0
"""Between two lines where there is no terminal."""


class Steps:
    """A context in which each step has a bar; on no terminal, lines now and then."""

    def __init__(self, names: Sequence[str]) -> None:
        self.console = Console(file=sys.stdout)  # a run prints to another one
        self._live = self.console.is_terminal and is_live()
        columns = "{task.description:<8}", BarColumn(), "{task.percentage:3.0f}%"
        self._progress = Progress(
            *columns,
            TimeElapsedColumn(),
            TextColumn("{task.fields[about]}"),
            console=self.console,
            disable=not self._live,
        )
        self._tasks: dict[str, TaskID] = {
            name: self._progress.add_task(name, total=1.0, start=False, about="") for name in names
        }
        self._name, self._said = "", 0.0

    def __enter__(self) -> Steps:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def begin(self, name: str) -> None:
        """The next step."""
        self._name, self._said = name, 0.0
        self._progress.start_task(self._tasks[name])
        self._progress.update(self._tasks[name], completed=0.0, about="")

    def end(self, about: str) -> None:
        """The step is over; what came of it."""
        self._said = 0.0
        self.update(1.0, about)
        self._progress.stop_task(self._tasks[self._name])

    def update(self, over: float, about: str) -> None:
        """How much of the step is over, from 0 to 1, and what there is to say of it."""
        self._progress.update(self._tasks[self._name], completed=over, about=about)
        now = time.monotonic()
        if not self._live and now - self._said > EVERY_S:
            self._said = now
            self.note(f"{self._name} {over:.0%}  {about}".rstrip())
        for note in OUTPUT.notes():
            self.note(note)

    def note(self, text: str) -> None:
        """Print a sentence for the user."""
        self.console.print(text, soft_wrap=True, markup=False, highlight=False)

    def display(self, loop: RunLoop) -> RunDisplay:
        """What shows the run of the step at hand."""
        return RunDisplay(self, loop)


class RunDisplay:
    """A run as the bar of its step."""

    def __init__(self, steps: Steps, loop: RunLoop) -> None:
        self._steps, self._loop, self._clock = steps, loop, Clock(loop)
        self._figures: dict[str, Any] = {}

    def begin(self) -> None:
        self._steps.update(progress_of(self._loop), self._clock.line())

    def show(self, line: dict[str, Any]) -> None:
        self._figures |= line
        about = f"{self._clock.line()}  {shown(self._figures)}"
        self._steps.update(progress_of(self._loop), about)

    def note(self, text: str) -> None:
        self._steps.note(text)

    def stopping(self, unit: str) -> None:
        self._steps.note(f"stops after this {unit} (Ctrl-C again: at once)")
