"""A policy whose readings pass an identity monitor first: readings in, readings out.

Set to "match", the policy gets every content under its own id, wherever it is wired; set to
"reset", it gets the readings as they are wired and clears the neurons whose content moved. Ids
that the task does not know pass by. While nothing moves, the policy gets the readings as they are,
bit for bit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import compress

import numpy as np

from an_control.policy.exact import MAX_READING
from an_control.policy.monitor.monitor import IdentityMonitor
from an_control.policy.protocol import ChannelState, MonitorReport, Policy
from an_control.policy.sizes import Monitor


class MonitoredPolicy(Policy):
    """The same calls as the policy itself.

    Args:
        policy: acts on numbers.
        monitor: says which slot shows which content.
        setting: what follows from that, "match" or "reset".
    """

    def __init__(self, policy: Policy, monitor: IdentityMonitor, setting: Monitor) -> None:
        self.policy, self.monitor, self.setting = policy, monitor, setting
        self.model, self.engine, self.nominal_ids = policy.model, policy.engine, policy.nominal_ids
        self.permutation_invariant = policy.permutation_invariant
        self._state = policy.channel_state
        self._slot = {name: slot for slot, name in enumerate(self.nominal_ids)}
        self._ids: tuple[str, ...] | None = None
        self.reset()

    def reset(self) -> None:
        """Start an episode: in the nominal wiring, with nothing remembered."""
        self.policy.reset()
        self.monitor.reset()
        self._action = np.zeros(self.model.sizes.actions, np.float32)
        self._remembered: dict[str, np.ndarray] = {}
        self._evidence = True

    def ignore_next_tick(self) -> None:
        """What was sent is no action that the forward model knows: the next tick is no evidence."""
        self._evidence = False

    def step(self, readings: Mapping[str, float]) -> np.ndarray:
        """One tick on ``{channel id: value}``; returns the action (A,) float32 in [-1, 1]."""
        values = np.fromiter(readings.values(), np.float64, len(readings))
        return self.step_array(values, tuple(readings))

    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """One tick on `values` (N,) of the channels `ids` (N,); errors as the policy's."""
        values = np.asarray(values)
        if values.shape != (len(ids),):
            raise ValueError(f"values of shape {values.shape} for {len(ids)} ids")
        if ids is not self._ids:
            self._arrange(tuple(ids))
        monitor = self.monitor
        slots, shown = monitor.slots, monitor.shown
        readings = self._by_slot(values)
        contents = monitor.look(readings, self._action, evidence=self._evidence)
        self._evidence = True
        if self.setting == "match":
            if monitor.renames is not None:
                self._carry(*monitor.renames)
                shown = monitor.renames[1]
            self._recall(shown)
            action = self._act(contents, values)
        else:
            self._forget(slots, monitor.slots)
            action = self.policy.step_array(values, ids)
        self._action = action
        return action

    def prepare(self) -> None:
        """Work ahead for the next tick, see `Policy`."""
        self.monitor.look_ahead(self._action)

    def _arrange(self, ids: tuple[str, ...]) -> None:
        """Note, for as long as the same ids come, which reading belongs where."""
        if len(set(ids)) != len(ids):
            twice = next(name for name in ids if ids.count(name) > 1)
            raise ValueError(f"channel id {twice!r} is given twice")
        known = [name in self._slot for name in ids]
        self._from = np.flatnonzero(known)
        self._to = np.array([self._slot[name] for name in compress(ids, known)], np.int64)
        self._foreign = np.flatnonzero(~np.array(known, bool))
        self._foreign_ids = tuple(ids[place] for place in self._foreign)
        self._given = self.nominal_ids + self._foreign_ids
        self._nominal = ids == self.nominal_ids
        self._ids = ids

    def _by_slot(self, values: np.ndarray) -> np.ndarray:
        own = values if self._nominal else values[self._from]
        within = np.abs(own) <= MAX_READING
        if not within.all():
            own = np.where(within, own, np.nan)
        if self._nominal:
            return own.astype(np.float32)
        readings = np.full(len(self.nominal_ids), np.nan, np.float32)
        readings[self._to] = own
        return readings

    def _act(self, contents: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The policy's action on what there is of the contents, and on what is unknown."""
        given, ids = contents, self._given
        absent = np.isnan(contents)
        if absent.any():
            present = ~absent
            given = contents[present]
            ids = tuple(compress(self.nominal_ids, present.tolist())) + self._foreign_ids
        if len(self._foreign):
            given = np.concatenate([given, values[self._foreign].astype(np.float32)])
        return self.policy.step_array(given, ids)

    def _carry(self, before: np.ndarray, now: np.ndarray) -> None:
        """Contents go on under their own ids, as now it is known which these are."""
        if (now != before).any():
            old, new = np.argsort(before), np.argsort(now)  # the channel of each slot
            names = self.nominal_ids
            new_names = {names[a]: names[b] for a, b in zip(old, new, strict=True)}
            if self._state is not None:
                self._state.rename_channels(new_names)
            self._remembered = {
                new_names.get(one, one): kept for one, kept in self._remembered.items()
            }

    def _recall(self, before: np.ndarray) -> None:
        """Neurons that were shown something else by mistake go on from before it.

        What such a neuron makes of a wrong content lasts: a walker that has found its channels
        again would still stand.
        """
        if self._state is None:
            return
        monitor = self.monitor
        if monitor.noticed:
            if monitor.settled or not self._remembered:
                self._remembered = self._state.save_state()
        elif monitor.shown is not before:
            wrong = np.flatnonzero(monitor.shown != before)
            names = [self.nominal_ids[place] for place in wrong]
            known = {name: self._remembered[name] for name in names if name in self._remembered}
            self._state.restore_state(known)

    def _forget(self, before: np.ndarray, now: np.ndarray) -> None:
        if self._state is not None and now is not before:
            moved = now[now != before]
            self._state.reset_channels([self.nominal_ids[slot] for slot in moved])

    @property
    def previous_action(self) -> np.ndarray:
        """The previous action (A,) in [-1, 1]; set it where something else was sent."""
        return self._action.copy()

    @previous_action.setter
    def previous_action(self, action: np.ndarray) -> None:
        self.policy.previous_action = action
        self._action = action.copy()

    @property
    def attention(self) -> np.ndarray | None:
        """The policy's attention (M, N), columns in `channel_order`; None where it has none."""
        return self.policy.attention

    @property
    def keys(self) -> np.ndarray | None:
        """The policy's keys (N, k), rows in `channel_order`; None where it has none."""
        return self.policy.keys

    @property
    def channel_state(self) -> ChannelState | None:
        """The policy's own."""
        return self._state

    @property
    def monitor_report(self) -> MonitorReport:
        """What the monitor found by now."""
        monitor = self.monitor
        return MonitorReport(
            self.setting, monitor.lost, monitor.belief, monitor.rewires, monitor.surprise
        )

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The ids of the last step's channels; set to "match", of contents."""
        return self.policy.channel_order
