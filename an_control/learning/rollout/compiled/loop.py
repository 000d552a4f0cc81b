"""The compiled rollout: policy and physics in one loop over a batch of episodes.

Episodes advance together, each in a column of the batch with the weights of its candidate policy. A
column whose episode has ended takes the next one from the queue at once, even of another candidate,
so that no column computes a finished episode while any is left.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import typeof, types

from an_control.learning.rollout.compiled.policies import (
    BATCH,
    F32,
    add_identity_hints,
    add_matrix_products,
    advance_lstm_cells,
    apply_head,
    apply_tanh_to_gates,
    compute_attention_in_one_pass,
    compute_common_gates_and_input_weights,
    compute_gates_in_one_pass,
    compute_gates_without_recurrence,
    compute_head_input,
    compute_sum_rounding_number,
    convert_scores_to_weights,
    copy_candidate_weights,
    push_readings,
    run_stacked_neurons,
    set_scores_to_bias,
    sum_weighted_readings,
)
from an_control.policy.exact_sums import MAX_READING, ORDINARY
from an_control.policy.packed_weights import KernelOptions, PackedWeights
from an_control.system.compiled_cache import njit


class RolloutConditions(NamedTuple):
    """Disturbances of E episodes with N channels, as arrays.

    `make_undisturbed_conditions` returns the empty arrays that switch all disturbances off.

    Attributes:
        order: Index of the signal that arrives in each input slot (E, K, N) int64, for K blocks of
            steps. Within a block it does not change.
        every: Number of steps in a block; 0 if an episode is one block.
        noise: Readings (E, T, X) float32 of X added channels that carry only noise, for T steps.
        present: Mask (E, N) float64, 0 for a missing signal, else 1.
        copied: Index of the signal that each of C added channels repeats (E, C) int64.
        hinted: Mask (E, N) float32, 1 if the neuron of a channel gets its hint (`IdentityHints`),
            which tells it which channel it reads; else 0.
    """

    order: np.ndarray
    every: int
    noise: np.ndarray
    present: np.ndarray
    copied: np.ndarray
    hinted: np.ndarray


def make_undisturbed_conditions() -> RolloutConditions:
    """Return `RolloutConditions` without any disturbance, whose arrays are empty."""
    return RolloutConditions(
        order=np.zeros((0, 0, 0), np.int64),
        every=0,
        noise=np.zeros((0, 0, 0), F32),
        present=np.zeros((0, 0)),
        copied=np.zeros((0, 0), np.int64),
        hinted=np.zeros((0, 0), F32),
    )


NO_ROWS = np.zeros((1, 0, 0), F32)
OBSERVE = types.FunctionType(types.void(types.float64[:, ::1], types.float32[:, ::1]))
ADVANCE = types.FunctionType(
    types.void(types.float64[:, ::1], types.float32[:, ::1], types.float64[::1], types.boolean[::1])
)


@njit(
    (
        typeof(
            PackedWeights(
                NO_ROWS, NO_ROWS, np.zeros((1, 0)), np.zeros(0, np.int64), KernelOptions()
            )
        ),
        types.float32[:, :, ::1],
        OBSERVE,
        ADVANCE,
        types.float64[:, ::1],
        types.int64,
        types.int64,
        types.int64,
        typeof(make_undisturbed_conditions()),
        types.float64[:, ::1],
        types.int64[:, ::1],
    ),
    cache=True,
    error_model="numpy",
    nogil=True,
)
def run_rollouts(
    candidates,
    hints,
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
    """Play E episodes with each of P candidate policies, in compiled code.

    B episodes (`BATCH`) are played side by side; when one ends, the next one takes its place. The
    policies have d LSTM units. The state of the physics is S numbers.

    Args:
        candidates: `PackedWeights` of the P candidates.
        hints: A vector for each channel (P, N, 4d) float32, which tells the channel's sensory
            neuron which channel it reads; `conditions.hinted` says in which episodes. They are the
            field `codes` of `IdentityHints`. An array of shape (0, 0, 0) for no hints;
            `conditions.hinted` must then be empty too.
        observe: Compiled function that writes the readings (N, B) that belong to a state (S, B);
            its arguments are (state, readings).
        advance: Compiled function that advances the state (S, B) by a step with the action (A, B),
            and writes reward (B,) and end (B,); its arguments are (state, action, reward, ended).
        starts: Initial states (E, S) of the episodes.
        channels: Number N of channels.
        actions: Number A of actions.
        limit: Maximum number of steps of an episode.
        conditions: `RolloutConditions`, the disturbances of the E episodes.
        returns: Output (P, E) float64: the returns; NaN if a reward or reading was not finite.
        steps: Output (P, E) int64: number of steps of each episode.
    """
    episodes, states = starts.shape
    jobs = episodes * candidates.head.shape[0]
    order, every, noise, here, copied, hinted = conditions
    copies = channels + copied.shape[1]
    slots = copies + noise.shape[2]
    form, widths = candidates.form, candidates.widths
    attends = candidates.gate_rows.shape[1] > 0
    gates, queries = candidates.gate_rows.shape[2], candidates.score_rows.shape[2]
    d, widest = max(0, candidates.score_rows.shape[1] - 1), slots
    padded, first = d + -d % 8, 1 + form.inputs + actions
    inputs, softmax = form.inputs, form.softmax
    rows = np.zeros((candidates.gate_rows.shape[1], gates, BATCH), F32)
    hidden, weights = np.zeros((padded, gates, BATCH), F32), np.zeros((padded, queries, BATCH), F32)
    bias, head = np.zeros((queries, BATCH), F32), np.zeros((candidates.head.shape[1], BATCH))
    for width in widths:
        widest = max(widest, width)
    widest = max(widest, 2 * queries)

    state = np.zeros((states, BATCH))
    signal, shown = np.zeros((channels, BATCH), F32), np.zeros((slots, BATCH), F32)
    present, place = np.ones((slots, BATCH)), np.zeros((channels, BATCH), np.int64)
    h, c = np.zeros((slots, padded, BATCH), F32), np.zeros((slots, d, BATCH), F32)
    last = np.zeros((slots, BATCH), F32)
    readings = np.zeros((slots, 0 if form.recurrent else inputs, BATCH), F32)
    action = np.zeros((actions, BATCH), F32)
    told = np.zeros((channels if hinted.shape[0] > 0 else 0, gates, BATCH), F32)
    common, z = np.zeros((gates, BATCH), F32), np.zeros((slots, gates, BATCH), F32)
    drive = np.zeros((inputs, gates, BATCH), F32)
    score, work = np.zeros((slots, queries, BATCH), F32), np.zeros((3, BATCH), F32)
    narrow = np.zeros((queries, BATCH), F32)
    sums, mass = np.zeros((queries, BATCH)), np.zeros((queries, BATCH))
    x, y = np.zeros((widest, BATCH)), np.zeros((widest, BATCH))
    reward, ended = np.zeros(BATCH), np.zeros(BATCH, np.bool_)
    size, count, total = np.zeros(BATCH), np.zeros(BATCH), np.zeros(BATCH)
    grids, shift = np.zeros(BATCH), np.zeros(BATCH)
    episode, at = np.full(BATCH, -2, np.int64), np.zeros(BATCH, np.int64)
    player = np.full(BATCH, -1, np.int64)

    following, active = 0, 0
    while True:
        for b in range(BATCH):
            if episode[b] == -2:
                episode[b], at[b], total[b] = -1, 0, 0.0
                if following < jobs:
                    candidate, episode[b] = following // episodes, following % episodes
                    following, active = following + 1, active + 1
                    if candidate != player[b]:
                        player[b] = candidate
                        copy_candidate_weights(candidates, candidate, b, rows, bias, weights, head)
                        for k in range(form.recurrent):
                            for g in range(gates):
                                hidden[k, g, b] = rows[first + k, g, b]
                for i in range(actions):
                    action[i, b] = F32(0.0)
                for i in range(slots):
                    last[i, b] = F32(np.nan)
                    for f in range(readings.shape[1]):
                        readings[i, f, b] = F32(np.nan)
                    for k in range(d):
                        h[i, k, b], c[i, k, b] = F32(0.0), F32(0.0)
                for i in range(channels):
                    place[i, b] = i
                for i in range(states):
                    state[i, b] = starts[max(0, episode[b]), i]
            if episode[b] == -1:  # idle: keep it at a start state
                at[b] = 0
                for i in range(states):
                    state[i, b] = starts[0, i]
        if active == 0:
            break

        observe(state, signal)
        if order.shape[0] == 0:
            for i in range(channels):
                for b in range(BATCH):
                    shown[i, b] = signal[i, b]
        else:
            for b in range(BATCH):
                e, t = max(0, episode[b]), at[b]
                if t == 0 or (every > 0 and t % every == 0):
                    block = t // every if every > 0 else 0
                    for i in range(channels):
                        place[i, b] = order[e, block, i]
                for i in range(channels):
                    shown[i, b] = signal[place[i, b], b]
        for i in range(told.shape[0]):
            for b in range(BATCH):
                e, t = max(0, episode[b]), at[b]
                if t == 0 or (every > 0 and t % every == 0):
                    for g in range(gates):
                        told[i, g, b] = hinted[e, place[i, b]] * hints[player[b], place[i, b], g]
        for i in range(channels, copies):
            for b in range(BATCH):
                shown[i, b] = signal[copied[max(0, episode[b]), i - channels], b]
        for i in range(copies, slots):
            for b in range(BATCH):
                shown[i, b] = noise[max(0, episode[b]), at[b], i - copies]
        if here.shape[0] > 0:
            for b in range(BATCH):
                for i in range(channels):
                    present[i, b] = here[max(0, episode[b]), place[i, b]]
                    shown[i, b] *= F32(present[i, b])

        for b in range(BATCH):
            size[b], count[b] = 0.0, 0.0
        for i in range(slots):
            for b in range(BATCH):
                reading = abs(np.float64(shown[i, b]))
                size[b] = size[b] if reading <= size[b] else reading  # NaN stays, unlike by max
                count[b] += present[i, b]
        for b in range(BATCH):
            grid = max(size[b], ORDINARY) * count[b]
            if grid != grids[b]:
                grids[b], shift[b] = grid, compute_sum_rounding_number(grid)

        if attends:
            compute_common_gates_and_input_weights(form, rows, action, common, drive)
            if not form.recurrent:
                push_readings(shown, readings)
                run_stacked_neurons(readings, common, drive, h)
            else:
                if padded == 8 and inputs == 1 and told.shape[0] == 0:
                    compute_gates_in_one_pass(shown, common, drive, hidden, h, z)
                else:
                    compute_gates_without_recurrence(shown, last, z, common, drive)
                    add_identity_hints(z, told)
                    add_matrix_products(z, hidden, h)
                    apply_tanh_to_gates(z)
                advance_lstm_cells(z, h, c)
            if padded == 8 and not softmax:
                compute_attention_in_one_pass(bias, weights, h, score)
            else:
                set_scores_to_bias(bias, score)
                add_matrix_products(score, weights, h)
                convert_scores_to_weights(softmax, score, work)
            sum_weighted_readings(form, score, shown, present, count, shift, sums, mass)
            compute_head_input(softmax, sums, mass, narrow, x)
        else:
            for i in range(slots):
                for b in range(BATCH):
                    x[i, b] = np.float64(shown[i, b])
        apply_head(form, head, widths, x, y, action)

        advance(state, action, reward, ended)
        for b in range(BATCH):
            e = episode[b]
            if e >= 0:
                total[b] += reward[b]
                at[b] += 1
                sound = np.isfinite(total[b]) and size[b] <= MAX_READING
                if ended[b] or at[b] >= limit or not sound:
                    returns[player[b], e] = total[b] if sound else np.nan
                    steps[player[b], e] = at[b]
                    episode[b] = -2
                    active -= 1
