"""The AttentionNeuron's arithmetic compiled with numba, float32 neurons, channels along axis 0.

A channel is worked through on its own by the same instructions wherever it stands (the compiler
vectorises over gates and queries, never over channels), and the sums over channels are exact (see
`exact`); without fast-math flags nothing is fused or reordered. So here too a channel's place
cannot change a bit.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import numpy as np

from an_control.policy.exact_sums import ROUND_MASS
from an_control.policy.float32_functions import tanh
from an_control.policy.scalar.numba_attention import VECTOR, softmax, update_evidence
from an_control.policy.scalar.numba_head import act, expect, update_memory
from an_control.policy.scalar.numba_products import add_product, add_two_products
from an_control.policy.scalar.numba_sensory_neurons import (
    advance_lstm,
    advance_stack,
    reset_on_jump,
)
from an_control.policy.scalar.packing import Form, aligned, pack, pack_memory
from an_control.policy.scalar.weights import Weights
from an_control.policy.sizes import AttentionSizes
from an_control.system.compiled_cache import njit

F32 = np.float32
NO_SCORE = F32(-1e30)
"""A softmax makes it zero."""


class NumbaEngine:
    """Holds the neurons' state by column and computes one tick; compiled when made."""

    name = "numba"

    def __init__(self, sizes: AttentionSizes, weights: Weights) -> None:
        self._sizes = sizes
        packed = pack(sizes, weights)
        score_rows = np.pad(packed.score_rows, ((0, 0), (0, -sizes.queries % VECTOR)))
        if sizes.attention == "softmax":
            score_rows[0, sizes.queries :] = NO_SCORE
        self._width = score_rows.shape[1]
        memory: tuple[np.ndarray, ...] = np.zeros((0, 0), F32), np.zeros((0, 0), F32)
        # What enters the head behind a memory is float32, and float64 would gain nothing there.
        head_type = F32 if sizes.memory else np.float64
        if weights.memory is not None:
            memory = pack_memory(weights.memory, self._width)
        self._weights = (
            aligned(packed.gate_rows, F32),
            aligned(score_rows, F32),
            *memory,
            aligned(packed.head, head_type),
            packed.widths,
            tuple(packed.form),  # a plain tuple enters compiled code faster
        )
        self._memory = np.zeros(sizes.message + sizes.memory if sizes.memory else 0, F32)
        self._fresh = self._fresh_state()
        self.reset()
        self._warm_up()

    def _fresh_state(self) -> np.ndarray:
        """A column before its first tick; `_tick` says what stands where."""
        sizes, d = self._sizes, self._sizes.neuron
        readings = (d, d + sizes.stack) if sizes.stack else (2 * d, 2 * d + 1)
        evidence = self._width if sizes.prediction_attention else 0
        fresh = np.zeros(readings[1] + evidence + 2 * sizes.reset_on_jump, F32)
        fresh[slice(*readings)] = np.nan
        if sizes.reset_on_jump:
            fresh[-2] = np.nan
        return fresh

    def _warm_up(self) -> None:
        """Compile before the first tick, for the two ways in which columns are given."""
        self.grow(2)
        previous = np.zeros(self._sizes.actions, F32)
        for columns in (None, np.array([1, 0])):
            self.step(np.zeros(2, F32), columns, previous, np.float64(1.0))
        self.advance(np.zeros(2, F32), np.array([1, 0]), previous)
        self.identify(np.array([], np.int64), np.array([], np.int64), 0.0)
        self.reset()

    def reset(self) -> None:
        """Drop every column and reset the head's memory."""
        self._memory[:] = 0.0
        self.drop_columns()

    def drop_columns(self) -> None:
        """Drop every column; the head's memory stays."""
        self._state = np.zeros((0, len(self._fresh)), F32)
        self._attention = np.zeros((0, self._width), F32)
        self._message = np.zeros(self._sizes.message)
        self._all = np.zeros(0, np.int64)

    def grow(self, columns: int) -> None:
        """Add `columns` columns at zero state."""
        self._state = np.concatenate([self._state, np.tile(self._fresh, (columns, 1))])
        self._all = np.arange(len(self._state))

    def keep(self, columns: np.ndarray) -> None:
        """Keep only these columns, in this order."""
        self._state = self._state[columns]
        self._all = np.arange(len(self._state))

    def reset_columns(self, columns: np.ndarray) -> None:
        """Set these columns to zero state."""
        self._state[columns] = self._fresh

    def save_state(self) -> np.ndarray:
        """The neurons' state, a row for each column; a copy."""
        return self._state.copy()

    def restore_state(self, columns: np.ndarray, states: np.ndarray) -> None:
        """Set these columns to rows of `states`."""
        self._state[columns] = states

    def identify(self, columns: np.ndarray, queries: np.ndarray, least: float) -> None:
        """Let the evidence of these columns for these queries (N,) be at least so much."""
        end = len(self._fresh) - 2 * self._sizes.reset_on_jump
        _raise_to(self._state, columns, end - self._width, queries, F32(least))

    def advance(self, values: np.ndarray, columns: np.ndarray, previous: np.ndarray) -> None:
        """A tick of these columns' neurons alone: `values` (N,), the action (A,) before."""
        gate_rows, *_, form = self._weights
        _advance(values, columns, previous, self._state, gate_rows, form)
        if self._sizes.reset_on_jump:
            self._state[columns, -2] = values

    def outputs(self, columns: np.ndarray) -> np.ndarray:
        """The neurons' outputs h of these columns, (N, d)."""
        return self._state[columns, : self._sizes.neuron].astype(np.float64)

    def step(
        self,
        values: np.ndarray,
        columns: np.ndarray | None,
        previous: np.ndarray,
        shift: np.float64,
    ) -> np.ndarray:
        """One tick; the same contract as `NumpyEngine.step`."""
        if len(values) != len(self._attention):
            self._attention = np.zeros((len(values), self._width), F32)
        return _tick(
            values,
            self._all if columns is None else columns,
            previous,
            shift,
            self._state,
            self._attention,
            self._message,
            self._memory,
            *self._weights,
        )

    @property
    def attention(self) -> np.ndarray:
        """(M, N) of the last tick, a copy; for softmax without the query "none of them"."""
        rows = self._sizes.queries - (self._sizes.attention == "softmax")
        return self._attention[:, :rows].T.astype(np.float64)

    @property
    def message(self) -> np.ndarray:
        """The last tick's message, a copy."""
        return self._message.copy()


@njit(inline="always", error_model="numpy")
def _drive(form, previous, gate_rows):
    """Rows (1 + F, U): what all channels share, the weights of each of their inputs."""
    inputs, actions = form.inputs, len(previous)
    drive = gate_rows[: 1 + inputs].copy()
    add_product(drive[0], gate_rows[1 + inputs : 1 + inputs + actions], previous)
    if form.products:
        for f in range(inputs):
            row = 1 + inputs + actions + form.recurrent + f * actions
            add_product(drive[1 + f], gate_rows[row : row + actions], previous)
    return drive


@njit(inline="always", error_model="numpy")
def _attend(form, values, columns, state, score_rows, expecting_rows, expected, attention):
    """The attention (N, M) of every channel, squared where the head has a memory."""
    score_bias, score_w = score_rows[0], score_rows[1:]
    queries = len(score_bias)
    scores = np.empty(queries, F32), np.empty(queries, F32)
    prediction = expecting_rows[len(expecting_rows) - 4 :]
    evidence = state.shape[1] - queries - (2 if form.reset_on_jump else 0)
    for first in range(0, values.shape[0], 2):  # two at a time, as `advance_lstm`
        count = min(2, values.shape[0] - first)
        for q in range(queries):
            scores[0][q] = scores[1][q] = score_bias[q]
        one, other = state[columns[first]], state[columns[first + count - 1]]
        add_two_products(scores[0], scores[1], score_w, one, other)
        for i in range(count):
            n, score = first + i, scores[i]
            if form.prediction_attention:
                row = state[columns[n], evidence : evidence + queries]
                update_evidence(prediction, values[n], expected, row, score)
            if not form.softmax:
                for q in range(queries):
                    score[q] = tanh(score[q])
            for q in range(queries):
                attention[n, q] = score[q]
    if form.softmax:
        softmax(attention)
    if form.memory:
        for n in range(values.shape[0]):
            for q in range(queries):
                attention[n, q] *= attention[n, q]


@njit(inline="always", error_model="numpy")
def _sum_message(values, attention, shift):
    """For each query the sums over channels of attention times reading, and of attention."""
    queries = attention.shape[1]
    sums, mass = np.zeros(queries), np.zeros(queries)
    for n in range(values.shape[0]):
        wide = np.float64(values[n])
        for q in range(queries):
            share = np.float64(attention[n, q])
            mass[q] += (share + ROUND_MASS) - ROUND_MASS
            sums[q] += (share * wide + shift) - shift
    return sums, mass


@njit(inline="always", error_model="numpy")
def _close_message(form, channels, sums, mass, message):
    """The message from the sums, which are normalised in place."""
    routed = len(message) // 2
    if form.softmax:
        for q in range(routed):
            if form.normalise:
                sums[q] /= max(mass[q], 1.0)
                mass[q] = min(mass[q], 1.0)
            message[q] = sums[q]
            message[routed + q] = mass[q] - 1.0
    else:
        if form.normalise:
            sums *= np.float64(form.normalise) / np.float64(max(1, channels))
        for q in range(len(message)):
            message[q] = tanh(F32(sums[q]))


@njit(inline="always", error_model="numpy")
def _advance_neurons(form, values, columns, previous, gate_rows, state):
    drive = _drive(form, previous, gate_rows)
    if form.recurrent:
        first = 1 + form.inputs + len(previous)
        advance_lstm(values, columns, drive, gate_rows[first : first + form.recurrent], state)
    else:
        advance_stack(values, columns, drive, state)


@njit(cache=True, error_model="numpy", nogil=True)
def _raise_to(state, columns, first, queries, least):
    """Let state[column, first + query] be `least` or more, for pairs of columns and queries."""
    for i in range(len(columns)):
        place = first + queries[i]
        state[columns[i], place] = max(state[columns[i], place], least)


@njit(cache=True, error_model="numpy", nogil=True)
def _advance(values, columns, previous, state, gate_rows, plain_form):
    """A tick of some neurons alone; as `_tick`."""
    _advance_neurons(Form(*plain_form), values, columns, previous, gate_rows, state)


@njit(cache=True, error_model="numpy", nogil=True)
def _tick(
    values,
    columns,
    previous,
    shift,
    state,
    attention,
    message,
    memory,
    gate_rows,
    score_rows,
    memory_rows,
    expecting_rows,
    head,
    widths,
    plain_form,
):
    """One tick; the weights are those of `packing`.

    Columns of `state`: those of the neurons; with prediction attention, the evidence for each
    query; with reset on jump, the last reading and twice its usual change. `memory`: shares (n,)
    and readings (n,) that were seen last, units (H,).
    """
    form = Form(*plain_form)
    inputs, d = form.inputs, score_rows.shape[0] - 1
    if form.reset_on_jump:
        reset_on_jump(values, columns, state, (2 * d, 1) if form.recurrent else (d, inputs))
    _advance_neurons(form, values, columns, previous, gate_rows, state)
    expected = score_rows[0]  # without a memory nothing is expected, and this is not read
    if form.memory:
        expected = expect(memory, previous, memory_rows, expecting_rows)
    _attend(form, values, columns, state, score_rows, expecting_rows, expected, attention)
    sums, mass = _sum_message(values, attention, shift)
    _close_message(form, len(values), sums, mass, message)
    if form.memory:
        weight = expecting_rows[len(expecting_rows) - (5 if form.prediction_attention else 1)]
        update_memory(memory, form.memory, sums, mass, expected, weight)
        known = memory[len(message) // 2 :].astype(head.dtype)
        return act(known, head, widths, form.relu, form.clip)
    return act(message.astype(head.dtype), head, widths, form.relu, form.clip)
