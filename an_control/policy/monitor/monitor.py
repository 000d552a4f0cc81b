"""The identity monitor: finds out by itself which slot shows which channel's content.

A slot is a nominal id as it is wired; a content is what a nominal channel means. In every tick the
forward model says what each channel should read now. While another assignment of slots to channels
explains the readings clearly better than the present one, contents may have moved: from then on
that is weighed against "nothing moved" for `LOOKING` ticks. Evidence is a sum of costs (see
`assignment`): at the tick of the move each slot's reading against the channel's expected reading;
after it the slot's own change against the channel's expected change, which holds whatever was
believed before; and what the slot looks like since. Expectations depend on the assignment, so it
is sought by turns: expect, assign.

At the start, and when nothing explains the readings any more, the monitor is lost: it seeks an
assignment from looks alone. Until the first move that it notices with a known assignment, what it
gives out keeps the ids under which it is wired, and then goes on under its own, the neurons with
it: to a permutation-invariant policy that is the same. Contents that move before are followed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from an_control.policy.monitor.forward_model import AddCosts, ForwardModel, Prediction
from an_control.policy.monitor.sensor_noise import SensorNoise
from an_control.policy.sizes import WINDOW

F32 = np.float32
NOTICE = 10.0
"""Nats by which another assignment must explain one tick better to be looked into."""
NOTICE_AGAIN = 60.0
"""The same in the `WINDOW` ticks after that, when the present one may be wrong."""
BELIEVE = 24.0
"""Nats by which it must explain all ticks since better than "nothing moved" to be believed."""
MOVED = 2.0
"""Nats that a moved channel costs: many that move must explain more than a few."""
LOOKING = 20
"""Ticks for which an assignment is looked into."""
BLIND_TICKS = 6
"""For so long after a move the model's predictions alone say what the channels read."""
BLINDER = 1.2
"""By which a prediction's errors grow in the next."""
TURNS = 3
"""Of expecting and assigning, at most, in one tick."""
SWAPS = 8
"""Swaps of two channels that are tried in one tick."""
MOST_SWAPS = 48
"""Swaps after which the likeliest are tried again."""
FADE = 0.97
"""What remains of the evidence from one tick to the next, when nothing is looked into."""
REVIEW_TICKS = 4
"""How often that evidence is asked whether channels were mixed up."""
FIRST = 8.0
"""Nats by which each channel is believed to be where it is wired, at the start."""
LARGEST_LOOK = 8.0
"""Nats that looks can speak against a channel."""
LOST, LOST_CHANNEL = 15.0, 1.0
"""Nats a tick above what is usual, lately, at which the monitor is lost; and those a channel."""
SOUND, SOUND_CHANNEL = 20.0, 3.0
"""The same in one tick, up to which an assignment may be right."""
UNKNOWN = 60.0
"""What it is taken to be at the start, where nothing is known."""
FOUND_TICKS = 5
"""Sound ticks in a row after which it is no more lost, if it is sure."""
SETTLED = 12
"""Ticks without a correction after which the belief is taken to have been right."""
MOST_ABSENT = 0.5
"""Share of the slots up to which what is absent is filled in."""
SURE = 12.0
"""Nats that no two channels may be nearer to being mixed up."""

Assign = Callable[[np.ndarray], np.ndarray]


class _Evidence(NamedTuple):
    """For one assignment: the slot of each channel, costs (slots, channels) under it, its own."""

    slots: np.ndarray
    costs: np.ndarray
    total: float


class _Record(NamedTuple):
    """A tick's readings before, the action after them, how they changed, and what they became."""

    before: np.ndarray
    action: np.ndarray
    change: np.ndarray
    reads: np.ndarray


class _Ahead(NamedTuple):
    """What should be read after a tick that read `last`, and then `action`."""

    last: np.ndarray
    action: np.ndarray
    seen: Prediction
    expected: np.ndarray
    foreseen: np.ndarray


class IdentityMonitor:
    """Watches N slots; `slots` (N,) is where each channel's content is believed to be shown.

    Args:
        forward: what the channels should read.
        compiled: take the compiled assignment, which needs numba.
        ordered: the policy needs every content under its own id, as soon as that is known.
    """

    def __init__(self, forward: ForwardModel, *, compiled: bool, ordered: bool = False) -> None:
        self._ordered = ordered
        self.channels = forward.channels
        self._forward = forward
        self._add_costs, self._assign = _assignment(compiled)
        self._count = len(forward.channels)
        self._all = np.arange(self._count)
        self._least_lost = LOST + LOST_CHANNEL * self._count
        self._most_sound = SOUND + SOUND_CHANNEL * self._count
        self._pairs = np.triu_indices(self._count, 1)
        self._noise = SensorNoise(forward.roughest, forward.binary)
        self._records: deque[_Record] = deque(maxlen=LOOKING)
        self._warm_up()
        self.reset()

    def _warm_up(self) -> None:
        """Compile before the first tick."""
        costs, readings = np.zeros((self._count, self._count)), np.zeros((1, self._count), F32)
        seen = self._forward.predict(readings, np.zeros((1, self._forward.actions), F32))
        self._add(costs, readings, seen.change, readings, seen)
        self._assign(costs)

    def reset(self) -> None:
        """Forget everything: the nominal wiring is believed, as at an episode's start."""
        self.slots = self._all.copy()
        self.shown = self.slots
        """(N,) the slot whose content goes out under each channel's id."""
        self.rewires = 0
        """How often contents were found to have moved, or to have been mixed up."""
        self.surprise = 0.0
        """Nats a tick, lately, above what is usual."""
        self.noticed = self.settled = False
        """Whether contents may have moved before this tick; whether, when that was noticed last,
        nothing had been put right for some time."""
        self._missed = 0
        self._filling: bool | None = None
        self._last: np.ndarray | None = None
        self._ahead: _Ahead | None = None
        self._put_off: Prediction | None = None
        self._known = self.slots
        self._noise.reset()
        self._forward.noise = 0.0
        self._unchanged = 0
        self._swapping, self._swaps = b"", 0
        self._stand_by()

    def _stand_by(self) -> None:
        """Hold the belief, until all slots are there to be watched."""
        self._before: np.ndarray | None = None
        self._lost = self._as_wired = True
        self.renames: tuple[np.ndarray, np.ndarray] | None = None
        """The slots shown under each id until now, and from now on, before anything moved."""
        self._records.clear()
        self._ticks, self._age = 0, LOOKING
        self._old = self._shown_before = self.slots

    @property
    def belief(self) -> dict[str, str]:
        """The content that each slot is believed to show, where it is not its own."""
        names = self.channels
        pairs = zip(self.slots.tolist(), range(self._count), strict=True)
        return {names[slot]: names[channel] for slot, channel in sorted(pairs) if slot != channel}

    @property
    def lost(self) -> bool:
        """Whether no assignment is known to be right."""
        return self._lost

    def look(
        self, readings: np.ndarray, action: np.ndarray, *, evidence: bool = True
    ) -> np.ndarray:
        """One tick: readings (N,) float32 by slot, NaN where absent, and the action (A,) before.

        Without `evidence`, as after a command that no action stands for, the belief stays.
        Returns the readings by channel, NaN where the slot that shows it is absent. While a match
        is unsure a channel's reading is the mean of what its two likeliest slots read.
        """
        self._catch_up()
        absent, believed = np.isnan(readings), self.slots
        self.renames = None
        self.noticed = False
        self._missed = self._missed + 1 if absent.any() else 0
        if self._missed and (self._before is None or self._missed > WINDOW):
            return self._hold(readings, action, absent)
        self._filling = None
        if not evidence and self._before is not None:
            return self._pass_by(readings, absent)
        if self._forward.fills:
            self._listen(readings)
        if self._before is None:
            self._begin(readings)
        else:
            self._weigh(readings, action)
        if self._ordered and not self._lost:
            self._rename()
        if not self._as_wired:
            self.shown = self.slots
        elif self._moving and self._age < LOOKING:
            self.shown = self.slots[np.argsort(self._old)[self._shown_before]]
        self._unchanged = self._unchanged + 1 if self.slots is believed else 0
        estimate = self._estimate(readings)
        given = readings[self.shown] if self._as_wired else estimate
        if self._noise.sd and not self._lost:
            estimate = self._noise.smooth(self._foreseen, self._scale[0], estimate)
            readings = self._by_slot(estimate)
            given = readings[self.shown]
        if self._missed and self._forward.fills and not self._lost:
            return self._fill(readings, action, estimate, given)
        self._last = estimate
        if self._missed:
            self._last = np.where(absent[self.slots], self._foreseen, estimate)
            if self._before is not None:
                readings = np.where(absent, self._before, readings)
        self._before = readings
        return given

    def look_ahead(self, action: np.ndarray) -> None:
        """Do now, while there is time, what the next `look` would else do first.

        That is what the last tick's review has put off, and the prediction of what follows the last
        tick and this action (A,); `look` takes it where its action is this one.
        """
        self._catch_up()
        if self._before is not None and self._last is not None:
            self._ahead = self._predict(self._last, action)

    def _predict(self, last: np.ndarray, action: np.ndarray) -> _Ahead:
        """What should follow these readings by channel (N,) and this action (A,)."""
        ahead = self._ahead
        if (
            ahead is not None
            and ahead.last is last
            and (ahead.action is action or (ahead.action == action).all())
        ):
            return ahead
        seen = self._forward.predict(last[None], action[None])
        expected = last + seen.change[0]
        foreseen = np.where(self._forward.binary, seen.chance[0], expected)
        return _Ahead(last, action, seen, expected, foreseen)

    def _pass_by(self, readings: np.ndarray, absent: np.ndarray) -> np.ndarray:
        """Believe what was believed; the next tick is compared with these readings."""
        assert self._before is not None and self._last is not None
        given = readings[self.shown]
        self._last = np.where(absent[self.slots], self._last, readings[self.slots])
        self._before = np.where(absent, self._before, readings)
        return given

    def _listen(self, readings: np.ndarray) -> None:
        """Where noise sets in, what was noticed meanwhile may have been nothing else."""
        if self._unchanged >= SETTLED:
            self._known = self.slots
        if not self._missed and self._noise.hear(readings):
            self.slots = self._known
            self._stand_by()
        self._forward.noise = self._noise.sd

    def _by_slot(self, by_channel: np.ndarray) -> np.ndarray:
        found = np.empty_like(by_channel)
        found[self.slots] = by_channel
        return found

    def _hold(self, readings: np.ndarray, action: np.ndarray, absent: np.ndarray) -> np.ndarray:
        """While channels stay away: keep the belief, and fill them in if it explains the rest."""
        self._stand_by()
        given, estimate, gone = readings[self.shown], readings[self.slots], absent[self.slots]
        if not self._forward.fills or absent.mean() > MOST_ABSENT:
            self._filling = False
        elif self._last is None:
            self._last = np.where(gone, self._forward.start, estimate)
            return given
        elif self._filling is None:
            self._filling = self._explains(self._last, estimate, action)
        return self._fill(readings, action, estimate, given) if self._filling else given

    def _explains(self, before: np.ndarray, now: np.ndarray, action: np.ndarray) -> bool:
        """Whether a tick costs hardly more than is usual, from and to readings by channel."""
        seen = self._forward.predict(before[None], action[None])
        costs = self._forward.own_costs(now - before, now, seen)
        return float(costs.sum()) - self._forward.usual_cost(seen) < self._least_lost

    def _fill(
        self, readings: np.ndarray, action: np.ndarray, estimate: np.ndarray, given: np.ndarray
    ) -> np.ndarray:
        """What is `given` to the policy, with estimates of what is absent.

        They count as read in the ticks that follow.
        """
        assert self._last is not None
        self._last = self._forward.fill(self._last, action, estimate, np.isnan(estimate))
        by_slot = self._by_slot(self._last)
        if self._before is not None:
            self._before = np.where(np.isnan(readings), by_slot, readings)
        order = self.shown if self._as_wired else self.slots
        return np.where(np.isnan(given), by_slot[order], given)

    def _begin(self, readings: np.ndarray) -> None:
        """The first tick: the belief is as good as its wiring is likely."""
        link = np.full((self._count, self._count), FIRST)
        link[self.slots, self._all] = 0.0
        self._foreseen = readings[self.slots]
        self._sound, self.surprise = 0, UNKNOWN
        self._look_into(link, self.slots)
        self._moving = False

    def _weigh(self, readings: np.ndarray, action: np.ndarray) -> None:
        """Compare assignments by this tick."""
        assert self._before is not None and self._last is not None
        _, _, seen, expected, self._foreseen = self._predict(self._last, action)
        self._scale = seen.scale
        costs = np.zeros((self._count, self._count))
        self._add(costs, readings[None], expected[None], readings[None], seen)
        present = float(costs[self.slots, self._all].sum())
        looking = self._age < LOOKING
        self._age += 1
        self._ticks += 1
        least = NOTICE_AGAIN if self._age <= WINDOW else NOTICE
        known = not self._lost or self.surprise < self._least_lost
        if self._sound and known and self._notice(costs, present, least):
            return
        above = present - self._forward.usual_cost(seen)
        self.surprise += 0.1 * (above - self.surprise)
        self._sound = self._sound + 1 if above < self._most_sound else 0
        self._records.append(_Record(self._before, action, readings - self._before, readings))
        if looking and self._age <= BLIND_TICKS and self._moving:
            self._follow_blindly(action, readings)
        if looking:
            self._settle()
        elif self.surprise > self._least_lost and self._ticks % REVIEW_TICKS == 0:
            self._seek()
        elif self._lost or not self._ticks % REVIEW_TICKS:
            self._review(seen)
        else:
            self._put_off = seen  # nothing of this tick depends on it
        if self._lost and self._sound >= FOUND_TICKS and self._margin() > SURE:
            self._lost, self.surprise = False, 0.0
            self._age = self._age if self._moving else LOOKING

    def _add(
        self,
        costs: np.ndarray,
        moved: np.ndarray,
        expected: np.ndarray,
        reads: np.ndarray,
        seen: Prediction,
    ) -> None:
        self._forward.add_costs(costs, moved, expected, reads, seen, self._add_costs)

    def _notice(self, costs: np.ndarray, present: float, least: float) -> bool:
        """Whether contents may have moved before this tick, which then is looked into."""
        if present - float(costs.min(0).sum()) <= least:
            return False
        link = self._from_present(costs)
        slots = self._assign(link)
        if present - float(link[slots, self._all].sum()) <= least:
            return False
        if not self._lost:
            self._rename()
        self.noticed, self.settled = True, self._unchanged >= SETTLED
        self._noise.move()
        self._look_into(link, slots)
        self._blind, self._blind_scale = self._foreseen, self._scale
        self._blind_costs = link.copy()
        return True

    def _rename(self) -> None:
        """From now on every content goes out under its own id."""
        if self._as_wired:
            self.renames, self._as_wired = (self.shown, self.slots), False

    def _from_present(self, costs: np.ndarray) -> np.ndarray:
        """Costs in which every channel that moves costs something."""
        link = costs + MOVED
        link[self.slots, self._all] -= MOVED
        return link

    def _follow_blindly(self, action: np.ndarray, readings: np.ndarray) -> None:
        """Compare the slots with what was expected before the move, and goes on from there."""
        seen = self._forward.predict(self._blind[None], action[None])
        expected = self._blind + seen.change[0]
        self._blind_scale = np.hypot(seen.scale, F32(BLINDER) * self._blind_scale)
        seen = seen._replace(scale=self._blind_scale)
        self._add(self._blind_costs, readings[None], expected[None], readings[None], seen)
        self._blind = np.where(self._forward.binary, seen.chance[0], expected)

    def _look_into(self, link: np.ndarray, slots: np.ndarray) -> None:
        """Contents may have moved; `link` says where to, before anything else is known."""
        self._old, self._link, self._age = self.slots, link, 0
        self._shown_before, self._moving = self.shown, True
        self._records.clear()
        self._looks: np.ndarray | None = None
        self._counted = self._lost
        self._swapping, self._swaps = b"", 0
        self._old_costs = np.zeros((self._count, self._count))
        self._choose([self._evidence(self._old), self._evidence(slots)])

    def _settle(self) -> None:
        """Look at everything since the move: what is believed now, and what follows from it."""
        self._looks = self._look_at()
        found = [self._unmoved(), *self._turns(self.slots, TURNS)]
        if self._moving and self._age <= BLIND_TICKS:
            found += self._turns(self._assign(self._looks + self._blind_costs), TURNS)
        elif self._age % 3 == 0:
            found += self._turns(self._assign(self._looks + self._link), TURNS)
        self._choose([*found, *self._swapped(min(found, key=lambda one: one.total))])

    def _swapped(self, best: _Evidence) -> list[_Evidence]:
        """The best of those in which two channels swap slots, where it is better.

        Turns end where expectations and assignment agree, which they may do on a pair of legs
        taken for each other; so swaps are tried with the expectations that follow from them, the
        likeliest ones first.
        """
        if best.slots.tobytes() != self._swapping:
            self._swapping, self._swaps = best.slots.tobytes(), 0
        likeliest = np.argsort(_gain(best.costs, best.slots)[self._pairs])
        tried = likeliest[self._swaps : self._swaps + SWAPS]
        self._swaps += SWAPS
        if self._swaps >= min(MOST_SWAPS, len(likeliest)):
            self._swaps = 0
        if not len(tried):
            return []
        one, other = (side[tried] for side in self._pairs)
        slots, row = np.repeat(best.slots[None], len(tried), 0), np.arange(len(tried))
        slots[row, one], slots[row, other] = best.slots[other], best.slots[one]
        before, actions, change, reads = map(np.array, zip(*self._records, strict=True))
        by_channel = np.arange(len(before))[:, None], slots[:, None]  # (swaps, ticks, channels)
        seen = self._forward.predict(np.nan_to_num(before)[by_channel], actions)
        costs = self._forward.own_costs(change[by_channel], reads[by_channel], seen)
        fixed = self._link if self._looks is None else self._link + self._looks
        totals = costs.sum((1, 2)) + fixed[slots, self._all].sum(1)
        least = int(totals.argmin())
        return [self._evidence(slots[least])] if totals[least] < best.total else []

    def _seek(self) -> None:
        """The belief does not hold: look for any other that explains the newest ticks."""
        self._old, self._link = self.slots, np.zeros((self._count, self._count))
        self._counted = False
        self._looks = self._look_at()
        found = [self._evidence(self._old)]
        for start in (self._looks, self._looks + found[0].costs):
            found += self._turns(self._assign(start), TURNS)
        self._choose(found)
        if self.slots is not self._old:
            self.surprise, self._sound = 0.0, 0

    def _turns(self, slots: np.ndarray, turns: int) -> list[_Evidence]:
        """What follows from an assignment, and from what follows from it, and so on."""
        found: list[_Evidence] = []
        while len(found) < turns and not any((one.slots == slots).all() for one in found):
            found.append(self._evidence(slots))
            slots = self._assign(found[-1].costs)
        return found

    def _choose(self, found: list[_Evidence]) -> None:
        """Take the best, or the first, the old one, where nothing is enough better."""
        best = min(found, key=lambda one: one.total)
        if found[0].total - best.total < BELIEVE:
            best = found[0]
        self.slots, self._costs = best.slots, best.costs
        if not self._counted and best is not found[0]:
            self.rewires += 1
            self._counted = True

    def _evidence(self, slots: np.ndarray) -> _Evidence:
        """Costs since the move, with the expectations that follow from this assignment."""
        costs = self._link.copy() if self._looks is None else self._link + self._looks
        if self._records:
            before, actions, change, reads = map(np.array, zip(*self._records, strict=True))
            seen = self._forward.predict(np.nan_to_num(before[:, slots]), actions)
            self._add(costs, change, seen.change, reads, seen)
        return _Evidence(slots, costs, float(costs[slots, self._all].sum()))

    def _unmoved(self) -> _Evidence:
        """The same of what was believed before the move, which grows by a tick at a time."""
        assert self._looks is not None
        before, action, change, reads = self._records[-1]
        seen = self._forward.predict(np.nan_to_num(before[self._old])[None], action[None])
        self._add(self._old_costs, change[None], seen.change, reads[None], seen)
        costs = self._link + self._looks + self._old_costs
        return _Evidence(self._old, costs, float(costs[self._old, self._all].sum()))

    def _look_at(self) -> np.ndarray:
        """What the slots look like since the move, or lately."""
        newest = list(self._records)[-WINDOW:]
        _, actions, change, reads = map(np.array, zip(*newest, strict=True))
        return np.minimum(self._forward.looks(reads, change, actions), LARGEST_LOOK)

    def _catch_up(self) -> None:
        """Add the evidence that the last tick's review has put off."""
        if self._put_off is not None:
            seen, self._put_off = self._put_off, None
            self._add_evidence(seen)

    def _add_evidence(self, seen: Prediction) -> None:
        newest = self._records[-1]
        costs = FADE * self._costs
        self._add(costs, newest.change[None], seen.change, newest.reads[None], seen)
        costs -= costs[self.slots, self._all]
        self._costs = costs

    def _review(self, seen: Prediction) -> None:
        """Nothing is looked into: add to the evidence, and see if channels were mixed up."""
        self._add_evidence(seen)
        costs = self._costs
        if self._ticks % REVIEW_TICKS or self._margin() > -BELIEVE:
            return
        slots = self._assign(self._from_present(costs))
        gained = costs[self.slots, self._all].sum() - costs[slots, self._all].sum()
        if gained > BELIEVE:
            self.slots = slots
            self.rewires += 1

    def _margin(self) -> float:
        """The least that the costs grow by where two channels swap slots."""
        gain = _gain(self._costs, self.slots)
        gain[self._all, self._all] = np.inf
        return float(gain.min())

    def _estimate(self, readings: np.ndarray) -> np.ndarray:
        shown: np.ndarray = readings[self.slots]
        if self._age >= LOOKING or self.slots is self._old:
            return shown
        gain = _gain(self._costs, self.slots)
        gain[self._all, self._all] = np.inf
        other = gain.argmin(1)
        sure = 1.0 / (1.0 + np.exp(-np.clip(gain[self._all, other], -30.0, 30.0)))
        rival = readings[self.slots[other]]
        rival = np.where(np.isnan(rival), shown, rival)
        return (sure * shown + (1.0 - sure) * rival).astype(F32)


def _gain(costs: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """(N, N): what an assignment's costs change by where two channels swap slots."""
    by_channel = costs[slots]
    own = np.diagonal(by_channel)
    gain: np.ndarray = by_channel + by_channel.T - own[:, None] - own[None, :]
    return gain


def _assignment(compiled: bool) -> tuple[AddCosts, Assign]:
    module: Any = import_module(
        f"an_control.policy.monitor.assignment{'_numba' if compiled else ''}"
    )
    return module.add_costs, module.assign
