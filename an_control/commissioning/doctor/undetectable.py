"""Find the mistakes that a recording could not show, because the robot moved too little."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from an_control.commissioning.doctor.case import Case
from an_control.commissioning.doctor.evidence import (
    compare_costs,
    compute_tick_costs,
    is_acceptable,
)
from an_control.commissioning.doctor.findings import Unseen
from an_control.commissioning.doctor.hypotheses import CandidateWiring, Hypothesis
from an_control.commissioning.doctor.settings import DOCTOR

OFFSET = 1.5
"""Offset that is made on purpose to see whether it would show, in standard deviations."""
STILL_HINT = "it did not change: move the robot so that it does"


def find_undetectable_mistakes(
    case: Case, candidate: CandidateWiring, is_later: bool
) -> tuple[Unseen, ...]:
    """Find the mistakes that could not be found, because the robot moved too little.

    Each possible mistake is added to the corrected wiring on purpose. It is undetectable if the
    search would not accept its correction. Channels that were never read, or that never changed,
    are listed too. `is_later` says whether any mistake was found.
    """
    never = tuple(id_ for k, id_ in enumerate(case.recording.ids) if not case.heard[k])
    found = [Unseen("sign", (id_,), "it was never read") for id_ in never]
    still = case.heard & (case.moving == 0.0) & ~candidate.unusable
    found += [
        Unseen("stuck", (id_,), STILL_HINT)
        for id_, is_still in zip(case.recording.ids, still, strict=True)
        if is_still
    ]
    tests = _list_deliberate_mistakes_with_hints(case, candidate)
    few = case.likelihood.select_evenly_spread_ticks(DOCTOR.screened)
    costs = case.likelihood.compute_nll_per_candidate(
        [candidate, *(one[0].candidate for one in tests)], few
    )
    plain = (costs[1:] - costs[0]) / len(few) > DOCTOR.plain
    right = compute_tick_costs(case, candidate)
    for (one, hint), is_plain in zip(tests, plain, strict=True):
        if is_plain:
            continue
        wrong = compute_tick_costs(case, one.candidate)
        if not is_acceptable(case, one, compare_costs(wrong, right), is_later):
            found.append(Unseen(one.kind, one.get_names(case.recording), hint))
    return tuple(dict.fromkeys(found))


def _list_deliberate_mistakes_with_hints(
    case: Case, candidate: CandidateWiring
) -> list[tuple[Hypothesis, str]]:
    """Return mistakes to add to a wiring on purpose, to see whether they would be found.

    Each comes with a hint that tells the user how to move the robot so that it would be found.
    """
    tests = []
    usable = np.flatnonzero(case.heard & ~candidate.unusable).tolist()
    for k in usable:
        shift = OFFSET * case.compute_standard_deviation(candidate, k)
        hint = "move the robot further and faster in it"
        if case.moving[candidate.slots[k]] == 0.0:
            hint = STILL_HINT
        changed = [
            ("sign", candidate.with_scale_factor([k], -1.0)),
            ("scale", candidate.with_scale_factor([k], 0.5)),
            ("scale", candidate.with_scale_factor([k], 2.0)),
            ("offset", candidate.with_offset(k, float(candidate.offset[k]) + shift)),
            ("offset", candidate.with_offset(k, float(candidate.offset[k]) - shift)),
            ("delay", candidate.with_delay(k, 1)),
        ]
        tests += [(Hypothesis(kind, (k,), one), hint) for kind, one in changed]
    for a, b in combinations(usable, 2):
        crossed = candidate.with_permuted_channels([a, b], [b, a])
        tests.append((Hypothesis("swapped", (a, b), crossed), "move the robot further in both"))
    driven = [m for m in range(len(candidate.gain)) if candidate.gain[m]]
    hint = "drive the robot so that it is used more"
    for m in driven:
        for kind, gain in (("motor reversed", -1.0), ("motor dead", 0.0), ("motor gain", 0.4)):
            tests.append((Hypothesis(kind, (m,), candidate.with_motor_gain([m], gain)), hint))
    for a, b in combinations(driven, 2):
        crossed = candidate.with_permuted_motors([a, b], [b, a])
        tests.append((Hypothesis("motors swapped", (a, b), crossed), hint))
    return tests
