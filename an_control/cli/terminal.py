"""Show the progress of a training run in the terminal, and stop the run on Ctrl-C or SIGTERM.

A run that is stopped first completes its present step. The progress is shown as one line, or for
`learn` as one bar for each part. The line shows the step, the remaining time, and those metrics of
the newest step that `FIGURES` lists. The file `metrics.jsonl` of the run holds all metrics.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from an_control.cli.common import InputError, WorkError
from an_control.learning.runs.progress import RunProgress
from an_control.policy.model_file import ModelError
from an_control.system.environment_output import OUTPUT
from an_control.wiring import WiringError

FIGURES = {
    "learns": "which network of the monitor is learned",
    "best": "highest return of this generation's candidates, which is partly luck",
    "mean": "mean return of this generation's candidates",
    "return": "mean return of the episodes that were learned from, with their noise",
    "validation": "mean return of the newest policy in the validation episodes (the model is the"
    " policy with the highest, which is partly luck: new episodes return less on average)",
    "undone": "validation of a student that was discarded as worse than the best one",
    "failed": "episodes that failed and were left out",
    "validation_failed": "failed episodes of the validation",
    "note": "a restart of the search, and its reason",
}
"""A mapping from each metric that is shown while a run works to the meaning of the metric."""
VALIDATION = ("validation", "validation_failed")
"""Metrics that remain visible until the next validation."""
LINE_S, PART_LINE_S = 10.0, 30.0
"""Seconds between two lines of a run, and of `learn`, if the output is not a terminal."""


def append_progress_and_metrics_help(help_text: str | None, *metric_names: str) -> str:
    """Append an explanation of a training run's progress line and its metrics to a help text.

    Args:
        help_text: The help text, to which the explanation is added; None for no text.
        *metric_names: Names of the metrics, which are keys of `FIGURES`.
    """
    said = "; ".join(f"{name.replace('_', ' ')}: {FIGURES[name]}" for name in metric_names)
    return (
        f"{(help_text or '').rstrip()}\n\n    While it works, a line shows step, number of steps"
        f" and remaining time. {said}. The run's metrics.jsonl has all figures.\n    "
    )


class RunAtTerminal:
    """Context in which a run shows its progress and can be stopped by Ctrl-C or SIGTERM.

    Pass the method `report_progress` to the run as the argument `progress`. The first signal stops
    the run after its current step. A second signal raises KeyboardInterrupt at once. An error that
    the run raises becomes an error of the verb, which is printed in one line.

    Args:
        display: Shows the progress.
    """

    def __init__(self, display: ProgressLine | PartBars) -> None:
        self._display = display
        self._unit = ""
        self._asked = False
        self._handlers: dict[int, Any] = {}

    def __enter__(self) -> RunAtTerminal:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        from an_control.learning.rollout.engine import RolloutError
        from an_control.learning.runs.run_folder import RunError

        self._restore_signal_handlers()
        if isinstance(error, RunError | RolloutError):
            raise WorkError(str(error)) from error
        if isinstance(error, ValueError) and not isinstance(error, ModelError | WiringError):
            raise InputError(" ".join(str(error).split())) from error  # torch's has several lines

    def report_progress(self, progress: RunProgress) -> bool:
        """Show a progress report, and return False if the run must stop, as after Ctrl-C."""
        if progress.event == "begin" and progress.folder is not None:  # not a part of `learn`
            self._install_signal_handlers(progress.unit)
        elif progress.event == "end":
            self._restore_signal_handlers()
        self._display.show_progress(progress)
        for note in OUTPUT.pop_new_notes():
            self._display.print_note(note)
        return not self._asked

    def _install_signal_handlers(self, unit: str) -> None:
        """Install handlers of SIGINT and SIGTERM that stop the run."""
        self._unit = unit
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers.setdefault(number, signal.signal(number, self._handle_signal))

    def _restore_signal_handlers(self) -> None:
        """Restore the previous handlers of SIGINT and SIGTERM."""
        while self._handlers:
            signal.signal(*self._handlers.popitem())

    def _handle_signal(self, *_: object) -> None:
        """Stop the run after its current step at the first signal, at once at the second."""
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        with OUTPUT.suspend_capture():
            self._display.print_note(f"stops after this {self._unit} (Ctrl-C again: at once)")


class RemainingTimeEstimate:
    """Estimate of how long a training run will still take.

    Args:
        progress: First report of the run, from which on the pace is measured.
    """

    def __init__(self, progress: RunProgress) -> None:
        self._first, self._start_s = progress.share, time.monotonic()

    def estimate_remaining_s(self, progress: RunProgress) -> float | None:
        """Return the remaining time in seconds, or None if it is unknown.

        It is estimated from the run's pace since the first report. Until the run has made progress,
        it is the time that is left until the run's time limit, if it has one.

        Args:
            progress: Newest report of the run.
        """
        over = progress.share
        if over > self._first:
            return (time.monotonic() - self._start_s) / (over - self._first) * (1.0 - over)
        return 60.0 * progress.minutes_left if progress.minutes_left < float("inf") else None

    def format_step_and_time_left(self, progress: RunProgress) -> str:
        """Return a text such as "round 3 of 20, 5 min left".

        Args:
            progress: Newest report of the run.
        """
        left_s = self.estimate_remaining_s(progress)
        number = max(1, progress.done)
        step = f"{progress.unit} {number}"
        if progress.steps < sys.maxsize:
            about = "about " if progress.minutes_left < 1e9 else ""
            step = f"{step} of {about}{max(number, progress.steps)}"
        return step if left_s is None else f"{step}, {format_duration(left_s)} left"


def format_duration(seconds: float) -> str:
    """Return a duration in seconds as text such as 40 s, 3 min or 2 h 05 min."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60.0)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60:02} min"


def is_output_terminal() -> bool:
    """Return whether standard output is a terminal on which a line can be overwritten."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class ProgressLine:
    """Display of a run's progress in one line, which is overwritten again and again.

    If the output is not a terminal, a new line is printed every few seconds instead.

    Args:
        command: Command that continues the run, for the message after a stop; None if the run
            cannot be continued.
    """

    def __init__(self, command: str | None) -> None:
        self._command = command
        self._shown = -LINE_S
        self._validation: dict[str, Any] = {}
        """Metrics of the newest validation."""
        self._open = False
        """Whether the cursor is at the end of a line that the next print will overwrite."""

    def show_progress(self, progress: RunProgress) -> None:
        """Show a report of the run: its start, a step, a note or its end.

        If the output is not a terminal, most steps are not shown.
        """
        if progress.event == "note":
            self.print_note(progress.note)
        elif progress.event == "begin":
            self._show_start(progress)
        elif progress.event == "step":
            self._show_step(progress)
        elif not progress.finished:
            how = "it is lost" if self._command is None else f"to continue: {self._command}"
            print(f"stopped after {progress.unit} {progress.done} of {progress.steps}; {how}")

    def print_note(self, text: str) -> None:
        """Print a sentence for the user on a line of its own."""
        print(f"{chr(10) if self._open else ''}{text}", flush=True)
        self._open = False

    def _show_start(self, progress: RunProgress) -> None:
        """Begin to measure the run's pace, and show at which step it begins.

        If an earlier call of the command has done steps of the run, their number is printed.
        """
        if progress.done:
            of = f"{progress.done} of {progress.steps} {progress.unit}s"
            print(f"{progress.folder}: {of} were done before")
        self._clock = RemainingTimeEstimate(progress)
        if not progress.finished:
            self._print_line(self._clock.format_step_and_time_left(progress), end_line=False)

    def _show_step(self, progress: RunProgress) -> None:
        """Show the metrics of a step in the progress line.

        If the output is not a terminal, a step is left out within `LINE_S` seconds after the
        previous line, unless it is the last one.
        """
        now, line = time.monotonic(), progress.figures
        validation = {name: line[name] for name in VALIDATION if name in line}
        self._validation = validation or self._validation
        if not (is_output_terminal() or progress.finished or now - self._shown > LINE_S):
            return
        self._shown = now
        figures = format_metrics({**line, **self._validation})
        self._print_line(
            f"{self._clock.format_step_and_time_left(progress)}  {figures}", progress.finished
        )

    def _print_line(self, text: str, end_line: bool) -> None:
        """Print the progress line over the previous one."""
        if not is_output_terminal():
            print(text.rstrip(), flush=True)
            return
        width = shutil.get_terminal_size().columns - 1
        self._open = not end_line
        print(f"{chr(13)}{text[:width]:{width}}", end="\n" if end_line else "", flush=True)


class PartBars:
    """Context that displays the progress of `learn`, with one bar for each of its parts.

    If the output is not a terminal, it prints lines instead.

    Args:
        parts: Names of the parts, such as "teacher".
    """

    def __init__(self, parts: Sequence[str]) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as Bars

        self._console = Console(file=sys.stdout)
        self._live = self._console.is_terminal and is_output_terminal()
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

    def show_progress(self, progress: RunProgress) -> None:
        """Show the start, the progress or the end of one part of `learn`."""
        if progress.event == "note":
            self.print_note(progress.note)
        elif progress.unit == "part" and progress.event == "begin":
            self._said_s, self._figures = 0.0, {}
            self._bars.start()
            self._bars.start_task(self._tasks[progress.part])
            self._bars.update(self._tasks[progress.part], completed=0.0, about="")
        elif progress.unit == "part":
            self._said_s = 0.0
            self._update_bar(progress.part, 1.0, progress.note)
            self._bars.stop_task(self._tasks[progress.part])
        elif progress.unit == "row":
            self._update_bar(progress.part, progress.share, progress.note)
        elif progress.event == "begin":
            self._clock = RemainingTimeEstimate(progress)
            if not progress.finished:
                self._update_bar(
                    progress.part, progress.share, self._clock.format_step_and_time_left(progress)
                )
        elif progress.event == "step":
            self._figures |= progress.figures
            step = self._clock.format_step_and_time_left(progress)
            about = f"{step}  {format_metrics(self._figures)}"
            self._update_bar(progress.part, progress.share, about)

    def print_note(self, text: str) -> None:
        """Print a sentence for the user."""
        self._console.print(text, soft_wrap=True, markup=False, highlight=False)

    def _update_bar(self, part: str, share: float, text: str) -> None:
        """Set the length and the text of the bar of a part.

        If the output is not a terminal, print a line instead, unless one was printed too recently.
        """
        self._bars.update(self._tasks[part], completed=share, about=text)
        now = time.monotonic()
        if not self._live and now - self._said_s > PART_LINE_S:
            self._said_s = now
            self.print_note(f"{part} {share:.0%}  {text}".rstrip())


def format_metrics(metrics: Mapping[str, Any]) -> str:
    """Format the metrics of a training step as text, such as "return 41.5  validation 38".

    Args:
        metrics: Metrics of the step, by name; only those with a name in `FIGURES` are shown.
    """
    there = {name: metrics[name] for name in FIGURES if name in metrics}
    if not there.get("failed"):
        there.pop("failed", None)
    return "  ".join(f"{name.replace('_', ' ')} {_format_number(v)}" for name, v in there.items())


def _format_number(value: Any) -> str:
    """Return a value as text, with four significant digits if it is a float."""
    return f"{value:.4g}" if isinstance(value, float) else str(value)
