"""Staged imitation: identify the channels, route them, correct the student where it goes (DAgger).

One optimiser and one loss serve all stages. The cross-entropy teaches every neuron which channel
it sees; the action is learned through the soft routing and, beside it, from the ordered
observation, which keeps the head a good driver. Where the teacher's action is saturated, which is
often, the student must only be beyond it: there a hinge, or its gradient dies.

A round is a function of the run's seed, the round's number and the state before it: a run that was
stopped after any round continues to the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from an_control.learning.episodes import Episode, Rewiring
from an_control.learning.streams import Batch, Disturbance, Streams
from an_control.learning.student import State, Student, StudentSizes

SATURATED = 0.999
LARGEST_LOSS = 9.0


@dataclass(frozen=True)
class Collection:
    """Episodes to record before the first round and in each of the others."""

    clean: int = 25
    noisy: int = 25
    messy: int = 70
    on_policy: int = 6
    rewired: int = 6
    """On policy as well, reshuffled on the way."""
    mixed: int = 6
    messy_noise: float = 0.15
    noisy_noise: float = 0.4
    absent: float = 0.3
    """Share of the rewired and mixed episodes that lack some channels."""
    foreign: float = 0.3
    """Share of the rewired and mixed episodes with channels of noise."""
    reshuffle: float = 0.01
    """Chance a step, in rewired and mixed episodes."""
    teacher_share: float = 0.5
    """Of the first mixed round; it falls to a tenth of it in the last."""

    def rewirings(self, progress: float) -> list[Rewiring]:
        """How the episodes of a DAgger round are driven, at `progress` (0..1) of the run."""
        teaching = self.teacher_share * 0.1**progress
        mixed = Rewiring(teaching, self.messy_noise, self.reshuffle, self.absent, self.foreign)
        alone = Rewiring(0.0, 0.0, self.reshuffle, self.absent, self.foreign)
        return [mixed] * self.mixed + [alone] * self.rewired + [Rewiring()] * self.on_policy


@dataclass(frozen=True)
class Imitation:
    """A run's numbers. Round 0 identifies, on the teacher's episodes; then `rounds` of DAgger."""

    student: StudentSizes = field(default_factory=StudentSizes)
    collection: Collection = field(default_factory=Collection)
    disturbance: Disturbance = field(default_factory=Disturbance)
    identify_updates: int = 2000
    rounds: int = 20
    updates: int = 600
    lanes: int = 16
    steps: int = 50
    identify_rate: float = 4e-3
    rate: float = 2e-3
    final_rate: float = 4e-4
    channel_loss: float = 1.0
    action_loss: float = 1.0
    ordered_loss: float = 0.5

    def rates(self, number: int) -> tuple[float, float]:
        """The learning rate at the begin and the end of a round."""
        if number == 0:
            return self.identify_rate, 0.1 * self.identify_rate
        begin = self.rate * (self.final_rate / self.rate) ** ((number - 1) / max(1, self.rounds))
        return begin, 0.5 * begin


def train_round(
    student: Student,
    optimiser: torch.optim.Optimizer,
    episodes: Sequence[Episode],
    settings: Imitation,
    number: int,
    rng: np.random.Generator,
) -> dict[str, float]:
    """One round of updates in place; returns the means of its last 150 updates."""
    device = next(student.parameters()).device
    updates = settings.updates if number else settings.identify_updates
    newest = 40 if number else len(episodes)
    streams = Streams(episodes, settings.lanes, settings.steps, settings.disturbance, newest, rng)
    begin, end = settings.rates(number)
    state: State | None = None
    history = []
    for update in range(updates):
        for group in optimiser.param_groups:
            group["lr"] = end + (begin - end) * 0.5 * (1.0 + math.cos(math.pi * update / updates))
        batch = streams.batch().to(device)
        loss, state, figures = _loss(student, batch, _forget(state, batch), settings)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimiser.step()
        history.append(figures)
    last = history[-150:]
    return {name: float(np.mean([figures[name] for figures in last])) for name in last[0]}


def _forget(state: State | None, batch: Batch) -> State | None:
    """The state at the begin of a piece: zero in the lanes that start an episode."""
    if state is None:
        return None
    slots = batch.values.shape[2]
    keep = (~batch.fresh).float().repeat_interleave(slots)[None, :, None]
    return state[0] * keep, state[1] * keep


def _loss(
    student: Student, batch: Batch, state: State | None, settings: Imitation
) -> tuple[Tensor, State, dict[str, float]]:
    scores, (output, cell) = student.identify(batch.values, batch.change, batch.previous, state)
    weight = batch.present * batch.counts.unsqueeze(-1)
    wrong = nn.functional.cross_entropy(
        scores.flatten(0, 2), batch.channel.flatten(), reduction="none"
    ).view_as(weight)
    channel = (wrong * weight).sum() / weight.sum()
    routed = student.act(student.route(scores, batch.values, batch.present))
    action = _action_loss(routed, batch)
    whole = torch.cat([batch.ordered, torch.zeros_like(batch.ordered)], -1)
    ordered = _action_loss(student.act(whole), batch)
    loss = (
        settings.channel_loss * channel
        + settings.action_loss * action
        + settings.ordered_loss * ordered
    )
    right = ((scores.argmax(-1) == batch.channel) * weight).sum() / weight.sum()
    figures = {
        "channel_loss": channel.item(),
        "identified": right.item(),
        "action_loss": action.item(),
        "ordered_loss": ordered.item(),
    }
    return loss, (output.detach(), cell.detach()), figures


def _action_loss(action: Tensor, batch: Batch) -> Tensor:
    """Squared error, one-sided where the label is saturated, bounded; mean over the steps."""
    labels = batch.labels
    beyond = torch.relu(1.0 - labels * action) ** 2
    error = torch.where(labels.abs() > SATURATED, beyond, (action - labels) ** 2)
    each = error.clamp(max=LARGEST_LOSS).mean(-1)
    return (each * batch.counts).sum() / batch.counts.sum()
