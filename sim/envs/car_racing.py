"""CarRacing seen through image patches: gymnasium's game, its pixels, a quicker painter.

The task of Tang & Ha 2021 (section 4.4). gymnasium paints all polygons of the track at 1000x800
and then scales down; here those that cannot be seen are left out before, which changes no pixel.
"""

from __future__ import annotations

import math
import os
import warnings
from typing import TYPE_CHECKING, Any

import cv2
import gymnasium
import numpy as np

from an_control.policy.tasks import CAR_RACING_TASK
from an_control_sim.envs.backgrounds import GRASS, background
from an_control_sim.envs.camera import STACK, FrameStack, cut

if TYPE_CHECKING:
    from an_control_sim.envs.car_racing_teacher import CarRacingTeacher

os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of SWIG and of pygame's resources
    import pygame
    import pygame.pkgdata
    from gymnasium.envs.box2d import car_racing as game
    from pygame import gfxdraw

SIDE = 96
PANEL_ROWS = 12
"""The instruments at the bottom, which nobody may see."""
DARK_GRASS, LIGHT_GRASS = (100, 202, 100), (100, 228, 100)
"""(102, 204, 102) and (102, 230, 102) as gymnasium's scaling leaves them."""


class QuickCarRacing(game.CarRacing):
    """gymnasium's CarRacing; a frame of its observation costs about a third of the time.

    The pixels are gymnasium's own, but for the panel of instruments, which is black.
    """

    car: Any
    surf: Any

    def reset(self, **arguments: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self._corners: np.ndarray | None = None
        return super().reset(**arguments)

    def _render(self, mode: str) -> Any:
        if mode != "state_pixels":
            return super()._render(mode)
        width, height = game.WINDOW_W, game.WINDOW_H
        angle = -self.car.hull.angle
        zoom = 0.1 * game.SCALE * max(1 - self.t, 0) + game.ZOOM * game.SCALE * min(self.t, 1)
        x, y = self.car.hull.position
        scroll = pygame.math.Vector2((-x * zoom, -y * zoom)).rotate_rad(angle)
        translation = (width / 2 + scroll[0], height / 4 + scroll[1])
        self.surf = pygame.Surface((width, height))
        self._draw_colored_polygon(
            self.surf, _FIELD, self.bg_color, zoom, translation, angle, clip=False
        )
        self._paint(zoom, translation, angle)
        self.car.draw(self.surf, zoom, translation, angle, False)
        self.surf = pygame.transform.flip(self.surf, False, True)
        above = self.surf.subsurface((0, 0, width, height - _PANEL_TOP))
        picture = np.zeros((SIDE, SIDE, 3), np.uint8)
        picture[:-PANEL_ROWS] = self._create_image_array(above, (SIDE, SIDE - PANEL_ROWS))
        return picture

    def _paint(self, zoom: float, translation: tuple[float, float], angle: float) -> None:
        """Grass and road, in gymnasium's order, as far as the window shows them."""
        if self._corners is None:
            self._corners = np.concatenate([_PATCHES, [corners for corners, _ in self.road_poly]])
            self._colours = [self.grass_color] * len(_PATCHES)
            self._colours += [colour for _, colour in self.road_poly]  # a tile's changes under way
        sin, cos = math.sin(angle), math.cos(angle)
        x, y = self._corners[..., 0], self._corners[..., 1]
        across = (x * cos - y * sin) * zoom + translation[0]
        up = (x * sin + y * cos) * zoom + translation[1]
        seen = (
            (across.max(axis=1) >= -1.0)
            & (across.min(axis=1) <= game.WINDOW_W + 1.0)
            & (up.max(axis=1) >= _PANEL_TOP - 1.0)
            & (up.min(axis=1) <= game.WINDOW_H + 1.0)
        )
        points = np.stack([across[seen], up[seen]], axis=-1).tolist()
        for place, corners in zip(np.flatnonzero(seen).tolist(), points, strict=True):
            colour = [int(c) for c in self._colours[place]]
            gfxdraw.aapolygon(self.surf, corners, colour)
            gfxdraw.filled_polygon(self.surf, corners, colour)


def _grass_patches() -> np.ndarray:
    """Corners (400, 4, 2) of the lighter squares, in metres."""
    side = game.GRASS_DIM
    corners = np.array([(side, 0), (0, 0), (0, side), (side, side)])
    places = [(side * x, side * y) for x in range(-20, 20, 2) for y in range(-20, 20, 2)]
    return np.array(places)[:, None] + corners


_PATCHES = _grass_patches()
_FIELD = [
    (game.PLAYFIELD, game.PLAYFIELD),
    (game.PLAYFIELD, -game.PLAYFIELD),
    (-game.PLAYFIELD, -game.PLAYFIELD),
    (-game.PLAYFIELD, game.PLAYFIELD),
]
_PANEL_TOP = game.WINDOW_H * PANEL_ROWS // SIDE


class CarRacingEnv(gymnasium.Env[np.ndarray, np.ndarray]):
    """Drive a lap; the observation is the view from above, cut into 256 patches.

    Observation (256, 4, 6, 6) uint8: the last four gray frames of each 6x6 patch, newest last, in
    the order of `channels`; the 12 rows of instruments are black. Action (3,) in [-1, 1]: steering
    to the right, gas, brake, of which gas and brake are brought to [0, 1]. Reward: -0.1 a step,
    1000 / tiles for each tile of the track; -100 outside the field. An episode ends with the lap
    or after 1000 steps.

    Args:
        background: the picture instead of the grass, of `backgrounds.BACKGROUNDS`.
        render_mode: "rgb_array" or None.
    """

    channels = tuple(CAR_RACING_TASK["channels"])
    actuators = tuple(CAR_RACING_TASK["actuators"])
    step_s = CAR_RACING_TASK["step_s"]
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
        """Take this background from the next frame on; ValueError where there is no such one."""
        self._background = background(name)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """A new track; the seed alone decides it."""
        super().reset(seed=seed)
        frame, info = self.game.reset(seed=seed)
        self._stack.start(self._see(frame))
        return cut(self._stack.frames), info

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """One step of 0.02 s; ValueError where the action is not three finite numbers."""
        action = np.asarray(action, np.float64)
        if action.shape != (3,) or not np.isfinite(action).all():
            raise ValueError(f"action {action!r} is not three finite numbers")
        steer, gas, brake = np.clip(action, -1.0, 1.0)
        controls = np.array([steer, 0.5 * (gas + 1.0), 0.5 * (brake + 1.0)])
        frame, reward, terminated, truncated, info = self.game.step(controls)
        self._stack.add(self._see(frame))
        return cut(self._stack.frames), float(reward), terminated, truncated, info

    def sensors(self) -> dict[str, np.ndarray]:
        """What the camera shows (96, 96, 3), rgb."""
        return {"camera": self._frame}

    def teacher(self) -> CarRacingTeacher:
        """A driver who knows the track, for pupils who only see."""
        from an_control_sim.envs.car_racing_teacher import CarRacingTeacher

        return CarRacingTeacher(self.game)

    @property
    def frames(self) -> np.ndarray:
        """The stack of gray frames (4, 96, 96), newest last."""
        return self._stack.frames

    def render(self) -> np.ndarray | None:
        """The game as gymnasium shows it (400, 600, 3), without the background."""
        return self.game.render() if self.render_mode else None

    def close(self) -> None:
        self.game.close()

    def _see(self, frame: np.ndarray) -> np.ndarray:
        """The gray frame (96, 96) of what the game shows (96, 96, 3)."""
        if self._background is not None:
            there = cv2.inRange(frame, DARK_GRASS, LIGHT_GRASS)  # the two, and their mixes
            there[-PANEL_ROWS:] = 0
            cv2.copyTo(self._background, there, frame)
        self._frame = frame
        return np.asarray(cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY))
