"""A recording never holds up who records, and what it has written can be read."""

import errno
import os
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest
import yaml
from diagnostic_msgs.msg import DiagnosticArray
from mcap.reader import make_reader
from mcap_ros2.decoder import DecoderFactory
from rclpy.qos import QoSProfile
from stand import Stand

from an_control.record import writer as writing
from an_control.record.layout import ATTACHMENT, BagEntry, FileHead, Limits
from an_control.record.reader import Bag
from an_control.record.writer import BagFolder, Writer

TEXT = b"\0\1\0\0\6\0\0\0hello\0"
NOTHING = FileHead((), {})


def text(number: int, size: int = 0) -> BagEntry:
    now_ns = 1_000_000_000 + number * 1_000_000
    return BagEntry("/text", "std_msgs/msg/String", now_ns, now_ns, number, TEXT + bytes(size))


class Failures(list):
    """The reasons why a recording has ended, and when there is one."""

    def __init__(self) -> None:
        super().__init__()
        self._there = threading.Event()

    def __call__(self, reason: str) -> None:
        self.append(reason)
        self._there.set()

    def wait(self) -> str:
        assert self._there.wait(20.0)
        return self[0]


def test_all_that_was_put_is_in_the_file_and_in_order(tmp_path: Path) -> None:
    failures = Failures()
    writer = Writer(lambda: BagFolder(tmp_path / "bag", lambda: NOTHING), failures)
    for number in range(1000):
        writer.enqueue([text(number)], len(TEXT))
    writer.close()
    assert [one.sequence for one in Bag(tmp_path / "bag").iterate_entries()] == list(range(1000))
    assert failures == []
    about = yaml.safe_load((tmp_path / "bag/metadata.yaml").read_text())
    about = about["rosbag2_bagfile_information"]
    assert about["message_count"] == 1000
    assert about["duration"]["nanoseconds"] == 999_000_000
    assert about["relative_file_paths"] == ["bag_0.mcap"]


def test_other_readers_open_a_recording(stand: Stand, tmp_path: Path) -> None:
    rosbag2 = pytest.importorskip("rosbags.rosbag2")
    stand.start(record=str(tmp_path / "bags"))
    for step in range(5):
        stand.step(step)
    stand.node.trigger_shutdown()
    (folder,) = (tmp_path / "bags").iterdir()
    with rosbag2.Reader(folder) as reader:
        counts = {one.topic: one.msgcount for one in reader.connections}
        raw = [one for connection, _, one in reader.messages() if connection.topic == "/tilt"]
    assert counts["/joint_states"] == counts["/tilt"] == len(raw) == 5
    assert counts["/policy/record/command"] == 6
    (path,) = folder.glob("*.mcap")
    with path.open("rb") as file:
        reader = make_reader(file, decoder_factories=[DecoderFactory()])
        read = [one for _, channel, _, one in reader.iter_decoded_messages()
                if channel.topic == "/policy/channels"]  # fmt: skip
    assert list(read[0].name) == ["left.position", "right.position", "tilt.x", "tilt.y"]


def test_files_follow_each_other_and_the_oldest_go(tmp_path: Path) -> None:
    head = FileHead((text(99),), {"model:1": b"content"})
    limits = Limits(split_bytes=20_000, total_bytes=60_000)
    bag = BagFolder(tmp_path / "bag", lambda: head, limits)
    noise = bytes(range(256))
    for number in range(200):
        one = text(number)
        bag.write([one._replace(data=TEXT + noise * 4 + number.to_bytes(2, "big") * 500)])
        bag.flush()
    bag.close()
    files = Bag(tmp_path / "bag").files
    assert len(files) > 1
    assert not (tmp_path / "bag/bag_0.mcap").exists()
    assert sum(one.stat().st_size for one in files) < 100_000
    for file in files:
        first, second, *_ = Bag(file).iterate_entries()
        assert (first.topic, first.data) == ("model:1", b"content")
        assert second.sequence == 99
    entries = [*Bag(tmp_path / "bag").iterate_entries()]
    assert entries[-1].sequence == 199
    metadata = yaml.safe_load((tmp_path / "bag/metadata.yaml").read_text())
    about = metadata["rosbag2_bagfile_information"]
    topics = [one["message_count"] for one in about["topics_with_message_count"]]
    messages = sum(one.type != ATTACHMENT for one in entries)
    assert sum(topics) == about["message_count"] == messages


def test_a_model_that_is_larger_than_a_file_may_be_does_not_give_each_message_a_file(
    tmp_path: Path,
) -> None:
    head = FileHead((), {"model:1": bytes(range(256)) * 100})
    bag = BagFolder(tmp_path / "bag", lambda: head, Limits(split_bytes=2_000))
    for number in range(100):
        bag.write([text(number, size=80)])
    bag.close()
    assert 4 <= len(Bag(tmp_path / "bag").files) <= 6  # 100 messages of about 100 bytes


class Broken:
    """A file on a disk that is full after some writes, or slow."""

    def __init__(
        self,
        path: Path,
        writes: int = 1 << 30,
        wait_s: float = 0.0,
        error: int = errno.ENOSPC,
    ) -> None:
        self._file, self._writes = path.open("wb"), writes
        self._wait_s, self._error = wait_s, error

    def write(self, data: bytes) -> int:
        self._writes -= 1
        if self._writes < 0:
            raise OSError(self._error, os.strerror(self._error))
        time.sleep(self._wait_s)
        return self._file.write(data)

    def __getattr__(self, name: str):
        return getattr(self._file, name)


def test_a_full_disk_ends_the_recording_and_what_is_there_can_be_read(tmp_path: Path) -> None:
    failures = Failures()

    def make() -> BagFolder:
        folder = tmp_path / "bag"
        return BagFolder(folder, lambda: NOTHING, open_file=lambda path: Broken(path, 30))

    writer = Writer(make, failures)
    number = 0
    while not writer.stopped and number < 10_000:
        writer.enqueue([text(number)], len(TEXT))
        number += 1
        time.sleep(0.002)
    assert failures.wait() == "No space left on device"
    assert writer.stopped == "No space left on device"
    writer.enqueue([text(0)], len(TEXT))
    assert writer.waiting_bytes == 0
    writer.close()
    bag = Bag(tmp_path / "bag")
    read = [one.sequence for one in bag.iterate_entries()]
    assert read == list(range(len(read)))
    assert len(read) > 0


def test_a_disk_of_50_ms_a_write_holds_up_nobody(tmp_path: Path) -> None:
    failures = Failures()

    def make() -> BagFolder:
        folder = tmp_path / "bag"
        return BagFolder(folder, lambda: NOTHING, open_file=lambda path: Broken(path, wait_s=0.05))

    writer = Writer(make, failures)
    longest_s = 0.0
    for number in range(100):
        begin_s = time.thread_time()
        writer.enqueue([text(number)], len(TEXT))
        longest_s = max(longest_s, time.thread_time() - begin_s)
        time.sleep(0.01)
    writer.close(20.0)
    assert longest_s < 0.01
    assert writer.slowest_s > 0.05
    assert [one.sequence for one in Bag(tmp_path / "bag").iterate_entries()] == list(range(100))


def test_a_disk_that_hangs_ends_the_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writing, "MAX_WAITING_BYTES", 100_000)
    hangs, failures = threading.Event(), Failures()

    class Hanging(Broken):
        def write(self, data: bytes) -> int:
            hangs.wait(20.0)
            return super().write(data)

    writer = Writer(
        lambda: BagFolder(tmp_path / "bag", lambda: NOTHING, open_file=Hanging), failures
    )
    for number in range(1000):
        writer.enqueue([text(number, 1000)], 1000)
    assert "the disk is too slow" in failures.wait()
    assert writer.waiting_bytes == 0
    hangs.set()
    writer.close()


class Reports(list[DiagnosticArray]):
    """The diagnostics of a stand's node."""

    def __init__(self, stand: Stand) -> None:
        super().__init__()
        stand.peer.create_subscription(
            DiagnosticArray, "/diagnostics", self.append, QoSProfile(depth=10)
        )

    def recording(self) -> list[tuple[str, dict[str, str]]]:
        """Return what they say of the recording: in words, and figures."""
        return [
            (one.message, {pair.key: pair.value for pair in one.values})
            for report in self
            for one in report.status
            if "recording" in one.name
        ]


def test_the_robot_walks_on_where_nothing_can_be_written(stand: Stand, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    reports = Reports(stand)
    stand.start(record=str(tmp_path / "file/bags"))
    for step in range(10):
        stand.step(step)
    stand.until(
        lambda: any("recording has ended" in text for text, _ in reports.recording()), "a report"
    )
    assert any("Not a directory" in text for text, _ in reports.recording())
    stand.step(10)


@pytest.mark.parametrize(
    ("writes", "error"), [(0, errno.EROFS), (3, errno.ENOSPC)], ids=["read-only", "full"]
)
def test_the_robot_walks_on_where_the_disk_refuses(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, writes: int, error: int
) -> None:
    def refusing(path: Path) -> Broken:
        return Broken(path, writes, error=error)

    monkeypatch.setattr(writing, "BagFolder", partial(BagFolder, open_file=refusing))
    reports = Reports(stand)
    stand.start(record=str(tmp_path / "bags"))
    ended = f"recording has ended: {os.strerror(error)}"
    for step in range(10):
        stand.step(step)
    stand.until(lambda: ended in [text for text, _ in reports.recording()], "a report")
    for step in range(10, 20):
        stand.step(step)


def test_the_robot_walks_on_where_each_write_takes_50_ms(
    stand: Stand, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = partial(BagFolder, open_file=partial(Broken, wait_s=0.05))
    monkeypatch.setattr(writing, "BagFolder", slow)
    reports = Reports(stand)
    stand.start(record=str(tmp_path / "bags"))
    for step in range(20):
        stand.step(step)
    stand.until(
        lambda: any(
            text == "recording" and float(values["slowest write [ms]"]) >= 50.0
            for text, values in reports.recording()
        ),
        "a report of slow writes",
    )
    stand.node.trigger_shutdown()
    (folder,) = (tmp_path / "bags").iterdir()
    commands = [
        one for one in Bag(folder).iterate_entries() if one.topic.endswith("record/command")
    ]
    assert len(commands) == 21


WRITING = """
import sys, time
from pathlib import Path
from an_control.record.layout import BagEntry, FileHead
from an_control.record.writer import BagFolder, Writer
data = b"\\0\\1\\0\\0\\6\\0\\0\\0hello\\0"
writer = Writer(lambda: BagFolder(Path(sys.argv[1]), lambda: FileHead((), {})), print)
while True:
    now_ns = time.time_ns()
    writer.enqueue([BagEntry("/text", "std_msgs/msg/String", now_ns, now_ns, 0, data)] * 10, 200)
    print(now_ns, flush=True)
    time.sleep(0.005)
"""


def test_a_killed_process_loses_less_than_a_second(tmp_path: Path) -> None:
    for number in range(3):
        folder = tmp_path / f"bag{number}"
        command = [sys.executable, "-c", WRITING, str(folder)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            first_ns = last_ns = int(process.stdout.readline())
            while last_ns - first_ns < (1.3 + 0.17 * number) * 1e9:
                last_ns = int(process.stdout.readline())
            process.kill()
            last_ns = max([last_ns, *(int(one) for one in process.stdout.read().split())])
        bag = Bag(folder)
        read = [one.log_ns for one in bag.iterate_entries()]
        assert last_ns - read[-1] < 1e9
        assert "was not finished" in bag.notes[0]
