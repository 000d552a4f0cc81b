"""Recorded episodes of a robot, and the batches of their pieces from which a student learns.

An episode is driven by the teacher, by a disturbed teacher, or by the student itself (DAgger, Ross
et al. 2011); the label of every step is the teacher's action. Each row of a batch plays one episode
with an assignment of slots and disturbances of its own. A student learns by back-propagation
through one piece of steps; its state is carried on to the next piece.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np
import torch
from torch import Tensor

from an_control.disturbance import (
    TRAINING_SEEDS,
    DisturbanceSettings,
    Disturber,
    Permutation,
    Replay,
    Shuffle,
)
from an_control.learning.rollout.episode import LiveEpisode, NewestReadings, Tick
from an_control.learning.teacher.teachers import Teacher
from an_control.learning.training_disturbances import (
    NO_DISTURBANCE,
    Fault,
    TrainingDisturbance,
    draw_independently,
    draw_one,
    make_disturber,
    make_sorted_ids,
)
from an_control.learning.yaml_settings import Share
from an_control.policy import Policy


class DaggerEpisode(NamedTuple):
    """A recorded episode of T steps: N readings in nominal order, A actions."""

    observations: np.ndarray
    """(T, N); NaN where a reading is missing."""
    previous: np.ndarray
    """(T, A) the action sent before each step."""
    labels: np.ndarray
    """(T, A) the teacher's action at each step."""
    total: float = 0.0
    """The episode's return."""


class Driver(Protocol):
    """Anything that chooses the action of each step of one episode."""

    def act(self, seen: Tick, label: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """Return the action (A,) for a step.

        Args:
            seen: the readings that arrived.
            label: the teacher's action (A,).
            previous: the action (A,) that was sent at the step before.
        """


def record_episode(
    env: gymnasium.Env[Any, Any],
    teacher: Teacher,
    driver: Driver,
    rng: np.random.Generator,
    disturbance: DisturbanceSettings = NO_DISTURBANCE,
    reshuffle: float = 0.0,
) -> DaggerEpisode:
    """Record one episode to its end.

    The recorded observations are undisturbed; the driver sees the disturbed readings.

    Args:
        env: the environment.
        teacher: gives the label of each step.
        driver: chooses the actions.
        rng: decides all random numbers of the episode.
        disturbance: the disturbances of the episode.
        reshuffle: probability per step that all signals move.

    Raises:
        BrokenEnvironmentError: the environment failed, as in `LiveEpisode`.
    """
    seed = int(rng.integers(*TRAINING_SEEDS))
    (channels,) = env.observation_space.shape or (0,)
    disturbed = make_disturber(channels, disturbance, rng)
    episode = LiveEpisode(env, seed, disturbed, make_sorted_ids(channels))
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
            action = np.clip(driver.act(tick, label, previous), -1.0, 1.0)
        episode.act(action.astype(np.float32))
        if disturbed is not None and reshuffle and rng.random() < reshuffle:
            disturbed.shuffle()
        assert episode.sent is not None
        previous = episode.sent
    return DaggerEpisode(np.array(observations), np.array(actions), np.array(labels), episode.total)


class NoisyTeacher:
    """The teacher with normal noise, whose standard deviation is drawn once for the episode.

    Args:
        rng: decides all random numbers.
        max_sd: maximum standard deviation of the noise.
    """

    def __init__(self, rng: np.random.Generator, max_sd: float) -> None:
        self._rng = rng
        self._sd = max_sd * rng.random()

    def act(self, seen: Tick, label: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """Return the teacher's action with noise."""
        return self.add_noise(label)

    def add_noise(self, label: np.ndarray) -> np.ndarray:
        """Return the action (A,) with noise."""
        return label + self._sd * self._rng.standard_normal(label.shape)


class PerturbedTeacher:
    """The teacher, interrupted by stretches of zero, random, or wrongly wired actions.

    It visits states that a student reaches before it has identified its channels, and then shows
    the way back to normal operation.

    Args:
        rng: decides all random numbers.
        teacher: gives the actions, also for wrongly ordered readings.
        noise: maximum standard deviation of the noise on all actions.
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

    def act(self, seen: Tick, label: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """Return the action of the current stretch with noise."""
        if self._left <= 0:
            self._start_stretch()
        self._left -= 1
        return self._noise.add_noise(self._choose_action(self._newest(seen.values), label))

    def _start_stretch(self) -> None:
        """Draw the mode and the length of the next stretch."""
        self._first = False
        self._order = self._walk = None
        self._mode = str(self._rng.choice(["teacher"] * 4 + ["random", "shuffled", "swapped"]))
        brief = self._mode in ("random", "shuffled")
        self._left = int(self._rng.integers(3, 20) if brief else self._rng.integers(20, 120))

    def _choose_action(self, observation: np.ndarray, label: np.ndarray) -> np.ndarray:
        """Return the action of the current mode, without noise."""
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
            self._order = self._draw_wrong_order(len(observation))
        return self._teacher(observation[self._order]) * (0.5 if self._first else 1.0)

    def _draw_wrong_order(self, channels: int) -> np.ndarray:
        """Return a wrong order of the readings: all shuffled, or a few swapped."""
        places = Permutation(channels, self._rng)
        if self._mode == "shuffled":
            places.draw()
        elif channels > 1:
            places.draw(int(self._rng.integers(2, min(9, channels + 1))))
        return places.signals


@dataclass(frozen=True)
class RolloutSettings:
    """Disturbances of a recorded episode, and how often the teacher takes over from the student.

    The default is an undisturbed student on shuffled channels.
    """

    teacher_share: float = 0.0
    """Probability that the teacher drives a stretch of the episode."""
    noise: float = 0.0
    """Maximum standard deviation of the noise on an episode's actions."""
    reshuffle: float = 0.0
    """Probability per step that all signals move."""
    disturb: Mapping[TrainingDisturbance, float] = field(default_factory=dict)
    """Probability of each disturbance for the episode; an episode may have several."""
    faulty: bool = False
    """Whether the run's faults are drawn for the episode too."""
    shuffled: bool = True
    """Whether the channels are shuffled at the start of the episode."""

    def draw_disturbance(
        self, faults: Mapping[Fault, float], rng: np.random.Generator
    ) -> DisturbanceSettings:
        """Draw the disturbances of one episode in a run with these faults."""
        drawn = draw_one(faults, rng) if self.faulty else NO_DISTURBANCE
        drawn = drawn.merged_with(draw_independently(self.disturb, rng))
        return replace(drawn, shuffle=Shuffle(True)) if self.shuffled else drawn


class StudentRollout:
    """Driver of an episode: the student, with the teacher taking over for some stretches.

    Args:
        rng: decides all random numbers.
        policy: the student, which is reset.
        settings: how often the teacher takes over, and the noise on the actions.
    """

    def __init__(self, rng: np.random.Generator, policy: Policy, settings: RolloutSettings) -> None:
        self._rng, self._policy, self._how = rng, policy, settings
        self._noise = NoisyTeacher(rng, settings.noise)
        self._teaching, self._left = False, 0
        policy.reset()

    def act(self, seen: Tick, label: np.ndarray, previous: np.ndarray) -> np.ndarray:
        """Return the student's action, or the teacher's in its own stretches, with noise."""
        if self._left <= 0:
            self._teaching = self._rng.random() < self._how.teacher_share
            self._left = int(self._rng.integers(20, 100))
        self._left -= 1
        self._policy.previous_action = previous
        own = self._policy.step_array(seen.values, seen.ids or make_sorted_ids(len(seen.values)))
        return self._noise.add_noise(label if self._teaching else own)


REPLACE_FROM, REPLACE_CHANCE = 300, 0.1
"""Step from which on a row may change to another episode before its end, and the probability per
piece that it does."""
NEWER_SHARE = 0.4
"""Share of the rows that draw from the newest episodes alone."""
CUTS = 2
"""Common moments of a batch at which its rows may be reshuffled, if that resets the neurons."""
NO_FAULTS: Mapping[Fault, float] = MappingProxyType({})


DISTURB: Mapping[TrainingDisturbance, float] = MappingProxyType(
    {TrainingDisturbance("missing=0.05..0.25"): 0.2, TrainingDisturbance("garbage=0.05..0.2"): 0.3}
)
"""Default share of the rows that have each disturbance."""


@dataclass(frozen=True)
class StreamSettings:
    """Disturbances of the rows of batches, beside the run's faults."""

    disturb: dict[TrainingDisturbance, Share] = field(default_factory=lambda: dict(DISTURB))
    """Share of the rows that have each of these disturbances; a row may have several."""
    reshuffled: Share = 0.4
    """Share of the rows whose signals move during the episode."""
    reshuffle_every: tuple[int, ...] = (30, 60, 120, 250)
    """Mean numbers of steps between two reshuffles, one of which is drawn for a row."""
    action_noise: float = 0.05
    """Standard deviation of the noise on the previous actions that the student sees."""

    @property
    def extra_slots(self) -> int:
        """Return the number of slots beyond the channels, for copies and noise."""
        every = [words.settings for words in self.disturb]
        most = [(one.copies.high, one.noise_channels.high) for one in every]
        return int(sum(max(column) for column in zip(*most, strict=True)))


@dataclass(frozen=True)
class StreamBatch:
    """A batch of K steps of B rows with S slots, N channels and A actions."""

    values: Tensor  # (K, B, S) readings of the slots
    change: Tensor  # (K, B, S) change since the slot's last reading
    previous: Tensor  # (K, B, A) previous actions
    ordered: Tensor  # (K, B, N) the observation in nominal order
    labels: Tensor  # (K, B, A) the teacher's action
    channel: Tensor  # (K, B, S) index of the channel that a slot carries; N for none
    present: Tensor  # (K, B, S) 0 where the slot is missing
    counts: Tensor  # (K, B) 0 after an episode's end
    moved: Tensor  # (K, B) 1 where the neurons are reset
    fresh: Tensor  # (B,) True where the row starts an episode in this piece

    def to(self, device: torch.device) -> StreamBatch:
        """Return the batch with its tensors on a device."""
        return StreamBatch(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass
class _StreamRow:
    """An episode as one row of the batches plays it; `place` is the next step."""

    values: np.ndarray
    change: np.ndarray
    previous: np.ndarray
    ordered: np.ndarray
    labels: np.ndarray
    channel: np.ndarray
    present: np.ndarray
    moved: np.ndarray
    place: int = 0


PER_STEP = [field.name for field in fields(_StreamRow) if field.name != "place"]


class DaggerStreams:
    """An endless supply of batches.

    Neurons that a reshuffle resets must be run separately before and after it. So all rows of a
    batch share its few `CUTS` as the moments at which they may be reshuffled.

    Args:
        episodes: the episodes to draw from, the newest last.
        rows: rows of each batch.
        steps: steps of each batch.
        settings: disturbances of the rows.
        newest: number of the last episodes that are drawn more often than the rest.
        rng: decides all random numbers.
        reset_on_jump: whether a reshuffle resets the student's neurons.
        faults: probability of each fault, of which a row has one or none.
    """

    def __init__(
        self,
        episodes: Sequence[DaggerEpisode],
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
        self._rows: list[_StreamRow | None] = [None] * rows

    def next_batch(self) -> StreamBatch:
        """Return the next piece of every row."""
        fresh = [self._replace_row_if_due(i) for i in range(len(self._rows))]
        pieces = [self._next_piece(row) for row in self._rows if row is not None]
        arrays = {
            name: torch.from_numpy(np.stack([piece[name] for piece in pieces], 1))
            for name in [*PER_STEP, "counts"]
        }
        noise = self._settings.action_noise * self._rng.standard_normal(
            arrays["previous"].shape, np.float32
        )
        arrays["previous"] = arrays["previous"] + torch.from_numpy(noise)
        self._number += 1
        return StreamBatch(**arrays, fresh=torch.tensor(fresh))

    def _replace_row_if_due(self, row_number: int) -> bool:
        """Give row `row_number` a new episode if it needs one, and return whether it got one."""
        row = self._rows[row_number]
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
        self._rows[row_number] = self._make_row(episode)
        return True

    def _next_piece(self, row: _StreamRow) -> dict[str, np.ndarray]:
        """Return the arrays of a row's next steps, padded with zeros, and advance the row."""
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

    def _make_row(self, episode: DaggerEpisode) -> _StreamRow:
        """Return the episode as one row sees it: shuffled, disturbed, perhaps reshuffled."""
        rng, how = self._rng, self._settings
        seen = self._disturb(episode.observations)
        steps, channels = len(seen.steps), episode.observations.shape[1]
        ordered, previous, labels = (part[seen.steps] for part in episode[:3])
        if not np.isfinite(ordered).all():
            ordered = _fill_missing(episode.observations)[seen.steps]
        slots = np.tile(np.arange(seen.values.shape[1]), (steps, 1))
        places = Permutation(channels, rng)
        places.draw()
        slots[:, :channels] = places.signals
        moved = np.zeros(steps, np.float32)
        if rng.random() < how.reshuffled:
            mean = rng.choice(how.reshuffle_every)
            for at in (
                self._shared_reshuffle_steps(steps, mean)
                if self._reset_on_jump
                else self._reshuffle_steps(steps, mean)
            ):
                places.draw()
                slots[at:, :channels] = places.signals
                moved[at] = self._reset_on_jump
        values, channel, present = (
            np.take_along_axis(part, slots, 1)
            for part in (_fill_missing(seen.values), seen.signals, np.isfinite(seen.values))
        )
        unused = (0, 0), (0, channels + how.extra_slots - slots.shape[1])
        values = np.pad(values, unused)
        channel = np.pad(channel, unused, constant_values=channels)
        change = np.diff(values, axis=0, prepend=values[:1])
        change[moved > 0] = 0.0
        present = np.pad(present, unused).astype(np.float32)
        return _StreamRow(values, change, previous, ordered, labels, channel, present, moved)

    def _disturb(self, observations: np.ndarray) -> Replay:
        """Return the readings (T, N) of an episode as they arrive, with the row's disturbances."""
        drawn = draw_one(self._faults, self._rng).merged_with(
            draw_independently(self._settings.disturb, self._rng)
        )
        steps, channels = observations.shape
        if drawn.active_on("readings"):
            seed = int(self._rng.integers(2**31))
            return Disturber(make_sorted_ids(channels), drawn, seed).replay(observations)
        return Replay(observations, np.tile(np.arange(channels), (steps, 1)), np.arange(steps))

    def _reshuffle_steps(self, steps: int, mean: float) -> Iterator[int]:
        """Yield the steps at which a row is reshuffled."""
        at = 1 + int(self._rng.exponential(mean))
        while at < steps:
            yield at
            at += 1 + int(self._rng.exponential(mean))

    def _shared_reshuffle_steps(self, steps: int, mean: float) -> Iterator[int]:
        """Yield the steps at which a row that starts with the next batch is reshuffled.

        They are chosen from the moments that all rows of a batch share.
        """
        for batch in range(math.ceil(steps / self._steps)):
            while len(self._cuts) <= self._number + batch:
                self._cuts.append(np.sort(self._rng.choice(self._steps, CUTS, False)))
            for cut in self._cuts[self._number + batch]:
                at = batch * self._steps + int(cut)
                if 0 < at < steps and self._rng.random() < self._steps / (CUTS * mean):
                    yield at


def _fill_missing(observations: np.ndarray) -> np.ndarray:
    """Return observations (T, N) with each missing reading replaced by the newest, at first 0."""
    steps = np.arange(len(observations))[:, None]
    newest = np.maximum.accumulate(np.where(np.isfinite(observations), steps, -1))
    held = np.take_along_axis(observations, np.maximum(newest, 0), 0)
    return np.where(newest < 0, 0.0, held).astype(observations.dtype)
