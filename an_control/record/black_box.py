"""The black box: the newest notes of a node in memory, written to disk when the robot stops."""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import deque
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from an_control.record.layout import FileHead
from an_control.record.notes import (
    EVENT,
    MESSAGE,
    MODEL,
    STATE,
    Note,
    NoteEncoder,
    SessionState,
    find_time_of_next_note_ns,
)

MAX_BYTES = 64 * 2**20
"""Maximum memory of the black box, whatever duration that is."""
MAX_BATCH_SHARE = 1 / 16
"""Maximum share of the black box's memory, and of its time, that a batch takes; a batch is dropped
as a whole."""
OVERHEAD_BYTES = 300
"""Memory of a note beside its content."""
AFTER_S = 1.0
"""Seconds for which the black box continues after the robot stopped."""
PAUSE_S, BATCH = 0.002, 50
"""The thread that writes the black box pauses for `PAUSE_S` seconds after every `BATCH` messages,
so that other threads get the interpreter."""
QUIET_S = 10.0
"""Minimum time in seconds between two black boxes. A stop that comes earlier is in a later one."""
MAX_BOXES = 10
"""Maximum number of black boxes in a folder; the oldest are deleted."""
CLOSE_S = 3.0


class Batch(NamedTuple):
    """Group of successive notes (records of what a node did) that a black box drops together.

    Attributes:
        notes: The notes, each with a time.
        bytes: Approximate memory of the notes.
        end_ns: Time of the newest note in ns, of the node's clock.
        events: The notes of changes of state among `notes`.
    """

    notes: tuple[Note, ...]
    bytes: int
    end_ns: int
    events: list[Note]


class BlackBox:
    """Store of the newest notes (records of what a node did), and a thread that saves them to disk.

    The oldest notes are dropped, so that duration and memory stay limited.

    Args:
        folder: Folder in which each written black box gets a folder of its own.
        seconds: Time in s for which notes are kept.
        node: Full name of the node.
        encoder: Converter of notes to messages.
        state: Content for the start of each written black box. When the note of a change of state
            is dropped, this object takes over the change.
        log: Function that logs a line.
    """

    def __init__(
        self,
        folder: Path,
        seconds: float,
        node: str,
        encoder: NoteEncoder,
        state: SessionState,
        log: Callable[[str], object],
    ) -> None:
        self._folder, self._seconds, self._node = folder, seconds, node
        self._encoder, self._state, self._log = encoder, state, log
        self._batches: deque[Batch] = deque()
        self._bytes = 0
        self._newest: tuple[str, float] | None = None
        """Folder of the newest black box, and the time in seconds at which its notes are taken."""
        self._waits = False
        """Whether the notes of the newest black box have not been taken yet."""
        self._requests: SimpleQueue[tuple[str, float] | None] = SimpleQueue()
        """Black boxes to write, as `_newest`; None stops the thread that writes them."""
        self._save_now = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, lock: threading.Lock, take_notes: Callable[[], object]) -> None:
        """Start the thread that writes black boxes.

        Args:
            lock: Lock that is held while notes enter the black box.
            take_notes: Function that moves all queued notes into the black box; it is called with
                the lock held.
        """
        # Both now: an import and the start of a thread hold up the watchdog and the ticks.
        import_module("an_control.record.writer")
        self._thread = threading.Thread(
            target=self._write_requested, args=(lock, take_notes), name="black box", daemon=True
        )
        self._thread.start()

    def move_queued_notes_into_box(self, queue: deque[Note]) -> None:
        """Move all notes from a queue into the black box.

        Then drop the oldest notes in the box until the limits of duration and memory are met.
        """
        batches = self._batches
        while queue:
            batch = self._pop_oldest_batch(queue)
            batches.append(batch)
            self._bytes += batch.bytes
        until_ns = batches[-1].end_ns - int(self._seconds * 1e9) if batches else 0
        while batches and (batches[0].end_ns < until_ns or self._bytes > MAX_BYTES):
            batch = batches.popleft()
            self._bytes -= batch.bytes
            for _, kind, values, _ in batch.events:
                self._state.remember_event_for_new_files({"event": kind, **values})

    def _pop_oldest_batch(self, queue: deque[Note]) -> Batch:
        """Remove the oldest notes from a queue, and return them as a batch.

        Each ROS message is replaced by its content. A note without a time gets the time of the next
        note that has one.
        """
        limit = MAX_BYTES * MAX_BATCH_SHARE
        kept: list[Note] = []
        events: list[Note] = []
        size = 0
        end_ns = until_ns = -1
        while queue and size < limit and end_ns <= until_ns:
            note = queue.popleft()
            kind = note[0]
            if kind == MESSAGE:
                note, content_bytes = self._encoder.flatten_message_note(note)
                size += content_bytes
            elif kind in (EVENT, MODEL):
                if note[-1] is None:
                    note = (*note[:-1], self._find_time_of_next_note_ns(queue, kept))
                size += len(note[2] if kind == MODEL else str(note[2]))
                if kind == EVENT:
                    events.append(note)
            elif kind == STATE:
                size += note[3].nbytes
            size += OVERHEAD_BYTES
            kept.append(note)
            end_ns = note[-1]
            if until_ns < 0:
                until_ns = end_ns + int(self._seconds * 1e9 * MAX_BATCH_SHARE)
        return Batch(tuple(kept), size, end_ns, events)

    def _find_time_of_next_note_ns(self, queue: deque[Note], kept: list[Note]) -> int:
        """Return the time in ns, on the node's clock, for a note that has none.

        It is the time of the oldest queued note with a time, else that of the note before, else the
        present time.
        """
        if (time_ns := find_time_of_next_note_ns(queue)) is not None:
            return time_ns
        if kept:
            return int(kept[-1][-1])
        return (
            self._batches[-1].end_ns if self._batches else time.time_ns() - self._encoder.offset_ns
        )

    def request_saving_and_get_folder(self) -> str:
        """Request that the black box is written to disk, and return its future folder at once.

        If an earlier request still waits to be carried out, both requests share one folder. Any
        thread may call this method, also the watchdog's.
        """
        newest = self._newest
        if newest is None or not self._waits:
            folder = self._folder / _make_unique_folder_name(f"black_box{self._node}")
            taken_s = time.monotonic() + AFTER_S
            if newest is not None:
                taken_s = max(taken_s, newest[1] + min(QUIET_S, self._seconds / 2.0))
            newest = self._newest = str(folder), taken_s
            self._waits = True
            self._requests.put(newest)
        return newest[0]

    def _write_requested(self, lock: threading.Lock, take_notes: Callable[[], object]) -> None:
        """Write the black box to disk whenever it was requested, until the recorder is closed.

        The black box's thread runs this; see `start` for the arguments.
        """
        while (request := self._requests.get()) is not None:
            path, taken_s = request
            self._save_now.wait(max(0.0, taken_s - time.monotonic()))
            with lock:
                self._waits = False
                take_notes()
                notes = [note for batch in self._batches for note in batch.notes]
                newest_ns = self._batches[-1].end_ns if self._batches else None
                head = self._state.make_first_entries_of_file(self._encoder, newest_ns)
            try:
                self._write(Path(path), notes, head)
            except Exception as error:
                self._log(f"the black box could not be written: {error}")

    def _write(self, path: Path, notes: list[Note], head: FileHead) -> None:
        """Write notes to a new folder."""
        from an_control.record.writer import BagFolder

        _delete_oldest_black_boxes(path.parent)
        bag = BagFolder(path, lambda: head)
        try:
            for start in range(0, len(notes), BATCH):
                batch = notes[start : start + BATCH]
                bag.write([self._encoder.make_bag_entry(note) for note in batch])
                time.sleep(PAUSE_S)
        finally:
            bag.close()

    def get_black_box_diagnostics(self) -> tuple[str, dict[str, str]]:
        """Return the state of the black box for the diagnostics: a text, and figures by name."""
        values = {"black box [MiB]": f"{self._bytes / 2**20:.1f}"}
        values["messages"] = str(sum(len(batch.notes) for batch in tuple(self._batches)))
        if self._newest is not None:
            values["last black box"] = self._newest[0]
        return f"black box on: the last {self._seconds:g} s", values

    def close(self) -> None:
        """Write a requested black box to disk without further delay, and end the thread."""
        self._save_now.set()
        if self._thread is not None:
            self._requests.put(None)
            self._thread.join(CLOSE_S)


def _make_unique_folder_name(node_name: str) -> str:
    """Return a folder name made of a node's name, the time of day and the process id.

    It does not look at the disk, so that it can be called while the robot stops.
    """
    word, now_s = node_name.strip("/").replace("/", "_"), time.time()
    when = time.strftime("%Y%m%d_%H%M%S", time.localtime(now_s))
    return f"{word}_{when}_{int(now_s * 1e3) % 1000:03d}_{os.getpid()}"


def _delete_oldest_black_boxes(folder: Path) -> None:
    """Delete the oldest black boxes in a folder, so that one more can be added.

    With the additional one there are at most `MAX_BOXES` (10).
    """
    if not folder.is_dir():
        return
    boxes = [one for one in folder.iterdir() if one.name.startswith("black_box_") and one.is_dir()]
    boxes.sort(key=lambda one: one.stat().st_mtime)
    for one in boxes[: max(0, len(boxes) - MAX_BOXES + 1)]:
        shutil.rmtree(one, ignore_errors=True)
