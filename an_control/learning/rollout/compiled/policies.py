"""Compiled arithmetic of the policies over a batch of episodes, the last index of every array.

Every column (episode) has its own weights, so that different candidate policies play at once. The
operations and their order are those of the policy's compiled engine, so that an episode has the
same bits as one that is played tick by tick. The batch size is fixed so that the compiler
vectorises over it; without fast-math flags it fuses and reorders nothing.

There are N input slots, d LSTM units (K if padded to a multiple of 8), M queries, A actions and
B columns.
"""

# mypy: allow-untyped-defs
from __future__ import annotations

import math

import numpy as np

from an_control.policy.exact_sums import ROUND_MASS
from an_control.policy.numba_engine import VECTOR as EIGHT
from an_control.policy.numba_engine import compute_exp, compute_tanh
from an_control.system.compiled_cache import njit

F32 = np.float32
BATCH = 64
"""Batch size: four vector registers of 16, whose independent operations hide each other's
latency."""
HALF = F32(0.5)
MASS = np.float64(ROUND_MASS)


@njit(error_model="numpy", nogil=True)
def copy_candidate_weights(
    candidates, candidate_index, column, gate_weights, score_biases, score_weights, head_weights
):
    """Copy the weights of one candidate policy to the place of one episode in a batch.

    Each weight array of the batch has the episode as its last index (B episodes), here called
    column. There are d LSTM units (K with padding) and M queries.

    Args:
        candidates: `PackedWeights` of all candidates.
        candidate_index: Index of the candidate.
        column: Index of the episode in the batch.
        gate_weights: Output: weights and biases of the LSTMs' gates, with the R rows of
            `PackedWeights.gate_rows` (R, 4d, B).
        score_biases: Output: biases of the attention scores (M, B).
        score_weights: Output: weights of the attention scores (K, M, B).
        head_weights: Output: all H weights and biases of the head, in the order of
            `PackedWeights.head` (H, B).
    """
    for k in range(gate_weights.shape[0]):
        for g in range(gate_weights.shape[1]):
            gate_weights[k, g, column] = candidates.gate_rows[candidate_index, k, g]
    for q in range(score_biases.shape[0]):
        score_biases[q, column] = candidates.score_rows[candidate_index, 0, q]
        for k in range(candidates.score_rows.shape[1] - 1):
            score_weights[k, q, column] = candidates.score_rows[candidate_index, 1 + k, q]
    for i in range(head_weights.shape[0]):
        head_weights[i, column] = candidates.head[candidate_index, i]


@njit(forceinline=True, error_model="numpy", nogil=True)
def compute_common_gates_and_input_weights(
    options, gate_weights, previous_action, common_gates, input_weights
):
    """Compute what the LSTM gates of all channels have in common: a term, and the input weights.

    Every channel has an LSTM of d units with the same weights. Its F inputs are computed from the
    channel's readings. There are A actions and B episodes.

    Args:
        options: Options of the policy, a `KernelOptions`.
        gate_weights: Weights and biases of the gates (R, 4d, B). `PackedWeights.gate_rows` says
            what the R rows are.
        previous_action: Previous actions (A, B).
        common_gates: Output: the term (4d, B) to add to the gates of every channel. It is the
            biases plus the weighted previous actions.
        input_weights: Output: weights of the F inputs in the gates (F, 4d, B). They depend on the
            previous action if the policy multiplies inputs and actions.
    """
    inputs, actions, gates = options.inputs, previous_action.shape[0], common_gates.shape[0]
    for g in range(gates):
        for b in range(BATCH):
            common_gates[g, b] = gate_weights[0, g, b]
        for a in range(actions):
            for b in range(BATCH):
                common_gates[g, b] += gate_weights[1 + inputs + a, g, b] * previous_action[a, b]
    for f in range(inputs):
        for g in range(gates):
            for b in range(BATCH):
                input_weights[f, g, b] = gate_weights[1 + f, g, b]
        if options.products:
            for a in range(actions):
                row = 1 + inputs + actions + options.recurrent + f * actions + a
                for g in range(gates):
                    for b in range(BATCH):
                        input_weights[f, g, b] += gate_weights[row, g, b] * previous_action[a, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def add_matrix_products(out, matrices, vectors):
    """Add ``matrices[:, :, b].T @ vectors[i, :, b]`` to ``out[i, :, b]`` for each i and b.

    There are N input slots (i) and B episodes (b). K is a multiple of 8; matrices and vectors are
    padded with zeros, which do not change the result.

    Args:
        out: Sums (N, W, B), vectors of length W, to which the products are added.
        matrices: One matrix (K, W) for each episode (K, W, B).
        vectors: One vector of length K for each slot and episode (N, K, B).
    """
    channels, width, _ = out.shape
    for k in range(0, matrices.shape[0], 8):
        for j in range(width):
            for i in range(channels):
                for b in range(BATCH):
                    total = out[i, j, b] + matrices[k, j, b] * vectors[i, k, b]
                    total = total + matrices[k + 1, j, b] * vectors[i, k + 1, b]
                    total = total + matrices[k + 2, j, b] * vectors[i, k + 2, b]
                    total = total + matrices[k + 3, j, b] * vectors[i, k + 3, b]
                    total = total + matrices[k + 4, j, b] * vectors[i, k + 4, b]
                    total = total + matrices[k + 5, j, b] * vectors[i, k + 5, b]
                    total = total + matrices[k + 6, j, b] * vectors[i, k + 6, b]
                    out[i, j, b] = total + matrices[k + 7, j, b] * vectors[i, k + 7, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def compute_gates_without_recurrence(
    readings, last_readings, gate_sums, common_gates, input_weights
):
    """Compute the sums that enter the LSTMs' gates, without the recurrent part.

    The sums come from readings, actions and biases; the LSTMs' previous outputs are added later.
    There are N input slots, each with an LSTM of d units, and B episodes. An LSTM has F inputs: the
    reading alone (F = 1), or the reading and its change (F = 2).

    Args:
        readings: (N, B) the readings of the input slots.
        last_readings: (N, B) the readings of the step before, NaN for none; overwritten with
            `readings` if F is 2.
        gate_sums: (N, 4d, B) overwritten with the sums.
        common_gates: (4d, B) the part of the sums that all channels share, from actions and biases.
        input_weights: (F, 4d, B) the weights of the inputs.
    """
    channels, gates, _ = gate_sums.shape
    for i in range(channels):
        for g in range(gates):
            for b in range(BATCH):
                gate_sums[i, g, b] = common_gates[g, b] + input_weights[0, g, b] * readings[i, b]
        if input_weights.shape[0] > 1:
            for b in range(BATCH):
                known = last_readings[i, b] == last_readings[i, b]
                change = readings[i, b] - last_readings[i, b] if known else F32(0.0)
                last_readings[i, b] = change
            for g in range(gates):
                for b in range(BATCH):
                    gate_sums[i, g, b] += input_weights[1, g, b] * last_readings[i, b]
            for b in range(BATCH):
                last_readings[i, b] = readings[i, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def add_identity_hints(gates, hints):
    """Add hints to the gates of the sensory neurons, in place.

    A hint tells a neuron which channel it reads. There are N input slots, each with a neuron of d
    LSTM units, and B episodes (columns).

    Args:
        gates: Gates (N, 4d, B), which this changes.
        hints: The hints, vectors (N, 4d, B); an empty array adds nothing.
    """
    for i in range(hints.shape[0]):
        for g in range(gates.shape[1]):
            for b in range(BATCH):
                gates[i, g, b] += hints[i, g, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def push_readings(readings, stacks):
    """Push the newest readings onto the stack of each input slot.

    There are N input slots and B episodes (columns).

    Args:
        readings: Newest readings (N, B).
        stacks: Stacks of the k newest readings, the newest first (N, k, B), which this changes. At
            the start of an episode they are NaN; the first reading then fills a whole stack.
    """
    for i in range(stacks.shape[0]):
        for f in range(stacks.shape[1] - 1, 0, -1):
            for b in range(BATCH):
                older = stacks[i, f - 1, b]
                stacks[i, f, b] = older if older == older else readings[i, b]
        for b in range(BATCH):
            stacks[i, 0, b] = readings[i, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def run_stacked_neurons(stacks, common, input_weights, outputs):
    """Run sensory neurons without an LSTM: a tanh layer on the k newest readings of a slot.

    There are N input slots, neurons of d units, padded to K, and B episodes (columns).

    Args:
        stacks: Stacks of the k newest readings (N, k, B).
        common: Part of the layer's input that all channels share (d, B).
        input_weights: Weight of each reading of the stack (k, d, B).
        outputs: Output: the neurons' outputs (N, K, B).
    """
    for i in range(stacks.shape[0]):
        for g in range(common.shape[0]):
            for b in range(BATCH):
                outputs[i, g, b] = common[g, b] + input_weights[0, g, b] * stacks[i, 0, b]
            for f in range(1, stacks.shape[1]):
                for b in range(BATCH):
                    outputs[i, g, b] += input_weights[f, g, b] * stacks[i, f, b]
            for b in range(BATCH):
                outputs[i, g, b] = compute_tanh(outputs[i, g, b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def compute_gates_in_one_pass(
    readings, common_gates, input_weights, recurrent_weights, outputs, gates
):
    """Compute the values of the LSTMs' gates in one pass, a fast version for small LSTMs.

    It is for LSTMs with one input and at most 8 units; their outputs are padded to K (8) with
    zeros. It replaces `compute_gates_without_recurrence`, `add_matrix_products` and
    `apply_tanh_to_gates`. There are N input slots and B episodes; each episode has the weights of
    its own policy.

    Args:
        readings: Readings of the input slots (N, B).
        common_gates: Part of the gates that all channels share (4d, B).
        input_weights: Weight of the reading in the gates (1, 4d, B).
        recurrent_weights: Weights of the LSTMs' own outputs in the gates (K, 4d, B).
        outputs: Outputs of the LSTMs at the step before (N, K, B).
        gates: Output: the values of the gates (N, 4d, B).
    """
    for i in range(gates.shape[0]):
        for g in range(gates.shape[1]):
            for b in range(BATCH):
                total = common_gates[g, b] + input_weights[0, g, b] * readings[i, b]
                total = total + recurrent_weights[0, g, b] * outputs[i, 0, b]
                total = total + recurrent_weights[1, g, b] * outputs[i, 1, b]
                total = total + recurrent_weights[2, g, b] * outputs[i, 2, b]
                total = total + recurrent_weights[3, g, b] * outputs[i, 3, b]
                total = total + recurrent_weights[4, g, b] * outputs[i, 4, b]
                total = total + recurrent_weights[5, g, b] * outputs[i, 5, b]
                total = total + recurrent_weights[6, g, b] * outputs[i, 6, b]
                gates[i, g, b] = compute_tanh(total + recurrent_weights[7, g, b] * outputs[i, 7, b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def compute_attention_in_one_pass(score_biases, score_weights, outputs, attention):
    """Compute the weights of a tanh attention in one pass, a fast version for small neurons.

    It is for neurons whose units are padded to K = 8. For them it replaces `set_scores_to_bias`,
    `add_matrix_products` and `convert_scores_to_weights`. There are N input slots, M queries and B
    episodes (columns).

    Args:
        score_biases: Biases of the scores (M, B).
        score_weights: Weights of the scores (K, M, B).
        outputs: The neurons' outputs (N, K, B).
        attention: Output: the attention weights (N, M, B).
    """
    for i in range(attention.shape[0]):
        for q in range(attention.shape[1]):
            for b in range(BATCH):
                total = score_biases[q, b] + score_weights[0, q, b] * outputs[i, 0, b]
                total = total + score_weights[1, q, b] * outputs[i, 1, b]
                total = total + score_weights[2, q, b] * outputs[i, 2, b]
                total = total + score_weights[3, q, b] * outputs[i, 3, b]
                total = total + score_weights[4, q, b] * outputs[i, 4, b]
                total = total + score_weights[5, q, b] * outputs[i, 5, b]
                total = total + score_weights[6, q, b] * outputs[i, 6, b]
                attention[i, q, b] = compute_tanh(total + score_weights[7, q, b] * outputs[i, 7, b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def apply_tanh_to_gates(gates):
    """Apply tanh to `gates` (N, 4d, B) in place.

    There are N input slots, d LSTM units and B episodes (columns).
    """
    for i in range(gates.shape[0]):
        for g in range(gates.shape[1]):
            for b in range(BATCH):
                gates[i, g, b] = compute_tanh(gates[i, g, b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def advance_lstm_cells(gates, outputs, cells):
    """Advance the LSTMs by one step: compute their next cells and outputs from their gates.

    There are N input slots, each with an LSTM of d units, and B episodes.

    Args:
        gates: (N, 4d, B) tanh of the sums of input gate, forget gate, output gate and candidate, in
            this order. From such a value t the three gates are computed as (1 + t) / 2, which is
            the sigmoid of twice the sum.
        outputs: (N, K, B) overwritten in its first d rows with the outputs; the other rows pad it.
        cells: (N, d, B) overwritten with the next cells.
    """
    d = cells.shape[1]
    for i in range(cells.shape[0]):
        for k in range(d):
            for b in range(BATCH):
                enter = HALF * gates[i, k, b] + HALF
                forget = HALF * gates[i, d + k, b] + HALF
                cell = forget * cells[i, k, b] + enter * gates[i, 3 * d + k, b]
                cells[i, k, b] = cell
                outputs[i, k, b] = (HALF * gates[i, 2 * d + k, b] + HALF) * compute_tanh(cell)


@njit(forceinline=True, error_model="numpy", nogil=True)
def set_scores_to_bias(biases, scores):
    """Set the attention scores (N, M, B) of all slots to their biases, in place.

    There are N input slots, M queries and B episodes (columns).

    Args:
        biases: Biases of the scores (M, B).
        scores: Output: the scores (N, M, B).
    """
    channels, queries, _ = scores.shape
    for i in range(channels):
        for q in range(queries):
            for b in range(BATCH):
                scores[i, q, b] = biases[q, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def convert_scores_to_weights(softmax, scores, scratch):
    """Replace attention scores by attention weights, their softmax or tanh, in place.

    For a softmax, the terms are summed in the same order as in `NumbaEngine`, so that both give the
    same bits. There are N input slots, M queries and B episodes (columns).

    Args:
        softmax: Whether the attention is a softmax over the queries, else a tanh.
        scores: Scores (N, M, B), which become the weights.
        scratch: Scratch space (3, B), used only for a softmax.
    """
    channels, queries, _ = scores.shape
    if not softmax:
        for i in range(channels):
            for q in range(queries):
                for b in range(BATCH):
                    scores[i, q, b] = compute_tanh(scores[i, q, b])
        return
    for i in range(channels):
        for b in range(BATCH):
            scratch[0, b] = scores[i, 0, b]
        for q in range(1, queries):
            for b in range(BATCH):
                more = scores[i, q, b] > scratch[0, b]
                scratch[0, b] = scores[i, q, b] if more else scratch[0, b]
        for q in range(queries):
            for b in range(BATCH):
                scores[i, q, b] = compute_exp(scores[i, q, b] - scratch[0, b])
        for b in range(BATCH):
            scratch[1, b] = F32(0.0)
        for first in range(min(queries, EIGHT)):
            for b in range(BATCH):
                scratch[2, b] = scores[i, first, b]
            for q in range(first + EIGHT, queries, EIGHT):
                for b in range(BATCH):
                    scratch[2, b] += scores[i, q, b]
            for b in range(BATCH):
                scratch[1, b] += scratch[2, b]
        for b in range(BATCH):
            scratch[1, b] = F32(1.0) / scratch[1, b]
        for q in range(queries):
            for b in range(BATCH):
                scores[i, q, b] *= scratch[1, b]


@njit(forceinline=True, error_model="numpy", nogil=True)
def sum_weighted_readings(
    options, attention, readings, present, present_count, rounding_number, sums, weight_sums
):
    """Sum the readings of all input slots, weighted by the attention of each query.

    The terms are rounded so that the sums are the same in any order of the slots. The sums are
    normalised if the policy's options say so. There are N input slots, M queries and B episodes
    (columns).

    Args:
        options: Options of the policy, a `KernelOptions`.
        attention: Attention weights (N, M, B).
        readings: Readings (N, B); they must be 0 where missing.
        present: 1 for slots with a reading, 0 for missing ones (N, B).
        present_count: Number of slots with a reading (B,).
        rounding_number: Number (B,) from `compute_sum_rounding_number`, by which the terms of each
            column are rounded.
        sums: Output: the sums (M, B).
        weight_sums: Output: sums of the attention weights (M, B); 0 without a softmax.
    """
    channels, queries, _ = attention.shape
    for q in range(queries):
        for b in range(BATCH):
            sums[q, b], weight_sums[q, b] = 0.0, 0.0
        for i in range(channels):
            for b in range(BATCH):
                weight, reading = np.float64(attention[i, q, b]), np.float64(readings[i, b])
                sums[q, b] += (rounding_number[b] + weight * reading) - rounding_number[b]
            if options.softmax:
                for b in range(BATCH):
                    weight = np.float64(attention[i, q, b]) * present[i, b]
                    weight_sums[q, b] += (weight + MASS) - MASS
        if options.normalise and options.softmax:
            for b in range(BATCH):
                sums[q, b] /= max(weight_sums[q, b], 1.0)
                weight_sums[q, b] = min(weight_sums[q, b], 1.0)
        elif options.normalise:
            for b in range(BATCH):
                sums[q, b] *= np.float64(options.normalise) / max(1.0, present_count[b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def compute_head_input(softmax, sums, weight_sums, scratch, head_input):
    """Compute the input of the head, the network that computes the actions, from sums over slots.

    There are M queries and B episodes (columns).

    Args:
        softmax: Whether the attention is a softmax over the queries, else a tanh.
        sums: Sums of the input slots' readings, weighted by attention (M, B).
        weight_sums: Sums of the attention weights (M, B), used only for a softmax.
        scratch: Scratch space (M, B) float32.
        head_input: Output: the head's input float64. For a softmax (2 M - 2, B): `sums`, then
            `weight_sums` - 1, both without the last query. For a tanh (M, B): the tanh of each sum.
    """
    queries = sums.shape[0]
    if softmax:
        for q in range(queries - 1):
            for b in range(BATCH):
                head_input[q, b] = sums[q, b]
                head_input[queries - 1 + q, b] = weight_sums[q, b] - 1.0
        return
    for q in range(queries):
        for b in range(BATCH):
            scratch[q, b] = F32(sums[q, b])
    for q in range(queries):
        for b in range(BATCH):
            scratch[q, b] = compute_tanh(scratch[q, b])
    for q in range(queries):
        for b in range(BATCH):
            head_input[q, b] = np.float64(scratch[q, b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def apply_head(options, layer_weights, widths, head_input, scratch, action):
    """Run the head, a stack of dense layers, on its input and write the actions.

    There are A actions and B episodes.

    Args:
        options: Options of the policy, a `KernelOptions`.
        layer_weights: Weights and biases of all layers (H, B), from the policy of each
            episode. The H numbers are in the order of `PackedWeights.head`.
        widths: Number of units of each layer.
        head_input: Array (W, B), which this overwrites. Its first rows are the inputs; W is at
            least their number, and at least the number of units of the widest layer.
        scratch: Scratch space (W, B).
        action: Output: the actions (A, B).
    """
    layers, at = len(widths), 0
    inputs = (len(layer_weights) - _count_weights_after_first_layer(widths)) // widths[0] - 1
    for layer in range(layers):
        width = widths[layer]
        for j in range(width):
            for b in range(BATCH):
                scratch[j, b] = layer_weights[at + j, b]
        at += width
        for i in range(inputs):
            for j in range(width):
                for b in range(BATCH):
                    scratch[j, b] += layer_weights[at + j, b] * head_input[i, b]
            at += width
        last = layer == layers - 1
        for j in range(width):
            if last and options.clip:
                for b in range(BATCH):
                    head_input[j, b] = min(max(scratch[j, b], -1.0), 1.0)
            elif last or not options.relu:
                for b in range(BATCH):
                    head_input[j, b] = compute_tanh(F32(scratch[j, b]))
            else:
                for b in range(BATCH):
                    head_input[j, b] = max(scratch[j, b], 0.0)
        inputs = width
    for a in range(action.shape[0]):
        for b in range(BATCH):
            action[a, b] = F32(head_input[a, b])


@njit(forceinline=True, error_model="numpy", nogil=True)
def _count_weights_after_first_layer(widths):
    """Return the number of weights and biases in a head's layers after the first one.

    Args:
        widths: Number of units of each layer.
    """
    total = 0
    for layer in range(1, len(widths)):
        total += (widths[layer - 1] + 1) * widths[layer]
    return total


@njit(forceinline=True, error_model="numpy", nogil=True)
def compute_sum_rounding_number(max_sum):
    """Return a number r by which the terms of a sum are rounded, as `(term + r) - r`.

    The sum of terms that are rounded in this way is exact, and therefore the same in any order.

    Args:
        max_sum: Upper bound of the absolute sum of the terms.
    """
    _, bits = math.frexp(max_sum)
    return 1.5 * 2.0**52 * math.ldexp(1.0, bits + 1 - 52)
