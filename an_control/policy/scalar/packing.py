"""A policy's weights laid out for compiled code."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from an_control.policy.scalar.weights import MemoryWeights, Weights
from an_control.policy.sizes import AttentionSizes

F32 = np.float32
LINE = 64
"""Bytes that a processor loads at once."""
Layers = tuple[tuple[np.ndarray, np.ndarray], ...]


def aligned(array: np.ndarray, dtype: Any) -> np.ndarray:
    """A C-ordered copy that begins where a processor's line does: loads cross none."""
    room = np.empty(array.size * np.dtype(dtype).itemsize + LINE, np.uint8)
    begin = -room.ctypes.data % LINE
    copy = room[begin : begin + array.size * np.dtype(dtype).itemsize].view(dtype)
    copy = copy.reshape(array.shape)
    copy[...] = array
    return copy


class Form(NamedTuple):
    """What compiled code has to know of a policy beside its weights."""

    inputs: int = 1
    """A channel's inputs."""
    recurrent: int = 0
    """How many rows take the neuron's own outputs: d of an LSTM, 0 of stacked readings."""
    products: bool = False
    softmax: bool = False
    relu: bool = False
    clip: bool = False
    normalise: int = 0
    """As in `AttentionSizes`."""
    memory: int = 0
    prediction_attention: bool = False
    reset_on_jump: bool = False


class Packed(NamedTuple):
    """A policy's weights as compiled code takes them.

    Every array but `widths` may have a first axis more, for several policies of the same sizes.
    """

    gate_rows: np.ndarray
    """Rows (., U) float32: bias, inputs, actions, outputs h, products; U of `Weights`."""
    score_rows: np.ndarray
    """Rows (., M) float32: bias, outputs h."""
    head: np.ndarray
    """For each layer the bias (out,), then weights (in, out), float64."""
    widths: np.ndarray
    form: Form

    def some(self, policies: slice) -> Packed:
        """These of several policies."""
        return self._replace(
            gate_rows=self.gate_rows[policies],
            score_rows=self.score_rows[policies],
            head=self.head[policies],
        )


def pack_memory(weights: MemoryWeights, width: int) -> tuple[np.ndarray, np.ndarray]:
    """The head's memory as compiled code takes it, rows of float32.

    Rows of its gates (., 3H): bias, shares and readings seen last (2n), units (H), previous action,
    the new values' bias inside the reset. Rows of queries (., `width`), which is at least n: bias
    of what is expected, the same inputs, outlier weight, prediction attention.
    """
    n, units = len(weights.expectation_bias), len(weights.hidden_bias)
    inside = np.concatenate([np.zeros(2 * units), weights.hidden_bias])
    seen, previous = weights.input.T[: 2 * n], weights.input.T[2 * n :]
    rows = [weights.bias[None], np.roll(seen, n, axis=0), weights.hidden.T, previous, inside[None]]
    begin, seen, previous = np.split(weights.expectation.T, [units, units + 2 * n])
    expected = [weights.expectation_bias[None], np.roll(seen, n, axis=0), begin, previous]
    expected += [weights.outlier_weight[None], weights.prediction]
    spread = np.pad(np.concatenate(expected), ((0, 0), (0, width - n)))
    return aligned(np.concatenate(rows), F32), aligned(spread, F32)


def pack(sizes: AttentionSizes, weights: Weights) -> Packed:
    """Lay out an AttentionNeuron's weights, or those of several."""
    bias = weights.bias[..., None, :]
    gate_rows = [bias, weights.features, _turned(weights.action), _turned(weights.hidden)]
    if weights.products is not None:
        rows = _turned(weights.products)  # (..., F, A, U)
        gate_rows.append(rows.reshape(*bias.shape[:-2], -1, bias.shape[-1]))
    form = Form(
        inputs=weights.features.shape[-2],
        recurrent=weights.hidden.shape[-1],
        products=sizes.products,
        softmax=sizes.attention == "softmax",
        relu=sizes.activation == "relu",
        clip=sizes.output == "clip",
        normalise=sizes.normalise,
        memory=sizes.memory,
        prediction_attention=sizes.prediction_attention,
        reset_on_jump=sizes.reset_on_jump,
    )
    return Packed(
        np.ascontiguousarray(np.concatenate(gate_rows, -2), F32),
        np.ascontiguousarray(_rows(weights.scores_bias, weights.scores), F32),
        *pack_head(weights.head),
        form,
    )


def pack_head(head: Layers) -> tuple[np.ndarray, np.ndarray]:
    """A head's layers in one array, and their widths."""
    layers = [_rows(bias, weight).reshape(*bias.shape[:-1], -1) for weight, bias in head]
    return np.concatenate(layers, -1), np.array([bias.shape[-1] for _, bias in head])


def _rows(bias: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """The bias (..., out) before the weights (..., out, in): (..., 1 + in, out)."""
    return np.concatenate([bias[..., None, :], _turned(weight)], -2)


def _turned(weight: np.ndarray) -> np.ndarray:
    return weight.swapaxes(-2, -1)
