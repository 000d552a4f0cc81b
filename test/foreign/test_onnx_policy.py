"""An ONNX file of another tool acts behind the calls of our own policies."""

import os
import subprocess
import sys
import time
from collections import deque

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from foreign.networks import CHANNELS, NAMED, floats, linear, recurrent, save, weights
from onnx import TensorProto, helper

from an_control import load_policy
from an_control.policy import ModelError, read_model
from an_control.policy.onnx_layout import NetworkInterface, read_network_layout
from an_control.policy.task import Task

JOINTS = {
    "joint_names": "hip,knee",
    "default_joint_pos": "0.5,-1.0",
    "action_scale": "0.25,0.5",
    "observation_names": "base_ang_vel,projected_gravity,joint_pos,joint_vel,actions,command",
    "joint_stiffness": "20.0,20.0",
    "run_path": "somebody/runs/1",
}
"""Metadata as Isaac Lab and mjlab write it; 3 + 3 + 2 + 2 + 2 + 3 inputs."""
ISAAC = [
    *(f"base_ang_vel.{axis}" for axis in "xyz"),
    *(f"projected_gravity.{axis}" for axis in "xyz"),
    "hip.position", "knee.position", "hip.velocity", "knee.velocity",
    "command.0", "command.1", "command.2",
]  # fmt: skip


def test_a_network_acts_as_its_equations_say(tmp_path):
    policy = load_policy(save(tmp_path, linear()))
    w, b = weights(3, 2)
    for values in np.random.default_rng(1).normal(size=(20, 3)):
        expected = np.tanh(values.astype(np.float32) @ w + b)
        np.testing.assert_allclose(policy.step_array(values, CHANNELS), expected, atol=1e-6)
    assert policy.nominal_ids == CHANNELS
    assert policy.engine == "onnxruntime"
    assert not policy.permutation_invariant
    assert policy.attention is None


def test_readings_are_put_into_the_order_of_the_network(tmp_path):
    policy = load_policy(save(tmp_path, linear()))
    expected = policy.step_array(np.array([1.0, 2.0, 3.0]), CHANNELS)
    np.testing.assert_array_equal(policy.step({"c": 3.0, "x": 9.0, "a": 1.0, "b": 2.0}), expected)
    np.testing.assert_array_equal(policy.step_array([2, 1, 3], ["b", "a", "c"]), expected)


@pytest.mark.parametrize("broken", [np.nan, np.inf, 1e30, 1e300])
def test_a_missing_reading_reads_as_it_did_last(tmp_path, broken):
    policy = load_policy(save(tmp_path, linear()))
    zero = policy.step({"a": 1.0, "b": 0.0, "c": 3.0})
    policy.reset()
    np.testing.assert_array_equal(policy.step({"a": 1.0, "b": broken, "c": 3.0}), zero)
    expected = policy.step({"a": 1.0, "b": 2.0, "c": 3.0})
    np.testing.assert_array_equal(policy.step({"a": 1.0, "c": 3.0}), expected)
    with pytest.raises(ValueError, match="'a' is given twice"):
        policy.step_array([1, 2, 3], ["a", "a", "c"])


def test_float64_networks_and_flat_inputs_are_taken(tmp_path):
    network = linear(shape=[3])
    for value in (*network.graph.input, *network.graph.output):
        value.type.tensor_type.elem_type = TensorProto.FLOAT
    network.graph.output[0].type.tensor_type.shape.dim.pop(0)
    network.graph.output[0].type.tensor_type.shape.dim[0].dim_value = 2
    policy = load_policy(save(tmp_path, network))
    w, b = weights(3, 2)
    np.testing.assert_allclose(
        policy.step_array([1, 2, 3], CHANNELS), np.tanh([1, 2, 3] @ w + b), atol=1e-6
    )


def test_the_metadata_of_isaac_lab_decides_ids_offsets_and_scales(tmp_path):
    network = linear(15, 2, JOINTS, tanh=False)
    policy = load_policy(save(tmp_path, network, "action: {limit: 4.0}\n"))
    assert list(policy.nominal_ids) == ISAAC
    assert policy.model.task.actuators == ("hip", "knee")
    w, b = weights(15, 2)
    rng, previous = np.random.default_rng(2), np.zeros(2)
    for _ in range(10):
        reads = dict(zip(ISAAC, rng.normal(size=13), strict=True))
        values = list(reads.values())
        joints = [reads["hip.position"] - 0.5, reads["knee.position"] + 1.0]
        x = [*values[:6], *joints, *values[8:10], *previous, *values[10:]]
        raw = np.float32(x) @ w + b
        expected = np.clip(raw / 4.0, -1.0, 1.0)
        action = policy.step(reads)
        np.testing.assert_allclose(action, expected, atol=1e-6)
        previous = 4.0 * expected


def test_what_was_sent_instead_is_the_previous_action(tmp_path):
    names = {**NAMED, "observation_names": "a,actions"}
    policy = load_policy(save(tmp_path, linear(3, 2, names)))
    w, b = weights(3, 2)
    policy.step({"a": 0.3})
    policy.previous_action = np.array([0.5, -1.0])
    expected = np.tanh(np.float32([0.1, 0.5, -1.0]) @ w + b)
    np.testing.assert_allclose(policy.step({"a": 0.1}), expected, atol=1e-6)


def test_the_yaml_file_beside_it_says_what_the_metadata_lacks(tmp_path):
    yaml = """
step_s: 0.02
task: crawl
actuators: [left, right]
observation:
  - {channels: [imu.roll, imu.pitch], scale: 0.5, offset: [0.1, 0.2], clip: [-1, 1]}
  - {term: previous_action, scale: 2.0}
  - {term: phase, period_s: 0.5}
"""
    policy = load_policy(save(tmp_path, linear(6, 2, {}), yaml))
    w, b = weights(6, 2)
    previous = np.zeros(2)
    for tick in range(40):
        roll, pitch = 0.3 * tick, -0.1 * tick
        terms = np.clip([0.5 * roll + 0.1, 0.5 * pitch + 0.2], -1.0, 1.0)
        angle = 2.0 * np.pi * 0.02 * tick / 0.5
        x = np.float32([*terms, *(2.0 * previous), np.sin(angle), np.cos(angle)])
        expected = np.tanh(x @ w + b)
        action = policy.step({"imu.pitch": pitch, "imu.roll": roll})
        np.testing.assert_allclose(action, expected, atol=1e-6)
        previous = expected
    assert policy.model.task.step_s == 0.02
    assert policy.model.task.name == "crawl"


@pytest.mark.parametrize("by", ["term", "step"])
@pytest.mark.parametrize("newest", ["last", "first"])
@pytest.mark.parametrize("start", ["repeat", "zero"])
def test_a_history_has_the_order_that_the_file_says(tmp_path, by, newest, start):
    yaml = f"""
history: {{length: 5, by: {by}, newest: {newest}, start: {start}}}
observation:
  - {{channels: [a]}}
  - {{channels: [b, c]}}
"""
    shape = [1, 5, 3] if by == "step" else [1, 15]
    network = linear(15, 2) if by == "term" else _reshaping(shape)
    policy = load_policy(save(tmp_path, network, yaml))
    w, b = weights(15, 2)
    rng = np.random.default_rng(3)
    for _ in range(2):
        policy.reset()
        kept = deque(maxlen=5)
        for tick in range(12):
            now = rng.normal(size=3)
            if tick == 0:
                kept.extend([now if start == "repeat" else np.zeros(3)] * 5)
            kept.append(now)
            ticks = list(kept) if newest == "last" else list(kept)[::-1]
            parts = ticks if by == "step" else [[t[0] for t in ticks], *(t[1:] for t in ticks)]
            expected = np.tanh(np.concatenate(parts).astype(np.float32) @ w + b)
            np.testing.assert_allclose(policy.step_array(now, CHANNELS), expected, atol=1e-5)


def _reshaping(shape):
    """The linear network behind an input of another shape."""
    network = linear(15, 2)
    network.graph.input[0].CopyFrom(floats("many", shape))
    sizes = helper.make_tensor("to", TensorProto.INT64, [2], [1, 15])
    network.graph.initializer.extend([sizes])
    network.graph.node.insert(0, helper.make_node("Reshape", ["many", "to"], ["obs"]))
    return network


@pytest.mark.parametrize("names", [("h_in", "h_out"), ("hidden", "hidden_next")])
def test_a_recurrent_network_keeps_its_state_until_a_reset(tmp_path, names):
    yaml = None if names[0] == "h_in" else "states: {hidden: hidden_next}\n"
    policy = load_policy(save(tmp_path, recurrent(names=names), yaml))
    (w, _), (u, _), (v, _) = weights(3, 4, 1), weights(4, 4, 2), weights(4, 2, 3)
    rng = np.random.default_rng(4)
    for _ in range(2):
        policy.reset()
        h = np.zeros(4, np.float32)
        for values in rng.normal(size=(30, 3)).astype(np.float32):
            h = np.tanh(values @ w + h @ u)
            np.testing.assert_allclose(
                policy.step_array(values, CHANNELS), np.tanh(h @ v), atol=1e-5
            )


def test_an_output_that_is_not_finite_gives_no_action_and_spoils_no_state(tmp_path):
    network = recurrent()
    network.graph.node.insert(0, helper.make_node("Log", ["sensed"], ["obs"]))
    network.graph.input[0].name = "sensed"
    policy = load_policy(save(tmp_path, network))
    good = np.array([1.0, 2.0, 3.0])
    policy.step_array(good, CHANNELS)
    expected = policy.step_array(good, CHANNELS)
    policy.reset()
    policy.step_array(good, CHANNELS)
    assert np.isnan(policy.step_array(-good, CHANNELS)).all()
    np.testing.assert_array_equal(policy.step_array(good, CHANNELS), expected)


def test_it_runs_on_one_thread(tmp_path):
    code = (
        "import os, sys, numpy as np; from an_control import load_policy;"
        "import onnxruntime; before = len(os.listdir('/proc/self/task'));"
        "policy = load_policy(sys.argv[1]);"
        "[policy.step_array(np.ones(3), policy.nominal_ids) for _ in range(100)];"
        "print(len(os.listdir('/proc/self/task')) - before)"
    )
    path = save(tmp_path, linear())
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code, path],
        env=environment, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "0"


def test_onnxruntime_is_imported_only_for_an_onnx_file():
    code = (
        "import sys, an_control.cli, an_control.load;"
        "from an_control.system.share import find_share_path;"
        "an_control.load.load_policy(find_share_path('models/ant_teacher.safetensors'));"
        "print([one for one in sys.modules if one.startswith('onnx')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_without_the_packages_it_is_said_what_to_install(tmp_path, monkeypatch, package):
    path = save(tmp_path, linear())
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ModelError, match=r"pip install 'an_control\[onnx\]'"):
        load_policy(path)


def test_what_is_known_of_it_is_a_model(tmp_path):
    model = read_model(save(tmp_path, linear()))
    assert model.kind == "foreign"
    assert (model.sizes.channels, model.sizes.actions) == (3, 2)
    assert model.parameter_count == 3 * 2 + 2
    assert model.task == Task(channels=("a", "b", "c"), actuators=("left", "right"))


@pytest.mark.parametrize(
    ("names", "defaults", "yaml", "offset"),
    [
        ("hip,knee", "0.5,-1.0", "actuators: [knee, hip]\n", (-1.0, 0.5)),
        ("arm,hip,knee", "0.3,0.5,-1.0", "actuators: [hip, knee]\n", (0.5, -1.0)),
        ("hip,knee", "0.5,-1.0", "actuators: [hip_motor, knee_motor]\n", (0.5, -1.0)),
    ],
)
def test_each_actuator_gets_the_default_position_of_its_own_joint(
    tmp_path, names, defaults, yaml, offset
):
    metadata = {**JOINTS, "joint_names": names, "default_joint_pos": defaults}
    metadata["observation_names"] = "joint_pos"
    network = linear(names.count(",") + 1, 2, metadata)
    policy = load_policy(save(tmp_path, network, f"{yaml}action: {{limit: 4.0}}\n"))
    assert policy.model.network.layout.action_offset == offset
    assert policy.model.network.layout.action_scale == (0.25, 0.5)


def test_the_time_to_read_a_layout_does_not_grow_with_the_square_of_its_channels(tmp_path):
    ids = tuple(f"c{i}" for i in range(16_000))
    layout = tmp_path / "policy.yaml"
    layout.write_text(
        "an_control_policy: 1\nactuators: [motor]\naction: {limit: 1.0}\n"
        f"observation: [{{channels: [{', '.join(ids)}]}}]\n"
    )
    begun_s = time.process_time()
    found = read_network_layout(NetworkInterface("policy.onnx", len(ids), 1, {}), str(layout))
    assert found.channels == ids
    assert time.process_time() - begun_s < 5.0  # it takes 0.1 s
