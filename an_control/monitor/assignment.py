"""The assignment: the monitor's estimate of which input slot feeds which channel.

A slot is a position at which a sensor's readings arrive; a channel is a named input of the model.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Assignment(NamedTuple):
    """An estimate of which input slot feeds which channel; immutable.

    A slot is a position at which a sensor's readings arrive, a channel is a named input of the
    model; there are N of each. Each estimator of the monitor takes an assignment and returns one.

    At first the outputs are pinned: under each channel id the policy gets the signal that first
    arrived at the slot of this id, even if the signal belongs to another channel or has moved to
    another slot. Once a rewiring is detected while the assignment is known, the outputs are
    unpinned: the policy gets each signal under the id of the channel that the signal belongs to,
    and the policy's state is renamed accordingly. A permutation-invariant policy acts alike in both
    cases.
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
    def make_nominal(cls, count: int) -> Assignment:
        """Return the assignment in which input slot i feeds channel i.

        Args:
            count: The number of slots and of channels.
        """
        slots = np.arange(count)
        return cls(slots, slots, slots, slots)

    @property
    def channels(self) -> np.ndarray:
        """Index (N,) of the channel that each input slot feeds."""
        return np.argsort(self.slots)

    def for_next_tick(self) -> Assignment:
        """Return the assignment with which the next tick starts.

        In it `detected` is False and `renames` is None, because both describe only the tick that
        has passed. Everything else is unchanged.
        """
        if not self.detected and self.renames is None:
            return self
        return self._replace(detected=False, renames=None)

    def with_lost_mark(self) -> Assignment:
        """Return a copy that is marked as lost, which means that it is not known to be right.

        The slots stay as they are. The outputs (which slot's signal the policy gets under each
        channel id) stay too, and become pinned: they do not follow `slots` again before a rewiring
        is detected.
        """
        if self.lost and self.pinned and self.renames is None and self.previous is self.slots:
            return self
        slots = self.slots
        return self._replace(
            previous=slots, previous_outputs=slots, pinned=True, lost=True, renames=None
        )

    def with_unpinned_outputs(self) -> Assignment:
        """Return a copy in which the policy gets each signal under the signal's own channel id.

        The outputs then follow `slots` at once when these change.
        """
        if not self.pinned:
            return self
        return self._replace(pinned=False, renames=(self.outputs, self.slots))

    def with_slots(self, slots: np.ndarray) -> Assignment:
        """Return a copy in which other input slots feed the channels.

        Args:
            slots: (N,) the input slot that feeds each channel.
        """
        return self if slots is self.slots else self._replace(slots=slots)

    def with_outputs_updated_from_slots(self, move_is_verified: bool) -> Assignment:
        """Return a copy in which the policy's inputs (`outputs`) follow from `slots`.

        Unpinned outputs become equal to `slots`. Pinned outputs change only while a move is
        verified: each channel id then follows its signal to the signal's new slot.

        Args:
            move_is_verified: Whether a detected move of signals is being verified.
        """
        if not self.pinned:
            outputs = self.slots
        elif move_is_verified:
            outputs = self.slots[np.argsort(self.previous)[self.previous_outputs]]
        else:
            return self
        return self if outputs is self.outputs else self._replace(outputs=outputs)

    def arrange_by_slot(self, values_by_channel: np.ndarray) -> np.ndarray:
        """Return values in the order of input slots, given in the order of channels.

        Args:
            values_by_channel: (N,) one value for each channel, in the order of channels.

        Returns:
            (N,) at each slot's index, the value of the channel that the slot feeds.
        """
        values_by_slot = np.empty_like(values_by_channel)
        values_by_slot[self.slots] = values_by_channel
        return values_by_slot
