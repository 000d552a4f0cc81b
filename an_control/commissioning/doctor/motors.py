"""Judge supposed mistakes of motors by the measured effects of the motors.

The effect of a motor is the change of the readings that it causes, divided by the change that the
forward model predicts (`Likelihood.estimate_motor_effects`). In all functions `candidate` is the
wiring as corrected so far, without the correction of the hypothesis in question.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from an_control.commissioning.doctor.case import Case
from an_control.commissioning.doctor.evidence import CostEvidence, restores_usual_costs
from an_control.commissioning.doctor.hypotheses import CandidateWiring, Hypothesis
from an_control.commissioning.doctor.settings import DOCTOR


def agrees_with_motor_effects(
    case: Case, hypothesis: Hypothesis, candidate: CandidateWiring, evidence: CostEvidence
) -> bool:
    """Return whether a hypothesis about motors agrees with their measured effects.

    Without the correction, the effects must differ from those that the model expects; with it, they
    must be much nearer to them. A dead motor must have hardly any effect. A wrong motor gain may
    agree although the effects are as expected, if it restores the usual costs: where commands are
    at their limit, a motor that is too strong has nearly the expected effect.
    """
    members = list(hypothesis.members)
    if evidence.left <= 0.0 and case.is_behaviour_unexpected(evidence.excess):
        return True  # nothing is left to explain
    before = case.likelihood.estimate_motor_effects(candidate, case.ticks)
    usual = compute_median_effect(np.delete(before, members))
    members = [m for m in members if not np.isnan(before[m])]
    if not members:
        return True  # no sensor shows their effects
    before = before[members] / usual
    usual_before = np.abs(before - 1.0).max() < DOCTOR.min_effect
    if usual_before and not (
        hypothesis.kind == "motor gain" and restores_usual_costs(hypothesis, evidence)
    ):
        return False
    if hypothesis.kind == "motor dead":
        return bool(np.abs(before).max() < DOCTOR.dead_effect)
    after = (
        case.likelihood.estimate_motor_effects(hypothesis.candidate, case.ticks)[members] / usual
    )
    if usual_before:
        return bool(np.abs(after - 1.0).max() < DOCTOR.min_effect)
    return bool(np.abs(after - 1.0).sum() < 0.6 * np.abs(before - 1.0).sum())


def spoils_motor_effects(
    case: Case, corrected: CandidateWiring, candidate: CandidateWiring
) -> bool:
    """Return whether a channel's correction makes the motors' effects less like the expected.

    Such a correction is wrong: it only makes an unusual posture look like a known one. The search
    refuses it if a motor's mistake may explain the recording.
    """
    unexpected = []
    for one in (candidate, corrected):
        effects = case.likelihood.estimate_motor_effects(one, case.ticks)
        effects = effects[~np.isnan(effects)] / compute_median_effect(effects)
        unexpected.append(float(np.abs(effects - 1.0).sum()) / max(len(effects), 1))
    return unexpected[1] > unexpected[0] + DOCTOR.max_effect_change


def find_preferred_motor_hypothesis(
    case: Case, motor_hypotheses: Sequence[Hypothesis], best: Hypothesis, candidate: CandidateWiring
) -> Hypothesis | None:
    """Find a motor hypothesis that is preferred to the best one, which is about channels.

    A robot may have fallen because a motor is wrong. The model then explains all readings badly,
    and many wrong hypotheses about channels explain a little. So the hypothesis about a motor that
    has no effect, or the opposite effect, is preferred, unless the correction of the channel gives
    this motor its usual effect. `motor_hypotheses` agree with the motors' measured effects.
    """
    if not motor_hypotheses or best.concerns_motors:
        return None
    before, after = (
        case.likelihood.estimate_motor_effects(one, case.ticks)
        for one in (candidate, best.candidate)
    )
    idle = DOCTOR.idle_effect * compute_median_effect(before)
    usual = DOCTOR.crossed_effect * compute_median_effect(after)
    for one in motor_hypotheses:
        motor = one.members[0]
        if len(one.members) == 1 and before[motor] < idle and not after[motor] >= usual:
            return one
    return None


def compute_median_effect(effects: np.ndarray) -> float:
    """Return the median of the motors' effects, limited to the range from 0.3 to 1.

    Effects that are NaN are left out; if all are NaN, the result is 1.
    """
    known = effects[~np.isnan(effects)]
    return float(np.clip(np.median(known), 0.3, 1.0)) if len(known) else 1.0


class IdleMotorSearch:
    """Search for a motor without its usual effect: dead, reversed or exchanged with another.

    Args:
        case: The recording and what is known of it.
        start: The wiring with which the search for mistakes started.
    """

    def __init__(self, case: Case, start: CandidateWiring) -> None:
        self._case, self._start = case, start
        self.judged: set[int] = set()
        """Motors that `decide_whether_dead_or_reversed` has judged; their effects say nothing
        more."""

    def find_motor_and_rivals(
        self, candidate: CandidateWiring, mean_excess: float
    ) -> tuple[Hypothesis | None, list[Hypothesis]]:
        """Find a dead, reversed or exchanged motor by the measured effects of all motors alone.

        This is only done for a robot that does something the model never learned, such as one that
        has fallen, because costs mean little there. Nothing is found if channels were corrected
        already, because their corrections may bias the effects. The hypothesis is None if no motor
        is found.
        """
        start = self._start
        bent = (candidate.slots != start.slots).any()
        bent |= (candidate.unusable & ~start.unusable).any()
        bent |= not np.allclose(candidate.scale, start.scale)
        bent |= not np.allclose(candidate.offset, start.offset)
        if bent or not self._case.is_behaviour_unexpected(mean_excess):
            return None, []
        effects = self._case.likelihood.estimate_motor_effects(candidate, self._case.ticks)
        alive = (candidate.gain != 0.0) & ~np.isnan(effects)
        alive[list(self.judged)] = False
        if not alive.any():
            return None, []
        usual = float(np.median(effects[alive]))
        idle = np.flatnonzero(alive & (effects < DOCTOR.idle_effect * max(usual, 0.0)))
        for motor in map(int, idle):
            if (crossed := self.find_exchange(motor, candidate)) is not None:
                return crossed, []
        motor = int(np.where(alive, effects, np.inf).argmin())
        others = np.delete(effects, motor)[np.delete(alive, motor)]
        if not len(others) or usual < DOCTOR.usual_effect:
            return None, []
        apart = np.abs(others / usual - 1.0)
        if effects[motor] > DOCTOR.idle_effect * usual or np.median(apart) > DOCTOR.min_effect:
            return None, []
        return self.decide_whether_dead_or_reversed(motor, candidate)

    def decide_whether_dead_or_reversed(
        self, motor: int, candidate: CandidateWiring
    ) -> tuple[Hypothesis, list[Hypothesis]]:
        """Decide whether a motor without effect is dead or reversed.

        A reversed motor can hold its joint at an end stop, where it has no effect. So the motor's
        effect is measured only in ticks in which the joint is away from the position where it stays
        most of the time. If there are too few such ticks to decide, return the hypothesis of a dead
        motor, with that of a reversed one as its rival.
        """
        dead = Hypothesis("motor dead", (motor,), candidate.with_motor_gain([motor], 0.0))
        turned = Hypothesis("motor reversed", (motor,), candidate.with_motor_gain([motor], -1.0))
        self.judged.add(motor)
        effect = self._case.likelihood.estimate_motor_effect_away_from_stop(candidate, motor)
        if effect is None:
            return dead, [turned]
        return (turned if effect < -DOCTOR.reversed_effect else dead), []

    def find_exchange(self, motor: int, candidate: CandidateWiring) -> Hypothesis | None:
        """Find the exchange of a motor with another one that gives both the expected effect.

        Return None if no exchange helps.
        """
        likelihood, ticks = self._case.likelihood, self._case.ticks
        cost = float(likelihood.compute_nll_per_candidate([candidate], ticks)[0])
        for other in range(len(candidate.motors)):
            if other == motor or other in self.judged or candidate.gain[other] == 0.0:
                continue
            crossed = candidate.with_permuted_motors([motor, other], [other, motor])
            effects = likelihood.estimate_motor_effects(crossed, ticks)
            least = DOCTOR.crossed_effect * compute_median_effect(effects)
            if not effects[[motor, other]].min() >= least:
                continue
            if likelihood.compute_nll_per_candidate([crossed], ticks)[0] < cost - DOCTOR.min_gain:
                return Hypothesis("motors swapped", (motor, other), crossed)
        return None
