"""Training of the monitor's prediction network, and the base class for training its networks.

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
from an_control.learning.runs.run_folder import convert_arrays_to_tensors
from an_control.learning.training_disturbances import Fault
from an_control.monitor.costs import CostCalculator
from an_control.monitor.forward_model import LEAST_CHANGE, ForwardModel
from an_control.monitor.settings import FREEDOM, MAX_LOG_SCALE, MIN_LOG_SCALE
from an_control.policy import Monitor

F32 = np.float32
MIN_SPREAD = F32(1e-3)


@dataclass(frozen=True)
class ForwardModelSettings:
    """Settings of the training of the networks with which a monitor detects rewired sensors."""

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
    """Number of pieces of episodes in a batch of the identity classifier."""
    reading_noise: float = 0.1
    """Maximum standard deviation of the noise on the identity classifier's readings, as a multiple
    of the standard deviation of all readings."""
    imputation: int = 192
    """Units of each hidden layer of the imputation network, besides two for each channel that at
    first pass on a linear estimate."""
    imputation_updates: int = 8_000
    """Updates of the imputation network, in each of its two stages."""
    imputation_batch: int = 192
    """Number of episodes that a batch of the imputation network plays side by side."""
    imputation_ticks: int = 12
    """Number of ticks in an update, through which the imputation network learns from its own
    estimates."""
    missing: Range = Range(0.02, 0.45)  # noqa: RUF009
    """Range of the share of missing channels, drawn whenever the set of missing channels changes;
    at least one channel is missing."""
    noise: float = 0.4
    """Maximum standard deviation of the action noise in a noisy period."""
    monitor: Monitor = "match"
    """Monitor mode that is stored in the model file."""
    faults: dict[Fault, float] = field(default_factory=dict)
    """Probability of each disturbance in the recorded episodes. The networks learn that it is no
    evidence that signals have been permuted."""
    miswired_share: float = 0.0
    """Share of the episodes of the first recording in which the policy acts through a wiring with
    mistakes (`MiswiredDriver`)."""
    minutes: float = 0.0
    """Time limit of the run in minutes of processor time; 0: no limit."""

    def compute_share_of_time_limit_s(self, share: float) -> float:
        """Return a share (0..1) of the run's time limit, in seconds; infinity without a limit."""
        return 60.0 * self.minutes * share if self.minutes else math.inf


class NetworkTraining(ABC):
    """Base class: training of one network by Adam, with a learning rate that falls along a cosine.

    It ends after `updates` updates, or after as much processor time as the attribute `limit_s`
    says.

    Args:
        network: The network to train.
        rate: Learning rate at the start; at the end it is 1e-5.
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
    def compute_loss(self) -> torch.Tensor:
        """Draw the next batch and return its loss, a scalar tensor."""

    @abstractmethod
    def compute_metrics(self, losses: list[float]) -> dict[str, float]:
        """Return the metrics of the newest updates, by name.

        Args:
            losses: Losses of the newest updates, at least one.
        """

    @abstractmethod
    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the network's weights by their array names in a model file."""

    def get_batch_sampler_state(self) -> dict[str, Any]:
        """Return all that decides the next batches, except torch's random generator."""
        return {}

    def restore_batch_sampler_state(self, state: dict[str, Any]) -> None:
        """Continue with the batches that follow a state that `get_batch_sampler_state` returned."""
        return

    @property
    def is_over(self) -> bool:
        """Return whether the training has ended, by its updates or its time limit."""
        return self.done >= self.updates or self._cpu_s >= self.limit_s

    def run_updates(self, updates: int) -> dict[str, float]:
        """Make up to `updates` updates, fewer if the training ends, and return their metrics.

        Args:
            updates: Maximum number of updates to make now.

        Returns:
            Metrics by name; {} if there was no update.
        """
        losses: list[float] = []
        last = self.done + updates
        while self.done < last and not self.is_over:
            begun = time.process_time()
            angle = math.pi * max(self.done / self.updates, self._cpu_s / self.limit_s)
            rate = self._rate * 0.5 * (1.0 + math.cos(angle)) + 1e-5
            for group in self._optimiser.param_groups:
                group["lr"] = rate
            loss = self.compute_loss()
            self._optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(self.network.parameters(), 5.0)
            self._optimiser.step()
            losses.append(loss.item())
            self.done += 1
            self._cpu_s += time.process_time() - begun
        return self.compute_metrics(losses) if losses else {}

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state of the training, from which `restore` continues."""
        return {
            "done": self.done,
            "cpu_s": self._cpu_s,
            "network": self.network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "further": self.get_batch_sampler_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        self.done, self._cpu_s = state["done"], state["cpu_s"]
        self.network.load_state_dict(convert_arrays_to_tensors(state["network"]))
        self._optimiser.load_state_dict(convert_arrays_to_tensors(state["optimiser"]))
        self.restore_batch_sampler_state(state["further"])


def export_layers(prefix: str, layers: nn.ModuleList) -> dict[str, np.ndarray]:
    """Return the weights of linear layers as arrays `prefix`.0.weight, `prefix`.0.bias and so on.

    Args:
        prefix: Prefix of the arrays' names.
        layers: The linear layers, the first one first.
    """
    arrays = {}
    for place, layer in enumerate(layers):
        weight, bias = (x.detach().numpy().copy() for x in layer.parameters())
        arrays[f"{prefix}.{place}.weight"], arrays[f"{prefix}.{place}.bias"] = weight, bias
    return arrays


def compute_mean_and_sd(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return mean (N,) and standard deviation (N,) of the columns of a table with S rows (S, N).

    The standard deviation is increased a little, so that it is never 0.
    """
    return inputs.mean(0), inputs.std(0) + MIN_SPREAD


def fold_normalisation_into_layer(
    arrays: dict[str, np.ndarray], layer: str, mean: np.ndarray, sd: np.ndarray
) -> None:
    """Change a network's first layer, in place, so that it takes inputs that are not normalised.

    The layer was trained on (inputs - mean) / sd. Inputs that hardly varied get weight 0: nothing
    was learned about them, and divided by a tiny deviation they would amplify the slightest noise.

    Args:
        arrays: The network's arrays by name, which this changes.
        layer: Name of the first layer, such as "forward.0".
        mean: Mean of the inputs (N,).
        sd: Standard deviation of the inputs (N,).
    """
    varied = sd > MIN_SPREAD + 1e-3 * np.sqrt(1.0 + mean**2)
    first = arrays[f"{layer}.weight"].astype(np.float64) / np.where(varied, sd, np.inf)
    arrays[f"{layer}.weight"] = first.astype(F32)
    arrays[f"{layer}.bias"] = (arrays[f"{layer}.bias"] - first @ mean).astype(F32)


CALM_STEPS = 4000
"""Maximum number of undisturbed steps from which the usual costs are computed."""


class PredictionTraining(NetworkTraining):
    """Training of the prediction network, which predicts the next reading of each channel.

    The network estimates the channel's change until the next tick, and the scale of that estimate's
    error. For a binary channel it estimates instead the log-odds that the channel will read 1.

    Args:
        traces: Episodes to learn from; the last ones are held out for a test.
        settings: Sizes and numbers of updates.
    """

    name = "predict"

    def __init__(self, traces: Sequence[EpisodeTrace], settings: ForwardModelSettings) -> None:
        before, actions, after, episode = join_transitions_of_traces(traces)
        self._step = np.abs(after - before).mean(0) + LEAST_CHANGE
        self.binary = np.isin(before, (0.0, 1.0)).all(0) & (before.min(0) < before.max(0))
        """(N,) True for channels that read both 0 and 1 and nothing else."""
        self._middle, self._spread = compute_mean_and_sd(np.concatenate([before, actions], 1))
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

    def compute_loss(self) -> torch.Tensor:
        """Draw the next batch and return its mean negative log-likelihood, a scalar."""
        rows = self._train[torch.randint(0, len(self._train), (self._batch,))]
        return self._compute_loss_of_steps(rows)

    def compute_metrics(self, losses: list[float]) -> dict[str, float]:
        """Return the last loss, and the loss on the held-out episodes if there are any.

        Args:
            losses: Losses of the newest updates, at least one.
        """
        if not len(self._test):  # of few episodes none is held out
            return {"loss": losses[-1]}
        with torch.no_grad():
            return {"loss": losses[-1], "held_out": self._compute_loss_of_steps(self._test).item()}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the network's weights by their array names in a model file.

        They are converted so that the network takes inputs that are not normalised.
        """
        arrays = export_layers("forward", self._network.layers)
        fold_normalisation_into_layer(arrays, "forward.0", self._middle, self._spread)
        arrays["forward.step"] = self._step.astype(F32)
        return arrays

    def _compute_loss_of_steps(self, steps: torch.Tensor) -> torch.Tensor:
        """Return the mean negative log-likelihood (a scalar) of recorded steps."""
        what = self._inputs[steps], self._change[steps], self._reads[steps]
        return self._network.compute_loss(*what).mean()


class _PredictionNetwork(nn.Module):
    """Network of linear layers with SiLU (Elfwing et al. 2017) between them.

    Args:
        widths: Number of inputs, units of each hidden layer, and number of outputs.
        binary: Whether each channel (N,) is binary.
    """

    def __init__(self, widths: list[int], binary: torch.Tensor) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))
        self._binary = binary

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a predicted change and a log-scale for each channel (B, 2 N), all changes first.

        The log-scale is the logarithm of the scale of the change's error. For a binary channel the
        first number is not a change but the log-odds of reading 1.
        """
        *hidden, last = self.layers
        for layer in hidden:
            x = nn.functional.silu(layer(x))
        return last(x)

    def compute_loss(
        self, inputs: torch.Tensor, changes: torch.Tensor, next_readings: torch.Tensor
    ) -> torch.Tensor:
        """Return the negative log-likelihood (B, N) of each reading, without constant terms.

        A change is divided by the channel's usual change.
        """
        first, second = self(inputs).chunk(2, -1)
        log_scale = second.clamp(MIN_LOG_SCALE, MAX_LOG_SCALE)
        error = (changes - first) * torch.exp(-log_scale)
        half = 0.5 * (FREEDOM + 1.0)
        smooth = log_scale + half * torch.log1p(error * error / FREEDOM)
        chance = nn.functional.binary_cross_entropy_with_logits(
            first, next_readings.clamp(0.0, 1.0), reduction="none"
        )
        return torch.where(self._binary, chance, smooth)


def compute_mean_nll_per_channel(
    forward: ForwardModel, traces: Sequence[EpisodeTrace]
) -> np.ndarray:
    """Return how badly each channel is usually predicted, as a cost (N,) in nats per step.

    The cost is the negative log-likelihood of the channel's readings. It is averaged over steps in
    which the policy's actions were not disturbed, if there are any.

    Args:
        forward: The prediction network.
        traces: Recorded episodes.
    """
    calm = join_transitions_of_traces([trace for trace in traces if not trace.disturbed] or traces)
    before, actions, after = (part[-CALM_STEPS:] for part in calm[:3])
    costs, seen = np.zeros((before.shape[1],) * 2), forward.predict_changes(before, actions)
    CostCalculator(forward).add_tick_costs_to_matrix(
        costs, after - before, seen.change, after, seen
    )
    usual: np.ndarray = (np.diagonal(costs) / len(before)).astype(F32)
    return usual


def join_transitions_of_traces(
    traces: Sequence[EpisodeTrace],
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Join the steps of all episodes into arrays of S steps, with N channels and A actions.

    Returns:
        Four arrays: readings before each step (S, N), actions (S, A), readings after the step (S,
        N), and the index of the step's episode (S,).
    """
    before = np.concatenate([trace.readings[:-1] for trace in traces]).astype(F32)
    after = np.concatenate([trace.readings[1:] for trace in traces]).astype(F32)
    actions = np.concatenate([trace.actions for trace in traces]).astype(F32)
    return before, actions, after, np.repeat(range(len(traces)), [len(t.actions) for t in traces])
