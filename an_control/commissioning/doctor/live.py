"""Record a running robot for the doctor: its readings, and the commands that it gets."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

from rclpy.node import Node

from an_control.commissioning.doctor.driven import DrivenRecorder
from an_control.policy import Model
from an_control.ros.inputs import Inputs
from an_control.wiring import Wiring


class LiveRecorder(DrivenRecorder):
    """Recorder of a running robot, with one tick for each command; see `DrivenRecorder`.

    Args:
        wiring: The robot's wiring.
        model_path: Path of the model file, for error messages.
        model: The model whose channels and actuators are recorded.
    """

    def __init__(self, wiring: Wiring, model_path: str, model: Model) -> None:
        super().__init__(wiring, model_path, model)
        self._topics = [one.topic for one in wiring.command.messages]

    def subscribe_to_robot(self, node: Node) -> None:
        """Subscribe to the sensor and command topics of the wiring, so that ticks are recorded."""
        self._inputs = Inputs(
            node, self.recorder.table, time.monotonic_ns, lambda *_: None, 1, with_message_info=True
        )
        for number, (topic, message) in enumerate(zip(self._topics, self.messages, strict=True)):
            hear = partial(self._record_command, number)
            node.create_subscription(type(message.message), topic, hear, 10)

    def close(self) -> None:
        """Destroy the subscriptions to the sensor topics."""
        self._inputs.close()

    def _record_command(self, topic_index: int, message: Any) -> None:
        """Add a command message that has just arrived; see `DrivenRecorder.add_command_message`.

        Args:
            topic_index: Index of the message's command topic in the wiring.
            message: The ROS message.
        """
        self.add_command_message(topic_index, message, time.monotonic_ns())
