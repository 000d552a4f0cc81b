"""The delay of readings, which is estimated in ticks, and the prediction of present readings.

A change follows the action that caused it. If the readings are delayed, the forward model explains
them better by an older action than by the last one, and the age of that action is the delay. The
present readings are then predicted from the delayed readings and the actions since then (Smith
1957, "Closer control of loops with dead time").
"""

from __future__ import annotations

from collections import deque

import numpy as np

from an_control.monitor.costs import CostCalculator
from an_control.monitor.forward_model import ChangePrediction, ExpectedReadings, ForwardModel
from an_control.monitor.settings import MONITOR


class SensorDelayEstimator:
    """An estimator of the readings' constant delay, which also predicts readings without delay.

    Args:
        forward: The forward model of N channels.
        costs: The calculator of costs, which compares predictions with readings.
    """

    def __init__(self, forward: ForwardModel, costs: CostCalculator) -> None:
        self._forward, self._costs, self._settings = forward, costs, MONITOR.delay
        self._counts = ~forward.binary
        self.reset()

    def reset(self) -> None:
        """Start an episode with an estimated delay of 0."""
        self.ticks = 0
        """The estimated delay of the readings in ticks."""
        still = np.zeros(self._forward.actions, np.float32)
        delays = self._settings.max_ticks + 1
        self._actions: deque[np.ndarray] = deque([still] * delays, delays)
        self._gains = np.zeros(delays)
        """Nats by which each possible delay has explained the readings better than the present
        estimate has."""
        self._ticks = self._turn = 0
        self._noted: tuple[ExpectedReadings, np.ndarray] | None = None

    def store_and_get_delayed_action(self, action: np.ndarray) -> np.ndarray:
        """Store the last action (A,); return the action (A,) that this tick's readings follow.

        If the readings are delayed, the returned action is an older one.
        """
        self._actions.append(action)
        return self._actions[-1 - self.ticks]

    def get_action_that_next_readings_follow(self, action: np.ndarray) -> np.ndarray:
        """Return the action (A,) that the next tick's readings will follow.

        If the readings are delayed, it is an older one than the newest.

        Args:
            action: (A,) the newest action, which has not been stored yet.
        """
        return self._actions[-self.ticks] if self.ticks else action

    def store_tick_for_trying_delays(
        self, expectation: ExpectedReadings, signals: np.ndarray
    ) -> None:
        """Store a tick for the next `try_another_delay_on_stored_tick`, unless it is skipped.

        After the first ticks of an episode, most ticks are skipped to save time, as long as no
        other delay explains the readings better.

        Args:
            expectation: The signals that were expected in this tick.
            signals: (N,) the readings by channel, NaN where missing.
        """
        self._ticks += 1
        settings = self._settings
        now = self._ticks < settings.first_ticks or self._ticks % settings.every == 0
        if now or self._gains.any():
            self._noted = expectation, signals

    def try_another_delay_on_stored_tick(self) -> None:
        """Check whether another delay explains the stored tick better than the estimated one.

        Each call tries one other delay; successive calls try all possible delays in turn. A delay
        becomes the estimate once it has explained the readings better for long enough.
        """
        if self._noted is None:
            return
        (signals, follows, prediction, *_), reads = self._noted
        self._noted = None
        delays = self._settings.max_ticks + 1
        self._turn = (self._turn + 1) % delays
        other = self._turn if self._turn != self.ticks else (self._turn + 1) % delays
        action = self._actions[-1 - other]
        if (action == follows).all():
            return
        by_other = self._forward.predict_changes(signals[None], action[None])
        both = ChangePrediction(
            *(np.concatenate(pair) for pair in zip(prediction, by_other, strict=True))
        )
        costs = self._costs.compute_reading_change_costs(reads - signals, both)
        present, late = costs[:, self._counts].sum(1).tolist()
        gain = min(present - late, self._settings.max_gain) - self._settings.slack
        self._gains[other] = max(0.0, self._gains[other] + gain)
        if self._gains[other] > self._settings.has_share:
            self.ticks = other
            self._gains[:] = 0.0

    def predict_undelayed_signals(self, signals: np.ndarray) -> np.ndarray:
        """Return a prediction of the present signals (N,), computed from delayed ones.

        Args:
            signals: (N,) the delayed signals by channel.
        """
        for age in range(self.ticks, 0, -1):
            signals = self._forward.compute_expected_readings(
                signals, self._actions[-age]
            ).likeliest
        return signals
