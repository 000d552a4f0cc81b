"""Announced rewiring: by parameters or the file, all or nothing, state goes with channel ids."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from geometry_msgs.msg import Vector3Stamped
from rcl_interfaces.msg import Parameter as ParameterMessage
from rcl_interfaces.srv import SetParametersAtomically
from rclpy.parameter import Parameter
from sensor_msgs.msg import JointState
from stand import IDS, JOINTS, Stand, readings_of, stamp_of
from std_srvs.srv import Trigger

from an_control.ros import diagnostics
from an_control.ros.outputs import set_stamp

X, Y = "channels.tilt.x", "channels.tilt.y"
LEFT, RIGHT = "channels.left.position", "channels.right.position"


def rewire(stand: Stand, **changes: Any) -> str:
    """All or none, by the parameter's name; the reason for a refusal."""
    parameters: list[ParameterMessage] = [
        Parameter(name, value=value).to_parameter_msg() for name, value in changes.items()
    ]
    request = SetParametersAtomically.Request(parameters=parameters)
    result = stand.call(SetParametersAtomically, "policy/set_parameters_atomically", request).result
    assert result.successful != bool(result.reason)
    return str(result.reason)


def reload(stand: Stand) -> str:
    reply = stand.call(Trigger, "policy/reload_wiring")
    assert reply.success != bool(reply.message)
    return str(reply.message)


def value(stand: Stand, name: str) -> Any:
    return stand.node.get_parameter(name).value


def test_all_that_can_be_rewired_is_a_parameter(stand):
    stand.start()
    assert value(stand, f"{X}.source") == "tilt"
    assert value(stand, f"{X}.field") == "vector.x"
    assert value(stand, f"{LEFT}.field") == "position[left]"
    assert value(stand, "sources.tilt.topic") == "tilt"


def test_contents_that_move_between_fields_change_no_bit_where_it_is_announced(stand, reference):
    stand.start()
    for step in range(60):
        left, right, x, y = readings_of(step)
        turned = step // 7 % 2 == 1
        if step % 7 == 0:
            names = ("right", "left") if turned else ("left", "right")
            axes = "yx" if turned else "xy"
            assert not rewire(
                stand,
                **{
                    f"{LEFT}.field": f"position[{names[0]}]",
                    f"{RIGHT}.field": f"position[{names[1]}]",
                    f"{X}.field": f"vector.{axes[0]}",
                    f"{Y}.field": f"vector.{axes[1]}",
                },
            )
        sent = (right, left, y, x) if turned else (left, right, x, y)
        assert list(stand.step(step, sent).effort) == reference.step(step)


def test_a_channel_that_moves_to_another_source_keeps_its_state(stand, reference):
    """tilt.x first comes from tilt, then as the joint `third` beside the others."""
    stand.start()
    for step in range(10):
        assert list(stand.step(step).effort) == reference.step(step)
    assert not rewire(stand, **{f"{X}.source": "joints", f"{X}.field": "position[third]"})
    for step in range(10, 20):
        left, right, x, y = readings_of(step)
        stand.send_tilt(stamp_of(step), 9.0, y)
        stand.send_joints(stamp_of(step), (x, right, left), ("third", "right", "left"))
        stand.until(lambda n=step + 1: len(stand.commands) == n, f"step {step}")
        assert list(stand.commands[-1].effort) == reference.step(step)


def test_a_channel_with_a_star_is_rewired_as_a_whole_by_its_id_in_the_file(stand, reference):
    text = stand.wiring.read_text()
    begin, end = text.index("  left.position:"), text.index("  tilt.x:")
    starred = '  "*.position": {source: joints, field: "position[*]"}\n'
    stand.wiring.write_text(text[:begin] + starred + text[end:])
    stand.start()
    assert value(stand, "channels.*.position.field") == "position[*]"
    assert list(stand.step(1).effort) == reference.step(1)
    assert not rewire(stand, **{"channels.*.position.field": "velocity[*]"})
    left, right, x, y = readings_of(2)
    message = JointState(name=list(JOINTS), velocity=[left, right])
    set_stamp(message.header.stamp, stamp_of(2))
    stand.joints.publish(message)
    stand.send_tilt(stamp_of(2), x, y)
    stand.until(lambda: len(stand.commands) == 2, "the command of step 2")
    assert list(stand.commands[-1].effort) == reference.step(2)
    assert "one number" in rewire(stand, **{f"{X}.field": "vector.*"})
    assert "several numbers" in rewire(stand, **{"channels.*.position.field": "velocity[left]"})


def test_a_source_that_comes_back_to_a_topic_has_missed_no_message(stand, reference):
    stand.start()
    assert list(stand.step(0).effort) == reference.step(0)
    assert not rewire(stand, **{"sources.tilt.topic": "elsewhere"})
    stand.send_tilt(stamp_of(1), *readings_of(1)[2:])
    assert not rewire(stand, **{"sources.tilt.topic": "tilt"})
    stand.send_joints(stamp_of(1), readings_of(1)[:2])
    stand.until(lambda: len(stand.commands) == 2, "the command of step 1")
    assert list(stand.commands[1].effort) == reference.step(1)


def test_sources_that_swap_topics_within_a_step_both_read_their_new_topic(stand, reference):
    text = stand.wiring.read_text()
    text = text.replace("geometry_msgs/msg/Vector3Stamped", "sensor_msgs/msg/JointState")
    text = text.replace("topic: tilt", "topic: levels")
    for axis in "xy":
        text = text.replace(f"vector.{axis}", f'"position[{axis}]"')
    stand.wiring.write_text(text)
    stand.start(activate=False)
    assert stand.node.trigger_configure().to_label() == "transition_success"
    assert stand.node.trigger_activate().to_label() == "transition_success"
    other = stand.peer.create_publisher(JointState, "levels", 10)
    stand.until(other.get_subscription_count, "levels matched")
    stand.until(stand.joints.get_subscription_count, "joint_states matched")
    left, right, x, y = readings_of(1)
    stand.send_joints(stamp_of(1), (x, y), ("x", "y"))
    stand.until(lambda: stand.node._loop._ticker._stamps._have, "the message of joint_states")
    assert not rewire(
        stand, **{"sources.joints.topic": "levels", "sources.tilt.topic": "joint_states"}
    )
    message = JointState(name=list(JOINTS), position=[left, right])
    set_stamp(message.header.stamp, stamp_of(1))
    other.publish(message)
    stand.until(lambda: stand.commands, "the command")
    assert list(stand.commands[0].effort) == reference.step(1)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({f"{X}.field": "vector.w"}, ("vector.w", "x, y, z")),
        ({f"{X}.field": "vector"}, (f"{X}.field", "a number")),
        ({f"{X}.field": "header.frame_id"}, ("a number", "string")),
        ({f"{X}.field": "vector.*"}, ("one number",)),
        ({f"{X}.field": "((("}, (f"{X}.field",)),
        ({f"{X}.source": "joints"}, ("vector.x", "position")),
        ({f"{X}.source": "lidar"}, ("lidar", "joints, tilt")),
        ({"sources.tilt.topic": "joint_states"}, ("Vector3Stamped", "JointState")),
        ({"sources.tilt.topic": "commands"}, ("sources.tilt.topic", "command.topic")),
        ({"sources.tilt.topic": "/commands"}, ("sources.tilt.topic", "command.topic")),
        ({"sources.tilt.topic": "policy/channels"}, ("sources.tilt.topic", "~/channels")),
        ({"sources.tilt.topic": "~/proposed"}, ("sources.tilt.topic", "~/proposed")),
        ({"sources.tilt.topic": "/diagnostics"}, ("sources.tilt.topic", "/diagnostics")),
        ({"sources.lidar.topic": "scan"}, ("undeclared",)),
        ({"channels.tilt.z.field": "vector.z"}, ("undeclared",)),
        ({f"{X}.field": 3.0}, ("type",)),
    ],
)
def test_what_cannot_work_is_refused_with_a_reason_and_all_stays(stand, reference, changes, said):
    stand.start()
    assert list(stand.step(1).effort) == reference.step(1)
    reason = rewire(stand, **{f"{Y}.field": "vector.z", "sources.joints.topic": "else", **changes})
    assert all(word in reason for word in said), reason
    assert value(stand, f"{Y}.field") == "vector.y"
    assert value(stand, "sources.joints.topic") == "joint_states"
    assert list(stand.step(2).effort) == reference.step(2)


def test_a_launch_may_override_a_field(stand, reference):
    node = stand.start(**{f"{X}.field": "vector.y", f"{Y}.field": "vector.x"})
    left, right, x, y = readings_of(1)
    assert list(stand.step(1, (left, right, y, x)).effort) == reference.step(1)
    node.trigger_deactivate()
    node.trigger_cleanup()
    assert not node.has_parameter(f"{X}.field")


@pytest.mark.parametrize("name", [f"{X}.field", f"{X}.source"])
def test_an_override_that_cannot_be_fails_to_configure_naming_it(stand, capfd, name):
    node = stand.start(activate=False, **{name: "nowhere"})
    assert node.trigger_configure().to_label() == "transition_failure"
    assert name in capfd.readouterr().err
    assert stand.state() == "unconfigured"


@pytest.mark.parametrize(
    ("arguments", "command", "said"),
    [
        (["-r", "joint_states:=commands"], "commands", "sources.joints.topic: '/ant/commands'"),
        (["-r", "commands:=tilt"], "commands", "sources.tilt.topic: '/ant/tilt'"),
        ([], "/ant/tilt", "sources.tilt.topic: '/ant/tilt'"),
        ([], "~/proposed", "command.topic: '/ant/policy/proposed'"),
        (["-r", "commands:=policy/channels"], "commands", "command.topic: '/ant/policy/channels'"),
    ],
)
def test_a_loop_that_only_the_resolved_names_show_fails_to_configure(
    stand, capfd, arguments, command, said
):
    text = stand.wiring.read_text()
    stand.wiring.write_text(text.replace("topic: commands", f"topic: {command}"))
    options = {"namespace": "/ant", "cli_args": ["--ros-args", *arguments]}
    node = stand.start(activate=False, options=options)
    assert node.trigger_configure().to_label() == "transition_failure"
    assert said in capfd.readouterr().err


def test_a_loop_in_the_file_is_refused_when_it_is_read_again(stand, reference):
    stand.start()
    text = stand.wiring.read_text()
    stand.wiring.write_text(text.replace("topic: tilt", "topic: /commands"))
    assert "command.topic" in reload(stand)
    assert list(stand.step(1).effort) == reference.step(1)


THIRD = """\
  third: {topic: third, type: sensor_msgs/msg/JointState, max_age_s: 0.05}
channels:
  third.position: {source: third, field: "position[third]"}
"""


def test_sources_come_and_go_with_the_file_while_it_runs(stand, reference):
    stand.start()
    text = stand.wiring.read_text()
    third = stand.peer.create_publisher(JointState, "third", 10)
    assert list(stand.step(0).effort) == reference.step(0)
    stand.wiring.write_text(text.replace("channels:\n", THIRD))
    assert not reload(stand)
    assert value(stand, "sources.third.topic") == "third"
    stand.until(third.get_subscription_count, "third matched")
    message = JointState(name=["third"], position=[0.25])
    set_stamp(message.header.stamp, stamp_of(1))
    third.publish(message)
    seen = dict(zip(IDS, readings_of(1), strict=True)) | {"third.position": 0.25}
    assert list(stand.step(1).effort) == reference(seen)
    stand.wiring.write_text(text)
    assert not reload(stand)
    assert not stand.node.has_parameter("sources.third.topic")
    stand.until(lambda: not third.get_subscription_count(), "third let go")
    assert list(stand.step(2).effort) == reference.step(2)


def test_a_source_that_goes_while_its_stamp_is_awaited_is_waited_for_no_longer(stand, reference):
    stand.start(lockstep_wait_s=60.0)
    text = stand.wiring.read_text()
    kept = [line for line in text.splitlines() if "tilt" not in line]
    stand.send_joints(stamp_of(1), readings_of(1)[:2])
    stand.executor.spin_once(timeout_sec=0.2)
    stand.wiring.write_text("\n".join(kept))
    assert not reload(stand)
    # By its end the wait itself would give the command, too.
    stand.until(lambda: stand.commands, "the command without tilt", limit_s=30.0)
    seen = dict(zip(IDS[:2], readings_of(1)[:2], strict=True))
    assert list(stand.commands[0].effort) == reference(seen)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("vector.x", "vector.w", "channels.tilt.x.field"),
        ("rate_hz: 100.0", "rate_hz: 50.0", "rate_hz"),
        ("[-8, 8]", "[-9, 9]", "command"),
        ("robot: tiny", "robot: [", "line"),
        ("topic: tilt", "topic: joint_states", "Vector3Stamped"),
        ("geometry_msgs/msg/Vector3Stamped", "nowhere_msgs/msg/X", "nowhere_msgs"),
    ],
)
def test_a_file_that_cannot_take_over_is_refused_and_all_stays(stand, reference, old, new, said):
    stand.start()
    assert not rewire(stand, **{f"{X}.field": "vector.z"})
    text = stand.wiring.read_text()
    stand.wiring.write_text(text.replace(old, new))
    reason = reload(stand)
    assert said in reason and str(stand.wiring) in reason
    assert value(stand, f"{X}.field") == "vector.z"
    assert not rewire(stand, **{f"{X}.field": "vector.x"})
    assert list(stand.step(1).effort) == reference.step(1)


def test_a_file_that_vanishes_while_it_is_read_again_is_refused_and_all_stays(
    stand, reference, tmp_path, monkeypatch
):
    stand.start(record=str(tmp_path / "bags"))

    def vanish(path):
        raise FileNotFoundError(2, "No such file or directory", path)

    monkeypatch.setattr("an_control.ros.node.read_regular_file", vanish)
    stand.wiring.write_text(stand.wiring.read_text().replace("vector.x", "vector.z"))
    assert str(stand.wiring) in reload(stand)
    assert value(stand, f"{X}.field") == "vector.x"
    assert list(stand.step(1).effort) == reference.step(1)


def test_a_wiring_that_cannot_be_subscribed_is_not_recorded(stand, tmp_path, monkeypatch):
    stand.start(record=str(tmp_path / "bags"))
    recorded: list[str] = []
    monkeypatch.setattr(
        stand.node._recorder, "record_event", lambda kind, *_, **__: recorded.append(kind)
    )

    def refuse(table):
        raise ValueError("cannot be subscribed")

    with monkeypatch.context() as refusing:
        refusing.setattr(stand.node._loop._inputs, "resubscribe_and_get_moved_sources", refuse)
        assert reload(stand) == "cannot be subscribed"
    assert recorded == []
    assert not reload(stand)
    assert recorded == ["wiring", "rewire"]


def test_a_reload_declares_only_the_parameters_that_have_changed(stand, monkeypatch):
    stand.start()
    declared: list[str] = []
    declare = stand.node.declare_parameters

    def record_and_declare(namespace, parameters, **options):
        declared.extend(one[0] for one in parameters)
        return declare(namespace, parameters, **options)

    monkeypatch.setattr(stand.node, "declare_parameters", record_and_declare)
    assert not reload(stand)
    assert declared == []
    stand.wiring.write_text(stand.wiring.read_text().replace("vector.x", "vector.z"))
    assert not reload(stand)
    assert declared == [f"{X}.field"]
    assert value(stand, f"{X}.field") == "vector.z"


UNREADABLE = {
    "no stamps, in lockstep": (
        "  eye: {topic: numbers, type: std_msgs/msg/Float64MultiArray, max_age_s: 0}",
        '  tilt.x: {source: eye, field: "data[0]"}',
        "a stamp, for mode lockstep",
    ),
    "images": (
        "  eye: {topic: eye, type: sensor_msgs/msg/Image, max_age_s: 0.05}",
        '  "eye.*": {source: eye, image: {size: [16, 16], patch: 4, stack: 3}}',
        "fields of numbers, which",
    ),
}


@pytest.mark.parametrize("kind", list(UNREADABLE))
def test_a_file_that_the_policy_could_not_read_is_refused_and_all_stays(stand, reference, kind):
    source, channel, said = UNREADABLE[kind]
    stand.start()
    text = stand.wiring.read_text()
    head, command = text[: text.index("sources:")], text[text.index("command:") :]
    stand.wiring.write_text(f"{head}sources:\n{source}\nchannels:\n{channel}\n{command}")
    assert said in reload(stand)
    assert list(stand.step(1).effort) == reference.step(1)


def test_what_a_launch_overrides_stays_overridden_when_the_file_is_read_again(stand):
    stand.start(activate=False, **{"sources.tilt.topic": "elsewhere"}).trigger_configure()
    assert not rewire(stand, **{"sources.tilt.topic": "there", f"{X}.field": "vector.y"})
    assert not reload(stand)
    assert value(stand, "sources.tilt.topic") == "elsewhere"
    assert value(stand, f"{X}.field") == "vector.x"


def test_unconfigured_there_is_nothing_to_read_again(stand):
    stand.start(activate=False)
    assert reload(stand) == "not configured"


def test_at_a_rate_the_last_message_counts_until_the_new_topic_speaks(stand):
    stand.start(mode="rate")
    stand.wiring.write_text(stand.wiring.read_text())
    loop = stand.node._loop
    stand.send(1)
    table = loop.controller.table
    stand.until(lambda: all(one.messages for one in table.list_source_statuses(0)), "a step")
    assert not rewire(stand, **{"sources.tilt.topic": "other"})
    (tilt,) = [s for s in loop.controller.table.list_source_statuses(0) if s.name == "tilt"]
    assert tilt.messages == 1 and tilt.topic == "other"


def command(stand: Stand, *arguments: str) -> subprocess.CompletedProcess[str]:
    start = "import sys; from an_control.cli import main; sys.exit(main())"
    process = subprocess.Popen(
        [sys.executable, "-c", start, "rewire", "/policy", "--timeout-s", "20", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    stand.until(lambda: process.poll() is not None, "the command's end")
    out, errors = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, errors)


def test_the_command_rewires_topics_and_fields_at_once_or_says_why_not(stand, reference):
    stand.start()
    other = stand.peer.create_publisher(Vector3Stamped, "other", 10)
    done = command(stand, "tilt=other", "left.position.field=position[right]",
                   "right.position.field=position[left]")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "/policy: tilt now reads other" in done.stdout
    stand.until(other.get_subscription_count, "other matched")
    left, right, x, y = map(float, readings_of(1))
    message = Vector3Stamped()
    message.vector.x, message.vector.y = x, y
    set_stamp(message.header.stamp, stamp_of(1))
    other.publish(message)
    stand.send_joints(stamp_of(1), (right, left), JOINTS)
    stand.until(lambda: stand.commands, "the command")
    assert list(stand.commands[-1].effort) == reference.step(1)
    done = command(stand, "tilt=tilt", "tilt.x.field=vector.w")
    assert done.returncode == 1 and "vector.w" in done.stderr
    assert value(stand, "sources.tilt.topic") == "other"
    done = command(stand, "--reload")
    assert done.returncode == 0, done.stderr
    assert value(stand, "sources.tilt.topic") == "tilt"


def test_a_topic_that_nobody_publishes_is_taken_and_told(stand, capfd):
    stand.start()
    stand.step(1)
    capfd.readouterr()
    (result,) = stand.node.set_parameters([Parameter("sources.tilt.topic", value="nowhere")])
    assert result.successful
    log = capfd.readouterr().err
    assert "rewired: sources.tilt.topic = nowhere" in log
    assert log.count("nobody publishes on nowhere yet; /tilt is published with this type") == 1


def test_a_source_that_a_rewiring_adds_is_waited_for_before_it_is_missed(stand, capfd, monkeypatch):
    monkeypatch.setattr(diagnostics, "START_S", 1e9)
    stand.start()
    stand.step(1)
    stand.node._loop.events._patient_until_s = 0.0  # the start is over
    text = stand.wiring.read_text()
    spare = "sources:\n  spare: {topic: spare, type: sensor_msgs/msg/Imu, max_age_s: 1}\n"
    stand.wiring.write_text(text.replace("sources:\n", spare))
    assert reload(stand) == ""
    stand.step(2)
    log = capfd.readouterr().err
    assert "no message yet" not in log
    assert log.count("source 'spare' feeds no channel: add one, or take the source out of") == 1
    monkeypatch.setattr(diagnostics, "START_S", 0.0)  # five seconds have passed
    stand.step(3)
    assert capfd.readouterr().err.count("source 'spare': no message yet on spare") == 1
