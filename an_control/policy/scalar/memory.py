"""The head's memory: it imputes what no channel reads, and carries the gait meanwhile.

A GRU (Cho et al. 2014) remembers what was seen and done. From it, and from the last tick, comes
the reading that the head expects at each query. Squared attention routes the readings, so that a
neuron that does not know its channel yet has little weight; the more of a query's mass is missing,
the more what was expected counts. With attention w (softmax over the queries q for each channel n)
and readings o:

    h       = GRU([x, m, a], h)                x, m: seen at the last tick, a: the last action
    mu      = expectation([h, x, m, a])        linear
    s       = min(sum over n of w^2, 1)
    r       = (sum over n of w^2 o) / max(sum over n of w^2, 1) - s mu
    t       = 1 / (1 + d r^2)                  d: the outlier weight (0: none)
    m, x    = t s, mu + t r
    action  = head([x, h])

Prediction attention: which query expected a reading tells, too, which channel it is. The scores of
the queries get evidence, which fades, before their softmax:

    e       = k e + g - v u / (1 + u)          u = b (o - mu)^2 for each channel and query

After an unannounced reshuffle, the neurons still point to the wrong queries for some ticks. What
they say then is mostly far from what is expected: outlier weighting keeps it out of head and
memory.
"""

from __future__ import annotations

import numpy as np

from an_control.policy.scalar.weights import MemoryWeights

MAX_ERROR = np.float32(1e30)
"""Of the scaled square of an error: one that overflows would leave NaN in the evidence for good."""
ONE, HALF = np.float64(1.0), np.array(0.5, np.float32)


def gru_step(units: np.ndarray, entering: np.ndarray, staying: np.ndarray) -> None:
    """One tick of GRU units (H,), in place; of `staying` nothing is left.

    `entering` (3H,) comes from the inputs, `staying` (3H,) from the units, both with their biases,
    in the order reset, update, new and folded with `halves`.
    """
    count = len(units)
    gates, new = staying[: 2 * count], staying[2 * count :]
    gates += entering[: 2 * count]
    np.tanh(gates, out=gates)
    gates *= HALF
    gates += HALF
    new *= gates[:count]
    new += entering[2 * count :]
    np.tanh(new, out=new)
    units -= new
    units *= gates[count:]
    units += new


class Memory:
    """Holds the memory and computes its part of a tick, in numpy float32."""

    def __init__(self, weights: MemoryWeights) -> None:
        n, units = len(weights.expectation_bias), len(weights.hidden_bias)
        inside = np.concatenate([np.zeros(2 * units), weights.hidden_bias])
        # Products with a one add the biases.
        self._hidden = np.column_stack([inside, weights.hidden]).astype(np.float32)
        self._input = np.column_stack([weights.input, weights.bias]).astype(np.float32)
        expectation = np.column_stack([weights.expectation, weights.expectation_bias])
        self._expectation = expectation.astype(np.float32)
        weight = weights.outlier_weight
        self._outlier_weight = weight.copy() if weight.any() else None
        self._prediction = weights.prediction.astype(np.float32)[:, :, None]
        # All that is remembered: 1, units, what was seen last and its shares, previous action, 1.
        self._all = np.ones(self._hidden.shape[1] + self._input.shape[1], np.float32)
        self._units = self._all[1 : 1 + units]
        self._seen = self._all[1 + units : 1 + units + 2 * n].reshape(2, n)
        self._previous = self._all[1 + units + 2 * n : -1]
        self._entering, self._staying = np.empty((2, 3 * units), np.float32)
        self._expected = np.empty(n, np.float32)
        self._pair, self._trust = np.empty((2, n)), np.empty(n)
        self.known = self._all[1 : 1 + units + n]
        """The head's input (H + n,): the units, and what is seen."""
        self.reset()

    def reset(self) -> None:
        """Set everything to zero."""
        self._all[1:-1] = 0.0

    def expect(self, previous: np.ndarray) -> np.ndarray:
        """The readings (n,) that are expected now, given the previous action (A,)."""
        units, count = self._units, len(self._units)
        self._previous[...] = previous
        np.dot(self._input, self._all[count + 1 :], out=self._entering)
        np.dot(self._hidden, self._all[: count + 1], out=self._staying)
        gru_step(units, self._entering, self._staying)
        np.dot(self._expectation, self._all[1:], out=self._expected)
        return self._expected

    def update_evidence(
        self, values: np.ndarray, expected: np.ndarray, evidence: np.ndarray
    ) -> None:
        """Update the evidence (n, N) by these readings (N,), in place."""
        width, max_loss, gain, keep = self._prediction
        error = values - expected[:, None]
        with np.errstate(over="ignore"):
            error *= error
            error *= width
        np.fmin(error, MAX_ERROR, out=error)
        error /= error + np.float32(1.0)
        error *= max_loss
        evidence *= keep
        evidence += gain
        evidence -= error

    def update(self, expected: np.ndarray, message: np.ndarray) -> None:
        """Correct what was expected by the message, and keep it for the next tick.

        `message` (2, n): sums of squared attention times readings, sums of squared attention.
        """
        pair, trust = self._pair, self._trust
        news, share = pair
        np.maximum(message[1], ONE, out=trust)
        np.divide(message, trust, out=pair)
        np.multiply(share, expected, out=trust)
        news -= trust
        if self._outlier_weight is not None:
            np.multiply(news, news, out=trust)
            trust *= self._outlier_weight
            trust += ONE
            pair /= trust
        news += expected
        self._seen[...] = pair
