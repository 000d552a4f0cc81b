"""`recovery`'s mean change of a tick, compiled: the same bits."""

# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from an_control.policy.exact_sums import MAX_READING, ROUND_MASS
from an_control.system.compiled_cache import njit


@njit(cache=True, error_model="numpy", nogil=True)
def mean_change(values, last, most):
    """See `recovery.mean_change`."""
    total, known = 0.0, 0
    for i in range(len(values)):
        value = min(max(values[i], -MAX_READING), MAX_READING)
        change = abs(value - last[i])
        last[i] = value
        if change > most:
            change = most
        if change >= 0.0:  # not NaN
            total += (change + ROUND_MASS) - ROUND_MASS
            known += 1
    return total / known if known else np.nan
