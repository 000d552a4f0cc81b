"""Record a robot that somebody drives for the doctor: a tick for each command that goes out."""

from __future__ import annotations

from typing import Any

import numpy as np

from an_control.commissioning.doctor.recorder import ReadingsRecorder
from an_control.control.model_wiring_check import ActionOrder
from an_control.policy import Model
from an_control.wiring import Wiring, make_command_messages

LOST_TICKS = 2.5
"""Time without a command, in control periods, after which a tick was lost."""


class DrivenRecorder:
    """Recorder of a robot that somebody drives, with one tick for each command.

    Any node may send the commands. A tick consists of the newest readings before the command, and
    of the model's action that would give this command.

    Args:
        wiring: The robot's wiring.
        model_path: Path of the model file, for error messages.
        model: The model whose channels and actuators are recorded.

    Raises:
        WiringError: If the wiring's actuators do not fit the model's.
    """

    def __init__(self, wiring: Wiring, model_path: str, model: Model) -> None:
        self.recorder = ReadingsRecorder(wiring, model)
        self.messages = make_command_messages(wiring.command, wiring.file)
        self.commands = 0
        """Number of commands; of several command topics, of messages on the first one."""
        self._order = ActionOrder(wiring, model_path, model)
        self._wiring = wiring
        self._parts: list[np.ndarray | None] = [None] * len(self.messages)
        self._last_ns = 0

    def add_command_message(self, topic_index: int, message: Any, now_ns: int) -> None:
        """Store the values of a command message; record a tick if its topic is the wiring's first.

        No tick is recorded before a message has arrived on every command topic.

        Args:
            topic_index: Index of the message's command topic in the wiring.
            message: The ROS message; a message that does not fit the wiring is ignored.
            now_ns: Time at which the message arrived, in ns.
        """
        try:
            self._parts[topic_index] = self.messages[topic_index].read_values(message)
        except ValueError:
            return
        parts = [part for part in self._parts if part is not None]
        if topic_index == 0 and len(parts) == len(self._parts):
            self.add_command(np.concatenate(parts), now_ns)

    def add_command(self, values: np.ndarray, now_ns: int) -> None:
        """Record a tick with the newest readings and a command.

        Args:
            values: (A,) values of all actuators, in physical units and in the wiring's order.
            now_ns: Time of the command in ns, by the clock of the readings.
        """
        self.commands += 1
        if self._last_ns and now_ns - self._last_ns > LOST_TICKS * 1e9 / self._wiring.rate_hz:
            self.recorder.mark_gap()  # a tick was lost, so the next does not follow from the last
        self._last_ns = now_ns
        self.recorder.add_tick(self._order.convert_to_action(values), now_ns)
