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

from an_control.learning.dagger.episodes import Episode, Rewiring
from an_control.learning.dagger.streams import Batch, Disturbance, Streams
from an_control.learning.dagger.student import State, Student, StudentSizes

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
    copied: float = 0.0
    """Share of the rewired and mixed episodes in which channels come several times."""
    reshuffle: float = 0.01
    """Chance a step, in rewired and mixed episodes."""
    teacher_share: float = 0.5
    """Of the first mixed round; it falls to a tenth of it in the last."""

    def rewirings(self, progress: float) -> list[Rewiring]:
        """How the episodes of a DAgger round are driven, at `progress` (0..1) of the run."""
        teaching = self.teacher_share * 0.1**progress
        how = self.reshuffle, self.absent, self.foreign, self.copied
        mixed, alone = Rewiring(teaching, self.messy_noise, *how), Rewiring(0.0, 0.0, *how)
        return [mixed] * self.mixed + [alone] * self.rewired + [Rewiring()] * self.on_policy


@dataclass(frozen=True)
class Imitation:
    """A run's numbers. Round 0 identifies, on the teacher's episodes; then `rounds` of DAgger."""

    student: StudentSizes = field(default_factory=StudentSizes)
    collection: Collection = field(default_factory=Collection)
    disturbance: Disturbance = field(default_factory=Disturbance)
    memory_updates: int = 0
    """Before the first round, of a head with memory alone: it is told the true message."""
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
    expectation_loss: float = 5.0
    least: float | None = None
    """Own episodes with a return below it are left out, unless all are: then the best one stays."""
    averaged: bool = False
    """The model is the mean of the students after each round."""

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
    if number == 0 and settings.memory_updates:
        train_memory(student, episodes, settings, rng)
    streams = Streams(
        episodes,
        settings.lanes,
        settings.steps,
        settings.disturbance,
        newest,
        rng,
        student.sizes.reset_on_jump,
    )
    begin, end = settings.rates(number)
    state: State | None = None
    history = []
    for update in range(updates):
        for group in optimiser.param_groups:
            group["lr"] = end + (begin - end) * 0.5 * (1.0 + math.cos(math.pi * update / updates))
        batch = streams.batch().to(device)
        told = None
        if number == 0 and settings.memory_updates:
            told = _told(batch, 0.8 - 1.2 * update / updates)
        loss, state, figures = _loss(student, batch, _forget(student, state, batch), settings, told)
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimiser.step()
        history.append(figures)
    last = history[-150:]
    return {name: float(np.mean([figures[name] for figures in last])) for name in last[0]}


def train_memory(
    student: Student, episodes: Sequence[Episode], settings: Imitation, rng: np.random.Generator
) -> None:
    """Teach the memory what the channels will read, and the head to do with it, in place.

    The message is the true one, as of an attention that knows; it lacks empty channels, and now
    and then everything for some steps, as after a reshuffle.
    """
    lanes, updates = 2 * settings.lanes, settings.memory_updates
    wiring = Disturbance(0.0, 0.0, 0.6, empty_share=0.5)
    streams = Streams(episodes, lanes, settings.steps, wiring, len(episodes), rng)
    parts = [student.memory, student.expectation, student.head]
    parameters = [parameter for part in parts for parameter in part.parameters()]
    optimiser = torch.optim.Adam(parameters)
    state = None
    for update in range(updates):
        for group in optimiser.param_groups:
            cosine = 0.5 * (1.0 + math.cos(math.pi * update / updates))
            group["lr"] = settings.identify_rate * (0.1 + 0.9 * cosine)
        batch = streams.batch().to(next(student.parameters()).device)
        message = student.truth(batch) * _blank(batch, rng).unsqueeze(-1)
        state = _forget(student, state, batch)
        action, ordered, expected, memory, seen = student.remember(batch, message, state)
        state = state._replace(memory=memory, message=seen).detach()
        loss = (
            settings.action_loss * _action_loss(action, batch)
            + settings.ordered_loss * _action_loss(ordered, batch)
            + settings.expectation_loss * _expectation_loss(expected, batch)
        )
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()


def _blank(batch: Batch, rng: np.random.Generator) -> Tensor:
    """(T, B) 0 where a lane's message is missing: some steps of every so many, in most lanes."""
    steps, lanes = batch.counts.shape
    seen = np.ones((steps, lanes), np.float32)
    for lane in np.flatnonzero(rng.random(lanes) < 0.7):
        every, missing = rng.choice([25, 50, 100]), rng.integers(1, 16)
        seen[(np.arange(steps) + rng.integers(every)) % every < missing, lane] = 0.0
    return torch.from_numpy(seen).to(batch.counts.device)


def _told(batch: Batch, share: float) -> Tensor:
    """(T, B) 1 in the first lanes, `share` of them."""
    steps, lanes = batch.counts.shape
    first = torch.arange(lanes, device=batch.counts.device) < lanes * share
    return first.float().expand(steps, lanes)


def _forget(student: Student, state: State | None, batch: Batch) -> State:
    """The state at the begin of a piece: a fresh one in the lanes that start an episode."""
    if state is None:
        state = student.start(*batch.values.shape[1:])
    return state.kept((~batch.fresh).float())


def _loss(
    student: Student, batch: Batch, state: State, settings: Imitation, told: Tensor | None
) -> tuple[Tensor, State, dict[str, float]]:
    outcome = student(batch, state, told)
    weight = batch.present * batch.counts.unsqueeze(-1)
    wrong = nn.functional.nll_loss(
        outcome.attention.flatten(0, 2), batch.channel.flatten(), reduction="none"
    ).view_as(weight)
    channel = (wrong * weight).sum() / weight.sum()
    action, ordered = _action_loss(outcome.action, batch), _action_loss(outcome.ordered, batch)
    loss = (
        settings.channel_loss * channel
        + settings.action_loss * action
        + settings.ordered_loss * ordered
    )
    right = ((outcome.attention.argmax(-1) == batch.channel) * weight).sum() / weight.sum()
    figures = {
        "channel_loss": channel.item(),
        "identified": right.item(),
        "action_loss": action.item(),
        "ordered_loss": ordered.item(),
    }
    if outcome.expected is not None:
        expectation = _expectation_loss(outcome.expected, batch)
        loss = loss + settings.expectation_loss * expectation
        figures["expectation_loss"] = expectation.item()
    return loss, outcome.state.detach(), figures


def _expectation_loss(expected: Tensor, batch: Batch) -> Tensor:
    """Squared error of what was expected to read; mean over the steps."""
    each = ((expected - batch.ordered) ** 2).mean(-1)
    return (each * batch.counts).sum() / batch.counts.sum()


def _action_loss(action: Tensor, batch: Batch) -> Tensor:
    """Squared error, one-sided where the label is saturated, bounded; mean over the steps."""
    labels = batch.labels
    beyond = torch.relu(1.0 - labels * action) ** 2
    error = torch.where(labels.abs() > SATURATED, beyond, (action - labels) ** 2)
    each = error.clamp(max=LARGEST_LOSS).mean(-1)
    return (each * batch.counts).sum() / batch.counts.sum()
