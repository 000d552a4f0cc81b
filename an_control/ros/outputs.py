"""Publish commands, and if somebody subscribes also the policy's attention and readings.

Every scalar is converted to the field's type and every array is passed as bytes, because rclpy
checks neither by default.
"""

from __future__ import annotations

import re
import threading
import time
from array import array
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from rclpy.clock import Clock, ClockType
from rclpy.duration import Duration, Infinite
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, LivelinessPolicy, QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import Image, JointState
from std_msgs.msg import Float64MultiArray, MultiArrayDimension

from an_control.control.attention_view import (
    draw_attention_on_newest_camera_frame,
    select_attention_keys_of_channels,
    select_attention_of_channels,
)
from an_control.control.command_safety import LastCommand
from an_control.policy import Policy
from an_control.record.layout import CommandKind
from an_control.wiring import ChannelTable, CommandConfig, CommandMessage, Readings

COMMAND_QOS = QoSProfile(
    depth=10,
    reliability=ReliabilityPolicy.RELIABLE,
    durability=DurabilityPolicy.VOLATILE,
    deadline=Infinite,
    liveliness=LivelinessPolicy.AUTOMATIC,
    liveliness_lease_duration=Infinite,
)
"""The quality of service of commands: the ROS default, written out so that it can be compared with
that of subscriptions."""
LISTENING_QOS = QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT)
"""The quality of service of subscriptions to commands. A best-effort subscription receives from
reliable publishers too."""
ARRIVAL_S = 0.5
"""Maximum seconds to wait until the final command has arrived, because a subscriber may hang."""
RETIRE_S = 0.01
"""Seconds between two checks of whether the final command has arrived."""
OnCommand = Callable[..., object]
"""A function that is called with each command: its kind, time, stamp and values (A,).

Its keyword `reaches_robot` says whether the command is the newest one on the robot's topics."""


def to_float64_array(values: np.ndarray) -> array[float]:
    """Convert an array to the flat `array` of doubles that a message's float64[] field needs."""
    return array("d", np.ascontiguousarray(values, np.float64).tobytes())


def set_stamp(stamp: Any, stamp_ns: int) -> None:
    """Write a time in nanoseconds into a message of type builtin_interfaces/Time."""
    stamp.sec, stamp.nanosec = divmod(stamp_ns, 1_000_000_000)


class CommandOutput:
    """The publishers of commands (A,), one value for each actuator in physical units.

    Any thread may use them. If a command has several messages, each on its own topic, they are sent
    together, in the wiring's order. In shadow mode the messages are sent to the topics of
    `list_shadow_mode_topics`, and this node has no publisher on the robot's topics. While this node
    does not command the robot, it records the commands of other nodes.

    Args:
        node: The node that owns publishers and subscriptions.
        command: The command section of the wiring.
        messages: The messages that carry a command, one for each topic.
        last: The record of the newest command, sent by this or another node.
        now_ns: Returns the time in ns, by the clock of the times in `last`.
        shadow: Whether to start in shadow mode: compute commands and only propose them.
    """

    def __init__(
        self,
        node: Node,
        command: CommandConfig,
        messages: Sequence[CommandMessage],
        last: LastCommand,
        now_ns: Callable[[], int],
        *,
        shadow: bool,
    ) -> None:
        self._node, self._messages, self._slices = node, tuple(messages), command.message_slices
        self._last, self._now_ns = last, now_ns
        self._exact = all(one.has_only_float64_fields for one in self._messages)
        self._is_known = [False] * len(self._messages)
        """Whether each message has a value for all of its actuators in the newest command."""
        self.lock = threading.Lock()
        """The lock that a thread holds while it computes and sends a command, so that the limit on
        the change between commands counts from the command that was really sent before."""
        self._proposed = [
            node.create_publisher(type(one.message), topic, COMMAND_QOS)
            for one, topic in zip(self._messages, list_shadow_mode_topics(command), strict=True)
        ]
        self._publishers: list[Any] = []
        self._retiring: list[tuple[Any, float]] = []
        """Publishers that no longer send commands, each with the time until which it is kept."""
        self._targets: list[Any] = []
        self._listening: list[Any] = []
        self._heard = np.full(len(command.actuators), np.nan)
        steady = Clock(clock_type=ClockType.STEADY_TIME)
        self._retirer = node.create_timer(RETIRE_S, self._destroy_retired_publishers, clock=steady)
        self._retirer.cancel()
        self.shadow = shadow
        self.on_command: OnCommand = lambda *_, **__: None
        """Called with each command, under the lock that lets one command be sent at a time."""
        if not shadow:
            self._create_publishers()
        self._subscribe_to_commands()

    def start_publishing(self, *, shadow: bool) -> None:
        """Start publishing: commands to the robot, or in shadow mode only proposals.

        Args:
            shadow: Whether to publish proposals on other topics, and no commands to the robot.
        """
        self.shadow = shadow
        if shadow:
            self._subscribe_to_commands()
        else:
            self._create_publishers()
            self._unsubscribe_from_commands()
        with self.lock:
            self._targets = self._proposed if shadow else self._publishers
        if shadow:
            self._retire_publishers()

    def stop_publishing(self) -> None:
        """Stop publishing, and record the commands of other nodes from now on."""
        with self.lock:
            self._targets = []
        self._subscribe_to_commands()

    def forget_commands(self) -> None:
        """Forget the newest commands, because the episode to which they belong has ended."""
        self._last.forget_command()
        self._heard[:] = np.nan

    def send(self, values: np.ndarray, stamp_ns: int | None, kind: CommandKind) -> bool:
        """Send a command (A,). Return whether the whole command was sent.

        Messages with NaN or infinity are left out, and the others are still sent. So a mobile base
        can stop although the position of its arm is unknown. The caller must hold `lock` while it
        computes the command and calls this.

        Args:
            values: The command (A,), with NaN for an actuator whose safe position is unknown.
            stamp_ns: The stamp of the command. None: the messages get the stamp of the previous
                command again, and messages whose type has no stamp are not sent, because a
                simulator in lockstep would count them as the answer to its next step.
            kind: Why the command is sent, for the recording.
        """
        self._is_known = [bool(np.isfinite(values[span]).all()) for span in self._slices]
        for message, span, is_known in zip(
            self._messages, self._slices, self._is_known, strict=True
        ):
            if is_known:
                message.fill(values[span], stamp_ns)
        now_ns, stamped_only = self._now_ns(), stamp_ns is None
        self._send_messages(stamped_only=stamped_only)
        if not all(self._is_known):
            self.on_command(kind, now_ns, stamp_ns, values, reaches_robot=False)
            return False
        if not self._exact:
            values = self._read_command_from_messages()
        whole = not stamped_only or all(one.is_stamped for one in self._messages)
        reaches_robot = bool(whole and self._targets and self._targets is self._publishers)
        self.on_command(kind, now_ns, stamp_ns, values, reaches_robot=reaches_robot)
        if reaches_robot:
            self._last.record(values, now_ns)
        return True

    def _read_command_from_messages(self) -> np.ndarray:
        """Return the command (A,) that the messages hold, rounded to the types of their fields."""
        return np.concatenate([one.read_values(one.message) for one in self._messages])

    def resend_newest_command(self) -> None:
        """Send the newest command again, because it was lost on its way to a lockstep simulator.

        Messages without a stamp are left out: they would count as the answer to the next step.
        """
        with self.lock:
            self._send_messages(stamped_only=True)

    def _send_messages(self, *, stamped_only: bool) -> None:
        """Send every known message of the newest command, even if one fails; raise the first error.

        Args:
            stamped_only: Whether to send only messages whose type has a time stamp.
        """
        failed: Exception | None = None
        for target, message, is_known in zip(
            self._targets, self._messages, self._is_known, strict=False
        ):
            if (stamped_only and not message.is_stamped) or not is_known:
                continue
            try:
                target.publish(message.message)
            except Exception as error:
                failed = failed or error
        if failed is not None:
            raise failed

    def close(self) -> None:
        """Wait a short time until the final command has arrived, and destroy the publishers."""
        self._unsubscribe_from_commands()
        with self.lock:
            self._targets = []
        self._retire_publishers()
        self._retirer.cancel()
        for publisher, until_s in self._retiring:
            with suppress(RuntimeError):  # rclpy was shut down already
                left_s = max(0.0, until_s - time.monotonic())
                publisher.wait_for_all_acked(Duration(seconds=left_s))
            self._node.destroy_publisher(publisher)
        self._retiring = []
        self._node.destroy_timer(self._retirer)
        for publisher in self._proposed:
            self._node.destroy_publisher(publisher)

    def _create_publishers(self) -> None:
        """Create the publishers of commands to the robot."""
        if not self._publishers:
            self._publishers = [
                self._node.create_publisher(type(one.message), one.topic, COMMAND_QOS)
                for one in self._messages
            ]

    def _retire_publishers(self) -> None:
        """Stop using the command publishers; destroy each once its final command has arrived.

        A timer checks later whether it has arrived, so that the executor does not have to wait.
        """
        until_s = time.monotonic() + ARRIVAL_S
        self._retiring += [(publisher, until_s) for publisher in self._publishers]
        self._publishers = []
        self._destroy_retired_publishers()

    def _destroy_retired_publishers(self) -> None:
        """Destroy the publishers that are no longer used, once their final command has arrived.

        A publisher whose final command takes too long to arrive is destroyed too.
        """
        kept = []
        for publisher, until_s in self._retiring:
            if time.monotonic() >= until_s or _have_all_messages_arrived(publisher):
                self._node.destroy_publisher(publisher)
            else:
                kept.append((publisher, until_s))
        self._retiring = kept
        if kept:
            self._retirer.reset()
        else:
            self._retirer.cancel()

    def _subscribe_to_commands(self) -> None:
        """Subscribe to the commands of other nodes.

        Until they arrive, each actuator counts as commanded by the newest command, which may be
        this node's own.
        """
        if self._listening:
            return
        known = self._last.values
        self._heard[:] = np.nan if known is None else known
        for message, span in zip(self._messages, self._slices, strict=True):
            self._listening.append(
                self._node.create_subscription(
                    type(message.message),
                    message.topic,
                    partial(self._record_command_of_other_node, message, span),
                    LISTENING_QOS,
                )
            )

    def _unsubscribe_from_commands(self) -> None:
        """Unsubscribe from the commands of other nodes."""
        for ear in self._listening:
            self._node.destroy_subscription(ear)
        self._listening = []

    def _record_command_of_other_node(
        self, reader: CommandMessage, actuator_slice: slice, message: Any
    ) -> None:
        """Record a command of another node; ignore a message that does not fit the actuators.

        If a command has several messages, each on its own topic, it is recorded once a message has
        arrived on each topic.

        Args:
            reader: The object that reads the actuators' values from a message of this topic.
            actuator_slice: The range of the command (A,) to which these values belong.
            message: The message.
        """
        with suppress(ValueError):
            self._heard[actuator_slice] = reader.read_values(message)
            if np.isfinite(self._heard).all():
                heard, now_ns = self._heard.copy(), self._now_ns()
                self.on_command(CommandKind.OTHER, now_ns, None, heard, reaches_robot=True)
                self._last.record(heard, now_ns, is_own=False)


def _have_all_messages_arrived(publisher: Any) -> bool:
    """Return whether, as far as the middleware knows, all messages of a publisher have arrived."""
    try:
        return bool(publisher.wait_for_all_acked(Duration()))
    except RuntimeError:  # rclpy was shut down already
        return True


def list_shadow_mode_topics(command: CommandConfig) -> tuple[str, ...]:
    """Return, for each message of a command, the topic to which it is sent in shadow mode.

    In shadow mode commands are only proposed, and not sent to the robot. The topic is `~/proposed`.
    If a command has several messages, each has a topic of its own below `~/proposed`. Names that
    would be equal, as of `cmd` and `/cmd`, are told apart by the index of the message, and so are
    names that look as if they had an index already.
    """
    if len(command.messages) == 1:
        return ("~/proposed",)
    names = [one.topic.lstrip("~/") for one in command.messages]
    return tuple(
        f"~/proposed/command_{i}/{name}"
        if names.count(name) > 1 or re.match(r"command_\d+/", name)
        else f"~/proposed/{name}"
        for i, name in enumerate(names)
    )


class InsightOutput:
    """The publishers of the policy's readings and attention; silent while nobody subscribes.

    `~/attention` has the attention weights (M queries, N channels), `~/keys` the keys (N, k), and
    `~/channels` the ids and readings of the channels; the reading of an image patch is its mean
    brightness. With cameras there is `~/attended` too: the image of the first camera, with the
    patches that the policy attended to (see `draw_attention_on_newest_camera_frame`).

    Args:
        node: The node that owns the publishers.
        has_images: Whether the channels are patches of camera images.
    """

    def __init__(self, node: Node, *, has_images: bool) -> None:
        self._node = node
        self._attended = (
            node.create_publisher(Image, "~/attended", COMMAND_QOS) if has_images else None
        )
        self._attention = node.create_publisher(Float64MultiArray, "~/attention", COMMAND_QOS)
        self._keys = node.create_publisher(Float64MultiArray, "~/keys", COMMAND_QOS)
        self._channels = node.create_publisher(JointState, "~/channels", COMMAND_QOS)

    def publish(
        self,
        readings: Readings,
        policy: Policy,
        table: ChannelTable,
        stamp_ns: int,
    ) -> None:
        """Publish the readings, the attention and the attention keys of one tick (control step).

        Args:
            readings: The sensor readings of the tick.
            policy: The policy, after its step.
            table: The channel table, which keeps the cameras' frames.
            stamp_ns: The stamp of the messages.
        """
        if self._channels.get_subscription_count():
            channels = JointState(
                name=list(readings.ids),
                position=to_float64_array(_reduce_readings_to_scalars(readings)),
            )
            set_stamp(channels.header.stamp, stamp_ns)
            self._channels.publish(channels)
        for publisher, values, labels in (
            (self._attention, select_attention_of_channels, ("query", "channel")),
            (self._keys, select_attention_keys_of_channels, ("channel", "key")),
        ):
            if publisher.get_subscription_count():
                matrix = values(policy, readings.ids)
                if matrix is not None:
                    publisher.publish(_make_matrix_message(matrix, labels, readings.ids, stamp_ns))
        if self._attended is not None and self._attended.get_subscription_count():
            picture = draw_attention_on_newest_camera_frame(policy, table)
            if picture is not None:
                image = _make_image_message(picture)
                set_stamp(image.header.stamp, stamp_ns)
                self._attended.publish(image)

    def close(self) -> None:
        """Destroy the publishers."""
        if self._attended is not None:
            self._node.destroy_publisher(self._attended)
        self._node.destroy_publisher(self._attention)
        self._node.destroy_publisher(self._keys)
        self._node.destroy_publisher(self._channels)


def _reduce_readings_to_scalars(readings: Readings) -> np.ndarray:
    """Return one number for each channel (N,): its reading, or the mean brightness of its patch."""
    values = readings.values
    return values if values.ndim == 1 else values[:, -1].mean(axis=(1, 2))


def _make_image_message(picture: np.ndarray) -> Image:
    """Convert pixels uint8 (H, W, 3) to an image message with encoding rgb8."""
    height, width, _ = picture.shape
    data = array("B", np.ascontiguousarray(picture, np.uint8).tobytes())
    return Image(height=height, width=width, encoding="rgb8", step=3 * width, data=data)


def _make_matrix_message(
    values: np.ndarray, labels: tuple[str, str], ids: Sequence[str], stamp_ns: int
) -> Float64MultiArray:
    """Convert a matrix that has one row or one column for each channel to a message.

    The message type has no header, so ids and stamp are written into the labels of the two axes.
    The label of the channels' axis is the word `channel` followed by the channels' ids. The label
    of the other axis is that axis's name followed by the stamp in ns.

    Args:
        values: The matrix.
        labels: The names of the matrix's two axes; one is "channel".
        ids: The ids of the channels.
        stamp_ns: The time stamp in ns.
    """
    rows, columns = values.shape
    words = [
        " ".join([label, *ids]) if label == "channel" else f"{label} {stamp_ns}" for label in labels
    ]
    message = Float64MultiArray(data=to_float64_array(values))
    message.layout.dim = [
        MultiArrayDimension(label=words[0], size=rows, stride=rows * columns),
        MultiArrayDimension(label=words[1], size=columns, stride=columns),
    ]
    return message
