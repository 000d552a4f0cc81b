"""The run loop of everything that learns: checkpoints, metrics, the best model, stopping.

A learner knows how to do one step and what its state is. The loop does the rest, in the same way
for all of them:

- after each step a line in `metrics.jsonl` and TensorBoard, and a call of `report`;
- `model.safetensors` is the model with the highest "validation" so far. Before the first one, and
  where a learner has none, each checkpoint comes with the newest model;
- a checkpoint every `save_every_s` seconds, with each model that is kept, and at the end. A run
  that is killed repeats the steps since then, to the same bits where steps do not follow a clock;
- a stop request (Ctrl-C, SIGTERM, `stop_after`) ends the run after the step at hand;
- a run whose first step fails leaves no settings, and no folder that was not there before.
"""

from __future__ import annotations

import math
import shutil
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import an_control
from an_control.learning.runs.card import Board, write_curve
from an_control.learning.runs.progress import OnProgress, Progress, RunStopped
from an_control.learning.runs.run_folder import CHECKPOINT, CheckpointError, RunError, RunFolder
from an_control.policy import Model, write_model

NO_FIGURES: Mapping[str, Any] = {}
Report = Callable[[dict[str, Any]], bool | None]
"""Gets each metrics line; False asks to stop."""


class Learner(Protocol):
    """What learns step by step; a step follows from the state before it alone."""

    unit: str
    """What a step is called: generation, round, iteration, stage."""

    @property
    def steps(self) -> int:
        """How many steps the whole run has; where time ends it, those done once it is over."""

    def step(self) -> dict[str, Any]:
        """One step; its figures. With "validation" among them, the largest one's model is kept."""

    def state(self) -> dict[str, Any]:
        """All that `restore` needs: arrays, tensors, numbers and text in dicts and lists."""

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state that a learner with the same settings gave."""

    def model(self, run: Mapping[str, Any]) -> Model:
        """The model as it is now; `trained` says how it was made, also by the run's figures."""


@runtime_checkable
class Timed(Protocol):
    """A learner that knows better than by its steps how much of the run is over."""

    @property
    def progress(self) -> float:
        """From 0 to 1."""


@runtime_checkable
class Limited(Protocol):
    """A learner whose time is limited."""

    @property
    def minutes_left(self) -> float:
        """Processor time that it may take yet, in minutes; infinite where nothing limits it."""


class RunLoop:
    """A learner in its folder, new or continued where the folder holds its run.

    RunError where the folder holds another run, or cannot be read.
    """

    save_every_s = 5.0

    def __init__(self, folder: RunFolder, learner: Learner) -> None:
        self.folder, self.learner = folder, learner
        self.done = 0
        """Steps that are done."""
        self._best, self._wall_s, self._cpu_s = -math.inf, 0.0, 0.0
        if (state := folder.last_checkpoint()) is not None:
            try:
                learner.restore(state["learner"])
            except CheckpointError as error:
                raise RunError(f"{folder.path / CHECKPOINT}: {error}") from error
            self.done, self._best = state["done"], state["best"]
            self._wall_s, self._cpu_s = state["wall_s"], state["cpu_s"]
        self.metrics = folder.metrics(self.done)

    @property
    def finished(self) -> bool:
        return self.done >= self.learner.steps

    @property
    def model_path(self) -> Path:
        return self.folder.path / "model.safetensors"

    def run(self, report: Report | None = None, stop_after: int | None = None) -> None:
        """The steps that are left, up to number `stop_after` or until `report` returns False.

        RunError where the disk refuses, or another process works in the folder; what a step raises
        passes through. All leave the last checkpoint.
        """
        made = not self.folder.path.exists()
        with self.folder.alone():
            self._run(report, stop_after, made)

    def _run(self, report: Report | None, stop_after: int | None, made: bool) -> None:
        """A folder that was `made` for this goes again where the first step fails."""
        board: Board | None = None
        saved, more = time.monotonic(), True
        try:
            while more and not self.finished and (stop_after is None or self.done < stop_after):
                line = self._step()
                if board is None:
                    self.folder.begin(self.metrics)
                    board = Board(self.folder, self.done - 1)
                else:
                    self.folder.add_metrics(line)
                kept = self._validated(line)
                board.add(line, self.learner.unit)
                if kept or time.monotonic() - saved >= self.save_every_s:
                    self._save()
                    saved = time.monotonic()
                more = report is None or report(line) is not False
        except BaseException:
            if board is None and made:
                shutil.rmtree(self.folder.path, ignore_errors=True)
            raise
        finally:
            if board is not None:
                board.close()
        if board is not None:
            self._save()
            write_curve(self.folder, self.metrics, self.learner.unit)

    def run_reported(self, progress: OnProgress) -> None:
        """Run the steps that are left and report them; RunStopped where `progress` says so."""
        stopped = False

        def report(line: dict[str, Any]) -> bool:
            nonlocal stopped
            stopped = progress(self._progress("step", line)) is False
            return not stopped

        progress(self._progress("begin"))
        self.run(report)
        progress(self._progress("end"))
        if stopped and not self.finished:
            raise RunStopped(self.folder.path)

    def _progress(
        self, event: Literal["begin", "step", "end"], line: Mapping[str, Any] = NO_FIGURES
    ) -> Progress:
        learner = self.learner
        share = self.done / max(1, learner.steps)
        return Progress(
            event,
            unit=learner.unit,
            done=self.done,
            steps=learner.steps,
            share=learner.progress if isinstance(learner, Timed) else share,
            minutes_left=learner.minutes_left if isinstance(learner, Limited) else math.inf,
            figures=line,
            folder=self.folder.path,
        )

    def model(self) -> Model:
        """The learner's model as it is now, with the run's figures."""
        run = {
            f"{self.learner.unit}s": self.done,
            "wall_s": round(self._wall_s, 1),
            "cpu_s": round(self._cpu_s, 1),
            "version": an_control.__version__,
        }
        return self.learner.model(run)

    def _step(self) -> dict[str, Any]:
        wall, cpu = time.perf_counter(), time.process_time()
        figures = self.learner.step()
        self.done += 1
        self._wall_s += time.perf_counter() - wall
        self._cpu_s += time.process_time() - cpu
        times = {"wall_s": round(self._wall_s, 2), "cpu_s": round(self._cpu_s, 2)}
        line = {self.learner.unit: self.done, **figures, **times}
        self.metrics.append(line)
        return line

    def _validated(self, line: Mapping[str, Any]) -> bool:
        """Keep the model that gave this line, if its validation is the best; whether it is."""
        best = "validation" in line and bool(line["validation"] >= self._best)
        if best:
            self._best = line["validation"]
            self._keep()
        return best

    def _keep(self) -> None:
        try:
            write_model(self.model_path, self.model())
        except OSError as error:
            raise RunError(str(error)) from error

    def _save(self) -> None:
        if self._best == -math.inf:
            self._keep()
        self.folder.checkpoint(
            {
                "learner": self.learner.state(),
                "done": self.done,
                "best": self._best,
                "wall_s": self._wall_s,
                "cpu_s": self._cpu_s,
            }
        )
