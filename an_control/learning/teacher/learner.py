"""Trainer of a teacher by reinforcement learning, whose steps `RunLoop` calls.

The package stable-baselines3 does the training itself. This module puts the whole state of the
training into checkpoints, validates the actor in the form in which it is saved, and decides when
the run ends. Two kinds of exploration noise may compete. They then take turns for the first part of
the run, after which the one with the better validation continues alone.
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
from an_control.learning.runs.run_folder import read_or_measure_observation_units
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.learning.teacher.sb3_algorithm import (
    LibraryAlgorithm,
    centre_and_scale_logit_layer,
    fold_normalisation_into_layers,
    make_mlp_model,
)
from an_control.learning.teacher.settings import (
    TeacherSettings,
    make_settings_of_competing_learners,
)
from an_control.learning.teacher.teachers import Teacher, select_model_hashes_to_store
from an_control.learning.teacher.training_episodes import make_disturbed_episode
from an_control.learning.training_disturbances import draw_at_most_one_disturbance
from an_control.load import make_policy
from an_control.policy import Model, Policy
from an_control_sim.gym.environments import (
    count_action_numbers_by_choice,
    describe_task,
    has_patch_observations,
    make_environment,
)
from an_control_sim.gym.units import Units

IMPROVEMENT = 0.01
"""Minimum improvement by which a validation counts as clearly better, as a share of the improvement
since the first validation."""


class Contender:
    """One of the reinforcement learning algorithms that compete in a run, with its environments.

    The contenders differ in their exploration noise.

    Args:
        folder: The run's folder.
        environment: Name from which `make_environment` makes the environments.
        units: Offsets and scales of the readings.
        settings: The algorithm and its settings.
        seed: Seed of all random numbers.
        start: A relu network from which training starts; None for random weights.
    """

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
        self.library = LibraryAlgorithm(folder, envs, settings, seed, start)
        self.settings = settings
        self.done = 0
        """Number of finished iterations."""
        self.best = -math.inf
        """Highest mean return of all validations so far."""
        self.marked_at = 0
        """Number of environment steps at the newest validation that was clearly better than all
        before it."""
        self._marked = -math.inf
        self._first: float | None = None

    @property
    def environment_steps(self) -> int:
        """Return how many steps of the environments this contender has trained on so far."""
        return self.done * self.settings.iteration

    @property
    def exploration_noise_kind(self) -> str:
        """Return the kind of exploration noise: "smooth" or "independent"."""
        return "smooth" if self.settings.options.get("use_sde") else "independent"

    @property
    def is_stalled(self) -> bool:
        """Return whether the last clear improvement (see `record_validation_return`) is long ago.

        It is long ago if at least `settings.patience` steps were made since then, and at least as
        many steps as before it.
        """
        patience = max(self.settings.patience, self.marked_at)
        return self.marked_at > 0 and self.environment_steps - self.marked_at >= patience

    def train_iteration(self) -> dict[str, Any]:
        """Train for one iteration and return the metrics of the iteration, by name."""
        self.library.set_actor_frozen(self.done < self.settings.warm_up)
        line = self.library.train_iteration()
        self.done += 1
        return line

    def record_validation_return(self, mean_return: float) -> None:
        """Update the best validation so far, and the step of the last clear improvement.

        An improvement is clear if it is more than 1 % of all that was gained before it, since the
        first validation.

        Args:
            mean_return: Mean return of the validation's episodes.
        """
        self.best = max(self.best, mean_return)
        if self._first is None:
            self._first = self._marked = mean_return
        gained = self._marked - self._first
        if not self.marked_at or mean_return > self._marked + IMPROVEMENT * gained:
            self._marked, self.marked_at = mean_return, self.environment_steps

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state from which `restore` continues."""
        return {
            "library": self.library.make_checkpoint(),
            "done": self.done,
            "best": self.best,
            "marked": self._marked,
            "marked_at": self.marked_at,
            "first": self._first,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Set the state to a checkpoint that a contender with the same settings has made."""
        self.library.restore(state["library"])
        self.done, self.best, self._first = state["done"], state["best"], state["first"]
        self._marked, self.marked_at = state["marked"], state["marked_at"]

    def close(self) -> None:
        """Close the environments."""
        self.library.close()


PATIENCE = 1.0 / 3.0
"""Share of a run's time or step limit for which the run continues at least without a better
validation."""


@dataclass(frozen=True)
class TeacherLimits:
    """Limits of a teacher's training. It ends when it reaches any of them; None means no limit."""

    minutes: float | None = None
    """Processor time in minutes."""
    steps: int | None = None
    """Number of environment steps."""
    score: float | None = None
    """Mean return of a validation at which the run ends."""


class TeacherLearner:
    """Trainer of a teacher by reinforcement learning, from random weights or from a relu network.

    The run loop calls `step` once for each iteration.

    Args:
        folder: The run's folder.
        name: The task's name in the model file.
        environment: Name from which `make_environment` makes the environment.
        settings: The algorithm and its settings.
        limits: When the run ends.
        seed: Seed of all random numbers of the run.
        start: A relu network from which training starts; None for random weights.

    Raises:
        ValueError: The environment's readings are image patches.
    """

    unit = "iteration"

    def __init__(
        self,
        folder: Path,
        name: str,
        environment: str,
        settings: TeacherSettings,
        limits: TeacherLimits,
        seed: int,
        start: Teacher | None = None,
    ) -> None:
        units = (
            read_or_measure_observation_units(folder, environment) if start is None else start.units
        )
        self._env = make_environment(environment, units)
        if has_patch_observations(self._env):
            self._env.close()
            raise ValueError(
                f"environment {environment!r}: has image patches; a teacher takes scalar channels"
            )
        self.settings, self.limits, self.seed = settings, limits, seed
        self._task = describe_task(self._env, name, environment)
        self._choices = count_action_numbers_by_choice(self._env)
        self._started = start is not None
        self._hashes = select_model_hashes_to_store(
            folder, start_hash=None if start is None else start.digest
        )
        self._contenders = [
            Contender(folder, environment, units, one, seed, start)
            for one in make_settings_of_competing_learners(settings)
        ]
        self._newest = self._contenders[0]
        """The contender that made the newest iteration."""
        rng = np.random.default_rng([seed, 1])
        counts = settings.validation_episodes, settings.confirmation_episodes
        self._validations, self._confirmations = [
            [
                (seed, draw_at_most_one_disturbance(settings.faults, rng))
                for seed in rng.integers(*TRAINING_SEEDS, count).tolist()
            ]
            for count in counts
        ]
        self._done, self._seconds = 0, 0.0
        self._marked = 0, 0.0
        """Number of iterations, and processor time in seconds, at the newest validation that was
        clearly better than all before it."""
        self._largest_logit = 1.0

    @property
    def total_step_calls(self) -> int:
        """Return the number of iterations of the whole run; each is one step of the run loop.

        The number is estimated from the finished share of the run.
        """
        if self.end_reason:
            return self._done
        share = self.progress
        return max(self._done + 1, math.ceil(self._done / share)) if share else sys.maxsize

    @property
    def progress(self) -> float:
        """Return the finished share (0..1) of the run."""
        if self.end_reason:
            return 1.0
        return self._compute_share_of_limits_used_by(self._done, self._seconds)

    @property
    def minutes_left(self) -> float:
        """Return the processor time left in minutes; infinity if the run has no time limit."""
        if self.limits.minutes is None:
            return math.inf
        return max(0.0, self.limits.minutes - self._seconds / 60.0)

    def _compute_share_of_limits_used_by(self, iterations: int, seconds: float) -> float:
        """Return which share (0..1) of the limit of time or steps some iterations use up.

        If the run has both limits, it is the larger share.
        """
        limits = self.limits
        shares = [iterations * self.settings.iteration / (limits.steps or math.inf)]
        if limits.minutes is not None:
            shares.append(seconds / (60.0 * limits.minutes))
        return min(1.0, max(shares))

    @property
    def end_reason(self) -> str:
        """Return why the run has ended, as text for a log line, or "" if it has not."""
        limits, played = self.limits, self._done * self.settings.iteration
        best = max(one.best for one in self._contenders)
        if limits.score is not None and best >= limits.score:
            return f"reached the score {limits.score:g}"
        if limits.steps is not None and played >= limits.steps:
            return f"reached {limits.steps} steps"
        if limits.minutes is not None and self._seconds >= 60.0 * limits.minutes:
            return f"reached {limits.minutes:g} minutes"
        since_marked = self._compute_share_of_limits_used_by(
            self._done, self._seconds
        ) - self._compute_share_of_limits_used_by(*self._marked)
        limited = limits.steps is not None or limits.minutes is not None
        patient = limited and since_marked < PATIENCE
        if all(one.is_stalled for one in self._contenders) and not patient:
            return f"no better validation since step {self._contenders[0].marked_at}"
        return ""

    @property
    def config(self) -> dict[str, Any]:
        """Return the settings that identify the run, for its `config.json`.

        The limits of the run are not among these settings, so that a run can be continued with
        higher limits.
        """
        return {
            "task": self._task.to_header(),
            "seed": self.seed,
            "settings": asdict(self.settings),
            "start": self._started,
            **self._hashes,
        }

    def close(self) -> None:
        """Close all environments."""
        self._env.close()
        for one in self._contenders:
            one.close()

    def step(self) -> dict[str, Any]:
        """Train for one iteration, validate if that is due, and return the metrics by name."""
        begin = time.process_time()
        self._newest = min(
            [one for one in self._contenders if not one.is_stalled] or self._contenders,
            key=lambda one: one.done,
        )
        line = self._newest.train_iteration()
        self._done += 1
        line["steps"] = self._done * self.settings.iteration
        if self.settings.race:
            line["noise"] = self._newest.exploration_noise_kind
        if self._choices:
            self._largest_logit = self._newest.library.compute_largest_logit(self._choices)
        if self._newest.done % self.settings.validate_every == 0:
            validation = self._measure_validation_return()
            line |= self._newest.library.failures.pop_failure_metrics()
            if not math.isnan(validation):
                line["validation"] = validation
                self._newest.record_validation_return(validation)
            if self._newest.marked_at == self._newest.environment_steps:
                self._marked = self._done, self._seconds
        self._seconds += time.process_time() - begin
        validated = all(one.best > -math.inf for one in self._contenders)
        if validated and self.progress >= self.settings.race:
            self._close_contenders_except([max(self._contenders, key=lambda one: one.best)])
        return line

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the run's checkpoint, from which `restore` continues."""
        return {
            "contenders": {
                one.exploration_noise_kind: one.make_checkpoint() for one in self._contenders
            },
            "done": self._done,
            "seconds": self._seconds,
            "marked": self._marked,
            "largest_logit": self._largest_logit,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Set the state to a checkpoint that `make_checkpoint` returned."""
        self._close_contenders_except(
            [one for one in self._contenders if one.exploration_noise_kind in state["contenders"]]
        )
        self._newest = self._contenders[0]
        for one in self._contenders:
            one.restore(state["contenders"][one.exploration_noise_kind])
        self._done, self._seconds = state["done"], state["seconds"]
        done, seconds = state["marked"]
        self._marked = int(done), float(seconds)
        self._largest_logit = state["largest_logit"]

    def make_model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """Return the actor of the newest iteration as a model, without exploration noise.

        The model takes observations that are not normalised.

        Args:
            run: Facts about the run, such as its number of steps, to store in the header of the
                model file.
        """
        library = self._newest.library
        layers, squashed = library.export_actor_layers(), library.squashed
        if self._choices:
            layers = centre_and_scale_logit_layer(layers, self._choices, self._largest_logit)
            squashed = True
        layers = fold_normalisation_into_layers(layers, *library.compute_observation_mean_and_sd())
        how = f"{self.settings.algorithm.upper()} of stable-baselines3"
        trained = {"how": how, "seed": self.seed, "steps": self._newest.environment_steps, **run}
        return make_mlp_model(layers, "tanh" if squashed else "clip", self._task, trained)

    def _close_contenders_except(self, contenders: list[Contender]) -> None:
        """Close and drop all contenders except the given ones."""
        for one in self._contenders:
            if one not in contenders:
                one.close()
        self._contenders = contenders

    def _measure_validation_return(self) -> float:
        """Return the mean return in validation episodes of the actor that was trained last.

        The actor acts as it would be saved, without exploration noise and without bursts of random
        actions. Every validation has the same episodes with the same disturbances. If their mean
        return is the best of this actor's contender so far, further episodes are played to confirm
        it. Episodes that fail are left out. If all fail, the result is NaN.
        """
        policy = make_policy(self.make_model(), "off")
        totals = self._measure_validation_returns(policy, self._validations)
        if totals and np.mean(totals) >= self._newest.best:
            totals += self._measure_validation_returns(policy, self._confirmations)
        return float(np.mean(totals)) if totals else math.nan

    def _measure_validation_returns(
        self, policy: Policy, episodes: Sequence[tuple[int, DisturbanceSettings]]
    ) -> list[float]:
        """Play validation episodes and return the sum of the rewards of each that did not fail."""
        ids, failures = policy.nominal_ids, self._newest.library.failures
        totals: list[float | None] = []
        for seed, fault in episodes:
            policy.reset()
            totals.append(
                failures.try_episode(self._measure_return_in_episode, policy, ids, seed, fault)
            )
        return [total for total in totals if total is not None]

    def _measure_return_in_episode(
        self, policy: Policy, ids: tuple[str, ...], seed: int, fault: DisturbanceSettings
    ) -> float:
        """Play one validation episode and return the sum of its rewards."""
        episode = make_disturbed_episode(self._env, seed, fault)
        for tick in episode:
            if tick.arrived or episode.sent is None:
                episode.send_action(policy.step_array(tick.values, ids))
            else:
                episode.send_action(episode.sent)
        return episode.total
