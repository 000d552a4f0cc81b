"""The costs of slots as channels, given what the forward model predicts.

`assignment` has the formulas; here they get the model's constants and the noise of the sensors.
"""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np

from an_control.monitor.assignment import costs_of, noisy, smooth_costs
from an_control.monitor.forward_model import ForwardModel, Prediction

F32 = np.float32
FLOOR, CONSTANT_FLOOR = 1e-6, 1e-12
"""Added to the squared scale of errors; the same of channels that never change."""
MAX_RATIO, CONSTANT_MAX_RATIO = 1e6, 13.0
"""Of an error to its scale, as far as it counts. That a channel which never changed in training
does is worth 8 nats a tick: it may flicker on another robot."""
NOISE_VARIANCES = 2.0
"""Variances of the sensors' noise in a change: of the last reading and of the new one."""
BINARY_SCALE = 0.003
"""The scale within which a reading counts as 0 or 1."""


class Costs:
    """Costs in nats: in, readings and predictions; out, a cost for each slot as each channel.

    Args:
        forward: a model of N channels.
        compiled: take the compiled formulas, which need numba; they are compiled here.
    """

    def __init__(self, forward: ForwardModel, *, compiled: bool = False) -> None:
        suffix = "_numba" if compiled else ""
        module: Any = import_module(f"an_control.monitor.assignment{suffix}")
        self._add = module.add_costs
        self.assign = module.assign
        """The assignment of least cost, see `assignment.assign`."""
        self._binary, self._usual = forward.binary, forward.usual_costs
        self._usual_sum = float(self._usual.sum())
        self._floor = np.where(forward.constant, F32(CONSTANT_FLOOR), F32(FLOOR))
        self._max_ratio = np.where(forward.constant, F32(CONSTANT_MAX_RATIO), F32(MAX_RATIO))
        self.noise_sd = 0.0
        """The sd of the noise on every reading now, which makes all errors larger."""
        if compiled:
            self._warm_up(forward)

    def _warm_up(self, forward: ForwardModel) -> None:
        count = len(forward.channels)
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
        """Add to `costs` (slots, channels) what T ticks say; see `assignment.add_costs`."""
        scale, chance = prediction.scale, prediction.chance
        constants = *self._constants(), self._variance
        self._add(costs, moved, expected, scale, reads, chance, *constants)

    def own(self, moved: np.ndarray, reads: np.ndarray, prediction: Prediction) -> np.ndarray:
        """Costs (..., N) of how each channel's own slot moved, and what it reads, as the channel.

        As `prediction`, which may be of any shape (..., N).
        """
        scale = self._scale(prediction)
        return costs_of(
            moved, prediction.change, scale, reads, prediction.chance, *self._constants()
        )

    def excess(self, moved: np.ndarray, reads: np.ndarray, prediction: Prediction) -> np.ndarray:
        """The same (N,) of one tick with a prediction (1, N), above what each channel costs usually
        without noise."""
        found: np.ndarray = self.own(moved[None], reads[None], prediction)[0] - self._usual
        return found

    def of_changes(self, moved: np.ndarray, prediction: Prediction) -> np.ndarray:
        """`own` of channels that are not binary, for less work; 0 where one is missing."""
        scale = self._scale(prediction)
        found: np.ndarray = smooth_costs(moved, prediction.change, scale, self._max_ratio)
        found[..., np.isnan(moved)] = 0.0
        return found

    def usual(self, prediction: Prediction) -> float:
        """What all channels cost usually, in a tick with this prediction (1, N)."""
        if not self.noise_sd:
            return self._usual_sum
        return self._usual_sum + float(self.of_noise(prediction).sum())

    def of_noise(self, prediction: Prediction) -> np.ndarray:
        """By how much more the noise makes each channel cost (N,), in such ticks (T, N)."""
        scale = prediction.scale
        more: np.ndarray = np.log(noisy(scale, self._variance)) - np.log(noisy(scale, self._floor))
        more[:, self._binary] = math.log(max(BINARY_SCALE, self.noise_sd) / BINARY_SCALE)
        found: np.ndarray = more.sum(0)
        return found

    def usual_by_channel(self, prediction: Prediction) -> np.ndarray:
        """What each channel costs usually (N,), in the sum of such ticks (T, N)."""
        usual: np.ndarray = self._usual * np.float64(len(prediction.scale))
        return usual + self.of_noise(prediction) if self.noise_sd else usual

    @property
    def _variance(self) -> np.ndarray:
        """What the noise before and after adds to the variance of errors (N,)."""
        return self._floor + F32(NOISE_VARIANCES * self.noise_sd**2)

    def _scale(self, prediction: Prediction) -> np.ndarray:
        return noisy(prediction.scale, self._variance)

    def _constants(self) -> tuple[np.ndarray, np.ndarray, float, np.ndarray]:
        return self._binary, self._usual, max(BINARY_SCALE, self.noise_sd), self._max_ratio
