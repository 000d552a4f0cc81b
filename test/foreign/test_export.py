"""A policy of our own runs as an ONNX file, with its actions fed back, as it does here."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx

from an_control.cli import main
from an_control.load import load_policy, make_policy
from an_control.policy import AttentionSizes, MlpSizes, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control.system.share import find_share_path

IDS = ["height", "speed", "hip", "knee", "foot"]
TASK = Task("crawl", channels=tuple(IDS), actuators=("left", "right"), step_s=0.02)
SOFTMAX = {"attention": "softmax", "queries": 6, "key": 4, "head": [7], "activation": "relu"}
MEMORY = {**SOFTMAX, "memory": 5}
FORMS = {
    "the paper's": {},
    "clip": {"output": "clip", "head": [5, 6], "activation": "relu"},
    "change and products": {"inputs": ["value", "change"], "products": True},
    "stack": {"stack": 4},
    "normalise": {"normalise": 8},
    "softmax": SOFTMAX,
    "softmax, normalise": {**SOFTMAX, "normalise": 3},
    "memory": MEMORY,
    "outliers": {**MEMORY, "outlier_weighting": True},
    "prediction": {**MEMORY, "outlier_weighting": True, "prediction_attention": True},
    "jump": {**MEMORY, "prediction_attention": True, "reset_on_jump": True},
    "jump and stack": {"stack": 3, "reset_on_jump": True},
    "jump and change": {"inputs": ["value", "change"], "reset_on_jump": True},
}


def model_of(form):
    sizes = {"neuron": 4, "queries": 6, "key": 4, "inputs": ["value"], "head": []} | FORMS[form]
    return make_random_model(AttentionSizes(2, **sizes), seed=2, gain=2.0, task=TASK)


def exported(model, folder):
    source, path = folder / "model.safetensors", folder / "model.onnx"
    write_model(source, model)
    assert main(["export", str(source), "--onnx", str(path)]) == 0
    return load_policy(path)


def readings(count, ticks):
    """Smooth readings that jump at some ticks, float32 as those of a robot."""
    rng = np.random.default_rng(5)
    x = rng.normal(size=count)
    for tick in range(ticks):
        x = 0.95 * x + 0.1 * rng.normal(size=count)
        if tick % 60 == 59:
            x = 2.0 * rng.normal(size=count)
        yield x.astype(np.float32)


@pytest.mark.parametrize("form", FORMS)
def test_an_export_acts_as_the_policy_does_for_a_thousand_ticks(tmp_path, form):
    model = model_of(form)
    policy, ours = exported(model, tmp_path), make_policy(model, engine="numpy")
    rng = np.random.default_rng(6)
    for _ in range(2):
        policy.reset()
        ours.reset()
        for tick, values in enumerate(readings(5, 500)):
            expected = ours.step_array(values, tuple(IDS))
            np.testing.assert_allclose(policy.step_array(values, tuple(IDS)), expected, atol=5e-6)
            if tick % 7 == 0:  # something else was sent
                ours.previous_action = policy.previous_action = rng.uniform(-1.0, 1.0, 2)


@pytest.mark.parametrize("name", ["ant_teacher", "mobile_base", "cartpole"])
def test_the_export_of_a_shipped_model_acts_as_the_model(tmp_path, name):
    path = find_share_path(f"models/{name}.safetensors")
    out = tmp_path / "out.onnx"
    assert main(["export", str(path), "--onnx", str(out)]) == 0
    policy, ours = load_policy(out), load_policy(path, "off", engine="numpy")
    differences = []
    for values in readings(len(ours.nominal_ids), 1000):
        expected = ours.step_array(values, ours.nominal_ids)
        found = policy.step_array(values, ours.nominal_ids)
        differences.append(np.abs(found - expected).max())
    assert np.median(differences) < 1e-6
    assert max(differences) < 1e-4  # rounding that a tick amplifies; our engines differ by 5e-5
    assert policy.model.task.actuators == ours.model.task.actuators
    assert policy.model.task.step_s == ours.model.task.step_s


def test_the_exported_ant_differs_no_more_than_our_two_engines_do(tmp_path):
    pytest.importorskip("pybullet")
    from an_control_sim.gym.environments import find_environment_id, make_environment

    path, out = find_share_path("models/ant.safetensors"), tmp_path / "ant.onnx"
    assert main(["export", str(path), "--onnx", str(out)]) == 0
    policy, ours = load_policy(out), load_policy(path, "off", engine="numpy", recovery=0.0)
    env = make_environment(find_environment_id("ant"))
    observation, _ = env.reset(seed=1)
    for _ in range(300):
        values = observation.astype(np.float32)
        action = ours.step_array(values, ours.nominal_ids)
        np.testing.assert_allclose(policy.step_array(values, ours.nominal_ids), action, atol=1e-5)
        policy.previous_action = action
        observation, *_ = env.step(action)
    env.close()


def test_the_file_says_what_it_reads_and_gives(tmp_path):
    exported(model_of("prediction"), tmp_path)
    network = onnx.load(tmp_path / "model.onnx")
    metadata = {one.key: one.value for one in network.metadata_props}
    assert metadata == {
        "observation_names": "height,speed,hip,knee,foot,previous_action",
        "joint_names": "left,right", "step_s": "0.02", "task": "crawl", "action_limit": "1",
    }  # fmt: skip
    inputs = [one.name for one in network.graph.input]
    assert inputs[0] == "obs" and all(one.endswith("_in") for one in inputs[1:])


def refusal(model, folder, capsys):
    source = folder / "model.safetensors"
    write_model(source, model)
    assert main(["export", str(source), "--onnx", str(folder / "out.onnx")]) == 2
    assert not (folder / "out.onnx").exists()
    return capsys.readouterr().err


def test_what_cannot_be_written_is_refused_by_name(tmp_path, capsys):
    sizes = AttentionSizes(2, 4, 6, 4, ["value"], [], encoder="sab", heads=1)
    assert "with sizes.encoder" in refusal(make_random_model(sizes, task=TASK), tmp_path, capsys)
    mlp = MlpSizes(5, 2, [4])
    nameless = make_random_model(mlp)
    assert "names no channels" in refusal(nameless, tmp_path, capsys)
    comma = make_random_model(mlp, task=replace(TASK, channels=(*IDS[:4], "a,b")))
    assert "'a,b'" in refusal(comma, tmp_path, capsys)
    source = str(find_share_path("models/pong.safetensors"))
    assert main(["export", source, "--onnx", str(tmp_path / "pong.onnx")]) == 2
    assert main(["export", source, "--onnx", str(tmp_path / "pong.bin")]) == 2
    assert "must end in .onnx" in capsys.readouterr().err
