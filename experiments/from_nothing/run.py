"""Measure what evolution reaches from random weights, with permutation-invariant policies and MLPs.

    python -m experiments from_nothing [--only CartPole-v1 ...]

Runs `an-control train` for each environment, kind of policy and seed, with default settings except
where methods of evolution are compared. A run that was stopped continues, a finished run is only
evaluated again, and a run with other settings is refused. In the end the experiment writes the
table and the pictures of report.md from all runs in the folder. A run that is not finished appears
in the pictures only. Table rows without a run in the folder are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from an_control.learning.evaluation.comparison import write_markdown_tables
from an_control_sim.gym.environments import find_environment_id, make_environment
from experiments.learned_runs import make_markdown_table, run_an_control

ROOT = Path(__file__).resolve().parents[2]
PAGE, TITLE = ROOT / "experiments/from_nothing/report.md", "from nothing"
PICTURES = ROOT / "experiments/from_nothing/pictures"
ANT = ROOT / "models/ant_ppo.safetensors"
RANDOM_EPISODES = 100


class SearchKind(NamedTuple):
    """A kind of policy, and the method of evolution that searches for its weights.

    Attributes:
        label: The name in tables.
        options: The options of `an-control train`.
    """

    label: str
    options: str


PGPE = "--sigma 0.1 --rate 0.05 --popsize 256 --rollouts 8 --max-rollouts 64"
KINDS = {
    "attention": SearchKind("permutation-invariant", "--form attention"),
    "pgpe": SearchKind("permutation-invariant; PGPE, small steps", PGPE),
    "hints": SearchKind("permutation-invariant; PGPE with hints", f"{PGPE} --hints"),
    "diagonal": SearchKind(
        "permutation-invariant; diagonal CMA-ES",
        "--optimiser cma-diagonal --sigma 1 --rollouts 4",
    ),
    "mlp": SearchKind("MLP, channels in fixed order", "--form mlp"),
    "shipped": SearchKind("ant_ppo, refined", f"--start-model {shlex.quote(str(ANT))}"),
}


@dataclass(frozen=True)
class SearchedTask:
    """An environment, and the settings of the runs that search for a policy in it by evolution.

    Attributes:
        name: The environment.
        minutes: The length of a run.
        workers: The number of processes of a run.
        score: The mean return in validation at which a run ends early; None: never.
        seeds: The seeds of the runs.
        kinds: The kinds of policy and search that are compared, keys of `KINDS`.
        picture: The file name of the picture with its learning curves.
        options: Further options of `an-control train` for all kinds.
    """

    name: str
    minutes: float
    workers: int = 1
    score: float | None = None
    seeds: tuple[int, ...] = (1, 2, 3)
    kinds: tuple[str, ...] = ("attention", "mlp")
    picture: str = "curves.png"
    options: str = ""

    def make_result_path(self, folder: Path, kind: str, seed: int) -> Path:
        """Return the path of the file with the result of one run; `kind` is a key of `KINDS`."""
        return folder / self.name / f"{kind}-{seed}.json"

    def make_train_arguments(self, folder: Path, kind: str, seed: int) -> list[str]:
        """Return the arguments of `an-control train` for one run; `kind` is a key of `KINDS`."""
        result = self.make_result_path(folder, kind, seed)
        words = [self.name, *shlex.split(f"{KINDS[kind].options} {self.options}")]
        words += ["--minutes", f"{self.minutes:g}"]
        if self.score is not None:
            words += ["--score", f"{self.score:g}"]
        words += ["--workers", str(self.workers), "--seed", str(seed)]
        return [*words, "--out", str(result.with_suffix("")), "--json", str(result)]

    def run_training(self, folder: Path, kind: str, seed: int) -> None:
        """Search for a policy by `an-control train`, and store the result in the folder."""
        result = self.make_result_path(folder, kind, seed)
        print(f"{self.name}, {KINDS[kind].label}, seed {seed}", flush=True)
        result.parent.mkdir(parents=True, exist_ok=True)
        run_an_control("train", *self.make_train_arguments(folder, kind, seed))
        result.write_text(json.dumps({"workers": self.workers, **json.loads(result.read_text())}))

    def read_results(self, folder: Path, kind: str) -> list[dict[str, Any]]:
        """Return the results of all finished runs of one kind, a key of `KINDS`."""
        found = sorted((folder / self.name).glob(f"{kind}-*.json"))
        return [json.loads(path.read_text()) for path in found]

    def read_validation_curves(self, folder: Path, kind: str) -> list[np.ndarray]:
        """Return the learning curves of all runs of one kind.

        Args:
            folder: The folder of all runs.
            kind: A key of `KINDS`.

        Returns:
            For each run an array (3, V) as `read_validation_curve` returns it.
        """
        found = sorted((folder / self.name).glob(f"{kind}-*/metrics.jsonl"))
        curves = [
            read_validation_curve(
                path.read_text().splitlines(),
                self._read_worker_count(path.parent.with_suffix(".json")),
            )
            for path in found
        ]
        return [one for one in curves if one.size]

    def _read_worker_count(self, result: Path) -> int:
        """Return the number of processes of a run.

        It is read from the result file; if there is no such file yet, it is that of this task.
        """
        return get_worker_count(json.loads(result.read_text())) if result.exists() else self.workers


TASKS = (
    SearchedTask("CartPole-v1", 5.0, score=500.0, seeds=(1, 2, 3, 4, 5)),
    SearchedTask("Acrobot-v1", 1.0),
    SearchedTask("Pendulum-v1", 3.0),
    SearchedTask("LunarLanderContinuous-v3", 9.0),
    SearchedTask(
        "cartpole",
        6.0,
        score=600.0,
        kinds=("pgpe", "hints", "diagonal", "mlp"),
        picture="swing_up.png",
        options="--episodes 1000 --validate-every 20",
    ),
    SearchedTask(
        "ant", 90.0, workers=2, seeds=(1,), kinds=("attention", "shipped"), picture="ant.png"
    ),
)


def get_worker_count(result: dict[str, Any]) -> int:
    """Return the number of processes that a run used; 1 if the result does not contain it."""
    return int(result.get("workers", 1))


def read_validation_curve(lines: Sequence[str], workers: int = 1) -> np.ndarray:
    """Return a run's learning curve (3, V) at V validations during training.

    Its rows are: minutes of the run times its number of `workers`, million steps, mean return.
    """
    figures = [json.loads(line) for line in lines]
    columns = [
        (workers * one["wall_s"] / 60.0, one["steps"] / 1e6, one["validation"])
        for one in figures
        if "validation" in one
    ]
    return np.array(columns).reshape(-1, 3).T


def measure_random_return(name: str) -> float:
    """Play random actions in an environment and return the mean return."""
    env = make_environment(find_environment_id(name))
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


def get_final_returns(results: list[dict[str, Any]]) -> np.ndarray:
    """Return for each of R runs its mean return (R,) in the evaluation after the training.

    `results` is what `SearchedTask.read_results` returned.
    """
    return np.array([one["evaluations"][0]["mean"] for one in results])


def format_success_share(results: list[dict[str, Any]]) -> str:
    """Format the mean share of successful episodes, such as "85%"; "" if success is not defined.

    `results` is what `SearchedTask.read_results` returned.
    """
    shares = [one["evaluations"][0].get("success_share") for one in results]
    return "" if None in shares else f"{np.mean(shares):.0%}"


def make_results_table_row(
    task: SearchedTask, kind: str, folder: Path, random_return: float
) -> list[str]:
    """Return the cells of the table's row for one environment and kind; [] if no run is finished.

    The cell "score" is 0 % for `random_return`, the mean return of random actions, and 100 % for
    the mean return of the MLP.
    """
    results = task.read_results(folder, kind)
    if not results:
        return []
    returns = get_final_returns(results)
    ordered = get_final_returns(task.read_results(folder, "mlp"))
    error = returns.std(ddof=1) / math.sqrt(len(returns)) if len(returns) > 1 else math.nan
    share = (
        (returns.mean() - random_return) / (ordered.mean() - random_return)
        if len(ordered)
        else math.nan
    )
    ends = [(get_worker_count(one), one["metrics"][-1]) for one in results]
    last = np.array([[workers * end["wall_s"], end["steps"]] for workers, end in ends])
    return [
        task.name,
        KINDS[kind].label,
        f"{last[:, 0].max() / 60.0:.1f}",
        f"{last[:, 1].mean() / 1e6:.1f}",
        ", ".join(f"{one:.0f}" for one in returns),
        f"{returns.mean():.1f}" + ("" if math.isnan(error) else f" +- {error:.1f}"),
        "" if math.isnan(share) else f"{share:.0%}",
        format_success_share(results),
    ]


def make_markdown_results_table(folder: Path, page: str = "") -> str:
    """Return the Markdown table of all environments.

    Rows without a run in the folder are copied from `page`, the text of the page so far.
    """
    head = ["environment", "policy", "minutes of one core", "million steps"]
    head += ["return of each seed", "mean", "score", "successes"]
    rows = []
    for task in TASKS:
        done = any(task.read_results(folder, kind) for kind in task.kinds)
        random_return = measure_random_return(task.name) if done else math.nan
        for kind in task.kinds:
            row = make_results_table_row(task, kind, folder, random_return)
            rows.append(row or _find_table_row(page, task.name, KINDS[kind].label))
    return make_markdown_table(head, [row for row in rows if row])


def _find_table_row(page: str, *begin: str) -> list[str]:
    """Return the cells of the page's table row that begins with these cells; [] if none does."""
    rows = (line[2:-2].split(" | ") for line in page.splitlines() if line.startswith("| "))
    return next((cells for cells in rows if cells[: len(begin)] == [*begin]), [])


def draw_pictures_of_returns(folder: Path, out: Path) -> None:
    """Draw learning curves of the runs in `folder`; write them as PNG files to the folder `out`.

    For each kind of policy and search, mean and range over its runs are drawn, over minutes and
    over steps.
    """
    from matplotlib.figure import Figure

    shown = defaultdict(list)
    for task in TASKS:
        if any(task.read_validation_curves(folder, kind) for kind in task.kinds):
            shown[task.picture].append(task)
    out.mkdir(parents=True, exist_ok=True)
    for name, tasks in shown.items():
        figure = Figure(figsize=(12, 3.2 * len(tasks)), layout="constrained")
        grid = figure.subplots(len(tasks), 2, squeeze=False)
        for task, axes in zip(tasks, grid, strict=True):
            _draw_returns_of_task(task, folder, *axes)
        figure.savefig(out / name, dpi=100)


def _draw_returns_of_task(
    task: SearchedTask, folder: Path, time_axes: Any, steps_axes: Any
) -> None:
    """Draw one environment's row of the picture: returns over minutes, and over steps."""
    for kind in task.kinds:
        curves = task.read_validation_curves(folder, kind)
        for axes, column in ((time_axes, 0), (steps_axes, 1)):
            _draw_mean_and_range(axes, [(one[column], one[2]) for one in curves], KINDS[kind].label)
    time_axes.set(title=task.name, xlabel="minutes of one core", ylabel="validation: mean return")
    steps_axes.set(title=task.name, xlabel="million steps")
    for axes in (time_axes, steps_axes):
        axes.grid(alpha=0.3)
    steps_axes.legend(loc="upper left", bbox_to_anchor=(1.02, 1.0))  # beside, it would cover curves


def _draw_mean_and_range(
    axes: Any, curves: list[tuple[np.ndarray, np.ndarray]], label: str
) -> None:
    """Draw the mean and the range over runs of the best validation so far.

    A dot marks the end of the longest run. Shorter runs are continued with their final value.
    """
    if not curves:
        return
    at = np.linspace(0.0, max(x[-1] for x, _ in curves), 200)
    best = []
    for x, y in curves:
        place = np.searchsorted(x, at, side="right") - 1
        so_far = np.maximum.accumulate(y)
        best.append(np.where(place >= 0, so_far[np.maximum(place, 0)], np.nan))
    together = np.ma.masked_invalid(best)
    label = f"{label}, seeds: {len(curves)}"
    (line,) = axes.plot(at, together.mean(0), marker="o", markevery=[-1], label=label)
    axes.fill_between(at, together.min(0), together.max(0), color=line.get_color(), alpha=0.2)


def main(arguments: Sequence[str] | None = None) -> int:
    """Search for policies by evolution, write table and pictures, and return the exit status."""
    names = [task.name for task in TASKS]
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--out", type=Path, default=Path("runs/from_nothing"), help="folder of all results"
    )
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="(default: all)")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seeds", type=int, nargs="+", help="(default: all)")
    parser.add_argument("--table", action="store_true", help="only write the page")
    given = parser.parse_args(arguments)
    out = given.out.resolve()
    for task in TASKS:
        if task.name in given.only and not given.table:
            for seed in given.seeds or task.seeds:
                for kind in task.kinds:
                    if kind in given.kinds:
                        task.run_training(out, kind, seed)
    write_markdown_tables(PAGE, {TITLE: make_markdown_results_table(out, PAGE.read_text())})
    draw_pictures_of_returns(out, PICTURES)
    return 0
