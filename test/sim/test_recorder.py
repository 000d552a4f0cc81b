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

from an_control.system.files import WriteError
from an_control_sim.bridge.publishers import fill_image
from an_control_sim.bridge.recorder import Recorder
from an_control_sim.process import new_executor, ros_node


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
        ros_node("recorder", "here") as node,
        Recorder(node, path, ("eye", "looked"), 10.0) as recorder,
    ):
        executor = new_executor(node.context)
        executor.add_node(node)
        publishers = [node.create_publisher(Image, topic, 10) for topic in ("eye", "looked")]
        end_s = time.monotonic() + 20.0
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
        ros_node("recorder", "full") as node,
        pytest.raises(WriteError) as refused,
    ):
        recorder = Recorder(node, path, ("eye",), 10.0)
        with recorder:
            for stamp in range(1, 21):
                recorder._take(recorder._waiting[0], picture(stamp, noise))
            resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
            stack.callback(resource.setrlimit, resource.RLIMIT_FSIZE, before)
    assert str(refused.value) == f"{path}: File too large"
    assert not list(tmp_path.iterdir())


def test_a_video_into_a_folder_that_is_not_there_names_it(tmp_path):
    path = tmp_path / "gone" / "seen.mp4"
    with ros_node("recorder", "gone") as node, pytest.raises(WriteError) as refused:
        recorder = Recorder(node, path, ("eye",), 10.0)
        with recorder:
            recorder._take(recorder._waiting[0], picture(1, np.zeros((24, 24, 3), np.uint8)))
    assert str(refused.value) == f"{path}: No such file or directory"
