"""The head's memory: the engines compute its equations, and it does what they promise."""

import numpy as np
import pytest

from an_control.policy import make_policy
from an_control.policy.random_model import random_model
from an_control.policy.scalar.reset_on_jump import STARTLING


def logistic(x):
    return 1.0 / (1.0 + np.exp(-x))


class ByTheBook:
    """The equations of `policy.scalar.memory` and of the paper, in float64, written plainly."""

    def __init__(self, model):
        self.array = {name: array.astype(np.float64) for name, array in model.arrays.items()}
        self.sizes, self.n = model.sizes, model.sizes.queries - 1
        self.units, self.last = np.zeros(self.sizes.memory), np.zeros(2 * self.n)
        self.previous = np.zeros(self.sizes.actions)
        self.neurons, self.usual = {}, {}

    def startle(self, readings):
        """The equations of `an_control.policy.scalar.reset_on_jump`."""
        jumps = {
            name: min(abs(value - self.neurons[name][2]), 1.0) if name in self.neurons else 0.0
            for name, value in readings.items()
        }
        usual = {name: self.usual.get(name, 0.0) for name in readings}
        self.usual |= {name: 0.9 * usual[name] + 0.1 * jumps[name] for name in readings}
        if np.mean([max(jumps[name] - 2.0 * usual[name], 0.0) for name in readings]) > STARTLING:
            self.neurons = {}
            return True
        return False

    def expect(self):
        array, count = self.array, self.sizes.memory
        x = array["memory.input"] @ np.concatenate([self.last, self.previous])
        x = x + array["memory.bias"]
        h = array["memory.hidden"] @ self.units
        reset = logistic(x[:count] + h[:count])
        update = logistic(x[count : 2 * count] + h[count : 2 * count])
        new = np.tanh(x[2 * count :] + reset * (h[2 * count :] + array["memory.hidden_bias"]))
        self.units = (1.0 - update) * new + update * self.units
        lately = np.concatenate([self.units, self.last, self.previous])
        return array["expectation.weight"] @ lately + array["expectation.bias"]

    def attend(self, name, value, mean):
        """One neuron: its attention."""
        array, d = self.array, self.sizes.neuron
        new = np.zeros(d), np.zeros(d), value, np.zeros(self.n)
        h, c, last, evidence = self.neurons.get(name, new)
        inputs = np.array([value, value - last][: len(self.sizes.inputs)])
        gates = array["neuron.input"] @ inputs + array["neuron.action"] @ self.previous
        gates = gates + array["neuron.hidden"] @ h + array["neuron.bias"]
        if self.sizes.products:
            products = np.outer(inputs, self.previous)
            gates = gates + np.einsum("gfa,fa->g", array["neuron.products"], products)
        enter, keep, new, leave = np.split(gates, 4)
        c = logistic(keep) * c + logistic(enter) * np.tanh(new)
        h = logistic(leave) * np.tanh(c)
        key = array["attention.key"] @ h + array["attention.key_bias"]
        score = array["attention.queries"] @ key
        if self.sizes.compare:
            width, most, gain, keep = array["attention.comparison"]
            error = np.exp(width) * (value - mean) ** 2
            evidence = logistic(keep) * evidence + gain - most * error / (1.0 + error)
            score = score + np.append(evidence, 0.0)
        self.neurons[name] = h, c, value, evidence
        weight = np.exp(score)
        return weight / weight.sum()

    def act(self, x):
        layers = len(self.sizes.head) + 1
        for layer in range(layers):
            x = self.array[f"head.{layer}.weight"] @ x + self.array[f"head.{layer}.bias"]
            if layer < layers - 1:
                x = np.maximum(x, 0.0) if self.sizes.activation == "relu" else np.tanh(x)
        return np.clip(x, -1.0, 1.0) if self.sizes.output == "clip" else np.tanh(x)

    def step(self, readings):
        self.startled = self.sizes.startle and self.startle(readings)
        mean = self.expect()
        attention = np.array([self.attend(name, value, mean) for name, value in readings.items()])
        routing = attention[:, :-1] ** 2
        mass, routed = routing.sum(0), routing.T @ np.array(list(readings.values()))
        share, shown = np.minimum(mass, 1.0), routed / np.maximum(mass, 1.0)
        news = shown - share * mean
        doubt = np.exp(self.array["memory.log_doubt"]) if self.sizes.doubt else 0.0
        trust = 1.0 / (1.0 + doubt * news**2)
        filled = mean + trust * news
        self.last = np.concatenate([filled, trust * share])
        self.previous = self.act(np.concatenate([filled, self.units]))
        return self.previous


@pytest.fixture
def model(expecting):
    return random_model(expecting, seed=4, gain=1.5)


def test_both_engines_compute_the_equations(model, engine):
    policy, book = make_policy(model, engine=engine), ByTheBook(model)
    rng = np.random.default_rng(2)
    startled = []
    for _ in range(40):
        there = rng.permutation(12)[: rng.integers(9, 13)]
        readings = {f"channel_{i}": float(np.float32(rng.standard_normal())) for i in there}
        book.previous = policy.previous_action.astype(np.float64)
        np.testing.assert_allclose(policy.step(readings), book.step(readings), rtol=0, atol=2e-5)
        startled.append(book.startled)
    assert any(startled) == model.sizes.startle
    assert not all(startled)


def test_forgetting_the_channels_keeps_the_memory_and_a_reset_does_not(model, engine):
    policy, other = make_policy(model, engine=engine), make_policy(model, engine=engine)
    readings = {"a": 0.4, "b": -1.2, "c": 0.9}
    first = policy.step(readings)
    for _ in range(3):
        policy.step(readings)
    policy.reset_channels()
    other.previous_action = policy.previous_action
    assert (policy.step(readings) != other.step(readings)).any()
    policy.reset()
    assert policy.step(readings).tobytes() == first.tobytes()


def test_without_any_channel_the_head_acts_on_what_it_expects(model, engine):
    policy = make_policy(model, engine=engine)
    policy.step({"a": 0.4, "b": -1.2})
    blind = [policy.step({}) for _ in range(3)]
    assert np.isfinite(blind).all()
    assert len({action.tobytes() for action in blind}) > 1
