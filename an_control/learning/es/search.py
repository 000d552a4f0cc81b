"""Search for a policy by its return alone: ask, play, tell, generation by generation.

A generation follows from the run's seed, its number and the optimiser's state before it. All its
candidates play the same episodes (common random numbers); a candidate whose rollouts failed takes
the worst rank. Every `validate_every` generations the mean plays the validation episodes, which
training never uses.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from an_control.disturbance import DisturbanceSettings
from an_control.learning.es.optimisers import Name, Optimiser, make_optimiser
from an_control.learning.es.parametrisation import Form
from an_control.learning.rollout.engine import (
    NOTHING,
    Engine,
    Outcomes,
    RolloutError,
    Start,
    evaluation_starts,
    training_starts,
)
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.policy import Model

VALIDATION_SEED = 2**20 + 7
"""Of the validation episodes; evaluations take others."""
Mixture = Sequence[DisturbanceSettings]
"""Conditions that share the episodes evenly."""
Curriculum = Callable[[int], Mixture]
"""The conditions of a generation, by its number."""


@dataclass(frozen=True)
class SearchSettings:
    """A run's numbers."""

    optimiser: Name = "cma"
    generations: int = 300
    population: int = 64
    rollouts: int = 16
    sigma: float = 0.1
    decay: float = 0.0
    """Times the squared length of a candidate is taken from its fitness."""
    mixture: tuple[DisturbanceSettings, ...] = (NOTHING,)
    """Each is that of as many episodes, where no curriculum says otherwise; validation plays all
    its episodes under each of them."""
    validate_every: int = 10
    validation_episodes: int = 100
    success: float | None = None
    """The return that counts as a success."""
    options: dict[str, float] = field(default_factory=dict)
    """Further settings of the optimiser."""


class Search:
    """A search as the run loop takes it: a step is a generation."""

    unit = "generation"

    def __init__(
        self,
        task: dict[str, Any],
        form: Form,
        engine: Engine,
        settings: SearchSettings,
        seed: int,
        start: np.ndarray | None = None,
        curriculum: Curriculum | None = None,
    ) -> None:
        """`start` (form.size,) is the first mean, zeros without; ValueError for bad settings."""
        if settings.rollouts < len(settings.mixture):
            raise ValueError(
                f"rollouts {settings.rollouts}: must be {len(settings.mixture)} or more, one for"
                " each of the conditions"
            )
        self.settings, self.seed = settings, seed
        self._task, self._form, self._engine, self._start = task, form, engine, start
        self._curriculum = curriculum or (lambda generation: settings.mixture)
        begin = np.zeros(form.size) if start is None else start
        self._optimiser: Optimiser = make_optimiser(
            settings.optimiser, begin, settings.sigma, settings.population, **settings.options
        )
        self.generation = self._played = 0

    @property
    def steps(self) -> int:
        return self.settings.generations

    @property
    def mean(self) -> np.ndarray:
        """The search distribution's mean."""
        return self._optimiser.centre

    @property
    def config(self) -> dict[str, Any]:
        """What decides the run, for its folder."""
        return {
            "task": self._task,
            "seed": self.seed,
            "form": repr(self._form),
            "settings": asdict(self.settings),
            "start": None if self._start is None else self._start.tolist(),
        }

    def model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """The policy of the mean."""
        settings = self.settings
        trained = {
            "how": f"{settings.optimiser} on the return",
            "seed": self.seed,
            "population": settings.population,
            "rollouts": settings.rollouts,
            "sigma": settings.sigma,
            "steps": self._played,
            **run,
        }
        return self._form.model(self.mean, self._task, trained)

    def play(
        self, model: Model, seed: int, episodes: int, disturbance: DisturbanceSettings
    ) -> np.ndarray:
        """The returns (episodes,) of an evaluation."""
        starts = evaluation_starts(seed, episodes)
        return self._engine.play([model], starts, disturbance).returns[0]

    def step(self) -> dict[str, Any]:
        """One generation. RolloutError where all its rollouts failed."""
        begin, settings = time.perf_counter(), self.settings
        progress = self.generation / settings.generations
        rng = np.random.default_rng([self.seed, self.generation])
        candidates = self._optimiser.ask(rng)
        starts = training_starts(rng, settings.rollouts)
        models = [self._form.model(candidate, self._task, {}) for candidate in candidates]
        outcomes = play_mixture(self._engine, models, starts, self._curriculum(self.generation))
        returns = outcomes.returns.mean(axis=1)
        if not np.isfinite(returns).any():
            raise RolloutError(
                f"every rollout of generation {self.generation} failed: {outcomes.failure}"
            )
        fitness = returns - settings.decay * (candidates**2).sum(axis=1)
        self._optimiser.tell(fitness, progress)
        self.generation += 1
        played = int(outcomes.steps.sum())
        self._played += played
        line: dict[str, Any] = {
            "best": float(np.nanmax(returns)),
            "mean": float(np.nanmean(returns)),
            "sigma": self._optimiser.sigma,
            "length": float(np.linalg.norm(self.mean)),
            "steps": self._played,
            "failed": int(np.isnan(outcomes.returns).sum()),
            "steps_per_s": round(played / (time.perf_counter() - begin)),
        }
        if self.generation % settings.validate_every == 0 or self.generation == self.steps:
            line |= self._validate()
        return line

    def state(self) -> dict[str, Any]:
        return {
            "optimiser": self._optimiser.state(),
            "generation": self.generation,
            "played": self._played,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._optimiser.restore(state["optimiser"])
        self.generation, self._played = state["generation"], state["played"]

    def _validate(self) -> dict[str, float]:
        """The mean's return in the validation episodes, under each of the conditions."""
        settings, model = self.settings, self.model()
        returns = [
            self.play(model, VALIDATION_SEED, settings.validation_episodes, disturbance)
            for disturbance in settings.mixture
        ]
        line = {"validation": float(np.mean(returns))}
        if len(returns) > 1:
            for disturbance, part in zip(settings.mixture, returns, strict=True):
                line[f"validation {disturbance}"] = float(part.mean())
        if settings.success is not None:
            line["success_share"] = float((np.array(returns) > settings.success).mean())
        return line


def play_mixture(
    engine: Engine, models: Sequence[Model], starts: Sequence[Start], mixture: Mixture
) -> Outcomes:
    """Every model through every episode, as many of them under each of the conditions."""
    ends = [len(starts) * i // len(mixture) for i in range(len(mixture) + 1)]
    parts = [
        engine.play(models, starts[begin:end], disturbance)
        for (begin, end), disturbance in zip(pairwise(ends), mixture, strict=True)
    ]
    return Outcomes(
        np.concatenate([part.returns for part in parts], axis=1),
        np.concatenate([part.steps for part in parts], axis=1),
        next((part.failure for part in parts if part.failure), None),
    )
