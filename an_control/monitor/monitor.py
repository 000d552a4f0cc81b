"""The identity monitor, which estimates which input slot feeds which channel.

An input slot is the position at which a sensor's readings arrive; a signal is what the sensor of a
nominal channel (a named input of the model) measures. The readings of a tick pass through the
following estimators in this order. They share one immutable `Assignment` of slots to channels. Each
estimator has a file of its own, and only `IdentityMonitor` passes data from one to the next. Excess
nats are costs (negative log-likelihoods in nats) above their usual value.

| estimator | in | out |
|---|---|---|
| `SensorDelayEstimator` | actions; expected and actual readings | the action that they follow |
| `StuckSensorDetector` | readings | readings without stuck slots; whether a message came twice |
| `SensorOffsetEstimator` | readings; expected readings; assignment | readings without offsets |
| `RobotFitEstimator` | repeated readings; excess nats | whether the model fits the robot |
| `SensorNoiseEstimator` | readings | the standard deviation of the noise, which enters all costs |
| `ForwardModel` | the last signals and action | the expected readings |
| `MoveDetector` | costs of the readings; assignment | a move, or else the tick's excess nats |
| `AssignmentSearch` | a move or else a record; assignment | assignment |
| `PartialAssignmentSearch` | readings, while some are missing; assignment | assignment |
| `SensorNoiseEstimator` | signals; expected readings | filtered signals |
| `ReadingImputer` | signals; assignment | signals with estimates of missing ones |
| `SensorDelayEstimator` | signals | predicted present signals |

At the start, and if no assignment explains the readings, the monitor is lost, which means that it
searches for an assignment by the identity classifier alone. If the model does not fit the robot,
the readings pass unchanged.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from an_control.monitor.assignment import Assignment
from an_control.monitor.costs import CostCalculator
from an_control.monitor.evidence import SearchTimeBudget, TickRecord
from an_control.monitor.forward_model import (
    ChangePrediction,
    ExpectedReadings,
    ForwardModel,
    replace_missing_readings_by_zero,
)
from an_control.monitor.imputation import PolicyInput, ReadingImputer
from an_control.monitor.partial_search import PartialAssignmentSearch
from an_control.monitor.robot_fit import RobotFitEstimator
from an_control.monitor.search import AssignmentSearch, MoveDetector, SearchPhase
from an_control.monitor.sensor_delay import SensorDelayEstimator
from an_control.monitor.sensor_noise import SensorNoiseEstimator
from an_control.monitor.sensor_offset import SensorOffsetEstimator
from an_control.monitor.settings import MONITOR
from an_control.monitor.stuck_sensors import StuckSensorDetector

SHOWN = 4
"""The largest number of channels that a text for the user lists."""


class MonitorTick(NamedTuple):
    """The readings of one tick and the action that they follow, as the monitor's parts get them."""

    as_read: np.ndarray
    """(N,) float32 the readings by slot, NaN where missing."""
    corrected: np.ndarray
    """(N,) the same readings without the sensors' offsets."""
    readings: np.ndarray
    """(N,) the corrected readings, with NaN also for stuck slots."""
    action: np.ndarray
    """(A,) the action that the readings follow."""
    evidence: bool
    """Whether the readings follow from the action, so that they count as evidence of rewiring."""


class IdentityMonitor:
    """An estimator of which input slot feeds which channel, which sorts the readings accordingly.

    An input slot is a position at which readings arrive, a channel is a named input of the model.
    At each tick the monitor takes the readings by slot and returns them by channel.

    Args:
        forward: The forward model of N channels.
        ordered: Whether the policy needs its channels in order. If so, it gets each signal under
            the signal's own id as soon as this id is known.
    """

    def __init__(self, forward: ForwardModel, *, ordered: bool = False) -> None:
        self.channels = forward.channels
        count = len(self.channels)
        self._forward, self._ordered = forward, ordered
        self._costs = costs = CostCalculator(forward)
        self._detector = MoveDetector(costs, count)
        self._budget = SearchTimeBudget(forward)
        self.fit = RobotFitEstimator(forward.limits, count, forward.still_values)
        self._search = AssignmentSearch(forward, costs, self._budget, self.fit)
        self._imputation = ReadingImputer(forward, costs)
        self._partial = PartialAssignmentSearch(forward, costs.solve_assignment, ordered=ordered)
        self.delay = SensorDelayEstimator(forward, costs)
        self.offset = SensorOffsetEstimator(forward)
        self.noise = SensorNoiseEstimator(forward.max_roughness, forward.binary)
        self._sensors = StuckSensorDetector(
            count, forward.still_values, self._detector.max_excess_nll
        )
        self._may_stand_still = forward.binary | forward.constant
        self._should_move = np.flatnonzero(~self._may_stand_still)
        self._none, self._all = np.zeros(count, bool), np.ones(count, bool)
        self.reset()

    def reset(self) -> None:
        """Start an episode with the assumption that each input slot feeds its own channel."""
        self.assignment = Assignment.make_nominal(len(self.channels))
        """The estimated assignment after the last tick; only `step` replaces it."""
        self._settled = self.assignment
        """The most recent assignment that stayed for long enough to count as right."""
        self._judged = self.assignment
        """The assignment under which stuck slots were last judged."""
        self._known = self.assignment.slots
        """(N,) the slots of the last assignment that was known to be right."""
        self._shown: tuple[np.ndarray, dict[str, str]] = self._known, {}
        """The slots for which `channel_by_rewired_slot` was last computed, and the result."""
        self._passes = False
        """Whether the readings pass unchanged, because the model does not fit the robot."""
        self._stable_ticks = 0
        self._ahead: ExpectedReadings | None = None
        self.fit.reset()
        self._detector.restart_with_excess(0.0)
        self._budget.reset_for_tick(model_fits=not self._passes)
        self._search.reset()
        self._imputation.reset()
        self._partial.reset()
        self.delay.reset()
        self.offset.reset()
        self.noise.reset()
        self._sensors.reset()
        self._costs.noise_sd = 0.0

    def start_episode_with_assumed_slots(self, slots: np.ndarray) -> None:
        """Start an episode with an assumption about which input slot feeds which channel.

        From the first tick on, each channel gets the reading of the slot that is assumed for it.

        Args:
            slots: (N,) the input slot that is assumed to feed each channel.
        """
        self.reset()
        assumed = Assignment(slots, slots, slots, slots, pinned=False)
        self.assignment = self._settled = self._judged = assumed
        self._known = slots

    def step(
        self, readings: np.ndarray, action: np.ndarray, *, readings_follow_action: bool = True
    ) -> PolicyInput:
        """Estimate which input slot feeds which channel, and return the readings by channel.

        Args:
            readings: (N,) float32 by input slot, NaN where missing.
            action: (A,) the last action.
            readings_follow_action: Whether the robot got that action. If it got a command that
                corresponds to no action, the estimate does not change.

        Returns:
            The policy's reading for each channel id (N,), NaN if it is missing and not estimated.
            If the sensors' readings are delayed, the policy gets predictions of the present ones.
        """
        self.delay.try_another_delay_on_stored_tick()
        self.offset.update_offsets_from_stored_tick()
        action = self.delay.store_and_get_delayed_action(action)
        moving = self._sensors.replace_stuck_readings_by_nan(readings)
        slots = self.assignment.slots
        self.offset.start_tick()
        corrected = self.offset.subtract_offsets(readings, slots)
        moving = corrected if moving is readings else np.where(np.isnan(moving), moving, corrected)
        tick = MonitorTick(readings, corrected, moving, action, readings_follow_action)
        self.fit.update_slow_sensors(self._sensors.mask_of_unchanged_readings, readings, corrected)
        assignment = self.assignment.copy_without_tick_events()
        if (self.fit.model_fits_robot is False) is not self._passes:
            assignment = self._toggle_pass_through_mode(assignment)
        if self._passes:
            estimate = self._pass_readings_unchanged
        else:
            self._search.continue_postponed_work(assignment)
            if self._imputation.count_tick_and_check_if_partial_search_is_needed(
                np.isnan(tick.readings)
            ):
                estimate = self._estimate_from_incomplete_tick
            elif not readings_follow_action and self._imputation.readings is not None:
                estimate = self._estimate_from_tick_without_evidence
            elif self._can_replace_repeated_message(assignment):
                estimate = self._replace_repeated_message
            else:
                estimate = self._estimate_from_complete_tick
        self.assignment, signals = estimate(tick, assignment)
        if self.assignment.slots is not slots and self.offset.offsets.any():
            signals = self._move_offsets_to_new_slots(slots, signals)
        self._budget.reset_for_tick(model_fits=not self._passes)
        late = self.delay.ticks and not self.assignment.lost
        return self._predict_undelayed_signals(signals) if late else signals

    def correct_readings(self, readings: np.ndarray) -> np.ndarray:
        """Return the readings (N,) by input slot without the offsets of their sensors.

        The present assignment says which sensor a slot has. While the model does not fit the robot,
        the readings are returned unchanged.

        Args:
            readings: (N,) float32 by input slot, NaN where missing.
        """
        if self._passes:
            return readings
        return self.offset.subtract_offsets(readings, self.assignment.slots)

    def _move_offsets_to_new_slots(
        self, old_slots: np.ndarray, signals: PolicyInput
    ) -> PolicyInput:
        """Correct this tick again, from which the offsets were subtracted by the old assignment.

        Args:
            old_slots: (N,) the slot that was estimated to feed each channel before this tick.
            signals: (N,) the policy's input.

        Returns:
            The policy's input, corrected by the new assignment.
        """
        slots, offsets = self.assignment.slots, self.offset.offsets
        shift = np.empty_like(offsets)
        shift[old_slots] = offsets
        shift[slots] -= offsets
        imputation = self._imputation
        if imputation.readings is not None:
            imputation.readings = imputation.readings + shift
        if imputation.signals is not None:
            imputation.signals = imputation.signals + shift[slots]
        return signals if self._passes else signals + shift[self.assignment.outputs]

    def prepare_next_tick(self, action: np.ndarray) -> None:
        """Compute in advance what the next tick needs besides its readings.

        Call it between two ticks, to save time in the next `step`. It predicts the readings after
        the given action, and does work that the last tick has postponed.

        Args:
            action: (A,) the last action. The prediction is used if `step` gets the same one.
        """
        self._search.continue_postponed_work(self.assignment)
        self.delay.try_another_delay_on_stored_tick()
        self.offset.update_offsets_from_stored_tick()
        imputation = self._imputation
        if imputation.readings is not None and imputation.signals is not None:
            action = self.delay.get_action_that_next_readings_follow(action)
            self._ahead = self._get_expected_readings(imputation.signals, action)

    def _estimate_from_complete_tick(
        self, tick: MonitorTick, assignment: Assignment
    ) -> tuple[Assignment, PolicyInput]:
        """Process a tick without missing slots, or with slots missing only for a few ticks so far.

        Args:
            tick: The readings and the action before them.
            assignment: Which input slot feeds which channel, as estimated so far.

        Returns:
            The new assignment, and the signals (N,) for the policy.
        """
        imputation, readings, before = self._imputation, tick.readings, assignment.slots
        self._partial.suspend()
        assignment = self._revert_assignment_if_noise_begins(assignment, readings)
        expectation = likeliest = None
        if imputation.signals is None or imputation.readings is None:
            assignment = self._search.start_verifying_assignment(assignment)
            self._detector.restart_with_excess(MONITOR.detector.unknown)
        else:
            expectation = self._get_expected_readings(imputation.signals, tick.action)
            likeliest = expectation.likeliest
            if self._has_new_stuck_sensor(
                assignment, readings, imputation.readings, expectation.prediction
            ):
                return self._exclude_stuck_slots(assignment, readings)
            assignment = self._update_assignment(
                assignment, readings, imputation.readings, expectation
            )
            if assignment.slots is before:
                signals = readings[before]
                self.delay.store_tick_for_trying_delays(expectation, signals)
                if not assignment.lost and (before == self._known).all():
                    previous = imputation.readings[before]
                    self.offset.store_tick(expectation, previous, signals, self.noise.sd)
        if self._ordered and not assignment.lost:
            assignment = assignment.copy_with_signals_under_own_ids()
        may_follow = not assignment.lost or self.fit.limits is None
        assignment = assignment.copy_with_outputs_updated_from_slots(
            self._search.is_verifying_move and may_follow
        )
        self._stable_ticks = self._stable_ticks + 1 if assignment.slots is before else 0
        signals = self._search.blend_readings_of_likely_slots(assignment, readings)
        if expectation is None or not self.noise.sd or assignment.lost:
            given = imputation.store_and_impute_tick(
                readings, tick.action, assignment, signals, likeliest
            )
            return assignment, given
        signals = self._filter_noise(signals, expectation)
        filtered = assignment.arrange_by_slot(signals)
        given = imputation.store_and_impute_tick(
            filtered, tick.action, assignment, signals, likeliest
        )
        imputation.store_unfiltered_readings(readings)
        return assignment, given

    def _update_assignment(
        self,
        assignment: Assignment,
        readings: np.ndarray,
        previous_readings: np.ndarray,
        expectation: ExpectedReadings,
    ) -> Assignment:
        """Return the assignment after comparing this tick's readings with the expected ones.

        Args:
            assignment: The assignment so far (which input slot feeds which channel).
            readings: (N,) by input slot.
            previous_readings: (N,) by input slot, the readings of the tick before.
            expectation: The signals that were expected in this tick.
        """
        detector, search, prediction = self._detector, self._search, expectation.prediction
        known, new = not assignment.lost, search.count_tick_and_check_if_assignment_is_new()
        costs, reads = np.zeros((len(readings), len(readings))), readings[None]
        self._costs.add_tick_costs_to_matrix(
            costs, reads, expectation.expected[None], reads, prediction
        )
        move = detector.detect_move(costs, prediction, assignment, assignment_is_new=new)
        if move is not None:
            assignment = assignment.copy_with_signals_under_own_ids() if known else assignment
            self.noise.discard_recorded_readings()
            assignment = assignment._replace(detected=True)
            found = search.start_verifying_move(assignment, move, expectation)
            if found.slots is assignment.slots:
                self.fit.update_fit_from_excess_nll(detector.excess, assignment_known=known)
            return found
        self.fit.update_fit_from_excess_nll(detector.excess, assignment_known=known)
        found = search.update_assignment(
            assignment,
            TickRecord(
                replace_missing_readings_by_zero(previous_readings),
                expectation.action,
                readings - previous_readings,
                readings,
            ),
            prediction,
            readings_unexplained=detector.excess_nll > detector.max_excess_nll,
            readings_surprising=detector.is_excess_high,
        )
        if search.phase is SearchPhase.SEEK and found is not assignment:
            detector.restart_with_excess(0.0)
        return self._mark_assignment_known_if_sure(found)

    def _mark_assignment_known_if_sure(self, assignment: Assignment) -> Assignment:
        """Return the assignment, marked as known if it was lost and is now sure to be right."""
        detector, search, settings = self._detector, self._search, MONITOR.trust
        consistent = assignment.lost and detector.consistent >= settings.consistent_ticks
        sure = consistent and search.compute_min_swap_cost(assignment) > settings.sure
        if sure and search.does_evidence_support_change(assignment, self._known):
            detector.excess_nll = 0.0
            search.confirm_initial_assignment()
            self.fit.restart_mean_excess_costs()
            assignment = assignment._replace(lost=False)
        if not assignment.lost and not search.is_verifying_move:
            self._known = assignment.slots
        return assignment

    def _estimate_from_incomplete_tick(
        self, tick: MonitorTick, assignment: Assignment
    ) -> tuple[Assignment, PolicyInput]:
        """Process a tick with missing slots that only `PartialAssignmentSearch` can handle.

        Args:
            tick: The readings and the action before them.
            assignment: Which input slot feeds which channel, as estimated so far.

        Returns:
            The new assignment, and the signals (N,) for the policy.
        """
        imputation, partial, slots = self._imputation, self._partial, assignment.slots
        readings, continuation = tick.readings, None
        if self._forward.imputes:
            self.noise.update_noise_estimate_and_check_onset(readings)
            self._copy_noise_estimate_to_costs()
        if tick.evidence:
            if partial.explained:
                continuation = imputation.compare_with_expected_readings(
                    readings, tick.action, assignment
                )
            assignment = partial.update_assignment(readings, tick.action, assignment, continuation)
        else:
            partial.exclude_tick_from_search()
        assignment = self._mark_assignment_lost(assignment)
        if assignment.detected:
            imputation.forget_ticks_before_move()
            self.noise.discard_recorded_readings()
        if self._ordered and partial.explained:
            assignment = assignment._replace(outputs=assignment.slots)
        if assignment.slots is not slots:
            imputation.reestimate_missing_signals(assignment)
        elif continuation is not None:
            self.delay.store_tick_for_trying_delays(continuation.expectation, readings[slots])
            if self.noise.sd:
                signals = self._filter_noise(readings[slots], continuation.expectation)
                readings = assignment.arrange_by_slot(signals)
        given = imputation.store_and_impute_incomplete_tick(
            readings, tick.action, assignment, readings_explained=partial.explained
        )
        return assignment, given

    def _estimate_from_tick_without_evidence(
        self, tick: MonitorTick, assignment: Assignment
    ) -> tuple[Assignment, PolicyInput]:
        """Process a tick whose readings do not follow from the last action.

        Such a tick is not evidence of rewiring.

        Args:
            tick: The readings and the action before them.
            assignment: Which input slot feeds which channel; it does not change.

        Returns:
            The same assignment, and the signals (N,) for the policy.
        """
        self._partial.suspend()
        return assignment, self._imputation.store_tick_without_evidence(tick.readings, assignment)

    def _can_replace_repeated_message(self, assignment: Assignment) -> bool:
        """Return whether this tick's readings repeat those of the last tick and can be replaced.

        They can be replaced by the expected readings if the assignment is known.

        Args:
            assignment: Which input slot feeds which channel, as estimated so far.
        """
        compared = self._sensors.is_repeated_message and self._imputation.readings is not None
        return compared and not assignment.lost

    def _replace_repeated_message(
        self, tick: MonitorTick, assignment: Assignment
    ) -> tuple[Assignment, PolicyInput]:
        """Process a tick whose readings repeat those of the last tick, as if a message came twice.

        The expected readings are used instead.

        Args:
            tick: The readings and the action before them.
            assignment: Which input slot feeds which channel; it does not change.

        Returns:
            The same assignment, and the signals (N,) for the policy.
        """
        self._partial.suspend()
        assert self._imputation.signals is not None
        likeliest = self._get_expected_readings(self._imputation.signals, tick.action).likeliest
        return assignment, self._imputation.store_expected_signals(likeliest, assignment)

    def _pass_readings_unchanged(
        self, tick: MonitorTick, assignment: Assignment
    ) -> tuple[Assignment, PolicyInput]:
        """Process a tick of a robot that the model does not fit, and check whether it fits now.

        Args:
            tick: The readings and the action before them.
            assignment: Which input slot feeds which channel, as estimated so far.

        Returns:
            The new assignment, and the readings (N,) for the policy as they are wired.
        """
        imputation, readings, slots = self._imputation, tick.corrected, assignment.slots
        before, signals = imputation.readings, imputation.signals
        if self._forward.imputes:
            self.noise.update_noise_estimate_and_check_onset(readings)
            self._copy_noise_estimate_to_costs()
        complete = tick.evidence and not np.isnan(readings).any()
        if complete and before is not None and signals is not None:
            expectation = self._get_expected_readings(signals, tick.action)
            prediction, reads = expectation.prediction, readings[slots]
            self.offset.store_tick(expectation, before[slots], reads, self.noise.sd)
            excess = self._costs.compute_excess_costs_by_channel(reads - signals, reads, prediction)
            self.fit.update_fit_from_excess_nll(
                float((excess - self._costs.compute_costs_added_by_noise(prediction)).sum()),
                assignment_known=False,
            )
            record = TickRecord(before, tick.action, readings - before, readings)
            assignment = self._search.reconsider_assignment(assignment, record)
            if assignment.slots is not slots:
                self.fit.restart_mean_excess_costs()
                self.offset.reset()
        imputation.store_tick_of_pass_through_mode(readings, assignment)
        return assignment, tick.as_read[assignment.outputs]

    def _toggle_pass_through_mode(self, assignment: Assignment) -> Assignment:
        """Start or stop passing readings unchanged to the policy; return the new assignment.

        They pass unchanged while the model does not fit the robot. The new assignment is marked as
        lost.

        Args:
            assignment: Which input slot feeds which channel, as estimated so far.
        """
        self._passes = not self._passes
        self._detector.restart_with_excess(self.fit.excess)
        if self._passes:
            assignment = assignment._replace(slots=self._known)
        self._partial.suspend()
        return self._mark_assignment_lost(assignment)

    def _mark_assignment_lost(self, assignment: Assignment) -> Assignment:
        """End the verification of the assignment, and return it marked as lost.

        Lost means that it is not known to be right. If a detected move was still being verified and
        the model was validated, the policy gets its inputs from the same slots as before the move.
        `AssignmentSearch` starts again at the next complete tick.

        Args:
            assignment: Which input slot feeds which channel, as estimated so far.
        """
        if self._search.is_verifying_move and self.fit.limits is not None:
            assignment = assignment._replace(outputs=assignment.previous_outputs)
        self._search.suspend()
        self._imputation.forget_readings_of_last_tick()
        return assignment.copy_marked_as_lost()

    def _revert_assignment_if_noise_begins(
        self, assignment: Assignment, readings: np.ndarray
    ) -> Assignment:
        """Update the estimate of the sensor noise; return the assignment to use from now on.

        Usually this is the given assignment. But if noise has just set in, a rewiring that was
        detected shortly before may have been only the noise. The result is then the last settled
        assignment (the last one that stayed for long enough to count as right), marked as lost.

        Args:
            assignment: Which input slot feeds which channel, as estimated so far.
            readings: (N,) by input slot.
        """
        if not self._forward.imputes:
            return assignment
        if self._stable_ticks >= MONITOR.trust.settled_ticks and not assignment.lost:
            self._settled = assignment
        if not self._imputation.missing_ticks and self.noise.update_noise_estimate_and_check_onset(
            readings
        ):
            assignment = self._mark_assignment_lost(assignment.copy_with_slots(self._settled.slots))
        self._copy_noise_estimate_to_costs()
        return assignment

    def _copy_noise_estimate_to_costs(self) -> None:
        """Use the estimated sensor noise in the computation of all costs from now on."""
        if self._costs.noise_sd != self.noise.sd:
            self._costs.noise_sd = self.noise.sd

    def _filter_noise(self, signals: np.ndarray, expectation: ExpectedReadings) -> np.ndarray:
        """Return the signals (N,) by channel after filtering the sensor noise out of them.

        Args:
            signals: (N,) the noisy signals by channel.
            expectation: The signals that were expected in this tick.
        """
        return self.noise.filter_noise(
            expectation.likeliest, expectation.prediction.scale[0], signals
        )

    def _get_expected_readings(self, signals: np.ndarray, action: np.ndarray) -> ExpectedReadings:
        """Return the readings that are expected in the tick after the given signals and action.

        If `prepare_next_tick` has computed them already, they are not computed again.

        Args:
            signals: (N,) the signals by channel.
            action: (A,) the action that follows them.
        """
        if self._ahead is not None and self._ahead.is_computed_from(signals, action):
            return self._ahead
        return self._forward.compute_expected_readings(signals, action)

    def _predict_undelayed_signals(self, delayed: np.ndarray) -> PolicyInput:
        """Return the present signals (N,) for the policy, which are predicted from delayed ones.

        If the last tick's signals are not all known, the delayed signals are returned.

        Args:
            delayed: (N,) the delayed signals for the policy, NaN where missing.
        """
        signals, assignment = self._imputation.signals, self.assignment
        if signals is None or np.isnan(signals).any():
            return delayed
        ahead = self.delay.predict_undelayed_signals(signals)[
            assignment.channel_by_slot[assignment.outputs]
        ]
        return np.where(np.isnan(delayed), delayed, ahead)

    def _has_new_stuck_sensor(
        self,
        assignment: Assignment,
        readings: np.ndarray,
        previous_readings: np.ndarray,
        prediction: ChangePrediction,
    ) -> bool:
        """Return whether a sensor is newly found to be stuck.

        A sensor is stuck if its reading stays the same while its channel should change. Its channel
        follows from the last settled assignment (the last one that stayed for long enough to count
        as right). If the present assignment explains the changing readings much better, it is used
        instead.

        Args:
            assignment: The present assignment (which input slot feeds which channel).
            readings: (N,) by input slot.
            previous_readings: (N,) by input slot, the readings of the tick before.
            prediction: The prediction for this tick.
        """
        judged = self._settled
        if not self._sensors.has_repeated_reading(judged.slots[self._should_move]):
            return False
        excess = self._compute_excess_costs_by_slot(
            judged.slots, readings, previous_readings, prediction
        )
        if assignment.slots is not judged.slots and not assignment.lost:
            present = self._compute_excess_costs_by_slot(
                assignment.slots, readings, previous_readings, prediction
            )
            moving = ~self._sensors.mask_of_unchanged_readings
            if float((excess - present)[moving].sum()) > MONITOR.stuck.better:
                judged, excess = assignment, present
        if judged.slots is not self._judged.slots:
            self._sensors.restart_unchanged_tick_counts(
                self._judged.channel_by_slot != judged.channel_by_slot
            )
            self._judged = judged
        return self._sensors.update_stuck_slots_and_check_new(
            excess, judged.slots[self._may_stand_still]
        )

    def _compute_excess_costs_by_slot(
        self,
        slots: np.ndarray,
        readings: np.ndarray,
        previous_readings: np.ndarray,
        prediction: ChangePrediction,
    ) -> np.ndarray:
        """Return how far each slot's cost (N,) is above its channel's usual cost, in nats.

        It is 0 for the slots of binary and constant channels.

        Args:
            slots: (N,) the slot that is assumed to feed each channel.
            readings: (N,) by input slot.
            previous_readings: (N,) by input slot, the readings of the tick before.
            prediction: The prediction for this tick.
        """
        excess = np.empty(len(slots))
        excess[slots] = self._costs.compute_excess_costs_by_channel(
            (readings - previous_readings)[slots], readings[slots], prediction
        )
        excess[slots[self._may_stand_still]] = 0.0  # as two of these may have been confused
        return excess

    def _exclude_stuck_slots(
        self, assignment: Assignment, readings: np.ndarray
    ) -> tuple[Assignment, PolicyInput]:
        """Return the assignment to use now that sensors are stuck, and the policy's input (N,).

        It is the assignment under which the sensors were found to be stuck, marked as lost. The
        present one is not used, because a rewiring that was detected recently may have been only
        the effect of the stuck sensors. The policy's input is NaN for stuck slots.

        Args:
            assignment: The present assignment (which input slot feeds which channel).
            readings: (N,) by input slot.
        """
        assignment = self._mark_assignment_lost(assignment.copy_with_slots(self._judged.slots))
        self._imputation.forget_signals()
        self._partial.restart_with_known_assignment()
        left = np.where(self._sensors.stuck, np.float32(np.nan), readings)
        return assignment, left[assignment.outputs]

    @property
    def slot_by_channel(self) -> np.ndarray:
        """The estimated input slot (N,) of each channel, or the last known one if none is known."""
        return self._known if self.is_assignment_lost else self.assignment.slots

    @property
    def channel_by_rewired_slot(self) -> dict[str, str]:
        """The rewired input slots: a mapping from a slot's id to the id of the channel it feeds.

        A slot has the id of the channel that it was wired to.
        """
        slots = self.slot_by_channel
        if slots is not self._shown[0]:
            names, pairs = self.channels, sorted(zip(slots.tolist(), self.channels, strict=True))
            self._shown = slots, {names[s]: name for s, name in pairs if names[s] != name}
        return self._shown[1]

    @property
    def misfit_description(self) -> str:
        """A message on how the robot differs from the one that the model knows; "" if it fits."""
        fit = self.fit
        if fit.model_fits_robot is not False:
            return ""
        if len(fit.slow):
            slow = [self.channels[slot] for slot in fit.slow]
            more = ", ..." if len(slow) > SHOWN else ""
            return f"the sensors of {', '.join(slow[:SHOWN])}{more} are slower than the policy"
        most = fit.limits.max_excess if fit.limits is not None else 0.0
        return (
            f"the excess NLL of the readings is {fit.excess:.0f} nats a tick; at most {most:.0f} is"
            " accepted"
        )

    @property
    def is_assignment_lost(self) -> bool:
        """Whether it is unknown which input slot feeds which channel.

        It counts as known if it is known for all slots that have a reading.
        """
        known = self._imputation.missing_ticks > 0 and self._partial.is_assignment_known
        return self.assignment.lost and not (known and self.fit.model_fits_robot is not False)

    @property
    def identified_channel_mask(self) -> np.ndarray:
        """The mask (N,) of the channels whose input slot is known: True for these channels.

        All are False while the estimate is not known to be right, or while readings are missing.
        Otherwise all are True if the estimate has not changed for some ticks, or if no rewiring was
        detected since it was found to be right. Shortly after a detected rewiring, a channel is
        True only if exchanging its slot with any other would make the readings much less likely.
        """
        assignment, settings = self.assignment, MONITOR.trust
        if assignment.lost or self._imputation.missing_ticks:
            return self._none
        settled = assignment.pinned or self._stable_ticks >= settings.settled_ticks
        if settled and not self._search.is_verifying_move:
            return self._all
        return self._search.compute_sure_channel_mask(assignment, settings.sure)

    @property
    def detected_move_count(self) -> int:
        """The number of detected rewirings and corrections of the estimate since the last reset."""
        return self._search.rewires + self._partial.rewires

    @property
    def mean_excess_nll(self) -> float:
        """How far the readings' negative log-likelihood is above its usual value.

        It is a running mean in nats a tick.
        """
        return self._detector.excess_nll
