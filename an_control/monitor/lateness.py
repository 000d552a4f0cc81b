"""Late readings: by how many ticks they are late, and what would be read now.

A change follows the action that caused it. Where the readings are late, the forward model explains
them better by an older action than by the last one; how much older says how late they are. The
present is then predicted from the late readings and the actions since (Smith 1957, "Closer control
of loops with dead time").
"""

from __future__ import annotations

from collections import deque

import numpy as np

from an_control.monitor.costs import Costs
from an_control.monitor.forward_model import Expectation, ForwardModel, Prediction
from an_control.monitor.settings import LatenessSettings


class Lateness:
    """In: the actions, and how each tick's readings follow those before. Out: `ticks`, `ahead`.

    Args:
        forward: predicts the N channels.
        costs: compares predictions with readings.
        settings: of the lateness.
    """

    def __init__(self, forward: ForwardModel, costs: Costs, settings: LatenessSettings) -> None:
        self._forward, self._costs, self._settings = forward, costs, settings
        self._counts = ~forward.binary
        self.reset()

    def reset(self) -> None:
        """Start an episode, in which nothing is late."""
        self.ticks = 0
        """By how many ticks the readings are late, as far as is known."""
        still = np.zeros(self._forward.actions, np.float32)
        delays = self._settings.max_ticks + 1
        self._actions: deque[np.ndarray] = deque([still] * delays, delays)
        self._gains = np.zeros(delays)
        """Nats by which each delay has explained the readings better than `ticks`."""
        self._ticks = self._turn = 0
        self._noted: tuple[Expectation, np.ndarray] | None = None

    def next_tick(self, action: np.ndarray) -> np.ndarray:
        """Return the action (A,) that this tick's readings follow; `action` (A,) is the last."""
        self._actions.append(action)
        return self._actions[-1 - self.ticks]

    def following(self, action: np.ndarray) -> np.ndarray:
        """Return the same of the next tick, before which `action` (A,) comes."""
        return self._actions[-self.ticks] if self.ticks else action

    def add(self, expectation: Expectation, signals: np.ndarray) -> None:
        """Note a tick's signals (N,) by channel, NaN where missing, and what was expected of them,
        for `catch_up`."""
        self._ticks += 1
        settings = self._settings
        now = self._ticks < settings.first_ticks or self._ticks % settings.every == 0
        if now or self._gains.any():
            self._noted = expectation, signals

    def catch_up(self) -> None:
        """Compare one of the other delays with the present estimate, by the last tick."""
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
        by_other = self._forward.predict(signals[None], action[None])
        both = Prediction(
            *(np.concatenate(pair) for pair in zip(prediction, by_other, strict=True))
        )
        costs = self._costs.of_changes(reads - signals, both)
        present, late = costs[:, self._counts].sum(1).tolist()
        gain = min(present - late, self._settings.max_gain) - self._settings.slack
        self._gains[other] = max(0.0, self._gains[other] + gain)
        if self._gains[other] > self._settings.has_share:
            self.ticks = other
            self._gains[:] = 0.0

    def ahead(self, signals: np.ndarray) -> np.ndarray:
        """Return what would be read now, where these signals (N,) by channel are late."""
        for age in range(self.ticks, 0, -1):
            signals = self._forward.expect(signals, self._actions[-age]).likeliest
        return signals
