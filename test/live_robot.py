"""A robot that runs beside a test: it publishes in a thread and a ROS context of its own."""

from __future__ import annotations

import math
import threading
import time
from array import array
from collections.abc import Callable
from typing import Any

import rclpy
from geometry_msgs.msg import Vector3Stamped
from rclpy.context import Context
from rclpy.node import Node
from rclpy.qos import qos_profile_sensor_data
from sensor_msgs.msg import JointState

from an_control.ros.outputs import set_stamp


class Robot:
    """Publishes in a thread and a ROS context of its own, until it is closed."""

    def __init__(self, namespace: str, period_s: float = 0.01) -> None:
        self.context, self._period_s = Context(), period_s
        rclpy.init(args=[], context=self.context)
        self.node = Node("robot", namespace=namespace, context=self.context)
        self.sends: list[Callable[[int], None]] = []
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def joints(self, names: tuple[str, ...], value: float = 0.5) -> None:
        """Joints that swing between -value and value, by best effort."""

        def fill(message: JointState, wave: float) -> None:
            message.position = array("d", [value * wave] * len(names))

        message = JointState(name=list(names))
        self.publish("joint_states", message, fill, qos=qos_profile_sensor_data)

    def tilt(self, frozen: bool = False) -> None:
        """Always zero; `frozen`: with one stamp."""
        self.publish("tilt", Vector3Stamped(), stamp_ns=1_000_000_000 if frozen else None)

    def publish(
        self,
        topic: str,
        message: Any,
        fill: Callable[[Any, float], None] = lambda message, wave: None,
        *,
        qos: Any = 10,
        stamp_ns: int | None = None,
    ) -> None:
        """A message that `fill` changes with a sine of the time, stamped now or with `stamp_ns`."""
        publisher = self.node.create_publisher(type(message), topic, qos)

        def send(now_ns: int) -> None:
            fill(message, math.sin(now_ns / 1e8))
            if hasattr(message, "header"):
                set_stamp(message.header.stamp, stamp_ns or now_ns)
            publisher.publish(message)

        self.sends.append(send)

    def start(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while not self._done.wait(self._period_s):
            stamp_ns = time.time_ns()
            for send in self.sends:
                send(stamp_ns)

    def close(self) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)
