"""What imitation remembers: the newest episodes, cut into pieces to learn from."""

from __future__ import annotations

import numpy as np

from an_control.learning.dagger.compiled.gradient import Piece
from an_control.learning.rollout.compiled.loop import Conditions
from an_control.policy import AttentionSizes

F32 = np.float32
ABSENT = -1
"""In place of the channel that a slot shows."""


def show(
    observations: np.ndarray, conditions: Conditions, slots: int
) -> tuple[np.ndarray, np.ndarray]:
    """What `slots` slots read (E, T, S), and which channels they show (E, T, S) int8.

    `observations` (E, T, N) are in nominal order. N stands for noise; what is `ABSENT` reads 0.
    """
    episodes, steps, channels = observations.shape
    copies = channels + conditions.copied.shape[1]
    noisy = copies + conditions.noise.shape[2]
    shown = np.full((episodes, steps, slots), ABSENT, np.int8)
    shown[:, :, :channels] = np.arange(channels)
    if len(conditions.order):
        every = conditions.every
        block = np.arange(steps) // every if every else np.zeros(steps, int)
        shown[:, :, :channels] = conditions.order[:, block]
    if len(conditions.present):
        each = np.arange(episodes)[:, None, None]
        there = conditions.present[each, shown[:, :, :channels]] > 0
        shown[:, :, :channels][~there] = ABSENT
    shown[:, :, channels:copies] = conditions.copied[:, None, :] if copies > channels else 0
    shown[:, :, copies:noisy] = channels
    readings = np.take_along_axis(observations, np.clip(shown, 0, channels - 1).astype(np.int64), 2)
    readings[shown == ABSENT] = 0.0
    if noisy > copies:
        readings[:, :, copies:noisy] = conditions.noise[:, :steps]
    return readings, shown


class Memory:
    """The newest episodes: what was seen, in which slot, done, and advised."""

    def __init__(self, size: int, steps: int, slots: int, actions: int) -> None:
        self.observations = np.zeros((size, steps, slots), F32)
        self.channels = np.zeros((size, steps, slots), np.int8)
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
        self.observations[at] = observations
        self.channels[at], self.actions[at], self.labels[at] = channels, actions, labels
        self.steps[at] = steps
        self._added += len(steps)

    def piece(self, chosen: np.ndarray, begin: int, steps: int, sizes: AttentionSizes) -> Piece:
        """Steps from `begin` on of the chosen episodes (L,), lanes last, for these neurons."""
        end = min(begin + steps, self.observations.shape[1])
        previous = np.zeros((len(chosen), end - begin, self.actions.shape[2]), F32)
        first = max(begin - 1, 0)
        previous[:, first - begin + 1 :] = self.actions[chosen, first : end - 1]
        newest = np.maximum(np.arange(begin, end)[:, None] - np.arange(sizes.features), 0)
        stacked = self.observations[chosen[:, None, None], newest]  # (L, T, F, N)
        counts = np.arange(begin, end) < self.steps[chosen][:, None]
        channels = self.channels[chosen, begin:end]
        share = np.ones(counts.shape)
        if sizes.normalise:
            share = sizes.normalise / np.maximum(1, (channels != ABSENT).sum(-1))
        arrays = (
            np.swapaxes(stacked, 2, 3),
            previous,
            self.labels[chosen, begin:end],
            counts.astype(F32),
            channels,
            share.astype(F32),
        )
        return Piece(*(np.ascontiguousarray(np.moveaxis(array, 0, -1)) for array in arrays))
