"""The numbers of a run of DAgger for scalar channels."""

from __future__ import annotations

from dataclasses import dataclass, field

from an_control.learning.dagger.episodes import RolloutSettings
from an_control.learning.dagger.streams import StreamSettings
from an_control.learning.dagger.student import StudentSizes


@dataclass(frozen=True)
class Collection:
    """Episodes to record before the first round and in each of the others."""

    clean: int = 25
    noisy: int = 25
    perturbed: int = 70
    on_policy: int = 6
    rewired: int = 6
    """On policy as well, reshuffled on the way."""
    mixed: int = 6
    perturbed_noise: float = 0.15
    noisy_noise: float = 0.4
    missing: float = 0.3
    """Share of the rewired and mixed episodes in which some channels are missing."""
    noise: float = 0.3
    """Share of the rewired and mixed episodes with noise channels."""
    copies: float = 0.0
    """Share of the rewired and mixed episodes in which channels come several times."""
    reshuffle: float = 0.01
    """Chance a step, in rewired and mixed episodes."""
    teacher_share: float = 0.5
    """Of the first mixed round; it falls to a tenth of it in the last."""

    def rewirings(self, progress: float) -> list[RolloutSettings]:
        """How the episodes of a DAgger round are driven, at `progress` (0..1) of the run."""
        teaching = self.teacher_share * 0.1**progress
        how = self.reshuffle, self.missing, self.noise, self.copies
        mixed, alone = (
            RolloutSettings(teaching, self.perturbed_noise, *how),
            RolloutSettings(0.0, 0.0, *how),
        )
        return [mixed] * self.mixed + [alone] * self.rewired + [RolloutSettings()] * self.on_policy


@dataclass(frozen=True)
class DaggerSettings:
    """A run's numbers. Round 0 identifies, on the teacher's episodes; then `rounds` of DAgger."""

    student: StudentSizes = field(default_factory=StudentSizes)
    collection: Collection = field(default_factory=Collection)
    streams: StreamSettings = field(default_factory=StreamSettings)
    memory_updates: int = 0
    """Before the first round, of a head with memory alone: it is told the true message."""
    identify_updates: int = 2000
    rounds: int = 20
    updates: int = 600
    batch: int = 16
    steps: int = 50
    """An update learns from so many steps in each row of the batch."""
    newest: int = 40
    """Episodes that are drawn more often than the older ones, after the first round."""
    kept: int | None = None
    """Newest episodes that are learned from, None for all."""
    identify_rate: float = 4e-3
    rate: float = 2e-3
    final_rate: float = 4e-4
    channel_loss: float = 1.0
    """In the paper's form it fades out until three fifths of the run."""
    action_loss: float = 1.0
    ordered_loss: float = 0.5
    expectation_loss: float = 5.0
    min_return: float | None = None
    """Own episodes with a return below it are left out, unless all are: then the best one stays."""
    averaged: bool = False
    """The model is the mean of the students after each round."""

    def rates(self, number: int) -> tuple[float, float]:
        """The learning rate at the begin and the end of a round."""
        if number == 0:
            return self.identify_rate, 0.1 * self.identify_rate
        begin = self.rate * (self.final_rate / self.rate) ** ((number - 1) / max(1, self.rounds))
        return begin, 0.5 * begin
