"""Evaluate the Ant, the cars and Pong in simulation with faults such as late and lost messages.

    python -m experiments reality [--episodes 100] [--camera-episodes 20] [--smoke]

Tables and JSON are written into runs/reality; the second step runs the Ant over ROS 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.steps import ExperimentStep, add_smoke_option, make_step_parser, run_steps

RUNS = Path("runs/reality")
ANT = (
    *("reset", "none", "reset+100", "reset+25", "delay=1", "delay=2", "delay=0..2"),
    *("jitter=0.02", "jitter=0.05", "lose=0.1", "repeat=0.1", "stop=2", "start=rest"),
    *("start=posture", "gain=0.8", "gain=0.6", "friction=0.5", "mass=0.7", "mass=1.3", "lag=0.5"),
    *("reset+100,missing=0.1", "reset+25,missing=0.1", "reset,missing=0.25"),
    *("reset+100,missing=0.25", "25,swap=2", "25,jitter=0.05"),
)
"""Disturbances, most of which are faults that real robots have."""
CAMERA = ("reset", "reset,delay=1", "reset,lose=0.1", "reset,repeat=0.1")


def make_steps(
    runs: Path, episodes: int, camera_episodes: int, *, smoke: bool = False
) -> list[ExperimentStep]:
    """Return the steps (command lines) that evaluate policies on simulated robots with faults.

    They write into the folder `runs`. `camera_episodes` is the number for policies that see camera
    pictures, `episodes` that for the Ant. A short test (`smoke`) has only the Ant, with two
    disturbances.
    """

    def make_evaluation_table_step(
        model: str, episodes: int, protocols: Sequence[str]
    ) -> ExperimentStep:
        """Return the step that evaluates a model under several disturbances."""
        return ExperimentStep(
            f"{runs}/{model}.json",
            f"an-control evaluate models/{model}.safetensors --episodes {episodes} --seed 1"
            f" --table {' '.join(protocols)} --title {model} --markdown {runs}/{model}.md"
            f" --json {runs}/{model}.json --state {runs}/{model}.rows",
        )

    live = ExperimentStep(
        f"{runs}/ant_realtime.json",
        "an-control sim ant --realtime --shuffle reset --seed 1"
        f" --episodes {episodes} --json {runs}/ant_realtime.json",
    )
    if smoke:
        return [make_evaluation_table_step("ant", episodes, ANT[:2]), live]
    return [
        make_evaluation_table_step("ant", episodes, ANT),
        live,
        make_evaluation_table_step("car_racing", camera_episodes, CAMERA),
        make_evaluation_table_step("pong", camera_episodes, CAMERA),
        ExperimentStep(
            f"{runs}/inference.json",
            f"an-control bench inference --json {runs}/inference.json",
        ),
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate policies on simulated robots with faults, such as late messages.

    Steps that have succeeded before are skipped. Return the exit status.
    """
    parser = make_step_parser(__doc__)
    add_smoke_option(parser)
    parser.add_argument(
        "--episodes", type=int, default=100, help="episodes of the Ant (default: 100)"
    )
    parser.add_argument("--camera-episodes", type=int, default=20, help="(default: 20)")
    given = parser.parse_args(arguments)
    runs = Path("runs/smoke/reality") if given.smoke else RUNS
    counts = (1, 1) if given.smoke else (given.episodes, given.camera_episodes)
    return run_steps(runs, make_steps(runs, *counts, smoke=given.smoke), given)
