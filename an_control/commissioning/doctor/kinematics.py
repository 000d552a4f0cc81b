"""Estimate a wrong scale from pairs of a position and its rate, without trusting predictions.

A robot that has fallen moves as the forward model does not expect, which biases a scale that is
fitted by likelihood. A position still changes by its rate times the time. So the ratio of both in
the recording, compared with the ratio that the forward model has learned, shows the factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from an_control.commissioning.doctor.hypotheses import CandidateWiring, Recording
from an_control.monitor.forward_model import ForwardModel

MIN_CORRELATION = 0.95
"""Minimum correlation between the changes of a position and its rate."""
STATES = 128
"""Number of states around the typical one at which the forward model's ratio is measured."""
SPREAD = 0.03
"""Standard deviation of these states, in ranges of the channels in the training."""
STEP = 0.02
"""Change of a rate with which the forward model's ratio is measured, in ranges of the channel."""


class RatePair(NamedTuple):
    """Two recorded channels: a position, and the rate at which it changes."""

    position: int
    """Index of the recorded channel with the position."""
    rate: int
    """Index of the recorded channel with the rate."""
    ratio: float
    """Change of the position in a tick for each unit of the rate, in raw numbers."""


def find_position_rate_pairs(recording: Recording, usable: np.ndarray) -> list[RatePair]:
    """Find pairs of recorded channels in which one is the rate of change of the other.

    An example is a joint's position and velocity. Two channels are a pair if the values of one
    correlate with the changes of the other.

    Args:
        recording: The recording, of which only the raw numbers are used.
        usable: (N,) for each of the N channels, False to leave it out.
    """
    raw, follows = recording.raw, ~recording.starts[1:]
    change = (raw[1:] - raw[:-1])[follows]
    middle = (raw[1:] + raw[:-1])[follows] / 2.0
    known = usable & ~np.isnan(change).any(0) & ~np.isnan(middle).any(0)
    channels = np.flatnonzero(known)
    channels = channels[(change[:, channels].std(0) > 0.0) & (middle[:, channels].std(0) > 0.0)]
    if len(channels) < 2 or not len(change):
        return []
    x = middle[:, channels] - middle[:, channels].mean(0)
    y = change[:, channels] - change[:, channels].mean(0)
    products = y.T @ x
    correlations = products / np.sqrt(np.outer((y * y).sum(0), (x * x).sum(0)))
    np.fill_diagonal(correlations, 0.0)
    pairs = []
    for row, position in enumerate(channels):
        column = int(np.abs(correlations[row]).argmax())
        if abs(correlations[row, column]) >= MIN_CORRELATION:
            ratio = float(products[row, column] / (x[:, column] ** 2).sum())
            pairs.append(RatePair(int(position), int(channels[column]), ratio))
    return pairs


def estimate_scale_factor_from_rates(
    forward: ForwardModel,
    recording: Recording,
    candidate: CandidateWiring,
    members: Sequence[int],
) -> float | None:
    """Estimate the factor that corrects the scales of some channels, such as degrees for radians.

    If a position or its rate has a wrong scale, the position changes by too much or too little for
    this rate. The forward model knows the right ratio.

    Args:
        forward: The forward model; if it cannot impute channels, nothing is estimated.
        recording: The recording.
        candidate: The wiring before the correction.
        members: Indices of the channels whose scales are wrong by the same factor.

    Returns:
        The positive factor by which the scales must be multiplied. It is the median over those
        position-rate pairs of which only one channel is in `members`; None if there are none.
    """
    if not forward.imputes:
        return None
    channel_of = {int(slot): channel for channel, slot in enumerate(candidate.slots)}
    inside, factors = set(members), []
    for pair in find_position_rate_pairs(recording, ~forward.binary):
        position, rate = channel_of.get(pair.position), channel_of.get(pair.rate)
        if position is None or rate is None or (position in inside) is (rate in inside):
            continue
        expected = _predict_position_change_per_rate(forward, position, rate)
        seen = pair.ratio * candidate.scale[position] / candidate.scale[rate]
        if expected == 0.0 or seen == 0.0:
            continue
        factor = abs(expected / seen)
        factors.append(factor if position in inside else 1.0 / factor)
    return float(np.median(factors)) if factors else None


def _predict_position_change_per_rate(forward: ForwardModel, position: int, rate: int) -> float:
    """Return by how much a position changes in a tick for each unit of its rate, by the model."""
    rng = np.random.default_rng(0)
    span = forward.max_seen - forward.min_seen
    states = forward.typical + SPREAD * span * rng.standard_normal((STATES, len(span)))
    actions = rng.uniform(-0.5, 0.5, (STATES, forward.actions)).astype(np.float32)
    step = STEP * float(span[rate])
    if step == 0.0:
        return 0.0
    changes = []
    for sign in (1.0, -1.0):
        moved = states.astype(np.float32)
        moved[:, rate] += np.float32(sign * step)
        changes.append(forward.predict_changes(moved, actions).change)
    slope = (changes[0] - changes[1]) / (2.0 * step)
    return float(np.median(slope[:, position] / (1.0 + slope[:, rate] / 2.0)))
