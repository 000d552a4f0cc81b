"""The small network from the message to the action, in numpy."""

from __future__ import annotations

import numpy as np


class Head:
    """Linear layers with `activation` between them and `output` at the end.

    `layers` are each a weight (out, in) and a bias (out,), float64.
    """

    def __init__(
        self, layers: tuple[tuple[np.ndarray, np.ndarray], ...], activation: str, output: str
    ) -> None:
        self._activation = activation
        self._output = output
        # Each layer's room ends in a one, whose weight in the next layer is the bias.
        self._weights = [np.column_stack([weight, bias]) for weight, bias in layers]
        self._rooms = [np.ones(len(bias) + 1) for _, bias in layers]
        self._entering = np.ones(self._weights[0].shape[1])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The action (A,) float32 in [-1, 1] for `x` (in,) float64."""
        entering = self._entering
        entering[:-1] = x
        last = len(self._weights) - 1
        for layer, (weight, room) in enumerate(zip(self._weights, self._rooms, strict=True)):
            out = room[:-1]
            np.dot(weight, entering, out=out)
            if (self._output if layer == last else self._activation) == "tanh":
                np.tanh(out, out=out)
            elif layer < last:
                np.maximum(out, 0.0, out=out)
            entering = room
        if self._output == "clip":
            np.minimum(np.maximum(out, -1.0, out=out), 1.0, out=out)
        return out.astype(np.float32)
