"""The head's memory: it fills in what no channel shows, and carries the gait meanwhile.

A GRU (Cho et al. 2014) remembers what was seen and done. From it, and from the last tick, comes
the reading that the head expects at each query. Squared attention routes the readings, so that a
neuron that does not know its channel yet hardly speaks; the more of a query's mass is missing, the
more counts what was expected. With attention w (softmax over the queries q for each channel n) and
readings o:

    h       = GRU([x, m, a], h)                x, m: seen at the last tick, a: the last action
    mu      = expectation([h, x, m, a])        linear
    s       = min(sum over n of w^2, 1)
    r       = (sum over n of w^2 o) / max(sum over n of w^2, 1) - s mu
    t       = 1 / (1 + d r^2)                  d: how much a reading is doubted (0: not at all)
    m, x    = t s, mu + t r
    action  = head([x, h])

Who was expected to read what is read tells, too, which channel it is. Where the model compares, the
scores of the queries get evidence, which fades, before their softmax:

    e       = k e + g - v u / (1 + u)          u = b (o - mu)^2 for each channel and query

Behind an unannounced reshuffle, the neurons still point to the wrong queries for some ticks. What
they say then is mostly far from what is expected: doubt keeps it out of head and memory.
"""

from __future__ import annotations

import numpy as np

from an_control.policy.weights import MemoryWeights


def remember(
    units: np.ndarray, entering: np.ndarray, staying: np.ndarray, bias: np.ndarray
) -> None:
    """One tick of GRU units (H,), in place.

    `entering` (3H,) comes from the inputs, `staying` (3H,) from the units, both in the order reset,
    update, new and folded with `halves`; `bias` (H,) belongs to the new part of `staying`.
    """
    count = len(units)
    gates = entering[: 2 * count] + staying[: 2 * count]
    np.tanh(gates, out=gates)
    gates *= np.float32(0.5)
    gates += np.float32(0.5)
    new = staying[2 * count :] + bias
    new *= gates[:count]
    new += entering[2 * count :]
    np.tanh(new, out=new)
    units -= new
    units *= gates[count:]
    units += new


class Memory:
    """Holds the memory and computes its part of a tick, in numpy float32."""

    def __init__(self, weights: MemoryWeights) -> None:
        self._input = weights.input.astype(np.float32)
        self._hidden = weights.hidden.astype(np.float32)
        self._bias = weights.bias.astype(np.float32)
        self._hidden_bias = weights.hidden_bias.astype(np.float32)
        self._expectation = weights.expectation.astype(np.float32)
        self._expectation_bias = weights.expectation_bias.astype(np.float32)
        self._doubt = weights.doubt.astype(np.float32)
        self._comparison = weights.comparison.astype(np.float32)[:, :, None]
        self._channels = len(weights.expectation_bias)
        self.clear()

    def clear(self) -> None:
        """Remember nothing."""
        self._units = np.zeros(len(self._hidden_bias), np.float32)
        self._last = np.zeros(self._input.shape[1], np.float32)
        self._remembered = np.zeros(len(self._units) + len(self._last), np.float32)

    def expect(self, previous: np.ndarray) -> np.ndarray:
        """The readings (n,) that are expected now, given the previous action (A,)."""
        units, count = self._units, len(self._units)
        self._last[2 * self._channels :] = previous
        entering = self._input.dot(self._last)
        entering += self._bias
        remember(units, entering, self._hidden.dot(units), self._hidden_bias)
        self._remembered[:count], self._remembered[count:] = units, self._last
        expected: np.ndarray = self._expectation.dot(self._remembered)
        expected += self._expectation_bias
        return expected

    def compare(self, values: np.ndarray, expected: np.ndarray, evidence: np.ndarray) -> None:
        """Bring the evidence (n, N) of these readings (N,) up to date, in place."""
        width, most, gain, keep = self._comparison
        error = values - expected[:, None]
        error *= error
        error *= width
        error /= error + np.float32(1.0)
        error *= most
        evidence *= keep
        evidence += gain
        evidence -= error

    def believe(self, expected: np.ndarray, routed: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """What the message makes of what was expected; the head's input (n + H,).

        `mass` (n,) are sums of squared attention, `routed` (n,) of these times readings.
        """
        n = self._channels
        share = np.minimum(mass, 1.0)
        news = routed / np.maximum(mass, 1.0) - share * expected
        trust = 1.0 / (1.0 + self._doubt * news * news)
        seen = expected + trust * news
        self._last[:n], self._last[n : 2 * n] = seen, trust * share
        return np.concatenate([seen, self._units])
