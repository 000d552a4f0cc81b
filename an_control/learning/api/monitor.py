"""Forward models of the monitor, which detects unannounced rewiring."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from an_control.learning.command_line import option
from an_control.learning.runs.progress import OnProgress, Progress, ignore
from an_control.monitor.forward_model import NETWORKS
from an_control.policy import Model, Monitor, read_model, write_model
from an_control.policy.onnx_file import monitor_path

if TYPE_CHECKING:
    from gymnasium import Env

    from an_control.learning.forward_model.networks import ForwardModelSettings
    from an_control.learning.training_disturbances import Fault
    from an_control.policy.sizes import MonitorValidation


@dataclass(frozen=True)
class MonitorOptions:
    """What decides a run of `train_monitor`."""

    model: Path
    """A .safetensors model file, or an .onnx file of another tool."""
    out: Path | None = None
    """Where to write it; by default the file itself. The monitor of an .onnx file is always written
    beside it, into NAME.monitor.safetensors."""
    folder: Path | None = None
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
    disturb: tuple[str, ...] = field(default=(), metadata={"aliases": ("--faults",)})
    """Disturbances in the words of `evaluate --table`, such as `delay=1` `start=rest`, that are
    learned to be no evidence of rewiring; an episode has one of them with the chance
    --disturb-share."""
    disturb_share: float = field(default=0.1, metadata={"aliases": ("--fault-share",)})
    """Share of the episodes that have one of --disturb."""
    minutes: float = 0.0
    """Processor time that this may take: with less than it needs, fewer steps and updates are made;
    0: no limit."""
    monitor: Monitor = "match"
    """What the monitor does with this model by default: off, reset or match (see `evaluate`)."""
    seed: int = 1
    """Seed of everything random."""

    def check(self) -> None:
        """Raise ValueError for a number that is out of bounds."""
        for name, least in (
            ("steps", 1),
            ("updates", 1),
            ("imputation_updates", 0),
            ("minutes", 0),
            ("seed", 0),
        ):
            if getattr(self, name) < least:
                raise ValueError(f"{option(name)} {getattr(self, name)}: must be {least} or more")
        if not 0.0 <= self.disturb_share <= 1.0:
            raise ValueError(f"--disturb-share {self.disturb_share}: must be from 0 to 1")


@dataclass(frozen=True)
class MonitorResult:
    """A model with a monitor.

    Attributes:
        model: its file; of an ONNX policy the one that holds the monitor.
        validation: what the monitor is worth; None where it was taken from another model.
        why_off: why the monitor is off unless somebody asks for it, else "".
        metrics: the figures of each step.
        updates: gradient updates that the forward model has had.
    """

    model: Path
    validation: MonitorValidation | None
    why_off: str
    metrics: list[dict[str, Any]]
    updates: int


def train_monitor(options: MonitorOptions, progress: OnProgress = ignore) -> MonitorResult:
    """Train the forward model of a model's monitor and write it into the model file.

    With `folder` the run that is there is continued, with `take` or `validate` nothing is trained.

    Raises:
        ValueError: options that are out of bounds, or fit neither each other, nor the model, nor
            the run in the folder.
        ModelError: a model file that cannot be read.
        EnvironmentFailure: nearly all episodes fail.
        RunStopped: `progress` returned False.
    """
    from an_control.learning.runs.run_folder import RunError
    from an_control.learning.training_disturbances import equal_chances
    from an_control_sim.gym.environments import describe, environment_of, make_environment
    from an_control_sim.gym.units import Units
    from an_control_sim.gym.varied_robot import check_robot

    options.check()
    try:
        faults = equal_chances(options.disturb, options.disturb_share)
    except ValueError as error:
        raise ValueError(f"--disturb: {error}") from error
    # One beside an ONNX file may belong to another version: then it is replaced.
    model, path = read_model(options.model, monitor=options.validate), options.out or options.model
    written = path
    if model.network is not None:
        written = monitor_path(path)
        if path != options.model:
            raise ValueError(f"--out {path}: the monitor of an ONNX file lies beside it, {written}")
    if options.take is not None:
        write_model(path, _with_networks(model, read_model(options.take), options))
        return MonitorResult(written, None, "", [], 0)
    if options.validate and model.forward is None:
        raise ValueError(f"{options.model}: --validate: has no forward model")
    name = options.task or str(model.task.get("name", ""))
    try:
        env = make_environment(environment_of(name), Units.of_task(model.task))
    except ValueError as error:
        raise ValueError(f"--task: {error}") from error
    with closing(env):
        channels = list(model.task.get("channels", []))
        if channels != describe(env, name, name)["channels"]:
            raise ValueError(f"{options.model}: its channels are not those of task {name!r}")
        try:
            for fault in faults:
                check_robot(env, fault.settings)
        except ValueError as error:
            raise ValueError(f"--disturb: {error}") from error
        try:
            model, metrics = _trained(options, env, model, faults, progress)
        except RunError as error:
            raise ValueError(str(error)) from error
        except ValueError as error:  # an environment gave NaN, or only short episodes
            raise ValueError(f"{name}: {' '.join(str(error).split())}") from error
    write_model(path, model)
    assert model.forward is not None and model.forward.validation is not None
    updates = model.trained.get("forward", {}).get("updates", 0)
    why_off = model.forward.why_off
    return MonitorResult(written, model.forward.validation, why_off, metrics, updates)


def _trained(
    options: MonitorOptions,
    env: Env[Any, Any],
    model: Model,
    faults: dict[Fault, float],
    progress: OnProgress,
) -> tuple[Model, list[dict[str, Any]]]:
    """Return the model with its forward model, trained unless only a validation is asked for."""
    from an_control.learning.forward_model.learner import ForwardModelLearner
    from an_control.learning.forward_model.validation import ROBOT_TICKS, validate
    from an_control.learning.runs.run_folder import RunFolder
    from an_control.learning.runs.run_loop import RunLoop

    metrics: list[dict[str, Any]] = []
    with TemporaryDirectory() as beside:
        if not options.validate:
            folder, settings = options.folder or Path(beside), _settings(options, model, faults)
            learner = ForwardModelLearner(folder, env, model, settings, options.seed)
            loop = RunLoop(RunFolder(folder, learner.config), learner)
            if learner.begins_again:
                text = f"{folder}: begins again; its --minutes had been too few"
                progress(Progress("note", note=text))
            loop.run_reported(progress)
            model, metrics = learner.model(), loop.metrics
        ticks = min(ROBOT_TICKS, max(1, options.steps // 10))
        return validate(env, model, faults, options.seed, ticks), metrics


def _settings(
    options: MonitorOptions, model: Model, faults: dict[Fault, float]
) -> ForwardModelSettings:
    from an_control.learning.forward_model.networks import ForwardModelSettings

    few = len(model.task.get("channels", ())) <= 8
    hidden = options.hidden or ((64, 64) if few else (192, 192))
    return ForwardModelSettings(
        hidden=hidden,
        steps=options.steps,
        updates=options.updates,
        identity=max(1, hidden[-1] * 2 // 3),
        identity_updates=options.updates,
        imputation=hidden[-1],
        imputation_updates=options.imputation_updates,
        monitor=options.monitor,
        minutes=options.minutes,
        faults=faults,
    )


def _with_networks(model: Model, other: Model, options: MonitorOptions) -> Model:
    """Return the model with what another model has learned of the same task."""
    if other.forward is None:
        raise ValueError(f"--take {options.take}: has no forward model (train-monitor makes one)")
    for key in ("channels", "actuators", "units"):
        if other.task.get(key) != model.task.get(key):
            raise ValueError(f"--take {options.take}: its {key} are not those of {options.model}")
    theirs = {name: array for name, array in other.arrays.items() if name.startswith(NETWORKS)}
    arrays = {n: array for n, array in model.arrays.items() if not n.startswith(NETWORKS)}
    trained = {**model.trained, "forward": other.trained.get("forward", {})}
    forward = replace(other.forward, monitor=options.monitor)
    return replace(model, arrays=arrays | theirs, forward=forward, trained=trained)
