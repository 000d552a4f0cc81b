"""``an-control evaluate MODEL --task T``."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path

import tyro

from an_control.cli import InputError, write_json
from an_control.policy import load_policy
from an_control.wiring.scramble import ScrambleSettings, Shuffle

SUCCESS = {"ant": 2000.0, "cartpole": 400.0}
"""The return that counts as a success, by task."""


@dataclass(frozen=True)
class Verb:
    """Measure a model's returns without ROS, its readings rewired as in the simulator."""

    model: tyro.conf.Positional[Path]
    """A .safetensors model file."""
    task: str = "ant"
    """A task known by name, or a gymnasium id, also as module:id."""
    episodes: int = 100
    """How many."""
    seed: int = 1
    """Decides starts and disturbances; never one that training used."""
    shuffle: str = "reset"
    """When contents move without a word: none, reset, K (every K steps), reset+K."""
    noise_channels: int = 0
    """Further channels that carry normal noise."""
    noise_sd: float = 1.0
    """Its standard deviation."""
    drop: float = 0.0
    """Share of the channels that is absent, drawn anew each episode."""
    freeze: float = 0.0
    """Share of the channels that keeps its first value, drawn anew each episode."""
    success: float | None = None
    """A return above this is a success; by default the task's own."""
    json: Path | None = None
    """Also write the result here as JSON."""

    def run(self) -> int:
        if importlib.util.find_spec("gymnasium") is None:
            raise InputError("needs gymnasium (pip install an_control[sim])")
        from an_control.learning.evaluate import evaluate, summary
        from an_control.learning.tasks import describe, environment_of, make_environment

        if self.episodes < 1:
            raise InputError(f"--episodes {self.episodes}: must be 1 or more")
        if self.seed < 0:
            raise InputError(f"--seed {self.seed}: must be 0 or more")
        policy = load_policy(self.model)
        try:
            scrambling = ScrambleSettings(
                shuffle=Shuffle.parse(self.shuffle),
                noise_channels=self.noise_channels,
                noise_sd=self.noise_sd,
                drop=self.drop,
                freeze=self.freeze,
            )
            environment = environment_of(self.task)
            env = make_environment(environment)
        except ValueError as error:
            raise InputError(str(error)) from error
        task = describe(env, self.task, environment)
        actuators = len(task["actuators"])
        if policy.model.sizes.actions != actuators:
            raise InputError(
                f"{self.model}: {policy.model.sizes.actions} actions, but"
                f" {environment} takes {actuators}"
            )
        results = evaluate(
            policy,
            env,
            task["channels"],
            self.episodes,
            self.seed,
            scrambling,
            lambda result: print(f"return {result.total:8.1f}  steps {result.steps}", flush=True),
        )
        env.close()
        figures = summary(results, SUCCESS.get(self.task) if self.success is None else self.success)
        for name, value in figures.items():
            print(f"{name}: {value if isinstance(value, int) or value is None else f'{value:.4g}'}")
        write_json(
            self.json,
            {
                "task": self.task,
                "model": str(self.model),
                "seed": self.seed,
                "shuffle": self.shuffle,
                "noise_channels": self.noise_channels,
                "noise_sd": self.noise_sd,
                "drop": self.drop,
                "freeze": self.freeze,
                "episodes": [result.line() for result in results],
                **figures,
            },
        )
        return 0
