"""The verb ``an-control train TASK --out RUN``."""

from __future__ import annotations

from dataclasses import dataclass, field

import tyro

from an_control.cli.common import OutputFile, OutputFolder, require_packages, write_json
from an_control.cli.distill import PartOptions
from an_control.cli.help import append_environment_attributes_help
from an_control.cli.terminal import ProgressLine, RunAtTerminal, append_progress_and_metrics_help
from an_control.learning.api.evolution import EvolveOptions, evolve
from an_control.learning.api.parts import PolicyParts
from an_control.learning.command_line import format_command
from an_control.learning.runs.progress import RunProgress


@dataclass(frozen=True)
class TrainCommand(EvolveOptions):
    """Search for a policy with a high return by CMA-ES or PGPE.

    The same command continues a stopped run.
    """

    task: tyro.conf.Positional[str]
    out: OutputFolder
    parts: PartOptions = field(default_factory=PolicyParts)
    json: OutputFile | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        """Search for a policy, print its evaluation and model file, and return the exit status."""
        require_packages("train", "gymnasium", "cma", "numba")
        with RunAtTerminal(ProgressLine(format_command(self, "train"))) as terminal:

            def show_progress_or_evaluation(progress: RunProgress) -> bool:
                """Show the progress or a finished evaluation; return False to stop the run."""
                if progress.unit != "evaluation":
                    return terminal.report_progress(progress)
                row = progress.figures
                share = row.get("success_share")
                more = "" if share is None else f"  success share {share}"
                more += f"  {row['failed']} episodes failed" if "failed" in row else ""
                print(f"{row['protocol']}: {row['mean']}, standard deviation {row['sd']}{more}")
                return True

            result = evolve(self, show_progress_or_evaluation)
        print(result.model)
        made = {"task": self.task, "seed": self.seed, "model": str(result.model)}
        figures = {"evaluations": result.evaluations, "metrics": result.metrics}
        write_json(self.json, {**made, **figures})
        return 0


TrainCommand.__doc__ = append_environment_attributes_help(
    append_progress_and_metrics_help(
        TrainCommand.__doc__, "best", "mean", "validation", "failed", "validation_failed", "note"
    )
)
