"""What a person sees of a simulation: the progress line, and a video or a strip of pictures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from rclpy.node import Node
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from sensor_msgs.msg import Image

from an_control.cli import InputError

STEPS = 1000
STRIP = 6


@contextmanager
def progress(episodes: int) -> Iterator[Callable[[Any], None]]:
    """A progress line; gives the callback that `simulate` calls with its `Progress`."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("return {task.fields[total_reward]:.0f}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns) as line:
        bar = line.add_task("starting", total=episodes * STEPS, total_reward=0.0)

        def tell(state: Any) -> None:
            done = state.episode * STEPS + min(state.steps, STEPS)
            if state.finished is not None:
                done = (state.episode + 1) * STEPS
                one = state.finished
                distance = "" if one.distance_m is None else f", {one.distance_m:.1f} m"
                line.console.print(
                    f"episode {state.episode + 1}: return {one.return_:.0f} in {one.steps} steps"
                    f"{distance}, channels shuffled {one.shuffles}x"
                )
            line.update(
                bar,
                completed=done,
                total_reward=state.return_,
                description=f"episode {state.episode + 1}/{episodes}",
            )

        yield tell


class Recorder:
    """Subscribes to the camera topic and writes a video (.mp4) or a strip of pictures (.png)."""

    RATE_HZ = 30.0

    def __init__(self, node: Node, path: Path) -> None:
        self._path = path
        self._writer: Any = None
        self._strip: list[np.ndarray] = []
        self._start_s = float("inf")
        node.create_subscription(Image, "camera/image_raw", self._take, 10)

    @classmethod
    def of(cls, node: Node, path: Path | None) -> AbstractContextManager[object]:
        """A recorder, or nothing where no path is given; InputError for an unknown ending."""
        if path is None:
            return nullcontext()
        if path.suffix not in (".mp4", ".png"):
            raise InputError(f"--video {path}: must end in .mp4 or .png")
        return cls(node, path)

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.release()
        if self._strip and self._path.suffix == ".png":
            chosen = np.linspace(0, len(self._strip) - 1, STRIP).astype(int)
            cv2.imwrite(str(self._path), np.hstack([self._strip[i] for i in chosen]))

    def _captioned(self, picture: np.ndarray, stamp: Any) -> np.ndarray:
        """A copy with the seconds since the first picture."""
        now_s = stamp.sec + stamp.nanosec * 1e-9
        self._start_s = min(self._start_s, now_s)
        captioned = picture.copy()
        text = f"{now_s - self._start_s:.1f} s"
        cv2.putText(captioned, text, (8, 20), cv2.FONT_HERSHEY_SIMPLEX, 0.6, (60, 60, 60), 1,
                    cv2.LINE_AA)
        return captioned

    def _take(self, message: Image) -> None:
        shape = (message.height, message.width, 3)
        picture = np.frombuffer(message.data, np.uint8).reshape(shape)[..., ::-1]
        if self._path.suffix == ".png":
            self._strip.append(self._captioned(picture, message.header.stamp))
            return
        if self._writer is None:
            codec = cv2.VideoWriter.fourcc(*"mp4v")
            size = (message.width, message.height)
            self._writer = cv2.VideoWriter(str(self._path), codec, self.RATE_HZ, size)
            if not self._writer.isOpened():
                raise InputError(f"--video {self._path}: cannot be written")
        self._writer.write(np.ascontiguousarray(picture))
