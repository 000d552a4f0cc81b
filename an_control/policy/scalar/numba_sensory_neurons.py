"""The sensory neurons compiled: both forms, and what resets them. See `numba_engine`."""

# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from an_control.policy.exact_sums import ROUND_MASS
from an_control.policy.float32_functions import tanh
from an_control.policy.scalar.numba_products import add_two_products
from an_control.policy.scalar.reset_on_jump import JUMP_LIMIT, USUAL
from an_control.system.compiled_cache import njit

F32 = np.float32


@njit(cache=True, error_model="numpy", nogil=True)
def advance_lstm(values, columns, drive, hidden, state):
    """An LSTM's tick. Columns of `state` (., 2d + 1): outputs h, cells c, the last reading.

    Rows of `drive`: what all channels share, the weights of each input.
    """
    gates = drive.shape[1]
    d = gates // 4
    # Arrays made here cannot overlap, which the compiler must know to vectorise.
    z, c = (np.empty(gates, F32), np.empty(gates, F32)), np.empty(d, F32)
    # Two channels at a time, so that each weight is loaded once for both; where the last one is
    # alone, it is its own companion, of whom nothing is kept.
    for first in range(0, values.shape[0], 2):
        count = min(2, values.shape[0] - first)
        for i in range(2):
            n, zi = first + min(i, count - 1), z[i]
            value, last = values[n], state[columns[n], 2 * d]
            if len(drive) > 2:
                change = value - last if last == last else F32(0.0)
                for g in range(gates):
                    zi[g] = drive[0, g] + drive[1, g] * value + drive[2, g] * change
            else:
                for g in range(gates):
                    zi[g] = drive[0, g] + drive[1, g] * value
        one, other = state[columns[first]], state[columns[first + count - 1]]
        add_two_products(z[0], z[1], hidden, one, other)
        for i in range(count):
            zi, own = z[i], state[columns[first + i]]
            for g in range(gates):
                zi[g] = tanh(zi[g])
            for k in range(d):
                enter = F32(0.5) * zi[k] + F32(0.5)
                forget = F32(0.5) * zi[d + k] + F32(0.5)
                c[k] = forget * own[d + k] + enter * zi[3 * d + k]
            for k in range(d):
                own[d + k] = c[k]
            for k in range(d):
                own[k] = (F32(0.5) * zi[2 * d + k] + F32(0.5)) * tanh(c[k])
            own[2 * d] = values[first + i]


@njit(cache=True, error_model="numpy", nogil=True)
def advance_stack(values, columns, drive, state):
    """A tick on stacked readings. Columns of `state` (., d + k): outputs h, newest to oldest."""
    inputs, d = len(drive) - 1, drive.shape[1]
    h = np.empty(d, F32)
    for n in range(values.shape[0]):
        value, column = values[n], columns[n]
        new = state[column, d] != state[column, d]
        for f in range(inputs - 1, 0, -1):
            state[column, d + f] = value if new else state[column, d + f - 1]
        state[column, d] = value
        for k in range(d):
            h[k] = drive[0, k] + drive[1, k] * value
        for f in range(1, inputs):
            reading = state[column, d + f]
            for k in range(d):
                h[k] += drive[1 + f, k] * reading
        for k in range(d):
            h[k] = tanh(h[k])
        for k in range(d):
            state[column, k] = h[k]


@njit(inline="always", error_model="numpy")
def reset_on_jump(values, columns, state, known):
    """Reset every neuron where most readings jump; see `policy.scalar.reset_on_jump`.

    `known` says where a neuron's readings begin in its state, and how many there are.
    """
    last, usual = state.shape[1] - 2, state.shape[1] - 1
    excess = 0.0
    for n in range(len(values)):
        own = state[columns[n]]
        jump = abs(values[n] - own[last])
        jump = min(jump, F32(1.0)) if jump == jump else F32(0.0)
        beyond = max(jump - own[usual], F32(0.0))
        excess += (np.float64(beyond) + ROUND_MASS) - ROUND_MASS
        own[usual] += (jump + jump - own[usual]) * USUAL
    if excess > JUMP_LIMIT * len(values):
        state[:, :usual] = 0.0
        state[:, known[0] : known[0] + known[1]] = np.nan
        state[:, last] = np.nan
    for n in range(len(values)):
        state[columns[n], last] = values[n]
