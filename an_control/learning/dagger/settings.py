"""The numbers of a run of DAgger for scalar channels.

The sizes of a student, as a recipe names them.

Recipes: the settings of `distill` as YAML files, those that ship by name (`recipes/`).

A file says what the student observes and, by their names, the settings that differ from the
defaults of `DaggerSettings` (scalar channels) or `PatchDaggerSettings` (image patches)::

    an_control_recipe: 1
    observation: scalar channels
    rounds: 8
    streams: {disturb: {missing=0..0.25: 0.4}}
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
from an_control.learning.dagger.streams import RolloutSettings, StreamSettings
from an_control.learning.training_disturbances import (
    Fault,
    TrainingDisturbance,
    check_probabilities,
)
from an_control.learning.yaml_settings import AnyNumber, OverZero, Positive, Share, parse_settings
from an_control.policy.sizes import Encoder, RecurrenceSizes
from an_control.system.share import share_path
from an_control.wiring.checked_yaml import read_yaml


@dataclass(frozen=True)
class StudentSizes:
    """`neuron` units a channel, `key` numbers a key, `head` the hidden layers.

    A channel's neuron is an LSTM, or a layer on its `stack` newest readings where that is over 0.
    `memory` GRU units of the head expect what no channel shows; 0 for a head without. With
    `outlier_weighting` a reading counts the less the farther it lies from what was expected, with
    `prediction_attention` the attention also asks which query expected the reading. With
    `reset_on_jump` all neurons are reset where most readings jump at once.

    A student in the `paper`'s form has fixed queries, tanh attention and one linear layer; of the
    others it takes `neuron`, `stack`, `normalise` and what follows `output`.
    """

    neuron: Positive = 32
    key: Positive = 32
    head: tuple[int, ...] = (128, 64)
    products: bool = False
    memory: int = 0
    stack: int = 0
    outlier_weighting: bool = False
    reset_on_jump: bool = False
    prediction_attention: bool = False
    normalise: bool = False
    """Divide the sums over channels by their attention where that is over 1."""
    paper: bool = False
    output: Literal["clip", "tanh"] = "clip"
    """What is done to the head's last layer; by `distill` as the teacher does."""
    encoder: Encoder = "none"
    """Lets the neurons' outputs attend to each other first (Lee et al. 2019), all to all (sab) or
    by way of `inducing` points (isab)."""
    inducing: Positive = 16
    heads: Positive = 1
    """Of the encoder and of `pma`."""
    learned_queries: int = 0
    """In the paper's form: so many learned queries in place of its fixed ones; 0: fixed."""
    pma: int = 0
    """So many seeds pool the neurons' outputs by multihead attention, in place of the attention
    that multiplies the readings; 0: none do."""
    recurrence: RecurrenceSizes | None = None
    """A memory behind the message; not beside `memory`."""

    def __post_init__(self) -> None:
        if self.neuron % self.heads:
            raise ValueError(
                f"heads: {self.heads} does not divide the neurons' {self.neuron} units"
            )
        if self.pma and (self.memory or self.normalise or self.learned_queries):
            raise ValueError(
                f"pma: {self.pma}, beside memory, normalise or learned_queries it must be 0"
            )
        if self.learned_queries and not self.paper:
            raise ValueError(
                f"learned_queries: {self.learned_queries}, only the paper's form has other queries"
            )
        if self.recurrence is not None:
            self.recurrence.check()
            if self.memory:
                raise ValueError(f"memory: {self.memory}, beside a recurrence it must be 0")

    @property
    def parts(self) -> dict[str, Any]:
        """The sizes of encoder and pooling that an `AttentionSizes` has."""
        points = self.inducing if self.encoder == "isab" else 0
        heads = self.heads if self.encoder != "none" or self.pma else 1
        return {
            "encoder": self.encoder,
            "inducing": points,
            "heads": heads,
            "recurrence": self.recurrence,
        }


IDENTIFY_SHARE = 0.25
"""Of a limited run's time, for the updates of the first round."""


@dataclass(frozen=True)
class Collection:
    """Episodes to record before the first round and in each of the others."""

    episode_steps: int = 0
    """Where it is not 0, each number of episodes below stands for so many times this many steps,
    in episodes of any length."""
    clean: int = 25
    noisy: int = 25
    perturbed: int = 70
    on_policy: int = 6
    rewired: int = 6
    """On policy as well, reshuffled on the way."""
    mixed: int = 6
    perturbed_noise: float = 0.15
    noisy_noise: float = 0.4
    disturb: dict[TrainingDisturbance, Share] = field(
        default_factory=lambda: {
            TrainingDisturbance("missing=0.05..0.25"): 0.3,
            TrainingDisturbance("noise=1..4,noise-sd=1"): 0.3,
        }
    )
    """Share of the rewired and mixed episodes that have each of these disturbances."""
    reshuffle: Share = 0.01
    """Probability a step that all signals move, in rewired and mixed episodes."""
    teacher_share: Share = 0.5
    """Of the first mixed round; it falls to a tenth of it in the last."""

    def rewirings(self, progress: float) -> list[tuple[int, RolloutSettings]]:
        """How many episodes of a DAgger round are driven how, at `progress` (0..1) of the run."""
        teaching = self.teacher_share * 0.1**progress
        how = RolloutSettings(reshuffle=self.reshuffle, disturb=self.disturb, faulty=True)
        return [
            (self.mixed, replace(how, teacher_share=teaching, noise=self.perturbed_noise)),
            (self.rewired, how),
            (self.on_policy, RolloutSettings()),
        ]


@dataclass(frozen=True)
class DaggerSettings:
    """A run's numbers. Round 0 identifies, on the teacher's episodes; then `rounds` of DAgger."""

    student: StudentSizes = field(default_factory=StudentSizes)
    collection: Collection = field(default_factory=Collection)
    streams: StreamSettings = field(default_factory=StreamSettings)
    faults: dict[Fault, Share] = field(default_factory=dict)
    """The chances of disturbances, by their words: of the streams' rows, and of the noisy,
    perturbed, rewired and mixed episodes. The teacher sees the present."""
    keep_head: bool = False
    """A student that starts from a model continues with its head, where that otherwise begins as
    the teacher's network."""
    recovery: float = 0.0
    """The student is pushed where it stands still, here and wherever its model acts (see
    `RecoveringPolicy`); 0: never."""
    memory_updates: int = 0
    """Before the first round, of a head with memory alone: it gets the true message."""
    identify_updates: Positive = 2000
    rounds: int = 20
    updates: Positive = 600
    batch: Positive = 16
    steps: Positive = 50
    """An update learns from so many steps in each row of the batch."""
    newest: int = 40
    """Episodes that are drawn more often than the older ones, after the first round; counted as
    the collection's."""
    kept: Positive | None = None
    """Newest episodes that are learned from, None for all."""
    identify_rate: float = 4e-3
    rate: OverZero = 2e-3
    final_rate: float = 4e-4
    channel_loss: float = 1.0
    """In the paper's form it fades out until three fifths of the run."""
    action_loss: float = 1.0
    ordered_loss: float = 0.5
    expectation_loss: float = 5.0
    min_return: AnyNumber | None = None
    """Own episodes with a return below it are left out, unless all are: then the best one stays."""
    validation_episodes: int = 0
    """After each round, of the student on shuffled channels, counted as the collection's. The
    student is kept whose mean with the two rounds before is best. 0: none, and the last one is."""
    minutes: float = 0.0
    """Processor time of the run, a quarter of it for the first round's updates; the rates fall with
    it. It is cut into `rounds` rounds at least. It ends before where the last rounds' students were
    as good as the teacher. 0: `rounds` rounds, however long they take."""
    averaged: bool = False
    """The model is the mean of the students after each round."""

    def __post_init__(self) -> None:
        check_probabilities(self.faults)
        if self.minutes and not self.rounds:
            raise ValueError("rounds: 0 (allowed: 1 or more, where there are minutes)")

    def rates(self, number: int, progress: float) -> tuple[float, float]:
        """The learning rate at the begin and the end of a round that begins at this progress."""
        if number == 0:
            return self.identify_rate, 0.1 * self.identify_rate
        begin = self.rate * (self.final_rate / self.rate) ** progress
        return begin, 0.5 * begin

    def limit_s(self, number: int) -> float:
        """Processor time for the updates of a round, infinite where the run has no limit."""
        if not self.minutes:
            return math.inf
        share = IDENTIFY_SHARE if number == 0 else (1.0 - IDENTIFY_SHARE) / self.rounds
        return 60.0 * self.minutes * share


KINDS = {"scalar channels": DaggerSettings, "image patches": PatchDaggerSettings}
GENERIC = "robust"
"""The recipe of a task without one of its own."""
_OBSERVATION = re.compile("|".join(KINDS))


def recipe_names() -> tuple[str, ...]:
    """The recipes that ship."""
    return tuple(sorted(path.stem for path in share_path("recipes").glob("*.yaml")))


def recipe_path(recipe: str) -> Path:
    """The file of a recipe: one that ships, by its name, or any by its path.

    ValueError where no recipe has this name and it is no path of a YAML file.
    """
    if recipe.endswith((".yaml", ".yml")):
        return Path(recipe)
    if recipe not in recipe_names():
        raise ValueError(
            f"--recipe {recipe!r}: must be one of {', '.join(recipe_names())}, or a .yaml file"
        )
    return share_path(f"recipes/{recipe}.yaml")


def read_recipe(recipe: str) -> DaggerSettings | PatchDaggerSettings:
    """The settings of a recipe, by name or path.

    ValueError for an unknown name; WiringError names file, key, value and what is allowed.
    """
    header = ("an_control_recipe", "observation")
    entry = read_yaml(recipe_path(recipe))
    top = dict(entry.items(f"a mapping of {', '.join(header)} and settings"))
    kind = DaggerSettings
    if "observation" in top:
        text = top["observation"].text(" or ".join(KINDS), _OBSERVATION)
        kind = KINDS[text]  # type: ignore[assignment]
    settings = parse_settings(kind, entry, header)
    if top["an_control_recipe"].value != 1:
        raise top["an_control_recipe"].error("1, the version of the format")
    return settings


def recipe_of(task: str) -> str:
    """The name of the recipe that a task is learned by where nobody names one."""
    return task if task in recipe_names() else GENERIC


def smoke(settings: DaggerSettings) -> DaggerSettings:
    """The same stages in seconds: a few episodes, a few updates; learns next to nothing."""
    return replace(
        settings,
        student=replace(settings.student, neuron=8, key=8),
        collection=Collection(clean=1, noisy=1, perturbed=1, on_policy=1, rewired=1, mixed=1),
        memory_updates=min(settings.memory_updates, 3),
        identify_updates=3,
        rounds=2,
        updates=2,
        batch=2,
        steps=10,
    )


def patch_smoke(settings: PatchDaggerSettings) -> PatchDaggerSettings:
    """The same in seconds; learns next to nothing."""
    return replace(
        settings,
        rounds=2,
        updates=2,
        first_updates=2,
        batch=4,
        piece=min(settings.piece, 5),
        steps=30,
        first_episodes=1,
        validate_every=2,
        validation_episodes=1,
    )
