"""Training batches: recorded episodes, cut into consecutive pieces, with their channels rewired.

Every row of a batch plays one episode through a wiring of its own: shuffled at the start, often
reshuffled on the way, some slots fed with noise or constants, some missing. Learning is by
back-propagation through one piece; the neurons' state is handed on to the next.

Recorded episodes: what a student learns from, the teacher's action beside every step.

An episode is driven by the teacher, by a blend of disturbances, or by the student itself
(DAgger, Ross et al. 2011); the label is always what the teacher would have done.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import torch
from torch import Tensor

from an_control.disturbance import TRAINING_SEEDS, DisturbanceSettings
from an_control.learning.faults import NOTHING, Fault, as_received, disturber, draw, ids_of
from an_control.learning.rollout.episode import LiveEpisode, NewestReadings
from an_control.learning.teacher.teachers import Teacher
from an_control.learning.yaml_settings import Share
from an_control.policy import Policy


class Episode(NamedTuple):
    """T steps: observations (T, N) in nominal order, NaN where a reading is missing, the actions
    before them, the labels (T, A)."""

    observations: np.ndarray
    previous: np.ndarray
    labels: np.ndarray
    total: float = 0.0


class Driver(Protocol):
    """Chooses the action of each step of one episode."""

    def act(self, observation: np.ndarray, label: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """The action (A,), given what is seen (N,), NaN where it is missing, the teacher's and the
        previous action."""


def record(
    env: gymnasium.Env[Any, Any],
    teacher: Teacher,
    driver: Driver,
    rng: np.random.Generator,
    fault: DisturbanceSettings = NOTHING,
) -> Episode:
    """One episode under a fault to its end; only `rng` decides it.

    What is recorded is what was there; what the driver sees is what arrived. EnvironmentFailure as
    of `LiveEpisode`.
    """
    seed = int(rng.integers(*TRAINING_SEEDS))
    (channels,) = env.observation_space.shape or (0,)
    disturbed = disturber(channels, fault, rng)
    episode = LiveEpisode(env, seed, disturbed, ids_of(channels))
    previous = np.zeros(env.action_space.shape or (), np.float32)
    observations, actions, labels = [], [], []
    newest = NewestReadings()
    for tick in episode:
        label = teacher(newest(tick.observation))
        observations.append(tick.observation)
        actions.append(previous)
        labels.append(label)
        action = previous
        if tick.arrived:
            action = np.clip(driver.act(tick.values, label, previous), -1.0, 1.0)
        episode.act(action.astype(np.float32))
        assert episode.sent is not None
        previous = episode.sent
    return Episode(np.array(observations), np.array(actions), np.array(labels), episode.total)


class NoisyTeacher:
    """The teacher, with normal noise of a strength drawn once for the episode."""

    def __init__(self, rng: np.random.Generator, max_sd: float) -> None:
        self._rng = rng
        self._sd = max_sd * rng.random()

    def act(self, observation: np.ndarray, label: np.ndarray, previous: np.ndarray) -> np.ndarray:
        return label + self._sd * self._rng.standard_normal(label.shape)


class PerturbedTeacher:
    """The teacher between stretches of no, random, or wrongly wired actions.

    It visits what a student meets before it knows its channels, and then shows the way out.
    """

    def __init__(self, rng: np.random.Generator, teacher: Teacher, noise: float) -> None:
        self._rng, self._teacher = rng, teacher
        self._noise = NoisyTeacher(rng, noise)
        self._left = int(rng.integers(0, 40))
        self._mode = str(rng.choice(["still", "random", "shuffled", "swapped"]))
        self._first = True
        self._newest = NewestReadings()
        self._order: np.ndarray | None = None
        self._walk: np.ndarray | None = None

    def act(self, observation: np.ndarray, label: np.ndarray, previous: np.ndarray) -> np.ndarray:
        if self._left <= 0:
            self._switch()
        self._left -= 1
        seen = self._newest(observation)
        return self._noise.act(seen, self._choose(seen, label), previous)

    def _switch(self) -> None:
        self._first = False
        self._order = self._walk = None
        self._mode = str(self._rng.choice(["teacher"] * 4 + ["random", "shuffled", "swapped"]))
        brief = self._mode in ("random", "shuffled")
        self._left = int(self._rng.integers(3, 20) if brief else self._rng.integers(20, 120))

    def _choose(self, observation: np.ndarray, label: np.ndarray) -> np.ndarray:
        if self._mode == "teacher":
            return label
        if self._mode == "still":
            return np.zeros_like(label)
        if self._mode == "random":
            step = self._rng.standard_normal(label.shape)
            start = self._rng.random() * step if self._walk is None else self._walk
            self._walk = 0.8 * start + 0.42 * step
            return self._walk
        if self._order is None:
            self._order = self._wiring(len(observation))
        return self._teacher(observation[self._order]) * (0.5 if self._first else 1.0)

    def _wiring(self, channels: int) -> np.ndarray:
        """All channels shuffled, or a few of them swapped."""
        if self._mode == "shuffled":
            return self._rng.permutation(channels)
        order = np.arange(channels)
        if channels == 1:
            return order
        some = self._rng.choice(channels, int(self._rng.integers(2, min(9, channels + 1))), False)
        order[some] = self._rng.permutation(some)
        return order


@dataclass(frozen=True)
class RolloutSettings:
    """How a student's own episodes are disturbed; chances are for a step or an episode."""

    teacher_share: float = 0.0
    noise: float = 0.0
    reshuffle: float = 0.0
    missing: float = 0.0
    noise_channels: float = 0.0
    copies: float = 0.0
    faulty: bool = False
    """Whether the run's faults are drawn for the episode too."""


class StudentRollout:
    """The student on shuffled channels, the teacher taking over in between.

    Some channels may be missing, others come several times, and up to a fifth as many noise
    channels be added.
    """

    def __init__(
        self, rng: np.random.Generator, policy: Policy, channels: int, how: RolloutSettings
    ) -> None:
        self._rng, self._policy, self._how = rng, policy, how
        self._noise = NoisyTeacher(rng, how.noise)
        self._order = rng.permutation(channels)
        if rng.random() < how.missing and channels > 1:
            self._order = self._order[: channels - int(rng.integers(1, max(1, channels // 4) + 1))]
        if how.copies and rng.random() < how.copies:
            copies = rng.choice(self._order, int(rng.integers(1, channels + 1)))
            self._order = np.concatenate([self._order, copies])
        self._noise_channels = 0
        if rng.random() < how.noise_channels:
            self._noise_channels = int(rng.integers(1, channels // 5 + 2))
        slots = len(self._order) + self._noise_channels
        self._ids = tuple(str(slot) for slot in range(slots))
        self._teaching, self._left = False, 0
        policy.reset()

    def act(self, observation: np.ndarray, label: np.ndarray, previous: np.ndarray) -> np.ndarray:
        if self._rng.random() < self._how.reshuffle:
            self._order = self._rng.permutation(self._order)
        if self._left <= 0:
            self._teaching = self._rng.random() < self._how.teacher_share
            self._left = int(self._rng.integers(20, 100))
        self._left -= 1
        self._policy.previous_action = previous
        noise = self._rng.standard_normal(self._noise_channels)
        seen = np.concatenate([observation[self._order], noise])
        own = self._policy.step_array(seen, self._ids)
        return self._noise.act(observation, label if self._teaching else own, previous)


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
