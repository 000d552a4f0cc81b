"""Small pictures of a policy's attention, attention keys and camera, comparable between ticks.

A camera image is one binary message, which holds width and height as uint16, little-endian, then
the rows of RGB pixels.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MOST_ROWS = 32
"""Maximum number of rows of a picture of attention. If there are more queries, a row is the mean of
several."""
MOST_COLUMNS = 64
"""Maximum number of columns of such a picture."""
KEPT = 20
"""Number of newest samples of the keys from which the principal axes are computed."""


def convert_message_to_matrix(message: Any) -> NDArray[np.float64] | None:
    """Return a Float64MultiArray message as an array (rows, columns); None if it is no matrix."""
    sizes = [one.size for one in message.layout.dim]
    data = np.frombuffer(message.data, np.float64)
    if len(sizes) != 2 or sizes[0] * sizes[1] != len(data) or not len(data):
        return None
    return data.reshape(sizes)


def read_channel_ids_of_matrix(message: Any, expected_ids: Sequence[str]) -> list[str]:
    """Return the ids of the channels that the columns or rows of a matrix message stand for.

    The list is empty if the message names no channels.

    Args:
        message: The message. Its label lists the ids with blanks between them.
        expected_ids: The ids that the policy node has now. If the label lists exactly these, they
            are returned, even if they contain blanks.
    """
    for one in message.layout.dim:
        label, _, text = one.label.partition(" ")
        if label == "channel":
            ids = list(expected_ids) if text == " ".join(expected_ids) else text.split(" ")
            return ids if len(ids) == one.size else []
    return []


def compute_attention_strength(attention: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return each channel's mean absolute attention weight, relative to the largest such mean.

    Args:
        attention: The attention weights (M queries, N channels).

    Returns:
        The strengths (N,), from 0 to 1.
    """
    strength = np.abs(attention).mean(axis=0)
    most = float(strength.max(initial=0.0))
    return strength / most if most > 0.0 and np.isfinite(most) else np.zeros(len(strength))


def scale_attention_to_percent(attention: NDArray[np.float64]) -> NDArray[np.int64]:
    """Return attention weights in whole percent of the largest absolute weight, for the page.

    Args:
        attention: The attention weights (queries, channels).

    Returns:
        The percentages (rows, columns). Rows stand for queries and columns for channels; if there
        are more than 32 queries or 64 channels, a row or a column is the mean of several
        neighbours.
    """
    small = _average_neighbouring_rows(
        _average_neighbouring_rows(attention, MOST_ROWS).T, MOST_COLUMNS
    ).T
    most = float(np.abs(small).max(initial=0.0))
    if not np.isfinite(most) or most == 0.0:
        return np.zeros(small.shape, np.int64)
    return np.rint(100.0 * small / most).astype(np.int64)


def _average_neighbouring_rows(values: NDArray[np.float64], max_rows: int) -> NDArray[np.float64]:
    """Return the rows of a matrix; if there are too many, average neighbouring rows."""
    if len(values) <= max_rows:
        return values
    return np.array([part.mean(axis=0) for part in np.array_split(values, max_rows)])


class KeyProjection:
    """A projection of attention keys onto a plane, for a picture that changes smoothly.

    The axes of the plane are the first two principal axes of the keys in the newest 20 calls
    (`KEPT`) of `project_keys`.
    """

    def __init__(self) -> None:
        self._looks: deque[NDArray[np.float64]] = deque(maxlen=KEPT)
        self._axes: NDArray[np.float64] | None = None

    def project_keys(self, keys: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the coordinates (N, 2), from -1 to 1, of attention keys (N, k)."""
        keys = np.where(np.isfinite(keys), keys, 0.0)
        if self._looks and self._looks[-1].shape[1] != keys.shape[1]:
            self._looks.clear()
            self._axes = None
        self._looks.append(keys)
        every = np.concatenate(self._looks)
        middle = every.mean(axis=0)
        _, found = np.linalg.eigh(np.cov(every.T).reshape(keys.shape[1], keys.shape[1]))
        axes = found[:, ::-1][:, :2]
        if axes.shape[1] < 2:
            axes = np.column_stack([axes, np.zeros(len(axes))])
        if self._axes is not None:
            axes = self._align_with_previous_axes(axes)
        self._axes = axes
        reach = float(np.abs((every - middle) @ axes).max(initial=0.0))
        return np.asarray((keys - middle) @ axes / (reach or 1.0))

    def _align_with_previous_axes(self, axes: NDArray[np.float64]) -> NDArray[np.float64]:
        """Turn or mirror new axes within their plane until they are nearest to the previous axes.

        Without this the picture would jump. It is an orthogonal Procrustes problem.
        """
        assert self._axes is not None
        left, _, right = np.linalg.svd(axes.T @ self._axes)
        return np.asarray(axes @ left @ right)


MOST_PIXELS = 240
"""Maximum length in pixels of an image's side; a longer side is subsampled."""
_PLACES = {"mono8": (0, 0, 0), "rgb8": (0, 1, 2), "bgr8": (2, 1, 0), "rgba8": (0, 1, 2)}
_PLACES |= {"bgra8": (2, 1, 0), "8UC1": (0, 0, 0), "8UC3": (2, 1, 0)}
_DEPTH = {"mono8": 1, "8UC1": 1, "rgba8": 4, "bgra8": 4}


def encode_image_message(image: Any) -> bytes | None:
    """Return a sensor_msgs/Image as a binary message for the page; None if it cannot be drawn."""
    places, depth = _PLACES.get(image.encoding), _DEPTH.get(image.encoding, 3)
    height, width, step = image.height, image.width, image.step
    if places is None or not height or not width or step < width * depth:
        return None
    data = np.frombuffer(image.data, np.uint8)
    if len(data) < height * step:
        return None
    pixels = data[: height * step].reshape(height, step)[:, : width * depth]
    return encode_pixels(pixels.reshape(height, width, depth)[..., places])


def encode_pixels(pixels: NDArray[np.uint8]) -> bytes:
    """Return an RGB picture (H, W, 3) as a binary message for the live page.

    The message has the width and the height of the picture, two bytes each, and then its pixels row
    by row. Of a large picture it has only every second (third, ...) row and column.
    """
    every = -(-max(pixels.shape[:2]) // MOST_PIXELS)
    pixels = pixels[::every, ::every]
    return struct.pack("<HH", pixels.shape[1], pixels.shape[0]) + pixels.tobytes()
