"""Read camera images: crop, convert to gray, resize, and stack the newest frames.

An image is cut into square patches, each of which is one channel (input) of the policy and shows
the newest frames (the stack). An image whose size, encoding or length does not match the wiring
file makes all its patches missing, and so does one that is all black; the reason is kept. After
such an image, at the start of an episode and after a long pause, all frames of the stack become
copies of the next frame. This is done for a single patch after it was hidden. So a patch never
shows a change that was not observed.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.config import ChannelConfig
from an_control.wiring.image import LONGEST_SIDE, ImageConfig, cut_patches
from an_control.wiring.messages import ALL
from an_control.wiring.readers import Reader, Row

BLACK = 8
"""An image counts as black if all its pixels are darker than this, of 255."""
LARGEST_IMAGE = LONGEST_SIDE**2
"""Maximum number of pixels of a compressed image whose size `_read_size_from_header` does not find;
OpenCV does not unpack a larger one."""
PIXEL_BYTES = {"mono8": 1, "mono16": 2, "rgb8": 3, "bgr8": 3, "rgba8": 4, "bgra8": 4}
_IMAGE = {"height", "width", "encoding", "is_bigendian", "step", "data"}
_COMPRESSED = {"format", "data"}
Gray = NDArray[np.uint8]


def has_image_fields(fields: Any) -> bool:
    """Return whether a message type has the fields of an Image or of a CompressedImage.

    Args:
        fields: Names of the message type's fields.
    """
    return set(fields) >= _IMAGE or set(fields) >= _COMPRESSED


def is_opencv_missing() -> bool:
    """Return whether OpenCV, which is needed to read images, is not installed."""
    return importlib.util.find_spec("cv2") is None


class CameraReader(Reader):
    """Reader of one source's images, which cuts them into patches, one channel for each patch.

    Args:
        config: The channel entry in the wiring file that has the settings `image`.
        fields: Names of the message's fields, which tell whether it is an Image or a
            CompressedImage.
        max_pause_ns: Longest pause in ns between two images; after a longer one, the stack of
            frames starts anew, with copies of the next frame.
    """

    invalid = "all pixels of the patch are transparent (alpha 0)"

    def __init__(self, config: ChannelConfig, fields: Any, max_pause_ns: int) -> None:
        assert config.image is not None
        # OpenCV reads these when it is imported, which nothing here has done yet. Of a bad image it
        # would print a line each time; the node logs its own reason.
        os.environ.setdefault("OPENCV_LOG_LEVEL", "SILENT")
        os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(LARGEST_IMAGE))
        image = self.image = config.image
        super().__init__(
            [(config.id.replace(ALL, label), config) for label in image.make_patch_labels()]
        )
        self._gray = (
            _decode_image_to_gray_and_opacity
            if set(fields) >= _IMAGE
            else _decode_compressed_image_to_gray
        )
        self._max_pause_ns = max_pause_ns
        self._hidden: NDArray[np.bool_] | None = None
        self.frames = np.zeros((image.stack, *image.size), np.uint8)
        """The newest frames, as an array (stack, height, width) with the newest frame at the
        end."""
        self.patches = cut_patches(self.frames, image.patch)
        """The N patches in the order of `ids`, as an array (N, stack, patch, patch) of pixels."""
        self.discard_camera_frames()

    def discard_camera_frames(self) -> None:
        """Discard all frames, because a new episode starts.

        The next image then fills the whole stack.
        """
        self._stamp_ns: int | None = None

    def copy_state_from(self, other: Reader) -> None:
        """Copy another reader's frames, and which of its image patches are hidden.

        Nothing is copied if the two readers have different image settings.
        """
        if isinstance(other, CameraReader) and other.image == self.image:
            self.frames, self.patches = other.frames.copy(), other.patches.copy()
            self._stamp_ns, self._hidden = other._stamp_ns, other._hidden

    def read_into_row(self, message: Any, row: Row) -> None:
        """Add the message's image to the stack of frames; mark in `row` which patches are visible.

        Args:
            message: An Image or CompressedImage.
            row: An array (N,) that gets one number for each patch: 0 if the patch is visible, NaN
                if it is hidden. The pixels are not returned: they are in `patches`.

        Raises:
            ValueError: The image does not match the wiring, or is black.
        """
        stamp_ns = message.header.stamp.sec * 1_000_000_000 + message.header.stamp.nanosec
        if not stamp_ns or stamp_ns != self._stamp_ns:
            self._add_frame(message, stamp_ns)
        row[:] = 0.0
        if self._hidden is not None:
            row[self._hidden] = np.nan

    def _add_frame(self, message: Any, stamp_ns: int) -> None:
        """Add a message's image to the stack of frames.

        If that fails, the next image fills the whole stack.

        Args:
            message: An Image or CompressedImage.
            stamp_ns: Stamp of the message in ns; 0 if it has none.

        Raises:
            ValueError: The image does not match the wiring, or is black.
        """
        before_ns, self._stamp_ns = self._stamp_ns, None
        gray, alpha = self._gray(message, self.image)
        if gray.max() < BLACK:
            raise ValueError("a black image")
        gray = _resize_picture(gray, self.image.size)
        for top, left, height, width in self.image.black:
            gray[top : top + height, left : left + width] = 0
        pause_ns = stamp_ns - before_ns if before_ns and stamp_ns else 1
        if before_ns is None or not 0 < pause_ns <= self._max_pause_ns:
            self.frames[:] = gray
        else:
            self.frames[:-1] = self.frames[1:]
            self.frames[-1] = gray
        self.patches = cut_patches(self.frames, self.image.patch)
        self._update_which_patches_are_hidden(alpha)
        self._stamp_ns = stamp_ns

    def _update_which_patches_are_hidden(self, opacity: Gray | None) -> None:
        """Store which patches are hidden; fill the stack of each patch that is visible again.

        Args:
            opacity: Opacity of the image's pixels (H, W), or None if the image has no opacity
                channel. A patch is hidden if all its pixels have opacity 0.
        """
        before, self._hidden = self._hidden, None
        if opacity is not None:
            seen = cut_patches(_resize_picture(opacity, self.image.size)[None], self.image.patch)
            self._hidden = seen.reshape(len(seen), -1).max(axis=1) == 0
        if before is None:
            return
        back = before if self._hidden is None else before & ~self._hidden
        if back.any():
            rows, columns = self.image.rows_and_columns
            part = self.image.patch
            whole = self.frames[:, : rows * part, : columns * part]
            spread = np.repeat(np.repeat(back.reshape(rows, columns), part, 0), part, 1)
            whole[:, spread] = whole[-1, spread]
            self.patches = cut_patches(self.frames, part)


def _decode_image_to_gray_and_opacity(message: Any, image: ImageConfig) -> tuple[Gray, Gray | None]:
    """Return the part of an Image that the wiring file selects, in gray, and its opacity.

    Args:
        message: The Image.
        image: Image settings in the wiring file, of which `crop` selects the part.

    Returns:
        A pair: the gray values (H, W), and the opacity (H, W) of the same pixels, or None if the
        image has no opacity.

    Raises:
        ValueError: The message's encoding, size or length is not allowed.
    """
    encoding = str(message.encoding)
    if encoding not in PIXEL_BYTES:
        raise ValueError(f"encoding {encoding[:40]!r} is not one of {', '.join(PIXEL_BYTES)}")
    _check_image_size(message.height, message.width, image)
    depth, step = PIXEL_BYTES[encoding], int(message.step)
    data = np.frombuffer(message.data, np.uint8)
    if step < message.width * depth:
        raise ValueError(f"a step of {step} bytes for rows of {message.width * depth}")
    if len(data) != message.height * step:
        raise ValueError(f"{len(data)} bytes, not {message.height} rows of {step}")
    pixels = data.reshape(message.height, step)[:, : message.width * depth]
    if encoding == "mono16":
        high = 0 if message.is_bigendian else 1  # of each pixel's two bytes
        return _crop_picture(pixels[:, high::2], image).copy(), None
    picture = _crop_picture(pixels.reshape(message.height, message.width, depth), image)
    if depth == 1:
        return picture[:, :, 0].copy(), None
    gray = _make_colour_converter(f"{encoding[:-1].upper()}2GRAY")(picture)
    return gray, np.ascontiguousarray(picture[:, :, 3]) if depth == 4 else None


def _decode_compressed_image_to_gray(message: Any, image: ImageConfig) -> tuple[Gray, Gray | None]:
    """Return the part of a CompressedImage that the wiring file selects, in gray.

    An image is not unpacked if its header says that it is larger than the wiring file expects,
    because a small message can hold a huge image.

    Args:
        message: The CompressedImage.
        image: Image settings in the wiring file, of which `crop` selects the part.

    Returns:
        A pair: the gray values (H, W), and None, which stands for an image without opacity.

    Raises:
        ValueError: The data is not an image of the size in the wiring file.
    """
    import cv2

    data = np.frombuffer(message.data, np.uint8)
    height, width = _read_size_from_header(data) or (0, 0)
    if height * width > math.prod(image.frame or image.size):
        _check_image_size(height, width, image)
    try:
        picture = cv2.imdecode(data, cv2.IMREAD_COLOR) if len(data) else None
    except cv2.error:  # larger than it may be, or of a kind that cannot be
        picture = None
    if picture is None:
        raise ValueError(
            f"{len(data)} bytes that are not an image, format {str(message.format)[:40]!r}"
        )
    _check_image_size(picture.shape[0], picture.shape[1], image)
    return _make_colour_converter("BGR2GRAY")(
        _crop_picture(np.asarray(picture, np.uint8), image)
    ), None


PNG_START = b"\x89PNG\r\n\x1a\n"
JPEG_START = b"\xff\xd8"
JPEG_SEGMENT = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])(..)", re.DOTALL)
"""A JPEG marker with a segment: the marker's second byte, and the length of the segment."""
JPEG_SIZE_MARKERS = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""Second bytes of the JPEG markers whose segment has the image's size (SOF0 to SOF15)."""
MAX_SEGMENTS = 1000
"""Maximum number of JPEG segments before the one with the size."""


def _read_size_from_header(data: NDArray[np.uint8]) -> tuple[int, int] | None:
    """Return the height and width that the header of a PNG or JPEG file gives.

    Args:
        data: The file's bytes.

    Returns:
        The size as stored, before the rotation that the file may ask for. None if the file is
        neither a PNG nor a JPEG, or is not a valid one.
    """
    if data[:8].tobytes() == PNG_START and len(data) >= 24:
        width, height = struct.unpack(">II", data[16:24].tobytes())
        return height, width
    if data[:2].tobytes() != JPEG_START:
        return None
    content, place = data.tobytes(), 2
    for _ in range(MAX_SEGMENTS):
        segment = JPEG_SEGMENT.search(content, place)
        if segment is None:
            return None
        place = segment.end() - 2 + int.from_bytes(segment[2], "big")
        if segment[1][0] in JPEG_SIZE_MARKERS and len(content) >= segment.end() + 5:
            height, width = struct.unpack_from(">HH", content, segment.end() + 1)
            return height, width
    return None


def _check_image_size(height: int, width: int, image: ImageConfig) -> None:
    """Check that an image has the size in the wiring file.

    Args:
        height: Height in pixels.
        width: Width in pixels.
        image: Image settings in the wiring file.

    Raises:
        ValueError: The image has another size.
    """
    expected = image.frame or image.size
    if (height, width) != expected:
        raise ValueError(f"{height} x {width} pixels, not {expected[0]} x {expected[1]}")


def _crop_picture(picture: Gray, image: ImageConfig) -> Gray:
    """Return the part of a picture (H, W) or (H, W, colours) that the wiring's `crop` selects."""
    if image.crop is None:
        return picture
    top, left, height, width = image.crop
    return picture[top : top + height, left : left + width]


def _resize_picture(gray: Gray, size: tuple[int, int]) -> Gray:
    """Return a gray picture (H, W), resized by averaging over the area of each new pixel.

    Args:
        gray: The picture.
        size: Height and width of the result in pixels.
    """
    if gray.shape == size:
        return gray
    import cv2

    resized = cv2.resize(gray, (size[1], size[0]), interpolation=cv2.INTER_AREA)
    return np.asarray(resized, np.uint8)


def _make_colour_converter(name: str) -> Callable[[Gray], Gray]:
    """Return a function that takes a picture and returns it in other colours, by OpenCV.

    Args:
        name: OpenCV's name of the colour conversion, such as "RGB2GRAY".
    """
    import cv2

    code = getattr(cv2, f"COLOR_{name}")
    return lambda picture: np.asarray(cv2.cvtColor(np.ascontiguousarray(picture), code), np.uint8)
