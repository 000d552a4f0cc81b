"""Compiled arithmetic of the policies over a batch of episodes, the last index of every array.

Every column has its own weights, so that different candidates play at once. The operations and
their order are those of the policy core's compiled engine, so that an episode has the same bits as
one that is played tick by tick. The batch size is fixed so that the compiler vectorises over it;
without fast-math flags it fuses and reorders nothing.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import math

import numpy as np

from an_control.policy.exact_sums import ROUND_MASS
from an_control.policy.numba_engine import VECTOR as EIGHT
from an_control.policy.numba_engine import exp, tanh
from an_control.system.compiled_cache import njit

F32 = np.float32
BATCH = 64
"""Batch size: four vector registers of 16, whose independent operations hide each other's
latency."""
HALF = F32(0.5)
MASS = np.float64(ROUND_MASS)


@njit(error_model="numpy", nogil=True)
def load_weights(candidates, candidate, b, rows, bias, weights, head):
    """Copy a candidate's weights into column `b` of the batch.

    The targets are `rows` (., 4d, B) of the gates, the scores' `bias` (M, B) and `weights` (K, M,
    B), and `head` (., B).
    """
    for k in range(rows.shape[0]):
        for g in range(rows.shape[1]):
            rows[k, g, b] = candidates.gate_rows[candidate, k, g]
    for q in range(bias.shape[0]):
        bias[q, b] = candidates.score_rows[candidate, 0, q]
        for k in range(candidates.score_rows.shape[1] - 1):
            weights[k, q, b] = candidates.score_rows[candidate, 1 + k, q]
    for i in range(head.shape[0]):
        head[i, b] = candidates.head[candidate, i]


@njit(forceinline=True, error_model="numpy", nogil=True)
def compute_gate_inputs(form, rows, action, common, drive):
    """Compute the part of the gates that all channels share, and each channel's input weights.

    They go to `common` (4d, B) and `drive` (F, 4d, B). `rows` (., 4d, B) are the gates' weights in
    the order of `Packed`.
    """
    inputs, actions, gates = form.inputs, action.shape[0], common.shape[0]
    for g in range(gates):
        for b in range(BATCH):
            common[g, b] = rows[0, g, b]
        for a in range(actions):
            for b in range(BATCH):
                common[g, b] += rows[1 + inputs + a, g, b] * action[a, b]
    for f in range(inputs):
        for g in range(gates):
            for b in range(BATCH):
                drive[f, g, b] = rows[1 + f, g, b]
        if form.products:
            for a in range(actions):
                row = 1 + inputs + actions + form.recurrent + f * actions + a
                for g in range(gates):
                    for b in range(BATCH):
                        drive[f, g, b] += rows[row, g, b] * action[a, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def add_products(out, rows, x):
    """Add ``rows.T @ x[i]`` to ``out[i]`` in every column.

    The shapes are out (N, W, B), rows (K, W, B) and x (N, K, B). K is a multiple of 8; rows and x
    are padded with zeros, which change no bit.
    """
    channels, width, _ = out.shape
    for k in range(0, rows.shape[0], 8):
        for j in range(width):
            for i in range(channels):
                for b in range(BATCH):
                    total = out[i, j, b] + rows[k, j, b] * x[i, k, b]
                    total = total + rows[k + 1, j, b] * x[i, k + 1, b]
                    total = total + rows[k + 2, j, b] * x[i, k + 2, b]
                    total = total + rows[k + 3, j, b] * x[i, k + 3, b]
                    total = total + rows[k + 4, j, b] * x[i, k + 4, b]
                    total = total + rows[k + 5, j, b] * x[i, k + 5, b]
                    total = total + rows[k + 6, j, b] * x[i, k + 6, b]
                    out[i, j, b] = total + rows[k + 7, j, b] * x[i, k + 7, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def drive_gates(shown, last, z, common, drive):
    """Compute the gates `z` (N, 4d, B) without h, from the readings `shown` (N, B)."""
    channels, gates, _ = z.shape
    for i in range(channels):
        for g in range(gates):
            for b in range(BATCH):
                z[i, g, b] = common[g, b] + drive[0, g, b] * shown[i, b]
        if drive.shape[0] > 1:
            for b in range(BATCH):
                known = last[i, b] == last[i, b]
                change = shown[i, b] - last[i, b] if known else F32(0.0)
                last[i, b] = change
            for g in range(gates):
                for b in range(BATCH):
                    z[i, g, b] += drive[1, g, b] * last[i, b]
            for b in range(BATCH):
                last[i, b] = shown[i, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def add_hints(z, hints):
    """Add the identity hints (N, 4d, B) to the gates `z`."""
    for i in range(hints.shape[0]):
        for g in range(z.shape[1]):
            for b in range(BATCH):
                z[i, g, b] += hints[i, g, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def stack_readings(shown, readings):
    """Shift the readings `shown` (N, B) into the stacks (N, k, B); NaN marks an empty place."""
    for i in range(readings.shape[0]):
        for f in range(readings.shape[1] - 1, 0, -1):
            for b in range(BATCH):
                older = readings[i, f - 1, b]
                readings[i, f, b] = older if older == older else shown[i, b]
        for b in range(BATCH):
            readings[i, 0, b] = shown[i, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def advance_stacks(readings, common, drive, h):
    """Compute the outputs h (N, K, B) of a tanh layer on the stacked readings (N, k, B)."""
    for i in range(readings.shape[0]):
        for g in range(common.shape[0]):
            for b in range(BATCH):
                h[i, g, b] = common[g, b] + drive[0, g, b] * readings[i, 0, b]
            for f in range(1, readings.shape[1]):
                for b in range(BATCH):
                    h[i, g, b] += drive[f, g, b] * readings[i, f, b]
            for b in range(BATCH):
                h[i, g, b] = tanh(h[i, g, b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def compute_small_gates(shown, common, drive, hidden, h, z):
    """Compute `drive_gates`, `add_products` and `apply_tanh` at once, for one input and K = 8."""
    for i in range(z.shape[0]):
        for g in range(z.shape[1]):
            for b in range(BATCH):
                total = common[g, b] + drive[0, g, b] * shown[i, b]
                total = total + hidden[0, g, b] * h[i, 0, b]
                total = total + hidden[1, g, b] * h[i, 1, b]
                total = total + hidden[2, g, b] * h[i, 2, b]
                total = total + hidden[3, g, b] * h[i, 3, b]
                total = total + hidden[4, g, b] * h[i, 4, b]
                total = total + hidden[5, g, b] * h[i, 5, b]
                total = total + hidden[6, g, b] * h[i, 6, b]
                z[i, g, b] = tanh(total + hidden[7, g, b] * h[i, 7, b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def compute_small_attention(bias, weights, h, score):
    """Compute the attention from h in one pass, for tanh attention and K = 8.

    It replaces `set_scores_to_bias`, `add_products` and `apply_attention`.
    """
    for i in range(score.shape[0]):
        for q in range(score.shape[1]):
            for b in range(BATCH):
                total = bias[q, b] + weights[0, q, b] * h[i, 0, b]
                total = total + weights[1, q, b] * h[i, 1, b]
                total = total + weights[2, q, b] * h[i, 2, b]
                total = total + weights[3, q, b] * h[i, 3, b]
                total = total + weights[4, q, b] * h[i, 4, b]
                total = total + weights[5, q, b] * h[i, 5, b]
                total = total + weights[6, q, b] * h[i, 6, b]
                score[i, q, b] = tanh(total + weights[7, q, b] * h[i, 7, b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def apply_tanh(z):
    """Apply tanh to the gates in place."""
    for i in range(z.shape[0]):
        for g in range(z.shape[1]):
            for b in range(BATCH):
                z[i, g, b] = tanh(z[i, g, b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def advance_cells(z, h, c):
    """Update the LSTMs' cells c (N, d, B) and outputs h (N, K, B) in place, from the gates."""
    d = c.shape[1]
    for i in range(c.shape[0]):
        for k in range(d):
            for b in range(BATCH):
                enter = HALF * z[i, k, b] + HALF
                forget = HALF * z[i, d + k, b] + HALF
                cell = forget * c[i, k, b] + enter * z[i, 3 * d + k, b]
                c[i, k, b] = cell
                h[i, k, b] = (HALF * z[i, 2 * d + k, b] + HALF) * tanh(cell)


@njit(forceinline=True, error_model="numpy", nogil=True)
def set_scores_to_bias(bias, score):
    """Set the scores (N, M, B) to their biases (M, B)."""
    channels, queries, _ = score.shape
    for i in range(channels):
        for q in range(queries):
            for b in range(BATCH):
                score[i, q, b] = bias[q, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def apply_attention(softmax, score, work):
    """Replace the scores (N, M, B) by the attention; `work` (3, B) is scratch space for a softmax.

    The softmax sums every eighth query first and then these eight sums, as the compiled engine
    does.
    """
    channels, queries, _ = score.shape
    if not softmax:
        for i in range(channels):
            for q in range(queries):
                for b in range(BATCH):
                    score[i, q, b] = tanh(score[i, q, b])
        return
    for i in range(channels):
        for b in range(BATCH):
            work[0, b] = score[i, 0, b]
        for q in range(1, queries):
            for b in range(BATCH):
                more = score[i, q, b] > work[0, b]
                work[0, b] = score[i, q, b] if more else work[0, b]
        for q in range(queries):
            for b in range(BATCH):
                score[i, q, b] = exp(score[i, q, b] - work[0, b])
        for b in range(BATCH):
            work[1, b] = F32(0.0)
        for first in range(min(queries, EIGHT)):
            for b in range(BATCH):
                work[2, b] = score[i, first, b]
            for q in range(first + EIGHT, queries, EIGHT):
                for b in range(BATCH):
                    work[2, b] += score[i, q, b]
            for b in range(BATCH):
                work[1, b] += work[2, b]
        for b in range(BATCH):
            work[1, b] = F32(1.0) / work[1, b]
        for q in range(queries):
            for b in range(BATCH):
                score[i, q, b] *= work[1, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def sum_message(form, score, shown, present, count, shift, sums, mass):
    """Compute the message's sums (M, B) over the channels, of which `count` (B,) are present.

    The sums are exact before they are normalised. A missing channel must have the reading 0.
    """
    channels, queries, _ = score.shape
    for q in range(queries):
        for b in range(BATCH):
            sums[q, b], mass[q, b] = 0.0, 0.0
        for i in range(channels):
            for b in range(BATCH):
                weight, reading = np.float64(score[i, q, b]), np.float64(shown[i, b])
                sums[q, b] += (shift[b] + weight * reading) - shift[b]
            if form.softmax:
                for b in range(BATCH):
                    weight = np.float64(score[i, q, b]) * present[i, b]
                    mass[q, b] += (weight + MASS) - MASS
        if form.normalise and form.softmax:
            for b in range(BATCH):
                sums[q, b] /= max(mass[q, b], 1.0)
                mass[q, b] = min(mass[q, b], 1.0)
        elif form.normalise:
            for b in range(BATCH):
                sums[q, b] *= np.float64(form.normalise) / max(1.0, count[b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def finish_message(softmax, sums, mass, narrow, message):
    """Compute the head's input (., B) float64 from the sums; `narrow` (M, B) is scratch space."""
    queries = sums.shape[0]
    if softmax:
        for q in range(queries - 1):
            for b in range(BATCH):
                message[q, b] = sums[q, b]
                message[queries - 1 + q, b] = mass[q, b] - 1.0
        return
    for q in range(queries):
        for b in range(BATCH):
            narrow[q, b] = F32(sums[q, b])
    for q in range(queries):
        for b in range(BATCH):
            narrow[q, b] = tanh(narrow[q, b])
    for q in range(queries):
        for b in range(BATCH):
            message[q, b] = np.float64(narrow[q, b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def apply_head(form, head, widths, x, y, action):
    """Apply the head (., B) to its input `x` (W, B) and write the action (A, B).

    `x` and `y` are overwritten.
    """
    layers, at = len(widths), 0
    inputs = (len(head) - _count_later_weights(widths)) // widths[0] - 1
    for layer in range(layers):
        width = widths[layer]
        for j in range(width):
            for b in range(BATCH):
                y[j, b] = head[at + j, b]
        at += width
        for i in range(inputs):
            for j in range(width):
                for b in range(BATCH):
                    y[j, b] += head[at + j, b] * x[i, b]
            at += width
        last = layer == layers - 1
        for j in range(width):
            if last and form.clip:
                for b in range(BATCH):
                    x[j, b] = min(max(y[j, b], -1.0), 1.0)
            elif last or not form.relu:
                for b in range(BATCH):
                    x[j, b] = tanh(F32(y[j, b]))
            else:
                for b in range(BATCH):
                    x[j, b] = max(y[j, b], 0.0)
        inputs = width
    for a in range(action.shape[0]):
        for b in range(BATCH):
            action[a, b] = F32(x[a, b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def _count_later_weights(widths):
    """Return the number of weights in a head's layers after the first one."""
    total = 0
    for layer in range(1, len(widths)):
        total += (widths[layer - 1] + 1) * widths[layer]
    return total


@njit(forceinline=True, error_model="numpy", nogil=True)
def rounding_shift(grid):
    """Return the rounding shift for terms whose sum is at most `grid`.

    The policy core's `shifter_for_sum` does the same.
    """
    _, bits = math.frexp(grid)
    return 1.5 * 2.0**52 * math.ldexp(1.0, bits + 1 - 52)
