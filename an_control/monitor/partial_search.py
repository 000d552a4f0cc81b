"""The search while channels are missing: which channels the present slots feed.

Predictions depend on all readings. If some of these are estimates, the predictions are worse than
their scales say, so an assignment that was found by them alone is not to be trusted: with a quarter
of the Ant's channels missing, such a search had only 10 to 80 % of the others right after 500 ticks
(2026-11-23). Here the identity classifier judges each slot by that slot's own readings. Predictions
only show that signals moved, and in the first ticks after that where they may have gone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from an_control.monitor.assignment import Assignment
from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.imputation import Continuation
from an_control.monitor.settings import MonitorSettings
from an_control.policy.sizes import WINDOW


class PartialSearch:
    """The search for an assignment while slots are missing.

    Args:
        forward: The forward model, which classifies N slots.
        assign: Returns the assignment of least cost, see `kernels.assign`.
        settings: The tuned numbers of the monitor.
    """

    def __init__(
        self,
        forward: ForwardModel,
        assign: Callable[[np.ndarray], np.ndarray],
        settings: MonitorSettings,
    ) -> None:
        self._forward, self._assign, self._settings = forward, assign, settings.partial_search
        self._prior = settings.search.nominal_prior
        self._review_ticks = settings.search.review_ticks
        self._max_cost = settings.evidence.max_identity_cost
        self._alike = forward.alike
        self._all = np.arange(len(forward.channels))
        self._records: deque[tuple[np.ndarray, np.ndarray, np.ndarray]] = deque(maxlen=WINDOW)
        """Of each tick the action before it, the slots' changes and their readings."""
        self.reset()

    def reset(self) -> None:
        """Start an episode."""
        self._last: np.ndarray | None = None
        """(N,) the readings of the tick before."""
        self.rewires = 0
        """The number of detected moves and corrections of the assignment."""
        self._restart()

    @property
    def is_known(self) -> bool:
        """Whether the assignment of the present slots is known."""
        return self._known or self._sure

    def stand_by(self) -> None:
        """Restart the search at the next tick in which a slot is missing."""
        if self._last is not None:
            self._restart()

    def start_known(self) -> None:
        """Start with an assignment that is known to be right."""
        self._restart()
        self._known = True

    def pause(self) -> None:
        """Skip a tick that is no evidence."""
        self._last = None

    def _restart(self) -> None:
        self.explained, self._sure, self._known = True, False, False
        self._before: Assignment | None = None
        """The assignment before the last move."""
        self._last = None
        self._age = self._settings.new_ticks + 1
        """Ticks since signals moved or were found."""
        self._back = np.zeros(len(self._all))
        """(N,) nats against channels that were missing before the last move."""
        self._clear()

    def _clear(self) -> None:
        self._records.clear()
        self._costs, self._link = np.zeros((2, len(self._all), len(self._all)))
        """(slots, channels) each: the classifier's recent costs, and the costs known at the
        start."""
        self._ticks = 0

    def step(
        self,
        readings: np.ndarray,
        action: np.ndarray,
        assignment: Assignment,
        link: Continuation | None,
    ) -> Assignment:
        """Return the assignment after a tick in which slots are missing.

        One that was known before slots were missing stays until signals move.

        Args:
            readings: (N,) by slot, NaN where missing.
            action: (A,) the action before them.
            assignment: The present assignment.
            link: How the readings continue those of the tick before; None if that is unknown.
        """
        last, self._last = self._last, readings
        if last is None:
            self._known = self._known or not assignment.lost
            self._link[:] = self._prior
            self._link[assignment.slots, self._all] = 0.0
            return assignment
        there, change = ~np.isnan(readings), readings - last
        if link is not None:
            link = link._replace(costs=_relative_costs(link.costs, there, self._max_cost))
        if self._detect_move(change, assignment, link):
            self._back = self._settings.back * np.isnan(last)[assignment.slots]
            return self._restart_after_move(assignment, link, there)
        self._records.append((action, change, readings))
        self._ticks += 1
        self._age += 1
        self._link *= self._settings.link_fade
        if self._sure and self._age > self._settings.new_ticks and self._ticks % self._review_ticks:
            return assignment
        self._classify(there)
        if not self._known:
            assignment = self._choose(assignment, there)
        cost = self._mean_cost(assignment.slots, there)
        self.explained = cost < self._settings.max_cost
        self._sure = cost < self._settings.sure_cost and self._ticks >= self._settings.sure_ticks
        return assignment

    def _detect_move(
        self, change: np.ndarray, assignment: Assignment, link: Continuation | None
    ) -> bool:
        """Return whether signals moved before this tick.

        Without a link they did if most slots jump. With one, they did if another assignment
        continues the readings better, and either most slots jump or the link is surprising under a
        sure assignment.
        """
        if link is None:
            return self._most_slots_jump(change)
        enough = self._settings.min_link_gain * np.count_nonzero(~np.isnan(change))
        if self._find_better(link.costs, assignment.slots, enough) is None:
            return False
        return (self._sure and link.excess() > self._settings.max_excess) or self._most_slots_jump(
            change
        )

    def _most_slots_jump(self, change: np.ndarray) -> bool:
        """Return whether most slots change more than they recently did."""
        if len(self._records) < WINDOW // 2:
            return False
        changes = np.abs([changes for _, changes, _ in self._records])
        most = np.where(np.isnan(changes), 0.0, changes).max(0)
        there = ~np.isnan(change)
        jumping = np.count_nonzero(np.abs(change) > self._settings.jump * most)
        return bool(jumping > self._settings.jumping * np.count_nonzero(there))

    def _restart_after_move(
        self, assignment: Assignment, link: Continuation | None, there: np.ndarray
    ) -> Assignment:
        """Start to search again after a move, and return the best assignment so far."""
        self._clear()
        self._before, self._age = assignment, 0
        self._sure = self._known = False
        self.rewires += 1
        assignment = assignment._replace(detected=True)
        if link is None:
            return assignment
        self._link = link.costs
        return self._with_following_outputs(
            assignment.with_slots(self._assign(self._all_costs(there)))
        )

    def _classify(self, there: np.ndarray) -> None:
        """Add the identity classifier's costs for the newest records."""
        actions, changes, reads = map(np.array, zip(*self._records, strict=True))
        costs = self._forward.identity_costs(reads, changes, actions)
        costs = _relative_costs(costs, there, self._max_cost)
        self._costs += max(self._settings.rate, 1.0 / self._ticks) * (costs - self._costs)

    def _choose(self, assignment: Assignment, there: np.ndarray) -> Assignment:
        """Return the best assignment if it is enough better than the present one, else that one."""
        settings = self._settings
        costs, new = self._all_costs(there), self._age <= settings.new_ticks
        if self.explained:
            max_cost = settings.max_cost if new else settings.sure_cost
            slots = self._find_better(
                costs,
                assignment.slots,
                self._settings.min_gain if new else self._settings.min_gain_later,
            )
        else:
            max_cost = min(
                self._settings.max_cost,
                self._settings.max_share * self._mean_cost(assignment.slots, there),
            )
            slots = self._find_better(costs, assignment.slots, 0.0)
        if slots is None or self._mean_cost(slots, there) >= max_cost:
            return assignment
        if not self.explained:
            self.rewires += not new
            self._age = 0
        return self._with_following_outputs(assignment.with_slots(slots))

    def _find_better(self, costs: np.ndarray, slots: np.ndarray, gain: float) -> np.ndarray | None:
        """Return the best assignment by these costs if it gains more than `gain`, else None."""
        present = costs[slots, self._all].sum()
        if present - costs.min(0).sum() <= gain:
            return None
        best = self._assign(costs)
        return best if present - costs[best, self._all].sum() > gain else None

    def _all_costs(self, there: np.ndarray) -> np.ndarray:
        """Return the costs (slots, channels) by all evidence."""
        found: np.ndarray = self._costs + self._link + there[:, None] * self._back
        return found

    def _with_following_outputs(self, assignment: Assignment) -> Assignment:
        """Return the assignment with outputs that follow their signals for a while after a move."""
        before = self._before
        if before is None or self._ticks > self._settings.new_ticks:
            return assignment
        return assignment._replace(
            outputs=assignment.slots[np.argsort(before.slots)[before.outputs]]
        )

    def _mean_cost(self, slots: np.ndarray, there: np.ndarray) -> float:
        """Return the mean cost of an assignment (N,) over the present slots, `there` (N,)."""
        alike = self._alike[np.argsort(slots)]
        least = np.where(alike, self._costs, np.inf).min(1)
        return float(least[there].mean()) if there.any() else 0.0


def _relative_costs(costs: np.ndarray, there: np.ndarray, most: float) -> np.ndarray:
    """Return costs (slots, channels) above the least of each slot, 0 for missing slots."""
    costs = np.minimum(costs - costs.min(1, keepdims=True), most)
    bounded: np.ndarray = np.where(there[:, None], costs, 0.0)
    return bounded
