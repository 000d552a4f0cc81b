"""The AttentionNeuron's arithmetic in plain numpy, channels along the last axis.

Every operation is either elementwise over channels (float32, as the authors computed) or an exact
sum (float64, see `exact`), so no result depends on a channel's place. Many channels are worked
through in blocks that fit the processor's cache; a few cost little more than numpy's calls, so
these are few.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from an_control.policy.exact_sums import ROUND_MASS, exact_weights
from an_control.policy.head import Head
from an_control.policy.scalar.attention_neuron import Memory, jumped
from an_control.policy.scalar.recurrence import recurrence_of
from an_control.policy.scalar.sensory_neurons import F32, State, neurons_of
from an_control.policy.scalar.weights import Weights
from an_control.policy.set_transformer import SetTransformer
from an_control.policy.sizes import AttentionSizes
from an_control.system.blas import one_blas_thread

BLOCK = 1024

# Arrays without dimensions are cheaper operands than scalars.
TO_MASS = np.array(ROUND_MASS)


class NumpyEngine:
    """Holds the neurons' state by column and computes one tick."""

    name = "numpy"

    def __init__(self, sizes: AttentionSizes, weights: Weights) -> None:
        self._sizes = sizes
        self._neurons = neurons_of(sizes, weights)
        self._parts = len(self._neurons.fresh(0))
        self._keeps_last = sizes.reset_on_jump or "change" in sizes.inputs
        self._first = self._fresh(1)
        self._scores, _ = exact_weights(weights.scores)
        self._scores_bias = weights.scores_bias.astype(F32)[:, None]
        self._ones = np.ones(sizes.queries)
        self._shift = np.zeros(())
        self._set = None
        if sizes.compares:
            self._set = SetTransformer(sizes, weights.parts, weights.scores, weights.scores_bias)
        self._memory = None if weights.memory is None else Memory(weights.memory)
        self._recurrence = None
        if sizes.recurrence is not None:
            self._recurrence = recurrence_of(sizes.recurrence, weights.parts)
        head = weights.head
        if self._memory is not None:  # its units come first
            head = ((np.roll(head[0][0], sizes.memory, axis=1), head[0][1]), *head[1:])
        self._head = Head(head, sizes.activation, sizes.output)
        self.reset()

    def reset(self) -> None:
        """Drop every column and reset the memory."""
        if self._memory is not None:
            self._memory.reset()
        if self._recurrence is not None:
            self._recurrence.reset()
        self.drop_columns()

    def drop_columns(self) -> None:
        """Drop every column; the head's memory stays."""
        self._hold(self._fresh(0))
        self._message = np.zeros(self._sizes.message)

    def grow(self, columns: int) -> None:
        """Add `columns` columns at zero state."""
        fresh = self._fresh(columns)
        pairs = zip(self._state, fresh, strict=True)
        self._hold(tuple(np.concatenate(pair, axis=-1) for pair in pairs))

    def keep(self, columns: np.ndarray) -> None:
        """Keep only these columns, in this order."""
        self._hold(tuple(array.take(columns, axis=-1) for array in self._state))

    def reset_columns(self, columns: np.ndarray) -> None:
        """Set these columns to zero state."""
        for array, fresh in zip(self._state, self._first, strict=True):
            array[..., columns] = fresh
        self._unseen = True

    def save_state(self) -> np.ndarray:
        """The neurons' state, a row for each column; a copy."""
        return np.concatenate([np.atleast_2d(array) for array in self._state]).T.copy()

    def restore_state(self, columns: np.ndarray, states: np.ndarray) -> None:
        """Set these columns to rows of `states`."""
        rest = states.T
        for array in self._state:
            rows = len(np.atleast_2d(array))
            array[..., columns] = rest[:rows].reshape(*array.shape[:-1], len(columns))
            rest = rest[rows:]
        self._unseen = True  # among the last readings may be NaN

    def identify(self, columns: np.ndarray, queries: np.ndarray, least: float) -> None:
        """Let the evidence of these columns for these queries (N,) be at least so much."""
        evidence = self._state[-1]
        evidence[queries, columns] = np.maximum(evidence[queries, columns], F32(least))

    @one_blas_thread
    def advance(self, values: np.ndarray, columns: np.ndarray, previous: np.ndarray) -> None:
        """A tick of these columns' neurons alone: `values` (N,), the action (A,) before."""
        part = tuple(array[..., columns] for array in self._state[: self._parts])
        change = values
        if self._keeps_last:
            last = self._state[self._parts]
            change = np.nan_to_num(values - last[columns])
            last[columns] = values
        self._neurons.take_previous(previous)
        self._neurons.advance(part, self._neurons.room(len(values)), values, change)
        for array, advanced in zip(self._state, part, strict=False):
            array[..., columns] = advanced

    def outputs(self, columns: np.ndarray) -> np.ndarray:
        """The neurons' outputs h of these columns, (N, d)."""
        return self._state[0][: self._sizes.neuron, columns].T.copy()

    @one_blas_thread
    def step(
        self,
        values: np.ndarray,
        columns: np.ndarray | None,
        previous: np.ndarray,
        shift: np.float64,
    ) -> np.ndarray:
        """One tick: `values` (N,) float32 of the state's `columns` (None: all, in order).

        `previous` is the previous action (A,) float32 in [-1, 1], `shift` the shifter for the
        message's terms. Returns the action (A,) float32.
        """
        if self._arranged != (len(values), columns is None):
            self._arrange(len(values), columns is None)
        if columns is not None:
            self._gather(columns)
        change = self._change_of(values) if self._keeps_last else values
        self._shift[()] = shift
        self._neurons.take_previous(previous)
        expected = None if self._memory is None else self._memory.expect(previous)
        self._message[:] = 0.0
        for block in self._blocks:
            part, moved = values, change
            if len(self._blocks) > 1:
                part, moved = values[block.part], change[block.part]
            self._neurons.advance(block.neurons, block.room.neurons, part, moved)
            if self._set is None:
                self._score(block)
                self._attend(block, part, expected)
                self._add_message(block, part)
        if self._set is not None:
            self._compare(self._set, values, expected)
        if columns is not None:
            self._scatter(columns)
        if self._sizes.attention == "pma":
            return self._act()
        if self._sizes.attention == "tanh":
            if self._sizes.normalise:
                self._message *= self._sizes.normalise / max(1, len(values))
            np.tanh(self._message, out=self._message)
            return self._act()
        routed = self._sizes.queries - 1
        mass = self._message[routed:]
        if self._memory is not None and expected is not None:
            self._memory.update(expected, self._message.reshape(2, routed))
            mass -= 1.0
            return self._head(self._memory.known)
        if self._sizes.normalise:
            self._message[:routed] /= np.maximum(mass, 1.0)
            np.minimum(mass, 1.0, out=mass)
        mass -= 1.0
        return self._act()

    def _act(self) -> np.ndarray:
        """The action on the message, or on what the memory behind it makes of it."""
        if self._recurrence is None:
            return self._head(self._message)
        return self._head(self._recurrence.step(self._message))

    def _fresh(self, channels: int) -> State:
        """The state of so many columns before their first tick.

        After the neurons' own: each channel's last reading, where that matters; twice its usual
        change, with reset on jump; the evidence for each query, with prediction attention.
        """
        state = self._neurons.fresh(channels)
        if self._keeps_last:
            state += (np.full(channels, np.nan, F32),)
        if self._sizes.reset_on_jump:
            state += (np.zeros(channels, F32),)
        if self._sizes.prediction_attention:
            state += (np.zeros((self._sizes.queries - 1, channels), F32),)
        return state

    def _change_of(self, values: np.ndarray) -> np.ndarray:
        """The readings' change since the last tick; resets the neurons where most of them jump."""
        last = self._working[self._parts]
        change = self._change
        np.subtract(values, last, out=change)
        if self._unseen:
            change[np.isnan(change)] = 0.0
            self._unseen = self._working is not self._state
        if self._sizes.reset_on_jump:
            usual = self._working[self._parts + 1]
            if jumped(change, usual):
                kept = usual.copy()
                for state in (self._state, self._working):
                    for place, fresh in enumerate(self._first):
                        if place != self._parts + 1:
                            state[place][...] = fresh
                usual[...], change[...] = kept, 0.0
                self._unseen = self._working is not self._state
        last[...] = values
        return change

    def _hold(self, state: State) -> None:
        """Let this be the state."""
        self._state, self._unseen = state, True
        self._arrange(state[0].shape[-1], True)

    def _arrange(self, channels: int, complete: bool) -> None:
        """Lay out a tick on this many channels: on the state itself, or on a copy of a part."""
        self._arranged = channels, complete
        state = self._state if complete else self._fresh(channels)
        self._working, self._change = state, np.empty(channels, F32)
        rooms = {n: self._room(n) for n in {min(BLOCK, channels), channels % BLOCK}}
        self._blocks = []
        for start in range(0, channels, BLOCK):
            part = slice(start, min(start + BLOCK, channels))
            views = tuple(array[..., part] for array in state)
            attention = np.zeros((self._sizes.queries, part.stop - start), F32)
            room = rooms[part.stop - start]
            neurons, d = views[: self._parts], self._sizes.neuron
            block = _Block(part, room, attention, neurons, d, views[-1])
            self._blocks.append(block)

    def _room(self, channels: int) -> _Room:
        return _Room(self._neurons.room(channels), self._sizes.queries, channels)

    def _gather(self, columns: np.ndarray) -> None:
        for array, part in zip(self._state, self._working, strict=True):
            array.take(columns, axis=-1, out=part, mode="clip")

    def _scatter(self, columns: np.ndarray) -> None:
        for array, part in zip(self._state, self._working, strict=True):
            array[..., columns] = part

    def _compare(
        self, parts: SetTransformer, values: np.ndarray, expected: np.ndarray | None
    ) -> None:
        """Attention and message where channels are compared with each other: of all blocks."""
        outputs = self._working[0][: self._sizes.neuron].T
        if self._sizes.attention == "pma":
            pooled, scores = parts.pool(outputs)
            self._message[:] = pooled.ravel()
        else:
            scores = parts.scores(outputs)
        for block in self._blocks:
            block.attention[...] = scores[:, block.part]
            if self._sizes.attention != "pma":
                self._attend(block, values[block.part], expected)
                self._add_message(block, values[block.part])

    def _score(self, block: _Block) -> None:
        """What the queries make of each of the block's keys."""
        raw = block.room.raw
        np.dot(self._scores, block.outputs, out=raw)
        block.attention[...] = raw
        block.attention += self._scores_bias

    def _attend(self, block: _Block, values: np.ndarray, expected: np.ndarray | None) -> None:
        """The block's attention from its scores (eq. 2 of the paper, or a softmax)."""
        attention, raw = block.attention, block.room.raw
        if self._sizes.attention == "tanh":
            np.tanh(attention, out=attention)
            return
        if self._memory is not None and expected is not None and self._sizes.prediction_attention:
            self._memory.update_evidence(values, expected, block.evidence)
            attention[:-1] += block.evidence
        attention -= attention.max(axis=0)
        np.exp(attention, out=attention)
        raw[...] = attention
        raw += TO_MASS
        raw -= TO_MASS
        attention /= self._ones.dot(raw).astype(F32)
        if self._memory is not None:
            attention *= attention

    def _add_message(self, block: _Block, values: np.ndarray) -> None:
        """Add the block's attention times raw readings (eq. 3 of the paper), summed exactly."""
        raw, wide, ones = block.room.raw, block.room.wide, block.room.ones
        raw[...] = block.attention
        wide[...] = values
        raw *= wide
        raw += self._shift
        raw -= self._shift
        if self._sizes.attention == "tanh":
            self._message += raw.dot(ones)
            return
        routed = self._sizes.queries - 1
        self._message[:routed] += raw[:-1].dot(ones)
        raw[...] = block.attention
        raw += TO_MASS
        raw -= TO_MASS
        self._message[routed:] += raw[:-1].dot(ones)

    @property
    def attention(self) -> np.ndarray:
        """(M, N) of the last tick, a copy; for softmax without the query "none of them"."""
        rows = self._sizes.queries - (self._sizes.attention == "softmax")
        parts = [block.attention[:rows] for block in self._blocks]
        return np.concatenate([np.zeros((rows, 0)), *parts], axis=1)

    @property
    def message(self) -> np.ndarray:
        """The last tick's message, a copy."""
        return self._message.copy()


class _Room:
    """Room for the intermediate results of `channels` channels."""

    def __init__(self, neurons: Any, queries: int, channels: int) -> None:
        self.neurons = neurons
        self.raw = np.empty((queries, channels))
        self.wide = np.empty(channels)
        self.ones = np.ones(channels)


class _Block:
    """A block's attention, views of its state, and the room that it shares with its likes."""

    def __init__(
        self,
        part: slice,
        room: _Room,
        attention: np.ndarray,
        neurons: State,
        neuron: int,
        evidence: np.ndarray,
    ) -> None:
        self.part, self.room, self.attention, self.neurons = part, room, attention, neurons
        self.evidence = evidence
        self.outputs = neurons[0][:neuron]
