"""A newcomer's mistakes on a base with a scan, an Imu, wheels and a latched goal: each is named."""

from __future__ import annotations

import json
import math
import re
import time
from array import array
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy")
from geometry_msgs.msg import Twist, TwistStamped, Vector3Stamped
from live_robot import Robot
from sensor_msgs.msg import Imu, JointState, LaserScan
from stand import LATCHED

from an_control.cli import main
from an_control.ros.distributions import has_publisher_ids_in_callbacks
from an_control.ros.graph import QuietNode
from an_control.ros.outputs import set_stamp

WIRING = """
an_control_wiring: 1
robot: base
rate_hz: 20
min_present_share: 0.5
sources:
  scan: {topic: scan, type: sensor_msgs/msg/LaserScan, max_age_s: 0.5}
  imu: {topic: imu, type: sensor_msgs/msg/Imu, max_age_s: 0.5}
  wheels: {topic: joint_states, type: sensor_msgs/msg/JointState, max_age_s: 0.5}
  goal: {topic: goal, type: geometry_msgs/msg/Vector3Stamped, max_age_s: 0}
channels:
  scan.*: {source: scan, field: "ranges[*]"}
  yaw: {source: imu, field: yaw(orientation)}
  gyro: {source: imu, field: angular_velocity.z}
  left.speed: {source: wheels, field: "velocity[left]"}
  right.speed: {source: wheels, field: "velocity[right]"}
  goal.x: {source: goal, field: vector.x}
command:
  topic: cmd_vel
  type: geometry_msgs/msg/Twist
  actuators:
    forward: {field: linear.x, limits: [-1, 1], safe: 0.0}
    turn: {field: angular.z, limits: [-1, 1], safe: 0.0}
"""


class Base(Robot):
    """The base as it should be, at 20 Hz; tests change what it sends before they start it."""

    def __init__(self) -> None:
        super().__init__("/bot", 0.05)
        self.scan = LaserScan(ranges=array("f", [1.0, 2.0, 3.0]))
        self.imu = Imu()
        self.imu.orientation.w = 1.0
        self.wheels = JointState(name=["left", "right"], velocity=array("d", [0.1, 0.2]))
        self.periods = {"scan": 1, "imu": 1, "joint_states": 1}
        self.ahead_ns = 0
        self.goal = Vector3Stamped()
        self.goal.vector.x = 3.0
        set_stamp(self.goal.header.stamp, time.time_ns() - 3600 * 10**9)
        self.listens: Any = Twist
        self.others: list[QuietNode] = []

    def add(self, name: str) -> QuietNode:
        """Have another node beside the base's own."""
        self.others.append(QuietNode(name, namespace="/bot", context=self.context))
        return self.others[-1]

    def begin(self) -> None:
        for topic, message in (
            ("scan", self.scan),
            ("imu", self.imu),
            ("joint_states", self.wheels),
        ):
            self._send(topic, message)
        publisher = self.node.create_publisher(Vector3Stamped, "goal", LATCHED)
        publisher.publish(self.goal)
        self.node.create_subscription(self.listens, "cmd_vel", lambda message: None, 10)
        self.start()

    def _send(self, topic: str, message: Any) -> None:
        publisher, count = self.node.create_publisher(type(message), topic, 10), 0

        def send(now_ns: int) -> None:
            nonlocal count
            count += 1
            if count % self.periods[topic] == 0:
                set_stamp(message.header.stamp, now_ns + self.ahead_ns)
                publisher.publish(message)

        self.sends.append(send)


@pytest.fixture
def base() -> Iterator[Base]:
    one = Base()
    yield one
    one.close()


def check(folder: Path, text: str = WIRING) -> tuple[int, list[str], list[str]]:
    """The exit status of `check --live`, its problems and its notes."""
    (folder / "base.yaml").write_text(text)
    words = ["check", str(folder / "base.yaml"), "--live", "--namespace", "/bot", "--seconds", "2"]
    status = main([*words, "--json", str(folder / "found.json")])
    found = json.loads((folder / "found.json").read_text())
    return status, found["problems"], found["notes"]


def test_a_base_as_it_should_be_has_no_problem(base, tmp_path):
    base.begin()
    status, problems, _ = check(tmp_path)
    assert (status, problems) == (0, [])


def no_orientation(base: Base) -> None:
    base.imu.orientation_covariance[0] = -1.0


def slow_scan(base: Base) -> None:
    base.periods["scan"] = 2


def capitals(base: Base) -> None:
    base.wheels.name = ["Left", "Right"]


def long_velocities(base: Base) -> None:
    base.wheels.velocity = array("d", [0.1, 0.2, 0.3])


def tomorrow(base: Base) -> None:
    base.ahead_ns = 86_400 * 10**9


def stamped_twist(base: Base) -> None:
    base.listens = TwistStamped


def second_imu(base: Base) -> None:
    publisher = base.add("imu_filter").create_publisher(Imu, "imu", 10)
    base.sends.append(lambda now_ns: publisher.publish(Imu()))


def latching_driver(base: Base) -> None:
    driver = base.add("driver")
    driver.create_subscription(Twist, "cmd_vel", lambda message: None, LATCHED)


def teleop(base: Base) -> None:
    for name in ("policy", "teleop"):
        base.add(name).create_publisher(Twist, "cmd_vel", 10)


MISTAKES: list[tuple[str, tuple[str, str], Callable[[Base], None] | None, str]] = [
    (
        "a misspelt topic",
        ("topic: scan,", "topic: sacn,"),
        None,
        "source scan (/bot/sacn): no publisher; /bot/scan is published with this type",
    ),
    (
        "another type",
        (
            "topic: scan, type: sensor_msgs/msg/LaserScan, max_age_s: 0.5}\n  imu: {topic: imu,",
            "topic: imu, type: sensor_msgs/msg/LaserScan, max_age_s: 0.5}\n  imu: {topic: scan,",
        ),
        None,
        "publisher of sensor_msgs/msg/LaserScan (/bot/robot) on /bot/scan",
    ),
    ("no orientation", ("", ""), no_orientation, "yaw: orientation_covariance[0] is -1"),
    (
        "a slow scan",
        ("", ""),
        slow_scan,
        "messages a second, but the policy runs at 20 Hz: some ticks have no new reading",
    ),
    (
        "names in capitals",
        ("", ""),
        capitals,
        "the message does not name it: it names Left, which differs in case",
    ),
    (
        "more velocities than names",
        ("", ""),
        long_velocities,
        "velocity has 3 elements for 2 names",
    ),
    ("a clock of tomorrow", ("", ""), tomorrow, "s ahead of this node's clock: correct the clock"),
    (
        "a goal that grows old",
        ("Vector3Stamped, max_age_s: 0}", "Vector3Stamped, max_age_s: 0.05}"),
        None,
        "goal.x: its only message came",
    ),
    (
        "a twist with a stamp",
        ("", ""),
        stamped_twist,
        "nobody hears commands on /bot/cmd_vel: subscription of geometry_msgs/msg/TwistStamped",
    ),
    (
        "a misspelt topic of commands",
        ("topic: cmd_vel", "topic: cmd_val"),
        None,
        "nobody hears commands on /bot/cmd_val",
    ),
    (
        "a driver that wants latched commands",
        ("", ""),
        latching_driver,
        "not all hear commands on /bot/cmd_vel: /bot/driver asks for another quality of service"
        " (Volatile publisher and transient local subscription): subscribe with the default",
    ),
    (
        "two senders of one sensor",
        ("", ""),
        second_imu,
        "both send gyro, yaw: stop one of them, or give it a topic of its own",
    ),
    (
        "two that command",
        ("", ""),
        teleop,
        "2 publishers command /bot/cmd_vel (/bot/policy, /bot/teleop): stop one of them",
    ),
    (
        "a scan older than it may be",
        (
            "scan, type: sensor_msgs/msg/LaserScan, max_age_s: 0.5",
            "scan, type: sensor_msgs/msg/LaserScan, max_age_s: 0.03",
        ),
        None,
        "s without a message, but max_age_s is 0.03: raise it, or find out what delays the",
    ),
]


@pytest.mark.parametrize(
    ("change", "happens", "said"), [one[1:] for one in MISTAKES], ids=[one[0] for one in MISTAKES]
)
def test_a_newcomers_mistake_is_named_in_one_line(base, tmp_path, change, happens, said):
    if happens is second_imu and not has_publisher_ids_in_callbacks():
        pytest.skip("this rclpy does not tell who sent a message")
    if happens is not None:
        happens(base)
    base.begin()
    assert change[0] in WIRING
    status, problems, _ = check(tmp_path, WIRING.replace(*change, 1) if change[0] else WIRING)
    assert status == 1
    assert [one for one in problems if said in one], problems
    assert all("\n" not in one for one in problems)


def test_a_source_that_no_channel_reads_is_noted(base, tmp_path):
    base.begin()
    text = WIRING.replace(
        "channels:\n", "  spare: {topic: imu, type: sensor_msgs/msg/Imu, max_age_s: 1}\nchannels:\n"
    )
    status, problems, notes = check(tmp_path, text)
    assert (status, problems) == (0, [])
    assert (
        f"source 'spare' feeds no channel: add one, or take the source out of {tmp_path}/base.yaml"
        in notes
    )


def test_a_gripper_that_shares_the_topic_of_the_wheels_is_no_mistake(base, tmp_path):
    publisher = base.add("gripper").create_publisher(JointState, "joint_states", 10)
    finger = JointState(name=["finger"], velocity=array("d", [0.0]))
    base.sends.append(lambda now_ns: publisher.publish(finger))
    base.begin()
    assert check(tmp_path)[:2] == (0, [])


def test_a_channel_that_is_missing_most_of_the_time_is_named_whatever_the_last_moment(
    base, tmp_path
):
    publisher = base.add("gripper").create_publisher(JointState, "joint_states", 10)
    finger, begin_s, sent = JointState(name=["finger"], velocity=array("d", [0.0])), [0.0], [0]

    def send(now_ns: int) -> None:  # every 0.8 s, so that it is missing or not when check ends
        if now_ns / 1e9 - begin_s[0] > 0.8:
            begin_s[0], sent[0] = now_ns / 1e9, sent[0] + 1
            set_stamp(finger.header.stamp, now_ns)
            publisher.publish(finger)

    base.sends.append(send)
    base.begin()
    text = WIRING.replace(
        "channels:\n", "channels:\n  finger: {source: wheels, field: 'velocity[finger]'}\n"
    ).replace("JointState, max_age_s: 0.5", "JointState, max_age_s: 0.25")
    for _ in range(3):
        status, problems, _ = check(tmp_path, text)
        assert status == 1
        assert [one for one in problems if "finger" in one], problems


def test_a_gripper_whose_machine_has_another_clock_is_named(base, tmp_path):
    publisher = base.add("gripper").create_publisher(JointState, "joint_states", 10)
    finger = JointState(name=["finger"], velocity=array("d", [0.0]))

    def send(now_ns: int) -> None:
        set_stamp(finger.header.stamp, now_ns - 3600 * 10**9)
        publisher.publish(finger)

    base.sends.append(send)
    base.begin()
    _, problems, _ = check(tmp_path)
    # late by some tenths of a second on a busy machine
    assert re.search(r"its stamps are 360\d\.\d s behind this", " ".join(problems)), problems


@pytest.mark.parametrize("wrapped", [True, False])
def test_a_wheel_that_turns_on_and_on_gets_a_hint(base, tmp_path, wrapped):
    begin_s = time.monotonic()

    def turn(now_ns: int) -> None:
        angle = 8.0 * (time.monotonic() - begin_s)
        angle = math.remainder(angle, math.tau) if wrapped else angle
        base.wheels.position = array("d", [angle, 0.0])

    base.sends.append(turn)
    base.begin()
    text = WIRING.replace('field: "velocity[left]"', 'field: "position[left]"')
    for _ in range(5):  # on a busy machine few messages may come within two seconds
        notes = [one for one in check(tmp_path, text)[2] if one.startswith("channel left.speed")]
        if notes:
            break
    (note,) = notes
    what = "jumps by 2 pi" if wrapped else "grows over more than a turn"
    assert note == (
        f"channel left.speed: {what}: read sin(position[left]) and cos(position[left]) instead"
    )
