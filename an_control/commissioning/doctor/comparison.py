"""Compare all mistakes that a wiring may have, and select the one that explains a recording best.

In all functions `candidate` is the wiring as corrected so far, without the correction of the
hypothesis in question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from an_control.commissioning.doctor.case import Case
from an_control.commissioning.doctor.evidence import (
    CostEvidence,
    TickCosts,
    are_gains_consistent,
    compare_costs,
    compute_tick_costs,
    is_acceptable,
    is_mean_gain_significant,
    restores_usual_costs,
)
from an_control.commissioning.doctor.hypotheses import ROUND, UNITS, CandidateWiring, Hypothesis
from an_control.commissioning.doctor.motors import (
    IdleMotorSearch,
    agrees_with_motor_effects,
    find_preferred_motor_hypothesis,
    spoils_motor_effects,
)
from an_control.commissioning.doctor.proposal import list_hypotheses, refine_hypothesis
from an_control.commissioning.doctor.settings import DOCTOR, FITTED


@dataclass(frozen=True, eq=False)
class _Finalist:
    """A hypothesis whose number is fitted, with the evidence for it."""

    hypothesis: Hypothesis
    cost: np.ndarray
    """(K,) cost of each tick with its correction."""
    evidence: CostEvidence

    @property
    def score(self) -> float:
        """Return the nats that the hypothesis explains, less its penalty."""
        return float(self.evidence.gain.sum()) - self.hypothesis.penalty

    @property
    def is_consistent(self) -> bool:
        """Return whether hardly any block of ticks speaks against the hypothesis."""
        return are_gains_consistent(self.evidence.gain, self.hypothesis.penalty)


def find_best_hypothesis_and_rivals(
    case: Case, idle_motors: IdleMotorSearch, candidate: CandidateWiring, is_later: bool
) -> tuple[Hypothesis | None, list[Hypothesis]]:
    """Find the most likely of all hypotheses that explain enough, and its rivals.

    The hypothesis is None if none explains enough; its rivals are about as likely. `is_later` says
    whether another mistake was found before.
    """
    before = compute_tick_costs(case, candidate)
    is_unexpected = case.is_behaviour_unexpected(before.mean_excess)
    hypotheses = list_hypotheses(case, candidate, idle_motors.judged)
    finalists = _make_finalists(case, hypotheses, candidate, before)
    accepted = [
        one for one in finalists if is_acceptable(case, one.hypothesis, one.evidence, is_later)
    ]
    if is_unexpected:
        accepted = _put_most_restoring_finalist_first(accepted)
    motors = [
        one
        for one in accepted
        if one.hypothesis.concerns_motors
        and agrees_with_motor_effects(case, one.hypothesis, candidate, one.evidence)
    ]
    agreeing, refused = _separate_by_motor_effects(case, accepted, motors, candidate)
    if not agreeing:
        return idle_motors.find_motor_and_rivals(candidate, before.mean_excess)
    half = 0.5 * agreeing[0].evidence.restored
    sound = [one for one in agreeing if one.is_consistent and one.evidence.restored >= half]
    best = (sound or agreeing)[0]
    first, preferred = best.hypothesis, None
    if is_unexpected:
        preferred = find_preferred_motor_hypothesis(
            case, [one.hypothesis for one in motors], first, candidate
        )
    if preferred is None:
        likelier = _find_hypothesis_of_likelier_kind(accepted, best, candidate)
        if likelier is not None:
            return likelier, [] if first.kind == "unusable" else [first]
    else:
        first = preferred
    if first.kind == "motor dead":
        for motor in first.members:
            if (crossed := idle_motors.find_exchange(motor, candidate)) is not None:
                return crossed, []
        if len(first.members) == 1:
            return idle_motors.decide_whether_dead_or_reversed(first.members[0], candidate)
    if preferred is not None:
        return preferred, []
    return first, _list_rivals(best, [one for one in finalists if one not in refused])


def _make_finalists(
    case: Case, hypotheses: list[Hypothesis], candidate: CandidateWiring, before: TickCosts
) -> list[_Finalist]:
    """Select and fit the likeliest hypotheses, and return them with their evidence, best first.

    `before` are the costs without any correction.
    """
    likelihood = case.likelihood
    for screened, kept in DOCTOR.screenings:
        few = likelihood.select_evenly_spread_ticks(screened)
        costs = likelihood.compute_nll_per_candidate(
            [candidate, *(one.candidate for one in hypotheses)], few
        )
        gains = (costs[0] - costs[1:]) * (len(case.ticks) / len(few))
        gains -= [one.penalty for one in hypotheses]
        ahead = np.argsort(gains)[::-1][: max(kept, DOCTOR.finalists)]
        hypotheses, gains = [hypotheses[number] for number in ahead], gains[ahead]
    finalists = []
    for one in _select_likeliest_hypotheses(hypotheses, gains):
        fitted = refine_hypothesis(case, one, candidate)
        after = compute_tick_costs(case, fitted.candidate)
        finalists.append(_Finalist(fitted, after.cost, compare_costs(before, after)))
    return [finalists[number] for number in np.argsort([one.score for one in finalists])[::-1]]


def _select_likeliest_hypotheses(
    hypotheses: Sequence[Hypothesis], gains: np.ndarray
) -> list[Hypothesis]:
    """Return the likeliest hypotheses, the best first, without repetitions.

    Of several hypotheses with the same kind, members and group name, only the best is returned. Of
    each kind at most `DoctorSettings.finalists_of_kind` are returned, so that one kind does not
    crowd out another whose number, such as an offset, is not fitted yet: such hypotheses explain
    more after the fit. The `gains` are the nats that each explains, less its penalty.
    """
    chosen: dict[tuple[str, tuple[int, ...], str], Hypothesis] = {}
    kinds: Counter[str] = Counter()
    for number in np.argsort(gains)[::-1]:
        one = hypotheses[number]
        key = one.kind, one.members, one.name
        if key in chosen or kinds[one.kind] >= DOCTOR.finalists_of_kind:
            continue
        chosen[key] = one
        kinds[one.kind] += 1
        if len(chosen) == DOCTOR.finalists:
            break
    return list(chosen.values())


def _put_most_restoring_finalist_first(accepted: list[_Finalist]) -> list[_Finalist]:
    """Return the accepted finalists, the best first, with that which restores most at the front.

    A hypothesis restores a tick if with it the model explains the tick as well as in its
    validation. The order changes only if this hypothesis gains clearly more in restored ticks than
    the most likely one, and if neither is about motors or has a fitted number.
    """
    known = [
        one
        for one in accepted
        if one.hypothesis.kind not in FITTED and not one.hypothesis.concerns_motors
    ]
    if not known or known[0] is not accepted[0]:
        return accepted
    best = max(known, key=lambda one: one.evidence.restored)
    if best.evidence.restored - accepted[0].evidence.restored < DOCTOR.min_restored:
        return accepted
    return [best, *(one for one in accepted if one is not best)]


def _separate_by_motor_effects(
    case: Case,
    accepted: Sequence[_Finalist],
    motors: Sequence[_Finalist],
    candidate: CandidateWiring,
) -> tuple[list[_Finalist], list[_Finalist]]:
    """Return which of the best accepted finalists agree with the motors' effects, and which do not.

    `motors` are the agreeing ones about motors. If one of them may explain the recording, those
    about channels must not spoil the effects.
    """
    rival = not np.allclose(candidate.gain, 1.0) or any(
        restores_usual_costs(one.hypothesis, one.evidence) for one in motors
    )
    agreeing: list[_Finalist] = []
    refused: list[_Finalist] = []
    for one in accepted:
        if agreeing and one.score <= DOCTOR.near_gain * agreeing[0].score:
            break
        if one.hypothesis.concerns_motors:
            agrees = one in motors
        else:
            agrees = not rival or not spoils_motor_effects(
                case, one.hypothesis.candidate, candidate
            )
        (agreeing if agrees else refused).append(one)
    return agreeing, refused


def _find_hypothesis_of_likelier_kind(
    accepted: Sequence[_Finalist], best: _Finalist, candidate: CandidateWiring
) -> Hypothesis | None:
    """Find a hypothesis of a likelier kind that explains the best one's channel about as well.

    A wrong sign, a confused unit or a round factor is likelier than an offset or an unusable
    sensor, and an offset is likelier than any other factor. The readings may not tell these kinds
    apart if they hardly change, or if the robot does something that the model never learned.
    """
    first = best.hypothesis
    if first.kind not in ("scale", "offset", "unusable") or len(first.members) > 1:
        return None
    if first.kind == "scale" and _is_unit_or_round_factor(first, candidate):
        return None
    for finalist in accepted:
        one = finalist.hypothesis
        if one.members != first.members:
            continue
        if first.kind == "scale":
            likelier, share = one.kind == "offset", DOCTOR.near_offset_gain
        else:
            likelier = one.kind == "sign" or (
                one.kind == "scale" and _is_unit_or_round_factor(one, candidate)
            )
            share = DOCTOR.near_named_gain
        if likelier and finalist.score > share * best.score:
            return one
    return None


def _is_unit_or_round_factor(hypothesis: Hypothesis, candidate: CandidateWiring) -> bool:
    """Return whether a scale is wrong by the factor of a confused unit, or a round factor."""
    first = hypothesis.members[0]
    factor = candidate.scale[first] / hypothesis.candidate.scale[first]
    return bool(np.isclose(abs(factor), (*UNITS, *ROUND)).any())


def _list_rivals(best: _Finalist, finalists: Sequence[_Finalist]) -> list[Hypothesis]:
    """Return hypotheses about other channels or motors that are about as likely as the best one."""
    return [
        one.hypothesis
        for one in finalists
        if one.is_consistent >= best.is_consistent
        and not one.hypothesis.has_common_channel_or_motor(best.hypothesis)
        and one.score > DOCTOR.near_gain * best.score
        and not is_mean_gain_significant(one.cost - best.cost)
    ]
