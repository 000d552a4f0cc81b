"""The bridge beside another simulator in the same ROS domain."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

pytest.importorskip("rclpy")
import rclpy
from rclpy.context import Context
from rclpy.node import Node
from rclpy.signals import SignalHandlerOptions
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState

from an_control.ros.graph import get_owner_node_name
from an_control_sim.bridge.bridge import Bridge
from an_control_sim.bridge.episodes import run_episodes
from an_control_sim.bridge.policy_link import BridgeError


@pytest.fixture
def rival() -> Iterator[Node]:
    """Another simulator of the same name, behind a participant of its own."""
    context = Context()
    rclpy.init(args=[], context=context, signal_handler_options=SignalHandlerOptions.NO)
    node = Node("simulator", context=context)
    yield node
    node.destroy_node()
    rclpy.shutdown(context=context)


def known(bridge: Bridge, topic: str, publishers: int) -> None:
    """Wait until the graph has so many, and the names of their nodes."""
    until_s = time.monotonic() + 100.0
    look = bridge.node.get_publishers_info_by_topic
    while [get_owner_node_name(one) for one in look(topic)] != ["/simulator"] * publishers:
        assert time.monotonic() < until_s, f"{publishers} publishers on {topic}"
        bridge.run.executor.spin_once(timeout_sec=0.05)


@pytest.mark.parametrize("realtime", [False, True])
@pytest.mark.parametrize(("topic", "type_"), [("/clock", Clock), ("/joints", JointState)])
def test_beside_another_simulator_it_does_not_start_and_says_why(
    serve, responder, rival, topic, type_, realtime
):
    rival.create_publisher(type_, topic, 10)
    bridge = serve(realtime=realtime, policy="" if realtime else "policy", start_timeout_s=0.2)
    known(bridge, topic, 2)
    with pytest.raises(BridgeError, match=rf"/simulator on {topic}; .* ROS_DOMAIN_ID"):
        run_episodes(bridge, episodes=1, seed=0)
    assert responder.resets == 0, "the policy may be the other's"


def test_it_starts_once_the_other_simulator_has_ended(serve, rival):
    publisher = rival.create_publisher(Clock, "/clock", 10)
    bridge = serve()
    known(bridge, "/clock", 2)
    ending = bridge.node.create_timer(0.1, lambda: rival.destroy_publisher(publisher))
    assert run_episodes(bridge, episodes=1, seed=0)[0].steps == 20
    bridge.node.destroy_timer(ending)


def test_another_simulator_that_comes_later_is_an_error_in_the_log_once(serve, rival, capfd):
    bridge = serve(policy="", realtime=True)
    bridge.wait_for_policy()
    rival.create_publisher(Clock, "/clock", 10)
    known(bridge, "/clock", 2)
    for _ in range(3):
        bridge._update_warning_about_other_publishers()
    assert capfd.readouterr().err.count("/simulator on /clock") == 1
