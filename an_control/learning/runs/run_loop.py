"""Run a trainer step by step, save checkpoints, metrics and the best model, and stop on request.

A trainer is called a learner here. It defines what one step does, and what state it keeps between
steps. The loop does the rest, in the same way for all learners:

- After each step, the loop writes its metrics to `metrics.jsonl` and to TensorBoard, and
  passes them to the function `report`.
- `model.safetensors` is the model with the highest value of the metric "validation" so far. Before
  the first validation, it is replaced by the newest model at each checkpoint.
- A checkpoint is saved every `save_every_s` seconds, with each new best model, and at the end. A
  killed run repeats the steps after its checkpoint. The results are identical, unless what a
  step does depends on the clock.
- A request to stop (Ctrl-C, SIGTERM, `stop_after`) ends the run after the current step.
- If the first step of a run fails, no settings are written, and the folder is removed if it is new.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import an_control
from an_control.learning.runs.card import MetricsBoard, write_learning_curve
from an_control.learning.runs.progress import OnProgress, RunProgress, RunStoppedError
from an_control.learning.runs.run_folder import CHECKPOINT, CheckpointError, RunError, RunFolder
from an_control.policy import Model, write_model

NO_FIGURES: Mapping[str, Any] = {}
Report = Callable[[dict[str, Any]], bool | None]
"""Function that receives the metrics of each step. If it returns False, the run stops."""


class Learner(Protocol):
    """Interface of a trainer, an object that learns step by step.

    A step must depend only on the state before it, so that a run can be continued from a
    checkpoint.
    """

    unit: str
    """What one step is called: generation, round, iteration or stage."""

    @property
    def total_step_calls(self) -> int:
        """Return the number of steps of the whole run.

        If a time limit has ended the run, this is the number of finished steps.
        """

    def step(self) -> dict[str, Any]:
        """Make one step and return its metrics, by name.

        A step that validates the model adds its score as "validation". The run's model file holds
        the model with the highest score so far, or the newest model if there is no score yet.
        """

    def make_checkpoint(self) -> dict[str, Any]:
        """Return a state from which `restore` continues; see `pack_checkpoint` for its content."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that a learner with the same settings has made."""

    def make_model(self, run: Mapping[str, Any]) -> Model:
        """Return the current model.

        Args:
            run: Facts about the run, such as its number of steps, to store in the header of the
                model file.
        """


@runtime_checkable
class HasProgress(Protocol):
    """Interface of learners that measure the finished share of the run themselves."""

    @property
    def progress(self) -> float:
        """Return the finished share of the run, from 0 to 1."""


@runtime_checkable
class HasTimeLimit(Protocol):
    """Interface of learners with a time limit."""

    @property
    def minutes_left(self) -> float:
        """Return the processor time left in minutes; infinity if the run has no time limit."""


class RunLoop:
    """Loop that makes the steps of a learner and writes the files of the run.

    Args:
        folder: The run's folder.
        learner: The learner. If the folder has a checkpoint, the learner continues from it.

    Raises:
        RunError: The folder's checkpoint cannot be read.
    """

    save_every_s = 5.0

    def __init__(self, folder: RunFolder, learner: Learner) -> None:
        self.folder, self.learner = folder, learner
        self.done = 0
        """Number of finished steps."""
        self._best, self._wall_s, self._cpu_s = -math.inf, 0.0, 0.0
        if (state := folder.load_checkpoint()) is not None:
            try:
                learner.restore(state["learner"])
            except CheckpointError as error:
                raise RunError(f"{folder.path / CHECKPOINT}: {error}") from error
            self.done, self._best = state["done"], state["best"]
            self._wall_s, self._cpu_s = state["wall_s"], state["cpu_s"]
        self.metrics = folder.read_metrics_of_first_steps(self.done)

    @property
    def is_finished(self) -> bool:
        """Return whether all steps of the run are finished."""
        return self.done >= self.learner.total_step_calls

    @property
    def model_path(self) -> Path:
        """Return the path of the model file."""
        return self.folder.path / "model.safetensors"

    def run(self, report: Report | None = None, stop_after: int | None = None) -> None:
        """Make the steps of the run that are left.

        Args:
            report: Function that receives the metrics of each step. If it returns False, the run
                stops.
            stop_after: Number of the step after which to stop; None to make all steps.

        Raises:
            RunError: A file cannot be written, or another process works in the folder.
            Exception: Any error that a step raises.
        """
        made = not self.folder.path.exists()
        with self.folder.lock():
            self._run_in_locked_folder(report, stop_after, made)

    def _run_in_locked_folder(
        self, report: Report | None, stop_after: int | None, is_new: bool
    ) -> None:
        """Make the steps of the run that are left, in the locked folder."""
        board: MetricsBoard | None = None
        saved, more = time.monotonic(), True
        try:
            while more and not self.is_finished and (stop_after is None or self.done < stop_after):
                line = self._run_step_and_get_metrics()
                if board is None:
                    self.folder.write_settings_and_metrics(self.metrics)
                    board = MetricsBoard(self.folder, self.done - 1)
                else:
                    self.folder.append_metrics(line)
                kept = self._write_model_and_tell_if_best(line)
                board.add_metrics(line, self.learner.unit)
                if kept or time.monotonic() - saved >= self.save_every_s:
                    self._save_checkpoint()
                    saved = time.monotonic()
                more = report is None or report(line) is not False
        except BaseException:
            if board is None and is_new:
                shutil.rmtree(self.folder.path, ignore_errors=True)
            raise
        finally:
            if board is not None:
                board.close()
        if board is not None:
            self._save_checkpoint()
            write_learning_curve(self.folder, self.metrics, self.learner.unit)

    def run_remaining_steps(self, progress: OnProgress) -> None:
        """Make the steps of the run that are left, and report each.

        Args:
            progress: Function that receives a report before the first step, after each step, and at
                the end of the run.

        Raises:
            RunStoppedError: `progress` returned False after a step.
        """
        stopped = False

        def report_step_and_should_continue(line: dict[str, Any]) -> bool:
            nonlocal stopped
            stopped = progress(self._make_progress_report("step", line)) is False
            return not stopped

        progress(self._make_progress_report("begin"))
        self.run(report_step_and_should_continue)
        progress(self._make_progress_report("end"))
        if stopped and not self.is_finished:
            raise RunStoppedError(self.folder.path)

    def _make_progress_report(
        self, event: Literal["begin", "step", "end"], metrics: Mapping[str, Any] = NO_FIGURES
    ) -> RunProgress:
        """Return a progress report of the run as it is now."""
        learner = self.learner
        share = self.done / max(1, learner.total_step_calls)
        return RunProgress(
            event,
            unit=learner.unit,
            done=self.done,
            steps=learner.total_step_calls,
            share=learner.progress if isinstance(learner, HasProgress) else share,
            minutes_left=learner.minutes_left if isinstance(learner, HasTimeLimit) else math.inf,
            figures=metrics,
            folder=self.folder.path,
        )

    def make_model(self) -> Model:
        """Return the learner's current model, with the run's steps and duration in its header."""
        run = {
            f"{self.learner.unit}s": self.done,
            "wall_s": round(self._wall_s, 1),
            "cpu_s": round(self._cpu_s, 1),
            "version": an_control.__version__,
        }
        return self.learner.make_model(run)

    def _run_step_and_get_metrics(self) -> dict[str, Any]:
        """Make one step of the learner and return its metrics, with the run's duration so far."""
        wall, cpu = time.perf_counter(), time.process_time()
        figures = self.learner.step()
        self.done += 1
        self._wall_s += time.perf_counter() - wall
        self._cpu_s += time.process_time() - cpu
        times = {"wall_s": round(self._wall_s, 2), "cpu_s": round(self._cpu_s, 2)}
        line = {self.learner.unit: self.done, **figures, **times}
        self.metrics.append(line)
        return line

    def _write_model_and_tell_if_best(self, metrics: Mapping[str, Any]) -> bool:
        """Write the model file and return True if this step has the best "validation" so far."""
        best = "validation" in metrics and bool(metrics["validation"] >= self._best)
        if best:
            self._best = metrics["validation"]
            self._write_model()
        return best

    def _write_model(self) -> None:
        """Write the learner's current model into the run's folder."""
        try:
            write_model(self.model_path, self.make_model())
        except OSError as error:
            raise RunError(str(error)) from error

    def _save_checkpoint(self) -> None:
        """Save a checkpoint; also write the current model if no step has had a validation yet."""
        if self._best == -math.inf:
            self._write_model()
        self.folder.save_checkpoint(
            {
                "learner": self.learner.make_checkpoint(),
                "done": self.done,
                "best": self._best,
                "wall_s": self._wall_s,
                "cpu_s": self._cpu_s,
            }
        )
