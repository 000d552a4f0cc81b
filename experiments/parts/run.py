"""Compare pooling layers and memories (recurrent networks) of a cart-pole policy at equal cost.

    python -m experiments parts [--seeds 1 2 3] [POOLING ...]

First a teacher whose channels have a fixed order is evolved. Then a policy with each pair of
pooling layer and memory imitates the teacher for the same processor time, with about the same
number of parameters, and is evaluated under several protocols. Runs in the folder are not repeated,
so an experiment that was stopped continues. In the end the experiment writes the table and the
picture of report.md from comparison.json, which keeps the results of all seeds. Runs with another
length, teacher or number of episodes are refused.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from an_control.learning.evaluation.comparison import write_markdown_tables
from an_control.learning.teacher.teachers import hash_model
from an_control.policy import read_model
from an_control.policy.sizes import AttentionSizes, RecurrenceSizes, make_paper_sizes
from experiments.learned_runs import (
    ROOT,
    Results,
    Settings,
    SettingsMismatchError,
    compute_mean_and_standard_error,
    evaluate_model_of_run,
    format_parameters_and_seeds,
    list_results_under_disturbance,
    make_markdown_table,
    read_results,
    run_an_control,
    update_results_file,
    write_settings_and_tell_if_unfinished,
)

PAGE, TITLE = ROOT / "experiments/parts/report.md", "comparison of parts"
PICTURE = ROOT / "experiments/parts/comparison.png"
KEPT = ROOT / "experiments/parts/comparison.json"
PARAMETERS = 9000
"""Approximate number of parameters of every policy; its neurons are as wide as that allows."""
MINUTES = 4.0
"""Minutes of processor time of each training."""
QUERIES, SEED_VECTORS, INDUCING, UNITS, WINDOW = 16, 4, 8, 16, 32
POOLINGS = {
    "sinusoid": [],
    "learned queries": ["--learned-queries", str(QUERIES)],
    "PMA": ["--pma", str(SEED_VECTORS)],
    "ISAB + PMA": ["--encoder", "isab", "--inducing", str(INDUCING), "--pma", str(SEED_VECTORS)],
    "SAB + PMA": ["--encoder", "sab", "--pma", str(SEED_VECTORS)],
}
MEMORIES = {
    "none": [],
    "GRU": ["--recurrence", "gru", "--units", str(UNITS)],
    "GTrXL": ["--recurrence", "gtrxl", "--units", str(UNITS), "--window", str(WINDOW)],
}
PROTOCOLS = {
    "reset": "shuffled at the reset",
    "reset+100": "and every 100 steps",
    "reset+25": "and every 25 steps",
    "reset,noise=5,noise-sd=0.1": "with 5 noise channels of sd 0.1",
}
EPISODES, EVALUATION_SEED = 100, 1


@dataclass(frozen=True)
class ComparedPolicy:
    """A policy in the comparison: a pair of a pooling layer and a memory (recurrent network).

    Attributes:
        pooling: The name of the pooling layer, in `POOLINGS`.
        memory: The name of the memory, in `MEMORIES`.
        folder: The folder of all results.
    """

    pooling: str
    memory: str
    folder: Path

    def make_sizes(self, neuron_width: int) -> AttentionSizes:
        """Return the sizes of the policy's layers if its sensory neurons have a given width."""
        kind = self.memory.lower()
        recurrence = None
        if self.memory != "none":
            window = WINDOW if kind == "gtrxl" else 1
            recurrence = RecurrenceSizes(kind, UNITS, window=window)  # type: ignore[arg-type]
        if "PMA" not in self.pooling:
            sizes = make_paper_sizes(1, QUERIES, 0, neuron_width, recurrence=recurrence)
            plain = self.pooling == "sinusoid" and recurrence is None
            return sizes if plain else replace(sizes, key=neuron_width)
        encoder = self.pooling.partition(" ")[0].lower() if "+" in self.pooling else "none"
        return AttentionSizes(
            actions=1,
            neuron=neuron_width,
            queries=SEED_VECTORS,
            key=neuron_width,
            inputs=["value"],
            head=[],
            attention="pma",
            encoder=encoder,  # type: ignore[arg-type]
            inducing=INDUCING if encoder == "isab" else 0,
            recurrence=recurrence,
        )

    @property
    def neuron_width(self) -> int:
        """The width at which the policy has about `PARAMETERS` parameters; see `make_sizes`."""
        return min(
            range(2, 65),
            key=lambda width: abs(count_parameters(self.make_sizes(width)) - PARAMETERS),
        )

    @property
    def runs_folder(self) -> Path:
        """The folder of this policy's runs."""
        return self.folder / f"{self.pooling} with {self.memory}".replace(" ", "_")

    @property
    def training_options(self) -> list[str]:
        """The options of `an-control distill` for this policy."""
        return [*POOLINGS[self.pooling], *MEMORIES[self.memory], "--neuron", str(self.neuron_width)]

    def make_run_settings(self, teacher: Path, minutes: float, episodes: int) -> Settings:
        """Return the settings of the policy's runs, to check that all runs have the same.

        They are the minutes and options of the training, the hash of the teacher (None if there is
        none yet), and the number of episodes of the evaluation.
        """
        hashed = hash_model(read_model(teacher)) if teacher.is_file() else None
        how = {"minutes": minutes, "episodes": episodes, "teacher": hashed}
        return {**how, "options": self.training_options}

    def train_and_evaluate(self, teacher: Path, seed: int, minutes: float, episodes: int) -> None:
        """Train the policy to imitate the teacher, and evaluate it.

        If this has been done before with this seed, nothing is done.
        """
        folder = self.runs_folder / str(seed)
        if not write_settings_and_tell_if_unfinished(
            folder, self.make_run_settings(teacher, minutes, episodes)
        ):
            return
        print(f"{self.pooling}, memory {self.memory}, seed {seed}", flush=True)
        run_an_control(
            *("distill", "cartpole", "--teacher", str(teacher), "--minutes", f"{minutes:g}"),
            *("--seed", str(seed), "--out", str(folder), *self.training_options),
        )
        evaluate_model_of_run(
            *(folder, "cartpole", list(PROTOCOLS), episodes, EVALUATION_SEED),
            *("--monitor", "off"),
        )

    def make_results_table_row(self, results: Results) -> list[str]:
        """Return the cells of this policy's row in `make_markdown_results_table`.

        They are: the name of its pooling layer, the name of its memory, its number of parameters,
        the number of seeds, and for each disturbance its mean return and share of successes.
        """
        cells = [self.pooling, self.memory, *format_parameters_and_seeds(results, self.runs_folder)]
        for protocol in PROTOCOLS:
            some = list_results_under_disturbance(results, self.runs_folder, protocol)
            mean, error = compute_mean_and_standard_error([one["mean"] for one in some])
            share = np.mean([one["success_share"] for one in some])
            error_text = "" if math.isnan(error) else f" +- {error:.0f}"
            cells.append(f"{mean:.0f}{error_text} ({share:.0%})")
        return cells


def count_parameters(sizes: Any) -> int:
    """Return the number of parameters of a policy whose layers have these sizes."""
    return sum(math.prod(shape) for shape in sizes.list_array_shapes().values())


def evolve_teacher(out: Path) -> None:
    """Evolve the teacher, an MLP that needs its channels in order, and write it into a folder.

    It takes about five minutes of one core.
    """
    run_an_control(
        *("train", "cartpole", "--form", "mlp", "--generations", "3000", "--decay", "0.006"),
        *("--optimiser", "cma", "--sigma", "0.1", "--rollouts", "16"),
        *("--validate-every", "50", "--episodes", "1000", "--workers", "1", "--out", str(out)),
    )


def make_markdown_results_table(policies: list[ComparedPolicy], results: Results) -> str:
    """Return the Markdown table that compares the policies; those without results are left out."""
    head = ["pooling", "memory", "parameters", "seeds", *PROTOCOLS.values()]
    return make_markdown_table(
        head,
        [
            one.make_results_table_row(results)
            for one in policies
            if one.runs_folder.name in results
        ],
    )


def draw_returns_as_bars(policies: list[ComparedPolicy], results: Results, path: Path) -> None:
    """Draw mean returns as bars, grouped by pooling layer; each recurrent layer has a colour."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6), layout="constrained")
    shown = list(PROTOCOLS)[:2]
    for axes, protocol in zip(figure.subplots(len(shown), 1, sharex=True), shown, strict=True):
        for number, memory in enumerate(MEMORIES):
            some = [
                one for one in policies if one.memory == memory and one.runs_folder.name in results
            ]
            spreads = [
                compute_mean_and_standard_error(
                    [
                        entry["mean"]
                        for entry in list_results_under_disturbance(
                            results, one.runs_folder, protocol
                        )
                    ]
                )
                for one in some
            ]
            axes.bar(
                [list(POOLINGS).index(one.pooling) + 0.25 * (number - 1) for one in some],
                [mean for mean, _ in spreads],
                0.23,
                yerr=[error for _, error in spreads],
                capsize=3,
                label=f"memory: {memory}",
            )
        words = "shuffled at the reset" + ("" if protocol == "reset" else " and every 100 steps")
        axes.set(title=words, ylabel="mean return", xticks=range(len(POOLINGS)))
        axes.set_xlim(-0.5, len(POOLINGS) - 0.5)
        axes.set_xticklabels(POOLINGS)
        axes.grid(axis="y", alpha=0.3)
    shapes, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(shapes, names, loc="outside upper center", ncols=len(MEMORIES))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare pooling layers and recurrent networks; write report.md; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("pooling", nargs="*", help="train only these: " + ", ".join(POOLINGS))
    parser.add_argument(
        "--out", type=Path, default=Path("runs/parts"), help="folder of all results"
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], help="(default: 1 2 3)")
    parser.add_argument("--teacher", type=Path, help="an MLP policy; by default one is evolved")
    parser.add_argument("--table", action="store_true", help="only write the page's table")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="(default: %(default)g)")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="(default: %(default)s)")
    given = parser.parse_args(arguments)
    wrong = set(given.pooling) - set(POOLINGS)
    if wrong:
        parser.error(f"{', '.join(sorted(wrong))}: not one of {', '.join(POOLINGS)}")
    out = given.out.resolve()
    policies = [ComparedPolicy(*parts, out) for parts in product(POOLINGS, MEMORIES)]
    teacher = given.teacher or out / "teacher/model.safetensors"

    def make_settings_by_folder() -> dict[Path, Settings]:
        """Return the settings of each policy by the folder of its runs."""
        return {
            one.runs_folder: one.make_run_settings(teacher, given.minutes, given.episodes)
            for one in policies
        }

    try:
        read_results(KEPT, make_settings_by_folder())
        if not given.table:
            if given.teacher is None:
                evolve_teacher(teacher.parent)
            for seed, policy in product(given.seeds, policies):
                if not given.pooling or policy.pooling in given.pooling:
                    policy.train_and_evaluate(teacher, seed, given.minutes, given.episodes)
        found = update_results_file(KEPT, make_settings_by_folder())
    except SettingsMismatchError as error:
        parser.error(str(error))
    write_markdown_tables(PAGE, {TITLE: make_markdown_results_table(policies, found)})
    draw_returns_as_bars(policies, found, PICTURE)
    return 0
