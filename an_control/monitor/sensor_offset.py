"""The constant offset of each sensor, which is estimated and subtracted from its readings.

A joint whose encoder's zero is wrong, or an Imu that is mounted at an angle, reads too much by the
same number in every tick. The forward model then errs in a way that depends on all offsets at once:
if a signal is too large by b, the predicted change is wrong by the Jacobian of the prediction times
b. The offsets are the solution of a weighted least squares problem with one equation for each
channel in each tick, with a normal prior on the offsets (recursive least squares with exponential
forgetting; Ljung 1999, "System Identification", section 11.2).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from an_control.monitor.forward_model import ExpectedReadings, ForwardModel
from an_control.monitor.settings import FREEDOM, MONITOR
from an_control.system.blas import one_blas_thread

F32 = np.float32


class StoredTick(NamedTuple):
    """A tick from which the offsets are to be estimated."""

    expectation: ExpectedReadings
    """The signals that were expected in this tick."""
    raw_signals: np.ndarray
    """(N,) the readings of this tick by channel, from which no offset was subtracted."""
    previous_offsets: np.ndarray
    """(N,) the offsets that were subtracted in the tick before."""
    noise_sd: float
    """The standard deviation of the noise that all sensors have."""


class SensorOffsetEstimator:
    """An estimator of the constant offset of each channel's sensor, which also subtracts it.

    Offsets of channels that never changed in training are not estimated. Offsets that are small or
    uncertain are not subtracted, so that the readings of a robot without offsets stay the same to
    the last bit.

    Args:
        forward: The forward model of N channels.
    """

    def __init__(self, forward: ForwardModel) -> None:
        self._forward, self._settings = forward, MONITOR.offset
        channels = np.flatnonzero(~forward.constant)
        if len(channels) > self._settings.max_channels:
            channels = channels[:0]
        self._channels = channels
        """(K,) the indices of the channels whose offsets are estimated."""
        self._binary = np.flatnonzero(forward.binary[channels])
        """The places of the binary channels in `_channels`."""
        products = len(forward.channels) * forward.products
        self._least_gap = products // self._settings.products_per_tick
        """Ticks that must lie between two used ticks, as a large model takes longer."""
        self.reset()

    def reset(self) -> None:
        """Start an episode with the assumption that no sensor has an offset."""
        count, estimated = len(self._forward.channels), len(self._channels)
        self.offsets = np.zeros(count, F32)
        """(N,) what is subtracted from each channel's reading in this tick."""
        self._targets = self.offsets
        """(N,) what `offsets` approaches in small steps, or reaches in this tick."""
        self._ticks = self._used_ticks = self._gap = 0
        self._likely = False
        """Whether any offset is likely."""
        self._stored: StoredTick | None = None
        self._previous = self.offsets
        """(N,) what was subtracted in the tick before."""
        self._matrix = np.zeros((estimated, estimated))
        self._vector = np.zeros(estimated)

    def start_tick(self) -> None:
        """Bring what is subtracted a step nearer to the estimate, for a new tick."""
        self._previous = self.offsets
        if self.offsets is self._targets:
            return
        step = F32(self._settings.step) * self._forward.usual_change
        ahead = self._targets - self.offsets
        if (np.abs(ahead) <= step).all():
            self.offsets = self._targets
        else:
            self.offsets = self.offsets + np.clip(ahead, -step, step)

    def subtract_offsets(self, readings: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return the readings by slot without the sensors' offsets.

        Args:
            readings: (N,) float32 the readings by input slot, NaN where missing.
            slots: (N,) the slot that is estimated to feed each channel.

        Returns:
            (N,) the corrected readings; the given array itself if no offset is subtracted.
        """
        if not self.offsets.any():
            return readings
        corrected = readings.copy()
        corrected[slots] -= self.offsets
        return corrected

    def store_tick(
        self,
        expectation: ExpectedReadings,
        previous: np.ndarray,
        signals: np.ndarray,
        noise_sd: float = 0.0,
    ) -> None:
        """Store a tick for the next `update_offsets_from_stored_tick`, unless it is skipped.

        Ticks are skipped in which the robot hardly moves, or readings of this tick or of the one
        before are missing or estimates.

        Args:
            expectation: The signals that were expected in this tick.
            previous: (N,) the readings of the tick before by channel, after `subtract_offsets`, but
                not filtered. The expectation was computed from them, or with noise from the
                filtered ones.
            signals: (N,) the readings of this tick by channel, after `subtract_offsets`.
            noise_sd: The standard deviation of the noise that all sensors have.
        """
        settings, channels, start = self._settings, self._channels, expectation.signals
        change = signals - previous
        if not len(channels) or np.isnan(change).any() or np.isnan(start).any():
            return
        if not noise_sd and (start != previous).any():
            return
        moved = np.abs(change[channels]) - settings.noise_change * noise_sd
        if not np.median(moved / self._forward.usual_change[channels]) > settings.min_motion:
            return
        self._ticks += 1
        self._gap += 1
        often = self._likely or self._ticks <= settings.first_ticks
        every = settings.every if often else settings.later_every
        if self._gap >= max(every, self._least_gap):
            raw_signals = signals + self.offsets
            self._stored = StoredTick(expectation, raw_signals, self._previous, noise_sd)

    @one_blas_thread
    def update_offsets_from_stored_tick(self) -> None:
        """Estimate the offsets anew if a tick is stored, and decide which ones to subtract."""
        if self._stored is None:
            return
        settings, channels = self._settings, self._channels
        (start, action, prediction, *_), raw_signals, before, noise_sd = self._stored
        self._stored = None
        jacobian = self._forward.compute_jacobian_of_change(start, action)[
            np.ix_(channels, channels)
        ].astype(np.float64)
        change = raw_signals - (start + before)
        error = (change - prediction.change[0])[channels].astype(np.float64)
        error -= jacobian @ before[channels]
        scale = prediction.scale[0][channels].astype(np.float64)
        scale = np.sqrt(scale**2 + MONITOR.costs.noise_variances * noise_sd**2)
        binary, reads = self._binary, raw_signals[channels[self._binary]]
        jacobian[binary] = 0.0
        jacobian[binary, binary] = -1.0
        error[binary] = reads - np.round(np.clip(reads, 0.0, 1.0))
        scale[binary] = MONITOR.costs.binary_scale
        unexplained = error + jacobian @ self.offsets[channels]
        weight = (FREEDOM + 1.0) / (FREEDOM * scale**2 + unexplained**2)
        weighted = jacobian.T * weight
        kept = math.exp(-self._gap / settings.horizon_ticks)
        self._gap = 0
        self._matrix = kept * self._matrix + weighted @ jacobian
        self._vector = kept * self._vector - weighted @ error
        self._used_ticks += 1
        if self._used_ticks % settings.solve_every == 0:
            self._choose_targets()

    def _choose_targets(self) -> None:
        """Solve for the offsets, and choose those that are large and certain as targets."""
        settings, channels = self._settings, self._channels
        covariance = np.linalg.inv(self._matrix + np.eye(len(channels)) / settings.prior_sd**2)
        offsets, sd = covariance @ self._vector, np.sqrt(np.maximum(np.diag(covariance), 1e-12))
        certainty = np.abs(offsets) / sd
        self._likely = bool((certainty > settings.likely).any())
        if self._ticks < settings.min_ticks:
            return
        size = np.abs(offsets) / self._forward.usual_change[channels]
        first = (certainty > settings.min_certainty) & (size > settings.min_size)
        if not (first.any() or self._targets.any()):
            return
        clear = (certainty > settings.further_certainty) & (size > settings.further_size)
        clear &= np.abs(offsets) < settings.max_offset
        self._targets = np.zeros_like(self.offsets)
        self._targets[channels[clear]] = offsets[clear]

    @property
    def offset_by_channel(self) -> dict[str, float]:
        """The offsets that are subtracted, by channel id; empty if no sensor has a clear offset."""
        places = np.flatnonzero(self._targets)
        return {self._forward.channels[place]: float(self._targets[place]) for place in places}
