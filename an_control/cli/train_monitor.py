"""``an-control train-monitor MODEL``."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import tyro

from an_control.cli.common import (
    InputError,
    OutputFile,
    OutputFolder,
    command,
    file_problem,
    need,
    option,
    write_json,
)
from an_control.cli.disturbance import DisturbShare, DisturbTexts
from an_control.learning.runs.terminal import explained
from an_control.monitor.forward_model import NETWORKS
from an_control.policy import Model, Monitor, read_model, write_model
from an_control.system.interrupts import INTERRUPTED


@dataclass(frozen=True)
class Verb:
    """Train the forward model of a model's monitor and write it into the model file.

    The monitor predicts each channel's next reading with it, and so detects unannounced rewiring.
    The model itself drives the episodes to learn from, with exploration; this takes about ten
    minutes. The policy stays as it is. At the end the monitor is tried on episodes that it has not
    seen, also on robots with slower sensors, other mass and friction: if it invents moves or finds
    too few, the model file says so, and the monitor starts as off.
    """

    model: tyro.conf.Positional[Path]
    """A .safetensors model file."""
    out: OutputFile | None = None
    """Where to write it; by default the file itself."""
    folder: OutputFolder | None = None
    """A run's folder for checkpoints and metrics; the same command continues its run."""
    take: Path | None = None
    """Copy the forward model of this model file instead of training one; it must be of the same
    channels and actuators."""
    validate: bool = False
    """Train nothing: try the monitor that the model has, and write what it is worth into the file;
    with the --disturb that it was trained with."""
    task: str | None = None
    """A task known by name, or a gymnasium id, also as module:id; by default the model's."""
    hidden: tuple[int, ...] | None = None
    """Units of the hidden layers of the forward model; by default 64 64, or 192 192 for more than 8
    channels."""
    steps: int = 200_000
    """Steps of the task to learn from."""
    updates: int = 20_000
    """Gradient updates of the forward model, and as many of the identity classifier."""
    imputation_updates: int = 8_000
    """Gradient updates of the imputation network in each of its two stages; 0: no such network."""
    disturb: DisturbTexts = ()
    """Disturbances in the words of `evaluate --table`, such as `delay=1` `start=rest`, that are
    learned to be no evidence of rewiring; an episode has one of them with the chance
    --disturb-share."""
    disturb_share: DisturbShare = 0.1
    """Share of the episodes that have one of --disturb."""
    minutes: float = 0.0
    """Processor time that this may take: with less than it needs, fewer steps and updates are made;
    0: no limit."""
    monitor: Monitor = "match"
    """What the monitor does with this model by default: off, reset or match (see `evaluate`)."""
    seed: int = 1
    """Seed of everything random."""
    json: OutputFile | None = None
    """Also write the losses here as JSON."""

    def run(self) -> int:
        need("train", "torch", "gymnasium")
        from an_control.learning.faults import equal_chances
        from an_control.learning.forward_model.learner import ForwardModelLearner
        from an_control.learning.forward_model.networks import ForwardModelSettings
        from an_control.learning.forward_model.validation import ROBOT_TICKS, validate
        from an_control.learning.runs.run_folder import RunError, RunFolder
        from an_control.learning.runs.run_loop import RunLoop
        from an_control.learning.runs.terminal import run_at_terminal
        from an_control_sim.gym.environments import describe, environment_of, make_environment
        from an_control_sim.gym.units import Units
        from an_control_sim.gym.varied_robot import check_robot

        for name, least in (
            ("steps", 1),
            ("updates", 1),
            ("imputation_updates", 0),
            ("minutes", 0),
            ("seed", 0),
        ):
            if getattr(self, name) < least:
                raise InputError(f"{option(name)} {getattr(self, name)}: must be {least} or more")
        if not 0.0 <= self.disturb_share <= 1.0:
            raise InputError(f"--disturb-share {self.disturb_share}: must be from 0 to 1")
        try:
            faults = equal_chances(self.disturb, self.disturb_share)
        except ValueError as error:
            raise InputError(f"--disturb: {error}") from error
        model = read_model(self.model)
        if self.out is None and (problem := file_problem(self.model)):
            raise InputError(f"{self.model}: {problem}")
        if self.take is not None:
            return self._take(model, read_model(self.take))
        if self.validate and model.forward is None:
            raise InputError(f"{self.model}: --validate: has no forward model")
        channels = list(model.task.get("channels", []))
        name = self.task or str(model.task.get("name", ""))
        try:
            env = make_environment(environment_of(name), Units.of_task(model.task))
        except ValueError as error:
            raise InputError(f"--task: {error}") from error
        hidden = self.hidden or ((64, 64) if len(channels) <= 8 else (192, 192))
        settings = ForwardModelSettings(
            hidden=hidden,
            steps=self.steps,
            updates=self.updates,
            identity=max(1, hidden[-1] * 2 // 3),
            identity_updates=self.updates,
            imputation=hidden[-1],
            imputation_updates=self.imputation_updates,
            monitor=self.monitor,
            minutes=self.minutes,
            faults=faults,
        )
        with closing(env), TemporaryDirectory() as beside:
            if channels != describe(env, name, name)["channels"]:
                raise InputError(f"{self.model}: its channels are not those of task {name!r}")
            try:
                for fault in faults:
                    check_robot(env, fault.settings)
            except ValueError as error:
                raise InputError(f"--disturb: {error}") from error
            folder, course = self.folder or Path(beside), []
            try:
                if not self.validate:
                    learner = ForwardModelLearner(folder, env, model, settings, self.seed)
                    loop = RunLoop(RunFolder(folder, learner.config), learner)
                    if learner.begins_again:
                        print(f"{folder}: begins again; its --minutes had been too few")
                    again = command(self, "train-monitor") if self.folder is not None else None
                    if not run_at_terminal(loop, again):
                        return INTERRUPTED
                    model, course = learner.model(), loop.metrics
                ticks = min(ROBOT_TICKS, max(1, self.steps // 10))
                model = validate(env, model, faults, self.seed, ticks)
            except RunError as error:
                raise InputError(str(error)) from error
            except ValueError as error:  # an environment gave NaN, or only short episodes
                raise InputError(f"{name}: {' '.join(str(error).split())}") from error
        path = self.out or self.model
        write_model(path, model)
        assert model.forward is not None and model.forward.validation is not None
        print(model.forward.why_off or f"the monitor: {model.forward.validation}")
        print(path)
        result = {"model": str(path), "seed": self.seed, "course": course}
        write_json(self.json, {**result, "validation": asdict(model.forward.validation)})
        return 0

    def _take(self, model: Model, other: Model) -> int:
        """Bring over what another model has learned of the same task."""
        if other.forward is None:
            raise InputError(f"--take {self.take}: has no forward model (train-monitor makes one)")
        for key in ("channels", "actuators", "units"):
            if other.task.get(key) != model.task.get(key):
                raise InputError(f"--take {self.take}: its {key} are not those of {self.model}")
        ours = {name: array for name, array in other.arrays.items() if name.startswith(NETWORKS)}
        arrays = {n: array for n, array in model.arrays.items() if not n.startswith(NETWORKS)}
        trained = {**model.trained, "forward": other.trained.get("forward", {})}
        forward = replace(other.forward, monitor=self.monitor)
        path = self.out or self.model
        write_model(path, replace(model, arrays=arrays | ours, forward=forward, trained=trained))
        print(path)
        write_json(self.json, {"model": str(path), "taken": str(self.take)})
        return 0


Verb.__doc__ = explained(Verb.__doc__, "learns")
