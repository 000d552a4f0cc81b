"""A teacher by reinforcement learning, as the run loop takes it.

stable-baselines3 learns; this keeps its whole state for a checkpoint, validates the actor in the
form in which it is saved, and says when to stop. Where two kinds of noise race, they take turns for
the first part of the run; the one with the better validation then continues alone.

One way to learn a teacher: its algorithm, and how good its validations were.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from an_control.disturbance import TRAINING_SEEDS, DisturbanceSettings
from an_control.learning.runs.run_folder import units_of_run
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.learning.teacher.library import Library, centred, folded, mlp_model
from an_control.learning.teacher.settings import TeacherSettings, contenders
from an_control.learning.teacher.teachers import Layers, Teacher, settings_with
from an_control.learning.teacher.training_episodes import disturbed_episode
from an_control.learning.training_disturbances import draw
from an_control.load import make_policy
from an_control.policy import Model, Policy
from an_control_sim.gym.environments import choices_of, describe, make_environment, of_patches
from an_control_sim.gym.failure import BrokenEnvironmentError
from an_control_sim.gym.units import Units

IMPROVEMENT = 0.01
"""What a validation must gain to count as better: this share of what was gained before."""


class Contender:
    """An algorithm with its environments; several of them may race."""

    def __init__(
        self,
        folder: Path,
        environment: str,
        units: Units,
        settings: TeacherSettings,
        seed: int,
        start: Teacher | None,
    ) -> None:
        envs = [make_environment(environment, units) for _ in range(settings.environments)]
        self.library = Library(folder, envs, settings, seed, start)
        self.settings = settings
        self.done = 0
        """Iterations."""
        self.best = -math.inf
        """Validation."""
        self.marked_at = 0
        """The step of the last validation that was clearly better than those before."""
        self._marked = -math.inf
        self._first: float | None = None

    @property
    def steps(self) -> int:
        """Of its environments."""
        return self.done * self.settings.iteration

    @property
    def noise(self) -> str:
        """What it explores by."""
        return "smooth" if self.settings.options.get("use_sde") else "independent"

    @property
    def stalled(self) -> bool:
        """Whether no validation was better for half of its steps."""
        patience = max(self.settings.patience, self.marked_at)
        return self.marked_at > 0 and self.steps - self.marked_at >= patience

    def learn(self) -> dict[str, Any]:
        """One iteration; its figures."""
        self.library.freeze_actor(self.done < self.settings.warm_up)
        line = self.library.learn()
        self.done += 1
        return line

    def actor(self, choices: Sequence[int], largest_logit: float) -> tuple[Layers, bool]:
        """The actor for observations as they are, and whether tanh squashes its output.

        Where actions are choices, logits as large as `largest_logit` fit in.
        """
        layers, squashed = self.library.actor()
        if choices:
            layers, squashed = centred(layers, choices, largest_logit), True
        return folded(layers, self.library.normalisation()), squashed

    def judge(self, validation: float) -> None:
        """Note a validation; one that is hardly better does not keep it going."""
        self.best = max(self.best, validation)
        if self._first is None:
            self._first = self._marked = validation
        gained = self._marked - self._first
        if not self.marked_at or validation > self._marked + IMPROVEMENT * gained:
            self._marked, self.marked_at = validation, self.steps

    def state(self) -> dict[str, Any]:
        """What `restore` continues from."""
        return {
            "library": self.library.state(),
            "done": self.done,
            "best": self.best,
            "marked": self._marked,
            "marked_at": self.marked_at,
            "first": self._first,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state of the same settings."""
        self.library.restore(state["library"])
        self.done, self.best, self._first = state["done"], state["best"], state["first"]
        self._marked, self.marked_at = state["marked"], state["marked_at"]

    def close(self) -> None:
        self.library.close()


PATIENCE = 1.0 / 3.0
"""Of what the limits allow that a run goes on without a better validation."""


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
        start: Teacher | None = None,
    ) -> None:
        units = units_of_run(folder, environment) if start is None else start.units
        self._env = make_environment(environment, units)
        if of_patches(self._env):
            self._env.close()
            raise ValueError(f"environment {environment!r}: a teacher reads no image patches")
        self.settings, self.limits, self.seed = settings, limits, seed
        self._task = describe(self._env, name, environment)
        self._choices = choices_of(self._env)
        self._started = start is not None
        self._hashes = settings_with(folder, start_hash=None if start is None else start.digest)
        self._contenders = [
            Contender(folder, environment, units, one, seed, start) for one in contenders(settings)
        ]
        self._newest = self._contenders[0]
        """Whose iteration was the last one."""
        rng = np.random.default_rng([seed, 1])
        seeds = rng.integers(*TRAINING_SEEDS, settings.validation_episodes).tolist()
        self._validations = [(seed, draw(settings.faults, rng)) for seed in seeds]
        self._done, self._seconds = 0, 0.0
        self._marked = 0, 0.0
        """Iterations and seconds at the last validation that was clearly better."""
        self._largest_logit = 1.0

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
        return self._used

    @property
    def minutes_left(self) -> float:
        """Processor time that it may take yet; infinite where only its steps end it."""
        if self.limits.minutes is None:
            return math.inf
        return max(0.0, self.limits.minutes - self._seconds / 60.0)

    @property
    def _used(self) -> float:
        """How much of time and steps is over, from 0 to 1."""
        return self._share(self._done, self._seconds)

    def _share(self, done: int, seconds: float) -> float:
        """How much of the limits so many iterations and seconds are, from 0 to 1."""
        limits = self.limits
        shares = [done * self.settings.iteration / (limits.steps or math.inf)]
        if limits.minutes is not None:
            shares.append(seconds / (60.0 * limits.minutes))
        return min(1.0, max(shares))

    @property
    def end(self) -> str:
        """Why the run is over; empty while it is not."""
        limits, played = self.limits, self._done * self.settings.iteration
        best = max(one.best for one in self._contenders)
        if limits.score is not None and best >= limits.score:
            return f"the score {limits.score:g} is reached"
        if limits.steps is not None and played >= limits.steps:
            return f"{limits.steps} steps are done"
        if limits.minutes is not None and self._seconds >= 60.0 * limits.minutes:
            return f"{limits.minutes:g} minutes are over"
        limited = limits.steps is not None or limits.minutes is not None
        patient = limited and self._used - self._share(*self._marked) < PATIENCE
        if all(one.stalled for one in self._contenders) and not patient:
            return f"no validation was better since step {self._contenders[0].marked_at}"
        return ""

    @property
    def config(self) -> dict[str, Any]:
        """What decides the run, for its folder; limits do not, so that they may be raised."""
        return {
            "task": self._task,
            "seed": self.seed,
            "settings": asdict(self.settings),
            "start": self._started,
            **self._hashes,
        }

    def close(self) -> None:
        self._env.close()
        for one in self._contenders:
            one.close()

    def step(self) -> dict[str, Any]:
        """One iteration of the library, and at times a validation."""
        begin = time.process_time()
        self._newest = min(
            [one for one in self._contenders if not one.stalled] or self._contenders,
            key=lambda one: one.done,
        )
        line = self._newest.learn()
        self._done += 1
        line["steps"] = self._done * self.settings.iteration
        if self.settings.race:
            line["noise"] = self._newest.noise
        if self._choices:
            self._largest_logit = self._newest.library.largest_logit(self._choices)
        if self._newest.done % self.settings.validate_every == 0:
            validation = self._validate()
            line |= self._newest.library.failures.figures()
            if not math.isnan(validation):
                line["validation"] = validation
                self._newest.judge(validation)
            if self._newest.marked_at == self._newest.steps:
                self._marked = self._done, self._seconds
        self._seconds += time.process_time() - begin
        validated = all(one.best > -math.inf for one in self._contenders)
        if validated and self.progress >= self.settings.race:
            self._keep([max(self._contenders, key=lambda one: one.best)])
        return line

    def state(self) -> dict[str, Any]:
        return {
            "contenders": {one.noise: one.state() for one in self._contenders},
            "done": self._done,
            "seconds": self._seconds,
            "marked": self._marked,
            "largest_logit": self._largest_logit,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._keep([one for one in self._contenders if one.noise in state["contenders"]])
        self._newest = self._contenders[0]
        for one in self._contenders:
            one.restore(state["contenders"][one.noise])
        self._done, self._seconds = state["done"], state["seconds"]
        # An older run has no such figures: its patience starts here.
        done, seconds = state.get("marked", (self._done, self._seconds))
        self._marked = int(done), float(seconds)
        self._largest_logit = state["largest_logit"]

    def model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """The newest actor without its noise, for observations as they are."""
        layers, squashed = self._newest.actor(self._choices, self._largest_logit)
        how = f"{self.settings.algorithm.upper()} of stable-baselines3"
        trained = {"how": how, "seed": self.seed, "steps": self._newest.steps, **run}
        return mlp_model(layers, "tanh" if squashed else "clip", self._task, trained)

    def _keep(self, kept: list[Contender]) -> None:
        """The others leave the race."""
        for one in self._contenders:
            if one not in kept:
                one.close()
        self._contenders = kept

    def _validate(self) -> float:
        """The mean return without noise or bursts, of the policy as it would be saved.

        Faults are those that were drawn when the run began. Episodes that fail are left out; NaN
        where all do.
        """
        policy = make_policy(self.model(), "off")
        ids, failures = policy.nominal_ids, self._newest.library.failures
        totals = []
        for seed, fault in self._validations:
            policy.reset()
            try:
                totals.append(self._return(policy, ids, seed, fault))
            except BrokenEnvironmentError as failure:
                failures.note(failure)
            else:
                failures.succeed()
        return float(np.mean(totals)) if totals else math.nan

    def _return(
        self, policy: Policy, ids: tuple[str, ...], seed: int, fault: DisturbanceSettings
    ) -> float:
        episode = disturbed_episode(self._env, seed, fault)
        for tick in episode:
            if tick.arrived or episode.sent is None:
                episode.act(policy.step_array(tick.values, ids))
            else:
                episode.act(episode.sent)
        return episode.total
