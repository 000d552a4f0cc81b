"""Train the shipped Ant from nothing: its teachers, its students and its monitor.

    python -m experiments ant_policy [--list]

The seeds are those of the shipped models; report.md reports the result of each step.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from experiments.steps import ExperimentStep, make_step_parser, run_steps

RUNS = Path("runs/ant_policy")
"""Folder of the record of finished steps; the models have their own folders in `runs`."""
RECIPES = "experiments/ant_policy/recipes"
WORN = "gain=0.6..1 friction=0.5..1 mass=0.7..1.3 lag=0..0.5"
"""Faults of a worn Ant; an episode of its teacher has one of them with probability 0.7."""
MONITOR = f"delay=1 start=rest start=posture stop=0.5..2 {WORN}"
"""Faults in the episodes from which the monitor learns."""


def get_model_path(model: str) -> str:
    """Return the path of a model, which is a file in `runs` or is in the folder of a run there."""
    return f"runs/{model}" if model.endswith(".safetensors") else f"runs/{model}/model.safetensors"


def make_student_step(recipe: str, teacher: str, start: str, out: str, seed: int) -> ExperimentStep:
    """Return the step that trains a student policy from the weights of another model."""
    return ExperimentStep(
        get_model_path(out),
        f"an-control distill ant --recipe {RECIPES}/{recipe}.yaml"
        f" --teacher {get_model_path(teacher)} --start-model {get_model_path(start)}"
        f" --out runs/{out} --seed {seed}",
    )


def make_gets_up_step(teacher: str, out: str) -> ExperimentStep:
    """Return the step that turns a walking teacher into one that also gets up from the ground."""
    command = f"python -m experiments.ant_policy.gets_up {get_model_path(teacher)} runs/{out}"
    return ExperimentStep(f"runs/{out}", command)


def make_average_step(first: str, second: str, out: str) -> ExperimentStep:
    """Return the step that averages the weights of two models."""
    models = f"{get_model_path(first)} {get_model_path(second)}"
    command = f"python -m experiments.ant_policy.mean_of_models {models} --out runs/{out}"
    return ExperimentStep(f"runs/{out}", command)


PPO, TD3, UP = "ant_teacher", "ant_td3", "ant_up.safetensors"
WORN_TD3, WORN_UP = "ant_worn", "ant_worn_up.safetensors"
STEPS = (
    # 1 to 6: students of the package's teacher and of one that PPO made of it; the last is ant_ppo.
    ExperimentStep(get_model_path("ant"), "an-control distill ant --out runs/ant --seed 2"),
    ExperimentStep(
        get_model_path(PPO),
        "an-control train-teacher ant --out runs/ant_teacher --steps 1500000",
    ),
    make_student_step("ant-second", PPO, "ant", "ant_again", 3),
    make_student_step("ant-memory", PPO, "ant_again", "ant_memory", 3),
    make_student_step("ant-rewired", PPO, "ant_memory", "ant_rewired", 7),
    make_student_step("ant-missing", PPO, "ant_rewired", "ant_ppo", 11),
    # 7 to 17: students of a faster teacher, then of one that also gets up.
    ExperimentStep(
        get_model_path(TD3),
        "an-control train-teacher ant --algorithm td3 --steps 1000000 --minutes 300"
        " --out runs/ant_td3",
    ),
    make_student_step("ant-fast-first", TD3, "ant_ppo", "ant_fast_1", 1),
    make_student_step("ant-fast-second", TD3, "ant_fast_1", "ant_fast_2", 2),
    make_student_step("ant-fast-third", TD3, "ant_fast_2", "ant_fast_3", 3),
    make_student_step("ant-fast-fourth", TD3, "ant_fast_3", "ant_fast_4", 4),
    make_student_step("ant-fast-fifth", TD3, "ant_fast_4", "ant_fast_5", 5),
    make_student_step("ant-fast-sixth", TD3, "ant_fast_5", "ant_fast_6", 6),
    make_gets_up_step(TD3, UP),
    make_student_step("ant-fast-eighth", UP, "ant_fast_6", "ant_fast_8", 10),
    make_average_step("ant_fast_6", "ant_fast_8", "ant_mean.safetensors"),
    make_student_step("ant-fast-ninth", UP, "ant_mean.safetensors", "ant_fast_9", 11),
    make_average_step("ant_fast_8", "ant_fast_9", "ant_fast.safetensors"),
    # 18 to 26: students of a teacher that was trained on worn robots; the last is ant.
    ExperimentStep(
        get_model_path(WORN_TD3),
        "an-control train-teacher ant --algorithm td3 --steps 1000000 --minutes 400 --seed 3"
        f" --disturb {WORN} --disturb-share 0.7 --out runs/ant_worn",
    ),
    make_student_step("ant-worn-first", WORN_TD3, "ant_fast.safetensors", "ant_worn_1", 14),
    make_gets_up_step(WORN_TD3, WORN_UP),
    make_student_step("ant-worn-second", WORN_UP, "ant_worn_1", "ant_worn_15", 15),
    make_student_step("ant-worn-second", WORN_UP, "ant_worn_1", "ant_worn_16", 16),
    make_average_step("ant_worn_15", "ant_worn_16", "ant_worn_mean.safetensors"),
    make_student_step("ant-worn-third", WORN_UP, "ant_worn_mean.safetensors", "ant_worn_17", 17),
    make_student_step("ant-worn-third", WORN_UP, "ant_worn_17", "ant_worn_18", 18),
    make_average_step("ant_worn_17", "ant_worn_18", "ant.safetensors"),
    ExperimentStep(
        "runs/ant_monitor",
        "an-control train-monitor runs/ant.safetensors --folder runs/ant_monitor"
        f" --disturb {MONITOR} --disturb-share 0.5",
    ),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps of the experiment that are not done; return the exit status."""
    return run_steps(RUNS, STEPS, make_step_parser(__doc__).parse_args(arguments))
