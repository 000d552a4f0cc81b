"""The assignment: which input slot feeds which channel, as the monitor estimates it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Assignment(NamedTuple):
    """An estimate after one tick; immutable, each estimator takes one and returns one.

    N input slots feed N channels. Until the first move that is detected with a known assignment the
    outputs are pinned: each channel id gets the signal that it is wired to, and follows it from
    slot to slot. From then on each signal is given to the policy under its own id, and the policy's
    state is renamed accordingly. For a permutation-invariant policy both are the same.
    """

    slots: np.ndarray
    """(N,) the slot that feeds each channel."""
    outputs: np.ndarray
    """(N,) the slot whose signal is given to the policy under each channel's id."""
    previous: np.ndarray
    """(N,) the slots before the move that is being verified."""
    previous_outputs: np.ndarray
    """(N,) the outputs before that move."""
    pinned: bool = True
    """Whether the outputs stay as they are wired."""
    lost: bool = True
    """Whether no assignment is known to be right."""
    detected: bool = False
    """Whether signals may have moved before this tick."""
    renames: tuple[np.ndarray, np.ndarray] | None = None
    """The outputs before this tick and from now on, if ids changed although no signal moved."""

    @classmethod
    def nominal(cls, count: int) -> Assignment:
        """Return the assignment in which each of `count` slots feeds its own channel."""
        slots = np.arange(count)
        return cls(slots, slots, slots, slots)

    @property
    def channels(self) -> np.ndarray:
        """(N,) the channel that each slot feeds."""
        return np.argsort(self.slots)

    def next_tick(self) -> Assignment:
        """Return the assignment without `detected` and `renames`, which hold for one tick only."""
        if not self.detected and self.renames is None:
            return self
        return self._replace(detected=False, renames=None)

    def as_lost(self) -> Assignment:
        """Return the same assignment, but lost and with pinned outputs."""
        if self.lost and self.pinned and self.renames is None and self.previous is self.slots:
            return self
        slots = self.slots
        return self._replace(
            previous=slots, previous_outputs=slots, pinned=True, lost=True, renames=None
        )

    def unpinned(self) -> Assignment:
        """Return the assignment with each signal under its own id from now on."""
        if not self.pinned:
            return self
        return self._replace(pinned=False, renames=(self.outputs, self.slots))

    def with_slots(self, slots: np.ndarray) -> Assignment:
        """Return the assignment with these slots (N,)."""
        return self if slots is self.slots else self._replace(slots=slots)

    def with_outputs(self, verifying: bool) -> Assignment:
        """Return the assignment with the outputs that follow from its slots.

        Pinned outputs change only while a move is being verified: then each id follows its signal.
        """
        if not self.pinned:
            outputs = self.slots
        elif verifying:
            outputs = self.slots[np.argsort(self.previous)[self.previous_outputs]]
        else:
            return self
        return self if outputs is self.outputs else self._replace(outputs=outputs)

    def arrange_by_slot(self, signals: np.ndarray) -> np.ndarray:
        """Return `signals` (N,), which are by channel, arranged by slot."""
        found = np.empty_like(signals)
        found[self.slots] = signals
        return found
