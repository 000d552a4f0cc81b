"""The rendered view of a robot on an Image topic, for whoever looks."""

from __future__ import annotations

from rclpy.node import Node
from sensor_msgs.msg import Image

from an_control_sim.bridge.publishers import fill_image
from an_control_sim.bridge.robot import Robot
from an_control_sim.bridge.simulation_file import CameraConfig
from an_control_sim.process import RELIABLE


def steps_per_picture(rate_hz: float, step_s: float) -> int:
    """The steps from one picture to the next that come nearest to this rate."""
    return max(1, round(1.0 / (rate_hz * step_s)))


class CameraTopic:
    """Publishes every so many steps a picture of the robot, while somebody subscribes."""

    def __init__(self, node: Node, robot: Robot, camera: CameraConfig, rate_hz: float) -> None:
        self._robot = robot
        self._every = steps_per_picture(rate_hz, robot.simulation.step_s)
        self._message = Image()
        self._message.header.frame_id = camera.frame_id
        self._publisher = node.create_publisher(Image, camera.topic, RELIABLE)

    def show(self, step: int, stamp_ns: int) -> None:
        """Publish the picture of this step of the episode where one is due."""
        if step % self._every or not self._publisher.get_subscription_count():
            return
        fill_image(self._message, self._robot.picture())
        stamp = self._message.header.stamp
        stamp.sec, stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
        self._publisher.publish(self._message)
