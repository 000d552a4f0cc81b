"""DAgger by compiled back-propagation: rounds, as the run loop takes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import gymnasium
import numpy as np

from an_control.learning.dagger.compiled.training import Cloner, Cloning
from an_control.learning.environments import Batched
from an_control.learning.es.search import VALIDATION_SEED
from an_control.learning.rollout.compiled.engine import FusedEngine
from an_control.learning.rollout.engine import evaluation_starts
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.policy import Model, OrderedSizes


class CompiledDagger:
    """ValueError where teacher and environment do not fit."""

    unit = "round"

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        task: dict[str, Any],
        teacher: Model,
        settings: Cloning,
        seed: int,
        validation_episodes: int = 1000,
        start: np.ndarray | None = None,
    ) -> None:
        if not isinstance(teacher.sizes, OrderedSizes):
            raise ValueError(f"the teacher must be an ordered policy, not {teacher.kind}")
        if (teacher.sizes.channels, teacher.sizes.actions) != (
            len(task["channels"]),
            len(task["actuators"]),
        ):
            raise ValueError("the teacher is for other channels or actuators")
        self.settings, self.seed, self._task = settings, seed, task
        assert isinstance(env.unwrapped, Batched)
        self._engine = FusedEngine(env.unwrapped.batch, task["channels"], teacher.sizes.actions)
        self._validation = evaluation_starts(VALIDATION_SEED, validation_episodes)
        self._cloner = Cloner(self._engine, teacher, task, settings, seed, start)
        self.config = {
            "task": task,
            "seed": seed,
            "settings": asdict(settings),
            "teacher": teacher.trained,
            "validation_episodes": validation_episodes,
            "start": None if start is None else start.tolist(),
        }

    @property
    def steps(self) -> int:
        return self.settings.rounds

    def close(self) -> None:
        self._cloner.close()
        self._engine.close()

    def step(self) -> dict[str, Any]:
        line: dict[str, Any] = self._cloner.round()
        done = len(self._cloner.history)
        if done % 10 == 0 or done == self.steps:
            returns = [
                self._engine.play([self.model()], self._validation, scrambling).returns
                for scrambling in self.settings.mixture
            ]
            line["validation"] = float(np.mean(returns))
        return line

    def state(self) -> dict[str, Any]:
        return self._cloner.state()

    def restore(self, state: dict[str, Any]) -> None:
        self._cloner.restore(state)

    def model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """The student now."""
        how = "DAgger with compiled back-propagation through time"
        return self._cloner.model({"how": how, "seed": self.seed, **run})
