"""Products with rows of weights, compiled: what every part of the compiled tick is made of."""

# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from an_control.system.compiled_cache import njit


@njit(inline="always", error_model="numpy")
def add_product(out, rows, x):
    """``out += x @ rows`` for as many x as there are rows; eight at a time keeps `out` loaded."""
    count, width = rows.shape
    whole = count - count % 8
    for k in range(0, whole, 8):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        x4, x5, x6, x7 = x[k + 4], x[k + 5], x[k + 6], x[k + 7]
        for j in range(width):
            total = out[j] + rows[k, j] * x0
            total = total + rows[k + 1, j] * x1
            total = total + rows[k + 2, j] * x2
            total = total + rows[k + 3, j] * x3
            total = total + rows[k + 4, j] * x4
            total = total + rows[k + 5, j] * x5
            total = total + rows[k + 6, j] * x6
            out[j] = total + rows[k + 7, j] * x7
    for k in range(whole, count):
        for j in range(width):
            out[j] += rows[k, j] * x[k]


@njit(inline="always", error_model="numpy")
def add_sparse_product(out, rows, x):
    """``out += x @ rows``, to the bits of `add_product`, without the rows for which x is 0.

    Most units of a relu layer are 0 at a time, and adding their nothing changes no bit.
    """
    width, count = rows.shape[1], 0
    active = np.empty(len(x), np.int64)
    for k in range(len(x)):
        active[count] = k
        count += x[k] != 0.0
    whole = count - count % 8
    for at in range(0, whole, 8):
        k0, k1, k2, k3 = active[at], active[at + 1], active[at + 2], active[at + 3]
        k4, k5, k6, k7 = active[at + 4], active[at + 5], active[at + 6], active[at + 7]
        x0, x1, x2, x3, x4, x5, x6, x7 = x[k0], x[k1], x[k2], x[k3], x[k4], x[k5], x[k6], x[k7]
        for j in range(width):
            total = out[j] + rows[k0, j] * x0
            total = total + rows[k1, j] * x1
            total = total + rows[k2, j] * x2
            total = total + rows[k3, j] * x3
            total = total + rows[k4, j] * x4
            total = total + rows[k5, j] * x5
            total = total + rows[k6, j] * x6
            out[j] = total + rows[k7, j] * x7
    for at in range(whole, count):
        k = active[at]
        for j in range(width):
            out[j] += rows[k, j] * x[k]


@njit(inline="always", error_model="numpy")
def add_two_products(out, other, rows, x, y):
    """``out += x @ rows`` and ``other += y @ rows``, each in `add_product`'s order."""
    count, width = rows.shape
    whole = count - count % 4
    for k in range(0, whole, 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        y0, y1, y2, y3 = y[k], y[k + 1], y[k + 2], y[k + 3]
        for j in range(width):
            r0, r1, r2, r3 = rows[k, j], rows[k + 1, j], rows[k + 2, j], rows[k + 3, j]
            out[j] = out[j] + r0 * x0 + r1 * x1 + r2 * x2 + r3 * x3
            other[j] = other[j] + r0 * y0 + r1 * y1 + r2 * y2 + r3 * y3
    for k in range(whole, count):
        for j in range(width):
            out[j] += rows[k, j] * x[k]
            other[j] += rows[k, j] * y[k]
