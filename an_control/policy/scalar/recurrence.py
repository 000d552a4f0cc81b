"""The memory behind a policy's message, in numpy float64, a tick at a time.

An LSTM, a GRU, or a transformer (Parisotto et al. 2019, "Stabilizing Transformers for Reinforcement
Learning"); `reference_recurrence` has the equations. Each layer of a transformer keeps the keys and
values of the last ticks in a ring. A tick overwrites the oldest place and moves nothing, so its
cost does not grow. What is multiplied with the ages' encodings is computed once.

Logistic functions are written as ``(tanh(x / 2) + 1) / 2``, with the half in the weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import sqrt
from typing import Protocol

import numpy as np

from an_control.policy.scalar.attention_neuron import gru_step
from an_control.policy.scalar.weights import halves
from an_control.policy.set_transformer import NORM_EPSILON, positional_table
from an_control.policy.sizes.scalar import RecurrenceSizes

Arrays = Mapping[str, np.ndarray]

_SUBMODULES = ("attention", "network")
_ATTENTION = ("query", "key", "value", "relative", "output", "content_bias", "position_bias")
_NETWORK = ("0.weight", "0.bias", "1.weight", "1.bias")


class Recurrence(Protocol):
    """Remembers from tick to tick; `units` numbers come out."""

    units: int

    def reset(self) -> None:
        """Start an episode: nothing is remembered."""

    def step(self, x: np.ndarray) -> np.ndarray:
        """(units,) float64, the caller's to keep, for the inputs `x` (inputs,)."""


def recurrence_of(sizes: RecurrenceSizes, arrays: Arrays) -> Recurrence:
    """The memory with the arrays "recurrence.*" of a model; other arrays are not looked at."""
    part = {
        name.removeprefix("recurrence."): array.astype(np.float64)
        for name, array in arrays.items()
        if name.startswith("recurrence.")
    }
    if sizes.kind == "lstm":
        return Lstm(part)
    return Gru(part) if sizes.kind == "gru" else Transformer(sizes, part)


class Lstm:
    """An LSTM (Hochreiter & Schmidhuber 1997), its gates in the order i, f, g, o."""

    def __init__(self, arrays: Arrays) -> None:
        rows, inputs = arrays["input"].shape
        self.units = rows // 4
        # One tanh for all gates: of the half where they are logistic.
        self._scale = np.repeat([0.5, 0.5, 1.0, 0.5], self.units)
        self._shift = 1.0 - self._scale
        weight = np.column_stack([arrays["input"], arrays["hidden"], arrays["bias"]])
        self._weight = weight * self._scale[:, None]
        self._entering = np.ones(inputs + self.units + 1)  # ends in a one for the bias
        self._input, self._output = self._entering[:inputs], self._entering[inputs:-1]
        self._cell = np.empty(self.units)
        self.reset()

    def reset(self) -> None:
        self._output[:] = self._cell[:] = 0.0

    def step(self, x: np.ndarray) -> np.ndarray:
        self._input[:] = x
        gates = self._weight.dot(self._entering)
        np.tanh(gates, out=gates)
        gates *= self._scale
        gates += self._shift
        enter, forget, candidate, leave = gates.reshape(4, self.units)
        self._cell *= forget
        self._cell += enter * candidate
        leave *= np.tanh(self._cell)
        self._output[:] = leave
        return leave


class Gru:
    """A GRU (Cho et al. 2014), its gates in the order reset, update, new."""

    def __init__(self, arrays: Arrays) -> None:
        self.units = len(arrays["hidden_bias"])
        half = halves(self.units)
        self._input, self._hidden = (arrays[name] * half[:, None] for name in ("input", "hidden"))
        self._bias, self._hidden_bias = arrays["bias"] * half, arrays["hidden_bias"]
        self._output = np.empty(self.units)
        self.reset()

    def reset(self) -> None:
        self._output[:] = 0.0

    def step(self, x: np.ndarray) -> np.ndarray:
        entering, staying = self._input.dot(x), self._hidden.dot(self._output)
        entering += self._bias
        staying[2 * self.units :] += self._hidden_bias
        gru_step(self._output, entering, staying)
        return self._output.copy()


class Transformer:
    """The three transformers: ``trxl``, ``trxl-i`` and ``gtrxl``."""

    def __init__(self, sizes: RecurrenceSizes, arrays: Arrays) -> None:
        self.units, self._window = sizes.units, sizes.window
        self._weight, self._bias = arrays["input.weight"], arrays["input.bias"]
        self.layers = [Layer(sizes, arrays, f"layers.{layer}") for layer in range(sizes.layers)]
        self.reset()

    def reset(self) -> None:
        self._place = -1
        self.filled = 0
        """Places of the rings that hold a tick of this episode."""

    def step(self, x: np.ndarray) -> np.ndarray:
        self._place = (self._place + 1) % self._window
        self.filled = min(self.filled + 1, self._window)
        x = self._weight.dot(x)
        x += self._bias
        for layer in self.layers:
            x = layer.step(x, self._place, self.filled)
        return x


class Layer:
    """Attention over the last ticks and a position-wise network, U units."""

    def __init__(self, sizes: RecurrenceSizes, arrays: Arrays, name: str) -> None:
        units, heads, window = sizes.units, sizes.heads, sizes.window
        query, key, value, relative, output, content, position = (
            arrays[f"{name}.{part}"] for part in _ATTENTION
        )
        scale = 1.0 / sqrt(units // heads)
        # One product gives the queries for content and for position, the key and the value.
        self._weight = np.concatenate([query * scale, query * scale, key, value])
        self._bias = np.zeros((4, heads, units // heads))
        self._bias[0], self._bias[1] = content * scale, position * scale
        self.ring = np.zeros((2, heads, window, units // heads))
        """Keys and values of the last ticks."""
        # Twice around, so that the ages of all places are one slice wherever the newest lies.
        ages = -np.arange(2 * window) % window
        encoded = (positional_table(window, units) @ relative.T)[ages]
        by_head = encoded.reshape(2 * window, heads, -1).transpose(1, 0, 2)
        self._ages = np.ascontiguousarray(by_head)
        self._output = output
        self._network = [arrays[f"{name}.network.{part}"] for part in _NETWORK]
        self._norms_first = sizes.kind != "trxl"
        self._norms = [Norm(arrays, f"{name}.{part}_norm") for part in _SUBMODULES]
        self._gates = [
            Gate(arrays, f"{name}.{part}_gate") for part in _SUBMODULES if sizes.kind == "gtrxl"
        ]

    def step(self, x: np.ndarray, place: int, filled: int) -> np.ndarray:
        """(U,) for `x` (U,), which goes to `place` of the ring; `filled` places count."""
        seen = self._norms[0](x) if self._norms_first else x
        x = self._add(0, x, self._attend(seen, place, filled))
        seen = self._norms[1](x) if self._norms_first else x
        weight, bias, last_weight, last_bias = self._network
        hidden = weight.dot(seen)
        hidden += bias
        np.maximum(hidden, 0.0, out=hidden)
        y = last_weight.dot(hidden)
        y += last_bias
        return self._add(1, x, y)

    def _attend(self, x: np.ndarray, place: int, filled: int) -> np.ndarray:
        entering = self._weight.dot(x).reshape(self._bias.shape)
        entering += self._bias
        self.ring[:, :, place] = entering[2:]
        keys, values = self.ring[:, :, :filled]
        first = self.ring.shape[2] - place
        scores = keys @ entering[0, :, :, None]
        scores += self._ages[:, first : first + filled] @ entering[1, :, :, None]
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        heard = scores.transpose(0, 2, 1) @ values
        return np.asarray(self._output.dot(heard.reshape(-1)))

    def _add(self, submodule: int, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        """The residual x with the submodule's output y."""
        if not self._norms_first:
            return self._norms[submodule](x + y)
        np.maximum(y, 0.0, out=y)
        return self._gates[submodule](x, y) if self._gates else x + y


class Norm:
    """Layer norm (Ba et al. 2016)."""

    def __init__(self, arrays: Arrays, name: str) -> None:
        self._weight, self._bias = arrays[f"{name}.weight"], arrays[f"{name}.bias"]

    def __call__(self, x: np.ndarray) -> np.ndarray:
        x = x - x.sum() / len(x)
        x *= 1.0 / sqrt(x.dot(x) / len(x) + NORM_EPSILON)
        x *= self._weight
        x += self._bias
        return x


class Gate:
    """The GRU gate g(x, y) in place of the sum x + y; rows in the order reset, update, new."""

    def __init__(self, arrays: Arrays, name: str) -> None:
        self._units = units = len(arrays[f"{name}.bias"])
        half = halves(units)[:, None]
        hidden = arrays[f"{name}.hidden"] * half
        self._input, self._gates = arrays[f"{name}.input"] * half, hidden[: 2 * units]
        self._new = hidden[2 * units :]
        self._bias = np.concatenate([np.zeros(units), -0.5 * arrays[f"{name}.bias"]])

    def __call__(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        entering, gates = self._input.dot(y), self._gates.dot(x)
        gates += self._bias
        gates += entering[: 2 * self._units]
        reset, update = _logistic(gates)
        reset *= x
        new = self._new.dot(reset)
        new += entering[2 * self._units :]
        np.tanh(new, out=new)
        new -= x
        new *= update
        new += x
        return np.asarray(new)


def _logistic(halved: np.ndarray) -> np.ndarray:
    """Two gates (2, U) from the halves (2U,) of their sums, in place."""
    np.tanh(halved, out=halved)
    halved *= 0.5
    halved += 0.5
    return halved.reshape(2, -1)
