"""The loops of the vision policies in plain numpy, used if numba is not installed.

`numba_kernels` has the same functions compiled. Before the patches are summed, every operation is
elementwise over them, so that their order has no effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from an_control.policy.set_transformer import NORM_EPSILON

F32 = np.float32
BLOCK = 64
"""The number of rows of the self-attention that are computed together, so that they fit the
processor's cache."""


def exponentiate_scores(
    scores: np.ndarray, float32_copy: np.ndarray, rounding_number: np.float32
) -> None:
    """Replace attention scores by their exponentials (the numerators of a softmax), in place.

    Each row's largest score is subtracted first. The exponentials are rounded, so that the sums of
    their products with the N patches' values are exact.

    Args:
        scores: (rows, N) the scores; overwritten by the rounded exponentials.
        float32_copy: (rows, N) the array that receives the same exponentials as float32.
        rounding_number: The number that rounds the exponentials if it is added and subtracted, see
            `exact_sums.compute_rounding_number`.
    """
    scores -= scores.max(axis=1, keepdims=True)
    float32_copy[...] = scores
    np.exp(float32_copy, out=float32_copy)
    float32_copy += rounding_number
    float32_copy -= rounding_number
    scores[...] = float32_copy


def apply_relu_and_layer_norm_to_message(
    message: np.ndarray, weight: np.ndarray, bias: np.ndarray
) -> None:
    """Set negative numbers of the attention message to 0, then apply a layer norm, in place.

    Args:
        message: (M, m) the attention message, each row of which is normalised; changed.
        weight: (m,) the factors after the normalisation.
        bias: (m,) the summands after the factors.
    """
    np.maximum(message, 0.0, out=message)
    message -= message.mean(axis=1, keepdims=True)
    message /= np.sqrt(np.square(message).mean(axis=1, keepdims=True) + F32(NORM_EPSILON))
    message *= weight
    message += bias


def compute_attention_to_rows(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return how much attention each of M rows gets from all rows together.

    Each row's query gives attention to the keys of all rows, by a softmax.

    Args:
        queries: (M, a) the query of each row.
        keys: (M, a) the key of each row.

    Returns:
        (M,) the sums of the attention over the queries.
    """
    keys = np.ascontiguousarray(keys.T)
    total = np.zeros(len(queries), F32)
    for start in range(0, len(queries), BLOCK):
        scores = queries[start : start + BLOCK].dot(keys)
        scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        total += scores.sum(axis=0)
    return total


def convolve_image(
    image: np.ndarray, weights: np.ndarray, bias: np.ndarray, size: int, step: int
) -> np.ndarray:
    """Return the convolution of an image with square windows; negative numbers become 0.

    Args:
        image: (rows, columns, planes) the image.
        weights: (size * size * planes, out) the weights of each output plane for a window.
        bias: (out,) the bias of each output plane.
        size: The width and the height of a window in pixels.
        step: The step from window to window in pixels.

    Returns:
        An array (rows', columns', out), with one row and one column for each position of the
        window.
    """
    windows = np.lib.stride_tricks.sliding_window_view(image, (size, size), axis=(0, 1))
    windows = windows[::step, ::step].transpose(0, 1, 3, 4, 2)
    rows, columns = windows.shape[:2]
    sums = windows.reshape(rows * columns, -1).dot(weights)
    sums += bias
    return np.asarray(np.maximum(sums, 0.0).reshape(rows, columns, -1))


def add_matrix_product(out: np.ndarray, matrix: np.ndarray, vector: np.ndarray) -> None:
    """Add the product ``vector @ matrix`` to `out`, in place.

    Args:
        out: (out,) the array that is changed.
        matrix: (in, out) the matrix.
        vector: (in,) the vector.
    """
    out += vector.dot(matrix)


class VisionKernels(NamedTuple):
    """A set of the functions that the vision policies need, in plain numpy or compiled."""

    name: str
    exponentiate_scores: Callable[[np.ndarray, np.ndarray, np.float32], None]
    apply_relu_and_layer_norm_to_message: Callable[[np.ndarray, np.ndarray, np.ndarray], None]
    compute_attention_to_rows: Callable[[np.ndarray, np.ndarray], np.ndarray]
    convolve_image: Callable[[np.ndarray, np.ndarray, np.ndarray, int, int], np.ndarray]
    add_matrix_product: Callable[[np.ndarray, np.ndarray, np.ndarray], None]


PLAIN = VisionKernels(
    "numpy",
    exponentiate_scores,
    apply_relu_and_layer_norm_to_message,
    compute_attention_to_rows,
    convolve_image,
    add_matrix_product,
)
