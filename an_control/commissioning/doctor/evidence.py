"""Judge whether the recorded readings speak for a supposed mistake in a wiring.

The evidence is how the costs of ticks change with the correction of a hypothesis. Gains (K,) are
the nats by which each of K ticks costs less with it. The mean excess is the mean of the nats by
which a tick costs more than in the model's validation. In all functions `is_later` says whether
another mistake was found before.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from an_control.commissioning.doctor.case import Case
from an_control.commissioning.doctor.hypotheses import CandidateWiring, Hypothesis
from an_control.commissioning.doctor.settings import DOCTOR, FITTED

MIN_BLOCK, FEWEST_BLOCKS = 4, 10
"""Minimum number of ticks in a block, and number of blocks in a short recording."""
NUMBERS = ("offset", "scale", "delay")
"""Kinds of mistakes of a channel that have a number."""


class TickCosts(NamedTuple):
    """Costs of K ticks under one candidate wiring, in nats."""

    cost: np.ndarray
    """(K,) cost of each tick, summed over all channels."""
    mean_excess: float
    """Mean excess of the ticks, summed over the usable channels."""
    limited_excess: np.ndarray
    """Mean excess of each group of `DoctorSettings.restored_ticks` neighbouring ticks, limited to
    the excess up to which they count as restored."""


class CostEvidence(NamedTuple):
    """Numbers that say how much better a corrected mistake explains the recorded readings."""

    gain: np.ndarray
    """(K,) nats by which each tick costs less with the correction."""
    excess: float
    """Mean nats by which a tick costs more than in the model's validation, without the
    correction."""
    left: float
    """Mean nats by which a tick costs more than in the model's validation, with the correction."""
    restored: float
    """Nats that the correction gains in ticks that the model then explains as in its validation;
    negative if it spoils such ticks."""


def compute_tick_costs(case: Case, candidate: CandidateWiring) -> TickCosts:
    """Return the costs of the compared ticks under a candidate wiring."""
    costs = case.likelihood.compute_nll_per_reading([candidate], case.ticks)[0]
    excess = case.likelihood.subtract_validation_nll(costs, candidate).sum(1)
    length = DOCTOR.restored_ticks
    means = excess[: len(excess) // length * length].reshape(-1, length).mean(1)
    level = DOCTOR.restored_excess * costs.shape[1]
    return TickCosts(costs.sum(1), float(excess.mean()), np.minimum(means, level))


def compare_costs(before: TickCosts, after: TickCosts) -> CostEvidence:
    """Return how the costs of ticks change from one candidate wiring to another."""
    restored = float((before.limited_excess - after.limited_excess).sum()) * DOCTOR.restored_ticks
    return CostEvidence(before.cost - after.cost, before.mean_excess, after.mean_excess, restored)


def is_acceptable(
    case: Case, hypothesis: Hypothesis, evidence: CostEvidence, is_later: bool
) -> bool:
    """Return whether a hypothesis is acceptable: it must explain enough and spoil no ticks."""
    if _is_too_close_to_wiring_file(case, hypothesis):
        return False
    explained, by_sensor = float(evidence.gain.mean()), not hypothesis.concerns_motors
    if is_later and not _explains_enough_after_other_mistake(case, hypothesis, evidence):
        return False
    least = DOCTOR.min_restored
    if hypothesis.kind != "unusable" and by_sensor and evidence.restored < -least:
        return False
    if _is_significant(case, hypothesis, evidence, is_later):
        return True
    unexpected = case.is_behaviour_unexpected(evidence.excess)
    if unexpected and by_sensor and hypothesis.kind not in FITTED:
        if explained < DOCTOR.min_restored_share * evidence.excess:
            least = DOCTOR.certain_restored
        return evidence.restored >= least + hypothesis.penalty
    return restores_usual_costs(hypothesis, evidence)


def _is_too_close_to_wiring_file(case: Case, hypothesis: Hypothesis) -> bool:
    """Return whether the corrected number is so near the wiring file's that the file is right.

    The number is a scale, an offset or a motor's gain. The result is False for a hypothesis of
    another kind, which has no such number.
    """
    first, wrong = hypothesis.members[0], hypothesis.candidate
    if hypothesis.kind == "offset":
        return any(
            abs(wrong.offset[k] - case.configured.offset[k])
            < DOCTOR.least_offset * case.compute_standard_deviation(wrong, k)
            for k in hypothesis.members
        )
    if hypothesis.kind == "scale":
        factor = float(wrong.scale[first] / case.configured.scale[first])
        return bool(abs(np.log(abs(factor))) < np.log(DOCTOR.least_factor)) and factor > 0
    if hypothesis.kind == "motor gain":
        gain = float(wrong.gain[first])
        return gain > 0 and bool(abs(np.log(gain)) < np.log(DOCTOR.least_gain))
    return False


def _explains_enough_after_other_mistake(
    case: Case, hypothesis: Hypothesis, evidence: CostEvidence
) -> bool:
    """Return whether a mistake explains enough if another mistake was found before.

    A channel's mistake must explain more than the first one, because that mistake brings the robot
    into states that the model does not know. There even a wrong hypothesis explains a little, such
    as that of two exchanged ranges of a scanner. If the model explains the robot well, still more
    is required, above all if a motor is wrong.
    """
    explained = float(evidence.gain.mean())
    if hypothesis.concerns_motors:
        least = DOCTOR.min_later_gain_share * evidence.excess
        return hypothesis.kind != "motor gain" or explained >= least
    if explained < DOCTOR.min_later_share * evidence.excess:
        return False
    if case.is_behaviour_unexpected(evidence.excess) or explained >= DOCTOR.plain:
        return True
    corrected, configured = hypothesis.candidate, case.configured
    return (
        np.allclose(corrected.gain, 1.0)
        and np.array_equal(corrected.motors, configured.motors)
        and explained >= DOCTOR.min_fitted_gain
        and are_gains_consistent(evidence.gain, hypothesis.penalty)
    )


def _is_significant(
    case: Case, hypothesis: Hypothesis, evidence: CostEvidence, is_later: bool
) -> bool:
    """Return whether a hypothesis explains enough nats and a large enough share of the excess.

    Its gains must also be significantly above 0, or consistent over the blocks of ticks.
    """
    gains, mean_excess = evidence.gain, max(0.0, evidence.excess)
    total, mean = float(gains.sum()), float(gains.mean())
    if total - hypothesis.penalty < DOCTOR.min_gain or mean < DOCTOR.min_tick_gain:
        return False
    share = DOCTOR.min_motor_share if hypothesis.concerns_motors else DOCTOR.min_share
    weak = hypothesis.kind in FITTED or (is_later and not hypothesis.concerns_motors)
    if hypothesis.kind == "delay" and mean_excess <= 0.0 and not is_later:
        return mean >= DOCTOR.min_delay_gain and are_gains_consistent(gains, hypothesis.penalty)
    if weak and mean < DOCTOR.min_fitted_gain:
        return False
    left = mean_excess - mean
    poor = left > DOCTOR.poor_fit * len(case.recording.ids)
    if hypothesis.kind in NUMBERS and is_later and poor:
        return False  # almost any number explains a little of what the model does not know
    if hypothesis.kind in FITTED:
        share = DOCTOR.min_later_share if is_later else DOCTOR.min_fitted_share
        if hypothesis.kind == "unusable" and case.looks_like_noise(
            hypothesis.candidate.slots[hypothesis.members[0]]
        ):
            share = DOCTOR.min_share
        whole = left <= 0.0 < mean_excess  # nothing is left to explain
        sigma = DOCTOR.min_sigma if whole else DOCTOR.fitted_sigma
        return mean >= share * mean_excess and is_mean_gain_significant(gains, sigma)
    if not hypothesis.concerns_motors and is_mean_gain_significant(gains, DOCTOR.certain_sigma):
        share = DOCTOR.min_certain_share
    return mean >= share * mean_excess and is_mean_gain_significant(gains)


def restores_usual_costs(hypothesis: Hypothesis, evidence: CostEvidence) -> bool:
    """Return whether a hypothesis brings many ticks to their usual cost and spoils few others.

    The usual cost is that in the model's validation.
    """
    if evidence.restored < DOCTOR.min_restored + hypothesis.penalty:
        return False
    explained = evidence.excess - evidence.left
    if hypothesis.kind in FITTED and (
        explained < DOCTOR.min_fitted_share * evidence.excess
        or evidence.gain.mean() < DOCTOR.min_fitted_gain
    ):
        return False
    return are_gains_consistent(evidence.gain, hypothesis.penalty)


def are_gains_consistent(gains: np.ndarray, penalty: float) -> bool:
    """Return whether several blocks of ticks speak for a hypothesis and hardly any against it.

    This also accepts uneven gains. If the robot seldom turns, for example, a mistake shows in few
    blocks of ticks, so that the standard error of the gains is large. But with a right hypothesis
    the remaining blocks lose nothing.
    """
    blocks = _compute_block_means(gains)
    length = len(gains) // len(blocks)
    lost = -np.minimum(blocks, 0.0).sum()
    rest = float(blocks.sum() - blocks.max()) * length - penalty
    share = DOCTOR.max_lost_share
    return rest >= DOCTOR.min_gain and lost <= share * np.maximum(blocks, 0.0).sum()


def is_mean_gain_significant(gains: np.ndarray, sigma: float | None = None) -> bool:
    """Return whether the mean gain is significantly above 0, by its standard error.

    The error is estimated from the means of blocks of ticks. The fewer blocks there are, the more
    standard errors are required, because the estimate is then uncertain. By default `sigma`, the
    number for many blocks, is `DoctorSettings.min_sigma`.
    """
    blocks = _compute_block_means(gains)
    count = len(blocks)
    error = float(blocks.std(ddof=1)) / np.sqrt(count)
    least = (sigma or DOCTOR.min_sigma) * (1.0 + 4.0 / count)
    return float(blocks.mean()) > least * error


def _compute_block_means(gains: np.ndarray) -> np.ndarray:
    """Return the mean gain of each block of successive ticks.

    The means of different blocks are hardly correlated, unlike the gains of neighbouring ticks.
    """
    block = max(MIN_BLOCK, min(DOCTOR.block, len(gains) // FEWEST_BLOCKS))
    count = len(gains) // block
    means: np.ndarray = gains[: count * block].reshape(count, block).mean(1)
    return means
