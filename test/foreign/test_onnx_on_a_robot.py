"""The verbs and the node take an ONNX file where they take a model file."""

import json

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("rclpy")

from foreign.networks import linear, recurrent, save
from onnx import helper
from stand import IDS, SAFE, SCALE, WIRING, Reference, Stand, readings_of

from an_control.cli import main
from an_control.cli.models import NO_ATTENTION

NAMED = {"observation_names": ",".join(IDS), "joint_names": "left,right", "step_s": "0.01"}


@pytest.fixture
def stand(tmp_path):
    one = Stand(tmp_path)
    yield one
    one.close()


@pytest.fixture
def policy(tmp_path):
    return save(tmp_path, linear(4, 2, NAMED))


def test_the_node_commands_what_the_network_says(stand, policy):
    stand.model = policy
    stand.start()
    reference = Reference(policy)
    for step in range(1, 8):
        assert list(stand.step(step).effort) == reference.step(step)


def test_a_network_that_gives_nan_leads_to_the_safe_command_and_back(stand, tmp_path):
    network = linear(4, 2, NAMED)
    network.graph.node.insert(0, helper.make_node("Sqrt", ["sensed"], ["obs"]))
    network.graph.input[0].name = "sensed"
    stand.model = save(tmp_path, network)
    stand.start()
    reference = Reference(stand.model)
    for step, readings in enumerate(([1, 1, 1, 1], [1, -1, 1, 1], [2, 1, 1, 1]), start=1):
        effort = list(stand.step(step, readings).effort)
        if min(readings) < 0:
            assert effort == SAFE
            reference.policy.previous_action = np.array(SAFE) / SCALE
        else:
            assert effort == reference(dict(zip(IDS, readings, strict=True)))


def test_a_wiring_that_lacks_a_channel_is_refused_by_name(tmp_path, policy, capsys):
    wiring = tmp_path / "wiring.yaml"
    for old, new, words in (
        ("  tilt.y: {source: tilt, field: vector.y}\n", "", "'tilt.y' is missing|tilt.y"),
        ("tilt.y:", "tilt.z:", "tilt.z is not allowed; allowed: the channels of"),
        ("    left: {", "    other: {", "other is not allowed; allowed: the actuators of"),
    ):
        wiring.write_text(WIRING.replace(old, new))
        assert main(["check", str(wiring), "--model", str(policy)]) == 1
        shown = capsys.readouterr().out
        assert any(word in shown for word in words.split("|")), shown


def test_check_compares_the_wiring_with_the_metadata(tmp_path, policy, capsys):
    wiring = tmp_path / "wiring.yaml"
    wiring.write_text(WIRING)
    assert main(["check", str(wiring), "--model", str(policy)]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    wiring.write_text(WIRING.replace("rate_hz: 100.0", "rate_hz: 50.0"))
    assert main(["check", str(wiring), "--model", str(policy)]) == 1
    assert "trained at 100 Hz" in capsys.readouterr().out


SCALED = {**NAMED, "action_scale": "2.5,2.5", "default_joint_pos": "0.0,0.5"}


def test_check_names_a_command_that_means_something_else_than_the_metadata(tmp_path, capsys):
    wiring = tmp_path / "wiring.yaml"
    wiring.write_text(WIRING)
    policy = save(tmp_path, linear(4, 2, SCALED), "action: {limit: 4.0}\n")
    assert main(["check", str(wiring), "--model", str(policy)]) == 1
    problem = next(
        line for line in capsys.readouterr().out.splitlines() if line.startswith("problem")
    )
    assert "right" in problem and "offset 0, but" in problem and "offset 0.5" in problem
    wiring.write_text(WIRING.replace("right: {scale: 10.0", "right: {offset: 0.5, scale: 10.0"))
    assert main(["check", str(wiring), "--model", str(policy)]) == 0


def test_check_says_that_larger_actions_are_cut_off_if_no_file_says_the_largest(tmp_path, capsys):
    wiring = tmp_path / "wiring.yaml"
    wiring.write_text(WIRING)
    for yaml, noted in ((None, True), ("action: {limit: 1.0}\n", False)):
        policy = save(tmp_path, linear(4, 2, NAMED, tanh=False), yaml)
        assert main(["check", str(wiring), "--model", str(policy)]) == 0
        found = " ".join(capsys.readouterr().out.split())
        assert ("those beyond 1 are cut off" in found) is noted


def test_info_says_what_it_is_and_that_it_has_no_attention(policy, tmp_path, capsys):
    shown = tmp_path / "shown.json"
    assert main(["info", str(policy), "--json", str(shown)]) == 0
    out = capsys.readouterr().out
    assert "kind: foreign" in out and f"attention: {NO_ATTENTION}" in out
    found = json.loads(shown.read_text())
    assert found["network"]["observation"] == ["obs", 1, 4]
    assert found["network"]["states"] == []
    assert found["task"]["channels"] == list(IDS)
    assert main(["info", str(save(tmp_path, recurrent()))]) == 0
    assert "states: ['h_in']" in capsys.readouterr().out


def test_the_node_says_that_it_has_no_attention_and_publishes_none(stand, policy):
    from diagnostic_msgs.msg import DiagnosticArray
    from std_msgs.msg import Float64MultiArray

    stand.model, heard, attention = policy, [], []
    stand.start()
    stand.peer.create_subscription(DiagnosticArray, "/diagnostics", heard.append, 10)
    stand.peer.create_subscription(Float64MultiArray, "/policy/attention", attention.append, 10)
    stand.until(lambda: stand.peer.count_publishers("/policy/attention") == 1, "attention matched")
    for step in range(1, 5):
        stand.step(step)
    stand.until(lambda: heard, "diagnostics")
    status = next(one for one in heard[-1].status if one.name.endswith(": policy"))
    values = {pair.key: pair.value for pair in status.values}
    assert values["attention"] == "none: the policy needs its channels in order"
    assert not attention


def test_a_bad_file_ends_the_verb_with_one_line(tmp_path, capsys):
    path = tmp_path / "policy.onnx"
    path.write_bytes(b"nothing")
    assert main(["info", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"an-control info: {path}: not an ONNX file")


def test_a_network_may_take_over_while_the_node_runs(stand, policy, tmp_path, monkeypatch):
    from rcl_interfaces.srv import SetParameters
    from rclpy.parameter import Parameter

    from an_control.control import controller as controller_module

    monkeypatch.setattr(controller_module, "WATCH_S", 0.02)
    stand.start()
    stand.step(1)
    request = SetParameters.Request(
        parameters=[Parameter("model", value=str(policy)).to_parameter_msg()]
    )
    assert stand.call(SetParameters, "policy/set_parameters", request).results[0].successful
    given = stand.node._loop.controller.acting._given
    stand.until(lambda: given, "the network built")
    for step in range(2, 5):
        stand.step(step)
    new = Reference(policy)
    new.policy.step_array(readings_of(2), IDS)
    assert list(stand.step(5).effort) == new.step(5)
