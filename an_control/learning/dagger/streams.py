"""Recorded episodes for DAgger, and the batches of chunks of them from which a student learns.

An episode is driven by the teacher, by a disturbed teacher, or by the student itself (DAgger, Ross
et al. 2011); the label of every step is the teacher's action. Each row of a batch replays one
episode with its own order of the input slots and its own disturbances, `steps` steps in each batch.
The student's state at the end of a batch is its state at the start of the next, as in truncated
back-propagation through time.
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
    DisturbedEpisode,
    Disturber,
    Permutation,
    Shuffle,
)
from an_control.learning.limits import Share
from an_control.learning.rollout.episode import LiveEpisode, NewestReadings, Tick
from an_control.learning.teacher.teachers import Teacher
from an_control.learning.training_disturbances import (
    NO_DISTURBANCE,
    NO_FAULTS,
    Fault,
    TrainingDisturbance,
    draw_at_most_one_disturbance,
    draw_merged_disturbances,
    make_disturber,
    make_placeholder_ids,
)
from an_control.policy import Policy


class DaggerEpisode(NamedTuple):
    """Recorded episode of T steps of a robot with N channels and A actions.

    Attributes:
        observations: Readings (T, N) in the environment's order; NaN where one is missing.
        previous: Action (T, A) that was sent before each step.
        labels: The teacher's action (T, A) at each step.
        total: The episode's return; NaN if only its first steps were recorded.
    """

    observations: np.ndarray
    previous: np.ndarray
    labels: np.ndarray
    total: float = 0.0


class Driver(Protocol):
    """Interface of an object that chooses the actions while an episode is recorded."""

    def act(self, tick: Tick, label: np.ndarray, previous_action: np.ndarray) -> np.ndarray:
        """Return the action (A,) for one step.

        Args:
            tick: The readings of this step, as disturbed on the way from the sensors.
            label: The teacher's action (A,) for this step.
            previous_action: Action (A,) that was sent at the step before.
        """


def record_episode(
    env: gymnasium.Env[Any, Any],
    teacher: Teacher,
    driver: Driver,
    rng: np.random.Generator,
    disturbance: DisturbanceSettings = NO_DISTURBANCE,
    reshuffle_probability: float = 0.0,
    max_steps: int = 0,
) -> DaggerEpisode:
    """Record one episode, or its first steps, with the teacher's action as each step's label.

    The recorded readings are undisturbed, and the teacher acts on them. The driver gets the
    disturbed readings.

    Args:
        env: The environment.
        teacher: Policy that gives the label of each step.
        driver: Object that chooses the actions.
        rng: Source of all random numbers of the episode.
        disturbance: Disturbances of readings, commands and robot in this episode.
        reshuffle_probability: Probability per step that all signals are permuted among the input
            slots.
        max_steps: Number of steps after which the recording ends; 0 to record the whole episode.

    Returns:
        The recorded episode; its return is NaN if `max_steps` is not 0.

    Raises:
        BrokenEnvironmentError: The environment failed, as in `LiveEpisode`.
    """
    seed = int(rng.integers(*TRAINING_SEEDS))
    (channels,) = env.observation_space.shape or (0,)
    disturbed = make_disturber(channels, disturbance, rng)
    episode = LiveEpisode(env, seed, disturbed, make_placeholder_ids(channels))
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
        episode.send_action(action.astype(np.float32))
        if disturbed is not None and reshuffle_probability and rng.random() < reshuffle_probability:
            disturbed.shuffle()
        assert episode.sent is not None
        previous = episode.sent
        if len(labels) == max_steps:
            break
    total = math.nan if max_steps else episode.total
    return DaggerEpisode(np.array(observations), np.array(actions), np.array(labels), total)


class NoisyTeacher:
    """Driver that adds normal noise to the teacher's actions.

    The noise has one standard deviation in the whole episode, drawn uniformly from 0 to `max_sd`.

    Args:
        rng: Source of all random numbers.
        max_sd: Maximum standard deviation of the noise.
    """

    def __init__(self, rng: np.random.Generator, max_sd: float) -> None:
        self._rng = rng
        self._sd = max_sd * rng.random()

    def act(self, tick: Tick, label: np.ndarray, previous_action: np.ndarray) -> np.ndarray:
        """Return the teacher's action with noise.

        Args:
            tick: Not used; `StudentDriver.act` takes the same arguments.
            label: (A,) the teacher's action.
            previous_action: Not used, like `tick`.
        """
        return self.add_noise(label)

    def add_noise(self, action: np.ndarray) -> np.ndarray:
        """Return the sum of an action (A,) and normal noise."""
        return action + self._sd * self._rng.standard_normal(action.shape)


class PerturbedTeacher:
    """Driver that sends the teacher's actions in some periods of steps, and bad ones in others.

    Bad actions are zero, random, or those of the teacher on readings in a wrong order. The recorded
    episodes thereby contain states that a student gets into before it has identified its channels,
    and show how the teacher recovers from them.

    Args:
        rng: Source of all random numbers.
        teacher: Policy that gives the actions, also those on readings in a wrong order.
        max_noise_sd: Maximum standard deviation of the noise on all actions.
    """

    def __init__(self, rng: np.random.Generator, teacher: Teacher, max_noise_sd: float) -> None:
        self._rng, self._teacher = rng, teacher
        self._noise = NoisyTeacher(rng, max_noise_sd)
        self._left = int(rng.integers(0, 40))
        self._mode = str(rng.choice(["still", "random", "shuffled", "swapped"]))
        self._first = True
        self._newest = NewestReadings()
        self._order: np.ndarray | None = None
        self._walk: np.ndarray | None = None

    def act(self, tick: Tick, label: np.ndarray, previous_action: np.ndarray) -> np.ndarray:
        """Return the action (A,) of the current period, with noise.

        Args:
            tick: The readings of this step.
            label: The teacher's action (A,) for this step, which is sent in some of the periods.
            previous_action: Not used; `StudentDriver.act` takes the same arguments.
        """
        if self._left <= 0:
            self._start_next_period()
        self._left -= 1
        return self._noise.add_noise(self._choose_action(self._newest(tick.values), label))

    def _start_next_period(self) -> None:
        """Start a period of steps whose kind of actions and whose length are drawn at random."""
        self._first = False
        self._order = self._walk = None
        self._mode = str(self._rng.choice(["teacher"] * 4 + ["random", "shuffled", "swapped"]))
        brief = self._mode in ("random", "shuffled")
        self._left = int(self._rng.integers(3, 20) if brief else self._rng.integers(20, 120))

    def _choose_action(self, observation: np.ndarray, label: np.ndarray) -> np.ndarray:
        """Return the action (A,) of the current period, without noise."""
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
        """Draw a wrong order (N,) of the readings: all are shuffled, or a few are swapped."""
        places = Permutation(channels, self._rng)
        if self._mode == "shuffled":
            places.draw_permutation()
        elif channels > 1:
            places.draw_permutation(int(self._rng.integers(2, min(9, channels + 1))))
        return places.signals


@dataclass(frozen=True)
class RolloutSettings:
    """Disturbances of a recorded episode, and how often the teacher takes over from the student.

    By default the student drives all the time, on shuffled channels that are not disturbed
    otherwise.
    """

    teacher_share: float = 0.0
    """Probability that the teacher, not the student, drives in each period of 20 to 99 steps."""
    noise: float = 0.0
    """Maximum standard deviation of the noise on an episode's actions."""
    reshuffle: float = 0.0
    """Probability per step that all signals are permuted among the input slots."""
    disturb: Mapping[TrainingDisturbance, float] = field(default_factory=dict)
    """Probability of each disturbance for the episode; an episode may have several."""
    faulty: bool = False
    """Whether one of the run's `faults` may be drawn for the episode too."""
    shuffled: bool = True
    """Whether the channels are shuffled at the start of the episode."""
    steps: int = 0
    """Number of steps after which the recording ends; 0: it ends with the episode."""

    def draw_disturbance(
        self, faults: Mapping[Fault, float], rng: np.random.Generator
    ) -> DisturbanceSettings:
        """Draw the disturbances of one episode from the setting `disturb` and the run's faults.

        Args:
            faults: Probability of each fault, a further disturbance. An episode has at most one
                fault; if the setting `faulty` is False, it has none.
            rng: Source of all random numbers.
        """
        drawn = draw_at_most_one_disturbance(faults, rng) if self.faulty else NO_DISTURBANCE
        drawn = drawn.with_overrides_from(draw_merged_disturbances(self.disturb, rng))
        return replace(drawn, shuffle=Shuffle(True)) if self.shuffled else drawn


class StudentDriver:
    """Driver that sends the student's actions, and in some periods of steps those of the teacher.

    Args:
        rng: Source of all random numbers.
        policy: The student's policy, which is reset here.
        settings: How often the teacher takes over, and the noise on the actions.
    """

    def __init__(self, rng: np.random.Generator, policy: Policy, settings: RolloutSettings) -> None:
        self._rng, self._policy, self._how = rng, policy, settings
        self._noise = NoisyTeacher(rng, settings.noise)
        self._teaching, self._left = False, 0
        policy.reset()

    def act(self, tick: Tick, label: np.ndarray, previous_action: np.ndarray) -> np.ndarray:
        """Return the student's action (A,) with noise, or in some periods the teacher's action.

        Args:
            tick: The readings of this step, on which the student acts.
            label: The teacher's action (A,) for this step; noise is added to it too.
            previous_action: Action (A,) that was sent at the step before.
        """
        if self._left <= 0:
            self._teaching = self._rng.random() < self._how.teacher_share
            self._left = int(self._rng.integers(20, 100))
        self._left -= 1
        self._policy.previous_action = previous_action
        own = self._policy.step_array(
            tick.values, tick.ids or make_placeholder_ids(len(tick.values))
        )
        return self._noise.add_noise(label if self._teaching else own)


REPLACE_FROM, REPLACE_CHANCE = 300, 0.1
"""Step of an episode from which on a batch row may change to another episode before the end, and
the probability that it does so after each batch."""
NEWER_SHARE = 0.4
"""Share of the batch rows that draw from the newest episodes alone."""
CUTS = 2
"""Number of steps of each batch at which its rows may be reshuffled, the same steps for all rows,
if reshuffling resets the sensory neurons."""


DISTURB: Mapping[TrainingDisturbance, float] = MappingProxyType(
    {TrainingDisturbance("missing=0.05..0.25"): 0.2, TrainingDisturbance("garbage=0.05..0.2"): 0.3}
)
"""Default share of the batch rows that have each disturbance."""


@dataclass(frozen=True)
class StreamSettings:
    """Settings of the disturbances of a student's training batches.

    A row of a batch is a part of a recorded episode. It is disturbed when it is put into the batch.
    The run's setting `faults` adds further disturbances.
    """

    disturb: dict[TrainingDisturbance, Share] = field(default_factory=lambda: dict(DISTURB))
    """Share of the rows that have each of these disturbances; a row may have several."""
    reshuffled: Share = 0.4
    """Share of the rows whose signals are permuted again during the episode."""
    reshuffle_every: tuple[int, ...] = (30, 60, 120, 250)
    """Mean numbers of steps between two reshuffles, one of which is drawn for a row."""
    action_noise: float = 0.05
    """Standard deviation of the noise on the previous actions that the student sees."""

    @property
    def extra_slot_count(self) -> int:
        """Return how many input slots a batch needs beyond one for each channel.

        Disturbances that add channels, as copies of others or as pure noise, need these slots.
        """
        every = [words.settings for words in self.disturb]
        most = [(one.copies.high, one.noise_channels.high) for one in every]
        return int(sum(max(column) for column in zip(*most, strict=True)))


@dataclass(frozen=True)
class StreamBatch:
    """Training batch of B rows, each with K steps of an episode (S slots, N channels, A actions).

    A channel is an input that the task defines. A slot is an input of the student: which channel's
    signal it carries changes when signals are permuted.

    Attributes:
        values: Readings (K, B, S) of the input slots.
        change: Change (K, B, S) of each slot's reading since the step before.
        previous: Previous actions (K, B, A).
        ordered: Readings (K, B, N) in the environment's order.
        labels: The teacher's actions (K, B, A).
        channel: Index (K, B, S) of the channel whose signal a slot carries; N for none.
        present: 1 where a slot has a reading, 0 where it is missing (K, B, S).
        counts: 1 for steps of the episode, 0 for padding after its end (K, B).
        moved: 1 where the student must reset its sensory neurons before the step, because the
            signals of the episode were permuted; else 0 (K, B).
        fresh: Whether a row starts a new episode in this batch, instead of continuing one (B,).
    """

    values: Tensor
    change: Tensor
    previous: Tensor
    ordered: Tensor
    labels: Tensor
    channel: Tensor
    present: Tensor
    counts: Tensor
    moved: Tensor
    fresh: Tensor

    def to_device(self, device: torch.device) -> StreamBatch:
        """Return the batch with its tensors on a torch device."""
        return StreamBatch(*(getattr(self, field.name).to(device) for field in fields(self)))


@dataclass
class _StreamRow:
    """Episode of T steps as one batch row replays it, with its own slot order and disturbances.

    The arrays have the same meanings as in `StreamBatch`, but their first dimension is T, and they
    have no dimension for the rows. `next_step` is the first step that no batch has contained yet.
    """

    values: np.ndarray
    change: np.ndarray
    previous: np.ndarray
    ordered: np.ndarray
    labels: np.ndarray
    channel: np.ndarray
    present: np.ndarray
    moved: np.ndarray
    next_step: int = 0


PER_STEP = [field.name for field in fields(_StreamRow) if field.name != "next_step"]


class DaggerStreams:
    """Endless source of training batches, made of recorded episodes with new disturbances.

    Each row of a batch holds some steps of a recorded episode. The same row of the next batch holds
    the steps that follow, or the first steps of another random episode. The episode's signals are
    shuffled among the input slots, and may be reshuffled during the episode.

    Args:
        episodes: Episodes to draw from, the newest last.
        rows: Number of rows of each batch.
        steps: Number of steps of each batch.
        settings: Disturbances of the rows.
        newest_count: Number of episodes, counted from the newest one, that are drawn more often
            than the rest.
        rng: Source of all random numbers.
        reset_on_reshuffle: Whether a reshuffle resets the student's sensory neurons. All rows are
            then reshuffled at the same few steps, because each such step slows the student down.
        faults: Probability of each fault, a further disturbance; an episode has at most one.
    """

    def __init__(
        self,
        episodes: Sequence[DaggerEpisode],
        rows: int,
        steps: int,
        settings: StreamSettings,
        newest_count: int,
        rng: np.random.Generator,
        reset_on_reshuffle: bool = False,
        faults: Mapping[Fault, float] = NO_FAULTS,
    ) -> None:
        self._episodes, self._steps, self._rng = episodes, steps, rng
        self._faults = faults
        self._reset_on_jump = reset_on_reshuffle
        self._cuts: list[np.ndarray] = []
        self._number = 0
        self._settings, self._newest = settings, newest_count
        self._rows: list[_StreamRow | None] = [None] * rows

    def make_next_batch(self) -> StreamBatch:
        """Return the next batch. Its rows continue their last episodes or start new ones."""
        fresh = [self._start_new_episode_if_due(i) for i in range(len(self._rows))]
        pieces = [self._cut_next_steps_from_row(row) for row in self._rows if row is not None]
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

    def _start_new_episode_if_due(self, row_number: int) -> bool:
        """Let a row replay a new episode if its present one has ended, and return whether it does.

        A row that has replayed many steps of its episode may also change to a new one at random.
        """
        row = self._rows[row_number]
        if (
            row is not None
            and row.next_step < len(row.values)
            and not (row.next_step >= REPLACE_FROM and self._rng.random() < REPLACE_CHANCE)
        ):
            return False
        first = 0
        if self._rng.random() < NEWER_SHARE:
            first = max(0, len(self._episodes) - self._newest)
        episode = self._episodes[int(self._rng.integers(first, len(self._episodes)))]
        self._rows[row_number] = self._make_row_from_episode(episode)
        return True

    def _cut_next_steps_from_row(self, row: _StreamRow) -> dict[str, np.ndarray]:
        """Return a row's arrays for the next batch, by name, and advance the row by these steps.

        The arrays hold as many steps as a batch has, with zeros after the end of the episode. The
        array "counts" is 1 for steps of the episode, and 0 for steps after its end.
        """
        span = slice(row.next_step, row.next_step + self._steps)
        row.next_step += self._steps
        piece = {}
        for name in PER_STEP:
            part = getattr(row, name)[span]
            piece[name] = np.zeros((self._steps, *part.shape[1:]), part.dtype)
            piece[name][: len(part)] = part
        piece["counts"] = np.zeros(self._steps, np.float32)
        piece["counts"][: len(part)] = 1.0
        return piece

    def _make_row_from_episode(self, episode: DaggerEpisode) -> _StreamRow:
        """Return a batch row that replays a recorded episode from its start.

        Its signals arrive in shuffled input slots, and its readings are disturbed.
        """
        rng, how = self._rng, self._settings
        seen = self._disturb_readings(episode.observations)
        steps, channels = len(seen.steps), episode.observations.shape[1]
        ordered, previous, labels = (part[seen.steps] for part in episode[:3])
        if not np.isfinite(ordered).all():
            ordered = fill_missing_readings(episode.observations)[seen.steps]
        slots = np.tile(np.arange(seen.values.shape[1]), (steps, 1))
        places = Permutation(channels, rng)
        places.draw_permutation()
        slots[:, :channels] = places.signals
        moved = np.zeros(steps, np.float32)
        if rng.random() < how.reshuffled:
            mean = rng.choice(how.reshuffle_every)
            for at in (
                self._draw_shared_reshuffle_steps(steps, mean)
                if self._reset_on_jump
                else self._draw_reshuffle_steps(steps, mean)
            ):
                places.draw_permutation()
                slots[at:, :channels] = places.signals
                moved[at] = self._reset_on_jump
        values, channel, present = (
            np.take_along_axis(part, slots, 1)
            for part in (fill_missing_readings(seen.values), seen.signals, np.isfinite(seen.values))
        )
        unused = (0, 0), (0, channels + how.extra_slot_count - slots.shape[1])
        values = np.pad(values, unused)
        channel = np.pad(channel, unused, constant_values=channels)
        change = np.diff(values, axis=0, prepend=values[:1])
        change[moved > 0] = 0.0
        present = np.pad(present, unused).astype(np.float32)
        return _StreamRow(values, change, previous, ordered, labels, channel, present, moved)

    def _disturb_readings(self, observations: np.ndarray) -> DisturbedEpisode:
        """Draw disturbances and return an episode's readings (T, N) as they arrive under them."""
        drawn = draw_at_most_one_disturbance(self._faults, self._rng).with_overrides_from(
            draw_merged_disturbances(self._settings.disturb, self._rng)
        )
        steps, channels = observations.shape
        if drawn.does_disturb_target("readings"):
            seed = int(self._rng.integers(2**31))
            return Disturber(make_placeholder_ids(channels), drawn, seed).disturb_episode(
                observations
            )
        return DisturbedEpisode(
            observations, np.tile(np.arange(channels), (steps, 1)), np.arange(steps)
        )

    def _draw_reshuffle_steps(self, steps: int, mean_interval: float) -> Iterator[int]:
        """Draw the steps at which a row's signals are permuted again, and yield them in order."""
        at = 1 + int(self._rng.exponential(mean_interval))
        while at < steps:
            yield at
            at += 1 + int(self._rng.exponential(mean_interval))

    def _draw_shared_reshuffle_steps(self, steps: int, mean_interval: float) -> Iterator[int]:
        """Draw the steps at which a row's signals are permuted again, and yield them in order.

        Each batch has a few steps at which rows may be reshuffled, the same for all rows. The
        result is a random choice of these steps, for an episode that starts with the next batch.
        """
        for batch in range(math.ceil(steps / self._steps)):
            while len(self._cuts) <= self._number + batch:
                self._cuts.append(np.sort(self._rng.choice(self._steps, CUTS, False)))
            for cut in self._cuts[self._number + batch]:
                at = batch * self._steps + int(cut)
                if 0 < at < steps and self._rng.random() < self._steps / (CUTS * mean_interval):
                    yield at


def fill_missing_readings(observations: np.ndarray) -> np.ndarray:
    """Replace each missing reading (NaN) by the last reading that its channel had before.

    Where the channel had none before, 0 is filled in.

    Args:
        observations: Readings (T, N).

    Returns:
        The readings (T, N), all of them finite.
    """
    steps = np.arange(len(observations))[:, None]
    newest = np.maximum.accumulate(np.where(np.isfinite(observations), steps, -1))
    held = np.take_along_axis(observations, np.maximum(newest, 0), 0)
    return np.where(newest < 0, 0.0, held).astype(observations.dtype)
