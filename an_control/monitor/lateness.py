"""Late readings: by how many ticks they are late, and what would be read now.

A change follows the action that caused it. Where the readings are late, the forward model explains
them better by an older action than by the last one; how much older says how late they are. The
present is then predicted from the late readings and the actions since (Smith 1957, "Closer control
of loops with dead time").
"""

from __future__ import annotations

from collections import deque

import numpy as np

from an_control.monitor.forward_model import Costs, Expectation, ForwardModel, Prediction

MAX_TICKS = 3
"""The longest delay that is looked for."""
FIRST_TICKS = 100
"""Ticks of an episode in which another delay is compared at each, one after the other."""
EVERY = 3
"""How often later, in ticks, while nothing speaks for another delay."""
MAX_GAIN = 30.0
"""Nats that a single tick may speak for another delay: a foot that slips is no delay."""
SLACK = 2.0
"""Nats that a tick must speak for another delay to count: where the model is wrong, as on ice, it
is so by every action."""
ENOUGH = 60.0
"""Nats, since it last spoke against it, by which another delay must explain the readings better."""


class Lateness:
    """In: the actions, and how each tick's readings follow those before. Out: `ticks`, `ahead`.

    Args:
        forward: predicts the N channels.
        costs: compares predictions with readings.
    """

    def __init__(self, forward: ForwardModel, costs: Costs) -> None:
        self._forward, self._costs = forward, costs
        self._counts = ~forward.binary
        self.reset()

    def reset(self) -> None:
        """Start an episode, in which nothing is late."""
        self.ticks = 0
        """By how many ticks the readings are late, as far as is known."""
        still = np.zeros(self._forward.actions, np.float32)
        self._actions: deque[np.ndarray] = deque([still] * (MAX_TICKS + 1), MAX_TICKS + 1)
        self._gains = np.zeros(MAX_TICKS + 1)
        """Nats by which each delay has explained the readings better than `ticks`."""
        self._ticks = self._turn = 0
        self._noted: tuple[Expectation, np.ndarray] | None = None

    def next_tick(self, action: np.ndarray) -> np.ndarray:
        """The action (A,) that this tick's readings follow; `action` (A,) is the last one."""
        self._actions.append(action)
        return self._actions[-1 - self.ticks]

    def following(self, action: np.ndarray) -> np.ndarray:
        """The same of the next tick, before which `action` (A,) comes."""
        return self._actions[-self.ticks] if self.ticks else action

    def add(self, expectation: Expectation, signals: np.ndarray) -> None:
        """Note a tick's signals (N,) by channel, NaN where missing, and what was expected of them,
        for `catch_up`."""
        self._ticks += 1
        if self._ticks < FIRST_TICKS or self._ticks % EVERY == 0 or self._gains.any():
            self._noted = expectation, signals

    def catch_up(self) -> None:
        """Compare one of the other delays with the one that is believed, by the last tick."""
        if self._noted is None:
            return
        (signals, follows, prediction, *_), reads = self._noted
        self._noted = None
        self._turn = (self._turn + 1) % (MAX_TICKS + 1)
        other = self._turn if self._turn != self.ticks else (self._turn + 1) % (MAX_TICKS + 1)
        action = self._actions[-1 - other]
        if (action == follows).all():
            return
        by_other = self._forward.predict(signals[None], action[None])
        both = Prediction(
            *(np.concatenate(pair) for pair in zip(prediction, by_other, strict=True))
        )
        costs = self._costs.of_changes(reads - signals, both)
        present, late = costs[:, self._counts].sum(1).tolist()
        gain = min(present - late, MAX_GAIN) - SLACK
        self._gains[other] = max(0.0, self._gains[other] + gain)
        if self._gains[other] > ENOUGH:
            self.ticks = other
            self._gains[:] = 0.0

    def ahead(self, signals: np.ndarray) -> np.ndarray:
        """What would be read now, where these signals (N,) by channel are that late."""
        for age in range(self.ticks, 0, -1):
            signals = self._forward.expect(signals, self._actions[-age]).likeliest
        return signals
