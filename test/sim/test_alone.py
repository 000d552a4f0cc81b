"""Before it starts a policy node, `an-control sim` makes sure that no other simulator is there."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("gymnasium", reason="needs the extra sim")

import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rosgraph_msgs.msg import Clock

from an_control.ros.graph import get_owner_node_name
from an_control_sim.bridge import policy_link
from an_control_sim.bridge.policy_link import BridgeError, wait_until_no_other_simulator
from an_control_sim.process import initialise_ros_and_create_node


@pytest.fixture
def rival() -> Iterator[Node]:
    """Another simulator of the same name, behind a participant of its own."""
    context = Context()
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = Node("simulator", namespace="/ant", context=context)
    yield node
    node.destroy_node()
    rclpy.shutdown(context=context)


@pytest.fixture
def node() -> Iterator[Node]:
    with initialise_ros_and_create_node("simulator", "/ant") as one:
        yield one


def known(node: Node) -> None:
    """Wait until the graph has the rival's clock and its name."""
    until_s = time.monotonic() + 100.0
    while [get_owner_node_name(one) for one in node.get_publishers_info_by_topic("/clock")] != [
        "/ant/simulator"
    ]:
        assert time.monotonic() < until_s, "nobody publishes /clock"


def test_nobody_else_is_no_reason_to_wait(node: Node) -> None:
    begin_s = time.monotonic()
    wait_until_no_other_simulator(node, lambda: False)
    assert time.monotonic() - begin_s < policy_link.ALONE_S / 2


def test_another_simulator_that_stays_is_an_error_in_one_line(rival, node, monkeypatch, capfd):
    monkeypatch.setattr(policy_link, "ALONE_S", 0.2)
    rival.create_publisher(Clock, "/clock", 10)
    known(node)
    with pytest.raises(BridgeError, match=r"/ant/simulator on /clock; .* ROS_DOMAIN_ID") as said:
        wait_until_no_other_simulator(node, lambda: False)
    assert "\n" not in str(said.value)
    assert capfd.readouterr().err.count("waiting 0.2 s for another simulator to end") == 1


def test_one_that_ends_is_waited_for_and_a_signal_ends_the_wait(rival, node):
    publisher = rival.create_publisher(Clock, "/clock", 10)
    known(node)
    wait_until_no_other_simulator(node, lambda: True)
    looks = []

    def stopped() -> bool:
        looks.append(None)
        if len(looks) == 3:
            rival.destroy_publisher(publisher)
        return False

    wait_until_no_other_simulator(node, stopped)
    assert len(looks) > 3
