"""Rollout engine that plays compiled rollouts on several threads."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from an_control.disturbance import SETTINGS, DisturbanceSettings, Disturber
from an_control.learning.rollout.compiled.loop import (
    RolloutConditions,
    make_undisturbed_conditions,
    run_rollouts,
)
from an_control.learning.rollout.compiled.policies import BATCH
from an_control.learning.rollout.engine import NO_DISTURBANCE, EpisodeSeeds, Outcomes
from an_control.policy import AttentionSizes, MlpSizes, Model
from an_control.policy.packed_weights import (
    KernelOptions,
    PackedWeights,
    pack_head_layers,
    pack_weights,
)
from an_control_sim.gym.environments import EnvironmentBatch

CHUNK = 1024
"""Number of episodes that are played at a time; it bounds the memory for their disturbances."""
SHARES = 2
"""Number of calls per thread, so that no thread waits long for another."""


NO_HINTS = np.zeros((0, 0, 0), np.float32)


class IdentityHints(NamedTuple):
    """Hints that tell sensory neurons, the channels' small networks, which channel they read.

    The sizes are P candidate policies, R episodes, N channels and d LSTM units.

    Attributes:
        codes: The hint of each channel, a vector that is added to its neuron's gates (P, N, 4d)
            float32, in the gate order of `PackedWeights`.
        hinted: Mask (R, N) float32, 1 if the channel's neuron gets its hint in the episode, else 0.
    """

    codes: np.ndarray
    hinted: np.ndarray


class FusedEngine:
    """Rollout engine that plays episodes in compiled code, 64 at once in each thread.

    Args:
        batch: The environment's compiled physics.
        channels: Ids of the observation's entries, in their order.
        actions: Number of actions.
        threads: Number of threads; by default one per core.
    """

    def __init__(
        self,
        batch: EnvironmentBatch,
        channels: Sequence[str],
        actions: int,
        threads: int | None = None,
    ) -> None:
        self.batch, self.channels, self.actions = batch, tuple(channels), actions
        self._pool = ThreadPoolExecutor(threads or os.cpu_count())

    def close(self) -> None:
        """Stop the threads."""
        self._pool.shutdown()

    def play(
        self,
        models: Sequence[Model],
        starts: Sequence[EpisodeSeeds],
        disturbance: DisturbanceSettings = NO_DISTURBANCE,
        hints: IdentityHints | None = None,
    ) -> Outcomes:
        """Play R episodes with each of P policies, and return the results of all.

        Args:
            models: The P policies; with `hints`, LSTM policies of the same sizes.
            starts: Seeds of each of the R episodes.
            disturbance: Disturbance of the readings.
            hints: Vectors that tell each sensory neuron (a channel's network) which channel it
                reads; None for none.

        Raises:
            ValueError: The disturbance is not supported by compiled code, or an MLP and the
                environment differ in the number of channels.
        """
        for model in models:
            wide = getattr(model.sizes, "channels", len(self.channels))
            if wide != len(self.channels):
                raise ValueError(
                    f"an MLP with {wide} inputs cannot act on {len(self.channels)} channels"
                )
        returns = np.zeros((len(models), len(starts)))
        steps = np.zeros(returns.shape, np.int64)
        teams = _group_model_indices_and_stacked_weights(models)
        for begin in range(0, len(starts), CHUNK):
            part = starts[begin : begin + CHUNK]
            states = self.make_initial_states(part)
            conditions = self.draw_disturbances_of_episodes(part, disturbance)
            if hints is not None:
                here = slice(begin, begin + len(part))
                conditions = conditions._replace(hinted=hints.hinted[here])
            tasks = []
            for rows, team in teams:
                for candidates, episodes in self._split_rollouts_into_calls(len(rows), len(part)):
                    columns = np.arange(begin, begin + len(part))[episodes]
                    where = np.ix_(rows[candidates], columns)
                    codes = NO_HINTS if hints is None else hints.codes[rows[candidates]]
                    what = (
                        team.select_policies(candidates),
                        codes,
                        states[episodes],
                        _select_episodes(conditions, episodes),
                    )
                    tasks.append(
                        (where, self._pool.submit(self._play_and_get_returns_and_steps, *what))
                    )
            for where, task in tasks:
                returns[where], steps[where] = task.result()
        failed = bool(np.isnan(returns).any())
        return Outcomes(returns, steps, "a reward or reading was not finite" if failed else None)

    def make_initial_states(self, starts: Sequence[EpisodeSeeds]) -> np.ndarray:
        """Return the states (R, S) of the simulated physics at the start of R episodes.

        A state has S numbers.

        Args:
            starts: Seeds of each episode, of which only the environment's seed is used.
        """
        return np.array([self.batch.start(start.environment) for start in starts])

    def draw_disturbances_of_episodes(
        self, starts: Sequence[EpisodeSeeds], disturbance: DisturbanceSettings
    ) -> RolloutConditions:
        """Draw the disturbance of each episode at random, and return it as arrays.

        Args:
            starts: Seeds of each episode.
            disturbance: Disturbance of the readings.

        Raises:
            ValueError: Compiled code does not support the disturbance.
        """
        if disturbance == NO_DISTURBANCE:
            return make_undisturbed_conditions()
        if not disturbance.is_supported_by_compiled_rollouts:
            able = ", ".join(one.word for one in SETTINGS if one.compiled)
            raise ValueError(
                f"{disturbance}: compiled rollouts support only {able}; use --engine processes"
            )
        disturbance.check_swap_count(len(self.channels))
        signals, present, noise, copied = [], [], [], []
        disturbers: dict[int, Disturber] = {}
        for start in starts:
            if start.run not in disturbers:
                disturbers[start.run] = Disturber(
                    self.channels, disturbance, start.run, episode=None
                )
            disturber = disturbers[start.run]
            disturber.start_episode(start.episode)
            plan = disturber.plan_episode_disturbances(self.batch.steps)
            signals.append(plan.signals)
            present.append(plan.present)
            noise.append(plan.noise)
            copied.append(plan.copied)
        place = np.array([disturber.ids.index(name) for name in self.channels])
        channel = np.argsort(place)
        order = channel[np.array(signals)[:, :, place]]
        here, shuffle = np.array(present)[:, place].astype(np.float64), disturbance.shuffle
        shuffled = shuffle.at_reset or shuffle.every
        return RolloutConditions(
            np.ascontiguousarray(order[: len(order) if shuffled else 0], np.int64),
            shuffle.every,
            np.array(noise),
            np.ascontiguousarray(here[: len(here) if disturbance.missing else 0]),
            np.ascontiguousarray(channel[np.array(copied, np.int64)], np.int64),
            make_undisturbed_conditions().hinted,
        )

    def _split_rollouts_into_calls(
        self, model_count: int, episode_count: int
    ) -> list[tuple[slice, slice]]:
        """Split rollouts into enough calls of the compiled code to keep all threads busy.

        Args:
            model_count: Number of candidates.
            episode_count: Number of episodes of each candidate.

        Returns:
            A pair for each call: the slice of the candidates, and the slice of the episodes.
        """
        calls = SHARES * self._pool._max_workers
        if model_count >= calls:
            return [(some, slice(None)) for some in _split_evenly(model_count, calls)]
        return [
            (slice(None), few)
            for few in _split_evenly(episode_count, min(calls, -(-episode_count // BATCH)))
        ]

    def _play_and_get_returns_and_steps(
        self,
        candidates: PackedWeights,
        hints: np.ndarray,
        states: np.ndarray,
        conditions: RolloutConditions,
    ) -> tuple[np.ndarray, np.ndarray]:
        """Play P candidates through R episodes, in one call of the compiled code.

        Args:
            candidates: Weights of the P candidates.
            hints: The field `codes` of `IdentityHints`, or `NO_HINTS`.
            states: Initial states (R, S) of the physics, S numbers each.
            conditions: The disturbances of the R episodes.

        Returns:
            The returns (P, R) and the numbers of steps (P, R).
        """
        returns = np.zeros((len(candidates.head), len(states)))
        steps = np.zeros(returns.shape, np.int64)
        run_rollouts(
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


def stack_weights(models: Sequence[Model]) -> PackedWeights:
    """Stack the weights of several models into arrays for compiled rollouts.

    The models must have the same sizes. The first index of each array of weights is the model.

    Raises:
        ValueError: The models have a part that compiled rollouts do not support.
    """
    sizes = models[0].sizes
    arrays = {
        name: np.stack([model.arrays[name] for model in models], dtype=np.float64)
        for name in sizes.list_array_shapes()
    }
    if isinstance(sizes, AttentionSizes):
        if not sizes.can_be_compiled_in_rollouts:
            raise ValueError(
                "compiled rollouts support no memory, recurrence, reset on jump, encoder or pma"
                " attention"
            )
        return pack_weights(sizes, arrays)
    assert isinstance(sizes, MlpSizes)
    head, widths = pack_head_layers(arrays, len(sizes.head) + 1)
    form = KernelOptions(relu=sizes.activation == "relu", clip=sizes.output == "clip")
    none = np.zeros((len(models), 0, 0), np.float32)
    return PackedWeights(none, none, head, widths, form)


def _group_model_indices_and_stacked_weights(
    models: Sequence[Model],
) -> list[tuple[np.ndarray, PackedWeights]]:
    """Group models of the same kind and sizes, and stack the weights of each group.

    Returns:
        A pair for each group: the indices of its models in `models`, and their stacked weights.
    """
    teams: dict[str, list[int]] = {}
    for place, model in enumerate(models):
        teams.setdefault(repr(model.sizes), []).append(place)
    return [
        (np.array(places), stack_weights([models[place] for place in places]))
        for places in teams.values()
    ]


def _split_evenly(count: int, parts: int) -> list[slice]:
    """Split `count` items into at most `parts` slices of about equal length."""
    ends = [count * part // parts for part in range(parts + 1)]
    return [slice(begin, end) for begin, end in pairwise(ends) if end > begin]


def _select_episodes(conditions: RolloutConditions, episodes: slice) -> RolloutConditions:
    """Return the disturbances of a slice of the episodes."""
    order, every, noise, present, copied, hinted = conditions
    return RolloutConditions(
        order[episodes],
        every,
        noise[episodes],
        present[episodes],
        copied[episodes],
        hinted[episodes],
    )
