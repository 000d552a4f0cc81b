"""An MLP policy on the channels in a fixed order, the baseline that fails after rewiring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from an_control.policy.exact_sums import MAX_READING
from an_control.policy.interface import (
    Policy,
    PreviousActionMixin,
    check_and_order_readings,
    check_unique_ids,
)
from an_control.policy.model_file import Model
from an_control.policy.sizes import MlpSizes
from an_control.system.blas import one_blas_thread

Layers = tuple[tuple[np.ndarray, np.ndarray], ...]
"""A network's layers in order, each a weight (out, in) and a bias (out,)."""


def get_head_layers(arrays: Mapping[str, np.ndarray], layer_count: int) -> Layers:
    """Return weights and biases of the first layers of a model's head, which computes the action.

    Args:
        arrays: The model's arrays by name.
        layer_count: The number of layers.
    """
    return tuple(
        (arrays[f"head.{layer}.weight"], arrays[f"head.{layer}.bias"])
        for layer in range(layer_count)
    )


class ActionHead:
    """The last network of a policy, which computes the action by linear layers with activations.

    Args:
        layers: For each layer a weight (out, in) and a bias (out,), float64.
        activation: The activation between the layers, ``tanh`` or ``relu``.
        output: The function after the last layer, ``tanh`` or ``clip``.
    """

    def __init__(self, layers: Layers, activation: str, output: str) -> None:
        self._activation = activation
        self._output = output
        # Each layer's buffer ends in a one, whose weight in the next layer is the bias.
        self._weights = [np.column_stack([weight, bias]) for weight, bias in layers]
        self._rooms = [np.ones(len(bias) + 1) for _, bias in layers]
        self._entering = np.ones(self._weights[0].shape[1])

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the action (A,) float32 in [-1, 1] for the input `x` (in,) float64."""
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


class MlpPolicy(PreviousActionMixin, Policy):
    """A policy of a plain MLP, which needs its inputs in a fixed order.

    The readings are put into the model's order by their channel ids. If the model names no
    channels, they stay in the order in which they are given. A missing channel keeps its last
    reading, and reads 0 before its first one.

    Args:
        model: A model of kind ``mlp``.
    """

    engine = "numpy"
    permutation_invariant = False

    def __init__(self, model: Model) -> None:
        assert isinstance(model.sizes, MlpSizes)
        self.model = model
        self.nominal_ids: tuple[str, ...] = model.task.channels
        arrays = {name: value.astype(np.float64) for name, value in model.arrays.items()}
        layers = get_head_layers(arrays, len(model.sizes.head) + 1)
        self._head = ActionHead(layers, model.sizes.activation, model.sizes.output)
        self._sizes = model.sizes
        self.reset()

    def reset(self) -> None:
        """Start an episode: set the previous action and all stored readings to zero."""
        self._previous = np.zeros(self._sizes.actions, np.float32)
        self._newest = np.zeros(self._sizes.channels)

    @one_blas_thread
    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Compute one tick from arrays and return the action (A,) float32 in [-1, 1].

        Args:
            values: Readings (N,); one that is not finite counts as missing.
            ids: Their channel ids (N,).

        Raises:
            ValueError: The lengths differ, or an id occurs twice. Or a model that names no channels
                gets another number of readings than it has inputs.
            TypeError: The values are not real numbers.
        """
        values = check_and_order_readings(values, ids, self.nominal_ids or check_unique_ids(ids))
        if len(values) != self._sizes.channels:
            raise ValueError(f"{len(values)} readings for {self._sizes.channels} inputs in order")
        present = np.abs(values) <= MAX_READING
        if not present.all():
            values = np.where(present, values, self._newest)
        self._newest = values
        self._previous = self._head(values)
        return self._previous.copy()
