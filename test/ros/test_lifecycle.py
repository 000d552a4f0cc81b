"""The lifecycle: what cannot work is refused with one reason; the safe command comes last."""

from __future__ import annotations

import pytest
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.parameter import Parameter
from stand import SAFE, Stand, tiny_model

from an_control.control.controller import Controller


def efforts(stand: Stand) -> list[list[float]]:
    return [list(one.effort) for one in stand.commands]


def errors(captured: str) -> list[str]:
    return [line for line in captured.splitlines() if "[ERROR]" in line]


def last_is_safe(stand: Stand, count: int) -> None:
    """The command number `count` comes, is safe, and nothing comes after it."""
    stand.until(lambda: len(stand.commands) >= count, "the safe command")
    sentinel = stand.peer.create_publisher(type(stand.commands[0]), "commands", 10)
    stand.until(sentinel.get_subscription_count, "the sentinel's subscriber")
    message = type(stand.commands[0])(name=["sentinel"])
    sentinel.publish(message)
    stand.until(lambda: stand.commands[-1].name == ["sentinel"], "the sentinel")
    stand.peer.destroy_publisher(sentinel)
    assert stand.commands.pop().name == ["sentinel"]
    assert len(stand.commands) == count
    assert list(stand.commands[-1].effort) == SAFE
    assert list(stand.commands[-1].name) == ["left", "right"]


BAD_WIRINGS = {
    "a key that is unknown": ("robot: tiny", "robto: tiny", ["robto", "robot"]),
    "a message type that does not exist": (
        "sensor_msgs/msg/JointState, max",
        "sensor_msgs/msg/JointStat, max",
        ["sources.joints.type", "sensor_msgs/msg/JointStat"],
    ),
    "a field without a number": (
        "field: vector.x",
        "field: header.frame_id",
        ["channels.tilt.x.field", "header.frame_id"],
    ),
    "a safe value outside the limits": ("safe: 0.5", "safe: 9.5", ["left.safe", "9.5", "8"]),
    "one topic as two types": ("topic: tilt", "topic: joint_states", ["tilt", "joint_states"]),
}


@pytest.mark.parametrize("fault", BAD_WIRINGS)
def test_a_bad_wiring_is_refused_with_one_error_and_a_good_one_taken_after_it(stand, capfd, fault):
    right, wrong, said = BAD_WIRINGS[fault]
    good = stand.wiring.read_text()
    assert right in good
    stand.wiring.write_text(good.replace(right, wrong))
    node = stand.start(activate=False)
    assert node.trigger_configure().to_label() == "transition_failure"
    (error,) = errors(capfd.readouterr().err)
    assert all(word in error for word in said), error
    assert stand.state() == "unconfigured"
    assert not node.get_parameters_by_prefix("sources")
    assert not [one for one in node.publishers if one.topic_name == "/commands"]
    for model in ("of_another_robot.safetensors", str(stand.model)):
        assert node.set_parameters([Parameter("model", value=model)])[0].successful
    stand.wiring.write_text(good)
    assert node.trigger_configure().to_label() == "transition_success"
    assert stand.state() == "inactive"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"model": "gone.safetensors"}, ["gone.safetensors"]),
        ({"model": ""}, ["parameter model", "not set"]),
        ({"wiring": ""}, ["parameter wiring", "not set"]),
        ({"wiring": "/dev/null/w.yaml"}, ["/dev/null/w.yaml"]),
        ({"model": "garbage"}, ["garbage"]),
        ({"model": "three_actions"}, ["command.actuators", "2", "3 actuators"]),
        ({"engine": "fortran"}, ["engine", "fortran", "auto, numpy, numba"]),
    ],
)
def test_bad_parameters_are_refused_with_one_error_and_good_ones_taken_after(
    stand, tmp_path, capfd, change, said
):
    (tmp_path / "garbage").write_bytes(b"\x00" * 100)
    tiny_model(tmp_path / "three_actions", actions=3)
    for name in ("garbage", "three_actions"):
        if change.get("model") == name:
            change = {"model": str(tmp_path / name)}
    node = stand.start(activate=False, **change)
    assert node.trigger_configure().to_label() == "transition_failure"
    (error,) = errors(capfd.readouterr().err)
    assert all(word in error for word in said), error
    good = {"wiring": str(stand.wiring), "model": str(stand.model), "engine": "numpy"}
    results = node.set_parameters([Parameter(name, value=good[name]) for name in change])
    assert all(result.successful for result in results)
    assert node.trigger_configure().to_label() == "transition_success"


def test_a_rate_over_a_tenth_from_the_trained_one_is_not_activated_unless_told_to(stand, capfd):
    tiny_model(stand.model, step_s=0.0112)
    node = stand.start(activate=False)
    node.trigger_configure()
    assert node.trigger_activate().to_label() == "transition_failure"
    (error,) = errors(capfd.readouterr().err)
    assert "rate_hz: 100" in error and "89.2857 Hz" in error and "check_rate" in error
    assert stand.state() == "inactive"
    node.trigger_cleanup()
    node.set_parameters([Parameter("check_rate", value=False)])
    node.trigger_configure()
    assert node.trigger_activate().to_label() == "transition_success"


def test_a_rate_within_a_tenth_of_the_trained_one_is_activated(stand):
    tiny_model(stand.model, step_s=0.0109)
    stand.start()
    assert stand.state() == "active"


def test_a_transition_that_the_state_lacks_is_refused_and_the_node_acts_on(stand, capfd):
    stand.start()
    stand.step(1)
    request = ChangeState.Request(transition=Transition(id=Transition.TRANSITION_CONFIGURE))
    assert not stand.call(ChangeState, "policy/change_state", request).success
    assert errors(capfd.readouterr().err)
    assert stand.state() == "active"
    stand.step(2)


def test_the_safe_command_is_the_last_after_deactivation_and_inactive_nothing_is_sent(stand):
    node = stand.start()
    stand.step(1)
    node.trigger_deactivate()
    last_is_safe(stand, 2)
    stand.send(2)
    node.trigger_cleanup()
    last_is_safe(stand, 2)


def test_the_safe_command_is_the_last_after_shutdown(stand):
    node = stand.start()
    stand.step(1)
    node.trigger_shutdown()
    last_is_safe(stand, 2)
    assert stand.state() == "finalized"


@pytest.mark.parametrize("stand", ["single_threaded", "events"], indirect=True)
@pytest.mark.parametrize("mode", ["lockstep", "rate"])
def test_a_tick_that_raises_ends_in_the_safe_command(stand, capfd, monkeypatch, mode):
    node = stand.start(mode=mode)
    if mode == "lockstep":
        stand.step(1)
    else:
        stand.until(lambda: stand.commands, "a first command")

    def explode(*_):
        raise RuntimeError("the policy is broken")

    monkeypatch.setattr(Controller, "decide", explode)
    stand.send(2)
    stand.until(lambda: stand.state() == "inactive", "the deactivation")
    last_is_safe(stand, len(stand.commands))
    (error,) = errors(capfd.readouterr().err)
    assert "the policy is broken" in error
    monkeypatch.undo()
    assert node.trigger_activate().to_label() == "transition_success"
    if mode == "lockstep":
        stand.step(3)


def test_a_node_that_was_never_active_commands_nothing(stand):
    node = stand.start(activate=False)
    node.trigger_configure()
    stand.connect()
    stand.send(1)
    node.trigger_cleanup()
    node.trigger_configure()
    node.trigger_shutdown()
    other = stand.start()
    stand.step(2)
    assert len(stand.commands) == 1
    assert other.get_name() == "policy"


def test_state_is_reset_only_while_active(stand, reference):
    node = stand.start(activate=False)
    assert not stand.reset().success
    node.trigger_configure()
    reply = stand.reset()
    assert not reply.success and reply.message == "not active"
    node.trigger_activate()
    stand.connect()
    first = [list(stand.step(step).effort) for step in (1, 2)]
    assert stand.reset().success
    assert [list(stand.step(step).effort) for step in (1, 2)] == first
    assert first == [reference.step(1), reference.step(2)]


def test_while_inactive_the_policy_watches_and_activation_loses_nothing_of_it(stand, reference):
    node = stand.start()
    for step in (1, 2, 3):
        assert list(stand.step(step).effort) == reference.step(step)
    node.trigger_deactivate()
    stand.until(lambda: len(stand.commands) == 4, "the safe command")
    for step in (4, 5):
        stand.watch(step)
        reference.step(step, SAFE)
    node.trigger_activate()
    assert list(stand.step(6).effort) == reference.step(6)
    assert len(stand.commands) == 5


def test_configure_and_cleanup_leave_nothing_behind(stand):
    node = stand.start(activate=False)
    fresh = counts(node)
    for _ in range(3):
        node.trigger_configure()
        node.trigger_activate()
        assert counts(node) != fresh
        node.trigger_deactivate()
        node.trigger_cleanup()
        assert counts(node) == fresh


def counts(node) -> tuple[int, ...]:
    kinds = (node.publishers, node.subscriptions, node.timers, node.services, node.waitables)
    return tuple(len(list(kind)) for kind in kinds)


def test_no_publisher_or_subscription_handles_events_of_the_middleware(stand):
    """Neither those of rclpy itself: with the events executor they crash or deadlock."""
    node = stand.start(use_sim_time=True, mode="rate", activate=False)
    node.trigger_configure()
    endpoints = [*node.publishers, *node.subscriptions]
    assert {one.topic_name for one in endpoints} > {"/parameter_events", "/clock", "/joint_states"}
    assert [one.topic_name for one in endpoints if one.event_handlers] == []
