"""The AttentionNeuron's arithmetic compiled with numba: float32 neurons, channels along axis 0.

Each channel is computed on its own by the same instructions at whatever index it stands (the
compiler vectorises over gates and queries, never over channels), and the sums over channels are
exact (see `exact_sums`). Without fast-math flags nothing is fused or reordered. So the order of the
channels cannot change a bit of the result.
"""

# mypy: allow-untyped-defs

from __future__ import annotations

import numpy as np

from an_control.policy.engine import JUMP_LIMIT, PolicyEngine
from an_control.policy.exact_sums import ROUND_MASS
from an_control.policy.model_file import Model
from an_control.policy.packed_weights import (
    KernelOptions,
    copy_to_aligned_array,
    pack_memory_weights,
    pack_weights,
)
from an_control.policy.sizes import AttentionSizes
from an_control.system.compiled_cache import njit

F32 = np.float32
USUAL = F32(0.1)
"""Weight of the newest tick in the running mean of a reading's changes; see `reference_engine`."""
MAX_ERROR = F32(1e30)
"""Bound of the scaled square of an error; an overflow would leave NaN in the evidence for good."""
VECTOR = 8
"""Queries are padded to a multiple of this number, so that the compiler can vectorise over them."""
NO_SCORE = F32(-1e30)
"""The score of a padded query, which softmax turns into zero."""


@njit(inline="always", error_model="numpy")
def compute_tanh(x):
    """Return the hyperbolic tangent with an error below 3e-7, by the formula of Eigen's library."""
    limit = F32(7.90531110763549805)
    x = limit if x > limit else x
    x = -limit if x < -limit else x
    y = x * x
    p = F32(-2.76076847742355e-16) * y + F32(2.00018790482477e-13)
    p = p * y + F32(-8.60467152213735e-11)
    p = p * y + F32(5.12229709037114e-08)
    p = p * y + F32(1.48572235717979e-05)
    p = p * y + F32(6.37261928875436e-04)
    p = p * y + F32(4.89352455891786e-03)
    q = F32(1.19825839466702e-06) * y + F32(1.18534705686654e-04)
    q = q * y + F32(2.26843463243900e-03)
    q = q * y + F32(4.89352518554385e-03)
    return x * p / q


@njit(inline="always", error_model="numpy")
def compute_exp(x):
    """Return the exponential of a number x <= 0 with an error below 2e-7."""
    low = F32(-87.0)
    x = low if x < low else x
    n = np.floor(x * F32(1.44269504088896341) + F32(0.5))
    r = x - n * F32(0.693359375)
    r = r - n * F32(-2.12194440e-4)
    p = F32(1.9875691500e-4) * r + F32(1.3981999507e-3)
    p = p * r + F32(8.3334519073e-3)
    p = p * r + F32(4.1665795894e-2)
    p = p * r + F32(1.6666665459e-1)
    p = p * r + F32(5.0000001201e-1)
    p = p * r * r + r + F32(1.0)
    return p * np.int32((np.int32(n) + np.int32(127)) << np.int32(23)).view(np.float32)


@njit(cache=True, error_model="numpy", nogil=True)
def advance_lstm_neurons(values, neurons, input_weights, hidden, state):
    """Advance LSTM neurons of d units, one for each of N channels, by one tick in place.

    Args:
        values: (N,) the readings.
        neurons: (N,) the index of each channel's row in `state`.
        input_weights: (1 + F, 4d) row 0 is what the bias and the inputs that all channels share
            add to each gate, and is the same for all neurons. Row 1 holds the weights of the
            reading; row 2, if F is 2, those of its change since the last tick.
        hidden: (d, 4d) the weights of the neurons' own outputs.
        state: (rows, 2d + 1) for each neuron its outputs h, its cells c and its previous reading;
            changed.
    """
    gates = input_weights.shape[1]
    d = gates // 4
    # Arrays made here cannot overlap, which the compiler must know to vectorise.
    z, c = (np.empty(gates, F32), np.empty(gates, F32)), np.empty(d, F32)
    # Two channels at a time, so that each weight is loaded once for both. If the last channel is
    # alone it is computed twice, and the second result is dropped.
    for first in range(0, values.shape[0], 2):
        count = min(2, values.shape[0] - first)
        for i in range(2):
            n, zi = first + min(i, count - 1), z[i]
            value, last = values[n], state[neurons[n], 2 * d]
            if len(input_weights) > 2:
                change = value - last if last == last else F32(0.0)
                for g in range(gates):
                    zi[g] = (
                        input_weights[0, g]
                        + input_weights[1, g] * value
                        + input_weights[2, g] * change
                    )
            else:
                for g in range(gates):
                    zi[g] = input_weights[0, g] + input_weights[1, g] * value
        one, other = state[neurons[first]], state[neurons[first + count - 1]]
        add_two_vector_matrix_products(z[0], z[1], hidden, one, other)
        for i in range(count):
            zi, own = z[i], state[neurons[first + i]]
            for g in range(gates):
                zi[g] = compute_tanh(zi[g])
            for k in range(d):
                enter = F32(0.5) * zi[k] + F32(0.5)
                forget = F32(0.5) * zi[d + k] + F32(0.5)
                c[k] = forget * own[d + k] + enter * zi[3 * d + k]
            for k in range(d):
                own[d + k] = c[k]
            for k in range(d):
                own[k] = (F32(0.5) * zi[2 * d + k] + F32(0.5)) * compute_tanh(c[k])
            own[2 * d] = values[first + i]


@njit(cache=True, error_model="numpy", nogil=True)
def advance_stacked_neurons(values, neurons, input_weights, state):
    """Advance stacked neurons, one for each of N channels, by one tick in place.

    A stacked neuron is a layer of d tanh units, whose inputs are the k newest readings of its
    channel and the inputs that all channels share.

    Args:
        values: (N,) the readings.
        neurons: (N,) the index of each channel's row in `state`.
        input_weights: (1 + k, d) row 0 is what the bias and the shared inputs add to each unit,
            and is the same for all neurons. Row i holds the weights of the i-th newest reading.
        state: (rows, d + k) for each neuron its outputs h, then its k newest readings; changed.
    """
    inputs, d = len(input_weights) - 1, input_weights.shape[1]
    h = np.empty(d, F32)
    for n in range(values.shape[0]):
        value, column = values[n], neurons[n]
        new = state[column, d] != state[column, d]
        for f in range(inputs - 1, 0, -1):
            state[column, d + f] = value if new else state[column, d + f - 1]
        state[column, d] = value
        for k in range(d):
            h[k] = input_weights[0, k] + input_weights[1, k] * value
        for f in range(1, inputs):
            reading = state[column, d + f]
            for k in range(d):
                h[k] += input_weights[1 + f, k] * reading
        for k in range(d):
            h[k] = compute_tanh(h[k])
        for k in range(d):
            state[column, k] = h[k]


@njit(inline="always", error_model="numpy")
def reset_neurons_on_jump(values, neurons, state, stored_readings):
    """Reset all neurons if most readings change abruptly, as after a rewiring.

    `reference_engine` has the equation.

    Args:
        values: (N,) the readings.
        neurons: (N,) the index of each channel's row in `state`.
        state: (rows, S) the state of each neuron, see `PolicyEngine`; changed.
        stored_readings: A pair that says which numbers of a row are earlier readings: the index of
            the first one, and how many there are.
    """
    last, usual = stored_readings[0], state.shape[1] - 1
    excess = 0.0
    for n in range(len(values)):
        own = state[neurons[n]]
        jump = abs(values[n] - own[last])
        jump = min(jump, F32(1.0)) if jump == jump else F32(0.0)
        beyond = max(jump - own[usual], F32(0.0))
        excess += (np.float64(beyond) + ROUND_MASS) - ROUND_MASS
        own[usual] += (jump + jump - own[usual]) * USUAL
    if excess > JUMP_LIMIT * len(values):
        state[:, :usual] = 0.0
        state[:, last : last + stored_readings[1]] = np.nan


@njit(inline="always", error_model="numpy")
def add_vector_matrix_product(out, matrix, vector):
    """Add the product ``vector @ matrix`` to `out`, in place.

    It adds eight rows at a time, because `out` can then stay in registers.
    """
    count, width = matrix.shape
    whole = count - count % 8
    for k in range(0, whole, 8):
        x0, x1, x2, x3 = vector[k], vector[k + 1], vector[k + 2], vector[k + 3]
        x4, x5, x6, x7 = vector[k + 4], vector[k + 5], vector[k + 6], vector[k + 7]
        for j in range(width):
            total = out[j] + matrix[k, j] * x0
            total = total + matrix[k + 1, j] * x1
            total = total + matrix[k + 2, j] * x2
            total = total + matrix[k + 3, j] * x3
            total = total + matrix[k + 4, j] * x4
            total = total + matrix[k + 5, j] * x5
            total = total + matrix[k + 6, j] * x6
            out[j] = total + matrix[k + 7, j] * x7
    for k in range(whole, count):
        for j in range(width):
            out[j] += matrix[k, j] * vector[k]


@njit(inline="always", error_model="numpy")
def add_sparse_vector_matrix_product(out, matrix, vector):
    """Add the product ``vector @ matrix`` to `out`, in place; skip the zeros of the vector.

    Skipping saves time after a relu layer, most of whose units are 0. The result has the same bits
    as that of `add_vector_matrix_product`.
    """
    width, count = matrix.shape[1], 0
    active = np.empty(len(vector), np.int64)
    for k in range(len(vector)):
        active[count] = k
        count += vector[k] != 0.0
    whole = count - count % 8
    for at in range(0, whole, 8):
        k0, k1, k2, k3 = active[at], active[at + 1], active[at + 2], active[at + 3]
        k4, k5, k6, k7 = active[at + 4], active[at + 5], active[at + 6], active[at + 7]
        x0, x1, x2, x3 = vector[k0], vector[k1], vector[k2], vector[k3]
        x4, x5, x6, x7 = vector[k4], vector[k5], vector[k6], vector[k7]
        for j in range(width):
            total = out[j] + matrix[k0, j] * x0
            total = total + matrix[k1, j] * x1
            total = total + matrix[k2, j] * x2
            total = total + matrix[k3, j] * x3
            total = total + matrix[k4, j] * x4
            total = total + matrix[k5, j] * x5
            total = total + matrix[k6, j] * x6
            out[j] = total + matrix[k7, j] * x7
    for at in range(whole, count):
        k = active[at]
        for j in range(width):
            out[j] += matrix[k, j] * vector[k]


@njit(inline="always", error_model="numpy")
def add_two_vector_matrix_products(out, other_out, matrix, x, y):
    """Add ``x @ matrix`` to `out` and ``y @ matrix`` to `other_out`, in place.

    Each row of the matrix is loaded only once, for both products.
    """
    count, width = matrix.shape
    whole = count - count % 4
    for k in range(0, whole, 4):
        x0, x1, x2, x3 = x[k], x[k + 1], x[k + 2], x[k + 3]
        y0, y1, y2, y3 = y[k], y[k + 1], y[k + 2], y[k + 3]
        for j in range(width):
            r0, r1, r2, r3 = matrix[k, j], matrix[k + 1, j], matrix[k + 2, j], matrix[k + 3, j]
            out[j] = out[j] + r0 * x0 + r1 * x1 + r2 * x2 + r3 * x3
            other_out[j] = other_out[j] + r0 * y0 + r1 * y1 + r2 * y2 + r3 * y3
    for k in range(whole, count):
        for j in range(width):
            out[j] += matrix[k, j] * x[k]
            other_out[j] += matrix[k, j] * y[k]


@njit(cache=True, error_model="numpy", nogil=True)
def advance_memory_and_expect_readings(memory, previous_action, memory_rows, expecting_rows):
    """Advance the memory of a policy's head by a tick; return the readings (n,) that it expects.

    The memory is a GRU of H units, which bridges missing readings. It expects a reading for each of
    n queries, which stand for channels.

    Args:
        memory: (2n + H,) three parts in one array. First, for each query, the weight (0 to 1) that
            the measured reading had in the last tick, against the expected one; then the reading of
            each query in the last tick; then the units of the GRU, which are changed.
        previous_action: (A,) the previous action.
        memory_rows: The weights of the GRU, see `packed_weights.pack_memory_weights`.
        expecting_rows: The weights from the memory to the expected readings, see
            `packed_weights.pack_memory_weights`.
    """
    units = memory_rows.shape[1] // 3
    seen = len(memory) - units
    entering, staying = memory_rows[0].copy(), memory_rows[len(memory_rows) - 1].copy()
    state = memory[seen:]
    add_vector_matrix_product(entering, memory_rows[1 : 1 + seen], memory[:seen])
    behind = 1 + seen + units
    add_vector_matrix_product(
        entering, memory_rows[behind : behind + len(previous_action)], previous_action
    )
    add_vector_matrix_product(staying, memory_rows[1 + seen : behind], state)
    for k in range(2 * units):
        entering[k] = F32(0.5) * compute_tanh(entering[k] + staying[k]) + F32(0.5)
    for k in range(units):
        new = compute_tanh(entering[2 * units + k] + entering[k] * staying[2 * units + k])
        state[k] = new + entering[units + k] * (state[k] - new)
    expected = expecting_rows[0].copy()
    add_vector_matrix_product(expected, expecting_rows[1:behind], memory)
    add_vector_matrix_product(
        expected, expecting_rows[behind : behind + len(previous_action)], previous_action
    )
    return expected


@njit(inline="always", error_model="numpy")
def correct_expected_readings(memory, units, sums, total_attention, expected, outlier_weight):
    """Correct expected readings by this tick's measured ones; store the result in `memory`.

    The memory of the policy's head is a GRU. It expects one reading for each of n queries, which
    stand for channels.

    Args:
        memory: (2n + H,) three parts in one array. First, for each query, the weight (0 to 1) of
            the measured reading against the expected one; then the corrected reading of each
            query; then the units of the GRU, which do not change.
        units: The number H of GRU units.
        sums: (n,) for each query the sum over channels of squared attention times reading.
        total_attention: (n,) for each query the sum over channels of squared attention.
        expected: (n,) the readings that the memory expects.
        outlier_weight: (n,) the factor d in the weight 1 / (1 + d r^2) of a reading that differs by
            r from the expected one.
    """
    routed = (len(memory) - units) // 2
    for q in range(routed):
        share = min(total_attention[q], 1.0)
        news = sums[q] / max(total_attention[q], 1.0) - share * expected[q]
        trust = 1.0 / (1.0 + outlier_weight[q] * news * news)
        memory[q], memory[routed + q] = trust * share, expected[q] + trust * news


@njit(cache=True, error_model="numpy", nogil=True)
def compute_action(message, head, widths, relu, clip):
    """Return the action (A,) float32 that the last network of a policy, its head, computes.

    Args:
        message: The input of the head.
        head: One flat array with the bias (out,) and then the weights (in, out) of each layer.
        widths: (layers,) the number of outputs of each layer.
        relu: True for rectified linear hidden layers, False for tanh.
        clip: True if the action is clipped to [-1, 1], False if it is passed through tanh.
    """
    x, at = message, 0
    for layer in range(len(widths)):
        width = widths[layer]
        y = head[at : at + width].copy()
        at += width
        size = len(x) * width
        rows = head[at : at + size].reshape(len(x), width)
        if relu and layer > 0:
            add_sparse_vector_matrix_product(y, rows, x)
        else:
            add_vector_matrix_product(y, rows, x)
        at += size
        last = layer == len(widths) - 1
        for j in range(width):
            if last and clip:
                y[j] = min(max(y[j], -1.0), 1.0)
            elif last or not relu:
                y[j] = compute_tanh(F32(y[j]))
            else:
                y[j] = max(y[j], 0.0)
        x = y
    return x.astype(np.float32)


@njit(cache=True, error_model="numpy", nogil=True)
def apply_softmax(scores):
    """Replace scores (rows, queries) by their softmax, row by row, in place.

    Each step is done for all rows before the next step, because otherwise each operation would wait
    for the previous one in its row. Sums and maxima over the queries are computed in eight
    interleaved parts at a time, because the compiler does not reorder them itself.
    """
    rows, queries = scores.shape
    part, scale = np.empty(VECTOR, F32), np.empty(rows, F32)
    for n in range(rows):
        for j in range(VECTOR):
            part[j] = scores[n, j]
        for q in range(VECTOR, queries, VECTOR):
            for j in range(VECTOR):
                part[j] = scores[n, q + j] if scores[n, q + j] > part[j] else part[j]
        for half in (4, 2, 1):
            for j in range(half):
                part[j] = part[j + half] if part[j + half] > part[j] else part[j]
        scale[n] = part[0]
    for n in range(rows):
        for q in range(queries):
            scores[n, q] = compute_exp(scores[n, q] - scale[n])
    for n in range(rows):
        for j in range(VECTOR):
            part[j] = scores[n, j]
        for q in range(VECTOR, queries, VECTOR):
            for j in range(VECTOR):
                part[j] += scores[n, q + j]
        total = part[0]
        for j in range(1, VECTOR):
            total += part[j]
        scale[n] = F32(1.0) / total
    for n in range(rows):
        for q in range(queries):
            scores[n, q] *= scale[n]


@njit(inline="always", error_model="numpy")
def update_identity_evidence(prediction, value, expected, evidence, score):
    """Update the evidence that a reading comes from the channel of each query, in place.

    Each of the n queries stands for one channel of the model. The new evidence is also added to the
    reading's attention scores.

    Args:
        prediction: (4, n) the weights b, v, g and k of each query. The attention to a reading also
            depends on predictions by these weights (prediction attention); `reference_engine` has
            the equation.
        value: The reading.
        expected: (n,) the reading that the memory expects of each query's channel.
        evidence: (n,) the evidence for each query in nats; changed.
        score: (n,) the attention score of each query; changed.
    """
    for q in range(len(expected)):
        error = value - expected[q]
        error = error * error * prediction[0, q]
        error = error if error < MAX_ERROR else MAX_ERROR
        loss = prediction[1, q] * (error / (error + F32(1.0)))
        new = prediction[3, q] * evidence[q] + prediction[2, q] - loss
        evidence[q] = new
        score[q] += new


class NumbaEngine(PolicyEngine):
    """An engine whose code is compiled by numba, when the engine is constructed.

    Args:
        model: A model whose sizes compile (see `AttentionSizes.can_be_compiled`).
    """

    name = "numba"

    def __init__(self, model: Model) -> None:
        assert isinstance(model.sizes, AttentionSizes)
        sizes = model.sizes
        width = sizes.queries + -sizes.queries % VECTOR
        super().__init__(sizes, width, width)
        packed = pack_weights(sizes, model.arrays)
        score_rows = np.pad(packed.score_rows, ((0, 0), (0, self._width - sizes.queries)))
        if sizes.attention == "softmax":
            score_rows[0, sizes.queries :] = NO_SCORE
        memory = np.zeros((0, 0), F32), np.zeros((0, 0), F32)
        if sizes.memory:
            memory = pack_memory_weights(model.arrays, self._width)
        # The head's input behind a memory is float32; float64 would gain nothing there.
        head_type = F32 if sizes.memory else np.float64
        self._weights = (
            copy_to_aligned_array(packed.gate_rows, F32),
            copy_to_aligned_array(score_rows, F32),
            *memory,
            copy_to_aligned_array(packed.head, head_type),
            packed.widths,
            tuple(packed.form),  # a plain tuple enters compiled code faster
        )
        self._memory = np.zeros(sizes.message_length + sizes.memory if sizes.memory else 0, F32)
        self._compile_kernels()

    def _compile_kernels(self) -> None:
        """Call all compiled functions once, so that they are compiled before the first tick."""
        self.add_neurons(2)
        previous_action = np.zeros(self._sizes.actions, F32)
        for neurons in (None, np.array([1, 0])):
            self.step(np.zeros(2, F32), neurons, previous_action, np.float64(1.0))
        self.advance_neurons(np.zeros(2, F32), np.array([1, 0]), previous_action)
        self.increase_evidence_for_queries(np.array([], np.int64), np.array([], np.int64), 0.0)
        self.reset()

    def reset(self) -> None:
        """Remove the neurons of all channels and reset the recurrent state, to start an episode.

        A neuron is the small network that reads one channel. The recurrent state belongs to the
        layers that take the attention's output.
        """
        self._memory[:] = 0.0
        self.remove_all_neurons()

    def increase_evidence_for_queries(
        self, neurons: np.ndarray, queries: np.ndarray, min_nats: float
    ) -> None:
        """Increase some neurons' evidence of which channel they read.

        Each query of the attention stands for one channel of the model. A neuron holds one number
        for each query, the evidence in nats that the neuron reads the query's channel.

        Args:
            neurons: (K,) the indices of the neurons.
            queries: (K,) for each of these neurons, the index of the query whose evidence is
                increased.
            min_nats: The value to which the evidence is increased where it is lower.
        """
        _increase_evidence_for_queries(
            self._state, neurons, self._evidence.start, queries, F32(min_nats)
        )

    def advance_neurons(
        self, values: np.ndarray, neurons: np.ndarray, previous_action: np.ndarray
    ) -> None:
        """Advance some neurons by one tick without computing an action.

        Args:
            values: (K,) float32 the readings.
            neurons: (K,) the indices of the neurons.
            previous_action: (A,) the previous action.
        """
        gate_rows, *_, options = self._weights
        _unpack_options_and_advance_neurons(
            values, neurons, previous_action, self._state, gate_rows, options
        )

    def step(
        self,
        values: np.ndarray,
        neurons: np.ndarray | None,
        previous_action: np.ndarray,
        rounding_number: np.float64,
    ) -> np.ndarray:
        """Compute one tick and return the action (A,) float32.

        Args:
            values: (N,) float32 the readings.
            neurons: (N,) the index of the neuron that each reading belongs to; None: all neurons,
                in order.
            previous_action: (A,) float32 the previous action, in [-1, 1].
            rounding_number: A large number, which is added to each term of the attention's sum and
                subtracted again. This rounds the terms so that the sum is exact (see `exact_sums`).
        """
        if len(values) != len(self._attention):
            self._attention = np.zeros((len(values), self._width), F32)
        return _compute_tick_and_get_action(
            values,
            self._all if neurons is None else neurons,
            previous_action,
            rounding_number,
            self._state,
            self._attention,
            self._message,
            self._memory,
            *self._weights,
        )


@njit(inline="always", error_model="numpy")
def _compute_weights_of_neuron_inputs(options, previous_action, gate_rows):
    """Return the weights (1 + F, U) of the F inputs that each neuron gets from its channel.

    An input may be a product of a reading and the previous action. Once the action is known, it is
    linear in the reading, so its weights join those of the reading. Row 0 is the bias with what the
    previous action adds, the same for all neurons. U is the number of sums in a neuron: four for
    each LSTM unit, one for any other unit.

    Args:
        options: The options of the policy.
        previous_action: (A,) the previous action.
        gate_rows: The neurons' weights, see `PackedWeights`.
    """
    inputs, actions = options.inputs, len(previous_action)
    input_weights = gate_rows[: 1 + inputs].copy()
    add_vector_matrix_product(
        input_weights[0], gate_rows[1 + inputs : 1 + inputs + actions], previous_action
    )
    if options.products:
        for f in range(inputs):
            row = 1 + inputs + actions + options.recurrent + f * actions
            add_vector_matrix_product(
                input_weights[1 + f], gate_rows[row : row + actions], previous_action
            )
    return input_weights


@njit(inline="always", error_model="numpy")
def _write_attention_weights(
    options, values, neurons, state, score_rows, expecting_rows, expected, attention
):
    """Write the attention weights of all channels for all queries into `attention`.

    The weights are squared if the head has a memory.

    Args:
        options: The options of the policy.
        values: (N,) the readings.
        neurons: (N,) the index of each channel's row in `state`.
        state: The rows of the neurons; their evidence is changed.
        score_rows: The weights from a neuron's output to the scores, see `PackedWeights`.
        expecting_rows: The weights of prediction attention, see
            `packed_weights.pack_memory_weights`.
        expected: (n,) the readings that the memory expects.
        attention: (N, M) receives the attention.
    """
    score_bias, score_w = score_rows[0], score_rows[1:]
    queries = len(score_bias)
    scores = np.empty(queries, F32), np.empty(queries, F32)
    prediction = expecting_rows[len(expecting_rows) - 4 :]
    evidence = state.shape[1] - queries - (1 if options.reset_on_jump else 0)
    for first in range(0, values.shape[0], 2):  # two at a time, as in `advance_lstm_neurons`
        count = min(2, values.shape[0] - first)
        for q in range(queries):
            scores[0][q] = scores[1][q] = score_bias[q]
        one, other = state[neurons[first]], state[neurons[first + count - 1]]
        add_two_vector_matrix_products(scores[0], scores[1], score_w, one, other)
        for i in range(count):
            n, score = first + i, scores[i]
            if options.prediction_attention:
                row = state[neurons[n], evidence : evidence + queries]
                update_identity_evidence(prediction, values[n], expected, row, score)
            if not options.softmax:
                for q in range(queries):
                    score[q] = compute_tanh(score[q])
            for q in range(queries):
                attention[n, q] = score[q]
    if options.softmax:
        apply_softmax(attention)
    if options.memory:
        for n in range(values.shape[0]):
            for q in range(queries):
                attention[n, q] *= attention[n, q]


@njit(inline="always", error_model="numpy")
def _sum_weighted_readings_and_attention(values, attention, rounding_number):
    """Return two sums (M,) over channels: of attention times reading, and of attention.

    Args:
        values: (N,) the readings.
        attention: (N, M) the attention weights.
        rounding_number: A large number, which is added to each term of the first sum and subtracted
            again. This rounds the terms so that the sum is exact (see `exact_sums`).
    """
    queries = attention.shape[1]
    sums, total_attention = np.zeros(queries), np.zeros(queries)
    for n in range(values.shape[0]):
        wide = np.float64(values[n])
        for q in range(queries):
            share = np.float64(attention[n, q])
            total_attention[q] += (share + ROUND_MASS) - ROUND_MASS
            sums[q] += (share * wide + rounding_number) - rounding_number
    return sums, total_attention


@njit(inline="always", error_model="numpy")
def _write_attention_message(options, channel_count, sums, total_attention, message):
    """Compute the attention message from the sums over channels, and write it into `message`.

    Args:
        options: The options of the policy.
        channel_count: The number of channels.
        sums: (M,) the sums of attention times reading; normalised in place.
        total_attention: (M,) the sums of attention; normalised in place.
        message: The array that receives the attention message.
    """
    routed = len(message) // 2
    if options.softmax:
        for q in range(routed):
            if options.normalise:
                sums[q] /= max(total_attention[q], 1.0)
                total_attention[q] = min(total_attention[q], 1.0)
            message[q] = sums[q]
            message[routed + q] = total_attention[q] - 1.0
    else:
        if options.normalise:
            sums *= np.float64(options.normalise) / np.float64(max(1, channel_count))
        for q in range(len(message)):
            message[q] = compute_tanh(F32(sums[q]))


@njit(inline="always", error_model="numpy")
def _advance_neurons(options, values, neurons, previous_action, gate_rows, state):
    """Advance the sensory neurons of N channels by one tick; their states are changed in place.

    Args:
        options: The options of the policy.
        values: (N,) float32 the channels' readings.
        neurons: (N,) for each channel, the index of the row of `state` with its neuron's state.
        previous_action: (A,) float32 the previous action.
        gate_rows: The weights that all neurons share; see `PackedWeights`.
        state: The states of all neurons, one a row; changed.
    """
    input_weights = _compute_weights_of_neuron_inputs(options, previous_action, gate_rows)
    if options.recurrent:
        first = 1 + options.inputs + len(previous_action)
        advance_lstm_neurons(
            values, neurons, input_weights, gate_rows[first : first + options.recurrent], state
        )
    else:
        advance_stacked_neurons(values, neurons, input_weights, state)


@njit(cache=True, error_model="numpy", nogil=True)
def _increase_evidence_for_queries(state, neurons, first_evidence_index, queries, min_nats):
    """Increase one query's evidence in each of some neurons to at least `min_nats`, in place.

    Args:
        state: The rows of the neurons.
        neurons: (K,) the indices of the neurons' rows.
        first_evidence_index: The index, in a row, of the evidence for the first query.
        queries: (K,) the index of the query for each of these neurons.
        min_nats: The value to which the evidence is increased where it is lower.
    """
    for i in range(len(neurons)):
        place = first_evidence_index + queries[i]
        state[neurons[i], place] = max(state[neurons[i], place], min_nats)


@njit(cache=True, error_model="numpy", nogil=True)
def _unpack_options_and_advance_neurons(
    values, neurons, previous_action, state, gate_rows, options_tuple
):
    """Advance neurons by one tick without computing an action, in place.

    Args:
        values: (K,) float32 the readings.
        neurons: (K,) the index of each reading's row in `state`.
        previous_action: (A,) float32 the previous action.
        state: The rows of the neurons; changed.
        gate_rows: The neurons' weights, see `PackedWeights`.
        options_tuple: The fields of `KernelOptions` as a tuple.
    """
    _advance_neurons(
        KernelOptions(*options_tuple), values, neurons, previous_action, gate_rows, state
    )


@njit(cache=True, error_model="numpy", nogil=True)
def _compute_tick_and_get_action(
    values,
    neurons,
    previous_action,
    rounding_number,
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
    options_tuple,
):
    """Compute one tick and return the action (A,) float32.

    Args:
        values: (N,) float32 the readings.
        neurons: (N,) the index of each channel's row in `state`.
        previous_action: (A,) float32 the previous action.
        rounding_number: A large number, which is added to each term of the attention's sum and
            subtracted again. This rounds the terms so that the sum is exact (see `exact_sums`).
        state: One row for each neuron, with the neuron's own state; with prediction attention, also
            the evidence for each query; with reset on jump, also twice a reading's usual change.
            Changed.
        attention: (N, M) receives the attention weights.
        message: Receives the attention message.
        memory: (2n + H,) for the n queries the weights and then the readings of the previous tick
            (m and x in `reference_engine`), then the H units of the memory; changed.
        gate_rows: The neurons' weights, see `PackedWeights`.
        score_rows: The weights from a neuron's output to the scores, see `PackedWeights`.
        memory_rows: The memory's weights, see `packed_weights.pack_memory_weights`.
        expecting_rows: The weights of the expected readings, see
            `packed_weights.pack_memory_weights`.
        head: The head's weights, see `PackedWeights`.
        widths: The widths of the head's layers.
        options_tuple: The fields of `KernelOptions` as a tuple.
    """
    options = KernelOptions(*options_tuple)
    inputs, d = options.inputs, score_rows.shape[0] - 1
    if options.reset_on_jump:
        reset_neurons_on_jump(
            values, neurons, state, (2 * d, 1) if options.recurrent else (d, inputs)
        )
    _advance_neurons(options, values, neurons, previous_action, gate_rows, state)
    expected = score_rows[0]  # a placeholder, not read without a memory
    if options.memory:
        expected = advance_memory_and_expect_readings(
            memory, previous_action, memory_rows, expecting_rows
        )
    _write_attention_weights(
        options, values, neurons, state, score_rows, expecting_rows, expected, attention
    )
    sums, total_attention = _sum_weighted_readings_and_attention(values, attention, rounding_number)
    _write_attention_message(options, len(values), sums, total_attention, message)
    if options.memory:
        weight = expecting_rows[len(expecting_rows) - (5 if options.prediction_attention else 1)]
        correct_expected_readings(memory, options.memory, sums, total_attention, expected, weight)
        known = memory[len(message) // 2 :].astype(head.dtype)
        return compute_action(known, head, widths, options.relu, options.clip)
    return compute_action(message.astype(head.dtype), head, widths, options.relu, options.clip)
