"""Units of readings: the scale and the offset that bring each reading to ordinary size.

A policy learns from numbers around 1, but an environment's readings may be millimetres, pascals or
encoder counts. Each reading is ``number * scale + offset``, as for a channel in a wiring file.
Scale and offset are stored in the model file's task and written into a drafted wiring, so that
training, evaluation and a robot read the same. Readings of ordinary size are not changed: their
units are 1 and 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from an_control.policy.task import Task

MIN_SD, MAX_SD = 0.005, 50.0
"""Bounds of the standard deviation of readings of ordinary size."""
MAX_MEAN = 50.0
"""Maximum absolute mean of readings of ordinary size."""
MAX_ROUNDING_SD = 1e-8
"""A standard deviation up to this is due to rounding errors, not to a sensor."""
KEPT_ZERO = 3.0
"""If the mean of a reading is at most this many standard deviations from 0, its offset is 0."""


@dataclass(frozen=True)
class Units:
    """The scale and the offset of each of N readings: reading = number * scale + offset.

    The number is the environment's, the reading is the policy's. Scale and offset are empty if no
    reading is changed.

    Attributes:
        scale: The factors (N,), or ().
        offset: The offsets (N,), added after scaling, or ().
    """

    scale: tuple[float, ...] = ()
    offset: tuple[float, ...] = ()

    @classmethod
    def from_task(cls, task: Task) -> Units:
        """Return the units stored in a model file's task: the scale and offset of each reading."""
        pairs = task.units
        return cls(tuple(float(one) for one, _ in pairs), tuple(float(one) for _, one in pairs))

    @property
    def scale_offset_pairs(self) -> tuple[tuple[float, float], ...]:
        """The pair (scale, offset) of each reading, as in a model file's task; () if unchanged.

        They convert a number of the environment to a reading of the policy: reading = number *
        scale + offset.
        """
        return tuple(zip(self.scale, self.offset, strict=True))

    def __bool__(self) -> bool:
        return bool(self.scale)

    def to_readings(self, numbers: np.ndarray) -> np.ndarray:
        """Convert numbers (N,) of an environment to float32 readings (N,) by scale and offset."""
        if not self.scale:
            return numbers.astype(np.float32)
        with np.errstate(over="ignore"):
            return (numbers.astype(np.float64) * self.scale + self.offset).astype(np.float32)

    def to_numbers(self, readings: np.ndarray) -> np.ndarray:
        """Convert readings (N,) back to the environment's numbers (N,)."""
        if not self.scale:
            return readings
        return (readings.astype(np.float64) - self.offset) / self.scale

    def check_reading_count(self, reading_count: int) -> None:
        """Check that these units are for a given number of readings; empty units fit any number.

        Args:
            reading_count: The number of readings.

        Raises:
            ValueError: The units are for another number of readings.
        """
        if self.scale and len(self.scale) != reading_count:
            raise ValueError(f"units of {len(self.scale)} readings, but there are {reading_count}")


UNSCALED = Units()


def choose_units(numbers: np.ndarray, scalable: np.ndarray, resolution: float) -> Units:
    """Choose units that bring readings to a size around 1, from a sample of their values.

    Args:
        numbers: The values (T, N) float64 of T steps, NaN where missing.
        scalable: Whether each reading may be scaled (N,); False for choices and bits.
        resolution: The relative rounding error of the type in which the environment gives the
            values. Readings that vary only by such errors are not scaled.
    """
    pairs = [
        _choose_scale_and_offset(column[np.isfinite(column)], resolution) if scales else (1.0, 0.0)
        for column, scales in zip(numbers.T, scalable, strict=True)
    ]
    if all(pair == (1.0, 0.0) for pair in pairs):
        return Units()
    return Units(tuple(scale for scale, _ in pairs), tuple(offset for _, offset in pairs))


def _choose_scale_and_offset(numbers: np.ndarray, resolution: float) -> tuple[float, float]:
    """Choose the scale and the offset of one reading from a sample of its values.

    Args:
        numbers: The finite values (T,).
        resolution: The relative rounding error of the type in which the environment gives the
            values.
    """
    if not numbers.size:
        return 1.0, 0.0
    largest = float(np.abs(numbers).max())
    if largest == 0.0 or not math.isfinite(largest):
        return 1.0, 0.0
    shrunk = numbers / largest  # the squares of the largest floats are infinite
    mean, sd = float(shrunk.mean()) * largest, float(shrunk.std()) * largest
    if sd <= max(MAX_ROUNDING_SD, 4.0 * resolution * abs(mean)):  # its variation is not known
        return 1.0, (-float(round(mean)) if abs(mean) > MAX_MEAN else 0.0)
    if MIN_SD <= sd <= MAX_SD and abs(mean) <= MAX_MEAN:
        return 1.0, 0.0
    scale = 1.0 / _round_to_1_2_5(sd)
    return scale, (-float(round(mean * scale)) if abs(mean) > KEPT_ZERO * sd else 0.0)


def _round_to_1_2_5(number: float) -> float:
    """Round a number to 1, 2 or 5 times a power of ten, whichever is nearest by ratio."""
    power = 10.0 ** math.floor(math.log10(number))
    steps = [one * power for one in (1.0, 2.0, 5.0, 10.0)]
    return min(steps, key=lambda one: abs(math.log(one / number)))
