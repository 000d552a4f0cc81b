"""What our models add to the paper's AttentionNeuron, in plain numpy; read `reference` first.

A model file's sizes say which of these a policy has. The engines compute the same and are tested
against it. N channels, n queries that stand for channels, H units of the head's memory.
"""

from __future__ import annotations

import numpy as np

from an_control.policy.reference import Neuron, Reference, logistic

JUMP_LIMIT = 0.18
MAX_LOG = 20.0


class ExtendedReference(Reference):
    """The paper's policy with every extension that its sizes name."""

    def reset(self) -> None:
        super().reset()
        self.reset_neurons()
        self.usual_jump: dict[str, float] = {}
        self.units = np.zeros(self.sizes.memory)
        self.seen = self.share = np.zeros(self.sizes.queries - 1)

    def reset_neurons(self) -> None:
        """All that a neuron knows goes; the previous action and the head's memory stay."""
        self.neurons = {}
        self.newest: dict[str, list[float]] = {}
        self.evidence: dict[str, np.ndarray] = {}

    def step(self, readings: dict[str, float]) -> np.ndarray:
        if self.sizes.reset_on_jump and self.jumped(readings):
            self.reset_neurons()
        if self.sizes.memory:
            self.units, self.expected = self.expect()
        return super().step(readings)

    # Reset on jump: neurons whose channels were all rewired at once start again.

    def jumped(self, readings: dict[str, float]) -> bool:
        """Whether most readings jump farther than twice what is usual for them."""
        excess = []
        for name, reading in readings.items():
            last, usual = self.newest.get(name, [reading])[0], self.usual_jump.get(name, 0.0)
            jump = min(abs(reading - last), 1.0)
            excess.append(max(jump - 2.0 * usual, 0.0))
            self.usual_jump[name] = 0.9 * usual + 0.1 * jump
        return sum(excess) > JUMP_LIMIT * len(excess)

    # The neuron: its reading's change, products with the previous action, stacked readings.

    def neuron(self, name: str, reading: float) -> np.ndarray:
        newest = self.newest.get(name, [reading] * max(self.sizes.stack, 1))
        self.newest[name] = [reading, *newest][: max(self.sizes.stack, 1)]
        if self.sizes.stack:  # a layer of tanh units that keeps no other state
            return np.tanh(self.drive(np.array(self.newest[name])))
        inputs = [reading, reading - newest[0]][: len(self.sizes.inputs)]
        state = self.neurons.get(name) or Neuron(*np.zeros((2, self.sizes.neuron)))
        self.neurons[name] = self.lstm(state, np.array(inputs))
        return self.neurons[name].output

    def drive(self, inputs: np.ndarray) -> np.ndarray:
        drive = super().drive(inputs)
        if self.sizes.products:
            products = self.weight["neuron.products"] @ self.previous_action
            drive = drive + products @ inputs
        return drive

    # Attention and message: softmax over the queries, sums that added channels leave as they are.

    def message(self, readings: dict[str, float]) -> np.ndarray:
        o, normalise = np.array(list(readings.values())), self.sizes.normalise
        columns = [self.column(name, reading) for name, reading in readings.items()]
        attention = np.array(columns).reshape(len(o), self.sizes.queries).T
        if self.sizes.attention == "tanh":
            scale = normalise / max(1, len(o)) if normalise else 1.0
            return np.tanh(attention @ o * scale)
        attention = attention[:-1]  # the last query stands for none of the channels
        if self.sizes.memory:
            attention = attention**2
        total, mass = attention @ o, attention.sum(axis=1)
        if self.sizes.memory:
            return self.known(total, mass)
        if normalise:
            total, mass = total / np.maximum(mass, 1.0), np.minimum(mass, 1.0)
        return np.concatenate([total, mass - 1.0])

    def column(self, name: str, reading: float) -> np.ndarray:
        """(M,): a channel's attention."""
        key = self.key(name, reading)
        if self.sizes.attention == "tanh":
            return self.attention(key)
        scores = self.weight["attention.queries"] @ key
        if self.sizes.prediction_attention:
            scores[:-1] += self.fit(name, reading)
        shares = np.exp(scores - scores.max())
        return np.asarray(shares / shares.sum())

    # Prediction attention: which query expected this reading tells, too, which channel it is.

    def fit(self, name: str, reading: float) -> np.ndarray:
        """(n,): a channel's evidence for each query, which fades from tick to tick."""
        width, loss, gain, keep = self.weight["attention.prediction"]
        error = np.exp(np.minimum(width, MAX_LOG)) * (reading - self.expected) ** 2
        before = self.evidence.get(name, np.zeros(len(gain)))
        self.evidence[name] = logistic(keep) * before + gain - loss * error / (1.0 + error)
        return self.evidence[name]

    # Memory: the head imputes what no channel reads, and gives outliers less weight.

    def expect(self) -> tuple[np.ndarray, np.ndarray]:
        """The memory's units (H,) after this tick, and the readings (n,) that it expects now."""
        lately = np.concatenate([self.seen, self.share, self.previous_action])
        units = gru(self.weight, lately, self.units)
        expected = self.weight["expectation.weight"] @ np.concatenate([units, lately])
        return units, expected + self.weight["expectation.bias"]

    def known(self, total: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """(n + H,), the head's input: what was expected, corrected by what is read."""
        share = np.minimum(mass, 1.0)
        news = total / np.maximum(mass, 1.0) - share * self.expected
        trust = np.ones(len(news))
        if self.sizes.outlier_weighting:
            weight = np.exp(np.minimum(self.weight["memory.log_outlier_weight"], MAX_LOG))
            trust = 1.0 / (1.0 + weight * news**2)
        self.seen, self.share = self.expected + trust * news, trust * share
        return np.concatenate([self.seen, self.units])

    def head(self, x: np.ndarray) -> np.ndarray:
        last = len(self.sizes.head)
        for layer in range(last + 1):
            x = self.weight[f"head.{layer}.weight"] @ x + self.weight[f"head.{layer}.bias"]
            if layer < last:
                x = np.tanh(x) if self.sizes.activation == "tanh" else np.maximum(x, 0.0)
        return np.tanh(x) if self.sizes.output == "tanh" else np.clip(x, -1.0, 1.0)


def gru(weight: dict[str, np.ndarray], inputs: np.ndarray, units: np.ndarray) -> np.ndarray:
    """GRU units (H,) after a tick (Cho et al. 2014); gates in the order reset, update, new."""
    x_reset, x_update, x_new = np.split(weight["memory.input"] @ inputs + weight["memory.bias"], 3)
    h_reset, h_update, h_new = np.split(weight["memory.hidden"] @ units, 3)
    reset, update = logistic(x_reset + h_reset), logistic(x_update + h_update)
    new = np.tanh(x_new + reset * (h_new + weight["memory.hidden_bias"]))
    return np.asarray((1.0 - update) * new + update * units)
