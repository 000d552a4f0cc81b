"""Disturb readings tick by tick, or all readings of a recorded episode at once.

For each setting, one function or class here draws the random numbers that it needs, from seeded
generators. Evaluation, the scrambler (the node that disturbs a running robot), rollouts and
training use these same functions and classes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from itertools import compress, islice
from itertools import count as iterate_from_zero
from typing import Generic, NamedTuple, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from an_control.disturbance.seeds import RandomStreams
from an_control.disturbance.settings import (
    DisturbanceSettings,
    Observation,
    RobotStop,
    ScheduledChange,
    iterate_scheduled_settings,
)


def draw_signal_indices(
    rng: np.random.Generator, signal_count: int, drawn_share: float, min_drawn: int = 0
) -> NDArray[np.intp]:
    """Return the indices of randomly drawn signals, in random order.

    Args:
        rng: The random generator.
        signal_count: The number of signals to draw from.
        drawn_share: The share (0 to 1) of the signals that is drawn.
        min_drawn: The least number of signals that is drawn.
    """
    return rng.permutation(signal_count)[: max(min_drawn, round(drawn_share * signal_count))]


class GarbageReadings:
    """A generator of meaningless readings for K channels: noise, zeros or a slow drift.

    About half of the channels carry normal noise with a standard deviation of 1, 0.3 or 0.1. A
    quarter carry zeros. A quarter carry a random walk, which turns back at -5 and 5, and whose
    steps have a standard deviation of 0.05. All numbers are in units of the scaled readings.

    Args:
        rng: The random generator.
        channel_count: The number K of channels.
    """

    def __init__(self, rng: np.random.Generator, channel_count: int) -> None:
        self._rng = rng
        kinds = rng.integers(4, size=channel_count)
        self._sd = np.where(kinds < 2, rng.choice([1.0, 1.0, 0.3, 0.1], channel_count), 0.0)
        self._step = np.where(kinds == 3, 0.05, 0.0)
        self._walk = np.zeros(channel_count)

    def draw_readings(self, ticks: int) -> NDArray[np.float32]:
        """Return meaningless readings (ticks, K) of the K channels for the next `ticks` ticks."""
        noise = self._rng.standard_normal((ticks, len(self._sd)))
        walks = np.cumsum(np.vstack([self._walk, self._step * noise]), axis=0)[1:]
        self._walk = walks[-1]
        # Clipped instead, a walk that went far beyond a bound would read this bound for good.
        turned = np.abs((walks - 5.0) % 20.0 - 10.0) - 5.0
        drifts = np.where(np.abs(walks) <= 5.0, walks, turned)
        return (self._sd * noise + drifts).astype(np.float32)


FAULTS = ("delay", "bias", "freeze", "garbage", "jitter", "spike", "nan")
"""The names of the settings that change the values of signals, in the order of application."""


class SensorFaults:
    """The sensor faults of N signals in one episode, such as delay, frozen values and spikes.

    Args:
        signal_count: The number N of signals.
        streams: The episode's random generators.
        settings: The settings of the episode's first step.
    """

    def __init__(
        self, signal_count: int, streams: RandomStreams, settings: DisturbanceSettings
    ) -> None:
        self._count, self._streams, self._rng = signal_count, streams, streams.faults
        self._late: DelayLine[NDArray[np.float32]] = DelayLine()
        self._biases: NDArray[np.float64] | None = None
        """(N,) the offset of each signal for a `bias` of 1; None until it is needed."""
        self.freeze_random_signals(settings.freeze.value)
        self.replace_random_signals_by_garbage(settings.garbage.value)
        self.change_settings(settings)

    def freeze_random_signals(self, share: float) -> None:
        """Freeze a random share of the signals from now on, and unfreeze all others.

        A frozen signal repeats its first reading after this call that is not missing.

        Args:
            share: The share (0 to 1) of the signals that is frozen.
        """
        self._frozen = np.sort(draw_signal_indices(self._rng, self._count, share))
        self._held = np.full(self._count, np.nan, dtype=np.float32)

    def replace_random_signals_by_garbage(self, share: float) -> None:
        """Replace the readings of a random share of the signals by meaningless ones from now on.

        All other signals keep their readings, or get them back.

        Args:
            share: The share (0 to 1) of the signals whose readings are replaced.
        """
        self._replaced = np.zeros(0, np.intp)
        if share:
            self._replaced = draw_signal_indices(self._streams.garbage, self._count, share)
            self._garbage = GarbageReadings(self._streams.garbage, len(self._replaced))

    def change_settings(self, settings: DisturbanceSettings) -> None:
        """Apply other settings of the sensor faults from the next tick on.

        The same signals stay frozen or meaningless. Each signal keeps its random constant offset,
        which the new setting `bias` scales. If the new settings have no fault at all, readings
        that a delay still holds back are discarded.
        """
        self._settings = settings
        if settings.bias and self._biases is None:
            self._biases = self._streams.bias.standard_normal(self._count)
        self.active = any(getattr(settings, name) for name in FAULTS)
        if not self.active:
            self._late.clear()

    @property
    def meaningless_signal_indices(self) -> NDArray[np.intp]:
        """The indices of the signals that are frozen or replaced by meaningless readings."""
        return np.concatenate([self._frozen, self._replaced])

    def add_faults(self, signals: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a copy of one tick's signals (N,) to which this episode's sensor faults are added.

        Args:
            signals: (N,) the readings without faults, NaN for a missing one.
        """
        settings = self._settings
        faulty = self._late(signals.copy(), settings.delay.whole_number).copy()
        self._add_biases_in_place(faulty)
        if len(self._frozen):
            held = self._held[self._frozen]
            held = np.where(np.isnan(held), faulty[self._frozen], held)
            self._held[self._frozen] = faulty[self._frozen] = held
        if len(self._replaced):
            faulty[self._replaced] = self._garbage.draw_readings(1)[0]
        if settings.jitter:
            faulty += _draw_normal_noise(self._streams.jitter, settings.jitter.value, len(faulty))
        self._add_spikes_and_nans_in_place(faulty)
        return faulty

    def _add_biases_in_place(self, signals: NDArray[np.float32]) -> None:
        """Add the constant offset of each signal to signals (..., N), in place."""
        if self._settings.bias and self._biases is not None:
            signals += (self._settings.bias.value * self._biases).astype(np.float32)

    def _add_spikes_and_nans_in_place(self, signals: NDArray[np.float32]) -> None:
        """Change a tick's signals (N,) in place: add spikes to random ones, set others to NaN."""
        settings, rng = self._settings, self._rng
        if settings.spike:
            struck = rng.random(len(signals)) < settings.spike
            signals += struck * _draw_normal_noise(rng, settings.spike_sd, len(signals))
        if settings.nan:
            signals[rng.random(len(signals)) < settings.nan] = np.nan

    def add_faults_to_episode(self, signals: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return a copy of the signals (T, N) of all T ticks of the episode, with faults added.

        The faults are those that one call of `add_faults` in each tick would add.
        """
        settings, ticks = self._settings, np.arange(len(signals))
        faulty = signals[np.maximum(ticks - settings.delay.whole_number, 0)]
        self._add_biases_in_place(faulty)
        for one in self._frozen:
            begin = int(np.isnan(faulty[:, one]).argmin())
            faulty[begin:, one] = faulty[begin, one]
        if len(self._replaced):
            faulty[:, self._replaced] = self._garbage.draw_readings(len(faulty))
        if settings.jitter:
            faulty += _draw_normal_noise(self._streams.jitter, settings.jitter.value, faulty.shape)
        if settings.spike or settings.nan:
            for tick in faulty:
                self._add_spikes_and_nans_in_place(tick)
        return faulty


def _draw_normal_noise(
    rng: np.random.Generator, sd: float, shape: int | tuple[int, ...]
) -> NDArray[np.float32]:
    """Return noise from a normal distribution with mean 0, as float32.

    Args:
        rng: The random generator.
        sd: The standard deviation of the noise.
        shape: The shape of the array.
    """
    return rng.normal(0.0, sd, shape).astype(np.float32)


T = TypeVar("T")


class DelayLine(Generic[T]):
    """A delay of items, such as messages, by a number of ticks.

    Call the object in each tick with the newest item and the delay. It returns the item from that
    many ticks ago, or the first item if no item is that old.
    """

    def __init__(self) -> None:
        self._kept: deque[T] = deque()

    def clear(self) -> None:
        """Remove all items, so that the delay starts again with the next one."""
        self._kept.clear()

    def __call__(self, newest_item: T, delay_ticks: int) -> T:
        """Append this tick's item, and return the item from `delay_ticks` ticks ago.

        Args:
            newest_item: The item of this tick.
            delay_ticks: The delay in ticks; 0 returns `newest_item`.
        """
        self._kept.append(newest_item)
        while len(self._kept) > delay_ticks + 1:
            self._kept.popleft()
        return self._kept[0]


class LossyDelivery(Generic[T]):
    """A simulated transport of messages, one in each tick, which loses or repeats some at random.

    The first message is never lost.

    Args:
        streams: The episode's random generators.
    """

    def __init__(self, streams: RandomStreams) -> None:
        self._streams = streams
        self._last: T | None = None
        self.arrived = self.new = True
        """Two flags: whether a message arrived in this tick, and whether it arrived for the first
        time."""

    def send_and_get_newest_arrived(self, message: T, settings: DisturbanceSettings) -> T:
        """Send a message, which may not arrive; return the newest message that has arrived.

        The first message always arrives. A later one may be lost, or the message before it may
        arrive again in its place.

        Args:
            message: The message of this tick.
            settings: The present settings. `lose` and `repeat` are the probabilities of these
                two faults.
        """
        self.arrived = self.new = True
        if settings.lose or settings.repeat:
            chances = settings.lose.value, settings.repeat.value
            lost, repeated = self._streams.delivery.random(2) < chances
            if self._last is not None and (lost or repeated):
                self.arrived, self.new = not lost, False
                return self._last
        self._last = message
        return message

    def draw_arrival_and_sending_ticks(
        self, ticks: int, settings: DisturbanceSettings
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Draw at random which messages of an episode arrive, and in which ticks.

        One message is sent in each tick.

        Args:
            ticks: The number of ticks of the episode.
            settings: The settings, of which `lose` and `repeat` are used.

        Returns:
            A pair of arrays (K,) for the K messages that arrive: the ticks in which they arrive,
            and the ticks in which they were sent. Where an earlier message is repeated, the two
            ticks differ.
        """
        sent = np.arange(ticks)
        if not (settings.lose or settings.repeat):
            return sent, sent
        chances = settings.lose.value, settings.repeat.value
        lost, repeated = (self._streams.delivery.random((ticks, 2)) < chances).T
        lost[:1] = repeated[:1] = False
        newest = np.maximum.accumulate(np.where(lost | repeated, 0, sent))
        return sent[~lost], newest[~lost]


class Permutation:
    """A random permutation of N signals among N input slots (places at which readings arrive).

    At first each signal is in its own slot.

    Args:
        signal_count: The number N of signals.
        rng: The random generator.
    """

    def __init__(self, signal_count: int, rng: np.random.Generator) -> None:
        self._rng = rng
        self.signals: NDArray[np.intp] = np.arange(signal_count)
        """(N,) the index of the signal that each slot carries."""
        self.drawn = 0
        """The number of times that `draw_permutation` was called."""

    def draw_permutation(self, moved_count: int = 0) -> NDArray[np.intp]:
        """Permute the signals at random; return for each slot the index of its signal, as (N,).

        Args:
            moved_count: The number of signals, drawn at random, that exchange their slots; all
                others stay where they are. With 0 all signals are permuted.
        """
        self.drawn += 1
        places = self._rng.permutation(len(self.signals))
        if moved_count:
            some, moved = places[:moved_count], self.signals.copy()
            moved[some] = self.signals[np.roll(some, 1)]
            places = moved
        self.signals = places
        return places


def draw_present_mask(
    rng: np.random.Generator, signal_count: int, missing_share: float, min_missing: int = 0
) -> NDArray[np.bool_]:
    """Return a random mask (signal_count,) of signals, False for those that are missing.

    Args:
        rng: The random generator.
        signal_count: The number of signals.
        missing_share: The share (0 to 1) of the signals that is missing.
        min_missing: The least number of signals that are missing.
    """
    present = np.ones(signal_count, dtype=bool)
    present[draw_signal_indices(rng, signal_count, missing_share, min_missing)] = False
    return present


def draw_indices_to_copy(
    rng: np.random.Generator, present: NDArray[np.bool_], copies: int
) -> NDArray[np.intp]:
    """Draw at random which signals to copy into added channels; return their indices (copies,).

    Every present signal is copied once before any is copied twice. The result is empty if all
    signals are missing.

    Args:
        rng: The random generator.
        present: (N,) False for missing signals, which are not drawn.
        copies: The number of copies.
    """
    there = np.flatnonzero(present)
    rounds = -(-copies // len(there)) if len(there) else 0
    drawn = [rng.permutation(there) for _ in range(rounds)]
    return np.concatenate([there[:0], *drawn])[:copies]


NOISE_PREFIX = "noise."
COPY_PREFIX = "copy."
Message: TypeAlias = tuple[NDArray[np.float32], tuple[str, ...]]
"""The readings (m,) of a tick and their channel ids."""


class DisturbancePlan(NamedTuple):
    """The random choices for an episode's shuffles, missing channels, copies and noise channels.

    N is the number of the robot's own channels, those in `Disturber.ids`. Each has a slot (position
    at which readings arrive) and a signal, which are given by their indices in `Disturber.ids`. The
    K noise channels and the C copies are added to these N.

    Attributes:
        signals: (B, N) the signal that each of the N slots carries, for each of the B periods
            between permutations. A period has `shuffle.every` steps; if that is 0, B is 1.
        present: (N,) False for a missing signal.
        noise: (steps, K) the readings of the K noise channels.
        copied: (C,) the signal that each copy repeats.
    """

    signals: NDArray[np.intp]
    present: NDArray[np.bool_]
    noise: NDArray[np.float32]
    copied: NDArray[np.intp]


class DisturbedEpisode(NamedTuple):
    """A recorded episode with disturbances added: K messages to the policy, of S readings each.

    The first N readings of a message come from the robot's N own channels. Readings of the added
    channels follow: first of the copies, then of the noise channels.

    Attributes:
        values: (K, S) the readings, NaN for a missing one.
        signals: (K, S) the index (0 to N - 1) of the signal from which each reading comes; N for
            noise and for a meaningless reading.
        steps: (K,) the step in which each message arrives.
    """

    values: NDArray[np.float32]
    signals: NDArray[np.intp]
    steps: NDArray[np.intp]


class Disturber:
    """Object that disturbs the readings of one robot, tick by tick.

    The readings of a tick may come in any order, and some channels may lack one. The disturber may
    move signals between input slots (the places at which readings arrive). A slot is left out of
    the result if its signal has no reading. Readings of other channels than `ids` are dropped.

    Args:
        ids: The ids (N,) of the robot's channels.
        settings: The disturbances.
        seed: The seed of the run.
        schedule: The changes of the settings during each episode.
        episode: The number of the first episode; None: `start_episode` must be called first.
        missing_as_nan: True if channels that a setting makes missing get the reading NaN, False if
            they are dropped.
    """

    def __init__(
        self,
        ids: Sequence[str],
        settings: DisturbanceSettings,
        seed: int,
        schedule: Sequence[ScheduledChange] = (),
        episode: int | None = 0,
        missing_as_nan: bool = False,
    ) -> None:
        self._missing_as_nan = missing_as_nan
        self._base, self._schedule = settings, tuple(sorted(schedule, key=lambda one: one.step))
        self.ids = tuple(sorted(ids))
        """(N,) the nominal ids, sorted; `signal_ids_by_slot` has the same order of slots."""
        self._index = {name: i for i, name in enumerate(self.ids)}
        self._came: tuple[str, ...] | None = None
        self._missing: NDArray[np.bool_] | None = None
        self._seed = seed
        if episode is not None:
            self.start_episode(episode)

    def start_episode(self, episode: int) -> None:
        """Start an episode at step 0.

        Args:
            episode: The number of the episode. It decides all random numbers, together with the
                run's seed.
        """
        count = len(self.ids)
        self._streams = RandomStreams(self._seed, episode)
        self._step = 0
        self.settings = settings = self._get_current_settings()
        """The settings of the present step, with a number drawn for each range."""
        self._delivery: LossyDelivery[Message] = LossyDelivery(self._streams)
        self._permutation = Permutation(count, self._streams.permutation)
        self._present = draw_present_mask(self._streams.missing, count, settings.missing.value)
        self._faults = SensorFaults(count, self._streams, settings)
        self._copied = draw_indices_to_copy(
            self._streams.copies, self._present, settings.copies.whole_number
        )
        if settings.shuffle.at_reset:
            self._permutation.draw_permutation(settings.swap)
        self._update_sent_signals_and_ids()

    def change_settings(self, settings: DisturbanceSettings) -> None:
        """Apply other settings from the next tick on, in this and all later episodes.

        The permutation of the signals stays as it is. Which signals are missing, frozen,
        meaningless or copied is drawn again only if a setting that decides it has changed.
        """
        self._base = settings
        self._apply_settings(self._get_current_settings())

    def shuffle(self) -> None:
        """Permute the signals among the input slots now.

        The setting `swap` says how many signals exchange their slots; 0 means all.
        """
        self._permutation.draw_permutation(self.settings.swap)
        self._update_sent_signals_and_ids()

    def check_settings_fit_observation(self, observation: Observation) -> None:
        """Check that all settings, also scheduled ones, can disturb a kind of observation.

        Args:
            observation: What the policy reads: "scalar channels", "image patches" or "images".

        Raises:
            ValueError: A setting cannot disturb it; the message names the setting.
        """
        for settings in iterate_scheduled_settings(self._base, self._schedule):
            settings.check_settings_fit_observation(observation)

    @property
    def shuffle_count(self) -> int:
        """How many times the signals have been permuted among the input slots in this episode."""
        return self._permutation.drawn

    @property
    def has_message_arrived(self) -> bool:
        """Whether a message arrived in the newest tick; if not, `disturb` repeated its result."""
        return self._delivery.arrived

    @property
    def is_message_new(self) -> bool:
        """Whether the newest tick brought a message that does not repeat an earlier one."""
        return self._delivery.new

    def draw_robot_stop(self, step_s: float) -> RobotStop | None:
        """Choose at random the period of this episode in which the robot is stopped; return it.

        Call it once after `start_episode`. The result is None if the settings have no stop.

        Args:
            step_s: The duration of one step in seconds.
        """
        return RobotStop.draw(self._streams.commands, self.settings, step_s)

    @property
    def signal_ids_by_slot(self) -> tuple[str, ...]:
        """For each input slot, the id of the channel whose signal the slot carries now, as (N,).

        As long as no signal has moved, slot i carries the signal of channel ``ids[i]``.
        """
        return tuple(self.ids[i] for i in self._permutation.signals)

    def disturb(self, values: NDArray[np.float32], ids: Sequence[str]) -> Message:
        """Disturb the readings of one tick, and return what arrives at the policy.

        The ids are returned as the same tuple object while they do not change.

        Args:
            values: The readings (n,).
            ids: Their channels' ids (n,).

        Returns:
            A pair: the readings (m,) that arrive, and the ids (m,) under which they arrive. These
            are the ids of the input slots, or with the setting `announce` those of the signals.
        """
        return self._delivery.send_and_get_newest_arrived(
            self._disturb_tick(values, ids), self.settings
        )

    def _disturb_tick(self, values: NDArray[np.float32], ids: Sequence[str]) -> Message:
        """Return the disturbed readings of a tick and their ids, as they are sent to the policy.

        The simulated transport may still lose this message, or deliver an earlier one instead.

        Args:
            values: The readings (n,).
            ids: Their channels' ids (n,).
        """
        if self._schedule and any(change.step == self._step for change in self._schedule):
            self._apply_settings(self._get_current_settings())
        every = self.settings.shuffle.every
        if every and self._step and self._step % every == 0:
            self.shuffle()
        self._step += 1
        if ids is not self._came:
            self._update_position_of_each_signal(tuple(ids))
        values = np.asarray(values, np.float32)
        if self._moves_only:
            return values[self._from[self._carried]], self._names
        signals = np.full(len(self.ids), np.nan, dtype=np.float32)
        signals[self._known] = values[self._from[self._known]]
        if self._faults.active:
            signals = self._faults.add_faults(signals)
        if self._missing_as_nan:
            signals[~self._present] = np.nan
        slots, names = signals[self._carried], self._names
        if self._missing is not None:
            present = ~self._missing[self._carried]
            slots, names = slots[present], tuple(compress(names, present.tolist()))
        if len(self._copied):
            slots = np.concatenate([slots, signals[self._copied]])
            names = self._copies_named if names is self._names else names + self._copy_ids
        if not self._noise_ids:
            return slots, names
        named = self._named if names is self._copies_named else names + self._noise_ids
        noise = _draw_normal_noise(
            self._streams.noise, self.settings.noise_sd, len(self._noise_ids)
        )
        return np.concatenate([slots, noise]), named

    def plan_episode_disturbances(self, steps: int) -> DisturbancePlan:
        """Choose at random an episode's shuffles, missing channels, copied channels and noise.

        Call it right after `start_episode`, and do not call `disturb` in the same episode, because
        both draw the same random numbers. The disturber must have no schedule of changes.

        Args:
            steps: The number of ticks, from the start of the episode, for which to choose.
        """
        assert not self._schedule
        every = self.settings.shuffle.every
        signals = [self._permutation.signals]
        for _ in range((steps - 1) // every if every else 0):
            self._permutation.draw_permutation(self.settings.swap)
            signals.append(self._permutation.signals)
        shape = steps, len(self._noise_ids)
        noise = _draw_normal_noise(self._streams.noise, self.settings.noise_sd, shape)
        return DisturbancePlan(np.array(signals), self._present, noise, self._copied)

    def disturb_episode(self, readings: NDArray[np.float32]) -> DisturbedEpisode:
        """Disturb a whole recorded episode at once, as calls of `disturb` would do tick by tick.

        Call it right after `start_episode`, and do not call `disturb` in the same episode, because
        both draw the same random numbers. There must be no schedule. The setting `announce`, by
        which ids move along with their signals, must be off.

        Args:
            readings: (T, N) the readings in the order of `ids`.
        """
        assert not self._schedule and not self.settings.announce
        (ticks, count) = readings.shape
        settings = self.settings
        plan = self.plan_episode_disturbances(len(readings))
        signals = self._faults.add_faults_to_episode(np.asarray(readings, np.float32))
        signals[:, ~self._present] = np.nan
        carried = np.repeat(plan.signals, settings.shuffle.every or ticks, 0)[:ticks]
        nominal, copies = np.take_along_axis(signals, carried, 1), signals[:, plan.copied]
        shows = np.arange(count)
        shows[self._faults.meaningless_signal_indices] = count
        added = np.concatenate([shows[plan.copied], np.full(plan.noise.shape[1], count)])
        shown = np.concatenate([shows[carried], np.tile(added, (ticks, 1))], 1)
        steps, sent = self._delivery.draw_arrival_and_sending_ticks(ticks, settings)
        values = np.concatenate([nominal, copies, plan.noise], 1)
        return DisturbedEpisode(values[sent], shown[sent], steps)

    def _get_current_settings(self) -> DisturbanceSettings:
        """Return the settings of the present step, with a number drawn for each range."""
        settings = self._base
        for change in self._schedule:
            if change.step <= self._step:
                settings = replace(settings, **change.values)
        return settings.draw_numbers_from_ranges(self._streams)

    def _apply_settings(self, settings: DisturbanceSettings) -> None:
        """Replace the settings of the present step.

        A random choice, such as that of the missing signals, is made again only if a setting on
        which it depends has changed.
        """
        old, self.settings = self.settings, settings
        if settings.missing != old.missing:
            missing = settings.missing.value
            self._present = draw_present_mask(self._streams.missing, len(self.ids), missing)
        if settings.freeze != old.freeze:
            self._faults.freeze_random_signals(settings.freeze.value)
        if settings.garbage != old.garbage:
            self._faults.replace_random_signals_by_garbage(settings.garbage.value)
        if settings.copies != old.copies or settings.missing != old.missing:
            self._copied = draw_indices_to_copy(
                self._streams.copies, self._present, settings.copies.whole_number
            )
        self._faults.change_settings(settings)
        self._update_sent_signals_and_ids()

    def _update_sent_signals_and_ids(self) -> None:
        """Compute and store which signals are sent to the policy, and under which channel ids.

        Call it after each change of the permutation or the settings.
        """
        settings, signals = self.settings, self._permutation.signals
        slots = np.flatnonzero(self._present[signals] | self._missing_as_nan)
        self._carried = signals[slots]
        named_by = self._carried if settings.announce else slots
        self._names = tuple(self.ids[i] for i in named_by)
        self._copy_ids = self._make_ids_of_added_channels(COPY_PREFIX, len(self._copied))
        self._noise_ids = self._make_ids_of_added_channels(
            NOISE_PREFIX, settings.noise_channels.whole_number
        )
        self._copies_named = self._names + self._copy_ids if self._copy_ids else self._names
        self._named = self._copies_named + self._noise_ids
        self._update_whether_only_moves_disturb()

    def _make_ids_of_added_channels(self, prefix: str, count: int) -> tuple[str, ...]:
        """Return the first ids PREFIX0, PREFIX1, ... that the robot's own channels do not have."""
        free = (name for i in iterate_from_zero() if (name := f"{prefix}{i}") not in self._index)
        return tuple(islice(free, count))

    def _update_whether_only_moves_disturb(self) -> None:
        """Store whether moved signals are the only disturbance; `disturb` then does less work."""
        added = self._copy_ids or self._noise_ids
        gaps = self._missing_as_nan and not self._present.all()
        self._moves_only = not (self._faults.active or added or gaps) and self._missing is None

    def _update_position_of_each_signal(self, reading_ids: tuple[str, ...]) -> None:
        """Find and store, for each nominal channel, the index of its signal in the given readings.

        Call it whenever readings with other channel ids are given than in the tick before.

        Args:
            reading_ids: The channel ids of the given readings, in the order of the readings.
        """
        self._from = np.full(len(self.ids), -1, dtype=np.intp)
        for i, name in enumerate(reading_ids):
            if name in self._index:
                self._from[self._index[name]] = i
        self._known = self._from >= 0
        self._missing = None if self._known.all() else ~self._known
        self._came = reading_ids
        self._update_whether_only_moves_disturb()
