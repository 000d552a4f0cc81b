"""Publishes a simulator's messages at each step: robot readings, /clock and a camera picture."""

from __future__ import annotations

from typing import Any

from rclpy.node import Node
from rclpy.publisher import Publisher
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image

from an_control_sim.bridge.publishers import fill_image
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import CameraConfig
from an_control_sim.process import RELIABLE
from an_control_sim.scrambler.scrambler import Scrambler


class StepOutputs:
    """The publishers of all messages of a step: clock, sensor topics and camera.

    Topics without subscribers are not published.

    Args:
        node: The node that owns the publishers.
        robot: The robot whose messages are published.
        tap: The scrambler, if it runs in this process. It gets every sensor message directly, and
            publishes the disturbed readings. None if nothing is disturbed here.
        camera_hz: Camera pictures per simulated second; 0 for none.
    """

    def __init__(
        self, node: Node, robot: SimulatedRobot, tap: Scrambler | None, camera_hz: float
    ) -> None:
        self._robot, self._tap = robot, tap
        self._clock = Clock()
        self._clock_publisher = node.create_publisher(Clock, "/clock", RELIABLE)
        self._sensor_topics: list[tuple[str, Any, Publisher[Any]]] = [
            (one.topic, one.message, node.create_publisher(type(one.message), one.topic, RELIABLE))
            for one in robot.sensor_topics
        ]
        self._camera, config = None, robot.simulation.camera
        if camera_hz > 0 and config is not None:
            self._camera = CameraTopic(node, robot, config, camera_hz)

    @property
    def reading_topics(self) -> list[str]:
        """The full names of the topics with readings, the scrambler's (disturbed) included."""
        tapped = [] if self._tap is None else [self._tap.topic]
        return [publisher.topic_name for _, _, publisher in self._sensor_topics] + tapped

    @property
    def exclusively_published_topics(self) -> list[str]:
        """The full names of the topics on which no other node may publish: readings and /clock."""
        return [self._clock_publisher.topic_name, *self.reading_topics]

    def fill_sensor_messages(self, step_index: int, stamp_ns: int) -> None:
        """Write the readings of a step into the messages, and disturb them if there is a scrambler.

        A camera picture is published here if one is due; the other messages are published by
        `publish_messages`.

        Args:
            step_index: The index of the step in the episode.
            stamp_ns: The stamp of the step.
        """
        self._robot.fill_sensor_messages(stamp_ns)
        clock = self._clock.clock
        clock.sec, clock.nanosec = divmod(stamp_ns, 1_000_000_000)
        if self._tap is not None:
            for topic, message, _ in self._sensor_topics:
                self._tap.store_message(topic, message)
            self._tap.disturb_messages_of_step(stamp_ns)
        if self._camera is not None:
            self._camera.publish_picture_if_due(step_index, stamp_ns)

    def publish_messages(self) -> None:
        """Publish the messages of the current step; a second call sends the same messages again."""
        if self._clock_publisher.get_subscription_count():
            self._clock_publisher.publish(self._clock)
        for _, message, publisher in self._sensor_topics:
            if publisher.get_subscription_count():
                publisher.publish(message)
        if self._tap is not None:
            self._tap.publish_disturbed_messages()


def compute_steps_per_picture(rate_hz: float, step_s: float) -> int:
    """Return the number of steps from one camera picture to the next, at least 1.

    Args:
        rate_hz: The wanted number of pictures per simulated second.
        step_s: The length of a step in seconds.
    """
    return max(1, round(1.0 / (rate_hz * step_s)))


class CameraTopic:
    """A publisher of rendered pictures of the robot, at a fixed rate.

    Args:
        node: The node that owns the publisher.
        robot: The robot to render.
        camera: The topic and the frame id of the pictures.
        rate_hz: Pictures per simulated second.
    """

    def __init__(
        self, node: Node, robot: SimulatedRobot, camera: CameraConfig, rate_hz: float
    ) -> None:
        self._robot = robot
        self._every = compute_steps_per_picture(rate_hz, robot.simulation.step_s)
        self._message = Image()
        self._message.header.frame_id = camera.frame_id
        self._publisher = node.create_publisher(Image, camera.topic, RELIABLE)

    def publish_picture_if_due(self, step_index: int, stamp_ns: int) -> None:
        """Render and publish a picture if one is due at this step and somebody subscribes.

        Args:
            step_index: The index of the step in the episode.
            stamp_ns: The stamp of the step.
        """
        if step_index % self._every or not self._publisher.get_subscription_count():
            return
        fill_image(self._message, self._robot.render())
        stamp = self._message.header.stamp
        stamp.sec, stamp.nanosec = divmod(stamp_ns, 1_000_000_000)
        self._publisher.publish(self._message)
