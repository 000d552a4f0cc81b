"""``an-control teach TASK --out RUN``."""

from __future__ import annotations

import importlib.util
import sys
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from an_control.cli import InputError, command, write_json
from an_control.start import INTERRUPTED


@dataclass(frozen=True)
class Verb:
    """Improve a task's ordered teacher by its return (PPO), for `distill` to imitate.

    A stopped run goes on.
    """

    task: tyro.conf.Positional[str]
    """What to learn: a recipe of `an_control.learning.dagger.recipes`, such as ant."""
    out: Path
    """The run's folder; one that holds a run with the same settings is continued."""
    iterations: int = 500
    """Of 8,192 steps each; the rates fall over so many."""
    stop_after: int | None = None
    """End here, though the rates were meant to fall further."""
    seed: int = 1
    """Decides everything random."""
    smoke: bool = False
    """Seconds instead of minutes: proves that it runs, learns next to nothing."""
    json: Path | None = None
    """Also write the iterations' figures here as JSON."""

    def run(self) -> int:
        if importlib.util.find_spec("torch") is None:
            raise InputError("needs torch (pip install an_control[train])")
        from an_control.learning.dagger.recipes import RECIPES
        from an_control.learning.runs.run_folder import RunError, RunFolder
        from an_control.learning.runs.run_loop import RunLoop
        from an_control.learning.runs.terminal import run_at_terminal
        from an_control.learning.teacher.ppo import PpoSettings
        from an_control.learning.teacher.ppo_learner import PpoLearner

        for name in ("iterations", "stop_after", "seed"):
            if (value := getattr(self, name)) is not None and value < (name != "seed"):
                raise InputError(f"--{name.replace('_', '-')} {value}: must be 1 or more")
        if self.task not in RECIPES:
            raise InputError(f"task {self.task!r} is not one of {', '.join(RECIPES)}")
        recipe, settings = RECIPES[self.task], PpoSettings(iterations=self.iterations)
        if self.smoke:
            settings = replace(settings, iterations=2, environments=2, steps=20, batch=20)
        layers = recipe.teacher().layers
        if layers is None:
            raise InputError(f"task {self.task!r}: its teacher is no network")
        try:
            learner = PpoLearner(self.task, recipe.environment, layers, settings, self.seed)
            with closing(learner):
                loop = RunLoop(RunFolder(self.out, learner.config), learner)
                if not run_at_terminal(loop, command(self, "teach"), self.stop_after):
                    return INTERRUPTED
        except RunError as error:
            print(f"an-control teach: {error}", file=sys.stderr)
            return 1
        print(loop.model_path)
        result = {"task": self.task, "iterations": loop.metrics, "model": str(loop.model_path)}
        write_json(self.json, result)
        return 0
