"""A search that finds which input slot feeds which channel, by the collected evidence.

A `MoveDetector` detects that sensor signals may have moved to other slots, and measures how well
an assignment explains the readings. An `AssignmentSearch` finds the assignment that explains them
best; its `SearchPhase` says how it uses a tick's record. Expected readings depend on the
assignment, so expected readings and assignments are computed in turns.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any, NamedTuple

import numpy as np

from an_control.monitor.assignment import Assignment
from an_control.monitor.costs import CostCalculator, compute_cost_increases_by_swaps
from an_control.monitor.evidence import (
    AssignmentEvidence,
    CandidateAssignment,
    SearchTimeBudget,
    TickRecord,
)
from an_control.monitor.forward_model import ChangePrediction, ExpectedReadings, ForwardModel
from an_control.monitor.robot_fit import RobotFitEstimator
from an_control.monitor.settings import MONITOR
from an_control.policy.sizes import WINDOW

F32 = np.float32


class SuspectedMove(NamedTuple):
    """A suspected rewiring: before a tick, signals seem to have moved to other input slots."""

    costs: np.ndarray
    """(slots, channels) the costs of the tick in nats, with a penalty for moved channels."""
    slots: np.ndarray
    """(N,) the slot of each channel in the assignment that explains the tick best."""
    usual: np.ndarray
    """(N,) the usual costs of each channel in such a tick, in nats."""


class MoveDetector:
    """A detector of ticks in which sensor signals have moved to other input slots.

    It suspects a move if another assignment of slots to channels explains a tick's readings much
    better than the present one. If not, the tick updates two measures of the present assignment.
    `excess_nll` is a running mean of how far the readings' negative log-likelihood is above its
    usual value. `consistent` counts the consecutive ticks in which the assignment may be right.

    Args:
        costs: The calculator of costs, which compares predictions with readings.
        channel_count: The number N of channels.
    """

    def __init__(self, costs: CostCalculator, channel_count: int) -> None:
        self._settings = settings = MONITOR.detector
        self._costs, self._all = costs, np.arange(channel_count)
        self.max_excess_nll = (
            settings.max_excess_nll + settings.max_excess_nll_per_channel * channel_count
        )
        self._surprising = settings.surprising_channel * channel_count
        self._max_consistent = settings.consistent + settings.consistent_channel * channel_count
        self.restart_with_excess(0.0)

    def restart_with_excess(self, excess_nll: float) -> None:
        """Restart the two measures of how well the assignment explains the readings.

        `excess_nll` is set to the given value. `consistent`, the number of consecutive ticks in
        which the assignment may have been right, is set to 0.

        Args:
            excess_nll: The new value of a running mean, in nats per tick: the negative
                log-likelihood of the readings under the assignment, less its usual value.
        """
        self.excess_nll, self.consistent = excess_nll, 0
        self.excess = 0.0
        """How far the costs of the newest tick were above their usual values, in nats."""

    @property
    def is_excess_high(self) -> bool:
        """Whether the assignment explains the recent readings worse than a right one would."""
        return self.excess_nll > self._surprising

    def detect_move(
        self,
        costs: np.ndarray,
        prediction: ChangePrediction,
        assignment: Assignment,
        *,
        assignment_is_new: bool,
    ) -> SuspectedMove | None:
        """Detect whether signals arrive in other input slots than a tick before.

        Return the suspected move; if there is none, update `excess_nll` and `consistent`, and
        return None.

        Args:
            costs: (slots, channels) how badly each slot's reading fits each channel, in nats.
            prediction: The prediction (1, N) for the tick.
            assignment: The present assignment (which input slot feeds which channel).
            assignment_is_new: Whether the assignment has just changed. If so, another one must
                explain the readings much better to count as a move.
        """
        min_gain = self._settings.tick_gain_again if assignment_is_new else self._settings.tick_gain
        present = float(costs[assignment.slots, self._all].sum())
        self.excess = above = present - self._costs.sum_usual_costs_over_channels(prediction)
        known = not assignment.lost or self.excess_nll < self.max_excess_nll
        if self.consistent and known:
            move = self._find_move(costs, assignment.slots, present, min_gain, prediction)
            if move is not None:
                return move
        self.excess_nll += self._settings.rate * (above - self.excess_nll)
        self.consistent = self.consistent + 1 if above < self._max_consistent else 0
        return None

    def _find_move(
        self,
        costs: np.ndarray,
        slots: np.ndarray,
        present_cost: float,
        min_gain: float,
        prediction: ChangePrediction,
    ) -> SuspectedMove | None:
        """Return the move to the assignment of least cost, or None if it gains too little.

        Args:
            costs: (slots, channels) how badly each slot's reading fits each channel, in nats.
            slots: (N,) the input slot that feeds each channel at present.
            present_cost: The total cost of the present assignment in nats.
            min_gain: The least gain in nats: the difference between `present_cost` and the total
                cost after the move, which includes a penalty for each moved channel.
            prediction: The prediction (1, N) for the tick.
        """
        if present_cost - float(costs.min(0).sum()) <= min_gain:
            return None
        moved = self._costs.compute_costs_with_move_penalty(costs, slots)
        best = self._costs.solve_assignment(moved)
        gain = present_cost - float(moved[best, self._all].sum())
        if gain <= min_gain:
            return None
        return SuspectedMove(moved, best, self._costs.compute_usual_costs_by_channel(prediction))


class SearchPhase(Enum):
    """A phase of `AssignmentSearch`, which decides what is done with the next tick's readings."""

    STAND_BY = "wait: there is no evidence yet, and the next tick starts the search"
    VERIFY_START = "verify the initial assignment"
    VERIFY_MOVE = "verify a move against the assumption that nothing moved"
    REVIEW = "verify nothing, look for channels that were confused"
    SEEK = "look for any other assignment, as the present one does not explain the newest ticks"
    RECONSIDER = "look for an assignment under which the model fits the robot"


class AssignmentSearch:
    """A search that finds which input slot feeds which channel, by the readings of the last ticks.

    It starts with a call of `start_verifying_assignment`. In each further tick, call
    `count_tick_and_check_if_assignment_is_new` first. Then call `start_verifying_move` if sensor
    signals seem to have moved to other slots, or else `update_assignment`. If the model does not
    fit the robot, call only `reconsider_assignment`.

    | phase | ends | next phase |
    |---|---|---|
    | STAND_BY | by `start_verifying_assignment` | VERIFY_START |
    | VERIFY_START | by `confirm_initial_assignment`, or after `verify_ticks` ticks | REVIEW |
    | VERIFY_MOVE | after `verify_ticks` ticks | REVIEW |
    | REVIEW | if the assignment does not explain the readings, when a review is due | SEEK |
    | SEEK | if all candidates are compared, or the readings are explained again | REVIEW |
    | any | by `start_verifying_move` | VERIFY_MOVE |
    | any | by `reconsider_assignment` | RECONSIDER |
    | any | by `suspend` | STAND_BY |

    Args:
        forward: The forward model of N channels.
        costs: The calculator of costs, which compares predictions with readings.
        budget: The budget, which bounds the work of a tick.
        fit: The estimator of the robot's fit, which decides what an assignment must explain to be
            accepted.
    """

    phase: SearchPhase
    _costs: np.ndarray  # (slots, channels) under the present assignment

    def __init__(
        self,
        forward: ForwardModel,
        costs: CostCalculator,
        budget: SearchTimeBudget,
        fit: RobotFitEstimator,
    ) -> None:
        self._budget, self._fit, self._settings = budget, fit, MONITOR.search
        self._evidence = AssignmentEvidence(forward, costs, self._settings.verify_ticks, budget)
        self._newest = AssignmentEvidence(forward, costs, self._settings.newest_ticks, budget)
        """A shorter store, with only the newest of the same records."""
        self._assign = costs.solve_assignment
        self._cost_moves = costs.compute_costs_with_move_penalty
        self._all = np.arange(len(forward.channels))
        self._alike = forward.alike
        self._pairs = np.nonzero(np.triu(~self._alike, 1))
        self.reset()

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or a pickle; in it a search that has begun starts again."""
        return {**self.__dict__, "_candidates": None}

    def reset(self) -> None:
        """Start an episode."""
        self.rewires = 0
        """The number of detected moves and corrections of the assignment since the last reset."""
        self.suspend()

    def suspend(self) -> None:
        """Remove the stored ticks and stop the search until `start_verifying_assignment`."""
        self._evidence.restart_with_initial_costs(np.zeros((len(self._all), len(self._all))))
        self._newest.restart_with_initial_costs(np.zeros((len(self._all), len(self._all))))
        self._put_off: ChangePrediction | None = None
        self._to_swap: CandidateAssignment | None = None
        self._swapped: np.ndarray | None = None
        """(N,) an assignment with two channels swapped, which the next tick compares."""
        self._surprising = False
        self._candidates: Iterator[CandidateAssignment] | None = None
        """The candidates that are still to be compared while another assignment is searched for."""
        self.phase, self._moved = SearchPhase.STAND_BY, False
        self._ticks, self._age = 0, self._settings.verify_ticks

    @property
    def is_verifying_move(self) -> bool:
        """Whether a detected move of signals between input slots is still being verified."""
        return self.phase is SearchPhase.VERIFY_MOVE and self._age < self._settings.verify_ticks

    def start_verifying_assignment(self, assignment: Assignment) -> Assignment:
        """Start to verify an assignment by the next ticks; return the one to use meanwhile.

        The stored ticks are removed. Until enough new ticks are stored, a prior favours the given
        assignment.

        Args:
            assignment: The assignment to verify: which input slot feeds which channel.
        """
        prior = np.full((len(self._all), len(self._all)), self._settings.nominal_prior)
        prior[assignment.slots, self._all] = 0.0
        self.phase, self._moved = SearchPhase.VERIFY_START, False
        return self._restart_verification(assignment, prior, assignment.slots)

    def start_verifying_move(
        self, assignment: Assignment, move: SuspectedMove, expectation: ExpectedReadings
    ) -> Assignment:
        """Start to check in the next ticks whether signals have really moved to other slots.

        Return the assignment that explains the readings best now; the check may replace it.

        Args:
            assignment: Which input slot fed which channel before the move.
            move: The detected move.
            expectation: The signals that were expected in this tick.
        """
        self.phase, self._moved = SearchPhase.VERIFY_MOVE, True
        assignment = self._restart_verification(assignment, move.costs, move.slots, move.usual)
        self._evidence.start_dead_reckoning(expectation)
        return assignment

    def _restart_verification(
        self,
        assignment: Assignment,
        initial_costs: np.ndarray,
        other_slots: np.ndarray,
        usual_costs: np.ndarray | None = None,
    ) -> Assignment:
        """Remove the evidence; return the better of the present assignment and another one.

        The two are compared by the initial costs.

        Args:
            assignment: The present assignment (which input slot feeds which channel).
            initial_costs: (slots, channels) the costs of this tick's readings in nats, or a prior
                that does not come from readings and favours some assignment.
            other_slots: (N,) the input slot of each channel in the other assignment.
            usual_costs: (channels,) the usual costs in such a tick; None for a prior.
        """
        self._evidence.restart_with_initial_costs(initial_costs, usual_costs)
        self._newest.restart_with_initial_costs(np.zeros_like(initial_costs))
        self._surprising = False
        self._age, self._counted = 0, assignment.lost
        self._tried: dict[bytes, int] = {}
        self._to_swap = self._swapped = self._candidates = None
        assignment = assignment._replace(
            previous=assignment.slots, previous_outputs=assignment.outputs
        )
        found = [self._evidence.evaluate_assignment(one) for one in (assignment.slots, other_slots)]
        return self._choose_best_assignment(assignment, found)

    def count_tick_and_check_if_assignment_is_new(self) -> bool:
        """Count a tick; return whether the assignment is so new that it may be wrong."""
        self._age += 1
        self._ticks += 1
        return self._age <= WINDOW

    def update_assignment(
        self,
        assignment: Assignment,
        record: TickRecord,
        prediction: ChangePrediction,
        *,
        readings_unexplained: bool,
        readings_surprising: bool,
    ) -> Assignment:
        """Store the record of a tick, and return the assignment of slots to channels after it.

        Call this only for a tick in which no signal was seen to move to another input slot.

        Args:
            assignment: The present assignment (which input slot feeds which channel).
            record: The readings of the tick by slot, with those before it.
            prediction: The prediction (1, N) of these readings under this assignment.
            readings_unexplained: Whether the assignment explains the recent readings so badly that
                any other one is searched for.
            readings_surprising: Whether the assignment explains the recent readings worse than it
                should, so that two channels may have swapped their signals.
        """
        self._add_record(record)
        self.phase = self._choose_phase(readings_unexplained)
        if self.phase is SearchPhase.SEEK:
            return self._search_all_assignments(assignment)
        if self.phase is SearchPhase.REVIEW:
            return self._review_assignment(assignment, prediction, readings_surprising)
        return self._verify_assignment(assignment)

    def _choose_phase(self, readings_unexplained: bool) -> SearchPhase:
        """Return the phase of the search in this tick.

        Args:
            readings_unexplained: Whether the present assignment does not explain the recent
                readings.
        """
        if self._age <= self._settings.verify_ticks:
            return SearchPhase.VERIFY_MOVE if self._moved else SearchPhase.VERIFY_START
        return (
            SearchPhase.SEEK
            if readings_unexplained and (self._is_review_due or self._candidates)
            else SearchPhase.REVIEW
        )

    @property
    def _is_review_due(self) -> bool:
        """Whether the assignment is reviewed in this tick, as in every `review_ticks`-th one."""
        return self._ticks % self._settings.review_ticks == 0

    def _add_record(self, record: TickRecord) -> None:
        """Store a tick's record as evidence for or against assignments.

        For some ticks after signals have moved, the record's readings are also compared with those
        that the forward model predicts, tick after tick, from the last readings before the move.
        """
        self._evidence.add_record(record)
        self._newest.add_record(record)
        if self._uses_dead_reckoning:
            self._evidence.add_dead_reckoning_costs(record)

    @property
    def _uses_dead_reckoning(self) -> bool:
        """Whether readings are compared with predictions that start before the signals moved."""
        return self._moved and self._age <= self._settings.reckoning_ticks

    def _verify_assignment(self, assignment: Assignment) -> Assignment:
        """Compare the assignment that is being verified with others; return the best one.

        An assignment says which input slot feeds which channel. Comparisons beyond the budget of
        computing time are left out: the next tick verifies again.

        Args:
            assignment: The present assignment, which is being verified.
        """
        evidence = self._evidence
        identity = evidence.compute_and_store_identity_classifier_costs()
        found = [evidence.evaluate_assignment(assignment.previous)]
        for candidate in self._iterate_candidates_after_move(assignment, identity):
            found.append(candidate)
            if not self._budget.count_affordable_comparisons(len(evidence.records)):
                break
        if self._age < self._settings.verify_ticks:
            best = min(found, key=lambda one: one.total)
            self._to_swap = found[0] if self._age % 2 else best
        return self._choose_best_assignment(assignment, found)

    def _iterate_candidates_after_move(
        self, assignment: Assignment, identity_costs: np.ndarray
    ) -> Iterator[CandidateAssignment]:
        """Yield assignments that may explain the ticks since signals moved between input slots.

        Args:
            assignment: The present assignment, which is yielded first.
            identity_costs: (slots, channels) the cost in nats of assigning each slot to each
                channel, by the identity classifier (a network that says which channel a slot
                carries).
        """
        evidence = self._evidence
        yield from self._iterate_refined_candidates(evidence, assignment.slots)
        if self._swapped is not None:
            yield evidence.evaluate_assignment(self._swapped)
        if self._uses_dead_reckoning:
            yield from self._iterate_refined_candidates(
                evidence, self._assign(identity_costs + evidence.reckoning)
            )
        elif self._age % 3 == 0:
            yield from self._iterate_refined_candidates(
                evidence, self._assign(identity_costs + evidence.initial_costs)
            )

    def _search_all_assignments(self, assignment: Assignment) -> Assignment:
        """Search for any assignment that explains the newest ticks better; return the best one.

        An assignment says which input slot feeds which channel. Comparisons beyond the budget of
        computing time are made in the next ticks, with the same evidence. Until all are made, the
        present assignment is returned.

        Args:
            assignment: The present assignment.
        """
        if self._candidates is None:
            self._counted = False
            self._sought: list[CandidateAssignment] = []
            self._candidates = self._iterate_candidates_for_newest_ticks(assignment.slots)
        for candidate in self._candidates:
            self._sought.append(candidate)
            if not self._budget.count_affordable_comparisons(self._settings.verify_ticks):
                return assignment
        self._candidates = None
        present, *others = self._sought
        newest = self._newest.compute_identity_classifier_costs()
        agreed = [
            one
            for one in others
            if self._is_change_supported_by_classifier(newest, assignment.slots, one.slots)
        ]
        return self._choose_best_assignment(assignment, [present, *agreed])

    def _iterate_candidates_for_newest_ticks(
        self, slots: np.ndarray
    ) -> Iterator[CandidateAssignment]:
        """Yield the present assignment, then others that may explain the newest ticks better.

        Args:
            slots: (N,) the input slot that feeds each channel at present.
        """
        evidence = self._evidence.copy()
        evidence.set_initial_costs_to_zero()
        identity = evidence.compute_and_store_identity_classifier_costs()
        present = evidence.evaluate_assignment(slots)
        yield present
        for start in (identity, identity + present.costs):
            yield from self._iterate_refined_candidates(evidence, self._assign(start))

    def reconsider_assignment(self, assignment: Assignment, record: TickRecord) -> Assignment:
        """Return the assignment to use after a tick, for a robot that the model seems not to fit.

        Perhaps the model fits, and only the assignment is wrong. So from time to time another one
        is searched for, under which the model predicts the readings as well as in its validation.

        Args:
            assignment: The present assignment (which input slot feeds which channel).
            record: The readings of the tick by slot, with those before it.
        """
        self._add_record(record)
        self.phase = SearchPhase.RECONSIDER
        self._ticks += 1
        if self._candidates is None:
            ticks = self._settings.verify_ticks
            if self._ticks % ticks or len(self._evidence.records) < ticks:
                return assignment
            self._candidates = self._iterate_candidates_for_newest_ticks(assignment.slots)
        for candidate in self._candidates:
            other = assignment.copy_with_slots(candidate.slots)
            if (other.slots != assignment.slots).any() and self.does_evidence_support_change(
                other, assignment.slots
            ):
                self._candidates = None
                return other
            if not self._budget.count_affordable_comparisons(self._settings.verify_ticks):
                return assignment
        self._candidates = None
        return assignment

    def _review_assignment(
        self, assignment: Assignment, prediction: ChangePrediction, readings_surprising: bool
    ) -> Assignment:
        """Add a tick to the evidence; return the assignment, corrected if channels were confused.

        If the assignment explains the recent readings badly, two channels may have been confused:
        signals that were nearly equal when they swapped slots make no jump in the readings. Work
        whose result this tick does not need is postponed to `continue_postponed_work`.

        Args:
            assignment: The present assignment (which input slot feeds which channel).
            prediction: The prediction (1, N) for this tick.
            readings_surprising: Whether the assignment explains the recent readings worse than it
                should.
        """
        self._surprising, self._candidates = readings_surprising, None
        if self._swapped is not None:
            assignment = self._swap_channels_if_supported(assignment, self._swapped)
            self._swapped = None
        if not assignment.lost and not self._is_review_due:
            self._put_off = prediction
            return assignment
        self._update_fading_costs(assignment, prediction)
        costs = self._costs
        if (
            not self._is_review_due
            or self.compute_min_swap_cost(assignment) > -self._fit.min_correction_gain
        ):
            return assignment
        slots = self._assign(self._cost_moves(costs, assignment.slots))
        gained = costs[assignment.slots, self._all].sum() - costs[slots, self._all].sum()
        if gained <= self._fit.min_correction_gain:
            return assignment
        if not assignment.lost:
            present = self._newest.evaluate_assignment(assignment.slots)
            other = self._newest.evaluate_assignment(slots)
            if gained < self._fit.min_replacement_gain or not self._fit.does_move_explain_readings(
                present, other
            ):
                return assignment
        if not self._is_change_supported_by_classifier(
            self._newest.compute_identity_classifier_costs(), assignment.slots, slots
        ):
            return assignment
        self.rewires += 1
        return assignment.copy_with_slots(slots)

    def continue_postponed_work(self, assignment: Assignment) -> None:
        """Do the part of the last tick's search that was postponed until after its command.

        This part evaluates the tick's readings, or compares the present assignment with copies in
        which two channels are swapped.

        Args:
            assignment: The present assignment (which input slot feeds which channel).
        """
        if self._to_swap is not None:
            best, self._to_swap = self._to_swap, None
            count = self._count_affordable_swaps(self._evidence)
            begin = self._get_next_swap_rank_and_advance(best.slots, count)
            self._swapped = self._find_best_swapped_slots(best, self._evidence, begin, count)
        if self._surprising:
            self._surprising = False
            best = self._newest.evaluate_assignment(assignment.slots)
            count = self._count_affordable_swaps(self._newest)
            self._swapped = self._find_best_swapped_slots(best, self._newest, 0, count)
        if self._put_off is not None:
            prediction, self._put_off = self._put_off, None
            self._update_fading_costs(assignment, prediction)

    def confirm_initial_assignment(self) -> None:
        """End the verification of the initial assignment, which is now known to be right.

        If a detected rewiring is being verified instead, that verification continues.
        """
        if not self._moved:
            self._age, self.phase = self._settings.verify_ticks, SearchPhase.REVIEW

    def compute_min_swap_cost(self, assignment: Assignment) -> float:
        """Return the smallest increase of the costs, in nats, by a swap of two channels' slots.

        The larger it is, the surer is the assignment. Pairs of channels that cannot be told apart
        are left out.

        Args:
            assignment: The present assignment (which input slot feeds which channel).
        """
        return float(self._compute_swap_costs(assignment).min())

    def compute_sure_channel_mask(self, assignment: Assignment, min_nats: float) -> np.ndarray:
        """Return a mask (N,) of the channels that can hardly be confused with another.

        If such a channel swapped input slots with any other channel, the costs would grow by at
        least `min_nats`.

        Args:
            assignment: Which input slot feeds which channel.
            min_nats: The least growth of the costs in nats.
        """
        sure: np.ndarray = self._compute_swap_costs(assignment).min(1) >= min_nats
        return sure

    def blend_readings_of_likely_slots(
        self, assignment: Assignment, readings: np.ndarray
    ) -> np.ndarray:
        """Return the likely reading (N,) of each channel.

        Usually this is the reading of the channel's slot. While a changed assignment is being
        verified, it is the mean of the readings of the channel's two likeliest slots, weighted by
        their likelihoods.

        Args:
            assignment: Which input slot feeds which channel.
            readings: (N,) the readings by slot.
        """
        signals: np.ndarray = readings[assignment.slots]
        if self._age >= self._settings.verify_ticks or assignment.slots is assignment.previous:
            return signals
        gains = self._compute_swap_costs(assignment)
        other = gains.argmin(1)
        gain = np.minimum(np.maximum(gains[self._all, other], -30.0), 30.0)
        sure = 1.0 / (1.0 + np.exp(-gain))
        rival = readings[assignment.slots[other]]
        rival = np.where(np.isnan(rival), signals, rival)
        return (sure * signals + (1.0 - sure) * rival).astype(F32)

    def _compute_swap_costs(self, assignment: Assignment) -> np.ndarray:
        """Return a matrix (N, N) of the increase in costs if two channels swap input slots.

        It is infinite for pairs of channels that cannot be distinguished.

        Args:
            assignment: The present assignment (which input slot feeds which channel).
        """
        increases = compute_cost_increases_by_swaps(self._costs, assignment.slots)
        increases[self._alike] = np.inf
        return increases

    def _update_fading_costs(self, assignment: Assignment, prediction: ChangePrediction) -> None:
        """Reduce the costs of earlier records, and add the newest record's costs.

        Args:
            assignment: The present assignment (which input slot feeds which channel).
            prediction: The prediction (1, N) for the tick of the record.
        """
        costs = self._settings.fade * self._costs
        self._evidence.add_newest_record_costs(costs, prediction)
        costs -= costs[assignment.slots, self._all]
        self._costs = costs

    def _iterate_refined_candidates(
        self, evidence: AssignmentEvidence, start_slots: np.ndarray
    ) -> Iterator[CandidateAssignment]:
        """Yield an assignment with its costs, then one that fits these costs best, and so on.

        An assignment's costs depend on the predictions under it. So in each turn the assignment of
        least total cost is found for the last costs, and new costs are computed for it. The
        iteration ends if an assignment occurs twice, or after a fixed number of turns.

        Args:
            evidence: The recorded ticks.
            start_slots: (N,) the input slot of each channel in the first assignment.
        """
        found: list[CandidateAssignment] = []
        turns = self._settings.turns
        while len(found) < turns and not any((one.slots == start_slots).all() for one in found):
            found.append(evidence.evaluate_assignment(start_slots))
            yield found[-1]
            start_slots = self._assign(found[-1].costs)

    def _swap_channels_if_supported(
        self, assignment: Assignment, swapped_slots: np.ndarray
    ) -> Assignment:
        """Return the assignment with two channels swapped if the evidence supports it.

        Otherwise return the given assignment.

        Args:
            assignment: The present assignment (which input slot feeds which channel).
            swapped_slots: (N,) the input slot of each channel with two channels swapped.
        """
        present = self._newest.evaluate_assignment(assignment.slots)
        swapped = self._newest.evaluate_assignment(swapped_slots)
        if not self._is_candidate_accepted(assignment, present, swapped):
            return assignment
        if not self._is_change_supported_by_classifier(
            self._newest.compute_identity_classifier_costs(), assignment.slots, swapped_slots
        ):
            return assignment
        self._costs = swapped.costs
        self.rewires += 1
        return assignment.copy_with_slots(swapped_slots)

    def does_evidence_support_change(self, assignment: Assignment, known_slots: np.ndarray) -> bool:
        """Return whether the stored ticks support replacing the last known assignment by another.

        Args:
            assignment: The assignment that may replace the known one.
            known_slots: (N,) the input slot of each channel in the last known assignment.
        """
        if self._fit.limits is None or (assignment.slots == known_slots).all():
            return True
        evidence = self._evidence.copy()
        evidence.set_initial_costs_to_zero()  # the prior at the start is not about readings
        before = evidence.evaluate_assignment(known_slots)
        now = evidence.evaluate_assignment(assignment.slots)
        ticks = len(evidence.records)
        explained = float(now.excess.sum()) <= ticks * self._fit.limits.max_excess
        gained = before.total - now.total >= self._fit.min_replacement_gain
        return explained and gained and self._fit.does_move_explain_readings(before, now)

    def _is_candidate_accepted(
        self, assignment: Assignment, current: CandidateAssignment, candidate: CandidateAssignment
    ) -> bool:
        """Return whether a candidate is so much better than the current one that it is accepted.

        While the monitor is lost, a smaller gain is enough, because the policy then gets the
        readings as they are wired, whatever the search finds.

        Args:
            assignment: The present assignment, which says whether the monitor is lost.
            current: The assignment to compare with, with its costs.
            candidate: The assignment that may be accepted, with its costs.
        """
        gain = current.total - candidate.total
        if assignment.lost and not self._moved:
            return gain >= self._fit.min_gain_while_lost
        return gain >= self._fit.min_replacement_gain and self._fit.does_move_explain_readings(
            current, candidate
        )

    def _is_change_supported_by_classifier(
        self, identity_costs: np.ndarray, slots_before: np.ndarray, slots_after: np.ndarray
    ) -> bool:
        """Return whether the identity classifier supports a change of the assignment.

        The classifier is a network that says which channel's readings an input slot has.

        Args:
            identity_costs: (slots, channels) the classifier's costs in nats.
            slots_before: (N,) the input slot of each channel before the change.
            slots_after: (N,) the input slot of each channel after the change.
        """
        gain = (
            identity_costs[slots_before, self._all].sum()
            - identity_costs[slots_after, self._all].sum()
        )
        return bool(
            gain >= self._settings.min_identity_gain * np.count_nonzero(slots_after != slots_before)
        )

    def _count_affordable_swaps(self, evidence: AssignmentEvidence) -> int:
        """Return how many swaps of two channels this tick may try; at least one.

        Args:
            evidence: The records over which each swap is evaluated.
        """
        rows = MONITOR.evidence.swap_rows * max(1, len(evidence.records))
        return min(max(1, self._budget.count_affordable_comparisons(rows)), self._settings.swaps)

    def _get_next_swap_rank_and_advance(self, slots: np.ndarray, swap_count: int) -> int:
        """Return the rank of the next swap of two channels to try; then advance it past some swaps.

        The possible swaps in an assignment are ranked from the likeliest (rank 0) on, and only some
        are tried in each tick. After the last swap, the next rank is 0 again.

        Args:
            slots: (N,) the input slot of each channel in the assignment whose channels are swapped.
            swap_count: The number of swaps that are tried in this tick.
        """
        key = slots.tobytes()
        tried = self._tried.get(key, 0)
        more = tried + swap_count < min(self._settings.max_swaps, len(self._pairs[0]))
        self._tried[key] = tried + swap_count if more else 0
        return tried

    def _find_best_swapped_slots(
        self,
        best: CandidateAssignment,
        evidence: AssignmentEvidence,
        first_swap: int,
        swap_count: int,
    ) -> np.ndarray | None:
        """Return the best assignment (N,) with two channels swapped; None if none is better.

        A wrong assignment can fit the predictions that follow from it, because these are wrong too,
        for example if two legs are confused. `_iterate_refined_candidates` can end at such an
        assignment. So here each swap is evaluated by the predictions under the swapped assignment.

        Args:
            best: The best assignment so far (which input slot feeds which channel).
            evidence: The recorded ticks.
            first_swap: The rank of the first swap that is tried; the likeliest swap has rank 0.
            swap_count: The number of swaps that are tried, in the order of their ranks.
        """
        likeliest = np.argsort(compute_cost_increases_by_swaps(best.costs, best.slots)[self._pairs])
        tried = likeliest[first_swap : first_swap + swap_count]
        if not len(tried):
            return None
        one, other = (side[tried] for side in self._pairs)
        slots, row = np.repeat(best.slots[None], len(tried), 0), np.arange(len(tried))
        slots[row, one], slots[row, other] = best.slots[other], best.slots[one]
        totals = evidence.compute_total_cost_of_each_assignment(slots)
        lowest = int(totals.argmin())
        return slots[lowest] if totals[lowest] < best.total else None

    def _choose_best_assignment(
        self, assignment: Assignment, candidates: list[CandidateAssignment]
    ) -> Assignment:
        """Return the best candidate that is sufficiently better than the first, or else the first.

        Args:
            assignment: The present assignment, of which a copy with the candidate's input slots is
                returned.
            candidates: The candidates, of which the first is the one that the others must beat.
        """
        best, first = candidates[0], candidates[0]
        for one in sorted(candidates[1:], key=lambda one: one.total):
            if self._is_candidate_accepted(assignment, first, one):
                best = one
                break
        self._costs = best.costs
        if not self._counted and best is not candidates[0]:
            self.rewires += 1
            self._counted = True
        return assignment.copy_with_slots(best.slots)
