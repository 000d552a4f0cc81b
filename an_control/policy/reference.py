"""The AttentionNeuron as the paper defines it, in plain numpy: read this first.

Tang & Ha 2021, "The Sensory Neuron as a Transformer: Permutation-Invariant Neural Networks for
Reinforcement Learning", equations 1 and 2, for scalar channels. Nothing here is fast: the engines
compute the same and are tested against it. `reference_extensions` holds what our models add,
`vision` the form for image patches (section 3.3).

N channels, A actions, M queries, d units of a neuron, k the width of a key.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from an_control.policy.model_file import Model
from an_control.policy.sizes import AttentionSizes


class Neuron(NamedTuple):
    """What a sensory neuron keeps of its channel: all neurons share their weights, not this."""

    output: np.ndarray
    """h (d,)"""
    cell: np.ndarray
    """c (d,)"""


class Reference:
    """One tick at a time on readings by channel id; float64."""

    def __init__(self, model: Model) -> None:
        assert isinstance(model.sizes, AttentionSizes)
        self.sizes = model.sizes
        self.weight = {name: array.astype(np.float64) for name, array in model.arrays.items()}
        self.reset()

    def reset(self) -> None:
        """Start an episode: the neurons' state and the previous action are zero (section 3.1)."""
        self.neurons: dict[str, Neuron] = {}
        self.previous_action = np.zeros(self.sizes.actions)

    def step(self, readings: dict[str, float]) -> np.ndarray:
        """The action (A,) for ``{channel id: reading}``; the ids may come, go and change order."""
        message = self.message(readings)
        self.previous_action = self.head(message)
        return self.previous_action

    def message(self, readings: dict[str, float]) -> np.ndarray:
        """(M,): tanh(W V), equation 2 in the tanh of the authors' code; V (N,): the readings."""
        message = np.zeros(self.sizes.queries)
        for name, reading in readings.items():
            message += self.attention(self.key(name, reading)) * reading
        return np.tanh(message)

    def attention(self, key: np.ndarray) -> np.ndarray:
        """(M,): equation 2, one column of W = tanh([Q W_q] [K W_k]^T / sqrt(k)); Q is fixed.

        The file holds [Q W_q] / sqrt(k) (M, k).
        """
        return np.tanh(self.weight["attention.queries"] @ key)

    def key(self, name: str, reading: float) -> np.ndarray:
        """(k,): equation 2, one row of K W_k."""
        output = self.neuron(name, reading)
        return self.weight["attention.key"] @ output + self.weight["attention.key_bias"]

    def neuron(self, name: str, reading: float) -> np.ndarray:
        """(d,): equation 1, one row of K: f_k(o_t[i], a_{t-1}), an LSTM."""
        state = self.neurons.get(name) or Neuron(*np.zeros((2, self.sizes.neuron)))
        self.neurons[name] = state = self.lstm(state, np.array([reading]))
        return state.output

    def lstm(self, state: Neuron, inputs: np.ndarray) -> Neuron:
        """The LSTM cell (Hochreiter & Schmidhuber 1997), gates in the file's order i, f, g, o."""
        gates = self.drive(inputs) + self.weight["neuron.hidden"] @ state.output
        i, f, g, o = np.split(gates, 4)
        cell = logistic(f) * state.cell + logistic(i) * np.tanh(g)
        return Neuron(logistic(o) * np.tanh(cell), cell)

    def drive(self, inputs: np.ndarray) -> np.ndarray:
        """(4d,): what a neuron's inputs, the previous action and the bias come to."""
        weight = self.weight
        drive = weight["neuron.input"] @ inputs + weight["neuron.action"] @ self.previous_action
        return np.asarray(drive + weight["neuron.bias"])

    def head(self, x: np.ndarray) -> np.ndarray:
        """(A,): a small network from the message to the action (section 4.1 and 4.2)."""
        layers = len(self.sizes.head) + 1
        for layer in range(layers):
            x = self.weight[f"head.{layer}.weight"] @ x + self.weight[f"head.{layer}.bias"]
            x = np.tanh(x)
        return x


def logistic(x: np.ndarray) -> np.ndarray:
    """1 / (1 + e^-x)."""
    return np.asarray(1.0 / (1.0 + np.exp(-x)))
