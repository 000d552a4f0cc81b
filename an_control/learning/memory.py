"""What imitation remembers: the newest episodes, cut into pieces to learn from."""

from __future__ import annotations

import numpy as np

from an_control.learning.cloning_gradient import Piece

F32 = np.float32


class Memory:
    """The newest episodes: what was seen, in which slot, done, and advised."""

    def __init__(self, size: int, steps: int, channels: int, actions: int) -> None:
        self.observations = np.zeros((size, steps, channels), F32)
        self.channels = np.zeros((size, steps, channels), np.int8)
        self.actions = np.zeros((size, steps, actions), F32)
        self.labels = np.zeros((size, steps, actions), F32)
        self.steps = np.zeros(size, np.int64)
        self._added = 0

    def __len__(self) -> int:
        return min(self._added, len(self.steps))

    def add(
        self,
        observations: np.ndarray,
        channels: np.ndarray,
        actions: np.ndarray,
        labels: np.ndarray,
        steps: np.ndarray,
    ) -> None:
        at = (self._added + np.arange(len(steps))) % len(self.steps)
        self.observations[at] = np.take_along_axis(observations, channels.astype(np.int64), 2)
        self.channels[at], self.actions[at], self.labels[at] = channels, actions, labels
        self.steps[at] = steps
        self._added += len(steps)

    def piece(self, chosen: np.ndarray, begin: int, steps: int, stack: int = 1) -> Piece:
        """Steps from `begin` on of the chosen episodes (L,), lanes last.

        What enters a neuron are its slot's `stack` newest readings, as `AttentionSizes` has it.
        """
        end = min(begin + steps, self.observations.shape[1])
        previous = np.zeros((len(chosen), end - begin, self.actions.shape[2]), F32)
        first = max(begin - 1, 0)
        previous[:, first - begin + 1 :] = self.actions[chosen, first : end - 1]
        newest = np.maximum(np.arange(begin, end)[:, None] - np.arange(stack), 0)
        stacked = self.observations[chosen[:, None, None], newest]  # (L, T, F, N)
        counts = np.arange(begin, end) < self.steps[chosen][:, None]
        arrays = (
            np.swapaxes(stacked, 2, 3),
            previous,
            self.labels[chosen, begin:end],
            counts.astype(F32),
            self.channels[chosen, begin:end],
        )
        return Piece(*(np.ascontiguousarray(np.moveaxis(array, 0, -1)) for array in arrays))
