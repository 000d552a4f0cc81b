"""Observations of a camera task: a stack of gray frames, cut into patches with fixed ids.

Parts of a frame that the policy must not see (a score, an instrument panel) are zero. The stack
begins with the oldest frame. At the start of an episode all its frames are the first frame.
"""

from __future__ import annotations

import numpy as np

from an_control.wiring import image
from an_control_sim.envs.tasks import PATCH

STACK = 4


def cut_patches(frames: np.ndarray) -> np.ndarray:
    """Cut frames into square patches of 6x6 pixels, row by row, as in `make_patch_ids`.

    Args:
        frames: The k newest frames of a camera (k, H, W).

    Returns:
        The N patches (N, k, 6, 6): for each place in the picture its pixels in all k frames.
    """
    return image.cut_patches(frames, PATCH)


class FrameStack:
    """A stack of the newest `STACK` gray frames (H, W) of an episode.

    Args:
        height: The height H of a frame in pixels.
        width: The width W of a frame in pixels.
    """

    def __init__(self, height: int, width: int) -> None:
        self.frames = np.zeros((STACK, height, width), np.uint8)

    def fill_with_frame(self, frame: np.ndarray) -> None:
        """Fill the whole stack with `frame` (H, W)."""
        self.frames[:] = frame

    def add_frame(self, frame: np.ndarray) -> None:
        """Add `frame` (H, W) as the newest one and drop the oldest."""
        self.frames[:-1] = self.frames[1:]
        self.frames[-1] = frame
