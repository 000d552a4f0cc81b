"""Export a policy of this project as an ONNX network, for use with other tools.

The network has a fixed set of channels in the task's order, and the neurons' state goes in and out.
It computes the equations of `reference_engine`, in float64, on readings and states in float32. The
export lacks some features of the policy: results that are the same to the last bit in any order of
the channels, channels that are added or removed, the attention as an output, and the monitor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from an_control.policy.engine import JUMP_LIMIT
from an_control.policy.model_file import Model
from an_control.policy.onnx_file import INSTALL
from an_control.policy.onnx_layout import PREVIOUS
from an_control.policy.packed_weights import MAX_LOG, convert_to_float64
from an_control.policy.sizes import AttentionSizes, MlpSizes

OPSET, IR_VERSION = 17, 8
"""Versions of the operators and of the file format, from 2022; every onnxruntime since 1.12 can
read them."""
F32, F64 = np.float32, np.float64


def convert_model_to_onnx_bytes(model: Model) -> bytes:
    """Return the content of an ONNX file that computes a policy.

    Its metadata has the keys that Isaac Lab writes.

    Args:
        model: The policy, whose task must name the channels.

    Raises:
        ValueError: The policy has parts that cannot be written as ONNX, or names no channels.
    """
    try:
        import onnx
    except ImportError:
        raise ValueError(INSTALL) from None
    channels, sizes = model.task.channels, model.sizes
    if not channels:
        raise ValueError("names no channels, so their order is not known (task.channels)")
    for name in (*channels, *model.task.actuators):
        if "," in name:
            raise ValueError(f"{name!r}: metadata are separated by commas, so no name may have one")
    graph = OnnxGraphBuilder(onnx)
    if isinstance(sizes, MlpSizes):
        seen = graph.add_input("obs", (1, len(channels)))
        graph.add_output("actions", _add_head_nodes(graph, model, seen), (1, sizes.actions))
        observations = list(channels)
    elif isinstance(sizes, AttentionSizes) and sizes.can_be_compiled:
        _NeuronWriter(graph, model, sizes, len(channels)).add_policy_nodes()
        observations = [*channels, PREVIOUS]
    else:
        parts = "sizes.encoder, pma attention, sizes.recurrence, image patches or a foreign network"
        raise ValueError(f"a policy of kind {model.kind} with {parts} cannot be written as ONNX")
    numbered = [f"action.{number}" for number in range(sizes.actions)]
    metadata = {
        "observation_names": ",".join(observations),
        "joint_names": ",".join(model.task.actuators or numbered),
        "action_limit": "1",
        "task": model.task.name,
        "step_s": str(model.task.step_s or ""),
    }
    return graph.to_bytes({key: text for key, text in metadata.items() if text})


class OnnxGraphBuilder:
    """A builder of an ONNX graph, in which each value is represented by its name.

    Args:
        onnx: The module `onnx`.
    """

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._tensors: dict[bytes, Any] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node to the graph, and return the name of its output.

        Args:
            operator: The ONNX operator, such as "Add".
            *inputs: Names of values, or numbers and arrays, which become float64 constants.
            **attributes: The attributes of the operator.
        """
        names = [one if isinstance(one, str) else self.add_constant(one) for one in inputs]
        output = f"v{len(self._nodes)}"
        node = self._onnx.helper.make_node(operator, names, [output], **attributes)
        self._nodes.append(node)
        return output

    def add_constant(self, value: Any, kind: Any = F64) -> str:
        """Add a constant to the graph, and return its name.

        Args:
            value: A number or an array.
            kind: The numpy type of the constant's numbers.
        """
        array = np.ascontiguousarray(value, kind).reshape(np.shape(value))
        key = array.tobytes() + repr((array.shape, array.dtype)).encode()
        if key not in self._tensors:
            name = f"c{len(self._tensors)}"
            self._tensors[key] = self._onnx.numpy_helper.from_array(array, name)
        return str(self._tensors[key].name)

    def add_integer_constant(self, *values: int) -> str:
        """Add a constant of integers to the graph, and return its name."""
        return self.add_constant(np.array(values), np.int64)

    def add_cast(self, value: str, kind: Any) -> str:
        """Add a node that converts a value to another type, and return the name of its output.

        Args:
            value: The name of the value.
            kind: The numpy type, float32 or float64.
        """
        types = self._onnx.TensorProto
        return self("Cast", value, to={F32: types.FLOAT, F64: types.DOUBLE}[kind])

    def add_input(self, name: str, shape: Sequence[int]) -> str:
        """Add a float32 input to the graph, and return the name of its conversion to float64.

        Args:
            name: The name of the input.
            shape: Its shape.
        """
        info = self._onnx.helper.make_tensor_value_info
        self._inputs.append(info(name, self._onnx.TensorProto.FLOAT, list(shape)))
        return self.add_cast(name, F64)

    def add_output(self, name: str, value: str, shape: Sequence[int]) -> None:
        """Make a value of the graph one of its outputs, as float32.

        Args:
            name: The name that the output gets.
            value: The name of the value in the graph.
            shape: The shape of the value.
        """
        info = self._onnx.helper.make_tensor_value_info
        self._outputs.append(info(name, self._onnx.TensorProto.FLOAT, list(shape)))
        single = self.add_cast(value, F32)
        self._nodes.append(self._onnx.helper.make_node("Identity", [single], [name]))

    def add_column_slice(self, value: str, first: int, end: int) -> str:
        """Add a node that slices columns out of a matrix, and return the name of its output.

        Args:
            value: The name of the matrix.
            first: The first column.
            end: The column after the last one.
        """
        return self("Slice", value, *map(self.add_integer_constant, (first, end, 1)))

    def add_logistic(self, x: str) -> str:
        """Add the nodes of 1 / (1 + e^-x) for the value named `x`; return the output's name."""
        return self("Add", self("Mul", self("Tanh", self("Mul", x, 0.5)), 0.5), 0.5)

    def add_sum_over_rows(self, value: str) -> str:
        """Add a node that sums all rows (channels) of a matrix; return the name of its output.

        The output has one row.

        Args:
            value: The name of the matrix.
        """
        return self("ReduceSum", value, self.add_integer_constant(0), keepdims=1)

    def to_bytes(self, metadata: Mapping[str, str]) -> bytes:
        """Return the graph as the content of an ONNX file.

        Args:
            metadata: Texts by key that are stored in the file.
        """
        helper = self._onnx.helper
        tensors = list(self._tensors.values())
        graph = helper.make_graph(self._nodes, "policy", self._inputs, self._outputs, tensors)
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
        )
        helper.set_model_props(model, dict(metadata))
        self._onnx.checker.check_model(model, full_check=True)
        content: bytes = model.SerializeToString()
        return content


def _add_head_nodes(graph: OnnxGraphBuilder, model: Model, x: str) -> str:
    """Add the nodes of the head to the graph; return the name of their output.

    The head is the network from the attention message to the action.

    Args:
        graph: The graph.
        model: The policy, whose head is written (see `mlp.ActionHead`).
        x: The name of the head's input.
    """
    sizes, array = model.sizes, convert_to_float64(model.arrays)
    assert isinstance(sizes, AttentionSizes | MlpSizes)
    for layer in range(len(sizes.head) + 1):
        weight, bias = (array[f"head.{layer}.{what}"] for what in ("weight", "bias"))
        x = graph("Add", graph("MatMul", x, weight.T), bias[None])
        last = layer == len(sizes.head)
        if (sizes.output if last else sizes.activation) == "tanh":
            x = graph("Tanh", x)
        elif last:
            x = graph("Clip", x, -1.0, 1.0)
        else:
            x = graph("Relu", x)
    return x


class _NeuronWriter:
    """A writer of an AttentionNeuron as an ONNX graph.

    Its methods add the computations of `reference_engine.ReferenceEngine` as nodes. A recurrent
    state of the policy is an input and an output of the graph, and starts as zeros. The state
    `started` is 0 in the first tick, which has no earlier reading, and 1 from the second tick on.

    Args:
        graph: The graph that is written.
        model: The policy.
        sizes: Its sizes.
        count: The number N of channels.
    """

    def __init__(
        self, graph: OnnxGraphBuilder, model: Model, sizes: AttentionSizes, count: int
    ) -> None:
        self._g, self._model, self._sizes, self._count = graph, model, sizes, count
        self._array = convert_to_float64(model.arrays)
        self._states: dict[str, tuple[str, tuple[int, int]]] = {}

    def add_policy_nodes(self) -> None:
        """Add the nodes of the whole policy to the graph, with its inputs and outputs."""
        g, sizes, count = self._g, self._sizes, self._count
        seen = g.add_input("obs", (1, count + sizes.actions))
        self._values = g("Transpose", g.add_column_slice(seen, 0, count))  # (N, 1)
        self._previous = g.add_column_slice(seen, count, count + sizes.actions)  # (1, A)
        self._started = self._add_recurrent_state("started", (1, 1))
        self._set_next_state("started", g("Add", g("Mul", self._started, 0.0), 1.0))
        self._kept = self._started  # 0 if the neurons are reset
        if sizes.reset_on_jump:
            self._add_reset_on_jump_nodes()
        outputs = self._add_stacked_neuron_nodes() if sizes.stack else self._add_lstm_nodes()
        if sizes.memory:
            self._add_nodes_of_memory_and_expected_readings()
        attention = self._add_attention_nodes(outputs)
        message, total_attention = self._add_message_sum_nodes(attention)
        x = message
        if sizes.memory:
            assert total_attention is not None
            x = self._add_expectation_correction_nodes(message, total_attention)
        elif total_attention is not None:
            x = g("Concat", message, g("Sub", total_attention, 1.0), axis=1)
        g.add_output("actions", _add_head_nodes(g, self._model, x), (1, sizes.actions))
        for name, (value, shape) in self._states.items():
            g.add_output(f"{name}_out", value, shape)

    def _add_recurrent_state(self, name: str, shape: tuple[int, int]) -> str:
        """Add a recurrent state to the graph; return the name of its value after the previous tick.

        Args:
            name: The name of the state.
            shape: Its shape.
        """
        self._states[name] = "", shape
        return self._g.add_input(f"{name}_in", shape)

    def _set_next_state(self, name: str, value: str) -> None:
        """Define which value of the graph is a state's value after this tick.

        Args:
            name: The name of the state.
            value: The name of the value.
        """
        self._states[name] = value, self._states[name][1]

    def _add_reset_on_jump_nodes(self) -> None:
        """Add the nodes that reset all neurons if most readings change abruptly."""
        g, count = self._g, self._count
        last = self._add_recurrent_state("jump_reading", (count, 1))
        usual = self._add_recurrent_state("usual_jump", (count, 1))
        self._set_next_state("jump_reading", self._values)
        change = g("Mul", g("Abs", g("Sub", self._values, last)), self._started)
        jump = g("Min", change, 1.0)
        more = g("Sub", g("Mul", jump, 2.0), usual)
        self._set_next_state("usual_jump", g("Add", usual, g("Mul", more, 0.1)))
        excess = g.add_sum_over_rows(g("Relu", g("Sub", jump, usual)))  # (1, 1)
        stays = g("LessOrEqual", excess, JUMP_LIMIT * count)
        self._kept = g("Where", stays, self._started, np.zeros((1, 1)))

    def _add_input_sum_nodes(self, inputs: Sequence[str], recurrent: str | None) -> str:
        """Add to the ONNX graph the nodes that compute each neuron's weighted sums of its inputs.

        Args:
            inputs: The names of the inputs (N, 1) that each neuron gets from its channel.
            recurrent: The name of the weighted sums (N, U) of the neurons' own outputs, which are
                added; None if there are none.

        Returns:
            The name of the result (N, U): U sums for each of N neurons.
        """
        g, array = self._g, self._array
        common = g("MatMul", self._previous, array["neuron.action"].T)
        drive = g("Add", common, array["neuron.bias"][None])  # (1, U)
        if recurrent is not None:
            drive = g("Add", drive, recurrent)
        for feature, value in enumerate(inputs):
            weight: Any = array["neuron.input"][:, feature][None]
            if self._sizes.products:
                products = array["neuron.products"][:, feature]  # (U, A)
                weight = g("Add", g("MatMul", self._previous, products.T), weight)
            drive = g("Add", drive, g("Mul", value, weight))
        return drive

    def _add_stacked_neuron_nodes(self) -> str:
        """Add the nodes of neurons on stacked readings; return the name of their outputs (N, d)."""
        g, count = self._g, self._count
        lasting = g("Sub", np.ones((1, 1)), self._kept)
        inputs = [self._values]
        for age in range(1, self._sizes.stack):
            before = self._add_recurrent_state(f"reading_{age}", (count, 1))
            fresh = g("Mul", self._values, lasting)
            inputs.append(g("Add", g("Mul", before, self._kept), fresh))
        for age in range(1, self._sizes.stack):
            self._set_next_state(f"reading_{age}", inputs[age - 1])
        return g("Tanh", self._add_input_sum_nodes(inputs, None))

    def _add_lstm_nodes(self) -> str:
        """Add the nodes of LSTM neurons; return the name of their outputs (N, d)."""
        g, count, d = self._g, self._count, self._sizes.neuron
        hidden = self._add_recurrent_state("neuron", (count, d))
        cells = self._add_recurrent_state("cell", (count, d))
        hidden, cells = g("Mul", hidden, self._kept), g("Mul", cells, self._kept)
        inputs = [self._values]
        if self._sizes.inputs_per_neuron > 1:
            last = self._add_recurrent_state("reading", (count, 1))
            self._set_next_state("reading", self._values)
            inputs.append(g("Mul", g("Sub", self._values, last), self._kept))
        recurrent = g("MatMul", hidden, self._array["neuron.hidden"].T)
        sums = self._add_input_sum_nodes(inputs, recurrent)
        enter, forget, candidate, leave = (
            g.add_column_slice(sums, gate * d, (gate + 1) * d) for gate in range(4)
        )
        kept = g("Mul", g.add_logistic(forget), cells)
        cells = g("Add", kept, g("Mul", g.add_logistic(enter), g("Tanh", candidate)))
        outputs = g("Mul", g.add_logistic(leave), g("Tanh", cells))
        self._set_next_state("neuron", outputs)
        self._set_next_state("cell", cells)
        return outputs

    def _add_nodes_of_memory_and_expected_readings(self) -> None:
        """Add the nodes that advance the head's memory and compute the readings that it expects."""
        g, array, n, units = self._g, self._array, self._sizes.queries - 1, self._sizes.memory
        before = self._add_recurrent_state("memory", (1, units))
        seen = self._add_recurrent_state("seen", (1, n))
        share = self._add_recurrent_state("share", (1, n))
        lately = g("Concat", seen, share, self._previous, axis=1)
        entering = g("MatMul", lately, array["memory.input"].T)
        entering = g("Add", entering, array["memory.bias"][None])
        own = g("MatMul", before, array["memory.hidden"].T)
        x, h = (
            [g.add_column_slice(one, gate * units, (gate + 1) * units) for gate in range(3)]
            for one in (entering, own)
        )
        reset, update = (g.add_logistic(g("Add", x[gate], h[gate])) for gate in range(2))
        inner = g("Add", h[2], array["memory.hidden_bias"][None])
        new = g("Tanh", g("Add", x[2], g("Mul", reset, inner)))
        rest = g("Mul", g("Sub", np.ones((1, 1)), update), new)
        self._units = g("Add", rest, g("Mul", update, before))
        self._set_next_state("memory", self._units)
        known = g("Concat", self._units, lately, axis=1)
        expected = g("MatMul", known, array["expectation.weight"].T)
        self._expected = g("Add", expected, array["expectation.bias"][None])

    def _add_attention_nodes(self, outputs: str) -> str:
        """Add the nodes that compute the attention; return the name of its weights (N, M).

        Args:
            outputs: The name of the neurons' outputs (N, d).
        """
        g, array, sizes = self._g, self._array, self._sizes
        queries = array["attention.queries"] @ array["attention.key"]
        bias = array["attention.queries"] @ array["attention.key_bias"]
        scores = g("Add", g("MatMul", outputs, queries.T), bias[None])
        if sizes.attention == "tanh":
            return g("Tanh", scores)
        if sizes.prediction_attention:
            none = np.zeros((self._count, 1))
            scores = g(
                "Add", scores, g("Concat", self._add_identity_evidence_nodes(), none, axis=1)
            )
        shares = g("Softmax", scores, axis=1)
        return g("Mul", shares, shares) if sizes.memory else shares

    def _add_identity_evidence_nodes(self) -> str:
        """Add the nodes that compute which channel's signal each reading is likely to be.

        Each of the n queries stands for one channel of the model. The evidence for a reading and a
        query grows with each tick in which the reading is near to the one expected of the query's
        channel, and fades slowly.

        Returns:
            The name of the output, a matrix (N, n) of the evidence for N readings and n queries.
        """
        g, n = self._g, self._sizes.queries - 1
        width, loss, gain, keep = (one[None] for one in self._array["attention.prediction"])
        before = g("Mul", self._add_recurrent_state("evidence", (self._count, n)), self._kept)
        difference = g("Sub", self._values, self._expected)
        wide = np.exp(np.minimum(width, MAX_LOG))
        error = g("Mul", g("Mul", difference, difference), wide)
        share = g("Div", error, g("Add", error, 1.0))
        fading = g("Mul", before, 0.5 * np.tanh(0.5 * keep) + 0.5)
        evidence = g("Sub", g("Add", fading, gain), g("Mul", share, loss))
        self._set_next_state("evidence", evidence)
        return evidence

    def _add_message_sum_nodes(self, attention: str) -> tuple[str, str | None]:
        """Add the sums over channels that make up the attention message; return their names.

        Args:
            attention: The name of the attention weights.

        Returns:
            A pair: the name of the sum of the readings weighted by attention (for tanh attention,
            of its tanh), and the name of the sum of the attention (None for tanh attention). Both
            sums are matrices with one row.
        """
        g, sizes, normalise = self._g, self._sizes, self._sizes.normalise
        total = g.add_sum_over_rows(g("Mul", attention, self._values))
        if sizes.attention == "tanh":
            if normalise:
                total = g("Mul", total, normalise / self._count)
            return g("Tanh", total), None
        n = sizes.queries - 1
        total_attention = g.add_column_slice(g.add_sum_over_rows(attention), 0, n)
        total = g.add_column_slice(total, 0, n)
        if normalise:
            total = g("Div", total, g("Max", total_attention, 1.0))
            total_attention = g("Min", total_attention, 1.0)
        return total, total_attention

    def _add_expectation_correction_nodes(
        self, weighted_readings: str, total_attention: str
    ) -> str:
        """Add the nodes that correct the memory's expected readings by this tick's readings.

        Args:
            weighted_readings: The name of the sums, over channels, of attention times reading.
            total_attention: The name of the sums, over channels, of attention.

        Returns:
            The name of the head's input: the corrected readings, then the units of the memory.
        """
        g = self._g
        share = g("Min", total_attention, 1.0)
        news = g(
            "Sub",
            g("Div", weighted_readings, g("Max", total_attention, 1.0)),
            g("Mul", share, self._expected),
        )
        trusted, trusted_share = news, share
        if self._sizes.outlier_weighting:
            logs = np.minimum(self._array["memory.log_outlier_weight"], MAX_LOG)
            doubt = g("Mul", g("Mul", news, news), np.exp(logs)[None])
            trust = g("Div", np.ones((1, 1)), g("Add", doubt, 1.0))
            trusted, trusted_share = g("Mul", trust, news), g("Mul", trust, share)
        seen = g("Add", self._expected, trusted)
        self._set_next_state("seen", seen)
        self._set_next_state("share", trusted_share)
        return g("Concat", seen, self._units, axis=1)
