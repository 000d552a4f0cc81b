"""The AttentionNeuron in plain numpy, equation by equation: read this first.

Tang & Ha 2021, "The Sensory Neuron as a Transformer: Permutation-Invariant Neural Networks for
Reinforcement Learning", equations 1 and 2, for scalar channels, with the additions of this project;
the sizes in a model file say which of them a policy has. `vision` has the form for image patches
(section 3.3). The compiled engine is tested against this one. This engine runs if numba is not
installed, and for the parts that are not compiled: `set_transformer` and `recurrence`.

Shapes: N channels, A actions, M queries, d units of a neuron, k the width of a key, n = M - 1
queries that stand for channels under softmax attention, H units of the head's memory.

No bit depends on the order of the channels. Every step is elementwise over them (float32, as the
authors computed), or an exact sum (float64, see `exact_sums`), or sorts them first.

Reset on jump. If a neuron's channel suddenly carries another signal, its state makes it choose the
wrong query for many ticks; a neuron at zero state chooses none. A single neuron cannot distinguish
such a jump of its reading from a foot that touches the ground, but all neurons together can. Let d
be each channel's change since the last tick (at most 1), and u its usual change:

    reset      if the mean over channels of max(d - 2 u, 0) is over `JUMP_LIMIT`
    u          = 0.9 u + 0.1 d

Subtracting the usual change excludes channels that always jump, such as noise. On the Ant, no tick
of a walk or a stumble with up to 10 channels of noise beside the 28 comes near the limit (after the
first 20 ticks), and every reshuffle of all channels exceeds the limit.

The head's memory. A GRU remembers earlier readings and actions. From its state and the last tick
the head computes the reading that it expects at each query. Squared attention routes the readings,
so that a neuron that has not identified its channel yet has little weight; the less attention a
query gets, the more the expected reading counts. With attention w (softmax over the queries q for
each channel n) and readings o:

    h       = GRU([x, m, a], h)                x, m: seen at the last tick, a: the last action
    mu      = expectation([h, x, m, a])        linear
    s       = min(sum over n of w^2, 1)
    r       = (sum over n of w^2 o) / max(sum over n of w^2, 1) - s mu
    t       = 1 / (1 + d r^2)                  d: the outlier weight (0: none)
    m, x    = t s, mu + t r
    action  = head([x, h])

Prediction attention. A reading's channel is also recognised by the query that expected this
reading. Before the softmax, the fading evidence e is added to the scores of the queries; k, g, v
and b are learned for each query:

    e       = k e + g - v u / (1 + u)          u = b (o - mu)^2 for each channel and query

Outlier weighting. After an unannounced reshuffle the neurons choose the wrong queries for some
ticks. The readings that arrive there are mostly far from the expected ones, so a low weight keeps
them out of head and memory.
"""

from __future__ import annotations

import numpy as np

from an_control.policy.engine import JUMP_LIMIT, PolicyEngine
from an_control.policy.exact_sums import ROUND_MASS, ROUND_OUTPUT, round_weights_for_exact_products
from an_control.policy.mlp import ActionHead, get_head_layers
from an_control.policy.model_file import Model
from an_control.policy.packed_weights import MAX_LOG
from an_control.policy.recurrence import RecurrentLayers, compute_logistic, step_gru, step_lstm
from an_control.policy.set_transformer import SetTransformer
from an_control.policy.sizes import AttentionSizes
from an_control.system.blas import one_blas_thread

F32 = np.float32


class ReferenceEngine(PolicyEngine):
    """The engine in plain numpy, which computes every kind of AttentionNeuron for scalar channels.

    Args:
        model: A model of kind ``attention_neuron``.
    """

    name = "numpy"

    def __init__(self, model: Model) -> None:
        assert isinstance(model.sizes, AttentionSizes)
        sizes = model.sizes
        super().__init__(sizes, sizes.queries - 1, sizes.queries)
        self.weight = {name: array.astype(np.float64) for name, array in model.arrays.items()}
        if not sizes.stack:
            self._hidden = round_weights_for_exact_products(self.weight["neuron.hidden"])[0].T
        queries, bias = np.zeros((0, sizes.neuron)), np.zeros(0)
        if sizes.attention != "pma":  # the file holds Q W_q / sqrt(k) (M, k), W_k (k, d)
            queries = self.weight["attention.queries"] @ self.weight["attention.key"]
            bias = self.weight["attention.queries"] @ self.weight["attention.key_bias"]
        self._queries = round_weights_for_exact_products(queries)[0].T
        self._queries_bias = bias.astype(F32)
        self._set = (
            SetTransformer(sizes, self.weight, queries, bias) if sizes.compares_channels else None
        )
        self._recurrence = None
        if sizes.recurrence is not None:
            self._recurrence = RecurrentLayers(sizes.recurrence, self.weight)
        self._head = ActionHead(
            get_head_layers(self.weight, len(sizes.head) + 1), sizes.activation, sizes.output
        )
        self.reset()

    def reset(self) -> None:
        """Remove the neurons of all channels and reset the recurrent state, to start an episode.

        A neuron is the small network that reads one channel. The recurrent state belongs to the
        layers that take the attention's output.
        """
        self.units = np.zeros(self._sizes.memory)
        self.seen = self.share = self.expected = np.zeros(self._sizes.queries - 1)
        if self._recurrence is not None:
            self._recurrence.reset()
        self.remove_all_neurons()

    @one_blas_thread
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
        previous_action = previous_action.astype(np.float64)
        neurons = self._all if neurons is None else neurons
        if self._sizes.reset_on_jump:
            self._reset_neurons_on_jump(values, neurons)
        outputs = self._advance_neurons_and_get_outputs(values, neurons, previous_action)
        if self._sizes.memory:
            self._advance_memory_and_store_expected_readings(previous_action)
        if self._sizes.attention == "pma":
            assert self._set is not None
            pooled, attention = self._set.pool_channels_and_get_attention(outputs)
            self._attention, self._message = attention.T, pooled.ravel()
        else:
            self._attention = self._compute_attention(outputs, values, neurons)
            self._message = self._compute_attention_message(values, rounding_number)
        if self._sizes.memory:
            return self._head(self._correct_expected_readings_and_get_head_input())
        if self._recurrence is not None:
            return self._head(self._recurrence.step(self._message))
        return self._head(self._message)

    @one_blas_thread
    def advance_neurons(
        self, values: np.ndarray, neurons: np.ndarray, previous_action: np.ndarray
    ) -> None:
        """Advance some neurons by one tick without computing an action.

        Args:
            values: (K,) float32 the readings.
            neurons: (K,) the indices of the neurons.
            previous_action: (A,) the previous action.
        """
        self._advance_neurons_and_get_outputs(values, neurons, previous_action.astype(np.float64))

    def _advance_neurons_and_get_outputs(
        self, values: np.ndarray, neurons: np.ndarray, previous_action: np.ndarray
    ) -> np.ndarray:
        """Advance some neurons by one tick and return their outputs (N, d).

        This is equation 1 of the paper: the rows of K, f_k(o_t[i], a_{t-1}).

        Args:
            values: (N,) float32 the readings.
            neurons: (N,) the index of each reading's neuron in the state.
            previous_action: (A,) the previous action.
        """
        d, state = self._sizes.neuron, self._state[neurons]
        readings = state[:, self._readings]
        if self._sizes.stack:  # a layer of tanh units on the newest readings, the newest first
            before = np.where(np.isnan(readings[:, :1]), values[:, None], readings)[:, :-1]
            readings = np.column_stack([values, before])
            outputs = np.tanh(self._compute_input_sums(readings, previous_action))
        else:  # an LSTM
            change = values - readings[:, 0]
            inputs = np.array([values, np.where(np.isnan(change), F32(0.0), change)]).T
            recurrent = state[:, :d].astype(np.float64) @ self._hidden
            gates = self._compute_input_sums(
                inputs[:, : self._sizes.inputs_per_neuron], previous_action, recurrent
            )
            outputs, state[:, d : 2 * d] = step_lstm(gates, state[:, d : 2 * d])
            readings = values[:, None]
        outputs = (outputs + ROUND_OUTPUT) - ROUND_OUTPUT
        state[:, :d], state[:, self._readings] = outputs, readings
        self._state[neurons] = state
        return outputs

    def _compute_input_sums(
        self, inputs: np.ndarray, previous_action: np.ndarray, recurrent: np.ndarray | float = 0.0
    ) -> np.ndarray:
        """Return the weighted sums (N, U) float32 of each neuron's inputs, before the activation.

        Args:
            inputs: (N, F) the inputs that each neuron gets from its channel.
            previous_action: (A,) the previous action.
            recurrent: (N, U) the weighted sums of the neurons' own outputs, which are added; 0 for
                neurons that do not read their own outputs.
        """
        weight = self.weight["neuron.input"]
        if self._sizes.products:
            weight = weight + self.weight["neuron.products"] @ previous_action
        common = self.weight["neuron.bias"] + self.weight["neuron.action"] @ previous_action
        drive = (common + recurrent).astype(F32)
        for feature, column in zip(inputs.T, weight.T.astype(F32), strict=True):
            drive = drive + feature[:, None] * column
        return drive

    def _compute_attention(
        self, outputs: np.ndarray, values: np.ndarray, neurons: np.ndarray
    ) -> np.ndarray:
        """Return the attention weights (N, M) of the channels for the queries.

        This is equation 2 of the paper, W = tanh([Q W_q] [K W_k]^T / sqrt(k)). For softmax
        attention it is a softmax over the queries instead, the last of which stands for none of the
        channels. If the head has a memory, the weights are squared.

        Args:
            outputs: (N, d) the outputs of the neurons.
            values: (N,) the readings.
            neurons: (N,) the index of each channel's neuron in the state.
        """
        if self._set is not None:
            scores = self._set.compute_attention_scores(outputs).T.astype(F32, order="C")
        else:
            scores = (outputs @ self._queries).astype(F32) + self._queries_bias
        if self._sizes.attention == "tanh":
            return np.tanh(scores)
        if self._sizes.prediction_attention:
            scores[:, :-1] += self._update_and_get_identity_evidence(values, neurons)
        shares = np.exp(scores - scores.max(axis=1, keepdims=True))
        shares /= shares.sum(axis=1, keepdims=True)
        return shares**2 if self._sizes.memory else shares

    def _compute_attention_message(
        self, values: np.ndarray, rounding_number: np.float64
    ) -> np.ndarray:
        """Return the attention message: the sums of the readings, weighted by attention.

        This is equation 2 with the tanh of the authors' code, tanh(W V), where V are the readings.
        Under softmax attention the message is the sums W V, followed by the total attention of each
        query minus 1.

        Args:
            values: (N,) the readings.
            rounding_number: A large number, which is added to each term of a sum and subtracted
                again. This rounds the terms so that the sum is exact (see `exact_sums`).

        Returns:
            (M,) the message, or under softmax attention (2n,), where n is the number of queries
            that stand for a channel.
        """
        normalise = self._sizes.normalise
        attention = self._attention.astype(np.float64)
        total = sum_exactly(attention * values[:, None], rounding_number)
        if self._sizes.attention == "tanh":
            return np.tanh(total * (normalise / max(1, len(values)) if normalise else 1.0))
        total, mass = total[:-1], sum_exactly(attention, ROUND_MASS)[:-1]
        if normalise:
            total, mass = total / np.maximum(mass, 1.0), np.minimum(mass, 1.0)
        return np.concatenate([total, mass - 1.0])

    def _reset_neurons_on_jump(self, values: np.ndarray, neurons: np.ndarray) -> None:
        """Reset all neurons if most readings change abruptly, as after a rewiring.

        It also updates the last column of the state, which is twice the usual change of each
        reading.

        Args:
            values: (N,) the readings.
            neurons: (N,) the index of each channel's neuron in the state.
        """
        change = np.abs(values - self._state[neurons, self._readings.start])
        jump = np.where(np.isnan(change), 0.0, np.minimum(change, 1.0))
        usual = self._state[neurons, -1]
        self._state[neurons, -1] += 0.1 * (2.0 * jump - usual)
        excess = sum_exactly(np.maximum(jump - usual, 0.0), ROUND_MASS)
        if excess > JUMP_LIMIT * len(values):
            self._state[:, :-1] = self._fresh[:-1]

    def _advance_memory_and_store_expected_readings(self, previous_action: np.ndarray) -> None:
        """Advance the head's memory by one tick; store the readings (n,) that it expects.

        There is one expected reading for each query, which stands for one channel.

        Args:
            previous_action: (A,) the previous action.
        """
        lately = np.concatenate([self.seen, self.share, previous_action])
        self.units = step_gru(self.weight, "memory", lately, self.units)
        expected = self.weight["expectation.weight"] @ np.concatenate([self.units, lately])
        self.expected = expected + self.weight["expectation.bias"]

    def _update_and_get_identity_evidence(
        self, values: np.ndarray, neurons: np.ndarray
    ) -> np.ndarray:
        """Update and return the evidence (N, n) that reading i comes from the channel of query k.

        The evidence fades from tick to tick. It grows if the reading is near to the one that the
        memory expects of the query's channel.

        Args:
            values: (N,) the readings.
            neurons: (N,) the index of each channel's neuron in the state.
        """
        width, loss, gain, keep = self.weight["attention.prediction"]
        error = np.exp(np.minimum(width, MAX_LOG)) * (values[:, None] - self.expected) ** 2
        before = self._state[neurons, self._evidence]
        evidence = compute_logistic(keep) * before + gain - loss * (error / (1.0 + error))
        self._state[neurons, self._evidence] = evidence
        return np.asarray(evidence)

    def _correct_expected_readings_and_get_head_input(self) -> np.ndarray:
        """Correct the expected readings by this tick's readings; return the head's input (n + H,).

        The input is the n corrected readings, then the H units of the memory. The corrected
        readings are also stored for the next tick.
        """
        total, mass = self._message.reshape(2, -1)
        mass = mass + 1.0
        share = np.minimum(mass, 1.0)
        news = total / np.maximum(mass, 1.0) - share * self.expected
        trust = np.ones(len(news))
        if self._sizes.outlier_weighting:
            weight = np.exp(np.minimum(self.weight["memory.log_outlier_weight"], MAX_LOG))
            trust = 1.0 / (1.0 + weight * news**2)
        self.seen, self.share = self.expected + trust * news, trust * share
        return np.concatenate([self.seen, self.units])

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
        places = neurons, self._evidence.start + queries
        self._state[places] = np.maximum(self._state[places], min_nats)


def sum_exactly(terms: np.ndarray, rounding_number: np.float64) -> np.ndarray:
    """Return the sum of rows; its bits do not depend on the order of the rows.

    Args:
        terms: (N, ...) float64 the rows.
        rounding_number: A large number, which is added to each term and subtracted again. This
            rounds the terms so that the sum is exact (see `exact_sums`).
    """
    return np.asarray(((terms + rounding_number) - rounding_number).sum(axis=0))
