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

    At first the ids are pinned: the policy gets each signal under the channel id of the slot at
    which the signal first arrived, which may be another channel's id, also after the signal has
    moved to another slot. Once a rewiring is detected while the assignment is known, the policy
    gets each signal under the id of the channel that it belongs to, and the policy's state is
    renamed accordingly.
    A permutation-invariant policy acts the same in both cases.
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

    def with_next_tick(self) -> Assignment:
        """Return the assignment for the next tick.

        It is the same assignment without `detected` and `renames`, because these hold for one tick
        only.
        """
        if not self.detected and self.renames is None:
            return self
        return self._replace(detected=False, renames=None)

    def with_lost_mark(self) -> Assignment:
        """Return the assignment with a mark that it is not known to be right.

        The slots stay the same. `outputs`, which says which slot's signal the policy gets under
        each channel id, also stays the same, and is pinned. This means that it does not follow
        `slots` until a rewiring is detected.
        """
        if self.lost and self.pinned and self.renames is None and self.previous is self.slots:
            return self
        slots = self.slots
        return self._replace(
            previous=slots, previous_outputs=slots, pinned=True, lost=True, renames=None
        )

    def with_unpinned_outputs(self) -> Assignment:
        """Return the assignment in which the policy gets each signal under its own channel id."""
        if not self.pinned:
            return self
        return self._replace(pinned=False, renames=(self.outputs, self.slots))

    def with_slots(self, slots: np.ndarray) -> Assignment:
        """Return the assignment with other slots.

        Args:
            slots: (N,) the input slot that feeds each channel.
        """
        return self if slots is self.slots else self._replace(slots=slots)

    def with_outputs_from_slots(self, verifying: bool) -> Assignment:
        """Return the assignment with the outputs that follow from its input slots.

        Args:
            verifying: Whether a detected rewiring is being verified. Only then do pinned outputs
                change: each id follows its signal to its new slot.
        """
        if not self.pinned:
            outputs = self.slots
        elif verifying:
            outputs = self.slots[np.argsort(self.previous)[self.previous_outputs]]
        else:
            return self
        return self if outputs is self.outputs else self._replace(outputs=outputs)

    def arrange_by_slot(self, signals: np.ndarray) -> np.ndarray:
        """Return values in the order of input slots, from values in the order of channels.

        Args:
            signals: (N,) the same values in the order of channels.
        """
        found = np.empty_like(signals)
        found[self.slots] = signals
        return found
