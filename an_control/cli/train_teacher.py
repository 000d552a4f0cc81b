"""The verb ``an-control train-teacher ENV --out RUN``."""

from __future__ import annotations

from dataclasses import dataclass

import tyro

from an_control.cli.common import OutputFile, OutputFolder, require_packages, write_json
from an_control.cli.help import append_environment_attributes_help
from an_control.cli.terminal import ProgressLine, RunAtTerminal, append_progress_and_metrics_help
from an_control.learning.api.teacher import TeacherOptions, train_teacher
from an_control.learning.command_line import format_command


@dataclass(frozen=True)
class TrainTeacherCommand(TeacherOptions):
    """Train a teacher by reinforcement learning (PPO, SAC, TD3 or TQC).

    A teacher is an MLP policy, which needs its channels in order; `an-control distill` then trains
    a permutation-invariant student that imitates it. If the task already has a teacher (ant), PPO
    starts from that one. The same command continues a stopped run, also with other limits (minutes,
    steps, score). A run also stops if its validation has not improved for a third of its limit and
    for half of its duration so far.
    """

    task: tyro.conf.Positional[str]
    out: OutputFolder
    json: OutputFile | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        """Train the teacher, print its evaluation and model file, and return the exit status."""
        require_packages("train", "torch", "gymnasium", "stable_baselines3", "sb3_contrib")
        with RunAtTerminal(ProgressLine(format_command(self, "train-teacher"))) as terminal:
            result = train_teacher(self, terminal.report_progress)
        print(f"ended: {result.end}")
        for row in result.evaluations:
            score = f"{row['mean']:.1f} +- {row['standard_error']:.1f}"
            print(f"{row['protocol']}: {score}, {row['episodes']} episodes")
        print(result.model)
        made = {"task": self.task, "seed": self.seed, "model": str(result.model)}
        evaluations = {"evaluations": result.evaluations, "iterations": result.metrics}
        write_json(self.json, {**made, **evaluations})
        return 0


TrainTeacherCommand.__doc__ = append_environment_attributes_help(
    append_progress_and_metrics_help(TrainTeacherCommand.__doc__, "return", "validation", "failed")
)
