"""Quality of service: whatever a publisher offers and whenever it comes, it is heard."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rclpy
from geometry_msgs.msg import Vector3Stamped
from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState
from stand import JOINTS, LATCHED, Stand, readings_of, stamp_of

from an_control.ros.graph import QuietNode
from an_control.ros.outputs import set_stamp

BOTH = pytest.mark.parametrize("stand", ["single_threaded", "events"], indirect=True)
RELIABLE = QoSProfile(depth=10)
BEST_EFFORT = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
LATCHED_BEST_EFFORT = QoSProfile(
    depth=10,
    reliability=ReliabilityPolicy.BEST_EFFORT,
    durability=DurabilityPolicy.TRANSIENT_LOCAL,
)
ALL = pytest.mark.parametrize(
    "qos",
    [RELIABLE, BEST_EFFORT, LATCHED, LATCHED_BEST_EFFORT],
    ids=["reliable", "best effort", "latched", "latched best effort"],
)


@pytest.fixture
def sensors() -> Iterator[Node]:
    """A node behind a participant of its own, so that discovery takes its time."""
    context = Context()
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = QuietNode("sensors", context=context)
    yield node
    node.destroy_node()
    rclpy.shutdown(context=context)


def joint_message(step: int) -> JointState:
    positions = array("d", map(float, readings_of(step)[:2]))
    message = JointState(name=list(JOINTS), position=positions)
    set_stamp(message.header.stamp, stamp_of(step))
    return message


def tilt_message(step: int) -> Vector3Stamped:
    message = Vector3Stamped()
    message.vector.x, message.vector.y = map(float, readings_of(step)[2:])
    set_stamp(message.header.stamp, stamp_of(step))
    return message


def messages(stand: Stand, source: str = "joints") -> int:
    table = stand.node._loop.controller.table
    (count,) = [one.messages for one in table.list_source_statuses(0) if one.name == source]
    return int(count)


def heard(stand: Stand, publish: Callable[[], None]) -> None:
    """What is published again and again reaches the node."""
    before = messages(stand)

    def came() -> bool:
        publish()
        stand.executor.spin_once(timeout_sec=0.01)
        return messages(stand) > before

    stand.until(came, "a message")


@BOTH
@ALL
def test_a_publisher_that_is_there_first_is_heard(stand, sensors, qos):
    publisher = sensors.create_publisher(JointState, "joint_states", qos)
    stand.until(lambda: stand.peer.count_publishers("joint_states") == 2, "the publisher known")
    stand.start(activate=False).trigger_configure()
    heard(stand, lambda: publisher.publish(joint_message(1)))


@BOTH
@ALL
def test_a_publisher_that_comes_later_is_heard(stand, sensors, qos):
    stand.peer.destroy_publisher(stand.joints)
    stand.start(activate=False).trigger_configure()
    publisher = sensors.create_publisher(JointState, "joint_states", qos)
    heard(stand, lambda: publisher.publish(joint_message(1)))


@BOTH
def test_a_publisher_that_comes_back_with_another_quality_is_heard(stand, sensors):
    stand.start(activate=False).trigger_configure()
    for qos in (RELIABLE, BEST_EFFORT, LATCHED, BEST_EFFORT, RELIABLE):
        publisher = sensors.create_publisher(JointState, "joint_states", qos)
        heard(stand, lambda p=publisher: p.publish(joint_message(1)))
        sensors.destroy_publisher(publisher)


@BOTH
@pytest.mark.parametrize("first", ["node", "publisher"])
def test_what_was_latched_before_is_heard(stand, sensors, first):
    stand.peer.destroy_publisher(stand.joints)
    stand.until(lambda: stand.peer.count_publishers("joint_states") == 0, "no publisher")
    if first == "node":
        stand.start(activate=False).trigger_configure()
    publisher = sensors.create_publisher(JointState, "joint_states", LATCHED)
    publisher.publish(joint_message(1))
    if first == "publisher":
        stand.start(activate=False).trigger_configure()
    stand.until(lambda: messages(stand) == 1, "the latched message")


@BOTH
def test_what_was_latched_is_heard_beside_a_silent_volatile_publisher(stand, sensors):
    """As of a goal: somebody else has a volatile publisher on the topic and sends nothing."""
    publisher = sensors.create_publisher(JointState, "joint_states", LATCHED)
    publisher.publish(joint_message(1))
    stand.until(lambda: stand.peer.count_publishers("joint_states") == 2, "both publishers known")
    stand.start(activate=False).trigger_configure()
    stand.until(lambda: messages(stand) == 1, "the latched message")
    late = sensors.create_publisher(JointState, "joint_states", LATCHED)
    late.publish(joint_message(2))
    stand.until(lambda: messages(stand) >= 2, "what another one latched later")
    stand.until(lambda: not stand.node._loop._inputs._fetching, "nothing is left to fetch")
    heard(stand, lambda: stand.joints.publish(joint_message(3)))


@BOTH
def test_publishers_that_come_and_go_cost_no_step(stand, sensors, reference):
    """Re-subscription happens inside an event's callback, while steps go on."""
    stand.start()
    joints = sensors.create_publisher(JointState, "joint_states", RELIABLE)
    tilt = sensors.create_publisher(Vector3Stamped, "tilt", RELIABLE)
    stand.until(lambda: joints.get_subscription_count() and tilt.get_subscription_count(), "match")
    others: list[Any] = []
    sent = 0
    for step in range(1, 201):
        if step % 10 == 1:
            qos = (BEST_EFFORT, LATCHED)[step // 10 % 2]
            others.append(sensors.create_publisher(JointState, "joint_states", qos))
        if step % 10 == 6:
            sensors.destroy_publisher(others.pop())
        expected = reference.step(step)

        def answered(step: int = step) -> bool:
            nonlocal sent
            joints.publish(joint_message(step))
            tilt.publish(tilt_message(step))
            sent += 1
            for _ in range(20):
                stand.executor.spin_once(timeout_sec=0.01)
                if stand.commands and stand.commands[-1].header.stamp == stamp(step):
                    return True
            return False

        stand.until(answered, f"the command of step {step}")
        assert list(stand.commands[-1].effort) == expected
    assert sent < 2 * 200


def stamp(step: int) -> Any:
    return joint_message(step).header.stamp
