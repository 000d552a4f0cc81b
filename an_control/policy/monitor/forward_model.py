"""The forward model: what every nominal channel will read next, and how channels look.

One network takes the readings in nominal order and the action, and gives for each channel its
change and the scale of the error, or for a binary channel the chance that it reads 1. A smaller
one takes what a single slot read for some ticks, and the actions, and says which channel that
looks like. They travel in a model file beside the policy; by them the identity monitor tells which
content is which.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np

from an_control.policy.model_file import Model
from an_control.policy.monitor.assignment import add_costs, costs_of
from an_control.policy.sizes import WINDOW

F32 = np.float32
AddCosts = Callable[..., None]
Layer = tuple[np.ndarray, np.ndarray]
NETWORKS = ("forward.", "identity.", "imputation.")
"""What the names of their arrays begin with."""
LOWEST, HIGHEST = -6.0, 3.0
"""Bounds of an error's log scale, in units of the channel's usual step."""
FLOOR = 1e-6
"""Added to the squared scale of errors."""
NOISES = 1.5
"""Variances of the sensors' noise in a change: a new reading's, and what is left of the last."""
WIDTH = 0.003
"""The scale within which a reading counts as 0 or 1."""


class Prediction(NamedTuple):
    """Of ticks (...) for N channels, each (..., N) float32."""

    change: np.ndarray
    """From the reading before; of a binary channel nothing."""
    scale: np.ndarray
    """Of the change's error."""
    chance: np.ndarray
    """That a binary channel reads 1."""


class ForwardModel:
    """A model's forward networks, ready to use."""

    def __init__(self, model: Model) -> None:
        assert model.forward is not None
        self.sizes = model.forward
        self.channels: tuple[str, ...] = tuple(model.task["channels"])
        self.binary = np.array([name in model.forward.binary for name in self.channels])
        arrays = model.arrays
        self._layers = _layers(arrays, "forward", len(model.forward.hidden) + 1)
        self._looks = _layers(arrays, "identity", 3)
        self._common = np.ascontiguousarray(arrays["identity.common"].T, F32)
        self._units = arrays["identity.units"]
        self.actions = len(self._layers[0][0]) - len(self.channels)
        self.fills = self.sizes.imputation > 0
        """Whether it can fill in absent channels."""
        if self.fills:
            self._fill = _layers(arrays, "imputation", 3)
            self.start, self._lowest, self._highest = arrays["imputation.typical"].astype(F32)
        self.roughest = float(arrays["imputation.max_roughness"][0]) if self.fills else math.inf
        """Roughness up to which sensors have no noise (`sensor_noise`)."""
        self.noise = 0.0
        """The sd of noise on every reading now, which makes all errors larger."""
        self.step = arrays["forward.step"].astype(F32)
        self.usual = arrays["forward.usual"].astype(F32)
        self._usual_sum = float(self.usual.sum())

    def predict(self, readings: np.ndarray, actions: np.ndarray) -> Prediction:
        """From readings (..., N) in nominal order and the actions (..., A) that followed them."""
        if actions.shape[:-1] != readings.shape[:-1]:
            actions = np.broadcast_to(actions, (*readings.shape[:-1], actions.shape[-1]))
        x = np.concatenate([readings, actions], -1).astype(F32)
        *hidden, (weight, bias) = self._layers
        for hidden_weight, hidden_bias in hidden:
            x = _silu(x @ hidden_weight + hidden_bias)
        x = x @ weight + bias
        channels = readings.shape[-1]
        first, second = x[..., :channels], x[..., channels:]
        scale = self.step * np.exp(np.minimum(np.maximum(second, F32(LOWEST)), F32(HIGHEST)))
        chance = F32(0.5) * np.tanh(F32(0.5) * first) + F32(0.5)
        return Prediction(first * self.step, scale, chance)

    def fill(
        self, before: np.ndarray, action: np.ndarray, readings: np.ndarray, absent: np.ndarray
    ) -> np.ndarray:
        """`readings` (N,) in nominal order, with estimates where `absent`.

        `before` (N,) is what came of that in the tick before, `action` (A,) what followed it.
        """
        given = np.where(absent, before, readings)
        x = np.concatenate([before, given, absent, action]).astype(F32)
        *hidden, (weight, bias) = self._fill
        for hidden_weight, hidden_bias in hidden:
            x = _silu(x @ hidden_weight + hidden_bias)
        estimate = np.clip(x @ weight + bias, self._lowest, self._highest)
        filled: np.ndarray = np.where(absent, estimate, readings)
        return filled

    def add_costs(
        self,
        costs: np.ndarray,
        moved: np.ndarray,
        expected: np.ndarray,
        reads: np.ndarray,
        seen: Prediction,
        add: AddCosts = add_costs,
    ) -> None:
        """Add to `costs` (slots, channels) what T ticks say; see `assignment.add_costs`."""
        add(costs, moved, expected, self._wide(seen), reads, seen.chance, *self._constant())

    def own_costs(self, moved: np.ndarray, reads: np.ndarray, seen: Prediction) -> np.ndarray:
        """Costs (..., N) of how each channel's own slot moved, and what it reads, as the channel.

        As `seen`, predictions of any shape (..., N).
        """
        scale = self._wide(seen)
        return costs_of(moved, seen.change, scale, reads, seen.chance, *self._constant())

    def _wide(self, seen: Prediction) -> np.ndarray:
        """The scale of errors, of which the noise before and after is a part."""
        variance = seen.scale * seen.scale + F32(FLOOR + NOISES * self.noise**2)
        return np.sqrt(variance)

    def _constant(self) -> tuple[np.ndarray, np.ndarray, float]:
        return self.binary, self.usual, max(WIDTH, self.noise)

    def usual_cost(self, seen: Prediction) -> float:
        """What all channels cost usually, in a tick that was foreseen so (1, N)."""
        usual = self._usual_sum
        if not self.noise:
            return usual
        more = np.log(self._wide(seen)[0]) - np.log(np.sqrt(seen.scale[0] ** 2 + F32(FLOOR)))
        more[self.binary] = math.log(max(WIDTH, self.noise) / WIDTH)
        return usual + float(more.sum())

    def looks(self, reads: np.ndarray, change: np.ndarray, actions: np.ndarray) -> np.ndarray:
        """Costs (slots, channels): what each slot looks like, negative log probabilities.

        From what the slots read (T, N), how it had changed, and the actions before it (T, A); the
        newest is the last one, and T is `WINDOW` at most.
        """
        own, common = looks_of(reads[None], change[None], actions[None], self._units)
        (first, bias), (second, second_bias), (weight, last_bias) = self._looks
        x = _silu(own[0] @ first + (common[0] @ self._common + bias))
        scores = _silu(x @ second + second_bias) @ weight + last_bias
        scores -= scores.max(1, keepdims=True)
        costs: np.ndarray = np.log(np.exp(scores).sum(1, keepdims=True)) - scores
        return costs


def looks_of(
    reads: np.ndarray, change: np.ndarray, actions: np.ndarray, units: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """What the network of looks takes, of B stretches of T ticks: own (B, N, 2 W), common (B, C).

    Older ticks than there are count as zero; a flag for each tick says if it is there.
    """
    batch, ticks, slots = reads.shape
    own = np.zeros((batch, 2, WINDOW, slots), F32)
    own[:, 0, WINDOW - ticks :] = np.nan_to_num(reads) / units[0]
    size = np.nan_to_num(change)
    own[:, 1, WINDOW - ticks :] = np.sign(size) * np.log1p(np.abs(size) / units[1])
    common = np.zeros((batch, WINDOW, actions.shape[2] + 1), F32)
    common[:, WINDOW - ticks :, :-1] = actions
    common[:, WINDOW - ticks :, -1] = 1.0
    return own.reshape(batch, 2 * WINDOW, slots).transpose(0, 2, 1), common.reshape(batch, -1)


def _layers(arrays: Mapping[str, np.ndarray], name: str, count: int) -> list[Layer]:
    """Weights (in, out) and biases (out,)."""
    return [
        (
            np.ascontiguousarray(arrays[f"{name}.{layer}.weight"].T, F32),
            arrays[f"{name}.{layer}.bias"].astype(F32),
        )
        for layer in range(count)
    ]


def _silu(x: np.ndarray) -> np.ndarray:
    """x times its logistic function (Elfwing et al. 2017)."""
    gated: np.ndarray = x * (F32(0.5) * np.tanh(F32(0.5) * x) + F32(0.5))
    return gated
