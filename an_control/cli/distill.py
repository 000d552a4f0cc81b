"""``an-control distill TASK --out RUN``."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tyro

from an_control.cli.common import InputError, OutputFile, OutputFolder, write_json
from an_control.cli.disturbance import mixture
from an_control.policy import read_model

if TYPE_CHECKING:
    from an_control.learning.dagger.run import Distillation
    from an_control.learning.dagger.staged import Imitation

STAGED = {
    "reshuffled": ("reshuffled", None),
    "missing": ("empty", "absent"),
    "noise": ("foreign", "foreign"),
    "copies": ("doubled", "copied"),
    "added": ("added", None),
}
"""Options of the staged recipe alone: what they set of its streams, and of its episodes."""
MAX_ADDED = 1000


@dataclass(frozen=True)
class Verb:
    """Teach a permutation-invariant student what a teacher does; a stopped run goes on."""

    task: tyro.conf.Positional[str]
    """A task known by name (cartpole, ant), or a gymnasium id, also as module:id."""
    out: OutputFolder
    """The run's folder; one that holds a run with the same settings is continued."""
    seed: int = 1
    """Decides everything random."""
    rounds: int | None = None
    """DAgger rounds, where not the recipe's."""
    updates: int | None = None
    """Updates a round, where not the recipe's."""
    teacher: str | None = None
    """A model file of an MLP policy, or ppo:FILE.zip (a2c, ddpg, sac, td3) of
    stable-baselines3; the ant and the camera tasks bring their own teachers."""
    device: str = "cpu"
    """Where torch learns, cpu or cuda; not for the compiled recipe."""
    start: Path | None = None
    """A model file of the student to begin with; the staged recipe takes its neurons, keys and
    queries, and begins the head as the teacher's."""
    recipe: str | None = None
    """Of the staged recipe: settings of `learning.dagger.recipes`, where not the task's own."""
    rate: float | None = None
    """Of the compiled recipe and the camera tasks: the first learning rate, where not the
    recipe's."""
    missing_patches: tuple[float, ...] = ()
    """Of the camera tasks: the share of patches that is missing, other ones in each episode; two
    numbers are the minimum and the maximum, between which the share is drawn too."""
    backgrounds: float | None = None
    """Of car_racing: the share of examples in which random patterns replace the grass."""
    compiled: bool = True
    """Take the compiled recipe for the authors' form, where the environment offers compiled
    functions; else, or with --no-compiled, the staged one with torch."""
    shuffle: tuple[str, ...] = ("none",)
    """Of the compiled recipe: what episodes are disturbed by, one drawn for each round; words as in
    `train`: reset+100, or reset,noise=5,copies=5,missing=0.2."""
    reshuffled: float | None = None
    """Of the staged recipe, where not as it has it: the share of streams that are reshuffled on the
    way."""
    missing: float | None = None
    """The share of streams and episodes in which some channels are missing."""
    noise: float | None = None
    """The share in which some channels are noise."""
    copies: float | None = None
    """The share in which channels repeat others."""
    added: int | None = None
    """Slots that are added to the streams, some of which carry copies or noise."""
    normalise: bool = False
    """Scale the sums over channels, so that more of them do not make the message larger."""
    neuron: int | None = None
    """Units a channel, where not the recipe's (of the compiled recipe 8)."""
    stack: int | None = None
    """How many of its newest readings a neuron sees, 0 for an LSTM; where not the recipe's."""
    products: bool | None = None
    """Feed the neurons products of reading and previous action, where not as the recipe does."""
    smoke: bool = False
    """Seconds instead of minutes: proves that it runs, learns next to nothing."""
    json: OutputFile | None = None
    """Also write the rounds' figures here as JSON."""

    def run(self) -> int:
        if importlib.util.find_spec("torch") is None:
            raise InputError("needs torch (pip install an_control[train])")
        from an_control.learning.dagger.recipes import CAMERA_RECIPES
        from an_control.learning.environments import has_lanes

        for name, least in (
            ("seed", 0),
            ("rounds", 0),
            ("updates", 0),
            ("stack", 0),
            ("neuron", 1),
        ):
            if (value := getattr(self, name)) is not None and value < least:
                raise InputError(f"--{name} {value}: must be {least} or more")
        if self.task in CAMERA_RECIPES:
            return self._run_camera()
        for name in ("missing_patches", "backgrounds"):
            if getattr(self, name) not in (None, ()):
                option = name.replace("_", "-")
                raise InputError(f"--{option}: not for {self.task}, only for what a camera shows")
        if self.compiled and has_lanes(self.task):
            for name in STAGED:
                if getattr(self, name) is not None:
                    raise InputError(f"--{name}: the compiled recipe takes --shuffle instead")
            return self._run_compiled()
        for name, default in (("shuffle", ("none",)), ("rate", None)):
            if getattr(self, name) != default:
                raise InputError(f"--{name}: only the compiled recipe takes it")
        try:
            run = self._staged()
        except (ValueError, RuntimeError) as error:
            raise InputError(str(error)) from error
        if run.round:
            print(f"{self.out}: {run.round} of {run.settings.rounds + 1} rounds were done before")
        return self._play(run, lambda line: print(_shown(line), flush=True))

    def _staged(self) -> Distillation:
        """The run of the staged recipe; ValueError where teacher and task do not fit."""
        from an_control.learning.dagger.recipes import RECIPES, smoke
        from an_control.learning.dagger.run import Distillation
        from an_control.learning.dagger.staged import Imitation
        from an_control.learning.environments import environment_of, make_environment
        from an_control.learning.teacher.teachers import read_teacher

        if self.recipe is not None and self.recipe not in RECIPES:
            raise ValueError(f"--recipe {self.recipe!r} is not one of {', '.join(RECIPES)}")
        recipe = RECIPES.get(self.recipe or self.task)
        environment = environment_of(self.task)
        settings = Imitation() if recipe is None else recipe.settings
        with closing(make_environment(environment)) as env:
            teacher = None if self.teacher is None else read_teacher(self.teacher, env)
        if teacher is None:
            if recipe is None:
                raise ValueError(f"--teacher: {self.task} has none of its own")
            teacher = recipe.teacher()
        settings = smoke(settings) if self.smoke else settings
        student = settings.student
        if teacher.layers is not None:
            head = tuple(len(bias) for _, bias in teacher.layers[:-1])
            student = replace(student, head=head)
        names = ("neuron", "stack", "products")
        chosen = {name: getattr(self, name) for name in names}
        student = replace(student, **{k: v for k, v in chosen.items() if v is not None})
        if self.normalise:
            student = replace(student, normalise=True)
        settings = self._disturbed(settings)
        settings = replace(
            settings,
            student=student,
            rounds=settings.rounds if self.rounds is None else self.rounds,
            updates=settings.updates if self.updates is None else self.updates,
        )
        return Distillation(
            self.out,
            self.task,
            environment,
            teacher,
            settings,
            self.seed,
            self.device,
            self.teacher,
            None if self.start is None else read_model(self.start),
        )

    def _disturbed(self, settings: Imitation) -> Imitation:
        """With the shares of streams and episodes that are asked for."""
        given = {name: getattr(self, name) for name in STAGED if getattr(self, name) is not None}
        for name, value in given.items():
            maximum = MAX_ADDED if name == "added" else 1
            if not 0 <= value <= maximum:
                raise ValueError(f"--{name} {value}: must be from 0 to {maximum}")
        streams = {STAGED[name][0]: value for name, value in given.items()}
        episodes = {key: given[name] for name, (_, key) in STAGED.items() if key and name in given}
        return replace(
            settings,
            disturbance=replace(settings.disturbance, **streams),
            collection=replace(settings.collection, **episodes),
        )

    def _run_compiled(self) -> int:
        """The compiled recipe: DAgger into the authors' form."""
        from an_control.learning.dagger.compiled.run import CloningRun
        from an_control.learning.dagger.compiled.training import Cloning
        from an_control.learning.environments import describe, environment_of, make_environment
        from an_control.learning.es.parametrisation import Authors
        from an_control.learning.runs.run_folder import RunError

        if self.teacher is None:
            raise InputError(
                "--teacher: needs an MLP policy's model file"
                f" (an-control train {self.task} --form mlp --out RUN)"
            )
        env = make_environment(environment_of(self.task))
        task = describe(env, self.task, environment_of(self.task))
        start = None if self.start is None else read_model(self.start)
        form = Authors(
            len(task["actuators"]),
            neuron=self.neuron or 8,
            stack=self.stack or 0,
            normalise=len(task["channels"]) if self.normalise else 0,
        )
        settings = Cloning(form, mixture=mixture(self.shuffle, len(task["channels"])))
        if self.rate is not None:
            settings = replace(settings, rate=self.rate)
        if self.smoke:
            settings = replace(settings, rounds=2, updates=3, first_episodes=64, memory=128)
        settings = replace(
            settings,
            rounds=settings.rounds if self.rounds is None else self.rounds,
            updates=settings.updates if self.updates is None else self.updates,
        )
        try:
            run = CloningRun(
                self.out,
                env,
                task,
                read_model(Path(self.teacher)),
                settings,
                self.seed,
                resume=(self.out / "checkpoint.pickle").exists(),
                start=None if start is None else form.vector(start),
            )
        except (ValueError, RunError) as error:
            raise InputError(str(error)) from error
        if run.round:
            print(f"{self.out}: {run.round} of {settings.rounds} rounds were done before")
        return self._play(
            run, lambda line: print(_shown(line), flush=True) if "validation" in line else None
        )

    def _run_camera(self) -> int:
        """DAgger from what the environment's own teacher knows, into image patches."""
        from an_control.learning.dagger.patches.run import CameraRun
        from an_control.learning.dagger.recipes import CAMERA_RECIPES, camera_smoke
        from an_control.learning.environments import describe, environment_of, make_environment
        from an_control.learning.runs.run_folder import RunError

        for name in ("teacher", "neuron", "stack", "products", "normalise", *STAGED):
            if getattr(self, name):
                raise InputError(f"--{name}: not for {self.task}")
        missing, options = self.missing_patches, "--missing-patches, --backgrounds"
        shares = missing if self.backgrounds is None else (*missing, self.backgrounds)
        if not all(0.0 <= share <= 1.0 for share in shares):
            raise InputError(f"{options} {shares}: must be shares from 0 to 1")
        if len(missing) > 2 or missing != tuple(sorted(missing)):
            raise InputError(
                f"--missing-patches {missing}: must be a share, or the minimum and the maximum"
            )
        settings = CAMERA_RECIPES[self.task]
        if self.smoke:
            settings = camera_smoke(settings)
        settings = replace(
            settings,
            rounds=settings.rounds if self.rounds is None else self.rounds,
            updates=settings.updates if self.updates is None else self.updates,
            rate=settings.rate if self.rate is None else self.rate,
            hidden=(missing[0], missing[-1]) if missing else settings.hidden,
        )
        if self.backgrounds:
            settings = replace(settings, backgrounds=self.backgrounds)
        start = None if self.start is None else read_model(self.start)
        try:
            env = make_environment(environment_of(self.task))
            task = describe(env, self.task, environment_of(self.task))
            resume = (self.out / "checkpoint.pickle").exists()
            run = CameraRun(self.out, env, task, settings, self.seed, resume, self.device, start)
        except (ValueError, RunError) as error:
            raise InputError(str(error)) from error
        if run.round:
            print(f"{self.out}: {run.round} of {settings.rounds} rounds were done before")
        return self._play(run, lambda line: print(_shown(line), flush=True))

    def _play(self, run: Any, report: Callable[[dict[str, Any]], None]) -> int:
        """The rounds that are left, and what they gave; 1 where one of them failed."""
        from an_control.learning.runs.run_folder import RunError

        try:
            run.run(report)
        except (RunError, OSError) as error:
            print(f"an-control distill: {error}", file=sys.stderr)
            return 1
        finally:
            run.close()
        print(run.model_path)
        write_json(
            self.json,
            {
                "task": self.task,
                "seed": self.seed,
                "rounds": run.metrics,
                "model": str(run.model_path),
            },
        )
        return 0


def _shown(line: dict[str, Any]) -> str:
    return "  ".join(f"{name} {value:.4g}" for name, value in line.items())
