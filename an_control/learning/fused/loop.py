"""The fused rollout: policy and dynamics in one compiled loop, a queue refilling finished lanes.

Episodes of one policy advance together, each in a lane; a lane whose episode has ended takes the
next from the queue at once, so that no work is done on finished episodes while any is left.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit, typeof, types

from an_control.learning.fused.policies import (
    F32,
    act,
    add_products,
    advance_cells,
    attend,
    bias_scores,
    close_message,
    drive_gates,
    gate_inputs,
    shift_of,
    small_attention,
    small_gates,
    squash,
    sum_message,
)
from an_control.policy.exact import LARGEST_READING, ORDINARY
from an_control.policy.numba_engine import Packed


class Conditions(NamedTuple):
    """What is done to the readings of E episodes with N channels; empty arrays do nothing."""

    order: np.ndarray
    """(E, B, N) int64: the content that each slot shows, in block b of `every` steps."""
    every: int
    """Steps until the next block; 0 for never."""
    noise: np.ndarray
    """(E, steps, K) float32: readings of K further channels."""
    present: np.ndarray
    """(E, N) float64: 0 where a content is absent, 1 elsewhere."""


class Recording(NamedTuple):
    """Room for what happens, and whose action counts; empty arrays record nothing."""

    observations: np.ndarray
    """(E, steps, N) float32, in nominal order."""
    actions: np.ndarray
    """(E, steps, A) float32."""
    labels: np.ndarray
    """(E, steps, A) float32: the teacher's actions."""
    teaching: np.ndarray
    """(E, 2) int64: from which step to before which the teacher acts."""


def as_they_are() -> Conditions:
    """Readings without any disturbance."""
    return Conditions(np.zeros((0, 0, 0), np.int64), 0, np.zeros((0, 0, 0), F32), np.zeros((0, 0)))


def unrecorded() -> Recording:
    empty = np.zeros((0, 0, 0), F32)
    return Recording(empty, empty, empty, np.zeros((0, 2), np.int64))


def nobody() -> Packed:
    """No teacher."""
    form = (1, False, False, False, False)
    return Packed(
        np.zeros((0, 0), F32), np.zeros((0, 0), F32), np.zeros(0), np.zeros(0, np.int64), form
    )


OBSERVE = types.FunctionType(types.void(types.float64[:, ::1], types.float32[:, ::1]))
ADVANCE = types.FunctionType(
    types.void(types.float64[:, ::1], types.float32[:, ::1], types.float64[::1], types.boolean[::1])
)


@njit(
    (
        typeof(nobody()),
        typeof(nobody()),
        OBSERVE,
        ADVANCE,
        types.float64[:, ::1],
        types.int64,
        types.int64,
        types.int64,
        typeof(as_they_are()),
        typeof(unrecorded()),
        types.int64,
        types.float64[::1],
        types.int64[::1],
    ),
    cache=True,
    error_model="numpy",
    nogil=True,
)
def run(
    packed,
    teacher,
    observe,
    advance,
    starts,
    channels,
    actions,
    limit,
    conditions,
    recording,
    lanes,
    returns,
    steps,
):
    """Play the episodes that begin in `starts` (E, S) to their ends, or `limit` steps.

    Fills `returns` and `steps` (E,); a return is NaN where a reward or a reading was not finite.
    """
    episodes, states = starts.shape
    order, every, noise, here = conditions
    slots = channels + noise.shape[2]
    recurrent, taught = packed.gate_rows.shape[0] > 0, teacher.head.shape[0] > 0
    gates, queries = packed.gate_rows.shape[1], packed.score_rows.shape[1]
    d, widest = gates // 4, slots
    padded = d + -d % 8
    first, (inputs, products, softmax, _, _) = 1 + packed.form[0] + actions, packed.form
    hidden, weights = np.zeros((padded, gates), F32), np.zeros((padded, queries), F32)
    if recurrent:
        hidden[:d] = packed.gate_rows[first : first + d]
        weights[:d] = packed.score_rows[1:]
    for width in packed.widths:
        widest = max(widest, width)
    for width in teacher.widths:
        widest = max(widest, width)
    widest = max(widest, 2 * queries)

    state = np.zeros((states, lanes))
    content, shown = np.zeros((channels, lanes), F32), np.zeros((slots, lanes), F32)
    present, place = np.ones((slots, lanes)), np.zeros((channels, lanes), np.int64)
    h, c = np.zeros((slots, padded, lanes), F32), np.zeros((slots, d, lanes), F32)
    last = np.zeros((slots, lanes), F32)
    action, label = np.zeros((actions, lanes), F32), np.zeros((actions, lanes), F32)
    common, z = np.zeros((gates, lanes), F32), np.zeros((slots, gates, lanes), F32)
    drive = np.zeros((inputs, gates, lanes), F32)
    if recurrent and not products:
        for f in range(inputs):
            for g in range(gates):
                drive[f, g] = packed.gate_rows[1 + f, g]
    score, work = np.zeros((slots, queries, lanes), F32), np.zeros((2, lanes), F32)
    narrow = np.zeros((queries, lanes), F32)
    sums, mass = np.zeros((queries, lanes)), np.zeros((queries, lanes))
    x, y = np.zeros((widest, lanes)), np.zeros((widest, lanes))
    reward, ended = np.zeros(lanes), np.zeros(lanes, np.bool_)
    size, count, total = np.zeros(lanes), np.zeros(lanes), np.zeros(lanes)
    grids, shift = np.zeros(lanes), np.zeros(lanes)
    episode, at = np.full(lanes, -2, np.int64), np.zeros(lanes, np.int64)

    following, active = 0, 0
    while True:
        for lane in range(lanes):
            if episode[lane] == -2:
                episode[lane], at[lane], total[lane] = -1, 0, 0.0
                if following < episodes:
                    episode[lane] = following
                    following, active = following + 1, active + 1
                for i in range(actions):
                    action[i, lane] = F32(0.0)
                for i in range(slots):
                    last[i, lane] = F32(np.nan)
                    for k in range(d):
                        h[i, k, lane], c[i, k, lane] = F32(0.0), F32(0.0)
                for i in range(channels):
                    place[i, lane] = i
                for i in range(states):
                    state[i, lane] = starts[max(0, episode[lane]), i]
            if episode[lane] == -1:  # idle: stays where an episode starts
                at[lane] = 0
                for i in range(states):
                    state[i, lane] = starts[0, i]
        if active == 0:
            break

        observe(state, content)
        if order.shape[0] == 0:
            for i in range(channels):
                for lane in range(lanes):
                    shown[i, lane] = content[i, lane]
        else:
            for lane in range(lanes):
                e, t = max(0, episode[lane]), at[lane]
                if t == 0 or (every > 0 and t % every == 0):
                    block = t // every if every > 0 else 0
                    for i in range(channels):
                        place[i, lane] = order[e, block, i]
                for i in range(channels):
                    shown[i, lane] = content[place[i, lane], lane]
        if noise.shape[0] > 0:
            for lane in range(lanes):
                for i in range(slots - channels):
                    shown[channels + i, lane] = noise[max(0, episode[lane]), at[lane], i]
        if here.shape[0] > 0:
            for lane in range(lanes):
                for i in range(channels):
                    present[i, lane] = here[max(0, episode[lane]), place[i, lane]]
                    shown[i, lane] *= F32(present[i, lane])

        for lane in range(lanes):
            size[lane], count[lane] = 0.0, 0.0
        for i in range(slots):
            for lane in range(lanes):
                size[lane] = max(size[lane], abs(np.float64(shown[i, lane])))
                count[lane] += present[i, lane]
        for lane in range(lanes):
            grid = max(size[lane], ORDINARY) * count[lane]
            if grid != grids[lane]:
                grids[lane], shift[lane] = grid, shift_of(grid)

        if recurrent:
            gate_inputs(packed, action, common, drive)
            if padded == 8 and inputs == 1:
                small_gates(shown, common, drive, hidden, h, z)
            else:
                drive_gates(shown, last, z, common, drive)
                add_products(z, hidden, h, 0)
                squash(z)
            advance_cells(z, h, c)
            if padded == 8 and not softmax:
                small_attention(packed.score_rows, weights, h, score)
            else:
                bias_scores(packed.score_rows, score)
                add_products(score, weights, h, 0)
                attend(softmax, score, work)
            sum_message(softmax, score, shown, present, shift, sums, mass)
            close_message(softmax, sums, mass, narrow, x)
        else:
            for i in range(slots):
                for lane in range(lanes):
                    x[i, lane] = np.float64(shown[i, lane])
        act(packed, x, y, action)

        if taught:
            for i in range(channels):
                for lane in range(lanes):
                    x[i, lane] = np.float64(content[i, lane])
            act(teacher, x, y, label)
            for lane in range(lanes):
                e, t = episode[lane], at[lane]
                if e >= 0:
                    for i in range(actions):
                        if recording.teaching[e, 0] <= t < recording.teaching[e, 1]:
                            action[i, lane] = label[i, lane]
                        recording.actions[e, t, i] = action[i, lane]
                        recording.labels[e, t, i] = label[i, lane]
                    for i in range(channels):
                        recording.observations[e, t, i] = content[i, lane]

        advance(state, action, reward, ended)
        for lane in range(lanes):
            e = episode[lane]
            if e >= 0:
                total[lane] += reward[lane]
                at[lane] += 1
                sound = np.isfinite(total[lane]) and size[lane] <= LARGEST_READING
                if ended[lane] or at[lane] >= limit or not sound:
                    returns[e] = total[lane] if sound else np.nan
                    steps[e] = at[lane]
                    episode[lane] = -2
                    active -= 1
