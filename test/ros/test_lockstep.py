"""Lockstep: once a stamp, when every source has it; a stamp that comes again, the same answer."""

from __future__ import annotations

import itertools

import pytest
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from sensor_msgs.msg import JointState
from stand import IDS, JOINTS, SAFE, nanoseconds, readings_of, stamp_of

BOTH = pytest.mark.parametrize("stand", ["single_threaded", "events"], indirect=True)


def efforts(stand) -> list[list[float]]:
    return [list(one.effort) for one in stand.commands]


@BOTH
def test_one_command_a_step_named_stamped_and_as_computed_without_ros(stand, reference):
    stand.start()
    for step in range(50):
        command = stand.step(step)
        assert list(command.effort) == reference.step(step)
        assert list(command.name) == list(JOINTS)
    assert len(stand.commands) == 50


@BOTH
def test_nothing_is_sent_before_the_last_source_has_the_stamp(stand, reference):
    stand.start()
    stand.send_joints(stamp_of(1), readings_of(1)[:2])
    stand.send_tilt(stamp_of(2), *readings_of(2)[2:])
    stand.send_joints(stamp_of(2), readings_of(2)[:2])
    stand.until(lambda: stand.commands, "the command of step 2")
    stand.step(3)
    assert [nanoseconds(one) for one in stand.commands] == [stamp_of(2), stamp_of(3)]
    assert efforts(stand) == [reference.step(2), reference.step(3)]


@BOTH
def test_a_repeated_stamp_gets_the_same_command_and_no_second_tick(stand, reference):
    stand.start()
    first = stand.step(1)
    stand.send(1, (9.0, 9.0, 9.0, 9.0))
    stand.until(lambda: len(stand.commands) == 3, "the command again, once a message")
    assert stand.commands[1:] == [first, first]
    assert list(stand.step(2).effort) == [reference.step(1), reference.step(2)][1]


@BOTH
def test_a_missing_source_is_missing_once_the_wait_is_over(stand, reference):
    stand.start(lockstep_wait_s=0.05)
    stand.send_joints(stamp_of(1), readings_of(1)[:2])
    stand.until(lambda: stand.commands, "the command without tilt")
    seen = dict(zip(IDS[:2], readings_of(1)[:2], strict=True))
    assert efforts(stand) == [reference(seen)]
    assert nanoseconds(stand.commands[0]) == stamp_of(1)
    assert list(stand.step(2).effort) == reference.step(2)


@BOTH
def test_a_source_that_lags_a_step_is_missing_once_the_wait_is_over_and_is_named(stand, said):
    reports: list[DiagnosticStatus] = []
    stand.peer.create_subscription(
        DiagnosticArray, "/diagnostics", lambda one: reports.extend(one.status), 10
    )
    stand.start(lockstep_wait_s=0.2)
    table, steps = stand.node._loop.controller.table, itertools.count(1)

    def heard() -> list[int]:
        return [one.messages for one in table.list_source_statuses(0)]

    def send_step_with_lagging_tilt() -> None:
        step = next(steps)
        stand.send_joints(stamp_of(step), readings_of(step)[:2])
        stand.until(lambda: heard() == [step, step - 1], "the joints heard")
        stand.send_tilt(stamp_of(step - 1), *readings_of(step - 1)[2:])
        stand.until(lambda: heard() == [step, step], "the tilt heard")

    def found() -> list[str]:
        send_step_with_lagging_tilt()
        texts = [one.message for one in reports if one.name.endswith("source tilt")]
        return [one for one in texts if "its newest stamp is 0.01 s earlier" in one]

    stand.until(found, "the lag in the diagnostics")
    assert len(stand.commands) >= 2
    lost = [one for one in said if "source 'tilt' lost: no message of the step at" in one]
    assert len(lost) == 1 and lost[0].endswith("its newest stamp is 0.01 s earlier")


def test_older_stamps_are_ignored(stand, reference):
    stand.start()
    stand.step(5)
    stand.send(3)
    stand.send(4)
    stand.step(6)
    assert [nanoseconds(one) for one in stand.commands] == [stamp_of(5), stamp_of(6)]
    assert efforts(stand) == [reference.step(5), reference.step(6)]


def test_a_simulator_that_starts_again_is_followed(stand, reference):
    stand.start()
    stand.step(1000)
    assert stand.reset().success
    assert list(stand.step(1).effort) == reference.step(1)
    stand.step(800)
    stand.step(2)
    assert [nanoseconds(one) for one in stand.commands] == [
        stamp_of(step) for step in (1000, 1, 800, 2)
    ]


def test_after_a_reset_of_the_state_even_a_slightly_older_stamp_counts(stand):
    stand.start()
    first = stand.step(5)
    assert stand.reset().success
    stand.step(4)
    assert stand.reset().success
    assert stand.step(5).effort == first.effort


def test_a_zero_stamp_among_others_neither_stops_nor_restarts_anything(stand, reference):
    stand.start(lockstep_wait_s=0.05)
    stand.step(1)
    stand.send_joints(0, readings_of(2)[:2])
    stand.send_tilt(stamp_of(2), *readings_of(2)[2:])
    stand.until(lambda: len(stand.commands) == 2, "the command of step 2")
    assert list(stand.step(3).effort)
    assert [nanoseconds(one) for one in stand.commands] == [stamp_of(1), stamp_of(2), stamp_of(3)]
    assert efforts(stand)[1] == [reference.step(1), reference.step(2)][1]


def test_too_few_channels_give_the_safe_command_and_enough_the_policy_again(stand, capfd):
    stand.start(lockstep_wait_s=0.05)
    stand.step(1)
    nan = float("nan")
    assert list(stand.step(2, (nan, nan, nan, 0.0)).effort) == SAFE
    assert list(stand.step(3, (nan, nan, float("inf"), 0.0)).effort) == SAFE
    assert list(stand.step(4).effort) != SAFE
    log = capfd.readouterr().err
    assert (
        log.count("safe command: 1 of 4 channels present, 50% are needed (min_present_share)") == 1
    )
    assert log.count("acting again: 4 of 4 channels") == 1


HOSTILE = [
    ((), ()),
    ((1.0,), ("left",)),
    ((1.0,), ("left", "right")),
    ((1.0, 2.0, 3.0), ("left", "right")),
    ((1.0, 2.0), ()),
    ((), ("left", "right")),
    ((1.0, 2.0), ("left", "left")),
    ((float("nan"), float("inf")), JOINTS),
    ((1e308, -1e308), JOINTS),
    ((1.0, 2.0), ("other", "names")),
    ((0.5,) * 5000, tuple(f"joint_{i}" for i in range(5000))),
]


def test_no_content_of_a_message_crashes_it_or_makes_a_command_that_is_not_finite(stand):
    stand.start()
    for step, (positions, names) in enumerate(HOSTILE, start=1):
        stand.send_joints(stamp_of(step), positions, names)
        stand.send_tilt(stamp_of(step), *readings_of(step)[2:])
        stand.until(lambda n=step: len(stand.commands) == n, f"a command for {names!r:.60}")
    assert all(abs(value) <= 8.0 for one in efforts(stand) for value in one)
    assert stand.state() == "active"


def test_two_publishers_of_one_topic_are_no_reason_to_tick_twice(stand, reference):
    stand.start()
    twin = stand.peer.create_publisher(JointState, "joint_states", 10)
    stand.until(twin.get_subscription_count, "the twin matched")
    message = JointState(name=list(JOINTS), position=list(map(float, readings_of(1)[:2])))
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_of(1), 10**9)
    twin.publish(message)
    stand.send_joints(stamp_of(1), readings_of(1)[:2])
    stand.send_tilt(stamp_of(1), *readings_of(1)[2:])
    stand.until(lambda: stand.commands, "the command")
    stand.send(2)
    stand.until(lambda: nanoseconds(stand.commands[-1]) == stamp_of(2), "the command of step 2")
    first, second = reference.step(1), reference.step(2)
    assert efforts(stand) == [first] * (len(stand.commands) - 1) + [second]


def test_a_wiring_without_any_stamp_is_refused(stand, said):
    text = stand.wiring.read_text().replace("sensor_msgs/msg/JointState, max", "{}, max")
    text = text.replace("position[left]", "data[0]").replace("position[right]", "data[1]")
    text = text.replace("geometry_msgs/msg/Vector3Stamped", "geometry_msgs/msg/Vector3")
    text = text.replace("vector.x", "x").replace("vector.y", "y")
    stand.wiring.write_text(text.replace("{}", "std_msgs/msg/Float64MultiArray"))
    stand.start(activate=False)
    assert stand.node.trigger_configure().to_label() == "transition_failure"
    stand.until(lambda: any("with a stamp, for mode lockstep" in one for one in said), "why")
