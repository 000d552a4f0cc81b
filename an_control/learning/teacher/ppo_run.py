"""A teacher's improvement in its run folder: iterations of PPO, validated, resumable.

The best of the validated actors is the run's model. A run that goes on starts new episodes where
it was stopped, so it does not repeat a whole run's bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch

import an_control
from an_control.learning.environments import describe, make_environment
from an_control.learning.rollout.engine import TRAINING_SEEDS
from an_control.learning.runs.run_folder import RunFolder
from an_control.learning.teacher.ppo import Players, Ppo, PpoSettings
from an_control.learning.teacher.teachers import Layers, NetworkTeacher
from an_control.policy import MlpSizes, Model, write_model

CHECKPOINT = "checkpoint.pickle"
VALIDATE_EVERY, VALIDATION_EPISODES = 10, 8


class PpoRun:
    """One run in its folder, new or resumed; RunError where the folder holds another."""

    def __init__(
        self,
        path: Path,
        name: str,
        environment: str,
        layers: Layers,
        settings: PpoSettings,
        seed: int,
    ) -> None:
        torch.set_num_threads(1)
        self.settings, self.seed = settings, seed
        self._envs = [make_environment(environment) for _ in range(settings.environments)]
        self._task = describe(self._envs[0], name, environment)
        config = {"task": self._task, "seed": seed, "settings": asdict(settings)}
        self.folder = RunFolder(path, config, (path / CHECKPOINT).exists())
        self._ppo = Ppo(layers, settings, seed)
        self.iteration, self.cpu_s, self.best = 0, 0.0, -np.inf
        if (state := self.folder.last_checkpoint()) is not None:
            self._ppo.restore(state["ppo"])
            self.iteration, self.cpu_s = state["iteration"], state["cpu_s"]
            self.best = state["best"]
        self.metrics = self.folder.keep_metrics(self.iteration)
        self._players = Players(self._envs, settings, seed + self.iteration)

    @property
    def model_path(self) -> Path:
        return self.folder.path / "model.safetensors"

    def run(
        self,
        report: Callable[[dict[str, Any]], None] | None = None,
        stop_after: int | None = None,
    ) -> None:
        """The iterations that are left, at most up to `stop_after`; saved at each validation."""
        last = min(self.settings.iterations, stop_after or self.settings.iterations)
        while self.iteration < last:
            line = self._advance(last)
            self.folder.add_metrics(line)
            self.metrics.append(line)
            if "validation" in line:
                self._save()
            if report is not None:
                report(line)

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def _advance(self, last: int) -> dict[str, Any]:
        begin = time.process_time()
        played = self._players.play(self._ppo.actor, self.settings.steps)
        rng = np.random.default_rng([self.seed, self.iteration])
        figures = self._ppo.improve(played, self.iteration, rng)
        self.iteration += 1
        line: dict[str, Any] = {"iteration": self.iteration, **figures}
        if played.totals:
            line["return"] = float(np.mean(played.totals))
        if self.iteration % VALIDATE_EVERY == 0 or self.iteration == last:
            line["validation"] = self._validate()
        self.cpu_s += time.process_time() - begin
        return line | {"cpu_s": round(self.cpu_s, 1)}

    def _validate(self) -> float:
        """The mean return without noise or bursts; keeps the best actor as the run's model."""
        teacher = self._ppo.actor.teacher()
        env = make_environment(self._task["environment"])
        seeds = np.random.default_rng([self.seed, 1]).integers(*TRAINING_SEEDS, VALIDATION_EPISODES)
        value = float(np.mean([_play(env, teacher, int(seed)) for seed in seeds]))
        env.close()
        if value > self.best:
            self.best = value
            write_model(self.model_path, self._model(teacher))
        return value

    def _model(self, teacher: NetworkTeacher) -> Model:
        arrays = {}
        assert teacher.layers is not None
        for place, (weight, bias) in enumerate(teacher.layers):
            arrays[f"head.{place}.weight"] = np.ascontiguousarray(weight, np.float32)
            arrays[f"head.{place}.bias"] = np.ascontiguousarray(bias, np.float32)
        hidden = [len(bias) for _, bias in teacher.layers[:-1]]
        actions, channels = len(self._task["actuators"]), len(self._task["channels"])
        sizes = MlpSizes(channels, actions, hidden, activation="relu", output="clip")
        trained = {
            "how": "PPO from the task's first teacher",
            "seed": self.seed,
            "iterations": self.iteration,
            "validation": round(self.best, 1),
            "version": an_control.__version__,
        }
        return Model("mlp", sizes, arrays, self._task, trained)

    def _save(self) -> None:
        self.folder.checkpoint(
            {
                "ppo": self._ppo.state(),
                "iteration": self.iteration,
                "cpu_s": self.cpu_s,
                "best": self.best,
            }
        )


def _play(env: Any, teacher: NetworkTeacher, seed: int) -> float:
    observation, _ = env.reset(seed=seed)
    total, done = 0.0, False
    while not done:
        observation, reward, fell, truncated, _ = env.step(teacher(observation))
        total += float(reward)
        done = fell or truncated
    return total
