"""Settings of DAgger on image patches."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from an_control.disturbance import DisturbanceSettings
from an_control.learning.limits import OverZero, Positive, Share
from an_control.learning.training_disturbances import (
    PatchDisturbance,
    check_sum_of_probabilities,
    draw_at_most_one_disturbance,
    draw_merged_disturbances,
)
from an_control.policy.sizes import ConvolutionSizes


@dataclass(frozen=True)
class PatchDaggerSettings:
    """Settings of a DAgger run on image patches, the content of a recipe's YAML file."""

    student: ConvolutionSizes
    """Sizes of the student."""
    rounds: Positive = 100
    """Rounds of the run."""
    updates: Positive = 300
    """Gradient updates of a round."""
    first_updates: Positive = 1500
    """Gradient updates of the first round, if the student starts from random weights."""
    batch: Positive = 32
    """Number of rows of a batch, each of which replays one episode."""
    piece: Positive = 1
    """Number of consecutive steps of each row in a batch. A student with a memory learns whole
    episodes chunk by chunk; one without learns from random steps."""
    steps: Positive = 1000
    """Steps to record in a round, in one or more episodes."""
    longest: Positive = 1000
    """Maximum steps of an episode; shorter episodes give more starts."""
    led: Share = 0.0
    """Share of the episodes that the teacher starts and the student takes over at a random step."""
    first_episodes: Positive = 8
    """Episodes of the teacher with noise, recorded in the first round."""
    memory: Positive = 300
    """Number of newest episodes that are learned from."""
    newest: Positive = 30
    """Number of newest episodes that make up half of each batch."""
    rate: OverZero = 1e-3
    """Learning rate for the first two thirds of the run."""
    final_rate: float = 6e-5
    """Learning rate at the end of the run."""
    noise: float = 0.1
    """Strength of the random walk on the first action, in every other episode."""
    disturb: dict[PatchDisturbance, Share] = field(default_factory=dict)
    """Share of the student's episodes, and of the batch rows, that have each of these disturbances.
    """
    faults: dict[PatchDisturbance, Share] = field(default_factory=dict)
    """Probabilities of further disturbances, of which an episode or a batch row has at most one.
    The teacher always sees undisturbed readings."""
    max_moving: int = 144
    """Maximum number of changing patches in an example; if there are more, some are dropped at
    random."""
    backgrounds: Share = 0.0
    """Share of CarRacing's episodes and rows in which a random picture replaces the grass."""
    mirrored: tuple[int, ...] = ()
    """Indices of the actions that change their sign where left and right are exchanged, as for half
    of the rows. If empty, no row is mirrored."""
    average: Share = 0.998
    """Share of the old weights that the driving student keeps in each update."""
    loss_scale: tuple[float, ...] = (12.0, 1.0, 1.0)
    """Weight of each action's error, for continuous actions."""
    balance: float = 0.0
    """Exponent of a button's rarity as the weight of its examples; not used for continuous actions.
    """
    key_gain: float = 6.0
    """Factor of the initial key weights over the usual initialisation."""
    query_gain: float = 3.0
    """Factor of the initial query weights over the usual initialisation. Attention that starts
    uniform learns slowly."""
    validate_every: Positive = 10
    """Rounds between validations."""
    validation_episodes: Positive = 3
    """Episodes of a validation."""

    def __post_init__(self) -> None:
        check_sum_of_probabilities(self.faults)

    @property
    def acts_on_repeated_frames(self) -> bool:
        """Return whether the student also acts in steps in which no new frame has arrived.

        It does so if one of the disturbances in the settings repeats old frames.
        """
        return any(words.settings.repeat for words in (*self.disturb, *self.faults))

    @property
    def mean_share_of_missing_patches(self) -> float:
        """Return the mean share (0..1) of missing patches in an episode, for the validation.

        It is computed from the setting `disturb` alone; patches that `faults` removes do not count.
        """
        shares = self.disturb.items()
        return sum(share * words.settings.missing.middle for words, share in shares)

    def draw_disturbance(self, rng: np.random.Generator) -> DisturbanceSettings:
        """Draw the disturbances of one episode.

        Call this when an episode is to be recorded, and each time that a training batch begins to
        replay a recorded one.
        """
        return draw_at_most_one_disturbance(self.faults, rng).with_overrides_from(
            draw_merged_disturbances(self.disturb, rng)
        )

    def compute_learning_rate(self, round_number: int) -> float:
        """Return the learning rate of a round.

        It is constant for two thirds of the run, and then falls linearly to `final_rate`.

        Args:
            round_number: The round; 0 is the first one.
        """
        left = 3.0 * (1.0 - round_number / max(1, self.rounds))
        return self.final_rate + (self.rate - self.final_rate) * min(1.0, left)
