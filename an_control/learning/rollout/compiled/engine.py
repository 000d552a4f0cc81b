"""The fused engine: compiled rollouts on as many threads as asked for."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from an_control.disturbance import SETTINGS, DisturbanceSettings, Disturber
from an_control.learning.rollout.compiled.loop import (
    Conditions,
    as_they_are,
    run,
)
from an_control.learning.rollout.compiled.policies import BATCH
from an_control.learning.rollout.engine import NOTHING, Outcomes, Start
from an_control.policy import AttentionSizes, MlpSizes, Model
from an_control.policy.packed_weights import KernelOptions, PackedWeights, pack_head, pack_weights
from an_control_sim.gym.environments import Batch

CHUNK = 1024
"""Episodes at a time: bounds the memory that their disturbance takes."""
SHARES = 2
"""Calls for each thread, so that none waits long for another."""


NO_HINTS = np.zeros((0, 0, 0), np.float32)


class Hints(NamedTuple):
    """What neurons are told about their channels, in training alone: P candidates, R episodes."""

    codes: np.ndarray
    """(P, N, 4d) float32: what a channel's neuron adds to its gates, as in `PackedWeights`."""
    hinted: np.ndarray
    """(R, N) float32: 1 where a channel's neuron is told, else 0."""


class FusedEngine:
    """Plays the episodes of a `Batched` environment, 64 side by side."""

    def __init__(
        self, batch: Batch, channels: Sequence[str], actions: int, threads: int | None = None
    ) -> None:
        self.batch, self.channels, self.actions = batch, tuple(channels), actions
        self._pool = ThreadPoolExecutor(threads or os.cpu_count())

    def close(self) -> None:
        self._pool.shutdown()

    def play(
        self,
        models: Sequence[Model],
        starts: Sequence[Start],
        disturbance: DisturbanceSettings = NOTHING,
        hints: Hints | None = None,
    ) -> Outcomes:
        """See `Engine`; ValueError where the disturbance is not `compiled`.

        With `hints` the models are LSTM policies of the same sizes. ValueError for an MLP of
        another number of channels.
        """
        for model in models:
            wide = getattr(model.sizes, "channels", len(self.channels))
            if wide != len(self.channels):
                raise ValueError(f"{len(self.channels)} readings for {wide} inputs in order")
        returns = np.zeros((len(models), len(starts)))
        steps = np.zeros(returns.shape, np.int64)
        teams = _teams(models)
        for begin in range(0, len(starts), CHUNK):
            part = starts[begin : begin + CHUNK]
            states, conditions = self.states(part), self.conditions(part, disturbance)
            if hints is not None:
                here = slice(begin, begin + len(part))
                conditions = conditions._replace(hinted=hints.hinted[here])
            tasks = []
            for rows, team in teams:
                for some, few in self._shares(len(rows), len(part)):
                    where = np.ix_(rows[some], np.arange(begin, begin + len(part))[few])
                    told = NO_HINTS if hints is None else hints.codes[rows[some]]
                    what = team.select(some), told, states[few], _part(conditions, few)
                    tasks.append((where, self._pool.submit(self._run, *what)))
            for where, task in tasks:
                returns[where], steps[where] = task.result()
        failed = bool(np.isnan(returns).any())
        return Outcomes(returns, steps, "a reward or reading was not finite" if failed else None)

    def states(self, starts: Sequence[Start]) -> np.ndarray:
        """The episodes' first states (R, S)."""
        return np.array([self.batch.start(start.environment) for start in starts])

    def conditions(self, starts: Sequence[Start], disturbance: DisturbanceSettings) -> Conditions:
        """What the disturbance does to these episodes, episode by episode."""
        if disturbance == NOTHING:
            return as_they_are()
        if not disturbance.compiled:
            able = ", ".join(one.word for one in SETTINGS if one.compiled)
            raise ValueError(
                f"{disturbance}: compiled rollouts can do {able} alone;"
                " --engine processes can do all"
            )
        disturbance.check_channels(len(self.channels))
        signals, present, noise, copied = [], [], [], []
        disturbers: dict[int, Disturber] = {}
        for start in starts:
            if start.run not in disturbers:
                disturbers[start.run] = Disturber(
                    self.channels, disturbance, start.run, episode=None
                )
            disturber = disturbers[start.run]
            disturber.reset(start.episode)
            plan = disturber.plan(self.batch.steps)
            signals.append(plan.signals)
            present.append(plan.present)
            noise.append(plan.noise)
            copied.append(plan.copied)
        place = np.array([disturber.ids.index(name) for name in self.channels])
        channel = np.argsort(place)
        order = channel[np.array(signals)[:, :, place]]
        here, shuffle = np.array(present)[:, place].astype(np.float64), disturbance.shuffle
        shuffled = shuffle.at_reset or shuffle.every
        return Conditions(
            np.ascontiguousarray(order[: len(order) if shuffled else 0], np.int64),
            shuffle.every,
            np.array(noise),
            np.ascontiguousarray(here[: len(here) if disturbance.missing else 0]),
            np.ascontiguousarray(channel[np.array(copied, np.int64)], np.int64),
            as_they_are().hinted,
        )

    def _shares(self, models: int, episodes: int) -> list[tuple[slice, slice]]:
        """What one call plays, of models and of episodes: enough calls to busy all threads."""
        calls = SHARES * self._pool._max_workers
        if models >= calls:
            return [(some, slice(None)) for some in _slices(models, calls)]
        return [(slice(None), few) for few in _slices(episodes, min(calls, -(-episodes // BATCH)))]

    def _run(
        self,
        candidates: PackedWeights,
        hints: np.ndarray,
        states: np.ndarray,
        conditions: Conditions,
    ) -> tuple[np.ndarray, np.ndarray]:
        returns = np.zeros((len(candidates.head), len(states)))
        steps = np.zeros(returns.shape, np.int64)
        run(
            candidates,
            hints,
            self.batch.observe,
            self.batch.advance,
            states,
            len(self.channels),
            self.actions,
            self.batch.steps,
            conditions,
            returns,
            steps,
        )
        return returns, steps


def candidates_of(models: Sequence[Model]) -> PackedWeights:
    """The weights of models of the same sizes as the compiled rollout takes them."""
    sizes = models[0].sizes
    arrays = {
        name: np.stack([model.arrays[name] for model in models], dtype=np.float64)
        for name in sizes.shapes()
    }
    if isinstance(sizes, AttentionSizes):
        if not sizes.compiles_in_rollouts:
            raise ValueError(
                "compiled rollouts know no memory, recurrence, reset on jump, encoder or pma"
                " attention"
            )
        return pack_weights(sizes, arrays)
    assert isinstance(sizes, MlpSizes)
    head, widths = pack_head(arrays, len(sizes.head) + 1)
    form = KernelOptions(relu=sizes.activation == "relu", clip=sizes.output == "clip")
    none = np.zeros((len(models), 0, 0), np.float32)
    return PackedWeights(none, none, head, widths, form)


def _teams(models: Sequence[Model]) -> list[tuple[np.ndarray, PackedWeights]]:
    """Models of the same form and sizes together, with their places."""
    teams: dict[str, list[int]] = {}
    for place, model in enumerate(models):
        teams.setdefault(repr(model.sizes), []).append(place)
    return [
        (np.array(places), candidates_of([models[place] for place in places]))
        for places in teams.values()
    ]


def _slices(count: int, parts: int) -> list[slice]:
    """`count` things in at most `parts` parts of about the same size."""
    ends = [count * part // parts for part in range(parts + 1)]
    return [slice(begin, end) for begin, end in pairwise(ends) if end > begin]


def _part(conditions: Conditions, few: slice) -> Conditions:
    order, every, noise, present, copied, hinted = conditions
    return Conditions(order[few], every, noise[few], present[few], copied[few], hinted[few])
