"""The AttentionNeuron's arithmetic in plain numpy, channels along the last axis.

Every operation is either elementwise over channels (float32, as the authors computed) or an exact
sum (float64, see `exact`), so no result depends on a channel's place. Many channels are worked
through in blocks that fit the processor's cache; a few cost little more than numpy's calls, so
these are few: a row of ones below the neurons' outputs lets their matrix product add the biases.
"""

from __future__ import annotations

import numpy as np

from an_control.policy.exact import ROUND_MASS, ROUND_OUTPUT, exact_weights
from an_control.policy.head import Head
from an_control.policy.memory import Memory
from an_control.policy.sizes import AttentionSizes
from an_control.policy.weights import Weights

F32 = np.float32
BLOCK = 1024

# Arrays without dimensions are cheaper operands than scalars.
HALF = np.array(0.5, F32)
TO_OUTPUTS = np.array(ROUND_OUTPUT)
TO_MASS = np.array(ROUND_MASS)


class NumpyEngine:
    """Holds the neurons' state by column and computes one tick."""

    name = "numpy"

    def __init__(self, sizes: AttentionSizes, weights: Weights) -> None:
        d = sizes.neuron
        self._sizes = sizes
        self._head = Head(weights.head, sizes.activation, sizes.output)
        rows = np.column_stack([weights.hidden, weights.bias, weights.action])
        rows, round_rows = exact_weights(rows)
        self._hidden = np.ascontiguousarray(rows[:, : d + 1])
        self._common = self._hidden[:, d]
        self._round_common = round_rows[:, 0].copy()
        self._action = np.column_stack([weights.action, weights.bias])
        self._previous = np.ones(sizes.actions + 1)
        self._scores, _ = exact_weights(weights.scores)
        self._scores_bias = weights.scores_bias.astype(F32)[:, None]
        self._features = weights.features.astype(F32)
        self._products: np.ndarray | None = None
        if weights.products is not None:
            self._products = weights.products.astype(F32).reshape(-1, sizes.actions)
        self._track_change = "change" in sizes.inputs
        self._shift = np.zeros(())
        self._memory = None if weights.memory is None else Memory(weights.memory)
        self.start()

    def start(self) -> None:
        """Forget everything."""
        if self._memory is not None:
            self._memory.clear()
        self.clear()

    def clear(self) -> None:
        """Forget every column; the head's memory stays."""
        self._output = np.ones((self._sizes.neuron + 1, 0))
        self._cell = np.zeros((self._sizes.neuron, 0), F32)
        self._last = np.zeros(0, F32)
        self._message = np.zeros(self._sizes.message)
        self._arrange(0, True)

    def grow(self, columns: int) -> None:
        """Add `columns` columns at zero state."""
        self._output = np.pad(self._output, ((0, 0), (0, columns)))
        self._output[-1] = 1.0
        self._cell = np.pad(self._cell, ((0, 0), (0, columns)))
        self._last = np.pad(self._last, (0, columns), constant_values=np.nan)
        self._arrange(len(self._last), True)

    def keep(self, columns: np.ndarray) -> None:
        """Keep only these columns, in this order."""
        self._output = self._output.take(columns, axis=1)
        self._cell = self._cell.take(columns, axis=1)
        self._last = self._last[columns]
        self._arrange(len(self._last), True)

    def forget(self, columns: np.ndarray) -> None:
        """Set these columns to zero state."""
        self._output[:-1, columns] = 0.0
        self._cell[:, columns] = 0.0
        self._last[columns] = np.nan

    def outputs(self, columns: np.ndarray) -> np.ndarray:
        """The neurons' outputs h of these columns, (N, d)."""
        return self._output[:-1, columns].T.copy()

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
        self._shift[()] = shift
        features = self._take_previous(previous)
        self._message[:] = 0.0
        for block in self._blocks:
            part = values if len(self._blocks) == 1 else values[block.part]
            self._advance(block, part, features)
            self._attend(block)
            self._add_message(block, part)
        if columns is not None:
            self._scatter(columns)
        if self._sizes.attention == "tanh":
            np.tanh(self._message, out=self._message)
            return self._head(self._message)
        routed = self._sizes.queries - 1
        mass = self._message[routed:]
        if self._memory is not None:
            entering = self._memory.step(previous, self._message[:routed], mass)
            mass -= 1.0
            return self._head(entering)
        mass -= 1.0
        return self._head(self._message)

    def _arrange(self, channels: int, whole: bool) -> None:
        """Lay out a tick on this many channels: on the state itself, or on a copy of a part."""
        self._arranged = channels, whole
        state: tuple[np.ndarray, ...] = (self._output, self._cell, self._last)
        if not whole:
            state = tuple(np.ones((*array.shape[:-1], channels), array.dtype) for array in state)
        self._working = state
        rooms = {n: _Room(self._sizes, n) for n in {min(BLOCK, channels), channels % BLOCK}}
        self._blocks = []
        for start in range(0, channels, BLOCK):
            part = slice(start, min(start + BLOCK, channels))
            views = (array[..., part] for array in state)
            attention = np.zeros((self._sizes.queries, part.stop - start), F32)
            self._blocks.append(_Block(part, rooms[part.stop - start], attention, *views))

    def _gather(self, columns: np.ndarray) -> None:
        output, cell, last = self._working
        self._output.take(columns, axis=1, out=output, mode="clip")
        self._cell.take(columns, axis=1, out=cell, mode="clip")
        self._last.take(columns, out=last, mode="clip")

    def _scatter(self, columns: np.ndarray) -> None:
        self._output[:, columns], self._cell[:, columns], self._last[columns] = self._working

    def _take_previous(self, previous: np.ndarray) -> np.ndarray:
        """Enter the previous action into what is common to all channels, once a tick.

        Returns the weights of each channel's inputs (F, 4d), which it moves in some models.
        """
        self._previous[:-1] = previous
        common = self._action.dot(self._previous)
        common += self._round_common
        np.subtract(common, self._round_common, out=self._common)
        if self._products is None:
            return self._features
        moved: np.ndarray = self._products.dot(previous).reshape(self._features.shape)
        moved += self._features
        return moved

    def _advance(self, block: _Block, values: np.ndarray, features: np.ndarray) -> None:
        """The shared LSTM cell (section 3.1 of the paper), in place on the block's state."""
        room, gates, cell = block.room, block.room.gates, block.cell
        np.dot(self._hidden, block.output, out=room.recurrent)
        gates[...] = room.recurrent
        np.multiply(features[0][:, None], values, out=room.drive)
        gates += room.drive
        if self._track_change:
            change = values - block.last
            change[np.isnan(block.last)] = 0.0
            np.multiply(features[1][:, None], change, out=room.drive)
            gates += room.drive
            block.last[...] = values
        np.tanh(gates, out=gates)
        logistic = room.logistic
        logistic *= HALF
        logistic += HALF
        cell *= room.forget
        enter = room.enter
        enter *= room.candidate
        cell += enter
        np.tanh(cell, out=enter)
        enter *= room.leave
        output = block.output_h
        output[...] = enter
        output += TO_OUTPUTS
        output -= TO_OUTPUTS

    def _attend(self, block: _Block) -> None:
        """The block's attention (eq. 2 of the paper, or softmax over the queries)."""
        attention = block.attention
        np.dot(self._scores, block.output_h, out=block.room.raw)
        attention[...] = block.room.raw
        attention += self._scores_bias
        if self._sizes.attention == "tanh":
            np.tanh(attention, out=attention)
            return
        attention -= attention.max(axis=0)
        np.exp(attention, out=attention)
        # A reduction would sum a lone channel's queries in another order than many channels'.
        attention /= np.add.accumulate(attention, axis=0)[-1]
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

    def __init__(self, sizes: AttentionSizes, channels: int) -> None:
        d, queries = sizes.neuron, sizes.queries
        self.recurrent = np.empty((4 * d, channels))
        self.gates = np.empty((4 * d, channels), F32)
        self.drive = np.empty((4 * d, channels), F32)
        self.logistic = self.gates[: 3 * d]
        self.enter, self.forget = self.gates[:d], self.gates[d : 2 * d]
        self.leave, self.candidate = self.gates[2 * d : 3 * d], self.gates[3 * d :]
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
        output: np.ndarray,
        cell: np.ndarray,
        last: np.ndarray,
    ) -> None:
        self.part, self.room, self.attention = part, room, attention
        self.output, self.output_h = output, output[:-1]
        self.cell, self.last = cell, last
