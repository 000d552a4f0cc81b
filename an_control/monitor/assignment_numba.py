"""`assignment`, compiled."""

# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from an_control.monitor.assignment import FREEDOM, MIN_CHANCE, MIN_LIKELIHOOD
from an_control.system.compiled_cache import njit

F32 = np.float32
THIRD = F32(1.0 / FREEDOM)


@njit(cache=True, error_model="numpy", nogil=True)
def add_costs(costs, moved, expected, scale, reads, chance, binary, usual, width, max_ratio, noise):
    """See `assignment.add_costs`."""
    count = costs.shape[0]
    offset = np.log(F32(width))
    for t in range(moved.shape[0]):
        for k in range(count):
            if binary[k]:
                likely = min(max(chance[t, k], F32(MIN_CHANCE)), F32(1.0 - MIN_CHANCE))
                for i in range(count):
                    z, o = reads[t, i] / F32(width), (reads[t, i] - F32(1.0)) / F32(width)
                    zero = F32(1.0) / (F32(1.0) + z * z * THIRD) ** 2
                    one = F32(1.0) / (F32(1.0) + o * o * THIRD) ** 2
                    mixed = likely * one + (F32(1.0) - likely) * zero
                    cost = offset - np.log(mixed + F32(MIN_LIKELIHOOD))
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
    """See `assignment.assign`."""
    count = costs.shape[0]
    slot_price, channel_price = np.zeros(count + 1), np.zeros(count + 1)
    taker = np.full(count + 1, count)
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
            if step == np.inf:  # costs that are no numbers tell nothing
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
