"""List how a corrected wiring differs from the wiring file, and drop changes that are unneeded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from an_control.commissioning.doctor.evidence import (
    are_gains_consistent,
    compare_costs,
    compute_tick_costs,
    is_mean_gain_significant,
)
from an_control.commissioning.doctor.examined_recording import ExaminedRecording
from an_control.commissioning.doctor.hypotheses import CandidateWiring, Hypothesis
from an_control.commissioning.doctor.settings import DOCTOR


class Change(NamedTuple):
    """One difference between a candidate and the wiring file, shared by channels or actuators."""

    what: str
    """One of: slots, line (scale and offset), delay, unusable, motors, gain."""
    members: tuple[int, ...]
    """Indices of channels, or of actuators for motors and gain."""
    parts: bool = False
    """Whether each member may also be reverted alone."""


def list_changes_from_wiring_file(
    examined: ExaminedRecording, candidate: CandidateWiring, accepted: Sequence[Hypothesis]
) -> list[Change]:
    """Return the differences between a candidate and the wiring file, grouped for the report.

    Channels or motors that an accepted hypothesis changed together are reported together.
    """
    nominal, found = examined.configured, []
    groups = [one.members for one in accepted if one.is_group_mistake and not one.concerns_motors]
    moved = np.flatnonzero(candidate.slots != nominal.slots)
    found += [
        Change("slots", cycle)
        for cycle in _group_permuted_members(candidate.slots, moved, accepted)
    ]
    unusable = np.flatnonzero(candidate.unusable & examined.heard)
    found += [Change("unusable", (int(k),)) for k in unusable]
    found += [Change("delay", (int(k),)) for k in np.flatnonzero(candidate.delay)]
    shifted = ~np.isclose(candidate.offset, nominal.offset)
    factors = candidate.scale / nominal.scale
    found += [Change("line", (int(k),)) for k in np.flatnonzero(shifted)]
    scaled = [int(k) for k in np.flatnonzero(~np.isclose(factors, 1.0) & ~shifted)]
    found += [
        Change("line", members, True) for members in _group_by_factor(scaled, factors, groups)
    ]
    groups = [one.members for one in accepted if one.is_group_mistake and one.concerns_motors]
    moved = np.flatnonzero(candidate.motors != nominal.motors)
    found += [
        Change("motors", cycle)
        for cycle in _group_permuted_members(candidate.motors, moved, accepted, True)
    ]
    driven = [int(m) for m in np.flatnonzero(~np.isclose(candidate.gain, 1.0))]
    found += [
        Change("gain", members, True)
        for members in _group_by_factor(driven, candidate.gain, groups)
    ]
    return found


def _group_permuted_members(
    places: np.ndarray, moved: np.ndarray, accepted: Sequence[Hypothesis], are_motors: bool = False
) -> list[tuple[int, ...]]:
    """Group channels or motors that changed places, one group for each exchange.

    Those that an accepted hypothesis permuted together form one group. `places` has for each
    channel or motor the index of the one whose place it has now; `moved` has the indices of those
    that changed places.
    """
    left, found = set(moved.tolist()), []
    for one in accepted:
        if one.kind in ("permuted", "motors permuted") and one.concerns_motors is are_motors:
            members = tuple(m for m in one.members if m in left)
            if members and {int(places[m]) for m in members} == set(members):
                found.append(members)
                left -= set(members)
    while left:
        cycle = [left.pop()]
        while (next_ := int(places[cycle[-1]])) in left:
            left.remove(next_)
            cycle.append(next_)
        found.append(tuple(sorted(cycle)))
    return found


def _group_by_factor(
    members: Sequence[int], factors: np.ndarray, groups: Sequence[tuple[int, ...]]
) -> list[tuple[int, ...]]:
    """Group channels or motors whose scale or gain changed by the same factor.

    Changed members that are in none of the `groups`, or whose factors differ, form groups of one.
    """
    left, found = list(members), []
    for group in groups:
        inside = [m for m in group if m in left]
        if len(inside) > 1 and np.allclose(factors[inside], factors[inside[0]], rtol=0.02):
            found.append(tuple(inside))
            left = [m for m in left if m not in inside]
    return found + [(m,) for m in left]


def drop_unneeded_changes(
    examined: ExaminedRecording, changes: list[Change], candidate: CandidateWiring
) -> CandidateWiring:
    """Return the candidate without changes of channels that the other changes make needless.

    Changes of motors are all kept.
    """
    costs = compute_tick_costs(examined, candidate)
    for one in changes:
        if one.what in ("gain", "motors"):
            continue  # motors are judged by their effects
        members = [one.members, *([(m,) for m in one.members] if one.parts else ())]
        for some in members:
            without = candidate.with_values_from(examined.configured, one.what, some)
            evidence = compare_costs(
                compute_tick_costs(examined, without), costs, len(candidate.slots)
            )
            gain = evidence.gain
            if some == one.members:
                needed = float(gain.sum()) >= DOCTOR.min_gain and (
                    is_mean_gain_significant(gain) or are_gains_consistent(gain, 0.0)
                )
                needed |= evidence.restored >= DOCTOR.min_restored and one.what != "unusable"
            else:  # a part is wrong like the whole, unless the readings contradict that
                needed = float(gain.sum()) >= 0.0
            if not needed:
                candidate = without
                costs = compute_tick_costs(examined, candidate)
    return candidate


def drop_unlikely_motor_changes(
    examined: ExaminedRecording, candidate: CandidateWiring, accepted: Sequence[Hypothesis]
) -> CandidateWiring:
    """Return the candidate without motor changes that other changes have made unlikely.

    A motor's change was accepted because of the motor's measured effect. If it is not the only
    change, and the recording is likelier without it, another mistake caused that effect.
    """
    while True:
        changes = list_changes_from_wiring_file(examined, candidate, accepted)
        motors = [one for one in changes if one.what in ("gain", "motors")]
        if len(changes) < 2 or not motors:
            return candidate
        without = [
            candidate.with_values_from(examined.configured, one.what, one.members) for one in motors
        ]
        cost, *costs = examined.likelihood.compute_nll_per_candidate(
            [candidate, *without], examined.ticks
        )
        best = int(np.argmin(costs))
        if costs[best] > cost - DOCTOR.min_gain:
            return candidate
        candidate = without[best]
