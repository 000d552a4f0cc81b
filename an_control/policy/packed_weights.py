"""The arrays of an AttentionNeuron in the layout that compiled code needs.

The weights are rewritten in two ways, which are mathematically exact and save work. First, a
logistic function becomes ``(tanh(x / 2) + 1) / 2``, with the factor 1/2 of x in the weights; an
LSTM's three logistic gates come first, so that one tanh serves all four gates. Second, the products
of queries and keys become one matrix on the neuron's output. The rewritten weights are computed in
float64 and rounded once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from an_control.policy.sizes import AttentionSizes

F32 = np.float32
LINE = 64
"""Size of a processor's cache line in bytes."""
MAX_LOG = 20.0
"""Upper bound of the logarithm of a factor, so that products of the factor and readings stay
finite."""


def copy_to_aligned_array(array: np.ndarray, dtype: Any) -> np.ndarray:
    """Return a C-ordered copy of an array, which starts at the beginning of a cache line.

    Because of this, no vector load crosses two cache lines.

    Args:
        array: The array.
        dtype: The numpy type of the copy.
    """
    room = np.empty(array.size * np.dtype(dtype).itemsize + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    copy = room[begin : begin + array.size * np.dtype(dtype).itemsize].view(dtype)
    copy = copy.reshape(array.shape)
    copy[...] = array
    return copy


class KernelOptions(NamedTuple):
    """The options of a policy that the compiled code must know, such as the kind of attention."""

    inputs: int = 1
    """The number of inputs that a neuron takes from its channel."""
    recurrent: int = 0
    """The number of weight rows for the neuron's own outputs: d for an LSTM, 0 for stacked
    readings."""
    products: bool = False
    softmax: bool = False
    relu: bool = False
    clip: bool = False
    normalise: int = 0
    """The field `normalise` of `AttentionSizes`."""
    memory: int = 0
    prediction_attention: bool = False
    reset_on_jump: bool = False


class PackedWeights(NamedTuple):
    """The weights of a policy, in the arrays that the compiled code needs.

    The neurons' weights, `gate_rows`, have U columns. For LSTM neurons of d units U is 4d: d
    columns each for the input, forget and output gates and the candidate, in this order. For other
    neurons U is d. The weights of several policies of the same sizes may be stacked; then all
    arrays but `widths` have an additional first axis.
    """

    gate_rows: np.ndarray
    """(R, U) float32, the rows for the bias, the inputs, the previous actions, the neuron's own
    outputs h, and the products of inputs and actions."""
    score_rows: np.ndarray
    """(1 + d, M) float32, one row for the bias, then the rows for the outputs h."""
    head: np.ndarray
    """For each layer the bias (out,), then the weights (in, out), flat, float64."""
    widths: np.ndarray
    form: KernelOptions

    def select_policies(self, policies: slice) -> PackedWeights:
        """Return the weights of some of the policies whose weights are stacked here.

        Args:
            policies: The slice of the first axis that selects these policies.
        """
        return self._replace(
            gate_rows=self.gate_rows[policies],
            score_rows=self.score_rows[policies],
            head=self.head[policies],
        )


def pack_weights(sizes: AttentionSizes, arrays: Mapping[str, np.ndarray]) -> PackedWeights:
    """Return the weights of a model, or of several, in the layout of compiled code.

    Args:
        sizes: The sizes of the model, or of each of the models.
        arrays: The arrays by name; those of several models are stacked along an additional first
            axis.
    """
    array = convert_to_float64(arrays)
    units = (lambda rows, _: rows) if sizes.stack else _halve_and_reorder_gates
    bias = units(array["neuron.bias"], 1)[..., None, :]
    gate_rows = [bias] + [
        np.ascontiguousarray(units(array[name], 2).swapaxes(-2, -1))
        for name in ("neuron.input", "neuron.action", "neuron.hidden")
        if name in array
    ]
    if sizes.products:  # (..., U, F, A) to (..., F A, U)
        products = np.moveaxis(units(array["neuron.products"], 3), -3, -1)
        gate_rows.append(products.reshape(*bias.shape[:-2], -1, bias.shape[-1]))
    queries, key = array["attention.queries"], array["attention.key"]
    scores_bias = (queries @ array["attention.key_bias"][..., None])[..., 0]
    form = KernelOptions(
        inputs=sizes.inputs_per_neuron,
        recurrent=0 if sizes.stack else sizes.neuron,
        products=sizes.products,
        softmax=sizes.attention == "softmax",
        relu=sizes.activation == "relu",
        clip=sizes.output == "clip",
        normalise=sizes.normalise,
        memory=sizes.memory,
        prediction_attention=sizes.prediction_attention,
        reset_on_jump=sizes.reset_on_jump,
    )
    return PackedWeights(
        np.ascontiguousarray(np.concatenate(gate_rows, -2), F32),
        np.ascontiguousarray(_stack_bias_on_weights(scores_bias, queries @ key), F32),
        *pack_head_layers(array, len(sizes.head) + 1),
        form,
    )


def pack_head_layers(
    array: Mapping[str, np.ndarray], layer_count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the layers of the head in one flat array, and the number of outputs of each layer.

    The array holds, for each layer, the bias (out,) and then the weights (in, out).

    Args:
        array: The arrays by name.
        layer_count: The number of layers.
    """
    rows = [
        _stack_bias_on_weights(array[f"head.{layer}.bias"], array[f"head.{layer}.weight"])
        for layer in range(layer_count)
    ]
    flat = [one.reshape(*one.shape[:-2], -1) for one in rows]
    return np.concatenate(flat, -1), np.array([one.shape[-1] for one in rows])


def pack_memory_weights(
    arrays: Mapping[str, np.ndarray], width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weights of the head's memory, a GRU of H units, in the layout of compiled code.

    Args:
        arrays: A model's arrays by name.
        width: The number of columns of the second array. The first n columns are those of the n
            queries, the others are zeros.

    Returns:
        Two float32 arrays with a row for each input and a column for each output. The first
        computes the 3H gates of the GRU. It has 1 + 2n + H + A + 1 rows: the bias, the queries'
        weights and readings in the previous tick, the units, the previous action, and the bias
        inside the reset gate. The second computes the reading that is expected for each query. Its
        rows are the same, except that the last one holds the outlier weights. If the policy has
        prediction attention, four rows with the weights for this follow.
    """
    array = convert_to_float64(arrays)
    n, units = len(array["expectation.bias"]), len(array["memory.hidden_bias"])
    half = make_gru_gate_factors(units)
    seen, previous = np.split((array["memory.input"] * half[:, None]).T, [2 * n])
    hidden = (array["memory.hidden"] * half[:, None]).T
    bias = (array["memory.bias"] * half)[None]
    inside = np.concatenate([np.zeros(2 * units), array["memory.hidden_bias"]])[None]
    rows = [bias, np.roll(seen, n, axis=0), hidden, previous, inside]
    begin, seen, previous = np.split(array["expectation.weight"].T, [units, units + 2 * n])
    weight = np.zeros((1, n))
    if "memory.log_outlier_weight" in array:
        weight = np.exp(np.minimum(array["memory.log_outlier_weight"], MAX_LOG))[None]
    expected = [array["expectation.bias"][None], np.roll(seen, n, axis=0), begin, previous, weight]
    if "attention.prediction" in array:
        prediction = array["attention.prediction"].copy()
        prediction[0] = np.exp(np.minimum(prediction[0], MAX_LOG))
        prediction[3] = 0.5 * np.tanh(0.5 * prediction[3]) + 0.5
        expected.append(prediction)
    spread = np.pad(np.concatenate(expected), ((0, 0), (0, width - n)))
    return copy_to_aligned_array(np.concatenate(rows), F32), copy_to_aligned_array(spread, F32)


def make_gru_gate_factors(units: int) -> np.ndarray:
    """Return the factors (3H,) by which a GRU's weights are multiplied before they are packed.

    They are 1/2 for its two logistic gates, which compiled code computes as (tanh + 1) / 2, and 1
    for the rest.

    Args:
        units: The number H of units.
    """
    return np.where(np.arange(3 * units) < 2 * units, 0.5, 1.0)


def convert_to_float64(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays as float64, by name."""
    return {name: array.astype(np.float64) for name, array in arrays.items()}


def _halve_and_reorder_gates(rows: np.ndarray, axes_per_policy: int) -> np.ndarray:
    """Return an LSTM's weights with the logistic gates halved and put before the candidate.

    With halved sums, a logistic gate can be computed as (tanh + 1) / 2.

    Args:
        rows: The weights, with 4d rows in the order input, forget, candidate, output.
        axes_per_policy: The number of axes at the end of the array that belong to one policy. The
            first of these axes holds the rows.
    """
    first, new, output = np.split(
        rows,
        [rows.shape[-axes_per_policy] // 2, 3 * rows.shape[-axes_per_policy] // 4],
        -axes_per_policy,
    )
    return np.concatenate([0.5 * first, 0.5 * output, new], -axes_per_policy)


def _stack_bias_on_weights(bias: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Return an array (..., 1 + in, out): first the bias as a row, then the transposed weights.

    Args:
        bias: (..., out) the bias.
        weight: (..., out, in) the weights.
    """
    return np.concatenate([bias[..., None, :], weight.swapaxes(-2, -1)], -2)
