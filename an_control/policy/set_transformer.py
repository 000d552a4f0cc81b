"""The Set Transformer's attention blocks over the channels (Lee et al. 2019), in numpy float64.

An encoder lets the neurons' outputs attend to each other before they are compared with the queries.
Pooling by multihead attention (PMA) replaces the paper's attention and sum. The channels are
processed in an order that their outputs alone decide, so that the result has the same bits in
whatever order they come.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from an_control.policy.sizes import AttentionSizes, VisionSizes

NORM_EPSILON = 1e-5
"""The number added to a variance before dividing by its square root. For image patches the variance
is that of pixels scaled to [0, 1]."""


class SetTransformerBlock:
    """A multihead attention block of width d, MAB(X, Y) (Lee et al. 2019, eq. 6 and 7).

    Args:
        arrays: A model's arrays, float64.
        name: The prefix of the names of the block's arrays.
        heads: The number of heads, which divides d.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], name: str, heads: int) -> None:
        query, key, value, output, forward = (
            arrays[f"{name}.{part}"]
            for part in ("query", "key", "value", "output", "feed_forward.weight")
        )
        self._heads, self._width = heads, len(query)
        self._query = query.T / np.sqrt(self._width)
        self._key_value = np.concatenate([key, value]).T.copy()
        self._output, self._forward = output.T.copy(), forward.T.copy()
        self._forward_bias = arrays[f"{name}.feed_forward.bias"]
        self._norms = [
            (arrays[f"{name}.{norm}.weight"], arrays[f"{name}.{norm}.bias"])
            for norm in ("attention_norm", "norm")
        ]

    def __call__(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the output (m, d) of the block, in which rows of `x` attend to rows of `y`.

        Also return the attention weights (m, n), their mean over the heads.

        Args:
            x: (m, d) the rows that attend.
            y: (n, d) the rows that they attend to; n may be 0.
        """
        heads, each = self._heads, self._width // self._heads
        query = (x @ self._query).reshape(-1, heads, each).transpose(1, 0, 2)
        key_value = (y @ self._key_value).reshape(-1, 2, heads, each)
        key, value = key_value[:, 0].transpose(1, 2, 0), key_value[:, 1].transpose(1, 0, 2)
        attention = _compute_softmax(query @ key)
        seen = (attention @ value).transpose(1, 0, 2).reshape(len(x), self._width)
        hidden = apply_layer_norm(x + seen @ self._output, *self._norms[0])
        forward = np.maximum(hidden @ self._forward + self._forward_bias, 0.0)
        return apply_layer_norm(hidden + forward, *self._norms[1]), attention.mean(axis=0)


class Encoder:
    """An encoder, in which the rows of a matrix (N, d) attend to each other.

    It is a set attention block, SAB(X) = MAB(X, X), whose cost grows with N^2 (Lee et al. 2019, eq.
    8). With inducing points I it is an induced one, ISAB(X) = MAB(X, MAB(I, X)), whose cost grows
    with N times the number of points (eq. 9 and 10).

    Args:
        arrays: A model's arrays, float64, with inducing points for ``isab`` and none for ``sab``.
        heads: The number of attention heads.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], heads: int) -> None:
        self._points = arrays.get("encoder.inducing")
        last = "encoder" if self._points is None else "encoder.spread"
        self._spread = SetTransformerBlock(arrays, last, heads)
        if self._points is not None:
            self._gather = SetTransformerBlock(arrays, "encoder.gather", heads)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        """Return the encoded rows (N, d) of `x` (N, d)."""
        heard = x if self._points is None else self._gather(self._points, x)[0]
        return self._spread(x, heard)[0]


class AttentionPooling:
    """Pooling by multihead attention, PMA(Z) = MAB(S, rFF(Z)) (Lee et al. 2019, eq. 11).

    The M learned queries S (seeds) attend to the rows Z after a row-wise layer.

    Args:
        arrays: A model's arrays, float64.
        heads: The number of attention heads.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], heads: int) -> None:
        self._seeds = arrays["pooling.seeds"]
        self._input = arrays["pooling.input.weight"].T.copy()
        self._input_bias = arrays["pooling.input.bias"]
        self._block = SetTransformerBlock(arrays, "pooling", heads)

    def __call__(self, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the pooled rows (M, d) of `z` (N, d), and the attention weights (M, N)."""
        rows = np.maximum(z @ self._input + self._input_bias, 0.0)
        return self._block(self._seeds, rows)


@dataclass(frozen=True)
class CanonicalChannelOrder:
    """An order of N channels that depends only on their neurons' outputs.

    Sums in this order have the same bits in whatever order the channels are given.

    Attributes:
        sorted: (N,) the indices of the channels, arranged in this order.
        places: (N,) each channel's position in this order; all channels with equal outputs have the
            position of the first of them.
    """

    sorted: np.ndarray
    places: np.ndarray

    @classmethod
    def from_neuron_outputs(cls, outputs: np.ndarray) -> CanonicalChannelOrder:
        """Return the lexicographic order of the neurons' outputs (N, d)."""
        ordered = np.lexsort(outputs.T[::-1])
        rows = outputs[ordered]
        first = np.arange(len(rows))
        first[1:][(rows[1:] == rows[:-1]).all(axis=1)] = 0
        places = np.empty(len(rows), np.int64)
        places[ordered] = np.maximum.accumulate(first)
        return cls(ordered, places)


class SetTransformer:
    """The parts of a policy that compare all channels with each other: encoder and pooling.

    Args:
        sizes: The sizes of the policy, which has an encoder, attention ``pma``, or both.
        arrays: A model's arrays; only those of the encoder and of the pooling are used.
        queries: The matrix (M, d) that turns a neuron's encoded output (d,) into the M queries'
            scores for its channel; not used with ``pma``.
        bias: The bias (M,) of the scores.
    """

    def __init__(
        self,
        sizes: AttentionSizes | VisionSizes,
        arrays: Mapping[str, np.ndarray],
        queries: np.ndarray,
        bias: np.ndarray,
    ) -> None:
        self._encoder = None if sizes.encoder == "none" else Encoder(arrays, sizes.heads)
        self._pooling = AttentionPooling(arrays, sizes.heads) if sizes.attention == "pma" else None
        self._queries, self._bias = queries, bias[:, None]

    def compute_attention_scores(self, outputs: np.ndarray) -> np.ndarray:
        """Encode the neurons' outputs; return the attention scores (M, N), before the softmax.

        Args:
            outputs: (N, d) the neurons' outputs.
        """
        order, encoded = self._sort_and_encode_channels(outputs)
        raw = self._queries @ encoded.T + self._bias
        return np.asarray(raw[:, order.places])

    def pool_channels_and_get_attention(self, outputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Pool the neurons' outputs (N, d); return the message (M, d) and the attention (M, N)."""
        assert self._pooling is not None
        order, encoded = self._sort_and_encode_channels(outputs)
        pooled, attention = self._pooling(encoded)
        return pooled, attention[:, order.places]

    def _sort_and_encode_channels(
        self, outputs: np.ndarray
    ) -> tuple[CanonicalChannelOrder, np.ndarray]:
        """Return the order of the channels, and their encoded outputs (N, d) in this order."""
        order = CanonicalChannelOrder.from_neuron_outputs(outputs)
        rows = outputs[order.sorted]
        return order, rows if self._encoder is None else self._encoder(rows)


def _compute_softmax(scores: np.ndarray) -> np.ndarray:
    """Return the softmax over the last axis, which may be empty."""
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True, initial=-np.inf))
    return np.asarray(scores / scores.sum(axis=-1, keepdims=True))


def apply_layer_norm(rows: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """Return the layer norm (Ba et al. 2016) of rows (..., d), as PyTorch computes it.

    Args:
        rows: (..., d) the rows, each of which is normalised.
        weight: (d,) the factors after the normalisation.
        bias: (d,) the summands after the factors.
    """
    rows = rows - rows.mean(axis=-1, keepdims=True)
    variance = np.mean(rows * rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.sqrt(variance + NORM_EPSILON) * weight + bias)


def make_positional_table(rows: int, columns: int) -> np.ndarray:
    """Return the fixed sinusoidal table (rows, columns) from which queries are computed.

    The entry in row i and column j is the sine (j even) or cosine (j odd) of
    ``i / 10000^(2 (j // 2) / columns)`` (section 3.2 of the AttentionNeuron paper).
    """
    i, j = np.arange(rows)[:, None], np.arange(columns)[None]
    angle = i / 10000.0 ** (2 * (j // 2) / columns)
    return np.where(j % 2 == 0, np.sin(angle), np.cos(angle))
