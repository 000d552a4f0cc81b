"""What the node publishes: commands by actuator name, and a look inside for whoever subscribes.

Every scalar is cast and every array given as bytes, since rclpy checks neither by default.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
from rclpy.duration import Duration
from rclpy.event_handler import PublisherEventCallbacks
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64MultiArray, MultiArrayDimension

from an_control.ros.inputs import NO_EVENTS
from an_control.wiring import CommandConfig, Readings

COMMAND_QOS = QoSProfile(depth=10)
QUIET = PublisherEventCallbacks(use_default_callbacks=False)
"""The diagnostics say who cannot hear commands."""
ARRIVAL_S = 0.5
"""How long the last command may take to arrive; a subscriber that hangs cannot hold up more."""


def doubles(values: np.ndarray) -> array[float]:
    """`values` as a message's float64 array."""
    return array("d", np.ascontiguousarray(values, np.float64).tobytes())


def set_stamp(stamp: Any, stamp_ns: int) -> None:
    """Write nanoseconds into a builtin_interfaces/Time."""
    stamp.sec, stamp.nanosec = divmod(stamp_ns, 1_000_000_000)


class CommandOutput:
    """Publishes commands (A,) in physical units as the wiring's message type, from any thread.

    In shadow they go out on `~/proposed` instead, and this node has no publisher that could
    command. While it does not command, it listens to who does.
    """

    def __init__(self, node: Node, command: CommandConfig, *, shadow: bool) -> None:
        self._node, self._command = node, command
        self._lock = threading.Lock()
        self._field = command.field
        stamped = command.type == "sensor_msgs/msg/JointState"
        self._message = JointState(name=list(command.names)) if stamped else Float64MultiArray()
        self._stamped = stamped
        self._type = type(self._message)
        self._proposed = node.create_publisher(self._type, "~/proposed", COMMAND_QOS)
        self._publisher: Any = None
        self._target: Any = None
        self._ear: Any = None
        self._sent: np.ndarray | None = None
        self.shadow = shadow
        if not shadow:
            self._create()
        self._listen()

    def open(self, *, shadow: bool) -> None:
        """Publish from now on: commands, or in shadow what they would be."""
        self.shadow = shadow
        if shadow:
            self._listen()
            self._destroy()
        else:
            self._create()
            self._close_ear()
        with self._lock:
            self._target = self._proposed if shadow else self._publisher

    def shut(self) -> None:
        """Publish nothing any more."""
        with self._lock:
            self._target = None
        self._listen()

    @property
    def sent(self) -> np.ndarray | None:
        """The command (A,) that went out last, of whoever commands; None where none is known."""
        return self._sent

    def forget(self) -> None:
        """What was sent belongs to an episode that is over."""
        self._sent = None

    def publish(self, values: np.ndarray, stamp_ns: int | None) -> bool:
        """Send finite `values`; whether they could be sent.

        `stamp_ns`, by default the last one, is for a type that has a header.
        """
        if not np.isfinite(values).all():
            return False
        with self._lock:
            setattr(self._message, self._field, doubles(values))
            if self._stamped and stamp_ns is not None:
                set_stamp(self._message.header.stamp, stamp_ns)
            if self._target is not None:
                self._target.publish(self._message)
                if self._target is self._publisher:
                    self._sent = values
        return True

    def repeat(self) -> None:
        """Send the last command once more."""
        with self._lock:
            if self._target is not None:
                self._target.publish(self._message)

    def close(self) -> None:
        """Let go of the topic, once the last command has arrived where it can."""
        self._close_ear()
        self._destroy()
        self._node.destroy_publisher(self._proposed)

    def _create(self) -> None:
        if self._publisher is None:
            topic = self._command.topic
            self._publisher = self._node.create_publisher(
                self._type, topic, COMMAND_QOS, event_callbacks=QUIET
            )

    def _destroy(self) -> None:
        """Give the publisher of commands up, once the last one has arrived where it can."""
        if self._publisher is None:
            return
        with suppress(RuntimeError):  # rclpy was shut down already
            self._publisher.wait_for_all_acked(Duration(seconds=ARRIVAL_S))
        with self._lock:
            publisher, self._publisher, self._target = self._publisher, None, None
        self._node.destroy_publisher(publisher)

    def _listen(self) -> None:
        if self._ear is None:
            self._ear = self._node.create_subscription(
                self._type,
                self._command.topic,
                self._receive,
                COMMAND_QOS,
                event_callbacks=NO_EVENTS,
            )

    def _close_ear(self) -> None:
        if self._ear is not None:
            self._node.destroy_subscription(self._ear)
            self._ear = None

    def _receive(self, message: Any) -> None:
        """Somebody commands the robot; what does not fit its actuators says nothing."""
        values = np.array(getattr(message, self._field), np.float64)
        names = self._command.names
        if self._stamped and list(message.name) != list(names):
            place = {name: index for index, name in enumerate(message.name)}
            if len(values) != len(message.name) or not place.keys() >= set(names):
                return
            values = values[[place[name] for name in names]]
        if values.shape == (len(names),) and np.isfinite(values).all():
            self._sent = values


class Inside:
    """`~/attention` (M x N) and `~/channels` (id, reading), published while somebody subscribes.

    A patch's reading is its brightness. With cameras there is `~/attended` too: what the first
    one saw, and what the policy looked at (see `attended`).
    """

    def __init__(self, node: Node, *, sees: bool) -> None:
        self._node = node
        self._attended = node.create_publisher(Image, "~/attended", COMMAND_QOS) if sees else None
        self._attention = node.create_publisher(Float64MultiArray, "~/attention", COMMAND_QOS)
        self._channels = node.create_publisher(JointState, "~/channels", COMMAND_QOS)

    def publish(
        self,
        readings: Readings,
        attention: Callable[[], np.ndarray | None],
        attended: Callable[[], np.ndarray | None],
        stamp_ns: int,
    ) -> None:
        """Send a tick's readings, and its attention as numbers and as a picture, if there are."""
        if self._channels.get_subscription_count():
            channels = JointState(name=list(readings.ids), position=doubles(_scalars(readings)))
            set_stamp(channels.header.stamp, stamp_ns)
            self._channels.publish(channels)
        if self._attention.get_subscription_count():
            matrix = attention()
            if matrix is not None:
                self._attention.publish(_matrix(matrix))
        if self._attended is not None and self._attended.get_subscription_count():
            picture = attended()
            if picture is not None:
                image = _image(picture)
                set_stamp(image.header.stamp, stamp_ns)
                self._attended.publish(image)

    def close(self) -> None:
        if self._attended is not None:
            self._node.destroy_publisher(self._attended)
        self._node.destroy_publisher(self._attention)
        self._node.destroy_publisher(self._channels)


def _scalars(readings: Readings) -> np.ndarray:
    """(N,): the readings, or the mean brightness of each patch's newest frame."""
    values = readings.values
    return values if values.ndim == 1 else values[:, -1].mean(axis=(1, 2))


def _image(picture: np.ndarray) -> Image:
    """An rgb8 message of uint8 pixels (H, W, 3)."""
    height, width, _ = picture.shape
    data = array("B", np.ascontiguousarray(picture, np.uint8).tobytes())
    return Image(height=height, width=width, encoding="rgb8", step=3 * width, data=data)


def _matrix(values: np.ndarray) -> Float64MultiArray:
    rows, columns = values.shape
    message = Float64MultiArray(data=doubles(values))
    message.layout.dim = [
        MultiArrayDimension(label="query", size=rows, stride=rows * columns),
        MultiArrayDimension(label="channel", size=columns, stride=columns),
    ]
    return message
