"""The vision AttentionNeuron from patches to the message (section 3.3 of the paper).

A patch's key and value, the scores, and the sums over patches are exact sums (see `exact_sums`).
All other operations are elementwise over patches, or sort the patches first (see
`set_transformer`). So the order of the patches cannot change a bit of the message.
"""

from __future__ import annotations

import numpy as np

from an_control.policy.exact_sums import (
    ROUND_OUTPUT,
    compute_rounding_number,
    round_weights_for_exact_products,
)
from an_control.policy.model_file import Model
from an_control.policy.set_transformer import NORM_EPSILON, SetTransformer, make_positional_table
from an_control.policy.sizes import VisionSizes
from an_control.policy.vision.kernels import VisionKernels

F32 = np.float32
WHITE = 255.0
BLOCK = 128
"""The number of queries that are computed together, so that their scores of all patches fit the
processor's cache."""


def count_bits_for_exact_attention_sums(patch_count: int) -> int:
    """Return to how many bits attention weights and values must be rounded for exact sums.

    Weights and values are within [-1, 1]. If they are rounded to so many bits, the sum of their
    products over all patches has no rounding error in float64.

    Args:
        patch_count: The number of patches.
    """
    return (53 - max(patch_count - 1, 0).bit_length()) // 2


class PatchAttention:
    """The attention of a vision policy, which turns image patches into the attention message.

    The N patches are an array (N, f, p, p) uint8 of f frames of p x p pixels. The message is an
    array (M, m) float32 with a row for each of the M queries. Its bits do not depend on the order
    of the patches, because numbers are rounded in such a way that their sums are exact.

    Args:
        model: A model of a vision kind.
        kernels: The functions for the inner loops, plain or compiled.
    """

    def __init__(self, model: Model, kernels: VisionKernels) -> None:
        sizes = model.sizes
        assert isinstance(sizes, VisionSizes)
        self._sizes, self._kernels = sizes, kernels
        array = {name: value.astype(np.float64) for name, value in model.arrays.items()}
        pixels, message, frames = sizes.patch**2, sizes.message, sizes.stack
        # From the differences between frames ((f - 1) p, m), the previous action (m, A) and a bias.
        key, action, key_bias = (array[f"key.{name}"] for name in ("change", "action", "bias"))
        self._key_scale = _round_up_to_power_of_two(
            sum(np.abs(part).sum(1) for part in (key, action, key_bias[:, None]))
        )
        self._key = _round_weights_for_exact_sums(
            key.T / self._key_scale / WHITE, key.shape[1] * WHITE
        )
        self._key_action = action / self._key_scale[:, None]
        self._key_bias = key_bias / self._key_scale
        # From a frame's pixels (f, p, m) and its mean pixel (f, 1, m), both over its deviation.
        value = array["value.weight"].T.reshape(frames, pixels, message)
        value_bias = array["value.bias"] + np.einsum(
            "fpm,p->m", value, array.get("value_norm.bias", np.zeros(pixels))
        )
        value = value * array.get("value_norm.weight", np.ones(pixels))[:, None]
        # A normed frame's pixels have at most the length sqrt(p): Cauchy and Schwarz.
        longest = np.sqrt(pixels) * np.sqrt((value**2).sum(1)).sum(0)
        self._value_scale = _round_up_to_power_of_two(longest + np.abs(value_bias))
        self._value = _round_weights_for_exact_sums(value / self._value_scale, pixels * WHITE)
        self._value_mean = self._value.sum(1, keepdims=True)
        self._value_bias = value_bias / self._value_scale
        # (M, m): from a key to its scores.
        queries = np.zeros((0, message))
        if sizes.attention != "pma":
            table = make_positional_table(sizes.queries, sizes.positions)
            queries = table @ array["query.weight"].T + array["query.bias"]
        queries = queries * self._key_scale / np.sqrt(message)
        self._set = None
        if sizes.compares_channels:  # an encoder sees keys as they are, not within [-1, 1]
            unscaled = queries / self._key_scale
            self._set = SetTransformer(sizes, array, unscaled, np.zeros(len(queries)))
        self._queries, _ = round_weights_for_exact_products(queries)
        self._norm_weight = array.get("message_norm.weight", np.ones(message)).astype(F32)
        self._norm_bias = array.get("message_norm.bias", np.zeros(message)).astype(F32)
        self._allocate_buffers(0)

    def _allocate_buffers(self, patch_count: int) -> None:
        """Allocate the arrays for the intermediate results of a tick.

        Args:
            patch_count: The number of patches.
        """
        queries, message = self._sizes.queries, self._sizes.message
        self._exponential = np.zeros((queries, patch_count), F32)
        self._sum = np.ones((queries, message + 1))
        block = min(BLOCK, queries)
        self._scores = np.empty((block, patch_count))
        self._values = np.ones((patch_count, message + 1))
        bits = count_bits_for_exact_attention_sums(patch_count)
        self._to_values = compute_rounding_number(np.float64(2.0**-bits))
        self._to_attention = F32(1.5 * 2.0 ** (23 - bits))

    def __call__(self, patches: np.ndarray, previous_action: np.ndarray) -> np.ndarray:
        """Compute one tick and return the attention message (M, m).

        Args:
            patches: (N, f, p, p) uint8 the patches.
            previous_action: (A,) the previous action.
        """
        if len(patches) != self._exponential.shape[1]:
            self._allocate_buffers(len(patches))
        pma = self._sizes.attention == "pma"
        if not len(patches):
            nothing = np.zeros((0 if pma else self._sizes.queries, self._sizes.message), F32)
            return (
                self._pool_patches_to_message(nothing)
                if pma
                else self._apply_relu_and_layer_norm_to_message(nothing)
            )
        flat = patches.reshape(len(patches), self._sizes.stack, self._sizes.patch**2)
        pixels = flat.transpose(1, 0, 2).astype(np.float64)
        keys = self._compute_keys(pixels, previous_action)
        self._values[:, :-1] = self._compute_values(pixels)
        if pma:
            return self._pool_patches_to_message(keys)
        compared = None
        if self._set is not None:
            compared = self._set.compute_attention_scores(keys * self._key_scale)
        keys = np.ascontiguousarray(keys.T)
        for start in range(0, self._sizes.queries, BLOCK):
            rows = slice(start, min(start + BLOCK, self._sizes.queries))
            scores = self._scores[: rows.stop - start]
            if compared is None:
                np.dot(self._queries[rows], keys, out=scores)
            else:
                scores[...] = compared[rows]
            self._kernels.exponentiate_scores(scores, self._exponential[rows], self._to_attention)
            np.dot(scores, self._values, out=self._sum[rows])
        message = self._sum[:, :-1] / self._sum[:, -1:]
        message *= self._value_scale
        return self._apply_relu_and_layer_norm_to_message(message.astype(F32))

    def _pool_patches_to_message(self, keys: np.ndarray) -> np.ndarray:
        """Return the message (M, m) by pooling by multihead attention (PMA).

        What is pooled are the sums of each patch's key and value. The values must have been
        computed earlier in this tick.

        Args:
            keys: (N, m) the keys of the patches, scaled to within [-1, 1].
        """
        assert self._set is not None
        rows = self._values[:, :-1]
        rows *= self._value_scale
        rows += keys * self._key_scale
        message, attention = self._set.pool_channels_and_get_attention(rows)
        self._exponential[...] = attention
        return np.asarray(message, F32)

    def _compute_keys(self, pixels: np.ndarray, previous_action: np.ndarray) -> np.ndarray:
        """Return the keys (N, m) in [-1, 1] of the patches.

        Args:
            pixels: (f, N, p * p) the pixels of N patches in each of f frames.
            previous_action: (A,) the previous action.
        """
        change = np.diff(pixels, axis=0).transpose(1, 0, 2).reshape(pixels.shape[1], -1)
        common = self._key_bias + (self._key_action * previous_action).sum(1)
        keys = change.dot(self._key)
        keys += common
        keys += ROUND_OUTPUT
        keys -= ROUND_OUTPUT
        return keys

    def _compute_values(self, pixels: np.ndarray) -> np.ndarray:
        """Return the values (N, m) in [-1, 1] of the patches, from layer-normed pixels.

        Args:
            pixels: (f, N, p * p) the pixels of N patches in each of f frames.
        """
        mean = pixels.mean(axis=2, keepdims=True)
        square = np.square(pixels).mean(axis=2, keepdims=True)
        deviation = np.sqrt(square - mean * mean + NORM_EPSILON * WHITE**2)
        frames = np.matmul(pixels, self._value)
        frames -= mean * self._value_mean
        frames /= deviation
        value = self._value_bias + frames[0]
        for frame in frames[1:]:
            value += frame
        value += self._to_values
        value -= self._to_values
        return value

    def _apply_relu_and_layer_norm_to_message(self, message: np.ndarray) -> np.ndarray:
        """Set negative numbers of the attention message to 0, then apply the model's layer norm.

        Args:
            message: (M, m) the attention message; changed.

        Returns:
            The changed message itself.
        """
        self._kernels.apply_relu_and_layer_norm_to_message(
            message, self._norm_weight, self._norm_bias
        )
        return message

    @property
    def attention(self) -> np.ndarray:
        """The attention weights (M, N) of the last tick, a copy; each row sums to one."""
        return np.asarray(self._exponential / self._sum[:, -1:], F32)

    @property
    def patch_vectors(self) -> np.ndarray:
        """A copy of the last tick's patch vectors (N, m); their weighted sums make up the message.

        They are the values; with pooling by multihead attention (PMA), the sums of key and value.
        """
        return self._values[:, :-1].copy()


def _round_up_to_power_of_two(bound: np.ndarray) -> np.ndarray:
    """Return the smallest power of two above each bound.

    Each bound is first increased a little, to make up for rounding errors.

    Args:
        bound: An array of positive numbers.
    """
    return np.ldexp(1.0, np.frexp(bound * (1.0 + 2.0**-20))[1])


def _round_weights_for_exact_sums(weights: np.ndarray, largest_sum: float) -> np.ndarray:
    """Return weights rounded so that sums of their products with whole numbers are exact.

    Args:
        weights: The weights.
        largest_sum: The largest possible sum of the magnitudes of these whole numbers.
    """
    largest = max(float(np.abs(weights).max()), 2.0**-100)
    shift = compute_rounding_number(
        np.float64(2.0 ** (np.frexp(largest * largest_sum * 2.0)[1] - 53.0))
    )
    return np.asarray((weights + shift) - shift)
