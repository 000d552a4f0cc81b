"""The evidence for assignments of slots to channels, collected since signals may have moved.

At the tick of a move: each slot's reading against the channel's expected reading (`link`). After
it: the slot's own change against the channel's expected change, which holds whatever was believed
before, and what the identity classifier says of the slot. For a few ticks also the readings
against what the forward model predicts from before the move on (dead reckoning).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import numpy as np

from an_control.policy.monitor.costs import Costs
from an_control.policy.monitor.forward_model import Expectation, ForwardModel, Prediction
from an_control.policy.sizes import WINDOW

F32 = np.float32
MAX_IDENTITY_COST = 8.0
"""Nats that the identity classifier can say against a channel."""
RECKONING_GROWTH = 1.2
"""By which the errors of dead reckoning grow in a tick."""


class Candidate(NamedTuple):
    """An assignment, and what speaks against it."""

    slots: np.ndarray
    """(N,) the slot of each channel."""
    costs: np.ndarray
    """(slots, channels), with the expectations that follow from the assignment."""
    total: float
    """Its own costs, in nats."""


class Record(NamedTuple):
    """One tick by slot: readings before, the action after them, how they changed, and now."""

    before: np.ndarray
    action: np.ndarray
    change: np.ndarray
    reads: np.ndarray


class Evidence:
    """In: a `Record` a tick. Out: costs (slots, channels) under any assignment.

    Args:
        forward: predicts N channels.
        costs: compares predictions with readings.
        ticks: how many records are kept.
    """

    def __init__(self, forward: ForwardModel, costs: Costs, ticks: int) -> None:
        self._forward, self._costs = forward, costs
        self._all = np.arange(len(forward.channels))
        self.records: deque[Record] = deque(maxlen=ticks)
        self.identity: np.ndarray | None = None
        """(slots, channels) what the identity classifier says; None while there is no record."""

    def start(self, link: np.ndarray, previous: np.ndarray) -> None:
        """Forget the records: signals may have moved from the assignment `previous` (N,).

        `link` (slots, channels) are the costs by that tick.
        """
        self.records.clear()
        self.link, self._previous, self.identity = link, previous, None
        self._previous_costs = np.zeros_like(link)

    def start_reckoning(self, expectation: Expectation) -> None:
        """Predict on from what was expected at the tick of the move."""
        self._reckoned, self._reckoned_scale = expectation.likeliest, expectation.prediction.scale
        self.reckoning = self.link.copy()
        """(slots, channels) costs by dead reckoning."""

    def unlink(self) -> None:
        """Let nothing but the records and the identity classifier count."""
        self.link = np.zeros_like(self.link)

    def reckon(self, record: Record) -> None:
        """Compare the slots with what was expected before the move, and continue from there."""
        ahead = self._forward.expect(self._reckoned, record.action)
        self._reckoned_scale = np.hypot(
            ahead.prediction.scale, F32(RECKONING_GROWTH) * self._reckoned_scale
        )
        prediction = ahead.prediction._replace(scale=self._reckoned_scale)
        reads = record.reads[None]
        self._costs.add(self.reckoning, reads, ahead.expected[None], reads, prediction)
        self._reckoned = ahead.likeliest

    def classify(self) -> np.ndarray:
        """Ask the identity classifier, by the newest records; costs (slots, channels)."""
        newest = list(self.records)[-WINDOW:]
        _, actions, change, reads = map(np.array, zip(*newest, strict=True))
        costs = self._forward.identity_costs(reads, change, actions)
        self.identity = np.minimum(costs, MAX_IDENTITY_COST)
        return self.identity

    def under(self, slots: np.ndarray) -> Candidate:
        """This assignment (N,), with the expectations that follow from it."""
        costs = self.link.copy() if self.identity is None else self.link + self.identity
        if self.records:
            before, actions, change, reads = map(np.array, zip(*self.records, strict=True))
            prediction = self._forward.predict(np.nan_to_num(before[:, slots]), actions)
            self._costs.add(costs, change, prediction.change, reads, prediction)
        return Candidate(slots, costs, float(costs[slots, self._all].sum()))

    def under_previous(self) -> Candidate:
        """The same of what was believed before the move; to be called once a record."""
        slots, newest = self._previous, self.records[-1]
        before = np.nan_to_num(newest.before[slots])
        prediction = self._forward.predict(before[None], newest.action[None])
        self.add_newest(self._previous_costs, prediction)
        costs = self._fixed() + self._previous_costs
        return Candidate(slots, costs, float(costs[slots, self._all].sum()))

    def totals(self, slots: np.ndarray) -> np.ndarray:
        """Of many assignments (S, N), each with its own expectations, the costs (S,)."""
        before, actions, change, reads = map(np.array, zip(*self.records, strict=True))
        by_channel = np.arange(len(before))[:, None], slots[:, None]  # (S, ticks, channels)
        prediction = self._forward.predict(np.nan_to_num(before)[by_channel], actions)
        costs = self._costs.own(change[by_channel], reads[by_channel], prediction)
        totals: np.ndarray = costs.sum((1, 2)) + self._fixed()[slots, self._all].sum(1)
        return totals

    def add_newest(self, costs: np.ndarray, prediction: Prediction) -> None:
        """Add to `costs` (slots, channels) what the newest record says, by this prediction."""
        newest = self.records[-1]
        self._costs.add(
            costs, newest.change[None], prediction.change, newest.reads[None], prediction
        )

    def _fixed(self) -> np.ndarray:
        """The costs that hold under every assignment."""
        return self.link if self.identity is None else self.link + self.identity
