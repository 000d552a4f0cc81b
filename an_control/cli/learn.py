"""``an-control learn ENV --out RUN``: teacher, student, monitor, table and card in one command."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from typing import Any

import tyro

from an_control.cli.common import (
    InputError,
    OutputFile,
    OutputFolder,
    command,
    need,
    option,
    write_json,
)
from an_control.learning.runs.terminal import explained
from an_control.system.interrupts import INTERRUPTED
from an_control_sim.gym.failure import EnvironmentFailure
from an_control_sim.gym.offers import with_offers


@dataclass(frozen=True)
class Verb:
    """From a gymnasium id to a policy that runs: teacher, student, monitor, table of scores, card.

    Each step is also a verb of its own: train-teacher, distill, train-monitor, evaluate --table.
    The same command continues a run that was stopped or killed.
    """

    task: tyro.conf.Positional[str]
    """A gymnasium id, also as module:id, or a task known by name (ant, cartpole)."""
    out: OutputFolder
    """The run's folder: model.safetensors and model.md are the result; teacher, student and monitor
    are the folders of the steps."""
    minutes: float = 30.0
    """Processor time for student, monitor and table, in minutes."""
    teacher_minutes: float = 45.0
    """Processor time for the teacher at most."""
    recipe: str | None = None
    """A recipe of distill, by name (quick, robust and others) or as a YAML file; by default that of
    the task's name, robust where it has none."""
    teacher: str | None = None
    """A teacher that is there already, as distill takes it: a model file of an MLP policy,
    ppo:FILE.zip of stable-baselines3, or python:MODULE:FUNCTION, from the array of readings to one
    of actions from -1 to 1. By default train-teacher makes one; the ant has its own."""
    seed: int = 1
    """Seed of everything random."""
    smoke: bool = False
    """A run of seconds, to check that everything works; it learns almost nothing."""
    json: OutputFile | None = None
    """Also write the table here as JSON."""

    def run(self) -> int:
        need("train", "torch", "gymnasium")
        from an_control.cli.learn_steps import LearnRun
        from an_control.learning.runs.run_folder import RunError, RunFolder
        from an_control_sim.gym.environments import environment_of, make_environment

        self._check()
        try:
            folder = RunFolder(self.out, self._config)
            with closing(make_environment(environment_of(self.task))) as env:
                learning = LearnRun(self, folder, env, command(self, "learn"))
                status = learning.run()
        except EnvironmentFailure as failure:
            raise EnvironmentFailure(f"{failure}{self._kept}") from failure
        except (ValueError, RunError, InputError) as error:
            raise InputError(f"{error}{self._kept}") from error
        except KeyboardInterrupt:
            status = INTERRUPTED
        if status == INTERRUPTED:
            with suppress(OSError):  # where nothing was made yet
                self.out.rmdir()
            print(f"stopped; to continue: {command(self, 'learn')}")
        if status == 0:
            write_json(self.json, learning.result())
        return status

    @property
    def _kept(self) -> str:
        """What an error's message says of the models that are there; nothing where none is."""
        steps = [self.out / name / "model.safetensors" for name in ("teacher", "student")]
        made = [str(path) for path in (*steps, self.out / "model.safetensors") if path.exists()]
        return f"; kept: {', '.join(made)}" if made else ""

    @property
    def _config(self) -> dict[str, Any]:
        options = asdict(self)
        names = ("minutes", "teacher_minutes", "recipe", "smoke")
        settings = {name: options[name] for name in names}
        return {
            "task": self.task,
            "seed": self.seed,
            "teacher": self.teacher,
            "settings": settings,
        }

    def _check(self) -> None:
        """InputError for what would be refused only after hours."""
        from an_control.learning.dagger.settings import DaggerSettings, read_recipe, recipe_of

        for name in ("minutes", "teacher_minutes"):
            if not 0.0 < getattr(self, name) < float("inf"):
                raise InputError(f"{option(name)} {getattr(self, name)}: must be over 0")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed}: must be 0 or more")
        try:
            recipe = read_recipe(self.recipe or recipe_of(self.task))
        except ValueError as error:
            raise InputError(str(error)) from error
        if not isinstance(recipe, DaggerSettings):
            raise InputError(f"{self.task}: learns from image patches; an-control distill does")
        if not recipe.rounds:
            raise InputError(f"{self.recipe}: rounds: 0 (allowed: 1 or more)")


Verb.__doc__ = with_offers(
    explained(Verb.__doc__, "return", "validation", "undone", "learns", "failed")
)
