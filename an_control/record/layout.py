"""What a recording holds: topics, their messages as bytes, and how they are read again.

Everything is a standard ROS 2 message, so that any tool for bags shows it. The topics of sources
hold each message as it arrived. Beside them lie, below the node's name:

    channels        sensor_msgs/JointState      the readings of a tick, by channel id
    record/tick     std_msgs/Int64MultiArray    a tick: TICK says what each number is
    record/action   sensor_msgs/JointState      what the policy asks for, before the gate
    record/gate     std_msgs/Int64MultiArray    how a command came about: GATE says what is what
    record/command  sensor_msgs/JointState      the command that follows from it
    record/store    std_msgs/Int64MultiArray    a message that counts for another source, too
    record/events   std_msgs/String             changes of state, as JSON

Their order in the file is that in which the node did these things: replay follows it. Times in the
numbers are of the node's own clock, in ns; `offset_ns` of the session leads from it to the log time
of a message. Numbers that are not there are NONE.

No file is trusted: what is read here is checked, and BagError says what is wrong with it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np

CHANNELS, TICK_TOPIC, ACTION, GATE_TOPIC, COMMAND, STORE, EVENTS = (
    "channels",
    "record/tick",
    "record/action",
    "record/gate",
    "record/command",
    "record/store",
    "record/events",
)
TYPES = {
    CHANNELS: "sensor_msgs/msg/JointState",
    TICK_TOPIC: "std_msgs/msg/Int64MultiArray",
    ACTION: "sensor_msgs/msg/JointState",
    GATE_TOPIC: "std_msgs/msg/Int64MultiArray",
    COMMAND: "sensor_msgs/msg/JointState",
    STORE: "std_msgs/msg/Int64MultiArray",
    EVENTS: "std_msgs/msg/String",
}
"""The type of each topic below the node's name."""
TICK = ("tick", "now_ns", "stamp_ns", "sends", "previous", "stepped", "repeats")
"""`previous`: the number of the command that the policy took for its previous action."""
GATE = (
    "kind", "decided_ns", "sent_ns", "stamp_ns", "number", "not_finite", "limited",
    "rate_limited", "ramped", "authority_ppm",
)  # fmt: skip
"""`number`: of the commands that counted as the newest one; NONE where this one did not. The four
after it: whether the gate changed it, and why; authority in millionths."""
STORED = ("source", "back")
"""The place of the source, and how many messages of sources came since that one."""
NONE = -1
FORMAT = 1
"""Of the events and of these numbers."""
MAX_EVENT_BYTES = 16 * 2**20


class BagError(ValueError):
    """A recording that cannot be read or used; the message names the file and the reason."""


class CommandKind(IntEnum):
    """Why a command went out."""

    POLICY = 0
    TOO_LATE = 1
    """The tick took so long that the safe command went out instead."""
    STOP = 2
    HALT = 3
    """The e-stop was latched."""
    WATCHDOG = 4
    OTHER = 5
    """Another node sent it."""


ATTACHMENT = ""
"""The type of an entry that is no message but a file: its topic is the file's name."""


class BagEntry(NamedTuple):
    """One message of a recording.

    sequence: of a source's message, the place of the source in the wiring plus one; 0 where it
        counted for none.
    """

    topic: str
    type: str
    log_ns: int
    publish_ns: int
    sequence: int
    data: bytes


@dataclass(frozen=True)
class Limits:
    """How large a recording grows.

    Attributes:
        split_bytes: a file that has grown so large is followed by another one; 0 = never.
        split_s: the same for seconds; 0 = never.
        total_bytes: beyond this the oldest files go; 0 = never.
    """

    split_bytes: int = 0
    split_s: float = 0.0
    total_bytes: int = 0


@dataclass(frozen=True)
class FileHead:
    """What each file of a recording begins with, so that it can be read without the ones before."""

    entries: tuple[BagEntry, ...]
    attachments: Mapping[str, bytes]


_CDR = b"\x00\x01\x00\x00"
"""Little-endian, as all of ROS 2 sends."""


def _aligned(body: bytes, size: int) -> bytes:
    return body + bytes(-len(body) % size)


class Numbers:
    """Writes and reads an Int64MultiArray with these names as its layout."""

    def __init__(self, names: Sequence[str]) -> None:
        label = " ".join(names).encode() + b"\0"
        count = len(names)
        body = struct.pack("<II", 1, len(label)) + label
        body = _aligned(body, 4) + struct.pack("<IIII", count, count, 0, count)
        self._before = _CDR + _aligned(body, 8)
        self._pack = struct.Struct(f"<{count}q")
        self.names = tuple(names)

    def write(self, *numbers: int) -> bytes:
        """Return the message of these numbers."""
        return self._before + self._pack.pack(*numbers)

    def read(self, data: bytes) -> tuple[int, ...]:
        """Return the numbers; BagError where the message is another one."""
        start = len(self._before)
        if data[:start] != self._before or len(data) != start + self._pack.size:
            raise BagError(f"no message with the numbers {' '.join(self.names)}")
        return self._pack.unpack_from(data, start)


TICK_NUMBERS, GATE_NUMBERS, STORED_NUMBERS = Numbers(TICK), Numbers(GATE), Numbers(STORED)
_F8 = np.dtype("<f8")
_KEPT_NAMES = 64
_names: dict[tuple[str, ...], bytes] = {}


def write_joint_state(stamp_ns: int, names: tuple[str, ...], positions: np.ndarray) -> bytes:
    """Return a JointState of these names and positions (N,), float64."""
    before = _names.get(names)
    if before is None:
        body = bytes(8) + struct.pack("<I", 1) + b"\0"
        body = _aligned(body, 4) + struct.pack("<I", len(names))
        for name in names:
            text = name.encode() + b"\0"
            body = _aligned(body, 4) + struct.pack("<I", len(text)) + text
        body = _aligned(body, 4) + struct.pack("<I", len(names))
        if len(names):
            body = _aligned(body, 8)
        if len(_names) >= _KEPT_NAMES:
            _names.clear()
        before = _names[names] = body[8:]
    seconds, rest = divmod(stamp_ns, 1_000_000_000)
    head = _CDR + struct.pack("<iI", seconds & 0x7FFFFFFF, rest)
    return head + before + positions.astype(_F8).tobytes() + bytes(8)


def read_joint_state(data: bytes) -> tuple[tuple[str, ...], np.ndarray]:
    """Return names and positions (N,) of a JointState; BagError where it is none."""
    try:
        if data[:4] != _CDR:
            raise ValueError
        body = memoryview(data)[4:]
        (length,) = struct.unpack_from("<I", body, 8)
        at = 12 + length
        at += -at % 4
        (count,) = struct.unpack_from("<I", body, at)
        at += 4
        names = []
        for _ in range(count):
            at += -at % 4
            (length,) = struct.unpack_from("<I", body, at)
            text = bytes(body[at + 4 : at + 4 + length])
            if not length or len(text) != length:
                raise ValueError
            names.append(text[:-1].decode())
            at += 4 + length
        at += -at % 4
        (count,) = struct.unpack_from("<I", body, at)
        at += 4
        at += -at % 8 if count else 0
        positions = np.frombuffer(body, "<f8", count, at)
    except (ValueError, struct.error, UnicodeDecodeError) as error:
        raise BagError("no message of type sensor_msgs/msg/JointState") from error
    return tuple(names), positions


def write_event(kind: str, values: dict[str, Any]) -> bytes:
    """Return a String with a change of state as JSON."""
    text = json.dumps({"event": kind, **values}).encode() + b"\0"
    return _CDR + struct.pack("<I", len(text)) + text


def read_event(data: bytes) -> dict[str, Any]:
    """Return a change of state; BagError where the message is none."""
    try:
        (length,) = struct.unpack_from("<I", data, 4)
        if not 0 < length <= min(len(data) - 8, MAX_EVENT_BYTES):
            raise ValueError
        event = json.loads(data[8 : 8 + length - 1])
    except (ValueError, struct.error, RecursionError) as error:
        raise BagError("no change of state as JSON") from error
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise BagError("no change of state as JSON")
    return event
