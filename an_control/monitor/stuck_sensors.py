"""Stuck sensors, whose slots read the same to the last bit while the robot moves.

A slot is a position at which a sensor's readings arrive. A frozen signal is stuck, and so is one
that stays at the end of its range. The reading of a stuck slot carries no information, so the slot
counts as missing until its reading changes. If all slots read the same, a message came twice.
"""

from __future__ import annotations

import numpy as np

from an_control.monitor.settings import MONITOR


class StuckSensorDetector:
    """A detector of stuck sensors, which replaces their readings by NaN.

    Readings arrive at input slots. A slot is stuck if it repeats its reading for some ticks in
    which its channel should change.

    Contact sensors and constant channels may rightly rest at certain values. After a possible
    rewiring, a slot that reads one of these values may have got such a sensor. Therefore it counts
    as stuck only after more ticks.

    Args:
        slot_count: The number N of slots.
        resting_values: The values at which contacts and constants may rest.
        max_excess: A bound in nats on how far the negative log-likelihood of the changing readings
            may be above its usual value. Above this bound, it counts as unknown which channels
            their slots feed.
    """

    def __init__(
        self,
        slot_count: int,
        resting_values: np.ndarray,
        max_excess: float,
    ) -> None:
        self._settings, self._count = MONITOR.stuck, slot_count
        self._values, self._max_excess = resting_values, max_excess
        self.reset()

    def reset(self) -> None:
        """Start an episode, in which no input slot counts as stuck."""
        self._last = np.full(self._count, np.nan, np.float32)
        none = np.zeros(self._count, bool)
        self._same = (none, none, none)
        """Three masks (N,) of the slots that repeated their reading: in this tick, in the previous
        one, and in the one before that."""
        self._repeats = 0
        self._ticks = np.zeros(self._count, np.int64)
        self._excess = np.zeros(self._count)
        self.stuck = np.zeros(self._count, bool)
        """(N,) True for slots that are stuck."""
        self._any = False

    def replace_stuck_readings_by_nan(self, readings: np.ndarray) -> np.ndarray:
        """Return the readings (N,) of a tick with NaN for input slots that are known to be stuck.

        A slot whose reading has changed since the last tick is no longer stuck.

        Args:
            readings: (N,) the readings by input slot.
        """
        same = readings == self._last
        self._last = readings
        self._same = (same, *self._same[:2])
        self._repeats = self._repeats + 1 if np.count_nonzero(same) == self._count else 0
        if not self._any:
            return readings
        self.stuck &= same
        self._any = bool(self.stuck.any())
        return np.where(self.stuck, np.float32(np.nan), readings)

    @property
    def is_repeated_message(self) -> bool:
        """Whether all readings repeat those of the last tick, as if a message had come twice.

        After a few such ticks in a row it is False, because then the robot may stand still.
        """
        return 0 < self._repeats <= self._settings.max_repeats

    @property
    def mask_of_unchanged_readings(self) -> np.ndarray:
        """The mask (N,) of input slots that read the same as at the last tick."""
        return self._same[0]

    def restart_unchanged_tick_counts(self, slot_mask: np.ndarray) -> None:
        """Restart, for some input slots, the counts of ticks in which the reading did not change.

        Call it for slots that turn out to feed another channel than was assumed. Whether a reading
        should have changed was then judged by the wrong channel.

        Args:
            slot_mask: (N,) True for these slots.
        """
        self._ticks[slot_mask] = 0
        self._excess[slot_mask] = 0.0

    def has_repeated_reading(self, slots: np.ndarray) -> bool:
        """Return whether any of the given slots has repeated its reading for two ticks.

        If so, `update_stuck_slots_and_check_new` must be called.

        Args:
            slots: (S,) the indices of the input slots.
        """
        now, last, _ = self._same
        return bool(np.count_nonzero((now & last)[slots]))

    def update_stuck_slots_and_check_new(
        self, excess: np.ndarray, resting_slots: np.ndarray
    ) -> bool:
        """Update which input slots are stuck; return whether one is newly found to be stuck.

        Args:
            excess: (N,) each slot's costs above the usual ones in this tick, in nats.
            resting_slots: (C,) the indices of the slots of contacts and constants.
        """
        settings = self._settings
        same, usual = self._same[0], np.isin(self._last, self._values)
        may_be_still = usual & (not usual[resting_slots].all())
        begun = ~np.logical_and.reduce(self._same)
        self._ticks[begun] = 0
        self._excess[begun] = 0.0
        should_move = settings.moving_share * np.count_nonzero(~usual)
        moving = np.count_nonzero(~usual & ~same) > should_move
        if not moving or float(np.median(excess[~same])) > settings.max_typical_excess:
            return False
        known = float(excess[~same].sum()) < self._max_excess
        counts = same if known else same & ~may_be_still
        self._ticks[counts] += 1
        self._excess[counts] += excess[counts]
        enough = np.maximum(settings.min_excess, settings.min_mean_excess * self._ticks)
        suspect = self._excess > enough
        ticks = np.where(may_be_still, settings.still_ticks, settings.ticks)
        if not (suspect & (self._ticks >= ticks) & ~self.stuck).any():
            return False
        self.stuck |= suspect & same & (self._ticks >= ticks // 2)
        self._any = True
        return True
