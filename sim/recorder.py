"""What the camera saw, as a video (.mp4) or as a sheet of pictures over time (.png)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rclpy.node import Node
from sensor_msgs.msg import Image

from an_control_sim.process import RELIABLE

RATE_HZ = 30.0
"""Pictures per simulated second that a recording wants."""
ROWS, COLUMNS = 2, 3


class Recorder:
    """Records the camera topic while it is entered; OSError where the file cannot be written."""

    def __init__(self, node: Node, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._sheet: list[np.ndarray] = []
        self._start_s = float("inf")
        node.create_subscription(Image, "camera/image_raw", self._take, RELIABLE)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.release()
        if self._sheet and self._path.suffix == ".png":
            chosen = np.linspace(0, len(self._sheet) - 1, ROWS * COLUMNS).astype(int)
            rows = chosen.reshape(ROWS, COLUMNS)
            sheet = np.vstack([np.hstack([self._sheet[i] for i in row]) for row in rows])
            written, picture = cv2.imencode(".png", sheet)
            assert written, "pictures side by side are an image"
            self._path.write_bytes(picture.tobytes())

    def _captioned(self, picture: np.ndarray, stamp: Any) -> np.ndarray:
        """A copy with the seconds since the first picture."""
        now_s = stamp.sec + stamp.nanosec * 1e-9
        self._start_s = min(self._start_s, now_s)
        captioned = picture.copy()
        text = f"{now_s - self._start_s:.1f} s"
        cv2.putText(
            captioned, text, (8, 20), cv2.FONT_HERSHEY_SIMPLEX, 0.6, (60, 60, 60), 1, cv2.LINE_AA
        )
        return captioned

    def _take(self, message: Image) -> None:
        shape = (message.height, message.width, 3)
        picture = np.frombuffer(message.data, np.uint8).reshape(shape)[..., ::-1]
        if self._path.suffix == ".png":
            self._sheet.append(self._captioned(picture, message.header.stamp))
            return
        if self._writer is None:
            codec = cv2.VideoWriter.fourcc(*"mp4v")
            size = (message.width, message.height)
            self._writer = cv2.VideoWriter(str(self._path), codec, RATE_HZ, size)
            if not self._writer.isOpened():
                raise OSError(f"{self._path} cannot be written")
        self._writer.write(np.ascontiguousarray(picture))
