"""The AttentionNeuron policy: state belongs to a channel's id, never to its place.

Ids are mapped to the engine's columns here; the engines compute. A reading that is not finite is
missing; a missing channel is left out of the sum, its state waits `keep_ticks` ticks for it.

Reset on jump: where most readings jump at once, channels were rewired, and all neurons reset.

A neuron that keeps what it knew of another channel takes its new one for the old one, or for none,
for a long time. One that is reset knows nothing, but says so. A single neuron cannot tell a jump of
its reading from a foot that touches the ground; all of them together can. With each channel's
change d since the last tick (at most 1), and u, what is usual for it:

    reset      if the mean over channels of max(d - 2 u, 0) is over `JUMP_LIMIT`
    u          = 0.9 u + 0.1 d

The usual change keeps a channel that always jumps, such as noise, out of it. On the Ant, no tick of
a walk or a stumble with up to 10 channels of noise beside the 28 comes near the limit (after the
first 20), and every reshuffle of all channels is over it. The neurons' state and last readings are
reset, the head's memory stays.

The head's memory: it imputes what no channel reads, and carries the gait meanwhile.

A GRU (Cho et al. 2014) remembers what was seen and done. From it, and from the last tick, comes
the reading that the head expects at each query. Squared attention routes the readings, so that a
neuron that does not know its channel yet has little weight; the more of a query's mass is missing,
the more what was expected counts. With attention w (softmax over the queries q for each channel n)
and readings o:

    h       = GRU([x, m, a], h)                x, m: seen at the last tick, a: the last action
    mu      = expectation([h, x, m, a])        linear
    s       = min(sum over n of w^2, 1)
    r       = (sum over n of w^2 o) / max(sum over n of w^2, 1) - s mu
    t       = 1 / (1 + d r^2)                  d: the outlier weight (0: none)
    m, x    = t s, mu + t r
    action  = head([x, h])

Prediction attention: which query expected a reading tells, too, which channel it is. The scores of
the queries get evidence, which fades, before their softmax:

    e       = k e + g - v u / (1 + u)          u = b (o - mu)^2 for each channel and query

After an unannounced reshuffle, the neurons still point to the wrong queries for some ticks. What
they say then is mostly far from what is expected: outlier weighting keeps it out of head and
memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from an_control.policy.exact_sums import MAX_READING, ORDINARY, ROUND_MASS, round_terms
from an_control.policy.model_file import Model
from an_control.policy.protocol import Policy, PreviousAction, distinct, real_numbers
from an_control.policy.scalar.weights import MemoryWeights
from an_control.policy.sizes import AttentionSizes


class Engine(Protocol):
    """What computes a tick on columns of state."""

    name: str

    def reset(self) -> None: ...
    def drop_columns(self) -> None: ...
    def grow(self, columns: int) -> None: ...
    def keep(self, columns: np.ndarray) -> None: ...
    def reset_columns(self, columns: np.ndarray) -> None: ...
    def save_state(self) -> np.ndarray: ...
    def restore_state(self, columns: np.ndarray, states: np.ndarray) -> None: ...
    def outputs(self, columns: np.ndarray) -> np.ndarray: ...
    def identify(self, columns: np.ndarray, queries: np.ndarray, least: float) -> None: ...
    def advance(self, values: np.ndarray, columns: np.ndarray, previous: np.ndarray) -> None: ...
    def step(
        self,
        values: np.ndarray,
        columns: np.ndarray | None,
        previous: np.ndarray,
        shift: np.float64,
    ) -> np.ndarray: ...
    @property
    def attention(self) -> np.ndarray: ...
    @property
    def message(self) -> np.ndarray: ...


class AttentionNeuron(PreviousAction, Policy):
    """A permutation-invariant policy for scalar channels (Tang & Ha 2021, sections 3.1-3.2).

    Args:
        model: a model of kind ``attention_neuron``.
        engine: computes the ticks; its column order is this policy's.
        keep_ticks: how long a missing channel's state is kept; by default one second of the
            task's steps, or 100 ticks where the model does not say its step.
    """

    _identified: tuple[Sequence[str], np.ndarray, np.ndarray] | None
    """The ids that were identified last, and what `_known` says of them."""

    def __init__(self, model: Model, engine: Engine, keep_ticks: int | None = None) -> None:
        if keep_ticks is None:
            keep_ticks = round(1.0 / model.task["step_s"]) if "step_s" in model.task else 100
        if keep_ticks < 0:
            raise ValueError(f"keep_ticks: {keep_ticks} is negative")
        assert isinstance(model.sizes, AttentionSizes)
        self.model, self.engine = model, engine.name
        self.keep_ticks = keep_ticks
        self.nominal_ids: tuple[str, ...] = tuple(model.task.get("channels", ()))
        own = model.sizes.prediction_attention and model.sizes.queries == len(self.nominal_ids) + 1
        self._knows_queries = own  # one a nominal channel, and "none of them"
        self._engine = engine
        key, d = model.sizes.key, model.sizes.neuron
        self._key = model.arrays.get("attention.key", np.eye(key, d)).astype(np.float64)
        self._key_bias = model.arrays.get("attention.key_bias", np.zeros(key)).astype(np.float64)
        self.reset()

    def reset(self) -> None:
        """Drop every channel and zero the previous action, as at an episode's start."""
        self._engine.reset()
        self._previous = np.zeros(self.model.sizes.actions, np.float32)
        self.reset_channels()

    @property
    def channel_state(self) -> AttentionNeuron:
        """The sensory neurons' state, which is this policy's own."""
        return self

    def reset_channels(self, ids: Sequence[str] | None = None) -> None:
        """Start these channels' neurons from zero state; without `ids`, drop every channel.

        The previous action and the head's memory stay. Ids that it does not know are left out.
        """
        if ids is not None:
            columns = [self._column[name] for name in ids if name in self._column]
            self._engine.reset_columns(np.array(columns, np.int64))
            return
        self._engine.drop_columns()
        self._column: dict[str, int] = {}
        self._idle = np.zeros(0, np.int64)
        self._arrange(())

    def save_state(self) -> dict[str, np.ndarray]:
        """Each channel's neuron state now, for `restore_state`."""
        states = self._engine.save_state()
        return {name: states[column] for name, column in self._column.items()}

    def restore_state(self, states: Mapping[str, np.ndarray]) -> None:
        """Let these channels' neurons continue from there; unknown ids are left out."""
        known = [name for name in states if name in self._column]
        if known:
            columns = np.array([self._column[name] for name in known], np.int64)
            self._engine.restore_state(columns, np.array([states[name] for name in known]))

    def identify_channels(self, ids: Sequence[str], channels: np.ndarray, least: float) -> None:
        """Let it be likely, by at least so many nats, that these ids carry the nominal `channels`
        (N,): the evidence of prediction attention, see `memory`; without it nothing changes.

        Unknown ids are left out.
        """
        if not self._knows_queries:
            return
        if self._identified is None or self._identified[0] is not ids:
            self._identified = ids, *self._known(ids)
        _, places, columns = self._identified
        whole = len(places) == len(ids)
        self._engine.identify(columns, channels if whole else channels[places], least)

    def advance_channels(
        self, ids: Sequence[str], values: np.ndarray, previous: np.ndarray
    ) -> None:
        """A tick of these channels' neurons alone, on readings (N,) and the action (A,) before it.

        No action comes of it. Unknown ids are left out.
        """
        places, columns = self._known(ids)
        self._engine.advance(values[places].astype(np.float32), columns, previous)

    def _known(self, ids: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Of the ids that are known: their places among `ids`, and their columns."""
        places = [place for place, name in enumerate(ids) if name in self._column]
        columns = [self._column[ids[place]] for place in places]
        return np.array(places, np.int64), np.array(columns, np.int64)

    def rename_channels(self, names: Mapping[str, str]) -> None:
        """Let neurons continue under other ids, old to new; together these are the same ids."""
        self._column = {names.get(name, name): column for name, column in self._column.items()}
        self._arrange(self._ids)

    def step(self, readings: Mapping[str, float]) -> np.ndarray:
        """One tick on ``{channel id: value}``; returns the action (A,) float32 in [-1, 1]."""
        values = np.fromiter(readings.values(), np.float64, len(readings))
        return self._tick(values, tuple(readings))

    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """One tick on `values` (N,) of the channels `ids` (N,), in any order.

        A tuple that stays the same object from tick to tick is the fastest. ValueError where
        lengths differ or an id comes twice, TypeError where the values are no real numbers.
        """
        values = real_numbers(values, len(ids))
        return self._tick(values, ids if type(ids) is tuple else tuple(ids))

    def _tick(self, values: np.ndarray, ids: tuple[str, ...]) -> np.ndarray:
        largest = ORDINARY
        if not np.vdot(values, values) < 0.5 * ORDINARY**2:  # vdot: no warning of overflow
            values, ids, largest = _finite(values, ids)
        if ids is not self._ids and ids != self._ids:
            self._arrange(ids)
        shift = self._ordinary_shift
        if largest > ORDINARY:
            shift = round_terms(len(ids), largest)
        if self._missing is not None:
            self._wait_for_missing()
        self._values[:] = values if self._place is None else values[self._place]
        self._previous = self._engine.step(self._values, self._columns, self._previous, shift)
        return self._previous.copy()

    def _arrange(self, ids: tuple[str, ...]) -> None:
        """Map `ids` to columns: which values go where, and which columns are missing."""
        ids, column = distinct(ids), self._column
        fresh = [name for name in ids if name not in column]
        if fresh:
            first = len(column)
            column.update((name, first + i) for i, name in enumerate(fresh))
            self._engine.grow(len(column) - first)
            self._idle = np.append(self._idle, np.zeros(len(column) - first, np.int64))
        places = np.array([column[name] for name in ids], np.int64)
        order = np.argsort(places)
        columns = places[order]
        complete = len(columns) == len(column)
        self._ids = ids
        self._identified = None
        self._values = np.empty(len(ids), np.float32)
        self._place = None if (order[1:] > order[:-1]).all() else order
        self._columns = None if complete else columns
        self._missing = None if complete else np.setdiff1d(np.arange(len(column)), columns)
        self._idle[columns] = 0
        self._ordinary_shift = round_terms(max(len(ids), 1), ORDINARY)

    def _wait_for_missing(self) -> None:
        """Count the missing channels' ticks and drop the state of those that stay away."""
        self._idle[self._missing] += 1
        late = self._idle > self.keep_ticks
        if late.any():
            stay = np.flatnonzero(~late)
            self._engine.keep(stay)
            names = list(self._column)
            self._column = {names[old]: new for new, old in enumerate(stay)}
            self._idle = self._idle[stay]
            self._arrange(self._ids)

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The ids of the last step's channels, in the order of the attention's columns."""
        if self._place is None:
            return self._ids
        return tuple(self._ids[i] for i in self._place)

    @property
    def attention(self) -> np.ndarray:
        """The last step's attention (M, N), columns in `channel_order`."""
        return self._engine.attention

    @property
    def message(self) -> np.ndarray:
        """The last step's attention message, the head's input."""
        return self._engine.message

    @property
    def keys(self) -> np.ndarray:
        """Each channel's key (N, k) after the last step, rows in `channel_order`: of its neuron's
        output before an encoder, and this output itself with pma."""
        columns = np.arange(len(self._column)) if self._columns is None else self._columns
        terms = self._engine.outputs(columns)[:, None, :] * self._key  # no matrix product: its
        return terms.sum(axis=2) + self._key_bias  # last bits would depend on a channel's row


def _finite(values: np.ndarray, ids: tuple[str, ...]) -> tuple[np.ndarray, tuple[str, ...], float]:
    """The readings that count as present, their ids, and the largest magnitude among them."""
    values = values.astype(np.float64)
    present = np.abs(values) <= MAX_READING
    if not present.all():
        values, ids = values[present], distinct(ids)
        ids = tuple(name for name, there in zip(ids, present, strict=True) if there)
    return values, ids, max(ORDINARY, float(np.abs(values).max(initial=0.0)))


JUMP_LIMIT = 0.18
USUAL = np.float32(0.1)
"""The share of a tick's change in what is usual."""
MAX_JUMP, NO_JUMP = np.array(1.0, np.float32), np.array(0.0, np.float32)
TO_MASS = np.array(ROUND_MASS)


def jumped(change: np.ndarray, usual: np.ndarray) -> bool:
    """Whether most of these changes (N,) are jumps; updates `usual` (N,), which is twice u."""
    jump = np.abs(change)
    np.minimum(jump, MAX_JUMP, out=jump)
    excess = jump - usual
    terms = np.maximum(excess, NO_JUMP, out=np.empty(len(change)))
    terms += TO_MASS
    terms -= TO_MASS
    jump += jump
    jump -= usual
    jump *= USUAL
    usual += jump
    return bool(np.add.reduce(terms) > JUMP_LIMIT * len(change))


MAX_ERROR = np.float32(1e30)
"""Of the scaled square of an error: one that overflows would leave NaN in the evidence for good."""
ONE, HALF = np.float64(1.0), np.array(0.5, np.float32)


def gru_step(units: np.ndarray, entering: np.ndarray, staying: np.ndarray) -> None:
    """One tick of GRU units (H,), in place; of `staying` nothing is left.

    `entering` (3H,) comes from the inputs, `staying` (3H,) from the units, both with their biases,
    in the order reset, update, new and folded with `halves`.
    """
    count = len(units)
    gates, new = staying[: 2 * count], staying[2 * count :]
    gates += entering[: 2 * count]
    np.tanh(gates, out=gates)
    gates *= HALF
    gates += HALF
    new *= gates[:count]
    new += entering[2 * count :]
    np.tanh(new, out=new)
    units -= new
    units *= gates[count:]
    units += new


class Memory:
    """Holds the memory and computes its part of a tick, in numpy float32."""

    def __init__(self, weights: MemoryWeights) -> None:
        n, units = len(weights.expectation_bias), len(weights.hidden_bias)
        inside = np.concatenate([np.zeros(2 * units), weights.hidden_bias])
        # Products with a one add the biases.
        self._hidden = np.column_stack([inside, weights.hidden]).astype(np.float32)
        self._input = np.column_stack([weights.input, weights.bias]).astype(np.float32)
        expectation = np.column_stack([weights.expectation, weights.expectation_bias])
        self._expectation = expectation.astype(np.float32)
        weight = weights.outlier_weight
        self._outlier_weight = weight.copy() if weight.any() else None
        self._prediction = weights.prediction.astype(np.float32)[:, :, None]
        # All that is remembered: 1, units, what was seen last and its shares, previous action, 1.
        self._all = np.ones(self._hidden.shape[1] + self._input.shape[1], np.float32)
        self._units = self._all[1 : 1 + units]
        self._seen = self._all[1 + units : 1 + units + 2 * n].reshape(2, n)
        self._previous = self._all[1 + units + 2 * n : -1]
        self._entering, self._staying = np.empty((2, 3 * units), np.float32)
        self._expected = np.empty(n, np.float32)
        self._pair, self._trust = np.empty((2, n)), np.empty(n)
        self.known = self._all[1 : 1 + units + n]
        """The head's input (H + n,): the units, and what is seen."""
        self.reset()

    def reset(self) -> None:
        """Set everything to zero."""
        self._all[1:-1] = 0.0

    def expect(self, previous: np.ndarray) -> np.ndarray:
        """The readings (n,) that are expected now, given the previous action (A,)."""
        units, count = self._units, len(self._units)
        self._previous[...] = previous
        np.dot(self._input, self._all[count + 1 :], out=self._entering)
        np.dot(self._hidden, self._all[: count + 1], out=self._staying)
        gru_step(units, self._entering, self._staying)
        np.dot(self._expectation, self._all[1:], out=self._expected)
        return self._expected

    def update_evidence(
        self, values: np.ndarray, expected: np.ndarray, evidence: np.ndarray
    ) -> None:
        """Update the evidence (n, N) by these readings (N,), in place."""
        width, max_loss, gain, keep = self._prediction
        error = values - expected[:, None]
        with np.errstate(over="ignore"):
            error *= error
            error *= width
        np.fmin(error, MAX_ERROR, out=error)
        error /= error + np.float32(1.0)
        error *= max_loss
        evidence *= keep
        evidence += gain
        evidence -= error

    def update(self, expected: np.ndarray, message: np.ndarray) -> None:
        """Correct what was expected by the message, and keep it for the next tick.

        `message` (2, n): sums of squared attention times readings, sums of squared attention.
        """
        pair, trust = self._pair, self._trust
        news, share = pair
        np.maximum(message[1], ONE, out=trust)
        np.divide(message, trust, out=pair)
        np.multiply(share, expected, out=trust)
        news -= trust
        if self._outlier_weight is not None:
            np.multiply(news, news, out=trust)
            trust *= self._outlier_weight
            trust += ONE
            pair /= trust
        news += expected
        self._seen[...] = pair
