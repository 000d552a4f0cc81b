"""A run at the terminal: its progress, and Ctrl-C or SIGTERM, which stop it after the step at hand.

Progress is one line, or whatever `displayed_by` puts in its place for the runs of a block. It names
the step, the time that is left, and the `FIGURES` of the newest step; `metrics.jsonl` has all.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

from an_control.learning.runs.run_loop import RunLoop
from an_control.system.environment_output import OUTPUT

FIGURES = {
    "learns": "which network of the monitor is learned",
    "best": "highest return of this generation's candidates",
    "mean": "mean return of this generation's candidates",
    "return": "mean return of the episodes that were learned from, with their noise",
    "validation": "mean return of the newest policy in the validation episodes",
    "undone": "validation of this round's student, which unlearned, so that the best one continues",
    "failed": "episodes that failed and were left out",
    "validation_failed": "failed episodes of the validation",
    "note": "a search that began again, and why",
}
"""What a metrics line's figures mean that are shown while a run works."""
VALIDATION = ("validation", "validation_failed")
"""What is shown until the next validation."""


def explained(text: str | None, *names: str) -> str:
    """Return a command's help with what its progress line shows, by the names of the figures."""
    said = "; ".join(f"{name.replace('_', ' ')}: {FIGURES[name]}" for name in names)
    return (
        f"{(text or '').rstrip()}\n\n    While it works, a line shows the step, how many there are"
        f" and the time that is left. {said}. The run's metrics.jsonl has all figures.\n    "
    )


@runtime_checkable
class Timed(Protocol):
    """A learner that knows better than by its steps how much of the run is over."""

    @property
    def progress(self) -> float:
        """From 0 to 1."""


class Display(Protocol):
    """Shows one run."""

    def begin(self) -> None:
        """The first step begins."""

    def show(self, line: dict[str, Any]) -> None:
        """A step's metrics line."""

    def note(self, text: str) -> None:
        """A sentence for the user."""

    def stopping(self, unit: str) -> None:
        """The run stops after the step at hand."""


@runtime_checkable
class Limited(Protocol):
    """A learner whose time is limited."""

    @property
    def minutes_left(self) -> float:
        """Processor time that it may take yet, in minutes; infinite where nothing limits it."""


class Clock:
    """Estimates how long a run will take yet."""

    def __init__(self, loop: RunLoop) -> None:
        self._loop, self._first, self._start_s = loop, progress_of(loop), time.monotonic()

    def left_s(self) -> float | None:
        """Seconds that are left: by the pace since this command began, else by the run's limit;
        None where neither is known."""
        over = progress_of(self._loop)
        if over > self._first:
            return (time.monotonic() - self._start_s) / (over - self._first) * (1.0 - over)
        learner = self._loop.learner
        left = learner.minutes_left if isinstance(learner, Limited) else float("inf")
        return 60.0 * left if left < float("inf") else None

    def line(self) -> str:
        """Return the step that is next or newest, of how many, and the time that is left."""
        loop, left_s = self._loop, self.left_s()
        learner = loop.learner
        number = max(1, loop.done)
        if learner.steps < sys.maxsize:
            about = "about " if isinstance(learner, Limited) and learner.minutes_left < 1e9 else ""
            step = f"{learner.unit} {number} of {about}{max(number, learner.steps)}"
        else:
            step = f"{learner.unit} {number}"
        return step if left_s is None else f"{step}, {duration(left_s)} left"


def duration(seconds: float) -> str:
    """Return a time as one says it: 40 s, 3 min, 2 h 05 min."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60.0)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


def is_live() -> bool:
    """Return whether standard output is a terminal on which a line can be written over."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


def progress_of(loop: RunLoop) -> float:
    """How much of a run is over, from 0 to 1."""
    learner = loop.learner
    return learner.progress if isinstance(learner, Timed) else loop.done / max(1, learner.steps)


def run_at_terminal(loop: RunLoop, command: str | None, stop_after: int | None = None) -> bool:
    """Run what is left of `loop`; False where Ctrl-C or SIGTERM ended it early.

    `command` continues the run, None where its folder is not kept. A second signal raises
    KeyboardInterrupt.
    """
    unit = loop.learner.unit
    if loop.done:
        print(f"{loop.folder.path}: {loop.done} of {loop.learner.steps} {unit}s were done before")
    asked: list[bool] = []
    display = _display.get()(loop)
    if not loop.finished:
        display.begin()

    def stop(*_: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(True)
        with OUTPUT.suspended():
            display.stopping(unit)

    def report(line: dict[str, Any]) -> bool:
        display.show(line)
        for note in OUTPUT.notes():
            display.note(note)
        return not asked

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        loop.run(report, stop_after)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if not loop.finished:
        how = "it is lost" if command is None else f"to continue: {command}"
        print(f"stopped after {unit} {loop.done} of {loop.learner.steps}; {how}")
    return loop.finished or not asked


class Progress:
    """One line that is written over, on a terminal; elsewhere a line every few seconds."""

    def __init__(self, loop: RunLoop, every_s: float = 10.0) -> None:
        self._loop, self._every_s, self._clock = loop, every_s, Clock(loop)
        self._shown = -every_s
        self._validation: dict[str, Any] = {}
        """Figures of the last one."""
        self._open = False
        """Whether the cursor stands behind a line that is to be written over."""

    def begin(self) -> None:
        """Show what there is to do."""
        self._print(self._clock.line(), last=False)

    def show(self, line: dict[str, Any]) -> None:
        """Show a metrics line, where it is time to, or where it is the last one."""
        now = time.monotonic()
        validation = {name: line[name] for name in VALIDATION if name in line}
        self._validation = validation or self._validation
        last = self._loop.finished
        if not (is_live() or last or now - self._shown > self._every_s):
            return
        self._shown = now
        self._print(f"{self._clock.line()}  {shown(line | self._validation)}", last)

    def note(self, text: str) -> None:
        """Print a sentence above the line."""
        print(f"{chr(10) if self._open else ''}{text}", flush=True)
        self._open = False

    def stopping(self, unit: str) -> None:
        """Say that the run stops."""
        self.note(f"stops after this {unit} (Ctrl-C again: at once)")

    def _print(self, text: str, last: bool) -> None:
        if not is_live():
            print(text.rstrip(), flush=True)
            return
        width = shutil.get_terminal_size().columns - 1
        self._open = not last
        print(f"{chr(13)}{text[:width]:{width}}", end="\n" if last else "", flush=True)


def shown(line: dict[str, Any]) -> str:
    """The `FIGURES` of a metrics line on one line."""
    there = {name: line[name] for name in FIGURES if name in line}
    if not there.get("failed"):
        there.pop("failed", None)
    return "  ".join(f"{name.replace('_', ' ')} {_number(v)}" for name, v in there.items())


@contextmanager
def displayed_by(display: Callable[[RunLoop], Display]) -> Iterator[None]:
    """In this block `display` makes what shows a run."""
    token = _display.set(display)
    try:
        yield
    finally:
        _display.reset(token)


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


_display: ContextVar[Callable[[RunLoop], Display]] = ContextVar("display", default=Progress)
