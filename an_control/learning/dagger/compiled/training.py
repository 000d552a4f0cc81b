"""Imitation for compiled environments: DAgger (Ross et al. 2011) by truncated back-propagation.

A round records episodes that the teacher and the student drive in turns, the teacher's action
beside every step, and then goes on with Adam on pieces of recorded episodes. A round follows from
the seed, its number and the student before it; so a run is resumed from the students of all its
rounds, from which what they recorded is played again.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from an_control.disturbance import DisturbanceSettings
from an_control.learning.dagger.compiled.gradient import (
    Parameters,
    Tape,
    backward,
    forward,
    tape,
)
from an_control.learning.dagger.compiled.memory import Memory, show
from an_control.learning.es.parametrisation import Authors, join, split
from an_control.learning.rollout.compiled.engine import FusedEngine, can_disturb
from an_control.learning.rollout.engine import NOTHING, training_starts
from an_control.learning.rollout.protocol import words
from an_control.policy import Model

F32 = np.float32
LANES = 16


@dataclass(frozen=True)
class Cloning:
    """A run's numbers."""

    form: Authors = field(default_factory=Authors)
    rounds: int = 240
    updates: int = 170
    first_episodes: int = 1024
    episodes: int = 64
    """A round's, after the first."""
    memory: int = 4096
    """Episodes that are kept, the newest."""
    batch: int = 32
    steps: int = 100
    """Of a piece."""
    short: int = 200
    """Most sequences end here."""
    long_share: float = 0.4
    """The others go on to their episodes' ends."""
    rate: float = 1e-2
    final_rate: float = 3e-4
    channel_loss: float = 0.3
    channel_until: float = 0.6
    """The share of the run at which the channels' loss has faded out."""
    mixture: tuple[DisturbanceSettings, ...] = (NOTHING,)
    """What episodes are disturbed by, one of them drawn for each round."""

    def progress(self, number: float) -> float:
        return number / max(1, self.rounds)


class Cloner:
    """The student and its training, round by round."""

    def __init__(
        self,
        engine: FusedEngine,
        teacher: Model,
        task: dict[str, Any],
        settings: Cloning,
        seed: int,
        start: np.ndarray | None = None,
    ) -> None:
        """`start` is the form's vector to begin with; random numbers without."""
        for scrambling in settings.mixture:
            if not can_disturb(scrambling):
                raise ValueError(f"shuffle: {words(scrambling)}, which no compiled rollout plays")
        self._engine, self._teacher, self._task = engine, teacher, task
        self.settings, self.seed = settings, seed
        form, channels = settings.form, len(engine.channels)
        if form.hidden_layers:
            raise ValueError("the student's head has one layer here")
        if form.neuron % 8:
            raise ValueError(f"neuron: {form.neuron}, allowed here are multiples of 8")
        self._shapes = form.shapes | {
            "channel": (channels, form.neuron),
            "channel_bias": (channels,),
        }
        self._vector = self._begin()
        if start is not None:
            self._vector[: len(start)] = start
        self._first, self._second = np.zeros((2, len(self._vector)))
        self._updates = 0
        self.history: list[np.ndarray] = []
        added = max(one.copies + one.noise_channels for one in settings.mixture)
        slots = channels + added
        self._memory = Memory(settings.memory, engine.batch.steps, slots, form.actions)
        self._threads = ThreadPoolExecutor(max(1, settings.batch // LANES))
        self._tapes = [
            tape(
                settings.steps,
                slots,
                form.neuron,
                form.queries,
                form.actions,
                LANES,
                not form.stack,
            )
            for _ in range(settings.batch // LANES)
        ]

    @property
    def student(self) -> np.ndarray:
        """The form's vector."""
        return self._vector[: self.settings.form.size]

    def model(self, trained: dict[str, Any]) -> Model:
        return self.settings.form.model(self.student, self._task, trained)

    def state(self) -> dict[str, Any]:
        """All that a resumed run needs."""
        return {
            "vector": self._vector,
            "first": self._first,
            "second": self._second,
            "updates": self._updates,
            "history": self.history,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a state: what its rounds recorded is recorded again."""
        for number, student in enumerate(state["history"]):
            self._record(number, student)
        self._vector, self._first, self._second = state["vector"], state["first"], state["second"]
        self._updates, self.history = state["updates"], list(state["history"])

    def round(self) -> dict[str, float]:
        """Record, then learn; the figures of the round."""
        number, settings = len(self.history), self.settings
        self.history.append(self.student.copy())
        self._record(number, self.student)
        rng = np.random.default_rng([self.seed, number, 1])
        losses = np.zeros(3)
        sequences = self._sequences(rng)
        for update in range(settings.updates):
            progress = settings.progress(number + update / settings.updates)
            losses += self._update(*next(sequences), progress)
        return {"action_loss": losses[0] / losses[2], "channel_loss": losses[1] / losses[2]}

    def close(self) -> None:
        self._threads.shutdown()

    def _begin(self) -> np.ndarray:
        rng, d = np.random.default_rng([self.seed, 0, 2]), self.settings.form.neuron
        arrays = {name: rng.uniform(-0.35, 0.35, shape) for name, shape in self._shapes.items()}
        if not self.settings.form.stack:  # remember by default
            arrays["neuron.bias"][d : 2 * d] += 1.0
        arrays["scores"] = rng.normal(0.0, 0.8, arrays["scores"].shape)
        arrays["head.0.weight"] = rng.normal(0.0, 0.25, arrays["head.0.weight"].shape)
        arrays["head.0.bias"] = np.zeros(self.settings.form.actions)
        arrays["channel"] = rng.normal(0.0, 0.1, arrays["channel"].shape)
        return join(arrays, self._shapes)

    def _record(self, number: int, student: np.ndarray) -> None:
        """A round's episodes: whole ones by the teacher, mixed ones, whole ones by the student."""
        settings, rng = self.settings, np.random.default_rng([self.seed, number, 0])
        count = settings.episodes if number else settings.first_episodes
        limit = self._engine.batch.steps
        taught = max(0.1, 0.5 - settings.progress(number)) if number else 0.75
        kind, brief = rng.random(count), rng.exponential(100.0, count).astype(np.int64)
        teaching = np.zeros((count, 2), np.int64)
        teaching[kind < taught, 1] = limit
        mixed = (kind >= taught) & (kind < taught + 0.6 * (1.0 - taught))
        at_first = rng.random(count) < 0.5
        teaching[mixed & at_first, 1] = brief[mixed & at_first]
        teaching[mixed & ~at_first] = np.stack(
            [brief[mixed & ~at_first], np.full((mixed & ~at_first).sum(), limit)], 1
        )
        mixture = settings.mixture
        scrambling = mixture[int(rng.integers(len(mixture)))] if len(mixture) > 1 else mixture[0]
        model = settings.form.model(student, self._task, {})
        recording, conditions, steps = self._engine.record(
            model, self._teacher, training_starts(rng, count), scrambling, teaching
        )
        shown = show(recording.observations, conditions, self._memory.observations.shape[2])
        self._memory.add(*shown, recording.actions, recording.labels, steps)

    def _sequences(self, rng: np.random.Generator) -> Iterator[tuple[np.ndarray, int]]:
        """Episodes and where their next piece begins; 0 where new ones do."""
        settings, memory = self.settings, self._memory
        while True:
            chosen = rng.integers(0, len(memory), settings.batch)
            end = (
                memory.steps[chosen].max() if rng.random() < settings.long_share else settings.short
            )
            enough = max(4, settings.batch // 8)
            for begin in range(0, int(end), settings.steps):
                if (memory.steps[chosen] > begin).sum() < enough:
                    break
                yield chosen, begin

    def _update(self, chosen: np.ndarray, begin: int, progress: float) -> np.ndarray:
        """One step of Adam; the sums of both losses, and of the steps they count."""
        settings = self.settings
        share = settings.channel_loss * max(0.0, 1.0 - progress / settings.channel_until)
        weights = self._weights()
        groups = np.split(chosen, len(self._tapes))
        parts = list(
            self._threads.map(
                lambda pair: self._part(weights, pair[0], pair[1], begin, share),
                zip(groups, self._tapes, strict=True),
            )
        )
        counted = max(1.0, sum(part[2] for part in parts))
        gradient = sum(part[3] for part in parts) / counted
        norm = float(np.linalg.norm(gradient))
        gradient = gradient / max(1.0, norm)
        self._updates += 1
        self._first = 0.9 * self._first + 0.1 * gradient
        self._second = 0.999 * self._second + 0.001 * gradient**2
        rate = settings.final_rate + (settings.rate - settings.final_rate) * 0.5 * (
            1.0 + np.cos(np.pi * progress)
        )
        mean = self._first / (1.0 - 0.9**self._updates)
        scale = np.sqrt(self._second / (1.0 - 0.999**self._updates)) + 1e-8
        self._vector = self._vector - rate * mean / scale
        return np.array([sum(part[i] for part in parts) for i in range(3)])

    def _part(
        self, weights: Parameters, chosen: np.ndarray, room: Tape, begin: int, share: float
    ) -> tuple[float, float, float, np.ndarray]:
        """One group of lanes: both losses, the steps counted, the gradient of the vector."""
        sizes = self.settings.form.sizes
        piece = self._memory.piece(chosen, begin, self.settings.steps, sizes)
        if begin == 0:
            room.h[0], room.c[0] = 0.0, 0.0
        else:
            room.h[0], room.c[0] = room.h[self.settings.steps], room.c[self.settings.steps]
        forward(weights, piece, room)
        gradient = Parameters(*(np.zeros((*array.shape, LANES), F32) for array in weights))
        loss, mistaken = backward(weights, piece, room, F32(share), gradient)
        sums = dict(
            zip(Parameters._fields, (g.sum(-1, dtype=np.float64) for g in gradient), strict=True)
        )
        arrays = {
            "neuron.input": sums["input"],
            "neuron.action": sums["action"],
            "neuron.hidden": sums["hidden"],
            "neuron.bias": sums["bias"],
            "scores": self.settings.form.scores_basis.T @ sums["scores"],
            "head.0.weight": sums["out"],
            "head.0.bias": sums["out_bias"],
            "channel": sums["channel"],
            "channel_bias": sums["channel_bias"],
        }
        return loss, mistaken, float(piece.counts.sum()), join(arrays, self._shapes)

    def _weights(self) -> Parameters:
        arrays = split(self._vector, self._shapes)
        scores = self.settings.form.scores_basis @ arrays["scores"]
        return Parameters(
            *(
                np.ascontiguousarray(array, F32)
                for array in (
                    arrays["neuron.input"],
                    arrays["neuron.action"],
                    arrays.get("neuron.hidden", np.zeros((self.settings.form.neuron, 0))),
                    arrays["neuron.bias"],
                    scores,
                    arrays["head.0.weight"],
                    arrays["head.0.bias"],
                    arrays["channel"],
                    arrays["channel_bias"],
                )
            )
        )
