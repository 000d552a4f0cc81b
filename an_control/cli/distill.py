"""``an-control distill TASK --out RUN``.

Options for the parts of a policy that is to be learned: encoder, pooling, recurrence.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
from an_control.policy import read_model
from an_control.policy.sizes import AttentionSizes, ConvolutionSizes, Encoder, RecurrenceSizes
from an_control.system.interrupts import INTERRUPTED
from an_control_sim.gym.offers import with_offers

if TYPE_CHECKING:
    from an_control.learning.dagger.image_patches.learner import PatchDagger
    from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
    from an_control.learning.dagger.learner import Dagger
    from an_control.learning.dagger.settings import DaggerSettings


TRANSFORMERS = ("trxl", "trxl-i", "gtrxl")
UNSET = tyro.conf.arg(help_behavior_hint="")
"""An option without a value by default."""
Number = Annotated[int | None, UNSET]
USUAL = {
    "inducing": 16,
    "heads": 1,
    "learned_queries": 0,
    "pma": 0,
    "units": 32,
    "layers": 1,
    "recurrent_heads": 1,
    "window": 32,
}
"""What a number is that neither an option nor a recipe gives."""


@dataclass(frozen=True)
class Parts:
    """What `train` and `distill` both know; where not given, the recipe's or none."""

    encoder: Annotated[Encoder | None, UNSET] = None
    """What lets the channels' neurons attend to each other first (Set Transformer): all to all
    (sab), by way of `--inducing` points (isab), or none."""
    inducing: Number = None
    """Number of inducing points (isab); by default the recipe's, else 16."""
    heads: Number = None
    """Number of attention heads of the encoder and of `--pma`; by default the recipe's, else 1."""
    learned_queries: Number = None
    """Number of learned queries in place of the fixed ones of the paper's form."""
    pma: Number = None
    """Number of seed vectors that pool the neurons' outputs by attention (Set Transformer, PMA), in
    place of the attention that multiplies the readings."""
    recurrence: Annotated[
        Literal["none", "lstm", "gru", "trxl", "trxl-i", "gtrxl"] | None, UNSET
    ] = None
    """A recurrent part after the attention: an LSTM, a GRU, or a transformer (Parisotto et al.
    2019)."""
    units: Number = None
    """Units of the recurrence; by default 32."""
    layers: Number = None
    """Layers of a recurrent transformer; by default 1."""
    recurrent_heads: Number = None
    """Attention heads of a recurrent transformer; by default 1."""
    window: Number = None
    """Number of ticks that a layer of a recurrent transformer sees; by default 32."""

    def student(self) -> dict[str, Any]:
        """What is asked for, by the names of `StudentSizes`; ValueError where it cannot be."""
        self._check_read("units", "layers", "recurrent_heads", "window")
        numbers = "inducing", "heads", "learned_queries", "pma"
        given = [name for name in numbers if name in self.asked]
        changes: dict[str, Any] = {name: self._number(name) for name in given}
        if self.encoder is not None:
            changes["encoder"] = self.encoder
        if self.recurrence is not None:
            changes["recurrence"] = self._recurrence()
        return changes

    @property
    def asked(self) -> list[str]:
        """The names of the options that are given."""
        return [one.name for one in fields(self) if getattr(self, one.name) is not None]

    def paper(self) -> dict[str, Any]:
        """The same for `paper_sizes`; ValueError also for an option that no part would read."""
        self._check_read(*self.asked)
        encoder = self.encoder or "none"
        compares = encoder != "none" or self._number("pma")
        return {
            "encoder": encoder,
            "inducing": self._number("inducing") if encoder == "isab" else 0,
            "heads": self._number("heads") if compares else 1,
            "recurrence": self._recurrence(),
        }

    def patches(self, sizes: ConvolutionSizes) -> ConvolutionSizes:
        """These sizes of a policy for image patches with the parts that are asked for."""
        changes = self.student()
        for name in ("learned_queries", "recurrence"):
            if changes.pop(name, None) is not None:
                raise ValueError(f"{option(name)}: not for image patches")
        pma = changes.pop("pma", None)
        if pma == 0 and sizes.attention == "pma":
            raise ValueError("--pma 0: the recipe's head sees its seeds; take another --recipe")
        if pma:
            grid = math.isqrt(pma)
            if grid**2 != pma:
                raise ValueError(
                    f"--pma {pma}: must be a square number for image patches, since the head sees"
                    " the seeds as an image"
                )
            changes |= {"attention": "pma", "grid": grid}
        encoder = changes.get("encoder", sizes.encoder)
        points = changes.get("inducing") or sizes.inducing or self._number("inducing")
        sizes = replace(sizes, **{**changes, "inducing": points if encoder == "isab" else 0})
        sizes.check()
        return sizes

    def pooled(self, sizes: AttentionSizes) -> AttentionSizes:
        """These sizes with seeds that pool, or learned queries, where they are asked for."""
        seeds, queries = self._number("pma"), self._number("learned_queries")
        if seeds:
            if queries:
                raise ValueError("--learned-queries: --pma pools by seeds of its own")
            sizes = replace(sizes, queries=seeds, key=sizes.neuron, attention="pma")
        elif queries:
            sizes = replace(sizes, queries=queries, key=sizes.neuron)
        sizes.check()
        return sizes

    def _check_read(self, *names: str) -> None:
        """ValueError for one of these options that is given, and that no part would read."""
        encoder, recurrence = self.encoder or "none", self.recurrence or "none"
        transformer = recurrence in TRANSFORMERS, "--recurrence trxl, trxl-i or gtrxl"
        needs = {
            "inducing": (encoder == "isab", "--encoder isab"),
            "heads": (encoder != "none" or self.pma, "--encoder sab or isab, or --pma"),
            "units": (recurrence != "none", "--recurrence"),
            "layers": transformer,
            "recurrent_heads": transformer,
            "window": transformer,
        }
        for name in names:
            there, what = needs.get(name, (True, ""))
            if name in self.asked and not there:
                raise ValueError(f"{option(name)} {getattr(self, name)}: only with {what}")

    def _number(self, name: str) -> int:
        given: int | None = getattr(self, name)
        value, minimum = USUAL[name] if given is None else given, min(USUAL[name], 1)
        if value < minimum:
            raise ValueError(f"{option(name)} {value}: must be {minimum} or more")
        return value

    def _recurrence(self) -> RecurrenceSizes | None:
        if self.recurrence in (None, "none"):
            return None
        header: dict[str, Any] = {"kind": self.recurrence, "units": self._number("units")}
        if self.recurrence in TRANSFORMERS:
            header |= {name: self._number(name) for name in ("layers", "window")}
            header["heads"] = self._number("recurrent_heads")
        return RecurrenceSizes.read(header)


PartOptions = Annotated[Parts, tyro.conf.arg(name="")]


DISTURBED = {
    "reshuffled_chance": "reshuffled",
    "missing_chance": "missing",
    "noise_chance": "noise",
    "copies_chance": "copies",
    "added": "added",
}
"""Options that say what streams and episodes are disturbed by, and the recipe's names of the same;
not for the camera tasks."""
OF_EPISODES = "missing", "noise", "copies"
MAX_ADDED = 1000


@dataclass(frozen=True)
class Verb:
    """Teach a permutation-invariant student what a teacher does.

    The same command continues a stopped run.
    """

    task: tyro.conf.Positional[str]
    """A task known by name (cartpole, ant), or a gymnasium id, also as module:id."""
    out: OutputFolder
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
    missing_patches: tuple[float, ...] = ()
    """Camera tasks: the share of patches that is missing, drawn anew in each episode; two numbers
    are the minimum and the maximum of the share."""
    backgrounds: float | None = None
    """car_racing: the share of examples in which random patterns replace the grass."""
    reshuffled_chance: float | None = None
    """Chance of a training sequence that its channels are shuffled again on the way; by default the
    recipe's, as for the options below."""
    missing_chance: float | None = None
    """Chance of a training sequence or episode that some channels are missing."""
    noise_chance: float | None = None
    """Chance that some channels carry only noise."""
    copies_chance: float | None = None
    """Chance that some channels repeat others."""
    added: int | None = None
    """Number of channels added to the training sequences; some of them carry copies or noise."""
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
    parts: PartOptions = field(default_factory=Parts)
    smoke: bool = False
    """A run of seconds, to check that everything works; it learns almost nothing."""
    json: OutputFile | None = None
    """Also write the rounds' figures here as JSON."""

    def run(self) -> int:
        need("train", "torch")
        from an_control.learning.dagger.settings import DaggerSettings, read_recipe, recipe_of

        for name, least in (
            ("seed", 0),
            ("rounds", 0),
            ("updates", 1),
            ("stack", 0),
            ("neuron", 1),
            ("minutes", 0),
        ):
            if (value := getattr(self, name)) is not None and not value >= least:
                raise InputError(f"--{name} {value}: must be {least} or more")
        if self.rate is not None and not 0.0 < self.rate < math.inf:
            raise InputError(f"--rate {self.rate:g}: must be over 0")
        try:
            settings = read_recipe(self.recipe or recipe_of(self.task))
        except ValueError as error:
            raise InputError(str(error)) from error
        if not isinstance(settings, DaggerSettings):
            return self._learn(partial(self._patches, settings))
        for name in ("missing_patches", "backgrounds"):
            if getattr(self, name) not in (None, ()):
                raise InputError(
                    f"{option(name)}: not for {self.task}, only for what a camera shows"
                )
        return self._learn(partial(self._channels, settings))

    def _channels(self, settings: DaggerSettings) -> Dagger:
        """DAgger for scalar channels; ValueError where teacher and task do not fit."""
        from an_control.learning.dagger.learner import Dagger
        from an_control.learning.dagger.settings import smoke
        from an_control.learning.teacher.teachers import own_teacher, read_teacher
        from an_control_sim.gym.environments import environment_of, make_environment

        environment = environment_of(self.task)
        with closing(make_environment(environment)) as env:
            if self.teacher is not None:
                teacher = read_teacher(self.teacher, env)
            elif (own := own_teacher(self.task)) is not None:
                teacher = own
            else:
                raise ValueError(
                    f"--teacher: {self.task} has none of its own; this makes one:"
                    f" an-control train-teacher {self.task} --out RUN"
                )
        settings = smoke(settings) if self.smoke else settings
        student = settings.student
        start = None if self.start_model is None else read_model(self.start_model)
        if start is not None and settings.keep_head and isinstance(start.sizes, AttentionSizes):
            head = tuple(start.sizes.head)
            student = replace(student, head=head, output=start.sizes.output)
        elif teacher.layers is not None:
            head = tuple(len(bias) for _, bias in teacher.layers[:-1])
            student = replace(student, head=head, output=teacher.output)
        names = ("neuron", "stack", "products")
        chosen = {name: getattr(self, name) for name in names}
        chosen = {name: value for name, value in chosen.items() if value is not None}
        student = replace(student, **chosen, **self.parts.student())
        if self.normalise:
            student = replace(student, normalise=True)
        if student.paper and self.products:
            raise ValueError("--products: not in the paper's form; take another --recipe")
        settings = self._disturbed(settings)
        minutes = settings.minutes if self.minutes is None else self.minutes
        minutes = 0.0 if self.smoke else minutes
        if self.rounds == 0 and minutes:
            raise ValueError(f"--rounds 0: must be 1 or more where minutes are {minutes:g}")
        settings = replace(
            settings,
            student=student,
            identify_rate=settings.identify_rate if self.rate is None else self.rate,
            rate=settings.rate if self.rate is None else self.rate,
            rounds=settings.rounds if self.rounds is None else self.rounds,
            updates=settings.updates if self.updates is None else self.updates,
            minutes=minutes,
        )
        return Dagger(
            self.out,
            self.task,
            environment,
            teacher,
            settings,
            self.seed,
            self.device,
            self._teacher_name,
            start,
        )

    @property
    def _teacher_name(self) -> str | None:
        """As the run's folder keeps it: a file of the folder around that by its place there, so
        that both may be moved together."""
        around, file = self.out.absolute().parent, Path(self.teacher or "").absolute()
        if not file.is_file() or not file.is_relative_to(around):
            return self.teacher
        return file.relative_to(around).as_posix()

    def _disturbed(self, settings: DaggerSettings) -> DaggerSettings:
        """With the chances of streams and episodes that are asked for."""
        given = {}
        for typed, name in DISTURBED.items():
            if (value := getattr(self, typed)) is None:
                continue
            maximum = MAX_ADDED if name == "added" else 1
            if not 0 <= value <= maximum:
                raise ValueError(f"{option(typed)} {value}: must be from 0 to {maximum}")
            given[name] = value
        episodes = {name: value for name, value in given.items() if name in OF_EPISODES}
        return replace(
            settings,
            streams=replace(settings.streams, **given),
            collection=replace(settings.collection, **episodes),
        )

    def _patches(self, settings: PatchDaggerSettings) -> PatchDagger:
        """DAgger from what the environment's own teacher knows, into image patches."""
        from an_control.learning.dagger.image_patches.learner import PatchDagger
        from an_control.learning.dagger.settings import patch_smoke
        from an_control_sim.gym.environments import describe, environment_of, make_environment

        refused = "teacher", "minutes", "neuron", "stack", "products", "normalise", *DISTURBED
        for name in refused:
            if getattr(self, name):
                raise InputError(f"{option(name)}: not for {self.task}")
        if self.rounds == 0:
            raise InputError(f"--rounds 0: must be 1 or more for {self.task}")
        missing, backgrounds = self.missing_patches, self.backgrounds
        if not all(0.0 <= share <= 1.0 for share in missing):
            raise InputError(f"--missing-patches {missing}: must be shares from 0 to 1")
        if backgrounds is not None and not 0.0 <= backgrounds <= 1.0:
            raise InputError(f"--backgrounds {backgrounds:g}: must be a share from 0 to 1")
        if len(missing) > 2 or missing != tuple(sorted(missing)):
            raise InputError(
                f"--missing-patches {missing}: must be a share, or the minimum and the maximum"
            )
        if self.smoke:
            settings = patch_smoke(settings)
        try:
            student = self.parts.patches(settings.student)
        except ValueError as error:
            raise InputError(str(error)) from error
        settings = replace(
            settings,
            student=student,
            rounds=settings.rounds if self.rounds is None else self.rounds,
            updates=settings.updates if self.updates is None else self.updates,
            rate=settings.rate if self.rate is None else self.rate,
            missing=(missing[0], missing[-1]) if missing else settings.missing,
            backgrounds=settings.backgrounds if backgrounds is None else backgrounds,
        )
        start = None if self.start_model is None else read_model(self.start_model)
        env = make_environment(environment_of(self.task))
        task = describe(env, self.task, environment_of(self.task))
        return PatchDagger(self.out, env, task, settings, self.seed, self.device, start)

    def _learn(self, make: Callable[[], Dagger | PatchDagger]) -> int:
        """The rounds that are left, and what they gave; 1 where one of them failed."""
        from an_control.learning.runs.run_folder import RunError, RunFolder
        from an_control.learning.runs.run_loop import RunLoop
        from an_control.learning.runs.terminal import run_at_terminal

        try:
            learner = make()
        except (ValueError, RuntimeError) as error:
            raise InputError(str(error)) from error
        with closing(learner):
            try:
                loop = RunLoop(RunFolder(self.out, learner.config), learner)
            except RunError as error:
                raise InputError(str(error)) from error
            try:
                if not run_at_terminal(loop, command(self, "distill")):
                    return INTERRUPTED
            except (RunError, OSError) as error:
                print(f"an-control distill: {error}", file=sys.stderr)
                return 1
        print(loop.model_path)
        result = {"task": self.task, "seed": self.seed, "rounds": loop.metrics}
        write_json(self.json, {**result, "model": str(loop.model_path)})
        return 0


Verb.__doc__ = with_offers(explained(Verb.__doc__, "return", "validation", "undone", "failed"))
