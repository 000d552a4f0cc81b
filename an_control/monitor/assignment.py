"""The assignment: the monitor's estimate of which input slot feeds which channel.

A slot is a position at which a sensor's readings arrive; a channel is a named input of the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Assignment(NamedTuple):
    """An immutable estimate of which input slot feeds which channel.

    A slot is a position at which a sensor's readings arrive, a channel is a named input of the
    model; there are N of each. ``slots[k]`` is the slot that is estimated to feed channel k.
    ``outputs[k]`` is the slot whose readings the policy gets under the id of channel k.

    At first `outputs` is pinned: each id keeps the sensor that was first wired to it, even if this
    is the wrong one. This suits a permutation-invariant policy, because corrections of `slots` do
    not disturb it. If a rewiring is detected while `slots` is known to be right, `outputs` is
    unpinned, which makes it equal to `slots`. The same happens if the policy needs its channels in
    order.
    """

    slots: np.ndarray
    """(N,) the slot that feeds each channel."""
    outputs: np.ndarray
    """(N,) the slot whose signal is given to the policy under each channel's id."""
    previous: np.ndarray
    """(N,) the slots before the detected rewiring that is now being verified."""
    previous_outputs: np.ndarray
    """(N,) the value of `outputs` before that rewiring."""
    pinned: bool = True
    """Whether each channel id keeps the sensor that it was first wired to."""
    lost: bool = True
    """Whether no assignment is known to be right."""
    detected: bool = False
    """Whether a rewiring may have happened just before this tick."""
    renames: tuple[np.ndarray, np.ndarray] | None = None
    """A pair: the value of `outputs` before this tick, and from this tick on; None unless ids
    changed although no signal moved."""

    @classmethod
    def make_nominal(cls, channel_count: int) -> Assignment:
        """Return the assignment in which input slot i feeds channel i.

        Args:
            channel_count: The number of slots and of channels.
        """
        slots = np.arange(channel_count)
        return cls(slots, slots, slots, slots)

    @property
    def channel_by_slot(self) -> np.ndarray:
        """Index (N,) of the channel that each input slot feeds."""
        return np.argsort(self.slots)

    def copy_without_tick_events(self) -> Assignment:
        """Return a copy for the next tick, without the marks of what happened in the last tick.

        In the copy `detected` is False (no rewiring is detected) and `renames` is None (no channel
        id changes). Everything else is unchanged.
        """
        if not self.detected and self.renames is None:
            return self
        return self._replace(detected=False, renames=None)

    def copy_marked_as_lost(self) -> Assignment:
        """Return a copy that is marked as lost, which means that it is not known to be right.

        Until a rewiring is detected, the policy gets the readings of the same slots as now, even if
        `slots` (the slot that is estimated to feed each channel) is corrected.
        """
        if self.lost and self.pinned and self.renames is None and self.previous is self.slots:
            return self
        return self._replace(
            previous=self.slots,
            previous_outputs=self.outputs,
            pinned=True,
            lost=True,
            renames=None,
        )

    def copy_with_signals_under_own_ids(self) -> Assignment:
        """Return a copy that is to give the policy each signal under the signal's own channel id.

        In it each update makes `outputs` (the slot that the policy gets under each id) equal to
        `slots`.
        """
        if not self.pinned:
            return self
        return self._replace(pinned=False, renames=(self.outputs, self.slots))

    def copy_with_slots(self, slots: np.ndarray) -> Assignment:
        """Return a copy in which other input slots feed the channels.

        Args:
            slots: (N,) the input slot that feeds each channel.
        """
        return self if slots is self.slots else self._replace(slots=slots)

    def copy_with_outputs_updated_from_slots(self, verifying_move: bool) -> Assignment:
        """Return a copy in which `outputs` is up to date with `slots`.

        ``outputs[k]`` is the slot whose readings the policy gets under the id of channel k. If
        `pinned` is False, ``outputs[k]`` becomes ``slots[k]``. If `pinned` is True, each id keeps
        its signal. Then ``outputs[k]`` changes only while a detected rewiring is being verified, to
        the slot to which the signal has moved.

        Args:
            verifying_move: Whether a detected rewiring is still being verified.
        """
        if not self.pinned:
            outputs = self.slots
        elif verifying_move:
            outputs = self.slots[np.argsort(self.previous)[self.previous_outputs]]
        else:
            return self
        return self if outputs is self.outputs else self._replace(outputs=outputs)

    def arrange_by_slot(self, values_by_channel: np.ndarray) -> np.ndarray:
        """Return values reordered from the order of channels to the order of input slots.

        Args:
            values_by_channel: (N,) one value for each channel, in the order of channels.

        Returns:
            (N,) at each slot's index, the value of the channel that the slot feeds.
        """
        values_by_slot = np.empty_like(values_by_channel)
        values_by_slot[self.slots] = values_by_channel
        return values_by_slot
