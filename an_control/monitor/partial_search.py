"""A search that finds which channels some slots feed while the other channels are missing.

Predictions depend on all readings. If some of these are estimates, the predictions are worse than
their scales say, so an assignment that was found by them alone is not to be trusted: with a quarter
of the Ant's channels missing, such a search had found only 10 to 80 % of the other channels after
500 ticks (2026-11-23). Here the identity classifier judges each slot by that slot's own readings.
Predictions only show that signals moved, and in the first ticks after the move to which slots they
may have moved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from an_control.monitor.assignment import Assignment
from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.imputation import ComparisonWithExpectation
from an_control.monitor.settings import MONITOR
from an_control.policy.sizes import WINDOW


class PartialAssignmentSearch:
    """A search that finds which input slot feeds which channel while some slots have no readings.

    An input slot is where a sensor's signal arrives; a channel is a named input of the policy.

    Args:
        forward: The forward model of the robot's N channels. One of its networks, the identity
            classifier, says which channel the readings of a slot are from.
        solve_assignment: A function that takes costs (slots, channels) and returns the assignment
            with the lowest total cost, see `kernels.solve_assignment`.
        ordered: Whether the policy needs each signal under its own id, so that a wrong assignment
            is worse than none.
    """

    def __init__(
        self,
        forward: ForwardModel,
        solve_assignment: Callable[[np.ndarray], np.ndarray],
        *,
        ordered: bool = False,
    ) -> None:
        self._wired_prior = MONITOR.partial_search.wired_prior if ordered else 0.0
        self._forward = forward
        self._assign = solve_assignment
        self._settings = MONITOR.partial_search
        self._alike = forward.alike
        self._all = np.arange(len(forward.channels))
        self._records: deque[tuple[np.ndarray, np.ndarray, np.ndarray]] = deque(maxlen=WINDOW)
        """Three values for each recent tick: the action before it, the slots' changes, and their
        readings."""
        self.reset()

    def reset(self) -> None:
        """Start an episode."""
        self._last: np.ndarray | None = None
        """(N,) the readings of the tick before; None if they are unknown."""
        self.rewires = 0
        """The number of detected moves and corrections of the assignment since the last reset."""
        self._restart_search()

    @property
    def is_assignment_known(self) -> bool:
        """Whether it is known for each slot that has a reading which channel it feeds."""
        return self._known or self._sure

    def suspend(self) -> None:
        """End the search; it restarts at the next tick in which an input slot is missing."""
        if self._last is not None:
            self._restart_search()

    def restart_with_known_assignment(self) -> None:
        """Restart the search from the present assignment, which is known to be right."""
        self._restart_search()
        self._known = True

    def exclude_tick_from_search(self) -> None:
        """Leave the present tick out of the search: it is no evidence for or against rewiring.

        Evidence comes from two successive ticks, so the next tick is not compared with this one.
        """
        self._last = None

    def _restart_search(self) -> None:
        """Reset the search, but not the count of detected rewirings."""
        self.explained, self._sure, self._known = True, False, False
        self._before: Assignment | None = None
        """The assignment before the last move."""
        self._last = None
        self._age = self._settings.new_ticks + 1
        """Ticks since signals moved or were found again."""
        self._return_costs = np.zeros(len(self._all))
        """(N,) nats that count against the return of channels that were missing before the last
        move."""
        self._clear_records()

    def _clear_records(self) -> None:
        """Remove the records of recent ticks, and the costs computed from them."""
        self._records.clear()
        self._costs, self._start_costs, self._lasting = np.zeros(
            (3, len(self._all), len(self._all))
        )
        """(slots, channels) each: the classifier's recent costs, the costs that were known when
        the search started, and those of them that do not fade."""
        self._ticks = 0

    def update_assignment(
        self,
        readings: np.ndarray,
        action: np.ndarray,
        assignment: Assignment,
        continuation: ComparisonWithExpectation | None,
    ) -> Assignment:
        """Return which input slot feeds which channel, after a tick with missing readings.

        An assignment that was known before readings were missing is kept until the readings show
        that a signal has moved to another slot.

        Args:
            readings: (N,) by input slot, NaN where missing.
            action: (A,) the action that was sent before these readings.
            assignment: The present assignment.
            continuation: The comparison of the readings with those expected from the tick before;
                None if nothing was expected.
        """
        last, self._last = self._last, readings
        if last is None:
            self._known = self._known or not assignment.lost
            self._start_costs[:] = MONITOR.search.nominal_prior
            self._start_costs[assignment.slots, self._all] = 0.0
            self._lasting = np.minimum(self._start_costs, self._wired_prior)
            return assignment
        present, change = ~np.isnan(readings), readings - last
        if continuation is not None:
            continuation = continuation._replace(
                costs=_subtract_lowest_cost_of_each_slot(continuation.costs, present)
            )
        if self._has_move_happened(change, assignment, continuation):
            self._return_costs = self._settings.back * np.isnan(last)[assignment.slots]
            return self._restart_after_move(assignment, continuation, present)
        self._records.append((action, change, readings))
        self._ticks += 1
        self._age += 1
        self._start_costs *= self._settings.link_fade
        if self._wired_prior:
            np.maximum(self._start_costs, self._lasting, out=self._start_costs)
        if (
            self._sure
            and self._age > self._settings.new_ticks
            and self._ticks % MONITOR.search.review_ticks
        ):
            return assignment
        self._update_identity_costs(present)
        if not self._known:
            assignment = self._choose_assignment(assignment, present)
        cost = self._compute_mean_identity_cost(assignment.slots, present)
        self.explained = cost < self._settings.max_cost
        self._sure = cost < self._settings.sure_cost and self._ticks >= self._settings.sure_ticks
        return assignment

    def _has_move_happened(
        self,
        change: np.ndarray,
        assignment: Assignment,
        continuation: ComparisonWithExpectation | None,
    ) -> bool:
        """Return whether sensor signals moved to other slots before this tick.

        Without a `continuation`, the answer is yes if the readings of most slots jump. With one,
        two conditions must hold. First, the readings continue the previous ones better under
        another assignment. Second, the readings of most slots jump, or they are not as expected
        although the present assignment was sure to be right.

        Args:
            change: (N,) the changes of the readings by input slot, NaN where missing.
            assignment: The present assignment (which input slot feeds which channel).
            continuation: The comparison of the readings with those expected from the tick before;
                None if nothing was expected.
        """
        if continuation is None:
            return self._have_most_slots_jumped(change)
        enough = self._settings.min_link_gain * np.count_nonzero(~np.isnan(change))
        if self._find_better_assignment(continuation.costs, assignment.slots, enough) is None:
            return False
        return (
            self._sure and continuation.excess() > self._settings.max_excess
        ) or self._have_most_slots_jumped(change)

    def _have_most_slots_jumped(self, change: np.ndarray) -> bool:
        """Return whether most slots change their readings much more than in any recent tick.

        Args:
            change: (N,) the changes of the readings by input slot, NaN where missing.
        """
        if len(self._records) < WINDOW // 2:
            return False
        changes = np.abs([changes for _, changes, _ in self._records])
        most = np.where(np.isnan(changes), 0.0, changes).max(0)
        present = ~np.isnan(change)
        jumping = np.count_nonzero(np.abs(change) > self._settings.jump * most)
        return bool(jumping > self._settings.jumping * np.count_nonzero(present))

    def _restart_after_move(
        self,
        assignment: Assignment,
        continuation: ComparisonWithExpectation | None,
        has_reading: np.ndarray,
    ) -> Assignment:
        """Restart the search because signals have moved to other input slots.

        Return the assignment that best explains the first readings since the move.

        Args:
            assignment: The assignment before the move.
            continuation: The comparison of the readings with those expected from the tick before;
                None if nothing was expected.
            has_reading: (N,) True for input slots with a reading.
        """
        self._clear_records()
        self._before, self._age = assignment, 0
        self._sure = self._known = False
        self.rewires += 1
        assignment = assignment._replace(detected=True)
        if continuation is None:
            return assignment
        self._start_costs = continuation.costs
        return self._copy_with_outputs_following_move(
            assignment.copy_with_slots(self._assign(self._sum_costs_of_all_evidence(has_reading)))
        )

    def _update_identity_costs(self, has_reading: np.ndarray) -> None:
        """Update the running mean of the identity classifier's costs by the newest records.

        The classifier is a network that says which channel's readings an input slot has.

        Args:
            has_reading: (N,) True for input slots with a reading.
        """
        actions, changes, reads = map(np.array, zip(*self._records, strict=True))
        costs = self._forward.compute_identity_classifier_costs(reads, changes, actions)
        costs = _subtract_lowest_cost_of_each_slot(costs, has_reading)
        self._costs += max(self._settings.rate, 1.0 / self._ticks) * (costs - self._costs)

    def _choose_assignment(self, assignment: Assignment, has_reading: np.ndarray) -> Assignment:
        """Return the best assignment if it is sufficiently better, or else the present one.

        Args:
            assignment: The present assignment (which input slot feeds which channel).
            has_reading: (N,) True for input slots with a reading.
        """
        settings = self._settings
        costs, new = self._sum_costs_of_all_evidence(has_reading), self._age <= settings.new_ticks
        if self.explained:
            max_cost = settings.max_cost if new else settings.sure_cost
            slots = self._find_better_assignment(
                costs,
                assignment.slots,
                self._settings.min_gain if new else self._settings.min_gain_later,
            )
        else:
            max_cost = min(
                self._settings.max_cost,
                self._settings.max_share
                * self._compute_mean_identity_cost(assignment.slots, has_reading),
            )
            slots = self._find_better_assignment(costs, assignment.slots, 0.0)
        if slots is None or self._compute_mean_identity_cost(slots, has_reading) >= max_cost:
            return assignment
        if not self.explained:
            self.rewires += not new
            self._age = 0
            self._lasting[:] = 0.0
        return self._copy_with_outputs_following_move(assignment.copy_with_slots(slots))

    def _find_better_assignment(
        self, costs: np.ndarray, slots: np.ndarray, min_gain: float
    ) -> np.ndarray | None:
        """Return the assignment of least cost, or None if it is no more than `min_gain` better.

        Args:
            costs: (slots, channels) the costs in nats.
            slots: (N,) the input slot that feeds each channel at present.
            min_gain: The nats by which its total cost must be below that of `slots`.

        Returns:
            (N,) the input slot that feeds each channel, or None.
        """
        present = costs[slots, self._all].sum()
        if present - costs.min(0).sum() <= min_gain:
            return None
        best = self._assign(costs)
        return best if present - costs[best, self._all].sum() > min_gain else None

    def _sum_costs_of_all_evidence(self, has_reading: np.ndarray) -> np.ndarray:
        """Return the cost (slots, channels) in nats of assigning each input slot to each channel.

        It is the sum of three costs: those of the identity classifier, those that were known when
        the search started, and a penalty for assigning a slot with a reading to a channel that was
        missing before the last move.

        Args:
            has_reading: (N,) True for input slots with a reading.
        """
        found: np.ndarray = (
            self._costs + self._start_costs + has_reading[:, None] * self._return_costs
        )
        return found

    def _copy_with_outputs_following_move(self, assignment: Assignment) -> Assignment:
        """Return a copy of the assignment with outputs that follow the signals' last move.

        The outputs say which slot's signal the policy gets under each channel id. They follow a
        move only in the first ticks after it; later the given assignment itself is returned.

        Args:
            assignment: Which input slot feeds which channel.
        """
        before = self._before
        if before is None or self._ticks > self._settings.new_ticks:
            return assignment
        return assignment._replace(
            outputs=assignment.slots[np.argsort(before.slots)[before.outputs]]
        )

    def _compute_mean_identity_cost(self, slots: np.ndarray, has_reading: np.ndarray) -> float:
        """Return the mean cost in nats of an assignment, by the identity classifier.

        The mean is over the input slots with readings. If a slot's channel cannot be told apart
        from others, the lowest of the costs of these channels counts.

        Args:
            slots: (N,) the input slot that feeds each channel.
            has_reading: (N,) True for input slots with a reading.
        """
        alike = self._alike[np.argsort(slots)]
        least = np.where(alike, self._costs, np.inf).min(1)
        return float(least[has_reading].mean()) if has_reading.any() else 0.0


def _subtract_lowest_cost_of_each_slot(costs: np.ndarray, has_reading: np.ndarray) -> np.ndarray:
    """Return costs (slots, channels) from which each input slot's lowest cost is subtracted.

    For slots without a reading the result is 0. Its upper bound is
    `EvidenceSettings.max_identity_cost`.

    Args:
        costs: (slots, channels) the costs in nats.
        has_reading: (slots,) True for input slots with a reading.
    """
    costs = np.minimum(costs - costs.min(1, keepdims=True), MONITOR.evidence.max_identity_cost)
    bounded: np.ndarray = np.where(has_reading[:, None], costs, 0.0)
    return bounded
