"""What rewiring, noise and loss do to readings: pure, seeded, the same live and offline.

Two random things never share a stream: asking for noise channels or faults does not change
which permutations an episode draws. Everything follows from (seed, episode, step) alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import compress
from reprlib import repr as short
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

NOISE_PREFIX = "noise."
COPY_PREFIX = "copy."


def episode_seed(seed: int, episode: int) -> int:
    """The seed (0 .. 2**31-1) that episode `episode` of a run gives to `env.reset(seed=...)`."""
    return int(np.random.SeedSequence([seed, episode]).generate_state(1)[0] >> 1)


@dataclass(frozen=True)
class Shuffle:
    """When contents are permuted: at the reset, and every `every` steps after it (0 = never)."""

    at_reset: bool = False
    every: int = 0

    def __str__(self) -> str:
        """The text that `parse` takes."""
        every = str(self.every) if self.every else ""
        return "+".join(filter(None, ("reset" if self.at_reset else "", every))) or "none"

    @classmethod
    def parse(cls, text: str) -> Shuffle:
        """`none`, `reset`, `K` (every K steps, nominal at first) or `reset+K` (both).

        Raises ValueError naming the text and what was allowed.
        """
        start, _, rest = text.strip().partition("+")
        if start == "none" and not rest:
            return cls()
        if start == "reset" and (rest or text.strip() == "reset"):
            return cls(True, _steps(rest, text) if rest else 0)
        return cls(False, _steps(text.strip(), text))


@dataclass(frozen=True)
class DisturbanceSettings:
    """What is done to the readings; the default does nothing.

    shuffle         when the contents behind the ids are permuted
    swap            how many contents move at each permutation, 0 = all
    announce        the ids move along with their contents (the order changes, the meaning stays)
    noise_channels  channels `noise.0` ... of normal noise with `noise_sd`, added after the shuffle
    copies          channels `copy.0` ... that each repeat a channel's content, drawn anew each
                    episode, none twice before all are; they stay where they are
    drop            share of the channels that is absent, drawn anew each episode
    freeze          share of the channels that keeps its first value, drawn anew each episode
    delay           ticks by which every content comes late (the first value until then)
    jitter          sd of normal noise on every content
    spike, nan      chance of one reading to get a spike of `spike_sd` (normal), or to be NaN
    """

    shuffle: Shuffle = Shuffle()
    announce: bool = False
    noise_channels: int = 0
    noise_sd: float = 0.1
    drop: float = 0.0
    freeze: float = 0.0
    delay: int = 0
    spike: float = 0.0
    spike_sd: float = 5.0
    nan: float = 0.0
    copies: int = 0
    swap: int = 0
    jitter: float = 0.0

    def __post_init__(self) -> None:
        for name in ("drop", "freeze", "spike", "nan"):
            value = getattr(self, name)
            if not 0.0 <= value <= 1.0:
                raise ValueError(f"{name}: {value} (allowed: a share from 0 to 1)")
        for name in ("noise_channels", "copies", "delay", "noise_sd", "spike_sd", "jitter"):
            value = getattr(self, name)
            if not 0 <= value < np.inf:
                raise ValueError(f"{name}: {value} (allowed: 0 or more)")
        if self.swap < 0 or self.swap == 1:
            raise ValueError(f"swap: {self.swap} (allowed: 0, all contents, or 2 and more)")

    @property
    def active(self) -> bool:
        """True where these settings change anything at all."""
        return self != DisturbanceSettings(
            announce=self.announce, noise_sd=self.noise_sd, spike_sd=self.spike_sd
        )


class Change(NamedTuple):
    """From this step of every episode on, these settings have other values."""

    step: int
    values: Mapping[str, Any]


class Plan(NamedTuple):
    """An episode's scrambling in advance; slots and contents are places in `Disturber.ids`."""

    sources: NDArray[np.intp]
    """(B, N): the content that each slot shows, a row for every `shuffle.every` steps."""
    kept: NDArray[np.bool_]
    """(N,): False where a content is absent."""
    noise: NDArray[np.float32]
    """(steps, K): the noise channels' readings."""
    copied: NDArray[np.intp]
    """(C,): the contents that the copies repeat."""


class Disturber:
    """Scrambles the readings of one robot, tick by tick.

    `ids` are all channel ids of the nominal wiring (N of them), in any order: what happens to a
    channel depends on the set of ids alone. A tick may bring fewer, in another order; a slot
    shows nothing while the content behind it is absent. Unknown ids are left out. `schedule`
    are changes of the settings during each episode.
    """

    def __init__(
        self,
        ids: Sequence[str],
        settings: DisturbanceSettings,
        seed: int,
        schedule: Sequence[Change] = (),
    ) -> None:
        self._base, self._schedule = settings, tuple(sorted(schedule, key=lambda one: one.step))
        self.ids = tuple(sorted(ids))
        """(N,) the nominal ids in the order that `order` follows."""
        self._index = {name: i for i, name in enumerate(self.ids)}
        self._came: tuple[str, ...] | None = None
        self._seed = seed
        self.reset(0)

    def reset(self, episode: int) -> None:
        """Start an episode: step 0, and all random streams anew from (seed, episode)."""
        root = np.random.SeedSequence([self._seed, episode, 1])
        streams = map(np.random.default_rng, root.spawn(6))
        shuffle, dropped, noise, faults, copied, self._jitter_rng = streams
        self._shuffle_rng, self._noise_rng, self._fault_rng = shuffle, noise, faults
        self._drop_rng, self._copy_rng = dropped, copied
        self._step = 0
        self.shuffles = 0
        """How often the contents were permuted in this episode."""
        self._source = np.arange(len(self.ids))
        self._late: deque[NDArray[np.float32]] = deque()
        self.settings = self._scheduled()
        """Those of this step."""
        self._draw_dropped()
        self._draw_frozen()
        self._draw_copied()
        if self.settings.shuffle.at_reset:
            self._source = self._permutation()
        self._arrange()

    def change(self, settings: DisturbanceSettings) -> None:
        """Other settings from the next tick on, in this episode and all that follow.

        What no setting has changed stays: the contents' places, which channels are lost or frozen.
        """
        self._base = settings
        self._adopt(self._scheduled())

    def shuffle(self) -> None:
        """Permute the contents now."""
        self._source = self._permutation()
        self._arrange()

    @property
    def order(self) -> tuple[str, ...]:
        """(N,) the truth: slot i (nominal id i) shows the content of channel `order[i]`."""
        return tuple(self.ids[i] for i in self._source)

    def apply(
        self, values: NDArray[np.float32], ids: Sequence[str]
    ) -> tuple[NDArray[np.float32], tuple[str, ...]]:
        """One tick: readings (n,) and their ids in, scrambled readings (m,) and ids out.

        The ids come back as the same tuple object while they do not change.
        """
        if any(change.step == self._step for change in self._schedule):
            self._adopt(self._scheduled())
        every = self.settings.shuffle.every
        if every and self._step and self._step % every == 0:
            self.shuffle()
        self._step += 1
        if ids is not self._came:
            self._place(tuple(ids))
        contents = np.full(len(self.ids), np.nan, dtype=np.float32)
        contents[self._to] = np.asarray(values, np.float32)[self._from]
        if self._faulty:
            contents = self._fault(contents)
        slots, names = contents[self._shown], self._names
        if self._missing is not None:
            present = ~self._missing[self._shown]
            slots, names = slots[present], tuple(compress(names, present.tolist()))
        if len(self._copied):
            slots = np.concatenate([slots, contents[self._copied]])
            names = self._copies_named if names is self._names else names + self._copy_ids
        if not self._noise_ids:
            return slots, names
        noise = self._noise_rng.normal(0.0, self.settings.noise_sd, len(self._noise_ids))
        named = self._named if names is self._copies_named else names + self._noise_ids
        return np.concatenate([slots, noise.astype(np.float32)]), named

    def plan(self, steps: int) -> Plan:
        """What `apply` does to shuffles, drops, copies and noise in the first `steps` ticks.

        Call it right after `reset`, in place of `apply`: it takes the same random numbers. There
        must be no schedule.
        """
        assert not self._schedule
        every = self.settings.shuffle.every
        sources = [self._source]
        for _ in range((steps - 1) // every if every else 0):
            self._source = self._permutation()
            sources.append(self._source)
        shape = steps, len(self._noise_ids)
        noise = self._noise_rng.normal(0.0, self.settings.noise_sd, shape).astype(np.float32)
        return Plan(np.array(sources), self._kept, noise, self._copied)

    def _scheduled(self) -> DisturbanceSettings:
        """The settings of this step."""
        settings = self._base
        for change in self._schedule:
            if change.step <= self._step:
                settings = replace(settings, **change.values)
        return settings

    def _adopt(self, settings: DisturbanceSettings) -> None:
        """Draw anew what a changed setting decides, and nothing else."""
        old, self.settings = self.settings, settings
        if settings.drop != old.drop:
            self._draw_dropped()
        if settings.freeze != old.freeze:
            self._draw_frozen()
        if settings.copies != old.copies or settings.drop != old.drop:
            self._draw_copied()
        self._arrange()

    def _permutation(self) -> NDArray[np.intp]:
        """The contents' new places: all drawn anew, or a few of them moved around in a ring."""
        self.shuffles += 1
        places = self._shuffle_rng.permutation(len(self.ids))
        if not self.settings.swap:
            return places
        some, moved = places[: self.settings.swap], self._source.copy()
        moved[some] = self._source[np.roll(some, 1)]
        return moved

    def _draw_dropped(self) -> None:
        count = len(self.ids)
        self._kept = np.ones(count, dtype=bool)
        self._kept[self._drop_rng.permutation(count)[: round(self.settings.drop * count)]] = False

    def _draw_frozen(self) -> None:
        count = len(self.ids)
        drawn = self._fault_rng.permutation(count)[: round(self.settings.freeze * count)]
        self._frozen = np.sort(drawn)
        self._held = np.full(count, np.nan, dtype=np.float32)

    def _draw_copied(self) -> None:
        copies, kept = self.settings.copies, np.flatnonzero(self._kept)
        rounds = -(-copies // len(kept)) if len(kept) else 0
        drawn = [self._copy_rng.permutation(kept) for _ in range(rounds)]
        self._copied = np.concatenate([kept[:0], *drawn])[:copies]

    def _arrange(self) -> None:
        """Fix, until something changes, which contents are shown under which names."""
        settings = self.settings
        self._noise_ids = tuple(f"{NOISE_PREFIX}{i}" for i in range(settings.noise_channels))
        self._copy_ids = tuple(f"{COPY_PREFIX}{i}" for i in range(len(self._copied)))
        faults = (
            settings.freeze, settings.delay, settings.spike, settings.nan, settings.jitter,
        )  # fmt: skip
        self._faulty = any(faults)
        self._late = deque(self._late if self._faulty else (), maxlen=settings.delay + 1)
        slots = np.flatnonzero(self._kept[self._source])
        self._shown = self._source[slots]
        named_by = self._shown if self.settings.announce else slots
        self._names = tuple(self.ids[i] for i in named_by)
        copied = len(self._copied) > 0
        self._copies_named = self._names + self._copy_ids if copied else self._names
        self._named = self._copies_named + self._noise_ids

    def _place(self, ids: tuple[str, ...]) -> None:
        """Note, for as long as the same ids come, where each reading belongs."""
        places = [(i, self._index[name]) for i, name in enumerate(ids) if name in self._index]
        self._from = np.array([i for i, _ in places], dtype=np.intp)
        self._to = np.array([place for _, place in places], dtype=np.intp)
        missing = np.ones(len(self.ids), dtype=bool)
        missing[self._to] = False
        self._missing = missing if missing.any() else None
        self._came = ids

    def _fault(self, contents: NDArray[np.float32]) -> NDArray[np.float32]:
        settings, rng = self.settings, self._fault_rng
        self._late.append(contents.copy())
        faulty = self._late[0].copy()
        if len(self._frozen):
            held = self._held[self._frozen]
            held = np.where(np.isnan(held), faulty[self._frozen], held)
            self._held[self._frozen] = faulty[self._frozen] = held
        if settings.jitter:
            sway = self._jitter_rng.normal(0.0, settings.jitter, len(faulty))
            faulty += sway.astype(np.float32)
        if settings.spike:
            struck = rng.random(len(faulty)) < settings.spike
            faulty += struck * rng.normal(0.0, settings.spike_sd, len(faulty)).astype(np.float32)
        if settings.nan:
            faulty[rng.random(len(faulty)) < settings.nan] = np.nan
        return faulty


def _steps(number: str, text: str) -> int:
    if not number.isdecimal() or int(number) == 0:
        raise ValueError(f"shuffle: {short(text)} (allowed: none, reset, K, reset+K; K steps >= 1)")
    return int(number)
