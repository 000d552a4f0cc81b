"""Imputation: estimates the signals of missing channels."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from an_control.monitor.assignment import Assignment
from an_control.monitor.costs import Costs
from an_control.monitor.forward_model import Expectation, ForwardModel
from an_control.monitor.settings import ImputationSettings
from an_control.policy.sizes import WINDOW


class Continuation(NamedTuple):
    """The comparison of a tick's readings with those of the tick before."""

    costs: np.ndarray
    """(slots, channels) the costs of each slot's reading as a continuation of each channel."""
    excess: Callable[[], float]
    """Returns the excess nats that the best explained present channels stay below, of which
    `ImputationSettings.explained` is the share."""
    expectation: Expectation
    """The expectation that the readings were compared with."""


class Imputation:
    """The newest signals by channel, with estimates of missing ones.

    The next tick is predicted from the newest `signals` and compared with the newest `readings`. A
    model that cannot impute leaves NaN for missing slots.

    Args:
        forward: Predicts and imputes N channels.
        costs: Compares predictions with readings.
        settings: The tuned numbers of the imputation.
    """

    def __init__(self, forward: ForwardModel, costs: Costs, settings: ImputationSettings) -> None:
        self._forward, self._costs, self._settings = forward, costs, settings
        self._since: deque[tuple[np.ndarray, np.ndarray]] = deque(maxlen=settings.replay_ticks)
        """While slots stay missing: the readings (N,) by slot and the actions (A,) before them,
        since the first such tick, or since signals moved."""
        self.reset()

    def reset(self) -> None:
        """Start an episode."""
        self.signals: np.ndarray | None = None
        """(N,) the signals of the last tick by channel, with estimates of missing ones."""
        self.readings: np.ndarray | None = None
        """(N,) the readings of the last tick by slot, or a missing slot's newest one; None on
        stand-by."""
        self.missing_ticks = 0
        """The number of consecutive ticks in which slots were missing."""
        self._before: np.ndarray | None = None
        """(N,) the signals before those ticks; None at an episode's start."""
        self._since.clear()

    def stand_by(self) -> None:
        """Stop comparing: the next tick has no tick before it."""
        self.readings = None

    def forget_estimates(self) -> None:
        """Forget the estimates, as they were made from readings that were wrong."""
        self.signals = None

    def next_tick(self, missing: np.ndarray) -> bool:
        """Count ticks with missing slots (N,); return whether only `PartialSearch` can go on.

        That is if slots have been missing for too long, or no readings are known yet.
        """
        self.missing_ticks = self.missing_ticks + 1 if missing.any() else 0
        if self.missing_ticks and (self.readings is None or self.missing_ticks > WINDOW):
            return True
        self._before = None
        self._since.clear()
        return False

    def compare(
        self, readings: np.ndarray, action: np.ndarray, assignment: Assignment
    ) -> Continuation | None:
        """Return how readings (N,) with missing slots continue the signals of the tick before.

        None if these are unknown, as at an episode's start.
        """
        if self.signals is None:
            return None
        expectation = self._forward.expect(self.signals, action)
        prediction, before, signals = (
            expectation.prediction,
            self.signals,
            readings[assignment.slots],
        )

        def excess() -> float:
            above = self._costs.excess_costs(signals - before, signals, prediction)
            above = (above - self._costs.noise_costs(prediction))[~np.isnan(signals)]
            place = int(self._settings.explained * len(above))
            return float(np.partition(above, place)[place]) if len(above) else 0.0

        costs, reads = np.zeros((len(readings),) * 2), readings[None]
        self._costs.add(costs, reads, expectation.expected[None], reads, prediction)
        return Continuation(costs, excess, expectation)

    def signals_moved(self) -> None:
        """Note that signals moved before this tick, while slots stay missing."""
        self._before = self.signals
        self._since.clear()

    def estimate_again(self, assignment: Assignment) -> None:
        """Estimate the missing signals again under another assignment."""
        if len(self._since) == self._settings.replay_ticks or not self._forward.imputes:
            return
        self.signals = self._before
        for readings, action in self._since:
            self._estimate(readings[assignment.slots], action)

    def impute_tick(
        self, readings: np.ndarray, action: np.ndarray, assignment: Assignment, *, explained: bool
    ) -> np.ndarray:
        """Return the signals of a tick in which slots stay missing.

        They contain estimates if the present slots are `explained` by the assignment.
        """
        given, signals = readings[assignment.outputs], readings[assignment.slots]
        if not self._forward.imputes or np.isnan(signals).mean() > self._settings.max_missing:
            self.signals = self._before = None
            self._since.clear()
            return given
        if not self._since and self._before is None:
            self._before = self.signals
        self._since.append((readings, action))
        self._estimate(signals, action)
        return self._with_estimates(given, assignment) if explained else given

    def _estimate(self, signals: np.ndarray, action: np.ndarray) -> None:
        """Estimate the missing ones among `signals` (N,); at the start by typical values."""
        missing = np.isnan(signals)
        if self.signals is None:
            self.signals = np.where(missing, self._forward.typical, signals)
        else:
            self.signals = self._forward.impute(self.signals, action, signals, missing)

    def skip_tick(self, readings: np.ndarray, assignment: Assignment) -> np.ndarray:
        """Take a tick that is no evidence; the next one is compared with its readings."""
        assert self.readings is not None and self.signals is not None
        signals = readings[assignment.slots]
        self.signals = np.where(np.isnan(signals), self.signals, signals)
        self.readings = np.where(np.isnan(readings), self.readings, readings)
        return readings[assignment.outputs]

    def record_unchanged(self, readings: np.ndarray, assignment: Assignment) -> None:
        """Take a tick of readings (N,) that pass unchanged to the policy.

        If one is missing, the next tick is compared with nothing.
        """
        self.next_tick(np.zeros(0, bool))
        self.signals = self.readings = None
        if not np.isnan(readings).any():
            self.signals, self.readings = readings[assignment.slots], readings

    def take_expected(self, likeliest: np.ndarray, assignment: Assignment) -> np.ndarray:
        """Take the likeliest signals (N,) by channel in place of a repeated message."""
        self.signals, self.readings = likeliest, assignment.arrange_by_slot(likeliest)
        return self.readings[assignment.outputs]

    def step(
        self,
        readings: np.ndarray,
        action: np.ndarray,
        assignment: Assignment,
        signals: np.ndarray,
        likeliest: np.ndarray | None,
    ) -> np.ndarray:
        """Take an ordinary tick and return what the policy gets (N,).

        Args:
            readings: (N,) by slot.
            action: (A,) the action before the tick.
            assignment: The present assignment.
            signals: (N,) the readings by channel.
            likeliest: (N,) the expected signals; None if nothing is expected.
        """
        given = readings[assignment.outputs] if assignment.pinned else signals
        if self.missing_ticks and self._forward.imputes and not assignment.lost:
            return self._impute(readings, action, signals, given, assignment)
        if self.missing_ticks:
            assert self.readings is not None and likeliest is not None
            missing = np.isnan(readings)
            signals = np.where(missing[assignment.slots], likeliest, signals)
            readings = np.where(missing, self.readings, readings)
        self.signals, self.readings = signals, readings
        return given

    def keep_unfiltered(self, readings: np.ndarray) -> None:
        """Compare the next tick with these unfiltered readings (N,) by slot, if none is missing.

        Filtered readings follow the assignment, so a comparison with them would always confirm it.
        """
        if not np.isnan(readings).any():
            self.readings = readings

    def _impute(
        self,
        readings: np.ndarray,
        action: np.ndarray,
        signals: np.ndarray,
        given: np.ndarray,
        assignment: Assignment,
    ) -> np.ndarray:
        """Return `given` (N,) with estimates, which count as read from now on."""
        assert self.signals is not None
        self.signals = self._forward.impute(self.signals, action, signals, np.isnan(signals))
        if self.readings is not None:
            self.readings = np.where(
                np.isnan(readings), assignment.arrange_by_slot(self.signals), readings
            )
        return self._with_estimates(given, assignment)

    def _with_estimates(self, given: np.ndarray, assignment: Assignment) -> np.ndarray:
        """Return `given` (N,) with the newest signals in place of missing ones."""
        assert self.signals is not None
        return np.where(
            np.isnan(given), assignment.arrange_by_slot(self.signals)[assignment.outputs], given
        )
