"""`an-control train-monitor` trains a model's monitor, and the model stays what it is."""

import json

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("gymnasium", reason="needs the sim extra")

from an_control import load_policy
from an_control.cli import main
from an_control.policy import MonitoredPolicy, read_model, write_model
from an_control.policy.random_model import ANT_SIZES, random_model
from an_control.share import share_path

SHORT = ("--steps", "300", "--updates", "20", "--fill-updates", "3")


def test_a_model_can_be_watched_after_it_and_acts_as_before(tmp_path, capsys):
    model, course = tmp_path / "cartpole.safetensors", tmp_path / "course.json"
    write_model(model, read_model(share_path("models/cartpole.safetensors")))
    before = read_model(model)
    out = tmp_path / "watched.safetensors"
    arguments = ["train-monitor", str(model), "--out", str(out), "--json", str(course), *SHORT]
    assert main(arguments) == 0
    assert "predict 20: loss" in capsys.readouterr().out
    assert [line["learns"] for line in json.loads(course.read_text())["course"]] == [
        "predict", "looks", "fill", "fill",
    ]  # fmt: skip
    after = read_model(out)
    assert after.forward.monitor == "match" and after.forward.binary == []
    assert after.task == before.task and after.trained["forward"] == {
        "steps": 300, "updates": 20, "fill_updates": 3,
    }  # fmt: skip
    ours = ("forward.", "identity.", "imputation.")
    for name, array in before.arrays.items():
        assert name.startswith(ours) or array.tobytes() == after.arrays[name].tobytes()
    assert isinstance(load_policy(out), MonitoredPolicy)
    taken = tmp_path / "taken.safetensors"
    assert main(["train-monitor", str(model), "--out", str(taken), "--take", str(out)]) == 0
    assert taken.read_bytes() == out.read_bytes()
    again = tmp_path / "again.safetensors"
    assert main(["train-monitor", str(model), "--out", str(again), *SHORT]) == 0
    same = read_model(again).arrays
    assert all(np.array_equal(array, same[name]) for name, array in after.arrays.items())


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--task", "cartpole"), "channels are not those of task 'cartpole'"),
        (("--task", "nowhere"), "--task"),
        (("--steps", "0"), "--steps 0"),
        (("--fill-updates", "-1"), "--fill-updates -1"),
        (("--take", str(share_path("models/cartpole.safetensors"))), "--take"),
    ],
)
def test_what_cannot_be_learned_ends_with_exit_2(more, named, tmp_path, capsys):
    path = tmp_path / "ant.safetensors"
    write_model(path, random_model(ANT_SIZES))
    assert main(["train-monitor", str(path), *SHORT, *more]) == 2
    assert named in capsys.readouterr().err
