"""Record what a policy node does, into a file or into a black box that is kept in memory.

The node calls a method whenever something happens that a replay needs. The method only notes it;
`flush` makes messages of the notes after the command has been sent. A recording gets all messages,
written on another thread. A black box keeps the newest ones in memory, within bounds, and writes
them when the robot stops without a request. Nothing here imports rclpy.
"""

from __future__ import annotations

import os
import platform
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from operator import ne
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from an_control.record.black_box import OVERHEAD_BYTES, BlackBox
from an_control.record.layout import (
    ACTION,
    CHANNELS,
    COMMAND,
    EVENTS,
    FORMAT,
    GATE_TOPIC,
    NONE,
    STORE,
    TICK_TOPIC,
    TYPES,
    BagEntry,
    CommandKind,
    FileHead,
    Limits,
    decode_event,
)
from an_control.record.notes import (
    EVENT,
    MESSAGE,
    MODEL,
    NUMBERS,
    STATE,
    ModelFile,
    Note,
    NoteEncoder,
    SessionState,
    find_time_of_next_note_ns,
)
from an_control.system.files import read_regular_file

if TYPE_CHECKING:
    from an_control.control.controller import Controller
    from an_control.record.writer import BagFolder, Writer
    from an_control.wiring import Readings, Wiring

MAX_NOTES = 2048
"""Number of notes after which they are flushed even if no ticks come."""
MAX_BATCH_BYTES = 4 * 2**20
"""Bytes of notes after which they are passed to the writer, even if more notes are waiting."""
FLUSH_S, TICK_S = 0.25, 0.001
"""Several ticks are flushed together, which costs less: those of `FLUSH_S` seconds, but at most as
many as fit into a control period at `TICK_S` seconds each, so that a flush does not exceed it."""


@dataclass(frozen=True)
class RecordOptions:
    """Settings of what a node records, and where.

    Attributes:
        folder: Folder in which each recording gets a folder of its own; with None nothing is
            recorded.
        limits: Limits of a recording's size.
        black_box_folder: Folder in which each written black box gets a folder of its own.
        black_box_s: Duration in seconds of the black box, the newest messages that are kept in
            memory; 0 means no black box.
    """

    folder: Path | None
    limits: Limits
    black_box_folder: Path
    black_box_s: float


def get_recording_install_command() -> str:
    """Return the shell command that installs the packages for recording; "" if none is missing."""
    return "" if find_spec("mcap") else "pip install 'an_control[record]'"


class MessageNumbers:
    """Numbers of the recorded messages and of the sources (topic subscriptions).

    A record of a tick names by these numbers the messages that the tick has read.
    """

    def __init__(self) -> None:
        self.sources: dict[str, int] = {}
        """Number of each source (topic subscription) by its name."""
        self._newest: Any = None
        self._count = 0
        self._newest_of_topic: dict[str, int] = {}

    def get_source_number(self, source: str | None) -> int:
        """Return the number of a source; 0 if no source has this name, or the name is None."""
        return 0 if source is None else self.sources.get(source, 0)

    def count_message_if_new(self, topic: str, message: Any) -> bool:
        """Count a message, unless it is the object that was counted last.

        So a message that is delivered to several sources is counted once.

        Returns:
            Whether the message was counted.
        """
        if message is self._newest:
            return False
        self._newest = message
        self._count += 1
        self._newest_of_topic[topic] = self._count
        return True

    def count_messages_since_newest(self, topic: str) -> int:
        """Return how many messages, of all topics, were counted after a topic's newest one."""
        return self._count - self._newest_of_topic[topic]


class NodeRecorder:
    """Recorder of what a policy node does, as a recording on disk or in a black box in memory.

    A recording holds everything, the black box the last seconds. The methods add notes (one for
    each message, tick, command or change of state) to a queue in memory. `flush` later passes them
    to the thread that writes the recording, or to the black box.

    Args:
        options: What to record, and where.
        node: Full name of the node.
        controller: The node's controller, whose state is recorded.
        settings: Parameters of the node, by name, to be recorded.
        serialize: Function that returns the bytes of a ROS message.
        now_ns: Function that returns the time in ns of the node's clock; 0 if it is not known
            yet.
        offset_ns: Number of ns to add to the node's clock for the time of day.
        log: Function that logs a line, called if recording stops because of an error.
    """

    def __init__(
        self,
        options: RecordOptions,
        node: str,
        controller: Controller,
        settings: Mapping[str, Any],
        serialize: Callable[[Any], bytes],
        now_ns: Callable[[], int],
        offset_ns: int,
        log: Callable[[str], object],
    ) -> None:
        self._options, self._controller, self._log = options, controller, log
        self._now_ns, self._node = now_ns, node
        self._encoder = NoteEncoder(node, serialize, offset_ns)
        self._state = SessionState()
        self._notes: deque[Note] = deque()
        self._newest_ns: int | None = None
        """Time of the newest note that the writer got; None before the first."""
        self._flushing = threading.Lock()
        step_s = controller.step_s
        self._flush_ticks = max(1, int(min(FLUSH_S / step_s, step_s / TICK_S)))
        self._flushed_tick = 0
        self._messages = MessageNumbers()
        self._ticks = self._tick_ns = 0
        self._gate_counts = tuple(controller.gate.counts.__dict__.values())
        self._policy = controller.acting.policy
        self._moved: dict[str, str] = {}
        self._actuators = tuple(controller.wiring.command.names)
        self.set_source_numbers(controller.wiring)
        self._writer: Writer | None = None
        self._black_box: BlackBox | None = None
        self.path = ""
        """Folder of the recording; "" if there is none."""
        if options.folder is not None:
            self.path = str(_find_unused_folder_path(options.folder, node))
            self._writer = self._start_writer()
        elif options.black_box_s > 0.0:
            self._black_box = BlackBox(
                options.black_box_folder, options.black_box_s, node, self._encoder, self._state, log
            )
            self._black_box.start(self._flushing, self._flush_notes)
        self._record_session(node, settings)

    def _start_writer(self) -> Writer:
        """Return a writer that writes the recording on a thread of its own."""
        from an_control.record.writer import BagFolder, Writer

        heads = iter([FileHead((), {})])  # the first file has all events and models anyway

        def make_first_entries_of_file() -> FileHead:
            """Return the content to write at the start of a file; there is none in the first."""
            return next(heads, None) or self._state.make_first_entries_of_file(
                self._encoder, self._newest_ns
            )

        def remember_event(entry: BagEntry) -> None:
            """Remember a written event for the next file, which begins with those before it."""
            if entry.type == TYPES[EVENTS] and entry.topic == f"{self._node}/{EVENTS}":
                self._state.remember_event_for_new_files(decode_event(entry.data))

        def make_folder() -> BagFolder:
            """Create the folder of the recording, and return the object that writes its files."""
            return BagFolder(
                Path(self.path),
                make_first_entries_of_file,
                self._options.limits,
                on_written=remember_event,
            )

        return Writer(make_folder, lambda reason: self._log(f"recording has ended: {reason}"))

    def _record_session(self, node: str, settings: Mapping[str, Any]) -> None:
        """Record the session's settings, the model and the wiring, at the start of a recording."""
        controller = self._controller
        model = self.read_model_file(controller.acting.model_path)
        self._record_model_file(model, None)
        self.record_event(
            "session",
            format=FORMAT,
            node=node,
            offset_ns=self._encoder.offset_ns,
            versions=_collect_package_versions(),
            settings=dict(settings),
            engine=controller.acting.policy.engine,
            seed=0,
            estop=controller.estop.reason,
            model={
                **model.get_path_and_hash(),
                "parameters": controller.acting.policy.model.parameter_count,
            },
            sizes=repr(controller.acting.policy.model.sizes),
        )
        text = read_regular_file(controller.wiring.file).decode()
        self.record_event("wiring", file=controller.wiring.file, text=text)

    def set_source_numbers(self, wiring: Wiring) -> None:
        """Give each source (topic subscription) a number, in the order of the wiring.

        All later records refer to a source by its number, which is its index in the wiring plus
        one.

        Args:
            wiring: The wiring that is used from now on.
        """
        self._messages.sources = {one.name: place for place, one in enumerate(wiring.sources, 1)}

    def read_model_file(self, path: str) -> ModelFile:
        """Read a model file that the node uses or will use, and keep its content for the recording.

        Call it from any thread, but not during a tick, because it reads from the disk.

        Args:
            path: Path of the model file.
        """
        return self._state.read_model_file(path)

    def record_message(
        self,
        topic: str,
        type_: str,
        message: Any,
        source: str | None,
        arrival_ns: int,
        now_ns: int,
    ) -> None:
        """Record a message that has arrived.

        Args:
            topic: Topic of the message.
            type_: Message type.
            message: The ROS message.
            source: Name of the source (topic subscription) that reads it; None if none does.
            arrival_ns: Time of arrival in ns, of the node's clock.
            now_ns: Present time in ns, of the node's clock.
        """
        messages = self._messages
        place = messages.get_source_number(source)
        if not messages.count_message_if_new(topic, message):
            if source is not None:
                self.record_delivery_to_source(topic, source, now_ns)
            return
        self._notes.append((MESSAGE, topic, type_, message, place, arrival_ns, now_ns))
        if len(self._notes) > MAX_NOTES:
            self.flush(even_if_few=True)

    def record_delivery_to_source(self, topic: str, source: str, now_ns: int) -> None:
        """Record that one more source (topic subscription) has received a topic's newest message.

        Args:
            topic: Topic of the message.
            source: Name of the source.
            now_ns: Present time in ns, of the node's clock.
        """
        if place := self._messages.get_source_number(source):
            back = self._messages.count_messages_since_newest(topic)
            self._notes.append((NUMBERS, STORE, (place, back), now_ns))

    def record_tick(self, now_ns: int, stamp_ns: int | None, *, sends_command: bool) -> None:
        """Record that the policy has made a step. Call it before the tick's command is sent.

        Args:
            now_ns: Time of the tick in ns, of the node's clock.
            stamp_ns: In lockstep the simulated time of the tick in ns, else None.
            sends_command: Whether the node sends the command of this tick.
        """
        controller, self._ticks, self._tick_ns = self._controller, self._ticks + 1, now_ns
        newest = controller.acting.pending_or_acting_model
        if newest.policy is not self._policy:
            self._policy = newest.policy
            known = self._state.get_model_file(newest.path)
            about = (
                {"path": newest.path, "sha256": ""} if known is None else known.get_path_and_hash()
            )
            self._record_model_file(known, now_ns)
            self.record_event("model", now_ns=now_ns, **about)
        numbers = (
            self._ticks,
            now_ns,
            NONE if stamp_ns is None else stamp_ns,
            int(sends_command),
            controller.decision.previous_command,
            int(controller.decision.stepped),
            controller.repeats,
        )
        self._notes.append((NUMBERS, TICK_TOPIC, numbers, now_ns))

    def record_command(
        self,
        kind: CommandKind,
        decided_ns: int | None,
        sent_ns: int,
        stamp_ns: int | None,
        values: np.ndarray,
        newest_number: int | None,
    ) -> None:
        """Record a command that was sent, and whether the safety gate has changed it.

        The caller must hold the lock that allows one command at a time.

        Args:
            kind: Why the command was sent.
            decided_ns: Time in ns, of the node's clock, at which the policy's command was computed.
                None for any other command, and in lockstep.
            sent_ns: Time at which it was sent in ns, of the node's clock.
            stamp_ns: In lockstep, the simulated time in ns of the step that the command answers;
                otherwise None.
            values: The command (A,) in physical units.
            newest_number: Number of the command, as `LastCommand` counts commands on the robot's
                topics; None if the command was not sent there.
        """
        gate = self._controller.gate
        counts = tuple(gate.counts.__dict__.values())
        changed: tuple[int, ...] = _UNCHANGED
        if counts != self._gate_counts:
            changed = tuple(map(int, map(ne, counts, self._gate_counts)))
            self._gate_counts = counts
        numbers = (
            int(kind),
            NONE if decided_ns is None else decided_ns,
            sent_ns,
            NONE if stamp_ns is None else stamp_ns,
            NONE if newest_number is None else newest_number,
            *changed,
            round(gate.authority * 1e6),
        )
        self._notes.append((NUMBERS, GATE_TOPIC, numbers, sent_ns))
        self._notes.append((STATE, COMMAND, self._actuators, values, sent_ns))

    def record_readings(self, readings: Readings, now_ns: int) -> None:
        """Record a tick's readings, and the policy's command before the safety gate changed it.

        The command is taken from the controller. Readings of cameras are not recorded.

        Args:
            readings: The readings of the N present channels.
            now_ns: Time of the tick in ns, of the node's clock.
        """
        acting = self._controller.acting
        if readings.values.ndim == 1:
            self._notes.append((STATE, CHANNELS, readings.ids, readings.values, now_ns))
        if acting.wanted is not None:
            self._notes.append((STATE, ACTION, self._actuators, acting.wanted, now_ns))

    def _record_monitor_moves(self) -> None:
        """Record which signals the monitor finds moved, if that has changed since the last flush.

        Nothing is recorded while the monitor is lost (knows no right assignment of the signals).
        """
        report = self._controller.acting.policy.monitor_report
        if report is not None and not report.lost and report.moved != self._moved:
            self._moved = report.moved
            self.record_event(
                "monitor", now_ns=self._tick_ns, moved=report.moved, misfit=report.misfit
            )

    def record_event(self, kind: str, now_ns: int | None = None, **values: Any) -> None:
        """Record a change of state.

        Args:
            kind: Kind of the change, such as "rewire".
            now_ns: Time in ns, of the node's clock; None is the present time.
            **values: Values that describe the change.
        """
        self._notes.append((EVENT, kind, values, now_ns or self._read_time_ns()))

    def _read_time_ns(self) -> int | None:
        """Return the time of the node's clock in ns; None if it is not known yet.

        A note without a time gets that of the next note.
        """
        return self._now_ns() or None

    def _record_model_file(self, model: ModelFile | None, now_ns: int | None) -> None:
        """Add a model file to the recording as an attached file, if its content is in memory."""
        if model is not None and model.content is not None:
            time_ns = now_ns or self._read_time_ns()
            self._notes.append((MODEL, f"model:{model.sha256}", model.content, time_ns))

    def flush(self, *, even_if_few: bool = False) -> None:
        """Pass the queued notes to the writer or the black box, if enough ticks were recorded.

        If another thread is flushing, this call returns at once.

        Args:
            even_if_few: Whether to pass the notes even if only few ticks have been recorded since
                the previous flush.
        """
        if not even_if_few and self._ticks - self._flushed_tick < self._flush_ticks:
            return
        if not self._flushing.acquire(blocking=False):
            return
        self._flushed_tick = self._ticks
        try:
            self._record_monitor_moves()
            self._flush_notes()
        finally:
            self._flushing.release()

    def _flush_notes(self) -> None:
        """Pass all queued notes to the writer, or to the black box if there is no writer."""
        notes = self._notes
        if self._black_box is not None:
            self._black_box.move_queued_notes_into_box(notes)
            return
        if self._writer is None:
            notes.clear()
            return
        entries = []
        size = 0
        while notes:
            note = notes.popleft()
            if note[-1] is None:
                note = (*note[:-1], find_time_of_next_note_ns(notes) or self._newest_ns)
            self._newest_ns = note[-1]
            entry = self._encoder.make_bag_entry(note)
            size += len(entry.data) + OVERHEAD_BYTES
            entries.append(entry)
            if size > MAX_BATCH_BYTES:
                self._writer.enqueue(entries, size)
                entries, size = [], 0
        self._writer.enqueue(entries, size)

    def request_black_box_and_describe_place(self, reason: str) -> str:
        """Ask for the black box to be written to disk, because the robot stopped unexpectedly.

        Another thread writes it. The call may come from any thread, also from the watchdog's, and
        does not wait. If the node writes a recording, there is no black box, and the stop is only
        recorded.

        Args:
            reason: Why the robot stopped.

        Returns:
            Text for the end of a log line on where to find what was recorded; "" if nothing was.
        """
        self.record_event("stopped", reason=reason)
        if self._writer is not None:
            return "" if self._writer.stopped else f"; recorded in {self.path}"
        if self._black_box is None:
            return ""
        folder = self._black_box.request_saving_and_get_folder()
        return f"; the last {self._options.black_box_s:g} s are in {folder}"

    def get_recording_diagnostics(self) -> tuple[str, bool, dict[str, Any]]:
        """Return the state of recording for the diagnostics.

        Returns:
            A tuple of three: a description of the state in words; whether recording works as
            requested; and figures by name.
        """
        writer = self._writer
        if writer is None:
            if self._black_box is None:
                return "off", True, {}
            text, values = self._black_box.get_black_box_diagnostics()
            return text, True, values
        values = {
            "folder": self.path,
            "messages": str(writer.messages),
            "written [MiB]": f"{writer.bytes / 2**20:.1f}",
            "waiting [MiB]": f"{writer.waiting_bytes / 2**20:.1f}",
            "slowest write [ms]": f"{writer.slowest_s * 1e3:.0f}",
        }
        if writer.stopped:
            return f"recording has ended: {writer.stopped}", False, values
        return "recording", True, values

    def close(self) -> None:
        """Write the remaining messages, and stop recording and writing black boxes."""
        self.flush(even_if_few=True)
        if self._writer is not None:
            self._writer.close()
        if self._black_box is not None:
            self._black_box.close()


_UNCHANGED = (0, 0, 0, 0)
"""Whether each count of the gate has changed, for a command that the gate left as it was."""


def _collect_package_versions() -> dict[str, str]:
    """Return the versions of Python, of packages and of ROS 2, by name."""
    found = {"python": platform.python_version(), "machine": platform.machine()}
    found["platform"] = sys.platform
    for package in ("an_control", "numpy", "numba", "mcap"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    if distribution := os.environ.get("ROS_DISTRO"):
        found["ros"] = distribution
    return found


def _find_unused_folder_path(parent: Path, node_name: str) -> Path:
    """Return a path for a new folder, named after a node and the time of day.

    The folder does not exist yet, and is not created here.
    """
    word = node_name.strip("/").replace("/", "_")
    stem = f"{word}_{time.strftime('%Y%m%d_%H%M%S')}"
    number = 0
    while (path := parent / (f"{stem}_{number}" if number else stem)).exists():
        number += 1
    return path
