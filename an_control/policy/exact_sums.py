"""Sums that do not depend on their order, so that permuting the channels cannot change a bit.

A float64 holds 53 bits. Numbers that are all multiples of one power of two (a grid), and whose sum
is at most 2**53 times this power of two, add up without rounding, whatever order, blocking or fused
operation a library chooses (the pre-rounding of Demmel & Nguyen 2013, "Fast Reproducible
Floating-Point Summation"). Each number is first rounded to the grid on its own.
"""

from __future__ import annotations

import math
from typing import TypeVar

import numpy as np

OUTPUT_BITS = 24
"""Neuron outputs, all within [-1, 1], are rounded to multiples of 2**-OUTPUT_BITS."""

ORDINARY = 1024.0
"""The magnitude up to which all readings share one grid, so that an ordinary tick need not use the
largest reading to choose the grid."""

MAX_READING = 1e18
"""A reading beyond this magnitude counts as not finite, so that float32 arithmetic cannot
overflow."""


Spacing = TypeVar("Spacing", np.float64, np.ndarray)


def compute_rounding_number(spacing: Spacing) -> Spacing:
    """Return a large number r with which float64 numbers are rounded to multiples of `spacing`.

    If x is much smaller than r, then ``(x + r) - r`` is x rounded to such a multiple.

    Args:
        spacing: The distance between neighbouring multiples, a power of two; or an array of such
            distances.
    """
    return 1.5 * 2.0**52 * spacing


ROUND_OUTPUT = compute_rounding_number(np.float64(2.0**-OUTPUT_BITS))
ROUND_MASS = compute_rounding_number(np.float64(2.0**-30))
"""The rounding number for sums of up to 2**22 attention weights in [0, 1]."""


def round_weights_for_exact_products(weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Round weights so that their matrix product with neuron outputs has no rounding error.

    The outputs (d, N) must lie in [-1, 1] and be multiples of 2**-OUTPUT_BITS.

    Args:
        weights: (R, d) the weights.

    Returns:
        A pair: the weights (R, d), each row rounded to multiples of its own power of two; and for
        each row the number from `compute_rounding_number` with which it was rounded, as (R, 1).
    """
    room_to_round = 1.0 + 2.0**-20
    bits_above = np.frexp(np.abs(weights).sum(axis=1, keepdims=True) * room_to_round)[1]
    shifters = compute_rounding_number(np.ldexp(1.0, OUTPUT_BITS + bits_above - 53))
    return np.ascontiguousarray((weights + shifters) - shifters), shifters


def compute_sum_rounding_number(channel_count: int, largest_term: float) -> np.float64:
    """Return the number r that rounds the terms of a sum over channels, so that it becomes exact.

    The sum of the rounded terms ``(x + r) - r`` has no rounding error, so it does not depend on the
    order of the channels; see `compute_rounding_number`.

    Args:
        channel_count: The number of terms, one for each channel.
        largest_term: The largest magnitude of a term.
    """
    bits_above = math.frexp(largest_term * channel_count)[1] + 1
    return compute_rounding_number(np.float64(2.0 ** (bits_above - 52)))
