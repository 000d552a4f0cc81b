"""The search while channels are missing: which channels the present slots carry.

Predictions follow from all readings. With estimates among them they are worse than they say, so an
assignment that is sought by them alone is not to be trusted: with a quarter of the Ant's channels
missing such a search had only 10 to 80 % of the others right after 500 ticks (2026-11-23). The
identity classifier judges each slot by what that slot alone has read; what was predicted only says
that signals moved, and where they may have gone in the first ticks after that.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from an_control.monitor.assignment import Belief
from an_control.monitor.evidence import MAX_IDENTITY_COST
from an_control.monitor.forward_model import ForwardModel
from an_control.monitor.imputation import Link
from an_control.monitor.search import NOMINAL_PRIOR, REVIEW_TICKS
from an_control.policy.sizes import WINDOW

MAX_COST = 3.0
"""Nats that the classifier may say, in the mean of the present slots, against the channels that
they are believed to carry: against the right ones 0.1 to 1.5, against wrong ones 4 to 8."""
SURE_COST, SURE_TICKS = 1.0, 8
"""The same, and for how many ticks it is known, where the assignment is sure."""
RATE = 0.2
"""How much the newest tick counts in it, once there are as many."""
MIN_GAIN, MIN_GAIN_LATER = 2.0, 8.0
"""Nats by which another assignment must be better, while the present one is new, and later."""
NEW_TICKS = 30
"""For how long an assignment is new."""
MAX_PART = 0.6
"""Of the present assignment's cost that another may have where the present one is not explained."""
LINK_FADE = 0.9
"""What remains, from tick to tick, of what was known when the search began."""
BACK = 8.0
"""Nats against a signal that is back just when others move."""
MIN_LINK_GAIN = 5.0
"""Nats a present slot by which another assignment must continue the last tick's readings better,
where signals moved."""
MAX_EXCESS = 3.0
"""Nats above what is usual by which a link is surprising: where signals moved it is 4 to 10."""
JUMP, JUMPING = 1.5, 0.35
"""Times its largest change of late that a slot changes by, and in what share of the slots, where
signals moved."""


class PartialSearch:
    """In: a tick's readings and the belief. Out: the belief, and whether it is `explained`.

    Args:
        forward: classifies N slots.
        assign: the assignment of least cost, see `assignment.assign`.
    """

    def __init__(self, forward: ForwardModel, assign: Callable[[np.ndarray], np.ndarray]) -> None:
        self._forward, self._assign = forward, assign
        self._alike = forward.alike
        self._all = np.arange(len(forward.channels))
        self._records: deque[tuple[np.ndarray, np.ndarray, np.ndarray]] = deque(maxlen=WINDOW)
        """Of a tick the action before it, how each slot changed, and what it reads."""
        self.reset()

    def reset(self) -> None:
        """Start an episode."""
        self._last: np.ndarray | None = None
        """(N,) the readings of the tick before."""
        self.rewires = 0
        """How often signals were found to have moved, or to be elsewhere than believed."""
        self._begin()

    @property
    def knows(self) -> bool:
        """Whether the order of the others is known, from before or by now."""
        return self._known or self._sure

    def stand_by(self) -> None:
        """No slot is missing; the next tick in which one is begins the search."""
        if self._last is not None:
            self._begin()

    def trust(self) -> None:
        """Begin with an assignment that is known to be right."""
        self._begin()
        self._known = True

    def pause(self) -> None:
        """A tick that is no evidence."""
        self._last = None

    def _begin(self) -> None:
        self.explained, self._sure, self._known = True, False, False
        self._before: Belief | None = None
        """The belief before the last move."""
        self._last = None
        self._age = NEW_TICKS + 1
        """Ticks since signals moved or were found."""
        self._back = np.zeros(len(self._all))
        """(N,) nats against channels that were missing before the last move."""
        self._forget()

    def _forget(self) -> None:
        self._records.clear()
        self._costs, self._link = np.zeros((2, len(self._all), len(self._all)))
        """(slots, channels) each: of late by the classifier, and by what was known at first."""
        self._ticks = 0

    def step(
        self, readings: np.ndarray, action: np.ndarray, belief: Belief, link: Link | None
    ) -> Belief:
        """One tick: readings (N,) by slot, NaN where missing, the action (A,) before them, and how
        they continue those of the tick before, None where that is not known.

        A belief that was not lost before slots were missing stays until signals move.
        """
        last, self._last = self._last, readings
        if last is None:
            self._known = self._known or not belief.lost
            self._link[:] = NOMINAL_PRIOR
            self._link[belief.slots, self._all] = 0.0
            return belief
        there, change = ~np.isnan(readings), readings - last
        if link is not None:
            link = link._replace(costs=_bounded(link.costs, there))
        if self._moved(change, belief, link):
            self._back = BACK * np.isnan(last)[belief.slots]
            return self._start(belief, link, there)
        self._records.append((action, change, readings))
        self._ticks += 1
        self._age += 1
        self._link *= LINK_FADE
        if self._sure and self._age > NEW_TICKS and self._ticks % REVIEW_TICKS:
            return belief
        self._classify(there)
        if not self._known:
            belief = self._choose(belief, there)
        cost = self._cost(belief.slots, there)
        self.explained = cost < MAX_COST
        self._sure = cost < SURE_COST and self._ticks >= SURE_TICKS
        return belief

    def _moved(self, change: np.ndarray, belief: Belief, link: Link | None) -> bool:
        """Whether signals moved before this tick: where nothing is known that most slots jump,
        else that another assignment continues the readings better, and either that the link is
        surprising under a sure assignment or that most slots jump."""
        if link is None:
            return self._jumps(change)
        enough = MIN_LINK_GAIN * np.count_nonzero(~np.isnan(change))
        if self._better(link.costs, belief.slots, enough) is None:
            return False
        return (self._sure and link.excess() > MAX_EXCESS) or self._jumps(change)

    def _jumps(self, change: np.ndarray) -> bool:
        """Whether most slots change more than they did lately, in whatever order they are."""
        if len(self._records) < WINDOW // 2:
            return False
        changes = np.abs([changes for _, changes, _ in self._records])
        most = np.where(np.isnan(changes), 0.0, changes).max(0)
        there = ~np.isnan(change)
        jumping = np.count_nonzero(np.abs(change) > JUMP * most)
        return bool(jumping > JUMPING * np.count_nonzero(there))

    def _start(self, belief: Belief, link: Link | None, there: np.ndarray) -> Belief:
        """Seek anew: signals have moved."""
        self._forget()
        self._before, self._age = belief, 0
        self._sure = self._known = False
        self.rewires += 1
        belief = belief._replace(detected=True)
        if link is None:
            return belief
        self._link = link.costs
        return self._follow(belief.assigned(self._assign(self._all_costs(there))))

    def _classify(self, there: np.ndarray) -> None:
        """Ask the identity classifier, by the newest records."""
        actions, changes, reads = map(np.array, zip(*self._records, strict=True))
        costs = _bounded(self._forward.identity_costs(reads, changes, actions), there)
        self._costs += max(RATE, 1.0 / self._ticks) * (costs - self._costs)

    def _choose(self, belief: Belief, there: np.ndarray) -> Belief:
        """The best assignment by now, where it is enough better than the present one."""
        costs, new = self._all_costs(there), self._age <= NEW_TICKS
        if self.explained:
            max_cost = MAX_COST if new else SURE_COST
            slots = self._better(costs, belief.slots, MIN_GAIN if new else MIN_GAIN_LATER)
        else:
            max_cost = min(MAX_COST, MAX_PART * self._cost(belief.slots, there))
            slots = self._better(costs, belief.slots, 0.0)
        if slots is None or self._cost(slots, there) >= max_cost:
            return belief
        if not self.explained:
            self.rewires += not new
            self._age = 0
        return self._follow(belief.assigned(slots))

    def _better(self, costs: np.ndarray, slots: np.ndarray, gain: float) -> np.ndarray | None:
        """The best assignment by these costs, if it gains more than that."""
        present = costs[slots, self._all].sum()
        if present - costs.min(0).sum() <= gain:
            return None
        best = self._assign(costs)
        return best if present - costs[best, self._all].sum() > gain else None

    def _all_costs(self, there: np.ndarray) -> np.ndarray:
        """(slots, channels) by everything that is known."""
        found: np.ndarray = self._costs + self._link + there[:, None] * self._back
        return found

    def _follow(self, belief: Belief) -> Belief:
        """With outputs that follow their signals, for a while after a move; else they stay."""
        before = self._before
        if before is None or self._ticks > NEW_TICKS:
            return belief
        return belief._replace(outputs=belief.slots[np.argsort(before.slots)[before.outputs]])

    def _cost(self, slots: np.ndarray, there: np.ndarray) -> float:
        """Of an assignment (N,), the mean of the slots that are `there` (N,)."""
        alike = self._alike[np.argsort(slots)]
        least = np.where(alike, self._costs, np.inf).min(1)
        return float(least[there].mean()) if there.any() else 0.0


def _bounded(costs: np.ndarray, there: np.ndarray) -> np.ndarray:
    """Costs (slots, channels) above the least of each slot; slots that are missing say nothing."""
    costs = np.minimum(costs - costs.min(1, keepdims=True), MAX_IDENTITY_COST)
    bounded: np.ndarray = np.where(there[:, None], costs, 0.0)
    return bounded
