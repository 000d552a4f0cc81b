"""Train the networks of the identity monitor, which detects unannounced rewiring.

Unannounced rewiring means that signals start to arrive in other channels, and that no message says
so.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from an_control.control.model_wiring_check import (
    describe_assumed_action_limit,
    join_names_shortened,
)
from an_control.learning.command_line import get_setting_name_for_user
from an_control.learning.limits import (
    CountOrZero,
    Positive,
    Share,
    ZeroOrOver,
    check_numbers_within_limits,
)
from an_control.learning.runs.progress import OnProgress, RunProgress, ignore_progress
from an_control.monitor.forward_model import NETWORKS
from an_control.policy import Model, Monitor, read_model, write_model
from an_control.policy.onnx_file import get_monitor_path
from an_control.policy.sizes import VisionSizes

if TYPE_CHECKING:
    from gymnasium import Env

    from an_control.learning.forward_model.episodes import EpisodeTrace
    from an_control.learning.forward_model.networks import ForwardModelSettings
    from an_control.learning.training_disturbances import Fault
    from an_control.policy.sizes import MonitorValidation

OPTIONS_OF_SETTINGS = {
    "identity": "--hidden",
    "identity_updates": "--updates",
    "imputation": "--hidden",
    "faults": "--disturb",
    "recorded": "--bag",
}
"""A mapping from settings of a monitor's training to the options that set them."""


@dataclass(frozen=True)
class MonitorOptions:
    """Options of `train_monitor`, the training of a monitor that detects rewired sensors."""

    model: Path
    """A .safetensors model file, or an .onnx file of another tool."""
    out: Path | None = None
    """Where to write the model with its monitor; by default the input file is replaced. The monitor
    of an .onnx file is always written beside it, into NAME.monitor.safetensors."""
    folder: Path | None = None
    """A folder for the run's checkpoints and metrics; the same command continues the run in it."""
    take: Path | None = None
    """Copy the forward model from this model file instead of training one; its channels and
    actuators must be the same."""
    validate: bool = False
    """Train nothing: only validate the monitor that the model already has, and write the result
    into the file. Pass the --disturb that it was trained with."""
    task: str | None = None
    """A task known by name, or a gymnasium id, also as module:id; by default the model's."""
    hidden: tuple[Positive, ...] | None = None
    """Units of each hidden layer of the forward model; by default 64 64, or 192 192 for more than 8
    channels."""
    bag: tuple[Path, ...] = ()
    """Learn from these recordings of a robot that the model controlled, without a simulator; the
    monitor is then not validated."""
    steps: Positive = 200_000
    """Number of environment steps to record and learn from."""
    updates: Positive = 20_000
    """Number of gradient updates of the forward model, and as many of the identity classifier."""
    imputation_updates: CountOrZero = 8_000
    """Number of gradient updates of the imputation network in each of its two stages; 0: no
    imputation network."""
    disturb: tuple[str, ...] = ()
    """Disturbances that the monitor must not mistake for rewiring, in the words of `evaluate
    --table`, such as `delay=1` `start=rest`. An episode has one of them with the probability
    --disturb-share."""
    disturb_share: Share = 0.1
    """Share of the episodes that have one of --disturb."""
    miswired_share: Share = 0.0
    """Share of the episodes in which the policy reads and acts through a wiring with random
    mistakes, such as a reversed joint. With 0.3 the wiring doctor (`check`) finds more mistakes of
    a robot that falls at once."""
    minutes: ZeroOrOver = 0.0
    """Limit of processor time in minutes; if it is too short, fewer steps and updates are made. 0:
    no limit."""
    monitor: Monitor = "match"
    """Default setting of the monitor in the model file: off, reset or match (see `evaluate`)."""
    seed: CountOrZero = 1
    """Seed of everything random."""

    def check_options(self) -> None:
        """Check that all numbers are within their bounds, and that the options fit each other.

        Raises:
            ValueError: A number is out of bounds, or an option would be ignored.
        """
        check_numbers_within_limits(self)
        if self.bag and (self.take is not None or self.validate or self.disturb):
            raise ValueError("--bag: not with --take, --validate or --disturb")
        if self.take is not None and self.validate:
            raise ValueError(
                "--take: not with --validate; take the monitor first, then validate it"
            )
        if self.miswired_share and (self.take is not None or self.validate or self.bag):
            raise ValueError("--miswired-share: not with --take, --validate or --bag")


@dataclass(frozen=True)
class MonitorResult:
    """Result of `train_monitor`, the training of a monitor that detects rewired sensors.

    Attributes:
        model: The model file that was written. For an ONNX policy it is the file of the monitor.
        validation: How well the monitor detects rewiring. It is None if the monitor was copied from
            another model, or was trained on recordings.
        why_off: Why the monitor is off by default in the model file: how it failed its validation,
            and what to do. It is "" if the monitor did not fail, or if the option `monitor` turned
            it off.
        metrics: The metrics of each step of the training, by name.
        updates: Number of gradient updates of the forward model.
    """

    model: Path
    validation: MonitorValidation | None
    why_off: str
    metrics: list[dict[str, Any]]
    updates: int


def train_monitor(options: MonitorOptions, progress: OnProgress = ignore_progress) -> MonitorResult:
    """Train the networks of a model's identity monitor and write them into the model file.

    The identity monitor detects unannounced rewiring, which means that signals arrive in other
    input slots, and that no message says so. With the option `take` the networks of another model
    are copied, and with `validate` the model's own networks are only validated.

    Args:
        options: The model file and the settings. With `folder`, a run in it is continued.
        progress: Called after each step of the training.

    Returns:
        The model file and the validation of its monitor.

    Raises:
        ValueError: Options are out of bounds, or do not fit each other, the model, the task, or the
            run in the folder.
        ModelError: A model file cannot be read.
        BrokenEnvironmentError: Nearly all episodes failed.
        RunStoppedError: `progress` returned False.
    """
    if options.bag:
        return _train_on_recordings(options, progress)
    from an_control.learning.runs.run_folder import RunError
    from an_control.learning.training_disturbances import parse_equally_probable_disturbances
    from an_control_sim.gym.environments import describe_task, find_environment_id, make_environment
    from an_control_sim.gym.units import Units
    from an_control_sim.gym.varied_robot import check_robot_settings

    options.check_options()
    faults = parse_equally_probable_disturbances(options.disturb, options.disturb_share)
    model, written = _read_model_and_find_output(options)
    model = _remove_excitation_and_start_policy(model)
    if options.take is not None:
        write_model(written, _replace_monitor_networks(model, read_model(options.take), options))
        return MonitorResult(written, None, "", [], 0)
    if options.validate and model.forward is None:
        raise ValueError(
            f"{options.model}: --validate: has no forward model (train-monitor makes one)"
        )
    if assumed := describe_assumed_action_limit(str(options.model), model):
        progress(RunProgress("note", note=assumed))
    name = options.task or model.task.name
    try:
        env = make_environment(find_environment_id(name), Units.from_task(model.task))
    except ValueError as error:
        raise ValueError(f"--task: {error}") from error
    with closing(env):
        channels, given = model.task.channels, describe_task(env, name, name).channels
        if channels != given:
            raise ValueError(
                f"{options.model}: its channels differ from those of task {name!r}:"
                f" {join_names_shortened(channels)}; the task has {join_names_shortened(given)}"
            )
        try:
            for fault in faults:
                check_robot_settings(env, fault.settings)
        except ValueError as error:
            raise ValueError(f"--disturb: {error}") from error
        try:
            model, metrics = _train_and_validate(options, env, model, faults, progress)
        except RunError as error:
            raise ValueError(str(error)) from error
        except ValueError as error:  # an environment gave NaN, or only short episodes
            raise ValueError(f"{name}: {' '.join(str(error).split())}") from error
    write_model(written, model)
    assert model.forward is not None and model.forward.validation is not None
    updates = model.trained.get("forward", {}).get("updates", 0)
    why_off = model.forward.monitor_default_off_reason
    return MonitorResult(written, model.forward.validation, why_off, metrics, updates)


def _read_model_and_find_output(options: MonitorOptions) -> tuple[Model, Path]:
    """Read the model, and return it with the path of the file to write.

    Of an ONNX file this is the file of its monitor. One that lies there is read only to be
    validated, because it may belong to another version of the policy, and is then replaced.

    Raises:
        ValueError: The option `out` is given for an ONNX file, whose monitor always lies beside it.
            Or the model reads image patches.
    """
    model, path = read_model(options.model, monitor=options.validate), options.out or options.model
    if isinstance(model.sizes, VisionSizes):
        raise ValueError(
            f"{options.model}: reads image patches; a monitor reads channels that are numbers"
        )
    if model.network is None:
        return model, path
    written = get_monitor_path(options.model)
    if path != options.model:
        raise ValueError(f"--out {path}: the monitor of an ONNX file lies beside it, {written}")
    return model, written


def _name_setting(key: str) -> str:
    """Return the option of `train-monitor` that sets a setting of a run's `config.json`."""
    return get_setting_name_for_user(key, MonitorOptions, OPTIONS_OF_SETTINGS)


def _train_on_recordings(options: MonitorOptions, progress: OnProgress) -> MonitorResult:
    """Train the monitor's networks on recordings of a robot and write the model file.

    The monitor is not validated, because a validation needs an environment.
    """
    from an_control.learning.recordings import read_recorded_traces
    from an_control.learning.runs.run_folder import RunError

    options.check_options()
    model, path = _read_model_and_find_output(options)
    traces = read_recorded_traces(options.bag, options.model, model)
    try:
        model, metrics = _train_networks(options, None, model, {}, traces, progress)
    except RunError as error:
        raise ValueError(str(error)) from error
    write_model(path, model)
    updates = model.trained.get("forward", {}).get("updates", 0)
    return MonitorResult(path, None, "", metrics, updates)


def _train_and_validate(
    options: MonitorOptions,
    env: Env[Any, Any],
    model: Model,
    faults: dict[Fault, float],
    progress: OnProgress,
) -> tuple[Model, list[dict[str, Any]]]:
    """Train the monitor's networks, unless the option `validate` is set, and validate them."""
    from an_control.learning.forward_model.validation import (
        ROBOT_TICKS,
        validate_monitor_and_add_result_to_model,
    )

    metrics: list[dict[str, Any]] = []
    if not options.validate:
        model, metrics = _train_networks(options, env, model, faults, (), progress)
    ticks = min(ROBOT_TICKS, max(1, options.steps // 10))
    return validate_monitor_and_add_result_to_model(
        env, model, faults, options.seed, ticks
    ), metrics


def _train_networks(
    options: MonitorOptions,
    env: Env[Any, Any] | None,
    model: Model,
    faults: dict[Fault, float],
    traces: Sequence[EpisodeTrace],
    progress: OnProgress,
) -> tuple[Model, list[dict[str, Any]]]:
    """Train the monitor's networks in an environment, or on recorded episodes if it is None.

    Returns:
        The model with the networks, and the metrics of each step.
    """
    from an_control.learning.forward_model.learner import ForwardModelLearner
    from an_control.learning.runs.run_folder import RunFolder
    from an_control.learning.runs.run_loop import RunLoop

    with TemporaryDirectory() as beside:
        folder = options.folder or Path(beside)
        settings = _make_forward_model_settings(options, model, faults)
        learner = ForwardModelLearner(folder, env, model, settings, options.seed, traces)
        loop = RunLoop(RunFolder(folder, learner.config, False, _name_setting), learner)
        if learner.starts_again:
            text = f"{folder}: begins again; its --minutes had been too few"
            progress(RunProgress("note", note=text))
        loop.run_remaining_steps(progress)
        trained = learner.make_model()
        weight = trained.arrays["forward.0.weight"]  # (units, channels and then actions)
        ignored = [id_ for k, id_ in enumerate(model.task.channels) if not weight[:, k].any()]
        if ignored:
            text = (
                f"the monitor ignores {join_names_shortened(ignored)}: the readings vary by less"
                " than 0.001, or than a thousandth of their mean; if they do vary, give them other"
                " units"
            )
            progress(RunProgress("note", note=text))
        return trained, loop.metrics


def _make_forward_model_settings(
    options: MonitorOptions, model: Model, faults: dict[Fault, float]
) -> ForwardModelSettings:
    """Return the training settings that the options give.

    By default the hidden layers are larger for a model with more than 8 channels.
    """
    from an_control.learning.forward_model.networks import ForwardModelSettings

    few = len(model.task.channels) <= 8
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
        miswired_share=options.miswired_share,
    )


def _remove_excitation_and_start_policy(model: Model) -> Model:
    """Return an ONNX policy that acts from the first tick, for the training of its monitor.

    On a robot, excitation (small test motions) or another model may act first, until the order of
    the channels is known. Both are removed, because a monitor is trained and validated with the
    policy alone. A model that is not an ONNX policy is returned unchanged.
    """
    if model.network is None:
        return model
    layout = replace(model.network.layout, hand_over="", excitation="")
    return replace(model, network=replace(model.network, layout=layout))


def _replace_monitor_networks(model: Model, source: Model, options: MonitorOptions) -> Model:
    """Return a copy of a model with the monitor's networks of another model."""
    if source.forward is None:
        raise ValueError(f"--take {options.take}: has no forward model (train-monitor makes one)")
    for key in ("channels", "actuators", "units"):
        if getattr(source.task, key) != getattr(model.task, key):
            raise ValueError(
                f"--take {options.take}: its {key} differ from those of {options.model}"
            )
    theirs = {name: array for name, array in source.arrays.items() if name.startswith(NETWORKS)}
    arrays = {n: array for n, array in model.arrays.items() if not n.startswith(NETWORKS)}
    trained = {**model.trained, "forward": source.trained.get("forward", {})}
    forward = replace(source.forward, monitor=options.monitor)
    return replace(model, arrays=arrays | theirs, forward=forward, trained=trained)
