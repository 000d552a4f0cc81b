"""A run of compiled imitation, in its folder: round by round, resumed to the same bits."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import an_control
from an_control.learning.dagger.compiled.training import Cloner, Cloning
from an_control.learning.es.search import VALIDATION_SEED
from an_control.learning.rollout.compiled.engine import FusedEngine
from an_control.learning.rollout.engine import evaluation_starts
from an_control.learning.runs.run_folder import RunFolder
from an_control.policy import MlpSizes, Model, write_model


class CloningRun:
    """One run, new or resumed; ValueError where teacher and environment do not fit."""

    save_every_s = 5.0

    def __init__(
        self,
        path: Path,
        env: gymnasium.Env[Any, Any],
        task: dict[str, Any],
        teacher: Model,
        settings: Cloning,
        seed: int,
        resume: bool = False,
        validation_episodes: int = 1000,
        start: np.ndarray | None = None,
    ) -> None:
        if not isinstance(teacher.sizes, MlpSizes):
            raise ValueError(f"the teacher must be an MLP policy, not {teacher.kind}")
        if (teacher.sizes.channels, teacher.sizes.actions) != (
            len(task["channels"]),
            len(task["actuators"]),
        ):
            raise ValueError("the teacher is for other channels or actuators")
        self.settings, self.seed, self._task = settings, seed, task
        inner: Any = env.unwrapped
        self._engine = FusedEngine(inner.lanes, task["channels"], teacher.sizes.actions)
        self._validation = evaluation_starts(VALIDATION_SEED, validation_episodes)
        config = {
            "task": task,
            "seed": seed,
            "settings": asdict(settings),
            "teacher": teacher.trained,
            "validation_episodes": validation_episodes,
            "start": None if start is None else start.tolist(),
        }
        self._cloner = Cloner(self._engine, teacher, task, settings, seed, start)
        self.folder = RunFolder(path, config, resume)
        self.best_validation, self.wall_s = -np.inf, 0.0
        if (state := self.folder.last_checkpoint()) is not None:
            self._cloner.restore(state)
            self.best_validation, self.wall_s = state["best_validation"], state["wall_s"]
        self.metrics = self.folder.keep_metrics(self.round)

    @property
    def round(self) -> int:
        """The round that comes next."""
        return len(self._cloner.history)

    @property
    def finished(self) -> bool:
        return self.round >= self.settings.rounds

    @property
    def model_path(self) -> Path:
        return self.folder.path / "model.safetensors"

    def run(self, report: Callable[[dict[str, Any]], bool | None] | None = None) -> None:
        """The rounds that are left, until `report` says False; keeps the best student."""
        saved, go_on = time.monotonic(), True
        while go_on and not self.finished:
            begin = time.perf_counter()
            figures = self._cloner.round()
            line: dict[str, Any] = {"round": self.round, **figures}
            if self.round % 10 == 0 or self.finished:
                line |= self._validate()
            self.wall_s += time.perf_counter() - begin
            line["wall_s"] = round(self.wall_s, 1)
            self.folder.add_metrics(line)
            self.metrics.append(line)
            if time.monotonic() - saved >= self.save_every_s:
                self._save()
                saved = time.monotonic()
            go_on = report is None or report(line) is not False
        self._save()

    def close(self) -> None:
        self._cloner.close()
        self._engine.close()

    def model(self) -> Model:
        """The student now."""
        return self._cloner.model(
            {
                "how": "DAgger with compiled back-propagation through time",
                "seed": self.seed,
                "rounds": self.round,
                "wall_s": round(self.wall_s, 1),
                "version": an_control.__version__,
            }
        )

    def _validate(self) -> dict[str, float]:
        model = self.model()
        returns = [
            self._engine.play([model], self._validation, scrambling).returns
            for scrambling in self.settings.mixture
        ]
        value = float(np.mean(returns))
        if value > self.best_validation:
            self.best_validation = value
            write_model(self.model_path, model)
        return {"validation": value}

    def _save(self) -> None:
        self.folder.checkpoint(
            {**self._cloner.state(), "best_validation": self.best_validation, "wall_s": self.wall_s}
        )
