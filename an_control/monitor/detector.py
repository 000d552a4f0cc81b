"""The change detector: whether signals may have moved, and how well a belief explains readings."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from an_control.monitor.assignment import cost_moves
from an_control.monitor.belief import Belief
from an_control.monitor.costs import Costs
from an_control.monitor.forward_model import Prediction

MIN_GAIN = 10.0
"""Nats by which another assignment must explain one tick better to be verified."""
MIN_GAIN_AGAIN = 60.0
"""The same in the `WINDOW` ticks after that, when the present one may be wrong."""
MAX_SURPRISE, MAX_SURPRISE_CHANNEL = 15.0, 1.0
"""Nats a tick above what is usual, lately, beyond which the monitor is lost; and more a channel."""
SURPRISING_CHANNEL = 0.2
"""Nats a tick and channel, the same, from which on the readings are surprising."""
CONSISTENT, CONSISTENT_CHANNEL = 20.0, 3.0
"""The same in one tick, below which an assignment may be right."""
UNKNOWN = 60.0
"""The surprise at the start, where nothing is known."""
RATE = 0.1
"""How much of the newest tick counts in the surprise."""


class Move(NamedTuple):
    """Signals may have moved before a tick."""

    costs: np.ndarray
    """(slots, channels) of the tick, where moving costs something too."""
    slots: np.ndarray
    """(N,) the assignment that explains the tick best."""
    usual: np.ndarray
    """(N,) what each channel costs usually in such a tick."""


class ChangeDetector:
    """In: a tick's costs and the belief. Out: a `Move` where another assignment is clearly better.

    Otherwise the tick counts in how well the belief explains the readings: `surprise`, and
    `consistent`, for how many ticks in a row it may have been right.
    """

    def __init__(self, costs: Costs, count: int) -> None:
        self._costs, self._all = costs, np.arange(count)
        self.max_surprise = MAX_SURPRISE + MAX_SURPRISE_CHANNEL * count
        self._surprising = SURPRISING_CHANNEL * count
        self._max_consistent = CONSISTENT + CONSISTENT_CHANNEL * count
        self.set(0.0)

    def set(self, surprise: float) -> None:
        """Begin with this surprise, in nats a tick above what is usual, and no consistent tick."""
        self.surprise, self.consistent = surprise, 0
        self.excess = 0.0
        """Nats above what is usual of the last tick."""

    @property
    def surprising(self) -> bool:
        """Whether the belief lately explains the readings worse than it should."""
        return self.surprise > self._surprising

    def step(
        self, costs: np.ndarray, prediction: Prediction, belief: Belief, *, new: bool
    ) -> Move | None:
        """One tick's costs (slots, channels), by this prediction (1, N).

        While the assignment is `new`, only a much better one counts as a move.
        """
        min_gain = MIN_GAIN_AGAIN if new else MIN_GAIN
        present = float(costs[belief.slots, self._all].sum())
        self.excess = above = present - self._costs.usual(prediction)
        known = not belief.lost or self.surprise < self.max_surprise
        if self.consistent and known:
            move = self._move(costs, belief.slots, present, min_gain, prediction)
            if move is not None:
                return move
        self.surprise += RATE * (above - self.surprise)
        self.consistent = self.consistent + 1 if above < self._max_consistent else 0
        return None

    def _move(
        self,
        costs: np.ndarray,
        slots: np.ndarray,
        present: float,
        min_gain: float,
        prediction: Prediction,
    ) -> Move | None:
        """The best assignment, where it gains enough although each move costs something."""
        if present - float(costs.min(0).sum()) <= min_gain:
            return None
        moved = cost_moves(costs, slots)
        best = self._costs.assign(moved)
        gain = present - float(moved[best, self._all].sum())
        if gain <= min_gain:
            return None
        return Move(moved, best, self._costs.usual_by_channel(prediction))
