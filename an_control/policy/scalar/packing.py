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
    """A policy's weights as compiled code takes them."""

    gate_rows: np.ndarray
    """Rows (., U) float32: bias, inputs, actions, outputs h, products; U of `Weights`."""
    score_rows: np.ndarray
    """Rows (., M) float32: bias, outputs h."""
    head: np.ndarray
    """For each layer the bias (out,), then weights (in, out), float64."""
    widths: np.ndarray
    form: Form


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
    """Lay out an AttentionNeuron's weights."""
    gates = len(weights.bias)
    products = np.zeros((0, gates))
    if weights.products is not None:
        products = weights.products.transpose(0, 2, 1).reshape(-1, gates)
    gate_rows = [weights.bias[None], weights.features, weights.action.T, weights.hidden.T, products]
    form = Form(
        inputs=len(weights.features),
        recurrent=weights.hidden.shape[1],
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
        np.ascontiguousarray(np.concatenate(gate_rows), F32),
        np.ascontiguousarray(np.concatenate([weights.scores_bias[None], weights.scores.T]), F32),
        *pack_head(weights.head),
        form,
    )


def pack_head(head: Layers) -> tuple[np.ndarray, np.ndarray]:
    """A head's layers in one array, and their widths."""
    layers = [np.concatenate([bias[None], weight.T]).ravel() for weight, bias in head]
    return np.concatenate(layers), np.array([len(bias) for _, bias in head])
