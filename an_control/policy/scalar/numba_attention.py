"""Softmax attention compiled, and the evidence in its scores. See `numba_engine`."""

# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from an_control.policy.float32_functions import exp
from an_control.policy.scalar.memory import MAX_ERROR
from an_control.system.compiled_cache import njit

F32 = np.float32
VECTOR = 8
"""Queries are padded to a multiple of this, for the compiler to vectorise over them."""


@njit(cache=True, error_model="numpy", nogil=True)
def softmax(scores):
    """In place, row by row; a step for all rows at a time, so that none waits for its own last.

    Eight queries side by side first: the compiler keeps the order it is given.
    """
    rows, queries = scores.shape
    part, scale = np.empty(VECTOR, F32), np.empty(rows, F32)
    for n in range(rows):
        for j in range(VECTOR):
            part[j] = scores[n, j]
        for q in range(VECTOR, queries, VECTOR):
            for j in range(VECTOR):
                part[j] = scores[n, q + j] if scores[n, q + j] > part[j] else part[j]
        for half in (4, 2, 1):
            for j in range(half):
                part[j] = part[j + half] if part[j + half] > part[j] else part[j]
        scale[n] = part[0]
    for n in range(rows):
        for q in range(queries):
            scores[n, q] = exp(scores[n, q] - scale[n])
    for n in range(rows):
        for j in range(VECTOR):
            part[j] = scores[n, j]
        for q in range(VECTOR, queries, VECTOR):
            for j in range(VECTOR):
                part[j] += scores[n, q + j]
        total = part[0]
        for j in range(1, VECTOR):
            total += part[j]
        scale[n] = F32(1.0) / total
    for n in range(rows):
        for q in range(queries):
            scores[n, q] *= scale[n]


@njit(inline="always", error_model="numpy")
def update_evidence(prediction, value, expected, evidence, score):
    """Bring one channel's evidence up to date, and add it to its score."""
    for q in range(len(expected)):
        error = value - expected[q]
        error = error * error * prediction[0, q]
        error = error if error < MAX_ERROR else MAX_ERROR
        loss = prediction[1, q] * (error / (error + F32(1.0)))
        new = prediction[3, q] * evidence[q] + prediction[2, q] - loss
        evidence[q] = new
        score[q] += new
