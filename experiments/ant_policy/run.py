"""Train an Ant from nothing in eight stages: its teacher, its students and its monitor.

    python -m experiments ant_policy [--list]

The result of each stage is in report.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.steps import ExperimentStep, make_step_parser, run_steps

RUNS = Path("runs/ant_policy")
"""Folder of the models and of their runs."""
RECIPES = "experiments/ant_policy/recipes"
WORN = "gain=0.6..1 friction=0.5..1 mass=0.7..1.3 lag=0..0.5"
"""Faults of a worn Ant; an episode of its teacher has one of them with probability 0.7."""
MONITOR = f"delay=1 start=rest start=posture stop=0.5..2 {WORN}"
"""Faults in the episodes from which the monitor learns."""


TEACHER, STANDING_UP = f"{RUNS}/teacher/model.safetensors", f"{RUNS}/gets_up.safetensors"
MODEL = f"{RUNS}/ant.safetensors"


def make_student_stage(recipe: str, seed: int, start_model: str = "") -> ExperimentStep:
    """Return the step (command line) that trains a student policy to imitate the Ant's teacher.

    `recipe` is the name of a YAML file of settings. The training starts from the model
    `start_model`, or from random weights if that is "".
    """
    out = f"{RUNS}/{recipe}_{seed}"
    start = f" --start-model {start_model}" if start_model else ""
    return ExperimentStep(
        f"{out}/model.safetensors",
        f"an-control distill ant --recipe {RECIPES}/{recipe}.yaml --teacher {STANDING_UP}{start}"
        f" --out {out} --seed {seed}",
    )


FIRST = make_student_stage("first", 1)
SECOND = make_student_stage("second", 2, FIRST.makes)
THIRDS = [make_student_stage("third", seed, SECOND.makes) for seed in (3, 4)]
STEPS = (
    ExperimentStep(
        TEACHER,
        "an-control train-teacher ant --algorithm td3 --steps 1000000 --minutes 400 --seed 3"
        f" --disturb {WORN} --disturb-share 0.7 --out {RUNS}/teacher",
    ),
    ExperimentStep(
        STANDING_UP, f"python -m experiments.ant_policy.gets_up {TEACHER} {STANDING_UP}"
    ),
    FIRST,
    SECOND,
    *THIRDS,
    ExperimentStep(
        MODEL,
        "python -m experiments.ant_policy.mean_of_models"
        f" {' '.join(one.makes for one in THIRDS)} --out {MODEL}",
    ),
    ExperimentStep(
        f"{RUNS}/monitor",
        f"an-control train-monitor {MODEL} --folder {RUNS}/monitor --disturb {MONITOR}"
        " --disturb-share 0.5",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train the Ant's teacher, students and monitor, and return the exit status.

    Steps that have succeeded before are skipped.
    """
    return run_steps(RUNS, STEPS, make_step_parser(__doc__).parse_args(arguments))
