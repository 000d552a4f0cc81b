"""Settings of DAgger, and recipes: files that hold such settings.

A recipe is a YAML file. Recipes that ship with the package are found by name (`recipes/`). A file
names the kind of observation and those settings that differ from the defaults of `DaggerSettings`
(scalar channels) or `PatchDaggerSettings` (image patches)::

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
from an_control.learning.limits import AnyNumber, OverZero, Positive, Share
from an_control.learning.training_disturbances import (
    Fault,
    TrainingDisturbance,
    check_sum_of_probabilities,
)
from an_control.learning.yaml_settings import parse_settings
from an_control.policy.sizes import Encoder, RecurrenceSizes
from an_control.system.share import find_share_path
from an_control.wiring.checked_yaml import read_yaml


@dataclass(frozen=True)
class StudentSizes:
    """Sizes and optional parts of a student's network.

    The sensory neurons are small networks, one for each channel, with common weights. If the field
    `paper` is set, the student is built as in Tang & Ha 2021: fixed queries, tanh attention, and a
    head of one linear layer. Fields for parts that such a student lacks, such as `memory` and
    `head`, are then ignored.
    """

    neuron: Positive = 32
    """Units of the sensory neurons, the small networks (LSTM, or a layer on stacked readings, see
    `stack`) that each read one channel."""
    key: Positive = 32
    """Length of an attention key."""
    head: tuple[int, ...] = (128, 64)
    """Units of each hidden layer of the head."""
    products: bool = False
    """Whether products of readings and previous actions are inputs of the sensory neurons too."""
    memory: int = 0
    """GRU units with which the head predicts the channels that are missing; 0: no memory."""
    stack: int = 0
    """Number of newest readings that a sensory neuron reads; it then is a plain layer. 0: an LSTM.
    """
    outlier_weighting: bool = False
    """Weigh a reading less, the farther it lies from the memory's prediction."""
    reset_on_jump: bool = False
    """Reset all sensory neurons when most readings jump in one step."""
    prediction_attention: bool = False
    """Let the attention also compare each slot's readings with each query's prediction."""
    normalise: bool = False
    """Divide the sums over channels by their total attention where it exceeds 1."""
    paper: bool = False
    """Build the network as in the paper."""
    output: Literal["clip", "tanh"] = "clip"
    """Function behind the head's last layer; `distill` sets it to the teacher's."""
    encoder: Encoder = "none"
    """Self-attention between the sensory neurons' outputs (Lee et al. 2019): each to each (sab), or
    by way of `inducing` points (isab)."""
    inducing: Positive = 16
    """Number of inducing points of an isab encoder."""
    heads: Positive = 1
    """Attention heads of the encoder and of `pma`."""
    learned_queries: int = 0
    """Number of learned queries that replace the paper's fixed ones; 0: fixed queries."""
    pma: int = 0
    """Number of seeds that pool the sensory neurons' outputs by multihead attention (PMA), in place
    of the attention that multiplies the readings; 0: no pooling."""
    recurrence: RecurrenceSizes | None = None
    """Recurrent layer between the attention message and the head; not together with `memory`."""

    def __post_init__(self) -> None:
        if self.neuron % self.heads:
            raise ValueError(f"heads: {self.heads} (allowed: divisors of neuron, {self.neuron})")
        if self.pma and (self.memory or self.normalise or self.learned_queries):
            raise ValueError(
                f"pma: {self.pma} (allowed: 0 together with memory, normalise or learned_queries)"
            )
        if self.learned_queries and not self.paper:
            raise ValueError(
                f"learned_queries: {self.learned_queries} (allowed: 0, unless paper is true)"
            )
        if self.recurrence is not None:
            self.recurrence.check_consistency()
            if self.memory:
                raise ValueError(f"memory: {self.memory} (allowed: 0 together with a recurrence)")

    @property
    def encoder_and_recurrence_sizes(self) -> dict[str, Any]:
        """Return the sizes of encoder and recurrent layer as keywords of `AttentionSizes`."""
        points = self.inducing if self.encoder == "isab" else 0
        heads = self.heads if self.encoder != "none" or self.pma else 1
        return {
            "encoder": self.encoder,
            "inducing": points,
            "heads": heads,
            "recurrence": self.recurrence,
        }


IDENTIFY_SHARE = 0.25
"""Share of a run's time limit that the first round's updates get."""


@dataclass(frozen=True)
class Collection:
    """Numbers of episodes of each kind to record in a round, and how they are disturbed.

    In the first round the teacher drives: `clean` episodes, `noisy` ones with noise on the actions,
    and `perturbed` ones with periods of bad actions. In each later round the student drives:
    `on_policy` episodes with shuffled channels, `rewired` ones with more disturbances, `mixed` ones
    in which the teacher sometimes takes over, and `starts`, which end after a few steps.
    """

    episode_steps: int = 0
    """If over 0, each number of episodes below is multiplied by this and counts steps, not
    episodes."""
    clean: int = 25
    """Episodes of the teacher without noise."""
    noisy: int = 25
    """Episodes of the teacher with noise of up to `noisy_noise`."""
    perturbed: int = 70
    """Episodes of the teacher with periods of random or misguided actions."""
    on_policy: int = 6
    """Episodes that the student drives, undisturbed but for shuffled channels."""
    rewired: int = 6
    """Episodes that the student drives, disturbed and reshuffled while they run."""
    mixed: int = 6
    """Like `rewired`, with the teacher driving for a share of the time."""
    starts: int = 0
    """Like `on_policy`, but only the first `start_steps` steps, in which the student identifies its
    channels. Long episodes have few such steps."""
    start_steps: Positive = 50
    """Number of steps that are recorded of each of the `starts`."""
    perturbed_noise: float = 0.15
    """Maximum standard deviation of the action noise in perturbed and mixed episodes."""
    noisy_noise: float = 0.4
    """Maximum standard deviation of the action noise in noisy episodes."""
    disturb: dict[TrainingDisturbance, Share] = field(
        default_factory=lambda: {
            TrainingDisturbance("missing=0.05..0.25"): 0.3,
            TrainingDisturbance("noise=1..4,noise-sd=1"): 0.3,
        }
    )
    """Share of the rewired and mixed episodes that have each of these disturbances."""
    reshuffle: Share = 0.01
    """Probability per step that all signals are permuted among the input slots, in rewired and
    mixed episodes."""
    teacher_share: Share = 0.5
    """Share of the time that the teacher drives in the first mixed round; falls to a tenth of it.
    """

    def plan_episodes_after_first_round(self, progress: float) -> list[tuple[int, RolloutSettings]]:
        """Return how many episodes of each kind to record in a round after the first one.

        Args:
            progress: Share (0..1) of the rounds after the first one that are finished. The larger
                it is, the less the teacher drives in `mixed` episodes.

        Returns:
            For each of the four kinds `mixed`, `rewired`, `on_policy` and `starts`: the number of
            episodes, and their settings.
        """
        teaching = self.teacher_share * 0.1**progress
        how = RolloutSettings(reshuffle=self.reshuffle, disturb=self.disturb, faulty=True)
        return [
            (self.mixed, replace(how, teacher_share=teaching, noise=self.perturbed_noise)),
            (self.rewired, how),
            (self.on_policy, RolloutSettings()),
            (self.starts, RolloutSettings(steps=self.start_steps)),
        ]


@dataclass(frozen=True)
class DaggerSettings:
    """Settings of a DAgger run on scalar channels.

    A recipe's YAML file has these settings. In the first round (round 0) the student learns to
    identify channels from the teacher's episodes; `rounds` rounds of DAgger follow.
    """

    student: StudentSizes = field(default_factory=StudentSizes)
    """Sizes and optional parts of the student."""
    collection: Collection = field(default_factory=Collection)
    """Episodes to record in each round."""
    streams: StreamSettings = field(default_factory=StreamSettings)
    """Disturbances of the rows of training batches."""
    faults: dict[Fault, Share] = field(default_factory=dict)
    """Probability of each disturbance, of which an episode or a batch row has at most one. They are
    drawn for the rows of batches and for noisy, perturbed, rewired and mixed episodes. The teacher
    always sees undisturbed readings."""
    keep_head: bool = False
    """If the student starts from a model, keep that model's head; otherwise the head starts as the
    teacher's network."""
    recovery: float = 0.0
    """Mean change of the readings per tick below which the robot counts as standing still and is
    pushed, in training and wherever the model acts (see `RecoveringPolicy`); 0: no pushes."""
    memory_updates: int = 0
    """Updates of the head's memory before the first round, with perfectly identified channels as
    input."""
    identify_updates: Positive = 2000
    """Updates of the first round."""
    rounds: int = 20
    """DAgger rounds after the first one."""
    updates: Positive = 600
    """Updates of each later round."""
    batch: Positive = 16
    """Rows of a batch."""
    steps: Positive = 50
    """Steps of each row in one update."""
    newest: Positive = 40
    """Number of newest episodes that are drawn more often than older ones, after the first round.
    It is counted like the numbers of `collection`."""
    kept: Positive | None = None
    """Number of newest episodes that are learned from; None: all."""
    identify_rate: float = 4e-3
    """Learning rate at the start of the first round."""
    rate: OverZero = 2e-3
    """Learning rate at the start of the second round."""
    final_rate: float = 4e-4
    """Learning rate at the start of the last round."""
    channel_loss: float = 1.0
    """Weight of the loss for identifying channels. In the paper's form it fades out over the first
    three fifths of the run."""
    action_loss: float = 1.0
    """Weight of the loss for the action."""
    ordered_loss: float = 0.5
    """Weight of the loss for the action that the head takes on the correctly ordered observation.
    """
    expectation_loss: float = 5.0
    """Weight of the loss for the memory's predicted readings."""
    min_return: AnyNumber | None = None
    """Minimum return of a student's episode to be learned from; if none reaches it, the best is
    used."""
    validation_episodes: int = 0
    """Validation episodes after each round, with shuffled channels, counted like the numbers of
    `collection`. The run keeps the student whose mean over three rounds is best. 0: no
    validation, and the last student is kept."""
    minutes: float = 0.0
    """Time limit of the run in minutes of processor time; a quarter of it is for the first round's
    updates. Learning rates follow the time, which is divided into at least `rounds` rounds. The
    run ends earlier once the student is as good as the teacher. 0: `rounds` rounds without a
    limit."""
    averaged: bool = False
    """Return the average of the students after each round as the model."""

    def __post_init__(self) -> None:
        check_sum_of_probabilities(self.faults)
        if self.minutes and not self.rounds:
            raise ValueError("rounds: 0 (allowed: 1 or more if minutes are set)")

    def compute_start_and_end_learning_rates(
        self, round_number: int, progress: float
    ) -> tuple[float, float]:
        """Return the learning rates at the start and at the end of a round, in this order.

        Args:
            round_number: The round; 0 is the first one.
            progress: Share (0..1) of the rounds after the first one that are finished when this
                round starts.
        """
        if round_number == 0:
            return self.identify_rate, 0.1 * self.identify_rate
        begin = self.rate * (self.final_rate / self.rate) ** progress
        return begin, 0.5 * begin

    def compute_time_limit_of_updates_s(self, round_number: int) -> float:
        """Return how much processor time, in seconds, the gradient updates of a round may take.

        It is infinity if the run has no time limit.

        Args:
            round_number: The round. Round 0, the first one, gets a larger share of the run's time.
        """
        if not self.minutes:
            return math.inf
        share = IDENTIFY_SHARE if round_number == 0 else (1.0 - IDENTIFY_SHARE) / self.rounds
        return 60.0 * self.minutes * share


KINDS = {"scalar channels": DaggerSettings, "image patches": PatchDaggerSettings}
GENERIC = "robust"
"""Name of the recipe for tasks that have none of their own."""
_OBSERVATION = re.compile("|".join(KINDS))


def list_recipes() -> tuple[str, ...]:
    """Return the names of the recipes that ship with the package, sorted."""
    return tuple(sorted(path.stem for path in find_share_path("recipes").glob("*.yaml")))


def find_recipe_path(recipe: str) -> Path:
    """Return the path of a recipe's YAML file.

    Args:
        recipe: Name of a recipe that ships with the package, or the path of a YAML file.

    Raises:
        ValueError: No recipe has this name, and it is not the path of a YAML file.
    """
    if recipe.endswith((".yaml", ".yml")):
        return Path(recipe)
    if recipe not in list_recipes():
        raise ValueError(
            f"--recipe {recipe!r}: must be one of {', '.join(list_recipes())}, or a .yaml file,"
            " such as those of experiments/ in the source tree"
        )
    return find_share_path(f"recipes/{recipe}.yaml")


def read_recipe(recipe: str) -> DaggerSettings | PatchDaggerSettings:
    """Read a recipe, a YAML file with the settings of a DAgger run.

    Args:
        recipe: Name of a recipe that ships with the package, or the path of a YAML file.

    Returns:
        The settings, of the kind that the file's `observation` names.

    Raises:
        ValueError: The name is unknown.
        WiringError: The file is invalid; the error names file, key, value and what is allowed.
    """
    header = ("an_control_recipe", "observation")
    entry = read_yaml(find_recipe_path(recipe))
    top = dict(entry.iterate_items(f"a mapping of {', '.join(header)} and settings"))
    kind = DaggerSettings
    if "observation" in top:
        text = top["observation"].read_text(" or ".join(KINDS), _OBSERVATION)
        kind = KINDS[text]  # type: ignore[assignment]
    settings = parse_settings(kind, entry, header)
    if top["an_control_recipe"].value != 1:
        raise top["an_control_recipe"].make_error("1, the version of the format")
    return settings


def choose_recipe_name(task: str) -> str:
    """Return the name of the recipe for a task.

    It is the recipe with the same name as the task, or the generic recipe if there is none.
    """
    return task if task in list_recipes() else GENERIC


def make_smoke_test_settings(settings: DaggerSettings) -> DaggerSettings:
    """Return settings like the given ones, but with a small network and few short rounds.

    A run with them takes only seconds and goes through all stages, for a smoke test. The student
    learns next to nothing.

    Args:
        settings: Settings for scalar channels.
    """
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


def make_patch_smoke_test_settings(settings: PatchDaggerSettings) -> PatchDaggerSettings:
    """Return settings like the given ones, but with few short rounds.

    A run with them takes only seconds and goes through all stages, for a smoke test. The student
    learns next to nothing.

    Args:
        settings: Settings for image patches.
    """
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
