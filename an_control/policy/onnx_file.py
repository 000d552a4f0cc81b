"""Read an untrusted ONNX file, with its operators, inputs and outputs, and what these mean.

Nothing in the file is executed here, and nothing is unpickled. An ONNX file may keep tensors in
other files; these are read only from the folder of the ONNX file itself.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from an_control.policy.onnx_layout import (
    NetworkInterface,
    NetworkLayout,
    get_policy_yaml_name,
    read_network_layout,
    read_state_observation_and_action_names,
)
from an_control.system.files import describe_read_error, open_regular_file

SUFFIX = ".onnx"
MAX_FILE_BYTES = 256 * 2**20
MIN_OPSET, MAX_DEPTH = 7, 16
DOMAINS = ("", "ai.onnx", "ai.onnx.ml", "com.microsoft")
"""The domains of the operators that every onnxruntime has."""
RANDOM = (
    *("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"),
    *("Bernoulli", "Multinomial"),
)
"""Operators with which neither a replay nor an episode with the same seed would be the same."""
ACTIONS = ("actions", "action")
"""The names by which the action is recognised if a network has several outputs."""
INSTALL = "needs the packages onnx and onnxruntime (pip install 'an_control[onnx]')"


class Tensor(NamedTuple):
    """An input or output of a network.

    Attributes:
        name: Its name.
        shape: Its shape for one robot.
        double: True if its numbers are float64, False if they are float32.
    """

    name: str
    shape: tuple[int, ...]
    double: bool

    @property
    def size(self) -> int:
        """The number of values that the tensor holds."""
        return math.prod(self.shape)


@dataclass(frozen=True)
class ForeignNetwork:
    """An ONNX network with the meaning of its inputs and outputs.

    Attributes:
        file: The path of the file.
        content: The ONNX model, with all its tensors.
        sha256: The hash of the file and of the other files that hold its tensors.
        parameters: The number of values in its tensors.
        opset: The version of its operators.
        observation: The input that is the observation.
        action: The output that is the action.
        states: The recurrent states, each a pair: an input, and the output that becomes the next
            value of this input.
        layout: The meaning of observation and action.
        tensor_files: The other files that hold its tensors, relative to the folder of the file.
    """

    file: str
    content: bytes
    sha256: str
    parameters: int
    opset: int
    observation: Tensor
    action: Tensor
    states: tuple[tuple[Tensor, Tensor], ...]
    layout: NetworkLayout
    tensor_files: tuple[str, ...]


def has_onnx_suffix(path: str | os.PathLike[str]) -> bool:
    """Return whether the name of a file ends in ``.onnx``."""
    return Path(path).suffix.lower() == SUFFIX


def get_monitor_path(path: str | os.PathLike[str]) -> Path:
    """Return the path of the model file beside an ONNX file that holds the policy's monitor."""
    path = Path(path)
    return path.with_name(f"{path.stem}.monitor.safetensors")


def list_policy_files(path: Path) -> list[Path]:
    """Return the paths of an ONNX file and of all files beside it that belong to its policy.

    These are the YAML file, the monitor, the student or the excitation, and files with tensors.

    Raises:
        ValueError: A file is not valid.
        OSError: A file cannot be read.
    """
    network = read_onnx_network(path)
    beside = {get_policy_yaml_name(path.name), get_monitor_path(path).name, *network.tensor_files}
    beside |= {network.layout.hand_over, network.layout.excitation} - {""}
    return [path, *(path.parent / name for name in sorted(beside) if (path.parent / name).exists())]


def read_onnx_network(path: Path) -> ForeignNetwork:
    """Read and check an ONNX file and the YAML file beside it.

    Args:
        path: The path of the ONNX file.

    Raises:
        ValueError: A file is not valid; the message says what is wrong and what to do.
        OSError: A file cannot be read.
    """
    content = _read_content(path)
    model = _parse_model(content)
    opset = _check_and_get_opset(model)
    sha256 = hashlib.sha256(content)
    if external := _read_external_tensors(model, path, sha256):
        content = model.SerializeToString()
    if len(content) > MAX_FILE_BYTES:
        raise ValueError(
            f"larger than {MAX_FILE_BYTES} bytes with its {len(external)} tensors outside"
        )
    yaml_file = Path(get_policy_yaml_name(str(path)))
    beside = str(yaml_file) if yaml_file.exists() else None
    observation, action, states = _find_observation_action_and_states(model.graph, beside)
    metadata = {one.key: one.value for one in model.metadata_props}
    network = NetworkInterface(str(path.name), observation.size, action.size, metadata)
    return ForeignNetwork(
        str(path),
        content,
        sha256.hexdigest(),
        sum(math.prod(one.dims) for one in model.graph.initializer),
        opset,
        observation,
        action,
        states,
        read_network_layout(network, beside),
        tuple(sorted(set(external))),
    )


def _read_content(path: Path) -> bytes:
    """Return the bytes of an ONNX file.

    Raises:
        ValueError: The file is too large, or is a zip archive or a pickle.
    """
    with open_regular_file(path) as file:
        if os.fstat(file.fileno()).st_size > MAX_FILE_BYTES:
            raise ValueError(f"larger than {MAX_FILE_BYTES} bytes, the maximum for a policy")
        content = file.readall()
    if content.startswith(b"PK\x03\x04"):
        raise ValueError(
            "a zip archive, not an ONNX file (an-control import converts those of"
            " Stable-Baselines3 and TorchScript)"
        )
    if len(content) > 1 and content[0] == 0x80 and content[1] <= 5:
        raise ValueError(
            "a pickle, not an ONNX file; it was not opened, as pickles can run any code"
        )
    return content


def _parse_model(content: bytes) -> Any:
    """Return the ONNX model in the bytes of a file.

    Raises:
        ValueError: The package onnx is not installed, or the bytes are not a model.
    """
    try:
        import onnx
    except ImportError:
        raise ValueError(INSTALL) from None
    try:
        model = onnx.load_model_from_string(content)
    except Exception as error:  # protobuf's DecodeError, and other errors of its readers
        reason = " ".join(str(error).split())
        raise ValueError(f"not an ONNX file, or truncated ({reason})") from None
    if not model.graph.node:
        raise ValueError("not an ONNX file, or an empty one: it has no operators")
    return model


def _check_and_get_opset(model: Any) -> int:
    """Check the operators of a model, and return their version (opset).

    Raises:
        ValueError: The version is unknown, or the model has custom or random operators.
    """
    import onnx

    newest = onnx.defs.onnx_opset_version()
    versions = {one.domain: one.version for one in model.opset_import}
    opset = versions.get("", versions.get("ai.onnx", 0))
    if not MIN_OPSET <= opset <= newest:
        raise ValueError(f"opset {opset}; allowed are {MIN_OPSET} to {newest}: export it again")
    own = {(one.domain, one.name) for one in model.functions}
    graphs = [model.graph, *model.functions]
    for graph in graphs:
        for node in _iterate_nodes(graph):
            if node.domain not in DOMAINS and (node.domain, node.op_type) not in own:
                raise ValueError(
                    f"operator {node.op_type} of {node.domain!r} is a custom one; allowed are"
                    " standard ones: export it again without it"
                )
            if node.op_type in RANDOM:
                raise ValueError(
                    f"operator {node.op_type} makes random actions: export the policy's mean or"
                    " most probable action"
                )
    return int(opset)


def _iterate_nodes(graph: Any, depth: int = 0) -> Iterator[Any]:
    """Yield every node of a graph, also of the graphs inside its nodes.

    Args:
        graph: The graph.
        depth: The number of graphs around it.

    Raises:
        ValueError: Too many graphs lie within each other.
    """
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} graphs within each other")
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                if inner.node:
                    yield from _iterate_nodes(inner, depth + 1)


def _read_external_tensors(model: Any, path: Path, sha256: Any) -> list[str]:
    """Read the tensors of a model that lie in other files; return the file of each one.

    Args:
        model: The model, which gets the tensors.
        path: The path of its file; the other files must lie in the same folder.
        sha256: The hash object that is updated by the tensors' bytes.

    Raises:
        ValueError: A tensor's file is elsewhere, missing, too large or not valid.
    """
    import onnx
    from onnx import external_data_helper as helper

    graphs, tensors = [model.graph], []
    sparse: list[Any] = []
    for owner in (model.graph, *model.functions):
        for node in _iterate_nodes(owner):
            for attribute in node.attribute:
                tensors += [attribute.t, *attribute.tensors]
                sparse += [attribute.sparse_tensor, *attribute.sparse_tensors]
                graphs += [attribute.g, *attribute.graphs]
    for graph in graphs:
        tensors += graph.initializer
        sparse += graph.sparse_initializer
    tensors += [part for one in sparse for part in (one.values, one.indices)]
    outside = [one for one in tensors if one.data_location == onnx.TensorProto.EXTERNAL]
    folder, size = path.resolve().parent, 0
    places = []
    for tensor in outside:
        place = {one.key: one.value for one in tensor.external_data}.get("location", "")
        file = (folder / place).resolve()
        if not place or not file.is_relative_to(folder):
            raise ValueError(
                f"tensor {tensor.name!r} lies in {place!r}, outside the folder of the file; allowed"
                " are files in it"
            )
        if not file.is_file():
            raise ValueError(f"tensor {tensor.name!r} lies in {place!r}, which is not a file there")
        size += math.prod(tensor.dims) * 8
        if size > 2 * MAX_FILE_BYTES or file.stat().st_size > MAX_FILE_BYTES:
            raise ValueError(f"tensors outside of more than {MAX_FILE_BYTES} bytes")
        try:
            helper.load_external_data_for_tensor(tensor, str(folder))
        except (OSError, ValueError, onnx.checker.ValidationError) as error:
            raise ValueError(f"tensor {tensor.name!r}: {describe_read_error(error)}") from error
        tensor.data_location = onnx.TensorProto.DEFAULT
        del tensor.external_data[:]
        sha256.update(tensor.raw_data)
        places.append(place)
    return places


def _find_observation_action_and_states(
    graph: Any, yaml_file: str | None
) -> tuple[Tensor, Tensor, tuple[tuple[Tensor, Tensor], ...]]:
    """Return the observation's and the action's tensor, and the states as (input, output) pairs.

    Args:
        graph: The graph of the network.
        yaml_file: The path of the YAML file that may name the tensors, or None.

    Raises:
        ValueError: It is not clear which tensor is which; the message says how to name them.
    """
    constants = {one.name for one in graph.initializer}
    inputs = {one.name: one for one in graph.input if one.name not in constants}
    outputs = {one.name: one for one in graph.output}
    states, observation, action = read_state_observation_and_action_names(yaml_file)
    for name in inputs:
        follower = f"{name.removesuffix('_in')}_out"
        if name.endswith("_in") and follower in outputs:
            states.setdefault(name, follower)
    for name, follower in states.items():
        if name not in inputs or follower not in outputs:
            raise ValueError(
                f"{yaml_file}: states: {name}: {follower}: the network has the inputs"
                f" {', '.join(inputs)} and the outputs {', '.join(outputs)}"
            )
    others = [one for one in inputs if one not in states]
    observation = observation or (others[0] if len(others) == 1 else None)
    if observation not in others or len(others) != 1:
        raise ValueError(
            f"inputs {', '.join(inputs)}: one must be the observation and all others states, which"
            " are named NAME_in with an output NAME_out, or in the YAML file under states"
        )
    left = [one for one in outputs if one not in states.values()]
    if action is None:
        named = [one for one in left if one in ACTIONS]
        action = left[0] if len(left) == 1 else named[0] if len(named) == 1 else None
    if action not in left:
        raise ValueError(
            f"outputs {', '.join(outputs)}: which one is the action? Say it in the YAML file, as in"
            " action: {output: 'NAME'}"
        )
    pairs = []
    for name, follower in states.items():
        pair = (
            _describe_tensor(inputs[name], "input"),
            _describe_tensor(outputs[follower], "output"),
        )
        if pair[0].shape != pair[1].shape:
            raise ValueError(
                f"state {name!r} has shape {list(pair[0].shape)}, but {follower!r}"
                f" {list(pair[1].shape)}"
            )
        pairs.append(pair)
    seen = _describe_tensor(inputs[observation], "input", only_robots_open=True)
    return seen, _describe_tensor(outputs[action], "output", only_robots_open=True), tuple(pairs)


def _describe_tensor(value: Any, role: str, *, only_robots_open: bool = False) -> Tensor:
    """Return the name, type and shape of an input or output of the graph.

    The shape is for one robot: each length that the network leaves open becomes 1.

    Args:
        value: The input or output in the graph.
        role: "input" or "output", for messages.
        only_robots_open: Whether the network may leave only the first length open, which is the
            number of robots.

    Raises:
        ValueError: The type or the shape is not allowed.
    """
    import onnx

    kind = value.type.tensor_type
    types = {onnx.TensorProto.FLOAT: False, onnx.TensorProto.DOUBLE: True}
    if kind.elem_type not in types:
        raise ValueError(f"{role} {value.name!r} is not a tensor of float32 or float64")
    shown = [one.dim_value or one.dim_param or "?" for one in kind.shape.dim]
    shape = tuple(one.dim_value if one.dim_value > 0 else 1 for one in kind.shape.dim)
    text = f"{role} {value.name!r} has shape [{', '.join(map(str, shown))}]"
    if only_robots_open:
        if not 1 <= len(shape) <= 3:
            raise ValueError(f"{text}; allowed are [numbers], [1, numbers] and [1, ticks, numbers]")
        if any(not one.dim_value for one in kind.shape.dim[1:]) or (
            len(shape) == 1 and not kind.shape.dim[0].dim_value
        ):
            raise ValueError(f"{text}: only its first length, the number of robots, may be open")
        if len(shape) > 1 and shape[0] != 1:
            raise ValueError(f"{text}: it is for {shape[0]} robots; export it for one")
    if math.prod(shape) > 2**20:
        raise ValueError(f"{text}: more than {2**20} numbers")
    return Tensor(value.name, shape, types[kind.elem_type])
