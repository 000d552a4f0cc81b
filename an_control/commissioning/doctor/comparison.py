"""Compare all mistakes that a wiring may have, and select the one that explains a recording best.

In all functions `candidate` is the wiring as corrected so far, without the correction of the
hypothesis in question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from an_control.commissioning.doctor.evidence import (
    are_gains_consistent,
    compare_costs,
    compute_tick_costs,
    is_acceptable,
    is_mean_gain_significant,
    restores_usual_costs,
)
from an_control.commissioning.doctor.examined_recording import ExaminedRecording
from an_control.commissioning.doctor.hypotheses import ROUND, UNITS, CandidateWiring, Hypothesis
from an_control.commissioning.doctor.motors import (
    IdleMotorSearch,
    agrees_with_motor_effects,
    find_preferred_motor_hypothesis,
    spoils_motor_effects,
)
from an_control.commissioning.doctor.proposal import list_hypotheses, refine_hypothesis
from an_control.commissioning.doctor.settings import DOCTOR, FITTED


def find_best_hypothesis_and_rivals(
    examined: ExaminedRecording,
    idle_motors: IdleMotorSearch,
    candidate: CandidateWiring,
    is_later: bool,
) -> tuple[Hypothesis | None, list[Hypothesis]]:
    """Find the most likely of all hypotheses that explain enough, and its rivals.

    The hypothesis is None if none explains enough; its rivals are about as likely. `is_later` says
    whether another mistake was found before.
    """
    likelihood = examined.likelihood
    hypotheses = list_hypotheses(examined, candidate, idle_motors.judged)
    for screened, kept in DOCTOR.screenings:
        few = likelihood.select_evenly_spread_ticks(screened)
        costs = likelihood.compute_nll_per_candidate(
            [candidate, *(one.candidate for one in hypotheses)], few
        )
        gains = (costs[0] - costs[1:]) * (len(examined.ticks) / len(few))
        gains -= [one.penalty for one in hypotheses]
        ahead = np.argsort(gains)[::-1][: max(kept, DOCTOR.finalists)]
        hypotheses, gains = [hypotheses[number] for number in ahead], gains[ahead]
    finalists = _select_likeliest_hypotheses(hypotheses, gains)
    refined = [refine_hypothesis(examined, one, candidate) for one in finalists]
    now = compute_tick_costs(examined, candidate)
    refined_costs = [compute_tick_costs(examined, one.candidate) for one in refined]
    evidence = [compare_costs(now, then, len(candidate.slots)) for then in refined_costs]
    scores = [
        float(found.gain.sum()) - one.penalty for one, found in zip(refined, evidence, strict=True)
    ]
    order = np.argsort(scores)[::-1]
    restored = [found.restored for found in evidence]
    accepted = [
        number
        for number in map(int, order)
        if is_acceptable(examined, refined[number], evidence[number], is_later)
    ]
    unexpected = examined.is_behaviour_unexpected(float(now.excess_nll.mean()))
    if unexpected:
        accepted = _put_most_restoring_hypothesis_first(accepted, refined, restored)
    driven = [
        number
        for number in accepted
        if refined[number].concerns_motors
        and agrees_with_motor_effects(examined, refined[number], candidate, evidence[number])
    ]
    rival = not np.allclose(candidate.gain, 1.0) or any(
        restores_usual_costs(refined[number], evidence[number]) for number in driven
    )
    agreeing: list[int] = []
    refused = set()
    for number in accepted:
        if agreeing and scores[number] <= DOCTOR.near_gain * scores[agreeing[0]]:
            break
        one = refined[number]
        if number in driven or (
            not one.concerns_motors
            and not (rival and spoils_motor_effects(examined, one.candidate, candidate))
        ):
            agreeing.append(number)
        else:
            refused.add(number)
    if not agreeing:
        return idle_motors.find_motor_and_rivals(candidate, float(now.excess_nll.mean()))
    consistent = [
        are_gains_consistent(found.gain, one.penalty)
        for one, found in zip(refined, evidence, strict=True)
    ]
    half = 0.5 * restored[agreeing[0]]
    sound = [n for n in agreeing if consistent[n] and restored[n] >= half]
    best = (sound or agreeing)[0]
    idle = None
    if unexpected:
        idle = find_preferred_motor_hypothesis(examined, refined, driven, best, candidate)
    if idle is None:
        likelier = _find_hypothesis_of_likelier_kind(refined, accepted, scores, best, candidate)
        if likelier is not None:
            by_sensor = refined[best].kind == "unusable"
            return refined[likelier], [] if by_sensor else [refined[best]]
    else:
        best = idle
    first = refined[best]
    if first.kind == "motor dead":
        for motor in first.members:
            if (crossed := idle_motors.find_exchange(motor, candidate)) is not None:
                return crossed, []
        if len(first.members) == 1:
            return idle_motors.decide_whether_dead_or_reversed(first.members[0], candidate)
    if idle is not None:
        return first, []
    rivals = []
    for other in map(int, order):
        if other in refused or consistent[best] > consistent[other]:
            continue
        if refined[other].has_common_channel_or_motor(refined[best]):
            continue
        difference = refined_costs[other].cost - refined_costs[best].cost
        near = scores[other] > DOCTOR.near_gain * scores[best]
        if near and not is_mean_gain_significant(difference):
            rivals.append(refined[other])
    return refined[best], rivals


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


def _put_most_restoring_hypothesis_first(
    accepted: list[int], hypotheses: Sequence[Hypothesis], restored_nats: Sequence[float]
) -> list[int]:
    """Return the accepted hypotheses with the one that restores most ticks at the front.

    A hypothesis restores a tick if with it the model explains the tick as well as in its
    validation. The order changes only if this hypothesis gains clearly more in restored ticks than
    the most likely one, and if neither is about motors or has a fitted number. `accepted` and the
    result are indices in `hypotheses`, the most likely first.
    """
    known = [
        number
        for number in accepted
        if hypotheses[number].kind not in FITTED and not hypotheses[number].concerns_motors
    ]
    if not known or known[0] != accepted[0]:
        return accepted
    best = max(known, key=lambda number: restored_nats[number])
    if restored_nats[best] - restored_nats[accepted[0]] < DOCTOR.min_restored:
        return accepted
    return [best, *(number for number in accepted if number != best)]


def _find_hypothesis_of_likelier_kind(
    hypotheses: Sequence[Hypothesis],
    accepted: Sequence[int],
    scores: Sequence[float],
    best: int,
    candidate: CandidateWiring,
) -> int | None:
    """Find a hypothesis of a likelier kind that explains the best one's channel about as well.

    A wrong sign, a confused unit or a round factor is likelier than an offset or an unusable
    sensor, and an offset is likelier than any other factor. The readings may not tell these kinds
    apart if they hardly change, or if the robot does something that the model never learned.
    `accepted`, `best` and the result are indices in `hypotheses`; `scores` are the nats that each
    explains, less its penalty.
    """
    first = hypotheses[best]
    if first.kind not in ("scale", "offset", "unusable") or len(first.members) > 1:
        return None
    if first.kind == "scale" and _is_unit_or_round_factor(first, candidate):
        return None
    for number in accepted:
        one = hypotheses[number]
        if one.members != first.members:
            continue
        if first.kind == "scale":
            likelier, share = one.kind == "offset", DOCTOR.near_offset_gain
        else:
            likelier = one.kind == "sign" or (
                one.kind == "scale" and _is_unit_or_round_factor(one, candidate)
            )
            share = DOCTOR.near_named_gain
        if likelier and scores[number] > share * scores[best]:
            return number
    return None


def _is_unit_or_round_factor(hypothesis: Hypothesis, candidate: CandidateWiring) -> bool:
    """Return whether a scale is wrong by the factor of a confused unit, or a round factor."""
    first = hypothesis.members[0]
    factor = candidate.scale[first] / hypothesis.candidate.scale[first]
    return bool(np.isclose(abs(factor), (*UNITS, *ROUND)).any())
