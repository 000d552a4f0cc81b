"""Propose mistakes that a wiring may have, and fit their numbers to the recording.

The proposals are many and rough: each possible mistake, its number with a few values. Only the
likeliest are fitted. In all functions `candidate` is the wiring as corrected so far, without the
correction of a proposed mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from itertools import combinations

import numpy as np

from an_control.commissioning.doctor.case import Case
from an_control.commissioning.doctor.hypotheses import (
    FACTORS,
    MAX_DELAY,
    MOTOR_FACTORS,
    ROUND,
    UNITS,
    CandidateWiring,
    Hypothesis,
    find_groups_of_similar_ids,
    iterate_swaps_of_robot_parts,
)
from an_control.commissioning.doctor.kinematics import estimate_scale_factor_from_rates
from an_control.commissioning.doctor.likelihood import Likelihood
from an_control.commissioning.doctor.motors import compute_median_effect
from an_control.commissioning.doctor.settings import DOCTOR

FACTORS_BOTH = (*FACTORS, *(1.0 / one for one in FACTORS))
MAX_LOG_FACTOR = float(np.log(3e4))
OFFSETS = 24
"""Number of offsets that are tried before one is refined."""
ROUNDS = 3
"""Number of times that two offsets are fitted in turns."""


def list_hypotheses(
    case: Case, candidate: CandidateWiring, judged_motors: Collection[int]
) -> list[Hypothesis]:
    """Return hypotheses of all mistakes that the wiring may have, with rough numbers.

    `judged_motors` are motors whose effects say nothing more.
    """
    return [
        *_list_channel_hypotheses(case, candidate),
        *_list_group_hypotheses(case, candidate),
        *_list_motor_hypotheses(case, candidate, judged_motors),
    ]


def find_motor_groups(actuators: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Return groups of motors that one mistake may affect together, such as all motors of one leg.

    Motors form a group if their names are similar; all motors are a group, too.

    Returns:
        The indices of each group's motors in `actuators`, by the group's name.
    """
    groups = find_groups_of_similar_ids(actuators, None)
    everything = tuple(range(len(actuators)))
    if len(everything) > 1 and everything not in groups.values():
        groups["all motors"] = everything
    return groups


def _list_channel_hypotheses(case: Case, candidate: CandidateWiring) -> list[Hypothesis]:
    """Return hypotheses of one mistake in a single channel, or of two exchanged channels."""
    found, binary = [], case.forward.binary
    usable = [k for k in range(len(candidate.slots)) if not candidate.unusable[k] and case.heard[k]]
    for k in usable:
        found.append(Hypothesis("sign", (k,), candidate.with_scale_factor([k], -1.0)))
        if binary[k]:
            turned = candidate.with_scale_factor([k], -1.0)
            found.append(
                Hypothesis("inverted", (k,), turned.with_offset(k, 1.0 - candidate.offset[k]))
            )
        if case.moving[candidate.slots[k]] < DOCTOR.min_moving and not binary[k]:
            continue  # it changes too seldom for a number to be fitted
        for factor in FACTORS_BOTH if case.can_detect_wrong_scale(candidate, k) else ():
            found.append(Hypothesis("scale", (k,), candidate.with_scale_factor([k], factor)))
        for offset in _list_offsets_to_try(case, candidate, k):
            found.append(Hypothesis("offset", (k,), candidate.with_offset(k, offset)))
        for ticks in range(1, MAX_DELAY + 1):
            found.append(Hypothesis("delay", (k,), candidate.with_delay(k, ticks)))
        found.append(Hypothesis("unusable", (k,), candidate.with_unusable_channel(k)))
    for a, b in combinations(usable, 2):
        found.append(
            Hypothesis("swapped", (a, b), candidate.with_permuted_channels([a, b], [b, a]))
        )
    return found


def _list_group_hypotheses(case: Case, candidate: CandidateWiring) -> list[Hypothesis]:
    """Return hypotheses of a wrong sign or scale of a group of channels, or of exchanged parts.

    The parts are numbered or named parts of the robot, such as legs.
    """
    recording, found = case.recording, []
    groups = find_groups_of_similar_ids(recording.ids, recording.groups)
    for name, members in groups.items():
        usable = [k for k in members if not candidate.unusable[k]]
        if len(usable) < 2:
            continue
        found.append(
            Hypothesis("sign", tuple(usable), candidate.with_scale_factor(usable, -1.0), name)
        )
        usable = [k for k in usable if case.can_detect_wrong_scale(candidate, k)]
        for factor in FACTORS_BOTH if len(usable) > 1 else ():
            scaled = candidate.with_scale_factor(usable, factor)
            found.append(Hypothesis("scale", tuple(usable), scaled, name))
        if len(usable) == 2 and members in (recording.groups or {}).values():
            found += _list_hypotheses_of_two_offsets(case, candidate, usable, name)
    for name, channels, others in iterate_swaps_of_robot_parts(recording.ids, groups):
        moved = candidate.with_permuted_channels(channels, others)
        found.append(Hypothesis("permuted", channels, moved, name))
    return found


def _list_motor_hypotheses(
    case: Case, candidate: CandidateWiring, judged_motors: Collection[int]
) -> list[Hypothesis]:
    """Return hypotheses of a wrong motor or group of motors, or of exchanged motors."""
    found, motors = [], range(len(candidate.motors))
    groups = find_motor_groups(case.recording.actuators)
    kinds = {-1.0: "motor reversed", 0.0: "motor dead"}
    for members, name in [
        *(((m,), "") for m in motors),
        *((members, name) for name, members in groups.items()),
    ]:
        if any(candidate.gain[m] == 0.0 or m in judged_motors for m in members):
            continue
        for factor in MOTOR_FACTORS:
            kind = kinds.get(factor, "motor gain")
            found.append(
                Hypothesis(kind, members, candidate.with_motor_gain(members, factor), name)
            )
    effects = case.likelihood.estimate_motor_effects(
        candidate, case.likelihood.select_evenly_spread_ticks(400)
    )
    usual = compute_median_effect(effects)
    for m in motors:
        factor = float(effects[m]) / usual
        if m in judged_motors:
            continue
        if abs(factor - 1.0) > DOCTOR.min_effect and abs(factor) > 0.1:
            driven = candidate.with_motor_gain([m], factor)
            found.append(Hypothesis("motor gain", (m,), driven, "by its effect"))
    for a, b in combinations(motors, 2):
        crossed = candidate.with_permuted_motors([a, b], [b, a])
        found.append(Hypothesis("motors swapped", (a, b), crossed))
    for name, channels, others in iterate_swaps_of_robot_parts(case.recording.actuators, groups):
        crossed = candidate.with_permuted_motors(channels, others)
        found.append(Hypothesis("motors permuted", channels, crossed, name))
    return found


def _list_hypotheses_of_two_offsets(
    case: Case, candidate: CandidateWiring, channels: Sequence[int], name: str
) -> list[Hypothesis]:
    """Return hypotheses of a wrong offset of both channels of a group, with various offsets.

    An Imu that is mounted at an angle has this mistake in roll and pitch. The correction of one
    alone may explain too little.
    """
    if (case.forward.binary | (case.moving[candidate.slots] < DOCTOR.min_moving))[channels].any():
        return []
    first, second = channels
    return [
        Hypothesis(
            "offset",
            (first, second),
            candidate.with_offset(first, one).with_offset(second, other),
            name,
        )
        for one in _list_offsets_to_try(case, candidate, first)
        for other in _list_offsets_to_try(case, candidate, second)
    ]


def _list_offsets_to_try(case: Case, candidate: CandidateWiring, channel: int) -> list[float]:
    """Return offsets to try for a channel, apart from that which it has in the candidate."""
    raw = case.recording.raw[:, candidate.slots[channel]]
    middle = float(np.nanmedian(raw)) * candidate.scale[channel]
    spread = case.compute_standard_deviation(candidate, channel)
    now = candidate.offset[channel]
    offsets = [
        now + sign * shift
        for shift in (0.1, 0.3, 0.7, 1.5, 3.0, spread, 3 * spread)
        for sign in (-1, 1)
    ]
    if case.forward.imputes:
        offsets.append(float(case.forward.typical[channel]) - middle)
        assert case.likelihood.imputed is not None
        expected = float(np.median(case.likelihood.imputed[:, channel]))
        offsets.append(expected - middle)
    return [one for one in offsets if one != now]


def refine_hypothesis(case: Case, hypothesis: Hypothesis, candidate: CandidateWiring) -> Hypothesis:
    """Return the hypothesis with its scale, offset or motor gain fitted to the recording.

    A hypothesis of a kind without such a number is returned unchanged.
    """
    if hypothesis.kind == "scale":
        return _refine_scale(case, hypothesis, candidate)
    if hypothesis.kind == "offset":
        return _refine_offsets(case, hypothesis, candidate)
    if hypothesis.kind == "motor gain":
        return _refine_motor_gain(case, hypothesis, candidate)
    return hypothesis


def _refine_motor_gain(
    case: Case, hypothesis: Hypothesis, candidate: CandidateWiring
) -> Hypothesis:
    """Return a hypothesis of a wrong motor gain with its factor fitted to the recording.

    A factor near -1 or 0 becomes the hypothesis of a reversed or dead motor, if that fits nearly as
    well as the fitted factor.
    """
    likelihood, ticks, members = case.likelihood, case.ticks, hypothesis.members
    first = float(hypothesis.candidate.gain[members[0]] / candidate.gain[members[0]])
    sign = np.sign(first)

    def make_driven_candidate(log_factor: float) -> CandidateWiring:
        return candidate.with_motor_gain(members, float(sign * np.exp(log_factor)))

    log = _find_cheapest_value(
        likelihood, make_driven_candidate, float(np.log(abs(first))), 0.5, (-3.0, 3.0)
    )
    fitted = make_driven_candidate(log)
    if sign < 0 and abs(log) < DOCTOR.near_reversed:
        kind, named = "motor reversed", candidate.with_motor_gain(members, -1.0)
        left = float(likelihood.compute_excess_nll_per_channel(named, ticks).sum())
        unexpected = case.is_behaviour_unexpected(left)
        share = DOCTOR.poor_unit_share if unexpected else DOCTOR.unit_share
    elif np.exp(log) < DOCTOR.idle_effect:
        kind, named = "motor dead", candidate.with_motor_gain(members, 0.0)
        share = DOCTOR.dead_share
    else:
        return hypothesis._replace(candidate=fitted)
    now, as_named, as_fitted = likelihood.compute_nll_per_candidate(
        [candidate, named, fitted], ticks
    )
    if now - as_named > share * (now - as_fitted):
        return hypothesis._replace(kind=kind, candidate=named)
    return hypothesis._replace(candidate=fitted)


def _refine_scale(case: Case, hypothesis: Hypothesis, candidate: CandidateWiring) -> Hypothesis:
    """Return a hypothesis of a wrong scale with its factor fitted to the recording.

    If the factor of a confused unit, or a round factor, fits nearly as well as the fitted factor,
    it replaces the fitted one.
    """
    likelihood, ticks = case.likelihood, case.ticks
    members = hypothesis.members
    first = hypothesis.candidate.scale[members[0]] / candidate.scale[members[0]]
    sign = np.sign(first)

    def make_scaled_candidate(log_factor: float) -> CandidateWiring:
        return candidate.with_scale_factor(members, float(sign * np.exp(log_factor)))

    bounds = -MAX_LOG_FACTOR, MAX_LOG_FACTOR
    log = _find_cheapest_value(
        likelihood, make_scaled_candidate, float(np.log(abs(first))), 0.5, bounds
    )
    fitted = make_scaled_candidate(log)
    share = DOCTOR.unit_share
    if likelihood.compute_excess_nll_per_channel(fitted, ticks).mean() > DOCTOR.poor_fit:
        share = DOCTOR.poor_unit_share
        factor = estimate_scale_factor_from_rates(case.forward, case.recording, candidate, members)
        if factor is not None:
            log, share = float(np.log(factor)), 0.0
            fitted = make_scaled_candidate(log)
    near = [
        make_scaled_candidate(-np.log(unit))
        for unit in (*UNITS, *ROUND)
        if abs(log + np.log(unit)) < DOCTOR.near_unit
    ]
    now, as_fitted, *as_named = likelihood.compute_nll_per_candidate(
        [candidate, fitted, *near], ticks
    )
    if near and now - min(as_named) > share * (now - as_fitted):
        fitted = near[int(np.argmin(as_named))]
    return hypothesis._replace(candidate=fitted)


def _refine_offsets(case: Case, hypothesis: Hypothesis, candidate: CandidateWiring) -> Hypothesis:
    """Return a hypothesis of wrong offsets with each of its offsets fitted to the recording.

    Two offsets are fitted in turns, because the best value of each depends on the other.
    """
    fitted = hypothesis.candidate
    for k in hypothesis.members * (ROUNDS if len(hypothesis.members) > 1 else 1):
        start, step = _find_first_offset_and_step(case, fitted, k, candidate)
        offset = _find_cheapest_value(case.likelihood, partial(fitted.with_offset, k), start, step)
        for known in {*case.configured.offset, *-case.configured.offset}:
            if abs(offset - known) < DOCTOR.near_offset and known != candidate.offset[k]:
                offset = float(known)
        fitted = fitted.with_offset(k, offset)
    return hypothesis._replace(candidate=fitted)


def _find_first_offset_and_step(
    case: Case, guessed: CandidateWiring, channel: int, candidate: CandidateWiring
) -> tuple[float, float]:
    """Find where to start a local search for the offset with the lowest cost, and its step.

    The cost may have several minima, so that a search from the first guess, the channel's offset in
    `guessed`, is not enough.
    """
    guess, now = float(guessed.offset[channel]), float(candidate.offset[channel])
    span = float(case.compute_range(candidate.slots[channel]) * abs(candidate.scale[channel]))
    grid = now + span * np.linspace(-1.5, 1.5, OFFSETS)
    few = case.likelihood.select_evenly_spread_ticks(max(200, DOCTOR.screened))
    values = [guess, *grid.tolist()]
    costs = case.likelihood.compute_nll_per_candidate(
        [guessed.with_offset(channel, value) for value in values], few
    )
    best = int(costs.argmin())
    if best == 0:
        return guess, 0.5 * abs(guess - now) + 1e-3
    return values[best], span * 3.0 / (OFFSETS - 1)


def _find_cheapest_value(
    likelihood: Likelihood,
    make_candidate: Callable[[float], CandidateWiring],
    start: float,
    step: float,
    bounds: tuple[float, float] | None = None,
) -> float:
    """Find the number for which `make_candidate` returns the wiring with the lowest cost.

    The search is local: it tries numbers around the best one so far, in ever smaller steps.
    """
    few = likelihood.select_evenly_spread_ticks(max(200, DOCTOR.screened))
    for _ in range(5):
        values = start + step * np.array([-1.0, -0.6, -0.3, 0.0, 0.3, 0.6, 1.0])
        if bounds is not None:
            values = np.clip(values, *bounds)
        costs = likelihood.compute_nll_per_candidate(
            [make_candidate(value) for value in values], few
        )
        best = int(costs.argmin())
        start = float(values[best])
        step *= 1.0 if best in (0, len(values) - 1) else 0.35
    return start
