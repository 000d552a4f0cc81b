"""Which nodes and topics the page takes for a robot's, in a real ROS graph."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("msgspec")
import rclpy
from nav_msgs.msg import Odometry
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from sensor_msgs.msg import Image, JointState
from std_srvs.srv import SetBool, Trigger

from an_control.view.graph import FIXED, RobotGraph, find_robot_in_ros_graph


def nothing(request: object, response: object) -> object:
    return response


@pytest.fixture
def graph() -> Iterator[tuple[Context, SingleThreadedExecutor]]:
    context = Context()
    rclpy.init(args=[], context=context)
    executor = SingleThreadedExecutor(context=context)
    yield context, executor
    for node in list(executor.get_nodes()):
        executor.remove_node(node)
        node.destroy_node()
    executor.shutdown()
    rclpy.shutdown(context=context)


def node(graph, name: str, space: str) -> Node:
    context, executor = graph
    made = Node(name, namespace=space, context=context)
    executor.add_node(made)
    return made


def policy(graph, space: str) -> Node:
    made = node(graph, "policy", space)
    made.create_service(Trigger, "~/reload_wiring", nothing)
    made.create_publisher(JointState, "~/channels", 10)
    made.create_publisher(JointState, "commands", 10)
    return made


def until(look, ready) -> RobotGraph:
    end_s = time.monotonic() + 100.0
    while not ready(found := look()):
        assert time.monotonic() < end_s, found
        time.sleep(0.02)
    return found


def test_a_robot_is_its_policy_node_with_scrambler_simulator_and_sensors(graph):
    looker = node(graph, "looker", "/")
    assert find_robot_in_ros_graph(looker) == RobotGraph(topics=FIXED)
    policy(graph, "/b")
    policy(graph, "/a")
    simulator = node(graph, "simulator", "/a")
    simulator.create_service(Trigger, "~/shuffle", nothing)
    simulator.create_service(SetBool, "~/pause", nothing)
    simulator.create_service(Trigger, "~/reset", nothing)
    simulator.create_publisher(JointState, "zero_joints", 10)
    simulator.create_publisher(JointState, "joint_states", 10)
    simulator.create_publisher(JointState, "scrambled", 10)
    simulator.create_publisher(Odometry, "odometry", 10)
    found = until(
        lambda: find_robot_in_ros_graph(looker), lambda one: one.simulator and "pose" in one.topics
    )
    assert (found.policy, found.scrambler, found.simulator) == (
        "/a/policy", "/a/simulator", "/a/simulator",
    )  # fmt: skip
    assert found.others == ("/b/policy",)
    names = {name: topic.name for name, topic in found.topics.items()}
    assert names["joints"] == "/a/joint_states" and names["order"] == "/a/simulator/order"
    other = until(lambda: find_robot_in_ros_graph(looker, "/b"), lambda one: one.policy)
    assert (other.policy, other.scrambler) == ("/b/policy", "")
    assert find_robot_in_ros_graph(looker, "/c").policy == ""


def test_a_robot_that_is_shown_stays_when_another_one_comes(graph):
    looker = node(graph, "looker", "/")
    policy(graph, "/b")
    shown = until(lambda: find_robot_in_ros_graph(looker), lambda one: one.policy)
    policy(graph, "/a")
    found = until(
        lambda: find_robot_in_ros_graph(looker, shown_policy=shown.policy), lambda one: one.others
    )
    assert (found.policy, found.others) == ("/b/policy", ("/a/policy",))
    assert find_robot_in_ros_graph(looker, shown_policy="/gone/policy").policy == "/a/policy"


def test_what_the_policy_publishes_is_no_sensor_and_its_camera_is_what_is_shown(graph):
    looker, seeing = node(graph, "looker", "/"), policy(graph, "/eye")
    camera = node(graph, "camera", "/eye")
    camera.create_publisher(Image, "camera/image_raw", 10)
    camera.create_publisher(JointState, "wheels", 10)
    found = until(
        lambda: find_robot_in_ros_graph(looker),
        lambda one: {"image", "joints"} <= one.topics.keys(),
    )
    assert found.topics["image"].name == "/eye/camera/image_raw"
    assert found.topics["joints"].name == "/eye/wheels"
    seeing.create_publisher(Image, "~/attended", 10)
    shown = until(
        lambda: find_robot_in_ros_graph(looker),
        lambda one: one.topics["image"].name == "/eye/policy/attended",
    )
    assert "joints" not in shown.topics


def test_a_player_of_recordings_that_can_be_paused_is_no_simulator(graph):
    policy(graph, "/ant")
    player = node(graph, "rosbag2_player", "/ant")
    player.create_service(SetBool, "~/pause", nothing)
    looker = node(graph, "page", "/")
    services = looker.get_service_names_and_types
    found = until(
        lambda: find_robot_in_ros_graph(looker),
        lambda it: it.policy and any("rosbag2_player/pause" in name for name, _ in services()),
    )
    assert (found.policy, found.simulator) == ("/ant/policy", "")
