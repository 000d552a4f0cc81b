"""The AttentionNeuron's arithmetic in plain numpy, channels along the last axis.

Every operation is either elementwise over channels (float32, as the authors computed) or an exact
sum (float64, see `exact`), so no result depends on a channel's place.
"""

from __future__ import annotations

import numpy as np

from an_control.policy.exact import ROUND_MASS, ROUND_OUTPUT, exact_weights
from an_control.policy.sizes import AttentionSizes
from an_control.policy.weights import Weights

F32 = np.float32
HALF = F32(0.5)


class NumpyEngine:
    """Holds the neurons' state by column and computes one tick."""

    name = "numpy"

    def __init__(self, sizes: AttentionSizes, weights: Weights) -> None:
        self._sizes = sizes
        self._head = weights.head
        self._hidden = exact_weights(weights.hidden)
        self._scores = exact_weights(weights.scores)
        self._action = weights.action.astype(F32)
        self._bias = weights.bias.astype(F32)
        self._features = weights.features.astype(F32)
        self._products = None if weights.products is None else weights.products.astype(F32)
        self._scores_bias = weights.scores_bias.astype(F32)[:, None]
        self._track_change = "change" in sizes.inputs
        self.clear()

    def clear(self) -> None:
        """Forget every column."""
        self._output = np.zeros((self._sizes.neuron, 0))
        self._cell = np.zeros((self._sizes.neuron, 0), F32)
        self._last = np.zeros(0, F32)
        self._reserve(0)

    def grow(self, columns: int) -> None:
        """Add `columns` columns at zero state."""
        self._output = np.pad(self._output, ((0, 0), (0, columns)))
        self._cell = np.pad(self._cell, ((0, 0), (0, columns)))
        self._last = np.pad(self._last, (0, columns), constant_values=np.nan)

    def keep(self, columns: np.ndarray) -> None:
        """Keep only these columns, in this order."""
        self._output = np.ascontiguousarray(self._output[:, columns])
        self._cell = np.ascontiguousarray(self._cell[:, columns])
        self._last = self._last[columns]

    def outputs(self, columns: np.ndarray) -> np.ndarray:
        """The neurons' outputs h of these columns, (N, d)."""
        return self._output[:, columns].T.copy()

    def step(
        self,
        values: np.ndarray,
        columns: np.ndarray | None,
        previous: np.ndarray,
        shift: np.float64,
    ) -> np.ndarray:
        """One tick: `values` (N,) float32 of the state's `columns` (None: all, in order).

        `previous` is the previous action (A,) float32, `shift` the shifter for the message's
        terms. Returns the action (A,) float32.
        """
        if len(values) != self._gates.shape[1]:
            self._reserve(len(values))
        if columns is None:
            self._neurons(values, self._last, self._output, self._cell, previous)
            self._last[...] = values
            output = self._output
        else:
            output, cell = self._output[:, columns], self._cell[:, columns]
            self._neurons(values, self._last[columns], output, cell, previous)
            self._output[:, columns], self._cell[:, columns] = output, cell
            self._last[columns] = values
        self._attend(output)
        self._reduce(values, shift)
        return head(self._head, self._sizes.activation, self._sizes.output, self._message)

    def _reserve(self, channels: int) -> None:
        """Room for a tick's intermediate results."""
        d, queries = self._sizes.neuron, self._sizes.queries
        self._recurrent = np.empty((4 * d, channels))
        self._gates = np.empty((4 * d, channels), F32)
        self._drive = np.empty((4 * d, channels), F32)
        self._logistic = self._gates[: 3 * d]
        self._in, self._forget = self._gates[:d], self._gates[d : 2 * d]
        self._out, self._candidate = self._gates[2 * d : 3 * d], self._gates[3 * d :]
        self._raw = np.empty((queries, channels))
        self._attention = np.empty((queries, channels), F32)
        self._products_of = np.empty((queries, channels), F32)
        self._ones = np.ones(channels)
        self._message = np.zeros(self._sizes.message)

    def _neurons(
        self,
        values: np.ndarray,
        last: np.ndarray,
        output: np.ndarray,
        cell: np.ndarray,
        previous: np.ndarray,
    ) -> None:
        """The shared LSTM cell, in place on `output` and `cell` (d, N)."""
        gates, drive = self._gates, self._drive
        common = self._action.dot(previous)
        common += self._bias
        features = self._features
        if self._products is not None:
            features = features + self._products.dot(previous)
        np.dot(self._hidden, output, out=self._recurrent)
        gates[...] = self._recurrent
        gates += common[:, None]
        np.multiply(features[0][:, None], values, out=drive)
        gates += drive
        if self._track_change:
            change = values - last
            change[np.isnan(last)] = 0.0
            np.multiply(features[1][:, None], change, out=drive)
            gates += drive
        np.tanh(gates, out=gates)
        self._logistic *= HALF
        self._logistic += HALF
        cell *= self._forget
        self._in *= self._candidate
        cell += self._in
        np.tanh(cell, out=self._in)
        self._in *= self._out
        np.add(self._in, ROUND_OUTPUT, out=output)
        output -= ROUND_OUTPUT

    def _attend(self, output: np.ndarray) -> None:
        attention = self._attention
        np.dot(self._scores, output, out=self._raw)
        attention[...] = self._raw
        attention += self._scores_bias
        if self._sizes.attention == "tanh":
            np.tanh(attention, out=attention)
        else:
            attention -= attention.max(axis=0)
            np.exp(attention, out=attention)
            attention /= np.add.reduce(attention, axis=0)

    def _reduce(self, values: np.ndarray, shift: np.float64) -> None:
        """The message (eq. 3 of the paper): attention times raw readings, summed exactly."""
        message, products = self._message, self._products_of
        np.multiply(self._attention, values, out=products)
        if self._sizes.attention == "tanh":
            np.dot(self._rounded(products, shift), self._ones, out=message)
            np.tanh(message, out=message)
        else:
            routed = self._sizes.queries - 1
            np.dot(self._rounded(products, shift)[:-1], self._ones, out=message[:routed])
            mass = self._rounded(self._attention, ROUND_MASS)[:-1]
            np.dot(mass, self._ones, out=message[routed:])
            message[routed:] -= 1.0

    def _rounded(self, terms: np.ndarray, shift: np.float64) -> np.ndarray:
        """`terms` as float64 on the shifter's grid."""
        np.add(terms, shift, out=self._raw)
        self._raw -= shift
        return self._raw

    @property
    def attention(self) -> np.ndarray:
        """(M, N) of the last tick, a copy; for softmax without the query "none of them"."""
        rows = slice(None) if self._sizes.attention == "tanh" else slice(-1)
        return self._attention[rows].astype(np.float64)

    @property
    def message(self) -> np.ndarray:
        """The last tick's message, a copy."""
        return self._message.copy()


def head(
    layers: tuple[tuple[np.ndarray, np.ndarray], ...],
    activation: str,
    output: str,
    x: np.ndarray,
) -> np.ndarray:
    """Linear layers with `activation` between them and `output` at the end; action float32."""
    for weight, bias in layers[:-1]:
        x = weight.dot(x)
        x += bias
        if activation == "tanh":
            np.tanh(x, out=x)
        else:
            np.maximum(x, 0.0, out=x)
    weight, bias = layers[-1]
    x = weight.dot(x)
    x += bias
    if output == "tanh":
        np.tanh(x, out=x)
    else:
        np.clip(x, -1.0, 1.0, out=x)
    return x.astype(np.float32)
