"""A teacher by reinforcement learning, as the run loop takes it.

stable-baselines3 learns; this keeps its whole state for a checkpoint, validates the actor in the
form in which it is saved, and says when to stop.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from an_control.learning.environments import describe, make_environment, of_choices, of_patches
from an_control.learning.rollout.engine import TRAINING_SEEDS
from an_control.learning.rollout.live_episode import LiveEpisode
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.learning.teacher.actor import centred, folded, mlp_model
from an_control.learning.teacher.library import Library
from an_control.learning.teacher.settings import TeacherSettings
from an_control.learning.teacher.teachers import Layers
from an_control.policy import Model, make_policy

IMPROVEMENT = 0.01
"""What a validation must gain to count as better: this share of what was gained before."""


@dataclass(frozen=True)
class Limits:
    """Where a run ends, whichever comes first; None: not there."""

    minutes: float | None = None
    """Of processor time."""
    steps: int | None = None
    """Of the environment."""
    score: float | None = None
    """Mean return of a validation."""


class TeacherLearner:
    """Learns from nothing, or from the relu network `start` of the task.

    ValueError where the environment's readings are image patches.
    """

    unit = "iteration"

    def __init__(
        self,
        folder: Path,
        name: str,
        environment: str,
        settings: TeacherSettings,
        limits: Limits,
        seed: int,
        start: Layers | None = None,
    ) -> None:
        self._env = make_environment(environment)
        if of_patches(self._env):
            self._env.close()
            raise ValueError(f"environment {environment!r}: a teacher reads no image patches")
        self.settings, self.limits, self.seed = settings, limits, seed
        self._task = describe(self._env, name, environment)
        self._started = start is not None
        envs = [make_environment(environment) for _ in range(settings.environments)]
        self._library = Library(folder, envs, settings, seed, start)
        rng = np.random.default_rng([seed, 1])
        self._seeds = rng.integers(*TRAINING_SEEDS, settings.validation_episodes).tolist()
        self._done, self._seconds = 0, 0.0
        self._best, self._largest_logit = -math.inf, 1.0
        self._first: float | None = None
        self._marked, self._marked_at = -math.inf, 0

    @property
    def steps(self) -> int:
        """Iterations in all; what the limits allow, as far as it can be known by now."""
        if self.end:
            return self._done
        share = self.progress
        return max(self._done + 1, math.ceil(self._done / share)) if share else sys.maxsize

    @property
    def progress(self) -> float:
        """How much of what the limits allow is over, from 0 to 1."""
        if self.end:
            return 1.0
        limits, played = self.limits, self._done * self.settings.iteration
        shares = [played / (limits.steps or math.inf)]
        if limits.minutes is not None:
            shares.append(self._seconds / (60.0 * limits.minutes))
        return min(1.0, max(shares))

    @property
    def end(self) -> str:
        """Why the run is over; empty while it is not."""
        limits, played = self.limits, self._done * self.settings.iteration
        if limits.score is not None and self._best >= limits.score:
            return f"the score {limits.score:g} is reached"
        if limits.steps is not None and played >= limits.steps:
            return f"{limits.steps} steps are done"
        if limits.minutes is not None and self._seconds >= 60.0 * limits.minutes:
            return f"{limits.minutes:g} minutes are over"
        since = self._marked_at
        if since and played - since >= max(self.settings.patience, since):
            return f"no validation was better since step {since}"
        return ""

    @property
    def config(self) -> dict[str, Any]:
        """What decides the run, for its folder; limits do not, so that they may be raised."""
        return {
            "task": self._task,
            "seed": self.seed,
            "settings": asdict(self.settings),
            "start": self._started,
        }

    def close(self) -> None:
        self._env.close()
        self._library.close()

    def step(self) -> dict[str, Any]:
        """One iteration of the library, and at times a validation."""
        begin = time.process_time()
        self._library.freeze_actor(self._done < self.settings.warm_up)
        line = self._library.learn()
        self._done += 1
        line["steps"] = self._done * self.settings.iteration
        if of_choices(self._env):
            self._largest_logit = self._library.largest_logit()
        if self._done % self.settings.validate_every == 0:
            line["validation"] = self._validate()
            self._judge(line["validation"], line["steps"])
        self._seconds += time.process_time() - begin
        return line

    def state(self) -> dict[str, Any]:
        return {
            "library": self._library.state(),
            "done": self._done,
            "seconds": self._seconds,
            "first": self._first,
            "best": self._best,
            "marked": self._marked,
            "marked_at": self._marked_at,
            "largest_logit": self._largest_logit,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._library.restore(state["library"])
        self._done, self._seconds = state["done"], state["seconds"]
        self._first, self._best = state["first"], state["best"]
        self._marked, self._marked_at = state["marked"], state["marked_at"]
        self._largest_logit = state["largest_logit"]

    def model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """The actor without its noise, for observations as they are."""
        layers, squashed = self._library.actor()
        if of_choices(self._env):
            layers, squashed = centred(layers, self._largest_logit), True
        layers = folded(layers, self._library.normalisation())
        how = f"{self.settings.algorithm.upper()} of stable-baselines3"
        trained = {"how": how, "seed": self.seed, "steps": self._library.steps, **run}
        return mlp_model(layers, "tanh" if squashed else "clip", self._task, trained)

    def _judge(self, validation: float, steps: int) -> None:
        """Note a validation; one that is hardly better does not keep the run going."""
        self._best = max(self._best, validation)
        if self._first is None:
            self._first = self._marked = validation
        gained = self._marked - self._first
        if not self._marked_at or validation > self._marked + IMPROVEMENT * gained:
            self._marked, self._marked_at = validation, steps

    def _validate(self) -> float:
        """The mean return without noise or bursts, of the policy as it would be saved."""
        policy = make_policy(self.model(), "off")
        totals = []
        for seed in self._seeds:
            episode = LiveEpisode(self._env, seed)
            for tick in episode:
                episode.act(policy.step_array(tick.observation, policy.nominal_ids))
            totals.append(episode.total)
        return float(np.mean(totals))
