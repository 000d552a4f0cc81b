"""A wiring's names against a model's: at configure, for a new model and while rewired."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from stand import IDS, LIMITS, SCALE, Stand, readings_of
from std_srvs.srv import Trigger

from an_control import load_policy
from an_control.policy import AttentionSizes, MlpSizes, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control.ros import node

TASK = Task(channels=IDS, actuators=("left", "right"), step_s=0.01)


def model(path: Path, *, seed: int = 1, ordered: bool = False, **task: list[str]) -> Path:
    sizes = (
        MlpSizes(4, 2, [8])
        if ordered
        else AttentionSizes(2, neuron=4, queries=6, key=3, inputs=["value"], head=[5])
    )
    write_model(path, make_random_model(sizes, seed=seed, gain=4.0, task=replace(TASK, **task)))
    return path


def change(stand: Stand, *pairs: tuple[str, str]) -> None:
    text = stand.wiring.read_text()
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    stand.wiring.write_text(text)


def refused(stand: Stand, said: list[str]) -> str:
    """Why the node does not configure."""
    stand.start(activate=False)
    assert stand.node.trigger_configure().to_label() == "transition_failure"
    words = "is not allowed; allowed:", "is missing; needed:"
    stand.until(lambda: any(one in line for line in said for one in words), "the reason")
    return next(line for line in said if any(one in line for one in words))


def renamed(*ids: str) -> list[tuple[str, str]]:
    """Changes of the stand's wiring that give its first channels these ids."""
    return [(f"{old}: {{", f"{new}: {{") for old, new in zip(IDS, ids, strict=False)]


def test_each_actuator_gets_its_own_action_in_whatever_order_the_wiring_has_them(stand, tmp_path):
    model(stand.model, actuators=["right", "left"])
    policy = load_policy(stand.model, engine="numpy")
    stand.start()
    for step in (1, 2, 3):
        command = stand.step(step)
        wanted = policy.step(dict(zip(IDS, readings_of(step), strict=True))).astype(np.float64)
        sent = np.clip(wanted * SCALE, -LIMITS, LIMITS)
        assert dict(zip(command.name, command.effort, strict=True)) == {
            "right": sent[0], "left": sent[1],
        }  # fmt: skip
        if (sent != wanted * SCALE).any():
            policy.previous_action = sent / SCALE


def test_actuators_that_the_model_does_not_have_are_refused(stand, said):
    model(stand.model, actuators=["left", "top"])
    reason = refused(stand, said)
    assert "command.actuators: right" in reason and "top has no actuator here" in reason


def test_actuators_that_the_model_only_numbers_are_taken_in_the_wirings_order(stand, reference):
    model(stand.model, actuators=["action.0", "action.1"])
    stand.start()
    assert list(stand.step(1).effort) == reference.step(1)


def test_renamed_channels_are_said_once_with_what_that_means(stand, said):
    model(stand.model)
    change(stand, *renamed("a", "b"))
    stand.start()
    for step in range(1, 4):
        stand.step(step)
    stand.until(lambda: any("not wired" in line for line in said), "what is missing")
    (unknown,) = [line for line in said if "does not know" in line]
    assert "a, b; the policy reads them as additional channels" in unknown
    (missing,) = [line for line in said if "not wired" in line]
    assert "2 of the 4 channels" in missing and "left.position, right.position" in missing
    assert "acts without them" in missing


@pytest.mark.parametrize("ids", [("a",), ("left.position", "a")])
def test_an_ordered_model_refuses_channels_that_it_does_not_know(stand, said, ids):
    model(stand.model, ordered=True)
    change(stand, *renamed(*ids))
    reason = refused(stand, said)
    assert "channels: a is not allowed" in reason and "an ordered model" in reason


def test_an_ordered_model_refuses_a_wiring_that_lacks_a_channel(stand, said):
    model(stand.model, ordered=True)
    change(stand, ("  tilt.y: {source: tilt, field: vector.y}\n", ""))
    reason = refused(stand, said)
    assert "tilt.y is missing" in reason and "all 4 channels" in reason


def test_an_ordered_model_acts_on_its_channels_in_any_order(stand):
    model(stand.model, ordered=True)
    lines = stand.wiring.read_text().splitlines()
    first = next(place for place, line in enumerate(lines) if "left.position" in line)
    lines[first : first + 4] = reversed(lines[first : first + 4])
    stand.wiring.write_text("\n".join(lines))
    stand.start()
    policy = load_policy(stand.model)
    readings = readings_of(1).astype(np.float32)
    wanted = policy.step_array(readings, IDS).astype(np.float64) * SCALE
    assert list(stand.step(1).effort) == np.clip(wanted, -LIMITS, LIMITS).tolist()


@pytest.mark.parametrize(
    ("task", "why"),
    [
        ({"actuators": ["left", "top"]}, "top has no actuator here"),
        ({"ordered": True, "channels": ["a", *IDS[1:]]}, "left.position is not allowed"),
    ],
)
def test_a_new_model_of_other_names_is_refused(stand, tmp_path, task, why):
    model(stand.model)
    stand.start()
    other = model(tmp_path / "other.safetensors", seed=5, **task)
    parameter = Parameter("model", value=str(other)).to_parameter_msg()
    request = SetParameters.Request(parameters=[parameter])
    result = stand.call(SetParameters, "policy/set_parameters", request).results[0]
    assert not result.successful and why in result.reason


def test_a_new_model_acts_in_its_own_order_of_actuators(stand, tmp_path):
    model(stand.model)
    stand.start()
    other = model(tmp_path / "other.safetensors", seed=5, actuators=["right", "left"])
    stand.node.set_parameters([Parameter("model", value=str(other))])
    controller = stand.node._loop.controller
    stand.until(lambda: controller.acting._given, "the new model built")
    command = stand.step(1)
    policy = load_policy(other, engine="numpy")
    wanted = policy.step(dict(zip(IDS, readings_of(1), strict=True))).astype(np.float64) * SCALE
    assert list(command.effort) == np.clip(wanted[::-1], -LIMITS, LIMITS).tolist()


def test_an_ordered_model_is_not_rewired_to_other_channels_by_a_reload(stand, said):
    model(stand.model, ordered=True)
    stand.start()
    stand.step(1)
    change(stand, *renamed("a"))
    answer = stand.call(Trigger, "policy/reload_wiring")
    assert not answer.success and "an ordered model" in answer.message
    stand.step(2)


def test_a_reload_is_refused_for_a_new_model_that_is_about_to_take_over(stand, tmp_path):
    model(stand.model)
    stand.start()
    stand.step(1)
    other = model(tmp_path / "other.safetensors", ordered=True)
    stand.node.set_parameters([Parameter("model", value=str(other))])
    controller = stand.node._loop.controller
    stand.until(lambda: controller.acting._given, "the new model built")
    change(stand, *renamed("a"))
    for step in (2, 3):  # it is built, and then it watches
        answer = stand.call(Trigger, "policy/reload_wiring")
        assert not answer.success and "an ordered model" in answer.message
        stand.step(step)


def test_a_model_that_a_reload_has_made_unfit_while_it_was_built_is_refused(
    stand, tmp_path, monkeypatch
):
    model(stand.model)
    stand.start()
    reloaded = threading.Event()
    monkeypatch.setattr(node, "warm_up_policy", lambda policy: reloaded.wait(30.0))
    other = model(tmp_path / "other.safetensors", ordered=True)
    stand.node.set_parameters([Parameter("model", value=str(other))])
    change(stand, *renamed("a"))
    assert stand.call(Trigger, "policy/reload_wiring").success
    reloaded.set()
    acting = stand.node._loop.controller.acting
    stand.until(lambda: "refused" in acting.new_model, "the refusal")
    assert "an ordered model" in acting.new_model and not acting._given


def test_what_a_wildcard_finds_beyond_the_models_channels_is_said(stand, said):
    model(stand.model)
    change(
        stand,
        ('  left.position: {source: joints, field: "position[left]"}\n', ""),
        ("right.position: {", '"*.position": {'),
        ("position[right]", "position[*]"),
    )
    stand.start()
    stand.step(1)
    assert not [line for line in said if "does not know" in line or "not wired" in line]
    stand.send_tilt(2_000_000_000_000, 0.0, 0.0)
    stand.send_joints(2_000_000_000_000, (0.1, 0.2, 0.3), ("left", "right", "top"))
    stand.until(lambda: any("does not know: top.position" in line for line in said), "the unknown")


def test_a_source_that_nothing_reads_is_told_at_the_start(stand, capfd):
    change(
        stand,
        (
            "sources:\n",
            "sources:\n  spare: {topic: spare, type: sensor_msgs/msg/Imu, max_age_s: 1}\n",
        ),
    )
    stand.start()
    log = capfd.readouterr().err
    assert log.count("source 'spare' feeds no channel: add one, or take the source out of") == 1
