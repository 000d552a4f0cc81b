"""The topic `~/progress`: how the episode that runs is doing, while somebody subscribes."""

from __future__ import annotations

from array import array

from rclpy.node import Node
from sensor_msgs.msg import JointState

from an_control.ros.outputs import set_stamp
from an_control_sim.bridge.robot import Robot

NAMES = ("episode", "step", "reward", "return", "distance", "last_return")
"""The figures of a message, as names beside their values as positions; distance in m.

Those that are not known are NaN: the distance of a robot that does not travel, and of the first
episode the return of the one before it.
"""


class ProgressTopic:
    """Sums the rewards of each episode and publishes NAMES after each step."""

    def __init__(self, node: Node) -> None:
        self._publisher = node.create_publisher(JointState, "~/progress", 10)
        self._message = JointState(name=list(NAMES))
        self._episode, self._return, self._last_return = -1, 0.0, float("nan")
        self._steps = 0

    def begin(self, episode: int) -> None:
        """An episode begins."""
        if self._steps:
            self._last_return = self._return
        self._episode, self._return, self._steps = episode, 0.0, 0

    def step(self, count: int, robot: Robot, stamp_ns: int) -> None:
        """The robot has taken its step number `count`."""
        self._steps = count
        self._return += robot.reward
        if self._publisher.get_subscription_count():
            distance_m = float("nan") if robot.distance_m is None else robot.distance_m
            figures = (
                self._episode, count, robot.reward, self._return, distance_m, self._last_return
            )  # fmt: skip
            self._message.position = array("d", map(float, figures))
            set_stamp(self._message.header.stamp, stamp_ns)
            self._publisher.publish(self._message)
