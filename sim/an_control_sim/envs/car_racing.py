"""CarRacing with image patches as observations: the task of Tang & Ha 2021 (section 4.4)."""

from __future__ import annotations

from typing import Any

import cv2
import gymnasium
import numpy as np

from an_control_sim.envs.camera import STACK, FrameStack, cut_patches
from an_control_sim.envs.car_racing_game import (
    GRASS,
    PANEL_ROWS,
    SIDE,
    QuickCarRacing,
    game,
    make_background,
)
from an_control_sim.envs.tasks import CAR_RACING_TASK
from an_control_sim.envs.teachers.car_racing import CarRacingTeacher

DARK_GRASS, LIGHT_GRASS = (100, 202, 100), (100, 228, 100)
"""Colours of dark and light grass in the picture after gymnasium has scaled it. In the unscaled
picture they are (102, 204, 102) and (102, 230, 102)."""


class CarRacingEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """A car that drives a lap, seen from above as 256 image patches.

    The observation is (256, 4, 6, 6) uint8: for each patch of 6x6 pixels, in the order of
    `channels`, its newest four gray frames, oldest first. The 12 rows of instruments are black. The
    action is (3,) in [-1, 1]: steering to the right, gas, brake, with gas and brake mapped to [0,
    1]. The reward is -0.1 per step, 1000 / T for each of the track's T tiles at the first visit,
    and -100 outside the field. An episode ends after the lap or 1000 steps.

    Args:
        render_mode: "rgb_array" or None.
        background: The name of the picture in place of the grass, one of `BACKGROUNDS`.
    """

    channels = CAR_RACING_TASK.channels
    actuators = CAR_RACING_TASK.actuators
    step_s = CAR_RACING_TASK.step_s
    plain = GRASS
    metadata = {"render_modes": ["rgb_array"], "render_fps": game.FPS}  # noqa: RUF012

    def __init__(self, render_mode: str | None = None, background: str = GRASS) -> None:
        self.render_mode = render_mode
        self.show(background)
        self.game = QuickCarRacing(render_mode=render_mode)
        self.observation_space = gymnasium.spaces.Box(
            0, 255, (len(self.channels), STACK, 6, 6), np.uint8
        )
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
        self._stack = FrameStack(SIDE, SIDE)
        self._frame = np.zeros((SIDE, SIDE, 3), np.uint8)

    def show(self, name: str) -> None:
        """Show the background picture of this name in place of the grass from the next frame on.

        Raises:
            ValueError: There is no background of that name.
        """
        self._background = make_background(name)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode on a new track, which depends only on the seed."""
        super().reset(seed=seed)
        frame, info = self.game.reset(seed=seed)
        self._stack.fill_with_frame(self._make_gray_frame(frame))
        return cut_patches(self._stack.frames), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Make one step of 0.02 s.

        Raises:
            ValueError: The action is not three finite numbers.
        """
        action = np.asarray(action, np.float64)
        if action.shape != (3,) or not np.isfinite(action).all():
            raise ValueError(f"action {action!r} is not three finite numbers")
        steer, gas, brake = np.clip(action, -1.0, 1.0)
        controls = np.array([steer, 0.5 * (gas + 1.0), 0.5 * (brake + 1.0)])
        frame, reward, terminated, truncated, info = self.game.step(controls)
        self._stack.add_frame(self._make_gray_frame(frame))
        return cut_patches(self._stack.frames), float(reward), terminated, truncated, info

    def sensors(self) -> dict[str, np.ndarray]:
        """Return the camera's picture (96, 96, 3) in RGB, by the name "camera"."""
        return {"camera": self._frame}

    def teacher(self) -> CarRacingTeacher:
        """Return a controller that knows the track and drives this car; policies learn from it."""
        return CarRacingTeacher(self.game)

    @property
    def frames(self) -> np.ndarray:
        """The newest four gray frames (4, 96, 96), oldest first."""
        return self._stack.frames

    def render(self) -> np.ndarray | None:
        """Return gymnasium's picture of the game (400, 600, 3), with the usual grass."""
        return self.game.render() if self.render_mode else None

    def close(self) -> None:
        """Close the game."""
        self.game.close()

    def _make_gray_frame(self, frame: np.ndarray) -> np.ndarray:
        """Draw the background over the grass in the game's frame, and return it in gray (96, 96).

        The coloured frame is stored for `sensors`.

        Args:
            frame: The game's frame (96, 96, 3), which is changed.
        """
        if self._background is not None:
            there = cv2.inRange(frame, DARK_GRASS, LIGHT_GRASS)  # the two, and their mixes
            there[-PANEL_ROWS:] = 0
            cv2.copyTo(self._background, there, frame)
        self._frame = frame
        return np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY))
