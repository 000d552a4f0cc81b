"""The evidence for assignments of slots to channels, collected since signals may have moved.

At the tick of a move, each slot's reading is compared with the channel's expected reading (`link`).
After it, each slot's change is compared with the channel's expected change, which holds under any
earlier assignment, and the identity classifier judges each slot. For a few ticks the readings are
also compared with the forward model's predictions from before the move (dead reckoning).
"""

from __future__ import annotations

from collections import deque
from copy import copy
from itertools import islice
from typing import NamedTuple

import numpy as np

from an_control.monitor.budget import TimeBudget
from an_control.monitor.costs import Costs
from an_control.monitor.forward_model import Expectation, ForwardModel, Prediction
from an_control.monitor.settings import EvidenceSettings
from an_control.policy.sizes import WINDOW

F32 = np.float32


class Candidate(NamedTuple):
    """An assignment, and the evidence against it."""

    slots: np.ndarray
    """(N,) the slot of each channel."""
    costs: np.ndarray
    """(slots, channels) in nats, with the expectations that follow from the assignment."""
    total: float
    """The assignment's own costs in nats."""
    excess: np.ndarray
    """(N,) the costs of each channel above the usual ones."""
    ticks: int
    """The number of ticks after the move that are counted."""


class TickRecord(NamedTuple):
    """The readings of one tick by slot: before, the action, their change, and now.

    Missing readings before are 0, as the forward model gets them.
    """

    before: np.ndarray
    action: np.ndarray
    change: np.ndarray
    reads: np.ndarray


class Evidence:
    """Records of ticks, and from them the costs (slots, channels) under any assignment.

    Args:
        forward: The forward model of N channels.
        costs: Compares predictions with readings.
        ticks: The number of records that are kept.
        budget: Counts the work.
        settings: The tuned numbers of the evidence.
    """

    def __init__(
        self,
        forward: ForwardModel,
        costs: Costs,
        ticks: int,
        budget: TimeBudget,
        settings: EvidenceSettings,
    ) -> None:
        self._forward, self._costs, self._budget = forward, costs, budget
        self._settings = settings
        self._all = np.arange(len(forward.channels))
        self.records: deque[TickRecord] = deque(maxlen=ticks)
        self._sums: dict[bytes, tuple[int, np.ndarray, np.ndarray]] = {}
        """By assignment: the number of records counted, their costs (slots, channels), and their
        usual costs (channels,)."""
        self._totals: dict[bytes, tuple[int, float]] = {}
        """By assignment: the number of records counted, and their total costs."""
        self.identity: np.ndarray | None = None
        """(slots, channels) the identity classifier's costs; None while there is no record."""

    def start(self, link: np.ndarray, usual: np.ndarray | None = None) -> None:
        """Clear the records: signals may have moved.

        Args:
            link: (slots, channels) the costs by this tick's readings.
            usual: (channels,) the usual ones of these costs; None: 0, for a `link` that is no
                tick's.
        """
        self.clear()
        self.link, self.identity = link, None
        self._usual_link = np.zeros(len(link)) if usual is None else usual

    def clear(self) -> None:
        """Remove all records."""
        self.records.clear()
        self._sums.clear()
        self._totals.clear()

    def add(self, record: TickRecord) -> None:
        """Append a tick's record; if all `ticks` records are there, drop the oldest."""
        if len(self.records) == self.records.maxlen:
            self._sums.clear()
            self._totals.clear()
        self.records.append(record)

    def copy(self) -> Evidence:
        """Return evidence of the same records, to which none is added."""
        other = copy(self)
        other.records = self.records.copy()
        other._sums, other._totals = {}, {}
        return other

    def start_reckoning(self, expectation: Expectation) -> None:
        """Start dead reckoning from the expectation at the tick of the move."""
        self._reckoned, self._reckoned_scale = expectation.likeliest, expectation.prediction.scale
        self.reckoning = self.link.copy()
        """(slots, channels) the costs by dead reckoning."""

    def drop_link(self) -> None:
        """Exclude the costs of the move's tick: only records and identity classifier count."""
        self.link = np.zeros_like(self.link)
        self._usual_link = np.zeros(len(self.link))

    def add_reckoning(self, record: TickRecord) -> None:
        """Compare a tick with the dead reckoning, and advance the reckoning by it."""
        ahead = self._forward.expect(self._reckoned, record.action)
        self._reckoned_scale = np.hypot(
            ahead.prediction.scale, F32(self._settings.reckoning_growth) * self._reckoned_scale
        )
        prediction = ahead.prediction._replace(scale=self._reckoned_scale)
        reads = record.reads[None]
        self._costs.add(self.reckoning, reads, ahead.expected[None], reads, prediction)
        self._reckoned = ahead.likeliest

    def classify(self) -> np.ndarray:
        """Update `identity` by the newest records and return it."""
        self.identity = self.identity_costs()
        return self.identity

    def identity_costs(self) -> np.ndarray:
        """Return the identity classifier's costs (slots, channels) for the newest records."""
        self._budget.spend(self._settings.classifier_rows)
        newest = list(self.records)[-WINDOW:]
        _, actions, change, reads = map(np.array, zip(*newest, strict=True))
        costs = self._forward.identity_costs(reads, change, actions)
        return np.minimum(costs, self._settings.max_identity_cost)

    def evaluate(self, slots: np.ndarray) -> Candidate:
        """Return an assignment (N,) with its costs, by the expectations that follow from it."""
        key = slots.tobytes()
        shape = self.link.shape
        count, sums, usual = self._sums.get(key) or (0, np.zeros(shape), np.zeros(shape[1]))
        if count < len(self.records):
            self._budget.spend(len(self.records) - count)
            before, actions, change, reads = self._records_from(count)
            prediction = self._forward.predict(before[:, slots], actions)
            self._costs.add(sums, change, prediction.change, reads, prediction)
            usual += self._costs.usual_by_channel(prediction)
        self._sums[key] = len(self.records), sums, usual
        costs = self._common_costs() + sums
        total = float(costs[slots, self._all].sum())
        excess = (self.link + sums)[slots, self._all] - usual - self._usual_link
        return Candidate(slots, costs, total, excess, len(self.records))

    def total_costs(self, slots: np.ndarray) -> np.ndarray:
        """Return the total costs (S,) of assignments (S, N), each by its own expectations."""
        keys = [one.tobytes() for one in slots]
        known = [self._totals.get(key, (0, 0.0)) for key in keys]
        counts, totals = map(np.array, zip(*known, strict=True))
        first, ticks = int(counts.min()), len(self.records)
        which = np.repeat(np.arange(len(slots)), ticks - counts)  # the assignment of each row
        tick = np.concatenate([np.arange(count - first, ticks - first) for count in counts])
        self._budget.spend(self._settings.swap_rows * len(which))
        before, actions, change, reads = self._records_from(first)
        by_channel = tick[:, None], slots[which]  # (rows, channels)
        prediction = self._forward.predict(before[by_channel], actions[tick])
        costs = self._costs.channel_costs(change[by_channel], reads[by_channel], prediction)
        totals = totals + np.bincount(which, costs.sum(1), len(slots))
        self._totals |= {key: (ticks, float(one)) for key, one in zip(keys, totals, strict=True)}
        found: np.ndarray = totals + self._common_costs()[slots, self._all].sum(1)
        return found

    def _records_from(self, count: int) -> tuple[np.ndarray, ...]:
        """Return the records after the first `count` as arrays (ticks, ...) by field."""
        return tuple(map(np.array, zip(*islice(self.records, count, None), strict=True)))

    def add_newest(self, costs: np.ndarray, prediction: Prediction) -> None:
        """Add the costs of the newest record under this prediction to `costs`, in place."""
        newest = self.records[-1]
        self._costs.add(
            costs, newest.change[None], prediction.change, newest.reads[None], prediction
        )

    def _common_costs(self) -> np.ndarray:
        """Return the costs (slots, channels) that hold under all assignments."""
        return self.link if self.identity is None else self.link + self.identity
