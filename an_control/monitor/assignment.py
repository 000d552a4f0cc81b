"""The assignment: the monitor's estimate of which input slot feeds which channel.

A slot is a position at which a sensor's readings arrive; a channel is a named input of the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Assignment(NamedTuple):
    """An immutable estimate of which input slot feeds which channel.

    A slot is a position at which a sensor's readings arrive, a channel is a named input of the
    model; there are N of each. The estimate is the field `slots`. The field `outputs` says what the
    policy gets: for each channel id, the slot whose signal the policy receives under this id.

    At first `outputs` is pinned: each channel id keeps the sensor that was first wired to it, even
    if this sensor belongs to another channel. Once a rewiring is detected while `slots` is known to
    be right, `outputs` is unpinned, so that it equals `slots`. A permutation-invariant policy acts
    alike in both modes.
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

        What the policy gets does not change. From then on it is also independent of corrections of
        `slots` (the slot that feeds each channel), until a rewiring is detected.
        """
        if self.lost and self.pinned and self.renames is None and self.previous is self.slots:
            return self
        slots = self.slots
        return self._replace(
            previous=slots, previous_outputs=slots, pinned=True, lost=True, renames=None
        )

    def copy_with_unpinned_outputs(self) -> Assignment:
        """Return a copy in which the policy gets each signal under the signal's own channel id.

        From then on, the policy's inputs (`outputs`) follow every change of `slots` at once.
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

        `outputs` is the slot whose signal the policy gets under each channel id. If `pinned` is
        False, it becomes equal to `slots`. If True, it changes only while a move is being verified:
        the policy then gets the same signal as before, from the signal's new slot.

        Args:
            verifying_move: Whether a detected move of signals is still being verified.
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
