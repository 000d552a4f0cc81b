"""The costs of assigning input slots to channels, in nats.

The cost of slot i as channel k is the negative log-likelihood of the slot's reading if slot i fed
channel k, less a constant. Assignments are compared by sums of costs.
"""

from __future__ import annotations

import math

import numpy as np

from an_control.monitor.forward_model import ChangePrediction, ForwardModel
from an_control.monitor.settings import FREEDOM, MONITOR

F32 = np.float32


class CostCalculator:
    """A calculator of how badly the reading at each input slot fits each channel.

    A slot is a position at which a sensor's readings arrive, a channel is a named input of the
    model. The forward model predicts the next reading of each channel. The cost of assigning a slot
    to a channel is the negative log-likelihood, in nats, of the slot's reading by this prediction.

    Args:
        forward: A forward model of N channels.
    """

    def __init__(self, forward: ForwardModel) -> None:
        from an_control.monitor import kernels  # imported here, as importing numba takes a second

        self._settings = settings = MONITOR.costs
        self._binary, self._usual = forward.binary, forward.usual_costs
        self._usual_sum = float(self._usual.sum())
        self._floor = np.where(forward.constant, F32(settings.constant_floor), F32(settings.floor))
        self._max_ratio = np.where(
            forward.constant, F32(settings.constant_max_ratio), F32(settings.max_ratio)
        )
        self.noise_sd = 0.0
        self.solve_assignment = kernels.solve_assignment
        """A function that returns the assignment of least cost, see `kernels.solve_assignment`."""
        self._add_costs = (
            kernels.add_tick_costs_to_matrix if kernels.COMPILES else self.add_tick_costs_uncompiled
        )
        self._compile_kernels(forward)

    @property
    def noise_sd(self) -> float:
        """The estimated standard deviation of the noise, the same for every reading."""
        return self._noise_sd

    @noise_sd.setter
    def noise_sd(self, sd: float) -> None:
        settings, self._noise_sd = self._settings, sd
        self._width = max(settings.binary_scale, sd)
        """The distance from 0 or 1 within which a binary channel's reading counts as that value."""
        self._variance = self._floor + F32(settings.noise_variances * sd**2)
        """(N,) the variance added to that of a change's error: a floor, and the noise of two
        readings."""
        self._constants = (
            self._binary,
            self._usual,
            self._width,
            self._max_ratio,
            self._variance,
            settings.min_probability,
            settings.min_likelihood,
        )

    def _compile_kernels(self, forward: ForwardModel) -> None:
        """Call all compiled functions once, so that they are compiled before the first tick."""
        count = len(self._binary)
        costs, readings = np.zeros((count, count)), np.zeros((1, count), F32)
        prediction = forward.predict_changes(readings, np.zeros((1, forward.actions), F32))
        self.add_tick_costs_to_matrix(costs, readings, prediction.change, readings, prediction)
        for kind in (np.float64, F32):  # float32: costs of the identity classifier alone
            self.solve_assignment(costs.astype(kind))

    def add_tick_costs_to_matrix(
        self,
        costs: np.ndarray,
        observed: np.ndarray,
        expected: np.ndarray,
        readings: np.ndarray,
        prediction: ChangePrediction,
    ) -> None:
        """Add to a matrix how badly each slot's readings of T ticks fit each channel, in place.

        For a channel with real values the cost follows from the difference between `observed` and
        `expected`, for a binary channel from `readings`.

        Args:
            costs: (slots, channels) the sums of the costs (negative log-likelihoods) in nats so
                far; changed.
            observed: (T, slots) either the readings or their changes from tick to tick, whichever
                `expected` predicts; NaN where missing.
            expected: (T, channels) the expected values of `observed`.
            readings: (T, slots) the readings themselves, even if `observed` holds their changes.
            prediction: The forward model's prediction (T, channels), which gives the scale of
                the errors of real values, and the probabilities of binary channels.
        """
        scale, probability = prediction.scale, prediction.probability
        self._add_costs(costs, observed, expected, scale, readings, probability, *self._constants)

    def add_tick_costs_uncompiled(
        self,
        costs: np.ndarray,
        observed: np.ndarray,
        expected: np.ndarray,
        scale: np.ndarray,
        readings: np.ndarray,
        probability: np.ndarray,
        *_: object,
    ) -> None:
        """Add the costs of T ticks to the matrix of how badly each slot fits each channel.

        This is used in place of `kernels.add_tick_costs_to_matrix` if numba is not installed. It
        needs only numpy, and is much faster than that function in plain Python.

        Args:
            costs: (slots, channels) the sums of the costs (negative log-likelihoods) in nats so
                far; changed in place.
            observed: (T, slots) either the readings or their changes from tick to tick, whichever
                `expected` predicts; NaN where missing.
            expected: (T, channels) the expected values of `observed`.
            scale: (T, channels) the scale of the errors.
            readings: (T, slots) the readings, which binary channels are compared with.
            probability: (T, channels) the probability that a channel reads 1; used for binary
                channels only.
        """
        for t in range(len(observed)):
            prediction = ChangePrediction(expected[t], scale[t], probability[t])
            costs += self.compute_reading_costs(
                observed[t][:, None], readings[t][:, None], prediction
            )

    def compute_reading_costs(
        self, changes: np.ndarray, readings: np.ndarray, prediction: ChangePrediction
    ) -> np.ndarray:
        """Return how badly each channel's reading fits the prediction for that channel, in nats.

        For a channel with real values the cost follows from the reading's change since the tick
        before, for a binary channel from the reading itself.

        Args:
            changes: (..., N) the changes of the readings in the channels' order; NaN where missing.
                A missing reading has the channel's usual cost.
            readings: (..., N) the readings in the channels' order.
            prediction: The forward model's prediction, with a shape that broadcasts with the
                readings.

        Returns:
            (..., N) the costs, which are negative log-likelihoods of the readings.
        """
        smooth = self._compute_change_costs_keeping_nan(changes, prediction)
        least = self._settings.min_probability
        likely = np.clip(prediction.probability, least, 1.0 - least)
        one, zero = (
            1.0 / (1.0 + ((readings - level) / self._width) ** 2 / FREEDOM) ** 2
            for level in (1.0, 0.0)
        )
        likelihood = likely * one + (1.0 - likely) * zero + self._settings.min_likelihood
        either = np.log(self._width) - np.log(likelihood)
        found: np.ndarray = np.where(
            np.isnan(changes), self._usual, np.where(self._binary, either, smooth)
        )
        return found

    def _compute_change_costs_keeping_nan(
        self, changes: np.ndarray, prediction: ChangePrediction
    ) -> np.ndarray:
        """Return the costs (..., N) of changes in nats, with NaN where a change is missing.

        A cost is the negative log-likelihood of a change under the prediction. Binary channels are
        treated as if they had real values.

        Args:
            changes: (..., N) the changes of the readings since the tick before; NaN where missing.
            prediction: The forward model's prediction of these changes, with a shape that
                broadcasts with them.
        """
        scale = add_variance_to_error_scale(prediction.scale, self._variance)
        ratio = np.minimum(np.abs(changes - prediction.change) / scale, self._max_ratio)
        costs: np.ndarray = 2.0 * np.log1p(ratio * ratio / FREEDOM) + np.log(scale)
        return costs

    def compute_excess_costs_by_channel(
        self, changes: np.ndarray, readings: np.ndarray, prediction: ChangePrediction
    ) -> np.ndarray:
        """Return how far the cost (N,) of each channel's reading is above its usual value, in nats.

        The cost is the negative log-likelihood of the reading. Its usual value is the channel's
        mean cost while every sensor is wired to its own channel.

        Args:
            changes: (N,) the changes of the readings since the tick before, by channel.
            readings: (N,) the readings by channel.
            prediction: The prediction (1, N) for this tick.
        """
        found: np.ndarray = (
            self.compute_reading_costs(changes[None], readings[None], prediction)[0] - self._usual
        )
        return found

    def compute_reading_change_costs(
        self, changes: np.ndarray, prediction: ChangePrediction
    ) -> np.ndarray:
        """Return how badly changes of the readings fit the prediction, as costs (..., N) in nats.

        A cost is the negative log-likelihood of a change, or 0 where the change is missing. Binary
        channels are treated as if they had real values.

        Args:
            changes: (..., N) the changes of the readings since the tick before; NaN where missing.
            prediction: The forward model's prediction of these changes, with a shape that
                broadcasts with them.
        """
        found = self._compute_change_costs_keeping_nan(changes, prediction)
        found[..., np.isnan(changes)] = 0.0
        return found

    def sum_usual_costs_over_channels(self, prediction: ChangePrediction) -> float:
        """Return the total cost in nats that a tick usually has if every sensor is wired rightly.

        A cost is the negative log-likelihood of a reading. The total includes what the estimated
        sensor noise adds.

        Args:
            prediction: The prediction (1, N) for the tick. The scale of its errors decides how much
                the noise adds.
        """
        if not self.noise_sd:
            return self._usual_sum
        return self._usual_sum + float(self.compute_costs_added_by_noise(prediction).sum())

    def compute_costs_added_by_noise(self, prediction: ChangePrediction) -> np.ndarray:
        """Return by how many nats the estimated sensor noise raises each channel's usual cost.

        A usual cost is a channel's mean negative log-likelihood without this noise.

        Args:
            prediction: The prediction (T, N) for T ticks.

        Returns:
            (N,) the additional costs, summed over the ticks.
        """
        scale = prediction.scale
        more: np.ndarray = np.log(add_variance_to_error_scale(scale, self._variance)) - np.log(
            add_variance_to_error_scale(scale, self._floor)
        )
        more[:, self._binary] = math.log(self._width / self._settings.binary_scale)
        found: np.ndarray = more.sum(0)
        return found

    def compute_usual_costs_by_channel(self, prediction: ChangePrediction) -> np.ndarray:
        """Return each channel's usual costs (N,), in nats, summed over T ticks.

        A usual cost is the mean negative log-likelihood of a channel's readings if the channel is
        fed by its own slot. The costs that the estimated sensor noise adds are included.

        Args:
            prediction: The prediction (T, N) for these ticks.
        """
        usual: np.ndarray = self._usual * np.float64(len(prediction.scale))
        return usual + self.compute_costs_added_by_noise(prediction) if self.noise_sd else usual

    def compute_costs_with_move_penalty(self, costs: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Return a copy of a cost matrix with a penalty on changes of the present assignment.

        A pair of slot and channel that is in this assignment keeps its cost. A fixed penalty is
        added to all other pairs.

        Args:
            costs: (slots, channels) the cost in nats of assigning each input slot to each channel.
            slots: (N,) the input slot that feeds each channel at present.
        """
        moved: np.ndarray = costs + self._settings.move
        moved[slots, np.arange(len(slots))] -= self._settings.move
        return moved


def add_variance_to_error_scale(scale: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Return the scale of the sum of two independent errors.

    Args:
        scale: The scale of the first error, which is about its standard deviation.
        variance: The variance of the second error.
    """
    found: np.ndarray = np.sqrt(scale * scale + variance)
    return found


def compute_cost_increases_by_swaps(costs: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Return a matrix (N, N) of how much the total cost grows if channels i and j swap slots.

    Args:
        costs: (slots, channels) the cost in nats of assigning each input slot to each channel.
        slots: (N,) the input slot that feeds each channel at present.
    """
    by_channel = costs[slots]
    own = np.diagonal(by_channel)
    gains: np.ndarray = by_channel + by_channel.T - own[:, None] - own[None, :]
    return gains
