"""Whether the forward model fits the robot: a move is acted on only where it does.

A model of another robot, or one that has learned too little, explains the readings badly under
every assignment, and some wrong one is always less bad than the right one. So readings count as
explained only where they cost about as much as in the model's own validation (`FitLimits`), and a
move only where it explains what the moved channels read.

Where the model does not fit, readings pass as they are; it may come to fit later.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from an_control.monitor.evidence import Candidate
from an_control.monitor.forward_model import FitLimits

MIN_GAIN = 24.0
"""Nats by which another assignment must explain the readings better at least."""
TICKS = 50
"""Ticks over which the excess NLL is averaged, and after which slow slots are looked for."""
SEEN_TICKS = 100
"""Ticks for which the readings must be explained before the robot is known to fit."""
BAD_TICKS, LOST_TICKS = 20, 100
"""Ticks with twice the largest excess NLL after which it does not fit: where the assignment was
known, and where it is still sought."""
CAUTION = 4.0
"""How many times the gain another assignment needs as long as it is not known whether it fits."""
HYSTERESIS = 0.8
"""Share of the largest excess NLL below which a robot that did not fit may fit again."""
STRANGE, DISTRUST, STRANGE_REMAINING = 0.18, 1.5, 0.6
"""Share of the largest excess NLL from which on a robot counts as explained otherwise than usual.
There a move needs more gain, by this times that share, and may leave no more than this share of all
channels' excess NLL: where a model explains no channel well, those that are alike seem to swap."""
UNEXPLAINED, UNEXPLAINED_NATS = 0.4, 8.0
"""Share of the moved channels' excess NLL, and nats a channel, that a move may leave unexplained:
a real one leaves nearly nothing, an invented one most of it."""
START_NATS, TICK_NATS, REMAINING = 5.0, 2.0, 0.5
"""Nats a channel that it may leave unexplained at once, and for each tick after it on a robot that
is explained as usual (none at the largest excess), unless no more than this share of all channels'
excess NLL remains. After a hit that nothing explains, a wrong assignment leaves half of its
channels' and three quarters of the others'."""
CHANNEL_GAIN, GAINS = 9.0, 12
"""Nats that a move must explain for each of its channels, up to so many of them: among the many
assignments of several channels one explains any readings a little better."""
OTHERS = 0.9
"""Share of its channels' gain that all channels must gain: what a wrong assignment explains of its
own channels it may take from the others', as it feeds the forward model wrong readings."""
REPEATED_SHARE, MIN_CHANGES = 0.8, 8
"""Share of a slot's changes that follow a repeated reading, and least number of changes, where its
sensor is slower than the ticks."""
FADE = 0.5
"""What remains of these counts each time."""


class RobotFit:
    """In: a tick's excess NLL, and which slots repeat their readings. Out: whether it `fits`.

    Args:
        limits: of the model; without them every robot fits, and every assignment that explains the
            readings better by `MIN_GAIN` is acted on.
        count: of the slots.
        still: values at which a reading may stay, as those of contacts and constants.
    """

    def __init__(self, limits: FitLimits | None, count: int, still: np.ndarray) -> None:
        self.limits, self._count, self._still = limits, count, still
        self.reset()

    def reset(self) -> None:
        """Start an episode: nothing is known of the robot."""
        self.excess = 0.0
        """Nats a tick above the usual, lately."""
        self.slow = np.zeros(0, np.int64)
        """The slots whose sensors seem to be slower than the ticks, where these are too many."""
        self._seen = self._bad = False
        self._changes, self._repeats = np.zeros((2, self._count))
        self._before = np.zeros(self._count, bool)
        self._left = TICKS
        self._lately: deque[float] = deque(maxlen=TICKS)
        """The excess of the last ticks; the lowest is that of before signals moved."""
        self.restart()

    def restart(self) -> None:
        """Count from here on: another assignment explains the readings."""
        self._ticks, self._over = 0, 0.0

    @property
    def fits(self) -> bool | None:
        """Whether the model fits the robot; None as long as that is not known."""
        return False if self._bad or len(self.slow) else self._seen or None

    @property
    def least_gain(self) -> float:
        """Nats by which another assignment must explain the readings better to be tried."""
        return MIN_GAIN if self.limits is None else self.limits.min_gain

    @property
    def min_gain(self) -> float:
        """The same to be acted on now."""
        if self.limits is None:
            return MIN_GAIN
        return self.limits.min_gain * (1.0 if self._seen else CAUTION)

    def add(self, excess: float, *, known: bool) -> None:
        """Count a tick that cost so many nats above the usual, under a `known` assignment or under
        the best one so far."""
        if self.limits is None:
            return
        largest = self.limits.max_excess
        bounded = min(excess, 2.0 * largest)
        self._ticks += 1
        self.excess += (bounded - self.excess) / min(self._ticks, TICKS)
        self._lately.append(self.excess)
        self._over = max(0.0, self._over + bounded - largest)
        long = self._ticks >= SEEN_TICKS
        if self._bad:
            self._bad = not (long and self.excess < HYSTERESIS * largest)
            self._seen = False
        elif self._over > largest * (BAD_TICKS if known else LOST_TICKS):
            self._bad = True
            self.restart()
        elif known and long and self.excess <= largest:
            self._seen = True

    def watch(self, same: np.ndarray, readings: np.ndarray) -> None:
        """Note which slots (N,) repeat their readings (N,)."""
        if self.limits is None:
            return
        changed = ~same
        self._changes += changed
        self._repeats += changed & self._before
        self._before = same
        self._left -= 1
        if self._left:
            return
        found = self._repeats >= REPEATED_SHARE * np.maximum(self._changes, MIN_CHANGES)
        slow = np.flatnonzero(found & ~np.isin(readings, self._still))
        self.slow = slow if len(slow) > self.limits.slow else slow[:0]
        if len(self.slow):
            self._seen = False
        self._changes *= FADE
        self._repeats *= FADE
        self._left = TICKS

    def explains(self, first: Candidate, other: Candidate) -> bool:
        """Whether what signals moved, from the `first` assignment to the `other` one, explains what
        their channels read."""
        if self.limits is None:
            return True
        moved = first.slots != other.slots
        count = int(np.count_nonzero(moved))
        before, after = float(first.excess[moved].sum()), float(other.excess[moved].sum())
        usual = min(self._lately, default=0.0) / self.limits.max_excess
        strange = min(max(usual, 0.0), 1.0)
        gain = max(self.limits.min_gain, CHANNEL_GAIN * min(count, GAINS))
        if strange >= STRANGE:
            gain *= 1.0 + DISTRUST * strange
        if after > min(UNEXPLAINED * before + UNEXPLAINED_NATS * count, before - gain):
            return False
        before_all, after_all = float(first.excess.sum()), float(other.excess.sum())
        if before_all - after_all < OTHERS * (before - after):
            return False
        if strange >= STRANGE and after_all > STRANGE_REMAINING * before_all:
            return False
        slack = (1.0 - strange) ** 2
        little = after <= (START_NATS + TICK_NATS * slack * other.ticks) * count
        return little or after_all <= REMAINING * before_all
