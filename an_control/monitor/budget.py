"""The computing budget of the monitor's search for an assignment, per control step.

If no assignment explains the readings (a robot on a stand, carried, on its side), the monitor
searches at every tick until one does. The work of the search is counted, not timed, because with a
clock the actions would depend on the machine's other load. Work that exceeds the budget is done at
later ticks.
"""

from __future__ import annotations

from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.settings import BudgetSettings


class SearchTimeBudget:
    """The computing time that the monitor's search may still take in the present control step.

    The search finds out which input slot feeds which channel, by comparing assignments of slots to
    channels. Its time is not measured but estimated, in seconds of an ordinary CPU core.

    Args:
        forward: The forward model, from whose size and control period the budget follows.
        settings: The tuned numbers of the budget.
    """

    def __init__(self, forward: ForwardModel, settings: BudgetSettings) -> None:
        self._settings = settings
        pairs = len(forward.channels) ** 2
        self._row_s = forward.products * settings.product_s + pairs * settings.pair_s
        self._step_s = forward.step_s
        self.reset_for_tick(model_fits=True)

    def reset_for_tick(self, *, model_fits: bool) -> None:
        """Set the search time that is left to this control step's whole budget, at its start.

        Args:
            model_fits: Whether the forward model describes the connected robot. If it does not, the
                budget is smaller.
        """
        share = self._settings.share if model_fits else self._settings.unfit_share
        self._tick_s = share * self._step_s
        self.spent_s = 0.0
        """The estimated seconds that this tick's search has taken so far."""

    def count_affordable_comparisons(self, evaluations_per_comparison: float) -> int:
        """Return how many comparisons of assignments still fit into this tick's budget.

        Args:
            evaluations_per_comparison: The number of evaluations that a comparison takes. An
                evaluation computes how badly one assignment fits one tick's readings.
        """
        left_s = self._tick_s - self.spent_s - self._settings.call_s
        return max(0, int(left_s / (evaluations_per_comparison * self._row_s)))

    def subtract_time_of_evaluations(self, evaluation_count: float) -> None:
        """Subtract the estimated time of some evaluations from this tick's budget.

        Args:
            evaluation_count: The number of evaluations, each of which computes how badly one
                assignment of slots to channels fits one tick's readings.
        """
        self.spent_s += self._settings.call_s + evaluation_count * self._row_s
