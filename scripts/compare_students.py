"""What students of Pong gain by the Set Transformer's parts and by missing patches.

    python scripts/compare_students.py runs/pong_students [--seeds 1 2 3] [--table]

All students imitate the scripted teacher for as many rounds and updates, and are evaluated with
ever fewer patches. What is in the folder already is not made again, so a run that was stopped
continues. At the end the table and the picture of docs/parts.md are written, from
docs/parts/pong.json, which keeps the results of all seeds.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from an_control.learning.evaluation.comparison import write_tables
from learned_runs import (
    ROOT,
    ROWS,
    Results,
    call,
    collect,
    counts,
    entries,
    evaluate,
    markdown,
    returns,
)

PAGE, TITLE = ROOT / "docs/parts.md", "students of Pong"
PICTURE, KEPT = ROOT / "docs/parts/pong.png", ROOT / "docs/parts/pong.json"
ROUNDS = 10
ATTENTION = "AttentionNeuron"
PMA = ["--pma", "100"]
"""As many seeds as AttentionNeuron has queries here."""
STUDENTS = {
    ATTENTION: [],
    f"{ATTENTION}, taught with 50 % missing": ["--missing-patches", "0.5"],
    f"{ATTENTION}, taught with 80 % missing": ["--missing-patches", "0.8"],
    "PMA": PMA,
    "ISAB + PMA": ["--encoder", "isab", "--inducing", "16", *PMA],
}
"""Each student's options of `distill`."""
PROTOCOLS = {
    "reset": "all patches",
    "reset,missing=0.2": "20 % missing",
    "reset,missing=0.5": "50 % missing",
    "reset,missing=0.8": "80 % missing",
    "100": "moved every 100 steps",
}
"""The protocols, and their names in the table."""
EPISODES, EVALUATION_SEED = 20, 2


@dataclass(frozen=True)
class Student:
    """One of the students, and the folder of all results."""

    name: str
    folder: Path

    @property
    def runs(self) -> Path:
        return self.folder / self.name.replace(", ", "_").replace(" ", "_").replace("%", "percent")

    def make(self, seed: int, episodes: int) -> None:
        """Learn and evaluate; CalledProcessError where a command fails."""
        run = self.runs / str(seed)
        if (run / ROWS).exists():
            return
        print(f"{self.name}, seed {seed}", flush=True)
        words = ["--rounds", str(ROUNDS), *STUDENTS[self.name]]
        call("distill", "pong", "--seed", str(seed), "--out", str(run), *words)
        evaluate(run, "pong", list(PROTOCOLS), episodes, EVALUATION_SEED)

    def returns(self, found: Results) -> list[tuple[float, float]]:
        """For each protocol the mean and its standard error."""
        return [returns(entries(found, self.runs, protocol)) for protocol in PROTOCOLS]

    def row(self, found: Results) -> list[str]:
        shown = [f"{mean:.1f} +- {error:.1f}" for mean, error in self.returns(found)]
        return [self.name, *counts(found, self.runs), *shown]


def table(students: list[Student], found: Results) -> str:
    """Of the students with results."""
    head = ["student", "parameters", "seeds", *PROTOCOLS.values()]
    return markdown(head, [one.row(found) for one in students if one.runs.name in found])


def picture(students: list[Student], found: Results, path: Path) -> None:
    """Returns as bars, one group a protocol and one colour a student."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4.5), layout="constrained")
    axes = figure.subplots()
    some = [one for one in students if one.runs.name in found]
    width = 0.85 / max(len(some), 1)
    for number, one in enumerate(some):
        means, errors = zip(*one.returns(found), strict=True)
        places = [p + width * (number - (len(some) - 1) / 2) for p in range(len(means))]
        axes.bar(places, means, 0.95 * width, yerr=errors, capsize=2, label=one.name)
    axes.set_xticks(range(len(PROTOCOLS)), list(PROTOCOLS.values()))
    axes.set_ylabel("mean return of a game (-21 to 21)")
    axes.axhline(0.0, color="black", linewidth=0.8)
    axes.grid(axis="y", alpha=0.3)
    figure.legend(loc="outside upper center", ncols=3)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="the folder of all results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="(default: 1)")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="(default: %(default)s)")
    parser.add_argument("--table", action="store_true", help="only write the page's table")
    given = parser.parse_args()
    students = [Student(name, given.out.resolve()) for name in STUDENTS]
    if not given.table:
        for seed, student in product(given.seeds, students):
            student.make(seed, given.episodes)
    found = collect(KEPT, [one.runs for one in students])
    write_tables(PAGE, {TITLE: table(students, found)})
    picture(students, found, PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
