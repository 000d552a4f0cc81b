"""The verb ``an-control distill TASK --out RUN``."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import tyro

from an_control.cli.common import OutputFile, OutputFolder, need, write_json
from an_control.cli.help import described, with_offers
from an_control.cli.terminal import ProgressLine, RunAtTerminal, explained
from an_control.learning.api.parts import Parts
from an_control.learning.api.student import DistillOptions, distill
from an_control.learning.command_line import command

PartOptions = Annotated[Parts, tyro.conf.arg(name="", constructor=described(Parts))]


@dataclass(frozen=True)
class Verb(DistillOptions):
    """Teach a permutation-invariant student what a teacher does.

    The same command continues a stopped run.
    """

    task: tyro.conf.Positional[str]
    out: OutputFolder
    parts: PartOptions = field(default_factory=Parts)
    json: OutputFile | None = None
    """Also write the rounds' figures here as JSON."""

    def run(self) -> int:
        """Train the student, print the model file and return the exit status."""
        need("train", "torch")
        if self.bag:
            need("record", "mcap")
        with RunAtTerminal(ProgressLine(command(self, "distill"))) as terminal:
            result = distill(self, terminal.progress)
        print(result.model)
        made = {"task": self.task, "seed": self.seed, "rounds": result.metrics}
        write_json(self.json, {**made, "model": str(result.model)})
        return 0


Verb.__doc__ = with_offers(explained(Verb.__doc__, "return", "validation", "undone", "failed"))
