"""Training of the monitor's prediction network, and what the training of all its networks shares.

The prediction network estimates every channel's next reading and the scale of its error.
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from an_control.disturbance import Range
from an_control.learning.forward_model.episodes import EpisodeTrace
from an_control.learning.runs.run_folder import to_tensors
from an_control.learning.training_disturbances import Fault
from an_control.monitor.costs import Costs
from an_control.monitor.forward_model import LEAST_CHANGE, ForwardModel
from an_control.monitor.settings import FREEDOM, MAX_LOG_SCALE, MIN_LOG_SCALE, MONITOR
from an_control.policy import Monitor

F32 = np.float32
MIN_SPREAD = F32(1e-3)


@dataclass(frozen=True)
class ForwardModelSettings:
    """Settings of the training of a monitor's networks."""

    hidden: tuple[int, ...] = (192, 192)
    """Units of each hidden layer of the prediction network."""
    steps: int = 60_000
    """Steps to record, in whole episodes."""
    held_out: float = 0.05
    """Share of the episodes that are held out from training."""
    updates: int = 20_000
    """Updates of the prediction network."""
    batch: int = 512
    """Steps of a batch of the prediction network."""
    rate: float = 2e-3
    """Learning rate of all networks at the start of their training."""
    identity: int = 128
    """Units of each hidden layer of the identity classifier."""
    identity_updates: int = 20_000
    """Updates of the identity classifier."""
    identity_batch: int = 64
    """Stretches of a batch of the identity classifier."""
    reading_noise: float = 0.1
    """Maximum standard deviation of the noise on the identity classifier's readings, as a multiple
    of the standard deviation of all readings."""
    imputation: int = 192
    """Units of each hidden layer of the imputation network; 0: no imputation network."""
    imputation_updates: int = 8_000
    """Updates of the imputation network, in each of its two stages."""
    imputation_batch: int = 192
    """Rows of a batch of the imputation network."""
    imputation_ticks: int = 12
    """Ticks of an update, through which the imputation network learns from its own estimates."""
    missing: Range = Range(0.02, 0.45)  # noqa: RUF009
    """Range of the share of missing channels, drawn whenever the set of missing channels changes;
    at least one channel is missing."""
    noise: float = 0.4
    """Maximum standard deviation of the action noise in a noisy stretch."""
    monitor: Monitor = "match"
    """Monitor mode that is stored in the model file."""
    faults: dict[Fault, float] = field(default_factory=dict)
    """Probability of each disturbance in the recorded episodes. The networks learn that it is no
    evidence of moved signals."""
    minutes: float = 0.0
    """Time limit of the run in minutes of processor time; 0: no limit."""

    def time_limit_s(self, share: float) -> float:
        """Return a share of the time limit in seconds; infinity without a limit."""
        return 60.0 * self.minutes * share if self.minutes else math.inf


class NetworkTraining(ABC):
    """Training of one network by Adam, with a learning rate that falls to 1e-5 along a cosine.

    It ends after its updates, or after `limit_s` seconds of processor time.

    Args:
        network: The network to train.
        rate: Learning rate at the start.
        updates: Number of updates.
    """

    name: str
    """Name of the training in the metrics."""
    limit_s = math.inf

    def __init__(self, network: nn.Module, rate: float, updates: int) -> None:
        self.network, self.updates, self.done = network, updates, 0
        self._cpu_s = 0.0
        self._rate = rate
        self._optimiser = torch.optim.Adam(network.parameters(), rate)

    @abstractmethod
    def loss(self) -> torch.Tensor:
        """Return the loss () of the next batch."""

    @abstractmethod
    def figures(self, losses: list[float]) -> dict[str, float]:
        """Return the figures for the metrics after updates with these losses."""

    @abstractmethod
    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the network under its names in a model file."""

    def batch_state(self) -> dict[str, Any]:
        """Return the state of the batches, beside torch's random generator."""
        return {}

    def restore_batches(self, state: dict[str, Any]) -> None:
        """Continue from a state that `batch_state` returned."""
        return

    @property
    def is_over(self) -> bool:
        """Return whether the training has ended."""
        return self.done >= self.updates or self._cpu_s >= self.limit_s

    def advance(self, updates: int) -> dict[str, float]:
        """Make up to `updates` updates and return their figures, {} without an update."""
        losses: list[float] = []
        last = self.done + updates
        while self.done < last and not self.is_over:
            begun = time.process_time()
            angle = math.pi * max(self.done / self.updates, self._cpu_s / self.limit_s)
            rate = self._rate * 0.5 * (1.0 + math.cos(angle)) + 1e-5
            for group in self._optimiser.param_groups:
                group["lr"] = rate
            loss = self.loss()
            self._optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 5.0)
            self._optimiser.step()
            losses.append(loss.item())
            self.done += 1
            self._cpu_s += time.process_time() - begun
        return self.figures(losses) if losses else {}

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the checkpoint from which `restore` continues."""
        return {
            "done": self.done,
            "cpu_s": self._cpu_s,
            "network": self.network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "further": self.batch_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        self.done, self._cpu_s = state["done"], state["cpu_s"]
        self.network.load_state_dict(to_tensors(state["network"]))
        self._optimiser.load_state_dict(to_tensors(state["optimiser"]))
        self.restore_batches(state["further"])


def layer_arrays(name: str, layers: nn.ModuleList) -> dict[str, np.ndarray]:
    """Return the weights of linear layers as `name`.0.weight, `name`.0.bias and so on."""
    arrays = {}
    for place, layer in enumerate(layers):
        weight, bias = (x.detach().numpy().copy() for x in layer.parameters())
        arrays[f"{name}.{place}.weight"], arrays[f"{name}.{place}.bias"] = weight, bias
    return arrays


def mean_and_sd(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (N,) and standard deviation (N,) of the rows; the latter is never 0."""
    return inputs.mean(0), inputs.std(0) + MIN_SPREAD


def fold_normalisation(
    arrays: dict[str, np.ndarray], layer: str, middle: np.ndarray, spread: np.ndarray
) -> None:
    """Change a first layer, in place, so that it takes inputs in their own units.

    The layer was trained on (inputs - middle) / spread. Inputs that hardly varied get weight 0:
    nothing was learned about them, and divided by a tiny spread they would amplify the least noise.

    Args:
        arrays: The network's arrays.
        layer: The layer's name in them.
        middle: (N,) mean of the inputs.
        spread: (N,) their standard deviation.
    """
    varied = spread > MIN_SPREAD + 1e-3 * np.sqrt(1.0 + middle**2)
    first = arrays[f"{layer}.weight"].astype(np.float64) / np.where(varied, spread, np.inf)
    arrays[f"{layer}.weight"] = first.astype(F32)
    arrays[f"{layer}.bias"] = (arrays[f"{layer}.bias"] - first @ middle).astype(F32)


CALM_STEPS = 4000
"""Maximum number of undisturbed steps from which the usual costs are computed."""


class PredictionTraining(NetworkTraining):
    """Training of the prediction network.

    It estimates each channel's change and the scale of its error, and for binary channels the
    probability of reading 1.

    Args:
        traces: Episodes to learn from; the last ones are held out.
        settings: Sizes and numbers of updates.
    """

    name = "predict"

    def __init__(self, traces: Sequence[EpisodeTrace], settings: ForwardModelSettings) -> None:
        before, actions, after, episode = collect_steps(traces)
        self._step = np.abs(after - before).mean(0) + LEAST_CHANGE
        self.binary = np.isin(before, (0.0, 1.0)).all(0) & (before.min(0) < before.max(0))
        """(N,) True for channels that read both 0 and 1 and nothing else."""
        self._middle, self._spread = mean_and_sd(np.concatenate([before, actions], 1))
        inputs = (np.concatenate([before, actions], 1) - self._middle) / self._spread
        self._inputs = torch.from_numpy(inputs)
        self._change = torch.from_numpy((after - before) / self._step)
        self._reads = torch.from_numpy(after)
        held = np.arange(len(traces)) >= len(traces) * (1.0 - settings.held_out)
        self._train = torch.from_numpy(np.flatnonzero(~held[episode]))
        self._test = torch.from_numpy(np.flatnonzero(held[episode]))
        self._batch = settings.batch
        widths = [inputs.shape[1], *settings.hidden, 2 * before.shape[1]]
        self._network = _PredictionNetwork(widths, torch.from_numpy(self.binary))
        super().__init__(self._network, settings.rate, settings.updates)

    def loss(self) -> torch.Tensor:
        """Return the mean negative log-likelihood () of the next batch."""
        rows = self._train[torch.randint(0, len(self._train), (self._batch,))]
        return self._loss_of_rows(rows)

    def figures(self, losses: list[float]) -> dict[str, float]:
        """Return the last loss, and the loss on the held-out episodes."""
        with torch.no_grad():
            return {"loss": losses[-1], "held_out": self._loss_of_rows(self._test).item()}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the network for inputs in their own units, under its names in a model file."""
        arrays = layer_arrays("forward", self._network.layers)
        fold_normalisation(arrays, "forward.0", self._middle, self._spread)
        arrays["forward.step"] = self._step.astype(F32)
        return arrays

    def _loss_of_rows(self, rows: torch.Tensor) -> torch.Tensor:
        what = self._inputs[rows], self._change[rows], self._reads[rows]
        return self._network.loss(*what).mean()


class _PredictionNetwork(nn.Module):
    """Layers with SiLU (Elfwing et al. 2017) between them."""

    def __init__(self, widths: list[int], binary: torch.Tensor) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self._binary = binary

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        *hidden, last = self.layers
        for layer in hidden:
            x = nn.functional.silu(layer(x))
        return last(x)

    def loss(self, inputs: torch.Tensor, change: torch.Tensor, reads: torch.Tensor) -> torch.Tensor:
        """Return the negative log-likelihood (B, N), without constant terms."""
        first, second = self(inputs).chunk(2, -1)
        log_scale = second.clamp(MIN_LOG_SCALE, MAX_LOG_SCALE)
        error = (change - first) * torch.exp(-log_scale)
        half = 0.5 * (FREEDOM + 1.0)
        smooth = log_scale + half * torch.log1p(error * error / FREEDOM)
        chance = nn.functional.binary_cross_entropy_with_logits(
            first, reads.clamp(0.0, 1.0), reduction="none"
        )
        return torch.where(self._binary, chance, smooth)


def usual_costs(forward: ForwardModel, traces: Sequence[EpisodeTrace]) -> np.ndarray:
    """Return the mean cost (N,) of each channel's readings in undisturbed steps, in nats."""
    calm = collect_steps([trace for trace in traces if not trace.disturbed] or traces)
    before, actions, after = (part[-CALM_STEPS:] for part in calm[:3])
    costs, seen = np.zeros((before.shape[1],) * 2), forward.predict(before, actions)
    Costs(forward, MONITOR.costs).add(costs, after - before, seen.change, after, seen)
    usual: np.ndarray = (np.diagonal(costs) / len(before)).astype(F32)
    return usual


def collect_steps(
    traces: Sequence[EpisodeTrace],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return all steps of the episodes in one table.

    Returns:
        Readings before (S, N), actions (S, A), readings after (S, N), and the index of the step's
            episode (S,).
    """
    before = np.concatenate([trace.readings[:-1] for trace in traces]).astype(F32)
    after = np.concatenate([trace.readings[1:] for trace in traces]).astype(F32)
    actions = np.concatenate([trace.actions for trace in traces]).astype(F32)
    return before, actions, after, np.repeat(range(len(traces)), [len(t.actions) for t in traces])
