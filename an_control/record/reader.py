"""Read ROS 2 bags, MCAP and sqlite3, in the order of their files; unfinished files as well.

No index is needed, so that the file of a killed process can be read up to its last whole chunk;
`Bag.notes` then says where it ends. No file is trusted: sizes are bounded before memory is
requested, and BagError says in one line what is wrong.
"""

from __future__ import annotations

import sqlite3
import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field, replace
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import Any, NoReturn

import yaml

from an_control.record.layout import ATTACHMENT, BagEntry, BagError
from an_control.system.files import open_regular_file, read_regular_file
from an_control.wiring.config import Wiring, load_wiring
from an_control.wiring.messages import MESSAGE_TYPE

MAX_RECORD_BYTES = 512 * 2**20
"""Maximum size of a record, and of a chunk after it is unpacked; a larger one is refused."""
MAX_METADATA_BYTES = 64 * 2**20
MAX_CHANNELS = 10_000
_MAGIC = b"\x89MCAP0\r\n"
_HEADER, _SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _ATTACHMENT = 1, 3, 4, 5, 6, 9
_FOOTER, _DATA_END, _LAST = 2, 15, 15
_SUFFIXES = (".mcap", ".db3")
_MESSAGE_HEAD = struct.Struct("<HIQQ")
_RECORD_HEAD = struct.Struct("<BQ")


@dataclass(frozen=True)
class _McapChannel:
    """A channel in the sense of an MCAP file: one topic with its message type.

    Only messages with the encoding "cdr", that of ROS 2, are read.
    """

    topic: str
    type: str
    encoding: str


@dataclass
class Bag:
    """ROS 2 bag to read: a folder with metadata.yaml, or one .mcap or .db3 file.

    Attributes:
        path: Path of the folder or file.
        notes: Remarks after the bag was read, such as where an unfinished file ends.
        files: Paths of the bag's files, in order.

    Raises:
        BagError: There is no bag at the path.
    """

    path: Path
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.files = _list_files(self.path)

    def format_first_notes(self) -> str:
        """Return the first notes in brackets, for the end of an error message; "" without notes."""
        return f" ({'; '.join(self.notes[:3])})" if self.notes else ""

    def iterate_entries(self) -> Iterator[BagEntry]:
        """Yield all messages and attached files of the bag, in the order of its files.

        Topics whose messages are not serialised in CDR, the format of ROS 2, are left out, and
        named in `notes`.

        Raises:
            BagError: A file is damaged.
        """
        self.notes.clear()
        for number, path in enumerate(self.files):
            last = number == len(self.files) - 1
            if number and last and not path.stat().st_size:  # its recorder was killed
                self.notes.append(f"{path}: is empty")
            elif path.suffix == ".db3":
                yield from _read_sqlite(path, self.notes)
            else:
                channels: dict[int, _McapChannel] = {}
                yield from _read_mcap(path, self.notes, last, channels)
                self.notes += [
                    f"{path}: left out: {one.topic} ({one.type}, {one.encoding[:20]})"
                    for one in channels.values()
                    if one.encoding != "cdr"
                ]


def _list_files(path: Path) -> list[Path]:
    """Return the paths of a bag's files in order, after checking that they can be opened."""
    try:
        if not path.is_dir():
            if path.suffix in (".zstd", ".lz4") and path.with_suffix("").suffix in _SUFFIXES:
                raise BagError(f"{path}: is a compressed file; unpack it first (zstd -d)")
            if path.suffix not in _SUFFIXES:
                raise BagError(f"{path}: is not a bag: must be a folder, or a .mcap or .db3 file")
            open_regular_file(path).close()
            return [path]
        files = _list_files_in_metadata(path) or sorted(
            (one for one in path.iterdir() if one.suffix in _SUFFIXES), key=_make_file_sort_key
        )
        for file in files:
            open_regular_file(file).close()
    except OSError as error:
        raise BagError(f"{error.filename or path}: {error.strerror}") from error
    except BagError:
        raise
    except ValueError as error:
        raise BagError(f"{path}: {error}") from error
    if not files:
        raise BagError(f"{path}: is not a bag: has neither a .mcap nor a .db3 file")
    return files


def _make_file_sort_key(path: Path) -> tuple[int, str]:
    """Return the key by which a bag's files are sorted: number, then name.

    The number is that behind the last underscore of the file's name, or -1 without one.
    """
    number = path.stem.rpartition("_")[2]
    return int(number) if number.isdecimal() else -1, path.name


def _list_files_in_metadata(folder: Path) -> list[Path]:
    """Return the paths of the files that a folder's metadata.yaml names, in its order.

    The list is empty if there is no metadata.yaml.
    """
    path = folder / "metadata.yaml"
    if not path.exists():
        return []
    content = read_regular_file(path, MAX_METADATA_BYTES)
    if len(content) > MAX_METADATA_BYTES:
        raise BagError(f"{path}: is larger than {MAX_METADATA_BYTES // 2**20} MiB")
    try:
        about: Any = yaml.safe_load(content)["rosbag2_bagfile_information"]
        names, compression = about["relative_file_paths"], about.get("compression_format") or ""
        if not isinstance(names, list) or not all(isinstance(one, str) for one in names):
            raise TypeError
    except (yaml.YAMLError, TypeError, KeyError, AttributeError, ValueError, RecursionError):
        raise BagError(f"{path}: is not the metadata of a rosbag2 bag") from None
    if compression:
        raise BagError(f"{folder}: is compressed by rosbag2 ({compression}); decompress it first")
    found = []
    for name in names:
        file = folder / Path(name).name  # nothing outside of the folder is read
        if file.suffix not in _SUFFIXES:
            raise BagError(f"{path}: names {name!r}: must be a .mcap or a .db3 file")
        found.append(file)
    return found


def _read_mcap(
    path: Path, notes: list[str], is_last: bool, channels: dict[int, _McapChannel]
) -> Iterator[BagEntry]:
    """Yield the messages and attached files of an MCAP file, and add its channels to `channels`.

    A remark in `notes` says where an unfinished file ends. Only the bag's last file may end in the
    middle of a record; any other damage is a BagError.
    """
    from mcap.exceptions import McapError

    size = path.stat().st_size
    schemas: dict[int, str] = {}
    with BufferedReader(open_regular_file(path), 2**20) as file:
        if file.read(8) != _MAGIC:
            raise BagError(f"{path}: is not an MCAP file")
        at = 8
        while True:
            head = file.read(_RECORD_HEAD.size)
            if len(head) < _RECORD_HEAD.size:
                return notes.append(f"{path}: was not finished; read up to byte {at}")
            code, length = _RECORD_HEAD.unpack(head)
            if not code or (code > _LAST and code < 128):
                raise BagError(f"{path}: is damaged at byte {at}: not an MCAP record")
            at += _RECORD_HEAD.size
            if length > size - at:
                return notes.append(f"{path}: was not finished; read up to byte {at}")
            if code in (_DATA_END, _FOOTER):
                return None
            if code not in (_SCHEMA, _CHANNEL, _MESSAGE, _CHUNK, _ATTACHMENT):
                file.seek(length, 1)
                at += length
                continue
            if length > MAX_RECORD_BYTES:
                raise BagError(
                    f"{path}: is damaged at byte {at}: a record of {length} bytes, where"
                    f" {MAX_RECORD_BYTES} are allowed"
                )
            content = file.read(length)
            try:
                if code == _CHUNK:
                    yield from _iterate_chunk_entries(_decompress_chunk(content), channels, schemas)
                else:
                    yield from _iterate_record_entries(code, content, channels, schemas)
            except (struct.error, ValueError, MemoryError, McapError) as error:
                if is_last and at + length >= size:
                    return notes.append(f"{path}: was not finished; read up to byte {at}")
                reason = str(error) or "a record that is too short"
                raise BagError(f"{path}: is damaged at byte {at}: {reason}") from error
            at += length


def _decompress_chunk(content: bytes) -> bytes:
    """Return the uncompressed records of a chunk (a compressed part of an MCAP file)."""
    from mcap.data_stream import ReadDataStream
    from mcap.records import Chunk

    (claimed,) = struct.unpack_from("<Q", content, 16)
    if claimed > MAX_RECORD_BYTES:
        raise ValueError(f"a chunk of {claimed} bytes, where {MAX_RECORD_BYTES} are allowed")
    chunk = Chunk.read(ReadDataStream(BytesIO(content)))
    if chunk.compression == "zstd":
        import zstandard

        try:
            stated = zstandard.frame_content_size(chunk.data)
            if stated > claimed:
                raise ValueError(f"a chunk that unpacks to {stated} bytes, not to {claimed}")
            data = zstandard.decompress(chunk.data, max_output_size=claimed)
        except zstandard.ZstdError as error:
            raise ValueError(f"a chunk that cannot be unpacked ({error})") from error
    elif chunk.compression == "lz4":
        import lz4.frame

        try:
            data = lz4.frame.LZ4FrameDecompressor().decompress(chunk.data, max_length=claimed)
        except (RuntimeError, EOFError) as error:
            raise ValueError(f"a chunk that cannot be unpacked ({error})") from error
    elif chunk.compression:
        raise ValueError(f"a chunk compressed by {chunk.compression[:20]!r}")
    else:
        data = chunk.data
    if len(data) != claimed:
        raise ValueError(f"a chunk of {len(data)} bytes, not of {claimed}")
    if chunk.uncompressed_crc and zlib.crc32(data) != chunk.uncompressed_crc:
        raise ValueError("a chunk whose check sum is wrong")
    return data


def _iterate_chunk_entries(
    data: bytes, channels: dict[int, _McapChannel], schemas: dict[int, str]
) -> Iterator[BagEntry]:
    """Yield the messages in the uncompressed records of an MCAP file's chunk.

    `channels` and `schemas` have the topics and message types that the file has declared so far, by
    their number in the file; those that the records declare are added.
    """
    at, size = 0, len(data)
    while at < size:
        code, length = _RECORD_HEAD.unpack_from(data, at)
        at += _RECORD_HEAD.size
        if length > size - at:
            raise ValueError("a record that is longer than its chunk")
        if code == _MESSAGE:
            number, sequence, log_ns, publish_ns = _MESSAGE_HEAD.unpack_from(data, at)
            channel = channels.get(number)
            if channel is None:
                raise ValueError(f"a message of channel {number}, which is not there")
            if channel.encoding == "cdr":
                content = data[at + _MESSAGE_HEAD.size : at + length]
                yield BagEntry(channel.topic, channel.type, log_ns, publish_ns, sequence, content)
        else:
            yield from _iterate_record_entries(code, data[at : at + length], channels, schemas)
        at += length


def _iterate_record_entries(
    code: int, content: bytes, channels: dict[int, _McapChannel], schemas: dict[int, str]
) -> Iterator[BagEntry]:
    """Yield the messages or the attached file that one record of an MCAP file holds, if any.

    A topic or message type that it declares is added, as in `_iterate_chunk_entries`.
    """
    from mcap.data_stream import ReadDataStream
    from mcap.records import Attachment, Channel, Schema

    stream = ReadDataStream(BytesIO(content))
    if code == _SCHEMA:
        schema = Schema.read(stream)
        schemas[schema.id] = schema.name
    elif code == _CHANNEL:
        one = Channel.read(stream)
        type_ = schemas.get(one.schema_id, "")
        channels[one.id] = _McapChannel(one.topic, type_, one.message_encoding)
        if max(len(channels), len(schemas)) > MAX_CHANNELS:
            raise ValueError(f"more than {MAX_CHANNELS} channels")
    elif code == _MESSAGE:
        head = _RECORD_HEAD.pack(_MESSAGE, len(content))
        yield from _iterate_chunk_entries(head + content, channels, schemas)
    elif code == _ATTACHMENT:
        found = Attachment.read(stream)
        log_ns = found.log_time
        yield BagEntry(found.name, ATTACHMENT, log_ns, found.create_time, 0, found.data)


def _read_sqlite(path: Path, notes: list[str]) -> Iterator[BagEntry]:
    """Yield the messages of one sqlite3 file of a bag, ordered by time.

    Topics that are left out are named in `notes`. Raise BagError if the file is damaged.
    """

    def raise_damaged_error(error: object) -> NoReturn:
        """Raise the BagError for this file, with a reason."""
        raise BagError(f"{path}: is not a bag of sqlite3, or damaged: {error}")

    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as base:
            base.execute("PRAGMA trusted_schema = OFF")
            base.text_factory = lambda text: text.decode(errors="strict")
            rows = base.execute("SELECT id, name, type, serialization_format FROM topics")
            topics: dict[int, tuple[str, str]] = {}
            for number, name, type_, encoding in rows.fetchmany(MAX_CHANNELS):
                if not (isinstance(name, str) and isinstance(type_, str)):
                    raise_damaged_error("a topic without a name or a type")
                if encoding == "cdr" and MESSAGE_TYPE.fullmatch(type_):
                    topics[number] = name, type_
                else:
                    notes.append(f"{path}: left out: {name} ({type_}, {encoding})")
            query = "SELECT topic_id, timestamp, data FROM messages ORDER BY timestamp, id"
            for number, log_ns, data in base.execute(query):
                if not (isinstance(log_ns, int) and isinstance(data, bytes)):
                    raise_damaged_error("a message without a time or content")
                if number in topics:
                    yield BagEntry(*topics[number], log_ns, log_ns, 0, data)
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise_damaged_error(error)


def make_two_nodes_error(bag: Bag, node: str, other_node: str) -> BagError:
    """Return the error for a bag into which recordings of two policy nodes were merged."""
    return BagError(
        f"{bag.path}: holds the recordings of two nodes, {node.rstrip('/')} and"
        f" {other_node.rstrip('/')}: separate them (mcap filter)"
    )


def is_same_topic(wired_topic: str, recorded_topic: str, namespace: str) -> bool:
    """Return whether a topic name in a wiring file and one in a bag mean the same topic.

    Args:
        wired_topic: The name in the wiring file, which may be relative, or private (`~/x`).
        recorded_topic: The name in the bag, which is a full name.
        namespace: The robot's namespace, which completes a relative name; "" allows any.
    """
    if wired_topic.startswith("/"):
        return wired_topic == recorded_topic
    robot = f"/{namespace.strip('/')}" if namespace.strip("/") else ""
    if wired_topic.startswith("~/"):  # below the policy node, whose name is not known here
        place, _, node = recorded_topic.removesuffix(wired_topic[1:]).rpartition("/")
        return recorded_topic.endswith(wired_topic[1:]) and bool(node) and robot in ("", place)
    if robot:
        return recorded_topic == f"{robot}/{wired_topic}"
    return recorded_topic == f"/{wired_topic}" or recorded_topic.endswith(f"/{wired_topic}")


def load_recorded_wiring(text: str, bag: Path) -> Wiring:
    """Read and check the text of the wiring file that a recording holds.

    Args:
        text: The text.
        bag: The path of the recording, for error messages about the wiring.

    Raises:
        WiringError: The text is not that of a wiring file that can be used.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wiring.yaml"
        path.write_text(text, encoding="utf-8")
        return replace(load_wiring(path), file=f"the wiring in {bag}")
