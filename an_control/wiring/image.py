"""The `image` entry of a channel, which cuts a camera's image into patches, one channel a patch."""

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
        size: Height and width of the image that is cut into patches; pixels beyond the last whole
            patch are not used.
        patch: Height and width of a patch.
        stack: Number of frames that a patch shows, oldest first.
        frame: Height and width that every image must have; None: `size`.
        crop: Part of the image that is used; None: all.
        black: Parts of `size` that are made black, because the policy must not see them.
    """

    size: tuple[int, int]
    patch: int
    stack: int
    frame: tuple[int, int] | None = None
    crop: Box | None = None
    black: tuple[Box, ...] = ()

    @property
    def grid(self) -> tuple[int, int]:
        """Number of rows and columns of patches."""
        return self.size[0] // self.patch, self.size[1] // self.patch

    def labels(self) -> list[str]:
        """Return ``ROW.COLUMN`` of each patch, row by row."""
        rows, columns = self.grid
        return [f"{row}.{column}" for row in range(rows) for column in range(columns)]


def read_image(entry: Entry) -> ImageConfig:
    """Return the settings of an entry `image` of a channel.

    Raises:
        WiringError: If a key or value is not allowed.
    """
    fields = entry.fields(("size", "patch", "stack"), ("frame", "crop", "black"))
    size = _read_pair(fields["size"])
    patch = _read_whole_number(
        fields["patch"], "pixels along a patch's edge, at most the size", 1, min(size)
    )
    if (size[0] // patch) * (size[1] // patch) > MAX_PATCHES:
        raise fields["patch"].error(f"an edge that gives at most {MAX_PATCHES} patches")
    frame = _read_pair(fields["frame"]) if "frame" in fields else None
    crop = _read_box(fields["crop"], frame or size, "the frame") if "crop" in fields else None
    black: tuple[Box, ...] = ()
    if "black" in fields:
        boxes = fields["black"].value
        if not isinstance(boxes, list):
            raise fields["black"].error("a list of [top, left, height, width]")
        key = fields["black"].key
        black = tuple(_read_box(Entry(entry.file, key, box), size, "the size") for box in boxes)
    stack = _read_whole_number(
        fields["stack"], f"frames a patch shows, 1 to {MAX_FRAMES}", 1, MAX_FRAMES
    )
    return ImageConfig(size, patch, stack, frame, crop, black)


def cut_patches(frames: NDArray[np.uint8], patch: int) -> NDArray[np.uint8]:
    """Return the whole patches (N, k, patch, patch) of frames (k, H, W), row by row."""
    count, height, width = frames.shape
    rows, columns = height // patch, width // patch
    whole = frames[:, : rows * patch, : columns * patch]
    grid = whole.reshape(count, rows, patch, columns, patch).transpose(1, 3, 0, 2, 4)
    return np.ascontiguousarray(grid.reshape(rows * columns, count, patch, patch))


def join_patches(patches: NDArray[np.uint8], grid: tuple[int, int]) -> NDArray[np.uint8]:
    """Return the frame (H, W) that patches (N, patch, patch) were cut from, row by row."""
    (rows, columns), patch = grid, patches.shape[-1]
    parts = patches.reshape(rows, columns, patch, patch).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(parts.reshape(rows * patch, columns * patch))


def _read_whole_number(entry: Entry, what: str, low: int, high: int) -> int:
    """Return a whole number from `low` to `high`."""
    value = entry.number(what, low, high)
    if value != int(value):
        raise entry.error(what)
    return int(value)


def _read_whole_numbers(entry: Entry, count: int, what: str) -> tuple[int, ...]:
    """Return a list of `count` whole numbers."""
    if not isinstance(entry.value, list) or len(entry.value) != count:
        raise entry.error(what)
    parts = (Entry(entry.file, entry.key, value) for value in entry.value)
    return tuple(_read_whole_number(part, what, 0, LONGEST_SIDE) for part in parts)


def _read_pair(entry: Entry) -> tuple[int, int]:
    """Return a height and a width."""
    what = f"[height, width] in pixels, each 1 to {LONGEST_SIDE}"
    height, width = _read_whole_numbers(entry, 2, what)
    if not (height and width):
        raise entry.error(what)
    return height, width


def _read_box(entry: Entry, within: tuple[int, int], of: str) -> Box:
    """Return a box that lies within an image of this height and width."""
    what = f"[top, left, height, width] within {of}, {within[0]} x {within[1]}"
    top, left, height, width = _read_whole_numbers(entry, 4, what)
    if not (height and width) or top + height > within[0] or left + width > within[1]:
        raise entry.error(what)
    return top, left, height, width
