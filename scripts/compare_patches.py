"""What a policy for image patches gains by the Set Transformer's parts, and by missing patches.

    python scripts/compare_patches.py runs/patches [--seeds 1] [--rounds 40] [--table]

Students of Pong's scripted teacher, each with as many rounds and updates: AttentionNeuron, PMA and
ISAB + PMA with all patches, and AttentionNeuron with half and with four fifths of them missing.
Each is evaluated with ever fewer patches. What is there already is not made again, so a run that
was stopped continues. At the end the table and the picture of docs/parts.md are written from all
results in the folder.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from compare_parts import ROOT, call, spread

from an_control.learning.evaluation.comparison import write_tables
from an_control.policy import read_model

PAGE, TITLE = ROOT / "docs/parts.md", "comparison on patches"
PICTURE = ROOT / "docs/parts/patches.png"
ROUNDS = 40
SEEDS = 100
"""Of PMA: as many as AttentionNeuron has queries here."""
PMA = ["--pma", str(SEEDS)]
POOLINGS = {
    "AttentionNeuron": [],
    "PMA": PMA,
    "ISAB + PMA": ["--encoder", "isab", "--inducing", "16", *PMA],
}
STUDENTS = [
    *((pooling, 0.0) for pooling in POOLINGS),
    ("AttentionNeuron", 0.5),
    ("AttentionNeuron", 0.8),
]
"""The pooling, and the share of patches that is missing in training."""
SHARES = 0.0, 0.2, 0.5, 0.8
PROTOCOLS = ["reset", *(f"reset,missing={share:g}" for share in SHARES[1:]), "100"]
EPISODES, EVALUATION_SEED = 20, 2


@dataclass(frozen=True)
class Student:
    """One pooling, learned with so many patches missing, and the folder of its results."""

    pooling: str
    missing: float
    folder: Path

    def run(self, seed: int) -> Path:
        name = f"{self.pooling} {self.missing:g} missing".replace(" ", "_")
        return self.folder / name / str(seed)

    def make(self, seed: int, rounds: int, episodes: int) -> None:
        """Learn and evaluate; CalledProcessError where a command fails."""
        folder = self.run(seed)
        rows = folder / "rows.json"
        if rows.exists():
            return
        print(f"{self.pooling}, {self.missing:.0%} missing in training, seed {seed}", flush=True)
        call(
            *("distill", "pong", "--seed", str(seed), "--rounds", str(rounds)),
            *("--missing-patches", f"{self.missing:g}", "--out", str(folder)),
            *POOLINGS[self.pooling],
        )
        call(
            *("evaluate", str(folder / "model.safetensors"), "--task", "pong"),
            *("--episodes", str(episodes), "--seed", str(EVALUATION_SEED)),
            *("--state", str(folder / "rows.state"), "--json", str(rows), "--table", *PROTOCOLS),
        )

    def results(self) -> list[dict[str, dict[str, Any]]]:
        """Of each seed that is done: the entry of every protocol."""
        found = sorted(self.run(0).parent.glob("*/rows.json"))
        return [
            {one["protocol"]: one for one in json.loads(path.read_text())["protocols"]}
            for path in found
        ]

    def returns(self, protocol: str) -> tuple[float, float]:
        """The mean and its standard error: over the seeds, over the games of a single one."""
        results = [one[protocol] for one in self.results()]
        mean, error = spread([one["mean"] for one in results])
        if len(results) == 1:
            error = results[0]["sd"] / max(len(results[0]["episodes"]) - 1, 1) ** 0.5
        return mean, error

    def row(self) -> list[str]:
        models = sorted(self.run(0).parent.glob("*/model.safetensors"))
        cells = [self.pooling, f"{self.missing:.0%}", str(read_model(models[0]).parameters)]
        cells.append(str(len(self.results())))
        return cells + ["{:.1f} +- {:.1f}".format(*self.returns(one)) for one in PROTOCOLS]


def table(students: list[Student]) -> str:
    """Of the students with results."""
    shares = [f"{share:.0%} missing" for share in SHARES[1:]]
    head = ["pooling", "missing in training", "parameters", "seeds", "all patches", *shares]
    head.append("moved every 100 steps")
    lines = [head, ["---"] * len(head), *[one.row() for one in students if one.results()]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def picture(students: list[Student], path: Path) -> None:
    """Returns against the share of missing patches, a line for each student."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for one in students:
        if one.results():
            means, errors = zip(*(one.returns(name) for name in PROTOCOLS[:-1]), strict=True)
            name = f"{one.pooling}, {one.missing:.0%} missing in training"
            axes.errorbar([100 * share for share in SHARES], means, errors, capsize=3, label=name)
    axes.set(xlabel="missing patches, %", ylabel="mean return of a game (-21 to 21)")
    axes.grid(alpha=0.3)
    axes.legend()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def main() -> int:
    """The exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="the folder of all results")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1], help="(default: 1)")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="(default: %(default)s)")
    parser.add_argument("--episodes", type=int, default=EPISODES, help="(default: %(default)s)")
    parser.add_argument("--table", action="store_true", help="only write the page's table")
    given = parser.parse_args()
    students = [Student(*one, given.out.resolve()) for one in STUDENTS]
    if not given.table:
        for seed, student in product(given.seeds, students):
            student.make(seed, given.rounds, given.episodes)
    write_tables(PAGE, {TITLE: table(students)})
    picture(students, PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
