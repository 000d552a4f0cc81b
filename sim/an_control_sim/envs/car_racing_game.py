"""Gymnasium's CarRacing with faster drawing, and with other backgrounds.

Gymnasium draws all polygons of the track at 1000x800 and then scales the picture down. Here
polygons outside the picture are skipped, which changes no pixel. A background is a still picture
that is shown behind the road instead of the grass. Tang & Ha 2021 (section 4.4) used four
photographs and paintings as backgrounds. The pictures here are drawn from fixed seeds, so that they
need no files and no licence.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable
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
"""Rows of the instruments at the bottom, which are hidden."""


class QuickCarRacing(game.CarRacing):
    """Gymnasium's CarRacing, but with a faster way to draw the observations.

    It takes about a third of the usual time. The pixels are gymnasium's own, except for the
    instrument panel, which is black.
    """

    car: Any
    surf: Any

    def reset(self, **arguments: Any) -> tuple[np.ndarray, dict[str, Any]]:
        """Start an episode on a new track.

        Args:
            arguments: The arguments of gymnasium's `reset`: seed and options.
        """
        self._corners: np.ndarray | None = None
        return super().reset(**arguments)

    def _render(self, mode: str) -> Any:
        """Return the picture (96, 96, 3) for mode "state_pixels".

        For any other mode, return what gymnasium's method returns.
        """
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
        self._draw_ground(zoom, translation, angle)
        self.car.draw(self.surf, zoom, translation, angle, False)
        self.surf = pygame.transform.flip(self.surf, False, True)
        above = self.surf.subsurface((0, 0, width, height - _PANEL_TOP))
        picture = np.zeros((SIDE, SIDE, 3), np.uint8)
        picture[:-PANEL_ROWS] = self._create_image_array(above, (SIDE, SIDE - PANEL_ROWS))
        return picture

    def _draw_ground(self, zoom: float, translation: tuple[float, float], angle: float) -> None:
        """Draw those parts of grass and road that are inside the picture, in gymnasium's order.

        Args:
            zoom: Pixels per metre.
            translation: Where the origin of the track's coordinates is in the picture: (x, y) in
                pixels.
            angle: The rotation of the ground in rad.
        """
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


def _compute_corners_of_grass_patches() -> np.ndarray:
    """Return the corners (400, 4, 2) of the lighter squares of the grass, in metres."""
    side = game.GRASS_DIM
    corners = np.array([(side, 0), (0, 0), (0, side), (side, side)])
    places = [(side * x, side * y) for x in range(-20, 20, 2) for y in range(-20, 20, 2)]
    return np.array(places)[:, None] + corners


_PATCHES = _compute_corners_of_grass_patches()
_FIELD = [
    (game.PLAYFIELD, game.PLAYFIELD),
    (game.PLAYFIELD, -game.PLAYFIELD),
    (-game.PLAYFIELD, -game.PLAYFIELD),
    (-game.PLAYFIELD, game.PLAYFIELD),
]
_PANEL_TOP = game.WINDOW_H * PANEL_ROWS // SIDE


SIZE = 96
GRASS = "grass"
"""Name of the game's own background, which is used in training."""


def make_background(name: str) -> np.ndarray | None:
    """Make the background picture with a given name.

    Args:
        name: One of `BACKGROUNDS`.

    Returns:
        The picture (96, 96, 3) uint8; None for the grass, which the game draws itself.

    Raises:
        ValueError: There is no background of that name.
    """
    if name == GRASS:
        return None
    if name not in _PICTURES:
        raise ValueError(f"background: {name!r} is not one of {', '.join(BACKGROUNDS)}")
    return np.clip(_PICTURES[name](), 0, 255).astype(np.uint8)


def _make_smooth_noise_picture(rng: np.random.Generator, cells: int) -> np.ndarray:
    """Return smooth noise (96, 96) in [0, 1], interpolated between random numbers on a grid.

    Args:
        rng: The random generator.
        cells: The number of grid cells along each axis; more cells give finer noise.
    """
    coarse = rng.random((cells + 1, cells + 1))
    place = np.linspace(0.0, cells, SIZE, endpoint=False)
    low = place.astype(int)
    part = place - low
    part = part * part * (3.0 - 2.0 * part)
    rows = coarse[low] * (1.0 - part)[:, None] + coarse[low + 1] * part[:, None]
    return rows[:, low] * (1.0 - part) + rows[:, low + 1] * part


def _blend_colours(
    second_share: np.ndarray, first: tuple[int, ...], second: tuple[int, ...]
) -> np.ndarray:
    """Mix two colours in a different ratio at each pixel, and return the picture (H, W, 3).

    Args:
        second_share: The share (H, W) of the second colour, 0 to 1.
        first: The first colour (r, g, b).
        second: The second colour (r, g, b).
    """
    return second_share[..., None] * np.array(second) + (1.0 - second_share[..., None]) * np.array(
        first
    )


def _draw_mountain() -> np.ndarray:
    """Draw a peak with snow before an evening sky (96, 96, 3)."""
    rng = np.random.default_rng(1)
    down, across = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    picture = _blend_colours(down, (70, 90, 170), (250, 180, 120))
    ridge = (
        0.25 + 1.1 * np.abs(across - 0.55) + 0.06 * (_make_smooth_noise_picture(rng, 24)[:1] - 0.5)
    )
    picture[down > ridge] = (80, 85, 110)
    picture[(down > ridge) & (down < 0.45)] = (235, 235, 245)
    return picture


def _draw_marble() -> np.ndarray:
    """Draw veins of light and dark stone (96, 96, 3)."""
    rng = np.random.default_rng(2)
    veins = sum(_make_smooth_noise_picture(rng, 3 * 2**octave) / 2**octave for octave in range(4))
    return _blend_colours(0.5 + 0.5 * np.sin(9.0 * veins), (60, 50, 80), (230, 225, 200))


def _draw_woodcut_waves() -> np.ndarray:
    """Draw rows of waves, as in a woodcut (96, 96, 3)."""
    down, across = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    crest = np.sin(2 * np.pi * (7.0 * down + 0.35 * np.sin(2 * np.pi * 3.0 * across)))
    return _blend_colours(0.5 + 0.5 * np.tanh(3.0 * crest), (30, 70, 130), (225, 235, 225))


def _draw_city() -> np.ndarray:
    """Draw blocks of flats by night, with some windows lit (96, 96, 3)."""
    rng = np.random.default_rng(4)
    picture = np.kron(rng.integers(40, 130, (8, 8, 1)), np.ones((12, 12, 1))).repeat(3, axis=2)
    windows = np.kron(rng.random((24, 24)) < 0.35, [[0, 0, 0, 0], *[[0, 1, 1, 0]] * 2, [0] * 4])
    picture[windows.astype(bool)] = (240, 210, 90)
    return picture


_PICTURES: dict[str, Callable[[], np.ndarray]] = {
    "mountain": _draw_mountain,
    "marble": _draw_marble,
    "waves": _draw_woodcut_waves,
    "city": _draw_city,
}
BACKGROUNDS = (GRASS, *_PICTURES)
