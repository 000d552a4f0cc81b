"""Create the recorder of a policy node, and tell the recorder what the control loop does."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import rclpy.logging
from rclpy.node import Node
from rclpy.serialization import serialize_message

from an_control.control.controller import Controller
from an_control.record.layout import CommandKind, Limits
from an_control.record.recorder import NodeRecorder, RecordOptions, get_recording_install_command
from an_control.ros.parameter_table import Settings
from an_control.ros.tickers import LoopClock
from an_control.wiring import Readings, Wiring

MB = 1e6
FOLDER = "black_boxes"
"""The folder, within ROS's log folder, of the black boxes (records of the last seconds before a
stop)."""


def describe_missing_black_box(node: Node) -> str:
    """Return why a policy node has no black box although its parameters ask for one, or "".

    A black box is the record of the last seconds before a stop. The text also says what to do.
    """
    if not node.get_parameter("black_box_s").value or not (
        missing := get_recording_install_command()
    ):
        return ""
    return f"no black box, because mcap is not installed: {missing}, or set black_box_s to 0"


def make_recorder(node: Node, settings: Settings, controller: Controller) -> NodeRecorder | None:
    """Create the recorder of a policy node; return None if the settings ask for none.

    Args:
        node: The policy node.
        settings: The values of the node's parameters, which say what is recorded and where.
        controller: The controller, whose wiring and model are recorded.

    Raises:
        ValueError: Recording is requested but a package for it is not installed.
    """
    if not settings.record and settings.black_box_s <= 0.0:
        return None
    if missing := get_recording_install_command():
        if settings.record:
            raise ValueError(f"parameter record: needs mcap: {missing}")
        node.get_logger().warning(describe_missing_black_box(node), once=True)
        return None
    logs = Path(str(rclpy.logging.get_logging_directory()))
    options = RecordOptions(
        folder=Path(settings.record).expanduser() if settings.record else None,
        limits=make_recording_size_limits(settings),
        black_box_folder=Path(settings.black_box).expanduser()
        if settings.black_box
        else logs / FOLDER,
        black_box_s=settings.black_box_s,
    )
    clock = LoopClock(node)
    offset_ns = 0 if clock.simulated else time.time_ns() - time.monotonic_ns()

    def log(text: str) -> None:
        node.get_logger().error(text)

    return NodeRecorder(
        options,
        node.get_fully_qualified_name(),
        controller,
        asdict(settings),
        serialize_message,
        clock.now_ns,
        offset_ns,
        log,
    )


def make_recording_size_limits(settings: Settings) -> Limits:
    """Return the limits of a recording's size that a node's parameters ask for.

    Old data is deleted only as whole files. So if the total size is limited, the size of each file
    must be limited too. A file limit that is not set, or is above the total limit, is replaced by a
    quarter of the total limit.
    """
    split_bytes = int(settings.record_split_mb * MB)
    total_bytes = int(settings.record_max_mb * MB)
    if total_bytes and not 0 < split_bytes <= total_bytes:
        split_bytes = max(1, total_bytes // 4)
    return Limits(split_bytes, settings.record_split_s, total_bytes)


class LoopRecord:
    """A recorder of the ticks (control steps), commands and events of a control loop.

    Args:
        recorder: Writes the record; None: nothing is recorded.
        controller: The controller, whose count of sent commands gives recorded commands their
            numbers.
        clock: The clock of the times that are recorded with events.
    """

    def __init__(
        self, recorder: NodeRecorder | None, controller: Controller, clock: LoopClock
    ) -> None:
        self.recorder = recorder
        self.decided_ns: int | None = None
        """The time in ns for which the newest command was decided; None in lockstep."""
        self._controller, self._clock = controller, clock
        self._tick: tuple[int, int | None] = (0, None)
        """A pair for the newest tick: its time in ns, and in lockstep its stamp, otherwise None."""
        self._noted = True
        """Whether the recorder was told of the newest tick."""
        self._tick_of_last_flush: tuple[int, int | None] | None = None
        """The newest tick, as `_tick`, when `flush_if_no_recent_tick` was called last."""

    def begin_tick(self, now_ns: int, stamp_ns: int | None) -> None:
        """Store the time and the stamp of a tick that begins, until `record_tick` records them.

        Args:
            now_ns: The time of the tick in ns.
            stamp_ns: In lockstep with a simulator, the time stamp of the tick's readings; otherwise
                None.
        """
        self._tick, self._noted = (now_ns, stamp_ns), False

    def record_tick(self, *, sends_command: bool) -> None:
        """Record the tick that `begin_tick` started.

        Args:
            sends_command: Whether the tick sends a command, which it does while the node is active.
        """
        self._noted = True
        if self.recorder is not None:
            self.recorder.record_tick(*self._tick, sends_command=sends_command)

    def record_readings(self, readings: Readings) -> None:
        """Record the readings of the newest tick, and let the recorder write to disk."""
        if self.recorder is not None:
            self.recorder.record_readings(readings, self._tick[0])
            self.recorder.flush()

    def flush_if_no_recent_tick(self) -> None:
        """Write out what was recorded, if there was no tick (control step) since the last call.

        A timer calls this once a second. While there are ticks, `record_readings` writes.
        """
        if self._tick is self._tick_of_last_flush and self.recorder is not None:
            self.recorder.flush(even_if_few=True)
        self._tick_of_last_flush = self._tick

    def record_failure(self, why: str) -> None:
        """Record that the newest tick failed, unless `record_tick` has recorded this tick already.

        Args:
            why: The reason as text.
        """
        if not self._noted:
            self.record_event("failed", tick_ns=self._tick[0], stamp_ns=self._tick[1], why=why)

    def record_command(
        self,
        kind: CommandKind,
        now_ns: int,
        stamp_ns: int | None,
        values: np.ndarray,
        *,
        reaches_robot: bool,
    ) -> None:
        """Record a command. The caller must hold the lock under which commands are sent.

        Args:
            kind: Which part of the node has computed the command.
            now_ns: The time of sending in ns.
            stamp_ns: The stamp of the command; None if it has none.
            values: The command (A,).
            reaches_robot: Whether all messages of the command go to the robot's topics; False if
                the command is only proposed (shadow mode), sent in part, or not sent.
        """
        if self.recorder is not None:
            decided_ns = self.decided_ns if kind == CommandKind.POLICY else None
            number = self._controller.gate.last.count + 1 if reaches_robot else None
            self.recorder.record_command(kind, decided_ns, now_ns, stamp_ns, values, number)

    def record_wiring(self, wiring: Wiring, previous: Wiring, file_text: str | None) -> None:
        """Record that another wiring is used from now on.

        Args:
            wiring: The new wiring.
            previous: The wiring before it.
            file_text: The text of the wiring file if it was read again, else None.
        """
        if self.recorder is not None:
            if file_text is not None:
                self.record_event("wiring", file=wiring.file, text=file_text)
            self.record_event("rewire", values=wiring.list_changed_settings(previous))
            self.recorder.set_source_numbers(wiring)

    def record_event(self, kind: str, **values: Any) -> None:
        """Record an event with the present time.

        Args:
            kind: The name of the event, such as "activate".
            **values: Further facts about the event, by name.
        """
        if self.recorder is not None:
            self.recorder.record_event(kind, self._clock.now_ns(), **values)

    def save_black_box_and_describe_file(self, why: str) -> str:
        """Write the black box (record of the last seconds) into a file.

        Args:
            why: The reason, which is written too.

        Returns:
            The end of a log line that says where the file is; "" if nothing is recorded.
        """
        return (
            "" if self.recorder is None else self.recorder.request_black_box_and_describe_place(why)
        )
