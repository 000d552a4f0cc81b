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


def exponentiate_scores(scores: np.ndarray, exponential: np.ndarray, grid: np.float32) -> None:
    """Replace attention scores by their exponentials, the numerators of a softmax, in place.

    Args:
        scores: (rows, N) the scores; overwritten by their exponentials, rounded by `grid`.
        exponential: (rows, N) receives the same exponentials as float32.
        grid: A number that rounds other numbers to a grid if it is added to them and subtracted,
            see `exact_sums.shifter`.
    """
    scores -= scores.max(axis=1, keepdims=True)
    exponential[...] = scores
    np.exp(exponential, out=exponential)
    exponential += grid
    exponential -= grid
    scores[...] = exponential


def normalise_message(message: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> None:
    """Replace the attention message by the layer norm of its positive part, in place.

    Args:
        message: (M, m) the message; changed.
        weight: (m,) the factors after the normalisation.
        bias: (m,) what is added after the factors.
    """
    np.maximum(message, 0.0, out=message)
    message -= message.mean(axis=1, keepdims=True)
    message /= np.sqrt(np.square(message).mean(axis=1, keepdims=True) + F32(NORM_EPSILON))
    message *= weight
    message += bias


def compute_importance(queries: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the attention (M,) that each row gets from all rows, by a softmax over each query.

    Args:
        queries: (M, a) the query of each row.
        keys: (M, a) the key of each row.
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
    """Return the positive part of the convolution of an image with square windows.

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


def add_rows(out: np.ndarray, rows: np.ndarray, x: np.ndarray) -> None:
    """Add the product of `x` (in,) and `rows` (in, out) to `out` (out,), in place."""
    out += x.dot(rows)


class Kernels(NamedTuple):
    """The set of functions of this module, plain or compiled."""

    name: str
    exponentiate_scores: Callable[[np.ndarray, np.ndarray, np.float32], None]
    normalise_message: Callable[[np.ndarray, np.ndarray, np.ndarray], None]
    compute_importance: Callable[[np.ndarray, np.ndarray], np.ndarray]
    convolve_image: Callable[[np.ndarray, np.ndarray, np.ndarray, int, int], np.ndarray]
    add_rows: Callable[[np.ndarray, np.ndarray, np.ndarray], None]


PLAIN = Kernels(
    "numpy", exponentiate_scores, normalise_message, compute_importance, convolve_image, add_rows
)
