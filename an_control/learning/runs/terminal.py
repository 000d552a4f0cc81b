"""A run at the terminal: its progress, and Ctrl-C or SIGTERM, which stop it after the step at hand.

Progress is one line, or whatever `displayed_by` puts in its place for the runs of a block.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

from an_control.learning.runs.run_loop import RunLoop

VALIDATION = ("validation", "validation_failed")
"""What is shown until the next validation."""


@runtime_checkable
class Timed(Protocol):
    """A learner that knows better than by its steps how much of the run is over."""

    @property
    def progress(self) -> float:
        """From 0 to 1."""


class Display(Protocol):
    """Shows one run."""

    def show(self, line: dict[str, Any]) -> None:
        """A step's metrics line."""

    def stopping(self, unit: str) -> None:
        """The run stops after the step at hand."""


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

    def stop(*_: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(True)
        display.stopping(unit)

    def report(line: dict[str, Any]) -> bool:
        display.show(line)
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
        self._loop, self._unit, self._every_s = loop, loop.learner.unit, every_s
        self._first, self._began = progress_of(loop), time.monotonic()
        self._shown = -every_s
        self._validation: dict[str, Any] = {}
        """Figures of the last one."""

    def show(self, line: dict[str, Any]) -> None:
        """Show a metrics line, where it is time to, or where it is the last one."""
        now, done = time.monotonic(), line[self._unit]
        validation = {name: line[name] for name in VALIDATION if name in line}
        self._validation = validation or self._validation
        last, live = self._loop.finished, sys.stdout.isatty()
        if not (live or last or now - self._shown > self._every_s):
            return
        self._shown = now
        over = progress_of(self._loop)
        left_s = (now - self._began) / max(over - self._first, 1e-9) * (1.0 - over)
        known = line | self._validation
        figures = {k: v for k, v in known.items() if k not in (self._unit, "wall_s")}
        print(
            f"{chr(13) if live else ''}{self._unit} {done}/{self._loop.learner.steps}"
            f"  {shown(figures)}  {left_s / 60:.1f} min left ",
            end="\n" if last or not live else "",
            flush=True,
        )

    def stopping(self, unit: str) -> None:
        """Say that the run stops."""
        print(f"\nstops after this {unit} (Ctrl-C again: at once)", flush=True)


def shown(figures: dict[str, Any]) -> str:
    """The figures of a metrics line on one line."""
    return "  ".join(f"{name.replace('_', ' ')} {_number(v)}" for name, v in figures.items())


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
