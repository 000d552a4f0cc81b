"""`forward_model`'s prediction of a single tick, compiled."""

# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from an_control.monitor.forward_model import HIGHEST, LOWEST
from an_control.system.compiled_cache import njit

F32 = np.float32
HALF = F32(0.5)


@njit(cache=True, error_model="numpy", nogil=True)
def predict(x, weights, biases, usual_change):
    """Change, scale and chance (3, 1, N) after `x` (N + A,): see `ForwardModel.predict`."""
    last = len(weights) - 1
    for layer in range(last + 1):
        weight, y = weights[layer], biases[layer].copy()
        for i in range(len(x)):
            for j in range(len(y)):
                y[j] += x[i] * weight[i, j]
        if layer < last:
            for j in range(len(y)):
                y[j] *= HALF * np.tanh(HALF * y[j]) + HALF
        x = y
    count = len(usual_change)
    found = np.empty((3, 1, count), F32)
    for k in range(count):
        log_scale = min(max(x[count + k], F32(LOWEST)), F32(HIGHEST))
        found[0, 0, k] = x[k] * usual_change[k]
        found[1, 0, k] = usual_change[k] * np.exp(log_scale)
        found[2, 0, k] = HALF * np.tanh(HALF * x[k]) + HALF
    return found
