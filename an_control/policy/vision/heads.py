"""The heads of the vision policies: they turn the attention message (M, m) into the action.

The two classes are the two heads of the paper.
"""

from __future__ import annotations

import numpy as np

from an_control.policy.model_file import Model
from an_control.policy.packed_weights import make_gru_gate_factors
from an_control.policy.recurrence import compute_logistic, step_lstm
from an_control.policy.sizes import ConvolutionSizes, TopPatchesSizes
from an_control.policy.vision.kernels import VisionKernels

F32 = np.float32


class TopPatchesHead:
    """The head of the CarRacing policy: an LSTM on the image positions of important patches.

    A self-attention chooses the most important rows of the attention message (section 4.4 of the
    paper; Tang, Nguyen & Ha 2020, "Neuroevolution of self-interpretable agents"), and the LSTM gets
    the positions of these rows. The head also decides how much of the previous message is mixed
    into the next one.

    Args:
        model: A model of kind ``vision_top_patches``.
        kernels: Functions that compute the inner loops, such as the self-attention; they are plain
            numpy or compiled, and have no weights.
    """

    def __init__(self, model: Model, kernels: VisionKernels) -> None:
        assert isinstance(model.sizes, TopPatchesSizes)
        self._sizes, self._kernels = model.sizes, kernels
        self._array = model.arrays
        grid = model.sizes.grid
        places = np.indices((grid, grid)).reshape(2, -1).T
        self._places = (places / grid).astype(F32)
        self.reset_and_get_initial_action()

    def reset_and_get_initial_action(self) -> np.ndarray:
        """Start an episode; return the action (A,) that counts as the previous one."""
        self._stays = F32(0.0)
        self._message = np.zeros((self._sizes.queries, self._sizes.message), F32)
        self._output = np.zeros(self._sizes.hidden, F32)
        self._cell = np.zeros(self._sizes.hidden, F32)
        return np.zeros(self._sizes.actions, F32)

    def __call__(self, message: np.ndarray, previous_action: np.ndarray) -> np.ndarray:
        """Return the action (A,) float32 in [-1, 1].

        Args:
            message: (M, m) the attention message.
            previous_action: The previous action, which this head does not use.
        """
        array = self._array
        self._message *= self._stays
        self._message += (F32(1.0) - self._stays) * message
        importance = self.compute_attention_to_rows(self._message)
        top = np.argsort(-importance, kind="stable")[: self._sizes.top]
        self._advance_lstm(self._places[top].ravel())
        action = np.tanh(_apply_linear(array, "action", self._output))
        hidden = np.tanh(_apply_linear(array, "mixing.0", np.concatenate([self._output, action])))
        self._stays = compute_logistic(_apply_linear(array, "mixing.1", hidden))[0]
        return action

    def compute_attention_to_rows(self, message: np.ndarray) -> np.ndarray:
        """Return the attention (M,) that each row of the message (M, m) gets from all its rows."""
        array = self._array
        queries = message.dot(array["self_attention.query"].T) + array["self_attention.query_bias"]
        keys = message.dot(array["self_attention.key"].T) + array["self_attention.key_bias"]
        return self._kernels.compute_attention_to_rows(queries, keys)

    def _advance_lstm(self, inputs: np.ndarray) -> None:
        """Advance the LSTM by one tick.

        Args:
            inputs: (2 * top,) the positions of the most important rows.
        """
        array = self._array
        gates = array["memory.input"].dot(inputs) + array["memory.hidden"].dot(self._output)
        self._output, self._cell = step_lstm(gates + array["memory.bias"], self._cell)


class ConvolutionHead:
    """The head of the PuzzlePong policy: two convolutions and two layers, which score the actions.

    The action is one-hot for the best score (section 4.3 of the paper), or the tanh of all scores
    if the model says so. Between the two layers there may be a memory.

    Args:
        model: A model of kind ``vision_convolution``, which has the weights of the convolutions.
        kernels: Functions that compute the inner loops, such as a convolution; they are plain numpy
            or compiled, and have no weights.
    """

    WINDOWS = ((4, 2), (3, 1))
    """For each convolution a pair: the width of its square window, and the step from one window to
    the next, in pixels."""

    def __init__(self, model: Model, kernels: VisionKernels) -> None:
        assert isinstance(model.sizes, ConvolutionSizes)
        self._sizes, self._array, self._kernels = model.sizes, model.arrays, kernels
        self._layers = [
            np.ascontiguousarray(weight.transpose(2, 3, 1, 0).reshape(-1, len(weight)))
            for weight in (model.arrays[f"convolution.{layer}.weight"] for layer in (0, 1))
        ]
        # Its inputs are ordered by plane in the file, and by pixel after the convolution.
        hidden, side = model.arrays["head.0.weight"], model.sizes.convolution_side_lengths[1]
        by_plane = hidden.reshape(len(hidden), -1, side * side)
        self._hidden = by_plane.transpose(2, 1, 0).reshape(-1, len(hidden)).copy()
        if model.sizes.memory:
            half = make_gru_gate_factors(model.sizes.memory).astype(F32)
            self._input = model.arrays["memory.input"] * half[:, None]
            self._staying = model.arrays["memory.hidden"] * half[:, None]
            self._bias = model.arrays["memory.bias"] * half
        self.scores = np.zeros(model.sizes.actions, F32)
        """The scores (A,) of the last tick; the action with the largest was chosen."""
        self.reset_and_get_initial_action()

    def reset_and_get_initial_action(self) -> np.ndarray:
        """Start an episode; return the action (A,) that counts as the previous one."""
        self._units = np.zeros(self._sizes.memory, F32)
        return np.array(self._sizes.initial_action, F32)

    def __call__(self, message: np.ndarray, previous_action: np.ndarray) -> np.ndarray:
        """Return the action (A,) float32.

        If the model chooses one of A actions, it is 1 for the action with the best score and 0 for
        the others; otherwise it is the tanh of all scores.

        Args:
            message: (M, m) the attention message.
            previous_action: (A,) the previous action.
        """
        hidden = np.maximum(self.compute_first_layer_sums(message), F32(0.0))
        if self._sizes.memory:
            hidden = np.concatenate(
                [hidden, self._advance_memory_and_get_units(hidden, previous_action)]
            )
        self.scores = _apply_linear(self._array, "head.1", hidden)
        if not self._sizes.choice:
            return np.tanh(self.scores)
        action = np.zeros(self._sizes.actions, F32)
        action[self.scores.argmax()] = 1.0
        return action

    def compute_first_layer_sums(self, message: np.ndarray) -> np.ndarray:
        """Return the sums (h,) of the layer behind the convolutions, before its activation.

        Args:
            message: (M, m) the attention message, whose M rows are the pixels of an image, row by
                row.
        """
        array, grid = self._array, self._sizes.grid
        image = np.maximum(message, F32(0.0)).reshape(grid, grid, -1)
        for layer, (size, step) in enumerate(self.WINDOWS):
            bias = array[f"convolution.{layer}.bias"]
            image = self._kernels.convolve_image(image, self._layers[layer], bias, size, step)
        hidden = array["head.0.bias"].copy()
        self._kernels.add_matrix_product(hidden, self._hidden, image.ravel())
        return hidden

    def _advance_memory_and_get_units(
        self, hidden: np.ndarray, previous_action: np.ndarray
    ) -> np.ndarray:
        """Advance the memory by one tick; return its units (H,).

        Args:
            hidden: (h,) the first layer's outputs.
            previous_action: (A,) the previous action.
        """
        entering = self._input.dot(np.concatenate([hidden, previous_action]))
        entering += self._bias
        staying = self._staying.dot(self._units)
        staying[2 * len(self._units) :] += self._array["memory.hidden_bias"]
        _step_gru(self._units, entering, staying)
        return self._units


def _apply_linear(array: dict[str, np.ndarray], name: str, x: np.ndarray) -> np.ndarray:
    """Return the output (out,) of the linear layer `name` for `x` (in,)."""
    return np.asarray(array[f"{name}.weight"].dot(x) + array[f"{name}.bias"])


def _step_gru(units: np.ndarray, input_sums: np.ndarray, unit_sums: np.ndarray) -> None:
    """Advance GRU units by a tick, in place.

    The given sums have three parts, for the reset gate, the update gate and the new state. They
    must be multiplied by the factors of `make_gru_gate_factors`.

    Args:
        units: (H,) the units; changed.
        input_sums: (3H,) the weighted sums of the inputs, with their bias.
        unit_sums: (3H,) the weighted sums of the units, with their bias; overwritten.
    """
    count = len(units)
    gates, new = unit_sums[: 2 * count], unit_sums[2 * count :]
    gates += input_sums[: 2 * count]
    np.tanh(gates, out=gates)
    gates *= F32(0.5)
    gates += F32(0.5)
    new *= gates[:count]
    new += input_sums[2 * count :]
    np.tanh(new, out=new)
    units -= new
    units *= gates[count:]
    units += new
