"""PPO as the run loop takes it: iterations, some of them validated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from an_control.learning.environments import describe, make_environment
from an_control.learning.rollout.engine import TRAINING_SEEDS
from an_control.learning.rollout.live_episode import LiveEpisode
from an_control.learning.runs.checkpoint import as_tensors
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.learning.teacher.ppo import Players, Ppo, PpoSettings
from an_control.learning.teacher.teachers import Layers
from an_control.policy import MlpSizes, Model

VALIDATE_EVERY, VALIDATION_EPISODES = 10, 8


class PpoLearner:
    """Improves the network `layers` in environments of its own."""

    unit = "iteration"

    def __init__(
        self, name: str, environment: str, layers: Layers, settings: PpoSettings, seed: int
    ) -> None:
        torch.set_num_threads(1)
        self.settings, self.seed = settings, seed
        self._envs = [make_environment(environment) for _ in range(settings.environments)]
        self._task = describe(self._envs[0], name, environment)
        self._ppo = Ppo(layers, settings, seed)
        self._players = Players(self._envs, settings, seed)
        self._iteration = 0

    @property
    def steps(self) -> int:
        return self.settings.iterations

    @property
    def config(self) -> dict[str, Any]:
        """What decides the run, for its folder."""
        return {"task": self._task, "seed": self.seed, "settings": asdict(self.settings)}

    def close(self) -> None:
        for env in self._envs:
            env.close()

    def step(self) -> dict[str, Any]:
        """One iteration: a rollout, then updates on it."""
        played = self._players.play(self._ppo.actor, self.settings.steps)
        rng = np.random.default_rng([self.seed, self._iteration])
        line: dict[str, Any] = self._ppo.improve(played, self._iteration, rng)
        self._iteration += 1
        if played.totals:
            line["return"] = float(np.mean(played.totals))
        if self._iteration % VALIDATE_EVERY == 0 or self._iteration == self.steps:
            line["validation"] = self._validate()
        return line

    def state(self) -> dict[str, Any]:
        return {
            "ppo": self._ppo.state(),
            "players": self._players.state(),
            "iteration": self._iteration,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._ppo.restore(as_tensors(state["ppo"]))
        self._players.restore(state["players"])
        self._iteration = state["iteration"]

    def model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """The actor without its noise."""
        layers = self._ppo.actor.teacher().layers
        assert layers is not None
        arrays = {}
        for place, (weight, bias) in enumerate(layers):
            arrays[f"head.{place}.weight"] = np.ascontiguousarray(weight, np.float32)
            arrays[f"head.{place}.bias"] = np.ascontiguousarray(bias, np.float32)
        hidden = [len(bias) for _, bias in layers[:-1]]
        actions, channels = len(self._task["actuators"]), len(self._task["channels"])
        sizes = MlpSizes(channels, actions, hidden, activation="relu", output="clip")
        trained = {"how": "PPO from the task's first teacher", "seed": self.seed, **run}
        return Model("mlp", sizes, arrays, self._task, trained)

    def _validate(self) -> float:
        """The mean return without noise or bursts."""
        teacher = self._ppo.actor.teacher()
        env = make_environment(self._task["environment"])
        seeds = np.random.default_rng([self.seed, 1]).integers(*TRAINING_SEEDS, VALIDATION_EPISODES)
        totals = []
        for seed in seeds:
            episode = LiveEpisode(env, int(seed))
            for tick in episode:
                episode.act(teacher(tick.observation))
            totals.append(episode.total)
        env.close()
        return float(np.mean(totals))
