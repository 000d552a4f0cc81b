"""Learn a monitor and a policy from recordings of the Ant alone, and evaluate both.

The recordings are made in lockstep by `driving`; from then on no simulator is used, until the
evaluation. The steps that are done are kept, so that the same command continues a stopped run.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from an_control.learning.evaluation.comparison import write_markdown_tables
from an_control.system.files import write_file
from experiments.learned_runs import make_markdown_table
from experiments.steps import ExperimentStep, run_steps

HERE = Path(__file__).resolve().parent
PAGE, TITLE = HERE / "README.md", "learned"
RESULTS = HERE / "results.json"
RUNS = Path("runs/recordings")
EVALUATED = 20
"""Number of episodes of each evaluation."""
WALK_SEED, TEACHER_SEED, EVALUATION_SEED = 20_000, 10_000, 1
"""Seeds of the first episode of each recording, and of the evaluations."""
WALK_EPISODES, TEACHER_EPISODES = 73, 50
"""Number of episodes of 16.5 s; 73 take 20 minutes."""
WALKER, TEACHER = "models/ant_quick.safetensors", "models/ant_teacher.safetensors"


@dataclass(frozen=True)
class ReturnRequirement:
    """A requirement: a learned model must reach a given share of a reference return.

    Attributes:
        text: What was learned, and how it is disturbed.
        learned: Name of the evaluation of the learned model.
        protocol: Protocol (disturbance) of that evaluation.
        reference: Name of the undisturbed evaluation whose mean return is the reference; "teacher"
            for the mean return of the recorded episodes.
        share: The share of the reference return that the model must reach.
    """

    text: str
    learned: str
    protocol: str
    reference: str
    share: float


def make_recording_step(
    name: str, model: str, episodes: int, seed: int, max_noise_sd: float
) -> ExperimentStep:
    """Return the step (command line) that records episodes of the Ant as the ROS bag `name`.

    The Ant is controlled by the policy `model`. Noise with a standard deviation of up to
    `max_noise_sd` is added to the actions.
    """
    return ExperimentStep(
        f"{RUNS}/{name}.json",
        f"python -m experiments recordings drive {RUNS}/{name} --model {model}"
        f" --episodes {episodes} --seed {seed} --push {max_noise_sd:g}",
    )


def make_evaluation_step(model: str, out: str, *protocols: str) -> ExperimentStep:
    """Return the step (command line) that evaluates a model under protocols such as "delay=1".

    The results are written to the file `out`.json.
    """
    return ExperimentStep(
        f"{RUNS}/{out}.json",
        f"an-control evaluate {model} --episodes {EVALUATED} --seed {EVALUATION_SEED}"
        f" --state {RUNS}/{out}.state --json {RUNS}/{out}.json --table {' '.join(protocols)}",
    )


def make_imitation_steps(name: str, bag: str, options: str) -> list[ExperimentStep]:
    """Return two steps (command lines): imitate the commands in a ROS bag, evaluate the new policy.

    `bag` is the folder of the bag, and `name` the folder of the new policy; both are in the folder
    `RUNS`. `options` are further options of `an-control distill`.
    """
    model = f"{RUNS}/{name}/model.safetensors"
    command = f"an-control distill ant --bag {RUNS}/{bag} {options} --out {RUNS}/{name}"
    evaluation = make_evaluation_step(model, f"{name}_returns", "none", "reset")
    return [ExperimentStep(model, command), evaluation]


def make_policy_and_monitor_steps(name: str, bag: str) -> list[ExperimentStep]:
    """Return the steps (command lines) that learn a policy and its monitor from the ROS bag `bag`.

    The last step evaluates both. The policy needs its channels in a fixed order; the monitor finds
    this order. `name` is the name of the policy's folder.
    """
    model, watched = f"{RUNS}/{name}/model.safetensors", f"{RUNS}/{name}_watched.safetensors"
    return [
        ExperimentStep(
            model, f"an-control distill ant --bag {RUNS}/{bag} --ordered --out {RUNS}/{name}"
        ),
        ExperimentStep(
            watched,
            f"an-control train-monitor {model} --bag {RUNS}/{bag} --out {watched}"
            f" --folder {RUNS}/{name}_monitor",
        ),
        make_evaluation_step(watched, f"{name}_returns", "none", "100", "25"),
    ]


WATCHED = f"{RUNS}/watched.safetensors"
BEGUN = 100
"""Number of episodes that begin in an unknown order."""
STEPS = (
    make_recording_step("teacher", TEACHER, TEACHER_EPISODES, TEACHER_SEED, 0.0),
    *make_policy_and_monitor_steps("ordered", "teacher"),
    ExperimentStep(
        f"{RUNS}/beginning_returns.json",
        f"python -m experiments recordings beginning --model {RUNS}/ordered_watched.safetensors"
        f" --bag {RUNS}/teacher --folder {RUNS}/beginning --episodes {BEGUN}"
        f" --json {RUNS}/beginning_returns.json",
    ),
    make_recording_step("pushed", TEACHER, TEACHER_EPISODES, TEACHER_SEED, 0.4),
    *make_policy_and_monitor_steps("ordered_pushed", "pushed"),
    make_recording_step("walk", WALKER, WALK_EPISODES, WALK_SEED, 0.0),
    ExperimentStep(
        WATCHED,
        f"an-control train-monitor {WALKER} --bag {RUNS}/walk --out {WATCHED}"
        f" --folder {RUNS}/monitor",
    ),
    make_evaluation_step(WATCHED, "watched_returns", "none", "reset+100", "reset+25"),
    *make_imitation_steps("imitated_quick", "teacher", "--recipe quick"),
)
BARS = (
    ReturnRequirement(
        "network in order, monitor and recorded beginning, of the teacher, shuffled",
        "beginning",
        "reset",
        "teacher",
        0.9,
    ),
    ReturnRequirement(
        "monitor of ant_quick, all signals moved every 100 steps",
        "watched",
        "reset+100",
        "watched",
        0.95,
    ),
    ReturnRequirement(
        "monitor of ant_quick, all signals moved every 25 steps",
        "watched",
        "reset+25",
        "watched",
        0.9,
    ),
    *(
        ReturnRequirement(
            f"policy, recipe `quick`, {order}", "imitated_quick", protocol, "teacher", 0.9
        )
        for protocol, order in (("reset", "shuffled"), ("none", "in order"))
    ),
    *(
        ReturnRequirement(
            f"network in order and monitor, {teacher}, {moved}", name, protocol, "teacher", 0.9
        )
        for name, teacher in (
            ("ordered", "of the teacher"),
            ("ordered_pushed", "of a teacher that is pushed about"),
        )
        for protocol, moved in (
            ("none", "undisturbed"),
            ("100", "all signals moved every 100 steps"),
            ("25", "all signals moved every 25 steps"),
        )
    ),
)


def run_learning_steps(options: argparse.Namespace) -> int:
    """Learn models from recordings, evaluate them, and return the exit status.

    Steps that have succeeded before are skipped.
    """
    status = 0 if options.table else run_steps(RUNS, STEPS, options)
    if not options.list:
        write_results()
    return status


def write_results() -> None:
    """Write the finished evaluations to the results file, and the table into the README."""
    found: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for path in sorted(RUNS.glob("*_returns.json")):
        found[path.stem.removesuffix("_returns")] = {
            one["protocol"]: {
                "mean": round(one["mean"], 1),
                "error": round(one["sd"] / max(len(one["episodes"]) - 1, 1) ** 0.5, 1),
                "episodes": len(one["episodes"]),
            }
            for one in json.loads(path.read_text())["protocols"]
        }
    recorded = RUNS / "teacher.json"
    if recorded.exists():
        returns = np.array(json.loads(recorded.read_text())["returns"])
        error = float(returns.std(ddof=1) / len(returns) ** 0.5)
        figures = {"mean": round(float(returns.mean()), 1), "error": round(error, 1)}
        found["teacher"] = {"none": {**figures, "episodes": len(returns)}}
    write_file(RESULTS, json.dumps(found, indent=1, sort_keys=True) + "\n")
    write_markdown_tables(PAGE, {TITLE: make_markdown_results_table(found)})


def make_markdown_results_table(figures_by_evaluation: dict[str, Any]) -> str:
    """Return the Markdown table that shows whether the learned models meet their requirements."""
    rows = []
    for bar in BARS:
        if bar.learned not in figures_by_evaluation or bar.reference not in figures_by_evaluation:
            continue
        one = figures_by_evaluation[bar.learned][bar.protocol]
        usual = figures_by_evaluation[bar.reference]["none"]["mean"]
        share = one["mean"] / usual
        verdict = "holds" if share >= bar.share else "**missed**"
        of = "undisturbed" if bar.reference == bar.learned else f"the {bar.reference}"
        rows.append(
            [
                bar.text,
                f"{one['mean']:.0f} +- {one['error']:.0f}",
                f"{share:.1%} of {of} ({usual:.0f})",
                f"{bar.share:.0%}",
                verdict,
            ]
        )
    return make_markdown_table(["learned", "return", "share", "bar", ""], rows)
