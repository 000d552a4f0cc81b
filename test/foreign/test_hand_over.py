"""A student walks until the order of the channels is known; then the policy takes over."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from foreign.networks import linear, save
from foreign.test_onnx_monitor import ANT, teacher

from an_control import load_policy
from an_control.cli import main
from an_control.monitor.hand_over import HandOverPolicy
from an_control.policy import AttentionSizes, ModelError, read_model, write_model
from an_control.policy.random_model import make_random_model


@pytest.fixture
def policy(tmp_path):
    """The Ant's teacher behind a monitor, with the shipped Ant as its student."""
    path = teacher(tmp_path)
    shutil.copy(ANT, tmp_path / "student.safetensors")
    beside = "an_control_policy: 1\nhand_over: student.safetensors\n"
    (tmp_path / "policy.policy.yaml").write_text(beside)
    assert main(["train-monitor", str(path), "--take", str(ANT)]) == 0
    return path


def test_without_a_monitor_there_is_no_student(policy):
    assert isinstance(load_policy(policy), HandOverPolicy)
    assert not isinstance(load_policy(policy, "off"), HandOverPolicy)
    assert not isinstance(load_policy(policy, "reset"), HandOverPolicy)


def test_an_ant_in_an_unknown_order_walks_on_the_student_and_then_on_the_policy(policy):
    pytest.importorskip("pybullet")
    from an_control_sim.gym.environments import find_environment_id, make_environment

    both, student = load_policy(policy), load_policy(ANT, "off")
    env = make_environment(find_environment_id("ant"))
    observation, _ = env.reset(seed=4)
    order, handed = np.random.default_rng(1).permutation(28), None
    for step in range(120):
        values = observation[order]
        action = both.step_array(values, both.nominal_ids)
        if not both.handed_over:
            expected = student.step_array(values, both.nominal_ids)
            np.testing.assert_array_equal(action, expected)
            assert both.attention is not None
        elif handed is None:
            handed = step
        observation, *_ = env.step(action)
    env.close()
    assert handed is not None and both.attention is None
    report = both.monitor_report
    assert not report.lost
    ids = both.nominal_ids
    wrong = [s for s in range(28) if report.moved.get(ids[s], ids[s]) != ids[order[s]]]
    assert len(wrong) <= 2, wrong
    both.reset()
    assert not both.handed_over


def test_a_student_that_does_not_fit_is_refused(policy, tmp_path):
    path = tmp_path / "student.safetensors"
    task = read_model(path).task
    sizes = AttentionSizes(8, neuron=4, queries=6, key=3, inputs=["value"], head=[5])
    write_model(path, make_random_model(sizes, task=replace(task, channels=task.channels[::-1])))
    with pytest.raises(ModelError, match="hand_over: the student's channels are not those"):
        load_policy(policy)
    path.unlink()
    with pytest.raises(ModelError, match=r"student\.safetensors: .*No such file"):
        load_policy(policy)


@pytest.mark.parametrize("name", ["../student.safetensors", "student.onnx", "3"])
def test_a_student_elsewhere_than_beside_the_policy_is_refused(tmp_path, name):
    path = save(tmp_path, linear(), f"hand_over: {name}\n")
    with pytest.raises(ModelError, match=r"hand_over: .* is not allowed"):
        load_policy(path)
