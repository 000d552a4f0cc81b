"""Define what a recording holds: its topics, and how their messages are written and read.

Everything is a standard ROS 2 message, so that any tool for bags shows it. The topics of sources
hold each message as it arrived. Further topics lie below the node's name:

    channels        sensor_msgs/JointState      the readings of a tick, by channel id
    record/tick     std_msgs/Int64MultiArray    a tick (control step); TICK names its numbers
    record/action   sensor_msgs/JointState      the policy's command before the safety gate
    record/gate     std_msgs/Int64MultiArray    how a command was decided; GATE names its numbers
    record/command  sensor_msgs/JointState      the command that was sent; it follows record/gate
    record/store    std_msgs/Int64MultiArray    a message that another source reads as well
    record/events   std_msgs/String             changes of state, as JSON

Their order in the file is that in which the node did these things, and replay follows it. Times in
the numbers are of the node's own clock, in ns; adding `offset_ns` of the event "session" gives the
log time of a message. A number that is missing is NONE.

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
"""Names of the numbers of a tick; `previous` is the number of the command that the policy used as
its previous action."""
GATE = (
    "kind", "decided_ns", "sent_ns", "stamp_ns", "number", "not_finite", "limited",
    "rate_limited", "ramped", "authority_ppm",
)  # fmt: skip
"""Names of the numbers of a command's decision. `number` counts the commands that became the newest
one; NONE if this one did not. The four after it say whether the gate changed the command, and why.
`authority_ppm` is the policy's weight in the ramp, in millionths."""
STORED = ("source", "back")
"""Names of the numbers of a message that another source reads: the index of that source plus one,
and how many messages came since."""
NONE = -1
FORMAT = 1
"""Version of the format of events and numbers."""
MAX_EVENT_BYTES = 16 * 2**20


class BagError(ValueError):
    """Error for a recording that cannot be read or used; its text names the file and the reason."""


class CommandKind(IntEnum):
    """Reason why a command was sent."""

    POLICY = 0
    TOO_LATE = 1
    """The tick took so long that the safe command was sent instead."""
    STOP = 2
    HALT = 3
    """The e-stop was latched."""
    WATCHDOG = 4
    OTHER = 5
    """Another node sent it."""


ATTACHMENT = ""
"""Type of an entry that is an attached file instead of a message; its topic is the file's name."""


class BagEntry(NamedTuple):
    """One message of a recording, or one attached file.

    Attributes:
        topic: Topic of the message, or name of the file.
        type: Message type, or `ATTACHMENT` for a file.
        log_ns: Time of day at which it was recorded, in ns.
        publish_ns: Time of day at which a source's message arrived, in ns; else equal to `log_ns`.
        sequence: For a received message, the number of the source (topic subscription) that read
            it: its index in the wiring plus one, or 0 for none. For a change of state, 1 if the
            message only repeats the change at the start of a file, else 0.
        data: The serialised message, or the content of the file.
    """

    topic: str
    type: str
    log_ns: int
    publish_ns: int
    sequence: int
    data: bytes


@dataclass(frozen=True)
class Limits:
    """Limits of a recording's size; 0 means unlimited.

    Attributes:
        split_bytes: Size of a file in bytes after which the next file is started.
        split_s: Duration of a file in seconds after which the next file is started.
        total_bytes: Size of all files in bytes above which the oldest files are deleted.
    """

    split_bytes: int = 0
    split_s: float = 0.0
    total_bytes: int = 0


@dataclass(frozen=True)
class FileHead:
    """Content written at the start of each file, so that it can be read without earlier files.

    Attributes:
        entries: Messages on changes of state that still hold, such as an e-stop that was not reset.
        attachments: Content of attached files, such as the model, by name.
    """

    entries: tuple[BagEntry, ...]
    attachments: Mapping[str, bytes]


_CDR = b"\x00\x01\x00\x00"
"""Start of a serialised message: CDR in little-endian order, which all of ROS 2 uses."""


def _pad_to_multiple(body: bytes, size: int) -> bytes:
    """Return `body`, extended by zero bytes so that its length is a multiple of `size`."""
    return body + bytes(-len(body) % size)


class NamedNumbersCodec:
    """Encoder and decoder of Int64MultiArray messages that hold a fixed list of named numbers.

    Args:
        names: Names of the numbers, in their order. They are written into the message, separated by
            spaces, as the label of its one dimension.
    """

    def __init__(self, names: Sequence[str]) -> None:
        label = " ".join(names).encode() + b"\0"
        count = len(names)
        body = struct.pack("<II", 1, len(label)) + label
        body = _pad_to_multiple(body, 4) + struct.pack("<IIII", count, count, 0, count)
        self._before = _CDR + _pad_to_multiple(body, 8)
        self._pack = struct.Struct(f"<{count}q")
        self.names = tuple(names)

    def encode_numbers(self, *numbers: int) -> bytes:
        """Return the serialised message that holds these numbers, in the order of `names`."""
        return self._before + self._pack.pack(*numbers)

    def decode_numbers(self, data: bytes) -> tuple[int, ...]:
        """Return the numbers of a serialised message, in the order of `names`.

        Raises:
            BagError: The message has other names or another type.
        """
        start = len(self._before)
        if data[:start] != self._before or len(data) != start + self._pack.size:
            raise BagError(f"no message with the numbers {' '.join(self.names)}")
        return self._pack.unpack_from(data, start)


TICK_NUMBERS, GATE_NUMBERS, STORED_NUMBERS = (
    NamedNumbersCodec(TICK),
    NamedNumbersCodec(GATE),
    NamedNumbersCodec(STORED),
)
_F8 = np.dtype("<f8")
_KEPT_NAMES = 64
_names: dict[tuple[str, ...], bytes] = {}


def encode_joint_state(stamp_ns: int, names: tuple[str, ...], positions: np.ndarray) -> bytes:
    """Return a serialised JointState message with names and positions.

    Args:
        stamp_ns: Stamp in ns.
        names: Names of the joints (N), here ids of channels or names of actuators.
        positions: Values of the joints (N,).
    """
    before = _names.get(names)
    if before is None:
        body = bytes(8) + struct.pack("<I", 1) + b"\0"
        body = _pad_to_multiple(body, 4) + struct.pack("<I", len(names))
        for name in names:
            text = name.encode() + b"\0"
            body = _pad_to_multiple(body, 4) + struct.pack("<I", len(text)) + text
        body = _pad_to_multiple(body, 4) + struct.pack("<I", len(names))
        if len(names):
            body = _pad_to_multiple(body, 8)
        if len(_names) >= _KEPT_NAMES:
            _names.clear()
        before = _names[names] = body[8:]
    seconds, rest = divmod(stamp_ns, 1_000_000_000)
    head = _CDR + struct.pack("<iI", seconds & 0x7FFFFFFF, rest)
    return head + before + positions.astype(_F8).tobytes() + bytes(8)


def decode_joint_state(data: bytes) -> tuple[tuple[str, ...], np.ndarray]:
    """Return the names and the positions (N,) of a serialised JointState message.

    Raises:
        BagError: The data is not such a message.
    """
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


def encode_event(kind: str, values: dict[str, Any]) -> bytes:
    """Return a serialised String message that describes a change of the node's state as JSON.

    Args:
        kind: Kind of the change, such as "rewire"; it becomes the value under "event".
        values: Further values that describe the change, by name.
    """
    text = json.dumps({"event": kind, **values}).encode() + b"\0"
    return _CDR + struct.pack("<I", len(text)) + text


def decode_event(data: bytes) -> dict[str, Any]:
    """Decode a serialised message about a change of state into its values, by name.

    This is the reverse of `encode_event`. The value "event" is the kind of the change.

    Raises:
        BagError: The data is not such a message.
    """
    try:
        (length,) = struct.unpack_from("<I", data, 4)
        if not 0 < length <= min(len(data) - 8, MAX_EVENT_BYTES):
            raise ValueError
        event = json.loads(data[8 : 8 + length - 1])
    except (ValueError, struct.error, RecursionError) as error:
        raise BagError("not a change of state as JSON") from error
    if not isinstance(event, dict) or not isinstance(event.get("event"), str):
        raise BagError("not a change of state as JSON")
    return event
