"""The sensory neurons in numpy: what a form of them keeps for each channel, and how it acts.

A neuron's state is a tuple of arrays with channels along their last axis, the first of which holds
the neurons' outputs h (float64, on the grid of `exact`). Nothing else knows what is in the others.
Every operation is elementwise over channels or exact, as `NumpyEngine` explains.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from an_control.policy.exact_sums import ROUND_OUTPUT, exact_weights
from an_control.policy.scalar.weights import Weights
from an_control.policy.sizes import AttentionSizes

F32 = np.float32
State = tuple[np.ndarray, ...]

# Arrays without dimensions are cheaper operands than scalars.
HALF = np.array(0.5, F32)
TO_OUTPUTS = np.array(ROUND_OUTPUT)


class Neurons(Protocol):
    """A form of the sensory neuron (Tang & Ha 2021, section 3.1), the same for all channels."""

    def fresh(self, channels: int) -> State:
        """The state of neurons before their first tick."""

    def room(self, channels: int) -> Any:
        """Room for the intermediate results of so many channels."""

    def take_previous(self, previous: np.ndarray) -> None:
        """Enter the previous action (A,), which all channels share, once a tick."""

    def advance(self, state: State, room: Any, values: np.ndarray, change: np.ndarray) -> None:
        """A tick on readings (N,) float32 and on their change, in place."""


class _Inputs:
    """What enters every form: the previous action, and each channel's inputs."""

    def __init__(self, sizes: AttentionSizes, weights: Weights) -> None:
        self._action = np.column_stack([weights.action, weights.bias])
        self._previous = np.ones(sizes.actions + 1)
        self._features = weights.features.astype(F32)
        self._products: np.ndarray | None = None
        if weights.products is not None:
            self._products = weights.products.astype(F32).reshape(-1, sizes.actions)
        self._weights = self._features

    def common(self, previous: np.ndarray) -> np.ndarray:
        """What the previous action and the bias come to (rows,), the same for all channels."""
        if self._products is not None:
            moved: np.ndarray = self._products.dot(previous).reshape(self._features.shape)
            moved += self._features
            self._weights = moved
        self._previous[:-1] = previous
        common: np.ndarray = self._action.dot(self._previous)
        return common

    def add(self, place: int, values: np.ndarray, room: _Room) -> None:
        """Add a channel's input `values` (N,) to the units.

        A column by a row: each product has one term, so BLAS rounds it once, wherever it stands.
        """
        np.dot(self._weights[place][:, None], values[None], out=room.drive)
        room.units += room.drive


class _Room:
    """Of `rows` units a channel."""

    def __init__(self, rows: int, channels: int) -> None:
        self.units = np.empty((rows, channels), F32)
        self.drive = np.empty((rows, channels), F32)


class _LstmRoom(_Room):
    """Of an LSTM of d units; a row of ones below the outputs lets their product add the biases."""

    def __init__(self, d: int, channels: int) -> None:
        super().__init__(4 * d, channels)
        self.recurrent = np.empty((4 * d, channels))
        self.logistic = self.units[: 3 * d]
        self.enter, self.forget = self.units[:d], self.units[d : 2 * d]
        self.leave, self.candidate = self.units[2 * d : 3 * d], self.units[3 * d :]


class LstmNeurons:
    """An LSTM cell. State: outputs and a row of ones (d + 1, N), cells (d, N)."""

    def __init__(self, sizes: AttentionSizes, weights: Weights) -> None:
        d = self._d = sizes.neuron
        rows = np.column_stack([weights.hidden, weights.bias, weights.action])
        rows, round_rows = exact_weights(rows)
        self._hidden = np.ascontiguousarray(rows[:, : d + 1])
        self._common = self._hidden[:, d]
        self._round_common = round_rows[:, 0].copy()
        self._inputs = _Inputs(sizes, weights)
        self._change = "change" in sizes.inputs

    def fresh(self, channels: int) -> State:
        output = np.zeros((self._d + 1, channels))
        output[-1] = 1.0
        return output, np.zeros((self._d, channels), F32)

    def room(self, channels: int) -> _LstmRoom:
        return _LstmRoom(self._d, channels)

    def take_previous(self, previous: np.ndarray) -> None:
        common = self._inputs.common(previous)
        common += self._round_common
        np.subtract(common, self._round_common, out=self._common)

    def advance(
        self, state: State, room: _LstmRoom, values: np.ndarray, change: np.ndarray
    ) -> None:
        output, cell = state
        units = room.units
        np.dot(self._hidden, output, out=room.recurrent)
        units[...] = room.recurrent
        self._inputs.add(0, values, room)
        if self._change:
            self._inputs.add(1, change, room)
        np.tanh(units, out=units)
        logistic = room.logistic
        logistic *= HALF
        logistic += HALF
        cell *= room.forget
        enter = room.enter
        enter *= room.candidate
        cell += enter
        np.tanh(cell, out=enter)
        enter *= room.leave
        _put(enter, output[:-1])


class StackedNeurons:
    """A layer of tanh units on the newest readings. State: outputs (d, N), readings (k, N).

    Where there were fewer readings than k, the first one stands for those before it.
    """

    def __init__(self, sizes: AttentionSizes, weights: Weights) -> None:
        self._d, self._stack = sizes.neuron, sizes.stack
        self._inputs = _Inputs(sizes, weights)

    def fresh(self, channels: int) -> State:
        return np.zeros((self._d, channels)), np.full((self._stack, channels), np.nan, F32)

    def room(self, channels: int) -> _Room:
        return _Room(self._d, channels)

    def take_previous(self, previous: np.ndarray) -> None:
        self._common = self._inputs.common(previous).astype(F32)[:, None]

    def advance(self, state: State, room: _Room, values: np.ndarray, change: np.ndarray) -> None:
        output, readings = state
        new = np.isnan(readings[0])
        readings[1:] = readings[:-1]
        readings[0] = values
        if new.any():
            readings[1:, new] = values[new]
        room.units[...] = self._common
        for place, reading in enumerate(readings):
            self._inputs.add(place, reading, room)
        np.tanh(room.units, out=room.units)
        _put(room.units, output)


def _put(units: np.ndarray, output: np.ndarray) -> None:
    """The outputs on their grid, on which their products with exact weights are exact."""
    output[...] = units
    output += TO_OUTPUTS
    output -= TO_OUTPUTS


def neurons_of(sizes: AttentionSizes, weights: Weights) -> Neurons:
    """The neurons of these sizes."""
    return (StackedNeurons if sizes.stack else LstmNeurons)(sizes, weights)
