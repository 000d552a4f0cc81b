"""One progress display for the steps of ``an-control learn``: a bar each, by rich."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from an_control.learning.runs.run_loop import RunLoop
from an_control.learning.runs.terminal import progress_of, shown

EVERY_S = 30.0
"""Between two lines where there is no terminal."""
FIGURES = ("validation", "return", "identified", "loss")
"""What a step's bar shows of its metrics lines."""


class Steps:
    """A context in which each step has a bar; on no terminal, lines now and then."""

    def __init__(self, names: Sequence[str]) -> None:
        self.console = Console(file=sys.stdout)  # a run prints to another one
        columns = "{task.description:<8}", BarColumn(), "{task.percentage:3.0f}%"
        self._progress = Progress(
            *columns,
            TimeElapsedColumn(),
            TextColumn("{task.fields[about]}"),
            console=self.console,
            disable=not self.console.is_terminal,
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
        self.update(0.0, "")

    def end(self, about: str) -> None:
        """The step is over; what came of it."""
        self._said = 0.0
        self.update(1.0, about)
        self._progress.stop_task(self._tasks[self._name])

    def update(self, over: float, about: str) -> None:
        """How much of the step is over, from 0 to 1, and its newest figures."""
        self._progress.update(self._tasks[self._name], completed=over, about=about)
        now = time.monotonic()
        if not self.console.is_terminal and now - self._said > EVERY_S:
            self._said = now
            self.console.print(f"{self._name} {over:.0%}  {about}".rstrip(), soft_wrap=True)

    def display(self, loop: RunLoop) -> RunDisplay:
        """What shows the run of the step at hand."""
        return RunDisplay(self, loop)


class RunDisplay:
    """A run as the bar of its step."""

    def __init__(self, steps: Steps, loop: RunLoop) -> None:
        self._steps, self._loop = steps, loop
        self._figures: dict[str, Any] = {}

    def show(self, line: dict[str, Any]) -> None:
        self._figures |= {name: line[name] for name in FIGURES if name in line}
        unit = self._loop.learner.unit
        about = f"{unit} {line[unit]}  {shown(self._figures)}"
        self._steps.update(progress_of(self._loop), about)

    def stopping(self, unit: str) -> None:
        self._steps.console.print(f"stops after this {unit} (Ctrl-C again: at once)")
