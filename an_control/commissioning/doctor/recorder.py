"""Record the model's channels and actions of a robot for the doctor, by ticks or by commands."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from an_control.commissioning.doctor.hypotheses import Recording
from an_control.control.model_wiring_check import ActionCommandConverter
from an_control.policy import Model
from an_control.wiring import ChannelTable, Wiring, make_command_messages

LOST_TICKS = 2.5
"""Time without a command, in control periods, after which a tick was lost."""


class ReadingsRecorder:
    """Recorder, in memory, of a robot's raw sensor numbers and actions, one row for each tick.

    The caller stores the robot's messages in `table`, and then calls `add_tick` in each tick. The
    numbers are recorded before scale, offset and clipping.

    Args:
        wiring: The robot's wiring.
        model: The model whose channels and actuators are recorded.
    """

    def __init__(self, wiring: Wiring, model: Model) -> None:
        self._ids = tuple(model.task.channels)
        self._actuators = tuple(model.task.actuators)
        self._wiring = wiring
        channels = tuple(replace(one, clip=None) for one in wiring.channels)
        self.table = ChannelTable(replace(wiring, channels=channels))
        self._raws: list[np.ndarray] = []
        self._actions: list[np.ndarray] = []
        self._starts: list[bool] = []
        self._place = {id_: place for place, id_ in enumerate(self._ids)}
        self._start = True

    def __len__(self) -> int:
        return len(self._raws)

    def mark_gap_before_next_tick(self) -> None:
        """Mark a gap in time before the next tick, such as after lost messages."""
        self._start = True

    def add_tick(self, action: np.ndarray, now_ns: int, stamp_ns: int | None = None) -> None:
        """Record one tick: the newest readings, and the action that is sent after them.

        Args:
            action: (A,) the action, with the A actuators in the model's order.
            now_ns: Present time in ns, from which the age of readings is computed.
            stamp_ns: Time stamp of the readings in lockstep with a simulator; else None.
        """
        readings, configs = self.table.read(now_ns, stamp_ns), self.table.configs
        raw = np.full(len(self._ids), np.nan)
        for id_, value in zip(readings.ids, readings.values.tolist(), strict=True):
            place = self._place.get(id_)
            if place is not None:
                config = configs[id_]
                raw[place] = (value - config.offset) / config.scale
        self._raws.append(raw)
        self._actions.append(np.clip(action, -1.0, 1.0).astype(np.float32))
        self._starts.append(self._start)
        self._start = False

    def make_recording(self) -> Recording:
        """Return a recording of all ticks so far."""
        count = len(self._ids)
        scale, offset = np.ones(count), np.zeros(count)
        clip = np.tile([-np.inf, np.inf], (count, 1))
        groups: dict[str, tuple[int, ...]] = {}
        clips = {one.id: one.clip for one in self._wiring.channels}
        for id_, config in self.table.configs.items():
            place = self._place.get(id_)
            if place is None:
                continue
            scale[place], offset[place] = config.scale, config.offset
            if (bounds := clips.get(config.id)) is not None:
                clip[place] = bounds
            field = config.field.partition("[")[0]
            for name in (f"source {config.source}", f"{config.source}: {field}"):
                groups[name] = (*groups.get(name, ()), place)
        actions = np.array(self._actions).reshape(len(self._raws), -1)
        names = self._actuators or tuple(f"action.{i}" for i in range(actions.shape[1]))
        return Recording(
            self._ids, np.array(self._raws).reshape(-1, count), actions, scale, offset, clip,
            np.array(self._starts, bool), names, groups,
        )  # fmt: skip


class DrivenRecorder:
    """Recorder, in memory, of a robot's readings and the commands that any node sends to it.

    Each command gives one recorded tick: the newest readings before the command, and the command,
    converted to an action of the model. The caller stores the robot's messages in `recorder.table`,
    and calls `add_command_message` or `add_command`; `recorder.make_recording` returns all ticks.

    Args:
        wiring: The robot's wiring.
        model_path: Path of the model file, for error messages.
        model: The model whose channels and actuators are recorded.

    Raises:
        WiringError: The wiring's actuators do not fit the model's.
    """

    def __init__(self, wiring: Wiring, model_path: str, model: Model) -> None:
        self.recorder = ReadingsRecorder(wiring, model)
        self.messages = make_command_messages(wiring.command, wiring.file)
        self.commands = 0
        """Number of commands; of several command topics, of messages on the first one."""
        self._order = ActionCommandConverter(wiring, model_path, model)
        self._wiring = wiring
        self._parts: list[np.ndarray | None] = [None] * len(self.messages)
        self._last_ns = 0

    def add_command_message(self, topic_index: int, message: Any, now_ns: int) -> None:
        """Take a message that was sent to the robot on a command topic, and record a tick.

        With several command topics, only a message on the first topic records a tick, and only if
        every other topic has had a message.

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
            # A tick was lost, so the next one does not follow from the last one.
            self.recorder.mark_gap_before_next_tick()
        self._last_ns = now_ns
        self.recorder.add_tick(self._order.convert_to_action(values), now_ns)
