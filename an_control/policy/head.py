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
        self._layers = layers
        self._activation = activation
        self._output = output

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """The action (A,) float32 in [-1, 1] for `x` (in,) float64."""
        for weight, bias in self._layers[:-1]:
            x = weight.dot(x)
            x += bias
            if self._activation == "tanh":
                np.tanh(x, out=x)
            else:
                np.maximum(x, 0.0, out=x)
        weight, bias = self._layers[-1]
        x = weight.dot(x)
        x += bias
        if self._output == "tanh":
            np.tanh(x, out=x)
        else:
            np.clip(x, -1.0, 1.0, out=x)
        return x.astype(np.float32)
