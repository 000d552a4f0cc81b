"""`an-control train-teacher` trains a teacher from the command line and leaves one to distill."""

import json
import re
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("stable_baselines3", reason="needs the train extra")
pytest.importorskip("pybullet", reason="needs the sim extra")

from an_control.cli import main
from an_control.learning.api import teacher as teacher_module
from an_control.learning.runs.run_folder import CHECKPOINT
from an_control.learning.teacher.sb3_algorithm import make_mlp_model
from an_control.load import load_policy
from an_control.policy import write_model
from an_control_sim.gym.environments import describe_task, make_environment


def test_it_leaves_a_teacher_with_a_card_that_distill_takes(tmp_path, monkeypatch):
    figures, run = tmp_path / "figures.json", tmp_path / "teacher"
    train = ["train-teacher", "Pendulum-v1", "--smoke", "--out", str(run), "--json", str(figures)]
    assert main(train) == 0
    written = json.loads(figures.read_text())
    assert [line["iteration"] for line in written["iterations"]] == [1, 2]
    chance, teacher = written["evaluations"]
    assert teacher["protocol"] == "teacher" and chance["protocol"] == "random policy"
    assert teacher["mean"] != chance["mean"] and teacher["standard_error"] > 0
    policy = load_policy(written["model"])
    assert policy.model.kind == "mlp" and len(policy.nominal_ids) == 3
    assert policy.model.trained["steps"] in (64, 128)
    assert "random policy" in (run / "model.md").read_text()
    before = (run / CHECKPOINT).read_bytes()
    monkeypatch.delattr(teacher_module, "evaluate_teacher")
    assert main(train) == 0, "a run that is done stays as it is"
    assert (run / CHECKPOINT).read_bytes() == before
    assert json.loads(figures.read_text()) == written, "without another evaluation"
    distill = ["distill", "Pendulum-v1", "--smoke", "--out", str(tmp_path / "student")]
    assert main([*distill, "--teacher", written["model"]]) == 0


def test_a_task_with_a_teacher_of_its_own_starts_from_it(tmp_path):
    """The packaged Ant walks; no network learns that in 128 steps."""
    figures = tmp_path / "figures.json"
    train = ["train-teacher", "ant", "--smoke", "--out", str(tmp_path / "run")]
    assert main([*train, "--json", str(figures)]) == 0
    assert json.loads(figures.read_text())["evaluations"][1]["mean"] > 1500


def test_a_teacher_continues_under_disturbances(tmp_path):
    first, then = tmp_path / "first", tmp_path / "then"
    train = ["train-teacher", "Pendulum-v1", "--smoke", "--algorithm", "td3"]
    assert main([*train, "--out", str(first)]) == 0
    model = str(first / "model.safetensors")
    disturbed = ["--disturb", "delay=1", "gain=0.5,lag=0.5", "--disturb-share", "1"]
    train += ["--algorithm", "ppo", "--start-model", model, *disturbed]
    assert main([*train, "--out", str(then)]) == 0
    config = json.loads((then / "config.json").read_text())
    assert config["settings"]["faults"] == {"delay=1": 0.5, "gain=0.5,lag=0.5": 0.5}
    assert config["start"] is True
    lines = (then / "metrics.jsonl").read_text().splitlines()
    undisturbed = (first / "metrics.jsonl").read_text().splitlines()
    assert json.loads(lines[0])["validation"] != json.loads(undisturbed[0])["validation"]


@pytest.mark.parametrize("hidden", [(), (128, 32)])
def test_ppo_continues_a_network_that_chooses_discrete_actions(hidden, tmp_path):
    """The network pushes the cart to the side to which the pole falls; none learns that so soon."""
    push = 5.0 * np.array([[0.0, 0.0, -1.0, -1.0], [0.0, 0.0, 1.0, 1.0]])
    first, *widths = *hidden, 2
    weights = [np.eye(first, 2) @ push]
    weights += [np.eye(width, before) for before, width in pairwise((first, *widths))]
    layers = tuple((weight, np.zeros(len(weight))) for weight in weights)
    with closing(make_environment("CartPole-v1")) as env:
        task = describe_task(env, "CartPole-v1", "CartPole-v1")
    start, figures = tmp_path / "start.safetensors", tmp_path / "figures.json"
    write_model(start, make_mlp_model(layers, "tanh", task, {}))
    train = ["train-teacher", "CartPole-v1", "--smoke", "--start-model", str(start)]
    assert main([*train, "--out", str(tmp_path / "run"), "--json", str(figures)]) == 0
    assert json.loads(figures.read_text())["evaluations"][1]["mean"] > 150


def test_another_seed_is_refused_in_the_same_folder(tmp_path, capsys):
    train = ["train-teacher", "CartPole-v1", "--smoke", "--out", str(tmp_path / "run")]
    assert main(train) == 0
    assert main([*train, "--seed", "2"]) == 1
    assert "other settings" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nothing-v0"], "'nothing-v0'"),
        (["no_such_module:Nothing-v0"], "no_such_module"),
        (["pong"], "image patches"),
        (["CartPole-v1", "--algorithm", "tqc"], "--algorithm tqc: discrete actions need ppo"),
        (["CartPole-v1", "--minutes", "0"], "--minutes 0"),
        (["CartPole-v1", "--steps", "-5"], "--steps -5"),
        (["CartPole-v1", "--episodes", "1"], "--episodes 1"),
        (["CartPole-v1", "--score", "nan"], "--score nan"),
        (["CartPole-v1", "--burst", "1.5"], "--burst 1.5"),
        (["CartPole-v1", "--seed", "-1"], "--seed -1"),
        (["CartPole-v1", "--disturb", "25"], "'25' is not a disturbance for training (allowed: mi"),
        (
            ["CartPole-v1", "--disturb", "delay=1", "copies=1"],
            "'copies=1' is not a disturbance for training (allowed: mis",
        ),
        (
            ["CartPole-v1", "--disturb", "lag=0.5"],
            "lag: 0.5 (CartPoleEnv has the actions Discrete",
        ),
        (["CartPole-v1", "--disturb-share", "1.5"], "--disturb-share 1.5"),
        (["CartPole-v1", "--start-model", "no.safetensors"], "no.safetensors"),
    ],
)
def test_bad_input_ends_with_2_names_it_and_leaves_nothing(arguments, named, tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["train-teacher", *arguments, "--out", str(out)]) == 2
    assert named in capsys.readouterr().err
    assert not out.exists()


def test_an_environment_that_always_raises_is_named_in_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parent.parent / "learning")
    train = ["train-teacher", "broken:an_control_test/Raises-v0", "--smoke"]
    assert main([*train, "--out", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err
    assert re.fullmatch(r".*broken:an_control_test/Raises-v0.*step 3: .* on fire .*\n", said)
