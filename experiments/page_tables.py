"""Tables in the documentation that come from evaluations of a shipped model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments.steps import ExperimentStep, add_smoke_option, run_steps, step_parser

SMOKE = Path("runs/smoke")


@dataclass(frozen=True)
class PageTable:
    """A marked table of a page, or a folder of pictures, and the evaluation that makes it."""

    model: str
    """Name of the model in `models`."""
    page: str
    """Name of the page in `docs`."""
    title: str
    """Title that marks the table in the page."""
    protocols: Sequence[str]
    """Protocols of the evaluation; the others are compared with the first."""
    episodes: int = 100
    seed: int = 1
    options: str = ""
    """Further options of `an-control evaluate`."""
    plots: str = ""
    """Folder in `docs` for pictures; "" for none."""

    def step(self, runs: Path) -> ExperimentStep:
        """Return the evaluation as a step; `runs` keeps the rows of a table that was stopped."""
        return self._step(f"docs/{self.page}.md", f"docs/{self.plots}", runs)

    def smoke_step(self, runs: Path) -> ExperimentStep:
        """Return a short evaluation as a step: one episode, written into `runs`."""
        short = PageTable(self.model, self.page, self.title, self.protocols[:1], 1, self.seed)
        return short._step(f"{runs}/{self.title}.md", "", runs)

    def _step(self, page: str, plots: str, runs: Path) -> ExperimentStep:
        command = [
            *("an-control", "evaluate", f"models/{self.model}.safetensors"),
            *("--markdown", page, "--title", self.title, *shlex.split(self.options)),
            *("--episodes", str(self.episodes), "--seed", str(self.seed)),
            *("--state", f"{runs}/{self.title}.rows"),
            *(("--plots", plots) if self.plots else ()),
            *("--table", *self.protocols),
        ]
        return ExperimentStep(page, shlex.join(command))


def write_tables(
    description: str | None,
    runs: Path,
    tables: Sequence[PageTable],
    other_steps: Sequence[ExperimentStep],
    arguments: Sequence[str] | None,
) -> int:
    """Write the tables of an experiment, run its other steps, and return the exit status."""
    titles = [table.title for table in tables]
    parser = step_parser(description)
    add_smoke_option(parser)
    parser.add_argument("--only", nargs="+", choices=titles, help="only these tables")
    options = parser.parse_args(arguments)
    wanted = [table for table in tables if table.title in (options.only or titles)]
    if options.smoke:
        runs = SMOKE / runs.name
        return run_steps(runs, [table.smoke_step(runs) for table in wanted], options)
    steps = [table.step(runs) for table in wanted]
    return run_steps(runs, steps if options.only else [*steps, *other_steps], options)
