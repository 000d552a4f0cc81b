"""What a recording holds: pictures of one stamp side by side."""

from __future__ import annotations

import resource
import time
from contextlib import ExitStack

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("cv2")

import cv2
from sensor_msgs.msg import Image

from an_control.cli.sim import _make_video_recorder
from an_control.system.files import WriteError
from an_control.system.share import find_share_path
from an_control.wiring import load_wiring
from an_control_sim.bridge.publishers import fill_image
from an_control_sim.bridge.recorder import MAX_SHEET_PICTURES, Recorder
from an_control_sim.bridge.simulation_file import load_simulation
from an_control_sim.process import initialise_ros_and_create_node, make_events_executor


def picture(stamp: int, pixels: np.ndarray) -> Image:
    message = Image()
    fill_image(message, pixels)
    message.header.stamp.sec = stamp
    return message


@pytest.mark.parametrize("suffix", [".png", ".mp4"])
def test_pictures_of_one_stamp_are_shown_side_by_side_in_one_height(tmp_path, suffix):
    path = tmp_path / f"seen{suffix}"
    eye = np.full((24, 24), 90, np.uint8)
    looked = np.zeros((96, 96, 3), np.uint8)
    looked[..., 0] = 200  # red
    with (
        initialise_ros_and_create_node("recorder", "here") as node,
        Recorder(node, path, ("eye", "looked"), 10.0) as recorder,
    ):
        executor = make_events_executor(node.context)
        executor.add_node(node)
        publishers = [node.create_publisher(Image, topic, 10) for topic in ("eye", "looked")]
        end_s = time.monotonic() + 100.0
        for one in publishers:
            while not one.get_subscription_count():
                assert time.monotonic() < end_s
                executor.spin_once(timeout_sec=0.02)
        for stamp in (1, 2, 3):
            publishers[0].publish(picture(stamp, eye))
            if stamp != 2:
                publishers[1].publish(picture(stamp, looked))
        while recorder.pictures < 2:
            assert time.monotonic() < end_s
            executor.spin_once(timeout_sec=0.02)
        executor.remove_node(node)
        executor.shutdown()
    if suffix == ".mp4":
        video = cv2.VideoCapture(str(path))
        count, (there, seen) = int(video.get(cv2.CAP_PROP_FRAME_COUNT)), video.read()
        assert there and count == 2 and seen.shape == (96, 192, 3)
        return
    sheet = cv2.imread(str(path))
    assert sheet.shape == (2 * 96, 3 * 192, 3)
    np.testing.assert_array_equal(sheet[90, 10], [90, 90, 90])
    np.testing.assert_array_equal(sheet[90, 150], [0, 0, 200])  # as OpenCV has it: blue first


def test_a_video_on_a_disk_that_fills_is_refused_and_leaves_no_file(tmp_path):
    path = tmp_path / "seen.mp4"
    noise = np.random.default_rng(0).integers(0, 255, (240, 320, 3), np.uint8)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (
        ExitStack() as stack,
        initialise_ros_and_create_node("recorder", "full") as node,
        pytest.raises(WriteError) as refused,
    ):
        recorder = Recorder(node, path, ("eye",), 10.0)
        with recorder:
            for stamp in range(1, 21):
                recorder._store_picture_and_record_if_complete(
                    recorder._waiting[0], picture(stamp, noise)
                )
            resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
            stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, before)
    assert str(refused.value) == f"{path}: File too large"
    assert not list(tmp_path.iterdir())


def test_a_video_into_a_folder_that_is_not_there_names_it(tmp_path):
    path = tmp_path / "gone" / "seen.mp4"
    with (
        initialise_ros_and_create_node("recorder", "gone") as node,
        pytest.raises(WriteError) as refused,
    ):
        recorder = Recorder(node, path, ("eye",), 10.0)
        with recorder:
            recorder._store_picture_and_record_if_complete(
                recorder._waiting[0], picture(1, np.zeros((24, 24, 3), np.uint8))
            )
    assert str(refused.value) == f"{path}: No such file or directory"


def test_a_sheet_of_a_long_run_is_chosen_from_few_pictures_over_all_of_it(tmp_path):
    path, pixels = tmp_path / "seen.png", np.zeros((24, 96, 3), np.uint8)
    with (
        initialise_ros_and_create_node("recorder", "long") as node,
        Recorder(node, path, ("eye",)) as recorder,
    ):
        kept = []
        for stamp in range(1, 3 * MAX_SHEET_PICTURES + 1):
            pixels[0, 0, 0] = stamp * 255 // (3 * MAX_SHEET_PICTURES)
            recorder._store_picture_and_record_if_complete(
                recorder._waiting[0], picture(stamp, pixels)
            )
            kept.append(len(recorder._sheet))
    assert max(kept) < MAX_SHEET_PICTURES and kept[-1] > MAX_SHEET_PICTURES // 4
    sheet = cv2.imread(str(path))
    first, last = sheet[0, 0, 2], sheet[24, 192, 2]
    assert first == 0 and last > 250


@pytest.mark.parametrize(
    ("task", "added", "topics", "rate_hz"),
    [
        ("ant", "", {"/seen/camera/image_raw"}, 1.0 / (2 * 0.0165)),
        ("pong", "", {"/seen/camera/image_raw", "/seen/policy/attended"}, 15.0),
        (
            "pong",
            "  body: {topic: imu, type: sensor_msgs/msg/Imu, max_age_s: 0.5}\n",
            {"/seen/camera/image_raw", "/seen/policy/attended"},
            15.0,
        ),
    ],
)
def test_a_recording_is_of_the_camera_at_the_rate_at_which_its_pictures_come(
    tmp_path, task, added, topics, rate_hz
):
    text = find_share_path(f"config/{task}.yaml").read_text()
    (tmp_path / "robot.yaml").write_text(text.replace("sources:\n", f"sources:\n{added}"))
    simulation = load_simulation(find_share_path(f"config/{task}_sim.yaml"))
    wiring = load_wiring(tmp_path / "robot.yaml")
    with initialise_ros_and_create_node("recorder", "seen") as node:
        recorder = _make_video_recorder(node, tmp_path / "seen.mp4", simulation, wiring)
        listened = {one.topic_name for one in node.subscriptions}
    assert topics == {one for one in listened if one.startswith("/seen")}
    assert recorder._rate_hz == pytest.approx(rate_hz)
