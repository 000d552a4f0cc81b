"""The costs of input slots as channels, in nats.

The cost of slot i as channel k is the negative log-likelihood of the slot's reading if slot i fed
channel k, less a constant. Assignments are compared by sums of costs.
"""

from __future__ import annotations

import math

import numpy as np

from an_control.monitor.forward_model import ForwardModel, Prediction
from an_control.monitor.settings import FREEDOM, CostSettings

F32 = np.float32


class Costs:
    """The cost of each slot as each channel, computed from readings and predictions.

    Args:
        forward: A forward model of N channels.
        settings: The tuned numbers of the costs.
    """

    def __init__(self, forward: ForwardModel, settings: CostSettings) -> None:
        from an_control.monitor import kernels  # which imports numba: that takes a second

        self._settings, self._binary, self._usual = settings, forward.binary, forward.usual_costs
        self._usual_sum = float(self._usual.sum())
        self._floor = np.where(forward.constant, F32(settings.constant_floor), F32(settings.floor))
        self._max_ratio = np.where(
            forward.constant, F32(settings.constant_max_ratio), F32(settings.max_ratio)
        )
        self.noise_sd = 0.0
        self.assign = kernels.assign
        """Return the assignment of least cost, see `kernels.assign`."""
        self._add_costs = kernels.add_costs if kernels.COMPILES else self.add_uncompiled
        self._warm_up(forward)

    @property
    def noise_sd(self) -> float:
        """The standard deviation of the noise on all readings, which makes all errors larger."""
        return self._noise_sd

    @noise_sd.setter
    def noise_sd(self, sd: float) -> None:
        settings, self._noise_sd = self._settings, sd
        self._width = max(settings.binary_scale, sd)
        """The distance within which a reading counts as 0 or 1."""
        self._variance = self._floor + F32(settings.noise_variances * sd**2)
        """(N,) the variance that the noise of both readings adds to a change's error."""
        self._constants = (
            self._binary,
            self._usual,
            self._width,
            self._max_ratio,
            self._variance,
            settings.min_probability,
            settings.min_likelihood,
        )

    def _warm_up(self, forward: ForwardModel) -> None:
        """Compile everything now."""
        count = len(self._binary)
        costs, readings = np.zeros((count, count)), np.zeros((1, count), F32)
        prediction = forward.predict(readings, np.zeros((1, forward.actions), F32))
        self.add(costs, readings, prediction.change, readings, prediction)
        for kind in (np.float64, F32):  # the second are those of the identity classifier alone
            self.assign(costs.astype(kind))

    def add(
        self,
        costs: np.ndarray,
        moved: np.ndarray,
        expected: np.ndarray,
        reads: np.ndarray,
        prediction: Prediction,
    ) -> None:
        """Add the costs of T ticks to `costs` (slots, channels), in place.

        Args:
            costs: The costs so far.
            moved: (T, slots) the readings or their changes; NaN where missing.
            expected: (T, channels) the expected values of `moved`.
            reads: (T, slots) the readings.
            prediction: The prediction (T, channels), of which scale and chance are used.
        """
        scale, chance = prediction.scale, prediction.chance
        self._add_costs(costs, moved, expected, scale, reads, chance, *self._constants)

    def add_uncompiled(
        self,
        costs: np.ndarray,
        moved: np.ndarray,
        expected: np.ndarray,
        scale: np.ndarray,
        reads: np.ndarray,
        chance: np.ndarray,
        *_: object,
    ) -> None:
        """Add the costs of T ticks as `add` does, with whole arrays instead of the kernel.

        For the Ant that takes 30 us, against 1.4 ms of the uncompiled kernel.
        """
        for t in range(len(moved)):
            prediction = Prediction(expected[t], scale[t], chance[t])
            costs += self.channel_costs(moved[t][:, None], reads[t][:, None], prediction)

    def channel_costs(
        self, moved: np.ndarray, reads: np.ndarray, prediction: Prediction
    ) -> np.ndarray:
        """Return the costs (..., N) of slots that are in the channels' order.

        Args:
            moved: (..., N) the changes of the readings; a missing one, NaN, costs what is usual.
            reads: (..., N) the readings.
            prediction: Of a shape (..., N) that broadcasts with these.
        """
        smooth, least = self._continuous_costs(moved, prediction), self._settings.min_probability
        likely = np.clip(prediction.chance, least, 1.0 - least)
        one, zero = (
            1.0 / (1.0 + ((reads - level) / self._width) ** 2 / FREEDOM) ** 2
            for level in (1.0, 0.0)
        )
        likelihood = likely * one + (1.0 - likely) * zero + self._settings.min_likelihood
        either = np.log(self._width) - np.log(likelihood)
        found: np.ndarray = np.where(
            np.isnan(moved), self._usual, np.where(self._binary, either, smooth)
        )
        return found

    def _continuous_costs(self, moved: np.ndarray, prediction: Prediction) -> np.ndarray:
        """Return the costs (..., N) of channels that are not binary."""
        scale = add_variance(prediction.scale, self._variance)
        ratio = np.minimum(np.abs(moved - prediction.change) / scale, self._max_ratio)
        costs: np.ndarray = 2.0 * np.log1p(ratio * ratio / FREEDOM) + np.log(scale)
        return costs

    def excess_costs(
        self, moved: np.ndarray, reads: np.ndarray, prediction: Prediction
    ) -> np.ndarray:
        """Return the costs (N,) of one tick above the usual ones without noise.

        Args:
            moved: (N,) the changes of the readings.
            reads: (N,) the readings.
            prediction: The prediction (1, N).
        """
        found: np.ndarray = (
            self.channel_costs(moved[None], reads[None], prediction)[0] - self._usual
        )
        return found

    def change_costs(self, moved: np.ndarray, prediction: Prediction) -> np.ndarray:
        """Return the costs (..., N) of channels that are not binary; 0 for a missing one.

        Cheaper than `channel_costs`.
        """
        found = self._continuous_costs(moved, prediction)
        found[..., np.isnan(moved)] = 0.0
        return found

    def usual_total(self, prediction: Prediction) -> float:
        """Return the usual sum of all channels' costs in a tick with this prediction (1, N)."""
        if not self.noise_sd:
            return self._usual_sum
        return self._usual_sum + float(self.noise_costs(prediction).sum())

    def noise_costs(self, prediction: Prediction) -> np.ndarray:
        """Return the costs (N,) that the noise adds in ticks with this prediction (T, N)."""
        scale = prediction.scale
        more: np.ndarray = np.log(add_variance(scale, self._variance)) - np.log(
            add_variance(scale, self._floor)
        )
        more[:, self._binary] = math.log(self._width / self._settings.binary_scale)
        found: np.ndarray = more.sum(0)
        return found

    def usual_by_channel(self, prediction: Prediction) -> np.ndarray:
        """Return each channel's usual costs (N,), summed over ticks with this prediction (T, N)."""
        usual: np.ndarray = self._usual * np.float64(len(prediction.scale))
        return usual + self.noise_costs(prediction) if self.noise_sd else usual

    def penalise_moves(self, costs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return costs (slots, channels) with a penalty for slots other than the present ones.

        `slots` (N,) are the present slots of the channels.
        """
        moved: np.ndarray = costs + self._settings.move
        moved[slots, np.arange(len(slots))] -= self._settings.move
        return moved


def add_variance(scale: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the scale of a sum of errors: one of this scale, one of this variance."""
    found: np.ndarray = np.sqrt(scale * scale + variance)
    return found


def swap_gains(costs: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return (N, N) by how much the costs of an assignment grow if two channels swap slots."""
    by_channel = costs[slots]
    own = np.diagonal(by_channel)
    gains: np.ndarray = by_channel + by_channel.T - own[:, None] - own[None, :]
    return gains
