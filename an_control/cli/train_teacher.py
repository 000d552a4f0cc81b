"""``an-control train-teacher TASK --out RUN``."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import closing
from dataclasses import dataclass, replace

import tyro

from an_control.cli.common import InputError, OutputFile, OutputFolder, command, write_json
from an_control.system.interrupts import INTERRUPTED


@dataclass(frozen=True)
class Verb:
    """Improve a task's teacher, an MLP policy, by its return (PPO); `distill` imitates it.

    A run that was stopped is resumed.
    """

    task: tyro.conf.Positional[str]
    """What to learn: a task with a teacher of its own: ant."""
    out: OutputFolder
    """The run's folder; a run in it with the same settings is resumed."""
    iterations: int = 500
    """Iterations of 8,192 steps; the learning rates fall over this many."""
    stop_after: int | None = None
    """Stop after this many iterations, before the rates have fallen to the end."""
    seed: int = 1
    """Decides everything random."""
    smoke: bool = False
    """A run of seconds, to check that everything works; it learns almost nothing."""
    json: OutputFile | None = None
    """Also write the iterations' figures here as JSON."""

    def run(self) -> int:
        if importlib.util.find_spec("torch") is None:
            raise InputError("needs torch (pip install an_control[train])")
        from an_control.learning.environments import environment_of
        from an_control.learning.runs.run_folder import RunError, RunFolder
        from an_control.learning.runs.run_loop import RunLoop
        from an_control.learning.runs.terminal import run_at_terminal
        from an_control.learning.teacher.ppo import PpoSettings
        from an_control.learning.teacher.ppo_learner import PpoLearner
        from an_control.learning.teacher.teachers import own_teacher

        for name in ("iterations", "stop_after", "seed"):
            if (value := getattr(self, name)) is not None and value < (name != "seed"):
                raise InputError(f"--{name.replace('_', '-')} {value}: must be 1 or more")
        teacher = own_teacher(self.task)
        if teacher is None:
            raise InputError(f"task {self.task!r} is not one of ant")
        settings = PpoSettings(iterations=self.iterations)
        if self.smoke:
            settings = replace(settings, iterations=2, environments=2, steps=20, batch=20)
        layers = teacher.layers
        if layers is None:
            raise InputError(f"task {self.task!r}: its teacher is no network")
        try:
            learner = PpoLearner(self.task, environment_of(self.task), layers, settings, self.seed)
            with closing(learner):
                loop = RunLoop(RunFolder(self.out, learner.config), learner)
                if not run_at_terminal(loop, command(self, "train-teacher"), self.stop_after):
                    return INTERRUPTED
        except RunError as error:
            print(f"an-control train-teacher: {error}", file=sys.stderr)
            return 1
        print(loop.model_path)
        result = {"task": self.task, "iterations": loop.metrics, "model": str(loop.model_path)}
        write_json(self.json, result)
        return 0
