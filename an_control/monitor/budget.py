"""The budget: how much the assignment search may compute in a tick.

Readings that no assignment explains (a robot on a stand, carried, on its side) are searched at
every tick for as long as they last. The work of the search is counted, not timed: with a clock, the
actions would depend on the machine's other load. Work that exceeds the budget is done at later
ticks.
"""

from __future__ import annotations

from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.settings import BudgetSettings


class TimeBudget:
    """The work that the search may still do in the present tick, in seconds of an ordinary core.

    Args:
        forward: The forward model, whose task has a period.
        settings: The tuned numbers of the budget.
    """

    def __init__(self, forward: ForwardModel, settings: BudgetSettings) -> None:
        self._settings = settings
        pairs = len(forward.channels) ** 2
        self._row_s = forward.products * settings.product_s + pairs * settings.pair_s
        self._step_s = forward.step_s
        self.next_tick(fits=True)

    def next_tick(self, *, fits: bool) -> None:
        """Reset the budget for a tick; it is smaller if the model does not fit the robot."""
        share = self._settings.share if fits else self._settings.unfit_share
        self._tick_s = share * self._step_s
        self.spent_s = 0.0
        """Seconds that this tick has taken so far, as counted."""

    def count_affordable(self, rows: float) -> int:
        """Return how many comparisons of `rows` rows each fit into the next call, see `spend`."""
        left_s = self._tick_s - self.spent_s - self._settings.call_s
        return max(0, int(left_s / (rows * self._row_s)))

    def spend(self, rows: float) -> None:
        """Count a call about `rows` rows, each a tick's readings under one assignment."""
        self.spent_s += self._settings.call_s + rows * self._row_s
