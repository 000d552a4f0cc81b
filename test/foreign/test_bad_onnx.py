"""Each bad ONNX file is refused in one line that says what is wrong and what to do."""

import io
import pickle
import re
import zipfile

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx
from foreign.networks import NAMED, floats, linear, model, recurrent, save
from onnx import external_data_helper, helper

from an_control import load_policy
from an_control.policy import ModelError


def without(*keys, **more):
    return {key: value for key, value in {**NAMED, **more}.items() if key not in keys}


NETWORKS = {
    "opset 99; allowed are 7 to": lambda: linear(opset=99),
    "opset 5; allowed are 7 to": lambda: linear(opset=5),
    r"operator Own of 'my.ops' is a custom one": lambda: model(
        [helper.make_node("Own", ["obs"], ["actions"], domain="my.ops")],
        [floats("obs", [1, 3])], [floats("actions", [1, 2])], (), NAMED, domains=["my.ops"],
    ),
    "operator RandomNormalLike makes random actions: export the policy's mean": lambda: model(
        [helper.make_node("RandomNormalLike", ["obs"], ["actions"])],
        [floats("obs", [1, 2])], [floats("actions", [1, 2])], (), NAMED,
    ),
    r"\[batch, n\]: only its first length": lambda: linear(shape=["batch", "n"]),
    r"\[16, 3\]: it is for 16 robots; export it for one": lambda: linear(shape=[16, 3]),
    r"\[1, 1, 1, 3\]; allowed are": lambda: linear(shape=[1, 1, 1, 3]),
    "onnxruntime.*shape|onnxruntime.*dimension": lambda: linear(
        4, metadata=without(observation_names="a,b,c,d,e"), shape=[1, 5]
    ),
    "its metadata has no observation_names; list them in policy.policy.yaml": lambda: linear(
        metadata=without("observation_names")
    ),
    "names no actuators: its metadata has no joint_names": lambda: linear(
        metadata=without("joint_names")
    ),
    r"2 actions, but its joint_names has 3 names": lambda: linear(
        metadata=without(joint_names="a,b,c")
    ),
    r"2 actions, but its joint_names has 2 names \(1 that differ\)": lambda: linear(
        metadata=without(joint_names="a,a")
    ),
    "names the channel 'a' twice": lambda: linear(metadata=without(observation_names="a,b,a")),
    "the widths of its observations a, b are not known": lambda: linear(
        metadata=without(observation_names="a,b")
    ),
    "3 inputs, but its observation_names describes 4: 2 previous_action": lambda: linear(
        metadata=without(observation_names="actions,joint_vel")
    ),
    "say in policy.policy.yaml which is the largest, as in  action: {limit: 5.0}": lambda: linear(
        metadata=without(action_scale="0.25")
    ),
    "metadata action_scale: 'much' are not numbers": lambda: linear(
        metadata=without(action_scale="much")
    ),
    "metadata action_scale: 3 numbers; needed are 2": lambda: linear(
        metadata=without(action_scale="1,2,3")
    ),
    r"observation_history_lengths: 5, 5; say in policy.policy.yaml": lambda: linear(
        35, metadata=without(observation_names="a,b", observation_history_lengths="5,5")
    ),
    "inputs obs, hidden: one must be the observation": lambda: recurrent(names=("hidden", "next")),
    "not a tensor of float32 or float64": lambda: model(
        [helper.make_node("Cast", ["obs"], ["actions"], to=1)],
        [floats("obs", [1, 2], onnx.TensorProto.INT64)], [floats("actions", [1, 2])], (), NAMED,
    ),
    "outputs p, q: which one is the action": lambda: model(
        [helper.make_node("Tanh", ["obs"], ["p"]), helper.make_node("Tanh", ["p"], ["q"])],
        [floats("obs", [1, 3])], [floats("p", [1, 3]), floats("q", [1, 3])], (), NAMED,
    ),
}  # fmt: skip


def refusal(path):
    with pytest.raises(ModelError) as caught:
        load_policy(path)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 600
    return text


@pytest.mark.parametrize("words", NETWORKS)
def test_a_network_that_does_not_fit_is_refused_by_name(tmp_path, words):
    path = save(tmp_path, NETWORKS[words]())
    text = refusal(path)
    assert text.startswith(f"{path}: ")
    assert re.search(words, text), text


YAMLS = {
    "speed: this key is not allowed; allowed: an_control_policy, observation": "speed: 1\n",
    "observation: 3 is not allowed; allowed: a list of terms": "observation: 3\n",
    "observation[0].term: 'joint_position' is not allowed": (
        "observation: [{term: joint_position}]\n"
    ),
    "did you mean 'joint_positions'": "observation: [{term: joint_position}]\n",
    "observation[0].scale: [1, 2] is not allowed": (
        "observation: [{channels: [a], scale: [1, 2]}]\n"
    ),
    "observation[0].clip: [2, 1] is not allowed": "observation: [{channels: [a], clip: [2, 1]}]\n",
    "observation[0].channels: 'a' twice": "observation: [{channels: [a, a]}]\n",
    "either channels or term": "observation: [{channels: [a], term: phase}]\n",
    "names the channel 'a' twice": "observation: [{channels: [a]}, {channels: [a, b]}]\n",
    "3 inputs, but": "observation: [{channels: [a]}]\n",
    "'step_s' is missing": "observation: [{channels: [a]}, {term: phase, period_s: 1}]\n",
    "'period_s' is missing": "observation: [{term: phase}]\n",
    "history.length: 0 is not allowed": "history: {length: 0}\n",
    "history.by: 'tick' is not allowed; allowed: step or term": "history: {length: 1, by: tick}\n",
    "3 inputs are not a history of 2 observations": "history: {length: 2}\n",
    "action.limit: 0 is not allowed": "action: {limit: 0}\n",
    "action: {output: 'NAME'}": "action: {output: torque}\n",
    "an output, in quotation marks if it is a number": "action: {output: 30}\n",
    "states: h: i: the network has the inputs obs": "states: {h: i}\n",
    "step_s: 0 is not allowed; allowed: seconds": "step_s: 0\n",
}


@pytest.mark.parametrize("words", YAMLS)
def test_a_yaml_file_that_does_not_fit_is_refused_with_its_place(tmp_path, words):
    text = refusal(save(tmp_path, linear(), YAMLS[words]))
    assert words in text
    assert "policy.policy.yaml" in text or "policy.onnx" in text


def test_another_format_of_the_yaml_file_is_refused(tmp_path):
    path = save(tmp_path, linear())
    (tmp_path / "policy.policy.yaml").write_text("an_control_policy: 2\n")
    assert "an_control_policy: 2 is not allowed; allowed: 1" in refusal(path)


class Bomb:
    """Unpickled, it would fail the test."""

    def __reduce__(self):
        return exec, ("raise AssertionError('unpickled')",)


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_a_pickle_is_not_opened(tmp_path, protocol):
    path = tmp_path / "policy.onnx"
    path.write_bytes(pickle.dumps(Bomb(), protocol))
    assert "a pickle, not an ONNX file; it was not opened" in refusal(path)


def test_a_zip_is_not_opened(tmp_path):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("data.pkl", bytes(50 * 2**20))
    path = tmp_path / "policy.onnx"
    path.write_bytes(content.getvalue())
    assert "a zip archive, not an ONNX file (an-control import" in refusal(path)


def test_a_file_of_two_gigabytes_is_not_read(tmp_path):
    path = tmp_path / "policy.onnx"
    with open(path, "wb") as file:
        file.truncate(2**31)
    assert "larger than 268435456 bytes, the maximum for a policy" in refusal(path)


@pytest.mark.parametrize("content", [b"", b"\x08", b"hello world", bytes(1000), b"\xff" * 100])
def test_what_is_no_onnx_file_is_refused(tmp_path, content):
    path = tmp_path / "policy.onnx"
    path.write_bytes(content)
    assert "not an ONNX file" in refusal(path)


def test_a_file_that_is_cut_short_is_refused(tmp_path):
    path = save(tmp_path, linear())
    whole = path.read_bytes()
    for length in range(1, len(whole), 7):
        path.write_bytes(whole[:length])
        refusal(path)


def test_what_is_no_file_is_refused(tmp_path):
    assert "No such file" in refusal(tmp_path / "none.onnx")
    (tmp_path / "folder.onnx").mkdir()
    refusal(tmp_path / "folder.onnx")


def external(tmp_path, location):
    """The network with its weights in another file."""
    network = linear()
    one = network.graph.initializer[0]
    external_data_helper.set_external_data(one, location)
    content, one.raw_data = one.raw_data, b""
    path = save(tmp_path, network)
    return path, content


def test_tensors_in_a_file_beside_it_are_read(tmp_path):
    expected = load_policy(save(tmp_path, linear(), name="whole.onnx")).step_array(
        np.ones(3), ("a", "b", "c")
    )
    path, content = external(tmp_path, "policy.onnx.data")
    (tmp_path / "policy.onnx.data").write_bytes(content)
    found = load_policy(path).step_array(np.ones(3), ("a", "b", "c"))
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("where", ["../weights", "/etc/hostname", "inner/../../weights"])
def test_tensors_outside_the_folder_are_refused(tmp_path, where):
    folder = tmp_path / "folder"
    folder.mkdir()
    path, content = external(folder, where)
    (tmp_path / "weights").write_bytes(content)
    assert f"lies in {where!r}, outside the folder of the file" in refusal(path)


def test_a_link_to_tensors_outside_the_folder_is_refused(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    path, content = external(folder, "weights")
    (tmp_path / "secret").write_bytes(content)
    (folder / "weights").symlink_to(tmp_path / "secret")
    assert "outside the folder of the file" in refusal(path)
    (folder / "weights").unlink()
    assert "is not a file there" in refusal(path)


@pytest.mark.parametrize("where", ["weights", "../weights", "/etc/hostname"])
def test_sparse_tensors_are_not_read_from_elsewhere_either(tmp_path, monkeypatch, where):
    folder = tmp_path / "folder"
    folder.mkdir()
    network = linear()
    dense = network.graph.initializer[0]
    count = int(np.prod(dense.dims))
    (tmp_path / "weights").write_bytes(np.full(count, 7.0, np.float32).tobytes())
    monkeypatch.chdir(tmp_path)
    values = onnx.TensorProto(name=dense.name, data_type=onnx.TensorProto.FLOAT, dims=[count])
    values.data_location = onnx.TensorProto.EXTERNAL
    for key, value in (("location", where), ("offset", "0"), ("length", str(4 * count))):
        values.external_data.add(key=key, value=value)
    places = helper.make_tensor(f"{dense.name}_i", onnx.TensorProto.INT64, [count], range(count))
    sparse = helper.make_sparse_tensor(values, places, list(dense.dims))
    network.graph.sparse_initializer.append(sparse)
    del network.graph.initializer[0]
    assert re.search("is not a file there|outside the folder", refusal(save(folder, network)))


@pytest.mark.parametrize("step_s", ["0", "-0.02", "1e-300", "1e300"])
def test_a_period_in_the_metadata_that_no_robot_has_is_refused(tmp_path, step_s):
    path = save(tmp_path, linear(metadata=without(step_s=step_s)))
    assert "allowed are seconds, from 1e-6 to 3600" in refusal(path)
