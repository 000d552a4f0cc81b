"""Records camera pictures as a video (.mp4) or as a sheet (.png): one image of many pictures."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import Image

from an_control.system.files import replace_file_atomically, write_file
from an_control_sim.process import RELIABLE

RATE_HZ = 30.0
"""Pictures per simulated second in a recording."""
ROWS, COLUMNS = 2, 3
PROBE_BYTES = 2**16
MAX_WAITING = 100
"""Maximum number of a topic's pictures that wait for pictures with the same stamp on the other
topics."""
MAX_SHEET_PICTURES = 240
"""Maximum number of pictures from which a sheet (.png) is made; beyond it every second picture is
dropped."""


class Recorder:
    """A recorder of camera pictures; a context manager that writes the file at its exit.

    Args:
        node: The node that subscribes.
        path: The file to write: .mp4 for a video, .png for a grid of pictures of the whole run.
        topics: The image topics; pictures with the same stamp are shown side by side, scaled to the
            same height.
        rate_hz: Pictures per second of the video.

    Raises:
        OSError: The file cannot be written; raised while recording or at the exit.
    """

    def __init__(
        self,
        node: Node,
        path: Path,
        topics: Sequence[str] = ("camera/image_raw",),
        rate_hz: float = RATE_HZ,
    ) -> None:
        self._path, self._rate_hz = path, rate_hz
        self._file, self._beside = ExitStack(), path
        self._waiting: list[dict[int, np.ndarray]] = [{} for _ in topics]
        self._writer: Any = None
        self._sheet: list[np.ndarray] = []
        self._stride = 1
        self._start_s = float("inf")
        self.pictures = 0
        """Number of recorded pictures."""
        for waiting, topic in zip(self._waiting, topics, strict=True):
            node.create_subscription(
                Image, topic, partial(self._store_picture_and_record_if_complete, waiting), RELIABLE
            )

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            with self._file:
                self._writer.release()
                _check_video_is_complete(self._beside, self.pictures)
        if self._sheet and self._path.suffix == ".png":
            chosen = np.linspace(0, len(self._sheet) - 1, ROWS * COLUMNS).astype(int)
            rows = chosen.reshape(ROWS, COLUMNS)
            sheet = np.vstack([np.hstack([self._sheet[i] for i in row]) for row in rows])
            written, picture = cv2.imencode(".png", sheet)
            assert written, "pictures side by side are an image"
            write_file(self._path, picture.tobytes())

    def _add_picture_to_sheet(self, picture: np.ndarray, now_s: float) -> None:
        """Store a picture for the sheet, the .png image that is written at the end.

        Only every n-th picture is stored. The number n grows with the number of pictures, so that
        memory stays bounded.
        """
        if self.pictures % self._stride == 0:
            self._sheet.append(self._add_caption(picture, now_s))
        if len(self._sheet) == MAX_SHEET_PICTURES:
            del self._sheet[1::2]
            self._stride *= 2

    def _add_caption(self, picture: np.ndarray, now_s: float) -> np.ndarray:
        """Return a copy of a picture with a caption: the seconds since the first picture."""
        self._start_s = min(self._start_s, now_s)
        captioned = picture.copy()
        text = f"{now_s - self._start_s:.1f} s"
        cv2.putText(
            captioned, text, (8, 20), cv2.FONT_HERSHEY_SIMPLEX, 0.6, (60, 60, 60), 1, cv2.LINE_AA
        )
        return captioned

    def _store_picture_and_record_if_complete(
        self, waiting_by_stamp_ns: dict[int, np.ndarray], message: Image
    ) -> None:
        """Store a topic's picture until all topics have sent one with its stamp; then record these.

        They are recorded side by side as one picture, and are no longer stored.
        """
        stamp_ns = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        channels = 1 if message.encoding == "mono8" else 3
        shape = (message.height, message.width, channels)
        pixels = np.frombuffer(message.data, np.uint8).reshape(shape)
        waiting_by_stamp_ns[stamp_ns] = np.broadcast_to(pixels, (*shape[:2], 3))[..., ::-1]
        while len(waiting_by_stamp_ns) > MAX_WAITING:
            del waiting_by_stamp_ns[min(waiting_by_stamp_ns)]
        if all(stamp_ns in one for one in self._waiting):
            pictures = [one.pop(stamp_ns) for one in self._waiting]
            height = max(len(picture) for picture in pictures)
            self._record_picture(
                np.hstack([_scale_to_height(one, height) for one in pictures]), stamp_ns / 1e9
            )
            self.pictures += 1

    def _record_picture(self, picture: np.ndarray, now_s: float) -> None:
        """Add a picture to the recorded file: to the sheet of a .png, else to the video."""
        if self._path.suffix == ".png":
            self._add_picture_to_sheet(picture, now_s)
            return
        if self._writer is None:
            codec = cv2.VideoWriter.fourcc(*"mp4v")
            size = (picture.shape[1], picture.shape[0])
            self._beside = self._file.enter_context(replace_file_atomically(self._path))
            self._writer = cv2.VideoWriter(str(self._beside), codec, self._rate_hz, size)
            if not self._writer.isOpened():
                raise OSError(f"{self._path} cannot be written")
        self._writer.write(np.ascontiguousarray(picture))


def _check_video_is_complete(path: Path, picture_count: int) -> None:
    """Check that a video file has as many pictures as were written to it.

    The encoder itself does not report errors, such as a full disk.
    """
    video = cv2.VideoCapture(str(path))
    written = 0
    while video.grab():
        written += 1
    video.release()
    if written == picture_count > 0:
        return
    with path.open("ab") as file:  # if the disk is full, this raises the system's error
        file.write(bytes(PROBE_BYTES))
    raise OSError(errno.EIO, f"only {written} of {picture_count} pictures were written")


def _scale_to_height(picture: np.ndarray, height: int) -> np.ndarray:
    """Return the picture (H, W, 3) scaled to this height in pixels, with its proportions."""
    width = picture.shape[1] * height // picture.shape[0]
    return np.asarray(
        cv2.resize(picture, (width, height), interpolation=cv2.INTER_NEAREST), np.uint8
    )
