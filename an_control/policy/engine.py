"""The base class of the engines that compute an AttentionNeuron's ticks.

`reference_engine` computes them in plain numpy, equation by equation, and `numba_engine` as
compiled code. `an_control.load` chooses the engine of a policy.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np

from an_control.policy.sizes import AttentionSizes

F32 = np.float32
JUMP_LIMIT = 0.18
"""Bound of the mean abrupt change of the readings, above which all neurons are reset (see
`reference_engine`)."""


class PolicyEngine(ABC):
    """A base class for engines, which compute a policy's ticks and keep the states of its neurons.

    A neuron is the small network that reads one channel. The states of N neurons are an array
    (N, S); arguments named `neurons` are indices of its rows. A row consists of these parts, in
    this order:

    - the neuron's d outputs
    - for an LSTM neuron: its d cells and its previous reading
    - for a neuron on stacked readings: its k newest readings
    - if the policy has prediction attention: the evidence for each query (see `reference_engine`)
    - if it has `reset_on_jump`: twice the usual change of the reading from tick to tick

    Readings are NaN before the first tick.

    Args:
        sizes: The policy's sizes.
        evidence_count: The number of evidence values in each row, if there are any.
        attention_width: The number of columns M of the attention.
    """

    name: str
    _attention: np.ndarray
    """The attention (N, M) of the last tick."""
    _message: np.ndarray

    def __init__(self, sizes: AttentionSizes, evidence_count: int, attention_width: int) -> None:
        d = sizes.neuron
        self._sizes, self._width = sizes, attention_width
        self._readings = slice(d, d + sizes.stack) if sizes.stack else slice(2 * d, 2 * d + 1)
        end = self._readings.stop
        self._evidence = slice(end, end + (evidence_count if sizes.prediction_attention else 0))
        self._fresh = np.zeros(self._evidence.stop + sizes.reset_on_jump, F32)
        self._fresh[self._readings] = np.nan
        self._state = np.zeros((0, len(self._fresh)), F32)
        self.remove_all_neurons()

    def _set_state(self, state: np.ndarray) -> None:
        """Replace the array of the neurons' states.

        Args:
            state: (N, S) the states, one row for each neuron.
        """
        self._state, self._all = state, np.arange(len(state))

    def remove_all_neurons(self) -> None:
        """Remove the neurons of all channels, but keep the recurrent state.

        A neuron is the small network that reads one channel. The recurrent state belongs to the
        layers that take the attention's output.
        """
        self._set_state(self._state[:0])
        self._attention = np.zeros((0, self._width), F32)
        self._message = np.zeros(self._sizes.message_length)

    def add_neurons(self, count: int) -> None:
        """Append neurons with zero state.

        Args:
            count: The number of neurons.
        """
        self._set_state(np.concatenate([self._state, np.tile(self._fresh, (count, 1))]))

    def keep_only_neurons(self, neurons: np.ndarray) -> None:
        """Keep only the neurons with the given indices, in the order of these indices.

        Args:
            neurons: (K,) the indices of the neurons that stay.
        """
        self._set_state(self._state[neurons])

    def reset_neurons(self, neurons: np.ndarray) -> None:
        """Reset some neurons to zero state.

        Args:
            neurons: (K,) the indices of the neurons.
        """
        self._state[neurons] = self._fresh

    def save_state(self) -> np.ndarray:
        """Return a copy of the neurons' states (N, S), one row for each neuron."""
        return self._state.copy()

    def restore_state(self, neurons: np.ndarray, states: np.ndarray) -> None:
        """Replace the states of some neurons.

        Args:
            neurons: (K,) the indices of the neurons.
            states: (K, S) their new states.
        """
        self._state[neurons] = states

    def get_neuron_outputs(self, neurons: np.ndarray) -> np.ndarray:
        """Return the outputs h (K, d) float64 of some neurons.

        Args:
            neurons: (K,) the indices of the neurons.
        """
        return self._state[neurons, : self._sizes.neuron].astype(np.float64)

    @abstractmethod
    def reset(self) -> None:
        """Remove the neurons of all channels and reset the recurrent state, to start an episode.

        A neuron is the small network that reads one channel. The recurrent state belongs to the
        layers that take the attention's output.
        """

    @abstractmethod
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

    @abstractmethod
    def advance_neurons(
        self, values: np.ndarray, neurons: np.ndarray, previous_action: np.ndarray
    ) -> None:
        """Advance some neurons by one tick without computing an action.

        Args:
            values: (K,) float32 the readings.
            neurons: (K,) the indices of the neurons.
            previous_action: (A,) the action before these readings.
        """

    @abstractmethod
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

    @property
    def attention(self) -> np.ndarray:
        """A copy of the last tick's attention weights (M, N), queries by channels.

        With softmax attention the last query is left out, because it stands for no channel.
        """
        rows = self._sizes.queries - (self._sizes.attention == "softmax")
        return self._attention[:, :rows].T.astype(np.float64)

    @property
    def attention_message(self) -> np.ndarray:
        """A copy of the last tick's attention message, from which the action is computed."""
        return self._message.copy()
