"""What evolution reaches from nothing, without and with an order of the channels.

    python scripts/from_nothing.py runs/from_nothing [--only CartPole-v1 ...]

Runs `an-control train` by its defaults for each environment, form and seed. A run that was stopped
continues, one that is done is only evaluated again, and one of other settings is refused. At the
end the table and the picture of
docs/from_nothing.md are written from all results in the folder.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from an_control.learning.environments import make_environment
from an_control.learning.evaluation.comparison import write_tables

ROOT = Path(__file__).resolve().parent.parent
PAGE, TITLE = ROOT / "docs/from_nothing.md", "from nothing"
PICTURE = ROOT / "docs/from_nothing/curves.png"
FORMS = {"attention": "permutation-invariant", "mlp": "ordered network"}
SEEDS = (1, 2, 3, 4, 5)
RANDOM_EPISODES = 100


@dataclass(frozen=True)
class Task:
    """An environment and how long one run of it takes."""

    name: str
    minutes: float
    workers: int
    score: float | None = None
    """Where a run may end before."""

    def file(self, folder: Path, form: str, seed: int) -> Path:
        """The result of one run, beside its folder."""
        return folder / self.name / f"{form}-{seed}.json"

    def make(self, folder: Path, form: str, seed: int) -> None:
        """Train; CalledProcessError where the command fails, as where the folder holds a run of
        other settings."""
        result = self.file(folder, form, seed)
        print(f"{self.name}, {FORMS[form]}, seed {seed}", flush=True)
        words = ["train", self.name, "--form", form, "--minutes", f"{self.minutes:g}"]
        if self.score is not None:
            words += ["--score", f"{self.score:g}"]
        words += ["--workers", str(self.workers), "--seed", str(seed)]
        words += ["--out", str(result.with_suffix("")), "--json", str(result)]
        result.parent.mkdir(parents=True, exist_ok=True)
        program = Path(sys.executable).parent / "an-control"
        subprocess.run([program, *words], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def results(self, folder: Path, form: str) -> list[dict[str, Any]]:
        """Of all seeds that are done."""
        found = sorted((folder / self.name).glob(f"{form}-*.json"))
        return [json.loads(path.read_text()) for path in found]


TASKS = (
    Task("CartPole-v1", 5.0, 1, score=500.0),
    Task("Acrobot-v1", 1.0, 1),
    Task("Pendulum-v1", 3.0, 1),
    Task("LunarLanderContinuous-v3", 9.0, 1),
)


def random_return(name: str) -> float:
    """The mean return of random actions."""
    env = make_environment(name)
    env.action_space.seed(1)
    total = 0.0
    for episode in range(RANDOM_EPISODES):
        env.reset(seed=episode)
        over = False
        while not over:
            _, reward, ended, truncated, _ = env.step(env.action_space.sample())
            total, over = total + float(reward), ended or truncated
    env.close()
    return total / RANDOM_EPISODES


def finals(results: list[dict[str, Any]]) -> np.ndarray:
    """The mean return (seeds,) of each run's model, over episodes that training never saw."""
    return np.array([one["evaluations"][0]["mean"] for one in results])


def row(task: Task, form: str, folder: Path, chance: float) -> list[str]:
    """The table's cells of one environment and form; none where no run is done."""
    results = task.results(folder, form)
    if not results:
        return []
    returns, ordered = finals(results), finals(task.results(folder, "mlp"))
    error = returns.std(ddof=1) / math.sqrt(len(returns)) if len(returns) > 1 else math.nan
    share = (returns.mean() - chance) / (ordered.mean() - chance) if len(ordered) else math.nan
    minutes = [when(one)[0][-1] for one in results]
    cores = f"{task.workers} core{'s' if task.workers > 1 else ''}"
    return [
        task.name,
        FORMS[form],
        f"{task.minutes:g} minutes of {cores}",
        f"{max(minutes):.1f}",
        ", ".join(f"{one:.0f}" for one in returns),
        f"{returns.mean():.1f}" + ("" if math.isnan(error) else f" +- {error:.1f}"),
        "" if math.isnan(share) else f"{share:.0%}",
    ]


def when(result: dict[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Minutes, million steps and return of a run's validations."""
    lines = [line for line in result["metrics"] if "validation" in line]
    columns = ([line[key] for line in lines] for key in ("wall_s", "steps", "validation"))
    wall, steps, validation = map(np.array, columns)
    return wall / 60.0, steps / 1e6, validation


def table(folder: Path) -> str:
    """Of all environments with results."""
    head = ["environment", "policy", "budget", "minutes used", "return of each seed", "mean"]
    lines = [[*head, "of the ordered network"], ["---"] * (len(head) + 1)]
    for task in TASKS:
        if any(task.results(folder, form) for form in FORMS):
            chance = random_return(task.name)
            lines += [cells for form in FORMS if (cells := row(task, form, folder, chance))]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def picture(folder: Path, path: Path) -> None:
    """Validations against minutes and against steps; the mean of the seeds, and their range."""
    from matplotlib.figure import Figure

    shown = [task for task in TASKS if any(task.results(folder, form) for form in FORMS)]
    figure = Figure(figsize=(9, 3.2 * len(shown)), layout="constrained")
    grid = figure.subplots(len(shown), 2, squeeze=False)
    for task, (by_time, by_steps) in zip(shown, grid, strict=True):
        for form, label in FORMS.items():
            curves = [when(one) for one in task.results(folder, form)]
            for axes, column in ((by_time, 0), (by_steps, 1)):
                _band(axes, [(curve[column], curve[2]) for curve in curves], label)
        by_time.set(title=task.name, xlabel="minutes", ylabel="validation: mean return")
        by_steps.set(title=task.name, xlabel="million steps")
        for axes in (by_time, by_steps):
            axes.grid(alpha=0.3)
            axes.legend(loc="lower right")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=100)


def _band(axes: Any, curves: list[tuple[np.ndarray, np.ndarray]], label: str) -> None:
    """The best validation so far; a run that has ended stays where it was."""
    if not curves:
        return
    at = np.linspace(0.0, max(x[-1] for x, _ in curves), 200)
    best = []
    for x, y in curves:
        place = np.searchsorted(x, at, side="right") - 1
        so_far = np.maximum.accumulate(y)
        best.append(np.where(place >= 0, so_far[np.maximum(place, 0)], np.nan))
    together = np.ma.masked_invalid(best)
    (line,) = axes.plot(at, together.mean(0), label=f"{label}, seeds: {len(curves)}")
    axes.fill_between(at, together.min(0), together.max(0), color=line.get_color(), alpha=0.2)


def main() -> int:
    """The exit status."""
    names = [task.name for task in TASKS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="the folder of all results")
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="(default: all)")
    parser.add_argument("--forms", nargs="+", choices=FORMS, default=list(FORMS))
    parser.add_argument("--seeds", type=int, nargs="+", default=list(SEEDS))
    parser.add_argument("--table", action="store_true", help="only write the page")
    given = parser.parse_args()
    out = given.out.resolve()
    for task in TASKS:
        if task.name in given.only and not given.table:
            for seed in given.seeds:
                for form in given.forms:
                    task.make(out, form, seed)
    write_tables(PAGE, {TITLE: table(out)})
    picture(out, PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
