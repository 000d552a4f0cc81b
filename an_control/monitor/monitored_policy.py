"""A policy behind an identity monitor, which detects sensors that were rewired.

With the setting "match", the policy gets every sensor's signal under the signal's own channel id,
whichever slot the signal arrives at, and without the sensor's constant offset. With the setting
"reset", the policy gets the readings as they are wired, and the state of channels whose signal
moved is reset. Channels with ids that the task does not know pass unchanged. While nothing moves,
is delayed or has an offset, the policy gets the readings unchanged, to the last bit.

With the setting "match", the monitor's assignment also counts as evidence in the attention of a
policy that keeps such evidence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import compress

import numpy as np

from an_control.monitor.assignment import Assignment
from an_control.monitor.monitor import IdentityMonitor
from an_control.monitor.settings import MONITOR
from an_control.policy.exact_sums import MAX_READING
from an_control.policy.interface import (
    ChannelState,
    MonitorReport,
    Policy,
    WrappingPolicy,
    check_and_convert_readings,
    check_unique_ids,
)
from an_control.policy.sizes import Monitor


class MonitoredPolicy(WrappingPolicy):
    """A wrapper of a policy, which detects rewired sensors by a monitor and reacts to them.

    Args:
        policy: The wrapped policy, for scalar channels.
        monitor: The monitor, which estimates which input slot feeds which channel.
        setting: The reaction if a sensor's signal moves to another slot. "match" gives the signal
            to the policy under its own channel id. "reset" resets the policy's state for the
            channels that are wired to the slots concerned.
    """

    def __init__(self, policy: Policy, monitor: IdentityMonitor, setting: Monitor) -> None:
        super().__init__(policy)
        self.monitor, self.setting = monitor, setting
        self._state = policy.channel_state
        self._slot = {name: slot for slot, name in enumerate(self.nominal_ids)}
        self._ids: tuple[str, ...] | None = None
        self.reset()

    def reset(self) -> None:
        """Start an episode with the assumption that each input slot feeds its own channel."""
        self.policy.reset()
        self.monitor.reset()
        self._action = np.zeros(self.model.sizes.actions, np.float32)
        self._saved: dict[str, np.ndarray] = {}
        """The state of each channel's neuron just before signals may have moved."""
        self._since: deque[tuple[np.ndarray, np.ndarray]] = deque(
            maxlen=MONITOR.neuron_state.replay_ticks
        )
        """A pair for each tick since `_saved` was set: the readings (N,) by slot, and the action
        (A,) before them."""
        self._evidence = True
        self._known: tuple[Assignment | None, np.ndarray] = None, np.zeros(0, np.int64)
        """A pair: the last tick's assignment, and for each id the index (N,) of the channel whose
        signal it gets."""

    def start_episode_with_assumed_slots(self, slots: np.ndarray) -> None:
        """Start an episode with an assumption about which input slot feeds which channel.

        Args:
            slots: (N,) the input slot that is assumed to feed each channel.
        """
        self.reset()
        self.monitor.start_episode_with_assumed_slots(slots)

    def ignore_next_readings_for_wiring(self) -> None:
        """Do not draw conclusions about the wiring from the next tick's readings.

        Call it if the command that was sent corresponds to no action in [-1, 1], because the
        monitor then cannot predict these readings.
        """
        self._evidence = False

    def restart_monitor(self) -> None:
        """Restart the monitor, but keep its estimate of which input slot feeds which channel.

        Call it when the scaling of the readings changes. The policy keeps its state.
        """
        slots = self.monitor.slot_by_channel
        if (slots == np.arange(len(slots))).all():
            self.monitor.reset()
        else:
            self.monitor.start_episode_with_assumed_slots(slots)
        self._saved.clear()
        self._since.clear()

    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Compute one tick and return the action (A,) float32 in [-1, 1].

        Args:
            values: (N,) the readings.
            ids: (N,) the channel id of each reading.

        Raises:
            ValueError: The readings are not valid, as in `Policy.step_array`.
            TypeError: The values are not real numbers.
        """
        values = check_and_convert_readings(values, len(ids))
        before = self.monitor.assignment
        readings = self.arrange_by_slot(values, ids)
        signals = self.monitor.step(readings, self._action, readings_follow_action=self._evidence)
        assignment, self._evidence = self.monitor.assignment, True
        if self.setting == "match":
            if self._state is not None:
                self._move_neuron_states(self._state, before, assignment)
                self._since.append((readings, self._action))
                self._increase_evidence_for_identified_channels(self._state, assignment)
            values, ids = self._select_policy_readings(signals, values)
        else:
            self._reset_states_of_slots_with_new_signals(before.slots, assignment.slots)
        self._action = self.policy.step_array(values, ids)
        return self._action.copy()

    def prepare_next_tick(self) -> None:
        """Compute in advance what the next tick needs besides its readings.

        Call it after the command was sent, to save time when the readings arrive.
        """
        self.monitor.prepare_next_tick(self._action)

    def arrange_by_slot(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Return the readings (N,) in the order of input slots, NaN where missing or invalid.

        Args:
            values: The readings in the order of `ids`, from `check_and_convert_readings`.
            ids: The channel id of each reading.

        Raises:
            ValueError: An id occurs twice.
        """
        if ids is not self._ids:
            self._store_slots_of_ids(check_unique_ids(ids))
        own = values if self._nominal else values[self._from]
        if not np.vdot(own, own) <= MAX_READING:  # rare, and the next line is slow
            own = np.where(np.abs(own) <= MAX_READING, own, np.nan)
        if self._nominal:
            return own.astype(np.float32)
        readings = np.full(len(self.nominal_ids), np.nan, np.float32)
        readings[self._to] = own
        return readings

    def _store_slots_of_ids(self, ids: tuple[str, ...]) -> None:
        """Store the input slot of each given channel id, for all ticks until other ids are given.

        Args:
            ids: The channel ids of a tick's readings, in the order of the readings.
        """
        known = [name in self._slot for name in ids]
        self._from = np.flatnonzero(known)
        self._to = np.array([self._slot[name] for name in compress(ids, known)], np.int64)
        self._unknown = np.flatnonzero(~np.array(known, bool))
        self._unknown_ids = tuple(ids[place] for place in self._unknown)
        self._given = self.nominal_ids + self._unknown_ids
        self._nominal = ids == self.nominal_ids
        self._ids = ids

    def _select_policy_readings(
        self, signals: np.ndarray, values: np.ndarray
    ) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return the readings for the inner policy, and their channel ids.

        The monitor's signals that are not missing come first, then the readings of the channels
        that the task does not name.

        Args:
            signals: (N,) the monitor's signals by channel, NaN where missing.
            values: All readings of the tick, of which those with unknown ids are passed on.
        """
        given, ids = signals, self._given
        missing = np.isnan(signals)
        if missing.any():
            present = ~missing
            given = signals[present]
            ids = tuple(compress(self.nominal_ids, present.tolist())) + self._unknown_ids
        if len(self._unknown):
            given = np.concatenate([given, values[self._unknown].astype(np.float32)])
        return given, ids

    def _move_neuron_states(
        self, state: ChannelState, previous_assignment: Assignment, assignment: Assignment
    ) -> None:
        """Rename or recompute neuron states, so that each channel has the state of its signal.

        If only ids have changed, the states are renamed. If a channel gets another slot's signal
        than before, its state is recomputed: the computation starts from the state before the move
        and uses the readings that have arrived at the right slot since then. Otherwise wrong
        signals would have a lasting effect: a walker would still stand after the monitor has found
        its channels again.

        Args:
            state: The states of the policy's neurons, by channel id.
            previous_assignment: The assignment before this tick (which input slot feeds which
                channel).
            assignment: The assignment after this tick.
        """
        outputs = previous_assignment.outputs
        if assignment.renames is not None:
            self._move_states_to_new_ids(state, *assignment.renames)
            outputs = assignment.renames[1]
        if assignment.detected:
            self._saved = state.save_state()
            self._since.clear()
        elif assignment.outputs is not outputs:
            self._recompute_states_of_corrected_channels(
                state, np.flatnonzero(assignment.outputs != outputs), assignment
            )

    def _increase_evidence_for_identified_channels(
        self, state: ChannelState, assignment: Assignment
    ) -> None:
        """Increase the attention's evidence for the channels that the monitor has identified.

        The attention of some policies holds evidence, in nats, about which channel's signal each
        neuron gets. Where the monitor knows the channel and the evidence for it is below a fixed
        value, it is set to this value.

        Args:
            state: The states of the policy's neurons, by channel id.
            assignment: Which input slot feeds which channel.
        """
        if assignment is not self._known[0]:
            self._known = assignment, assignment.channel_by_slot[assignment.outputs]
        ids, channels = self.nominal_ids, self._known[1]
        known = self.monitor.identified_channel_mask[channels]
        if not known.all():
            ids, channels = tuple(compress(ids, known.tolist())), channels[known]
        if len(ids):
            state.increase_identity_evidence(ids, channels, MONITOR.neuron_state.identified)

    def _recompute_states_of_corrected_channels(
        self, state: ChannelState, corrected_channels: np.ndarray, assignment: Assignment
    ) -> None:
        """Recompute the states of some channels' neurons from the readings of the right slots.

        The computation starts with the states from before the move, and repeats the ticks since
        then.

        Args:
            state: The states of the policy's neurons, by channel id.
            corrected_channels: (C,) the indices of the channels that now get another slot's signal.
            assignment: The corrected assignment.
        """
        names = self.nominal_ids
        again = corrected_channels[
            [names[channel] in self._saved for channel in corrected_channels]
        ]
        if not len(again):
            return
        state.restore_state({names[channel]: self._saved[names[channel]] for channel in again})
        for readings, action in self._since:
            values = self.monitor.correct_readings(readings)[assignment.outputs[again]]
            there = np.flatnonzero(~np.isnan(values))
            state.advance_channel_states([names[c] for c in again[there]], values[there], action)

    def _move_states_to_new_ids(
        self, state: ChannelState, previous_slots: np.ndarray, new_slots: np.ndarray
    ) -> None:
        """Move each signal's neuron state to the channel id under which the policy now gets it.

        Args:
            state: The states of the policy's neurons, by channel id.
            previous_slots: (N,) the input slot whose signal the policy got so far under each id.
            new_slots: (N,) the input slot whose signal it gets from now on under each id.
        """
        if (new_slots == previous_slots).all():
            return
        old, new = np.argsort(previous_slots), np.argsort(new_slots)  # the channel of each slot
        names = self.nominal_ids
        new_names = {names[a]: names[b] for a, b in zip(old, new, strict=True)}
        state.rename_channels(new_names)
        self._saved = {new_names.get(one, one): saved for one, saved in self._saved.items()}

    def _reset_states_of_slots_with_new_signals(
        self, previous_slots: np.ndarray, new_slots: np.ndarray
    ) -> None:
        """Reset the neuron state of each channel id whose slot now carries another signal.

        Args:
            previous_slots: (N,) the input slot that fed each channel before this tick.
            new_slots: (N,) the input slot that feeds each channel now.
        """
        if self._state is not None and new_slots is not previous_slots:
            moved = new_slots[new_slots != previous_slots]
            self._state.reset_channels([self.nominal_ids[slot] for slot in moved])

    def _set_previous_action(self, action: np.ndarray) -> None:
        """Take another action (A,) as the previous one, because the robot got it."""
        self.policy.previous_action = action
        self._action = np.array(action, np.float32)

    @property
    def monitor_report(self) -> MonitorReport:
        """The present findings of the monitor, which detects rewired sensors."""
        monitor = self.monitor
        return MonitorReport(
            self.setting,
            monitor.is_assignment_lost,
            monitor.channel_by_rewired_slot,
            monitor.detected_move_count,
            monitor.mean_excess_nll,
            monitor.delay.ticks,
            monitor.misfit_description,
            {} if monitor.misfit_description else monitor.offset.offset_by_channel,
        )
