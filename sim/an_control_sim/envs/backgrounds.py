"""Backgrounds for CarRacing: pictures that stand still behind the road, instead of the grass.

The paper put four photographs and paintings there (Tang & Ha 2021, section 4.4). These are drawn
from fixed seeds, so that they need no file and are everybody's own.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

SIZE = 96
GRASS = "grass"
"""The look that the game has by itself, and that training sees."""


def background(name: str) -> np.ndarray | None:
    """The picture (96, 96, 3) uint8 of a name, None for the grass; ValueError for no such name."""
    if name == GRASS:
        return None
    if name not in _PICTURES:
        raise ValueError(f"background: {name!r} is not one of {', '.join(BACKGROUNDS)}")
    return np.clip(_PICTURES[name](), 0, 255).astype(np.uint8)


def _smooth(rng: np.random.Generator, cells: int) -> np.ndarray:
    """Noise (96, 96) in 0..1 that changes over a `cells`-th of the picture."""
    coarse = rng.random((cells + 1, cells + 1))
    place = np.linspace(0.0, cells, SIZE, endpoint=False)
    low = place.astype(int)
    part = place - low
    part = part * part * (3.0 - 2.0 * part)
    rows = coarse[low] * (1.0 - part)[:, None] + coarse[low + 1] * part[:, None]
    return rows[:, low] * (1.0 - part) + rows[:, low + 1] * part


def _blend(share: np.ndarray, first: tuple[int, ...], second: tuple[int, ...]) -> np.ndarray:
    return share[..., None] * np.array(second) + (1.0 - share[..., None]) * np.array(first)


def _mountain() -> np.ndarray:
    """A peak with snow before an evening sky."""
    rng = np.random.default_rng(1)
    down, across = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    picture = _blend(down, (70, 90, 170), (250, 180, 120))
    ridge = 0.25 + 1.1 * np.abs(across - 0.55) + 0.06 * (_smooth(rng, 24)[:1] - 0.5)
    picture[down > ridge] = (80, 85, 110)
    picture[(down > ridge) & (down < 0.45)] = (235, 235, 245)
    return picture


def _marble() -> np.ndarray:
    """Veins of light and dark stone."""
    rng = np.random.default_rng(2)
    veins = sum(_smooth(rng, 3 * 2**octave) / 2**octave for octave in range(4))
    return _blend(0.5 + 0.5 * np.sin(9.0 * veins), (60, 50, 80), (230, 225, 200))


def _waves() -> np.ndarray:
    """Rows of waves, as in a woodcut."""
    down, across = np.mgrid[0:SIZE, 0:SIZE] / SIZE
    crest = np.sin(2 * np.pi * (7.0 * down + 0.35 * np.sin(2 * np.pi * 3.0 * across)))
    return _blend(0.5 + 0.5 * np.tanh(3.0 * crest), (30, 70, 130), (225, 235, 225))


def _city() -> np.ndarray:
    """Blocks of flats by night, some windows lit."""
    rng = np.random.default_rng(4)
    picture = np.kron(rng.integers(40, 130, (8, 8, 1)), np.ones((12, 12, 1))).repeat(3, axis=2)
    windows = np.kron(rng.random((24, 24)) < 0.35, [[0, 0, 0, 0], *[[0, 1, 1, 0]] * 2, [0] * 4])
    picture[windows.astype(bool)] = (240, 210, 90)
    return picture


_PICTURES: dict[str, Callable[[], np.ndarray]] = {
    "mountain": _mountain,
    "marble": _marble,
    "waves": _waves,
    "city": _city,
}
BACKGROUNDS = (GRASS, *_PICTURES)
