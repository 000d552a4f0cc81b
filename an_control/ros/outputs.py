"""What the node publishes: commands, and a look inside for whoever subscribes.

Every scalar is cast and every array given as bytes, since rclpy checks neither by default.
"""

from __future__ import annotations

import threading
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from rclpy.duration import Duration
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64MultiArray, MultiArrayDimension

from an_control.wiring import CommandConfig, CommandMessage, Readings

COMMAND_QOS = QoSProfile(depth=10)
EAR_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
"""Of subscriptions: these hear reliable publishers too."""
ARRIVAL_S = 0.5
"""How long the last command may take to arrive; a subscriber that hangs cannot hold up more."""


def doubles(values: np.ndarray) -> array[float]:
    """`values` as a message's float64 array."""
    return array("d", np.ascontiguousarray(values, np.float64).tobytes())


def set_stamp(stamp: Any, stamp_ns: int) -> None:
    """Write nanoseconds into a builtin_interfaces/Time."""
    stamp.sec, stamp.nanosec = divmod(stamp_ns, 1_000_000_000)


class CommandOutput:
    """Publishes commands (A,) in physical units on the wiring's topics, from any thread.

    Of several topics all messages of a command go out together, in the wiring's order. In shadow
    they go out on `proposed_topics` instead, and this node has no publisher that could command.
    While it does not command, it listens to who does.
    """

    def __init__(
        self,
        node: Node,
        command: CommandConfig,
        messages: Sequence[CommandMessage],
        *,
        shadow: bool,
    ) -> None:
        self._node, self._messages, self._slices = node, tuple(messages), command.slices
        self._whole = len(self._messages) == 1
        self._exact = all(one.exact for one in self._messages)
        self._lock = threading.Lock()
        self._proposed = [
            node.create_publisher(type(one.message), topic, COMMAND_QOS)
            for one, topic in zip(self._messages, proposed_topics(command), strict=True)
        ]
        self._publishers: list[Any] = []
        self._targets: list[Any] = []
        self._ears: list[Any] = []
        self._heard = np.full(len(command.actuators), np.nan)
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
            self._close_ears()
        with self._lock:
            self._targets = self._proposed if shadow else self._publishers

    def shut(self) -> None:
        """Publish nothing any more."""
        with self._lock:
            self._targets = []
        self._listen()

    @property
    def sent(self) -> np.ndarray | None:
        """The command (A,) that went out last, of whoever commands; None where none is known."""
        return self._sent

    def forget(self) -> None:
        """What was sent belongs to an episode that is over."""
        self._sent = None
        self._heard[:] = np.nan

    def publish(self, values: np.ndarray, stamp_ns: int | None) -> bool:
        """Send finite `values`; whether they could be sent.

        None for `stamp_ns`: with the last stamp, and only on topics whose type has one. Without a
        stamp nothing would tell these values from the answer to the next step of a lockstep.
        """
        if not np.isfinite(values).all():
            return False
        with self._lock:
            for message, span in zip(self._messages, self._slices, strict=True):
                message.fill(values if self._whole else values[span], stamp_ns)
            self._send(stamped_only=stamp_ns is None)
            if self._targets and self._targets is self._publishers:
                self._sent = values if self._exact else self._filled()
        return True

    def _filled(self) -> np.ndarray:
        """What the messages say (A,), where their fields hold less than a float64."""
        return np.concatenate([one.read(one.message) for one in self._messages])

    def repeat(self) -> None:
        """Send the last command once more, where a stamp tells it from the next one."""
        with self._lock:
            self._send(stamped_only=True)

    def _send(self, *, stamped_only: bool) -> None:
        """Every message on its topic, also where another one cannot be sent; then that raises."""
        failed: Exception | None = None
        for target, message in zip(self._targets, self._messages, strict=False):
            if stamped_only and not message.stamped:
                continue
            try:
                target.publish(message.message)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Let go of the topics, once the last command has arrived where it can."""
        self._close_ears()
        self._destroy()
        for publisher in self._proposed:
            self._node.destroy_publisher(publisher)

    def _create(self) -> None:
        if not self._publishers:
            self._publishers = [
                self._node.create_publisher(type(one.message), one.topic, COMMAND_QOS)
                for one in self._messages
            ]

    def _destroy(self) -> None:
        """Give the publishers of commands up, once the last one has arrived where it can."""
        if not self._publishers:
            return
        until_s = time.monotonic() + ARRIVAL_S
        for publisher in self._publishers:
            with suppress(RuntimeError):  # rclpy was shut down already
                left_s = max(0.0, until_s - time.monotonic())
                publisher.wait_for_all_acked(Duration(seconds=left_s))
        with self._lock:
            publishers, self._publishers, self._targets = self._publishers, [], []
        for publisher in publishers:
            self._node.destroy_publisher(publisher)

    def _listen(self) -> None:
        if self._ears:
            return
        for message, span in zip(self._messages, self._slices, strict=True):
            self._ears.append(
                self._node.create_subscription(
                    type(message.message),
                    message.topic,
                    partial(self._receive, message, span),
                    EAR_QOS,
                )
            )

    def _close_ears(self) -> None:
        for ear in self._ears:
            self._node.destroy_subscription(ear)
        self._ears = []

    def _receive(self, carrier: CommandMessage, span: slice, message: Any) -> None:
        """Somebody commands the robot; what does not fit its actuators says nothing."""
        with suppress(ValueError):
            self._heard[span] = carrier.read(message)
            if np.isfinite(self._heard).all():
                self._sent = self._heard.copy()


def proposed_topics(command: CommandConfig) -> tuple[str, ...]:
    """Where each message of a command goes in shadow; of several, below `~/proposed` by topic."""
    if len(command.messages) == 1:
        return ("~/proposed",)
    return tuple(f"~/proposed/{one.topic.lstrip('~/')}" for one in command.messages)


class Inside:
    """`~/attention` (M x N), `~/keys` (N x k) and `~/channels` (id, reading), while subscribed.

    A patch's reading is its brightness. With cameras there is `~/attended` too: what the first
    one saw, and what the policy looked at (see `attended`).
    """

    def __init__(self, node: Node, *, sees: bool) -> None:
        self._node = node
        self._attended = node.create_publisher(Image, "~/attended", COMMAND_QOS) if sees else None
        self._attention = node.create_publisher(Float64MultiArray, "~/attention", COMMAND_QOS)
        self._keys = node.create_publisher(Float64MultiArray, "~/keys", COMMAND_QOS)
        self._channels = node.create_publisher(JointState, "~/channels", COMMAND_QOS)

    def publish(
        self,
        readings: Readings,
        attention: Callable[[], np.ndarray | None],
        keys: Callable[[], np.ndarray | None],
        attended: Callable[[], np.ndarray | None],
        stamp_ns: int,
    ) -> None:
        """Send a tick's readings, keys and attention (as numbers and a picture), if there are."""
        if self._channels.get_subscription_count():
            channels = JointState(name=list(readings.ids), position=doubles(_scalars(readings)))
            set_stamp(channels.header.stamp, stamp_ns)
            self._channels.publish(channels)
        for publisher, values, labels in (
            (self._attention, attention, ("query", "channel")),
            (self._keys, keys, ("channel", "key")),
        ):
            if publisher.get_subscription_count():
                matrix = values()
                if matrix is not None:
                    publisher.publish(_matrix(matrix, labels))
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
        self._node.destroy_publisher(self._keys)
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


def _matrix(values: np.ndarray, labels: tuple[str, str]) -> Float64MultiArray:
    rows, columns = values.shape
    message = Float64MultiArray(data=doubles(values))
    message.layout.dim = [
        MultiArrayDimension(label=labels[0], size=rows, stride=rows * columns),
        MultiArrayDimension(label=labels[1], size=columns, stride=columns),
    ]
    return message
