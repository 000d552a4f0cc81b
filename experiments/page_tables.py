"""Tables in the documentation that come from evaluations of a shipped model."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.steps import (
    ExperimentStep,
    add_smoke_option,
    make_step_parser,
    run_steps,
)

SMOKE = Path("runs/smoke")


@dataclass(frozen=True)
class PageTable:
    """A table of results on a page of the documentation, and the evaluation that fills it.

    Attributes:
        model: The name of the model's file in the folder `models`, without ".safetensors".
        page: The path of the page from the root of the repository.
        title: The title that marks the table in the page.
        protocols: The disturbances under which the model is evaluated. The first one is the
            baseline, with which the others are compared.
        episodes: The number of episodes under each protocol.
        seed: The seed of the episodes.
        options: Further options of `an-control evaluate`.
        plots: The folder for pictures, from the root of the repository; "" for none.
    """

    model: str
    page: str
    title: str
    protocols: Sequence[str]
    episodes: int = 100
    seed: int = 1
    options: str = ""
    plots: str = ""

    @property
    def evaluation_command(self) -> str:
        """The command line of the evaluation, without the options that write files."""
        command = [
            *("an-control", "evaluate", f"models/{self.model}.safetensors"),
            *shlex.split(self.options),
            *("--episodes", str(self.episodes), "--seed", str(self.seed)),
            *("--table", *self.protocols),
        ]
        return shlex.join(command)

    def make_step(self, runs: Path) -> ExperimentStep:
        """Return the step (command line) that evaluates the model and writes the table to the page.

        `runs` is the folder that keeps the state of a stopped evaluation.
        """
        command = [
            *("an-control", "evaluate", f"models/{self.model}.safetensors"),
            *("--markdown", self.page, "--title", self.title, *shlex.split(self.options)),
            *("--episodes", str(self.episodes), "--seed", str(self.seed)),
            *("--state", f"{runs}/{self.title}.rows"),
            *(("--plots", self.plots) if self.plots else ()),
            *("--table", *self.protocols),
        ]
        return ExperimentStep(self.page, shlex.join(command))

    def make_smoke_step(self, runs: Path) -> ExperimentStep:
        """Return the step (command line) of a short test: one episode, written to `runs`."""
        page = f"{runs}/{self.title}.md"
        short = replace(
            self, page=page, protocols=self.protocols[:1], episodes=1, options="", plots=""
        )
        return short.make_step(runs)


def write_tables(
    description: str | None,
    runs: Path,
    tables: Sequence[PageTable],
    other_steps: Sequence[ExperimentStep],
    arguments: Sequence[str] | None,
) -> int:
    """Parse the command line of an experiment, write its tables, and return the exit status.

    The option `--only TITLE ...` writes only the tables that it names. Without it, all tables are
    written, and `other_steps` are run, too. The folder `runs` keeps the state of stopped
    evaluations.
    """
    titles = [table.title for table in tables]
    parser = make_step_parser(description)
    add_smoke_option(parser)
    parser.add_argument("--only", nargs="+", choices=titles, help="only these tables")
    options = parser.parse_args(arguments)
    wanted = [table for table in tables if table.title in (options.only or titles)]
    if options.smoke:
        runs = SMOKE / runs.name
        return run_steps(runs, [table.make_smoke_step(runs) for table in wanted], options)
    steps = [table.make_step(runs) for table in wanted]
    return run_steps(runs, steps if options.only else [*steps, *other_steps], options)
