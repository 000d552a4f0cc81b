"""Commands of any type, and of several topics in one tick, over real ROS 2."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
from geometry_msgs.msg import TwistStamped
from rclpy.qos import QoSProfile, ReliabilityPolicy
from stand import SAFE, WIRING, Stand, nanoseconds, stamp_of
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import Trigger
from trajectory_msgs.msg import JointTrajectory

from an_control.control.controller import _set_previous_action
from an_control.ros.outputs import list_shadow_mode_topics

BASE = """command:
  - topic: cmd_vel
    type: geometry_msgs/msg/TwistStamped
    constants: {header.frame_id: base_link}
    actuators: {forward: {scale: 10.0, limits: [-8, 8], safe: 0.5, field: twist.linear.x}}
  - topic: arm
    type: %s
    field: %s
    actuators: {lift: {scale: 10.0, limits: [-8, 8], safe: -0.25}}
"""
ARRAY = ("std_msgs/msg/Float64MultiArray", "data")
TRAJECTORY = ("trajectory_msgs/msg/JointTrajectory", "points[0].positions")
TYPES = {"cmd_vel": TwistStamped, "arm": Float64MultiArray}


class Heard:
    """All messages on some topics, in the order in which they came."""

    def __init__(self, stand: Stand, types: dict[str, Any], prefix: str = "") -> None:
        self.all: list[tuple[str, Any]] = []
        for topic, type_ in types.items():
            stand.peer.create_subscription(
                type_,
                f"{prefix}{topic}",
                lambda message, topic=topic: self.all.append((topic, message)),
                QoSProfile(depth=100),
            )

    def on(self, topic: str) -> list[Any]:
        return [message for name, message in self.all if name == topic]


def wire(stand: Stand, arm: tuple[str, str] = ARRAY) -> None:
    stand.wiring.write_text(WIRING[: WIRING.index("command:")] + BASE % arm)


def start(stand: Stand, types: dict[str, Any], **parameters: Any) -> None:
    """The node, active, and heard on all topics."""
    node = stand.start(activate=False, **parameters)
    assert node.trigger_configure().to_label() == "transition_success"
    assert node.trigger_activate().to_label() == "transition_success"
    stand.until(lambda: stand.joints.get_subscription_count() == 1, "joint_states matched")
    stand.until(lambda: stand.tilt.get_subscription_count() == 1, "tilt matched")
    prefix = "policy/proposed/" if parameters.get("shadow") else ""
    for topic in types:
        stand.until(lambda t=topic: stand.peer.count_publishers(f"{prefix}{t}") == 1, topic)


def test_every_tick_sends_all_topics_the_values_of_one_action(stand, reference):
    wire(stand)
    heard = Heard(stand, TYPES)
    start(stand, TYPES)
    for step in (1, 2, 3):
        stand.send(step)
        stand.until(lambda n=step: len(heard.all) == 2 * n, f"both commands of step {step}")
        twist, arm = heard.on("cmd_vel")[-1], heard.on("arm")[-1]
        assert nanoseconds(twist) == stamp_of(step)
        assert twist.header.frame_id == "base_link"
        assert [twist.twist.linear.x, arm.data[0]] == reference.step(step)


def test_estop_and_shutdown_send_the_safe_command_on_every_topic(stand):
    wire(stand)
    heard = Heard(stand, TYPES)
    start(stand, TYPES)
    stand.send(1)
    stand.until(lambda: len(heard.all) == 2, "the command")
    stand.call(Trigger, "policy/estop")
    stand.until(lambda: len(heard.all) >= 4, "the safe command")
    stand.node.trigger_deactivate()
    stand.until(lambda: len(heard.all) >= 6, "the last command")
    assert heard.on("cmd_vel")[-1].twist.linear.x == 0.5
    assert heard.on("arm")[-1].data.tolist() == [-0.25]


def test_an_estop_stops_a_base_also_while_no_position_of_its_arm_is_known(stand):
    wire(stand)
    text = stand.wiring.read_text().replace("safe: -0.25", "safe: hold")
    measured = '{source: joints, field: "position[*]"}'
    stand.wiring.write_text(
        text.replace("    field: data", f"    field: data\n    measured: {measured}")
    )
    heard = Heard(stand, TYPES)
    start(stand, TYPES, mode="rate")
    assert stand.call(Trigger, "policy/estop").success
    stand.until(lambda: heard.on("cmd_vel"), "the base's safe command")
    assert {one.twist.linear.x for one in heard.on("cmd_vel")} == {0.5}
    assert not heard.on("arm")


@pytest.mark.parametrize("arm", [ARRAY, TRAJECTORY])
def test_in_lockstep_a_repeated_step_gets_no_second_command_of_a_type_without_a_stamp(
    stand, reference, arm
):
    """Nothing would tell it from the command of the next step."""
    wire(stand, arm)
    types = TYPES | ({"arm": JointTrajectory} if arm is TRAJECTORY else {})
    heard = Heard(stand, types)
    start(stand, types)
    stand.send(1)
    stand.until(lambda: len(heard.all) == 2, "both commands of step 1")
    stand.send(1)
    stand.until(lambda: len(heard.on("cmd_vel")) == 3, "the stamped command again, twice")
    stand.send(2)
    stand.until(lambda: len(heard.on("arm")) == 2, "the command of step 2")
    first, second = reference.step(1), reference.step(2)
    assert [one.twist.linear.x for one in heard.on("cmd_vel")] == [first[0]] * 3 + [second[0]]
    values = [one.data if arm is ARRAY else one.points[0].positions for one in heard.on("arm")]
    assert [one[0] for one in values] == [first[1], second[1]]


def test_in_lockstep_an_estop_sends_a_type_without_a_stamp_as_the_answer_to_a_step_alone(
    stand, reference
):
    wire(stand)
    heard = Heard(stand, TYPES)
    start(stand, TYPES)
    stand.send(1)
    stand.until(lambda: len(heard.all) == 2, "the command")
    stand.call(Trigger, "policy/estop")
    stand.until(lambda: len(heard.on("cmd_vel")) > 3, "the safe command again and again")
    stand.send(2)
    stand.until(lambda: len(heard.on("arm")) == 2, "the safe command of step 2")
    assert heard.on("arm")[1].data.tolist() == SAFE[1:]
    stand.call(Trigger, "policy/reset_estop")
    stand.send(3)
    stand.until(lambda: heard.on("cmd_vel")[-1].twist.linear.x != SAFE[0], "the policy again")
    stand.until(lambda: len(heard.on("arm")) == 3, "the command of step 3")
    reference.step(1, SAFE)
    reference.step(2, SAFE)
    last = [heard.on("cmd_vel")[-1].twist.linear.x, heard.on("arm")[-1].data[0]]
    assert last == reference.step(3), "the policy knows of the stop"


def test_shadow_proposes_below_one_topic_each_and_commands_nothing(stand, reference):
    wire(stand)
    commanded = Heard(stand, TYPES)
    proposed = Heard(stand, TYPES, "policy/proposed/")
    start(stand, TYPES, shadow=True)
    stand.send(1)
    stand.until(lambda: len(proposed.all) == 2, "both proposals")
    values = [proposed.on("cmd_vel")[0].twist.linear.x, proposed.on("arm")[0].data[0]]
    assert values == reference.step(1) and not commanded.all
    assert not stand.peer.count_publishers("cmd_vel")


def test_the_topics_of_proposals_differ_where_those_of_commands_do():
    def list_topics(*topics: str) -> tuple[str, ...]:
        return list_shadow_mode_topics(
            SimpleNamespace(messages=[SimpleNamespace(topic=t) for t in topics])
        )

    assert list_topics("cmd") == ("~/proposed",)
    assert list_topics("cmd", "/arm") == ("~/proposed/cmd", "~/proposed/arm")
    assert list_topics("cmd", "arm", "/cmd") == (
        "~/proposed/command_0/cmd", "~/proposed/arm", "~/proposed/command_2/cmd",
    )  # fmt: skip
    assert len(set(list_topics("cmd", "/cmd", "command_0/cmd"))) == 3


def test_a_topic_that_cannot_be_sent_keeps_the_safe_command_from_no_other(stand, monkeypatch):
    wire(stand)
    heard = Heard(stand, TYPES)
    start(stand, TYPES)
    (first,) = [one for one in stand.node.publishers if one.topic_name == "/cmd_vel"]

    def fail(message: Any) -> None:
        raise RuntimeError("no network")

    monkeypatch.setattr(first, "publish", fail)
    stand.send(1)
    stand.until(lambda: len(heard.on("arm")) >= 2, "the command and the safe command of the arm")
    assert heard.on("arm")[-1].data.tolist() == [-0.25]
    assert stand.state() == "unconfigured"


def test_a_trajectory_is_sent_to_start_now(stand, reference):
    wire(stand, TRAJECTORY)
    types = {"cmd_vel": TwistStamped, "arm": JointTrajectory}
    heard = Heard(stand, types)
    start(stand, types)
    stand.send(1)
    stand.until(lambda: len(heard.all) == 2, "both commands")
    trajectory = heard.on("arm")[0]
    assert nanoseconds(trajectory) == 0 and trajectory.joint_names == ["lift"]
    assert trajectory.points[0].positions.tolist() == reference.step(1)[1:]
    assert trajectory.points[0].time_from_start.nanosec == 10_000_000


def test_while_it_does_not_command_it_hears_who_does_on_all_topics(stand):
    wire(stand)
    publishers = {t: stand.peer.create_publisher(type_, t, 10) for t, type_ in TYPES.items()}
    start(stand, {}, shadow=True)
    twist = TwistStamped()
    twist.twist.linear.x = 2.0
    for publisher in publishers.values():
        stand.until(publisher.get_subscription_count, "heard")
    publishers["cmd_vel"].publish(twist)
    publishers["arm"].publish(Float64MultiArray(data=[3.0]))
    stand.until(lambda: stand.node.last_command is not None, "both parts")
    np.testing.assert_array_equal(stand.node.last_command, [2.0, 3.0])


def test_it_hears_a_best_effort_commander_too(stand):
    wire(stand)
    best_effort = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
    publishers = [stand.peer.create_publisher(type_, t, best_effort) for t, type_ in TYPES.items()]
    start(stand, {}, shadow=True)
    for publisher in publishers:
        stand.until(publisher.get_subscription_count, "heard")
    publishers[0].publish(TwistStamped())
    publishers[1].publish(Float64MultiArray(data=[3.0]))
    stand.until(lambda: stand.node.last_command is not None, "both parts")
    np.testing.assert_array_equal(stand.node.last_command, [0.0, 3.0])


def test_an_action_that_rounding_puts_beyond_one_still_counts_for_the_monitor():
    told = SimpleNamespace(ignored=0, previous_action=None)
    told.ignore_next_readings_for_wiring = lambda: setattr(told, "ignored", told.ignored + 1)
    full = np.array([np.float32(0.6), np.float32(-0.6)], np.float64) / 0.6
    assert (np.abs(full) > 1.0).all()
    _set_previous_action(told, full)
    assert told.previous_action.tolist() == [1.0, -1.0] and not told.ignored
    _set_previous_action(told, 1.1 * full)
    assert told.previous_action.tolist() == [1.0, -1.0] and told.ignored == 1


@pytest.mark.parametrize(
    ("remap", "said"),
    [
        ("arm:=cmd_vel", "command[1].topic"),
        ("tilt:=cmd_vel", "sources.tilt.topic"),
        ("arm:=policy/proposed/cmd_vel", "command[1].topic"),
    ],
)
def test_topics_that_fall_together_are_refused(stand, capfd, remap, said):
    wire(stand)
    node = stand.start(activate=False, options={"cli_args": ["--ros-args", "-r", remap]})
    assert node.trigger_configure().to_label() == "transition_failure"
    assert said in capfd.readouterr().err
