"""Random pictures in the place of CarRacing's grass."""

from __future__ import annotations

import cv2
import numpy as np

ROAD_GRAY = 102.0
GRASS_GRAYS = (159, 177)
"""Between them is what CarRacing's grass looks like, and hardly anything else."""


def pattern(side: int, rng: np.random.Generator) -> np.ndarray:
    """A picture (side, side) uint8: blots, blocks, stripes and cuts, one to three of these.

    Half of them are about as dark as the road, which is then hard to see.
    """
    dark = rng.random() < 0.5
    shades = np.full((side, side), rng.normal(ROAD_GRAY, 25.0) if dark else rng.uniform(0.0, 255.0))
    for kind in rng.integers(4, size=rng.integers(1, 4)):
        contrast = np.exp(rng.uniform(np.log(5.0), np.log(100.0)))
        shades += contrast * (_blots, _blocks, _stripes, _cuts)[kind](side, rng)
    return np.asarray(np.clip(shades, 0.0, 255.0)).astype(np.uint8)


def _cells(rng: np.random.Generator) -> np.ndarray:
    """Shades of 2 to 32 rows and columns of cells, as often few as many."""
    rows, columns = np.exp(rng.uniform(np.log(2.0), np.log(33.0), 2)).astype(int)
    return rng.standard_normal((rows, columns)).astype(np.float32)


def _blots(side: int, rng: np.random.Generator) -> np.ndarray:
    return cv2.resize(_cells(rng), (side, side), interpolation=cv2.INTER_CUBIC)


def _blocks(side: int, rng: np.random.Generator) -> np.ndarray:
    return cv2.resize(_cells(rng), (side, side), interpolation=cv2.INTER_NEAREST)


def _stripes(side: int, rng: np.random.Generator) -> np.ndarray:
    """In any direction, bent by blots, soft or hard."""
    down, across = np.mgrid[0:side, 0:side] / side
    angle = rng.uniform(0.0, np.pi)
    along = np.cos(angle) * down + np.sin(angle) * across
    bent = rng.uniform(2.0, 15.0) * along + rng.uniform(0.0, 0.3) * _blots(side, rng)
    return np.asarray(np.tanh(rng.uniform(0.5, 5.0) * np.sin(2.0 * np.pi * bent)))


def _cuts(side: int, rng: np.random.Generator) -> np.ndarray:
    """Straight cuts through the picture, each with another shade on its far side."""
    down, across = np.mgrid[0:side, 0:side] / side - 0.5
    shades = np.zeros((side, side))
    for _ in range(rng.integers(1, 6)):
        angle, place = rng.uniform(0.0, 2.0 * np.pi), rng.uniform(-0.4, 0.4)
        shades += rng.normal() * (np.cos(angle) * down + np.sin(angle) * across > place)
    return shades


def replace_grass(view: np.ndarray, picture: np.ndarray) -> None:
    """Put a picture (S, S) uint8 where a view (f, S, S) uint8 shows grass, in place.

    It stands still, as the backgrounds of CarRacing do.
    """
    there = (view >= GRASS_GRAYS[0]) & (view <= GRASS_GRAYS[1])
    np.copyto(view, picture, where=there)
