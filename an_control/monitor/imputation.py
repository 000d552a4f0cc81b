"""Imputation: estimates the readings of channels that are missing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from an_control.monitor.assignment import Assignment
from an_control.monitor.costs import CostCalculator
from an_control.monitor.forward_model import ExpectedReadings, ForwardModel
from an_control.monitor.settings import MONITOR
from an_control.policy.sizes import WINDOW

PolicyInput = np.ndarray
"""The signals (N,) that the policy gets in a tick, by channel id, NaN where missing."""


class ComparisonWithExpectation(NamedTuple):
    """A comparison of a tick's readings with those predicted from the tick before.

    `costs` says how badly the reading of each input slot fits the prediction for each channel.
    `excess` says how much worse than usual the readings fit if each channel reads the slot that is
    presently assigned to it.
    """

    costs: np.ndarray
    """(slots, channels) the cost in nats of slot i's reading as the next one of channel k."""
    excess: Callable[[], float]
    """A function that returns a low quantile (`ImputationSettings.explained`) of the present
    channels' excess nats (costs above the usual ones)."""
    expectation: ExpectedReadings
    """The expectation that the readings were compared with."""


class ReadingImputer:
    """A store of the last tick's readings, which also estimates missing ones for the policy.

    The attribute `readings` has them by input slot (position at which a reading arrives), and
    `signals` by channel (named input of the model) with estimates. The monitor predicts the next
    tick from `signals`. A forward model that cannot estimate leaves missing readings missing.

    Args:
        forward: The forward model of N channels, which predicts and estimates readings.
        costs: The calculator of costs, which compares predictions with readings.
    """

    def __init__(self, forward: ForwardModel, costs: CostCalculator) -> None:
        self._forward, self._costs, self._settings = forward, costs, MONITOR.imputation
        self._since: deque[tuple[np.ndarray, np.ndarray]] = deque(
            maxlen=self._settings.replay_ticks
        )
        """While slots stay missing, a pair for each tick since the first one with a missing slot,
        or since signals moved. The pair is the readings (N,) by slot, and the action (A,) before
        them."""
        self.reset()

    def reset(self) -> None:
        """Start an episode, with no signals known."""
        self.signals: np.ndarray | None = None
        """(N,) the signals of the last tick by channel, with estimates of missing ones."""
        self.readings: np.ndarray | None = None
        """(N,) the readings of the last tick by slot, or a missing slot's newest one; None if the
        next tick must not be compared with the last one."""
        self.missing_ticks = 0
        """The number of consecutive ticks in which slots were missing."""
        self._before: np.ndarray | None = None
        """(N,) the signals before the first tick with missing slots; None at an episode's start."""
        self._since.clear()

    def forget_readings_of_last_tick(self) -> None:
        """Delete the last tick's readings, so that the next tick is not compared with them."""
        self.readings = None

    def forget_signals(self) -> None:
        """Delete the last tick's signals and estimates, which come from wrong readings."""
        self.signals = None

    def count_tick_and_check_if_partial_search_is_needed(self, missing: np.ndarray) -> bool:
        """Count a tick; return whether readings are missing so long that a partial search is due.

        A `PartialAssignmentSearch` finds out which slot feeds which channel while some slots have
        no readings. This search is also due if readings are missing and there are no earlier ones
        to compare with.

        Args:
            missing: (N,) True for slots without a valid reading; an empty array stands for none
                missing.
        """
        self.missing_ticks = self.missing_ticks + 1 if missing.any() else 0
        if self.missing_ticks and (self.readings is None or self.missing_ticks > WINDOW):
            return True
        self._before = None
        self._since.clear()
        return False

    def compare_with_expected_readings(
        self, readings: np.ndarray, action: np.ndarray, assignment: Assignment
    ) -> ComparisonWithExpectation | None:
        """Compare a tick's readings with those that are expected after the previous tick.

        Args:
            readings: (N,) the readings by input slot, NaN where missing.
            action: (A,) the action between the two ticks.
            assignment: Which input slot feeds which channel.

        Returns:
            How badly the readings fit; None if the signals of the previous tick are unknown.
        """
        if self.signals is None:
            return None
        expectation = self._forward.compute_expected_readings(self.signals, action)
        prediction = expectation.prediction
        before = self.signals
        signals = readings[assignment.slots]

        def compute_low_quantile_of_excess_costs() -> float:
            """Return a low quantile of the excess costs of the channels with readings, in nats."""
            above = self._costs.compute_excess_costs_by_channel(
                signals - before, signals, prediction
            )
            above = (above - self._costs.compute_costs_added_by_noise(prediction))[
                ~np.isnan(signals)
            ]
            place = int(self._settings.explained * len(above))
            return float(np.partition(above, place)[place]) if len(above) else 0.0

        costs, reads = np.zeros((len(readings),) * 2), readings[None]
        self._costs.add_tick_costs_to_matrix(
            costs, reads, expectation.expected[None], reads, prediction
        )
        return ComparisonWithExpectation(costs, compute_low_quantile_of_excess_costs, expectation)

    def forget_ticks_before_move(self) -> None:
        """Remove the stored ticks, because signals moved between input slots before this tick.

        So `reestimate_missing_signals` will only use ticks after the move.
        """
        self._before = self.signals
        self._since.clear()

    def reestimate_missing_signals(self, assignment: Assignment) -> None:
        """Estimate the missing signals again, after another assignment was found to be right.

        The estimates of all ticks with missing readings are repeated. If there were too many of
        these ticks to store all (see `ImputationSettings.replay_ticks`), nothing is changed.

        Args:
            assignment: The assignment that was found: which input slot feeds which channel.
        """
        if len(self._since) == self._settings.replay_ticks or not self._forward.imputes:
            return
        self.signals = self._before
        for readings, action in self._since:
            self._store_signals_with_estimates(readings[assignment.slots], action)

    def store_and_impute_incomplete_tick(
        self,
        readings: np.ndarray,
        action: np.ndarray,
        assignment: Assignment,
        *,
        readings_explained: bool,
    ) -> PolicyInput:
        """Store a tick with missing readings; return the readings (N,) that the policy gets.

        Missing readings are estimated. If the forward model cannot estimate, or more than the share
        `ImputationSettings.max_missing` is missing, they stay missing and no signals are stored.

        Args:
            readings: (N,) the readings by input slot, NaN where missing.
            action: (A,) the action before them.
            assignment: Which input slot feeds which channel.
            readings_explained: Whether the readings that are not missing fit the assignment. If
                not, the missing channels stay NaN in the policy's input.
        """
        policy_input, signals = readings[assignment.outputs], readings[assignment.slots]
        if not self._forward.imputes or np.isnan(signals).mean() > self._settings.max_missing:
            self.signals = self._before = None
            self._since.clear()
            return policy_input
        if not self._since and self._before is None:
            self._before = self.signals
        self._since.append((readings, action))
        self._store_signals_with_estimates(signals, action)
        return (
            self._insert_estimates(policy_input, assignment) if readings_explained else policy_input
        )

    def _store_signals_with_estimates(self, signals: np.ndarray, action: np.ndarray) -> None:
        """Store the signals of a tick, with estimates in place of the missing ones.

        If the signals of the tick before are unknown, the estimates are the typical values from
        training.

        Args:
            signals: (N,) the readings by channel, NaN where missing.
            action: (A,) the action before them.
        """
        missing = np.isnan(signals)
        if self.signals is None:
            self.signals = np.where(missing, self._forward.typical, signals)
        else:
            self.signals = self._forward.impute_missing_readings(
                self.signals, action, signals, missing
            )

    def store_tick_without_evidence(
        self, readings: np.ndarray, assignment: Assignment
    ) -> PolicyInput:
        """Store a tick whose readings say nothing about the wiring.

        For example, they do not follow from the last action because another command was sent.
        Missing readings keep their last values in the store; for the policy they are NaN.

        Args:
            readings: (N,) the readings by input slot, NaN where missing.
            assignment: Which input slot feeds which channel.

        Returns:
            (N,) the readings that the policy gets, by channel.
        """
        assert self.readings is not None and self.signals is not None
        signals = readings[assignment.slots]
        self.signals = np.where(np.isnan(signals), self.signals, signals)
        self.readings = np.where(np.isnan(readings), self.readings, readings)
        return readings[assignment.outputs]

    def store_tick_of_pass_through_mode(self, readings: np.ndarray, assignment: Assignment) -> None:
        """Store a tick whose readings reach the policy unchanged.

        If a reading is missing, nothing is stored, so that the next tick is not compared with this
        one.

        Args:
            readings: (N,) the readings by input slot, NaN where missing.
            assignment: Which input slot feeds which channel.
        """
        self.count_tick_and_check_if_partial_search_is_needed(np.zeros(0, bool))
        self.signals = self.readings = None
        if not np.isnan(readings).any():
            self.signals, self.readings = readings[assignment.slots], readings

    def store_expected_signals(
        self, expected_signals: np.ndarray, assignment: Assignment
    ) -> PolicyInput:
        """Store the expected signals of a tick, because its readings only repeat the last message.

        Args:
            expected_signals: (N,) the expected signals by channel.
            assignment: Which input slot feeds which channel.

        Returns:
            (N,) the policy's input, which consists of the expected signals too.
        """
        self.signals, self.readings = expected_signals, assignment.arrange_by_slot(expected_signals)
        return self.readings[assignment.outputs]

    def store_and_impute_tick(
        self,
        readings: np.ndarray,
        action: np.ndarray,
        assignment: Assignment,
        signals: np.ndarray,
        expected_signals: np.ndarray | None,
    ) -> PolicyInput:
        """Store a tick's readings, and return those that the policy gets (N,), by channel.

        In the result missing readings are estimates if the forward model can estimate and the
        assignment is known to be right. Otherwise they stay NaN.

        Args:
            readings: (N,) the readings by input slot, NaN where missing.
            action: (A,) the action before them.
            assignment: Which input slot feeds which channel.
            signals: (N,) the readings by channel, NaN where missing.
            expected_signals: (N,) the expected signals by channel; None if nothing is expected.
        """
        policy_input = readings[assignment.outputs] if assignment.pinned else signals
        if self.missing_ticks and self._forward.imputes and not assignment.lost:
            assert self.signals is not None
            missing = np.isnan(signals)
            self.signals = self._forward.impute_missing_readings(
                self.signals, action, signals, missing
            )
            if self.readings is not None:
                imputed = assignment.arrange_by_slot(self.signals)
                self.readings = np.where(np.isnan(readings), imputed, readings)
            return self._insert_estimates(policy_input, assignment)
        if self.missing_ticks:
            assert self.readings is not None and expected_signals is not None
            missing = np.isnan(readings)
            signals = np.where(missing[assignment.slots], expected_signals, signals)
            readings = np.where(missing, self.readings, readings)
        self.signals, self.readings = signals, readings
        return policy_input

    def store_unfiltered_readings(self, readings: np.ndarray) -> None:
        """Store a tick's readings without the noise filter, to compare the next tick with them.

        The filter pulls readings towards those that the assignment predicts. A comparison with
        filtered ones would thus confirm even a wrong assignment. If a reading is missing, nothing
        is stored.

        Args:
            readings: (N,) the readings by input slot, NaN where missing.
        """
        if not np.isnan(readings).any():
            self.readings = readings

    def _insert_estimates(self, policy_input: np.ndarray, assignment: Assignment) -> PolicyInput:
        """Return the policy's input (N,) with the newest estimates in place of missing readings.

        Args:
            policy_input: (N,) the input, NaN where missing.
            assignment: Which input slot feeds which channel.
        """
        assert self.signals is not None
        return np.where(
            np.isnan(policy_input),
            assignment.arrange_by_slot(self.signals)[assignment.outputs],
            policy_input,
        )
