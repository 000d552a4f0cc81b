"""Training of the identity monitor's networks, driven by the run loop.

The networks are trained one after the other: prediction and identity on the first episodes,
imputation on the same, then imputation again with more episodes, in which channels are missing and
the network imputes them. A step of the run is up to 1,000 updates of one network.

A time limit ends the training of a network, also if it is lowered later. If a run that a limit cut
short continues with a higher limit, it starts again: otherwise its networks would rest on fewer
episodes than the new limit allows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from an_control.learning.forward_model.episodes import (
    EpisodeTrace,
    Explorer,
    MissingChannelsDriver,
    MiswiredDriver,
    PolicyDriver,
    record_episodes,
)
from an_control.learning.forward_model.imputation import IdentityTraining, ImputationTraining
from an_control.learning.forward_model.networks import (
    ForwardModelSettings,
    NetworkTraining,
    PredictionTraining,
    compute_mean_nll_per_channel,
)
from an_control.learning.runs.run_folder import EpisodeRecordings
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.monitor.forward_model import NETWORKS, ForwardModel
from an_control.policy import Model
from an_control.policy.sizes import ForwardSizes

CHUNK = 1000
"""Number of updates in a step of the run."""
TIME = {"record": (0.25, 0.15), "learn": (0.2, 0.14, 0.13, 0.13)}
"""Shares of the run's time limit for its two recordings, and for each training in turn."""


class ForwardModelLearner:
    """Trainer of the networks of a policy's identity monitor, which detects swapped signals.

    The policy's own arrays are not changed. Each call of `step` makes up to 1,000 updates.

    Args:
        folder: The run's folder, in which the recorded episodes are stored.
        env: The environment of the policy's task; None if `recorded` gives the episodes.
        model: The policy.
        settings: The networks' sizes, and numbers of updates.
        seed: Seed of all random numbers of the run.
        recorded: Episodes to learn from. If there are none, the policy plays episodes in `env`. The
            network that estimates missing readings is then trained twice: after the first time, the
            policy plays more episodes in which it acts on the estimates.
    """

    unit = "step"

    def __init__(
        self,
        folder: Path,
        env: gymnasium.Env[Any, Any] | None,
        model: Model,
        settings: ForwardModelSettings,
        seed: int,
        recorded: Sequence[EpisodeTrace] = (),
    ) -> None:
        torch.set_num_threads(1)  # on a busy machine threads of small networks wait for each other
        self.settings, self.seed = settings, seed
        self._env, self._known, self._recorded = env, model, list(recorded)
        self._recordings = EpisodeRecordings(folder, EpisodeTrace)
        self._rng = np.random.default_rng(seed)
        self._updates = [settings.updates, settings.identity_updates]
        if settings.imputation_updates:
            self._updates += [settings.imputation_updates] * (1 if recorded else 2)
        self._minutes, self._cut_at = settings.minutes, 0.0
        """Time limit of the newest step, and the highest limit that has cut episodes or updates
        short; 0 if none has."""
        self._extra = 0
        """Steps without an update, and steps done before the run was started again."""
        self.starts_again = False
        """Whether the run starts again now, since its limit was raised."""
        self._stage = 0
        self._training: NetworkTraining | None = None
        self._traces: list[EpisodeTrace] = []
        self._predicting: dict[str, Any] = {}
        """Arrays and binary channels of the prediction network, until the identity classifier is
        trained."""

    @property
    def total_step_calls(self) -> int:
        """Return the number of steps of the whole run, each of up to 1,000 updates."""
        return self._extra + _count_steps_for_updates(self._updates)

    @property
    def config(self) -> dict[str, Any]:
        """Return the settings that identify the run, for its `config.json`.

        The networks of a monitor that the model already has are not part of them, because the
        training replaces these networks.
        """
        model = self._known
        return {
            "task": model.task.to_header(),
            "trained": {name: how for name, how in model.trained.items() if name != "forward"},
            "seed": self.seed,
            "settings": asdict(self.settings),
            **({"recorded": self._compute_episode_fingerprint()} if self._recorded else {}),
        }

    def _compute_episode_fingerprint(self) -> list[float]:
        """Return three numbers that tell a continued run whether it was given other episodes.

        They are the number of episodes, the number of ticks, and the sum of all readings and
        actions.
        """
        sums = [float(one.readings.sum() + one.actions.sum()) for one in self._recorded]
        return [len(sums), sum(len(one.actions) for one in self._recorded), sum(sums)]

    def close(self) -> None:
        """Close the environment, if there is one."""
        if self._env is not None:
            self._env.close()

    def step(self) -> dict[str, Any]:
        """Train the current network by up to 1,000 updates, and return their metrics by name."""
        if self._training is None:
            self._training = self._record_episodes_and_make_training()
        training, self._minutes = self._training, self.settings.minutes
        figures = training.run_updates(CHUNK)
        if not figures:
            self._extra += 1
        if training.is_over:
            self._add_trained_network_to_model(training)
            self._updates[self._stage] = training.done
            self._store_time_limit_if_cut_short(training.done < training.updates)
            self._stage, self._training = self._stage + 1, None
        return {"learns": training.name, "update": training.done, **figures}

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the run's checkpoint, from which `restore` continues."""
        known = self._known
        return {
            "stage": self._stage,
            "updates": self._updates,
            "minutes": self._minutes,
            "cut_at": self._cut_at,
            "extra": self._extra,
            "training": None if self._training is None else self._training.make_checkpoint(),
            "torch": torch.get_rng_state(),
            "rng": self._rng.bit_generator.state,
            "predicting": self._predicting,
            "arrays": {n: a for n, a in known.arrays.items() if n.startswith(NETWORKS)},
            "forward": None if known.forward is None else asdict(known.forward),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned.

        If the time limit cut the recording or training short, and is higher now, the run starts
        from the beginning instead.
        """
        self._minutes = state["minutes"]
        self._cut_at, self._extra = state["cut_at"], state["extra"]
        if 0.0 < self._cut_at < (self.settings.minutes or math.inf):
            self._extra += _count_steps_for_updates(state["updates"][: state["stage"]])
            if state["training"] is not None:
                self._extra += _count_steps_for_updates([state["training"]["done"]])
            self._cut_at, self.starts_again = 0.0, True
            return
        forward = (
            None
            if state["forward"] is None
            else ForwardSizes.from_header(state["forward"], self._known.task.channels)
        )
        self._known = replace(self._make_model_without_networks(), forward=forward)
        self._known.arrays.update(state["arrays"])
        self._stage, self._predicting = state["stage"], state["predicting"]
        self._updates = state["updates"]
        if self._stage or state["training"] is not None:
            recorded = 2 if self._stage == 3 and state["training"] is not None else 1
            for number in range(recorded):
                self._traces += self._recordings.read_episodes(number)
        if state["training"] is not None:
            self._training = self._make_training_of_current_stage()
            self._training.restore(state["training"])
        self._rng.bit_generator.state = state["rng"]
        torch.set_rng_state(torch.tensor(state["torch"]))

    def make_model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """Return the policy with the networks that are trained so far.

        Args:
            run: Not used; other trainers store it in the model file's header.
        """
        recorded = sum(len(one.actions) for one in self._recorded)
        forward: dict[str, float] = {
            "steps": recorded or self.settings.steps,
            "updates": self._updates[0],
            "imputation_updates": self._updates[2] if len(self._updates) > 2 else 0,
        }
        if self._minutes:
            forward["minutes_limit"] = self._minutes
        return replace(self._known, trained={**self._known.trained, "forward": forward})

    def _store_time_limit_if_cut_short(self, was_cut: bool) -> None:
        """Store the time limit if it ended recording or training too early."""
        if was_cut:
            self._cut_at = max(self._cut_at, self.settings.minutes)

    def _record_episodes_and_make_training(self) -> NetworkTraining:
        """Record the episodes that the next network needs, and return its training."""
        if self._stage == 0:
            explorer = Explorer(self._known, self.settings.noise, self._rng)
            self._record_and_add_episodes(0, explorer, self.settings.steps)
            torch.manual_seed(self.seed % 2**64)
        elif self._stage > 1:
            if self._stage == 3:
                driver = MissingChannelsDriver(
                    self._known, self.settings.missing, 0.5 * self.settings.noise, self._rng
                )
                self._record_and_add_episodes(1, driver, max(1, self.settings.steps // 2))
            torch.manual_seed(self.seed % 2**64)
        return self._make_training_of_current_stage()

    def _make_training_of_current_stage(self) -> NetworkTraining:
        """Return a new training of the stage's network, with its share of the time limit.

        In the second stage of the imputation network, training continues with the weights of the
        first.
        """
        settings, rng = self.settings, np.random.default_rng(self.seed)
        training: NetworkTraining
        if self._stage == 0:
            training = PredictionTraining(self._traces, settings)
        elif self._stage == 1:
            training = IdentityTraining(self._traces, settings, rng)
        else:
            arrays = self._known.arrays if self._stage == 3 else {}
            training = ImputationTraining(self._traces, settings, rng, arrays)
        training.limit_s = settings.compute_share_of_time_limit_s(TIME["learn"][self._stage])
        return training

    def _record_and_add_episodes(
        self, recording_number: int, explorer: PolicyDriver, min_steps: int
    ) -> None:
        """Record episodes and add them to the episodes to learn from.

        Without an environment nothing is recorded, and the episodes given to the constructor are
        added. All added episodes are also written to the run's folder.
        """
        limit_s = self.settings.compute_share_of_time_limit_s(TIME["record"][recording_number])
        how: tuple[Any, ...] = (self.settings.faults, limit_s)
        if recording_number == 0 and self.settings.miswired_share:
            how += ((MiswiredDriver(self._known, self._rng), self.settings.miswired_share),)
        traces = self._recorded
        if self._env is not None:
            traces = record_episodes(self._env, explorer, min_steps, self._rng, *how)
            self._store_time_limit_if_cut_short(
                sum(len(trace.actions) for trace in traces) < min_steps
            )
        self._recordings.write_episodes(recording_number, traces)
        self._traces += traces

    def _make_model_without_networks(self) -> Model:
        """Return the model without the monitor's networks."""
        known = self._known
        arrays = {n: a for n, a in known.arrays.items() if not n.startswith(NETWORKS)}
        return replace(known, arrays=arrays, forward=None)

    def _add_trained_network_to_model(self, training: NetworkTraining) -> None:
        """Add the network of a finished training to the model.

        The prediction network is not added at once, but together with the identity classifier.
        """
        settings, channels = self.settings, self._known.task.channels
        if isinstance(training, PredictionTraining):
            binary = [name for name, two in zip(channels, training.binary, strict=True) if two]
            self._predicting = {"arrays": training.to_arrays(), "binary": binary}
            return
        if isinstance(training, IdentityTraining):
            own, binary = self._make_model_without_networks(), self._predicting["binary"]
            arrays = own.arrays | self._predicting["arrays"] | training.to_arrays()
            hidden = list(settings.hidden)
            sizes = ForwardSizes(hidden, settings.identity, binary, settings.monitor, imputation=0)
            arrays["forward.usual"] = np.zeros(len(channels), np.float32)
            known = replace(own, arrays=arrays, forward=sizes)
            arrays["forward.usual"] = compute_mean_nll_per_channel(
                ForwardModel(known), self._traces
            )
        else:
            assert self._known.forward is not None
            arrays = self._known.arrays | training.to_arrays()
            units = len(arrays["imputation.0.bias"])
            sizes = replace(self._known.forward, imputation=units)
        self._known = replace(self._known, arrays=arrays, forward=sizes)


def _count_steps_for_updates(updates: Sequence[int]) -> int:
    """Return how many steps of the run these updates need; a step makes up to 1,000 updates."""
    return sum(-(-some // CHUNK) for some in updates)
