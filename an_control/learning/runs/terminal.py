"""A run at the terminal: a line of progress, and Ctrl-C, which stops it after the step at hand."""

from __future__ import annotations

import signal
import sys
import time
from typing import Any

from an_control.learning.runs.run_loop import RunLoop


def run_at_terminal(loop: RunLoop, command: str | None, stop_after: int | None = None) -> bool:
    """Run what is left of `loop`; False where Ctrl-C ended it early.

    `command` continues the run, None where its folder is not kept. A second Ctrl-C raises
    KeyboardInterrupt.
    """
    unit, steps = loop.learner.unit, loop.learner.steps
    if loop.done:
        print(f"{loop.folder.path}: {loop.done} of {steps} {unit}s were done before")
    asked: list[bool] = []

    def stop(*_: object) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(True)
        print(f"\nstops after this {unit} (Ctrl-C again: at once)", flush=True)

    progress = Progress(loop)

    def report(line: dict[str, Any]) -> bool:
        progress.show(line)
        return not asked

    before = signal.signal(signal.SIGINT, stop)
    try:
        loop.run(report, stop_after)
    finally:
        signal.signal(signal.SIGINT, before)
    if not loop.finished:
        how = "it is lost" if command is None else f"to continue: {command}"
        print(f"stopped after {unit} {loop.done} of {steps}; {how}")
    return loop.finished or not asked


class Progress:
    """One line that is written over, on a terminal; elsewhere a line every few seconds."""

    def __init__(self, loop: RunLoop, every_s: float = 10.0) -> None:
        self._unit, self._steps, self._every_s = loop.learner.unit, loop.learner.steps, every_s
        self._first, self._began = loop.done, time.monotonic()
        self._shown = -every_s
        self._validation: float | None = None

    def show(self, line: dict[str, Any]) -> None:
        """Show a metrics line, where it is time to, or where it is the last one."""
        now, done = time.monotonic(), line[self._unit]
        self._validation = line.get("validation", self._validation)
        last, live = done == self._steps, sys.stdout.isatty()
        if not (live or last or now - self._shown > self._every_s):
            return
        self._shown = now
        known = {"validation": self._validation} if self._validation is not None else {}
        left_s = (now - self._began) / (done - self._first) * (self._steps - done)
        figures = {k: v for k, v in (line | known).items() if k not in (self._unit, "wall_s")}
        shown = "  ".join(f"{name.replace('_', ' ')} {_number(v)}" for name, v in figures.items())
        print(
            f"{chr(13) if live else ''}{self._unit} {done}/{self._steps}  {shown}"
            f"  {left_s / 60:.1f} min left ",
            end="\n" if last or not live else "",
            flush=True,
        )


def _number(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
