"""Students that imitate a teacher (DAgger)."""

from __future__ import annotations

import math
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from an_control.learning.api.parts import Parts
from an_control.learning.command_line import option
from an_control.learning.runs.progress import OnProgress, ignore
from an_control.policy import read_model
from an_control.policy.sizes import AttentionSizes

if TYPE_CHECKING:
    from an_control.learning.dagger.image_patches.learner import PatchDagger
    from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
    from an_control.learning.dagger.learner import Dagger
    from an_control.learning.dagger.settings import DaggerSettings, StudentSizes
    from an_control.learning.teacher.teachers import Teacher
    from an_control.learning.training_disturbances import Disturbance

D = TypeVar("D", bound="Disturbance")


@dataclass(frozen=True)
class DistillOptions:
    """What decides a run of `distill`; None where the recipe decides."""

    task: str
    """A task known by name (cartpole, ant), or a gymnasium id, also as module:id."""
    out: Path
    """The run's folder; one that holds a run with the same settings is continued."""
    seed: int = 1
    """Seed of everything random."""
    rounds: int | None = None
    """Number of DAgger rounds; by default the recipe's."""
    updates: int | None = None
    """Number of gradient updates in each round; by default the recipe's."""
    minutes: float | None = None
    """Learn for so many minutes of processor time, in as many rounds as they allow, or until the
    student is as good as the teacher. By default the recipe's number of rounds decides, and for the
    camera tasks always."""
    teacher: str | None = None
    """A model file of an MLP policy, or ppo:FILE.zip (a2c, ddpg, sac, td3) of
    stable-baselines3, or python:MODULE:FUNCTION, from the array of readings to one of actions from
    -1 to 1; the ant and the camera tasks bring their own teachers."""
    device: str = "cpu"
    """Where torch learns, cpu or cuda."""
    start_model: Path | None = None
    """A model file of the student to begin with. Its neurons, keys, queries and memory are
    taken, and the head begins as the teacher's, unless the recipe has keep_head: true; in the
    paper's form everything is taken."""
    recipe: str | None = None
    """A recipe that ships, by its name (ant, cartpole, quick, robust and others), or a YAML file
    of settings; by default that of the task's name, robust where it has none."""
    rate: float | None = None
    """Initial learning rate; by default the recipe's."""
    disturb: tuple[str, ...] = ()
    """Disturbances in the words of `evaluate --table`, such as `missing=0..0.25` `noise=1..3`, in
    place of the recipe's; a training sequence or episode has each of them with the probability
    --disturb-share. Camera tasks know missing, delay, lose and repeat."""
    disturb_share: float = 1.0
    """Share of the training sequences and episodes that have each of --disturb."""
    backgrounds: float | None = None
    """car_racing: the share of examples in which random patterns replace the grass."""
    reshuffled_chance: float | None = None
    """Chance of a training sequence that its channels are shuffled again on the way; by default the
    recipe's."""
    normalise: bool = False
    """Divide the attention's sums by the number of channels that are present, relative to the
    task's, so that added or missing channels do not change their size."""
    neuron: int | None = None
    """Units of each channel's neuron; by default the recipe's."""
    stack: int | None = None
    """Number of newest readings that a neuron sees, 0: an LSTM; by default the recipe's."""
    products: bool | None = None
    """Feed the neurons the products of reading and previous action; by default as the recipe
    does."""
    parts: Parts = field(default_factory=Parts)
    smoke: bool = False
    """A run of seconds, to check that everything works; it learns almost nothing."""

    def check(self) -> None:
        """Raise ValueError for a number that is out of bounds."""
        for name, least in (
            ("seed", 0),
            ("rounds", 0),
            ("updates", 1),
            ("stack", 0),
            ("neuron", 1),
            ("minutes", 0),
        ):
            if (value := getattr(self, name)) is not None and not value >= least:
                raise ValueError(f"--{name} {value}: must be {least} or more")
        if self.rate is not None and not 0.0 < self.rate < math.inf:
            raise ValueError(f"--rate {self.rate:g}: must be over 0")


@dataclass(frozen=True)
class DistillResult:
    """A student.

    Attributes:
        model: its file.
        metrics: the figures of each round.
        rounds: rounds of a whole run, as the recipe has them.
        minutes: processor time that the run has taken.
        done_before: rounds that were done before this call.
    """

    model: Path
    metrics: list[dict[str, Any]]
    rounds: int
    minutes: float
    done_before: int


def distill(options: DistillOptions, progress: OnProgress = ignore) -> DistillResult:
    """Teach a permutation-invariant student what a teacher does, or continue the folder's run.

    Raises:
        ValueError: options that are out of bounds, or fit neither each other, nor the task, nor
            the run in the folder.
        RunError: the disk refuses, or another process works in the folder.
        BrokenEnvironmentError: nearly all episodes fail.
        RunStopped: `progress` returned False.
    """
    from an_control.learning.runs.run_folder import RunFolder
    from an_control.learning.runs.run_loop import RunLoop

    try:
        learner = _learner(options)
    except RuntimeError as error:  # of torch, for a device that is not there
        raise ValueError(str(error)) from error
    with closing(learner):
        try:
            loop = RunLoop(RunFolder(options.out, learner.config), learner)
        except RuntimeError as error:
            raise ValueError(str(error)) from error
        done_before = loop.done
        loop.run_reported(progress)
        minutes = getattr(learner, "minutes", 0.0)
        return DistillResult(
            loop.model_path, loop.metrics, 1 + learner.settings.rounds, minutes, done_before
        )


def _learner(options: DistillOptions) -> Dagger | PatchDagger:
    from an_control.learning.dagger.settings import DaggerSettings, read_recipe, recipe_of

    options.check()
    settings = read_recipe(options.recipe or recipe_of(options.task))
    if not isinstance(settings, DaggerSettings):
        return _patch_dagger(options, settings)
    if options.backgrounds is not None:
        raise ValueError(f"--backgrounds: not for {options.task}, only for what a camera shows")
    return _dagger(options, settings)


def _dagger(options: DistillOptions, settings: DaggerSettings) -> Dagger:
    """Return DAgger for scalar channels; ValueError where teacher and task do not fit."""
    from an_control.learning.dagger.learner import Dagger
    from an_control.learning.dagger.settings import smoke
    from an_control_sim.gym.environments import environment_of

    environment = environment_of(options.task)
    teacher = _teacher(options, environment)
    settings = smoke(settings) if options.smoke else settings
    start = None if options.start_model is None else read_model(options.start_model)
    student = settings.student
    if start is not None and settings.keep_head and isinstance(start.sizes, AttentionSizes):
        head = tuple(start.sizes.head)
        student = replace(student, head=head, output=start.sizes.output)
    elif teacher.layers is not None:
        head = tuple(len(bias) for _, bias in teacher.layers[:-1])
        student = replace(student, head=head, output=teacher.output)
    student = _student(options, student)
    settings = _disturbed(options, settings)
    minutes = settings.minutes if options.minutes is None else options.minutes
    minutes = 0.0 if options.smoke else minutes
    if options.rounds == 0 and minutes:
        raise ValueError(f"--rounds 0: must be 1 or more where minutes are {minutes:g}")
    settings = replace(
        settings,
        student=student,
        identify_rate=settings.identify_rate if options.rate is None else options.rate,
        rate=settings.rate if options.rate is None else options.rate,
        rounds=settings.rounds if options.rounds is None else options.rounds,
        updates=settings.updates if options.updates is None else options.updates,
        minutes=minutes,
    )
    return Dagger(
        options.out,
        options.task,
        environment,
        teacher,
        settings,
        options.seed,
        options.device,
        _teacher_name(options),
        start,
    )


def _teacher(options: DistillOptions, environment: str) -> Teacher:
    from an_control.learning.teacher.teachers import own_teacher, read_teacher
    from an_control_sim.gym.environments import make_environment

    with closing(make_environment(environment)) as env:
        if options.teacher is not None:
            return read_teacher(options.teacher, env)
        if (own := own_teacher(options.task)) is not None:
            return own
    raise ValueError(
        f"--teacher: {options.task} has none of its own; this makes one:"
        f" an-control train-teacher {options.task} --out RUN"
    )


def _teacher_name(options: DistillOptions) -> str | None:
    """Return the teacher as the run's folder keeps it: a file of the folder around that by its
    place there, so that both may be moved together."""
    around, file = options.out.absolute().parent, Path(options.teacher or "").absolute()
    if not file.is_file() or not file.is_relative_to(around):
        return options.teacher
    return file.relative_to(around).as_posix()


def _student(options: DistillOptions, student: StudentSizes) -> StudentSizes:
    """Return these sizes with those that are asked for."""
    names = ("neuron", "stack", "products")
    chosen = {name: getattr(options, name) for name in names}
    chosen = {name: value for name, value in chosen.items() if value is not None}
    student = replace(student, **chosen, **options.parts.student())
    if options.normalise:
        student = replace(student, normalise=True)
    if student.paper and options.products:
        raise ValueError("--products: not in the paper's form; take another --recipe")
    return student


def _disturbed(options: DistillOptions, settings: DaggerSettings) -> DaggerSettings:
    """Return the settings with the disturbances of streams and episodes that are asked for."""
    from an_control.learning.training_disturbances import Disturbance

    streams, collection = settings.streams, settings.collection
    if (chance := options.reshuffled_chance) is not None:
        if not 0.0 <= chance <= 1.0:
            raise ValueError(f"--reshuffled-chance {chance}: must be from 0 to 1")
        streams = replace(streams, reshuffled=chance)
    if disturb := _asked(options, Disturbance):
        streams = replace(streams, disturb=disturb)
        collection = replace(collection, disturb=disturb)
    return replace(settings, streams=streams, collection=collection)


def _asked(options: DistillOptions, kind: type[D]) -> dict[D, float]:
    """Return the share of each of --disturb; ValueError names a bad one."""
    if not 0.0 <= options.disturb_share <= 1.0:
        raise ValueError(f"--disturb-share {options.disturb_share}: must be from 0 to 1")
    try:
        return {kind.parse(text): options.disturb_share for text in options.disturb}
    except ValueError as error:
        raise ValueError(f"--disturb: {error}") from error


def _patch_dagger(options: DistillOptions, settings: PatchDaggerSettings) -> PatchDagger:
    """Return DAgger from what the environment's own teacher knows, into image patches."""
    from an_control.learning.dagger.image_patches.learner import PatchDagger
    from an_control.learning.dagger.settings import patch_smoke
    from an_control.learning.training_disturbances import PatchFault
    from an_control_sim.gym.environments import describe, environment_of, make_environment

    _check_patches(options)
    if options.smoke:
        settings = patch_smoke(settings)
    disturb, backgrounds = _asked(options, PatchFault), options.backgrounds
    settings = replace(
        settings,
        student=options.parts.patches(settings.student),
        rounds=settings.rounds if options.rounds is None else options.rounds,
        updates=settings.updates if options.updates is None else options.updates,
        rate=settings.rate if options.rate is None else options.rate,
        disturb=disturb or settings.disturb,
        backgrounds=settings.backgrounds if backgrounds is None else backgrounds,
    )
    start = None if options.start_model is None else read_model(options.start_model)
    environment = environment_of(options.task)
    env = make_environment(environment)
    task = describe(env, options.task, environment)
    return PatchDagger(options.out, env, task, settings, options.seed, options.device, start)


def _check_patches(options: DistillOptions) -> None:
    """Raise ValueError for what image patches cannot be learned with."""
    names = "teacher", "minutes", "neuron", "stack", "products", "normalise"
    for name in (*names, "reshuffled_chance"):
        if getattr(options, name):
            raise ValueError(f"{option(name)}: not for {options.task}")
    if options.rounds == 0:
        raise ValueError(f"--rounds 0: must be 1 or more for {options.task}")
    backgrounds = options.backgrounds
    if backgrounds is not None and not 0.0 <= backgrounds <= 1.0:
        raise ValueError(f"--backgrounds {backgrounds:g}: must be a share from 0 to 1")
