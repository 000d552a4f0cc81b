"""Train students, permutation-invariant policies that imitate a teacher (DAgger)."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from an_control.control.model_wiring_check import describe_assumed_action_limit
from an_control.learning.api.parts import PolicyParts
from an_control.learning.command_line import format_flag, get_setting_name_for_user
from an_control.learning.limits import (
    CountOrZero,
    OverZero,
    Positive,
    Share,
    ZeroOrOver,
    check_numbers_within_limits,
)
from an_control.learning.runs.progress import OnProgress, RunProgress, ignore_progress
from an_control.policy import read_model
from an_control.policy.onnx_file import has_onnx_suffix
from an_control.policy.sizes import AttentionSizes

if TYPE_CHECKING:
    from an_control.learning.dagger.cloning import CommandCloning
    from an_control.learning.dagger.image_patches.learner import PatchDagger
    from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
    from an_control.learning.dagger.learner import Dagger
    from an_control.learning.dagger.recorded import RecordedTeaching
    from an_control.learning.dagger.settings import DaggerSettings, StudentSizes
    from an_control.learning.teacher.teachers import Teacher
    from an_control.learning.training_disturbances import TrainingDisturbance

D = TypeVar("D", bound="TrainingDisturbance")

START = "--start-model"
OPTIONS_OF_SETTINGS = {
    "reshuffled": "--reshuffled-chance",
    "start": START,
    "start_hash": f"the content of {START}",
    "teacher_hash": "the content of --teacher",
    "recorded": "--bag",
}
"""A mapping from settings of a student's training to the options that set them."""


@dataclass(frozen=True)
class DistillOptions:
    """Options of `distill`, the training of a student.

    An option that is None takes its value from the recipe, a file of settings.
    """

    task: str
    """A task known by name (cartpole, ant), or a gymnasium id, also as module:id."""
    out: Path
    """The run's folder; one that holds a run with the same settings is continued."""
    seed: CountOrZero = 1
    """Seed of everything random."""
    rounds: CountOrZero | None = None
    """Number of DAgger rounds; by default the recipe's."""
    updates: Positive | None = None
    """Number of gradient updates in each round; by default the recipe's."""
    minutes: ZeroOrOver | None = None
    """Learn for this many minutes of processor time, in as many rounds as fit, or until the student
    is as good as the teacher. By default the recipe's number of rounds decides, and always for the
    camera tasks."""
    bag: tuple[Path, ...] = ()
    """Imitate the commands in these recordings instead of a teacher, without a simulator; `task` is
    then the name of your robot. Whatever sent the commands is imitated: a policy, or another
    controller or a person, if the policy node recorded in shadow (without sending commands itself).
    """
    ordered: bool = False
    """With --bag: train a plain network that needs its channels in the recorded order, and no
    student. It imitates better; train-monitor --bag then gives it a monitor, which puts moved
    channels back in order."""
    teacher: str | None = None
    """A model file of an MLP policy, an ONNX file of a network without memory of earlier ticks,
    ppo:FILE.zip (a2c, ddpg, sac, td3) of stable-baselines3, or python:MODULE:FUNCTION, a function
    from an array of readings to an array of actions in [-1, 1]. It gets the environment's own
    numbers; the statistics of NormalizeObservation or VecNormalize are in none of these files. By
    default the task's own teacher: the ant and the camera tasks have one."""
    device: str = "cpu"
    """The torch device to learn on, cpu or cuda."""
    start_model: Path | None = None
    """A model file of a student to start from. Its neurons, keys, queries and recurrence are taken
    over, and the head starts as the teacher's unless the recipe has keep_head: true; in the paper's
    form everything is taken over."""
    recipe: str | None = None
    """The name of a shipped recipe (ant, cartpole, quick, robust and others), or a YAML file of
    settings; by default the one with the task's name, or robust if there is none."""
    rate: OverZero | None = None
    """Initial learning rate; by default the recipe's."""
    disturb: tuple[str, ...] = ()
    """Disturbances in the words of `evaluate --table`, such as `missing=0..0.25` `noise=1..3`,
    instead of the recipe's. A training sequence or episode has each of them with the probability
    --disturb-share. Camera tasks allow missing, delay, lose and repeat."""
    disturb_share: Share = 1.0
    """Share of the training sequences and episodes that have each of --disturb."""
    backgrounds: Share | None = None
    """car_racing: the share of examples in which random patterns replace the grass."""
    reshuffled_chance: Share | None = None
    """Probability that the channels of a training sequence are shuffled again in the middle of it;
    by default the recipe's."""
    normalise: bool = False
    """Divide the attention's sums by the number of channels that are present, relative to the
    task's number, so that added or missing channels do not make these sums larger or smaller."""
    neuron: Positive | None = None
    """Number of units in each channel's neuron; by default the recipe's."""
    stack: CountOrZero | None = None
    """Number of newest readings that a neuron receives, 0 for an LSTM; by default the recipe's."""
    products: bool | None = None
    """Also give each neuron the products of its reading and the previous actions; by default the
    recipe's."""
    parts: PolicyParts = field(default_factory=PolicyParts)
    smoke: bool = False
    """Run for seconds only, to check that everything works; such a run learns almost nothing."""


@dataclass(frozen=True)
class DistillResult:
    """Result of `distill`, the training of a student.

    Attributes:
        model: The model file of the best validated student.
        metrics: The metrics of each round, by name.
        rounds: Number of rounds that the settings plan for the whole run. If the run has a time
            limit, it may have fewer or more rounds.
        minutes: Processor time of the run, in minutes.
        done_before: Number of rounds that were finished before this call.
    """

    model: Path
    metrics: list[dict[str, Any]]
    rounds: int
    minutes: float
    done_before: int


def distill(options: DistillOptions, progress: OnProgress = ignore_progress) -> DistillResult:
    """Train a permutation-invariant student to imitate a teacher, or continue its run.

    Args:
        options: The task, the run's folder, the teacher and the recipe (a file of settings).
        progress: Called after each round.

    Returns:
        The student's model file and the run's metrics.

    Raises:
        ValueError: Options are out of bounds, or do not fit each other, the task, or the folder's
            run.
        RunError: A file cannot be written, or another process works in the folder.
        BrokenEnvironmentError: Nearly all episodes failed.
        RunStoppedError: `progress` returned False.
    """
    from an_control.learning.runs.run_folder import RunFolder
    from an_control.learning.runs.run_loop import RunLoop

    try:
        learner = _make_trainer(options)
    except RuntimeError as error:  # torch raises it for a device that does not exist
        raise ValueError(str(error)) from error
    with closing(learner):
        if has_onnx_suffix(teacher := options.teacher or ""):
            model = read_model(Path(teacher), monitor=False)
            if assumed := describe_assumed_action_limit(teacher, model):
                progress(RunProgress("note", note=assumed))
        try:
            loop = RunLoop(RunFolder(options.out, learner.config, False, _name_setting), learner)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        done_before = loop.done
        loop.run_remaining_steps(progress)
        minutes = getattr(learner, "minutes_used", 0.0)
        rounds = 1 + getattr(learner.settings, "rounds", 0)
        return DistillResult(loop.model_path, loop.metrics, rounds, minutes, done_before)


def _name_setting(key: str) -> str:
    """Return the recipe's key and the option of `distill` for a setting in `config.json`."""
    return get_setting_name_for_user(key, DistillOptions, OPTIONS_OF_SETTINGS, has_recipe=True)


def _make_trainer(
    options: DistillOptions,
) -> Dagger | PatchDagger | RecordedTeaching | CommandCloning:
    """Return the trainer of recordings (option `bag`), of scalar channels or of image patches."""
    from an_control.learning.dagger.settings import DaggerSettings, choose_recipe_name, read_recipe

    check_numbers_within_limits(options)
    if options.ordered and not options.bag:
        raise ValueError("--ordered: only with --bag")
    if options.bag:
        return _make_recording_imitator(options)
    settings = read_recipe(options.recipe or choose_recipe_name(options.task))
    if not isinstance(settings, DaggerSettings):
        return _make_patch_dagger(options, settings)
    if options.backgrounds is not None:
        raise ValueError(f"--backgrounds: not for {options.task}, only for car_racing")
    return _make_dagger(options, settings)


def _make_recording_imitator(options: DistillOptions) -> RecordedTeaching | CommandCloning:
    """Return a trainer that imitates recorded commands, without a simulator.

    It trains a plain network with the option --ordered, and otherwise a permutation-invariant
    student.
    """
    from an_control.learning.dagger.cloning import CLONING, SMOKE_CLONING, CommandCloning
    from an_control.learning.dagger.recorded import RecordedTeaching, read_task_and_episodes
    from an_control.learning.dagger.settings import (
        GENERIC,
        DaggerSettings,
        make_smoke_test_settings,
        read_recipe,
    )

    for name in ("teacher", "start_model", "minutes", "backgrounds"):
        if getattr(options, name) is not None:
            raise ValueError(f"{format_flag(name)}: not with --bag")
    settings = read_recipe(options.recipe or GENERIC)
    if not isinstance(settings, DaggerSettings):
        raise ValueError(f"--recipe {options.recipe}: is not one for scalar channels")
    task, episodes = read_task_and_episodes(options.bag, options.task)
    cloning = SMOKE_CLONING if options.smoke else CLONING
    if options.ordered:
        _refuse_options_unsupported_by_plain_network(options)
        return CommandCloning(task, episodes, cloning, options.seed)
    settings = make_smoke_test_settings(settings) if options.smoke else settings
    settings = _apply_disturbance_options(options, settings)
    settings = replace(
        settings,
        student=_apply_size_options(options, settings.student),
        faults={},
        validation_episodes=0,
        averaged=False,
        minutes=0.0,
        **_collect_training_options(options),
    )
    return RecordedTeaching(task, episodes, settings, options.seed, options.device, cloning)


def _refuse_options_unsupported_by_plain_network(options: DistillOptions) -> None:
    """Raise ValueError if an option is set that has an effect only on a student.

    With --ordered, a plain network is trained instead of a student.
    """
    for name in ("recipe", "rounds", "updates", "rate", "neuron", "stack", "products"):
        if getattr(options, name) is not None:
            raise ValueError(f"{format_flag(name)}: not with --ordered")
    if options.disturb or options.normalise or options.reshuffled_chance is not None:
        raise ValueError("--disturb, --normalise, --reshuffled-chance: not with --ordered")


def _make_dagger(options: DistillOptions, settings: DaggerSettings) -> Dagger:
    """Return the DAgger trainer for scalar channels."""
    from an_control.learning.dagger.learner import Dagger
    from an_control.learning.dagger.settings import make_smoke_test_settings
    from an_control_sim.gym.environments import find_environment_id

    environment = find_environment_id(options.task)
    teacher = _find_teacher(options, environment)
    settings = make_smoke_test_settings(settings) if options.smoke else settings
    start = None if options.start_model is None else read_model(options.start_model)
    student = settings.student
    if start is not None and settings.keep_head and isinstance(start.sizes, AttentionSizes):
        head = tuple(start.sizes.head)
        student = replace(student, head=head, output=start.sizes.output)
    elif teacher.layers is not None:
        head = tuple(len(bias) for _, bias in teacher.layers[:-1])
        student = replace(student, head=head, output=teacher.output_function)
    student = _apply_size_options(options, student)
    settings = _apply_disturbance_options(options, settings)
    minutes = settings.minutes if options.minutes is None else options.minutes
    minutes = 0.0 if options.smoke else minutes
    if options.rounds == 0 and minutes:
        raise ValueError(f"--rounds 0: must be 1 or more where minutes are {minutes:g}")
    settings = replace(
        settings,
        student=student,
        minutes=minutes,
        **_collect_training_options(options),
    )
    return Dagger(
        options.out,
        options.task,
        environment,
        teacher,
        settings,
        options.seed,
        options.device,
        _make_portable_teacher_name(options),
        start,
    )


def _collect_given_options(options: DistillOptions, *names: str) -> dict[str, Any]:
    """Return those of the named options that are set, by name."""
    given = {name: getattr(options, name) for name in names}
    return {name: value for name, value in given.items() if value is not None}


def _collect_training_options(options: DistillOptions) -> dict[str, Any]:
    """Return the settings of a student of scalar channels that the options replace."""
    rate = {} if options.rate is None else {"identify_rate": options.rate}
    return rate | _collect_given_options(options, "rate", "rounds", "updates")


def _find_teacher(options: DistillOptions, environment: str) -> Teacher:
    """Return the teacher that the options name, or else the task's own teacher."""
    from an_control.learning.teacher.teachers import find_task_teacher, read_teacher
    from an_control_sim.gym.environments import has_patch_observations, make_environment

    with closing(make_environment(environment)) as env:
        if options.teacher is not None:
            return read_teacher(options.teacher, env)
        if (own := find_task_teacher(options.task)) is not None:
            return own
        if has_patch_observations(env):
            raise ValueError(
                f"environment {environment!r}: has image patches, and so it must have a method"
                " teacher(); see docs/reference/environments.md"
            )
    raise ValueError(
        f"--teacher: must be given for {options.task}, which has no teacher of its own; train one"
        f" by: an-control train-teacher {options.task} --out RUN"
    )


def _make_portable_teacher_name(options: DistillOptions) -> str | None:
    """Return the option `teacher` in the form in which the run's settings store it.

    If the option is a file in the parent folder of the run's folder, or in a folder below it, the
    result is the path of the file relative to the parent folder. The parent folder can then be
    moved as a whole. Any other value of the option is returned unchanged.
    """
    around, file = options.out.absolute().parent, Path(options.teacher or "").absolute()
    if not file.is_file() or not file.is_relative_to(around):
        return options.teacher
    return file.relative_to(around).as_posix()


def _apply_size_options(options: DistillOptions, student: StudentSizes) -> StudentSizes:
    """Return the student's sizes, changed by the options."""
    chosen = _collect_given_options(options, "neuron", "stack", "products")
    student = replace(student, **chosen, **options.parts.collect_student_size_overrides())
    if options.normalise:
        student = replace(student, normalise=True)
    if student.paper and options.products:
        raise ValueError("--products: not supported by the paper's form; use another --recipe")
    return student


def _apply_disturbance_options(options: DistillOptions, settings: DaggerSettings) -> DaggerSettings:
    """Return the settings with the disturbances that the options choose.

    Disturbances for which no option is set stay as in the recipe.
    """
    from an_control.learning.training_disturbances import TrainingDisturbance

    streams, collection = settings.streams, settings.collection
    if (chance := options.reshuffled_chance) is not None:
        streams = replace(streams, reshuffled=chance)
    if disturb := _parse_disturbance_probabilities(options, TrainingDisturbance):
        streams = replace(streams, disturb=disturb)
        collection = replace(collection, disturb=disturb)
    return replace(settings, streams=streams, collection=collection)


def _parse_disturbance_probabilities(options: DistillOptions, kind: type[D]) -> dict[D, float]:
    """Return a mapping from each disturbance that the option --disturb names to its probability.

    The probability is the same for all, and is given by the option --disturb-share.
    """
    from an_control.learning.training_disturbances import parse_disturb_option

    return dict.fromkeys(parse_disturb_option(kind, options.disturb), options.disturb_share)


def _make_patch_dagger(options: DistillOptions, settings: PatchDaggerSettings) -> PatchDagger:
    """Return the DAgger trainer for image patches, with the environment's own teacher."""
    from an_control.learning.dagger.image_patches.learner import PatchDagger
    from an_control.learning.dagger.settings import make_patch_smoke_test_settings
    from an_control.learning.training_disturbances import PatchDisturbance
    from an_control_sim.gym.environments import describe_task, find_environment_id, make_environment

    _refuse_options_unsupported_by_image_patches(options)
    if options.smoke:
        settings = make_patch_smoke_test_settings(settings)
    disturb = _parse_disturbance_probabilities(options, PatchDisturbance)
    settings = replace(
        settings,
        student=options.parts.apply_to_vision_sizes(settings.student),
        disturb=disturb or settings.disturb,
        **_collect_given_options(options, "rounds", "updates", "rate", "backgrounds"),
    )
    start = None if options.start_model is None else read_model(options.start_model)
    environment = find_environment_id(options.task)
    env = make_environment(environment)
    task = describe_task(env, options.task, environment)
    return PatchDagger(options.out, env, task, settings, options.seed, options.device, start)


def _refuse_options_unsupported_by_image_patches(options: DistillOptions) -> None:
    """Raise ValueError if an option is set that image patches do not support."""
    names = "teacher", "minutes", "neuron", "stack", "products", "normalise"
    for name in (*names, "reshuffled_chance"):
        if getattr(options, name):
            raise ValueError(f"{format_flag(name)}: not for {options.task}")
    if options.rounds == 0:
        raise ValueError(f"--rounds 0: must be 1 or more for {options.task}")
