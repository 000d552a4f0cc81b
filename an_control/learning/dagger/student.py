"""Torch module of the student for scalar channels, the softmax AttentionNeuron of the policy.

It computes the same as `an_control.policy` (Tang & Ha 2021, section 3), but for T steps of B
episodes at once. Each input slot has a sensory neuron, a small network whose weights all slots
share. The attention assigns each slot by a softmax over the queries: one query for each channel,
and a last one for "no channel". The student exports its weights to the policy's model file.

A sensory neuron is an LSTM, or a layer on the newest readings. Since readings change little from
step to step, a neuron learns the weights of combinations of a slot's F inputs, which are the matrix
`basis` (F, F) times the policy's inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from an_control.learning.dagger.settings import StudentSizes
from an_control.learning.dagger.streams import StreamBatch
from an_control.learning.recurrence import RecurrenceModule, SetEncoder, SetPooling, to_array
from an_control.learning.teacher.teachers import Layers
from an_control.policy import AttentionSizes, Model
from an_control.policy.task import Task

RecurrenceState = tuple[Tensor, ...]


class StudentParts(nn.Module):
    """Optional layers between the sensory neurons and the head: encoder, pooling and recurrence.

    The sensory neurons are small networks, one for each input slot; the attention sums the slots'
    readings to a message for the head.

    Args:
        sizes: Sizes and optional parts of the student.
        message_size: Length of the attention message of a student without pooling. With pooling the
            length follows from `sizes`.
    """

    def __init__(self, sizes: StudentSizes, message_size: int) -> None:
        super().__init__()
        width, heads = sizes.neuron, sizes.heads
        self.encoder = self.pooling = self.recurrence = None
        if sizes.encoder != "none":
            self.encoder = SetEncoder(sizes.encoder, width, heads, sizes.inducing)
        self.width = message_size
        """Length of the head's input."""
        if sizes.pma:
            self.pooling, self.width = SetPooling(sizes.pma, width, heads), sizes.pma * width
        if sizes.recurrence is not None:
            self.recurrence = RecurrenceModule(self.width, sizes.recurrence)
            self.width = sizes.recurrence.units

    def encode_neuron_outputs(self, outputs: Tensor, present: Tensor) -> Tensor:
        """Apply the encoder to the sensory neurons' outputs, if there is an encoder.

        Args:
            outputs: Outputs (T, B, N, d) of the sensory neurons of N input slots, at T steps of B
                episodes.
            present: 1 where a slot has a reading, else 0 (T, B, N).

        Returns:
            The encoded outputs (T, B, N, d); without an encoder they are `outputs`.
        """
        return outputs if self.encoder is None else self.encoder(outputs, present)

    def run_recurrence(
        self, message: Tensor, state: RecurrenceState
    ) -> tuple[Tensor, RecurrenceState]:
        """Run the recurrent layer, if there is one, on the attention's messages of T steps.

        Args:
            message: Attention messages (T, B, M) of B episodes: M weighted sums over all input
                slots for each step and episode.
            state: State of the recurrent layer before the first step.

        Returns:
            Two values. The first is the input of the head: the outputs (T, B, U) of the layer's U
            units, or the messages if there is no layer. The second is the layer's state after the
            last step.
        """
        if self.recurrence is None:
            return message, state
        remembered: tuple[Tensor, RecurrenceState] = self.recurrence(message, state)
        return remembered

    def make_initial_state(self, rows: int) -> RecurrenceState:
        """Return the recurrent layer's state at the start of `rows` episodes.

        It is () if there is no recurrent layer.
        """
        return () if self.recurrence is None else self.recurrence.make_initial_state(rows)

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the weights of all layers that the student has, by array name in a model file."""
        parts = self.encoder, self.pooling, self.recurrence
        return {k: v for part in parts if part is not None for k, v in part.to_arrays().items()}

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the weights of these layers from a model file's arrays.

        A layer for which the file has no arrays keeps its weights.
        """
        for name in ("encoder", "pooling", "recurrence"):
            part = getattr(self, name)
            if part is not None and any(one.startswith(f"{name}.") for one in arrays):
                part.load_arrays(arrays)


CHANGE_GAIN = 3.0
"""Factor by which a neuron's inputs from changes between steps are enlarged while it learns; the
export folds it into the weights."""

NeuronState = tuple[Tensor, Tensor]
"""Two tensors (B, N, .), which are zero where a neuron is reset."""


class LstmNeuron(nn.LSTM):
    """Sensory neurons: for each input slot an LSTM, all LSTMs with the same weights.

    At each step an LSTM gets the reading of its slot. Its state is the pair of its outputs h and
    its cells c.

    Args:
        actions: Number of actions; the previous actions are inputs too.
        units: Number of LSTM units.
        products: Whether products of readings and previous actions are inputs too.
        change: Whether the change of the reading since the last step is an input too.
    """

    weight_ih_l0: nn.Parameter
    weight_hh_l0: nn.Parameter
    bias_ih_l0: nn.Parameter
    bias_hh_l0: nn.Parameter

    def __init__(self, actions: int, units: int, products: bool, change: bool = True) -> None:
        super().__init__(_count_neuron_inputs(1 + change, actions, products), units)
        self.actions, self.products = actions, products
        self.inputs = ("value", "change") if change else ("value",)
        self.basis = np.diag([1.0, CHANGE_GAIN][: 1 + change])
        with torch.no_grad():  # initial forget bias 1
            self.bias_ih_l0[units : 2 * units] += 1.0

    def make_initial_state(self, rows: int, slots: int) -> NeuronState:
        """Return the LSTM's zero state (outputs, cells) at the start of `rows` episodes.

        Args:
            rows: Number B of episodes.
            slots: Number N of input slots of each episode.
        """
        zeros = self.weight_hh_l0.new_zeros(rows, slots, self.hidden_size)
        return zeros, zeros

    def run_steps(
        self, values: Tensor, change: Tensor, previous_actions: Tensor, state: NeuronState
    ) -> tuple[Tensor, NeuronState]:
        """Run the LSTM of each input slot over T steps of B episodes.

        Args:
            values: Readings (T, B, N) of N input slots.
            change: Change (T, B, N) of the readings since the step before.
            previous_actions: Previous actions (T, B, A).
            state: State before the first step.

        Returns:
            Outputs (T, B, N, d), and the state after the last step.
        """
        own = torch.stack([values, CHANGE_GAIN * change][: len(self.inputs)], -1)
        steps, rows, slots = values.shape
        outputs, (output, cell) = self(
            _join_neuron_inputs(own, previous_actions, self.products).reshape(
                steps, rows * slots, -1
            ),
            (state[0].flatten(0, 1)[None], state[1].flatten(0, 1)[None]),
        )
        shape = rows, slots, self.hidden_size
        return outputs.reshape(steps, *shape), (output.view(shape), cell.view(shape))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the weights by their array names in a model file."""
        return {
            **_export_neuron_weights(self.weight_ih_l0, self.basis, self.actions),
            "neuron.hidden": to_array(self.weight_hh_l0),
            "neuron.bias": to_array(self.bias_ih_l0 + self.bias_hh_l0),
        }

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the weights from a model file's arrays."""
        with torch.no_grad():
            self.weight_ih_l0.copy_(_import_neuron_weights(arrays, self.basis))
            self.weight_hh_l0.copy_(torch.from_numpy(arrays["neuron.hidden"].copy()))
            self.bias_ih_l0.copy_(torch.from_numpy(arrays["neuron.bias"].copy()))
            self.bias_hh_l0.zero_()


class StackedNeuron(nn.Linear):
    """Sensory neurons: for each input slot a layer of tanh units, all layers with the same weights.

    At each step a layer gets the present reading of its slot and some earlier ones. The state of
    the neurons is a pair of tensors: the earlier readings, and a flag that is 0 before the first
    step of the episode and 1 afterwards.

    Args:
        actions: Number of actions; the previous actions are inputs too.
        units: Number of tanh units.
        products: Whether products of readings and previous actions are inputs too.
        stack: Number of newest readings that the layer gets.
    """

    inputs = ("value",)

    def __init__(self, actions: int, units: int, products: bool, stack: int) -> None:
        super().__init__(_count_neuron_inputs(stack, actions, products), units)
        self.actions, self.products, self.stack = actions, products, stack
        self.basis = CHANGE_GAIN * (np.eye(stack, k=-1) - np.eye(stack))
        self.basis[0] = np.eye(stack)[0]

    def make_initial_state(self, rows: int, slots: int) -> NeuronState:
        """Return the state at the start of `rows` episodes: no earlier readings.

        Args:
            rows: Number B of episodes.
            slots: Number N of input slots of each episode.
        """
        return tuple(self.weight.new_zeros(rows, slots, n) for n in (self.stack - 1, 1))  # type: ignore[return-value]

    def run_steps(
        self, values: Tensor, change: Tensor, previous_actions: Tensor, state: NeuronState
    ) -> tuple[Tensor, NeuronState]:
        """Run each input slot's layer on its newest readings, over T steps of B episodes.

        Args:
            values: Readings (T, B, N) of N input slots.
            change: Not used; `LstmNeuron.run_steps` takes the same arguments.
            previous_actions: Previous actions (T, B, A).
            state: State before the first step.

        Returns:
            Outputs (T, B, N, d), and the state after the last step.
        """
        older, known = state
        older = torch.where(known > 0, older, values[0].unsqueeze(-1))
        line = torch.cat([older.flip(-1).movedim(-1, 0), values])  # oldest first
        readings = line.unfold(0, self.stack, 1).flip(-1)
        own = readings @ torch.as_tensor(self.basis.T, dtype=values.dtype, device=values.device)
        outputs = torch.tanh(self(_join_neuron_inputs(own, previous_actions, self.products)))
        return outputs, (readings[-1][..., : self.stack - 1], torch.ones_like(known))

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the weights by their array names in a model file."""
        exported = _export_neuron_weights(self.weight, self.basis, self.actions)
        return exported | {"neuron.bias": to_array(self.bias)}

    def load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy the weights from a model file's arrays."""
        with torch.no_grad():
            self.weight.copy_(_import_neuron_weights(arrays, self.basis))
            self.bias.copy_(torch.from_numpy(arrays["neuron.bias"].copy()))


def _count_neuron_inputs(reading_inputs: int, actions: int, with_products: bool) -> int:
    """Return the number of all inputs of a sensory neuron: readings, actions and their products."""
    return reading_inputs + actions + (reading_inputs * actions if with_products else 0)


def _join_neuron_inputs(readings: Tensor, previous_actions: Tensor, with_products: bool) -> Tensor:
    """Join readings (T, B, N, F), previous actions (T, B, A) and, optionally, their products."""
    shared = previous_actions.unsqueeze(2).expand(-1, -1, readings.shape[2], -1)
    parts = [readings, shared]
    if with_products:
        parts.append((readings.unsqueeze(-1) * shared.unsqueeze(-2)).flatten(-2))
    return torch.cat(parts, -1)


def _export_neuron_weights(weight: Tensor, basis: np.ndarray, actions: int) -> dict[str, Any]:
    """Convert learned input weights (units, inputs) to the arrays of a model file.

    The matrix `basis` (F, F), by which the F inputs from readings are multiplied while a student
    learns, is folded into the weights.
    """
    own, shared, *products = np.split(
        to_array(weight), _find_input_kind_boundaries(weight.shape[1], basis, actions), 1
    )
    arrays = {"neuron.input": (own @ basis).astype(np.float32), "neuron.action": shared}
    for part in products:
        each = part.reshape(len(part), len(basis), actions)
        arrays["neuron.products"] = np.einsum("ufa,fg->uga", each, basis).astype(np.float32)
    return arrays


def _find_input_kind_boundaries(column_count: int, basis: np.ndarray, actions: int) -> list[int]:
    """Return the column indices that separate the kinds of input in a neuron's weight matrix.

    The columns stand first for the readings, then for the previous actions and then, if there are
    any, for the products of a reading and an action.
    """
    ends = [len(basis), len(basis) + actions]
    return [end for end in ends if end < column_count]


def _import_neuron_weights(arrays: Mapping[str, np.ndarray], basis: np.ndarray) -> Tensor:
    """Convert arrays of a model file to input weights; the inverse of `_export_neuron_weights`."""
    back = np.linalg.inv(basis)
    parts = [arrays["neuron.input"] @ back, arrays["neuron.action"]]
    if "neuron.products" in arrays:
        products = np.einsum("ufa,fg->uga", arrays["neuron.products"], back)
        parts.append(products.reshape(len(products), -1))
    return torch.from_numpy(np.concatenate(parts, 1).astype(np.float32))


class StudentState(NamedTuple):
    """State of a student between two steps, for B episodes with N input slots and n channels.

    An input slot is a place at which a reading arrives, before its channel is known. A student may
    have a memory, a GRU in its head that predicts the readings of all channels.

    Attributes:
        first: First state tensor (B, N, ...) of the sensory neurons, such as an LSTM's outputs.
        second: Second state tensor (B, N, ...) of the sensory neurons, such as an LSTM's cells.
        memory: GRU units (B, H) of the memory.
        message: Input of the memory from the last step (B, 2 n): for each channel the average of
            measured and predicted reading, then the weights (0..1) of the measured ones.
        evidence: How well each slot's readings have matched the predicted readings of each channel
            so far (B, N, n).
        recurrence: State tensors (B, ...) of the recurrent layer; () without one.
    """

    first: Tensor
    second: Tensor
    memory: Tensor
    message: Tensor
    evidence: Tensor
    recurrence: tuple[Tensor, ...] = ()

    def reset_episodes_except(self, keep_mask: Tensor) -> StudentState:
        """Return a copy of the state that is zero in all episodes except those of a mask.

        Args:
            keep_mask: 1 for each episode that keeps its state, 0 for each that is reset (B,).
        """
        return self._apply_to_tensors(
            lambda part: part * keep_mask.view(-1, *[1] * (part.ndim - 1))
        )

    def detach(self) -> StudentState:
        """Return the state without the graph of its gradients, as `Tensor.detach` does."""
        return self._apply_to_tensors(Tensor.detach)

    def _apply_to_tensors(self, function: Callable[[Tensor], Tensor]) -> StudentState:
        """Return the state with the function `function` applied to each of its tensors."""
        first, second, memory, message, evidence = map(function, self[:5])
        recurrence = tuple(map(function, self.recurrence))
        return StudentState(first, second, memory, message, evidence, recurrence)


class StudentOutput(NamedTuple):
    """Outputs of a student for T steps of B episodes with N input slots, n channels and A actions.

    Attributes:
        attention: Logarithms of the attention weights (T, B, N, n + 1); the last column is "no
            channel".
        action: Actions (T, B, A) before they are clipped to [-1, 1].
        ordered: Actions (T, B, A) of the head if it gets the true readings of all channels; None
            with attention pooling.
        expected: Readings (T, B, n) that the memory has predicted; None without a memory.
        state: State after the last step.
    """

    attention: Tensor
    action: Tensor
    ordered: Tensor | None
    expected: Tensor | None
    state: StudentState


class Student(nn.Module):
    """Torch module of a student, which imitates a teacher that gets its channels in order.

    The student gets readings from N input slots, which may carry the n channels in any order. Its
    attention, with one query for each channel, finds out which channel each slot carries. Shapes in
    this class: T steps, B episodes, A actions.

    Args:
        channels: Number n of channels.
        actions: Number A of actions.
        sizes: Sizes and optional parts of the network.
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
    def _head_layers(self) -> list[nn.Linear]:
        """Return the linear layers of the head, the first one first."""
        return [layer for layer in self.head if isinstance(layer, nn.Linear)]

    def copy_teacher_into_head(self, layers: Layers) -> None:
        """Copy the teacher's network into the student's head.

        The head then acts like the teacher as soon as the channels are identified. Inputs of the
        head that the teacher lacks get the weight 0. If the head's input is not one value for each
        channel (with `pma` or a recurrence), the head stays as it is.

        Args:
            layers: (weights, biases) of the teacher's layers, the first one first.

        Raises:
            ValueError: The hidden layers differ in size.
        """
        if tuple(len(bias) for _, bias in layers[:-1]) != self.sizes.head:
            raise ValueError(
                f"head: {self.sizes.head}, but the teacher's hidden layers are"
                f" {tuple(len(bias) for _, bias in layers[:-1])}"
            )
        if self.sizes.pma or self.sizes.recurrence is not None:
            return
        with torch.no_grad():
            for layer, (weight, bias) in zip(self._head_layers, layers, strict=True):
                layer.weight.zero_()
                layer.weight[:, : weight.shape[1]] = torch.from_numpy(weight)
                layer.bias.copy_(torch.from_numpy(bias))

    def load_identification_weights(self, model: Model, with_head: bool = False) -> None:
        """Copy a model's weights for identifying channels: sensory neurons, keys and queries.

        The weights of encoder, pooling, recurrence and the head's memory are copied too, if both
        the model and the student have these parts.

        Args:
            model: The model to copy from.
            with_head: Whether to copy the head too.

        Raises:
            ValueError: The sizes of the model and the student differ.
        """
        sizes = model.sizes
        if not isinstance(sizes, AttentionSizes) or self._get_sizes_affecting_identification(
            self._exported_policy_sizes
        ) != (self._get_sizes_affecting_identification(sizes)):
            raise self._make_size_error(sizes)
        arrays = {name: array.copy() for name, array in model.arrays.items()}
        self.neuron.load_arrays(arrays)
        self.parts.load_arrays(arrays)
        remember = bool(self.sizes.memory) and bool(sizes.memory)
        if with_head:
            self._load_head_weights(sizes, arrays)
        if self.sizes.pma:
            return
        with torch.no_grad():
            self.key.weight.copy_(torch.from_numpy(arrays["attention.key"]))
            self.key.bias.copy_(torch.from_numpy(arrays["attention.key_bias"]))
            self.queries.copy_(torch.from_numpy(arrays["attention.queries"]))
            if remember:
                tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
                self._copy_memory_weights(sizes, tensors)

    def _load_head_weights(self, sizes: AttentionSizes, arrays: dict[str, np.ndarray]) -> None:
        """Copy the weights of a model's head into the student's head.

        If only one of model and student has a memory, their heads have different inputs. Then only
        the weights of the readings are copied in the first layer, and its other weights become 0.
        """
        first, wanted = arrays["head.0.weight"], tuple(self._head_layers[0].weight.shape)
        parts = self.sizes.recurrence, sizes.recurrence
        if bool(self.sizes.memory) != bool(sizes.memory) and parts == (None, None):
            readings = first[: wanted[0], : self.channels]
            arrays["head.0.weight"] = np.zeros((len(first), wanted[1]), np.float32)
            arrays["head.0.weight"][: len(readings), : self.channels] = readings
        for number, layer in enumerate(self._head_layers):
            weight = arrays.get(f"head.{number}.weight", np.zeros(0))
            if weight.shape != tuple(layer.weight.shape) or len(sizes.head) != len(self.sizes.head):
                raise self._make_size_error(sizes)
            with torch.no_grad():
                layer.weight.copy_(torch.from_numpy(weight))
                layer.bias.copy_(torch.from_numpy(arrays[f"head.{number}.bias"]))

    def _copy_memory_weights(self, sizes: AttentionSizes, arrays: dict[str, Tensor]) -> None:
        """Copy the weights of a model's memory."""
        if self.sizes.memory != sizes.memory:
            raise self._make_size_error(sizes)
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

    def _make_size_error(self, sizes: object) -> ValueError:
        """Return the error that a start model with these sizes does not fit the student."""
        return ValueError(
            f"--start-model: the model's sizes are {sizes}, but the student's are {self.sizes}"
        )

    @staticmethod
    def _get_sizes_affecting_identification(sizes: AttentionSizes) -> tuple[object, ...]:
        """Return the sizes that determine the shapes of the weights for identifying channels.

        The weights can be copied between two models if these sizes of both are equal.
        """
        return sizes.neuron, sizes.key, sizes.queries, sizes.products, sizes.stack, sizes.inputs

    def make_initial_state(self, rows: int, slots: int) -> StudentState:
        """Return the zero state at the start of `rows` episodes.

        Args:
            rows: Number B of episodes.
            slots: Number N of input slots of each episode.
        """
        return StudentState(
            *self.neuron.make_initial_state(rows, slots),
            self.queries.new_zeros(rows, self.sizes.memory),
            self.queries.new_zeros(rows, 2 * self.channels),
            self.queries.new_zeros(rows, slots, self.channels),
            self.parts.make_initial_state(rows),
        )

    def forward(
        self, batch: StreamBatch, state: StudentState, perfect_attention_mask: Tensor | None = None
    ) -> StudentOutput:
        """Run the student over a batch of T steps.

        Args:
            batch: Inputs and labels of the steps.
            state: State before the first step.
            perfect_attention_mask: Mask (T, B) for a student with a memory. Where it is 1, the
                memory gets the message of a perfect attention, which identifies every channel.
                Elsewhere, and if the mask is None, it gets the message of the student's attention.
        """
        if not self.sizes.memory:
            return self._run_without_memory(batch, state)
        encoded, state = self.run_neurons(batch, state)
        scores = self.key(encoded) @ self.queries.T
        truth = (
            None
            if perfect_attention_mask is None
            else self.compute_perfect_attention_message(batch)
        )
        evidence, attentions = state.evidence, []

        def compute_message(t: int, mean: Tensor) -> Tensor:
            """Return the message (B, 2 n) of step t, for the readings (B, n) predicted before."""
            nonlocal evidence
            score = scores[t]
            if self.sizes.prediction_attention:
                evidence = evidence * (1.0 - batch.moved[t])[:, None, None]
                evidence = self.update_slot_channel_match_evidence(batch.values[t], mean, evidence)
                score = score + nn.functional.pad(evidence, (0, 1))
            attentions.append(score.log_softmax(-1))
            weights = (2.0 * attentions[-1]).exp()
            message = self._sum_readings_by_channel(weights, batch.values[t], batch.present[t])
            if truth is None or perfect_attention_mask is None:
                return message
            return torch.where(perfect_attention_mask[t].unsqueeze(-1) > 0, truth[t], message)

        action, ordered, means, state = self.run_memory_and_head(batch, compute_message, state)
        state = state._replace(evidence=evidence)
        return StudentOutput(torch.stack(attentions), action, ordered, means, state)

    def _run_without_memory(self, batch: StreamBatch, state: StudentState) -> StudentOutput:
        """Run the student over a batch from `state`; only for a head without a memory network."""
        attention, message, state = self.compute_attention_and_message(batch, state)
        remembered, recurrence = self.parts.run_recurrence(message, state.recurrence)
        ordered = None
        if not self.sizes.pma:
            whole = torch.cat([batch.ordered, torch.zeros_like(batch.ordered)], -1)
            ordered = self.run_head(self.parts.run_recurrence(whole, state.recurrence)[0])
        state = state._replace(recurrence=recurrence)
        return StudentOutput(attention, self.run_head(remembered), ordered, None, state)

    def compute_attention_and_message(
        self, batch: StreamBatch, state: StudentState
    ) -> tuple[Tensor, Tensor, StudentState]:
        """Compute the attention and the attention message of a student whose head has no memory.

        The attention message, of size M, combines the readings of all channels. It is the input of
        the head, or of the recurrent layer if there is one. With the option `pma`, a pooling layer
        computes the message. The attention then serves only the loss for identifying channels.

        Args:
            batch: T steps of B episodes.
            state: State before the first step.

        Returns:
            Three values: the logarithms of the attention weights (T, B, N, n + 1) of N input slots
            for n channels and for "no channel"; the attention message (T, B, M); and the state
            after the last step.
        """
        encoded, state = self.run_neurons(batch, state)
        attention = (self.key(encoded) @ self.queries.T).log_softmax(-1)
        if self.parts.pooling is not None:
            return attention, self.parts.pooling(encoded, batch.present).flatten(-2), state
        message = self._sum_readings_by_channel(attention.exp(), batch.values, batch.present)
        routed, mass = message.split(self.channels, -1)
        if self.sizes.normalise:
            routed, mass = routed / mass.clamp(min=1.0), mass.clamp(max=1.0)
        return attention, torch.cat([routed, mass - 1.0], -1), state

    def run_neurons(self, batch: StreamBatch, state: StudentState) -> tuple[Tensor, StudentState]:
        """Run the sensory neurons (one small network per slot) and the encoder over a batch.

        Where `batch.moved` is 1 for a step and an episode, the neurons of this episode are reset
        before this step.

        Args:
            batch: T steps of B episodes.
            state: State before the first step.

        Returns:
            The encoded output (T, B, N, d) of each slot's neuron, and the state after the last
            step.
        """
        first, second = state[:2]
        moved = batch.moved
        cuts = [0, *(t for t in moved.any(1).nonzero().flatten().tolist() if t), len(moved)]
        parts = []
        for begin, end in pairwise(cuts):
            kept = (1.0 - moved[begin])[:, None, None]
            outputs, (first, second) = self.neuron.run_steps(
                batch.values[begin:end],
                batch.change[begin:end],
                batch.previous[begin:end],
                (first * kept, second * kept),
            )
            parts.append(outputs)
        encoded = self.parts.encode_neuron_outputs(torch.cat(parts), batch.present)
        return encoded, state._replace(first=first, second=second)

    def advance_memory_and_predict_readings(
        self, memory_state: Tensor, last_message: Tensor, previous_actions: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Advance the head's memory (a GRU) by one step and predict the readings of that step.

        Args:
            memory_state: GRU units (B, H) before the step.
            last_message: Attention message (B, 2 n) of the last step, blended with predictions.
            previous_actions: Previous actions (B, A).

        Returns:
            The new GRU units (B, H), and the predicted readings (B, n).
        """
        inputs = torch.cat([last_message, previous_actions], -1)
        memory_state = self.memory(inputs, memory_state)
        return memory_state, self.expectation(torch.cat([memory_state, inputs], -1))

    def update_slot_channel_match_evidence(
        self, readings: Tensor, predicted_readings: Tensor, evidence: Tensor
    ) -> Tensor:
        """Update the evidence, which says how well each slot has matched each channel so far.

        The evidence grows if a slot's reading is close to a channel's predicted reading, and falls
        otherwise. Earlier steps count less and less.

        Args:
            readings: Readings (B, N) of the input slots.
            predicted_readings: Predicted readings (B, n) of the channels.
            evidence: Evidence (B, N, n) before this step.

        Returns:
            The new evidence (B, N, n), which is added to the attention scores; higher means a
            better match.
        """
        width, most, gain, keep = self.prediction
        error = width.exp() * (readings.unsqueeze(-1) - predicted_readings.unsqueeze(1)) ** 2
        return keep.sigmoid() * evidence + gain - most * error / (1.0 + error)

    def blend_message_with_prediction(self, message: Tensor, predicted_readings: Tensor) -> Tensor:
        """Average each channel's reading in a message with the reading that the memory predicts.

        The less attention a channel has received, the more its predicted reading counts. A channel
        without attention gets the predicted reading alone.

        Args:
            message: Attention message (B, 2 n): a reading for each of n channels, then for each
                channel the sum of its attention weights.
            predicted_readings: Predicted readings (B, n).

        Returns:
            The averaged reading of each channel, then for each channel the weight (0..1) of the
            reading from `message` in this average (B, 2 n).
        """
        routed, mass = message.split(self.channels, -1)
        share = mass.clamp(max=1.0)
        news = routed / mass.clamp(min=1.0) - share * predicted_readings
        if self.sizes.outlier_weighting:
            trust = 1.0 / (1.0 + self.log_outlier_weight.exp() * news**2)
            share, news = share * trust, news * trust
        return torch.cat([predicted_readings + news, share], -1)

    def run_memory_and_head(
        self,
        batch: StreamBatch,
        compute_message: Callable[[int, Tensor], Tensor],
        state: StudentState,
    ) -> tuple[Tensor, Tensor, Tensor, StudentState]:
        """Compute the actions for T steps from the attention's messages, with memory and head.

        The memory, a GRU, predicts each channel's reading. The head acts on the memory and on a
        weighted average of the predicted reading and the one in the message. The less attention a
        channel got, the more the prediction counts.

        Args:
            batch: T steps of B episodes, with previous actions and true readings.
            compute_message: Function that returns the message (B, 2 n) of a step. Its arguments are
                the step's index and the predicted readings (B, n). The message holds a reading for
                each of n channels, then for each channel the sum of its attention weights.
            state: State before the first step.

        Returns:
            Four values: the actions (T, B, A); the actions (T, B, A) that the head computes if it
            gets the true readings instead of the averages; the predicted readings (T, B, n); and
            the state after the last step, with new memory and message.
        """
        memory, last_message = state.memory, state.message
        memories, seen, means = [], [], []
        for t, previous in enumerate(batch.previous):
            memory, mean = self.advance_memory_and_predict_readings(memory, last_message, previous)
            last_message = self.blend_message_with_prediction(compute_message(t, mean), mean)
            seen.append(last_message[:, : self.channels])
            memories.append(memory)
            means.append(mean)
        remembered = torch.stack(memories)
        return (
            self.run_head(torch.cat([torch.stack(seen), remembered], -1)),
            self.run_head(torch.cat([batch.ordered, remembered], -1)),
            torch.stack(means),
            state._replace(memory=memory, message=last_message),
        )

    def compute_perfect_attention_message(self, batch: StreamBatch) -> Tensor:
        """Return the attention message of an attention that identifies every channel correctly.

        Returns:
            The message (T, B, 2 n): the reading of each channel, then for each channel 1 if a slot
            carries it, else 0. The reading is 0 too if no slot carries the channel.
        """
        n = self.channels
        shown = batch.values.new_zeros(*batch.channel.shape[:2], n + 1)
        shown = shown.scatter_reduce(-1, batch.channel, batch.present, "amax")[..., :n]
        return torch.cat([batch.ordered * shown, shown], -1)

    @staticmethod
    def _sum_readings_by_channel(
        attention_weights: Tensor, readings: Tensor, present: Tensor
    ) -> Tensor:
        """Return the message (..., 2 n): each channel's reading, then its attention mass.

        A channel's reading is the sum over all slots of reading (..., N) times attention weight
        (..., N, n + 1), of which the last column, "no channel", is left out.
        """
        attention_weights = attention_weights[..., :-1] * present.unsqueeze(-1)
        routed = (readings.unsqueeze(-2) @ attention_weights).squeeze(-2)
        return torch.cat([routed, attention_weights.sum(-2)], -1)

    def run_head(self, head_input: Tensor) -> Tensor:
        """Return the actions (..., A) of the head before they are clipped to [-1, 1].

        Args:
            head_input: Input (..., M) of the head.
        """
        *hidden, last = self._head_layers
        for layer in hidden:
            head_input = torch.relu(layer(head_input))
        out: Tensor = last(head_input)
        return torch.tanh(out) if self.sizes.output == "tanh" else out

    def make_model(self, task: Task, trained: dict[str, Any]) -> Model:
        """Return a model (the contents of a model file) with the student's weights.

        Args:
            task: Channels, actuators and other properties of the robot.
            trained: How the model was trained, for the file's header.
        """
        arrays = {
            **self.neuron.to_arrays(),
            **self.parts.to_arrays(),
        }
        if not self.sizes.pma:
            arrays |= {
                "attention.queries": to_array(self.queries),
                "attention.key": to_array(self.key.weight),
                "attention.key_bias": to_array(self.key.bias),
            }
        if self.sizes.memory:
            arrays |= self._export_memory_arrays()
        for place, layer in enumerate(self._head_layers):
            arrays[f"head.{place}.weight"] = to_array(layer.weight)
            arrays[f"head.{place}.bias"] = to_array(layer.bias)
        arrays = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        return Model("attention_neuron", self._exported_policy_sizes, arrays, task, trained)

    @property
    def _exported_policy_sizes(self) -> AttentionSizes:
        """Return the sizes of the policy that the student is exported as."""
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
            **self.sizes.encoder_and_recurrence_sizes,
        )

    def _export_memory_arrays(self) -> dict[str, np.ndarray]:
        """Return the weights of the head's memory, by their array names in a model file."""
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
