"""Small ONNX networks for tests, made by the onnx package alone."""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper

CHANNELS = ("a", "b", "c")
NAMED = {"observation_names": "a,b,c", "joint_names": "left,right"}


def floats(name, shape, kind=TensorProto.FLOAT):
    """An input or output; a length may be a name."""
    return helper.make_tensor_value_info(name, kind, shape)


def tensor(name, array):
    return numpy_helper.from_array(np.asarray(array, np.float32), name)


def model(nodes, inputs, outputs, tensors=(), metadata=None, opset=17, domains=()):
    graph = helper.make_graph(nodes, "policy", inputs, outputs, list(tensors))
    opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(one, 1) for one in domains)]
    found = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    helper.set_model_props(found, metadata or {})
    return found


def weights(inputs, outputs, seed=0, size=0.4):
    """A weight (inputs, outputs) and a bias."""
    rng = np.random.default_rng(seed)
    w, b = rng.normal(0.0, size, (inputs, outputs)), rng.normal(0.0, 0.1, outputs)
    return w.astype(np.float32), b.astype(np.float32)


def linear(inputs=3, outputs=2, metadata=NAMED, seed=0, shape=None, tanh=True, bias=None, **more):
    """A network of one layer: actions = tanh(obs @ w + b), or without tanh."""
    w, b = weights(inputs, outputs, seed)
    b = b if bias is None else np.asarray(bias, np.float32)
    nodes = [
        helper.make_node("MatMul", ["obs", "w"], ["x"]),
        helper.make_node("Add", ["x", "b"], ["y" if tanh else "actions"]),
    ]
    if tanh:
        nodes.append(helper.make_node("Tanh", ["y"], ["actions"]))
    return model(
        nodes,
        [floats("obs", ["batch", inputs] if shape is None else shape)],
        [floats("actions", ["batch", outputs])],
        [tensor("w", w), tensor("b", b)],
        metadata,
        **more,
    )


def recurrent(metadata=NAMED, names=("h_in", "h_out"), units=4):
    """h' = tanh(obs @ w + h @ u), actions = tanh(h' @ v)."""
    (w, _), (u, _), (v, _) = weights(3, units, 1), weights(units, units, 2), weights(units, 2, 3)
    before, after = names
    nodes = [
        helper.make_node("MatMul", ["obs", "w"], ["x"]),
        helper.make_node("MatMul", [before, "u"], ["r"]),
        helper.make_node("Add", ["x", "r"], ["s"]),
        helper.make_node("Tanh", ["s"], [after]),
        helper.make_node("MatMul", [after, "v"], ["y"]),
        helper.make_node("Tanh", ["y"], ["actions"]),
    ]
    return model(
        nodes,
        [floats("obs", [1, 3]), floats(before, ["batch", units])],
        [floats("actions", [1, 2]), floats(after, ["batch", units])],
        [tensor("w", w), tensor("u", u), tensor("v", v)],
        metadata,
    )


def save(folder: Path, network, yaml=None, name="policy.onnx"):
    """Write the network, and the YAML file beside it; the path."""
    path = folder / name
    path.write_bytes(network.SerializeToString())
    if yaml is not None:
        (folder / f"{path.stem}.policy.yaml").write_text(f"an_control_policy: 1\n{yaml}")
    return path
