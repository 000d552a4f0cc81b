"""Gradient updates of DAgger for scalar channels.

One optimiser and one loss serve all stages. A cross-entropy loss teaches every sensory neuron which
channel it reads. The action is learned through the attention, and also from the readings in the
environment's order, which keeps the head able to drive. Where the teacher's action is saturated,
which is often, the student's action only has to lie beyond it: there the loss is a hinge, since a
squared error of clipped actions has no gradient.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from an_control.learning.dagger.paper_student import PaperStudent
from an_control.learning.dagger.settings import DaggerSettings
from an_control.learning.dagger.streams import (
    DaggerEpisode,
    DaggerStreams,
    StreamBatch,
    StreamSettings,
)
from an_control.learning.dagger.student import Student, StudentState
from an_control.learning.training_disturbances import TrainingDisturbance

SATURATED = 0.999
"""Absolute label from which on an action counts as saturated."""
LARGEST_LOSS = 9.0
"""Bound of one action's squared error."""


def train_round(
    student: Student | PaperStudent,
    optimiser: torch.optim.Optimizer,
    episodes: Sequence[DaggerEpisode],
    settings: DaggerSettings,
    round_number: int,
    rng: np.random.Generator,
    progress: float,
) -> dict[str, float]:
    """Train the student in place for one round.

    At least one update is made, even if the round's time limit is over.

    Args:
        student: The student to train.
        optimiser: Optimiser of the student's parameters.
        episodes: All episodes to learn from, the newest last.
        settings: Numbers of updates, learning rates, and weights of the losses.
        round_number: The round; 0 is the first one.
        rng: Source of all random numbers.
        progress: Share (0..1) of the rounds after the first one that are finished when this round
            starts.

    Returns:
        The mean of each figure, such as "action_loss", over the last 150 updates, by name.
    """
    device = next(student.parameters()).device
    updates = settings.updates if round_number else settings.identify_updates
    newest = _count_episodes_drawn_more_often(episodes, settings) if round_number else len(episodes)
    if round_number == 0 and settings.memory_updates:
        assert isinstance(student, Student)
        pretrain_memory_and_head(student, episodes, settings, rng)
    streams = DaggerStreams(
        episodes,
        settings.batch,
        settings.steps,
        settings.streams,
        newest,
        rng,
        student.sizes.reset_on_jump,
        settings.faults,
    )
    begin, end = settings.compute_start_and_end_learning_rates(round_number, progress)
    started, limit_s = time.process_time(), settings.compute_time_limit_of_updates_s(round_number)
    state: StudentState | None = None
    history = []
    for update in range(updates):
        over = min(1.0, (time.process_time() - started) / limit_s)
        if update and over >= 1.0:
            break
        angle = max(math.pi * update / updates, math.pi * over)
        over = angle / math.pi
        for group in optimiser.param_groups:
            group["lr"] = end + (begin - end) * 0.5 * (1.0 + math.cos(angle))
        batch = streams.make_next_batch().to_device(device)
        perfect_attention_mask = None
        if round_number == 0 and settings.memory_updates:
            perfect_attention_mask = _make_mask_of_rows_with_perfect_attention(
                batch, 0.8 - 1.2 * over
            )
        state = _get_state_at_batch_start(student, state, batch)
        if isinstance(student, PaperStudent):
            so_far = (round_number + over) / (1 + settings.rounds)
            loss, state, figures = student.compute_loss(batch, state, settings.channel_loss, so_far)
        else:
            loss, state, figures = _compute_loss(
                student, batch, state, settings, perfect_attention_mask
            )
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimiser.step()
        history.append(figures)
    last = history[-150:]
    return {name: float(np.mean([figures[name] for figures in last])) for name in last[0]}


def _count_episodes_drawn_more_often(
    episodes: Sequence[DaggerEpisode], settings: DaggerSettings
) -> int:
    """Return how many of the newest episodes are drawn for batches more often than older ones.

    It is the setting `newest`. If the recipe sets `episode_steps`, it is instead the number of
    newest episodes that have `newest * episode_steps` steps together.
    """
    unit = settings.collection.episode_steps
    if not unit:
        return settings.newest
    steps = np.cumsum([len(episode.labels) for episode in reversed(episodes)])
    return 1 + int(np.searchsorted(steps, settings.newest * unit))


def pretrain_memory_and_head(
    student: Student,
    episodes: Sequence[DaggerEpisode],
    settings: DaggerSettings,
    rng: np.random.Generator,
) -> None:
    """Train the head and its memory in place, before the student can identify its channels.

    The memory learns to predict the channels' readings, and the head to imitate the teacher. Both
    get the message of a perfect attention, with the true readings of all channels that are not
    missing. At some steps the message is zero, as after a reshuffle, when no channel is identified.

    Args:
        student: The student to train, whose head has a memory.
        episodes: All episodes to learn from.
        settings: Number of updates, learning rate, and weights of the losses.
        rng: Source of all random numbers.
    """
    rows, updates = 2 * settings.batch, settings.memory_updates
    wiring = StreamSettings({TrainingDisturbance("missing=0.05..0.5"): 0.6}, reshuffled=0.0)
    streams = DaggerStreams(episodes, rows, settings.steps, wiring, len(episodes), rng)
    parts = [student.memory, student.expectation, student.head]
    parameters = [parameter for part in parts for parameter in part.parameters()]
    optimiser = torch.optim.Adam(parameters)
    state = None
    for update in range(updates):
        for group in optimiser.param_groups:
            cosine = 0.5 * (1.0 + math.cos(math.pi * update / updates))
            group["lr"] = settings.identify_rate * (0.1 + 0.9 * cosine)
        batch = streams.make_next_batch().to_device(next(student.parameters()).device)
        message = student.compute_perfect_attention_message(
            batch
        ) * _draw_mask_of_steps_with_message(batch, rng).unsqueeze(-1)
        action, ordered, expected, state = student.run_memory_and_head(
            batch,
            lambda t, _, message=message: message[t],  # type: ignore[misc]
            _get_state_at_batch_start(student, state, batch),
        )
        state = state.detach()
        loss = (
            settings.action_loss * _compute_action_loss(action, batch)
            + settings.ordered_loss * _compute_action_loss(ordered, batch)
            + settings.expectation_loss * _compute_reading_prediction_loss(expected, batch)
        )
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()


def _draw_mask_of_steps_with_message(batch: StreamBatch, rng: np.random.Generator) -> Tensor:
    """Draw a mask (T, B) of the steps at which the memory gets the message instead of zeros.

    About seven of ten rows have steps with zeros: 1 to 15 in every 25, 50 or 100 steps.
    """
    steps, rows = batch.counts.shape
    seen = np.ones((steps, rows), np.float32)
    for row in np.flatnonzero(rng.random(rows) < 0.7):
        every, missing = rng.choice([25, 50, 100]), rng.integers(1, 16)
        seen[(np.arange(steps) + rng.integers(every)) % every < missing, row] = 0.0
    return torch.from_numpy(seen).to(batch.counts.device)


def _make_mask_of_rows_with_perfect_attention(batch: StreamBatch, share: float) -> Tensor:
    """Return a mask (T, B), 1 in the first share of the rows, where the attention is replaced.

    In these rows the memory gets the message that a perfect attention would send, one that
    identifies every channel correctly, instead of the student's own.
    """
    steps, rows = batch.counts.shape
    first = torch.arange(rows, device=batch.counts.device) < rows * share
    return first.float().expand(steps, rows)


def _get_state_at_batch_start(
    student: Student | PaperStudent, previous_state: StudentState | None, batch: StreamBatch
) -> StudentState:
    """Return the state at the start of a batch; it is reset in rows that start a new episode."""
    if previous_state is None:
        previous_state = student.make_initial_state(*batch.values.shape[1:])
    return previous_state.reset_episodes_except((~batch.fresh).float())


def _compute_loss(
    student: Student,
    batch: StreamBatch,
    state: StudentState,
    settings: DaggerSettings,
    perfect_attention_mask: Tensor | None,
) -> tuple[Tensor, StudentState, dict[str, float]]:
    """Compute the loss of a student on a batch, a weighted sum of several losses.

    They measure how badly the student identifies the channels, how much its actions differ from
    those of the teacher and, if it has a memory, how badly it predicts the readings. The memory
    gets a perfect attention's message where `perfect_attention_mask` (T, B) is 1.
    """
    outcome = student(batch, state, perfect_attention_mask)
    weight = batch.present * batch.counts.unsqueeze(-1)
    wrong = nn.functional.nll_loss(
        outcome.attention.flatten(0, 2), batch.channel.flatten(), reduction="none"
    ).view_as(weight)
    seen = weight.sum().clamp(min=1.0)  # 0 if all channels are missing
    channel = (wrong * weight).sum() / seen
    action = _compute_action_loss(outcome.action, batch)
    loss = settings.channel_loss * channel + settings.action_loss * action
    right = ((outcome.attention.argmax(-1) == batch.channel) * weight).sum() / seen
    figures = {
        "channel_loss": channel.item(),
        "identified": right.item(),
        "action_loss": action.item(),
    }
    if outcome.ordered is not None:
        ordered = _compute_action_loss(outcome.ordered, batch)
        loss = loss + settings.ordered_loss * ordered
        figures["ordered_loss"] = ordered.item()
    if outcome.expected is not None:
        expectation = _compute_reading_prediction_loss(outcome.expected, batch)
        loss = loss + settings.expectation_loss * expectation
        figures["expectation_loss"] = expectation.item()
    return loss, outcome.state.detach(), figures


def _compute_reading_prediction_loss(predicted_readings: Tensor, batch: StreamBatch) -> Tensor:
    """Return the mean squared error of predicted readings (T, B, n) within the episodes."""
    each = ((predicted_readings - batch.ordered) ** 2).mean(-1)
    return (each * batch.counts).sum() / batch.counts.sum()


def _compute_action_loss(action: Tensor, batch: StreamBatch) -> Tensor:
    """Return the mean squared error of the actions (T, B, A), a scalar.

    A squared error above `LARGEST_LOSS` (9) counts as 9. If the teacher's action is saturated (at
    -1 or 1), an action beyond it has no error.
    """
    labels = batch.labels
    beyond = torch.relu(1.0 - labels * action) ** 2
    error = torch.where(labels.abs() > SATURATED, beyond, (action - labels) ** 2)
    each = error.clamp(max=LARGEST_LOSS).mean(-1)
    return (each * batch.counts).sum() / batch.counts.sum()
