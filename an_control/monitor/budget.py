"""The budget: how much the assignment search may compute in a tick.

Readings that no assignment explains (a robot on a stand, carried, on its side) are searched at
every tick for as long as they last. What the search computes is counted and not timed: by a clock,
the actions would depend on what else the machine does. What is left over is done at later ticks.
"""

from __future__ import annotations

from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.settings import BudgetSettings


class Budget:
    """The work that a tick's search has left, in seconds of an ordinary core.

    Args:
        forward: predicts the N channels of a task with a period.
        settings: of the budget.
    """

    def __init__(self, forward: ForwardModel, settings: BudgetSettings) -> None:
        self._settings = settings
        pairs = len(forward.channels) ** 2
        self._row_s = forward.products * settings.product_s + pairs * settings.pair_s
        self._step_s = forward.step_s
        self.next_tick(fits=True)

    def next_tick(self, *, fits: bool) -> None:
        """Start a tick, with nothing spent, on a robot that the model `fits` as far as is known."""
        share = self._settings.share if fits else self._settings.unfit_share
        self._tick_s = share * self._step_s
        self.spent_s = 0.0
        """What this tick has taken until now."""

    def affordable(self, rows: float) -> int:
        """Return how many pieces of so many rows this tick's next call may compute, see `spend`."""
        left_s = self._tick_s - self.spent_s - self._settings.call_s
        return max(0, int(left_s / (rows * self._row_s)))

    def spend(self, rows: float) -> None:
        """Count a call about so many rows, each a tick's readings under one assignment."""
        self.spent_s += self._settings.call_s + rows * self._row_s
