"""The numbers of a run of DAgger for scalar channels."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from an_control.learning.dagger.episodes import RolloutSettings
from an_control.learning.dagger.streams import StreamSettings
from an_control.learning.dagger.student_sizes import StudentSizes
from an_control.learning.faults import Fault, check_chances
from an_control.learning.yaml_settings import AnyNumber, OverZero, Positive, Share

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
    missing: Share = 0.3
    """Share of the rewired and mixed episodes in which some channels are missing."""
    noise: Share = 0.3
    """Share of the rewired and mixed episodes with noise channels."""
    copies: Share = 0.0
    """Share of the rewired and mixed episodes in which channels come several times."""
    reshuffle: Share = 0.01
    """Chance a step, in rewired and mixed episodes."""
    teacher_share: Share = 0.5
    """Of the first mixed round; it falls to a tenth of it in the last."""

    def rewirings(self, progress: float) -> list[tuple[int, RolloutSettings]]:
        """How many episodes of a DAgger round are driven how, at `progress` (0..1) of the run."""
        teaching = self.teacher_share * 0.1**progress
        how = self.reshuffle, self.missing, self.noise, self.copies
        return [
            (self.mixed, RolloutSettings(teaching, self.perturbed_noise, *how, faulty=True)),
            (self.rewired, RolloutSettings(0.0, 0.0, *how, faulty=True)),
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
        check_chances(self.faults)
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
