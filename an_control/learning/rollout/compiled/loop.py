"""The fused rollout: policy and dynamics in one compiled loop, a queue refilling finished lanes.

Episodes advance together, each in a lane with the weights of its candidate; a lane whose episode
has ended takes the next from the queue at once, be it another candidate's, so that no work is done
on finished episodes while any is left.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numba import typeof, types

from an_control.learning.rollout.compiled.policies import (
    F32,
    LANES,
    act,
    add_products,
    advance_cells,
    advance_stacks,
    attend,
    bias_scores,
    close_message,
    drive_gates,
    gate_inputs,
    shift_of,
    small_attention,
    small_gates,
    squash,
    stack_readings,
    sum_message,
    take_weights,
)
from an_control.policy.exact_sums import MAX_READING, ORDINARY
from an_control.policy.scalar.packing import Form, Packed
from an_control.system.compiled_cache import njit


class Candidates(NamedTuple):
    """P policies of one form and the same sizes, laid out as `Packed` has one of them."""

    gate_rows: np.ndarray
    """(P, ., 4d) float32."""
    score_rows: np.ndarray
    """(P, ., M) float32."""
    head: np.ndarray
    """(P, .) float64."""
    widths: np.ndarray
    form: Form

    @classmethod
    def of(cls, packed: Sequence[Packed]) -> Candidates:
        return cls(
            np.stack([one.gate_rows for one in packed]),
            np.stack([one.score_rows for one in packed]),
            np.stack([one.head for one in packed]),
            packed[0].widths,
            packed[0].form,
        )

    def some(self, rows: slice) -> Candidates:
        """These of them."""
        return self._replace(
            gate_rows=self.gate_rows[rows], score_rows=self.score_rows[rows], head=self.head[rows]
        )


class Conditions(NamedTuple):
    """What is done to the readings of E episodes with N channels; empty arrays do nothing."""

    order: np.ndarray
    """(E, B, N) int64: the signal that each channel carries, in block b of `every` steps."""
    every: int
    """Steps until the next block; 0 for never."""
    noise: np.ndarray
    """(E, steps, K) float32: readings of K noise channels."""
    present: np.ndarray
    """(E, N) float64: 0 where a signal is missing, 1 elsewhere."""
    copied: np.ndarray
    """(E, C) int64: the signals that the copies repeat."""


def as_they_are() -> Conditions:
    """Readings without any disturbance."""
    return Conditions(
        order=np.zeros((0, 0, 0), np.int64),
        every=0,
        noise=np.zeros((0, 0, 0), F32),
        present=np.zeros((0, 0)),
        copied=np.zeros((0, 0), np.int64),
    )


def nobody() -> Packed:
    """A policy without neurons, for `pack_model` to give a head."""
    rows = np.zeros((0, 0), F32)
    return Packed(rows, rows, np.zeros(0), np.zeros(0, np.int64), Form())


OBSERVE = types.FunctionType(types.void(types.float64[:, ::1], types.float32[:, ::1]))
ADVANCE = types.FunctionType(
    types.void(types.float64[:, ::1], types.float32[:, ::1], types.float64[::1], types.boolean[::1])
)


@njit(
    (
        typeof(Candidates.of([nobody()])),
        OBSERVE,
        ADVANCE,
        types.float64[:, ::1],
        types.int64,
        types.int64,
        types.int64,
        typeof(as_they_are()),
        types.float64[:, ::1],
        types.int64[:, ::1],
    ),
    cache=True,
    error_model="numpy",
    nogil=True,
)
def run(
    candidates,
    observe,
    advance,
    starts,
    channels,
    actions,
    limit,
    conditions,
    returns,
    steps,
):
    """Every candidate's episodes from `starts` (E, S) on, to their ends or for `limit` steps.

    Fills `returns` and `steps` (P, E); a return is NaN where a reward or reading was not finite.
    """
    episodes, states = starts.shape
    jobs = episodes * candidates.head.shape[0]
    order, every, noise, here, copied = conditions
    copies = channels + copied.shape[1]
    slots = copies + noise.shape[2]
    form, widths = candidates.form, candidates.widths
    attends = candidates.gate_rows.shape[1] > 0
    gates, queries = candidates.gate_rows.shape[2], candidates.score_rows.shape[2]
    d, widest = max(0, candidates.score_rows.shape[1] - 1), slots
    padded, first = d + -d % 8, 1 + form.inputs + actions
    inputs, softmax = form.inputs, form.softmax
    rows = np.zeros((candidates.gate_rows.shape[1], gates, LANES), F32)
    hidden, weights = np.zeros((padded, gates, LANES), F32), np.zeros((padded, queries, LANES), F32)
    bias, head = np.zeros((queries, LANES), F32), np.zeros((candidates.head.shape[1], LANES))
    for width in widths:
        widest = max(widest, width)
    widest = max(widest, 2 * queries)

    state = np.zeros((states, LANES))
    signal, shown = np.zeros((channels, LANES), F32), np.zeros((slots, LANES), F32)
    present, place = np.ones((slots, LANES)), np.zeros((channels, LANES), np.int64)
    h, c = np.zeros((slots, padded, LANES), F32), np.zeros((slots, d, LANES), F32)
    last = np.zeros((slots, LANES), F32)
    readings = np.zeros((slots, 0 if form.recurrent else inputs, LANES), F32)
    action = np.zeros((actions, LANES), F32)
    common, z = np.zeros((gates, LANES), F32), np.zeros((slots, gates, LANES), F32)
    drive = np.zeros((inputs, gates, LANES), F32)
    score, work = np.zeros((slots, queries, LANES), F32), np.zeros((3, LANES), F32)
    narrow = np.zeros((queries, LANES), F32)
    sums, mass = np.zeros((queries, LANES)), np.zeros((queries, LANES))
    x, y = np.zeros((widest, LANES)), np.zeros((widest, LANES))
    reward, ended = np.zeros(LANES), np.zeros(LANES, np.bool_)
    size, count, total = np.zeros(LANES), np.zeros(LANES), np.zeros(LANES)
    grids, shift = np.zeros(LANES), np.zeros(LANES)
    episode, at = np.full(LANES, -2, np.int64), np.zeros(LANES, np.int64)
    player = np.full(LANES, -1, np.int64)

    following, active = 0, 0
    while True:
        for lane in range(LANES):
            if episode[lane] == -2:
                episode[lane], at[lane], total[lane] = -1, 0, 0.0
                if following < jobs:
                    candidate, episode[lane] = following // episodes, following % episodes
                    following, active = following + 1, active + 1
                    if candidate != player[lane]:
                        player[lane] = candidate
                        take_weights(candidates, candidate, lane, rows, bias, weights, head)
                        for k in range(form.recurrent):
                            for g in range(gates):
                                hidden[k, g, lane] = rows[first + k, g, lane]
                for i in range(actions):
                    action[i, lane] = F32(0.0)
                for i in range(slots):
                    last[i, lane] = F32(np.nan)
                    for f in range(readings.shape[1]):
                        readings[i, f, lane] = F32(np.nan)
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

        observe(state, signal)
        if order.shape[0] == 0:
            for i in range(channels):
                for lane in range(LANES):
                    shown[i, lane] = signal[i, lane]
        else:
            for lane in range(LANES):
                e, t = max(0, episode[lane]), at[lane]
                if t == 0 or (every > 0 and t % every == 0):
                    block = t // every if every > 0 else 0
                    for i in range(channels):
                        place[i, lane] = order[e, block, i]
                for i in range(channels):
                    shown[i, lane] = signal[place[i, lane], lane]
        for i in range(channels, copies):
            for lane in range(LANES):
                shown[i, lane] = signal[copied[max(0, episode[lane]), i - channels], lane]
        for i in range(copies, slots):
            for lane in range(LANES):
                shown[i, lane] = noise[max(0, episode[lane]), at[lane], i - copies]
        if here.shape[0] > 0:
            for lane in range(LANES):
                for i in range(channels):
                    present[i, lane] = here[max(0, episode[lane]), place[i, lane]]
                    shown[i, lane] *= F32(present[i, lane])

        for lane in range(LANES):
            size[lane], count[lane] = 0.0, 0.0
        for i in range(slots):
            for lane in range(LANES):
                size[lane] = max(size[lane], abs(np.float64(shown[i, lane])))
                count[lane] += present[i, lane]
        for lane in range(LANES):
            grid = max(size[lane], ORDINARY) * count[lane]
            if grid != grids[lane]:
                grids[lane], shift[lane] = grid, shift_of(grid)

        if attends:
            gate_inputs(form, rows, action, common, drive)
            if not form.recurrent:
                stack_readings(shown, readings)
                advance_stacks(readings, common, drive, h)
            else:
                if padded == 8 and inputs == 1:
                    small_gates(shown, common, drive, hidden, h, z)
                else:
                    drive_gates(shown, last, z, common, drive)
                    add_products(z, hidden, h)
                    squash(z)
                advance_cells(z, h, c)
            if padded == 8 and not softmax:
                small_attention(bias, weights, h, score)
            else:
                bias_scores(bias, score)
                add_products(score, weights, h)
                attend(softmax, score, work)
            sum_message(form, score, shown, present, count, shift, sums, mass)
            close_message(softmax, sums, mass, narrow, x)
        else:
            for i in range(slots):
                for lane in range(LANES):
                    x[i, lane] = np.float64(shown[i, lane])
        act(form, head, widths, x, y, action)

        advance(state, action, reward, ended)
        for lane in range(LANES):
            e = episode[lane]
            if e >= 0:
                total[lane] += reward[lane]
                at[lane] += 1
                sound = np.isfinite(total[lane]) and size[lane] <= MAX_READING
                if ended[lane] or at[lane] >= limit or not sound:
                    returns[player[lane], e] = total[lane] if sound else np.nan
                    steps[player[lane], e] = at[lane]
                    episode[lane] = -2
                    active -= 1
