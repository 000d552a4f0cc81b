"""The monitor's inner loops, compiled by numba; without it they run as plain Python.

Importing this module imports numba, which takes a second: import it only in functions that compute.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from an_control.monitor.settings import FREEDOM, MAX_LOG_SCALE, MIN_LOG_SCALE
from an_control.policy.exact_sums import MAX_READING, ROUND_MASS
from an_control.system.compiled_cache import COMPILES, njit

__all__ = [
    "COMPILES",
    "add_tick_costs_to_matrix",
    "compute_mean_change_and_store_readings",
    "predict_next_changes",
    "solve_assignment",
]

F32 = np.float32
HALF = F32(0.5)
THIRD = F32(1.0 / FREEDOM)


@njit(cache=True, error_model="numpy", nogil=True)
def add_tick_costs_to_matrix(
    costs, observed, expected, scale, readings, probability,
    binary, usual, width, max_ratio, noise_variance, min_probability, min_likelihood,
):  # fmt: skip
    """Add to `costs` how badly each slot's readings of T ticks fit each channel, in place.

    The cost of assigning input slot i to channel k is the negative log-likelihood, in nats, of the
    slot's reading under the prediction for the channel. `CostCalculator.compute_reading_costs`
    computes the same in numpy; the tests compare both.

    Args:
        costs: (slots, channels) float64 the costs so far; changed in place.
        observed: (T, slots) either the readings or their changes from tick to tick, whichever
            `expected` predicts; NaN where missing.
        expected: (T, channels) the expected values of `observed`.
        scale: (T, channels) the scale of the error, before `noise_variance` is added.
        readings: (T, slots) the readings, by which binary channels are judged.
        probability: (T, channels) the probability that a binary channel reads 1.
        binary: (channels,) True for channels that read 0 or 1.
        usual: (channels,) the usual cost of each channel, which a slot without a reading costs.
        width: The distance within which a reading counts as 0 or 1.
        max_ratio: (channels,) the upper bound of error / scale, against outliers.
        noise_variance: (channels,) the variance of the noise.
        min_probability: The lower bound of the probability that a binary channel does not read as
            expected.
        min_likelihood: The likelihood of a binary channel's reading that is neither 0 nor 1.
    """
    count = costs.shape[0]
    offset = np.log(F32(width))
    for t in range(observed.shape[0]):
        for k in range(count):
            if binary[k]:
                likely = min(
                    max(probability[t, k], F32(min_probability)), F32(1.0 - min_probability)
                )
                for i in range(count):
                    z, o = readings[t, i] / F32(width), (readings[t, i] - F32(1.0)) / F32(width)
                    zero = F32(1.0) / (F32(1.0) + z * z * THIRD) ** 2
                    one = F32(1.0) / (F32(1.0) + o * o * THIRD) ** 2
                    mixed = likely * one + (F32(1.0) - likely) * zero
                    cost = offset - np.log(mixed + F32(min_likelihood))
                    costs[i, k] += cost if observed[t, i] == observed[t, i] else usual[k]
            else:
                noisy = np.sqrt(scale[t, k] * scale[t, k] + noise_variance[k])
                inverse, log_scale = F32(1.0) / noisy, np.log(noisy)
                for i in range(count):
                    ratio = min(abs(observed[t, i] - expected[t, k]) * inverse, max_ratio[k])
                    cost = F32(2.0) * np.log(F32(1.0) + ratio * ratio * THIRD) + log_scale
                    costs[i, k] += cost if observed[t, i] == observed[t, i] else usual[k]


@njit(cache=True, error_model="numpy", nogil=True)
def solve_assignment(costs):
    """Return the input slot (N,) of each channel in the one-to-one assignment of least total cost.

    First each channel takes its cheapest slot, unless an earlier channel has taken it. The
    remaining slots are assigned by shortest augmenting paths with potentials (Jonker & Volgenant
    1987). If a cost is NaN, slot i may be returned for channel i.

    Args:
        costs: (slots, channels) the cost of assigning each slot to each channel.
    """
    count = costs.shape[0]
    slot_price, channel_price = np.zeros(count + 1), np.zeros(count + 1)
    taker = np.full(count + 1, count)  # each channel's slot; the last entry is the start of a path
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
            if step == np.inf:  # with NaN costs there is no best assignment
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
def predict_next_changes(inputs, weights, biases, usual_change):
    """Predict how the readings change until the next tick, by the forward model's network.

    Args:
        inputs: (N + A,) the present readings, then the action.
        weights: The weights (in, out) of each layer.
        biases: The biases (out,) of each layer.
        usual_change: (N,) the usual change of each channel in a tick.

    Returns:
        (3, 1, N): each channel's change, the scale of its error, and for a binary channel the
        probability that it reads 1. See `ForwardModel.predict_changes`.
    """
    x, last = inputs, len(weights) - 1
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
def compute_mean_change_and_store_readings(readings, previous_readings, max_channel_change):
    """Return the mean magnitude of the readings' changes since the tick before.

    The readings are then stored in `previous_readings`, for the next call. Channels with NaN in
    either tick are left out; if none is left, the result is NaN. The result has the same bits in
    any order of the channels.

    Args:
        readings: (N,) float64 the readings of this tick.
        previous_readings: (N,) the readings of the tick before; overwritten.
        max_channel_change: A larger change of a channel counts as this much.
    """
    total, known = 0.0, 0
    for i in range(len(readings)):
        value = min(max(readings[i], -MAX_READING), MAX_READING)
        change = abs(value - previous_readings[i])
        previous_readings[i] = value
        if change > max_channel_change:
            change = max_channel_change
        if change >= 0.0:  # not NaN
            total += (change + ROUND_MASS) - ROUND_MASS
            known += 1
    return total / known if known else np.nan
