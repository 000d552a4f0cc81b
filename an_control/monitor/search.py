"""The assignment search: which slot carries which channel's signal, by the evidence collected.

Expectations depend on the assignment, so it is sought by turns: expect, assign. For `VERIFY_TICKS`
after a move each new assignment is verified against "nothing moved"; afterwards the evidence of
all ticks, fading, is reviewed now and then for channels that were confused.

The change detector: whether signals may have moved, and how well a belief explains readings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from an_control.monitor.assignment import Belief, cost_moves, swap_gains
from an_control.monitor.budget import Budget
from an_control.monitor.evidence import SWAP_ROWS, Candidate, Evidence, Record
from an_control.monitor.fit import MIN_GAIN, RobotFit
from an_control.monitor.forward_model import Costs, Expectation, ForwardModel, Prediction
from an_control.policy.sizes import WINDOW

TICK_GAIN = 10.0
"""Nats by which another assignment must explain one tick better to be verified."""
TICK_GAIN_AGAIN = 60.0
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
        min_gain = TICK_GAIN_AGAIN if new else TICK_GAIN
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


F32 = np.float32
VERIFY_TICKS = 20
"""Ticks for which an assignment is verified."""
RECKONING_TICKS = 6
"""Ticks of dead reckoning after a move."""
TURNS = 3
"""Of expecting and assigning, at most, in one tick."""
SWAPS = 8
"""Swaps of two channels that are tried between two ticks, at most."""
MAX_SWAPS = 48
"""Swaps after which the likeliest are tried again."""
NEWEST_TICKS = 8
"""Ticks by which swaps are tried where readings are surprising although nothing is verified."""
MIN_IDENTITY_GAIN = 2.0
"""Nats for each channel that moves by which the identity classifier must be for a correction, too:
right swaps of two gain 5 to 16. Where a robot lies on the ground, is worn or has noisy sensors,
predictions may be wrong in such a way that moved signals explain them; the classifier is then
against it."""
FADE = 0.97
"""What remains of the evidence from one tick to the next, when nothing is verified."""
REVIEW_TICKS = 4
"""How often that evidence is reviewed."""
NOMINAL_PRIOR = 8.0
"""Nats by which each channel is believed to be where it is wired, at the start."""


class AssignmentSearch:
    """In: a tick's record and the belief. Out: the belief with the assignment that explains it.

    A tick begins with `next_tick` and continues with `begin`, or `start`, or `add` and then one of
    `verify`, `seek` and `review`.

    Args:
        forward: predicts N channels.
        costs: compares predictions with readings.
        budget: says when a tick has computed enough.
        fit: knows what must be explained to be believed.
    """

    _costs: np.ndarray  # (slots, channels) under the present assignment

    def __init__(self, forward: ForwardModel, costs: Costs, budget: Budget, fit: RobotFit) -> None:
        self._budget, self._fit = budget, fit
        self._evidence = Evidence(forward, costs, VERIFY_TICKS, budget)
        self._newest = Evidence(forward, costs, NEWEST_TICKS, budget)
        """The same records, the newest alone."""
        self._assign = costs.assign
        self._all = np.arange(len(forward.channels))
        self._alike = forward.alike
        self._pairs = np.nonzero(np.triu(~self._alike, 1))
        self.reset()

    def reset(self) -> None:
        """Start an episode."""
        self.rewires = 0
        """How often signals were found to have moved, or to have been confused."""
        self.stand_by()

    def stand_by(self) -> None:
        """Drop the evidence; nothing is verified."""
        self._evidence.start(np.zeros((len(self._all), len(self._all))))
        self._newest.start(np.zeros((len(self._all), len(self._all))))
        self._put_off: Prediction | None = None
        self._to_swap: Candidate | None = None
        self._swapped: np.ndarray | None = None
        """The assignment with two channels swapped that the last tick has left to compare."""
        self._surprising = False
        self._candidates: Iterator[Candidate] | None = None
        """What `seek` has left to compare with the belief."""
        self._ticks, self._age, self._moving = 0, VERIFY_TICKS, False

    def next_tick(self) -> bool:
        """Count a tick; returns whether the assignment is so new that it may be wrong."""
        self._age += 1
        self._ticks += 1
        return self._age <= WINDOW

    @property
    def to_verify(self) -> bool:
        """Whether this tick's record is for `verify`."""
        return self._age <= VERIFY_TICKS

    @property
    def due(self) -> bool:
        """Whether the evidence is reviewed in this tick, where nothing is verified."""
        return self._ticks % REVIEW_TICKS == 0

    @property
    def seeking(self) -> bool:
        """Whether `seek` has not finished."""
        return self._candidates is not None

    @property
    def following(self) -> bool:
        """Whether, after this tick, signals that may have moved are still being verified."""
        return self._moving and self._age < VERIFY_TICKS

    def begin(self, belief: Belief) -> Belief:
        """The first tick: the belief is as good as its wiring is likely."""
        prior = np.full((len(self._all), len(self._all)), NOMINAL_PRIOR)
        prior[belief.slots, self._all] = 0.0
        belief = self._start(belief, prior, belief.slots)
        self._moving = False
        return belief

    def start(self, belief: Belief, move: Move, expectation: Expectation) -> Belief:
        """Verify a move that was detected against this tick's expectation."""
        belief = self._start(belief, move.costs, move.slots, move.usual)
        self._evidence.start_reckoning(expectation)
        return belief

    def _start(
        self, belief: Belief, link: np.ndarray, slots: np.ndarray, usual: np.ndarray | None = None
    ) -> Belief:
        self._evidence.start(link, usual)
        self._newest.start(np.zeros_like(link))
        self._surprising = False
        self._age, self._moving, self._counted = 0, True, belief.lost
        self._tried: dict[bytes, int] = {}
        self._to_swap = self._swapped = self._candidates = None
        belief = belief._replace(previous=belief.slots, previous_outputs=belief.outputs)
        return self._choose(belief, [self._evidence.under(one) for one in (belief.slots, slots)])

    def add(self, record: Record) -> None:
        """One tick in which no move was detected."""
        self._evidence.add(record)
        self._newest.add(record)
        if self._moving and self._age <= RECKONING_TICKS:
            self._evidence.reckon(record)

    def verify(self, belief: Belief) -> Belief:
        """Compare, by everything since the move, what is believed and what follows from it.

        What the budget does not allow is left out: the next tick verifies again.
        """
        evidence = self._evidence
        identity = evidence.classify()
        found = [evidence.under(belief.previous)]
        for candidate in self._rivals(belief, identity):
            found.append(candidate)
            if not self._budget.affordable(len(evidence.records)):
                break
        if self._age < VERIFY_TICKS:
            best = min(found, key=lambda one: one.total)
            self._to_swap = found[0] if self._age % 2 else best
        return self._choose(belief, found)

    def _rivals(self, belief: Belief, identity: np.ndarray) -> Iterator[Candidate]:
        """Yield what is believed, and what else may explain the ticks since the move."""
        evidence = self._evidence
        yield from self._turns(evidence, belief.slots)
        if self._swapped is not None:
            yield evidence.under(self._swapped)
        if self._moving and self._age <= RECKONING_TICKS:
            yield from self._turns(evidence, self._assign(identity + evidence.reckoning))
        elif self._age % 3 == 0:
            yield from self._turns(evidence, self._assign(identity + evidence.link))

    def seek(self, belief: Belief) -> Belief:
        """The belief does not hold: look for any other that explains the newest ticks.

        What the budget does not allow is compared at the next ticks, on the same evidence.
        """
        if self._candidates is None:
            self._counted = False
            self._sought: list[Candidate] = []
            self._candidates = self._others(belief.slots)
        for candidate in self._candidates:
            self._sought.append(candidate)
            if not self._budget.affordable(VERIFY_TICKS):
                return belief
        self._candidates = None
        present, *others = self._sought
        newest = self._newest.identity_costs()
        agreed = [one for one in others if self._agrees(newest, belief.slots, one.slots)]
        return self._choose(belief, [present, *agreed])

    def _others(self, slots: np.ndarray) -> Iterator[Candidate]:
        """Yield this assignment, and others that may explain the newest ticks better."""
        evidence = self._evidence.copy()
        evidence.unlink()
        identity = evidence.classify()
        present = evidence.under(slots)
        yield present
        for start in (identity, identity + present.costs):
            yield from self._turns(evidence, self._assign(start))

    def reconsider(self, belief: Belief) -> Belief:
        """The model does not fit the robot, at least not by this belief: look now and then for
        another one that explains the readings as they are explained in validation."""
        self._ticks += 1
        if self._candidates is None:
            if self._ticks % VERIFY_TICKS or len(self._evidence.records) < VERIFY_TICKS:
                return belief
            self._candidates = self._others(belief.slots)
        for candidate in self._candidates:
            other = belief.assigned(candidate.slots)
            if (other.slots != belief.slots).any() and self.confirms(other, belief.slots):
                self._candidates = None
                return other
            if not self._budget.affordable(VERIFY_TICKS):
                return belief
        self._candidates = None
        return belief

    def review(self, belief: Belief, prediction: Prediction, *, surprising: bool) -> Belief:
        """Nothing is verified: add to the evidence, and see if channels were confused.

        Where the readings are `surprising`, two signals may have swapped slots without a jump.
        Where no later step of this tick depends on it, that is put off for `catch_up`.
        """
        self._surprising, self._candidates = surprising, None
        if self._swapped is not None:
            belief = self._take_swap(belief, self._swapped)
            self._swapped = None
        if not belief.lost and not self.due:
            self._put_off = prediction
            return belief
        self._add_newest(belief, prediction)
        costs = self._costs
        if not self.due or self.margin(belief) > -MIN_GAIN:
            return belief
        slots = self._assign(cost_moves(costs, belief.slots))
        gained = costs[belief.slots, self._all].sum() - costs[slots, self._all].sum()
        if gained <= MIN_GAIN:
            return belief
        if not belief.lost:
            present, other = self._newest.under(belief.slots), self._newest.under(slots)
            if gained < self._fit.min_gain or not self._fit.explains(present, other):
                return belief
        if not self._agrees(self._newest.identity_costs(), belief.slots, slots):
            return belief
        self.rewires += 1
        return belief.assigned(slots)

    def catch_up(self, belief: Belief) -> None:
        """Do what the last tick has put off: add its evidence, or try swaps of two channels."""
        if self._to_swap is not None:
            best, self._to_swap = self._to_swap, None
            count = self._affordable_swaps(self._evidence)
            begin = self._next_swaps(best.slots, count)
            self._swapped = self._best_swap(best, self._evidence, begin, count)
        if self._surprising:
            self._surprising = False
            best, count = self._newest.under(belief.slots), self._affordable_swaps(self._newest)
            self._swapped = self._best_swap(best, self._newest, 0, count)
        if self._put_off is not None:
            prediction, self._put_off = self._put_off, None
            self._add_newest(belief, prediction)

    def found(self) -> None:
        """The first wiring is known: it needs no more verifying."""
        if not self._moving:
            self._age = VERIFY_TICKS

    def margin(self, belief: Belief) -> float:
        """The least that the costs grow by where two channels that differ swap slots."""
        return float(self._swap_gains(belief).min())

    def sure(self, belief: Belief, nats: float) -> np.ndarray:
        """(N,) the channels that swap slots with no other for so much."""
        sure: np.ndarray = self._swap_gains(belief).min(1) >= nats
        return sure

    def blend(self, belief: Belief, readings: np.ndarray) -> np.ndarray:
        """Signals (N,) by channel, from readings (N,) by slot.

        While an assignment is being verified, each is the mean of what its two likeliest slots
        read, weighted by how likely they are.
        """
        signals: np.ndarray = readings[belief.slots]
        if self._age >= VERIFY_TICKS or belief.slots is belief.previous:
            return signals
        gains = self._swap_gains(belief)
        other = gains.argmin(1)
        gain = np.minimum(np.maximum(gains[self._all, other], -30.0), 30.0)
        sure = 1.0 / (1.0 + np.exp(-gain))
        rival = readings[belief.slots[other]]
        rival = np.where(np.isnan(rival), signals, rival)
        return (sure * signals + (1.0 - sure) * rival).astype(F32)

    def _swap_gains(self, belief: Belief) -> np.ndarray:
        gains = swap_gains(self._costs, belief.slots)
        gains[self._alike] = np.inf
        return gains

    def _add_newest(self, belief: Belief, prediction: Prediction) -> None:
        costs = FADE * self._costs
        self._evidence.add_newest(costs, prediction)
        costs -= costs[belief.slots, self._all]
        self._costs = costs

    def _turns(self, evidence: Evidence, slots: np.ndarray) -> Iterator[Candidate]:
        """Yield an assignment, what follows from it, what follows from that, and so on."""
        found: list[Candidate] = []
        while len(found) < TURNS and not any((one.slots == slots).all() for one in found):
            found.append(evidence.under(slots))
            yield found[-1]
            slots = self._assign(found[-1].costs)

    def _take_swap(self, belief: Belief, slots: np.ndarray) -> Belief:
        """The belief with two channels swapped, where predictions and classifier say so."""
        present, swapped = self._newest.under(belief.slots), self._newest.under(slots)
        if not self._convinces(belief, present, swapped):
            return belief
        if not self._agrees(self._newest.identity_costs(), belief.slots, slots):
            return belief
        self._costs = swapped.costs
        self.rewires += 1
        return belief.assigned(slots)

    def confirms(self, belief: Belief, slots: np.ndarray) -> bool:
        """Whether the evidence is for this belief and against the slots that were right last."""
        if self._fit.limits is None or (belief.slots == slots).all():
            return True
        evidence = self._evidence.copy()
        evidence.unlink()  # how likely the wiring was at the start explains no readings
        before, now = evidence.under(slots), evidence.under(belief.slots)
        ticks = len(evidence.records)
        explained = float(now.excess.sum()) <= ticks * self._fit.limits.max_excess
        gained = before.total - now.total >= self._fit.min_gain
        return explained and gained and self._fit.explains(before, now)

    def _convinces(self, belief: Belief, first: Candidate, other: Candidate) -> bool:
        """Whether another assignment than the first one is to be believed.

        What is sought while the monitor is lost changes nothing yet, so much may be tried.
        """
        gain = first.total - other.total
        if belief.lost and not self._moving:
            return gain >= self._fit.least_gain
        return gain >= self._fit.min_gain and self._fit.explains(first, other)

    def _agrees(self, identity: np.ndarray, before: np.ndarray, slots: np.ndarray) -> bool:
        """Whether the identity classifier, by these costs, is for these slots, too."""
        gain = identity[before, self._all].sum() - identity[slots, self._all].sum()
        return bool(gain >= MIN_IDENTITY_GAIN * np.count_nonzero(slots != before))

    def _affordable_swaps(self, evidence: Evidence) -> int:
        """Return how many swaps this tick may try: one at least, so that the search goes on."""
        rows = SWAP_ROWS * max(1, len(evidence.records))
        return min(max(1, self._budget.affordable(rows)), SWAPS)

    def _next_swaps(self, slots: np.ndarray, count: int) -> int:
        """How many swaps of this assignment have been tried; after the last ones again none."""
        key = slots.tobytes()
        tried = self._tried.get(key, 0)
        more = tried + count < min(MAX_SWAPS, len(self._pairs[0]))
        self._tried[key] = tried + count if more else 0
        return tried

    def _best_swap(
        self, best: Candidate, evidence: Evidence, begin: int, count: int
    ) -> np.ndarray | None:
        """The best assignment (N,) in which two channels swap slots, where it is better.

        Turns end where expectations and assignment agree, which they may do on a pair of legs
        taken for each other; so swaps are tried with the expectations that follow from them,
        `count` from the `begin`th likeliest on.
        """
        likeliest = np.argsort(swap_gains(best.costs, best.slots)[self._pairs])
        tried = likeliest[begin : begin + count]
        if not len(tried):
            return None
        one, other = (side[tried] for side in self._pairs)
        slots, row = np.repeat(best.slots[None], len(tried), 0), np.arange(len(tried))
        slots[row, one], slots[row, other] = best.slots[other], best.slots[one]
        totals = evidence.totals(slots)
        lowest = int(totals.argmin())
        return slots[lowest] if totals[lowest] < best.total else None

    def _choose(self, belief: Belief, found: list[Candidate]) -> Belief:
        """Take the best, or the first, what was believed, where nothing is enough better."""
        best, first = found[0], found[0]
        for one in sorted(found[1:], key=lambda one: one.total):
            if self._convinces(belief, first, one):
                best = one
                break
        self._costs = best.costs
        if not self._counted and best is not found[0]:
            self.rewires += 1
            self._counted = True
        return belief.assigned(best.slots)
