"""Write one of our own policies as an ONNX network, for whoever runs these.

The network has a fixed set of channels in the task's order, and the neurons' state goes in and out.
It computes the equations of `reference`, in float64, on readings and states in float32. What it
loses: any order of the channels to the last bit, channels that come and go, attention to look at,
and the monitor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from an_control.policy.attention_neuron import JUMP_LIMIT
from an_control.policy.model_file import Model
from an_control.policy.onnx_file import INSTALL
from an_control.policy.onnx_layout import PREVIOUS
from an_control.policy.packed_weights import MAX_LOG
from an_control.policy.sizes import AttentionSizes, MlpSizes

OPSET, IR_VERSION = 17, 8
"""Of 2022: read by every onnxruntime since 1.12."""
F32, F64 = np.float32, np.float64


def export_onnx(model: Model) -> bytes:
    """Return the policy as the content of an ONNX file, with metadata as Isaac Lab writes it.

    Raises:
        ValueError: the policy has parts that this cannot write, or names no channels.
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
    graph = Graph(onnx)
    if isinstance(sizes, MlpSizes):
        seen = graph.input("obs", (1, len(channels)))
        graph.output("actions", _head(graph, model, seen), (1, sizes.actions))
        observations = list(channels)
    elif isinstance(sizes, AttentionSizes) and sizes.compiles:
        _Neurons(graph, model, sizes, len(channels)).write()
        observations = [*channels, PREVIOUS]
    else:
        parts = "sizes.encoder, pma attention, sizes.recurrence, image patches or a foreign network"
        raise ValueError(f"a policy of kind {model.kind} with {parts} cannot be written as ONNX")
    numbered = [f"action.{number}" for number in range(sizes.actions)]
    metadata = {
        "observation_names": ",".join(observations),
        "joint_names": ",".join(model.task.actuators or numbered),
        "task": model.task.name,
        "step_s": str(model.task.step_s or ""),
    }
    return graph.content({key: text for key, text in metadata.items() if text})


class Graph:
    """An ONNX graph that is written from its inputs to its outputs; values are names."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self._nodes: list[Any] = []
        self._tensors: dict[bytes, Any] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []

    def __call__(self, operator: str, *inputs: Any, **attributes: Any) -> str:
        """Add a node; an input may be a number or an array, which become float64 constants."""
        names = [one if isinstance(one, str) else self.constant(one) for one in inputs]
        output = f"v{len(self._nodes)}"
        node = self._onnx.helper.make_node(operator, names, [output], **attributes)
        self._nodes.append(node)
        return output

    def constant(self, value: Any, kind: Any = F64) -> str:
        """Return the name of a constant."""
        array = np.ascontiguousarray(value, kind).reshape(np.shape(value))
        key = array.tobytes() + repr((array.shape, array.dtype)).encode()
        if key not in self._tensors:
            name = f"c{len(self._tensors)}"
            self._tensors[key] = self._onnx.numpy_helper.from_array(array, name)
        return str(self._tensors[key].name)

    def integers(self, *values: int) -> str:
        """Return the name of a constant of integers."""
        return self.constant(np.array(values), np.int64)

    def cast(self, value: str, kind: Any) -> str:
        """Return the value as numbers of another type."""
        types = self._onnx.TensorProto
        return self("Cast", value, to={F32: types.FLOAT, F64: types.DOUBLE}[kind])

    def input(self, name: str, shape: Sequence[int]) -> str:
        """Add an input of float32; return it as float64."""
        info = self._onnx.helper.make_tensor_value_info
        self._inputs.append(info(name, self._onnx.TensorProto.FLOAT, list(shape)))
        return self.cast(name, F64)

    def output(self, name: str, value: str, shape: Sequence[int]) -> None:
        """Let a value be an output, as float32."""
        info = self._onnx.helper.make_tensor_value_info
        self._outputs.append(info(name, self._onnx.TensorProto.FLOAT, list(shape)))
        single = self.cast(value, F32)
        self._nodes.append(self._onnx.helper.make_node("Identity", [single], [name]))

    def columns(self, value: str, first: int, end: int) -> str:
        """Return columns of a matrix."""
        return self("Slice", value, *map(self.integers, (first, end, 1)))

    def logistic(self, x: str) -> str:
        """Return 1 / (1 + e^-x)."""
        return self("Add", self("Mul", self("Tanh", self("Mul", x, 0.5)), 0.5), 0.5)

    def sum_rows(self, value: str) -> str:
        """Return the sum over the channels, a row."""
        return self("ReduceSum", value, self.integers(0), keepdims=1)

    def content(self, metadata: Mapping[str, str]) -> bytes:
        """Return the whole as a file's content."""
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


def _head(graph: Graph, model: Model, x: str) -> str:
    """Add the network from the message to the action; see `mlp.Head`."""
    sizes, array = model.sizes, _double(model)
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


def _double(model: Model) -> dict[str, np.ndarray]:
    return {name: value.astype(F64) for name, value in model.arrays.items()}


class _Neurons:
    """Writes an AttentionNeuron of N channels; each method is one of `reference.Reference`.

    States start as zeros; `started` is 1 from the second tick on, where there is a reading before.
    """

    def __init__(self, graph: Graph, model: Model, sizes: AttentionSizes, count: int) -> None:
        self._g, self._model, self._sizes, self._count = graph, model, sizes, count
        self._array = _double(model)
        self._states: dict[str, tuple[str, tuple[int, int]]] = {}

    def write(self) -> None:
        """Write it from inputs to outputs."""
        g, sizes, count = self._g, self._sizes, self._count
        seen = g.input("obs", (1, count + sizes.actions))
        self._values = g("Transpose", g.columns(seen, 0, count))  # (N, 1)
        self._previous = g.columns(seen, count, count + sizes.actions)  # (1, A)
        self._started = self._state("started", (1, 1))
        self._next("started", g("Add", g("Mul", self._started, 0.0), 1.0))
        self._kept = self._started  # 0 where the neurons start anew
        if sizes.reset_on_jump:
            self._reset_on_jump()
        outputs = self._stacked() if sizes.stack else self._lstm()
        if sizes.memory:
            self._expect()
        attention = self._attend(outputs)
        message, mass = self._message(attention)
        x = message
        if sizes.memory:
            assert mass is not None
            x = self._correct(message, mass)
        elif mass is not None:
            x = g("Concat", message, g("Sub", mass, 1.0), axis=1)
        g.output("actions", _head(g, self._model, x), (1, sizes.actions))
        for name, (value, shape) in self._states.items():
            g.output(f"{name}_out", value, shape)

    def _state(self, name: str, shape: tuple[int, int]) -> str:
        """Return a state as it was after the last tick."""
        self._states[name] = "", shape
        return self._g.input(f"{name}_in", shape)

    def _next(self, name: str, value: str) -> None:
        """Let a state be this after the tick."""
        self._states[name] = value, self._states[name][1]

    def _reset_on_jump(self) -> None:
        g, count = self._g, self._count
        last, usual = self._state("jump_reading", (count, 1)), self._state("usual_jump", (count, 1))
        self._next("jump_reading", self._values)
        change = g("Mul", g("Abs", g("Sub", self._values, last)), self._started)
        jump = g("Min", change, 1.0)
        more = g("Sub", g("Mul", jump, 2.0), usual)
        self._next("usual_jump", g("Add", usual, g("Mul", more, 0.1)))
        excess = g.sum_rows(g("Relu", g("Sub", jump, usual)))  # (1, 1)
        stays = g("LessOrEqual", excess, JUMP_LIMIT * count)
        self._kept = g("Where", stays, self._started, np.zeros((1, 1)))

    def _drive(self, inputs: Sequence[str], recurrent: str | None) -> str:
        """Return the sums (N, U) of what enters the neurons."""
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

    def _stacked(self) -> str:
        """Return the outputs (N, d) of neurons on stacked readings, the newest first."""
        g, count = self._g, self._count
        lasting = g("Sub", np.ones((1, 1)), self._kept)
        inputs = [self._values]
        for age in range(1, self._sizes.stack):
            before = self._state(f"reading_{age}", (count, 1))
            fresh = g("Mul", self._values, lasting)
            inputs.append(g("Add", g("Mul", before, self._kept), fresh))
        for age in range(1, self._sizes.stack):
            self._next(f"reading_{age}", inputs[age - 1])
        return g("Tanh", self._drive(inputs, None))

    def _lstm(self) -> str:
        """Return the outputs (N, d) of LSTM neurons."""
        g, count, d = self._g, self._count, self._sizes.neuron
        hidden, cells = self._state("neuron", (count, d)), self._state("cell", (count, d))
        hidden, cells = g("Mul", hidden, self._kept), g("Mul", cells, self._kept)
        inputs = [self._values]
        if self._sizes.features > 1:
            last = self._state("reading", (count, 1))
            self._next("reading", self._values)
            inputs.append(g("Mul", g("Sub", self._values, last), self._kept))
        recurrent = g("MatMul", hidden, self._array["neuron.hidden"].T)
        sums = self._drive(inputs, recurrent)
        enter, forget, candidate, leave = (
            g.columns(sums, gate * d, (gate + 1) * d) for gate in range(4)
        )
        kept = g("Mul", g.logistic(forget), cells)
        cells = g("Add", kept, g("Mul", g.logistic(enter), g("Tanh", candidate)))
        outputs = g("Mul", g.logistic(leave), g("Tanh", cells))
        self._next("neuron", outputs)
        self._next("cell", cells)
        return outputs

    def _expect(self) -> None:
        """Advance the memory, and compute the readings that it expects."""
        g, array, n, units = self._g, self._array, self._sizes.queries - 1, self._sizes.memory
        before = self._state("memory", (1, units))
        seen, share = self._state("seen", (1, n)), self._state("share", (1, n))
        lately = g("Concat", seen, share, self._previous, axis=1)
        entering = g("MatMul", lately, array["memory.input"].T)
        entering = g("Add", entering, array["memory.bias"][None])
        own = g("MatMul", before, array["memory.hidden"].T)
        x, h = (
            [g.columns(one, gate * units, (gate + 1) * units) for gate in range(3)]
            for one in (entering, own)
        )
        reset, update = (g.logistic(g("Add", x[gate], h[gate])) for gate in range(2))
        inner = g("Add", h[2], array["memory.hidden_bias"][None])
        new = g("Tanh", g("Add", x[2], g("Mul", reset, inner)))
        rest = g("Mul", g("Sub", np.ones((1, 1)), update), new)
        self._units = g("Add", rest, g("Mul", update, before))
        self._next("memory", self._units)
        known = g("Concat", self._units, lately, axis=1)
        expected = g("MatMul", known, array["expectation.weight"].T)
        self._expected = g("Add", expected, array["expectation.bias"][None])

    def _attend(self, outputs: str) -> str:
        """Return the attention (N, M)."""
        g, array, sizes = self._g, self._array, self._sizes
        queries = array["attention.queries"] @ array["attention.key"]
        bias = array["attention.queries"] @ array["attention.key_bias"]
        scores = g("Add", g("MatMul", outputs, queries.T), bias[None])
        if sizes.attention == "tanh":
            return g("Tanh", scores)
        if sizes.prediction_attention:
            none = np.zeros((self._count, 1))
            scores = g("Add", scores, g("Concat", self._evidence(), none, axis=1))
        shares = g("Softmax", scores, axis=1)
        return g("Mul", shares, shares) if sizes.memory else shares

    def _evidence(self) -> str:
        """Return each channel's evidence for each query (N, n), which fades."""
        g, n = self._g, self._sizes.queries - 1
        width, loss, gain, keep = (one[None] for one in self._array["attention.prediction"])
        before = g("Mul", self._state("evidence", (self._count, n)), self._kept)
        difference = g("Sub", self._values, self._expected)
        wide = np.exp(np.minimum(width, MAX_LOG))
        error = g("Mul", g("Mul", difference, difference), wide)
        share = g("Div", error, g("Add", error, 1.0))
        fading = g("Mul", before, 0.5 * np.tanh(0.5 * keep) + 0.5)
        evidence = g("Sub", g("Add", fading, gain), g("Mul", share, loss))
        self._next("evidence", evidence)
        return evidence

    def _message(self, attention: str) -> tuple[str, str | None]:
        """Return the sums (1, .) of the readings, and under softmax those of the attention."""
        g, sizes, normalise = self._g, self._sizes, self._sizes.normalise
        total = g.sum_rows(g("Mul", attention, self._values))
        if sizes.attention == "tanh":
            if normalise:
                total = g("Mul", total, normalise / self._count)
            return g("Tanh", total), None
        n = sizes.queries - 1
        mass = g.columns(g.sum_rows(attention), 0, n)
        total = g.columns(total, 0, n)
        if normalise:
            total, mass = g("Div", total, g("Max", mass, 1.0)), g("Min", mass, 1.0)
        return total, mass

    def _correct(self, total: str, mass: str) -> str:
        """Return the head's input: what was expected, corrected by what is read."""
        g = self._g
        share = g("Min", mass, 1.0)
        news = g("Sub", g("Div", total, g("Max", mass, 1.0)), g("Mul", share, self._expected))
        trusted, trusted_share = news, share
        if self._sizes.outlier_weighting:
            logs = np.minimum(self._array["memory.log_outlier_weight"], MAX_LOG)
            doubt = g("Mul", g("Mul", news, news), np.exp(logs)[None])
            trust = g("Div", np.ones((1, 1)), g("Add", doubt, 1.0))
            trusted, trusted_share = g("Mul", trust, news), g("Mul", trust, share)
        seen = g("Add", self._expected, trusted)
        self._next("seen", seen)
        self._next("share", trusted_share)
        return g("Concat", seen, self._units, axis=1)
