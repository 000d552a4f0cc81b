"""A camera's image as one binary message: width and height, uint16 little-endian, then rgb rows."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

MOST_PIXELS = 240
"""A side of more is thinned out."""
_PLACES = {"mono8": (0, 0, 0), "rgb8": (0, 1, 2), "bgr8": (2, 1, 0), "rgba8": (0, 1, 2)}
_PLACES |= {"bgra8": (2, 1, 0), "8UC1": (0, 0, 0), "8UC3": (2, 1, 0)}
_DEPTH = {"mono8": 1, "8UC1": 1, "rgba8": 4, "bgra8": 4}


def picture(image: Any) -> bytes | None:
    """A sensor_msgs/Image as the page draws it; None for another encoding or one of no sense."""
    places, depth = _PLACES.get(image.encoding), _DEPTH.get(image.encoding, 3)
    height, width, step = image.height, image.width, image.step
    if places is None or not height or not width or step < width * depth:
        return None
    data = np.frombuffer(image.data, np.uint8)
    if len(data) < height * step:
        return None
    pixels = data[: height * step].reshape(height, step)[:, : width * depth]
    every = -(-max(height, width) // MOST_PIXELS)
    pixels = pixels.reshape(height, width, depth)[::every, ::every][..., places]
    return struct.pack("<HH", pixels.shape[1], pixels.shape[0]) + pixels.tobytes()
