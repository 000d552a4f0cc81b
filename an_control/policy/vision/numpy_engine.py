"""The vision AttentionNeuron's arithmetic in numpy: from patches to the message.

A patch's key and value are exact sums of whole numbers, a score is an exact sum, and so are the
sums over patches (see `exact`); all else is elementwise over patches, or sorts them first (see
`set_transformer`). So the order of the patches cannot change a bit.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from an_control.policy.exact_sums import ROUND_OUTPUT, exact_weights, shifter
from an_control.policy.set_transformer import NORM_EPSILON, SetTransformer
from an_control.policy.sizes import VisionSizes
from an_control.policy.vision.weights import WHITE, VisionWeights

F32 = np.float32
BLOCK = 128
"""Queries whose scores of all patches fit the processor's cache."""


def attention_bits(patches: int) -> int:
    """How fine a grid attention weights and values, all within [-1, 1], may have each.

    The sum over so many patches of their products, on a grid of twice as many bits, then fits 53.
    """
    return (53 - max(patches - 1, 0).bit_length()) // 2


class VisionEngine(Protocol):
    """What computes the message of a tick."""

    name: str

    def __call__(self, patches: np.ndarray, previous: np.ndarray) -> np.ndarray: ...
    @property
    def attention(self) -> np.ndarray: ...
    @property
    def messages(self) -> np.ndarray: ...


class NumpyVision:
    """The message (M, m) float32 of patches (N, f, p, p) uint8 and the previous action (A,)."""

    name = "numpy"

    def __init__(self, sizes: VisionSizes, weights: VisionWeights) -> None:
        self._sizes, self._weights = sizes, weights
        self._set = None
        if sizes.compares:  # an encoder sees keys as they are, not within [-1, 1]
            queries = weights.queries / weights.key_scale
            self._set = SetTransformer(sizes, weights.parts, queries, np.zeros(len(queries)))
        self._queries, _ = exact_weights(weights.queries)
        self._norm_weight = weights.norm_weight.astype(F32)
        self._norm_bias = weights.norm_bias.astype(F32)
        self._arrange(0)

    def _arrange(self, patches: int) -> None:
        """Make room for so many patches."""
        queries, message = self._sizes.queries, self._sizes.message
        self._exponential = np.zeros((queries, patches), F32)
        self._sum = np.ones((queries, message + 1))
        block = min(BLOCK, queries)
        self._scores = np.empty((block, patches))
        self._values = np.ones((patches, message + 1))
        bits = attention_bits(patches)
        self._to_values = shifter(np.float64(2.0**-bits))
        self._to_attention = F32(1.5 * 2.0 ** (23 - bits))

    def __call__(self, patches: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """One tick (section 3.3 of the paper)."""
        if len(patches) != self._exponential.shape[1]:
            self._arrange(len(patches))
        pma = self._sizes.attention == "pma"
        if not len(patches):
            nothing = np.zeros((0 if pma else self._sizes.queries, self._sizes.message), F32)
            return self._pool(nothing) if pma else self._normed(nothing)
        flat = patches.reshape(len(patches), self._sizes.stack, self._sizes.patch**2)
        pixels = flat.transpose(1, 0, 2).astype(np.float64)
        keys = self._keys(pixels, previous)
        self._values[:, :-1] = self._value(pixels)
        if pma:
            return self._pool(keys)
        compared = None
        if self._set is not None:
            compared = self._set.scores(keys * self._weights.key_scale)
        keys = np.ascontiguousarray(keys.T)
        for start in range(0, self._sizes.queries, BLOCK):
            rows = slice(start, min(start + BLOCK, self._sizes.queries))
            scores = self._scores[: rows.stop - start]
            if compared is None:
                np.dot(self._queries[rows], keys, out=scores)
            else:
                scores[...] = compared[rows]
            self._weigh(scores, self._exponential[rows])
            np.dot(scores, self._values, out=self._sum[rows])
        message = self._sum[:, :-1] / self._sum[:, -1:]
        message *= self._weights.value_scale
        return self._normed(message.astype(F32))

    def _pool(self, keys: np.ndarray) -> np.ndarray:
        """The message (M, m) that the seeds make of what each patch's key (N, m) and value are."""
        assert self._set is not None
        rows = self._values[:, :-1]
        rows *= self._weights.value_scale
        rows += keys * self._weights.key_scale
        message, attention = self._set.pool(rows)
        self._exponential[...] = attention
        return np.asarray(message, F32)

    def _weigh(self, scores: np.ndarray, exponential: np.ndarray) -> None:
        """Turn scores (rows, N) into attention weights before normalising, on their grid."""
        scores -= scores.max(axis=1, keepdims=True)
        exponential[...] = scores
        np.exp(exponential, out=exponential)
        exponential += self._to_attention
        exponential -= self._to_attention
        scores[...] = exponential

    def _keys(self, pixels: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """(N, m) in [-1, 1]: from the differences of frames (f, N, p) and the previous action."""
        change = np.diff(pixels, axis=0).transpose(1, 0, 2).reshape(pixels.shape[1], -1)
        common = self._weights.key_bias + (self._weights.key_action * previous).sum(1)
        keys = change.dot(self._weights.key)
        keys += common
        keys += ROUND_OUTPUT
        keys -= ROUND_OUTPUT
        return keys

    def _value(self, pixels: np.ndarray) -> np.ndarray:
        """(N, m) in [-1, 1]: from the frames (f, N, p), each normed."""
        mean = pixels.mean(axis=2, keepdims=True)
        square = np.square(pixels).mean(axis=2, keepdims=True)
        deviation = np.sqrt(square - mean * mean + NORM_EPSILON * WHITE**2)
        frames = np.matmul(pixels, self._weights.value)
        frames -= mean * self._weights.value_mean
        frames /= deviation
        value = self._weights.value_bias + frames[0]
        for frame in frames[1:]:
            value += frame
        value += self._to_values
        value -= self._to_values
        return value

    def _normed(self, message: np.ndarray) -> np.ndarray:
        """The layer norm of what is positive in the message."""
        np.maximum(message, 0.0, out=message)
        message -= message.mean(axis=1, keepdims=True)
        message /= np.sqrt(np.square(message).mean(axis=1, keepdims=True) + F32(NORM_EPSILON))
        message *= self._norm_weight
        message += self._norm_bias
        return message

    @property
    def attention(self) -> np.ndarray:
        """(M, N) of the last tick, a copy; each query's weights of the patches sum to one."""
        return np.asarray(self._exponential / self._sum[:, -1:], F32)

    @property
    def messages(self) -> np.ndarray:
        """(N, m): what each patch of the last tick gives to the message, a copy."""
        return self._values[:, :-1].copy()
