"""The verb ``an-control learn ENV --out RUN``, which trains teacher, student and monitor."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

import tyro

from an_control.cli.common import (
    InputError,
    OutputFile,
    OutputFolder,
    WorkError,
    require_packages,
    write_json,
)
from an_control.cli.help import append_environment_attributes_help
from an_control.cli.terminal import PartBars, RunAtTerminal, append_progress_and_metrics_help
from an_control.learning.api.pipeline import PARTS, LearnOptions, learn
from an_control.learning.command_line import format_command
from an_control.learning.runs.progress import RunStoppedError
from an_control.system.environment_output import BrokenEnvironmentError
from an_control.system.interrupts import INTERRUPTED


@dataclass(frozen=True)
class LearnCommand(LearnOptions):
    """Train a policy for any gymnasium environment in all steps, from the teacher to the scores.

    A teacher is trained by its return; a permutation-invariant student learns to imitate it; a
    monitor learns to detect rewired sensors; a table of scores and a model card are written. Each
    step is also a verb: train-teacher, distill, train-monitor, evaluate --table. The same command
    continues a run that was stopped or killed.
    """

    task: tyro.conf.Positional[str]
    out: OutputFolder
    json: OutputFile | None = None
    """Also write the table here as JSON."""

    def run(self) -> int:
        """Run all steps, print the table and the model file, and return the exit status."""
        require_packages("train", "torch", "gymnasium")
        try:
            with PartBars(PARTS) as bars, RunAtTerminal(bars) as terminal:
                result = learn(self, terminal.report_progress)
        except BrokenEnvironmentError as failure:
            raise BrokenEnvironmentError(f"{failure}{self._existing_models_text}") from failure
        except (InputError, WorkError) as error:
            raise InputError(f"{error}{self._existing_models_text}") from error
        except (KeyboardInterrupt, RunStoppedError):
            with suppress(OSError):  # only an empty folder is removed
                self.out.rmdir()
            print(f"stopped; to continue: {format_command(self, 'learn')}")
            return INTERRUPTED
        print("\n".join([result.table, *result.notes, str(result.model)]))
        about = {"task": self.task, "seed": self.seed, "model": str(result.model)}
        write_json(self.json, {**about, "rows": result.rows, "notes": result.notes})
        return 0

    @property
    def _existing_models_text(self) -> str:
        """The end of an error text: the model files that exist already; "" if none does."""
        steps = [self.out / name / "model.safetensors" for name in ("teacher", "student")]
        made = [str(path) for path in (*steps, self.out / "model.safetensors") if path.exists()]
        return f"; kept: {', '.join(made)}" if made else ""


LearnCommand.__doc__ = append_environment_attributes_help(
    append_progress_and_metrics_help(
        LearnCommand.__doc__, "return", "validation", "undone", "learns", "failed"
    )
)
