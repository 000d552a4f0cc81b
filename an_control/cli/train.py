"""The verb ``an-control train TASK --out RUN``."""

from __future__ import annotations

from dataclasses import dataclass, field

import tyro

from an_control.cli.common import OutputFile, OutputFolder, need, write_json
from an_control.cli.distill import PartOptions
from an_control.cli.help import with_offers
from an_control.cli.terminal import ProgressLine, RunAtTerminal, explained
from an_control.learning.api.evolution import EvolveOptions, evolve
from an_control.learning.api.parts import Parts
from an_control.learning.command_line import command
from an_control.learning.runs.progress import Progress


@dataclass(frozen=True)
class Verb(EvolveOptions):
    """Search for a policy by its return alone; the same command continues a stopped run."""

    task: tyro.conf.Positional[str]
    out: OutputFolder
    parts: PartOptions = field(default_factory=Parts)
    json: OutputFile | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        """Search for a policy, print its evaluation and model file, and return the exit status."""
        need("train", "gymnasium", "cma", "numba")
        with RunAtTerminal(ProgressLine(command(self, "train"))) as terminal:

            def report(progress: Progress) -> bool:
                if progress.unit != "evaluation":
                    return terminal.progress(progress)
                row = progress.figures
                failed = f"  {row['failed']} episodes failed" if "failed" in row else ""
                print(
                    f"{row['protocol']}: {row['mean']}, standard deviation {row['sd']}"
                    f"  success share {row.get('success_share')}{failed}"
                )
                return True

            result = evolve(self, report)
        print(result.model)
        made = {"task": self.task, "seed": self.seed, "model": str(result.model)}
        figures = {"evaluations": result.evaluations, "metrics": result.metrics}
        write_json(self.json, {**made, **figures})
        return 0


Verb.__doc__ = with_offers(
    explained(Verb.__doc__, "best", "mean", "validation", "failed", "validation_failed", "note")
)
