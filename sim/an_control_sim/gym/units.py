"""Units of readings: the scale and offset that bring each one to an ordinary size.

A policy learns from numbers around 1. An environment's readings may be millimetres, pascals or
encoder counts; each is taken as ``number * scale + offset``, in the words of a wiring's channel.
The model file keeps both in its task, and a drafted wiring has them, so that learning, evaluation
and a robot read the same.

Readings of ordinary size stay as they are: their units are 1 and 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from an_control.policy.task import Task

MIN_SD, MAX_SD = 0.005, 50.0
"""Standard deviations between which readings are of ordinary size."""
MAX_MEAN = 50.0
"""Largest mean of readings of ordinary size."""
NOTHING = 1e-8
"""A standard deviation up to here is that of rounding errors, not of a sensor."""
KEPT_ZERO = 3.0
"""Standard deviations of the mean from 0 up to which 0 stays 0."""


@dataclass(frozen=True)
class Units:
    """Scale and offset of N readings; of none where all are taken as they are.

    Attributes:
        scale: (N,) float64, or () where there is nothing to do.
        offset: the same.
    """

    scale: tuple[float, ...] = ()
    offset: tuple[float, ...] = ()

    @classmethod
    def of_task(cls, task: Task) -> Units:
        """Return the units of a model's task."""
        pairs = task.units
        return cls(tuple(float(one) for one, _ in pairs), tuple(float(one) for _, one in pairs))

    @property
    def pairs(self) -> tuple[tuple[float, float], ...]:
        """Return the scale and offset of each reading, as a model's task has them."""
        return tuple(zip(self.scale, self.offset, strict=True))

    def __bool__(self) -> bool:
        return bool(self.scale)

    def scaled(self, numbers: np.ndarray) -> np.ndarray:
        """Return float32 readings (N,) for the environment's numbers (N,), as a wiring does."""
        if not self.scale:
            return numbers.astype(np.float32)
        with np.errstate(over="ignore"):
            return (numbers.astype(np.float64) * self.scale + self.offset).astype(np.float32)

    def numbers(self, readings: np.ndarray) -> np.ndarray:
        """Return the environment's numbers (N,) for readings (N,)."""
        if not self.scale:
            return readings
        return (readings.astype(np.float64) - self.offset) / self.scale

    def check(self, readings: int) -> None:
        """ValueError unless these are units of so many readings."""
        if self.scale and len(self.scale) != readings:
            raise ValueError(f"units of {len(self.scale)} readings, but there are {readings}")


AS_THEY_ARE = Units()


def units_for(numbers: np.ndarray, scalable: np.ndarray, resolution: float) -> Units:
    """Return the units of readings that showed these numbers (T, N), NaN where there was none.

    Args:
        numbers: float64.
        scalable: (N,) whether a reading has a unit at all.
        resolution: relative, of the type that the numbers come in.
    """
    pairs = [
        _unit(column[np.isfinite(column)], resolution) if scales else (1.0, 0.0)
        for column, scales in zip(numbers.T, scalable, strict=True)
    ]
    if all(pair == (1.0, 0.0) for pair in pairs):
        return Units()
    return Units(tuple(scale for scale, _ in pairs), tuple(offset for _, offset in pairs))


def _unit(numbers: np.ndarray, resolution: float) -> tuple[float, float]:
    """Return scale and offset of one reading that showed these numbers (T,)."""
    if not numbers.size:
        return 1.0, 0.0
    largest = float(np.abs(numbers).max())
    if largest == 0.0 or not math.isfinite(largest):
        return 1.0, 0.0
    shrunk = numbers / largest  # the squares of the largest floats are infinite
    mean, sd = float(shrunk.mean()) * largest, float(shrunk.std()) * largest
    if sd <= max(NOTHING, 4.0 * resolution * abs(mean)):  # nothing says how much it will vary
        return 1.0, (-float(round(mean)) if abs(mean) > MAX_MEAN else 0.0)
    if MIN_SD <= sd <= MAX_SD and abs(mean) <= MAX_MEAN:
        return 1.0, 0.0
    scale = 1.0 / _round(sd)
    return scale, (-float(round(mean * scale)) if abs(mean) > KEPT_ZERO * sd else 0.0)


def _round(number: float) -> float:
    """Return the nearest of 1, 2 and 5 times a power of ten, by ratio."""
    power = 10.0 ** math.floor(math.log10(number))
    steps = [one * power for one in (1.0, 2.0, 5.0, 10.0)]
    return min(steps, key=lambda one: abs(math.log(one / number)))
