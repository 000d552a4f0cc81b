"""A new model while the node runs: taken between two ticks, or refused and the old one stays."""

from __future__ import annotations

import itertools
import os
import threading

import numpy as np
import pytest
from diagnostic_msgs.msg import DiagnosticArray
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from stand import LIMITS, SCALE, Reference, Stand, tiny_model

from an_control.control import controller as controller_module
from an_control.policy import AttentionSizes, model_file, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control.ros import node


def other_model(path, actions: int = 2, step_s: float = 0.01, **task):
    sizes = AttentionSizes(actions=actions, neuron=3, queries=5, key=2, inputs=["value"], head=[4])
    write_model(path, make_random_model(sizes, seed=7, gain=4.0, task=Task(step_s=step_s, **task)))
    return path


def large(path):
    os.truncate(path, 300 * 2**20)


def not_finite(path):
    """A model that is sound but for one weight, as its last bytes."""
    whole = other_model(path).read_bytes()
    path.write_bytes(whole[:-4] + np.float32(np.nan).tobytes())
    return path


def set_model(stand: Stand, value: object):
    request = SetParameters.Request(parameters=[Parameter("model", value=value).to_parameter_msg()])
    return stand.call(SetParameters, "policy/set_parameters", request).results[0]


def swapped(stand: Stand, path) -> None:
    given = stand.node._loop.controller.acting._given
    stand.until(lambda: given and given[0].path == str(path), f"{path} built")


def test_a_new_model_watches_for_a_second_and_then_acts_on_what_it_has_seen(
    stand, tmp_path, reference, monkeypatch
):
    monkeypatch.setattr(controller_module, "WATCH_S", 0.03)
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
    assert stand.node._loop.controller.acting.model_path == str(stand.model)
    for step in (5, 6, 7):
        assert list(stand.step(step).effort) == new.step(step)
    assert stand.node._loop.controller.acting.model_path == str(path)
    assert stand.node.get_parameter("model").value == str(path)


def test_a_new_model_brings_the_ramp_that_it_was_trained_with(stand, tmp_path, monkeypatch):
    monkeypatch.setattr(controller_module, "WATCH_S", 0.0)
    stand.start(ramp_s=-1.0)
    path = other_model(tmp_path / "ramped.safetensors", ramp_s=0.05)
    stand.step(1)
    assert set_model(stand, str(path)).successful
    swapped(stand, path)
    stand.step(2)
    assert stand.node._loop.controller.acting.ramp_s == 0.05
    gate = stand.node._loop.controller.gate
    assert gate.authority == 1.0, "it takes over as it is"
    gate.restart_ramp_and_get_safe_command()
    stand.step(3)
    assert gate.authority == pytest.approx(0.2)


def test_a_robot_that_stands_still_is_pushed_also_by_a_new_model(stand, tmp_path, monkeypatch):
    monkeypatch.setattr(controller_module, "WATCH_S", 0.03)
    stand.start(recovery=0.01)
    full = [LIMITS, LIMITS]
    steps = itertools.count(1)

    def pushed() -> bool:
        return np.abs(stand.step(next(steps), np.zeros(4)).effort).tolist() == full

    assert any(pushed() for _ in range(80)), "the readings are always the same"
    path = other_model(tmp_path / "other.safetensors")
    assert set_model(stand, str(path)).successful
    swapped(stand, path)
    for _ in range(8):
        pushed()
    assert stand.node._loop.controller.acting.model_path == str(path)
    assert any(pushed() for _ in range(80))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: path.write_bytes(b"\x93garbage" * 20), ["new.safetensors"]),
        (lambda path: None, ["new.safetensors", "No such file"]),
        (lambda path: path.mkdir(), ["new.safetensors", "not a regular file"]),
        (lambda path: other_model(path, actions=3), ["command.actuators", "3 actuators"]),
        (lambda path: other_model(path, step_s=0.02), ["rate_hz: 100", "50 Hz"]),
        (lambda path: os.truncate(other_model(path), 900), ["new.safetensors", "truncated"]),
        (lambda path: large(other_model(path)), ["new.safetensors", "larger than"]),
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


def test_a_shipped_model_is_given_by_its_name_at_the_start_and_at_run_time(
    stand, tmp_path, reference, monkeypatch
):
    monkeypatch.setattr("an_control.load.find_share_path", lambda name: tmp_path)
    tiny = tiny_model(tmp_path / "tiny.safetensors")
    stand.start(model="tiny", record=str(tmp_path / "bags"))
    assert list(stand.step(1).effort) == reference.step(1)
    assert stand.node._loop.controller.acting.model_path == str(tiny)
    path = other_model(tmp_path / "other.safetensors")
    result = set_model(stand, "other")
    assert result.successful, result.reason
    swapped(stand, path)
    result = set_model(stand, "nobody")
    assert not result.successful
    assert "nobody: neither a file nor a shipped model (model, other, tiny)" in result.reason


@pytest.mark.parametrize("value", [3, "", "\0", "x" * 5000, ["a"], float("nan")])
def test_hostile_values_of_the_model_parameter_are_refused(stand, reference, value):
    stand.start()
    result = set_model(stand, value)
    assert not result.successful and result.reason
    assert list(stand.step(1).effort) == reference.step(1)


def test_ticks_go_on_while_a_model_is_being_built(stand, tmp_path, reference, monkeypatch):
    stand.start()
    go, make = threading.Event(), node.make_policy

    def slow(*arguments, **options):
        assert go.wait(30.0)
        return make(*arguments, **options)

    monkeypatch.setattr(node, "make_policy", slow)
    path = other_model(tmp_path / "other.safetensors")
    assert set_model(stand, str(path)).successful
    for step in range(1, 10):
        assert list(stand.step(step).effort) == reference.step(step)
    go.set()
    swapped(stand, path)
    assert stand.reset().success
    assert list(stand.step(10).effort) == Reference(path).step(10), "a new episode: it acts at once"


def test_what_the_arrays_hold_is_read_aside_and_a_refusal_is_seen_in_diagnostics(
    stand, tmp_path, reference, monkeypatch, capfd
):
    seen: list[DiagnosticArray] = []
    stand.peer.create_subscription(DiagnosticArray, "/diagnostics", seen.append, 10)
    stand.start()
    go, threads, read = threading.Event(), [], model_file._read_array

    def slow(*arguments):
        threads.append(threading.current_thread().name)
        assert go.wait(30.0)
        return read(*arguments)

    def new_model() -> str:
        policy = next(one for one in seen[-1].status if one.name.endswith("policy"))
        return next(one.value for one in policy.values if one.key == "new model")

    monkeypatch.setattr(model_file, "_read_array", slow)
    path = not_finite(tmp_path / "other.safetensors")
    assert set_model(stand, str(path)).successful
    for step in range(1, 10):
        assert list(stand.step(step).effort) == reference.step(step)
    stand.until(lambda: seen and new_model() == f"checking {path}", "it is being checked")
    go.set()
    stand.until(lambda: new_model().startswith("refused"), "the refusal")
    assert str(path) in new_model() and "not finite" in new_model()
    assert set(threads) == {"swap"}
    assert list(stand.step(10).effort) == reference.step(10)
    assert "model not swapped" in capfd.readouterr().err


def test_a_newer_model_is_never_overtaken_by_an_older_one(tmp_path):
    first, last = (str(tiny_model(tmp_path / f"{name}.safetensors")) for name in "ab")
    given: list[str] = []
    both = threading.Event()

    class Controlled:
        new_model = ""

        @property
        def acting(self):
            return self

        def check_model_fits_wiring(self, path, model): ...

        def start_policy_swap(self, path, policy):
            if path == first:
                threading.Thread(target=swapping.request_model, args=[last]).start()
                both.wait(0.5)
            given.append(path)
            if path == last:
                both.set()

    swapping = node.ModelSwap(Controlled(), "numpy", None, given.append, check_rate=False)
    swapping.request_model(first)
    assert both.wait(30.0)
    assert given == [first, last]


def test_a_model_whose_engine_cannot_be_built_is_reported_and_the_old_one_stays(
    stand, tmp_path, reference, monkeypatch, said
):
    stand.start()

    def broken(*_, **__):
        raise RuntimeError("no engine")

    monkeypatch.setattr(node, "make_policy", broken)
    assert set_model(stand, str(tiny_model(tmp_path / "other.safetensors"))).successful
    stand.until(lambda: any("model not swapped" in line for line in said), "the reason")
    assert list(stand.step(1).effort) == reference.step(1)


def test_all_models_are_built_on_one_thread_which_ends_with_the_configuration(
    stand, tmp_path, monkeypatch
):
    """A thread that has just ended still holds its memory when the next one takes some of its own:
    the soak grew by 5 MB."""
    stand.start()
    threads, read = [], node.read_model

    def recorded(path):
        threads.append(threading.current_thread())
        return read(path)

    monkeypatch.setattr(node, "read_model", recorded)
    for name in "abc":
        path = other_model(tmp_path / f"{name}.safetensors")
        assert set_model(stand, str(path)).successful
        swapped(stand, path)
    assert len(threads) == 3 and len(set(threads)) == 1
    stand.node.trigger_deactivate()
    stand.node.trigger_cleanup()
    threads[0].join(30.0)
    assert not threads[0].is_alive()


def test_of_two_models_in_a_row_the_last_one_acts(stand, tmp_path):
    stand.start()
    first, last = other_model(tmp_path / "a.safetensors"), tiny_model(tmp_path / "b.safetensors")
    assert set_model(stand, str(first)).successful and set_model(stand, str(last)).successful
    swapped(stand, last)
    assert list(stand.step(1).effort) == Reference(last).step(1)
