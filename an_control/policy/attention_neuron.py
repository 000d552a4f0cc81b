"""The AttentionNeuron policy for scalar channels: maps channel ids to neurons of the engine.

The engine keeps the state of one neuron per channel in an array. A neuron's index in this array is
called its column. State belongs to a channel's id, never to its position in a call. A reading that
is not finite counts as missing. A missing channel is left out of the attention's sum, and its state
is kept for `keep_ticks` ticks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from an_control.policy.engine import PolicyEngine
from an_control.policy.exact_sums import MAX_READING, ORDINARY, compute_sum_rounding_number
from an_control.policy.interface import (
    Policy,
    PreviousActionMixin,
    check_and_convert_readings,
    check_unique_ids,
)
from an_control.policy.model_file import Model
from an_control.policy.sizes import AttentionSizes


class AttentionNeuron(PreviousActionMixin, Policy):
    """A permutation-invariant policy for scalar channels (Tang & Ha 2021, sections 3.1-3.2).

    Every channel has a neuron, a small network with a state of its own. Attention over the neurons
    turns any number of readings into one message, and the head (the last network) into the action.

    Args:
        model: A model of kind ``attention_neuron``.
        engine: The engine that computes the ticks and keeps the neurons' states.
        keep_ticks: The number of ticks for which a missing channel's state is kept; None: the ticks
            of one second, or 100 ticks if the model does not name the period of its ticks.

    Raises:
        ValueError: `keep_ticks` is negative.
    """

    _identified: tuple[Sequence[str], np.ndarray, np.ndarray] | None
    """The ids in the previous call of `increase_identity_evidence`, with the result of
    `_find_known_ids_and_neurons` for them."""

    def __init__(self, model: Model, engine: PolicyEngine, keep_ticks: int | None = None) -> None:
        if keep_ticks is None:
            keep_ticks = round(1.0 / model.task.step_s) if model.task.step_s else 100
        if keep_ticks < 0:
            raise ValueError(f"keep_ticks: {keep_ticks} is negative")
        assert isinstance(model.sizes, AttentionSizes)
        self.model, self.engine = model, engine.name
        self.keep_ticks = keep_ticks
        self.nominal_ids: tuple[str, ...] = model.task.channels
        own = model.sizes.prediction_attention and model.sizes.queries == len(self.nominal_ids) + 1
        self._knows_queries = own  # one query per nominal channel, and "none of them"
        self._engine = engine
        key, d = model.sizes.key, model.sizes.neuron
        self._key = model.arrays.get("attention.key", np.eye(key, d)).astype(np.float64)
        self._key_bias = model.arrays.get("attention.key_bias", np.zeros(key)).astype(np.float64)
        self.reset()

    def reset(self) -> None:
        """Start an episode: remove the neurons of all channels, and set all other state to zero."""
        self._engine.reset()
        self._previous = np.zeros(self.model.sizes.actions, np.float32)
        self.reset_channels()

    @property
    def channel_state(self) -> AttentionNeuron:
        """The policy itself, because it has the methods of a `ChannelState`."""
        return self

    def reset_channels(self, ids: Sequence[str] | None = None) -> None:
        """Reset the neurons of some channels to zero state; all other state stays.

        Args:
            ids: The ids of the channels; unknown ids are ignored. None: remove the neurons of all
                channels.
        """
        if ids is not None:
            neurons = [self._column[name] for name in ids if name in self._column]
            self._engine.reset_neurons(np.array(neurons, np.int64))
            return
        self._engine.remove_all_neurons()
        self._column: dict[str, int] = {}
        self._idle = np.zeros(0, np.int64)
        self._store_neurons_of_ids(())

    def save_state(self) -> dict[str, np.ndarray]:
        """Return a copy of each channel's neuron state by id, for `restore_state`."""
        states = self._engine.save_state()
        return {name: states[column] for name, column in self._column.items()}

    def restore_state(self, states: Mapping[str, np.ndarray]) -> None:
        """Set the neurons' states of some channels.

        Args:
            states: The state by channel id, as `save_state` returned it; unknown ids are ignored.
        """
        known = [name for name in states if name in self._column]
        if known:
            neurons = np.array([self._column[name] for name in known], np.int64)
            self._engine.restore_state(neurons, np.array([states[name] for name in known]))

    def increase_identity_evidence(
        self, ids: Sequence[str], channels: np.ndarray, min_nats: float
    ) -> None:
        """Raise the policy's evidence of which channel's signal arrives under each id to a minimum.

        A policy with prediction attention (see `reference_engine`) holds a number in nats for each
        id and channel: the evidence that the channel's signal arrives under the id. Other policies
        ignore the call. Unknown ids are ignored.

        Args:
            ids: (N,) channel ids.
            channels: (N,) for each id the index, in the task's order, of the channel whose signal
                arrives under it. Only the evidence for this channel is changed.
            min_nats: The minimum, to which the evidence is set if it is lower.
        """
        if not self._knows_queries:
            return
        if self._identified is None or self._identified[0] is not ids:
            self._identified = ids, *self._find_known_ids_and_neurons(ids)
        _, places, neurons = self._identified
        whole = len(places) == len(ids)
        self._engine.increase_evidence_for_queries(
            neurons, channels if whole else channels[places], min_nats
        )

    def advance_channel_states(
        self, ids: Sequence[str], values: np.ndarray, previous_action: np.ndarray
    ) -> None:
        """Advance the neurons of some channels by one tick without computing an action.

        With it a channel's state can be recomputed from earlier readings, after `restore_state`.

        Args:
            ids: (N,) the ids of the channels; unknown ids are ignored.
            values: (N,) their readings.
            previous_action: (A,) the action before these readings.
        """
        places, neurons = self._find_known_ids_and_neurons(ids)
        self._engine.advance_neurons(values[places].astype(np.float32), neurons, previous_action)

    def _find_known_ids_and_neurons(self, ids: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions in `ids` of the ids that have a neuron, and these neurons' indices.

        Args:
            ids: Channel ids.
        """
        places = [place for place, name in enumerate(ids) if name in self._column]
        neurons = [self._column[ids[place]] for place in places]
        return np.array(places, np.int64), np.array(neurons, np.int64)

    def rename_channels(self, names: Mapping[str, str]) -> None:
        """Move each neuron's state from an old channel id to a new one.

        Args:
            names: A mapping from old id to new id. The old ids and the new ids must be the same
                set.
        """
        self._column = {names.get(name, name): column for name, column in self._column.items()}
        self._store_neurons_of_ids(self._ids)

    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Compute one tick from arrays and return the action (A,) float32 in [-1, 1].

        It is fastest if `ids` stays the same tuple object from tick to tick.

        Args:
            values: Readings (N,), float32 or float64; one that is not finite counts as missing.
            ids: Their channel ids (N,), in any order.

        Raises:
            ValueError: The lengths differ, or an id occurs twice.
            TypeError: The values are not real numbers.
        """
        values = check_and_convert_readings(values, len(ids))
        ids = ids if type(ids) is tuple else tuple(ids)
        largest = ORDINARY
        if not np.vdot(values, values) < 0.5 * ORDINARY**2:  # vdot: no warning of overflow
            values, ids, largest = _select_present_readings_and_bound(values, ids)
        if ids is not self._ids and ids != self._ids:
            self._store_neurons_of_ids(ids)
        rounding_number = self._ordinary_rounding_number
        if largest > ORDINARY:
            rounding_number = compute_sum_rounding_number(len(ids), largest)
        if self._missing is not None:
            self._remove_long_missing_channels()
        self._values[:] = values if self._place is None else values[self._place]
        self._previous = self._engine.step(
            self._values, self._columns, self._previous, rounding_number
        )
        return self._previous.copy()

    def _store_neurons_of_ids(self, ids: tuple[str, ...]) -> None:
        """Store the index of each channel id's neuron, for all ticks until other ids are given.

        An id that had no neuron gets a new one. Neurons whose ids are not given are those of
        missing channels.

        Args:
            ids: The channel ids of a tick's readings, in the order of the readings.

        Raises:
            ValueError: An id occurs twice.
        """
        ids, column = check_unique_ids(ids), self._column
        fresh = [name for name in ids if name not in column]
        if fresh:
            first = len(column)
            column.update((name, first + i) for i, name in enumerate(fresh))
            self._engine.add_neurons(len(column) - first)
            self._idle = np.append(self._idle, np.zeros(len(column) - first, np.int64))
        places = np.array([column[name] for name in ids], np.int64)
        order = np.argsort(places)
        neurons = places[order]
        complete = len(neurons) == len(column)
        self._ids = ids
        self._identified = None
        self._values = np.empty(len(ids), np.float32)
        self._place = None if (order[1:] > order[:-1]).all() else order
        self._columns = None if complete else neurons
        self._missing = None if complete else np.setdiff1d(np.arange(len(column)), neurons)
        self._idle[neurons] = 0
        self._ordinary_rounding_number = compute_sum_rounding_number(max(len(ids), 1), ORDINARY)

    def _remove_long_missing_channels(self) -> None:
        """Count a tick for each missing channel; remove those missing for over `keep_ticks`."""
        self._idle[self._missing] += 1
        late = self._idle > self.keep_ticks
        if late.any():
            stay = np.flatnonzero(~late)
            self._engine.keep_only_neurons(stay)
            names = list(self._column)
            self._column = {names[old]: new for new, old in enumerate(stay)}
            self._idle = self._idle[stay]
            self._store_neurons_of_ids(self._ids)

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The channel ids of the last step, in the order of the attention's columns."""
        if self._place is None:
            return self._ids
        return tuple(self._ids[i] for i in self._place)

    @property
    def attention(self) -> np.ndarray:
        """The attention weights (M, N) of the last step, queries by channels in `channel_order`."""
        return self._engine.attention

    @property
    def attention_message(self) -> np.ndarray:
        """The attention message of the last step, from which the head computes the action."""
        return self._engine.attention_message

    @property
    def keys(self) -> np.ndarray:
        """Each channel's attention key (N, k) after the last step, rows in `channel_order`.

        The key is computed from the neuron's output before an encoder changes it. With PMA (pooling
        by multihead attention) the key is this output itself.
        """
        neurons = np.arange(len(self._column)) if self._columns is None else self._columns
        terms = (
            self._engine.get_neuron_outputs(neurons)[:, None, :] * self._key
        )  # no matrix product: its
        return terms.sum(axis=2) + self._key_bias  # last bits would depend on a channel's row


def _select_present_readings_and_bound(
    values: np.ndarray, ids: tuple[str, ...]
) -> tuple[np.ndarray, tuple[str, ...], float]:
    """Return the readings that are not missing, their channel ids, and a bound of their magnitudes.

    The bound is the largest magnitude of a reading, or `ORDINARY` if that is larger.

    Args:
        values: (N,) the readings; one that is not finite, or whose magnitude is over `MAX_READING`,
            is missing.
        ids: (N,) their channel ids.

    Raises:
        ValueError: An id occurs twice.
    """
    values = values.astype(np.float64)
    present = np.abs(values) <= MAX_READING
    if not present.all():
        values, ids = values[present], check_unique_ids(ids)
        ids = tuple(name for name, there in zip(ids, present, strict=True) if there)
    return values, ids, max(ORDINARY, float(np.abs(values).max(initial=0.0)))
