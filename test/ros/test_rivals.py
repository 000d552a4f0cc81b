"""Two publishers of the same readings are told by name; those that share a topic are not."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sensor_msgs.msg import JointState
from stand import stamp_of

from an_control.ros.competing_publishers import TURN_NS, TopicSenders
from an_control.ros.distributions import has_publisher_ids_in_callbacks
from an_control.ros.graph import QuietNode
from an_control.ros.inputs import Inputs

MS = 1_000_000
A, B, C = b"a", b"b", b"c"


def pairs(senders: TopicSenders, now_ns: int) -> list:
    return [(one.first, one.second, one.names) for one in senders.find_competing_publishers(now_ns)]


def test_publishers_that_send_the_same_names_in_turn_are_rivals():
    senders = TopicSenders()
    for step in range(4):
        senders.record_message(A, ["hip", "knee"], step * MS)
        senders.record_message(B, ["knee", "toe"], step * MS)
    assert pairs(senders, 4 * MS) == [(A, B, ("knee",))]
    assert pairs(senders, 4 * MS + TURN_NS) == []


def test_an_arm_and_its_gripper_are_none():
    senders = TopicSenders()
    for step in range(4):
        senders.record_message(A, ["hip"], step * MS)
        senders.record_message(B, ["finger"], step * MS)
    assert pairs(senders, 4 * MS) == []


def test_a_publisher_that_takes_over_from_another_is_none():
    senders = TopicSenders()
    for step in range(10):
        senders.record_message(A if step < 5 else B, [], step * MS)
    assert pairs(senders, 10 * MS) == []


def test_messages_without_names_are_the_same_readings():
    senders = TopicSenders()
    for step in range(6):
        senders.record_message((A, B, C)[step % 3], [], step * MS)
    assert {(one, other) for one, other, _ in pairs(senders, 6 * MS)} == {(A, B), (A, C), (B, C)}


@given(
    st.lists(
        st.tuples(
            st.sampled_from([bytes([i]) for i in range(40)]), st.lists(st.sampled_from("xyz"))
        )
    )
)
def test_whoever_sends_what_nothing_grows_and_nothing_fails(messages):
    senders = TopicSenders()
    for step, (publisher, names) in enumerate(messages):
        senders.record_message(publisher, names, step * MS)
        senders.find_competing_publishers(step * MS)
    assert len(senders._last) <= 20 and len(senders._between_ns) <= 20 * 20


def publish(stand, publisher, step: int, names: list[str], value: float) -> None:
    message = JointState(name=names, position=array("d", [value] * len(names)))
    message.header.stamp.sec = stamp_of(step) // 10**9
    publisher.publish(message)


def source_status(stand):
    statuses = stand.node._loop.diagnostics.make_message(
        True, stand.node._loop._clock.now_ns()
    ).status
    (found,) = [one for one in statuses if one.name.endswith("source joints")]
    return found


@pytest.mark.skipif(
    not has_publisher_ids_in_callbacks(), reason="this rclpy does not tell who sent a message"
)
@pytest.mark.parametrize("names", [["left", "right"], ["finger"]])
def test_a_second_publisher_of_the_same_joints_is_named_with_the_channels(stand, capfd, names):
    stand.start(mode="rate")
    other = stand.add(QuietNode("joint_state_publisher", context=stand.context))
    second = other.create_publisher(JointState, "joint_states", 10)
    stand.until(second.get_subscription_count, "the second publisher is heard")
    topic = stand.node._loop._inputs
    stand.until(lambda: "joint_states" in topic._senders, "two publishers are known")
    for step in range(1, 10):
        publish(stand, stand.joints, step, ["left", "right"], 1.0)
        stand.executor.spin_once(timeout_sec=0.02)
        publish(stand, second, step, names, 0.0)
        for _ in range(4):
            stand.executor.spin_once(timeout_sec=0.01)
    rivals = isinstance(topic, Inputs) and topic.describe_competing_publishers("joints")
    status = source_status(stand)
    if names == ["finger"]:
        assert rivals == [] and "both send" not in status.message
        return
    said = (
        "both send left.position, right.position: stop one of them, or give it a topic of its own"
    )
    assert status.message.endswith(said) and status.level == b"\x01"
    assert "/robot" in status.message and "/joint_state_publisher" in status.message
    source_status(stand)
    assert said in capfd.readouterr().err
