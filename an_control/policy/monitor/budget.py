"""The budget: how much the assignment search may compute in a tick.

Readings that no assignment explains (a robot on a stand, carried, on its side) are searched in at
every tick, for as long as they last. What the search computes is counted and not timed: by a clock
the actions would depend on what else the machine does. What is left over is done at later ticks.
"""

from __future__ import annotations

from an_control.policy.monitor.forward_model import ForwardModel

SHARE = 0.1
"""Of a tick's period that its search may take."""
LASTING_SHARE = 0.05
"""The same on average, where it takes much at every tick."""
RESERVE_TICKS = 8
"""Ticks at `SHARE` that may be saved up: a move is verified by as much as it needs."""
CALL_S = 7e-5
"""What an ordinary core takes for the calls that compare one assignment, one round of swaps, or
ask the classifier once, whatever they are about (measured: the Ant, numba, 2026)."""
PRODUCT_S, PAIR_S = 2.6e-11, 6e-9
"""The same for each weight of the forward model, and for each pair of a slot and a channel, of one
tick's readings under one assignment: the Ant's 54,528 and 784 take 6 us."""


class Budget:
    """The work that a tick's search has left, in seconds of an ordinary core.

    Work that has begun is finished: a tick may owe some, which later ticks pay.

    Args:
        forward: predicts the N channels of a task with a period.
    """

    def __init__(self, forward: ForwardModel) -> None:
        pairs = len(forward.channels) ** 2
        self._row_s = forward.products * PRODUCT_S + pairs * PAIR_S
        self.tick_s, self._lasting_s = SHARE * forward.step_s, LASTING_SHARE * forward.step_s
        self.reset()

    def reset(self) -> None:
        """Start an episode, with a full reserve."""
        self._saved_s = RESERVE_TICKS * self.tick_s
        self._left_s = self.tick_s
        self.spent_s = 0.0
        """What the present tick has taken by now."""

    def next_tick(self) -> None:
        """Allow for a tick's work."""
        self._saved_s = min(self._saved_s + self._lasting_s, RESERVE_TICKS * self.tick_s)
        self._left_s = min(self._saved_s, self.tick_s)
        self.spent_s = 0.0

    @property
    def is_spent(self) -> bool:
        """Whether nothing is left for this tick."""
        return self.spent_s >= self._left_s

    @property
    def average_is_spent(self) -> bool:
        """Whether this tick has taken what a tick may take on average, or nothing is left."""
        return self.is_spent or self.spent_s >= self._lasting_s

    def spend(self, rows: float) -> None:
        """Count a call about so many rows, each a tick's readings under one assignment."""
        cost_s = CALL_S + rows * self._row_s
        self.spent_s += cost_s
        self._saved_s -= cost_s
