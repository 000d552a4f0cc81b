"""Costs of slots as channels, and the assignment of slots to channels that costs least.

The cost of slot i as channel k is the negative log likelihood of what the slot reads, were it the
channel, less a constant; assignments are compared by sums of costs. Plain numpy here,
`assignment_numba` computes the same compiled.

What the identity monitor believes: which slot carries which channel's signal.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

FREEDOM = 3.0
"""Degrees of freedom of the errors, which follow Student's t: contacts make heavy tails."""
MIN_CHANCE = 0.02
"""The least chance that a binary channel reads otherwise than expected."""
MIN_LIKELIHOOD = 1e-5
"""Likelihood of a reading that is neither 0 nor 1, as a binary channel."""
MOVE_COST = 2.0
"""Nats that a moved channel costs: many that move must explain more than a few."""


def costs_of(
    moved: np.ndarray,
    expected: np.ndarray,
    scale: np.ndarray,
    reads: np.ndarray,
    chance: np.ndarray,
    binary: np.ndarray,
    usual: np.ndarray,
    width: float,
    max_ratio: np.ndarray,
) -> np.ndarray:
    """Costs, of any shapes that fit together: of slots as channels, see `add_costs`."""
    smooth = smooth_costs(moved, expected, scale, max_ratio)
    likely = np.clip(chance, MIN_CHANCE, 1.0 - MIN_CHANCE)
    one, zero = (
        1.0 / (1.0 + ((reads - level) / width) ** 2 / FREEDOM) ** 2 for level in (1.0, 0.0)
    )
    either = np.log(width) - np.log(likely * one + (1.0 - likely) * zero + MIN_LIKELIHOOD)
    found: np.ndarray = np.where(np.isnan(moved), usual, np.where(binary, either, smooth))
    return found


def smooth_costs(
    moved: np.ndarray, expected: np.ndarray, scale: np.ndarray, max_ratio: np.ndarray
) -> np.ndarray:
    """Those of channels that are not binary."""
    ratio = np.minimum(np.abs(moved - expected) / scale, max_ratio)
    costs: np.ndarray = 2.0 * np.log1p(ratio * ratio / FREEDOM) + np.log(scale)
    return costs


def noisy(scale: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The scale of errors that are the sum of two, of this scale and of this variance."""
    found: np.ndarray = np.sqrt(scale * scale + variance)
    return found


def add_costs(
    costs: np.ndarray,
    moved: np.ndarray,
    expected: np.ndarray,
    scale: np.ndarray,
    reads: np.ndarray,
    chance: np.ndarray,
    binary: np.ndarray,
    usual: np.ndarray,
    width: float,
    max_ratio: np.ndarray,
    noise: np.ndarray,
) -> None:
    """Add the costs of T ticks to `costs` (slots, channels) float64.

    By slot: `moved` (T, N), NaN where missing, and what it `reads`; by channel: what is `expected`
    for `moved`, the error's `scale` before `noise` adds its variance, the largest ratio of error
    and scale that counts, a binary channel's `chance` to read 1 within `width`. A missing slot
    costs what is `usual` for the channel.
    """
    scale = noisy(scale, noise)
    for t in range(len(moved)):
        slots = moved[t][:, None], reads[t][:, None]
        costs += costs_of(
            slots[0], expected[t], scale[t], slots[1], chance[t], binary, usual, width, max_ratio
        )


def cost_moves(costs: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """Costs (slots, channels) with `MOVE_COST` where a channel moves from its slot (N,)."""
    moved: np.ndarray = costs + MOVE_COST
    moved[slots, np.arange(len(slots))] -= MOVE_COST
    return moved


def swap_gains(costs: np.ndarray, slots: np.ndarray) -> np.ndarray:
    """(N, N): what an assignment's costs change by where two channels swap slots."""
    by_channel = costs[slots]
    own = np.diagonal(by_channel)
    gains: np.ndarray = by_channel + by_channel.T - own[:, None] - own[None, :]
    return gains


def assign(costs: np.ndarray) -> np.ndarray:
    """The slot of each channel (N,) in the assignment of least cost (slots, channels).

    Shortest augmenting paths with potentials, for the slots that are left when each channel has
    taken the one that costs least, if no channel before it has (Jonker & Volgenant 1987).
    """
    count = len(costs)
    slot_price, channel_price = np.zeros(count + 1), np.append(costs.min(0), 0.0)
    taker = np.full(count + 1, count)  # of each channel; the last one is where a path begins
    least_slots, takers = np.unique(costs.argmin(0), return_index=True)
    taker[takers] = least_slots
    left = np.ones(count, bool)
    left[least_slots] = False
    for slot in np.flatnonzero(left):
        taker[count] = slot
        channel, least = count, np.full(count, np.inf)
        came_from, seen = np.full(count, count), np.zeros(count + 1, bool)
        while taker[channel] != count:
            seen[channel] = True
            i = taker[channel]
            reduced = costs[i] - slot_price[i] - channel_price[:count]
            better = ~seen[:count] & (reduced < least)
            least[better], came_from[better] = reduced[better], channel
            open_ = np.where(seen[:count], np.inf, least)
            nearest = int(open_.argmin())
            step = open_[nearest]
            if step == np.inf:  # costs that are no numbers tell nothing
                return np.arange(count)
            slot_price[taker[seen]] += step
            channel_price[seen] -= step
            least[~seen[:count]] -= step
            channel = nearest
        while channel != count:
            before = came_from[channel]
            taker[channel] = taker[before]
            channel = before
    found: np.ndarray[Any, np.dtype[np.int64]] = taker[:count].astype(np.int64)
    return found


class Belief(NamedTuple):
    """After one tick. The objects of the monitor take one and return another, or the same one.

    Until the first move that is detected with a known assignment the outputs are pinned: each id
    gives out the signal that it is wired to, and follows it from slot to slot. From then on each
    signal goes out under its own id, and the policy's state is renamed with it: to a
    permutation-invariant policy that is the same.
    """

    slots: np.ndarray
    """(N,) the slot that carries each channel's signal."""
    outputs: np.ndarray
    """(N,) the slot whose signal goes out under each channel's id."""
    previous: np.ndarray
    """(N,) the slots before the move that is being verified."""
    previous_outputs: np.ndarray
    """(N,) the outputs before it."""
    pinned: bool = True
    """Whether the outputs stay as they are wired."""
    lost: bool = True
    """Whether no assignment is known to be right."""
    detected: bool = False
    """Whether signals may have moved before this tick."""
    renames: tuple[np.ndarray, np.ndarray] | None = None
    """The outputs before this tick and from now on, where ids changed and no signal moved."""

    @classmethod
    def nominal(cls, count: int) -> Belief:
        """Each of `count` slots carries its own channel, as at an episode's start."""
        slots = np.arange(count)
        return cls(slots, slots, slots, slots)

    @property
    def channels(self) -> np.ndarray:
        """(N,) the channel whose signal each slot carries."""
        return np.argsort(self.slots)

    def next_tick(self) -> Belief:
        """The same without what is true of one tick only."""
        if not self.detected and self.renames is None:
            return self
        return self._replace(detected=False, renames=None)

    def unknown(self) -> Belief:
        """The same assignment, but lost, with the outputs pinned."""
        if self.lost and self.pinned and self.renames is None and self.previous is self.slots:
            return self
        slots = self.slots
        return self._replace(
            previous=slots, previous_outputs=slots, pinned=True, lost=True, renames=None
        )

    def unpinned(self) -> Belief:
        """From now on every signal goes out under its own id."""
        if not self.pinned:
            return self
        return self._replace(pinned=False, renames=(self.outputs, self.slots))

    def assigned(self, slots: np.ndarray) -> Belief:
        """With this assignment."""
        return self if slots is self.slots else self._replace(slots=slots)

    def with_outputs(self, verifying: bool) -> Belief:
        """With the outputs that follow from the assignment.

        Pinned ones change only while a move is being verified: then each id follows its signal.
        """
        if not self.pinned:
            outputs = self.slots
        elif verifying:
            outputs = self.slots[np.argsort(self.previous)[self.previous_outputs]]
        else:
            return self
        return self if outputs is self.outputs else self._replace(outputs=outputs)

    def by_slot(self, signals: np.ndarray) -> np.ndarray:
        """Signals (N,) by channel, arranged by slot."""
        found = np.empty_like(signals)
        found[self.slots] = signals
        return found
