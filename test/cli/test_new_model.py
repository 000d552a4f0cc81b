"""`an-control new-model` writes a policy that a robot can be brought up with."""

from pathlib import Path

import numpy as np
import pytest

from an_control.cli import main
from an_control.control.model_wiring_check import compare_wired_with_trained_channels
from an_control.load import load_policy
from an_control.policy import read_model
from an_control.wiring import load_wiring

ROOT = Path(__file__).resolve().parents[2]


def test_a_wirings_channels_and_actuators_are_the_models(tmp_path):
    out = tmp_path / "ant.safetensors"
    assert main(["new-model", str(ROOT / "config/ant.yaml"), "--out", str(out)]) == 0
    policy, shipped = load_policy(out), load_policy(ROOT / "models/ant.safetensors")
    assert set(policy.nominal_ids) == set(shipped.nominal_ids)
    assert policy.model.task.actuators == shipped.model.task.actuators
    action = policy.step(dict.fromkeys(policy.nominal_ids, 0.5))
    assert 0.0 < np.abs(action).max() < 0.5


def test_the_model_of_a_wiring_knows_the_elements_of_its_wildcards(tmp_path):
    wiring, out = ROOT / "config/mobile_base.yaml", tmp_path / "base.safetensors"
    assert main(["new-model", str(wiring), "--out", str(out)]) == 0
    ids = ("scan.right.0", "scan.left.11", "gyro", "scan.up.0")
    found = compare_wired_with_trained_channels(load_wiring(wiring), ids, read_model(out))
    assert found.unknown == ("scan.up.0",)


def test_an_environments_model_may_need_its_order_or_never_act(tmp_path):
    pytest.importorskip("gymnasium", reason="needs the sim extra")
    out = tmp_path / "pole.safetensors"
    command = ["new-model", "CartPole-v1", "--ordered", "--weight-scale", "0", "--out", str(out)]
    assert main(command) == 0
    policy = load_policy(out)
    assert not policy.permutation_invariant and len(policy.nominal_ids) == 4
    assert not policy.step(dict.fromkeys(policy.nominal_ids, 0.5)).any()


@pytest.mark.parametrize(
    ("robot", "more", "named"),
    [
        ("nothing", [], "environment 'nothing'"),
        ("nothing.yaml", [], "nothing.yaml"),
        ("an_control_sim:an_control/PuzzlePong-v0", [], "camera"),
        ("CartPole-v1", ["--weight-scale", "-1"], "--weight-scale -1.0"),
        (str(ROOT / "config/mobile_base.yaml"), ["--ordered"], "channels.scan.right.*"),
    ],
)
def test_bad_input_ends_with_2_and_names_it(tmp_path, capsys, robot, more, named):
    out = tmp_path / "m.safetensors"
    assert main(["new-model", robot, "--out", str(out), *more]) == 2
    assert named in capsys.readouterr().err and not out.exists()


def test_a_model_is_not_written_into_a_file_of_another_kind(tmp_path, capsys):
    out = tmp_path / "policy.onnx"
    assert main(["new-model", str(ROOT / "config/ant.yaml"), "--out", str(out)]) == 2
    assert "must end in .safetensors" in capsys.readouterr().err and not out.exists()
