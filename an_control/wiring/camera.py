"""From images to patches: crop, gray, resize, the newest frames of each patch.

An image that is not what the wiring says (its size, its encoding, its length), and one in which
there is nothing to see, makes all its patches missing, with the reason. The frame after it, the
first of an episode, and one that comes too long after the last, fill the whole stack, as does the
first of a patch that was hidden: a patch never shows a change that nobody saw.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.config import ChannelConfig
from an_control.wiring.image import ImageConfig, cut
from an_control.wiring.messages import ALL
from an_control.wiring.readers import Reader, Row

BLACK = 8
"""An image none of whose pixels is at least this bright, of 255, shows nothing."""
LARGEST_IMAGE = 2**25
"""Pixels of a compressed image, above which it is not unpacked."""
PIXEL_BYTES = {"mono8": 1, "mono16": 2, "rgb8": 3, "bgr8": 3, "rgba8": 4, "bgra8": 4}
_IMAGE = {"height", "width", "encoding", "is_bigendian", "step", "data"}
_COMPRESSED = {"format", "data"}
Gray = NDArray[np.uint8]


def is_image(fields: Any) -> bool:
    """Whether a message with these fields is an Image or a CompressedImage."""
    return set(fields) >= _IMAGE or set(fields) >= _COMPRESSED


def needs_opencv() -> bool:
    """Whether OpenCV, without which no image can be read, is missing."""
    return importlib.util.find_spec("cv2") is None


class CameraReader(Reader):
    """One image of a source as its patches; `limit_ns`: a longer pause fills the stack again."""

    invalid = "the patch is missing"

    def __init__(self, config: ChannelConfig, fields: Any, limit_ns: int) -> None:
        assert config.image is not None
        # OpenCV reads it when it is imported, which nothing here has done yet.
        os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(LARGEST_IMAGE))
        image = self.image = config.image
        super().__init__([(config.id.replace(ALL, label), config) for label in image.labels()])
        self._gray = _gray if set(fields) >= _IMAGE else _unpacked
        self._limit_ns = limit_ns
        self._hidden: NDArray[np.bool_] | None = None
        self.frames = np.zeros((image.stack, *image.size), np.uint8)
        """(stack, height, width), newest last."""
        self.patches = cut(self.frames, image.patch)
        """(N, stack, patch, patch), in the order of `ids`."""
        self.reset()

    def reset(self) -> None:
        self._stamp_ns: int | None = None

    def take_over(self, old: Reader) -> None:
        if isinstance(old, CameraReader) and old.image == self.image:
            self.frames, self.patches = old.frames.copy(), old.patches.copy()
            self._stamp_ns, self._hidden = old._stamp_ns, old._hidden

    def read(self, message: Any, row: Row) -> None:
        stamp_ns = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        if not stamp_ns or stamp_ns != self._stamp_ns:
            self._see(message, stamp_ns)
        row[:] = 0.0
        if self._hidden is not None:
            row[self._hidden] = np.nan

    def _see(self, message: Any, stamp_ns: int) -> None:
        """Take up a new frame, or raise and start a new stack."""
        before_ns, self._stamp_ns = self._stamp_ns, None
        gray, alpha = self._gray(message, self.image)
        if gray.max() < BLACK:
            raise ValueError("a black image")
        gray = _resized(gray, self.image.size)
        for top, left, height, width in self.image.black:
            gray[top : top + height, left : left + width] = 0
        pause_ns = stamp_ns - before_ns if before_ns and stamp_ns else 1
        if before_ns is None or not 0 < pause_ns <= self._limit_ns:
            self.frames[:] = gray
        else:
            self.frames[:-1] = self.frames[1:]
            self.frames[-1] = gray
        self.patches = cut(self.frames, self.image.patch)
        self._hide(alpha)
        self._stamp_ns = stamp_ns

    def _hide(self, alpha: Gray | None) -> None:
        """Note which patches are missing, and let those that no longer are start a new stack."""
        before, self._hidden = self._hidden, None
        if alpha is not None:
            seen = cut(_resized(alpha, self.image.size)[None], self.image.patch)
            self._hidden = seen.reshape(len(seen), -1).max(axis=1) == 0
        if before is None:
            return
        back = before if self._hidden is None else before & ~self._hidden
        if back.any():
            rows, columns = self.image.grid
            part = self.image.patch
            whole = self.frames[:, : rows * part, : columns * part]
            spread = np.repeat(np.repeat(back.reshape(rows, columns), part, 0), part, 1)
            whole[:, spread] = whole[-1, spread]
            self.patches = cut(self.frames, part)


def _gray(message: Any, image: ImageConfig) -> tuple[Gray, Gray | None]:
    """The gray part (H, W) of an Image that is used, and its alpha where it has one."""
    encoding = str(message.encoding)
    if encoding not in PIXEL_BYTES:
        raise ValueError(f"encoding {encoding[:40]!r} is not one of {', '.join(PIXEL_BYTES)}")
    _check_size(message.height, message.width, image)
    depth, step = PIXEL_BYTES[encoding], int(message.step)
    data = np.frombuffer(message.data, np.uint8)
    if step < message.width * depth:
        raise ValueError(f"a step of {step} bytes for rows of {message.width * depth}")
    if len(data) != message.height * step:
        raise ValueError(f"{len(data)} bytes, not {message.height} rows of {step}")
    pixels = data.reshape(message.height, step)[:, : message.width * depth]
    if encoding == "mono16":
        high = 0 if message.is_bigendian else 1  # of each pixel's two bytes
        return _cropped(pixels[:, high::2], image).copy(), None
    picture = _cropped(pixels.reshape(message.height, message.width, depth), image)
    if depth == 1:
        return picture[:, :, 0].copy(), None
    gray = _convert(f"{encoding[:-1].upper()}2GRAY")(picture)
    return gray, np.ascontiguousarray(picture[:, :, 3]) if depth == 4 else None


def _unpacked(message: Any, image: ImageConfig) -> tuple[Gray, Gray | None]:
    """The gray part (H, W) of a CompressedImage that is used."""
    import cv2

    data = np.frombuffer(message.data, np.uint8)
    try:
        picture = cv2.imdecode(data, cv2.IMREAD_COLOR) if len(data) else None
    except cv2.error:  # larger than it may be, or of a kind that cannot be
        picture = None
    if picture is None:
        raise ValueError(
            f"{len(data)} bytes that are no image, format {str(message.format)[:40]!r}"
        )
    _check_size(picture.shape[0], picture.shape[1], image)
    return _convert("BGR2GRAY")(_cropped(np.asarray(picture, np.uint8), image)), None


def _check_size(height: int, width: int, image: ImageConfig) -> None:
    expected = image.frame or image.size
    if (height, width) != expected:
        raise ValueError(f"{height} x {width} pixels, not {expected[0]} x {expected[1]}")


def _cropped(picture: Gray, image: ImageConfig) -> Gray:
    if image.crop is None:
        return picture
    top, left, height, width = image.crop
    return picture[top : top + height, left : left + width]


def _resized(gray: Gray, size: tuple[int, int]) -> Gray:
    """The picture in that size, each pixel the mean of what it covers."""
    if gray.shape == size:
        return gray
    import cv2

    resized = cv2.resize(gray, (size[1], size[0]), interpolation=cv2.INTER_AREA)
    return np.asarray(resized, np.uint8)


def _convert(name: str) -> Callable[[Gray], Gray]:
    import cv2

    code = getattr(cv2, f"COLOR_{name}")
    return lambda picture: np.asarray(cv2.cvtColor(np.ascontiguousarray(picture), code), np.uint8)
