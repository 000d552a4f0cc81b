"""In real time: one step for each set of readings, memory through stops, shadow, a quiet start."""

from __future__ import annotations

import re
from array import array
from dataclasses import replace
from itertools import groupby
from types import SimpleNamespace

import numpy as np
import pytest
from rcl_interfaces.srv import SetParameters
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from stand import JOINTS, SAFE, STEP_NS, WIRING, RosTime, Stand, stamp_of
from std_srvs.srv import Trigger

from an_control.monitor.settings import RECOVERY
from an_control.policy import read_model, write_model
from an_control.policy.model_file import Model
from an_control.ros import diagnostics
from an_control.ros.diagnostics import EventLog
from an_control.wiring import Notice

BOTH = pytest.mark.parametrize("stand", ["single_threaded", "events"], indirect=True)


@BOTH
def test_the_policy_steps_once_for_each_set_of_readings_however_often_it_commands(stand, reference):
    step_on = RosTime(stand)
    expected = []
    for step in range(1, 30):
        step_on(step)
        expected.append(reference.step(step))
    stand.until(lambda: list(stand.commands[-1].effort) == expected[-1], "the last command")
    sent = [list(one.effort) for one in stand.commands]
    seen = [one for one, _ in groupby(sent) if one != SAFE]
    assert seen == [one for one, _ in groupby(expected)]
    # A period and more without readings: the command is repeated, the policy does not step.
    repeats, count = stand.node._loop.controller.repeats, len(stand.commands)
    step_on.advance(1.5)
    stand.until(lambda: len(stand.commands) > count, "the command again")
    assert list(stand.commands[-1].effort) == expected[-1]
    assert stand.node._loop.controller.repeats > repeats
    step_on(30)
    expected.append(reference.step(30))
    stand.until(lambda: list(stand.commands[-1].effort) == expected[-1], "the next command")


@BOTH
def test_a_timer_that_was_due_before_a_tick_makes_no_second_one(stand):
    step_on = RosTime(stand)
    for step in range(1, 6):
        step_on(step)
    loop = stand.node._loop
    stand.until(lambda: loop.ticks.count >= 5, "five ticks")
    count = loop.ticks.count
    loop._ticker.tick_when_due()  # as the events executor does
    assert loop.ticks.count == count
    step_on.advance(1.5)
    stand.until(lambda: loop.ticks.count > count, "a tick without readings")


def proposals(stand: Stand) -> list[JointState]:
    heard: list[JointState] = []
    stand.peer.create_subscription(JointState, "policy/proposed", heard.append, 100)
    (publisher,) = [p for p in stand.node.publishers if p.topic_name == "/policy/proposed"]
    stand.until(publisher.get_subscription_count, "~/proposed matched")
    return heard


def test_in_shadow_it_proposes_commands_nothing_and_takes_what_others_send_as_its_own(
    stand, reference
):
    node = stand.start(activate=False, shadow=True)
    node.trigger_configure()
    heard = proposals(stand)
    pilot = stand.peer.create_publisher(JointState, "commands", 10)
    node.trigger_activate()
    stand.until(lambda: stand.joints.get_subscription_count() == 1, "joint_states matched")
    stand.until(lambda: stand.tilt.get_subscription_count() == 1, "tilt matched")
    stand.until(lambda: pilot.get_subscription_count() == 2, "the node hears the pilot")
    assert not [one for one in node.publishers if one.topic_name == "/commands"]
    for step in range(1, 6):
        stand.send(step)
        stand.until(lambda n=step: len(heard) == n, "a proposal")
        sent = [0.1 * step, -0.2 * step]
        wanted = reference.step(step, sent)
        assert wanted == sent and list(heard[-1].name) == list(JOINTS)
        message = JointState(name=list(reversed(JOINTS)), effort=array("d", reversed(sent)))
        pilot.publish(message)
        stand.until(lambda s=sent: np.array_equal(node.last_command, s), "the node heard the pilot")
    request = SetParameters.Request(
        parameters=[Parameter("shadow", value=False).to_parameter_msg()]
    )
    assert stand.call(SetParameters, "policy/set_parameters", request).results[0].successful
    stand.until(lambda: stand.peer.count_publishers("commands") == 2, "the node can command")
    (publisher,) = [one for one in node.publishers if one.topic_name == "/commands"]
    stand.until(publisher.get_subscription_count, "the robot hears the node")
    stand.commands.clear()
    stand.send(6)
    expected = reference.step(6)
    stand.until(lambda: stand.commands, "the first command")
    assert list(stand.commands[-1].effort) == expected, "it acts on what it has watched"


def test_back_in_shadow_the_safe_command_is_the_last_one(stand):
    node = stand.start()
    stand.step(1)
    node.set_parameters([Parameter("shadow", value=True)])
    stand.until(lambda: len(stand.commands) == 2, "the safe command")
    assert list(stand.commands[-1].effort) == SAFE
    assert not [one for one in node.publishers if one.topic_name == "/commands"]


def test_after_an_estop_the_policy_goes_on_from_what_it_saw_of_the_stop(stand, reference):
    step_on = RosTime(stand)
    step_on(1)
    reference.step(1)
    assert stand.call(Trigger, "policy/estop").success
    for step in range(2, 12):
        step_on(step)
        reference.step(step, SAFE)
    assert stand.call(Trigger, "policy/reset_estop").success
    step_on(12)
    expected = reference.step(12)
    stand.until(lambda: list(stand.commands[-1].effort) != SAFE, "it acts again")
    assert list(stand.commands[-1].effort) == expected


def ramped(model_path, ramp_s: float) -> None:
    model = read_model(model_path)
    task = replace(model.task, ramp_s=ramp_s)
    write_model(model_path, Model(model.kind, model.sizes, model.arrays, task, model.trained))


def test_there_is_no_soft_start_unless_the_model_was_trained_with_one(stand, capfd):
    stand.start(ramp_s=-1.0)
    assert stand.node._loop.controller.acting.ramp_s == 0.0
    assert "ramp_s" not in capfd.readouterr().err


def test_a_model_that_was_trained_with_a_soft_start_gets_it_and_a_longer_one_is_told(stand, capfd):
    ramped(stand.model, 0.3)
    node = stand.start(ramp_s=-1.0)
    assert node._loop.controller.acting.ramp_s == 0.3
    assert "ramp_s" not in capfd.readouterr().err
    node.trigger_deactivate()
    node.trigger_cleanup()
    node.set_parameters([Parameter("ramp_s", value=0.5)])
    node.trigger_configure()
    node.trigger_activate()
    log = capfd.readouterr().err
    assert "[WARN]" in log and "ramp_s: 0.5 s" in log and "trained with up to 0.3 s" in log


def test_before_the_first_message_a_source_is_waited_for_and_only_later_missed(
    stand, capfd, monkeypatch
):
    monkeypatch.setattr(diagnostics, "WAIT_S", 1e9)
    monkeypatch.setattr(diagnostics, "START_S", 1e9)
    stand.start(mode="rate")
    stand.until(lambda: len(stand.commands) > 4, "safe commands")
    assert all(list(one.effort) == SAFE for one in stand.commands)
    log = capfd.readouterr().err
    assert "lost" not in log and "safe command" not in log and "[ERROR]" not in log
    monkeypatch.setattr(diagnostics, "WAIT_S", 0.0)  # a second has passed
    count = len(stand.commands)
    stand.until(lambda: len(stand.commands) > count + 4, "safe commands")
    log = capfd.readouterr().err
    assert log.count("[INFO]") == log.count("waiting for the first message of joints, tilt") == 1
    assert "[WARN]" not in log and "[ERROR]" not in log
    monkeypatch.setattr(diagnostics, "START_S", 0.0)  # and some more
    stand.node._loop.events._patient_until_s = 0.0
    count = len(stand.commands)
    stand.until(lambda: len(stand.commands) > count + 4, "safe commands")
    log = capfd.readouterr().err
    assert log.count("source 'joints': no message yet on joint_states") == 1
    assert "lost" not in log
    assert log.count("safe command: 0 of 4 channels present") == 1


def test_one_line_says_that_it_acts_on_how_many_channels_and_at_which_rate(stand, capfd):
    step_on = RosTime(stand)
    for step in range(1, 5):
        step_on(step)
    log = capfd.readouterr().err
    assert log.count("acting: 4 of 4 channels, 100.0 Hz") == 1
    assert "lost" not in log and "[WARN]" not in log and "[ERROR]" not in log


def test_what_came_and_went_while_inactive_is_not_told_and_what_is_lost_by_then_is(stand, capfd):
    node = stand.start(lockstep_wait_s=0.02)
    stand.step(1)
    node.trigger_deactivate()
    for step in (2, 3):
        stand.watch(step)
    stand.send_joints(stamp_of(4), (1.0, 2.0))
    controller = node._loop.controller
    stand.until(lambda: controller.stepped_ns == stamp_of(4), "a step without tilt")
    capfd.readouterr()
    node.trigger_activate()
    stand.send_joints(stamp_of(5), (1.0, 2.0))
    stand.until(lambda: len(stand.commands) == 3, "a command")
    log = capfd.readouterr().err
    assert log.count("source 'tilt' lost") == 1 and "recovered" not in log


POSITIONS = f"""{WIRING.partition("command:")[0]}command:
  topic: commands
  type: sensor_msgs/msg/JointState
  field: position
  measured: {{source: joints, field: "position[*]"}}
  bring_up: {{max_rate: 20.0, tolerance: 0.05, timeout_s: 5.0}}
  actuators:
    left: {{limits: [-2, 2], safe: hold, start: 0.5}}
    right: {{limits: [-2, 2], safe: hold, start: -0.5}}
"""


FAR = (1.5, 1.0, 0.0, 0.0)


def stepped(stand) -> int | None:
    """The stamp of the readings that the policy stepped on last."""
    return stand.node._loop.controller.stepped_ns


def test_a_robot_is_brought_to_its_start_pose_and_held_where_it_is_when_stopped(stand, said):
    stand.wiring.write_text(POSITIONS)
    stand.start()
    pose, step, path = np.array([1.5, 1.0]), 0, []
    while not stand.node._loop.controller.bring_up.done:
        step += 1
        path.append(pose)
        pose = np.array(stand.step(step, (*pose, 0.0, 0.0)).position)
        assert step < 100
    assert np.abs(np.diff(path, axis=0)).max() <= 20.0 * 0.01 + 1e-9
    assert np.abs(path[-1] - [0.5, -0.5]).max() <= 0.05
    commanding = [line.partition(":")[0] for line in said if "of 4 channels" in line]
    assert commanding == ["moving to the start pose", "acting"]
    stand.step(step + 1, (0.3, -0.7, 0.5, 0.5))
    assert stand.call(Trigger, "policy/estop").success
    for more in range(2, 5):
        held = stand.answered(step + more, (0.3 + 0.1 * more, -0.7, 0.0, 0.0))
        assert list(held.position) == [0.3, -0.7], "where it was when the stop began"


def test_after_a_reset_in_lockstep_changes_count_from_the_new_episodes_positions(stand):
    text = POSITIONS.replace("safe: hold, start: 0.5", "max_rate: 3.0, safe: hold")
    text = text.replace("safe: hold, start: -0.5", "max_rate: 3.0, safe: hold")
    stand.wiring.write_text(re.sub("  bring_up:.*\n", "", text))
    stand.start()
    for step in range(1, 4):
        stand.step(step, (1.5, 1.0, 0.0, 0.0))
    assert stand.reset().success
    first = stand.step(4, (-1.5, -1.0, 0.0, 0.0))
    assert np.abs(np.array(first.position) - [-1.5, -1.0]).max() <= 3.0 * 0.01 + 1e-9


def test_a_start_pose_that_is_not_reached_ends_in_deactivation_with_the_reason(stand, capfd):
    stand.wiring.write_text(POSITIONS.replace("timeout_s: 5.0", "timeout_s: 0.03"))
    stand.start()
    for step in range(1, 4):
        stand.step(step, (1.5, 1.0, 0.0, 0.0))
    stand.send(4, (1.5, 1.0, 0.0, 0.0))
    stand.until(lambda: stand.state() == "inactive", "the deactivation")
    log = capfd.readouterr().err
    assert "bring-up: right is 1.5 from its start pose after 0.03 s" in log


def test_after_a_bring_up_that_failed_it_proposes_in_shadow_and_watches(stand, capfd):
    stand.wiring.write_text(POSITIONS.replace("timeout_s: 5.0", "timeout_s: 0.03"))
    node = stand.start()
    for step in range(1, 5):
        stand.send(step, FAR)
        stand.until(lambda s=step: stepped(stand) == stamp_of(s), "a tick")
    stand.until(lambda: stand.state() == "inactive", "the deactivation")
    node.set_parameters([Parameter("shadow", value=True)])
    heard = proposals(stand)
    node.trigger_activate()
    for step in range(5, 15):
        stand.send(step, FAR)
        stand.until(lambda n=step: len(heard) == n - 4, "a proposal")
    assert stand.state() == "active"
    assert capfd.readouterr().err.count("bring-up:") == 1


def test_deactivated_in_a_bring_up_it_keeps_watching(stand, capfd):
    stand.wiring.write_text(POSITIONS.replace("timeout_s: 5.0", "timeout_s: 0.05"))
    node = stand.start()
    stand.step(1, FAR)
    node.trigger_deactivate()
    for step in range(2, 15):
        stand.send(step, FAR)
        stand.until(lambda s=step: stepped(stand) == stamp_of(s), "the policy watches")
    assert "bring-up" not in capfd.readouterr().err


def test_what_nobody_commands_the_policy_takes_for_the_safe_command(stand, reference):
    node = stand.start(activate=False)
    node.trigger_configure()
    stand.connect()
    for step in (1, 2, 3):
        stand.watch(step)
        reference.step(step, SAFE)
    node.trigger_activate()
    for step in range(4, 12):
        assert list(stand.step(step).effort) == reference.step(step)


def test_a_robot_that_nobody_commands_is_not_pushed_right_after_the_activation(stand):
    node = stand.start(activate=False, recovery=0.01)
    node.trigger_configure()
    stand.connect()
    still = np.zeros(4)
    for step in range(1, 80):
        stand.send(step, still)
        stand.until(lambda s=step: stepped(stand) == stamp_of(s), "the policy watches")
    policy = node._loop.controller.acting.policy
    assert policy.recovery_count == 0
    node.trigger_activate()
    for step in range(80, 80 + RECOVERY.pause_ticks - 1):
        stand.step(step, still)
    assert policy.recovery_count == 0


def test_before_a_position_to_hold_is_known_nothing_is_sent(stand):
    stand.wiring.write_text(POSITIONS)
    stand.start(lockstep_wait_s=0.02)
    stand.send_tilt(10**12, 0.0, 0.0)
    stand.until(lambda: stand.node._loop.controller.decision.safe_reason, "a tick")
    reason = stand.node._loop.controller.decision.safe_reason
    left, right = (f"{name} (joints: position[{name}])" for name in ("left", "right"))
    assert reason == f"no position has been measured yet of {left}, {right}"
    assert not stand.commands
    stand.answered(10**6, (0.1, 0.2, 0.0, 0.0))
    assert all(list(one.position) for one in stand.commands)


def test_a_repeated_step_gets_no_command_while_a_position_to_hold_is_unknown(stand):
    stand.wiring.write_text(POSITIONS)
    controller = stand.start(lockstep_wait_s=0.02)._loop.controller
    stand.send_tilt(10**12, 0.0, 0.0)
    stand.until(lambda: controller.decision.safe_reason, "a tick")
    stand.send_tilt(10**12, 0.0, 0.0)
    stand.until(
        lambda: sum(one.messages for one in controller.table.list_source_statuses(0)) == 2,
        "the step again",
    )
    stand.answered(10**6, (0.1, 0.2, 0.0, 0.0))
    assert all(list(one.position) for one in stand.commands)


@pytest.mark.parametrize("period", [2.0, 50 / 45, 0.5])
def test_sensors_at_another_rate_leave_the_commands_at_the_control_rate(stand, period):
    step_on = RosTime(stand)
    step_on(1)
    next_at, step, at = step_on.step + period, 1, []
    while step_on.step < 80:
        step_on.advance(0.1)
        if step_on.step >= next_at:
            step += 1
            next_at += period
            messages = step_on.messages()
            stand.send(step)
            stand.until(lambda n=messages: step_on.messages() == n + 2, "the readings")
        stand.executor.spin_once(timeout_sec=0.0)
        at.append(stand.node._loop._guard.ticked_ns / STEP_NS)
    ticks = np.unique(at)
    ticks = ticks[ticks > ticks[0] + 15]
    assert np.diff(ticks).min() >= 0.5
    assert abs((len(ticks) - 1) - (ticks[-1] - ticks[0])) <= 1.0


def test_a_robot_that_holds_its_position_gets_proposals_in_shadow_from_the_first_readings_on(
    stand, capfd
):
    """Activated before anything was measured, with a greatest rate, and nobody commands."""
    text = POSITIONS.replace("safe: hold, start: 0.5", "max_rate: 3.0, safe: hold")
    text = text.replace("safe: hold, start: -0.5", "max_rate: 3.0, safe: hold")
    text = re.sub("  bring_up:.*\n", "", text)
    stand.wiring.write_text(text)
    node = stand.start(activate=False, shadow=True, watchdog_s=-1.0)
    node.trigger_configure()
    heard = proposals(stand)
    node.trigger_activate()
    stand.until(lambda: stand.joints.get_subscription_count() == 1, "joint_states matched")
    stand.until(lambda: stand.tilt.get_subscription_count() == 1, "tilt matched")
    for step in range(1, 20):
        before = len(heard)
        stand.send(step, (0.3, -0.7, *np.sin([0.7 * step, 0.7 * step + 1.0])))
        stand.until(lambda n=before: len(heard) > n, "a proposal")
    proposed = np.array([one.position for one in heard])
    assert np.abs(np.diff(proposed, axis=0)).max() <= 3.0 * 0.01 + 1e-12
    assert np.abs(proposed - [0.3, -0.7]).max() > 0.1, "it proposes more than to hold"
    log = capfd.readouterr().err
    assert "watchdog:" not in log and "safe command" not in log
    assert not stand.node._loop._guard.watchdog.sent


def test_a_source_that_is_lost_again_and_again_gets_one_line_with_its_rate_and_the_limit(
    stand, capfd
):
    stand.wiring.write_text(stand.wiring.read_text().replace("max_age_s: 0.05", "max_age_s: 0.015"))
    step_on = RosTime(stand)
    for step in range(1, 4):
        step_on(step)
    capfd.readouterr()
    for step in range(4, 20):
        step_on.advance(1)  # a message every second period, which is too late each time
        stand.executor.spin_once(timeout_sec=0.02)
        step_on(step)
    log = capfd.readouterr().err
    lines = [line for line in log.splitlines() if "source 'joints'" in line]
    assert 1 <= len(lines) <= 5
    (line,) = [one for one in lines if "lost 3 times" in one]
    assert "messages a second come, and its max_age_s is 0.015; raise it" in line


def test_a_source_that_cannot_be_read_again_and_again_is_not_advised_a_greater_age(stand):
    stand.start(mode="rate")
    lines: list[str] = []
    logger = SimpleNamespace(warning=lines.append, info=lines.append)
    log = EventLog(logger, stand.node._loop.controller)
    for second in range(3):
        reason = "encoding '8UC1' is not one of mono8, rgb8"
        log._log_source_notice(Notice("lost", "joints", reason=reason), float(second))
    assert lines[-1] == f"source 'joints' was lost 3 times in 2.0 s: {reason}"
