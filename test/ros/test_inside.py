"""A look inside: attention and channels for whoever listens, diagnostics, notices on the edge."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from sensor_msgs.msg import JointState
from stand import IDS, JOINTS, nanoseconds, readings_of, stamp_of
from std_msgs.msg import Float64MultiArray

from an_control.policy import AttentionSizes, Model, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import ForwardSizes
from an_control.policy.task import Task
from an_control.ros import outputs


def listen(stand, type_, topic: str) -> list:
    heard: list = []
    publisher = [one for one in stand.node.publishers if one.topic_name == topic]
    assert len(publisher) == 1
    stand.peer.create_subscription(type_, topic, heard.append, 10)
    stand.until(publisher[0].get_subscription_count, f"{topic} matched")
    return heard


def test_attention_and_channels_go_out_in_one_order_with_the_tick_s_stamp(stand, reference):
    stand.start()
    channels = listen(stand, JointState, "/policy/channels")
    attention = listen(stand, Float64MultiArray, "/policy/attention")
    keys = listen(stand, Float64MultiArray, "/policy/keys")
    for step in range(5):
        command = stand.step(step)
        stand.until(lambda n=step + 1: len(attention) == len(channels) == n, "the look inside")
        readings = readings_of(step).astype(np.float32)
        assert dict(zip(channels[-1].name, channels[-1].position, strict=True)) == dict(
            zip(IDS, readings.astype(float), strict=True)
        )
        assert nanoseconds(channels[-1]) == stamp_of(step)
        assert list(command.effort) == reference.step(step)
        policy = reference.policy
        rows, columns = attention[-1].layout.dim
        assert (rows.label, rows.size, rows.stride) == (f"query {stamp_of(step)}", 6, 24)
        assert (columns.size, columns.stride) == (4, 4)
        assert columns.label == " ".join(["channel", *channels[-1].name])
        order = [policy.channel_order.index(name) for name in channels[-1].name]
        matrix = np.array(attention[-1].data).reshape(6, 4)
        np.testing.assert_array_equal(matrix, policy.attention[:, order])
        stand.until(lambda n=step + 1: len(keys) == n, "the keys")
        labels = [one.label for one in keys[-1].layout.dim]
        assert labels == [columns.label, f"key {stamp_of(step)}"]
        shown = np.array(keys[-1].data).reshape(4, 3)
        np.testing.assert_array_equal(shown, policy.keys[order])


def watched_model() -> Model:
    """The stand's model with a monitor, which takes every missing channel for 0."""
    sizes = AttentionSizes(actions=2, neuron=4, queries=6, key=3, inputs=["value"], head=[5])
    model = make_random_model(sizes, task=Task(channels=IDS, step_s=0.01))
    forward = ForwardSizes([2], identity=2, binary=[], imputation=2)
    shapes = forward.list_array_shapes(len(IDS), sizes.actions)
    arrays = {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    arrays["identity.units"] += 1.0
    arrays["imputation.typical"][2] = 50.0
    return replace(model, forward=forward, arrays=model.arrays | arrays)


def test_attention_goes_out_also_while_a_missing_channel_is_imputed(stand):
    write_model(stand.model, watched_model())
    stand.start()
    attention = listen(stand, Float64MultiArray, "/policy/attention")
    keys = listen(stand, Float64MultiArray, "/policy/keys")
    stand.step(0)
    stand.send_joints(stamp_of(1), (1.0,), JOINTS[:1])
    stand.send_tilt(stamp_of(1), 0.0, 0.0)
    stand.until(lambda: len(attention) == len(keys) == 2, "the look inside")
    assert [one.layout.dim[1].size for one in attention] == [4, 3]
    assert [one.layout.dim[0].size for one in keys] == [4, 3]


def test_nothing_is_computed_for_nobody(stand, monkeypatch):
    asked: list[int] = []
    real = outputs.select_attention_of_channels
    monkeypatch.setattr(
        outputs, "select_attention_of_channels", lambda *of: asked.append(1) or real(*of)
    )
    stand.start()
    stand.step(1)
    assert not asked
    attention = listen(stand, Float64MultiArray, "/policy/attention")
    stand.step(2)
    stand.until(lambda: attention, "attention")
    assert asked == [1]


def statuses(message: DiagnosticArray) -> dict[str, DiagnosticStatus]:
    return {one.name.removeprefix("/policy: "): one for one in message.status}


def values(status: DiagnosticStatus) -> dict[str, str]:
    return {one.key: one.value for one in status.values}


def test_diagnostics_tell_the_policy_the_gate_and_each_source(stand):
    stand.start(lockstep_wait_s=0.01)
    stand.step(1)
    stand.send_joints(stamp_of(2), (float("nan"), 2.0))
    stand.until(lambda: len(stand.commands) == 2, "the command without tilt")
    heard = listen(stand, DiagnosticArray, "/diagnostics")
    stand.until(lambda: heard, "diagnostics")
    told = statuses(heard[-1])
    assert set(told) >= {"policy", "gate", "source joints", "source tilt"}
    assert told["policy"].level == DiagnosticStatus.ERROR
    assert told["policy"].message.startswith("safe command: 1 of 4 channels present")
    policy = values(told["policy"])
    assert policy["engine"] == "numpy" and policy["ticks"] == "2"
    assert float(policy["tick p99 [us]"]) >= float(policy["tick p50 [us]"]) > 0
    assert set(values(told["gate"])) >= {"not_finite", "limited", "rate_limited"}
    joints, tilt = told["source joints"], told["source tilt"]
    assert joints.level == tilt.level == DiagnosticStatus.WARN
    assert joints.message == "1 of 2 channels present"
    assert values(joints).items() >= {
        "topic": "joint_states", "messages": "2", "present": "1", "expected": "2",
    }.items()  # fmt: skip
    assert tilt.message.startswith("no message of the step at")
    stand.step(3)
    heard.clear()
    stand.until(lambda: heard, "diagnostics")
    assert {one.level for one in heard[-1].status} == {DiagnosticStatus.OK}
    assert statuses(heard[-1])["policy"].message == "acting"
    stand.node.trigger_deactivate()
    heard.clear()
    stand.until(lambda: heard, "diagnostics")
    assert statuses(heard[-1])["policy"].message == "inactive"


def test_what_is_lost_is_logged_once_and_what_comes_back_once(stand, capfd):
    stand.start()
    stand.step(1)
    capfd.readouterr()
    for step in range(2, 6):
        stand.send_joints(stamp_of(step), (1.0,), JOINTS[:1])
        stand.send_tilt(stamp_of(step), 0.0, 0.0)
        stand.until(lambda n=step: len(stand.commands) == n, "a command")
    stand.step(6)
    log = capfd.readouterr().err
    lost = [line for line in log.splitlines() if "right.position" in line]
    assert ["lost" in line for line in lost] == [True, False]
    assert "[WARN]" in lost[0] and "[INFO]" in lost[1]
    assert lost[0].endswith("right.position lost: the message does not name it: it names left")
