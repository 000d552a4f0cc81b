"""The verb ``an-control distill TASK --out RUN``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from an_control.cli.common import OutputFile, OutputFolder, require_packages, write_json
from an_control.cli.help import add_help_texts, append_environment_attributes_help
from an_control.cli.terminal import ProgressLine, RunAtTerminal, append_progress_and_metrics_help
from an_control.learning.api.parts import PolicyParts
from an_control.learning.api.student import DistillOptions, distill
from an_control.learning.command_line import format_command

PartOptions = Annotated[
    PolicyParts, tyro.conf.arg(name="", constructor=add_help_texts(PolicyParts))
]


@dataclass(frozen=True)
class DistillCommand(DistillOptions):
    """Train a permutation-invariant student to imitate a teacher's actions (DAgger).

    The same command continues a stopped run.
    """

    task: tyro.conf.Positional[str]
    out: OutputFolder
    parts: PartOptions = field(default_factory=PolicyParts)
    json: OutputFile | None = None
    """Also write the metrics of each round here as JSON."""

    def run(self) -> int:
        """Train the student, print the model file's path and return the exit status."""
        require_packages("train", "torch")
        if self.bag:
            require_packages("record", "mcap")
        with RunAtTerminal(ProgressLine(format_command(self, "distill"))) as terminal:
            result = distill(self, terminal.report_progress)
        print(result.model)
        made = {"task": self.task, "seed": self.seed, "rounds": result.metrics}
        write_json(self.json, {**made, "model": str(result.model)})
        return 0


DistillCommand.__doc__ = append_environment_attributes_help(
    append_progress_and_metrics_help(
        DistillCommand.__doc__, "return", "validation", "undone", "failed"
    )
)
