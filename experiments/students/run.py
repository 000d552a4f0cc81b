"""Measure how much the Set Transformer's parts, a memory, and missing patches help a student.

    python -m experiments students pong [--seeds 1 2 3] [--table]
    python -m experiments students ant [--seeds 1 2 3] [--table]

A student is a policy that learns to imitate a teacher. Missing patches are parts of the picture
that a student does not get in training. All students of a robot imitate that robot's teacher at
equal cost, and are evaluated under several disturbances. Runs in the folder are not repeated, so an
experiment that was stopped continues. In the end the experiment writes the table and the picture of
report.md from pong.json or ant.json, which keep the results of all seeds. Runs with another number
of episodes or teacher are refused.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from an_control.learning.evaluation.comparison import write_markdown_tables
from an_control.learning.teacher.teachers import find_task_teacher
from experiments.learned_runs import (
    ROOT,
    Results,
    Settings,
    SettingsMismatchError,
    compute_mean_return_with_error,
    evaluate_model_of_run,
    format_parameters_and_seeds,
    list_results_under_disturbance,
    make_markdown_table,
    read_results,
    run_an_control,
    update_results_file,
    write_settings_and_tell_if_unfinished,
)

PAGE = ROOT / "experiments/students/report.md"
ATTENTION = "AttentionNeuron"
PMA_OF_PATCHES = ["--pma", "100"]
"""Options for pooling (PMA) with as many seed vectors as AttentionNeuron has queries for
patches."""
PMA_OF_CHANNELS = ["--pma", "8"]


@dataclass(frozen=True)
class StudentComparison:
    """A comparison of student policies that imitate the same teacher in different ways.

    Attributes:
        task: The task.
        title: The title that marks the table in the page.
        length_options: Options of `an-control distill` that set the length of each training.
        students: Options of `an-control distill` for each student, by the student's name.
        protocols: The disturbances of the evaluation, with their headings in the table.
        evaluation_seed: The seed of the evaluation.
        axis: The label of the axis of returns in the picture of `draw_returns_as_bars`.
        digits: The number of decimal places of a mean return in the table.
        evaluation_options: Further options of `an-control evaluate`.
        episodes: The number of episodes under each disturbance.
        seeds: The seeds of the trainings.
    """

    task: str
    title: str
    length_options: tuple[str, ...]
    students: dict[str, list[str]]
    protocols: dict[str, str]
    evaluation_seed: int
    axis: str
    digits: int
    evaluation_options: tuple[str, ...] = ()
    episodes: int = 20
    seeds: tuple[int, ...] = (1,)

    @property
    def kept_results_path(self) -> Path:
        """The file in the repository with the results of all seeds."""
        return ROOT / f"experiments/students/{self.task}.json"


COMPARISONS = {
    "pong": StudentComparison(
        task="pong",
        title="students of Pong",
        length_options=("--rounds", "10"),
        students={
            ATTENTION: [],
            f"{ATTENTION}, taught with 50 % missing": ["--disturb", "missing=0.5"],
            f"{ATTENTION}, taught with 80 % missing": ["--disturb", "missing=0.8"],
            "PMA": PMA_OF_PATCHES,
            "ISAB + PMA": ["--encoder", "isab", "--inducing", "16", *PMA_OF_PATCHES],
        },
        protocols={
            "reset": "all patches",
            "reset,missing=0.2": "20 % missing",
            "reset,missing=0.5": "50 % missing",
            "reset,missing=0.8": "80 % missing",
            "100": "moved every 100 steps",
        },
        evaluation_seed=2,
        axis="mean return of a game (-21 to 21)",
        digits=1,
    ),
    "ant": StudentComparison(
        task="ant",
        title="students of the Ant",
        length_options=("--minutes", "15"),
        students={
            ATTENTION: ["--neuron", "64"],
            "PMA": ["--neuron", "24", *PMA_OF_CHANNELS],
            "ISAB + PMA, GTrXL": [
                *("--neuron", "20", "--encoder", "isab", "--inducing", "8", *PMA_OF_CHANNELS),
                *("--recurrence", "gtrxl", "--units", "24", "--window", "32"),
            ],
        },
        protocols={
            "reset": "shuffled at the reset",
            "reset+100": "and every 100 steps",
            "reset+25": "and every 25 steps",
            "reset,noise=5,noise-sd=1": "with 5 noise channels of sd 1",
            "reset,missing=0.1": "10 % missing",
            "reset,missing=0.25": "25 % missing",
            "reset+100,missing=0.1": "10 % missing, every 100 steps",
        },
        evaluation_seed=1,
        axis="mean return",
        digits=0,
        evaluation_options=("--monitor", "off"),
        seeds=(1, 2, 3),
    ),
}


@dataclass(frozen=True)
class ComparedStudent:
    """A student policy of a comparison.

    Attributes:
        name: The name in tables.
        comparison: The comparison.
        folder: The folder of all results.
    """

    name: str
    comparison: StudentComparison
    folder: Path

    @property
    def runs_folder(self) -> Path:
        """The folder of this student's runs."""
        return self.folder / self.name.replace(", ", "_").replace(" ", "_").replace("%", "percent")

    @property
    def training_options(self) -> list[str]:
        """The options of `an-control distill` for this student."""
        return [*self.comparison.length_options, *self.comparison.students[self.name]]

    def make_run_settings(self, episodes: int, teacher: str | None) -> Settings:
        """Return the settings of the student's runs, to check that all runs have the same.

        `teacher` is the hash of the teacher's file; None if it is not known.
        """
        return {"episodes": episodes, "teacher": teacher, "options": self.training_options}

    def train_and_evaluate(self, seed: int, episodes: int, teacher: str | None = None) -> None:
        """Train and evaluate the student with one seed, unless that is done.

        `teacher` is the hash of the teacher's file; None if it is not known.
        """
        what, run = self.comparison, self.runs_folder / str(seed)
        if not write_settings_and_tell_if_unfinished(
            run, self.make_run_settings(episodes, teacher)
        ):
            return
        print(f"{self.name}, seed {seed}", flush=True)
        run_an_control(
            "distill", what.task, "--seed", str(seed), "--out", str(run), *self.training_options
        )
        protocols, at = list(what.protocols), what.evaluation_seed
        evaluate_model_of_run(run, what.task, protocols, episodes, at, *what.evaluation_options)

    def compute_mean_returns_with_errors(self, results: Results) -> list[tuple[float, float]]:
        """Return for each disturbance a pair: the mean return, and its standard error."""
        protocols = self.comparison.protocols
        return [
            compute_mean_return_with_error(
                list_results_under_disturbance(results, self.runs_folder, protocol)
            )
            for protocol in protocols
        ]

    def make_results_table_row(self, results: Results) -> list[str]:
        """Return the cells of this student's row in `make_markdown_results_table`.

        They are: its name, its number of parameters, the number of seeds, and its mean return with
        the standard error under each disturbance.
        """
        digits = self.comparison.digits
        shown = [
            f"{mean:.{digits}f} +- {err:.{digits}f}"
            for mean, err in self.compute_mean_returns_with_errors(results)
        ]
        return [self.name, *format_parameters_and_seeds(results, self.runs_folder), *shown]


def make_markdown_results_table(
    comparison: StudentComparison, students: list[ComparedStudent], results: Results
) -> str:
    """Return the Markdown table that compares the students; those without results are left out."""
    head = ["student", "parameters", "seeds", *comparison.protocols.values()]
    return make_markdown_table(
        head,
        [
            one.make_results_table_row(results)
            for one in students
            if one.runs_folder.name in results
        ],
    )


def draw_returns_as_bars(
    comparison: StudentComparison, students: list[ComparedStudent], results: Results, path: Path
) -> None:
    """Draw returns as bars: a group for each disturbance, a colour for each student."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    some = [one for one in students if one.runs_folder.name in results]
    width = 0.85 / max(len(some), 1)
    for number, one in enumerate(some):
        means, errors = zip(*one.compute_mean_returns_with_errors(results), strict=True)
        places = [p + width * (number - (len(some) - 1) / 2) for p in range(len(means))]
        axes.bar(places, means, 0.95 * width, yerr=errors, capsize=2, label=one.name)
    names = [textwrap.fill(name, 14) for name in comparison.protocols.values()]
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel(comparison.axis)
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the students of one task, write table and picture, and return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("task", choices=list(COMPARISONS))
    parser.add_argument(
        "--out", type=Path, help="folder of all results (default: runs/TASK_students)"
    )
    parser.add_argument("--seeds", type=int, nargs="+", help="(default: the table's seeds)")
    parser.add_argument("--episodes", type=int, help="of each evaluation (default: the table's)")
    parser.add_argument("--table", action="store_true", help="only write the page's table")
    given = parser.parse_args(arguments)
    what = COMPARISONS[given.task]
    out = (given.out or Path(f"runs/{what.task}_students")).resolve()
    students = [ComparedStudent(name, what, out) for name in what.students]
    own = None if given.table else find_task_teacher(what.task)
    how = given.episodes or what.episodes, None if own is None else own.digest
    settings = {one.runs_folder: one.make_run_settings(*how) for one in students}
    try:
        read_results(what.kept_results_path, settings)
        if not given.table:
            for seed, student in product(given.seeds or what.seeds, students):
                student.train_and_evaluate(seed, *how)
        found = update_results_file(what.kept_results_path, settings)
    except SettingsMismatchError as error:
        parser.error(str(error))
    write_markdown_tables(PAGE, {what.title: make_markdown_results_table(what, students, found)})
    draw_returns_as_bars(what, students, found, what.kept_results_path.with_suffix(".png"))
    return 0
