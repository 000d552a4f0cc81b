"""Behaviour cloning: fit a network to recorded commands, in the known order of the channels.

The network reads one tick, never the previous action: a network that does learns to repeat it,
because consecutive commands are nearly equal (de Haan et al. 2019, causal confusion in imitation
learning). It serves as the head of a student, or as a policy behind the monitor, which keeps the
order of its channels.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from an_control.learning.dagger.streams import DaggerEpisode, fill_missing_readings
from an_control.learning.dagger.training import SATURATED
from an_control.learning.recurrence import to_array
from an_control.learning.runs.run_loop import NO_FIGURES
from an_control.learning.teacher.sb3_algorithm import (
    fold_normalisation_into_layers,
    make_mlp_model,
)
from an_control.learning.teacher.teachers import Layers, Output, make_network_teacher
from an_control.policy import Model
from an_control.policy.task import Task

MIN_SPREAD = 1e-3
"""Smallest standard deviation by which a channel's readings are divided."""


LARGE_ERROR = 0.05
"""Error of an action from which on it counts by its absolute value, below by its square."""


@dataclass(frozen=True)
class CloningSettings:
    """Settings of behaviour cloning, which fits a plain network to recorded commands.

    The defaults suit recordings of some ten thousand ticks.
    """

    hidden: tuple[int, ...] = (256, 256)
    """Units of each hidden layer, which are those of the student's head too."""
    updates: int = 6000
    """Gradient updates."""
    batch: int = 256
    """Ticks of an update, drawn from all episodes."""
    rate: float = 1e-3
    """Learning rate at the start; it falls to 0 along a cosine."""
    weight_decay: float = 1e-5
    """Weight decay of AdamW (Loshchilov & Hutter 2019)."""
    averaging: float = 0.999
    """Decay of the running average of the weights, which is the result."""


CLONING = CloningSettings()
SMOKE_CLONING = CloningSettings(hidden=(8,), updates=3, batch=8)
"""Settings of a run of seconds, which only tests that it runs."""


def fit_network_to_commands(
    episodes: Sequence[DaggerEpisode],
    output: Output,
    settings: CloningSettings,
    seed: int,
) -> Layers:
    """Fit a relu network that computes the recorded action from the readings of the same tick.

    Args:
        episodes: Recorded episodes, whose labels are the actions to imitate.
        output: Function applied to the output of the last layer, "clip" or "tanh".
        settings: Sizes of the network, number and size of the batches, learning rate.
        seed: Seed of the initial weights and of the batches.

    Returns:
        Weight (out, in) and bias (out,) of each layer, for readings that are not normalised.
    """
    rng = np.random.default_rng([seed, len(episodes)])
    readings = np.concatenate([fill_missing_readings(one.observations) for one in episodes])
    actions = torch.from_numpy(np.concatenate([one.labels for one in episodes]))
    middle, spread = readings.mean(0, np.float64), readings.std(0, dtype=np.float64)
    varied = spread > MIN_SPREAD  # a channel that never varied tells nothing
    spread = np.where(varied, spread, np.inf)
    inputs = torch.from_numpy(((readings - middle) / spread).astype(np.float32))
    network = _make_relu_network([inputs.shape[1], *settings.hidden, actions.shape[1]], seed)
    average = AveragedModel(network, multi_avg_fn=get_ema_multi_avg_fn(settings.averaging))
    optimiser = torch.optim.AdamW(
        network.parameters(), settings.rate, weight_decay=settings.weight_decay
    )
    for update in range(settings.updates):
        for group in optimiser.param_groups:
            group["lr"] = (
                settings.rate * 0.5 * (1.0 + math.cos(math.pi * update / settings.updates))
            )
        rows = torch.from_numpy(rng.integers(0, len(inputs), settings.batch))
        loss = _compute_loss(network(inputs[rows]), actions[rows], output)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        average.update_parameters(network)
    layers = [
        (to_array(layer.weight).astype(np.float64), to_array(layer.bias).astype(np.float64))
        for layer in average.module.modules()
        if isinstance(layer, nn.Linear)
    ]
    return fold_normalisation_into_layers(tuple(layers), middle, spread)


def _make_relu_network(widths: Sequence[int], seed: int) -> nn.Sequential:
    """Return a relu network with random initial weights."""
    torch.manual_seed(seed % 2**64)
    pairs = [(nn.Linear(before, after), nn.ReLU()) for before, after in pairwise(widths)]
    return nn.Sequential(*[module for pair in pairs for module in pair][:-1])


def _compute_loss(
    last_outputs: torch.Tensor, actions: torch.Tensor, output: Output
) -> torch.Tensor:
    """Return the mean loss of the outputs (B, A) of the last layer against recorded actions (B, A).

    The loss of an action grows with the square of its error while the error is below `LARGE_ERROR`,
    and linearly above, because recorded actions near the limits -1 and 1 have noise towards the
    inside only. With the output "clip", outputs beyond the limit of a recorded action have no
    error.
    """
    if output == "tanh":
        return nn.functional.smooth_l1_loss(torch.tanh(last_outputs), actions, beta=LARGE_ERROR)
    beyond = torch.relu(1.0 - actions * last_outputs)
    error = torch.where(actions.abs() > SATURATED, beyond, last_outputs - actions)
    return nn.functional.smooth_l1_loss(error, torch.zeros_like(error), beta=LARGE_ERROR)


class CommandCloning:
    """Trainer of a plain network that imitates recorded commands.

    The run loop calls `step` only once, because one call does the whole training.

    Args:
        task: Channels, actuators and time step of the recorded robot.
        episodes: The recorded episodes; their labels are the commands.
        settings: Settings of the network and its training.
        seed: Seed of all random numbers of the run.
    """

    unit = "round"
    total_step_calls = 1

    def __init__(
        self, task: Task, episodes: Sequence[DaggerEpisode], settings: CloningSettings, seed: int
    ) -> None:
        torch.set_num_threads(1)
        self.settings, self.seed = settings, seed
        self._task, self._episodes = task, list(episodes)
        self._layers: Layers = ()

    @property
    def config(self) -> dict[str, Any]:
        """Return the run's settings, which are written to `config.json` in its folder.

        A new training in this folder continues the run only if its settings are the same.
        """
        return {
            "task": self._task.to_header(),
            "seed": self.seed,
            "cloning": asdict(self.settings),
            "recorded": compute_episode_fingerprint(self._episodes),
        }

    def close(self) -> None:
        """Do nothing: there is no environment."""

    def step(self) -> dict[str, Any]:
        """Fit the network to the recorded commands; return the metrics of the fit, by name.

        The only metric is "action_loss", the mean absolute difference between the network's actions
        and the recorded ones.
        """
        self._layers = fit_network_to_commands(self._episodes, "tanh", self.settings, self.seed)
        clone = make_network_teacher(self._layers, "tanh")
        errors = [
            np.abs(clone(readings) - action).mean()
            for episode in self._episodes
            for readings, action in zip(
                fill_missing_readings(episode.observations), episode.labels, strict=True
            )
        ]
        return {"action_loss": float(np.mean(errors))}

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the run's checkpoint, from which `restore` continues."""
        return {"layers": [list(layer) for layer in self._layers]}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        self._layers = tuple((weight, bias) for weight, bias in state["layers"])

    def make_model(self, run: Mapping[str, Any] = NO_FIGURES) -> Model:
        """Return the trained network as a model, which needs its channels in the recorded order.

        Args:
            run: Figures of the run to store in the model file's header.
        """
        how = {"how": "imitation of recordings", "seed": self.seed, **run}
        return make_mlp_model(self._layers, "tanh", self._task, how)


def compute_episode_fingerprint(episodes: Sequence[DaggerEpisode]) -> list[float]:
    """Return numbers by which a run recognises its recorded episodes.

    Returns:
        The number of episodes, the number of their ticks, and the sum of all readings and actions.
    """
    sums = [float(np.nansum(one.observations) + one.labels.sum()) for one in episodes]
    return [len(sums), sum(len(one.labels) for one in episodes), sum(sums)]
