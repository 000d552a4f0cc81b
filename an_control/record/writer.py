"""Write recordings on a thread of their own, as MCAP files in a folder laid out like rosbag2's.

The recording node never waits for the disk. The messages that wait to be written are bounded; a
disk that is full, read-only or too slow stops the recording, which `Writer.stopped` then explains,
and nothing else.
"""

from __future__ import annotations

import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import IO, Any

import yaml
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter

from an_control.record.layout import ATTACHMENT, BagEntry, FileHead, Limits
from an_control.system.files import write_file
from an_control.wiring.messages import FieldType, import_message_class, list_field_types

METADATA = "metadata.yaml"
METADATA_VERSION = 5
"""Version of rosbag2's metadata format: that of Humble, which all later versions read."""
WAKE_S = 0.1
"""Minimum time in seconds between two wake-ups of the writing thread."""
FLUSH_S = 0.4
"""Seconds after which written messages are passed to the operating system, so that a killed process
loses less."""
METADATA_S = 10.0
"""Seconds after which the metadata of an unfinished file is updated."""
MAX_WAITING_BYTES = 64 * 2**20
"""Maximum number of bytes that wait to be written; with more the disk is too slow, and recording
stops."""
CHUNK_BYTES = 2**20
CLOSE_S = 2.0
"""Maximum time in seconds for writing the remaining messages at the end."""


@dataclass
class _File:
    """One file of a recording: its path, time span, messages by topic and type, and size.

    The time span is that of its messages, as times of day in ns.
    """

    path: Path
    begin_ns: int
    end_ns: int
    bytes: int = 0
    head_bytes: int = 0
    """Size of what was written at the start of the file, such as the model."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Number of messages by topic and type."""


class BagFolder:
    """Folder of one recording, with its files and its metadata; for use by one thread.

    Args:
        folder: Path of the folder, which is created and must not exist yet.
        make_head: Function that returns the content to write at the start of a new file.
        limits: Sizes and times at which the next file is started and the oldest is deleted.
        open_file: Function that opens a file for writing.
        on_written: Function that is called with each message after it was written.

    Attributes:
        bytes: Size of all files in bytes, without deleted ones.

    Raises:
        OSError: The disk cannot be written.
    """

    def __init__(
        self,
        folder: Path,
        make_head: Callable[[], FileHead],
        limits: Limits = Limits(),  # noqa: B008 - frozen
        open_file: Callable[[Path], IO[bytes]] = lambda path: path.open("wb"),
        on_written: Callable[[BagEntry], object] = lambda _: None,
    ) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self._make_head, self._limits, self._open_file = make_head, limits, open_file
        self._on_written = on_written
        self._files: list[_File] = []
        self._number = 0
        self._since_s = self._metadata_s = 0.0
        self.bytes = 0

    def write(self, entries: Iterable[BagEntry]) -> None:
        """Write messages; whenever a file has reached a limit, start the next one."""
        for entry in entries:
            if not self._files or self._is_file_full():
                self._begin_file(entry.log_ns)
            self._write_entry(entry)
            self._on_written(entry)

    def flush(self) -> None:
        """Pass written messages to the operating system.

        If metadata.yaml is older than `METADATA_S` (10) seconds, it is written anew.
        """
        if not self._files:
            return
        self._mcap.flush()
        self._update_sizes()
        if time.monotonic() - self._metadata_s > METADATA_S:
            self._write_metadata()

    def close(self) -> None:
        """Complete the last file and metadata.yaml; nothing can be written afterwards."""
        if self._files:
            try:
                self._end_file()
            finally:
                self._write_metadata()

    def _is_file_full(self) -> bool:
        """Return whether the present file has reached a limit of size or duration."""
        file, limits = self._files[-1], self._limits
        seconds = time.monotonic() - self._since_s
        content_bytes = file.bytes - file.head_bytes
        return (0 < limits.split_bytes <= content_bytes) or (0.0 < limits.split_s <= seconds)

    def _begin_file(self, now_ns: int) -> None:
        """Complete the present file, and start a new one with the content from `make_head`."""
        if self._files:
            self._end_file()
            self._delete_oldest_files()
        path = self.folder / f"{self.folder.name}_{self._number}.mcap"
        self._number += 1
        self._stream = self._open_file(path)
        self._files.append(_File(path, now_ns, now_ns))
        self._mcap = McapWriter(self._stream, CHUNK_BYTES, CompressionType.ZSTD)
        self._mcap.start(profile="ros2", library="an_control")
        self._channels: dict[tuple[str, str], int] = {}
        self._schemas: dict[str, int] = {}
        self._since_s = time.monotonic()
        head = self._make_head()
        for name, content in head.attachments.items():
            self._write_attachment(name, content, now_ns)
        for entry in head.entries:
            self._write_entry(entry)
        self._mcap.flush()
        self._update_sizes()
        self._files[-1].head_bytes = self._files[-1].bytes
        self._write_metadata()

    def _write_entry(self, entry: BagEntry) -> None:
        """Write one message or attached file into the present file."""
        if entry.type == ATTACHMENT:
            self._write_attachment(entry.topic, entry.data, entry.log_ns)
            return
        key = entry.topic, entry.type
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = self._register_topic_and_get_number(*key)
        self._mcap.add_message(channel, entry.log_ns, entry.data, entry.publish_ns, entry.sequence)
        file = self._files[-1]
        file.end_ns = max(file.end_ns, entry.log_ns)
        file.begin_ns = min(file.begin_ns, entry.log_ns)
        file.bytes += len(entry.data)
        file.counts[key] += 1

    def _write_attachment(self, name: str, content: bytes, now_ns: int) -> None:
        """Write an attached file into the present file."""
        self._mcap.add_attachment(now_ns, now_ns, name, "application/octet-stream", content)

    def _register_topic_and_get_number(self, topic: str, type_: str) -> int:
        """Declare a topic and its message type in the present file; return the topic's number."""
        if type_ not in self._schemas:
            text = format_message_definition(type_).encode()
            self._schemas[type_] = self._mcap.register_schema(type_, "ros2msg", text)
        about = {"offered_qos_profiles": ""}
        return self._mcap.register_channel(topic, "cdr", self._schemas[type_], about)

    def _end_file(self) -> None:
        """Complete the present file and close it."""
        try:
            self._mcap.finish()
        finally:
            self._stream.close()
        self._update_sizes()

    def _update_sizes(self) -> None:
        """Update the size of the present file, and the sum of all files' sizes in `bytes`."""
        file = self._files[-1]
        file.bytes = file.path.stat().st_size
        self.bytes = sum(one.bytes for one in self._files)

    def _delete_oldest_files(self) -> None:
        """Delete the oldest files until the total size is within its limit."""
        limit = self._limits.total_bytes
        while limit and len(self._files) > 1 and sum(one.bytes for one in self._files) > limit:
            self._files.pop(0).path.unlink(missing_ok=True)

    def _write_metadata(self) -> None:
        """Write metadata.yaml, which lists topics and files, as rosbag2 does."""
        self._metadata_s = time.monotonic()
        begin_ns = min(one.begin_ns for one in self._files)
        end_ns = max(one.end_ns for one in self._files)
        counts = sum((one.counts for one in self._files), Counter[tuple[str, str]]())
        topics = [
            {
                "topic_metadata": {
                    "name": topic,
                    "type": type_,
                    "serialization_format": "cdr",
                    "offered_qos_profiles": "",
                },
                "message_count": count,
            }
            for (topic, type_), count in counts.items()
        ]
        about = {
            "version": METADATA_VERSION,
            "storage_identifier": "mcap",
            **_make_time_span_entries(begin_ns, end_ns),
            "message_count": counts.total(),
            "topics_with_message_count": topics,
            "compression_format": "",
            "compression_mode": "",
            "relative_file_paths": [one.path.name for one in self._files],
            "files": [
                {
                    "path": one.path.name,
                    **_make_time_span_entries(one.begin_ns, one.end_ns),
                    "message_count": one.counts.total(),
                }
                for one in self._files
            ],
        }
        text = yaml.safe_dump({"rosbag2_bagfile_information": about}, sort_keys=False)
        write_file(self.folder / METADATA, text)


def _make_time_span_entries(begin_ns: int, end_ns: int) -> dict[str, Any]:
    """Return the entries "duration" and "starting_time" of metadata.yaml for a time span."""
    return {
        "duration": {"nanoseconds": end_ns - begin_ns},
        "starting_time": {"nanoseconds_since_epoch": begin_ns},
    }


_NAMES = {"double": "float64", "float": "float32", "boolean": "bool", "octet": "byte"}
_LINE = "=" * 80


@cache
def format_message_definition(type_: str) -> str:
    """Return the text that defines a message type and all types in it, as MCAP files hold it.

    Args:
        type_: Name of the message type, such as "sensor_msgs/msg/JointState".

    Raises:
        LookupError: The type is not installed.
    """
    parts: list[str] = []
    left, seen = [type_], {type_}
    while left:
        type_name = left.pop(0)
        lines = []
        for name, kind in list_field_types(import_message_class(type_name)).items():
            lines.append(f"{_format_field_type(kind)} {name}")
            if kind.message_type and kind.message_type not in seen:
                seen.add(kind.message_type)
                left.append(kind.message_type)
        head = [_LINE, f"MSG: {type_name.replace('/msg/', '/')}"] if parts else []
        parts.append("\n".join([*head, *lines]))
    return "\n".join(parts) + "\n"


def _format_field_type(kind: FieldType) -> str:
    """Return a field's type as a message definition writes it, such as "float64[3]"."""
    base = kind.base.replace("/msg/", "/")
    if base.startswith(("string<", "wstring<")):
        base = base.replace("<", "<=").rstrip(">")
    base = _NAMES.get(base, base)
    if not kind.array:
        return base
    if kind.size is None:
        return f"{base}[]"
    return f"{base}[{'' if kind.fixed else '<='}{kind.size}]"


class Writer:
    """Thread that writes the messages of a recording, which other threads put into its queue.

    Args:
        make_folder: Function that creates the recording's folder; called on the thread.
        on_error: Function that is called with the reason if an error stops the recording.

    Attributes:
        stopped: Why recording stopped by an error; "" if it did not.
        messages: Number of written messages.
        bytes: Size of the files in bytes.
        waiting_bytes: Size in bytes of the messages that wait to be written.
        slowest_s: Longest time in seconds that one round of writing took.
    """

    def __init__(
        self, make_folder: Callable[[], BagFolder], on_error: Callable[[str], object]
    ) -> None:
        self._make_folder, self._on_error = make_folder, on_error
        self._waiting: deque[Sequence[BagEntry]] = deque()
        self.waiting_bytes = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._woken_s = 0.0
        self.stopped = ""
        self.messages = 0
        self.bytes = 0
        self.slowest_s = 0.0
        self._thread = threading.Thread(target=self._write_until_closed, name="record", daemon=True)
        self._thread.start()

    def enqueue(self, entries: Sequence[BagEntry], size_bytes: int) -> None:
        """Add messages to the queue of those to write.

        Any thread may call it, and the call does not wait. If more than `MAX_WAITING_BYTES` (64
        MiB) would be queued, the disk is too slow, and recording stops with an error.

        Args:
            entries: The messages.
            size_bytes: Their total size in bytes.
        """
        if self.stopped or not entries:
            return
        if self.waiting_bytes + size_bytes > MAX_WAITING_BYTES:
            self._stop_with_error(
                f"the disk is too slow: {self.waiting_bytes / 2**20:.0f} MiB wait to be written"
            )
            return
        with self._lock:
            self._waiting.append(entries)
            self.waiting_bytes += size_bytes
        now_s = time.monotonic()
        if now_s - self._woken_s > WAKE_S:
            self._woken_s = now_s
            self._wake.set()

    def close(self, max_wait_s: float = CLOSE_S) -> None:
        """Write the queued messages and stop the thread.

        Args:
            max_wait_s: Maximum time in seconds to wait until the thread has ended.
        """
        self._closing = True
        self._wake.set()
        self._thread.join(max_wait_s)

    def _stop_with_error(self, reason: str) -> None:
        """Stop recording because of an error with this reason, and discard the queued messages."""
        if not self.stopped:
            self.stopped = reason
            self._on_error(reason)
        with self._lock:
            self._waiting.clear()
            self.waiting_bytes = 0
        self._wake.set()

    def _write_until_closed(self) -> None:
        """Create the folder, and write queued messages until the writer is closed or fails."""
        bag: BagFolder | None = None
        try:
            bag = self._make_folder()
            self._write_queued_messages(bag)
        except Exception as error:
            self._stop_with_error(_describe_error(error))
        finally:
            try:
                if bag is not None:
                    bag.close()
            except Exception as error:
                self._stop_with_error(_describe_error(error))

    def _write_queued_messages(self, bag: BagFolder) -> None:
        """Write queued messages into a folder until the writer is closed or stopped by an error."""
        flushed_s = time.monotonic()
        while not self.stopped:
            self._wake.wait(FLUSH_S / 2)
            self._wake.clear()
            closing, begin_s = self._closing, time.monotonic()
            with self._lock:
                batches = list(self._waiting)
                self._waiting.clear()
                size = self.waiting_bytes
            for batch in batches:
                bag.write(batch)
                self.messages += len(batch)
            now_s = time.monotonic()
            if now_s - flushed_s > FLUSH_S or closing:
                flushed_s = now_s
                bag.flush()
                self.bytes = bag.bytes
            with self._lock:
                self.waiting_bytes = max(0, self.waiting_bytes - size)
            self.slowest_s = max(self.slowest_s, time.monotonic() - begin_s)
            if closing and not self._waiting:
                return


def _describe_error(error: Exception) -> str:
    """Return why writing failed, as text for a log line."""
    if isinstance(error, OSError) and error.strerror:
        where = "" if error.filename is None else f"{os.fspath(error.filename)}: "
        return f"{where}{error.strerror}"
    return str(error) or repr(error)
