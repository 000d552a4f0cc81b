"""A run at the terminal: shows its progress, and stops it after the present step on Ctrl-C.

SIGTERM stops it as well. Progress is one line, or for `learn` a bar for each part. It shows the
step, the remaining time, and the `FIGURES` of the newest step; `metrics.jsonl` has all figures.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from an_control.cli.common import InputError, WorkError
from an_control.learning.runs.progress import RunProgress
from an_control.policy.model_file import ModelError
from an_control.system.environment_output import OUTPUT
from an_control.wiring import WiringError

FIGURES = {
    "learns": "which network of the monitor is learned",
    "best": "highest return of this generation's candidates",
    "mean": "mean return of this generation's candidates",
    "return": "mean return of the episodes that were learned from, with their noise",
    "validation": "mean return of the newest policy in the validation episodes",
    "undone": "validation of this round's student, which became worse, so the best one continues",
    "failed": "episodes that failed and were left out",
    "validation_failed": "failed episodes of the validation",
    "note": "a restart of the search, and its reason",
}
"""The meaning of the figures of a metrics line that are shown while a run works."""
VALIDATION = ("validation", "validation_failed")
"""The figures that are shown until the next validation."""


def with_figures(text: str | None, *names: str) -> str:
    """Return a help text, completed by the meaning of these figures of the progress line."""
    said = "; ".join(f"{name.replace('_', ' ')}: {FIGURES[name]}" for name in names)
    return (
        f"{(text or '').rstrip()}\n\n    While it works, a line shows the step, how many there are"
        f" and the time that is left. {said}. The run's metrics.jsonl has all figures.\n    "
    )


class Display(Protocol):
    """A display of a run's progress."""

    def show(self, progress: RunProgress) -> None:
        """Show a report."""

    def note(self, text: str) -> None:
        """Print a sentence for the user."""


class RunAtTerminal:
    """A context in which `progress` shows runs, and a signal stops one after the present step.

    A second signal raises KeyboardInterrupt. Errors of runs are converted to those of a verb.

    Args:
        display: Shows the progress.
    """

    def __init__(self, display: Display) -> None:
        self._display = display
        self._unit = ""
        self._asked = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> RunAtTerminal:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from an_control.learning.rollout.engine import RolloutError
        from an_control.learning.runs.run_folder import RunError

        self._release_signals()
        if isinstance(error, RunError | RolloutError):
            raise WorkError(str(error)) from error
        if isinstance(error, ValueError) and not isinstance(error, ModelError | WiringError):
            raise InputError(" ".join(str(error).split())) from error  # torch's has several lines

    def progress(self, progress: RunProgress) -> bool:
        """Show a report; return False if the run should stop."""
        if progress.event == "begin" and progress.folder is not None:  # not a part of `learn`
            self._take_signals(progress.unit)
        elif progress.event == "end":
            self._release_signals()
        self._display.show(progress)
        for note in OUTPUT.notes():
            self._display.note(note)
        return not self._asked

    def _take_signals(self, unit: str) -> None:
        self._unit = unit
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers.setdefault(number, signal.signal(number, self._stop))

    def _release_signals(self) -> None:
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def _stop(self, *_: object) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        with OUTPUT.suspended():
            self._display.note(f"stops after this {self._unit} (Ctrl-C again: at once)")


class Clock:
    """An estimate of a run's remaining time.

    Args:
        progress: The first report of the run.
    """

    def __init__(self, progress: RunProgress) -> None:
        self._first, self._start_s = progress.share, time.monotonic()

    def left_s(self, progress: RunProgress) -> float | None:
        """Return the remaining seconds, or None if they are unknown.

        They are estimated from the pace since this command started, else from the run's limit.
        """
        over = progress.share
        if over > self._first:
            return (time.monotonic() - self._start_s) / (over - self._first) * (1.0 - over)
        return 60.0 * progress.minutes_left if progress.minutes_left < float("inf") else None

    def line(self, progress: RunProgress) -> str:
        """Return the present step, the number of steps, and the remaining time, as text."""
        left_s = self.left_s(progress)
        number = max(1, progress.done)
        step = f"{progress.unit} {number}"
        if progress.steps < sys.maxsize:
            about = "about " if progress.minutes_left < 1e9 else ""
            step = f"{step} of {about}{max(number, progress.steps)}"
        return step if left_s is None else f"{step}, {duration(left_s)} left"


def duration(seconds: float) -> str:
    """Return a duration as text: 40 s, 3 min, 2 h 05 min."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60.0)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


def is_live() -> bool:
    """Return whether standard output is a terminal on which a line can be overwritten."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class ProgressLine:
    """A line that is overwritten on a terminal; elsewhere a new line every few seconds.

    Args:
        command: The command that continues the run; None if its folder is not kept.
        every_s: Seconds between two lines if the output is no terminal.
    """

    def __init__(self, command: str | None, every_s: float = 10.0) -> None:
        self._command, self._every_s = command, every_s
        self._shown = -every_s
        self._validation: dict[str, Any] = {}
        """The figures of the last validation."""
        self._open = False
        """Whether the cursor is behind a line that is to be overwritten."""

    def show(self, progress: RunProgress) -> None:
        """Show a report: a metrics line if it is time for one, or the last line."""
        if progress.event == "note":
            self.note(progress.note)
        elif progress.event == "begin":
            self._begin(progress)
        elif progress.event == "step":
            self._step(progress)
        elif not progress.finished:
            how = "it is lost" if self._command is None else f"to continue: {self._command}"
            print(f"stopped after {progress.unit} {progress.done} of {progress.steps}; {how}")

    def note(self, text: str) -> None:
        """Print a sentence above the line."""
        print(f"{chr(10) if self._open else ''}{text}", flush=True)
        self._open = False

    def _begin(self, progress: RunProgress) -> None:
        if progress.done:
            of = f"{progress.done} of {progress.steps} {progress.unit}s"
            print(f"{progress.folder}: {of} were done before")
        self._clock = Clock(progress)
        if not progress.finished:
            self._print(self._clock.line(progress), last=False)

    def _step(self, progress: RunProgress) -> None:
        now, line = time.monotonic(), progress.figures
        validation = {name: line[name] for name in VALIDATION if name in line}
        self._validation = validation or self._validation
        if not (is_live() or progress.finished or now - self._shown > self._every_s):
            return
        self._shown = now
        figures = format_figures({**line, **self._validation})
        self._print(f"{self._clock.line(progress)}  {figures}", progress.finished)

    def _print(self, text: str, last: bool) -> None:
        if not is_live():
            print(text.rstrip(), flush=True)
            return
        width = shutil.get_terminal_size().columns - 1
        self._open = not last
        print(f"{chr(13)}{text[:width]:{width}}", end="\n" if last else "", flush=True)


class PartBars:
    """A context that shows a bar for each part of `learn`; without a terminal, a line at times.

    Args:
        parts: The names of the parts.
        every_s: Seconds between two lines if the output is no terminal.
    """

    def __init__(self, parts: Sequence[str], every_s: float = 30.0) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._console = Console(file=sys.stdout)
        self._every_s, self._live = every_s, self._console.is_terminal and is_live()
        self._bars = Bars(
            "{task.description:<8}",
            BarColumn(),
            "{task.percentage:3.0f}%",
            TimeElapsedColumn(),
            TextColumn("{task.fields[about]}"),
            console=self._console,
            disable=not self._live,
        )
        self._tasks = {
            part: self._bars.add_task(part, total=1.0, start=False, about="") for part in parts
        }
        self._said_s = 0.0
        self._figures: dict[str, Any] = {}

    def __enter__(self) -> PartBars:
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def show(self, progress: RunProgress) -> None:
        """Show a report: the start or end of a part, or its progress."""
        if progress.event == "note":
            self.note(progress.note)
        elif progress.unit == "part" and progress.event == "begin":
            self._said_s, self._figures = 0.0, {}
            self._bars.start()
            self._bars.start_task(self._tasks[progress.part])
            self._bars.update(self._tasks[progress.part], completed=0.0, about="")
        elif progress.unit == "part":
            self._said_s = 0.0
            self._update(progress.part, 1.0, progress.note)
            self._bars.stop_task(self._tasks[progress.part])
        elif progress.unit == "row":
            self._update(progress.part, progress.share, progress.note)
        elif progress.event == "begin":
            self._clock = Clock(progress)
            if not progress.finished:
                self._update(progress.part, progress.share, self._clock.line(progress))
        elif progress.event == "step":
            self._figures |= progress.figures
            about = f"{self._clock.line(progress)}  {format_figures(self._figures)}"
            self._update(progress.part, progress.share, about)

    def note(self, text: str) -> None:
        """Print a sentence for the user."""
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def _update(self, part: str, share: float, about: str) -> None:
        self._bars.update(self._tasks[part], completed=share, about=about)
        now = time.monotonic()
        if not self._live and now - self._said_s > self._every_s:
            self._said_s = now
            self.note(f"{part} {share:.0%}  {about}".rstrip())


def format_figures(line: Mapping[str, Any]) -> str:
    """Return the `FIGURES` of a metrics line as text on one line."""
    there = {name: line[name] for name in FIGURES if name in line}
    if not there.get("failed"):
        there.pop("failed", None)
    return "  ".join(f"{name.replace('_', ' ')} {_number(v)}" for name, v in there.items())


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
