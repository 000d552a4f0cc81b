"""Find the mistakes in a wiring that best explain a recording, by likelihood under a forward model.

The search is greedy: it compares every single mistake with the wiring as it is, corrects the most
likely one, and repeats. At the end it drops corrections that the others made unnecessary. Whatever
the recording cannot decide is listed as such and never guessed.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from an_control.commissioning.doctor.case import Case
from an_control.commissioning.doctor.changes import (
    drop_unlikely_motor_changes,
    drop_unneeded_changes,
)
from an_control.commissioning.doctor.comparison import find_best_hypothesis_and_rivals
from an_control.commissioning.doctor.findings import (
    Diagnosis,
    make_findings,
    make_notes_on_lag_and_excess,
)
from an_control.commissioning.doctor.hypotheses import CandidateWiring, Hypothesis, Recording
from an_control.commissioning.doctor.motors import IdleMotorSearch
from an_control.commissioning.doctor.proposal import find_motor_groups
from an_control.commissioning.doctor.settings import DOCTOR
from an_control.commissioning.doctor.undetectable import find_undetectable_mistakes
from an_control.monitor.forward_model import ForwardModel


def diagnose(
    recording: Recording, forward: ForwardModel, *, list_undetectable: bool = True
) -> Diagnosis:
    """Find mistakes in a robot's wiring, such as swapped or reversed sensors, by a recording.

    The forward model predicts each channel's next reading. A supposed mistake counts as found if
    its correction makes the recorded readings likelier by as many nats as `DOCTOR` demands.

    Args:
        recording: 5 to 20 s of the moving robot, with the channels of the model in its order.
        forward: Forward model of these channels and actuators.
        list_undetectable: Whether to find out, too, which mistakes could not be found in this
            recording. That is a fifth of the whole computing time.

    Returns:
        The diagnosis. It has no findings if nothing is wrong. It has none, too, if the recording is
        too short, which a note says.
    """
    case = Case.from_recording(recording, forward)
    likelihood, ticks = case.likelihood, case.ticks
    if len(ticks) < DOCTOR.min_ticks:
        note = f"{len(ticks)} ticks are too few; record at least {DOCTOR.min_ticks}"
        return Diagnosis((), case.configured, notes=(note,), ticks=len(ticks))
    likelihood.impute_channels(case.stuck)
    candidate = _restore_seemingly_stuck_channels(case)
    likelihood.impute_channels(candidate)
    before = float(likelihood.compute_excess_nll_per_channel(candidate, ticks).sum())
    idle_motors = IdleMotorSearch(case, candidate)
    taken: list[Hypothesis] = []
    alternatives: list[str] = []
    while len(taken) < DOCTOR.max_mistakes:
        found, rivals = find_best_hypothesis_and_rivals(case, idle_motors, candidate, bool(taken))
        if found is None:
            break
        taken.append(found)
        alternatives += [
            f"{one.kind}: {one.name or ', '.join(one.get_names(recording))}" for one in rivals
        ]
        candidate = found.candidate
        likelihood.impute_channels(candidate)
        excess = likelihood.compute_excess_nll_per_channel(candidate, ticks)
        if excess.sum() < 0.0 and excess.max() < DOCTOR.explained:
            break
    candidate = drop_unneeded_changes(case, candidate, taken)
    candidate = drop_unlikely_motor_changes(case, candidate, taken)
    findings = make_findings(case, candidate, taken)
    after = float(likelihood.compute_excess_nll_per_channel(candidate, ticks).sum())
    return Diagnosis(
        tuple(findings),
        candidate,
        find_undetectable_mistakes(case, candidate, bool(taken)) if list_undetectable else (),
        tuple(make_notes_on_lag_and_excess(case, after, bool(findings))),
        likelihood.lag,
        before,
        after,
        len(ticks),
        tuple(alternatives),
    )


def _restore_seemingly_stuck_channels(case: Case) -> CandidateWiring:
    """Make channels usable again that never change although their sensors are not stuck.

    All of them become usable if a dead motor, or a group of dead motors, explains the recording
    better than stuck sensors, or if it explains several such channels well. Otherwise, single
    channels become usable that a wrong sign explains better. The dead motors and wrong signs
    themselves are not corrected here, because the search finds them later.
    """
    stuck, likelihood, ticks = case.stuck, case.likelihood, case.ticks
    if not (stuck.unusable & case.heard).any():
        return stuck
    moving = replace(stuck, unusable=~case.heard)
    singles = [(m,) for m in range(len(stuck.motors))]
    dead = [
        moving.with_motor_gain(members, 0.0)
        for members in [*singles, *find_motor_groups(case.recording.actuators).values()]
    ]
    as_stuck, *as_dead = likelihood.compute_nll_per_candidate([stuck, *dead], ticks)
    if min(as_dead, default=np.inf) < as_stuck:
        return moving
    if np.count_nonzero(stuck.unusable & case.heard) > 1:
        likeliest = dead[int(np.argmin(as_dead))]
        left = float(likelihood.compute_excess_nll_per_channel(likeliest, ticks).sum())
        if not case.is_behaviour_unexpected(left):
            return moving  # one dead motor is likelier than several stuck sensors
    for k in np.flatnonzero(stuck.unusable & case.heard).tolist():
        usable = stuck.unusable.copy()
        usable[k] = False
        turned = replace(stuck, unusable=usable).with_scale_factor([k], -1.0)
        as_stuck, as_turned = likelihood.compute_nll_per_candidate([stuck, turned], ticks)
        prior = (
            Hypothesis("unusable", (k,), stuck).penalty - Hypothesis("sign", (k,), turned).penalty
        )
        if as_turned < as_stuck + prior:
            stuck = replace(stuck, unusable=usable)  # its sign is found later
    return stuck
