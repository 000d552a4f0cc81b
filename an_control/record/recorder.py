"""Record what a policy node does, into a file or into a black box that is kept in memory.

The node calls a method whenever something happens that a replay needs. The method only notes it;
`flush` makes messages of the notes after the command has been sent. A recording gets all messages,
written on another thread. A black box keeps the newest ones in memory, within bounds, and writes
them when the robot stops without a request. Nothing here imports rclpy.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from operator import ne
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from an_control.record.flat_messages import FlatMessage, Flattener
from an_control.record.layout import (
    ACTION,
    ATTACHMENT,
    CHANNELS,
    COMMAND,
    EVENTS,
    FORMAT,
    GATE_NUMBERS,
    GATE_TOPIC,
    NONE,
    STORE,
    STORED_NUMBERS,
    TICK_NUMBERS,
    TICK_TOPIC,
    TYPES,
    BagEntry,
    CommandKind,
    FileHead,
    Limits,
    encode_event,
    encode_joint_state,
)
from an_control.system.files import read_regular_file

if TYPE_CHECKING:
    from an_control.control.controller import Controller
    from an_control.record.writer import BagFolder, Writer
    from an_control.wiring import Readings, Wiring

MAX_NOTES = 2048
"""Number of notes after which they are flushed even if no ticks come."""
FLUSH_S, TICK_S = 0.25, 0.001
"""Several ticks are flushed together, which costs less: those of `FLUSH_S` seconds, but at most as
many as fit into a control period at `TICK_S` seconds each, so that a flush does not exceed it."""
MAX_BOX_BYTES = 64 * 2**20
"""Maximum memory of the black box, whatever duration that is."""
OVERHEAD_BYTES = 300
"""Memory of a note beside its content."""
AFTER_S = 1.0
"""Seconds for which the black box continues after the robot stopped."""
PAUSE_S, BATCH = 0.002, 50
"""The thread that writes the black box pauses for `PAUSE_S` seconds after every `BATCH` messages,
so that other threads get the interpreter."""
QUIET_S = 10.0
"""Minimum time in seconds between two black boxes."""
MAX_BOXES = 10
"""Maximum number of black boxes in a folder; the oldest are deleted."""
MAX_MODEL_BYTES = 64 * 2**20
"""Maximum size of a model file that becomes part of a recording; a larger one is only named."""
MAX_MODELS = 3
"""Maximum number of model files whose content is kept in memory."""
CLOSE_S = 3.0


MAX_BATCH_SHARE = 1 / 16
"""Maximum share of the black box's memory, and of its time, that a batch takes; a batch is dropped
as a whole."""

Note = tuple[Any, ...]
"""The kind of what is recorded, and the values of which `NodeRecorder._make_bag_entry` makes a
message.

The black box keeps notes as plain tuples, which are not a burden for the garbage collector: a
message as its content (see `flat_messages`), and numbers with the name of their topic instead of
the object that writes them."""


class _Batch(NamedTuple):
    """Successive notes that enter the black box together, and are dropped from it together.

    The black box is the memory of what happened in the last seconds. A note is a tuple that
    describes one message, tick, command or change of state.

    Attributes:
        notes: The notes, each with a time.
        bytes: Approximate memory of the notes.
        end_ns: Time of the newest note in ns, of the node's clock.
        events: Those of the notes that are changes of state.
    """

    notes: tuple[Note, ...]
    bytes: int
    end_ns: int
    events: list[Note]


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


@dataclass(frozen=True)
class _ModelFile:
    """Model file that a recording refers to.

    Attributes:
        path: Path of the file.
        sha256: Hash of its content, in hexadecimal digits.
        content: Content to be recorded; None if it is too large to be recorded.
    """

    path: str
    sha256: str
    content: bytes | None

    def get_path_and_hash(self) -> dict[str, Any]:
        """Return the file's "path" and "sha256" as a dict, for an event of the recording."""
        return {"path": self.path, "sha256": self.sha256}


def get_needed_install_command() -> str:
    """Return the shell command that installs the packages for recording; "" if none is missing."""
    return "" if find_spec("mcap") else "pip install 'an_control[record]'"


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
        offset_ns: int,
        log: Callable[[str], object],
    ) -> None:
        self._options, self._node, self._controller = options, node, controller
        self._serialize, self._offset_ns, self._log = serialize, offset_ns, log
        self._topics = {name: f"{node}/{name}" for name in TYPES}
        self._notes: deque[Note] = deque()
        self._flushing = threading.Lock()
        step_s = controller.step_s
        self._flush_ticks = max(1, int(min(FLUSH_S / step_s, step_s / TICK_S)))
        self._flushed_tick = 0
        self._flatteners: dict[str, Callable[[Any], FlatMessage | bytes]] = {}
        """By message type, the function that makes content or bytes of a message for the black box.
        """
        self._restorers: dict[str, Callable[[FlatMessage], Any]] = {}
        """By message type, the function that makes a message of its content."""
        self._last_message: Any = None
        self._count = 0
        self._numbers: dict[str, int] = {}
        self._ticks = self._tick_ns = 0
        self._gate_counts = tuple(controller.gate.counts.__dict__.values())
        self._policy = controller.acting.policy
        self._moved: dict[str, str] = {}
        self._actuators = tuple(controller.wiring.command.names)
        self._models: dict[str, _ModelFile] = {}
        self._state: dict[str, dict[str, Any]] = {}
        """Events by kind that are still in force, without those that the black box holds."""
        self._box: deque[_Batch] = deque()
        self._box_bytes = 0
        self._newest_box: tuple[str, float] | None = None
        """Folder of the newest black box, and the time in seconds of its request."""
        self._boxes: SimpleQueue[str | None] = SimpleQueue()
        """Folders of black boxes to write; None stops the thread that writes them."""
        self._box_thread: threading.Thread | None = None
        self._save_now = threading.Event()
        self.set_source_numbers(controller.wiring)
        self._writer: Writer | None = None
        self._begun = False
        """Whether the recording has a file already; the first one needs no `FileHead`."""
        self.path = ""
        """Folder of the recording; "" if there is none."""
        if options.folder is not None:
            self.path = str(_find_unused_folder_path(options.folder, node))
            self._writer = self._start_writer()
        elif options.black_box_s > 0.0:
            # Both now: an import and the start of a thread hold up the watchdog and the ticks.
            import_module("an_control.record.writer")
            self._box_thread = threading.Thread(
                target=self._write_requested_black_boxes, name="black box", daemon=True
            )
            self._box_thread.start()
        self._record_session(settings)

    def _start_writer(self) -> Writer:
        """Return a writer that writes the recording on a thread of its own."""
        from an_control.record.writer import BagFolder, Writer

        def make_file_head() -> FileHead:
            """Return the content to write at the start of a file; there is none in the first."""
            first, self._begun = not self._begun, True
            return FileHead((), {}) if first else self._make_file_head()

        def make_folder() -> BagFolder:
            """Create the folder of the recording, and return the object that writes its files."""
            return BagFolder(Path(self.path), make_file_head, self._options.limits)

        return Writer(make_folder, self._log_failure)

    def _record_session(self, settings: Mapping[str, Any]) -> None:
        """Record the session's settings, the model and the wiring, at the start of a recording.

        Args:
            settings: Parameters of the node, by name.
        """
        controller = self._controller
        model = self.read_model_file(controller.acting.model_path)
        self._record_model_file(model, None)
        self.record_event(
            "session",
            format=FORMAT,
            node=self._node,
            offset_ns=self._offset_ns,
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
        self._sources = {one.name: place for place, one in enumerate(wiring.sources, 1)}

    def read_model_file(self, path: str) -> _ModelFile:
        """Read a model file that the node uses or will use, and keep its content for the recording.

        Call it from any thread, but not during a tick, because it reads from the disk.

        Args:
            path: Path of the model file.
        """
        content = read_regular_file(path)
        digest = hashlib.sha256(content).hexdigest()
        kept = content if len(content) <= MAX_MODEL_BYTES else None
        found = _ModelFile(path, digest, kept)
        self._models.pop(path, None)
        self._models[path] = found
        while len(self._models) > MAX_MODELS:
            del self._models[next(iter(self._models))]
        return found

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
            source: Name of the source that reads it; None if none does.
            arrival_ns: Time of arrival in ns, of the node's clock.
            now_ns: Present time in ns, of the node's clock.
        """
        place = 0 if source is None else self._sources.get(source, 0)
        if message is self._last_message:
            self.record_delivery_to_source_number(topic, place, now_ns)
            return
        self._last_message = message
        self._count += 1
        self._numbers[topic] = self._count
        self._notes.append((_MESSAGE, topic, type_, message, place, arrival_ns, now_ns))
        if len(self._notes) > MAX_NOTES:
            self.flush(even_if_few=True)

    def record_delivery_to_source(self, topic: str, source: str, now_ns: int) -> None:
        """Record that one more source (topic subscription) has received a topic's newest message.

        Args:
            topic: Topic of the message.
            source: Name of the source.
            now_ns: Present time in ns, of the node's clock.
        """
        self.record_delivery_to_source_number(topic, self._sources.get(source, 0), now_ns)

    def record_delivery_to_source_number(self, topic: str, source_number: int, now_ns: int) -> None:
        """Record that one more source, given by its number, has received a topic's newest message.

        Args:
            topic: Topic of the message.
            source_number: Index of the source in the wiring plus one; with 0 nothing is recorded.
            now_ns: Present time in ns, of the node's clock.
        """
        if source_number:
            back = self._count - self._numbers[topic]
            self._notes.append((_NUMBERS, STORE, (source_number, back), now_ns))

    def record_tick(self, now_ns: int, stamp_ns: int | None, *, sends_command: bool) -> None:
        """Record that the policy has made a step. Call it before the tick's command is sent.

        Args:
            now_ns: Time of the tick in ns, of the node's clock.
            stamp_ns: In lockstep the simulated time of the tick in ns, else None.
            sends_command: Whether the node sends the command of this tick.
        """
        controller, self._ticks, self._tick_ns = self._controller, self._ticks + 1, now_ns
        newest = controller.acting.newest_model
        if newest.policy is not self._policy:
            self._policy = newest.policy
            known = self._models.get(newest.path)
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
            controller.seen,
            int(controller.stepped),
            controller.repeats,
        )
        self._notes.append((_NUMBERS, TICK_TOPIC, numbers, now_ns))

    def record_command(
        self,
        kind: CommandKind,
        decided_ns: int | None,
        sent_ns: int,
        stamp_ns: int | None,
        values: np.ndarray,
        newest_number: int | None,
    ) -> None:
        """Record a command that was sent, and what the gate has changed in it.

        The caller must hold the lock that allows one command at a time.

        Args:
            kind: Why the command was sent.
            decided_ns: Time at which it was computed in ns, of the node's clock; None in lockstep,
                and if it is not the policy's command.
            sent_ns: Time at which it was sent in ns, of the node's clock.
            stamp_ns: In lockstep the simulated time in ns of the step that the command answers,
                else None.
            values: The command (A,) in physical units.
            newest_number: Number that `LastCommand` has given the command as the newest one; None
                if `LastCommand` did not store it.
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
        self._notes.append((_NUMBERS, GATE_TOPIC, numbers, sent_ns))
        self._notes.append((_STATE, COMMAND, self._actuators, values, sent_ns))

    def record_readings(self, readings: Readings, now_ns: int) -> None:
        """Record a tick's readings, and the policy's newest command as it was before the gate.

        The command comes from the controller. Readings of cameras are not recorded.

        Args:
            readings: The readings of the N present channels.
            now_ns: Time of the tick in ns, of the node's clock.
        """
        acting = self._controller.acting
        if readings.values.ndim == 1:
            self._notes.append((_STATE, CHANNELS, readings.ids, readings.values, now_ns))
        if acting.wanted is not None:
            self._notes.append((_STATE, ACTION, self._actuators, acting.wanted, now_ns))

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
        self._notes.append((_EVENT, kind, values, now_ns))

    def _record_model_file(self, model: _ModelFile | None, now_ns: int | None) -> None:
        """Add a model file to the recording as an attached file, if its content is in memory.

        Args:
            model: The model file; with None nothing is added.
            now_ns: Time in ns, of the node's clock; None is the present time.
        """
        if model is not None and model.content is not None:
            self._notes.append((_ATTACHMENT, f"model:{model.sha256}", model.content, now_ns))

    def flush(self, *, even_if_few: bool = False) -> None:
        """Pass the queued notes to the writer or the black box, if enough ticks have been recorded.

        If another thread is flushing, this call returns at once.

        Args:
            even_if_few: Whether to pass the notes also if only few ticks have been recorded since
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
        if self._writer is None:
            self._move_notes_to_black_box()
            return
        entries = []
        size = 0
        notes = self._notes
        while notes:
            note = notes.popleft()
            entry = self._make_bag_entry(note)
            if note[0] == _EVENT:
                self._update_events_still_in_force(note)
            size += len(entry.data) + OVERHEAD_BYTES
            entries.append(entry)
        self._writer.enqueue(entries, size)

    def _move_notes_to_black_box(self) -> None:
        """Move all queued notes into the black box, and drop its oldest notes.

        Notes are dropped until the black box exceeds neither its duration nor its memory limit.
        """
        box = self._box
        while self._notes:
            batch = self._pop_oldest_batch()
            box.append(batch)
            self._box_bytes += batch.bytes
        until_ns = box[-1].end_ns - int(self._options.black_box_s * 1e9) if box else 0
        while box and (box[0].end_ns < until_ns or self._box_bytes > MAX_BOX_BYTES):
            batch = box.popleft()
            self._box_bytes -= batch.bytes
            for note in batch.events:
                self._update_events_still_in_force(note)

    def _pop_oldest_batch(self) -> _Batch:
        """Remove the oldest notes from the queue, and return them as a batch for the black box.

        Each ROS message is replaced by its content, a `FlatMessage` or bytes. A note without a time
        gets the time of the next note that has one.
        """
        notes, limit = self._notes, MAX_BOX_BYTES * MAX_BATCH_SHARE
        kept: list[Note] = []
        events: list[Note] = []
        size = 0
        end_ns = until_ns = -1
        while notes and size < limit and end_ns <= until_ns:
            note = notes.popleft()
            kind = note[0]
            if kind == _MESSAGE:
                _, topic, type_, message, place, arrival_ns, now_ns = note
                flattener = self._flatteners.get(type_)
                if flattener is None:
                    flattener = self._make_flattener_for_type(type_, type(message))
                flat = flattener(message)
                size += len(flat) if isinstance(flat, bytes) else flat[-1]
                note = (_FLAT, topic, type_, flat, place, arrival_ns, now_ns)
            elif kind in (_EVENT, _ATTACHMENT):
                if note[-1] is None:
                    note = (*note[:-1], self._find_time_of_next_note_ns())
                size += len(note[2] if kind == _ATTACHMENT else str(note[2]))
                if kind == _EVENT:
                    events.append(note)
            elif kind == _STATE:
                size += note[3].nbytes
            size += OVERHEAD_BYTES
            kept.append(note)
            end_ns = note[-1]
            if until_ns < 0:
                until_ns = end_ns + int(self._options.black_box_s * 1e9 * MAX_BATCH_SHARE)
        return _Batch(tuple(kept), size, end_ns, events)

    def _make_flattener_for_type(
        self, type_: str, cls: Any
    ) -> Callable[[Any], FlatMessage | bytes]:
        """Return a function that converts messages of a type for storage in the black box.

        It converts a message to a `FlatMessage` (a tuple of plain values), or serialises it if the
        type has fields that a `FlatMessage` cannot hold.

        Args:
            type_: The message type.
            cls: The class of its messages.
        """
        found: Callable[[Any], FlatMessage | bytes] = self._serialize
        with suppress(ValueError, AttributeError):
            flattener = Flattener(cls)
            self._restorers[type_] = flattener.restore
            found = flattener.flatten
        self._flatteners[type_] = found
        return found

    def _find_time_of_next_note_ns(self) -> int:
        """Return the time in ns of the oldest queued note with a time, on the node's clock.

        If no note has a time, the result is the time of the last tick, or the present time if there
        was no tick.
        """
        following = (note[-1] for note in list(self._notes) if note[-1] is not None)
        return next(following, self._tick_ns or time.time_ns() - self._offset_ns)

    def _update_events_still_in_force(self, note: Note) -> None:
        """Update which events are repeated at the start of each new file, after one more event.

        They are the events whose effect still holds. A later event of a kind replaces an earlier
        one of this kind, and "deactivate" ends the effect of "activate".

        Args:
            note: The note of the new event.
        """
        _, kind, values, _ = note
        event = {"event": kind, **values}
        state = self._state
        if kind == "wiring":
            state.pop("rewire", None)
            state.pop("correct", None)
        elif kind in ("rewire", "correct"):
            before = state.pop(kind, {}).get("values", {})
            event = {**event, "values": {**before, **event["values"]}}
        elif kind == "deactivate":
            state.pop("activate", None)
            return
        elif kind not in ("session", "activate", "shadow", "estop", "model"):
            return
        state.pop(kind, None)
        state[kind] = event

    def _make_file_head(self) -> FileHead:
        """Return the content to write at the start of a new file.

        It holds the events that are still in force, such as an e-stop, and the model files.
        """
        now_ns = time.time_ns()
        topic = self._topics[EVENTS]
        entries = tuple(
            BagEntry(
                topic,
                TYPES[EVENTS],
                now_ns,
                now_ns,
                1,
                encode_event(kind, {**values, "event": kind}),
            )
            for kind, values in list(self._state.items())
        )
        models = {
            f"model:{one.sha256}": one.content
            for one in list(self._models.values())
            if one.content is not None
        }
        return FileHead(entries, models)

    def _make_bag_entry(self, note: Note) -> BagEntry:
        """Convert a note to the message, or the attached file, that is written for it."""
        kind, offset_ns, now_ns = note[0], self._offset_ns, note[-1]
        if kind in (_MESSAGE, _FLAT):
            _, topic, type_, message, place, arrival_ns, now_ns = note
            if isinstance(message, tuple):
                message = self._restorers[type_](message)
            data = message if isinstance(message, bytes) else self._serialize(message)
            return BagEntry(topic, type_, now_ns + offset_ns, arrival_ns + offset_ns, place, data)
        log_ns = time.time_ns() if now_ns is None else now_ns + offset_ns
        if kind == _ATTACHMENT:
            return BagEntry(note[1], ATTACHMENT, log_ns, log_ns, 0, note[2])
        if kind == _NUMBERS:
            name = note[1]
            data = _NUMBERS_OF[name].encode_numbers(*note[2])
        elif kind == _STATE:
            _, name, names, values, _ = note
            data = encode_joint_state(log_ns, names, values)
        else:
            name, data = EVENTS, encode_event(note[1], note[2])
        return BagEntry(self._topics[name], TYPES[name], log_ns, log_ns, 0, data)

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
        if self._options.black_box_s <= 0.0:
            return ""
        box, now_s = self._newest_box, time.monotonic()
        if box is None or now_s - box[1] > QUIET_S:
            folder = self._options.black_box_folder / _make_unique_folder_name(
                f"black_box{self._node}"
            )
            box = self._newest_box = str(folder), now_s
            self._boxes.put(box[0])
        return f"; the last {self._options.black_box_s:g} s are in {box[0]}"

    def _write_requested_black_boxes(self) -> None:
        """Write the black box to disk whenever it was requested, until the recorder is closed.

        The black box's thread runs this. `request_black_box_and_describe_place` makes the requests.
        """
        while (path := self._boxes.get()) is not None:
            self._write_black_box(path)

    def _write_black_box(self, path: str) -> None:
        """Wait `AFTER_S` (1) seconds after the robot stopped, then write the black box to a folder.

        Args:
            path: Path of the new folder.
        """
        from an_control.record.writer import BagFolder

        self._save_now.wait(AFTER_S)
        with self._flushing:
            self._flush_notes()
            notes = [note for batch in self._box for note in batch.notes]
            head = self._make_file_head()
        try:
            _delete_oldest_black_boxes(Path(path).parent)
            bag = BagFolder(Path(path), lambda: head)
            try:
                for start in range(0, len(notes), BATCH):
                    bag.write([self._make_bag_entry(note) for note in notes[start : start + BATCH]])
                    time.sleep(PAUSE_S)
            finally:
                bag.close()
        except Exception as error:
            self._log(f"the black box could not be written: {error}")

    def _log_failure(self, reason: str) -> None:
        """Log that recording has stopped because of an error.

        Args:
            reason: Description of the error.
        """
        self._log(f"recording has ended: {reason}")

    def get_text_health_and_figures(self) -> tuple[str, bool, dict[str, Any]]:
        """Return the state of recording for the diagnostics.

        Returns:
            A tuple of three: a description of the state in words; whether recording works as
            requested; and figures by name.
        """
        writer = self._writer
        if writer is None:
            if self._options.black_box_s <= 0.0:
                return "off", True, {}
            values = {"black box [MiB]": f"{self._box_bytes / 2**20:.1f}"}
            values["messages"] = str(sum(len(batch.notes) for batch in tuple(self._box)))
            if self._newest_box is not None:
                values["last black box"] = self._newest_box[0]
            return f"black box on: the last {self._options.black_box_s:g} s", True, values
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
        self._save_now.set()
        self.flush(even_if_few=True)
        if self._writer is not None:
            self._writer.close()
        if self._box_thread is not None:
            self._boxes.put(None)
            self._box_thread.join(CLOSE_S)


_MESSAGE, _FLAT, _NUMBERS, _STATE, _EVENT, _ATTACHMENT = range(6)
_UNCHANGED = (0, 0, 0, 0)
"""Whether each count of the gate has changed, for a command that the gate left as it was."""
_NUMBERS_OF = {TICK_TOPIC: TICK_NUMBERS, GATE_TOPIC: GATE_NUMBERS, STORE: STORED_NUMBERS}


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

    Args:
        parent: Folder in which the new folder is to lie.
        node_name: Full name of the node.
    """
    word = node_name.strip("/").replace("/", "_")
    stem = f"{word}_{time.strftime('%Y%m%d_%H%M%S')}"
    number = 0
    while (path := parent / (f"{stem}_{number}" if number else stem)).exists():
        number += 1
    return path


def _make_unique_folder_name(node_name: str) -> str:
    """Return a folder name made of a node's name, the time of day and the process id.

    Unlike `_find_unused_folder_path`, it does not look at the disk.

    Args:
        node_name: Full name of the node.
    """
    word, now_s = node_name.strip("/").replace("/", "_"), time.time()
    when = time.strftime("%Y%m%d_%H%M%S", time.localtime(now_s))
    return f"{word}_{when}_{int(now_s * 1e3) % 1000:03d}_{os.getpid()}"


def _delete_oldest_black_boxes(folder: Path) -> None:
    """Delete the oldest black boxes in a folder, so that one more can be added.

    With the additional one there are at most `MAX_BOXES` (10).

    Args:
        folder: Folder that has one folder for each black box.
    """
    if not folder.is_dir():
        return
    boxes = [one for one in folder.iterdir() if one.name.startswith("black_box_") and one.is_dir()]
    boxes.sort(key=lambda one: one.stat().st_mtime)
    for one in boxes[: max(0, len(boxes) - MAX_BOXES + 1)]:
        shutil.rmtree(one, ignore_errors=True)
