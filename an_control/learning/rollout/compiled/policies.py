"""The policies' arithmetic over lanes: episodes side by side, lane last in every array.

Every lane has its own weights, so that candidates play side by side. It computes what the policy
core's compiled engine computes, operation for operation and in the same order, so that a fused
episode has the same bits as one played tick by tick. The compiler vectorises over lanes, whose
number is fixed for that; without fast-math flags it fuses and reorders nothing.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import math

import numpy as np

from an_control.policy.exact_sums import ROUND_MASS
from an_control.policy.float32_functions import exp, tanh
from an_control.policy.scalar.numba_attention import VECTOR as EIGHT
from an_control.system.compiled_cache import njit

F32 = np.float32
LANES = 64
"""Four registers of 16: their independent chains of operations hide each other's latency."""
HALF = F32(0.5)
MASS = np.float64(ROUND_MASS)


@njit(error_model="numpy", nogil=True)
def take_weights(candidates, candidate, lane, rows, bias, weights, head):
    """Put a candidate's weights into a lane: `rows` (., 4d, L) of the gates, the scores' `bias`
    (M, L) and `weights` (K, M, L), and `head` (., L)."""
    for k in range(rows.shape[0]):
        for g in range(rows.shape[1]):
            rows[k, g, lane] = candidates.gate_rows[candidate, k, g]
    for q in range(bias.shape[0]):
        bias[q, lane] = candidates.score_rows[candidate, 0, q]
        for k in range(candidates.score_rows.shape[1] - 1):
            weights[k, q, lane] = candidates.score_rows[candidate, 1 + k, q]
    for i in range(head.shape[0]):
        head[i, lane] = candidates.head[candidate, i]


@njit(forceinline=True, error_model="numpy", nogil=True)
def gate_inputs(form, rows, action, common, drive):
    """What all channels share: `common` (4d, L), and what drives a channel, `drive` (F, 4d, L).

    `rows` (., 4d, L) are the gates' weights, as `Packed` orders them.
    """
    inputs, actions, gates = form.inputs, action.shape[0], common.shape[0]
    for g in range(gates):
        for lane in range(LANES):
            common[g, lane] = rows[0, g, lane]
        for a in range(actions):
            for lane in range(LANES):
                common[g, lane] += rows[1 + inputs + a, g, lane] * action[a, lane]
    for f in range(inputs):
        for g in range(gates):
            for lane in range(LANES):
                drive[f, g, lane] = rows[1 + f, g, lane]
        if form.products:
            for a in range(actions):
                row = 1 + inputs + actions + form.recurrent + f * actions + a
                for g in range(gates):
                    for lane in range(LANES):
                        drive[f, g, lane] += rows[row, g, lane] * action[a, lane]


@njit(forceinline=True, error_model="numpy", nogil=True)
def add_products(out, rows, x):
    """``out[i] += rows.T @ x[i]`` in every lane: out (N, W, L), rows (K, W, L), x (N, K, L).

    K is a multiple of 8 (rows and x are padded with zeros, which change no bit).
    """
    channels, width, _ = out.shape
    for k in range(0, rows.shape[0], 8):
        for j in range(width):
            for i in range(channels):
                for lane in range(LANES):
                    total = out[i, j, lane] + rows[k, j, lane] * x[i, k, lane]
                    total = total + rows[k + 1, j, lane] * x[i, k + 1, lane]
                    total = total + rows[k + 2, j, lane] * x[i, k + 2, lane]
                    total = total + rows[k + 3, j, lane] * x[i, k + 3, lane]
                    total = total + rows[k + 4, j, lane] * x[i, k + 4, lane]
                    total = total + rows[k + 5, j, lane] * x[i, k + 5, lane]
                    total = total + rows[k + 6, j, lane] * x[i, k + 6, lane]
                    out[i, j, lane] = total + rows[k + 7, j, lane] * x[i, k + 7, lane]


@njit(forceinline=True, error_model="numpy", nogil=True)
def drive_gates(shown, last, z, common, drive):
    """What drives the gates `z` (N, 4d, L) beside h: the readings `shown` (N, L), their change."""
    channels, gates, _ = z.shape
    for i in range(channels):
        for g in range(gates):
            for lane in range(LANES):
                z[i, g, lane] = common[g, lane] + drive[0, g, lane] * shown[i, lane]
        if drive.shape[0] > 1:
            for lane in range(LANES):
                known = last[i, lane] == last[i, lane]
                change = shown[i, lane] - last[i, lane] if known else F32(0.0)
                last[i, lane] = change
            for g in range(gates):
                for lane in range(LANES):
                    z[i, g, lane] += drive[1, g, lane] * last[i, lane]
            for lane in range(LANES):
                last[i, lane] = shown[i, lane]


@njit(forceinline=True, error_model="numpy", nogil=True)
def stack_readings(shown, readings):
    """Put the readings `shown` (N, L) before the older ones (N, k, L); a NaN was none."""
    for i in range(readings.shape[0]):
        for f in range(readings.shape[1] - 1, 0, -1):
            for lane in range(LANES):
                older = readings[i, f - 1, lane]
                readings[i, f, lane] = older if older == older else shown[i, lane]
        for lane in range(LANES):
            readings[i, 0, lane] = shown[i, lane]


@njit(forceinline=True, error_model="numpy", nogil=True)
def advance_stacks(readings, common, drive, h):
    """The outputs h (N, K, L) of a layer of tanh units on the stacked readings (N, k, L)."""
    for i in range(readings.shape[0]):
        for g in range(common.shape[0]):
            for lane in range(LANES):
                h[i, g, lane] = common[g, lane] + drive[0, g, lane] * readings[i, 0, lane]
            for f in range(1, readings.shape[1]):
                for lane in range(LANES):
                    h[i, g, lane] += drive[f, g, lane] * readings[i, f, lane]
            for lane in range(LANES):
                h[i, g, lane] = tanh(h[i, g, lane])


@njit(forceinline=True, error_model="numpy", nogil=True)
def small_gates(shown, common, drive, hidden, h, z):
    """`drive_gates`, `add_products` and `squash` in one, for one input and K = 8."""
    for i in range(z.shape[0]):
        for g in range(z.shape[1]):
            for lane in range(LANES):
                total = common[g, lane] + drive[0, g, lane] * shown[i, lane]
                total = total + hidden[0, g, lane] * h[i, 0, lane]
                total = total + hidden[1, g, lane] * h[i, 1, lane]
                total = total + hidden[2, g, lane] * h[i, 2, lane]
                total = total + hidden[3, g, lane] * h[i, 3, lane]
                total = total + hidden[4, g, lane] * h[i, 4, lane]
                total = total + hidden[5, g, lane] * h[i, 5, lane]
                total = total + hidden[6, g, lane] * h[i, 6, lane]
                z[i, g, lane] = tanh(total + hidden[7, g, lane] * h[i, 7, lane])


@njit(forceinline=True, error_model="numpy", nogil=True)
def small_attention(bias, weights, h, score):
    """`bias_scores`, `add_products` and `attend` in one, for tanh attention and K = 8."""
    for i in range(score.shape[0]):
        for q in range(score.shape[1]):
            for lane in range(LANES):
                total = bias[q, lane] + weights[0, q, lane] * h[i, 0, lane]
                total = total + weights[1, q, lane] * h[i, 1, lane]
                total = total + weights[2, q, lane] * h[i, 2, lane]
                total = total + weights[3, q, lane] * h[i, 3, lane]
                total = total + weights[4, q, lane] * h[i, 4, lane]
                total = total + weights[5, q, lane] * h[i, 5, lane]
                total = total + weights[6, q, lane] * h[i, 6, lane]
                score[i, q, lane] = tanh(total + weights[7, q, lane] * h[i, 7, lane])


@njit(forceinline=True, error_model="numpy", nogil=True)
def squash(z):
    """tanh of the gates' inputs, in place."""
    for i in range(z.shape[0]):
        for g in range(z.shape[1]):
            for lane in range(LANES):
                z[i, g, lane] = tanh(z[i, g, lane])


@njit(forceinline=True, error_model="numpy", nogil=True)
def advance_cells(z, h, c):
    """The LSTMs' cells c (N, d, L) and outputs h (N, K, L), in place, from the gates."""
    d = c.shape[1]
    for i in range(c.shape[0]):
        for k in range(d):
            for lane in range(LANES):
                enter = HALF * z[i, k, lane] + HALF
                forget = HALF * z[i, d + k, lane] + HALF
                cell = forget * c[i, k, lane] + enter * z[i, 3 * d + k, lane]
                c[i, k, lane] = cell
                h[i, k, lane] = (HALF * z[i, 2 * d + k, lane] + HALF) * tanh(cell)


@njit(forceinline=True, error_model="numpy", nogil=True)
def bias_scores(bias, score):
    """Begin the scores (N, M, L) at their biases (M, L)."""
    channels, queries, _ = score.shape
    for i in range(channels):
        for q in range(queries):
            for lane in range(LANES):
                score[i, q, lane] = bias[q, lane]


@njit(forceinline=True, error_model="numpy", nogil=True)
def attend(softmax, score, work):
    """The attention (N, M, L) in place of the scores; `work` (3, L) is room for a softmax.

    Its sum goes as the compiled engine's: every eighth query first, then these eight.
    """
    channels, queries, _ = score.shape
    if not softmax:
        for i in range(channels):
            for q in range(queries):
                for lane in range(LANES):
                    score[i, q, lane] = tanh(score[i, q, lane])
        return
    for i in range(channels):
        for lane in range(LANES):
            work[0, lane] = score[i, 0, lane]
        for q in range(1, queries):
            for lane in range(LANES):
                more = score[i, q, lane] > work[0, lane]
                work[0, lane] = score[i, q, lane] if more else work[0, lane]
        for q in range(queries):
            for lane in range(LANES):
                score[i, q, lane] = exp(score[i, q, lane] - work[0, lane])
        for lane in range(LANES):
            work[1, lane] = F32(0.0)
        for first in range(min(queries, EIGHT)):
            for lane in range(LANES):
                work[2, lane] = score[i, first, lane]
            for q in range(first + EIGHT, queries, EIGHT):
                for lane in range(LANES):
                    work[2, lane] += score[i, q, lane]
            for lane in range(LANES):
                work[1, lane] += work[2, lane]
        for lane in range(LANES):
            work[1, lane] = F32(1.0) / work[1, lane]
        for q in range(queries):
            for lane in range(LANES):
                score[i, q, lane] *= work[1, lane]


@njit(forceinline=True, error_model="numpy", nogil=True)
def sum_message(form, score, shown, present, count, shift, sums, mass):
    """The message's sums (M, L) over the channels, `count` (L,) of them present.

    They are exact before they are normalised. An absent channel shows zero.
    """
    channels, queries, _ = score.shape
    for q in range(queries):
        for lane in range(LANES):
            sums[q, lane], mass[q, lane] = 0.0, 0.0
        for i in range(channels):
            for lane in range(LANES):
                weight, reading = np.float64(score[i, q, lane]), np.float64(shown[i, lane])
                sums[q, lane] += (shift[lane] + weight * reading) - shift[lane]
            if form.softmax:
                for lane in range(LANES):
                    weight = np.float64(score[i, q, lane]) * present[i, lane]
                    mass[q, lane] += (weight + MASS) - MASS
        if form.normalise and form.softmax:
            for lane in range(LANES):
                sums[q, lane] /= max(mass[q, lane], 1.0)
                mass[q, lane] = min(mass[q, lane], 1.0)
        elif form.normalise:
            for lane in range(LANES):
                sums[q, lane] *= np.float64(form.normalise) / max(1.0, count[lane])


@njit(forceinline=True, error_model="numpy", nogil=True)
def close_message(softmax, sums, mass, narrow, message):
    """The head's input (., L) float64 from the sums; `narrow` (M, L) float32 is room."""
    queries = sums.shape[0]
    if softmax:
        for q in range(queries - 1):
            for lane in range(LANES):
                message[q, lane] = sums[q, lane]
                message[queries - 1 + q, lane] = mass[q, lane] - 1.0
        return
    for q in range(queries):
        for lane in range(LANES):
            narrow[q, lane] = F32(sums[q, lane])
    for q in range(queries):
        for lane in range(LANES):
            narrow[q, lane] = tanh(narrow[q, lane])
    for q in range(queries):
        for lane in range(LANES):
            message[q, lane] = np.float64(narrow[q, lane])


@njit(forceinline=True, error_model="numpy", nogil=True)
def act(form, head, widths, x, y, action):
    """The head (., L): `x` (W, L) holds its input, overwritten as `y` is; into `action` (A, L)."""
    layers, at = len(widths), 0
    inputs = (len(head) - _numbers_behind(widths)) // widths[0] - 1
    for layer in range(layers):
        width = widths[layer]
        for j in range(width):
            for lane in range(LANES):
                y[j, lane] = head[at + j, lane]
        at += width
        for i in range(inputs):
            for j in range(width):
                for lane in range(LANES):
                    y[j, lane] += head[at + j, lane] * x[i, lane]
            at += width
        last = layer == layers - 1
        for j in range(width):
            if last and form.clip:
                for lane in range(LANES):
                    x[j, lane] = min(max(y[j, lane], -1.0), 1.0)
            elif last or not form.relu:
                for lane in range(LANES):
                    x[j, lane] = tanh(F32(y[j, lane]))
            else:
                for lane in range(LANES):
                    x[j, lane] = max(y[j, lane], 0.0)
        inputs = width
    for a in range(action.shape[0]):
        for lane in range(LANES):
            action[a, lane] = F32(x[a, lane])


@njit(forceinline=True, error_model="numpy", nogil=True)
def _numbers_behind(widths):
    """How many numbers a head's layers after the first hold."""
    total = 0
    for layer in range(1, len(widths)):
        total += (widths[layer - 1] + 1) * widths[layer]
    return total


@njit(forceinline=True, error_model="numpy", nogil=True)
def shift_of(grid):
    """`round_terms` of the policy core: the shifter for terms of at most `grid` in all."""
    _, bits = math.frexp(grid)
    return 1.5 * 2.0**52 * math.ldexp(1.0, bits + 1 - 52)
