"""Evolve a policy for CartPoleSwingUpHarder from random weights, with EvoJAX's settings.

    python -m experiments cartpole_evolution [--seeds 1 2 3] [--generations 20000] [--draw] [--save]

The policy is that of Tang & Ha 2021: LSTM neurons, fixed queries, and all of the authors'
parameters. It has no teacher. A run that was stopped or killed continues; in a new clone it
continues from the state in the folder `saved`, which `--save` writes. `--draw` only draws the curve
of the runs so far.
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from experiments.steps import ExperimentStep, make_step_parser, run_steps

RUNS = Path("runs/cartpole_evolution")
PICTURE = Path(__file__).parent / "curve.png"
SAVED = Path(__file__).parent / "saved"
"""Folder with the states of unfinished runs, from which another clone continues."""
SAVED_FILES = ("checkpoint.safetensors", "config.json", "model.safetensors")
PAPER, STEPS_PER_PAPER_RUN = 472.0, 14_000 * 256 * 16 * 1000
"""The mean return in Tang & Ha 2021, and the maximum number of simulated steps in that paper's
14,000 generations."""
TRAIN = (
    "an-control train cartpole --form attention-raw --queries 64 --starts 0 --optimiser pgpe"
    " --popsize 256 --rollouts 16 --rate 0.037 --sigma 0.082 --sigma-rate 0.078"
    " --validate-every 100 --episodes 5000"
)
"""EvoJAX's settings of its permutation-invariant CartPole (examples/train_cartpole.py)."""


def make_steps(seeds: Sequence[int], generations: int) -> list[ExperimentStep]:
    """Return two steps (command lines) for each seed: train a policy, and evaluate it."""
    steps = []
    for seed in seeds:
        run = f"{RUNS}/seed-{seed}"
        model, evaluation = f"{run}/model.safetensors", f"{run}/evaluation.json"
        train = f"{TRAIN} --generations {generations} --seed {seed} --out {run}"
        evaluate = f"an-control evaluate {model} --task cartpole --table reset --episodes 5000"
        steps += [
            ExperimentStep(model, train),
            ExperimentStep(evaluation, f"{evaluate} --json {evaluation}"),
        ]
    return steps


def read_learning_curve(folder: Path) -> np.ndarray:
    """Return a run's learning curve (3, V) at V validations during training.

    Its rows are: billion simulated steps, hours, mean return.
    """
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    columns = [
        (line["steps"] / 1e9, line["wall_s"] / 3600.0, line["validation"])
        for line in lines
        if "validation" in line
    ]
    return np.array(columns).reshape(-1, 3).T


def save_states(runs: Path, saved: Path) -> None:
    """Copy the states of all runs in `runs` to `saved`, so that another clone can continue them."""
    for metrics in runs.glob("seed-*/metrics.jsonl"):
        folder = saved / metrics.parent.name
        folder.mkdir(parents=True, exist_ok=True)
        for name in SAVED_FILES:
            shutil.copy(metrics.parent / name, folder)
        lines = metrics.read_text().splitlines(keepends=True)
        (folder / metrics.name).write_text("".join(line for line in lines if "validation" in line))


def restore_states(runs: Path, saved: Path) -> None:
    """Copy states of runs from `saved` back to `runs`, except for runs that exist there."""
    for state in saved.glob("seed-*"):
        if not (runs / state.name).exists():
            shutil.copytree(state, runs / state.name)


def draw_learning_curves(folders: Sequence[Path], picture: Path) -> None:
    """Draw returns during training over steps and hours, with a line for the published return."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.5), layout="constrained")
    by_steps, by_hours = figure.subplots(1, 2, sharey=True)
    for folder in folders:
        steps, hours, returns = read_learning_curve(folder)
        by_steps.plot(steps, returns, label=folder.name)
        by_hours.plot(hours, returns, label=folder.name)
    for axes, label in ((by_steps, "billion steps"), (by_hours, "hours of wall-clock time")):
        axes.axhline(PAPER, color="black", linestyle="--", label="paper: 472")
        axes.set(xlabel=label)
        axes.grid(alpha=0.3)
    by_steps.set(ylabel="mean return of the validation episodes")
    by_steps.axvline(
        STEPS_PER_PAPER_RUN / 1e9, color="gray", linestyle=":", label="paper's number of steps"
    )
    by_steps.legend()
    figure.savefig(picture, dpi=100)


def main(arguments: Sequence[str] | None = None) -> int:
    """Evolve CartPole policies, draw their learning curves, and return the exit status.

    Steps that have succeeded before are skipped.
    """
    parser = make_step_parser(__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--generations", type=int, default=20_000)
    parser.add_argument("--draw", action="store_true", help="only draw the curves of the runs")
    parser.add_argument(
        "--save", action="store_true", help="only save the states of the runs for another clone"
    )
    parser.add_argument("--saved", type=Path, default=SAVED, help=argparse.SUPPRESS)
    parser.add_argument("--picture", type=Path, default=PICTURE, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    status = 0
    if options.save:
        save_states(RUNS, options.saved)
        return status
    if not options.list:
        restore_states(RUNS, options.saved)
    if not options.draw:
        status = run_steps(RUNS, make_steps(options.seeds, options.generations), options)
    folders = [path.parent for path in sorted(RUNS.glob("seed-*/metrics.jsonl"))]
    if folders and not options.list:
        draw_learning_curves(folders, options.picture)
    return status
