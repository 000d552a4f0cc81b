"""The evidence for assignments of input slots to channels, collected since a possible rewiring.

At the tick at which sensor signals may have moved to other slots, each slot's reading is compared
with each channel's expected reading (`initial_costs`). After that tick, each slot's change is
compared with the channel's expected change, which does not depend on the assignment before the
move. The identity classifier, a network that says which channel a slot's readings are from, also
judges each slot. For a few ticks the readings are also compared with the forward model's
predictions from before the move (dead reckoning).

If no assignment explains the readings (a robot on a stand, carried, on its side), the monitor
searches at every tick until one does. The work of this search is counted, not timed, because with a
clock the actions would depend on the machine's other load. Work that exceeds the budget is done at
later ticks.
"""

from __future__ import annotations

from collections import deque
from copy import copy
from itertools import islice
from typing import NamedTuple

import numpy as np

from an_control.monitor.costs import CostCalculator
from an_control.monitor.forward_model import ChangePrediction, ExpectedReadings, ForwardModel
from an_control.monitor.settings import MONITOR
from an_control.policy.sizes import WINDOW

F32 = np.float32


class SearchTimeBudget:
    """The computing time that the monitor's search may still take in the present control step.

    The search finds out which input slot feeds which channel, by comparing assignments of slots to
    channels. Its time is not measured but estimated, in seconds of an ordinary CPU core.

    Args:
        forward: The forward model, from whose size and control period the budget follows.
    """

    def __init__(self, forward: ForwardModel) -> None:
        self._settings = settings = MONITOR.budget
        pairs = len(forward.channels) ** 2
        self._row_s = forward.products * settings.product_s + pairs * settings.pair_s
        self._step_s = forward.step_s
        self.reset_for_tick(model_fits=True)

    def reset_for_tick(self, *, model_fits: bool) -> None:
        """Start a control step, in which the whole budget of search time is available again.

        Args:
            model_fits: Whether the forward model describes the connected robot. If it does not, the
                budget is smaller.
        """
        share = self._settings.share if model_fits else self._settings.unfit_share
        self._tick_s = share * self._step_s
        self.spent_s = 0.0
        """The estimated seconds that this tick's search has taken so far."""

    def count_affordable_comparisons(self, evaluations_per_comparison: float) -> int:
        """Return how many comparisons of assignments still fit into this tick's budget.

        Args:
            evaluations_per_comparison: The number of evaluations that a comparison takes. An
                evaluation computes how badly one assignment fits one tick's readings.
        """
        left_s = self._tick_s - self.spent_s - self._settings.call_s
        return max(0, int(left_s / (evaluations_per_comparison * self._row_s)))

    def subtract_time_of_evaluations(self, evaluation_count: float) -> None:
        """Subtract the estimated time of some evaluations from this tick's budget.

        Args:
            evaluation_count: The number of evaluations, each of which computes how badly one
                assignment of slots to channels fits one tick's readings.
        """
        self.spent_s += self._settings.call_s + evaluation_count * self._row_s


class CandidateAssignment(NamedTuple):
    """A possible assignment of input slots to channels, with how badly it fits the readings."""

    slots: np.ndarray
    """(N,) the slot that feeds each channel."""
    costs: np.ndarray
    """(slots, channels) the costs in nats, by the predictions that follow from this assignment."""
    total: float
    """The sum of the costs of the assigned pairs, in nats."""
    excess: np.ndarray
    """(N,) how far the cost of each channel is above its usual cost, in nats."""
    ticks: int
    """The number of ticks after the possible rewiring that are counted."""


class TickRecord(NamedTuple):
    """Readings of a tick by input slot, of the tick before, and the action between the two.

    N is the number of input slots.
    """

    before: np.ndarray
    """(N,) the readings of the tick before, 0 where missing, as the forward model gets them."""
    action: np.ndarray
    """(A,) the action between the two ticks."""
    change: np.ndarray
    """(N,) the changes of the readings, NaN where missing."""
    reads: np.ndarray
    """(N,) the readings of this tick, NaN where missing."""


class AssignmentEvidence:
    """A store of recent ticks, by which assignments of input slots to channels are compared.

    An assignment says which slot feeds which channel. Its costs are the negative log-likelihoods of
    the stored readings under it, in nats, so the one with the lowest costs fits best.

    Args:
        forward: The forward model of N channels.
        costs: The calculator of costs, which compares predictions with readings.
        ticks: The largest number of records in the store.
        budget: The budget that counts the computing time.
    """

    def __init__(
        self,
        forward: ForwardModel,
        costs: CostCalculator,
        ticks: int,
        budget: SearchTimeBudget,
    ) -> None:
        self._forward, self._costs, self._budget = forward, costs, budget
        self._settings = MONITOR.evidence
        self._all = np.arange(len(forward.channels))
        self.records: deque[TickRecord] = deque(maxlen=ticks)
        self._sums: dict[bytes, tuple[int, np.ndarray, np.ndarray]] = {}
        """A mapping from an assignment (as bytes) to three values: the number of records counted,
        their costs (slots, channels), and their usual costs (channels,)."""
        self._totals: dict[bytes, tuple[int, float]] = {}
        """A mapping from an assignment (as bytes) to a pair: the number of records counted, and
        the sum of their costs."""
        self.identity: np.ndarray | None = None
        """(slots, channels) the identity classifier's costs; None while there is no record."""

    def restart_with_initial_costs(
        self, initial_costs: np.ndarray, usual_costs: np.ndarray | None = None
    ) -> None:
        """Remove all stored ticks, and set initial costs, to which those of later ticks are added.

        The initial costs are either the costs of the tick in which signals seem to have moved to
        other slots, or a prior, which favours some assignment of slots to channels.

        Args:
            initial_costs: (slots, channels) the cost of assigning each slot to each channel (nats).
            usual_costs: (channels,) the mean costs of such a tick under the right assignment; None
                for a prior, which has no usual costs.
        """
        self.clear()
        self.initial_costs, self.identity = initial_costs, None
        self._usual_initial_costs = (
            np.zeros(len(initial_costs)) if usual_costs is None else usual_costs
        )

    def clear(self) -> None:
        """Remove all records, and all costs that were computed from them."""
        self.records.clear()
        self._sums.clear()
        self._totals.clear()

    def add_record(self, record: TickRecord) -> None:
        """Append a tick's record; if the store is full, drop the oldest one."""
        if len(self.records) == self.records.maxlen:
            self._sums.clear()
            self._totals.clear()
        self.records.append(record)

    def copy(self) -> AssignmentEvidence:
        """Return a copy with records of its own.

        Records that are later added to the copy are not added to the original, and vice versa.
        """
        other = copy(self)
        other.records = self.records.copy()
        other._sums, other._totals = {}, {}
        return other

    def start_dead_reckoning(self, expectation: ExpectedReadings) -> None:
        """Start dead reckoning, which predicts each tick from the prediction for the tick before.

        These predictions use no new readings, so they do not depend on which input slot feeds
        which channel. The matrix `reckoning` is set to the initial costs.

        Args:
            expectation: The forward model's prediction for the current tick, in which sensors may
                have changed their input slots. Dead reckoning starts from it.
        """
        self._reckoned, self._reckoned_scale = expectation.likeliest, expectation.prediction.scale
        self.reckoning = self.initial_costs.copy()
        """(slots, channels) the initial costs, plus those of each later tick by dead reckoning, in
        nats."""

    def set_initial_costs_to_zero(self) -> None:
        """Set the costs from `restart_with_initial_costs` to zero, so that only ticks count."""
        self.initial_costs = np.zeros_like(self.initial_costs)
        self._usual_initial_costs = np.zeros(len(self.initial_costs))

    def add_dead_reckoning_costs(self, record: TickRecord) -> None:
        """Add a tick's costs by dead reckoning to the matrix `reckoning` (slots, channels).

        Call it once for each tick after `start_dead_reckoning`. Dead reckoning predicts each tick
        from the prediction for the tick before. Only the prediction from which it starts was
        computed from readings, those of the tick before the suspected rewiring. The costs, in nats,
        say how badly the reading of each slot fits the prediction for each channel.

        Args:
            record: The tick, whose readings and action are used.
        """
        ahead = self._forward.compute_expected_readings(self._reckoned, record.action)
        self._reckoned_scale = np.hypot(
            ahead.prediction.scale, F32(self._settings.reckoning_growth) * self._reckoned_scale
        )
        prediction = ahead.prediction._replace(scale=self._reckoned_scale)
        reads = record.reads[None]
        self._costs.add_tick_costs_to_matrix(
            self.reckoning, reads, ahead.expected[None], reads, prediction
        )
        self._reckoned = ahead.likeliest

    def compute_and_store_identity_classifier_costs(self) -> np.ndarray:
        """Compute the identity classifier's costs for the newest ticks; store and return them.

        The identity classifier is the network that says which channel a single input slot's
        readings are from.

        Returns:
            (slots, channels) the cost in nats of assigning each slot to each channel.
        """
        self.identity = self.compute_identity_classifier_costs()
        return self.identity

    def compute_identity_classifier_costs(self) -> np.ndarray:
        """Return the identity classifier's costs for the newest ticks, without storing them.

        The identity classifier is the network that says which channel a single input slot's
        readings are from.

        Returns:
            (slots, channels) the cost in nats of assigning each slot to each channel.
        """
        self._budget.subtract_time_of_evaluations(self._settings.classifier_rows)
        newest = list(self.records)[-WINDOW:]
        _, actions, change, reads = map(np.array, zip(*newest, strict=True))
        costs = self._forward.compute_identity_classifier_costs(reads, change, actions)
        return np.minimum(costs, self._settings.max_identity_cost)

    def evaluate_assignment(self, slots: np.ndarray) -> CandidateAssignment:
        """Return an assignment together with its costs over all stored ticks.

        Args:
            slots: (N,) the input slot that feeds each channel.
        """
        key = slots.tobytes()
        shape = self.initial_costs.shape
        count, sums, usual = self._sums.get(key) or (0, np.zeros(shape), np.zeros(shape[1]))
        if count < len(self.records):
            self._budget.subtract_time_of_evaluations(len(self.records) - count)
            before, actions, change, reads = self._stack_record_fields(count)
            prediction = self._forward.predict_changes(before[:, slots], actions)
            self._costs.add_tick_costs_to_matrix(sums, change, prediction.change, reads, prediction)
            usual += self._costs.compute_usual_costs_by_channel(prediction)
        self._sums[key] = len(self.records), sums, usual
        costs = self._compute_assignment_independent_costs() + sums
        total = float(costs[slots, self._all].sum())
        excess = (self.initial_costs + sums)[slots, self._all] - usual - self._usual_initial_costs
        return CandidateAssignment(slots, costs, total, excess, len(self.records))

    def compute_total_cost_of_each_assignment(self, assignments: np.ndarray) -> np.ndarray:
        """Return how badly each of S assignments fits all stored ticks, as an array (S,) in nats.

        The value for an assignment is the sum of its costs over all channels and all stored ticks.
        A cost is the negative log-likelihood of a reading under the forward model's prediction, so
        the assignment with the lowest sum fits best.

        Args:
            assignments: (S, N) the input slot that feeds each channel, for each assignment.
        """
        keys = [slots.tobytes() for slots in assignments]
        known = [self._totals.get(key, (0, 0.0)) for key in keys]
        counts, totals = map(np.array, zip(*known, strict=True))
        first, ticks = int(counts.min()), len(self.records)
        which = np.repeat(np.arange(len(assignments)), ticks - counts)  # the assignment of each row
        tick = np.concatenate([np.arange(count - first, ticks - first) for count in counts])
        self._budget.subtract_time_of_evaluations(self._settings.swap_rows * len(which))
        before, actions, change, reads = self._stack_record_fields(first)
        by_channel = tick[:, None], assignments[which]  # (rows, channels)
        prediction = self._forward.predict_changes(before[by_channel], actions[tick])
        costs = self._costs.compute_reading_costs(change[by_channel], reads[by_channel], prediction)
        totals = totals + np.bincount(which, costs.sum(1), len(assignments))
        self._totals |= {
            key: (ticks, float(total)) for key, total in zip(keys, totals, strict=True)
        }
        found: np.ndarray = totals + self._compute_assignment_independent_costs()[
            assignments, self._all
        ].sum(1)
        return found

    def _stack_record_fields(self, first_index: int) -> tuple[np.ndarray, ...]:
        """Return the fields of several records, each as one array (ticks, ...).

        Args:
            first_index: The index of the first record that is used; all later ones are used, too.

        Returns:
            One array for each field of `TickRecord`, in its order.
        """
        return tuple(map(np.array, zip(*islice(self.records, first_index, None), strict=True)))

    def add_newest_record_costs(self, costs: np.ndarray, prediction: ChangePrediction) -> None:
        """Add to a matrix how badly each slot's reading in the newest record fits each channel.

        Args:
            costs: (slots, channels) the matrix, with the costs in nats so far; changed in place.
            prediction: The prediction (1, N) for the tick of this record.
        """
        newest = self.records[-1]
        self._costs.add_tick_costs_to_matrix(
            costs, newest.change[None], prediction.change, newest.reads[None], prediction
        )

    def _compute_assignment_independent_costs(self) -> np.ndarray:
        """Return the costs (slots, channels), in nats, that are the same for all assignments.

        They are the sum of the initial costs (see `restart_with_initial_costs`) and of the identity
        classifier's costs, if these have been computed.
        """
        return self.initial_costs if self.identity is None else self.initial_costs + self.identity
