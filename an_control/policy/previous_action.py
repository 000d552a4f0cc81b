"""The action that a policy reads back: its own last one, or what was sent in its place."""

from __future__ import annotations

import numpy as np


class PreviousAction:
    """A policy's `previous_action`, checked when somebody sets it."""

    _previous: np.ndarray

    @property
    def previous_action(self) -> np.ndarray:
        """The previous action (A,) in [-1, 1], a copy; set it where something else was sent.

        ValueError for another shape or a value outside [-1, 1].
        """
        return self._previous.copy()

    @previous_action.setter
    def previous_action(self, action: np.ndarray) -> None:
        action = np.asarray(action, np.float32)
        if action.shape != self._previous.shape or not (np.abs(action) <= 1.0).all():
            raise ValueError(
                f"previous action {action!r} is not of shape {self._previous.shape} in [-1, 1]"
            )
        self._previous = action.copy()
