"""The noise that all sensors carry, which is estimated and filtered out of the readings.

In every robot without noise some channels change smoothly, or are 0 or 1. If no channel does, all
channels are noisy. Then each channel gets a scalar Kalman filter, in which a reading has more
weight the larger the forward model's errors are compared with the noise. The magnitude of the
errors is the model's estimate, or that of the recent errors if these are larger than model and
noise explain (Mehra 1970, "On the identification of variances and adaptive Kalman filtering").
Without the recent errors, an overconfident model would override the readings of a hopper that
touches the ground.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from an_control.monitor.settings import MONITOR

F32 = np.float32


def estimate_noise_of_smoothest_channels(readings: np.ndarray) -> float:
    """Return how much noise the smoothest channels may carry, as a standard deviation.

    Noise makes a channel rough: its change differs much from one tick to the next. The result is
    the noise that would make a constant signal as rough as the smoothest channels are. If it is
    small, some channels are smooth, which shows that not all sensors are noisy.

    Args:
        readings: (T, N) the readings of T ticks, with at least one channel without NaN.
    """
    readings = readings[:, ~np.isnan(readings).any(0)]
    change = readings[1:] - readings[:-1]
    second = np.sort(np.abs(change[1:] - change[:-1]), axis=0)
    half = len(second) // 2
    median = second[half] if len(second) % 2 else (second[half - 1] + second[half]) / 2
    median.sort()
    smoothest = median[int(MONITOR.noise.share * (len(median) - 1))]
    return float(smoothest / MONITOR.noise.of_second_difference)


class SensorNoiseEstimator:
    """An estimator and filter of sensor noise, which is assumed to be equal in all channels.

    Args:
        max_roughness: The sensors count as free of noise as long as
            `estimate_noise_of_smoothest_channels` returns no more than this.
        binary: (N,) True for channels that read 0 or 1. Their readings are rounded, not filtered.
    """

    def __init__(self, max_roughness: float, binary: np.ndarray) -> None:
        self._settings, self._max_roughness, self._binary = MONITOR.noise, max_roughness, binary
        self.reset()

    def reset(self) -> None:
        """Start an episode with the assumption that there is no noise."""
        self.sd = 0.0
        """The estimated standard deviation of the noise; 0 without noise."""
        self._readings: deque[np.ndarray] = deque(maxlen=self._settings.ticks)
        self._ticks = 0
        self._variance = np.zeros(len(self._binary), F32)
        self._squared_error = np.zeros(len(self._binary), F32)

    def discard_recorded_readings(self) -> None:
        """Remove the recorded readings, because input slots carry other signals from now on."""
        self._readings.clear()

    def update_noise_estimate_and_check_onset(self, readings: np.ndarray) -> bool:
        """Update the estimate of the noise; return whether noise has just set in.

        Args:
            readings: (N,) the readings by input slot, NaN where missing.
        """
        self._readings.append(readings)
        self._ticks += 1
        if self._ticks % self._settings.every or len(self._readings) < self._settings.min_ticks:
            return False
        recorded = np.array(self._readings)
        if np.isnan(recorded).any(0).all():
            return False
        before, rough = self.sd, estimate_noise_of_smoothest_channels(recorded)
        if rough <= self._max_roughness:
            self.sd = 0.0
        elif before:
            self.sd += self._settings.rate * (self._settings.of_smoothest * rough - self.sd)
        else:
            self.sd = self._settings.of_smoothest * rough
            self._variance[:] = self.sd**2
            self._squared_error[:] = self._settings.first_error * self.sd**2
        return self.sd > 0.0 == before

    def filter_noise(
        self, expected: np.ndarray, scale: np.ndarray, readings: np.ndarray
    ) -> np.ndarray:
        """Return the likeliest signals (N,) behind noisy readings; missing ones stay NaN.

        Args:
            expected: (N,) the expected signals by channel.
            scale: (N,) the scale of the errors of these expectations.
            readings: (N,) the noisy readings by channel, NaN where missing.
        """
        missing = np.isnan(readings)
        noise, error = F32(self.sd**2), np.where(missing, F32(0.0), readings - expected)
        squared = error * error
        model = scale * scale + F32(self._settings.carried) * self._variance
        largest = F32(self._settings.outlier**2) * (model + noise + self._squared_error)
        self._squared_error += F32(self._settings.error_rate) * (
            np.minimum(squared, largest) - self._squared_error
        )
        variance = np.maximum(model, self._squared_error - F32(self._settings.explained) * noise)
        gain = variance / (variance + noise)
        gain[squared > self._settings.outlier**2 * (variance + noise)] = 1.0
        self._variance = gain * noise
        contact = np.round(np.clip(readings, 0.0, 1.0))
        found: np.ndarray = np.where(self._binary, contact, expected + gain * error).astype(F32)
        found[missing] = np.nan
        return found
