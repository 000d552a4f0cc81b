"""Notes of what a policy node does, and the messages of a recording that are made of them.

A note is a tuple: the kind of what is recorded, its content, and last the time in ns of the node's
clock (None: unknown). Notes are plain tuples, which are not a burden for the garbage collector.
"""

from __future__ import annotations

import hashlib
import time
import zipfile
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

from an_control.policy.onnx_file import has_onnx_suffix, list_policy_files
from an_control.record.flat_messages import FlatMessage, Flattener
from an_control.record.layout import (
    ATTACHMENT,
    EVENTS,
    GATE_NUMBERS,
    GATE_TOPIC,
    STORE,
    STORED_NUMBERS,
    TICK_NUMBERS,
    TICK_TOPIC,
    TYPES,
    BagEntry,
    FileHead,
    encode_event,
    encode_joint_state,
)
from an_control.system.files import read_regular_file

MAX_MODEL_BYTES = 64 * 2**20
"""Maximum size of a model file that becomes part of a recording; a larger one is only named."""
MAX_MODELS = 3
"""Maximum number of model files whose content is kept in memory."""

Note = tuple[Any, ...]
MESSAGE, FLAT, NUMBERS, STATE, EVENT, MODEL = range(6)
"""Kinds of notes: a ROS message (topic, type, message, number of the source, time of arrival); the
same with a `FlatMessage` or bytes instead of the message; numbers (name of the topic, numbers);
values by name (name of the topic, names, array); a change of state (kind, values by name); a model
file (name of the attachment, content)."""
_NUMBERS_OF = {TICK_TOPIC: TICK_NUMBERS, GATE_TOPIC: GATE_NUMBERS, STORE: STORED_NUMBERS}


class NoteEncoder:
    """Converter of notes (records of what a node did) to the messages of a recording.

    It also converts notes with ROS messages to smaller ones for the black box.

    Args:
        node: Full name of the node.
        serialize: Function that returns the bytes of a ROS message.
        offset_ns: Number of ns to add to the node's clock for the time of day.
    """

    def __init__(self, node: str, serialize: Callable[[Any], bytes], offset_ns: int) -> None:
        self.offset_ns = offset_ns
        self._serialize = serialize
        self._topics = {name: f"{node}/{name}" for name in TYPES}
        self._flatteners: dict[str, Callable[[Any], FlatMessage | bytes]] = {}
        """By message type, the function that makes content or bytes of a message."""
        self._restorers: dict[str, Callable[[FlatMessage], Any]] = {}
        """By message type, the function that makes a message of its content."""

    def flatten_message_note(self, note: Note) -> tuple[Note, int]:
        """Return a smaller note, with the content of a ROS message in place of the message.

        The content is a `FlatMessage` (a tuple of plain values), or the serialised bytes if the
        message type has fields that a `FlatMessage` cannot hold.

        Args:
            note: The note with the message, of kind `MESSAGE`.

        Returns:
            A pair: the note of kind `FLAT`, and the approximate size of its content in bytes.
        """
        _, topic, type_, message, *rest = note
        flattener = self._flatteners.get(type_)
        if flattener is None:
            flattener = self._make_flattener_for_type(type_, type(message))
        flat = flattener(message)
        return (FLAT, topic, type_, flat, *rest), len(flat) if isinstance(flat, bytes) else flat[-1]

    def _make_flattener_for_type(
        self, type_: str, cls: Any
    ) -> Callable[[Any], FlatMessage | bytes]:
        """Return the function that flattens messages of a type, and keep it for the next ones."""
        found: Callable[[Any], FlatMessage | bytes] = self._serialize
        with suppress(ValueError, AttributeError):
            flattener = Flattener(cls)
            self._restorers[type_] = flattener.restore
            found = flattener.flatten
        self._flatteners[type_] = found
        return found

    def make_bag_entry(self, note: Note) -> BagEntry:
        """Convert a note (of what a node did) to a message or attached file of a recording."""
        kind, offset_ns, now_ns = note[0], self.offset_ns, note[-1]
        if kind in (MESSAGE, FLAT):
            _, topic, type_, message, place, arrival_ns, now_ns = note
            if isinstance(message, tuple):
                message = self._restorers[type_](message)
            data = message if isinstance(message, bytes) else self._serialize(message)
            return BagEntry(topic, type_, now_ns + offset_ns, arrival_ns + offset_ns, place, data)
        log_ns = time.time_ns() if now_ns is None else now_ns + offset_ns
        if kind == MODEL:
            return BagEntry(note[1], ATTACHMENT, log_ns, log_ns, 0, note[2])
        if kind == NUMBERS:
            name = note[1]
            data = _NUMBERS_OF[name].encode_numbers(*note[2])
        elif kind == STATE:
            _, name, names, values, _ = note
            data = encode_joint_state(log_ns, names, values)
        else:
            name, data = EVENTS, encode_event(note[1], note[2])
        return BagEntry(self._topics[name], TYPES[name], log_ns, log_ns, 0, data)

    def make_event_entry(self, values: dict[str, Any], now_ns: int) -> BagEntry:
        """Return the message that repeats an earlier change of state at the start of a file.

        Args:
            values: The values that describe the change, with its kind under "event".
            now_ns: Time of day in ns.
        """
        data = encode_event(values["event"], values)
        return BagEntry(self._topics[EVENTS], TYPES[EVENTS], now_ns, now_ns, 1, data)


def find_time_of_next_note_ns(queue: Iterable[Note]) -> int | None:
    """Return the time in ns of the first note with a time in a queue; None if no note has one."""
    return next((note[-1] for note in tuple(queue) if note[-1] is not None), None)


def read_model_content(path: Path) -> bytes:
    """Return the content of a model file, for a recording.

    The content of an ONNX file is a zip archive, without compression, of all files of its policy.

    Args:
        path: The path of the model file.

    Raises:
        OSError: A file cannot be read.
        ValueError: A file of an ONNX policy is not valid.
    """
    if not has_onnx_suffix(path):
        return read_regular_file(path)
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for file in list_policy_files(path):
            name = zipfile.ZipInfo(str(file.relative_to(path.parent)))  # always with the same time
            archive.writestr(name, read_regular_file(file))
    return buffer.getvalue()


@dataclass(frozen=True)
class ModelFile:
    """Model file that a recording refers to.

    Attributes:
        path: Path of the file.
        sha256: Hash of its content, in hexadecimal digits. The content is that of
            `read_model_content`.
        content: Content to be recorded; None if it has more than 64 MiB.
    """

    path: str
    sha256: str
    content: bytes | None

    def get_path_and_hash(self) -> dict[str, Any]:
        """Return the file's "path" and "sha256" as a dict, for an event of the recording."""
        return {"path": self.path, "sha256": self.sha256}


class SessionState:
    """Content for the start of each file of a recording: the node's present state and its models.

    The state is given by the events (changes of state) that still have an effect, such as an
    e-stop. With this content a file can be replayed without the earlier files.
    """

    def __init__(self) -> None:
        self._models: dict[str, ModelFile] = {}
        self._events: dict[str, dict[str, Any]] = {}
        """Events by kind that are still in force, without those that the black box holds."""

    def read_model_file(self, path: str) -> ModelFile:
        """Read a model file that the node uses or will use, and keep its content for the recording.

        Call it from any thread, but not during a tick, because it reads from the disk.

        Args:
            path: Path of the model file.
        """
        content = read_model_content(Path(path))
        digest = hashlib.sha256(content).hexdigest()
        kept = content if len(content) <= MAX_MODEL_BYTES else None
        found = ModelFile(path, digest, kept)
        self._models.pop(path, None)
        self._models[path] = found
        while len(self._models) > MAX_MODELS:
            del self._models[next(iter(self._models))]
        return found

    def get_model_file(self, path: str) -> ModelFile | None:
        """Return the model file that was read from a path; None if it is not kept any more."""
        return self._models.get(path)

    def remember_event_for_new_files(self, event: dict[str, Any]) -> None:
        """Add a new event to the events (changes of state) that each new file repeats at its start.

        Only events whose effect still holds are repeated. An event replaces the earlier one of its
        kind, and "deactivate" removes "activate".

        Args:
            event: The values that describe the new event, with its kind under "event".
        """
        kind, state = event["event"], self._events
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

    def make_first_entries_of_file(self, encoder: NoteEncoder, newest_ns: int | None) -> FileHead:
        """Return the content to write at the start of a new file.

        It holds the events that are still in force, such as an e-stop, and the model files.

        Args:
            encoder: Converter of the events to messages.
            newest_ns: Time of the newest recorded event (note) in ns, by the node's clock; None if
                it is not known.
        """
        now_ns = time.time_ns() if newest_ns is None else newest_ns + encoder.offset_ns
        events = list(self._events.values())
        models = {
            f"model:{one.sha256}": one.content
            for one in list(self._models.values())
            if one.content is not None
        }
        return FileHead(tuple(encoder.make_event_entry(one, now_ns) for one in events), models)
