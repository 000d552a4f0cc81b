"""Behaviour cloning: fit a network to recorded commands, in the known order of the channels.

The network reads one tick, never the previous action: a network that does learns to repeat it,
because consecutive commands are nearly equal (de Haan et al. 2019, causal confusion in imitation
learning). It serves as the head of a student.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from an_control.learning.arrays import to_array
from an_control.learning.dagger.streams import DaggerEpisode, fill_missing
from an_control.learning.dagger.training import SATURATED
from an_control.learning.teacher.teachers import Layers, Output

MIN_SPREAD = 1e-3
"""Smallest standard deviation by which a channel's readings are divided."""


@dataclass(frozen=True)
class CloningSettings:
    """Settings of behaviour cloning. The defaults suit some ten thousand recorded ticks."""

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


def clone_commands(
    episodes: Sequence[DaggerEpisode],
    output: Output,
    settings: CloningSettings,
    seed: int,
) -> Layers:
    """Fit a relu network from the readings of one tick to the recorded action.

    Args:
        episodes: Recorded episodes.
        output: Function behind the last layer.
        settings: Sizes, numbers of updates and ticks, and rates.
        seed: Seed of the initial weights and of the batches.

    Returns:
        Weight (out, in) and bias (out,) of each layer, for readings that are not normalised.
    """
    rng = np.random.default_rng([seed, len(episodes)])
    readings = np.concatenate([fill_missing(one.observations) for one in episodes])
    actions = torch.from_numpy(np.concatenate([one.labels for one in episodes]))
    middle, spread = readings.mean(0, np.float64), readings.std(0, dtype=np.float64)
    varied = spread > MIN_SPREAD  # a channel that never varied tells nothing
    spread = np.where(varied, spread, np.inf)
    inputs = torch.from_numpy(((readings - middle) / spread).astype(np.float32))
    network = _make_network([inputs.shape[1], *settings.hidden, actions.shape[1]], seed)
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
        for layer in average.module
        if isinstance(layer, nn.Linear)
    ]
    weight, bias = layers[0]
    layers[0] = weight / spread, bias - (weight / spread) @ middle
    return tuple(layers)


def _make_network(widths: Sequence[int], seed: int) -> nn.Sequential:
    """Return a relu network with these numbers of inputs, of units of each layer, and outputs."""
    torch.manual_seed(seed)
    pairs = [(nn.Linear(before, after), nn.ReLU()) for before, after in pairwise(widths)]
    return nn.Sequential(*[module for pair in pairs for module in pair][:-1])


def _compute_loss(out: torch.Tensor, actions: torch.Tensor, output: Output) -> torch.Tensor:
    """Return the mean squared error of the network's actions, a scalar.

    Args:
        out: Outputs (B, A) of the last layer.
        actions: Recorded actions (B, A).
        output: Function behind the last layer. If actions are clipped, a recorded one at the limit
            allows any output beyond it.
    """
    if output == "tanh":
        return ((torch.tanh(out) - actions) ** 2).mean()
    beyond = torch.relu(1.0 - actions * out) ** 2
    return torch.where(actions.abs() > SATURATED, beyond, (out - actions) ** 2).mean()
