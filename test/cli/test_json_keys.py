"""The reference names each key of the files that ``--json`` writes, and no other."""

from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("gymnasium")

from an_control.cli import main
from an_control.cli.help import JSON_KEYS, VERBS
from an_control.cli.verbs import load_verb_class
from an_control.disturbance.settings import SETTINGS
from an_control.system.share import find_share_path

ANT, CART = (str(find_share_path(f"models/{one}.safetensors")) for one in ("ant", "cartpole"))
WIRING = str(find_share_path("config/cartpole.yaml"))


def documented(verb):
    names = [name for keys in JSON_KEYS[verb] for name in keys.split(", ")]
    assert len(names) == len(set(names)), verb
    of = [one.name for one in SETTINGS] if "DISTURBANCE" in names else []
    return {*names, *of} - {"DISTURBANCE"}


@pytest.fixture
def written(monkeypatch, tmp_path):
    """A function that runs a verb, and returns the keys of what it writes."""

    def run(verb, *words):
        found = []
        module = load_verb_class(verb).__module__
        monkeypatch.setattr(f"{module}.write_json", lambda path, result: found.append(result))
        main([verb, *words])
        (result,) = found
        return set(result)

    return run


def test_each_verb_with_json_is_in_the_reference():
    known = {
        verb for verb in VERBS if "json" in {one.name for one in fields(load_verb_class(verb))}
    }
    assert known == set(JSON_KEYS)


def test_what_evaluate_info_check_and_new_write_is_in_the_reference(written, tmp_path):
    pytest.importorskip("rclpy")
    one = written("evaluate", CART, "--episodes", "1")
    table = written("evaluate", CART, "--episodes", "1", "--table", "none", "reset")
    assert one | table == documented("evaluate") and "protocols" not in one
    info = written("info", CART)
    assert info | {"network", "attention"} == documented("info")
    assert written("info", "ant_teacher") == info | {"attention"}
    assert written("check", WIRING, "--model", CART) == documented("check")
    new = written("new", "mine", "--env", "CartPole-v1", "--out", str(tmp_path))
    assert new | {"rate_hz"} == documented("new")


@pytest.mark.parametrize("verb", ["learn", "train", "train-teacher", "distill"])
def test_what_a_training_writes_is_in_the_reference(verb, written, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("stable_baselines3")
    from an_control.learning import api

    model = Path("model.safetensors")
    name, result = {
        "learn": ("learn", api.LearnResult(model, [], "", [])),
        "train": ("evolve", api.EvolveResult(model, [], [])),
        "train-teacher": ("train_teacher", api.TeacherResult(model, "", [], [], 0)),
        "distill": ("distill", api.DistillResult(model, [], 1, 0.0, 0)),
    }[verb]
    module = load_verb_class(verb).__module__
    monkeypatch.setattr(f"{module}.{name}", lambda *_: result)
    assert written(verb, "cartpole", "--out", str(tmp_path / "run")) == documented(verb)


def test_what_train_monitor_writes_is_in_the_reference(written, monkeypatch, tmp_path):
    pytest.importorskip("torch")
    from an_control.learning import api
    from an_control.policy import read_model

    model, validation = Path(CART), read_model(ANT).forward.validation
    keys = set()
    for words, known in (([], validation), (["--take", CART], None), (["--bag", CART], None)):
        result = api.MonitorResult(model, known, "", [], 0)
        monkeypatch.setattr("an_control.cli.train.train_monitor", lambda *_, r=result: r)
        keys |= written("train-monitor", CART, "--out", str(tmp_path / "x.safetensors"), *words)
    assert keys == documented("train-monitor")


def test_what_sim_and_status_write_is_in_the_reference():
    pytest.importorskip("rclpy")
    from an_control.cli.sim import SimCommand
    from an_control.ros.operator import NodeStatus
    from an_control_sim.bridge.episodes import RunSummary

    result = SimCommand()._make_result_for_json("cartpole", Path(CART), RunSummary(()))
    assert set(result) == documented("sim")
    assert {one.name for one in fields(NodeStatus)} == documented("status")


def test_what_replay_writes_is_in_the_reference(monkeypatch):
    pytest.importorskip("mcap")
    from an_control.cli import replay
    from an_control.record.comparison import Comparison
    from an_control.record.replay import ReplaySummary

    found = []
    monkeypatch.setattr(replay, "write_json", lambda path, result: found.append(result))
    replay.ReplayCommand(Path("bag"))._print_result_and_get_exit_status(
        ReplaySummary(), Comparison(), 1.0
    )
    assert set(found[0]) == documented("replay")
