"""What a camera task shows: a stack of gray frames, cut into patches with ids that stay.

A frame is zero where nothing may be seen (a score, an instrument panel). The newest frame comes
last; at an episode's start it fills the whole stack.
"""

from __future__ import annotations

import numpy as np

from an_control.wiring import image
from an_control_sim.envs.tasks import PATCH

STACK = 4


def cut(frames: np.ndarray) -> np.ndarray:
    """Patches (N, k, 6, 6) of frames (k, H, W), in the order of `patch_ids`."""
    return image.cut_patches(frames, PATCH)


class FrameStack:
    """The newest `STACK` gray frames (H, W) of an episode."""

    def __init__(self, height: int, width: int) -> None:
        self.frames = np.zeros((STACK, height, width), np.uint8)

    def start(self, frame: np.ndarray) -> None:
        """Forget what was; `frame` (H, W) counts as all of them."""
        self.frames[:] = frame

    def add(self, frame: np.ndarray) -> None:
        """`frame` (H, W) is the newest from now on."""
        self.frames[:-1] = self.frames[1:]
        self.frames[-1] = frame
