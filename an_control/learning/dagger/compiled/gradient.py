"""Back-propagation through time for the AttentionNeuron, compiled; lanes (episodes) last.

The authors' form with one linear layer behind the message: LSTM gates i, f, g, o, or a layer of
tanh units on stacked readings; attention W = tanh(S h); message m = tanh(sum over channels W o);
action tanh(out m + bias) (Tang & Ha 2021, section 3). For a tanh output, the cross-entropy between
an action and its label, both taken as chances of +1 against -1, has the plain difference as its
gradient, however saturated they are.

Beside the action, a linear reading of every neuron's output learns which channel it sees; that
gives the neurons a reason to tell the channels apart before the action's gradient does.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from an_control.compiled_cache import njit
from an_control.policy.elementary import tanh

F32 = np.float32
HALF, ONE = F32(0.5), F32(1.0)


class Parameters(NamedTuple):
    """The numbers, or their gradients with an axis of lanes behind; all float32."""

    input: np.ndarray  # (U, F) U = 4d of an LSTM, d of a stack
    action: np.ndarray  # (U, A)
    hidden: np.ndarray  # (4d, d), of a stack (d, 0)
    bias: np.ndarray  # (U,)
    scores: np.ndarray  # (M, d)
    out: np.ndarray  # (A, M)
    out_bias: np.ndarray  # (A,)
    channel: np.ndarray  # (C, d) the reading of which channel it is
    channel_bias: np.ndarray  # (C,)


class Piece(NamedTuple):
    """T steps of L episodes."""

    observed: np.ndarray  # (T, N, F, L) what enters each neuron, the newest reading first
    previous: np.ndarray  # (T, A, L) the actions before
    labels: np.ndarray  # (T, A, L) the teacher's
    counts: np.ndarray  # (T, L) 0 behind an episode's end, else 1
    channels: np.ndarray  # (T, N, L) int8: the channel that a slot shows; -1 for none, absent
    share: np.ndarray  # (T, L) what the sums over channels are multiplied by


class Tape(NamedTuple):
    """What the way forward leaves for the way back."""

    gates: np.ndarray  # (T, N, 4d, L) after their functions, of an LSTM
    h: np.ndarray  # (T + 1, N, d, L)
    c: np.ndarray  # (T + 1, N, d, L)
    squashed: np.ndarray  # (T, N, d, L) tanh(c)
    attention: np.ndarray  # (T, N, M, L)
    message: np.ndarray  # (T, M, L)
    actions: np.ndarray  # (T, A, L)


def tape(
    steps: int, slots: int, d: int, queries: int, actions: int, lanes: int, recurrent: bool = True
) -> Tape:
    """Room for a piece."""
    gates, cells = (4 * d, d) if recurrent else (0, 0)
    shapes = (
        (steps, slots, gates),
        (steps + 1, slots, d),
        (steps + 1, slots, cells),
        (steps, slots, cells),
        (steps, slots, queries),
        (steps, queries),
        (steps, actions),
    )
    return Tape(*(np.zeros((*shape, lanes), F32) for shape in shapes))


OPTIONS: Any = {"cache": True, "error_model": "numpy", "nogil": True, "fastmath": True}


@njit(**OPTIONS)
def forward(w, piece, tape):
    """Fill the tape from its first state on."""
    steps, slots, inputs, lanes = piece.observed.shape
    gates, queries, actions = w.bias.shape[0], w.scores.shape[0], w.out.shape[0]
    recurrent = w.hidden.shape[1] > 0
    common, sums = np.zeros((gates, lanes), F32), np.zeros((queries, lanes), F32)
    z = np.zeros((max(gates, queries), lanes), F32)
    for t in range(steps):
        for g in range(gates):
            for lane in range(lanes):
                common[g, lane] = w.bias[g]
            for a in range(actions):
                for lane in range(lanes):
                    common[g, lane] += w.action[g, a] * piece.previous[t, a, lane]
        sums[:] = F32(0.0)
        for i in range(slots):
            for g in range(gates):
                for lane in range(lanes):
                    z[g, lane] = common[g, lane]
                for f in range(inputs):
                    for lane in range(lanes):
                        z[g, lane] += w.input[g, f] * piece.observed[t, i, f, lane]
            if recurrent:
                _add(z, w.hidden, tape.h[t, i])
                _lstm(z, tape, t, i)
            else:
                for k in range(gates):
                    for lane in range(lanes):
                        tape.h[t + 1, i, k, lane] = tanh(z[k, lane])
            z[:] = F32(0.0)
            _add(z, w.scores, tape.h[t + 1, i])
            for q in range(queries):
                for lane in range(lanes):
                    weight = tanh(z[q, lane])
                    tape.attention[t, i, q, lane] = weight
                    sums[q, lane] += weight * piece.observed[t, i, 0, lane]
        for q in range(queries):
            for lane in range(lanes):
                tape.message[t, q, lane] = tanh(piece.share[t, lane] * sums[q, lane])
        for a in range(actions):
            for lane in range(lanes):
                z[a, lane] = w.out_bias[a]
            for q in range(queries):
                for lane in range(lanes):
                    z[a, lane] += w.out[a, q] * tape.message[t, q, lane]
            for lane in range(lanes):
                tape.actions[t, a, lane] = tanh(z[a, lane])


@njit(**OPTIONS)
def backward(w, piece, tape, share, gradient):
    """Add a piece's gradient (sums over its steps) to `gradient`, which keeps lanes apart.

    `share` weighs the channels' loss. Returns both losses' sums: squared errors of the actions,
    and of the channels' readings.
    """
    steps, slots, inputs, lanes = piece.observed.shape
    gates, (queries, d), actions = w.bias.shape[0], w.scores.shape, w.out.shape[0]
    recurrent = w.hidden.shape[1] > 0
    dh, dc = np.zeros((slots, d, lanes), F32), np.zeros((slots, d, lanes), F32)
    du, dm = np.zeros((actions, lanes), F32), np.zeros((queries, lanes), F32)
    ds, dz = np.zeros((queries, lanes), F32), np.zeros((gates, lanes), F32)
    loss, mistaken = 0.0, 0.0
    for t in range(steps - 1, -1, -1):
        dm[:] = F32(0.0)
        for a in range(actions):
            for lane in range(lanes):
                wrong = tape.actions[t, a, lane] - piece.labels[t, a, lane]
                du[a, lane] = wrong * piece.counts[t, lane]
                loss += wrong * du[a, lane]
                gradient.out_bias[a, lane] += du[a, lane]
            for q in range(queries):
                for lane in range(lanes):
                    gradient.out[a, q, lane] += du[a, lane] * tape.message[t, q, lane]
                    dm[q, lane] += du[a, lane] * w.out[a, q]
        for q in range(queries):
            for lane in range(lanes):
                message = tape.message[t, q, lane]
                dm[q, lane] *= piece.share[t, lane] * (ONE - message * message)
        for i in range(slots):
            for q in range(queries):
                for lane in range(lanes):
                    weight = tape.attention[t, i, q, lane]
                    reading = piece.observed[t, i, 0, lane]
                    ds[q, lane] = dm[q, lane] * reading * (ONE - weight * weight)
            _back(w.scores, ds, tape.h[t + 1, i], gradient.scores, dh[i])
            if share > F32(0.0):
                mistaken += _channels_back(w, piece, tape, t, i, share, gradient, dh)
            if recurrent:
                _lstm_back(tape, t, i, dh[i], dc[i], dz)
            else:
                for k in range(d):
                    for lane in range(lanes):
                        output = tape.h[t + 1, i, k, lane]
                        dz[k, lane] = dh[i, k, lane] * (ONE - output * output)
            dh[i] = F32(0.0)
            for g in range(gates):
                for lane in range(lanes):
                    gradient.bias[g, lane] += dz[g, lane]
                for f in range(inputs):
                    for lane in range(lanes):
                        gradient.input[g, f, lane] += dz[g, lane] * piece.observed[t, i, f, lane]
                for a in range(actions):
                    for lane in range(lanes):
                        gradient.action[g, a, lane] += dz[g, lane] * piece.previous[t, a, lane]
            if recurrent:
                _back(w.hidden, dz, tape.h[t, i], gradient.hidden, dh[i])
    return loss, mistaken


@njit(**OPTIONS)
def _lstm(z, tape, t, i):
    """Slot i's gates, cells and outputs, from the gates' inputs `z` (4d, L)."""
    d, lanes = tape.h.shape[2], z.shape[1]
    for g in range(4 * d):
        if 2 * d <= g < 3 * d:
            for lane in range(lanes):
                tape.gates[t, i, g, lane] = tanh(z[g, lane])
        else:
            for lane in range(lanes):
                tape.gates[t, i, g, lane] = HALF * tanh(HALF * z[g, lane]) + HALF
    for k in range(d):
        for lane in range(lanes):
            enter = tape.gates[t, i, k, lane] * tape.gates[t, i, 2 * d + k, lane]
            cell = tape.gates[t, i, d + k, lane] * tape.c[t, i, k, lane] + enter
            squashed = tanh(cell)
            tape.c[t + 1, i, k, lane] = cell
            tape.squashed[t, i, k, lane] = squashed
            tape.h[t + 1, i, k, lane] = tape.gates[t, i, 3 * d + k, lane] * squashed


@njit(**OPTIONS)
def _lstm_back(tape, t, i, dh, dc, dz):
    """From slot i's outputs `dh` (d, L) to its cells `dc` (d, L), in place, and gates `dz`."""
    d, lanes = dh.shape
    for k in range(d):
        for lane in range(lanes):
            enter, forget = tape.gates[t, i, k, lane], tape.gates[t, i, d + k, lane]
            new, leave = tape.gates[t, i, 2 * d + k, lane], tape.gates[t, i, 3 * d + k, lane]
            squashed, back = tape.squashed[t, i, k, lane], dh[k, lane]
            cell = dc[k, lane] + back * leave * (ONE - squashed * squashed)
            dz[k, lane] = cell * new * enter * (ONE - enter)
            dz[d + k, lane] = cell * tape.c[t, i, k, lane] * forget * (ONE - forget)
            dz[2 * d + k, lane] = cell * enter * (ONE - new * new)
            dz[3 * d + k, lane] = back * squashed * leave * (ONE - leave)
            dc[k, lane] = cell * forget


@njit(**OPTIONS)
def _channels_back(w, piece, tape, t, i, share, gradient, dh):
    """The squared error of reading slot i's channel, one-hot; returns it, adds its gradients."""
    lanes, mistaken = piece.counts.shape[1], 0.0
    d = dh.shape[1]
    wrong = np.zeros(lanes, F32)
    for c in range(w.channel.shape[0]):
        for lane in range(lanes):
            right = ONE if piece.channels[t, i, lane] == c else F32(0.0)
            wrong[lane] = w.channel_bias[c] - right
        for k in range(d):
            for lane in range(lanes):
                wrong[lane] += w.channel[c, k] * tape.h[t + 1, i, k, lane]
        for lane in range(lanes):
            there = ONE if piece.channels[t, i, lane] >= 0 else F32(0.0)
            wrong[lane] *= there * piece.counts[t, lane]
            mistaken += wrong[lane] * wrong[lane]
            wrong[lane] *= share
            gradient.channel_bias[c, lane] += wrong[lane]
        for k in range(d):
            for lane in range(lanes):
                gradient.channel[c, k, lane] += wrong[lane] * tape.h[t + 1, i, k, lane]
                dh[i, k, lane] += wrong[lane] * w.channel[c, k]
    return mistaken


@njit(**OPTIONS)
def _add(out, rows, x):
    """``out += rows @ x`` lane by lane: out (W, L), rows (W, K), x (K, L), K a multiple of 8."""
    lanes = out.shape[1]
    for j in range(rows.shape[0]):
        for k in range(0, rows.shape[1], 8):
            w0, w1, w2, w3 = rows[j, k], rows[j, k + 1], rows[j, k + 2], rows[j, k + 3]
            w4, w5, w6, w7 = rows[j, k + 4], rows[j, k + 5], rows[j, k + 6], rows[j, k + 7]
            for lane in range(lanes):
                out[j, lane] += (
                    w0 * x[k, lane]
                    + w1 * x[k + 1, lane]
                    + w2 * x[k + 2, lane]
                    + w3 * x[k + 3, lane]
                    + w4 * x[k + 4, lane]
                    + w5 * x[k + 5, lane]
                    + w6 * x[k + 6, lane]
                    + w7 * x[k + 7, lane]
                )


@njit(**OPTIONS)
def _back(rows, dy, x, gradient, dx):
    """For ``y = rows @ x`` lane by lane: add to the gradients of rows (W, K, L) and of x (K, L)."""
    width, count = rows.shape
    lanes = dy.shape[1]
    for j in range(width):
        for k in range(count):
            w = rows[j, k]
            for lane in range(lanes):
                gradient[j, k, lane] += dy[j, lane] * x[k, lane]
                dx[k, lane] += dy[j, lane] * w
