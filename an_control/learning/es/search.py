"""Search for a policy by its return alone: ask, play, tell, generation by generation.

A generation follows from the run's seed, its number and the optimiser's state before it. All its
candidates play the same episodes (common random numbers); a candidate whose rollouts failed takes
the worst rank. Every `validate_every` generations the mean plays the validation episodes, which
training never uses; the best mean so far is the run's model.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import an_control
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
from an_control.learning.runs.run_folder import RunFolder
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
    """One run in its folder, new or resumed."""

    save_every_s = 5.0

    def __init__(
        self,
        path: Path,
        task: dict[str, Any],
        form: Form,
        engine: Engine,
        settings: SearchSettings,
        seed: int,
        start: np.ndarray | None = None,
        resume: bool = False,
        curriculum: Curriculum | None = None,
    ) -> None:
        if settings.rollouts < len(settings.mixture):
            raise ValueError(
                f"rollouts {settings.rollouts}: must be {len(settings.mixture)} or more, one for"
                " each of the conditions"
            )
        self.settings, self.seed = settings, seed
        self._task, self._form, self._engine = task, form, engine
        self._curriculum = curriculum or (lambda generation: settings.mixture)
        begin = np.zeros(form.size) if start is None else start
        self.folder = RunFolder(
            path,
            {
                "task": task,
                "seed": seed,
                "form": repr(form),
                "settings": asdict(settings),
                "start": None if start is None else [float(x) for x in start],
            },
            resume,
        )
        self._optimiser: Optimiser = make_optimiser(
            settings.optimiser, begin, settings.sigma, settings.population, **settings.options
        )
        self.generation = self.steps = 0
        self.wall_s = 0.0
        self.best, self.best_validation = begin, -np.inf
        if (state := self.folder.last_checkpoint()) is not None:
            self._optimiser, self.generation = state["optimiser"], state["generation"]
            self.steps, self.wall_s = state["steps"], state["wall_s"]
            self.best, self.best_validation = state["best"], state["best_validation"]
        self.metrics = self.folder.keep_metrics(self.generation)

    @property
    def mean(self) -> np.ndarray:
        """The search distribution's mean."""
        return self._optimiser.centre

    def run(self, report: Callable[[dict[str, Any]], bool | None] | None = None) -> None:
        """The generations that are left, until `report` says False.

        A checkpoint is written every `save_every_s`, and behind the last of them.
        """
        saved, go_on = time.monotonic(), True
        while go_on and self.generation < self.settings.generations:
            line = self._advance()
            self.folder.add_metrics(line)
            self.metrics.append(line)
            if time.monotonic() - saved >= self.save_every_s:
                self._save()
                saved = time.monotonic()
            go_on = report is None or report(line) is not False
        self._save()

    def model(self, vector: np.ndarray, further: dict[str, Any] | None = None) -> Model:
        """The policy of a vector, with how it was trained."""
        settings = self.settings
        return self._form.model(
            vector,
            self._task,
            {
                "how": f"{settings.optimiser} on the return",
                "seed": self.seed,
                "generations": self.generation,
                "population": settings.population,
                "rollouts": settings.rollouts,
                "sigma": settings.sigma,
                "steps": self.steps,
                "wall_s": round(self.wall_s, 1),
                "version": an_control.__version__,
                **(further or {}),
            },
        )

    def play(
        self, vector: np.ndarray, seed: int, episodes: int, scrambling: DisturbanceSettings
    ) -> Outcomes:
        """An evaluation's episodes."""
        return self._engine.play(
            [self.model(vector)], evaluation_starts(seed, episodes), scrambling
        )

    def _advance(self) -> dict[str, Any]:
        """One generation; its line of metrics."""
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
        self.steps += int(outcomes.steps.sum())
        line: dict[str, Any] = {
            "generation": self.generation,
            "best": float(np.nanmax(returns)),
            "mean": float(np.nanmean(returns)),
            "sigma": self._optimiser.sigma,
            "length": float(np.linalg.norm(self.mean)),
            "steps": self.steps,
            "failed": int(np.isnan(outcomes.returns).sum()),
        }
        if self.generation % settings.validate_every == 0 or (
            self.generation == settings.generations
        ):
            line |= self._validate()
        took = time.perf_counter() - begin
        self.wall_s += took
        return line | {
            "steps_per_s": round(outcomes.steps.sum() / took),
            "wall_s": round(self.wall_s, 2),
        }

    def _validate(self) -> dict[str, float]:
        """The mean's return in the validation episodes; keeps the best mean."""
        returns = [
            self.play(
                self.mean, VALIDATION_SEED, self.settings.validation_episodes, scrambling
            ).returns
            for scrambling in self.settings.mixture
        ]
        value = float(np.mean(returns))
        if value > self.best_validation:
            self.best, self.best_validation = self.mean.copy(), value
        line = {"validation": value}
        if len(returns) > 1:
            for scrambling, part in zip(self.settings.mixture, returns, strict=True):
                line[f"validation {scrambling}"] = float(part.mean())
        if self.settings.success is not None:
            line["success_share"] = float((np.array(returns) > self.settings.success).mean())
        return line

    def _save(self) -> None:
        self.folder.checkpoint(
            {
                "optimiser": self._optimiser,
                "generation": self.generation,
                "steps": self.steps,
                "wall_s": self.wall_s,
                "best": self.best,
                "best_validation": self.best_validation,
            }
        )


def play_mixture(
    engine: Engine, models: Sequence[Model], starts: Sequence[Start], mixture: Mixture
) -> Outcomes:
    """Every model through every episode, as many of them under each of the conditions."""
    ends = [len(starts) * i // len(mixture) for i in range(len(mixture) + 1)]
    parts = [
        engine.play(models, starts[begin:end], scrambling)
        for (begin, end), scrambling in zip(pairwise(ends), mixture, strict=True)
    ]
    return Outcomes(
        np.concatenate([part.returns for part in parts], axis=1),
        np.concatenate([part.steps for part in parts], axis=1),
        next((part.failure for part in parts if part.failure), None),
    )
