"""Learn a permutation-invariant policy for each of three gymnasium environments by one command.

    python -m experiments any_environment [--list]

All settings are the defaults of `an-control learn`: a teacher, a student, a monitor, and a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.steps import ExperimentStep, make_step_parser, run_steps

RUNS = Path("runs/any_environment")
ENVIRONMENTS = ("Pendulum-v1", "InvertedDoublePendulum-v5", "LunarLanderContinuous-v3")
STEPS = tuple(
    ExperimentStep(
        f"{RUNS}/{name}/model.safetensors", f"an-control learn {name} --seed 1 --out {RUNS}/{name}"
    )
    for name in ENVIRONMENTS
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Learn policies for three gymnasium environments, and return the exit status.

    Steps that have succeeded before are skipped.
    """
    return run_steps(RUNS, STEPS, make_step_parser(__doc__).parse_args(arguments))
