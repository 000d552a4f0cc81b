"""Train two larger student policies for the swing-up CartPole.

One has an LSTM, the other gets the newest four readings of each channel at once.

    python -m experiments cartpole_softmax [--list]

The students are models/cartpole_reshuffle.safetensors and models/cartpole_stacked.safetensors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.steps import ExperimentStep, make_step_parser, run_steps

RUNS = Path("runs/cartpole_softmax")
TEACHER = f"{RUNS}/teacher/model.safetensors"
DISTILL = (
    "an-control distill cartpole --recipe experiments/cartpole_softmax/recipe.yaml"
    f" --teacher {TEACHER}"
)
STEPS = (
    ExperimentStep(
        TEACHER,
        "an-control train cartpole --form mlp --optimiser cma --sigma 0.1 --rollouts 16"
        " --generations 3000 --decay 0.006 --validate-every 50 --episodes 1000"
        f" --out {RUNS}/teacher",
    ),
    ExperimentStep(f"{RUNS}/staged/model.safetensors", f"{DISTILL} --out {RUNS}/staged"),
    ExperimentStep(
        f"{RUNS}/stacked/model.safetensors",
        f"{DISTILL} --stack 4 --neuron 64 --products --out {RUNS}/stacked",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train two student policies for the swing-up CartPole, and return the exit status.

    Steps that have succeeded before are skipped.
    """
    return run_steps(RUNS, STEPS, make_step_parser(__doc__).parse_args(arguments))
