"""A new model while the node runs: taken between two ticks, or refused and the old one stays."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from stand import SCALE, Reference, Stand, tiny_model

from an_control.policy import AttentionSizes, write_model
from an_control.policy.random_model import random_model
from an_control.ros import controller, swap


def other_model(path, actions: int = 2, step_s: float = 0.01):
    sizes = AttentionSizes(actions=actions, neuron=3, queries=5, key=2, inputs=["value"], head=[4])
    write_model(path, random_model(sizes, seed=7, gain=4.0, task={"step_s": step_s}))
    return path


def set_model(stand: Stand, value: object):
    request = SetParameters.Request(parameters=[Parameter("model", value=value).to_parameter_msg()])
    return stand.call(SetParameters, "policy/set_parameters", request).results[0]


def swapped(stand: Stand, path) -> None:
    given = stand.node._loop.controller._given
    stand.until(lambda: given and given[0].path == str(path), f"{path} built")


def test_a_new_model_watches_for_a_second_and_then_acts_on_what_it_has_seen(
    stand, tmp_path, reference, monkeypatch
):
    monkeypatch.setattr(controller, "WATCH_S", 0.03)
    stand.start()
    assert list(stand.step(1).effort) == reference.step(1)
    path = other_model(tmp_path / "other.safetensors")
    assert set_model(stand, str(path)).successful
    swapped(stand, path)
    new = Reference(path)
    new.policy.previous_action = np.array(stand.commands[-1].effort) / SCALE
    for step in (2, 3, 4):
        sent = list(stand.step(step).effort)
        assert sent == reference.step(step), "the old one still acts"
        new.step(step, sent)
    assert stand.node._loop.controller.model_path == str(stand.model)
    for step in (5, 6, 7):
        assert list(stand.step(step).effort) == new.step(step)
    assert stand.node._loop.controller.model_path == str(path)
    assert stand.node.get_parameter("model").value == str(path)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.write_bytes(b"\x93garbage" * 20), ["new.safetensors"]),
        (lambda path: None, ["new.safetensors", "No such file"]),
        (lambda path: path.mkdir(), ["new.safetensors", "not a regular file"]),
        (lambda path: other_model(path, actions=3), ["command.actuators", "3 actuators"]),
        (lambda path: other_model(path, step_s=0.02), ["rate_hz: 100", "50 Hz"]),
    ],
)
def test_a_model_that_cannot_act_is_refused_with_a_reason_and_the_old_one_stays(
    stand, tmp_path, reference, make, said
):
    stand.start()
    assert list(stand.step(1).effort) == reference.step(1)
    path = tmp_path / "new.safetensors"
    make(path)
    result = set_model(stand, str(path))
    assert not result.successful
    assert all(word in result.reason for word in said), result.reason
    assert [list(stand.step(n).effort) for n in (2, 3)] == [reference.step(2), reference.step(3)]
    assert stand.node.get_parameter("model").value == str(stand.model)


@pytest.mark.parametrize("value", [3, "", "\0", "x" * 5000, ["a"], float("nan")])
def test_hostile_values_of_the_model_parameter_are_refused(stand, reference, value):
    stand.start()
    result = set_model(stand, value)
    assert not result.successful and result.reason
    assert list(stand.step(1).effort) == reference.step(1)


def test_ticks_go_on_while_a_model_is_being_built(stand, tmp_path, reference, monkeypatch):
    stand.start()
    go, make = threading.Event(), swap.make_policy

    def slow(*arguments, **options):
        assert go.wait(30.0)
        return make(*arguments, **options)

    monkeypatch.setattr(swap, "make_policy", slow)
    path = other_model(tmp_path / "other.safetensors")
    assert set_model(stand, str(path)).successful
    for step in range(1, 10):
        assert list(stand.step(step).effort) == reference.step(step)
    go.set()
    swapped(stand, path)
    assert stand.reset().success
    assert list(stand.step(10).effort) == Reference(path).step(10), "a new episode: it acts at once"


def test_a_model_whose_engine_cannot_be_built_is_reported_and_the_old_one_stays(
    stand, tmp_path, reference, monkeypatch, capfd
):
    stand.start()

    def broken(*_, **__):
        raise RuntimeError("no engine")

    monkeypatch.setattr(swap, "make_policy", broken)
    assert set_model(stand, str(tiny_model(tmp_path / "other.safetensors"))).successful
    stand.until(
        lambda: not [one for one in threading.enumerate() if one.name == "swap"], "the build"
    )
    assert list(stand.step(1).effort) == reference.step(1)
    assert "model not swapped" in capfd.readouterr().err


def test_of_two_models_in_a_row_the_last_one_acts(stand, tmp_path):
    stand.start()
    first, last = other_model(tmp_path / "a.safetensors"), tiny_model(tmp_path / "b.safetensors")
    assert set_model(stand, str(first)).successful and set_model(stand, str(last)).successful
    swapped(stand, last)
    assert list(stand.step(1).effort) == Reference(last).step(1)
