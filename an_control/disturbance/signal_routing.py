"""A routing of signals to channels that a user has set by hand.

A `Disturber` moves signals at random; the signals of this module stay where the user has put them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

NOISE = "noise"
"""The name that stands for normal noise in place of a signal."""
NOTHING = ""
"""The name that stands for no signal, so that the channel is missing."""
NOISE_SD = 1.0
"""The standard deviation of the noise of `NOISE`, in units of scaled readings."""
_NOTHING, _NOISE = -1, -2


class SignalRouting:
    """A table of which signal each channel carries; at first each channel carries its own signal.

    A signal may be carried by several channels. A channel may also carry random numbers (`NOISE`)
    or nothing (`NOTHING`).

    Args:
        ids: The ids (N,) of the channels, which are also the names of their signals.
        seed: The seed of the random numbers.
    """

    def __init__(self, ids: Sequence[str] = (), seed: int = 0) -> None:
        self.ids = tuple(ids)
        self._index = {name: place for place, name in enumerate(self.ids)}
        self._signals = np.arange(len(self.ids))
        self._random = np.random.default_rng(seed)
        self._came: tuple[str, ...] | None = None
        self.version = 0
        """A number that is increased whenever the routing changes."""

    @property
    def signal_by_channel(self) -> dict[str, str]:
        """Mapping from channel to its signal, or to `NOISE` (random) or `NOTHING` (missing)."""
        names = (*self.ids, NOISE, NOTHING)  # the last two have negative indices
        return {
            name: names[signal]
            for name, signal in zip(self.ids, self._signals.tolist(), strict=True)
        }

    def add_channels(self, ids: Sequence[str]) -> None:
        """Add channels, each of which carries the signal with its own name.

        Args:
            ids: The ids of the channels. Channels that are known already do not change.
        """
        new = [name for name in ids if name not in self._index]
        self._signals = np.append(self._signals, np.arange(len(new)) + len(self.ids))
        self.ids += tuple(new)
        self._index = {name: place for place, name in enumerate(self.ids)}
        self._mark_changed()

    def check_channels_and_signals_are_known(self, changes: Mapping[str, str]) -> None:
        """Check that all channels and signals in a request to change the routing are known.

        Args:
            changes: A mapping from a channel to the signal that it is to carry.

        Raises:
            ValueError: A channel or a signal is not known; the message names it and those that are
                allowed.
        """
        for channel, signal in changes.items():
            if channel not in self._index:
                raise ValueError(
                    f"{channel!r} is not a channel (allowed: {self._format_known_channels()})"
                )
            if signal not in (NOISE, NOTHING) and signal not in self._index:
                raise ValueError(
                    f"{channel}: {signal!r} is not a signal (allowed: {NOISE}, nothing, or one of"
                    f" {self._format_known_channels()})"
                )

    def assign_signals_to_channels(self, changes: Mapping[str, str]) -> None:
        """Change which signals some channels carry.

        Args:
            changes: A mapping from a channel to its new signal, or to `NOISE` (random) or `NOTHING`
                (missing).

        Raises:
            ValueError: A channel or a signal is not known.
        """
        self.check_channels_and_signals_are_known(changes)
        words = {NOTHING: _NOTHING, NOISE: _NOISE}
        for channel, signal in changes.items():
            place = words[signal] if signal in words else self._index[signal]
            self._signals[self._index[channel]] = place
        self._mark_changed()

    def _mark_changed(self) -> None:
        """Increase `version` after a change of the routing, and discard the stored mapping.

        The next call of `route_readings_to_channels` computes the mapping anew.
        """
        self._came = None
        self.version += 1

    def route_readings_to_channels(
        self, values: NDArray[np.float32], ids: Sequence[str]
    ) -> tuple[NDArray[np.float32], Sequence[str]]:
        """Convert readings of signals to readings of the channels that carry these signals.

        A channel is missing while the signal that it carries is missing. The ids are returned as
        the same tuple object while nothing changes.

        Args:
            values: The readings (n,) by signal.
            ids: The ids (n,) of the signals.

        Returns:
            A pair: the readings (m,) by channel, and the ids (m,) of the channels.
        """
        if ids is not self._came:
            self._update_position_for_each_channel(tuple(ids))
            self._came = tuple(ids) if not isinstance(ids, tuple) else ids
        if self._straight:
            return values, ids
        moved = np.asarray(values, np.float32)[self._from]
        if len(self._noisy):
            moved[self._noisy] = self._random.normal(0.0, NOISE_SD, len(self._noisy))
        return moved, self._names

    def _update_position_for_each_channel(self, signal_ids: tuple[str, ...]) -> None:
        """Find and store, for each channel, the index of the given reading that it gets.

        Call it whenever readings with other signal ids are given, and after a change of the
        routing.

        Args:
            signal_ids: The signal ids of the given readings, in the order of the readings.
        """
        there = {
            self._index[name]: place for place, name in enumerate(signal_ids) if name in self._index
        }
        self._straight = bool((self._signals == np.arange(len(self.ids))).all())
        taken: list[int] = []
        names: list[str] = []
        noisy: list[int] = []
        for channel, signal in enumerate(self._signals.tolist()):
            if signal == _NOISE and len(signal_ids):
                noisy.append(len(taken))
                taken.append(0)
            elif signal in there:
                taken.append(there[signal])
            else:
                continue
            names.append(self.ids[channel])
        self._from = np.array(taken, np.intp)
        self._noisy = np.array(noisy, np.intp)
        self._names = tuple(names)

    def _format_known_channels(self) -> str:
        """Return the names of the known channels as text for an error."""
        return ", ".join(self.ids) or "none, as no reading has come"
