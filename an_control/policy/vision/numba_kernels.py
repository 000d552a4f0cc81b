"""The functions of `kernels`, compiled with numba.

Here too, operations before the sum over the patches are elementwise over them. Later operations do
not depend on the patches' order, so the compiler may reorder the sums in them; it reorders them in
the same way every time.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from an_control.policy.numba_engine import compute_exp
from an_control.policy.set_transformer import NORM_EPSILON
from an_control.policy.vision.kernels import VisionKernels
from an_control.system.compiled_cache import njit

F32 = np.float32
EPSILON = F32(NORM_EPSILON)


@njit(cache=True, error_model="numpy", nogil=True)
def exponentiate_scores(scores, float32_copy, rounding_number):
    """Replace attention scores by their exponentials (the numerators of a softmax), in place.

    Each row's largest score is subtracted first. The exponentials are rounded, so that the sums of
    their products with the N patches' values are exact.

    Args:
        scores: (rows, N) the scores; overwritten by the rounded exponentials.
        float32_copy: (rows, N) the array that receives the same exponentials as float32.
        rounding_number: A large number. Adding it to an exponential and subtracting it again rounds
            the exponential; see `exact_sums.compute_rounding_number`.
    """
    row = np.empty(scores.shape[1], F32)
    for m in range(len(scores)):
        largest = _find_largest_number(scores[m])
        for n in range(len(row)):
            row[n] = (compute_exp(F32(scores[m, n] - largest)) + rounding_number) - rounding_number
        for n in range(len(row)):
            float32_copy[m, n] = row[n]
            scores[m, n] = row[n]


@njit(cache=True, error_model="numpy", nogil=True)
def apply_relu_and_layer_norm_to_message(message, weight, bias):
    """Set negative numbers of the attention message to 0, then apply a layer norm, in place.

    Args:
        message: (M, m) the attention message, each row of which is normalised; changed.
        weight: (m,) the factors after the normalisation.
        bias: (m,) the summands after the factors.
    """
    width = message.shape[1]
    for m in range(len(message)):
        mean, variance = F32(0.0), F32(0.0)
        for j in range(width):
            message[m, j] = max(message[m, j], F32(0.0))
            mean += message[m, j]
        mean /= F32(width)
        for j in range(width):
            message[m, j] -= mean
            variance += message[m, j] * message[m, j]
        deviation = np.sqrt(variance / F32(width) + EPSILON)
        for j in range(width):
            message[m, j] = message[m, j] / deviation * weight[j] + bias[j]


def compute_attention_to_rows(queries, keys):
    """Return how much attention each of M rows gets from all rows together.

    Each row's query gives attention to the keys of all rows, by a softmax.

    Args:
        queries: (M, a) the query of each row.
        keys: (M, a) the key of each row.

    Returns:
        (M,) the sums of the attention over the queries.
    """
    few = (0, 0), (0, max(4 - queries.shape[1], 0))
    return _compute_attention_to_rows(
        np.pad(queries, few), np.ascontiguousarray(np.pad(keys, few).T)
    )


@njit(cache=True, error_model="numpy", nogil=True)
def _compute_attention_to_rows(queries, keys):
    """Return how much attention (M,) each row gets from all rows together.

    It is the compiled part of `compute_attention_to_rows`.

    Args:
        queries: (M, a) the query of each row, of width a = 4 or more.
        keys: (a, M) the keys, transposed.
    """
    rows = len(queries)
    scores, largest = np.empty(rows, F32), np.full(rows, F32(-np.inf))
    importance, turned = np.zeros(rows, F32), queries.T.copy()
    for j in range(rows):  # maxima of all rows side by side, many times faster
        _compute_matrix_product(scores, turned, keys[:, j])
        for i in range(rows):
            largest[i] = scores[i] if scores[i] > largest[i] else largest[i]
    for i in range(rows):
        _compute_matrix_product(scores, keys, queries[i])
        top = largest[i]
        for j in range(rows):
            scores[j] = compute_exp(scores[j] - top)
        share = F32(1.0) / _compute_sum(scores)
        for j in range(rows):
            importance[j] += scores[j] * share
    return importance


@njit(inline="always", error_model="numpy")
def _compute_matrix_product(out, matrix, vector):
    """Compute ``out = vector @ matrix`` for a vector of length 4 or more, in place."""
    x0, x1, x2, x3 = vector[0], vector[1], vector[2], vector[3]
    for j in range(len(out)):
        out[j] = x0 * matrix[0, j] + x1 * matrix[1, j] + x2 * matrix[2, j] + x3 * matrix[3, j]
    for k in range(4, len(vector)):
        for j in range(len(out)):
            out[j] += vector[k] * matrix[k, j]


@njit(cache=True, error_model="numpy", nogil=True, fastmath=True)
def _find_largest_number(x):
    """Return the largest number of an array (n,)."""
    largest = x[0]
    for i in range(len(x)):
        largest = x[i] if x[i] > largest else largest
    return largest


@njit(cache=True, error_model="numpy", nogil=True, fastmath=True)
def _compute_sum(x):
    """Return the sum of an array (n,)."""
    total = F32(0.0)
    for i in range(len(x)):
        total += x[i]
    return total


@njit(cache=True, error_model="numpy", nogil=True, fastmath=True)
def convolve_image(image, weights, bias, size, step):
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
    planes = image.shape[2]
    rows = (image.shape[0] - size) // step + 1
    columns = (image.shape[1] - size) // step + 1
    out = np.empty((rows, columns, len(bias)), F32)
    total, window = np.empty(len(bias), F32), np.empty(size * size * planes, F32)
    for r in range(rows):
        for c in range(columns):
            at = 0
            for i in range(size):
                for j in range(size):
                    for k in range(planes):
                        window[at] = image[r * step + i, c * step + j, k]
                        at += 1
            total[:] = bias
            _add_dense_product(total, weights, window)
            for k in range(len(bias)):
                out[r, c, k] = max(total[k], F32(0.0))
    return out


@njit(inline="always", error_model="numpy")
def _add_dense_product(out, matrix, vector):
    """Add the product ``vector @ matrix`` to `out`, in place, four rows at a time."""
    count, width = len(vector), len(out)
    whole = count - count % 4
    for k in range(0, whole, 4):
        x0, x1, x2, x3 = vector[k], vector[k + 1], vector[k + 2], vector[k + 3]
        for j in range(width):
            total = out[j] + matrix[k, j] * x0
            total = total + matrix[k + 1, j] * x1
            total = total + matrix[k + 2, j] * x2
            out[j] = total + matrix[k + 3, j] * x3
    for k in range(whole, count):
        for j in range(width):
            out[j] += matrix[k, j] * vector[k]


@njit(cache=True, error_model="numpy", nogil=True, fastmath=True)
def add_matrix_product(out, matrix, vector):
    """Add the product ``vector @ matrix`` to `out`, in place.

    Elements of the vector that are 0 are skipped, which is faster.

    Args:
        out: (out,) the array that is changed.
        matrix: (in, out) the matrix.
        vector: (in,) the vector.
    """
    for k in range(len(vector)):
        number = vector[k]
        if number != F32(0.0):
            for j in range(len(out)):
                out[j] += matrix[k, j] * number


COMPILED = VisionKernels(
    "numba",
    exponentiate_scores,
    apply_relu_and_layer_norm_to_message,
    compute_attention_to_rows,
    convolve_image,
    add_matrix_product,
)
