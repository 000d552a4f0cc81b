"""Bags of others are read, and what is wrong with one is said in one line."""

import random
import sqlite3
import struct
import tracemalloc
from pathlib import Path

import pytest
from mcap.writer import CompressionType
from mcap.writer import Writer as McapWriter

from an_control.record import reader
from an_control.record.layout import BagEntry, BagError, FileHead
from an_control.record.reader import Bag, is_same_topic
from an_control.record.writer import BagFolder

TEXT = b"\0\1\0\0\6\0\0\0hello\0"


def made(folder: Path, count: int = 200) -> Path:
    bag = BagFolder(folder, lambda: FileHead((), {"model:0": b"x" * 5000}))
    for number in range(count):
        bag.write([BagEntry("/text", "std_msgs/msg/String", number, number, number, TEXT)])
        if number % 50 == 49:
            bag.flush()
    bag.close()
    return folder / f"{folder.name}_0.mcap"


@pytest.mark.parametrize("storage", ["sqlite3", "mcap"])
def test_a_bag_that_rosbags_wrote_is_read(tmp_path: Path, storage: str) -> None:
    rosbag2 = pytest.importorskip("rosbags.rosbag2")
    from rosbags.typesys import Stores, get_typestore

    store = get_typestore(Stores.ROS2_HUMBLE)
    string = store.types["std_msgs/msg/String"]
    plugin = getattr(rosbag2.StoragePlugin, storage.upper())
    with rosbag2.Writer(tmp_path / "bag", version=8, storage_plugin=plugin) as writer:
        topic = writer.add_connection("/text", string.__msgtype__, typestore=store)
        for number in range(5):
            data = store.serialize_cdr(string(f"number {number}"), string.__msgtype__)
            writer.write(topic, number, data)
    read = list(Bag(tmp_path / "bag").iterate_entries())
    assert [one.log_ns for one in read] == list(range(5))
    assert {(one.topic, one.type) for one in read} == {("/text", "std_msgs/msg/String")}
    assert bytes(read[3].data[8:16]) == b"number 3"


@pytest.mark.parametrize("compression", list(CompressionType))
def test_each_compression_is_unpacked(tmp_path: Path, compression: CompressionType) -> None:
    path = tmp_path / "one.mcap"
    with path.open("wb") as file:
        writer = McapWriter(file, compression=compression)
        writer.start()
        schema = writer.register_schema("std_msgs/msg/String", "ros2msg", b"string data")
        channel = writer.register_channel("/text", "cdr", schema)
        other = writer.register_channel("/json", "json", 0)
        for number in range(5):
            writer.add_message(channel, number, TEXT, number, number)
            writer.add_message(other, number, b"{}", number, number)
        writer.finish()
    bag = Bag(path)
    assert [one.sequence for one in bag.iterate_entries()] == list(range(5))
    assert bag.notes == [f"{path}: left out: /json (, json)"]


def test_the_last_file_may_be_empty_as_its_recorder_was_killed(tmp_path: Path) -> None:
    first = made(tmp_path / "bag")
    (first.parent / "metadata.yaml").unlink(missing_ok=True)
    last = first.with_name("bag_1.mcap")
    last.touch()
    bag = Bag(tmp_path / "bag")
    assert len([one for one in bag.iterate_entries() if one.topic == "/text"]) == 200
    assert bag.notes == [f"{last}: is empty"]
    first.write_bytes(b"")
    with pytest.raises(BagError, match=r"bag_0\.mcap: is not an MCAP file"):
        list(Bag(tmp_path / "bag").iterate_entries())


def test_a_file_that_ends_anywhere_is_read_up_to_there(tmp_path: Path) -> None:
    path = made(tmp_path / "bag")
    content = path.read_bytes()
    before = 0
    for size in range(8, len(content), 97):
        path.write_bytes(content[:size])
        bag = Bag(path)
        read = [one.sequence for one in bag.iterate_entries() if one.type]
        assert read == list(range(len(read)))
        assert len(read) >= before
        assert len(read) == 200 or "was not finished" in bag.notes[0]
        before = len(read)
    assert before == 200


def outcome(path: Path) -> str:
    """Read all of a bag: "" or the line that says what is wrong."""
    try:
        for _ in Bag(path).iterate_entries():
            pass
    except BagError as error:
        return str(error)
    return ""


def test_a_damaged_file_gets_one_line_and_no_memory(tmp_path: Path) -> None:
    path = made(tmp_path / "bag")
    content, rng = path.read_bytes(), random.Random(0)
    lines = set()
    tracemalloc.start()
    for _ in range(400):
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 8)):
            place = rng.randrange(len(damaged) - 8)
            if rng.random() < 0.5:
                damaged[place] = rng.randrange(256)
            else:  # a length
                damaged[place : place + 8] = struct.pack("<Q", rng.choice([2**31, 2**40, 2**63]))
        path.write_bytes(damaged)
        lines.add(outcome(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 32 * 2**20
    assert len(lines) > 10
    assert all("\n" not in one for one in lines)
    assert all(one.startswith(str(path)) for one in lines if one)


def chunk(claimed: int, compression: str, data: bytes) -> bytes:
    name = compression.encode()
    body = struct.pack("<QQQI", 0, 0, claimed, 0) + struct.pack("<I", len(name)) + name
    body += struct.pack("<Q", len(data)) + data
    return reader._MAGIC + reader._RECORD_HEAD.pack(6, len(body)) + body


def test_a_chunk_that_would_unpack_to_too_much_is_refused(tmp_path: Path) -> None:
    import lz4.frame
    import zstandard

    bomb = bytes(2**26)
    path = tmp_path / "bomb.mcap"
    for name, data in (
        ("zstd", zstandard.compress(bomb)),
        ("lz4", lz4.frame.compress(bomb)),
        ("", b"short"),
        ("rar", b"x"),
    ):
        for claimed in (100, 2**29 + 1, 2**62):
            path.write_bytes(chunk(claimed, name, data) + bytes([2]) + bytes(100))
            tracemalloc.start()
            line = outcome(path)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            assert "is damaged at byte" in line, (name, claimed)
            assert peak < 16 * 2**20, (name, claimed)


def test_a_sparse_file_of_10_gb_is_refused_at_once(tmp_path: Path) -> None:
    for suffix, head in ((".mcap", reader._MAGIC), (".db3", b"SQLite format 3\0")):
        path = tmp_path / f"sparse{suffix}"
        with path.open("wb") as file:
            file.write(head)
            file.truncate(10 * 2**30)
        assert "damaged" in outcome(path)
    path = tmp_path / "long.mcap"
    with path.open("wb") as file:
        file.write(reader._MAGIC + reader._RECORD_HEAD.pack(6, 9 * 2**30))
        file.truncate(10 * 2**30)
    assert "a record of 9663676416 bytes" in outcome(path)


def test_a_damaged_sqlite_file_gets_one_line(tmp_path: Path) -> None:
    path = tmp_path / "bag.db3"
    base = sqlite3.connect(path)
    base.executescript(
        "CREATE TABLE topics(id INTEGER PRIMARY KEY, name TEXT, type TEXT,"
        " serialization_format TEXT, offered_qos_profiles TEXT);"
        "CREATE TABLE messages(id INTEGER PRIMARY KEY, topic_id INTEGER, timestamp INTEGER,"
        " data BLOB);"
        "INSERT INTO topics VALUES (1, '/text', 'std_msgs/msg/String', 'cdr', '');"
    )
    for number in range(500):
        base.execute("INSERT INTO messages VALUES (?, 1, ?, ?)", (number, number, TEXT))
    base.commit()
    base.close()
    assert len(list(Bag(path).iterate_entries())) == 500
    content, rng = path.read_bytes(), random.Random(1)
    for _ in range(200):
        damaged = bytearray(content)
        for _ in range(rng.randint(1, 30)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        path.write_bytes(damaged)
        line = outcome(path)
        assert "\n" not in line
    for statement in ("UPDATE messages SET data = 'text'", "UPDATE topics SET name = 5"):
        path.write_bytes(content)
        base = sqlite3.connect(path)
        base.execute(statement)
        base.commit()
        base.close()
        assert "damaged" in outcome(path) or statement.startswith("UPDATE topics")


def test_what_is_no_bag_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty.mcap").write_bytes(b"")
    (tmp_path / "text.txt").write_text("hello")
    (tmp_path / "folder.mcap").mkdir()
    metadata = tmp_path / "other"
    metadata.mkdir()
    (metadata / "metadata.yaml").write_text(
        "rosbag2_bagfile_information: {relative_file_paths: [../../etc/passwd]}"
    )
    lines = {
        tmp_path / "empty": "has neither a .mcap nor a .db3 file",
        tmp_path / "empty.mcap": "is not an MCAP file",
        tmp_path / "text.txt": "must be a folder, or a .mcap or .db3 file",
        tmp_path / "folder.mcap": "has neither a .mcap nor a .db3 file",
        tmp_path / "nothing": "must be a folder",
        tmp_path / "nothing.mcap": "No such file or directory",
        metadata: "must be a .mcap or a .db3 file",
    }
    for path, line in lines.items():
        assert line in outcome(path)
    for text in (
        "",
        "a: [",
        "rosbag2_bagfile_information: 5",
        "&a [*a]",
        "x: !!python/name:os.system",
    ):
        (metadata / "metadata.yaml").write_text(text)
        assert "is not the metadata of a rosbag2 bag" in outcome(metadata)
    (metadata / "metadata.yaml").write_text(
        "rosbag2_bagfile_information: {relative_file_paths: [a.db3.zstd], compression_format: zstd}"
    )
    assert "is compressed by rosbag2" in outcome(metadata)


@pytest.mark.parametrize(
    ("wired", "recorded", "namespace", "same"),
    [
        ("~/x", "/robot/policy/x", "robot", True),
        ("~/x", "/robot/x", "robot", False),
        ("~/x", "/other/policy/x", "robot", False),
        ("~/x", "/robot/policy/x", "", True),
        ("~/x", "/policy/x", "", True),
        ("~/x", "/x", "", False),
        ("x", "/robot/x", "/robot/", True),
        ("x", "/robot/policy/x", "robot", False),
        ("/x", "/robot/x", "robot", False),
    ],
)
def test_a_private_topic_is_below_the_policy_node(wired, recorded, namespace, same) -> None:
    assert is_same_topic(wired, recorded, namespace) == same
