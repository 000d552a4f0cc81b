"""Noise that all sensors carry: how much there is, and readings from which it is filtered out.

Some channels change smoothly, or are 0 or 1, in every robot: if none does, all are noisy. Then a
reading counts as much as the forward model's errors are larger than the noise: a scalar Kalman
filter for each channel. How large they are, the model says; where they are larger lately than model
and noise explain, they count (Mehra 1970, "On the identification of variances and adaptive Kalman
filtering"). A model that is sure of itself would else overrule what a hopper feels of the ground.
"""

from __future__ import annotations

from collections import deque

import numpy as np

F32 = np.float32
TICKS = 25
"""Ticks by which the noise is estimated."""
MIN_TICKS = 12
"""Ticks after which it is estimated for the first time."""
EVERY = 4
"""How often it is estimated, in ticks."""
SHARE = 0.1
"""Of the channels, which are the smoothest."""
OF_SMOOTHEST = 1.23
"""The noise, where the smoothest of 28 equally noisy channels seems to have 1."""
RATE = 0.2
"""How much of the newest value counts."""
OF_SECOND_DIFFERENCE = 0.6745 * 6.0**0.5
"""The median size of the second difference of normal noise of sd 1."""
CARRIED = 0.5
"""The share of a filtered reading's variance that enters the prediction of the next."""
OUTLIER = 4.0
"""Sds of what is expected, beyond which a reading counts in full."""
ERROR_RATE = 0.1
"""How much of the newest squared error counts."""
FIRST_ERROR = 2.5
"""What is taken for the mean squared error at first, of the noise's variance."""
EXPLAINED = 2.0
"""The mean squared error that the noise explains, of its variance: its sd is an estimate."""


def roughness(readings: np.ndarray) -> float:
    """The sd that noise seems to have in the smoothest of the channels; readings (T, N) of at least
    one of them without a NaN."""
    readings = readings[:, ~np.isnan(readings).any(0)]
    change = readings[1:] - readings[:-1]
    second = np.sort(np.abs(change[1:] - change[:-1]), axis=0)
    half = len(second) // 2
    median = second[half] if len(second) % 2 else (second[half - 1] + second[half]) / 2
    median.sort()
    return float(median[int(SHARE * (len(median) - 1))] / OF_SECOND_DIFFERENCE)


class SensorNoise:
    """In: a tick's readings of N slots. Out: `sd` of the noise, 0 while there is none; a filter.

    Args:
        max_roughness: the roughness up to which there is none.
        binary: (N,) which channels read 0 or 1.
    """

    def __init__(self, max_roughness: float, binary: np.ndarray) -> None:
        self._max_roughness, self._binary = max_roughness, binary
        self.reset()

    def reset(self) -> None:
        """Start an episode, without noise."""
        self.sd = 0.0
        self._readings: deque[np.ndarray] = deque(maxlen=TICKS)
        self._ticks = 0
        self._variance = np.zeros(len(self._binary), F32)
        self._squared_error = np.zeros(len(self._binary), F32)

    def signals_moved(self) -> None:
        """Start over: what the slots read before says nothing of how smooth they are now."""
        self._readings.clear()

    def estimate(self, readings: np.ndarray) -> bool:
        """One tick's readings (N,) by slot, NaN where missing; returns whether noise set in."""
        self._readings.append(readings)
        self._ticks += 1
        if self._ticks % EVERY or len(self._readings) < MIN_TICKS:
            return False
        recorded = np.array(self._readings)
        if np.isnan(recorded).any(0).all():
            return False
        before, rough = self.sd, roughness(recorded)
        if rough <= self._max_roughness:
            self.sd = 0.0
        elif before:
            self.sd += RATE * (OF_SMOOTHEST * rough - self.sd)
        else:
            self.sd = OF_SMOOTHEST * rough
            self._variance[:] = self.sd**2
            self._squared_error[:] = FIRST_ERROR * self.sd**2
        return self.sd > 0.0 == before

    def filter(self, expected: np.ndarray, scale: np.ndarray, readings: np.ndarray) -> np.ndarray:
        """The likeliest signals (N,), from what was expected, the scale of its error, and readings.

        All by channel; what is missing stays NaN.
        """
        missing = np.isnan(readings)
        noise, error = F32(self.sd**2), np.where(missing, F32(0.0), readings - expected)
        squared = error * error
        model = scale * scale + F32(CARRIED) * self._variance
        largest = F32(OUTLIER**2) * (model + noise + self._squared_error)
        self._squared_error += F32(ERROR_RATE) * (
            np.minimum(squared, largest) - self._squared_error
        )
        variance = np.maximum(model, self._squared_error - F32(EXPLAINED) * noise)
        gain = variance / (variance + noise)
        gain[squared > OUTLIER**2 * (variance + noise)] = 1.0
        self._variance = gain * noise
        contact = np.round(np.clip(readings, 0.0, 1.0))
        found: np.ndarray = np.where(self._binary, contact, expected + gain * error).astype(F32)
        found[missing] = np.nan
        return found
