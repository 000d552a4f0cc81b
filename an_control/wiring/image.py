"""Read the entry `image` of a wiring file, which cuts camera images into patches."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from an_control.wiring.checked_yaml import Entry

LONGEST_SIDE = 4096
MAX_PATCHES = 20_000
MAX_FRAMES = 16
Box = tuple[int, int, int, int]
"""Top, left, height and width in pixels."""


@dataclass(frozen=True)
class ImageConfig:
    """Settings that turn an image into patches; all lengths are in pixels.

    Attributes:
        size: Height and width to which images are resized before they are cut into patches. Pixels
            beyond the last whole patch are not used.
        patch: Height and width of a patch.
        stack: Number of successive frames in the reading of a patch, oldest first.
        frame: Height and width that every received image must have; None means `size`.
        crop: Part of the received image that is used and then resized to `size`; None uses the
            whole image.
        black: Parts of the resized image that are made black, because the policy must not see them.
    """

    size: tuple[int, int]
    patch: int
    stack: int
    frame: tuple[int, int] | None = None
    crop: Box | None = None
    black: tuple[Box, ...] = ()

    @property
    def rows_and_columns(self) -> tuple[int, int]:
        """Number of rows and number of columns of whole patches in an image."""
        return self.size[0] // self.patch, self.size[1] // self.patch

    def make_patch_labels(self) -> list[str]:
        """Return the label ``ROW.COLUMN`` of each patch, such as "0.3", row by row."""
        rows, columns = self.rows_and_columns
        return [f"{row}.{column}" for row in range(rows) for column in range(columns)]


def read_image_settings(entry: Entry) -> ImageConfig:
    """Read how images are cut into patches.

    Args:
        entry: Entry `image` of a channel in the wiring file.

    Raises:
        WiringError: A key or value is not allowed.
    """
    fields = entry.read_fields(("size", "patch", "stack"), ("frame", "crop", "black"))
    size = _read_height_and_width(fields["size"])
    patch = _read_whole_number(
        fields["patch"], "pixels along a patch's edge, at most the size", 1, min(size)
    )
    if (size[0] // patch) * (size[1] // patch) > MAX_PATCHES:
        raise fields["patch"].make_error(f"an edge that gives at most {MAX_PATCHES} patches")
    frame = _read_height_and_width(fields["frame"]) if "frame" in fields else None
    crop = _read_rectangle(fields["crop"], frame or size, "the frame") if "crop" in fields else None
    black: tuple[Box, ...] = ()
    if "black" in fields:
        boxes = fields["black"].value
        if not isinstance(boxes, list):
            raise fields["black"].make_error("a list of [top, left, height, width]")
        key = fields["black"].key
        black = tuple(
            _read_rectangle(Entry(entry.file, key, box), size, "the size") for box in boxes
        )
    stack = _read_whole_number(
        fields["stack"], f"frames a patch shows, 1 to {MAX_FRAMES}", 1, MAX_FRAMES
    )
    return ImageConfig(size, patch, stack, frame, crop, black)


def cut_patches(frames: NDArray[np.uint8], patch: int) -> NDArray[np.uint8]:
    """Cut k frames (k, H, W) into N square patches (N, k, patch, patch), row by row.

    Pixels beyond the last whole patch are not used.

    Args:
        frames: Gray images of equal size.
        patch: Height and width of a patch in pixels.
    """
    count, height, width = frames.shape
    rows, columns = height // patch, width // patch
    whole = frames[:, : rows * patch, : columns * patch]
    grid = whole.reshape(count, rows, patch, columns, patch).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(grid.reshape(rows * columns, count, patch, patch))


def join_patches(
    patches: NDArray[np.uint8], rows_and_columns: tuple[int, int]
) -> NDArray[np.uint8]:
    """Join the patches of one frame to the frame again: the reverse of `cut_patches`.

    Args:
        patches: Patches (N, patch, patch) of one frame, row by row.
        rows_and_columns: Number of rows and number of columns of patches in the frame.

    Returns:
        The frame (H, W).
    """
    (rows, columns), patch = rows_and_columns, patches.shape[-1]
    parts = patches.reshape(rows, columns, patch, patch).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(parts.reshape(rows * patch, columns * patch))


def _read_whole_number(entry: Entry, allowed_text: str, low: int, high: int) -> int:
    """Return an entry's value as a whole number from `low` to `high`.

    Args:
        entry: Entry of the file.
        allowed_text: Description of what is allowed, for the error.
        low: Lowest allowed number.
        high: Highest allowed number.

    Raises:
        WiringError: The value is not such a number.
    """
    value = entry.read_number(allowed_text, low, high)
    if value != int(value):
        raise entry.make_error(allowed_text)
    return int(value)


def _read_whole_numbers(entry: Entry, count: int, allowed_text: str) -> tuple[int, ...]:
    """Return an entry's value as a list of whole numbers from 0 to `LONGEST_SIDE`.

    Args:
        entry: Entry of the file.
        count: Required number of items.
        allowed_text: Description of what is allowed, for the error.

    Raises:
        WiringError: The value is not such a list.
    """
    if not isinstance(entry.value, list) or len(entry.value) != count:
        raise entry.make_error(allowed_text)
    parts = (Entry(entry.file, entry.key, value) for value in entry.value)
    return tuple(_read_whole_number(part, allowed_text, 0, LONGEST_SIDE) for part in parts)


def _read_height_and_width(entry: Entry) -> tuple[int, int]:
    """Return an entry's value as a height and a width in pixels.

    Raises:
        WiringError: The value is not a list of two allowed numbers.
    """
    what = f"[height, width] in pixels, each 1 to {LONGEST_SIDE}"
    height, width = _read_whole_numbers(entry, 2, what)
    if not (height and width):
        raise entry.make_error(what)
    return height, width


def _read_rectangle(entry: Entry, size: tuple[int, int], image_name: str) -> Box:
    """Return an entry's value as a rectangle (top, left, height, width) within an image.

    Args:
        entry: Entry of the file.
        size: Height and width of the image.
        image_name: Words for the image in an error, such as "the frame".

    Raises:
        WiringError: The value is not a rectangle, or reaches beyond the image.
    """
    what = f"[top, left, height, width] within {image_name}, {size[0]} x {size[1]}"
    top, left, height, width = _read_whole_numbers(entry, 4, what)
    if not (height and width) or top + height > size[0] or left + width > size[1]:
        raise entry.make_error(what)
    return top, left, height, width
