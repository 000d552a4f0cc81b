"""The head compiled, and its memory. See `numba_engine`."""

# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from an_control.policy.float32_functions import tanh
from an_control.policy.scalar.numba_products import add_product, add_sparse_product
from an_control.system.compiled_cache import njit

F32 = np.float32


@njit(cache=True, error_model="numpy", nogil=True)
def expect(memory, previous, memory_rows, expecting_rows):
    """Advance the head's memory; see `an_control.policy.scalar.memory`. Returns what it expects."""
    units = memory_rows.shape[1] // 3
    seen = len(memory) - units
    entering, staying = memory_rows[0].copy(), memory_rows[len(memory_rows) - 1].copy()
    state = memory[seen:]
    add_product(entering, memory_rows[1 : 1 + seen], memory[:seen])
    behind = 1 + seen + units
    add_product(entering, memory_rows[behind : behind + len(previous)], previous)
    add_product(staying, memory_rows[1 + seen : behind], state)
    for k in range(2 * units):
        entering[k] = F32(0.5) * tanh(entering[k] + staying[k]) + F32(0.5)
    for k in range(units):
        new = tanh(entering[2 * units + k] + entering[k] * staying[2 * units + k])
        state[k] = new + entering[units + k] * (state[k] - new)
    expected = expecting_rows[0].copy()
    add_product(expected, expecting_rows[1:behind], memory)
    add_product(expected, expecting_rows[behind : behind + len(previous)], previous)
    return expected


@njit(inline="always", error_model="numpy")
def update_memory(memory, units, sums, mass, expected, outlier_weight):
    """What the sums over channels make of what was expected: what is seen, and its shares."""
    routed = (len(memory) - units) // 2
    for q in range(routed):
        share = min(mass[q], 1.0)
        news = sums[q] / max(mass[q], 1.0) - share * expected[q]
        trust = 1.0 / (1.0 + outlier_weight[q] * news * news)
        memory[q], memory[routed + q] = trust * share, expected[q] + trust * news


@njit(cache=True, error_model="numpy", nogil=True)
def act(message, head, widths, relu, clip):
    """The head. `head` holds for each layer the bias (out,), then weights (in, out)."""
    x, at = message, 0
    for layer in range(len(widths)):
        width = widths[layer]
        y = head[at : at + width].copy()
        at += width
        size = len(x) * width
        rows = head[at : at + size].reshape(len(x), width)
        if relu and layer > 0:
            add_sparse_product(y, rows, x)
        else:
            add_product(y, rows, x)
        at += size
        last = layer == len(widths) - 1
        for j in range(width):
            if last and clip:
                y[j] = min(max(y[j], -1.0), 1.0)
            elif last or not relu:
                y[j] = tanh(F32(y[j]))
            else:
                y[j] = max(y[j], 0.0)
        x = y
    return x.astype(np.float32)
