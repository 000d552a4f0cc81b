"""The numbers of a run of DAgger on image patches."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from an_control.disturbance import DisturbanceSettings
from an_control.learning.training_disturbances import (
    PatchDisturbance,
    check_probabilities,
    draw_independently,
    draw_one,
)
from an_control.learning.yaml_settings import OverZero, Positive, Share
from an_control.policy.sizes import ConvolutionSizes


@dataclass(frozen=True)
class PatchDaggerSettings:
    """A run's numbers.

    `balance` weighs the examples of each button by
    that power of how rare it is; of no effect where the actions are no choice.
    """

    student: ConvolutionSizes
    rounds: Positive = 100
    updates: Positive = 300
    first_updates: Positive = 1500
    """In the first round, where the student is new."""
    batch: Positive = 32
    """Rows: steps that are learned from side by side."""
    piece: Positive = 1
    """Steps in a row of each row in an update. A student with a memory learns from whole episodes,
    piece by piece; one without from steps at random."""
    steps: Positive = 1000
    """To record in a round, of one episode or several."""
    longest: Positive = 1000
    """Steps of an episode at most; few of them are more starts."""
    led: Share = 0.0
    """Share of the episodes that the teacher begins and the student takes over on the way."""
    first_episodes: Positive = 8
    """Of the teacher with noise, before the first round."""
    memory: int = 300
    """Newest episodes that are learned from."""
    newest: int = 30
    """Of these, the newest that make half of each batch."""
    rate: OverZero = 1e-3
    final_rate: float = 6e-5
    noise: float = 0.1
    """On the first action of every other round's episode: a random walk of this strength."""
    disturb: dict[PatchDisturbance, Share] = field(default_factory=dict)
    """Share of the student's episodes, and of each row's ways through one, that have each of these
    disturbances."""
    faults: dict[PatchDisturbance, Share] = field(default_factory=dict)
    """The probabilities of others, of which one or none is drawn. The teacher sees the present."""
    max_moving: int = 144
    """Patches that show a change: an example with more of them loses some at random."""
    backgrounds: Share = 0.0
    """Share of the episodes and of the rows of CarRacing in which a random pattern stands where
    the grass is."""
    mirrored: tuple[int, ...] = ()
    """Actions that change their sign where left and right are exchanged, as they are for half of
    the rows; where there are none, no example is mirrored."""
    average: Share = 0.998
    """How slowly the weights that drive follow those that learn."""
    loss_scale: tuple[float, ...] = (12.0, 1.0, 1.0)
    """Weight of each action's error, where the actions are no choice."""
    balance: float = 0.0
    key_gain: float = 6.0
    query_gain: float = 3.0
    """The first weights' size over that of a usual layer: attention that begins undecided learns
    slowly."""
    validate_every: Positive = 10
    validation_episodes: Positive = 3

    def __post_init__(self) -> None:
        check_probabilities(self.faults)

    @property
    def repeats(self) -> bool:
        """Whether the student learns to step on frames that it has seen."""
        return any(words.settings.repeat for words in (*self.disturb, *self.faults))

    @property
    def mean_missing(self) -> float:
        """Return the share of the patches that `disturb` lets be missing on average."""
        shares = self.disturb.items()
        return sum(share * words.settings.missing.middle for words, share in shares)

    def draw_disturbance(self, rng: np.random.Generator) -> DisturbanceSettings:
        """Draw what disturbs an episode or a row."""
        return draw_one(self.faults, rng).merged_with(draw_independently(self.disturb, rng))

    def rate_of(self, number: int) -> float:
        """Constant for two thirds of the run, then falling."""
        left = 3.0 * (1.0 - number / max(1, self.rounds))
        return self.final_rate + (self.rate - self.final_rate) * min(1.0, left)
