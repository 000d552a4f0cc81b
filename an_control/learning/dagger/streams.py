"""Training batches: recorded episodes, cut into consecutive pieces, with their channels rewired.

Every row of a batch plays one episode through a wiring of its own: shuffled at the start, often
reshuffled on the way, some slots fed with noise or constants, some missing. Learning is by
back-propagation through one piece; the neurons' state is handed on to the next.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from an_control.learning.dagger.episodes import Episode
from an_control.learning.faults import Fault, as_received, draw
from an_control.learning.yaml_settings import Share

REPLACE_FROM, REPLACE_CHANCE = 300, 0.1
"""A row changes to another episode at its end, or after so many steps by chance."""
NEWER_SHARE = 0.4
CUTS = 2
"""Of a batch, where its rows may be reshuffled if that resets the neurons."""
NO_FAULTS: Mapping[Fault, float] = MappingProxyType({})


@dataclass(frozen=True)
class StreamSettings:
    """Chances that a row is reshuffled on the way, has noise, missing, frozen, copied channels."""

    reshuffled: Share = 0.4
    noise: Share = 0.3
    missing: Share = 0.2
    frozen: Share = 0.0
    """They keep the reading that they began with."""
    copies: Share = 0.0
    """Slots repeat another slot's channel, their own is missing."""
    reshuffle_every: tuple[int, ...] = (30, 60, 120, 250)
    """Mean steps between two reshuffles of a row, drawn for the row."""
    max_missing: Share = 0.25
    """Of a row's slots, as a share."""
    action_noise: float = 0.05
    added: int = 0
    """Further slots; a row has some of them, which repeat a channel or carry noise."""


@dataclass(frozen=True)
class Batch:
    """K steps of B rows with S slots, N channels and A actions."""

    values: Tensor  # (K, B, S) as the slots show them
    change: Tensor  # (K, B, S) since the slot's last value
    previous: Tensor  # (K, B, A)
    ordered: Tensor  # (K, B, N) the observation in nominal order
    labels: Tensor  # (K, B, A) the teacher's action
    channel: Tensor  # (K, B, S) which channel a slot shows; N for none of them
    present: Tensor  # (K, B, S) 0 where the slot is missing
    counts: Tensor  # (K, B) 0 after an episode's end
    moved: Tensor  # (K, B) 1 where the neurons are reset
    fresh: Tensor  # (B,) True where the row starts an episode in this piece

    def to(self, device: torch.device) -> Batch:
        """The same on a device."""
        return Batch(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass
class _Row:
    values: np.ndarray
    change: np.ndarray
    previous: np.ndarray
    ordered: np.ndarray
    labels: np.ndarray
    channel: np.ndarray
    present: np.ndarray
    moved: np.ndarray
    place: int = 0


PER_RECORDED_STEP = ("observations", "previous", "labels")
PER_STEP = [field.name for field in fields(_Row) if field.name != "place"]


class Streams:
    """An endless supply of batches; only `rng` decides them.

    `newest` of the episodes are drawn more often than the rest. Neurons that a reshuffle resets
    must be run apart before and after it: all rows of a batch share its few `CUTS`.
    """

    def __init__(
        self,
        episodes: Sequence[Episode],
        rows: int,
        steps: int,
        settings: StreamSettings,
        newest: int,
        rng: np.random.Generator,
        reset_on_jump: bool = False,
        faults: Mapping[Fault, float] = NO_FAULTS,
    ) -> None:
        self._episodes, self._steps, self._rng = episodes, steps, rng
        self._faults = faults
        self._reset_on_jump = reset_on_jump
        self._cuts: list[np.ndarray] = []
        self._number = 0
        self._settings, self._newest = settings, newest
        self._rows: list[_Row | None] = [None] * rows

    def batch(self) -> Batch:
        """The next piece of every row."""
        fresh = [self._renew(i) for i in range(len(self._rows))]
        pieces = [self._piece(row) for row in self._rows if row is not None]
        arrays = {
            name: torch.from_numpy(np.stack([piece[name] for piece in pieces], 1))
            for name in [*PER_STEP, "counts"]
        }
        noise = self._settings.action_noise * self._rng.standard_normal(
            arrays["previous"].shape, np.float32
        )
        arrays["previous"] = arrays["previous"] + torch.from_numpy(noise)
        self._number += 1
        return Batch(**arrays, fresh=torch.tensor(fresh))

    def _renew(self, i: int) -> bool:
        row = self._rows[i]
        if (
            row is not None
            and row.place < len(row.values)
            and not (row.place >= REPLACE_FROM and self._rng.random() < REPLACE_CHANCE)
        ):
            return False
        first = 0
        if self._rng.random() < NEWER_SHARE:
            first = max(0, len(self._episodes) - self._newest)
        episode = self._episodes[int(self._rng.integers(first, len(self._episodes)))]
        self._rows[i] = self._wire(episode)
        return True

    def _piece(self, row: _Row) -> dict[str, np.ndarray]:
        span = slice(row.place, row.place + self._steps)
        row.place += self._steps
        piece = {}
        for name in PER_STEP:
            part = getattr(row, name)[span]
            piece[name] = np.zeros((self._steps, *part.shape[1:]), part.dtype)
            piece[name][: len(part)] = part
        piece["counts"] = np.zeros(self._steps, np.float32)
        piece["counts"][: len(part)] = 1.0
        return piece

    def _wire(self, episode: Episode) -> _Row:
        """The episode as seen through a wiring."""
        rng, how = self._rng, self._settings
        observations, episode = self._received(episode)
        steps, channels = observations.shape
        known, ordered = np.isfinite(observations), episode.observations
        if gaps := not known.all():
            observations = _newest(observations)
        if not np.isfinite(ordered).all():
            ordered = _newest(ordered)
        channel = np.tile(rng.permutation(channels), (steps, 1))
        moved = np.zeros(steps, np.float32)
        if rng.random() < how.reshuffled:
            mean = rng.choice(how.reshuffle_every)
            for at in self._cut(steps, mean) if self._reset_on_jump else self._moments(steps, mean):
                channel[at:] = rng.permutation(channels)
                moved[at] = self._reset_on_jump
        values = np.take_along_axis(observations, channel, 1)
        present = np.ones((steps, channels), np.float32)
        if gaps:
            present = np.take_along_axis(known, channel, 1).astype(np.float32)
        if channels == 1:  # whatever takes its place leaves nothing to learn from
            how = replace(how, noise=0.0, missing=0.0, frozen=0.0, copies=0.0)
        if how.copies and rng.random() < how.copies:
            slots = rng.permutation(channels)[: 2 * int(rng.integers(1, 1 + _some(channels)))]
            shown, gone = np.split(slots, 2)
            for array in (values, channel, present):
                array[:, gone] = array[:, shown]
        if how.frozen and rng.random() < how.frozen:
            held = rng.choice(channels, int(rng.integers(1, 1 + _some(channels))), False)
            values[:, held] = values[0, held]
            channel[:, held] = channels
        if rng.random() < how.noise:
            for slot in rng.choice(channels, int(rng.integers(1, 1 + _some(channels))), False):
                values[:, slot] = _noise(rng, steps)
                channel[:, slot] = channels
        if rng.random() < how.missing:
            maximum = max(1, int(how.max_missing * channels))
            gone = rng.choice(channels, int(rng.integers(1, 1 + maximum)), False)
            values[:, gone] = present[:, gone] = 0.0
        if how.added:
            shown, which, there = self._added(observations)
            values = np.concatenate([values, shown], 1)
            channel = np.concatenate([channel, which], 1)
            present = np.concatenate([present, there], 1)
        change = np.diff(values, axis=0, prepend=values[:1])
        change[moved > 0] = 0.0
        return _Row(
            values,
            change,
            episode.previous,
            ordered,
            episode.labels,
            channel,
            present,
            moved,
        )

    def _received(self, episode: Episode) -> tuple[np.ndarray, Episode]:
        """Readings (K, N) under a fault, and of the episode the K steps in which they arrived."""
        fault = draw(self._faults, self._rng)
        if not fault.active_on("readings"):
            return episode.observations, episode
        seed = int(self._rng.integers(2**31))
        readings, steps = as_received(episode.observations, fault, seed)
        there = {name: getattr(episode, name)[steps] for name in PER_RECORDED_STEP}
        return readings, episode._replace(**there)

    def _moments(self, steps: int, mean: float) -> Iterator[int]:
        """When a row is reshuffled on its way of so many steps."""
        at = 1 + int(self._rng.exponential(mean))
        while at < steps:
            yield at
            at += 1 + int(self._rng.exponential(mean))

    def _cut(self, steps: int, mean: float) -> Iterator[int]:
        """The same at the batches' common moments, in a row that begins with the next batch."""
        for batch in range(math.ceil(steps / self._steps)):
            while len(self._cuts) <= self._number + batch:
                self._cuts.append(np.sort(self._rng.choice(self._steps, CUTS, False)))
            for cut in self._cuts[self._number + batch]:
                at = batch * self._steps + int(cut)
                if 0 < at < steps and self._rng.random() < self._steps / (CUTS * mean):
                    yield at

    def _added(self, observations: np.ndarray) -> tuple[np.ndarray, ...]:
        """Readings, channels and presence (T, added) of further slots."""
        rng, (steps, channels) = self._rng, observations.shape
        shape = steps, self._settings.added
        values, present = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        channel = np.full(shape, channels)
        for slot in range(int(rng.integers(shape[1] + 1))):
            present[:, slot] = 1.0
            if rng.random() < 0.5:
                channel[:, slot] = source = int(rng.integers(channels))
                values[:, slot] = observations[:, source]
            else:
                values[:, slot] = _noise(rng, steps)
        return values, channel, present


def _newest(observations: np.ndarray) -> np.ndarray:
    """Observations (T, N) with the newest reading in place of each that is missing, at first 0."""
    steps = np.arange(len(observations))[:, None]
    newest = np.maximum.accumulate(np.where(np.isfinite(observations), steps, -1))
    held = np.take_along_axis(observations, np.maximum(newest, 0), 0)
    return np.where(newest < 0, 0.0, held).astype(observations.dtype)


def _some(channels: int) -> int:
    return max(1, channels // 5)


def _noise(rng: np.random.Generator, steps: int) -> np.ndarray:
    """Readings (T,) of something that is not the robot: noise, zeros, a slow drift."""
    kind = rng.integers(4)
    if kind < 2:
        readings = rng.standard_normal(steps) * rng.choice([1.0, 1.0, 0.3, 0.1])
    elif kind == 2:
        readings = np.zeros(steps)
    else:
        readings = np.clip(0.05 * np.cumsum(rng.standard_normal(steps)), -5.0, 5.0)
    return readings.astype(np.float32)
