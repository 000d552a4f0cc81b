"""A monitor in front of a policy of another tool: it survives rewiring."""

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("gymnasium")

import gymnasium
from foreign.networks import linear, save, weights
from onnx import helper, numpy_helper

from an_control import load_policy
from an_control.cli import main
from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.policy import ModelError, read_model
from an_control.system.share import find_share_path

ANT = find_share_path("models/ant.safetensors")
TEACHER = find_share_path("models/ant_teacher.safetensors")


def teacher(folder):
    """The Ant's teacher, an MLP, as an ONNX file with metadata."""
    model = read_model(TEACHER)
    task = model.task
    network = linear(28, 8, {
        "observation_names": ",".join(task.channels),
        "joint_names": ",".join(task.actuators),
        "step_s": "0.0165", "task": "ant",
    })  # fmt: skip
    graph, before = network.graph, "obs"
    del graph.node[:], graph.initializer[:]
    for layer, activation in enumerate(("Relu", "Relu", "Tanh")):
        names = [f"head.{layer}.{what}" for what in ("weight", "bias")]
        graph.initializer.extend(numpy_helper.from_array(model.arrays[n], n) for n in names)
        after = "actions" if layer == 2 else f"h{layer}"
        graph.node.extend([
            helper.make_node("Gemm", [before, *names], [f"x{layer}"], transB=1),
            helper.make_node(activation, [f"x{layer}"], [after]),
        ])  # fmt: skip
        before = after
    return save(folder, network)


@pytest.fixture
def monitored(tmp_path):
    path = teacher(tmp_path)
    assert main(["train-monitor", str(path), "--take", str(ANT)]) == 0
    return path


def walked(policy, steps, move=None):
    """The return of an Ant whose signals are permuted at step `move`."""
    from an_control_sim.gym.environments import find_environment_id, make_environment

    env = make_environment(find_environment_id("ant"))
    ids, order = policy.nominal_ids, np.arange(28)
    observation, _ = env.reset(seed=3)
    total = 0.0
    for step in range(steps):
        if step == move:
            order = np.random.default_rng(0).permutation(28)
        observation, reward, over, _, _ = env.step(policy.step_array(observation[order], ids))
        total += reward
        if over:
            break
    env.close()
    return total


def test_the_monitor_lies_beside_the_policy_and_names_it_by_its_hash(monitored, capsys):
    beside = monitored.with_name("policy.monitor.safetensors")
    model = read_model(monitored)
    assert read_model(beside).trained["policy_sha256"] == model.network.sha256
    policy = load_policy(monitored)
    assert isinstance(policy, MonitoredPolicy)
    assert policy.monitor_report.setting == "match"
    assert not isinstance(load_policy(monitored, "off"), MonitoredPolicy)
    teachers = read_model(TEACHER).task
    assert model.task.channels == teachers.channels
    assert (model.task.name, model.task.step_s) == ("ant", teachers.step_s)


def test_an_ant_on_an_onnx_policy_walks_on_when_its_sensors_are_rewired(monitored):
    pytest.importorskip("pybullet")
    steps = 250
    alone, watched = load_policy(monitored, "off"), load_policy(monitored)
    clean = walked(alone, steps)
    assert walked(watched, steps) == pytest.approx(clean, rel=1e-9)
    assert watched.monitor_report.rewires == 0
    assert walked(alone, steps, move=60) < 0.6 * clean
    watched.reset()
    assert walked(watched, steps, move=60) > 0.95 * clean
    assert watched.monitor_report.rewires >= 1


def test_a_monitor_of_another_version_of_the_policy_is_refused_until_it_is_made_again(monitored):
    w, b = weights(28, 8)
    names = read_model(monitored).network.layout
    metadata = {
        "observation_names": ",".join(names.channels), "joint_names": ",".join(names.actuators),
        "step_s": "0.0165",
    }  # fmt: skip
    save(monitored.parent, linear(28, 8, metadata))
    with pytest.raises(ModelError, match=r"monitor\.safetensors: is the monitor of another"):
        load_policy(monitored)
    assert main(["train-monitor", str(monitored), "--take", str(ANT)]) == 0
    values = np.ones(28)
    action = load_policy(monitored, "off").step_array(values, names.channels)
    np.testing.assert_allclose(action, np.tanh(values.astype(np.float32) @ w + b), atol=1e-6)
    assert isinstance(load_policy(monitored), MonitoredPolicy)


def test_what_is_beside_the_policy_and_no_monitor_of_it_is_refused(monitored):
    beside = monitored.with_name("policy.monitor.safetensors")
    beside.write_bytes(ANT.read_bytes())
    with pytest.raises(ModelError, match="holds no monitor of an ONNX file; make it again"):
        load_policy(monitored)
    beside.write_bytes(b"nothing")
    with pytest.raises(ModelError, match=r"policy\.monitor\.safetensors: not a safetensors file"):
        load_policy(monitored)


def test_the_file_of_a_monitor_is_no_policy(monitored):
    with pytest.raises(ModelError, match="holds only the monitor of an ONNX file"):
        load_policy(monitored.with_name("policy.monitor.safetensors"))


def test_a_monitor_is_taken_only_by_a_policy_with_the_same_channels(tmp_path, capsys):
    path = save(tmp_path, linear())
    assert main(["train-monitor", str(path), "--take", str(ANT)]) == 2
    assert "its channels differ from those of" in capsys.readouterr().err
    assert not path.with_name("policy.monitor.safetensors").exists()


def test_a_monitor_is_trained_only_in_a_task_with_the_same_channels(tmp_path, capsys):
    path = save(tmp_path, linear())
    assert main(["train-monitor", str(path), "--task", "Pendulum-v1"]) == 2
    said = "a, b, c; the task has observation.0, observation.1, observation.2"
    assert said in capsys.readouterr().err


def test_actions_that_may_be_cut_off_are_noted_before_they_are_scored_or_learned(tmp_path, capsys):
    pytest.importorskip("torch")
    names = ",".join(f"observation.{k}" for k in range(4))
    metadata = {"observation_names": names, "joint_names": "action.0,action.1"}
    task = ["--task", "CartPole-v1"]
    few = ["--steps", "100", "--updates", "2", "--imputation-updates", "1"]
    for limit, times in ({}, 1), ({"action_limit": "100"}, 0):
        path = str(save(tmp_path, linear(4, 2, metadata | limit), name=f"{times}.onnx"))
        for words in (
            ["evaluate", path, *task, "--episodes", "1", "--shuffle", "none"],
            ["train-monitor", path, *task, *few],
            ["distill", "CartPole-v1", "--teacher", path, "--smoke", "--out", f"{path}.{times}"],
        ):
            assert main(words) == 0
            printed = "".join(capsys.readouterr())
            assert printed.count("those beyond 1 are cut off") == times, words


class Micrometres(gymnasium.Env):
    """A position in metres that moves by micrometres, and one in micrometres."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    channels = ("metres", "micrometres")

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps, self.place = 0, self.np_random.normal()
        return np.array([1e-6, 1.0]) * self.place, {}

    def step(self, action):
        self.steps, self.place = self.steps + 1, 0.9 * self.place + float(action[0])
        return np.array([1e-6, 1.0]) * self.place, 0.0, False, self.steps >= 50, {}


def test_a_channel_that_varies_too_little_for_a_monitor_is_named(tmp_path, capsys):
    pytest.importorskip("torch")
    gymnasium.register("test/Micrometres-v0", Micrometres)
    metadata = {"observation_names": "metres,micrometres", "joint_names": "left,right"}
    path = save(tmp_path, linear(2, 2, metadata))
    few = ["--steps", "300", "--updates", "20", "--imputation-updates", "0"]
    assert main(["train-monitor", str(path), "--task", "test/Micrometres-v0", *few]) == 0
    assert "the monitor ignores metres: the readings vary by less" in capsys.readouterr().out


def test_a_monitor_elsewhere_than_beside_the_policy_is_refused_at_once(monitored, capsys):
    out = ["--out", str(monitored.with_name("other.safetensors"))]
    assert main(["train-monitor", str(monitored), *out]) == 2
    assert "lies beside it" in capsys.readouterr().err


def test_a_monitor_is_trained_in_front_of_an_onnx_policy(tmp_path, capsys):
    pytest.importorskip("torch")
    task = read_model(find_share_path("models/cartpole.safetensors")).task
    path = save(tmp_path, linear(5, 1, {
        "observation_names": ",".join(task.channels), "joint_names": "cart", "task": "cartpole",
        "step_s": "0.01",
    }))  # fmt: skip
    short = ("--steps", "300", "--updates", "20", "--imputation-updates", "3")
    assert main(["train-monitor", str(path), *short]) == 0
    assert str(path.with_name("policy.monitor.safetensors")) in capsys.readouterr().out
    assert isinstance(load_policy(path, "match"), MonitoredPolicy)
    assert read_model(path).forward.validation is not None
