"""Follows a policy node: what goes into its recording, or into its black box.

The node calls a method wherever something happens that a replay must know of. That only notes it;
`flush` makes messages of the notes, once the command is out. A recording gets all of them, written
on another thread. The black box keeps the newest ones in memory, within bounds, and writes them
when the robot stopped unasked. No rclpy here.
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
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from operator import ne
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

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
    write_event,
    write_joint_state,
)
from an_control.system.files import read_regular

if TYPE_CHECKING:
    from an_control.control.controller import Controller
    from an_control.record.writer import BagFolder, Writer
    from an_control.wiring import Readings, Wiring

MAX_NOTES = 2048
"""Notes that may wait for a flush that does not come, as without ticks."""
FLUSH_S, TICK_S = 0.25, 0.001
"""Ticks are flushed together, as that costs less: those of so long, and at most so many that TICK_S
for each fits into a period, so that a flush does not take one."""
MAX_BOX_BYTES = 64 * 2**20
"""The black box keeps no more, however long that is."""
OVERHEAD_BYTES = 300
"""What a note in memory takes beside its content."""
AFTER_S = 1.0
"""For so long the black box goes on after the robot stopped."""
PAUSE_S, BATCH = 0.002, 100
"""While it is written, others get the interpreter so often."""
QUIET_S = 10.0
"""Black boxes are at least so far apart."""
MAX_BOXES = 10
"""More of them in a folder: the oldest go."""
MAX_MODEL_BYTES = 64 * 2**20
"""Larger model files are named in a recording, but not part of it."""
MAX_MODELS = 3
"""Of so many model files the content is kept."""
CLOSE_S = 3.0


Note = tuple[Any, ...]
"""What is to be recorded: its kind, then what `NodeRecorder._entry` makes a message of.

The black box keeps notes. They hold only what the garbage collector need not visit again and again:
of a message its bytes, and the names of numbers instead of the objects that write them."""


@dataclass(frozen=True)
class RecordOptions:
    """Where a node records, and how much.

    Attributes:
        folder: recordings go into folders in it; None: none is made.
        limits: of a recording.
        black_box_folder: the same for black boxes.
        black_box_s: how much a black box keeps; 0 = there is none.
    """

    folder: Path | None
    limits: Limits
    black_box_folder: Path
    black_box_s: float


@dataclass(frozen=True)
class _ModelFile:
    path: str
    sha256: str
    content: bytes | None

    def about(self) -> dict[str, Any]:
        return {"path": self.path, "sha256": self.sha256}


def missing_package() -> str:
    """Return what has to be installed before anything can be recorded, or ""."""
    return "" if find_spec("mcap") else "pip install 'an_control[record]'"


class NodeRecorder:
    """Records one configured node.

    Args:
        options: where and how much.
        node: the node's full name.
        controller: what acts.
        settings: the node's parameters, to be written down.
        serialize: makes bytes of a ROS message.
        offset_ns: from the node's clock to the time of day.
        log: takes a line about a recording that has ended by itself.
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
        """What the events amount to that the box has forgotten, or all of them, by kind."""
        self._box: deque[Note] = deque()
        self._box_bytes = 0
        self._newest_box: tuple[str, float] | None = None
        """Folder of the newest black box, and when it was asked for."""
        self._boxes: SimpleQueue[str | None] = SimpleQueue()
        """Folders of black boxes to write; None ends the thread that does so."""
        self._box_thread: threading.Thread | None = None
        self._save_now = threading.Event()
        self.wiring(controller.wiring)
        self._writer: Writer | None = None
        self._begun = False
        """Whether the recording has a file; the first one needs no head."""
        self.path = ""
        """The folder of the recording, "" where there is none."""
        if options.folder is not None:
            self.path = str(_free_folder(options.folder, node))
            self._writer = self._start()
        elif options.black_box_s > 0.0:
            # Started now: to start a thread waits until it runs, which the watchdog must not do.
            self._box_thread = threading.Thread(
                target=self._write_boxes, name="black box", daemon=True
            )
            self._box_thread.start()
        self._begin(settings)

    def _start(self) -> Writer:
        from an_control.record.writer import BagFolder, Writer

        def head() -> FileHead:
            first, self._begun = not self._begun, True
            return FileHead((), {}) if first else self._head()

        def make() -> BagFolder:
            return BagFolder(Path(self.path), head, self._options.limits)

        return Writer(make, self._failed)

    def _begin(self, settings: Mapping[str, Any]) -> None:
        """Note what is recorded once."""
        controller = self._controller
        model = self.read_model(controller.acting.model_path)
        self._attach(model, None)
        self.event(
            "session",
            format=FORMAT,
            node=self._node,
            offset_ns=self._offset_ns,
            versions=_versions(),
            settings=dict(settings),
            engine=controller.acting.policy.engine,
            seed=0,
            estop=controller.estop.reason,
            model={**model.about(), "parameters": controller.acting.policy.model.parameters},
            sizes=repr(controller.acting.policy.model.sizes),
        )
        text = read_regular(controller.wiring.file).decode()
        self.event("wiring", file=controller.wiring.file, text=text)

    def wiring(self, wiring: Wiring) -> None:
        """Take the places of the sources from this wiring."""
        self._sources = {one.name: place for place, one in enumerate(wiring.sources, 1)}

    def read_model(self, path: str) -> _ModelFile:
        """Read a model file that is going to act; from any thread, never in a tick."""
        content = read_regular(path)
        digest = hashlib.sha256(content).hexdigest()
        kept = content if len(content) <= MAX_MODEL_BYTES else None
        found = _ModelFile(path, digest, kept)
        self._models.pop(path, None)
        self._models[path] = found
        while len(self._models) > MAX_MODELS:
            del self._models[next(iter(self._models))]
        return found

    def message(
        self,
        topic: str,
        type_: str,
        message: Any,
        source: str | None,
        arrival_ns: int,
        now_ns: int,
    ) -> None:
        """Note a message that counts for this source from now on; None: it counts for none."""
        place = 0 if source is None else self._sources.get(source, 0)
        if message is self._last_message:
            self.store(topic, place, now_ns)
            return
        self._last_message = message
        self._count += 1
        self._numbers[topic] = self._count
        self._notes.append((_MESSAGE, topic, type_, message, place, arrival_ns, now_ns))
        if len(self._notes) > MAX_NOTES:
            self.flush(now=True)

    def deliver(self, topic: str, source: str, now_ns: int) -> None:
        """Note that the newest message of a topic counts for this source, too."""
        self.store(topic, self._sources.get(source, 0), now_ns)

    def store(self, topic: str, place: int, now_ns: int) -> None:
        """Note the same of the source at this place."""
        if place:
            back = self._count - self._numbers[topic]
            self._notes.append((_NUMBERS, STORE, (place, back), now_ns))

    def tick(self, now_ns: int, stamp_ns: int | None, *, sends: bool) -> None:
        """Note that the policy has stepped, before its command goes out."""
        controller, self._ticks, self._tick_ns = self._controller, self._ticks + 1, now_ns
        newest = controller.acting.newest
        if newest.policy is not self._policy:
            self._policy = newest.policy
            known = self._models.get(newest.path)
            about = {"path": newest.path, "sha256": ""} if known is None else known.about()
            self._attach(known, now_ns)
            self.event("model", now_ns=now_ns, **about)
        numbers = (
            self._ticks,
            now_ns,
            NONE if stamp_ns is None else stamp_ns,
            int(sends),
            controller.seen,
            int(controller.stepped),
            controller.repeats,
        )
        self._notes.append((_NUMBERS, TICK_TOPIC, numbers, now_ns))

    def command(
        self,
        kind: CommandKind,
        decided_ns: int | None,
        sent_ns: int,
        stamp_ns: int | None,
        values: np.ndarray,
        number: int | None,
    ) -> None:
        """Note a command; called by who sends it, under the lock by which one goes out at a time.

        number: as the newest command, see `LastCommand`; None where it does not count.
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
            NONE if number is None else number,
            *changed,
            round(gate.authority * 1e6),
        )
        self._notes.append((_NUMBERS, GATE_TOPIC, numbers, sent_ns))
        self._notes.append((_STATE, COMMAND, self._actuators, values, sent_ns))

    def readings(self, readings: Readings, now_ns: int) -> None:
        """Note what a tick has read, and what the policy asks for."""
        acting = self._controller.acting
        if readings.values.ndim == 1:
            self._notes.append((_STATE, CHANNELS, readings.ids, readings.values, now_ns))
        if acting.wanted is not None:
            self._notes.append((_STATE, ACTION, self._actuators, acting.wanted, now_ns))

    def _note_moves(self) -> None:
        """Note which signals the monitor has moved, if that has changed since the last flush."""
        report = self._controller.acting.policy.monitor_report
        if report is not None and not report.lost and report.moved != self._moved:
            self._moved = report.moved
            self.event("monitor", now_ns=self._tick_ns, moved=report.moved, misfit=report.misfit)

    def event(self, kind: str, now_ns: int | None = None, **values: Any) -> None:
        """Note a change of state."""
        self._notes.append((_EVENT, kind, values, now_ns))

    def _attach(self, model: _ModelFile | None, now_ns: int | None) -> None:
        if model is not None and model.content is not None:
            self._notes.append((_ATTACHMENT, f"model:{model.sha256}", model.content, now_ns))

    def flush(self, *, now: bool = False) -> None:
        """Write what was noted, or keep it in the black box, once there is enough, or now.

        It does not wait for another thread that does so.
        """
        if not now and self._ticks - self._flushed_tick < self._flush_ticks:
            return
        if not self._flushing.acquire(blocking=False):
            return
        self._flushed_tick = self._ticks
        try:
            self._note_moves()
            self._flush()
        finally:
            self._flushing.release()

    def _flush(self) -> None:
        """Hand all notes to the writer, or to the black box."""
        if self._writer is None:
            self._keep()
            return
        entries = []
        size = 0
        notes = self._notes
        while notes:
            note = notes.popleft()
            entry = self._entry(note)
            if note[0] == _EVENT:
                self._remember(note)
            size += len(entry.data) + OVERHEAD_BYTES
            entries.append(entry)
        self._writer.put(entries, size)

    def _keep(self) -> None:
        """Move all notes into the black box, messages as bytes, and drop what it need not keep."""
        notes, box, size = self._notes, self._box, self._box_bytes
        while notes:
            note = notes.popleft()
            if note[0] == _MESSAGE:
                note = (_BYTES, *note[1:3], self._serialize(note[3]), *note[4:])
            elif note[-1] is None:
                note = (*note[:-1], self._next_ns())
            box.append(note)
            size += _size_of(note)
        until_ns = box[-1][-1] - int(self._options.black_box_s * 1e9) if box else 0
        while box and (box[0][-1] < until_ns or size > MAX_BOX_BYTES):
            note = box.popleft()
            size -= _size_of(note)
            if note[0] == _EVENT:
                self._remember(note)
        self._box_bytes = size

    def _next_ns(self) -> int:
        """Return the time of the next note that has one, else that of the last tick, or now."""
        following = (note[-1] for note in list(self._notes) if note[-1] is not None)
        return next(following, self._tick_ns or time.time_ns() - self._offset_ns)

    def _remember(self, note: Note) -> None:
        """Keep what an event changed, for the beginning of a file that does not hold it."""
        _, kind, values, _ = note
        event = {"event": kind, **values}
        state = self._state
        if kind == "wiring":
            state.pop("rewire", None)
        elif kind == "rewire":
            before = state.pop("rewire", {}).get("values", {})
            event = {**event, "values": {**before, **event["values"]}}
        elif kind == "deactivate":
            state.pop("activate", None)
            return
        elif kind not in ("session", "activate", "shadow", "estop", "model"):
            return
        state.pop(kind, None)
        state[kind] = event

    def _head(self) -> FileHead:
        """Return what a file begins with."""
        now_ns = time.time_ns()
        topic = self._topics[EVENTS]
        entries = tuple(
            BagEntry(
                topic,
                TYPES[EVENTS],
                now_ns,
                now_ns,
                1,
                write_event(kind, {**values, "event": kind}),
            )
            for kind, values in list(self._state.items())
        )
        models = {
            f"model:{one.sha256}": one.content
            for one in list(self._models.values())
            if one.content is not None
        }
        return FileHead(entries, models)

    def _entry(self, note: Note) -> BagEntry:
        """Return the message or attachment that says what was noted."""
        kind, offset_ns, now_ns = note[0], self._offset_ns, note[-1]
        if kind in (_MESSAGE, _BYTES):
            _, topic, type_, message, place, arrival_ns, now_ns = note
            data = self._serialize(message) if kind == _MESSAGE else message
            return BagEntry(topic, type_, now_ns + offset_ns, arrival_ns + offset_ns, place, data)
        log_ns = time.time_ns() if now_ns is None else now_ns + offset_ns
        if kind == _ATTACHMENT:
            return BagEntry(note[1], ATTACHMENT, log_ns, log_ns, 0, note[2])
        if kind == _NUMBERS:
            name = note[1]
            data = _NUMBERS_OF[name].write(*note[2])
        elif kind == _STATE:
            _, name, names, values, _ = note
            data = write_joint_state(log_ns, names, values)
        else:
            name, data = EVENTS, write_event(note[1], note[2])
        return BagEntry(self._topics[name], TYPES[name], log_ns, log_ns, 0, data)

    def save(self, reason: str) -> str:
        """Have the black box written, as the robot stopped for this reason; from any thread.

        It waits for nothing, neither for the disk nor for another thread: the watchdog calls it.

        Returns where what happened is to be found, as the end of a log line, or "".
        """
        self.event("stopped", reason=reason)
        if self._writer is not None:
            return "" if self._writer.stopped else f"; recorded in {self.path}"
        if self._options.black_box_s <= 0.0:
            return ""
        box, now_s = self._newest_box, time.monotonic()
        if box is None or now_s - box[1] > QUIET_S:
            folder = self._options.black_box_folder / _unique_name(f"black_box{self._node}")
            box = self._newest_box = str(folder), now_s
            self._boxes.put(box[0])
        return f"; the last {self._options.black_box_s:g} s are in {box[0]}"

    def _write_boxes(self) -> None:
        """Write the black boxes that `save` asks for, until the recorder is closed."""
        while (path := self._boxes.get()) is not None:
            self._write_box(path)

    def _write_box(self, path: str) -> None:
        """Write the black box into a new folder, `AFTER_S` after the robot stopped."""
        from an_control.record.writer import BagFolder

        self._save_now.wait(AFTER_S)
        with self._flushing:
            self._flush()
            notes = list(self._box)
            head = self._head()
        try:
            _delete_oldest(Path(path).parent)
            bag = BagFolder(Path(path), lambda: head)
            try:
                for start in range(0, len(notes), BATCH):
                    bag.write([self._entry(note) for note in notes[start : start + BATCH]])
                    time.sleep(PAUSE_S)
            finally:
                bag.close()
        except Exception as error:
            self._log(f"the black box could not be written: {error}")

    def _failed(self, reason: str) -> None:
        self._log(f"recording has ended: {reason}")

    def status(self) -> tuple[str, bool, dict[str, Any]]:
        """Return how recording is doing: in words, whether that is as wanted, and figures."""
        writer = self._writer
        if writer is None:
            if self._options.black_box_s <= 0.0:
                return "off", True, {}
            values = {"black box [MiB]": f"{self._box_bytes / 2**20:.1f}"}
            values["messages"] = str(len(self._box))
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
        """Write what is left, and end."""
        self._save_now.set()
        self.flush(now=True)
        if self._writer is not None:
            self._writer.close()
        if self._box_thread is not None:
            self._boxes.put(None)
            self._box_thread.join(CLOSE_S)


_MESSAGE, _BYTES, _NUMBERS, _STATE, _EVENT, _ATTACHMENT = range(6)
_UNCHANGED = (0, 0, 0, 0)
"""Which counts of the gate a command has changed, if none."""
_NUMBERS_OF = {TICK_TOPIC: TICK_NUMBERS, GATE_TOPIC: GATE_NUMBERS, STORE: STORED_NUMBERS}


def _size_of(note: Note) -> int:
    """Return about how many bytes of memory a note of the black box takes."""
    kind = note[0]
    if kind == _NUMBERS:
        return OVERHEAD_BYTES
    if kind in (_BYTES, _STATE):
        content = note[3]
        return OVERHEAD_BYTES + (len(content) if kind == _BYTES else content.nbytes)
    return OVERHEAD_BYTES + len(note[2] if kind == _ATTACHMENT else str(note[2]))


def _versions() -> dict[str, str]:
    found = {"python": platform.python_version(), "machine": platform.machine()}
    found["platform"] = sys.platform
    for package in ("an_control", "numpy", "numba", "mcap"):
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    if distribution := os.environ.get("ROS_DISTRO"):
        found["ros"] = distribution
    return found


def _free_folder(parent: Path, name: str) -> Path:
    """Return a folder that is not there yet, named by a node and the time of day."""
    word = name.strip("/").replace("/", "_")
    stem = f"{word}_{time.strftime('%Y%m%d_%H%M%S')}"
    number = 0
    while (path := parent / (f"{stem}_{number}" if number else stem)).exists():
        number += 1
    return path


def _unique_name(name: str) -> str:
    """Return a folder's name from a node's, the time of day and the process; asks no disk."""
    word, now_s = name.strip("/").replace("/", "_"), time.time()
    when = time.strftime("%Y%m%d_%H%M%S", time.localtime(now_s))
    return f"{word}_{when}_{int(now_s * 1e3) % 1000:03d}_{os.getpid()}"


def _delete_oldest(folder: Path) -> None:
    """Keep the newest black boxes only."""
    if not folder.is_dir():
        return
    boxes = [one for one in folder.iterdir() if one.name.startswith("black_box_") and one.is_dir()]
    boxes.sort(key=lambda one: one.stat().st_mtime)
    for one in boxes[: max(0, len(boxes) - MAX_BOXES + 1)]:
        shutil.rmtree(one, ignore_errors=True)
