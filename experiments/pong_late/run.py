"""Train a student of Pong to play with frames that are late, lost or repeated.

python -m experiments pong_late --start-model runs/pong/model.safetensors [--smoke]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.steps import ExperimentStep, add_smoke_option, make_step_parser, run_steps

RECIPE = "experiments/pong_late/recipe.yaml"


def make_student_step(start: Path, runs: Path, *, smoke: bool) -> ExperimentStep:
    """Return the step (command line) that trains a student of Pong with late and lost frames.

    `start` is the model file of a student that can already play, from which the training starts.
    The new model is written in the folder `runs`. `smoke` makes it a short test.
    """
    out = runs / "student"
    return ExperimentStep(
        f"{out}/model.safetensors",
        f"an-control distill pong --recipe {RECIPE} --start-model {start} --seed 2 --out {out}"
        + (" --smoke" if smoke else ""),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Train a student of Pong with late, lost and repeated frames; return the exit status."""
    parser = make_step_parser(__doc__)
    add_smoke_option(parser)
    parser.add_argument("--start-model", type=Path, default=Path("models/pong.safetensors"))
    given = parser.parse_args(arguments)
    runs = Path("runs/smoke/pong_late" if given.smoke else "runs/pong_late")
    return run_steps(runs, [make_student_step(given.start_model, runs, smoke=given.smoke)], given)
