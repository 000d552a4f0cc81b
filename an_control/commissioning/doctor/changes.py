"""List how a corrected wiring differs from the wiring file, and drop changes that are unneeded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from an_control.commissioning.doctor.case import Case
from an_control.commissioning.doctor.evidence import (
    are_gains_consistent,
    compare_costs,
    compute_tick_costs,
    is_mean_gain_significant,
)
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

    @property
    def concerns_motors(self) -> bool:
        """Return whether motors are changed, not sensor channels."""
        return self.what in ("motors", "gain")


def list_changes_from_wiring_file(
    case: Case, candidate: CandidateWiring, accepted: Sequence[Hypothesis]
) -> list[Change]:
    """Return the differences between a candidate and the wiring file, grouped for the report.

    Channels or motors that an accepted hypothesis changed together are reported together.
    """
    by_sensor = [one for one in accepted if not one.concerns_motors]
    by_motor = [one for one in accepted if one.concerns_motors]
    factors = candidate.scale / case.configured.scale
    shifted = ~np.isclose(candidate.offset, case.configured.offset)
    scaled = ~np.isclose(factors, 1.0) & ~shifted
    driven = ~np.isclose(candidate.gain, 1.0)
    return [
        *(Change("slots", some) for some in _group_permuted_members(candidate.slots, by_sensor)),
        *(
            Change(what, (k,))
            for what, changed in (
                ("unusable", candidate.unusable & case.heard),
                ("delay", candidate.delay),
                ("line", shifted),
            )
            for k in np.flatnonzero(changed).tolist()
        ),
        *(Change("line", some, True) for some in _group_by_factor(scaled, factors, by_sensor)),
        *(Change("motors", some) for some in _group_permuted_members(candidate.motors, by_motor)),
        *(
            Change("gain", some, True)
            for some in _group_by_factor(driven, candidate.gain, by_motor)
        ),
    ]


def _group_permuted_members(
    places: np.ndarray, accepted: Sequence[Hypothesis]
) -> list[tuple[int, ...]]:
    """Group channels or motors that changed places, one group for each exchange.

    Those that an accepted hypothesis permuted together form one group. `places` has for each
    channel or motor the index of the one whose place it has now.
    """
    left, found = set(np.flatnonzero(places != np.arange(len(places))).tolist()), []
    for one in accepted:
        members = tuple(m for m in one.members if m in left)
        are_closed = {int(places[m]) for m in members} == set(members)
        if one.kind.endswith("permuted") and members and are_closed:
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
    changed: np.ndarray, factors: np.ndarray, accepted: Sequence[Hypothesis]
) -> list[tuple[int, ...]]:
    """Group channels or motors whose scale or gain changed by the same factor.

    Those that an accepted hypothesis changed together form one group, unless their factors differ;
    all others form groups of one.
    """
    left, found = np.flatnonzero(changed).tolist(), []
    for one in accepted:
        inside = [m for m in one.members if m in left]
        if not one.is_group_mistake or len(inside) < 2:
            continue
        if np.allclose(factors[inside], factors[inside[0]], rtol=0.02):
            found.append(tuple(inside))
            left = [m for m in left if m not in inside]
    return found + [(m,) for m in left]


def drop_unneeded_changes(
    case: Case, candidate: CandidateWiring, accepted: Sequence[Hypothesis]
) -> CandidateWiring:
    """Return the candidate without changes of channels that the other changes make needless.

    Changes of motors are all kept, because motors are judged by their effects.
    """
    costs = compute_tick_costs(case, candidate)
    for one in list_changes_from_wiring_file(case, candidate, accepted):
        if one.concerns_motors:
            continue
        for some in [one.members, *([(m,) for m in one.members] if one.parts else ())]:
            without = candidate.with_values_from(case.configured, one.what, some)
            costs_without = compute_tick_costs(case, without)
            evidence = compare_costs(costs_without, costs)
            total = float(evidence.gain.sum())
            if some == one.members:
                needed = total >= DOCTOR.min_gain and (
                    is_mean_gain_significant(evidence.gain)
                    or are_gains_consistent(evidence.gain, 0.0)
                )
                needed |= evidence.restored >= DOCTOR.min_restored and one.what != "unusable"
            else:  # a part is wrong like the whole, unless the readings contradict that
                needed = total >= 0.0
            if not needed:
                candidate, costs = without, costs_without
    return candidate


def drop_unlikely_motor_changes(
    case: Case, candidate: CandidateWiring, accepted: Sequence[Hypothesis]
) -> CandidateWiring:
    """Return the candidate without motor changes that other changes have made unlikely.

    A motor's change was accepted because of the motor's measured effect. If it is not the only
    change, and the recording is likelier without it, another mistake caused that effect.
    """
    while True:
        changes = list_changes_from_wiring_file(case, candidate, accepted)
        without = [
            candidate.with_values_from(case.configured, one.what, one.members)
            for one in changes
            if one.concerns_motors
        ]
        if len(changes) < 2 or not without:
            return candidate
        cost, *costs = case.likelihood.compute_nll_per_candidate([candidate, *without], case.ticks)
        best = int(np.argmin(costs))
        if costs[best] > cost - DOCTOR.min_gain:
            return candidate
        candidate = without[best]
