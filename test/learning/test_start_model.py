"""`an-control train --start-model` refines a policy that is good already."""

import json

import pytest

pytest.importorskip("cma", reason="needs the train extra")

from an_control.cli import main
from an_control.policy import MlpSizes, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import make_paper_sizes
from an_control.policy.task import Task


def test_a_start_model_is_refined_by_small_steps_and_a_random_start_by_large_ones(tmp_path):
    words = ["train", "CartPole-v1", "--generations", "1", "--popsize", "4"]
    words += ["--workers", "1", "--episodes", "2", "--out"]
    first, second = tmp_path / "first", tmp_path / "second"
    assert main([*words, str(first), "--form", "mlp"]) == 0
    assert main([*words, str(second), "--start-model", str(first / "model.safetensors")]) == 0
    sigmas, rates = [], []
    for folder in (first, second):
        settings = json.loads((folder / "config.json").read_text())["settings"]
        sigmas.append(settings["sigma"])
        rates.append(settings["options"]["rate"])
    assert sigmas == [0.5, 0.01] and rates == [0.2, 0.002]


def test_how_a_start_model_acts_is_kept(tmp_path, capsys):
    """The Ant's was no longer pushed where it stood still, and stepped on no lost message."""
    start, out = tmp_path / "start.safetensors", tmp_path / "out"
    acts = {"recovery": 0.03, "repeats": True, "ramp_s": 0.5}
    task = Task.from_header(
        {"name": "other", "channels": ["a"], "actuators": ["b", "c"], "step_s": 1.0, **acts}
    )
    write_model(start, make_random_model(make_paper_sizes(2, 4, 0), seed=1, task=task))
    words = ["train", "CartPole-v1", "--start-model", str(start), "--out", str(out)]
    words += ["--generations", "1", "--popsize", "4", "--rollouts", "1", "--episodes", "1"]
    assert main([*words, "--engine", "fused"]) == 2
    assert "does not support task.recovery" in capsys.readouterr().err
    assert main([*words, "--workers", "1"]) == 0
    found = read_model(out / "model.safetensors").task
    assert {name: getattr(found, name) for name in acts} == acts
    assert found.name == "CartPole-v1" and len(found.channels) == 4
    assert found.step_s == 0.02


def test_a_start_model_with_other_channels_in_order_is_refused(tmp_path, capsys):
    """A compiled rollout read beyond its arrays."""
    model = tmp_path / "model.safetensors"
    task = Task(channels=tuple(str(i) for i in range(28)), actuators=("a", "b"))
    write_model(model, make_random_model(MlpSizes(28, 2, [4]), seed=1, task=task))
    words = ["train", "CartPole-v1", "--start-model", str(model), "--out", str(tmp_path / "out")]
    assert main(words) == 2
    assert "28 channels in a fixed order, but CartPole-v1 has 4" in capsys.readouterr().err
