"""The student: the policy core's softmax AttentionNeuron as a torch module.

It computes what `an_control.policy` computes (Tang & Ha 2021, section 3; for each channel a softmax
over the queries, one query a nominal channel and the last one "none of them"), for whole pieces of
many episodes at once, and exports to its model file.

The student's sensory neurons as torch modules: an LSTM, or a layer on stacked readings.

Each sees T steps of B rows with N slots, shares its weights among all slots, and exports to the
policy's arrays. It learns on combinations of a channel's inputs (F of them), `basis` (F, F) times
what the policy gets, since readings change little from step to step.

What a student may have between its neurons and its head: encoder, pooling, recurrence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from an_control.learning.arrays import to_array
from an_control.learning.dagger.settings import StudentSizes
from an_control.learning.dagger.streams import Batch
from an_control.learning.recurrence import RecurrenceModule, SetEncoder, SetPooling
from an_control.learning.teacher.teachers import Layers
from an_control.policy import AttentionSizes, Model

RecurrenceState = tuple[Tensor, ...]


class StudentParts(nn.Module):
    """The parts that `sizes` name, each of which may be absent; `message` numbers are the message,
    where nothing is pooled. T steps, B rows, N slots, d units of a neuron.
    """

    def __init__(self, sizes: StudentSizes, message: int) -> None:
        super().__init__()
        width, heads = sizes.neuron, sizes.heads
        self.encoder = self.pooling = self.recurrence = None
        if sizes.encoder != "none":
            self.encoder = SetEncoder(sizes.encoder, width, heads, sizes.inducing)
        self.width = message
        """How many numbers enter the head."""
        if sizes.pma:
            self.pooling, self.width = SetPooling(sizes.pma, width, heads), sizes.pma * width
        if sizes.recurrence is not None:
            self.recurrence = RecurrenceModule(self.width, sizes.recurrence)
            self.width = sizes.recurrence.units

    def encode(self, outputs: Tensor, present: Tensor) -> Tensor:
        """The neurons' outputs (T, B, N, d) behind the encoder."""
        return outputs if self.encoder is None else self.encoder(outputs, present)

    def remember(self, message: Tensor, state: RecurrenceState) -> tuple[Tensor, RecurrenceState]:
        """What enters the head (T, B, .), of the message (T, B, .), and the state after it."""
        if self.recurrence is None:
            return message, state
        remembered: tuple[Tensor, RecurrenceState] = self.recurrence(message, state)
        return remembered

    def start(self, rows: int) -> RecurrenceState:
        """The recurrence's state at the start of episodes."""
        return () if self.recurrence is None else self.recurrence.initial_state(rows)

    def arrays(self) -> dict[str, np.ndarray]:
        """A model file's arrays."""
        parts = self.encoder, self.pooling, self.recurrence
        return {k: v for part in parts if part is not None for k, v in part.arrays().items()}

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over the arrays of those parts that a model has as well."""
        for name in ("encoder", "pooling", "recurrence"):
            part = getattr(self, name)
            if part is not None and any(one.startswith(f"{name}.") for one in arrays):
                part.load_arrays(arrays)


CHANGE_GAIN = 3.0
"""Changes between steps enter as this multiple (folded on export)."""

NeuronState = tuple[Tensor, Tensor]
"""Two parts (B, N, .), zeros where a neuron is reset."""


class LstmNeuron(nn.LSTM):
    """An LSTM on the reading, and its change if `change`. State: outputs h and cells c."""

    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter
    bias_ih_l0: nn.Parameter
    bias_hh_l0: nn.Parameter

    def __init__(self, actions: int, units: int, products: bool, change: bool = True) -> None:
        super().__init__(_width(1 + change, actions, products), units)
        self.actions, self.products = actions, products
        self.inputs = ("value", "change") if change else ("value",)
        self.basis = np.diag([1.0, CHANGE_GAIN][: 1 + change])
        with torch.no_grad():  # remember by default
            self.bias_ih_l0[units : 2 * units] += 1.0

    def begin(self, rows: int, slots: int) -> NeuronState:
        """The state at the begin of episodes."""
        zeros = self.weight_hh_l0.new_zeros(rows, slots, self.hidden_size)
        return zeros, zeros

    def advance(
        self, values: Tensor, change: Tensor, previous: Tensor, state: NeuronState
    ) -> tuple[Tensor, NeuronState]:
        """Outputs (T, B, N, d); `values`, `change` (T, B, N), previous actions (T, B, A)."""
        own = torch.stack([values, CHANGE_GAIN * change][: len(self.inputs)], -1)
        steps, rows, slots = values.shape
        outputs, (output, cell) = self(
            _entering(own, previous, self.products).reshape(steps, rows * slots, -1),
            (state[0].flatten(0, 1)[None], state[1].flatten(0, 1)[None]),
        )
        shape = rows, slots, self.hidden_size
        return outputs.reshape(steps, *shape), (output.view(shape), cell.view(shape))

    def arrays(self) -> dict[str, np.ndarray]:
        """The policy's arrays."""
        return {
            **_exported(self.weight_ih_l0, self.basis, self.actions),
            "neuron.hidden": to_array(self.weight_hh_l0),
            "neuron.bias": to_array(self.bias_ih_l0 + self.bias_hh_l0),
        }

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over a policy's arrays."""
        with torch.no_grad():
            self.weight_ih_l0.copy_(_imported(arrays, self.basis))
            self.weight_hh_l0.copy_(torch.from_numpy(arrays["neuron.hidden"].copy()))
            self.bias_ih_l0.copy_(torch.from_numpy(arrays["neuron.bias"].copy()))
            self.bias_hh_l0.zero_()


class StackedNeuron(nn.Linear):
    """A layer of tanh units on the newest readings. State: those before, and 1 where there are."""

    inputs = ("value",)

    def __init__(self, actions: int, units: int, products: bool, stack: int) -> None:
        super().__init__(_width(stack, actions, products), units)
        self.actions, self.products, self.stack = actions, products, stack
        self.basis = CHANGE_GAIN * (np.eye(stack, k=-1) - np.eye(stack))
        self.basis[0] = np.eye(stack)[0]

    def begin(self, rows: int, slots: int) -> NeuronState:
        """The state at the begin of episodes."""
        return tuple(self.weight.new_zeros(rows, slots, n) for n in (self.stack - 1, 1))  # type: ignore[return-value]

    def advance(
        self, values: Tensor, change: Tensor, previous: Tensor, state: NeuronState
    ) -> tuple[Tensor, NeuronState]:
        """Outputs (T, B, N, d); `values`, `change` (T, B, N), previous actions (T, B, A)."""
        older, known = state
        older = torch.where(known > 0, older, values[0].unsqueeze(-1))
        line = torch.cat([older.flip(-1).movedim(-1, 0), values])  # oldest first
        readings = line.unfold(0, self.stack, 1).flip(-1)
        own = readings @ torch.as_tensor(self.basis.T, dtype=values.dtype, device=values.device)
        outputs = torch.tanh(self(_entering(own, previous, self.products)))
        return outputs, (readings[-1][..., : self.stack - 1], torch.ones_like(known))

    def arrays(self) -> dict[str, np.ndarray]:
        """The policy's arrays."""
        exported = _exported(self.weight, self.basis, self.actions)
        return exported | {"neuron.bias": to_array(self.bias)}

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Take over a policy's arrays."""
        with torch.no_grad():
            self.weight.copy_(_imported(arrays, self.basis))
            self.bias.copy_(torch.from_numpy(arrays["neuron.bias"].copy()))


def _width(inputs: int, actions: int, products: bool) -> int:
    return inputs + actions + (inputs * actions if products else 0)


def _entering(own: Tensor, previous: Tensor, products: bool) -> Tensor:
    """What enters the neurons, (T, B, N, .): their own inputs, the previous action, products."""
    shared = previous.unsqueeze(2).expand(-1, -1, own.shape[2], -1)
    parts = [own, shared]
    if products:
        parts.append((own.unsqueeze(-1) * shared.unsqueeze(-2)).flatten(-2))
    return torch.cat(parts, -1)


def _exported(weight: Tensor, basis: np.ndarray, actions: int) -> dict[str, Any]:
    """A policy's arrays, from what is learned."""
    own, shared, *products = np.split(to_array(weight), _ends(weight.shape[1], basis, actions), 1)
    arrays = {"neuron.input": (own @ basis).astype(np.float32), "neuron.action": shared}
    for part in products:
        each = part.reshape(len(part), len(basis), actions)
        arrays["neuron.products"] = np.einsum("ufa,fg->uga", each, basis).astype(np.float32)
    return arrays


def _ends(width: int, basis: np.ndarray, actions: int) -> list[int]:
    ends = [len(basis), len(basis) + actions]
    return [end for end in ends if end < width]


def _imported(arrays: Mapping[str, np.ndarray], basis: np.ndarray) -> Tensor:
    """What is learned, from a policy's arrays."""
    back = np.linalg.inv(basis)
    parts = [arrays["neuron.input"] @ back, arrays["neuron.action"]]
    if "neuron.products" in arrays:
        products = np.einsum("ufa,fg->uga", arrays["neuron.products"], back)
        parts.append(products.reshape(len(products), -1))
    return torch.from_numpy(np.concatenate(parts, 1).astype(np.float32))


class State(NamedTuple):
    """What is carried from step to step: B rows of N slots; n channels, H units."""

    first: Tensor  # (B, N, .) of the neurons
    second: Tensor  # (B, N, .) of the neurons
    memory: Tensor  # (B, H)
    message: Tensor  # (B, 2 n) what was seen at the last step, with a memory
    evidence: Tensor  # (B, N, n) of the readings' comparison with what was expected
    recurrence: tuple[Tensor, ...] = ()  # (B, ...)

    def kept(self, keep: Tensor) -> State:
        """This state in the rows (B,) with 1, a fresh one in those with 0."""
        return self._each(lambda part: part * keep.view(-1, *[1] * (part.ndim - 1)))

    def detach(self) -> State:
        return self._each(Tensor.detach)

    def _each(self, change: Callable[[Tensor], Tensor]) -> State:
        first, second, memory, message, evidence = map(change, self[:5])
        recurrence = tuple(map(change, self.recurrence))
        return State(first, second, memory, message, evidence, recurrence)


class Outcome(NamedTuple):
    """What a student makes of a piece of T steps."""

    attention: Tensor  # (T, B, N, n + 1) logarithms
    action: Tensor  # (T, B, A) before it is clipped to [-1, 1]
    ordered: Tensor | None  # (T, B, A) the action if it had seen the ordered observation
    expected: Tensor | None  # (T, B, n) what the memory expected to read
    state: State


class Student(nn.Module):
    """One query a nominal channel; T steps, B episodes, N channel slots, A actions."""

    def __init__(self, channels: int, actions: int, sizes: StudentSizes) -> None:
        super().__init__()
        self.channels, self.actions, self.sizes = channels, actions, sizes
        what = actions, sizes.neuron, sizes.products
        self.neuron = StackedNeuron(*what, sizes.stack) if sizes.stack else LstmNeuron(*what)
        self.key = nn.Linear(sizes.neuron, sizes.key)
        self.queries = nn.Parameter(torch.randn(channels + 1, sizes.key) / sizes.key**0.5)
        self.parts = StudentParts(sizes, 2 * channels)
        message = self.parts.width
        if sizes.memory:
            inputs = message + actions
            self.memory = nn.GRUCell(inputs, sizes.memory)
            self.expectation = nn.Linear(sizes.memory + inputs, channels)
            with torch.no_grad():  # things stay as they are
                self.expectation.weight[:, sizes.memory :].zero_()
                self.expectation.weight[:, sizes.memory : sizes.memory + channels].fill_diagonal_(1)
            message = channels + sizes.memory
        if sizes.outlier_weighting:
            self.log_outlier_weight = nn.Parameter(torch.full((channels,), -1.5))
        if sizes.prediction_attention:
            start = torch.tensor([[2.5], [1.5], [0.3], [2.2]])
            self.prediction = nn.Parameter(start.repeat(1, channels))
        widths = [message, *sizes.head, actions]
        self.head = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    @property
    def _layers(self) -> list[nn.Linear]:
        return [layer for layer in self.head if isinstance(layer, nn.Linear)]

    def start_head(self, layers: Layers) -> None:
        """Let the head begin as the teacher's network, blind to the mass of the message.

        Where no message by channels enters it, it stays as it is.
        """
        if tuple(len(bias) for _, bias in layers[:-1]) != self.sizes.head:
            raise ValueError(
                f"head: {self.sizes.head}, but the teacher's is"
                f" {tuple(len(bias) for _, bias in layers[:-1])}"
            )
        if self.sizes.pma or self.sizes.recurrence is not None:
            return
        with torch.no_grad():
            for layer, (weight, bias) in zip(self._layers, layers, strict=True):
                layer.weight.zero_()
                layer.weight[:, : weight.shape[1]] = torch.from_numpy(weight)
                layer.bias.copy_(torch.from_numpy(bias))

    def start_neurons(self, model: Model, head: bool = False) -> None:
        """Let neurons, keys, queries and memory begin as a model's, and so the `head` where that is
        asked for.

        ValueError where sizes differ.
        """
        sizes = model.sizes
        if not isinstance(sizes, AttentionSizes) or self._identifying(self._sizes) != (
            self._identifying(sizes)
        ):
            raise ValueError(f"start: a model of {sizes}, but the student is of {self.sizes}")
        arrays = {name: array.copy() for name, array in model.arrays.items()}
        self.neuron.load_arrays(arrays)
        self.parts.load_arrays(arrays)
        remember = bool(self.sizes.memory) and bool(sizes.memory)
        if head:
            self._take_head(sizes, arrays)
        if self.sizes.pma:
            return
        with torch.no_grad():
            self.key.weight.copy_(torch.from_numpy(arrays["attention.key"]))
            self.key.bias.copy_(torch.from_numpy(arrays["attention.key_bias"]))
            self.queries.copy_(torch.from_numpy(arrays["attention.queries"]))
            if remember:
                tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
                self._start_memory(sizes, tensors)

    def _take_head(self, sizes: AttentionSizes, arrays: dict[str, np.ndarray]) -> None:
        """Where only one of both remembers, of the first layer what they share: the weights of the
        readings.
        """
        first, wanted = arrays["head.0.weight"], tuple(self._layers[0].weight.shape)
        parts = self.sizes.recurrence, sizes.recurrence
        if bool(self.sizes.memory) != bool(sizes.memory) and parts == (None, None):
            readings = first[: wanted[0], : self.channels]
            arrays["head.0.weight"] = np.zeros((len(first), wanted[1]), np.float32)
            arrays["head.0.weight"][: len(readings), : self.channels] = readings
        for number, layer in enumerate(self._layers):
            weight = arrays.get(f"head.{number}.weight", np.zeros(0))
            if weight.shape != tuple(layer.weight.shape) or len(sizes.head) != len(self.sizes.head):
                raise ValueError(f"start: a model of {sizes}, but the student is of {self.sizes}")
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(arrays[f"head.{number}.bias"]))

    def _start_memory(self, sizes: AttentionSizes, arrays: dict[str, Tensor]) -> None:
        if self.sizes.memory != sizes.memory:
            raise ValueError(f"start: a model of {sizes}, but the student is of {self.sizes}")
        memory, units = self.memory, self.sizes.memory
        memory.weight_ih.copy_(arrays["memory.input"])
        memory.weight_hh.copy_(arrays["memory.hidden"])
        memory.bias_ih.copy_(arrays["memory.bias"])
        memory.bias_hh.zero_()
        memory.bias_hh[2 * units :] = arrays["memory.hidden_bias"]
        self.expectation.weight.copy_(arrays["expectation.weight"])
        self.expectation.bias.copy_(arrays["expectation.bias"])
        if self.sizes.outlier_weighting and sizes.outlier_weighting:
            self.log_outlier_weight.copy_(arrays["memory.log_outlier_weight"])
        if self.sizes.prediction_attention and sizes.prediction_attention:
            self.prediction.copy_(arrays["attention.prediction"])

    @staticmethod
    def _identifying(sizes: AttentionSizes) -> tuple[object, ...]:
        """The sizes of what tells channels apart."""
        return sizes.neuron, sizes.key, sizes.queries, sizes.products, sizes.stack, sizes.inputs

    def start(self, rows: int, slots: int) -> State:
        """The state at the begin of episodes."""
        return State(
            *self.neuron.begin(rows, slots),
            self.queries.new_zeros(rows, self.sizes.memory),
            self.queries.new_zeros(rows, 2 * self.channels),
            self.queries.new_zeros(rows, slots, self.channels),
            self.parts.start(rows),
        )

    def forward(self, batch: Batch, state: State, told: Tensor | None = None) -> Outcome:
        """A piece of many episodes.

        Where `told` (T, B) is 1, the memory gets the true message in place of the attention's.
        """
        if not self.sizes.memory:
            return self._react(batch, state)
        encoded, state = self.identify(batch, state)
        scores = self.key(encoded) @ self.queries.T
        truth = None if told is None else self.truth(batch)
        memory, lately, evidence = state.memory, state.message, state.evidence
        attentions, memories, seen, means = [], [], [], []
        for t, score in enumerate(scores):
            memory, mean = self.expect(memory, lately, batch.previous[t])
            if self.sizes.prediction_attention:
                evidence = evidence * (1.0 - batch.moved[t])[:, None, None]
                evidence = self.compared(batch.values[t], mean, evidence)
                score = score + nn.functional.pad(evidence, (0, 1))
            attentions.append(score.log_softmax(-1))
            weights = (2.0 * attentions[-1]).exp()
            message = self._route(weights, batch.values[t], batch.present[t])
            if truth is not None and told is not None:
                message = torch.where(told[t].unsqueeze(-1) > 0, truth[t], message)
            lately = self.believe(message, mean)
            seen.append(lately[:, : self.channels])
            memories.append(memory)
            means.append(mean)
        state = state._replace(memory=memory, message=lately, evidence=evidence)
        remembered = torch.stack(memories)
        return Outcome(
            torch.stack(attentions),
            self.act(torch.cat([torch.stack(seen), remembered], -1)),
            self.act(torch.cat([batch.ordered, remembered], -1)),
            torch.stack(means),
            state,
        )

    def _react(self, batch: Batch, state: State) -> Outcome:
        """The piece for a head that expects nothing."""
        attention, message, state = self.listen(batch, state)
        remembered, recurrence = self.parts.remember(message, state.recurrence)
        ordered = None
        if not self.sizes.pma:
            whole = torch.cat([batch.ordered, torch.zeros_like(batch.ordered)], -1)
            ordered = self.act(self.parts.remember(whole, state.recurrence)[0])
        state = state._replace(recurrence=recurrence)
        return Outcome(attention, self.act(remembered), ordered, None, state)

    def listen(self, batch: Batch, state: State) -> tuple[Tensor, Tensor, State]:
        """Of a head that expects nothing: the attention's logarithms, message and neurons' state.

        With pma the attention is learned beside it alone: it teaches the neurons which channel
        they see.
        """
        encoded, state = self.identify(batch, state)
        attention = (self.key(encoded) @ self.queries.T).log_softmax(-1)
        if self.parts.pooling is not None:
            return attention, self.parts.pooling(encoded, batch.present).flatten(-2), state
        message = self._route(attention.exp(), batch.values, batch.present)
        routed, mass = message.split(self.channels, -1)
        if self.sizes.normalise:
            routed, mass = routed / mass.clamp(min=1.0), mass.clamp(max=1.0)
        return attention, torch.cat([routed, mass - 1.0], -1), state

    def identify(self, batch: Batch, state: State) -> tuple[Tensor, State]:
        """What the neurons, and the encoder, make of every slot (T, B, N, d), and the state.

        The neurons are reset where their row has moved.
        """
        first, second = state[:2]
        moved = batch.moved
        cuts = [0, *(t for t in moved.any(1).nonzero().flatten().tolist() if t), len(moved)]
        parts = []
        for begin, end in pairwise(cuts):
            kept = (1.0 - moved[begin])[:, None, None]
            outputs, (first, second) = self.neuron.advance(
                batch.values[begin:end],
                batch.change[begin:end],
                batch.previous[begin:end],
                (first * kept, second * kept),
            )
            parts.append(outputs)
        encoded = self.parts.encode(torch.cat(parts), batch.present)
        return encoded, state._replace(first=first, second=second)

    def expect(self, memory: Tensor, lately: Tensor, previous: Tensor) -> tuple[Tensor, Tensor]:
        """The memory (B, H) of one step, and what it expects to read (B, channels)."""
        inputs = torch.cat([lately, previous], -1)
        memory = self.memory(inputs, memory)
        return memory, self.expectation(torch.cat([memory, inputs], -1))

    def compared(self, values: Tensor, mean: Tensor, evidence: Tensor) -> Tensor:
        """The evidence (B, N, channels) with this step's, of the readings (B, N) against `mean`."""
        width, most, gain, keep = self.prediction
        error = width.exp() * (values.unsqueeze(-1) - mean.unsqueeze(1)) ** 2
        return keep.sigmoid() * evidence + gain - most * error / (1.0 + error)

    def believe(self, message: Tensor, mean: Tensor) -> Tensor:
        """What is seen (B, 2 channels) of a message where `mean` is expected: values, shares."""
        routed, mass = message.split(self.channels, -1)
        share = mass.clamp(max=1.0)
        news = routed / mass.clamp(min=1.0) - share * mean
        if self.sizes.outlier_weighting:
            trust = 1.0 / (1.0 + self.log_outlier_weight.exp() * news**2)
            share, news = share * trust, news * trust
        return torch.cat([mean + news, share], -1)

    def remember(self, batch: Batch, message: Tensor, state: State) -> tuple[Tensor, ...]:
        """What the head makes of a message (T, B, 2 channels): routed values, and masses.

        Returns the actions (T, B, A) on what it sees and on the ordered observation, what it
        expected to read (T, B, channels), the last memory (B, H) and what was seen last.
        """
        memory, lately = state.memory, state.message
        memories, seen, means = [], [], []
        for heard, previous in zip(message, batch.previous, strict=True):
            memory, mean = self.expect(memory, lately, previous)
            lately = self.believe(heard, mean)
            seen.append(lately[:, : self.channels])
            memories.append(memory)
            means.append(mean)
        remembered = torch.stack(memories)
        return (
            self.act(torch.cat([torch.stack(seen), remembered], -1)),
            self.act(torch.cat([batch.ordered, remembered], -1)),
            torch.stack(means),
            memory,
            lately,
        )

    def truth(self, batch: Batch) -> Tensor:
        """The message (T, B, 2 channels) of an attention that knows."""
        n = self.channels
        shown = batch.values.new_zeros(*batch.channel.shape[:2], n + 1)
        shown = shown.scatter_reduce(-1, batch.channel, batch.present, "amax")[..., :n]
        return torch.cat([batch.ordered * shown, shown], -1)

    @staticmethod
    def _route(weights: Tensor, values: Tensor, present: Tensor) -> Tensor:
        """The message (..., 2 channels): routed values, and the mass of each query."""
        weights = weights[..., :-1] * present.unsqueeze(-1)
        routed = (values.unsqueeze(-2) @ weights).squeeze(-2)
        return torch.cat([routed, weights.sum(-2)], -1)

    def act(self, message: Tensor) -> Tensor:
        """The action (..., A) before it is clipped to [-1, 1]."""
        *hidden, last = self._layers
        for layer in hidden:
            message = torch.relu(layer(message))
        out: Tensor = last(message)
        return torch.tanh(out) if self.sizes.output == "tanh" else out

    def model(self, task: dict[str, Any], trained: dict[str, Any]) -> Model:
        """This student as a policy's model."""
        arrays = {
            **self.neuron.arrays(),
            **self.parts.arrays(),
        }
        if not self.sizes.pma:
            arrays |= {
                "attention.queries": to_array(self.queries),
                "attention.key": to_array(self.key.weight),
                "attention.key_bias": to_array(self.key.bias),
            }
        if self.sizes.memory:
            arrays |= self._memory_arrays()
        for place, layer in enumerate(self._layers):
            arrays[f"head.{place}.weight"] = to_array(layer.weight)
            arrays[f"head.{place}.bias"] = to_array(layer.bias)
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return Model("attention_neuron", self._sizes, arrays, task, trained)

    @property
    def _sizes(self) -> AttentionSizes:
        return AttentionSizes(
            actions=self.actions,
            neuron=self.sizes.neuron,
            queries=self.sizes.pma or self.channels + 1,
            key=self.sizes.neuron if self.sizes.pma else self.sizes.key,
            inputs=list(self.neuron.inputs),
            head=list(self.sizes.head),
            products=self.sizes.products,
            attention="pma" if self.sizes.pma else "softmax",
            activation="relu",
            output=self.sizes.output,
            memory=self.sizes.memory,
            stack=self.sizes.stack,
            outlier_weighting=self.sizes.outlier_weighting,
            reset_on_jump=self.sizes.reset_on_jump,
            prediction_attention=self.sizes.prediction_attention,
            normalise=self.channels if self.sizes.normalise else 0,
            **self.sizes.parts,
        )

    def _memory_arrays(self) -> dict[str, np.ndarray]:
        memory, units = self.memory, self.sizes.memory
        bias = memory.bias_ih.clone()
        bias[: 2 * units] += memory.bias_hh[: 2 * units]
        some = {}
        if self.sizes.outlier_weighting:
            some["memory.log_outlier_weight"] = to_array(self.log_outlier_weight)
        if self.sizes.prediction_attention:
            some["attention.prediction"] = to_array(self.prediction)
        return some | {
            "memory.input": to_array(memory.weight_ih),
            "memory.hidden": to_array(memory.weight_hh),
            "memory.bias": to_array(bias),
            "memory.hidden_bias": to_array(memory.bias_hh[2 * units :]),
            "expectation.weight": to_array(self.expectation.weight),
            "expectation.bias": to_array(self.expectation.bias),
        }
