"""Imputation: estimates of signals whose channels are missing, and what they are estimated from."""

from __future__ import annotations

import numpy as np

from an_control.policy.monitor.belief import Belief
from an_control.policy.monitor.costs import Costs
from an_control.policy.monitor.forward_model import ForwardModel
from an_control.policy.sizes import WINDOW

MAX_MISSING = 0.5
"""Share of the slots up to which missing ones are imputed."""


class Imputation:
    """In: a tick's readings by slot, NaN where missing, and the belief. Out: signals by channel.

    It keeps the newest `signals` and `readings`, which the next tick is predicted from and
    compared with. A model that does not impute leaves NaN where a slot is missing.

    Args:
        forward: predicts and imputes N channels.
        costs: compares predictions with readings.
        max_excess: nats above what is usual up to which an assignment explains a tick.
    """

    def __init__(self, forward: ForwardModel, costs: Costs, max_excess: float) -> None:
        self._forward, self._costs, self._max_excess = forward, costs, max_excess
        self.reset()

    def reset(self) -> None:
        """Start an episode."""
        self.signals: np.ndarray | None = None
        """(N,) by channel, in the last tick; estimates where they were missing."""
        self.readings: np.ndarray | None = None
        """(N,) by slot, in the last tick, or the newest there was; None while on stand-by."""
        self.missing_ticks = 0
        """For how many ticks in a row slots were missing."""
        self._explained: bool | None = None

    def stand_by(self) -> None:
        """The next tick is compared with nothing."""
        self.readings = None

    def start_over(self) -> None:
        """What was estimated so far came of readings that were none."""
        self.signals = None
        self._explained = None

    def next_tick(self, missing: np.ndarray) -> bool:
        """Which slots (N,) are missing; returns whether that is too long or too early to search."""
        self.missing_ticks = self.missing_ticks + 1 if missing.any() else 0
        if self.missing_ticks and (self.readings is None or self.missing_ticks > WINDOW):
            return True
        self._explained = None
        return False

    def hold(self, readings: np.ndarray, action: np.ndarray, belief: Belief) -> np.ndarray:
        """While slots stay missing: impute them if the belief explains the others."""
        given, signals = readings[belief.outputs], readings[belief.slots]
        missing = np.isnan(signals)
        if not self._forward.imputes or missing.mean() > MAX_MISSING:
            self._explained = False
        elif self.signals is None:
            self.signals = np.where(missing, self._forward.typical, signals)
            return self._with_estimates(given, belief)
        elif self._explained is None:
            self._explained = self._explains(self.signals, signals, action)
        return self._impute(readings, action, signals, given, belief) if self._explained else given

    def pass_by(self, readings: np.ndarray, belief: Belief) -> np.ndarray:
        """A tick that is no evidence: the next one is compared with these readings."""
        assert self.readings is not None and self.signals is not None
        signals = readings[belief.slots]
        self.signals = np.where(np.isnan(signals), self.signals, signals)
        self.readings = np.where(np.isnan(readings), self.readings, readings)
        return readings[belief.outputs]

    def reckon(self, likeliest: np.ndarray, belief: Belief) -> np.ndarray:
        """A tick whose message repeats the last one: what is likeliest (N,) by channel counts."""
        self.signals, self.readings = likeliest, belief.by_slot(likeliest)
        return self.readings[belief.outputs]

    def step(
        self,
        readings: np.ndarray,
        action: np.ndarray,
        belief: Belief,
        signals: np.ndarray,
        likeliest: np.ndarray | None,
    ) -> np.ndarray:
        """One tick; `signals` (N,) are the readings by channel, and `likeliest` what was expected.

        `action` (A,) came before the tick.
        """
        given = readings[belief.outputs] if belief.pinned else signals
        if self.missing_ticks and self._forward.imputes and not belief.lost:
            return self._impute(readings, action, signals, given, belief)
        if self.missing_ticks:
            assert self.readings is not None and likeliest is not None
            missing = np.isnan(readings)
            signals = np.where(missing[belief.slots], likeliest, signals)
            readings = np.where(missing, self.readings, readings)
        self.signals, self.readings = signals, readings
        return given

    def _impute(
        self,
        readings: np.ndarray,
        action: np.ndarray,
        signals: np.ndarray,
        given: np.ndarray,
        belief: Belief,
    ) -> np.ndarray:
        """`given` (N,), with estimates of what is missing; they count as read from now on."""
        assert self.signals is not None
        self.signals = self._forward.impute(self.signals, action, signals, np.isnan(signals))
        if self.readings is not None:
            self.readings = np.where(np.isnan(readings), belief.by_slot(self.signals), readings)
        return self._with_estimates(given, belief)

    def _with_estimates(self, given: np.ndarray, belief: Belief) -> np.ndarray:
        """`given` (N,), with the newest signals where it is missing some."""
        assert self.signals is not None
        return np.where(np.isnan(given), belief.by_slot(self.signals)[belief.outputs], given)

    def _explains(self, before: np.ndarray, now: np.ndarray, action: np.ndarray) -> bool:
        """Whether a tick costs hardly more than is usual, from and to signals by channel (N,)."""
        prediction = self._forward.predict(before[None], action[None])
        excess = float(self._costs.own(now - before, now, prediction).sum())
        return excess - self._costs.usual(prediction) < self._max_excess
