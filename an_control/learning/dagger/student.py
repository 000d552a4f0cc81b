"""The student: the softmax AttentionNeuron of `an_control.policy` as a torch module.

It computes the same as the policy (Tang & Ha 2021, section 3) for whole pieces of many episodes at
once: for each slot a softmax over the queries, one for each nominal channel and a last one for
"none of them". It exports its weights to the policy's model file.

Neurons see T steps of B rows with N slots and share their weights among all slots. A neuron is an
LSTM, or a layer on stacked readings. Since readings change little from step to step, neurons learn
weights for combinations of a slot's F inputs: the matrix `basis` (F, F) times the policy's inputs.
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
from an_control.learning.dagger.streams import StreamBatch
from an_control.learning.recurrence import RecurrenceModule, SetEncoder, SetPooling
from an_control.learning.teacher.teachers import Layers
from an_control.policy import AttentionSizes, Model
from an_control.policy.task import Task

RecurrenceState = tuple[Tensor, ...]


class StudentParts(nn.Module):
    """Optional layers between the neurons and the head: encoder, pooling and recurrence.

    Args:
        sizes: the student's sizes.
        message: length of the message where no pooling replaces it.
    """

    def __init__(self, sizes: StudentSizes, message: int) -> None:
        super().__init__()
        width, heads = sizes.neuron, sizes.heads
        self.encoder = self.pooling = self.recurrence = None
        if sizes.encoder != "none":
            self.encoder = SetEncoder(sizes.encoder, width, heads, sizes.inducing)
        self.width = message
        """Length of the head's input."""
        if sizes.pma:
            self.pooling, self.width = SetPooling(sizes.pma, width, heads), sizes.pma * width
        if sizes.recurrence is not None:
            self.recurrence = RecurrenceModule(self.width, sizes.recurrence)
            self.width = sizes.recurrence.units

    def encode(self, outputs: Tensor, present: Tensor) -> Tensor:
        """Return the neurons' outputs (T, B, N, d) after the encoder, or unchanged without one."""
        return outputs if self.encoder is None else self.encoder(outputs, present)

    def run_memory(self, message: Tensor, state: RecurrenceState) -> tuple[Tensor, RecurrenceState]:
        """Run the recurrence, if any, on the message (T, B, M).

        Returns:
            The head's input (T, B, M'), and the recurrence's new state.
        """
        if self.recurrence is None:
            return message, state
        remembered: tuple[Tensor, RecurrenceState] = self.recurrence(message, state)
        return remembered

    def initial_state(self, rows: int) -> RecurrenceState:
        """Return the recurrence's state at the start of `rows` episodes."""
        return () if self.recurrence is None else self.recurrence.initial_state(rows)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the layers' weights under their names in a model file."""
        parts = self.encoder, self.pooling, self.recurrence
        return {k: v for part in parts if part is not None for k, v in part.arrays().items()}

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the weights of those layers that the arrays of a model file contain."""
        for name in ("encoder", "pooling", "recurrence"):
            part = getattr(self, name)
            if part is not None and any(one.startswith(f"{name}.") for one in arrays):
                part.load_arrays(arrays)


CHANGE_GAIN = 3.0
"""Factor of the changes between steps as inputs while learning; export folds it into the weights.
"""

NeuronState = tuple[Tensor, Tensor]
"""Two tensors (B, N, .), which are zero where a neuron is reset."""


class LstmNeuron(nn.LSTM):
    """An LSTM that reads a slot's reading and, with `change`, its change since the last step.

    Its state is the pair of outputs h and cells c.

    Args:
        actions: number of actions.
        units: units of the LSTM.
        products: whether products of readings and previous actions are inputs too.
        change: whether the change since the last step is an input too.
    """

    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter
    bias_ih_l0: nn.Parameter
    bias_hh_l0: nn.Parameter

    def __init__(self, actions: int, units: int, products: bool, change: bool = True) -> None:
        super().__init__(_input_width(1 + change, actions, products), units)
        self.actions, self.products = actions, products
        self.inputs = ("value", "change") if change else ("value",)
        self.basis = np.diag([1.0, CHANGE_GAIN][: 1 + change])
        with torch.no_grad():  # initial forget bias 1
            self.bias_ih_l0[units : 2 * units] += 1.0

    def initial_state(self, rows: int, slots: int) -> NeuronState:
        """Return the state at the start of `rows` episodes with `slots` slots."""
        zeros = self.weight_hh_l0.new_zeros(rows, slots, self.hidden_size)
        return zeros, zeros

    def advance(
        self, values: Tensor, change: Tensor, previous: Tensor, state: NeuronState
    ) -> tuple[Tensor, NeuronState]:
        """Run the neurons over T steps.

        Args:
            values: readings (T, B, N).
            change: their change since the step before (T, B, N).
            previous: previous actions (T, B, A).
            state: the state before the first step.

        Returns:
            Outputs (T, B, N, d), and the state after the last step.
        """
        own = torch.stack([values, CHANGE_GAIN * change][: len(self.inputs)], -1)
        steps, rows, slots = values.shape
        outputs, (output, cell) = self(
            _neuron_inputs(own, previous, self.products).reshape(steps, rows * slots, -1),
            (state[0].flatten(0, 1)[None], state[1].flatten(0, 1)[None]),
        )
        shape = rows, slots, self.hidden_size
        return outputs.reshape(steps, *shape), (output.view(shape), cell.view(shape))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the weights under their names in a model file."""
        return {
            **_export_weights(self.weight_ih_l0, self.basis, self.actions),
            "neuron.hidden": to_array(self.weight_hh_l0),
            "neuron.bias": to_array(self.bias_ih_l0 + self.bias_hh_l0),
        }

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the weights from the arrays of a model file."""
        with torch.no_grad():
            self.weight_ih_l0.copy_(_import_weights(arrays, self.basis))
            self.weight_hh_l0.copy_(torch.from_numpy(arrays["neuron.hidden"].copy()))
            self.bias_ih_l0.copy_(torch.from_numpy(arrays["neuron.bias"].copy()))
            self.bias_hh_l0.zero_()


class StackedNeuron(nn.Linear):
    """A layer of tanh units that reads a slot's `stack` newest readings.

    Its state is the pair of earlier readings and a 1 where there are any.

    Args:
        actions: number of actions.
        units: units of the layer.
        products: whether products of readings and previous actions are inputs too.
        stack: number of readings.
    """

    inputs = ("value",)

    def __init__(self, actions: int, units: int, products: bool, stack: int) -> None:
        super().__init__(_input_width(stack, actions, products), units)
        self.actions, self.products, self.stack = actions, products, stack
        self.basis = CHANGE_GAIN * (np.eye(stack, k=-1) - np.eye(stack))
        self.basis[0] = np.eye(stack)[0]

    def initial_state(self, rows: int, slots: int) -> NeuronState:
        """Return the state at the start of `rows` episodes with `slots` slots."""
        return tuple(self.weight.new_zeros(rows, slots, n) for n in (self.stack - 1, 1))  # type: ignore[return-value]

    def advance(
        self, values: Tensor, change: Tensor, previous: Tensor, state: NeuronState
    ) -> tuple[Tensor, NeuronState]:
        """Run the neurons over T steps.

        Args:
            values: readings (T, B, N).
            change: not used.
            previous: previous actions (T, B, A).
            state: the state before the first step.

        Returns:
            Outputs (T, B, N, d), and the state after the last step.
        """
        older, known = state
        older = torch.where(known > 0, older, values[0].unsqueeze(-1))
        line = torch.cat([older.flip(-1).movedim(-1, 0), values])  # oldest first
        readings = line.unfold(0, self.stack, 1).flip(-1)
        own = readings @ torch.as_tensor(self.basis.T, dtype=values.dtype, device=values.device)
        outputs = torch.tanh(self(_neuron_inputs(own, previous, self.products)))
        return outputs, (readings[-1][..., : self.stack - 1], torch.ones_like(known))

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the weights under their names in a model file."""
        exported = _export_weights(self.weight, self.basis, self.actions)
        return exported | {"neuron.bias": to_array(self.bias)}

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the weights from the arrays of a model file."""
        with torch.no_grad():
            self.weight.copy_(_import_weights(arrays, self.basis))
            self.bias.copy_(torch.from_numpy(arrays["neuron.bias"].copy()))


def _input_width(inputs: int, actions: int, products: bool) -> int:
    """Return the number of inputs of a neuron."""
    return inputs + actions + (inputs * actions if products else 0)


def _neuron_inputs(readings: Tensor, previous: Tensor, products: bool) -> Tensor:
    """Return the neurons' inputs (T, B, N, .): own inputs, previous action, and their products."""
    shared = previous.unsqueeze(2).expand(-1, -1, readings.shape[2], -1)
    parts = [readings, shared]
    if products:
        parts.append((readings.unsqueeze(-1) * shared.unsqueeze(-2)).flatten(-2))
    return torch.cat(parts, -1)


def _export_weights(weight: Tensor, basis: np.ndarray, actions: int) -> dict[str, Any]:
    """Return a model file's arrays for learned weights."""
    own, shared, *products = np.split(
        to_array(weight), _part_boundaries(weight.shape[1], basis, actions), 1
    )
    arrays = {"neuron.input": (own @ basis).astype(np.float32), "neuron.action": shared}
    for part in products:
        each = part.reshape(len(part), len(basis), actions)
        arrays["neuron.products"] = np.einsum("ufa,fg->uga", each, basis).astype(np.float32)
    return arrays


def _part_boundaries(width: int, basis: np.ndarray, actions: int) -> list[int]:
    """Return the column indices at which the learned weights split into their parts."""
    ends = [len(basis), len(basis) + actions]
    return [end for end in ends if end < width]


def _import_weights(arrays: Mapping[str, np.ndarray], basis: np.ndarray) -> Tensor:
    """Return learned weights for a model file's arrays; the inverse of `_export_weights`."""
    back = np.linalg.inv(basis)
    parts = [arrays["neuron.input"] @ back, arrays["neuron.action"]]
    if "neuron.products" in arrays:
        products = np.einsum("ufa,fg->uga", arrays["neuron.products"], back)
        parts.append(products.reshape(len(products), -1))
    return torch.from_numpy(np.concatenate(parts, 1).astype(np.float32))


class StudentState(NamedTuple):
    """The state of a student from step to step: B rows, N slots, n channels, H memory units."""

    first: Tensor  # (B, N, .) first part of the neurons' state
    second: Tensor  # (B, N, .) second part of the neurons' state
    memory: Tensor  # (B, H) GRU units of the head
    message: Tensor  # (B, 2 n) blended message of the last step, if there is a memory
    evidence: Tensor  # (B, N, n) how well each slot's readings fitted each prediction
    recurrence: tuple[Tensor, ...] = ()  # (B, ...) state of the recurrent layer

    def keep_rows(self, keep: Tensor) -> StudentState:
        """Return the state with the rows reset whose `keep` (B,) is 0; it is 1 for all others."""
        return self._map_tensors(lambda part: part * keep.view(-1, *[1] * (part.ndim - 1)))

    def detach(self) -> StudentState:
        """Return the state cut off from the gradient."""
        return self._map_tensors(Tensor.detach)

    def _map_tensors(self, change: Callable[[Tensor], Tensor]) -> StudentState:
        """Return the state with `change` applied to each tensor."""
        first, second, memory, message, evidence = map(change, self[:5])
        recurrence = tuple(map(change, self.recurrence))
        return StudentState(first, second, memory, message, evidence, recurrence)


class StudentOutput(NamedTuple):
    """The outputs of a student for T steps of B rows."""

    attention: Tensor  # (T, B, N, n + 1) log-weights of the attention
    action: Tensor  # (T, B, A) before it is clipped to [-1, 1]
    ordered: Tensor | None  # (T, B, A) the action if it had seen the ordered observation
    expected: Tensor | None  # (T, B, n) readings that the memory predicted
    state: StudentState


class Student(nn.Module):
    """Torch module of the student with one attention query for each channel.

    T steps, B episodes, N slots, A actions, n channels.

    Args:
        channels: number n of channels.
        actions: number A of actions.
        sizes: sizes and optional parts of the network.
    """

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
            with torch.no_grad():  # predict at first that readings stay as they are
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
        """Return the head's layers."""
        return [layer for layer in self.head if isinstance(layer, nn.Linear)]

    def load_teacher_head(self, layers: Layers) -> None:
        """Copy the teacher's network into the head, with weight 0 on the attention masses.

        If the head's input is not one value for each channel (`pma` or a recurrence), the head
        stays as it is.

        Raises:
            ValueError: the hidden layers differ in size.
        """
        if tuple(len(bias) for _, bias in layers[:-1]) != self.sizes.head:
            raise ValueError(
                f"head: {self.sizes.head}, but the teacher's hidden layers are"
                f" {tuple(len(bias) for _, bias in layers[:-1])}"
            )
        if self.sizes.pma or self.sizes.recurrence is not None:
            return
        with torch.no_grad():
            for layer, (weight, bias) in zip(self._layers, layers, strict=True):
                layer.weight.zero_()
                layer.weight[:, : weight.shape[1]] = torch.from_numpy(weight)
                layer.bias.copy_(torch.from_numpy(bias))

    def load_neurons(self, model: Model, head: bool = False) -> None:
        """Copy neurons, keys, queries and memory from a model, and with `head` its head too.

        Raises:
            ValueError: the sizes differ.
        """
        sizes = model.sizes
        if not isinstance(sizes, AttentionSizes) or self._identification_sizes(self._sizes) != (
            self._identification_sizes(sizes)
        ):
            raise ValueError(
                f"start: the model's sizes are {sizes}, but the student's are {self.sizes}"
            )
        arrays = {name: array.copy() for name, array in model.arrays.items()}
        self.neuron.load_arrays(arrays)
        self.parts.load_arrays(arrays)
        remember = bool(self.sizes.memory) and bool(sizes.memory)
        if head:
            self._copy_head(sizes, arrays)
        if self.sizes.pma:
            return
        with torch.no_grad():
            self.key.weight.copy_(torch.from_numpy(arrays["attention.key"]))
            self.key.bias.copy_(torch.from_numpy(arrays["attention.key_bias"]))
            self.queries.copy_(torch.from_numpy(arrays["attention.queries"]))
            if remember:
                tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
                self._copy_memory(sizes, tensors)

    def _copy_head(self, sizes: AttentionSizes, arrays: dict[str, np.ndarray]) -> None:
        """Copy the head's weights.

        If only one of model and student has a memory, only the readings' weights are copied in the
        first layer.
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
                raise ValueError(
                    f"start: the model's sizes are {sizes}, but the student's are {self.sizes}"
                )
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(arrays[f"head.{number}.bias"]))

    def _copy_memory(self, sizes: AttentionSizes, arrays: dict[str, Tensor]) -> None:
        """Copy the memory's weights."""
        if self.sizes.memory != sizes.memory:
            raise ValueError(
                f"start: the model's sizes are {sizes}, but the student's are {self.sizes}"
            )
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
    def _identification_sizes(sizes: AttentionSizes) -> tuple[object, ...]:
        """Return the sizes of the parts that identify channels."""
        return sizes.neuron, sizes.key, sizes.queries, sizes.products, sizes.stack, sizes.inputs

    def initial_state(self, rows: int, slots: int) -> StudentState:
        """Return the initial state of `rows` episodes with `slots` slots each."""
        return StudentState(
            *self.neuron.initial_state(rows, slots),
            self.queries.new_zeros(rows, self.sizes.memory),
            self.queries.new_zeros(rows, 2 * self.channels),
            self.queries.new_zeros(rows, slots, self.channels),
            self.parts.initial_state(rows),
        )

    def forward(
        self, batch: StreamBatch, state: StudentState, teacher_forced: Tensor | None = None
    ) -> StudentOutput:
        """Run the student over a batch of T steps.

        Args:
            batch: the steps.
            state: the state before them.
            teacher_forced: (T, B), 1 where the memory gets the true message, not the attention's.
        """
        if not self.sizes.memory:
            return self._run_without_memory(batch, state)
        encoded, state = self.run_neurons(batch, state)
        scores = self.key(encoded) @ self.queries.T
        truth = None if teacher_forced is None else self.true_message(batch)
        memory, last_message, evidence = state.memory, state.message, state.evidence
        attentions, memories, seen, means = [], [], [], []
        for t, score in enumerate(scores):
            memory, mean = self.predict_readings(memory, last_message, batch.previous[t])
            if self.sizes.prediction_attention:
                evidence = evidence * (1.0 - batch.moved[t])[:, None, None]
                evidence = self.update_evidence(batch.values[t], mean, evidence)
                score = score + nn.functional.pad(evidence, (0, 1))
            attentions.append(score.log_softmax(-1))
            weights = (2.0 * attentions[-1]).exp()
            message = self._route(weights, batch.values[t], batch.present[t])
            if truth is not None and teacher_forced is not None:
                message = torch.where(teacher_forced[t].unsqueeze(-1) > 0, truth[t], message)
            last_message = self.blend_with_prediction(message, mean)
            seen.append(last_message[:, : self.channels])
            memories.append(memory)
            means.append(mean)
        state = state._replace(memory=memory, message=last_message, evidence=evidence)
        remembered = torch.stack(memories)
        return StudentOutput(
            torch.stack(attentions),
            self.head_output(torch.cat([torch.stack(seen), remembered], -1)),
            self.head_output(torch.cat([batch.ordered, remembered], -1)),
            torch.stack(means),
            state,
        )

    def _run_without_memory(self, batch: StreamBatch, state: StudentState) -> StudentOutput:
        """Run a student whose head has no memory over a batch."""
        attention, message, state = self.attend(batch, state)
        remembered, recurrence = self.parts.run_memory(message, state.recurrence)
        ordered = None
        if not self.sizes.pma:
            whole = torch.cat([batch.ordered, torch.zeros_like(batch.ordered)], -1)
            ordered = self.head_output(self.parts.run_memory(whole, state.recurrence)[0])
        state = state._replace(recurrence=recurrence)
        return StudentOutput(attention, self.head_output(remembered), ordered, None, state)

    def attend(
        self, batch: StreamBatch, state: StudentState
    ) -> tuple[Tensor, Tensor, StudentState]:
        """Run the attention layer of a student whose head has no memory.

        With `pma` the attention does not enter the message: it only teaches the neurons to identify
        their channels.

        Returns:
            Log-weights of the attention (T, B, N, n + 1), the message (T, B, M), and the neurons'
                state.
        """
        encoded, state = self.run_neurons(batch, state)
        attention = (self.key(encoded) @ self.queries.T).log_softmax(-1)
        if self.parts.pooling is not None:
            return attention, self.parts.pooling(encoded, batch.present).flatten(-2), state
        message = self._route(attention.exp(), batch.values, batch.present)
        routed, mass = message.split(self.channels, -1)
        if self.sizes.normalise:
            routed, mass = routed / mass.clamp(min=1.0), mass.clamp(max=1.0)
        return attention, torch.cat([routed, mass - 1.0], -1), state

    def run_neurons(self, batch: StreamBatch, state: StudentState) -> tuple[Tensor, StudentState]:
        """Run the neurons and the encoder over a batch; reset the neurons of rows that have moved.

        Returns:
            Outputs of every slot (T, B, N, d), and the neurons' state.
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

    def predict_readings(
        self, memory: Tensor, last_message: Tensor, previous: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Advance the memory by one step.

        Args:
            memory: (B, H) GRU units.
            last_message: (B, 2 n) the message that was seen at the last step.
            previous: (B, A) previous actions.

        Returns:
            The new memory (B, H), and the predicted readings (B, n).
        """
        inputs = torch.cat([last_message, previous], -1)
        memory = self.memory(inputs, memory)
        return memory, self.expectation(torch.cat([memory, inputs], -1))

    def update_evidence(self, values: Tensor, mean: Tensor, evidence: Tensor) -> Tensor:
        """Return the evidence (B, N, n), updated by how well readings fit the predicted ones.

        Args:
            values: (B, N) readings of the slots.
            mean: (B, n) predicted readings of the channels.
            evidence: (B, N, n) evidence before this step.
        """
        width, most, gain, keep = self.prediction
        error = width.exp() * (values.unsqueeze(-1) - mean.unsqueeze(1)) ** 2
        return keep.sigmoid() * evidence + gain - most * error / (1.0 + error)

    def blend_with_prediction(self, message: Tensor, mean: Tensor) -> Tensor:
        """Blend a message (B, 2 n) with the predicted readings `mean` (B, n).

        Returns:
            (B, 2 n): the blended readings, and the share of each that was observed.
        """
        routed, mass = message.split(self.channels, -1)
        share = mass.clamp(max=1.0)
        news = routed / mass.clamp(min=1.0) - share * mean
        if self.sizes.outlier_weighting:
            trust = 1.0 / (1.0 + self.log_outlier_weight.exp() * news**2)
            share, news = share * trust, news * trust
        return torch.cat([mean + news, share], -1)

    def run_memory(
        self, batch: StreamBatch, message: Tensor, state: StudentState
    ) -> tuple[Tensor, ...]:
        """Run memory and head over the messages of a batch.

        Args:
            batch: the steps.
            message: (T, B, 2 n) routed readings and attention masses.
            state: the state before them.

        Returns:
            Actions (T, B, A) on the blended readings; actions (T, B, A) on the ordered observation;
                predicted readings (T, B, n); the last memory (B, H); the last blended message (B, 2
                n).
        """
        memory, last_message = state.memory, state.message
        memories, seen, means = [], [], []
        for raw_message, previous in zip(message, batch.previous, strict=True):
            memory, mean = self.predict_readings(memory, last_message, previous)
            last_message = self.blend_with_prediction(raw_message, mean)
            seen.append(last_message[:, : self.channels])
            memories.append(memory)
            means.append(mean)
        remembered = torch.stack(memories)
        return (
            self.head_output(torch.cat([torch.stack(seen), remembered], -1)),
            self.head_output(torch.cat([batch.ordered, remembered], -1)),
            torch.stack(means),
            memory,
            last_message,
        )

    def true_message(self, batch: StreamBatch) -> Tensor:
        """Return the message (T, B, 2 n) of an attention that identifies every channel."""
        n = self.channels
        shown = batch.values.new_zeros(*batch.channel.shape[:2], n + 1)
        shown = shown.scatter_reduce(-1, batch.channel, batch.present, "amax")[..., :n]
        return torch.cat([batch.ordered * shown, shown], -1)

    @staticmethod
    def _route(weights: Tensor, values: Tensor, present: Tensor) -> Tensor:
        """Return the message (..., 2 n): routed readings, and the attention mass of each query."""
        weights = weights[..., :-1] * present.unsqueeze(-1)
        routed = (values.unsqueeze(-2) @ weights).squeeze(-2)
        return torch.cat([routed, weights.sum(-2)], -1)

    def head_output(self, message: Tensor) -> Tensor:
        """Return the action (..., A) for the head's input, before it is clipped to [-1, 1]."""
        *hidden, last = self._layers
        for layer in hidden:
            message = torch.relu(layer(message))
        out: Tensor = last(message)
        return torch.tanh(out) if self.sizes.output == "tanh" else out

    def model(self, task: Task, trained: dict[str, Any]) -> Model:
        """Return the student's weights as a model file's contents."""
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
        """Return the sizes of the exported policy."""
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
        """Return the memory's weights under their names in a model file."""
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
