"""The arrays of a model, folded into what a tick needs.

Two foldings, both exact in mathematics: an LSTM's logistic function is written as
``(tanh(x / 2) + 1) / 2``, with the half in the weights and the three logistic gates first, so that
one tanh serves all four gates; and queries times keys become one matrix on the neuron's output.

A policy's weights laid out for compiled code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from an_control.policy.sizes import AttentionSizes

PARTS = ("encoder.", "pooling.", "recurrence.")
MAX_LOG = 20.0
"""Bound of a factor's logarithm; keeps its products with readings finite."""


def halves(units: int) -> np.ndarray:
    """(3H,) what GRU units' sums are folded with, so that a gate is (tanh + 1) / 2."""
    return np.where(np.arange(3 * units) < 2 * units, 0.5, 1.0)


@dataclass(frozen=True)
class MemoryWeights:
    """Folded arrays of the head's memory, float64. Gates: reset, update, new (rows, 3H)."""

    input: np.ndarray  # (3H, 2n + A): last readings and their masses, previous action
    hidden: np.ndarray  # (3H, H)
    bias: np.ndarray  # (3H,)
    hidden_bias: np.ndarray  # (H,) of the new values, inside the reset
    expectation: np.ndarray  # (n, H + 2n + A): expected readings
    expectation_bias: np.ndarray  # (n,)
    outlier_weight: np.ndarray  # (n,) 0 where every reading counts in full
    prediction: np.ndarray  # (4, n) or (0, n): width, max loss, gain, keep

    @classmethod
    def of(cls, array: dict[str, np.ndarray]) -> MemoryWeights:
        half = halves(len(array["memory.hidden_bias"]))
        outlier_weight = np.zeros(len(array["expectation.bias"]))
        if "memory.log_outlier_weight" in array:
            outlier_weight = np.exp(np.minimum(array["memory.log_outlier_weight"], MAX_LOG))
        prediction = np.zeros((0, len(outlier_weight)))
        if "attention.prediction" in array:
            prediction = array["attention.prediction"].copy()
            prediction[0] = np.exp(np.minimum(prediction[0], MAX_LOG))
            prediction[3] = 0.5 * np.tanh(0.5 * prediction[3]) + 0.5
        return cls(
            input=array["memory.input"] * half[:, None],
            hidden=array["memory.hidden"] * half[:, None],
            bias=array["memory.bias"] * half,
            hidden_bias=array["memory.hidden_bias"],
            expectation=array["expectation.weight"],
            expectation_bias=array["expectation.bias"],
            outlier_weight=outlier_weight,
            prediction=prediction,
        )


@dataclass(frozen=True)
class Weights:
    """Folded arrays, float64, of neurons with U units.

    U is 4d for an LSTM, its gates in the order input, forget, output, candidate; d for a stack.
    Without a memory every array may have a first axis more, for several policies of these sizes.
    """

    features: np.ndarray  # (F, U)
    products: np.ndarray | None  # (F, U, A)
    action: np.ndarray  # (U, A)
    hidden: np.ndarray  # (4d, d), for a stack (d, 0): nothing recurs
    bias: np.ndarray  # (U,)
    scores: np.ndarray  # (M, d): attention scores from a neuron's output; (0, d) with pma
    scores_bias: np.ndarray  # (M,)
    head: tuple[tuple[np.ndarray, np.ndarray], ...]  # (out, in), (out,) a layer
    parts: Mapping[str, np.ndarray]  # of encoder, pooling and recurrence, as they are
    memory: MemoryWeights | None = None

    @classmethod
    def of(cls, sizes: AttentionSizes, arrays: Mapping[str, np.ndarray]) -> Weights:
        """Those of a model file's arrays."""
        array = {name: value.astype(np.float64) for name, value in arrays.items()}
        units = _as_they_are if sizes.stack else _gates
        products = None
        if sizes.products:
            products = np.ascontiguousarray(units(array["neuron.products"], 3).swapaxes(-3, -2))
        queries = array.get("attention.queries", np.zeros((0, sizes.key)))
        key = array.get("attention.key", np.zeros((sizes.key, sizes.neuron)))
        key_bias = array.get("attention.key_bias", np.zeros(sizes.key))
        bias = units(array["neuron.bias"], 1)
        return cls(
            features=np.ascontiguousarray(units(array["neuron.input"], 2).swapaxes(-2, -1)),
            products=products,
            action=units(array["neuron.action"], 2),
            hidden=units(array.get("neuron.hidden", np.zeros((*bias.shape, 0))), 2),
            bias=bias,
            scores=queries @ key,
            scores_bias=(queries @ key_bias[..., None])[..., 0],
            head=head_of(array, len(sizes.head) + 1),
            parts={name: one for name, one in array.items() if name.startswith(PARTS)},
            memory=MemoryWeights.of(array) if sizes.memory else None,
        )


def _gates(rows: np.ndarray, axes: int) -> np.ndarray:
    """An LSTM's rows, folded: the first (4d) of the last `axes` axes."""
    first, new, output = np.split(rows, [rows.shape[-axes] // 2, 3 * rows.shape[-axes] // 4], -axes)
    return np.concatenate([0.5 * first, 0.5 * output, new], -axes)


def _as_they_are(rows: np.ndarray, axes: int) -> np.ndarray:
    return rows


def head_of(
    arrays: dict[str, np.ndarray], layers: int
) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """The head's layers in order, each its weight (out, in) and bias (out,)."""
    return tuple(
        (arrays[f"head.{layer}.weight"], arrays[f"head.{layer}.bias"]) for layer in range(layers)
    )


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
