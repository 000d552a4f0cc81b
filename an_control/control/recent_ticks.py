"""The readings and commands of the last ticks (control steps), for the wiring doctor.

The doctor looks for a wrong line of the wiring, the YAML file that connects topics to a policy. It
needs the numbers as they are in the messages, before the wiring scales them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from an_control.wiring import ChannelTable, Readings

KEPT_S = 10.0
"""Seconds for which ticks are kept."""
LEAST_TICKS, MOST_TICKS = 200, 5000
"""Bounds of the number of ticks that are kept."""
LOST_PERIODS = 1.75
"""Time between two ticks, in control periods, from which on a tick was lost."""


class TickArrays(NamedTuple):
    """Readings of N channels and commands to A actuators in T successive ticks (control steps)."""

    raw: np.ndarray
    """(T, N) numbers of the message fields, before scale and offset; NaN where missing."""
    commands: np.ndarray
    """(T, A) commands in physical units, each sent after the readings of the same tick."""
    starts: np.ndarray
    """(T,) whether a tick does not directly follow the tick before it."""


class RecentTicks:
    """A ring buffer with the readings and commands of the newest ticks (control steps).

    It holds the ticks of ten seconds, but at least 200 and at most 5000.

    Args:
        ids: Ids of the N channels whose readings are stored, in the order of the arrays.
        actuators: The number A of actuators.
        period_s: The control period in seconds.
    """

    def __init__(self, ids: Sequence[str], actuators: int, period_s: float) -> None:
        size = min(max(round(KEPT_S / period_s), LEAST_TICKS), MOST_TICKS)
        self._ids = tuple(ids)
        self._lost_ns = LOST_PERIODS * 1e9 * period_s
        self._raw = np.full((size, len(self._ids)), np.nan)
        self._commands = np.zeros((size, actuators))
        self._starts = np.zeros(size, bool)
        self._table_ids: tuple[str, ...] | None = None
        self._present_ids: tuple[str, ...] | None = None
        self._places: np.ndarray | None = None
        """(N,) the place of each kept channel in the table's arrays; None: the same order."""
        self.clear()

    def clear(self) -> None:
        """Forget all ticks."""
        self._count = self._row = 0
        self._complete = True
        self._gap = True
        self._last_ns = 0

    def mark_gap_before_next_tick(self) -> None:
        """Mark the next tick as one that does not directly follow the newest stored tick."""
        self._gap, self._complete = True, True

    def __len__(self) -> int:
        return min(self._count, len(self._raw))

    def record_tick(
        self,
        table: ChannelTable,
        readings: Readings,
        previous_command: np.ndarray | None,
        time_ns: int,
    ) -> None:
        """Store the readings of a tick, and the command that was sent in the tick before.

        Args:
            table: The channel table, which has just been read and holds the unscaled readings.
            readings: The readings of the tick, which say which channels are present.
            previous_command: (A,) the newest command on the robot's topics when the tick began;
                None if it is unknown.
            time_ns: The time of the tick, by the clock of the readings. If a tick is missing
                before it, or the clock has been set back, a gap is marked.
        """
        row = self._row
        if not self._complete:
            if previous_command is None:
                self._gap = True
            else:
                self._commands[row - 1] = previous_command
        if readings.ids is not self._present_ids or table.ids is not self._table_ids:
            self._update_channel_places(table.ids, readings.ids)
        if self._places is None:
            self._raw[row] = table.numbers
        else:
            np.take(table.numbers, self._places, out=self._raw[row], mode="clip")
            self._raw[row, self._missing] = np.nan
        self._starts[row] = self._gap or not 0 < time_ns - self._last_ns <= self._lost_ns
        self._gap = self._complete = False
        self._last_ns = time_ns
        self._count += 1
        self._row = row + 1 if row + 1 < len(self._raw) else 0

    def copy_arrays_oldest_first(self) -> TickArrays:
        """Return copies of the stored readings and commands, the oldest tick first.

        The newest tick is left out while the command that was sent in it is not stored yet.
        """
        kept, row = len(self), self._row
        parts = [slice(0, row)] if kept < len(self._raw) else [slice(row, None), slice(0, row)]
        count = kept - (not self._complete)
        raw, commands, starts = (
            np.concatenate([one[part] for part in parts])[:count]
            for one in (self._raw, self._commands, self._starts)
        )
        return TickArrays(raw, commands, starts)

    def _update_channel_places(
        self, table_ids: tuple[str, ...], present_ids: tuple[str, ...]
    ) -> None:
        """Find where each stored channel is in the channel table's arrays, and which are missing.

        Args:
            table_ids: Ids of all channels of the table, in its order.
            present_ids: Ids of the channels that have a valid reading.
        """
        self._table_ids, self._present_ids = table_ids, present_ids
        if table_ids == present_ids == self._ids:
            self._places = None
            return
        places, present = {id_: place for place, id_ in enumerate(table_ids)}, set(present_ids)
        self._places = np.array([places.get(id_, 0) for id_ in self._ids], np.intp)
        self._missing = np.array([id_ not in present for id_ in self._ids])
