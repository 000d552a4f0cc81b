"""The monitor's inner loops, compiled by numba; without it they run as plain Python.

Importing this module imports numba, which takes a second: import it only in functions that compute.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from an_control.monitor.settings import FREEDOM, MAX_LOG_SCALE, MIN_LOG_SCALE
from an_control.policy.exact_sums import MAX_READING, ROUND_MASS
from an_control.system.compiled_cache import COMPILES, njit

__all__ = ["COMPILES", "add_costs", "assign", "mean_change", "predict_tick"]

F32 = np.float32
HALF = F32(0.5)
THIRD = F32(1.0 / FREEDOM)


@njit(cache=True, error_model="numpy", nogil=True)
def add_costs(
    costs, moved, expected, scale, reads, chance,
    binary, usual, width, max_ratio, noise, min_chance, min_likelihood,
):  # fmt: skip
    """Add the costs of T ticks to `costs` (slots, channels) float64.

    `Costs.channel_costs` is the same in numpy, and the oracle of the tests.

    Args:
        costs: (slots, channels), changed in place.
        moved: (T, slots), NaN where missing.
        expected: (T, channels) the expected values of `moved`.
        scale: (T, channels) the scale of the error, before `noise` adds its variance.
        reads: (T, slots) the readings.
        chance: (T, channels) the probability that a binary channel reads 1.
        binary: (channels,) which channels read 0 or 1.
        usual: (channels,) the cost of a missing slot.
        width: The distance within which a reading counts as 0 or 1.
        max_ratio: (channels,) the bound of the ratio of error and scale.
        noise: (channels,) the variance of the noise.
        min_chance: The least probability that a binary channel reads otherwise than expected.
        min_likelihood: The likelihood of a reading of a binary channel that is neither 0 nor 1.
    """
    count = costs.shape[0]
    offset = np.log(F32(width))
    for t in range(moved.shape[0]):
        for k in range(count):
            if binary[k]:
                likely = min(max(chance[t, k], F32(min_chance)), F32(1.0 - min_chance))
                for i in range(count):
                    z, o = reads[t, i] / F32(width), (reads[t, i] - F32(1.0)) / F32(width)
                    zero = F32(1.0) / (F32(1.0) + z * z * THIRD) ** 2
                    one = F32(1.0) / (F32(1.0) + o * o * THIRD) ** 2
                    mixed = likely * one + (F32(1.0) - likely) * zero
                    cost = offset - np.log(mixed + F32(min_likelihood))
                    costs[i, k] += cost if moved[t, i] == moved[t, i] else usual[k]
            else:
                noisy = np.sqrt(scale[t, k] * scale[t, k] + noise[k])
                inverse, log_scale = F32(1.0) / noisy, np.log(noisy)
                for i in range(count):
                    ratio = min(abs(moved[t, i] - expected[t, k]) * inverse, max_ratio[k])
                    cost = F32(2.0) * np.log(F32(1.0) + ratio * ratio * THIRD) + log_scale
                    costs[i, k] += cost if moved[t, i] == moved[t, i] else usual[k]


@njit(cache=True, error_model="numpy", nogil=True)
def assign(costs):
    """Return the slot of each channel (N,) in the assignment of least cost.

    First each channel takes its cheapest slot, unless a channel before it has taken that one. The
    remaining slots are assigned by shortest augmenting paths with potentials (Jonker & Volgenant
    1987).

    Args:
        costs: (slots, channels).
    """
    count = costs.shape[0]
    slot_price, channel_price = np.zeros(count + 1), np.zeros(count + 1)
    taker = np.full(count + 1, count)  # the slot of each channel; the last is a path's start
    least, came_from = np.empty(count), np.empty(count, np.int64)
    seen, left = np.empty(count + 1, np.bool_), np.ones(count, np.bool_)
    for k in range(count):
        slot = costs[:, k].argmin()
        channel_price[k] = costs[slot, k]
        if left[slot]:
            left[slot], taker[k] = False, slot
    for slot in range(count):
        if not left[slot]:
            continue
        taker[count] = slot
        channel = count
        least[:] = np.inf
        seen[:] = False
        while taker[channel] != count:
            seen[channel] = True
            i, step, nearest = taker[channel], np.inf, 0
            for k in range(count):
                if not seen[k]:
                    reduced = costs[i, k] - slot_price[i] - channel_price[k]
                    if reduced < least[k]:
                        least[k], came_from[k] = reduced, channel
                    if least[k] < step:
                        step, nearest = least[k], k
            if step == np.inf:  # NaN costs decide nothing
                return np.arange(count)
            for k in range(count + 1):
                if seen[k]:
                    slot_price[taker[k]] += step
                    channel_price[k] -= step
                elif k < count:
                    least[k] -= step
            channel = nearest
        while channel != count:
            before = came_from[channel]
            taker[channel] = taker[before]
            channel = before
    return taker[:count].copy()


@njit(cache=True, error_model="numpy", nogil=True)
def predict_tick(x, weights, biases, usual_change):
    """Return change, scale and chance (3, 1, N) for `x` (N + A,); see `ForwardModel.predict`."""
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
        log_scale = min(max(x[count + k], F32(MIN_LOG_SCALE)), F32(MAX_LOG_SCALE))
        found[0, 0, k] = x[k] * usual_change[k]
        found[1, 0, k] = usual_change[k] * np.exp(log_scale)
        found[2, 0, k] = HALF * np.tanh(HALF * x[k]) + HALF
    return found


@njit(cache=True, error_model="numpy", nogil=True)
def mean_change(values, last, most):
    """Return the mean absolute difference of readings (N,) and the `last` ones, in place.

    Channels that are NaN are left out; the result is NaN if all are. It has the same bits in any
    order of the channels.

    Args:
        values: (N,) float64 the readings.
        last: (N,) the readings before; overwritten by `values`.
        most: The bound of each channel's difference.
    """
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
