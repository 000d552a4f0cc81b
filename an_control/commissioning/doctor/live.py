"""Record a running robot for the doctor: its readings, and the commands that it gets."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import numpy as np
from rclpy.node import Node

from an_control.commissioning.doctor.recorder import ReadingsRecorder
from an_control.control.acting import ActionOrder
from an_control.policy import Model
from an_control.ros.inputs import Inputs
from an_control.wiring import Wiring, command_messages


class LiveRecorder:
    """Recorder of a tick for each command message: the readings before it, and its action.

    Args:
        wiring: The robot's wiring.
        model_path: Path of the model file, for error messages.
        model: The model whose channels and actuators are recorded.
    """

    def __init__(self, wiring: Wiring, model_path: str, model: Model) -> None:
        self.recorder = ReadingsRecorder(wiring, model)
        self._order = ActionOrder(wiring, model_path, model)
        self._wiring = wiring
        self._messages = command_messages(wiring.command, wiring.file)
        self._parts: list[np.ndarray | None] = [None] * len(self._messages)
        self._last_ns = 0
        self.commands = 0
        """Number of command messages on the first command topic."""

    def open(self, node: Node) -> None:
        """Subscribe to the robot's sources and to its command topics."""
        self._inputs = Inputs(
            node, self.recorder.table, time.monotonic_ns, lambda *_: None, 1, informed=True
        )
        for number, (config, message) in enumerate(
            zip(self._wiring.command.messages, self._messages, strict=True)
        ):
            hear = partial(self._hear, number)
            node.create_subscription(type(message.message), config.topic, hear, 10)

    def close(self) -> None:
        """Release the sources' subscriptions."""
        self._inputs.close()

    def _hear(self, number: int, message: Any) -> None:
        """Record a tick, once every command topic has had a message."""
        try:
            self._parts[number] = self._messages[number].read(message)
        except ValueError:
            return
        parts = [part for part in self._parts if part is not None]
        if number or len(parts) < len(self._parts):
            return
        self.commands += 1
        now_ns = time.monotonic_ns()
        if self._last_ns and now_ns - self._last_ns > 2.5e9 / self._wiring.rate_hz:
            self.recorder.start()  # a tick was lost, so the next does not follow from the last
        self._last_ns = now_ns
        self.recorder.add(self._order.action(np.concatenate(parts)), now_ns)
