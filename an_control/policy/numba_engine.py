"""The AttentionNeuron's arithmetic compiled with numba, float32 neurons, channels along axis 0.

A channel is worked through on its own by the same instructions wherever it stands (the compiler
vectorises over gates and queries, never over channels), and the sums over channels are exact (see
`exact`); without fast-math flags nothing is fused or reordered. So here too a channel's place
cannot change a bit.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import njit

from an_control.policy.elementary import exp, tanh
from an_control.policy.exact import ROUND_MASS
from an_control.policy.sizes import AttentionSizes
from an_control.policy.startle import STARTLING, USUAL
from an_control.policy.weights import MemoryWeights, Weights

F32 = np.float32
LANES = 8
"""Queries are filled up to a multiple of this, for the compiler to vectorise over them."""
NEVER = F32(-1e30)
"""A score that a softmax makes zero."""
Layers = tuple[tuple[np.ndarray, np.ndarray], ...]


class Form(NamedTuple):
    """What compiled code has to know of a policy beside its weights."""

    inputs: int = 1
    """A channel's inputs."""
    recurrent: int = 0
    """How many rows take the neuron's own outputs: d of an LSTM, 0 of stacked readings."""
    products: bool = False
    softmax: bool = False
    relu: bool = False
    clip: bool = False
    normalise: int = 0
    """As in `AttentionSizes`."""


class Packed(NamedTuple):
    """A policy's weights as compiled code takes them."""

    gate_rows: np.ndarray
    """Rows (., U) float32: bias, inputs, actions, outputs h, products; U of `Weights`."""
    score_rows: np.ndarray
    """Rows (., M) float32: bias, outputs h."""
    head: np.ndarray
    """For each layer the bias (out,), then weights (in, out), float64."""
    widths: np.ndarray
    form: Form


class PackedMemory(NamedTuple):
    """The head's memory as compiled code takes it, float32."""

    state: np.ndarray
    """(H + 2n,): the units, what was seen last."""
    input: np.ndarray
    """(2n + A, 3H)"""
    hidden: np.ndarray
    """(H, 3H)"""
    bias: np.ndarray
    """(3H,), and behind it (H,) of the new values, inside the reset."""
    expectation: np.ndarray
    """(1 + H + 2n + A, n): bias, units, what was seen last, previous action."""
    doubt: np.ndarray
    """(n,)"""
    comparison: np.ndarray
    """(4, n) or (0, n)"""


def pack_memory(weights: MemoryWeights) -> PackedMemory:
    """Lay out a head's memory."""
    bias = np.concatenate([weights.bias, weights.hidden_bias])
    expectation = np.concatenate([weights.expectation_bias[None], weights.expectation.T])
    return PackedMemory(
        np.zeros(len(weights.hidden_bias) + 2 * len(weights.expectation_bias), F32),
        np.ascontiguousarray(weights.input.T, F32),
        np.ascontiguousarray(weights.hidden.T, F32),
        bias.astype(F32),
        expectation.astype(F32),
        weights.doubt.astype(F32),
        weights.comparison.astype(F32),
    )


def pack(sizes: AttentionSizes, weights: Weights) -> Packed:
    """Lay out an AttentionNeuron's weights."""
    gates = len(weights.bias)
    products = np.zeros((0, gates))
    if weights.products is not None:
        products = weights.products.transpose(0, 2, 1).reshape(-1, gates)
    gate_rows = [weights.bias[None], weights.features, weights.action.T, weights.hidden.T, products]
    form = Form(
        inputs=len(weights.features),
        recurrent=weights.hidden.shape[1],
        products=sizes.products,
        softmax=sizes.attention == "softmax",
        relu=sizes.activation == "relu",
        clip=sizes.output == "clip",
        normalise=sizes.normalise,
    )
    return Packed(
        np.ascontiguousarray(np.concatenate(gate_rows), F32),
        np.ascontiguousarray(np.concatenate([weights.scores_bias[None], weights.scores.T]), F32),
        *pack_head(weights.head),
        form,
    )


def pack_head(head: Layers) -> tuple[np.ndarray, np.ndarray]:
    """A head's layers in one array, and their widths."""
    layers = [np.concatenate([bias[None], weight.T]).ravel() for weight, bias in head]
    return np.concatenate(layers), np.array([len(bias) for _, bias in head])


class NumbaEngine:
    """Holds the neurons' state by column and computes one tick; compiled when made."""

    name = "numba"

    def __init__(self, sizes: AttentionSizes, weights: Weights) -> None:
        self._sizes = sizes
        packed = pack(sizes, weights)
        score_rows = np.pad(packed.score_rows, ((0, 0), (0, -sizes.queries % LANES)))
        if sizes.attention == "softmax":
            score_rows[0, sizes.queries :] = NEVER
        self._packed = packed._replace(score_rows=score_rows)
        self._plain_form = tuple(packed.form)
        d = sizes.neuron
        self._fresh = np.zeros(d + sizes.stack if sizes.stack else 2 * d + 1, F32)
        self._fresh[d if sizes.stack else 2 * d :] = np.nan
        if sizes.startle:
            self._fresh = np.append(self._fresh, np.array([np.nan, 0.0], F32))
        self._memory = None if weights.memory is None else pack_memory(weights.memory)
        self.start()
        self._warm_up()

    def _warm_up(self) -> None:
        """Compile before the first tick, for the two ways in which columns are given."""
        self.grow(2)
        previous = np.zeros(self._sizes.actions, F32)
        for columns in (None, np.array([1, 0])):
            self.step(np.zeros(2, F32), columns, previous, np.float64(1.0))
        self.start()

    def start(self) -> None:
        """Forget everything."""
        if self._memory is not None:
            self._memory.state[:] = 0.0
        self.clear()

    def clear(self) -> None:
        """Forget every column; the head's memory stays."""
        self._state = np.zeros((0, len(self._fresh)), F32)
        self._attention = np.zeros((0, self._packed.score_rows.shape[1]), F32)
        self._evidence = np.zeros((0, self._sizes.queries - 1 if self._sizes.compare else 0), F32)
        self._message = np.zeros(self._sizes.message)
        self._all = np.zeros(0, np.int64)

    def grow(self, columns: int) -> None:
        """Add `columns` columns at zero state."""
        self._state = np.concatenate([self._state, np.tile(self._fresh, (columns, 1))])
        self._evidence = np.pad(self._evidence, ((0, columns), (0, 0)))
        self._all = np.arange(len(self._state))

    def keep(self, columns: np.ndarray) -> None:
        """Keep only these columns, in this order."""
        self._state = self._state[columns]
        self._evidence = self._evidence[columns]
        self._all = np.arange(len(self._state))

    def forget(self, columns: np.ndarray) -> None:
        """Set these columns to zero state."""
        self._state[columns] = self._fresh
        self._evidence[columns] = 0.0

    def states(self) -> np.ndarray:
        """All that the neurons remember, a row for each column; a copy."""
        return np.concatenate([self._state, self._evidence], axis=1)

    def recall(self, columns: np.ndarray, states: np.ndarray) -> None:
        """Let these columns go on from rows of `states`, with no reading before."""
        width = self._state.shape[1]
        self._state[columns], self._evidence[columns] = states[:, :width], states[:, width:]
        if not self._sizes.stack:
            self._state[columns, 2 * self._sizes.neuron] = np.nan
        if self._sizes.startle:
            self._state[columns, -2] = np.nan

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
            self._attention = np.zeros((len(values), self._packed.score_rows.shape[1]), F32)
        present = self._all if columns is None else columns
        if self._sizes.startle:
            _startle(values, present, self._state, self._fresh, self._evidence)
        return _tick(
            values,
            present,
            previous,
            shift,
            self._state,
            self._evidence,
            self._attention,
            self._message,
            self._memory,
            *self._packed[:-1],
            self._plain_form,
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
def _add_product(out, rows, x):
    """``out += x @ rows`` for as many x as there are rows; eight at a time keeps `out` loaded."""
    count, width = rows.shape
    whole = count - count % 8
    for k in range(0, whole, 8):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        x4, x5, x6, x7 = x[k + 4], x[k + 5], x[k + 6], x[k + 7]
        for j in range(width):
            total = out[j] + rows[k, j] * x0
            total = total + rows[k + 1, j] * x1
            total = total + rows[k + 2, j] * x2
            total = total + rows[k + 3, j] * x3
            total = total + rows[k + 4, j] * x4
            total = total + rows[k + 5, j] * x5
            total = total + rows[k + 6, j] * x6
            out[j] = total + rows[k + 7, j] * x7
    for k in range(whole, count):
        for j in range(width):
            out[j] += rows[k, j] * x[k]


@njit(inline="always", error_model="numpy")
def _add_two_products(out, other, rows, x, y):
    """``out += x @ rows`` and ``other += y @ rows``, each in `_add_product`'s order."""
    count, width = rows.shape
    whole = count - count % 4
    for k in range(0, whole, 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        y0, y1, y2, y3 = y[k], y[k + 1], y[k + 2], y[k + 3]
        for j in range(width):
            r0, r1, r2, r3 = rows[k, j], rows[k + 1, j], rows[k + 2, j], rows[k + 3, j]
            out[j] = out[j] + r0 * x0 + r1 * x1 + r2 * x2 + r3 * x3
            other[j] = other[j] + r0 * y0 + r1 * y1 + r2 * y2 + r3 * y3
    for k in range(whole, count):
        for j in range(width):
            out[j] += rows[k, j] * x[k]
            other[j] += rows[k, j] * y[k]


@njit(inline="always", error_model="numpy")
def _softmax(score, lane):
    """In place; `lane` is room. Eight lanes first: the compiler keeps the order it is given."""
    queries = len(score)
    for j in range(LANES):
        lane[j] = score[j]
    for q in range(LANES, queries, LANES):
        for j in range(LANES):
            lane[j] = score[q + j] if score[q + j] > lane[j] else lane[j]
    largest = lane[0]
    for j in range(1, LANES):
        largest = lane[j] if lane[j] > largest else largest
    for q in range(queries):
        score[q] = exp(score[q] - largest)
    for j in range(LANES):
        lane[j] = score[j]
    for q in range(LANES, queries, LANES):
        for j in range(LANES):
            lane[j] += score[q + j]
    total = lane[0]
    for j in range(1, LANES):
        total += lane[j]
    share = F32(1.0) / total
    for q in range(queries):
        score[q] *= share


@njit(cache=True, error_model="numpy", nogil=True)
def _advance_lstm(values, columns, common, drive, hidden, state):
    """An LSTM's tick. Columns of `state` (., 2d + 1): outputs h, cells c, the last reading."""
    inputs, gates = drive.shape
    d = gates // 4
    # Arrays made here cannot overlap, which the compiler must know to vectorise.
    z = np.empty(gates, F32), np.empty(gates, F32)
    h, c = (np.empty(d, F32), np.empty(d, F32)), np.empty(d, F32)
    # Two channels at a time, so that each weight is loaded once for both; where the last one is
    # alone, it is its own companion, of whom nothing is kept.
    for first in range(0, values.shape[0], 2):
        count = min(2, values.shape[0] - first)
        for i in range(2):
            n = first + min(i, count - 1)
            value, column = values[n], columns[n]
            zi, hi = z[i], h[i]
            for k in range(d):
                hi[k] = state[column, k]
            for g in range(gates):
                zi[g] = common[g] + drive[0, g] * value
            if inputs > 1:
                last = state[column, 2 * d]
                change = value - last if last == last else F32(0.0)
                for g in range(gates):
                    zi[g] += drive[1, g] * change
        _add_two_products(z[0], z[1], hidden, h[0], h[1])
        for i in range(count):
            column, zi, hi = columns[first + i], z[i], h[i]
            for g in range(gates):
                zi[g] = tanh(zi[g])
            for k in range(d):
                enter = F32(0.5) * zi[k] + F32(0.5)
                forget = F32(0.5) * zi[d + k] + F32(0.5)
                c[k] = forget * state[column, d + k] + enter * zi[3 * d + k]
            for k in range(d):
                hi[k] = (F32(0.5) * zi[2 * d + k] + F32(0.5)) * tanh(c[k])
            for k in range(d):
                state[column, k], state[column, d + k] = hi[k], c[k]
            state[column, 2 * d] = values[first + i]


@njit(cache=True, error_model="numpy", nogil=True)
def _advance_stack(values, columns, common, drive, state):
    """A tick on stacked readings. Columns of `state` (., d + k): outputs h, newest to oldest."""
    inputs, d = drive.shape
    h = np.empty(d, F32)
    for n in range(values.shape[0]):
        value, column = values[n], columns[n]
        new = state[column, d] != state[column, d]
        for f in range(inputs - 1, 0, -1):
            state[column, d + f] = value if new else state[column, d + f - 1]
        state[column, d] = value
        for k in range(d):
            h[k] = common[k] + drive[0, k] * value
        for f in range(1, inputs):
            reading = state[column, d + f]
            for k in range(d):
                h[k] += drive[f, k] * reading
        for k in range(d):
            h[k] = tanh(h[k])
        for k in range(d):
            state[column, k] = h[k]


@njit(cache=True, error_model="numpy", nogil=True)
def _tick(
    values,
    columns,
    previous,
    shift,
    state,
    evidence,
    attention,
    message,
    memory,
    gate_rows,
    score_rows,
    head,
    widths,
    plain_form,
):
    """One tick; the weights are those of `Packed`."""
    form = Form(*plain_form)  # a plain tuple enters compiled code faster
    inputs, d = form.inputs, score_rows.shape[0] - 1
    gates, queries, actions = gate_rows.shape[1], score_rows.shape[1], len(previous)
    score_bias, score_w = score_rows[0], score_rows[1:]
    behind = 1 + inputs + actions
    hidden = gate_rows[behind : behind + form.recurrent]

    common = gate_rows[0].copy()
    for a in range(actions):
        for g in range(gates):
            common[g] += gate_rows[1 + inputs + a, g] * previous[a]
    drive = gate_rows[1 : 1 + inputs].copy()
    if form.products:
        for f in range(inputs):
            for a in range(actions):
                row = behind + form.recurrent + f * actions + a
                for g in range(gates):
                    drive[f, g] += gate_rows[row, g] * previous[a]

    if form.recurrent:
        _advance_lstm(values, columns, common, drive, hidden, state)
    else:
        _advance_stack(values, columns, common, drive, state)

    if memory is not None:  # known to the compiler: None is a type of its own
        expected = _expect(memory, previous)

    sums = np.zeros(queries)
    mass = np.zeros(queries)
    h, lane = (np.empty(d, F32), np.empty(d, F32)), np.empty(LANES, F32)
    scores = np.empty(queries, F32), np.empty(queries, F32)
    for first in range(0, values.shape[0], 2):  # two at a time, as `_advance_lstm`
        count = min(2, values.shape[0] - first)
        for i in range(2):
            column, hi, score = columns[first + min(i, count - 1)], h[i], scores[i]
            for k in range(d):
                hi[k] = state[column, k]
            for q in range(queries):
                score[q] = score_bias[q]
        _add_two_products(scores[0], scores[1], score_w, h[0], h[1])
        for i in range(count):
            n = first + i
            score = scores[i]
            if form.softmax:
                if memory is not None and len(memory.comparison):
                    _compare(memory.comparison, values[n], expected, evidence[columns[n]], score)
                _softmax(score, lane)
                if memory is not None:
                    for q in range(queries):
                        score[q] *= score[q]
                for q in range(queries):
                    mass[q] += (np.float64(score[q]) + ROUND_MASS) - ROUND_MASS
            else:
                for q in range(queries):
                    score[q] = tanh(score[q])
            for q in range(queries):
                attention[n, q] = score[q]
            wide = np.float64(values[n])
            for q in range(queries):
                sums[q] += (np.float64(score[q]) * wide + shift) - shift

    if form.softmax:
        routed = len(message) // 2
        for q in range(routed):
            if form.normalise:
                sums[q] /= max(mass[q], 1.0)
                mass[q] = min(mass[q], 1.0)
            message[q] = sums[q]
            message[routed + q] = mass[q] - 1.0
        if memory is not None:
            entering = _believe(memory, message, expected)
            return _act(entering, head, widths, form.relu, form.clip)
    else:
        if form.normalise:
            sums *= np.float64(form.normalise) / np.float64(max(1, values.shape[0]))
        for q in range(len(message)):
            message[q] = tanh(F32(sums[q]))
    return _act(message, head, widths, form.relu, form.clip)


@njit(cache=True, error_model="numpy", nogil=True)
def _startle(values, columns, state, fresh, evidence):
    """Let every neuron begin anew where contents moved; see `an_control.policy.startle`.

    The last two columns of `state` hold the last reading, and twice the usual change.
    """
    last, usual = state.shape[1] - 2, state.shape[1] - 1
    jumps, excess = np.zeros(len(values), F32), 0.0
    for n in range(len(values)):
        change = abs(values[n] - state[columns[n], last])
        if change == change:
            jumps[n] = min(change, F32(1.0))
        beyond = max(jumps[n] - state[columns[n], usual], F32(0.0))
        excess += (np.float64(beyond) + ROUND_MASS) - ROUND_MASS
    if excess > STARTLING * len(values):
        state[:, :usual] = fresh[:usual]
        evidence[:] = 0.0
    for n in range(len(values)):
        double = jumps[n] + jumps[n]
        state[columns[n], usual] += (double - state[columns[n], usual]) * USUAL
        state[columns[n], last] = values[n]


@njit(cache=True, error_model="numpy", nogil=True)
def _expect(memory, previous):
    """Advance the head's memory; see `an_control.policy.memory`. Returns what it expects (n,)."""
    units = memory.hidden.shape[0]
    entering = memory.bias[: 3 * units].copy()
    _add_product(entering, memory.input, np.concatenate((memory.state[units:], previous)))
    staying = np.zeros(3 * units, F32)
    staying[2 * units :] = memory.bias[3 * units :]
    _add_product(staying, memory.hidden, memory.state[:units].copy())
    for k in range(units):
        reset = F32(0.5) * tanh(entering[k] + staying[k]) + F32(0.5)
        keep = F32(0.5) * tanh(entering[units + k] + staying[units + k]) + F32(0.5)
        new = tanh(entering[2 * units + k] + reset * staying[2 * units + k])
        memory.state[k] = new + keep * (memory.state[k] - new)
    expected = memory.expectation[0].copy()
    _add_product(expected, memory.expectation[1:], np.concatenate((memory.state, previous)))
    return expected


@njit(inline="always", error_model="numpy")
def _compare(comparison, value, expected, evidence, score):
    """Bring one channel's evidence up to date, and add it to its score."""
    for q in range(len(expected)):
        error = value - expected[q]
        error = error * error * comparison[0, q]
        loss = comparison[1, q] * (error / (error + F32(1.0)))
        evidence[q] = comparison[3, q] * evidence[q] + comparison[2, q] - loss
        score[q] += evidence[q]


@njit(cache=True, error_model="numpy", nogil=True)
def _believe(memory, message, expected):
    """What the message makes of what was expected; the head's input."""
    units, routed = memory.hidden.shape[0], len(message) // 2
    seen = np.empty(routed + units)
    for q in range(routed):
        mass = message[routed + q] + 1.0
        share = min(mass, 1.0)
        news = message[q] / max(mass, 1.0) - share * expected[q]
        trust = 1.0 / (1.0 + memory.doubt[q] * news * news)
        seen[q] = expected[q] + trust * news
        memory.state[units + q], memory.state[units + routed + q] = seen[q], trust * share
    seen[routed:] = memory.state[:units]
    return seen


@njit(cache=True, error_model="numpy", nogil=True)
def _act(message, head, widths, relu, clip):
    """The head, float64. `head` holds for each layer the bias (out,), then weights (in, out)."""
    x, at = message, 0
    for layer in range(len(widths)):
        width = widths[layer]
        y = head[at : at + width].copy()
        at += width
        size = len(x) * width
        _add_product(y, head[at : at + size].reshape(len(x), width), x)
        at += size
        last = layer == len(widths) - 1
        for j in range(width):
            if last and clip:
                y[j] = min(max(y[j], -1.0), 1.0)
            elif last or not relu:
                y[j] = tanh(F32(y[j]))
            else:
                y[j] = max(y[j], 0.0)
        x = y
    return x.astype(np.float32)
