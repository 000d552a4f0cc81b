"""What learning has in common for the forward model's networks: updates, figures, state.

The network that predicts what every channel reads next, and how sure that is.
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
from an_control.learning.forward_model.episodes import Trace
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
    """A run's numbers."""

    hidden: tuple[int, ...] = (192, 192)
    """Layers of the network that predicts."""
    steps: int = 60_000
    """To record, in whole episodes."""
    held_out: float = 0.05
    """Share of the episodes that are not learned from."""
    updates: int = 20_000
    """Of the network that predicts."""
    batch: int = 512
    rate: float = 2e-3
    identity: int = 128
    """Units in the layers of the identity classifier."""
    identity_updates: int = 20_000
    identity_batch: int = 64
    reading_noise: float = 0.1
    """The largest sd of the noise on the identity classifier's readings, in units of the sd of all
    readings."""
    imputation: int = 192
    """Units in the layers of the network that imputes missing channels, 0 = none."""
    imputation_updates: int = 8_000
    imputation_batch: int = 192
    imputation_ticks: int = 12
    """Ticks of each update, through which it learns from what it imputed itself."""
    missing: Range = Range(0.02, 0.45)  # noqa: RUF009
    """As in `DisturbanceSettings`, drawn whenever other channels are missing: one at least is."""
    noise: float = 0.4
    """The most that the normal noise of a noisy stretch has as sd."""
    monitor: Monitor = "match"
    faults: dict[Fault, float] = field(default_factory=dict)
    """Of the recorded episodes: what is learned to be no evidence of moved signals."""
    minutes: float = 0.0
    """Processor time in which the episodes and updates above are made, or as many as that allows;
    0: no limit."""

    def limit_s(self, share: float) -> float:
        """A share of that time, infinite where there is no limit."""
        return 60.0 * self.minutes * share if self.minutes else math.inf


class Training(ABC):
    """One network's training: Adam, at a rate that falls to 1e-5 along a cosine.

    It is over after its updates, or after `limit_s` of processor time.
    """

    name: str
    """What its metrics lines call it."""
    limit_s = math.inf

    def __init__(self, network: nn.Module, rate: float, updates: int) -> None:
        self.network, self.updates, self.done = network, updates, 0
        self._cpu_s = 0.0
        self._rate = rate
        self._optimiser = torch.optim.Adam(network.parameters(), rate)

    @abstractmethod
    def loss(self) -> torch.Tensor:
        """The loss () of the next batch."""

    @abstractmethod
    def figures(self, losses: list[float]) -> dict[str, float]:
        """For the metrics line after updates with these losses."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """The network as the arrays of a model file."""

    def further_state(self) -> dict[str, Any]:
        """What batches depend on, beside torch's generator."""
        return {}

    def restore_further(self, state: dict[str, Any]) -> None:
        """Take over what `further_state` gave."""
        return

    @property
    def over(self) -> bool:
        """Whether no updates are left."""
        return self.done >= self.updates or self._cpu_s >= self.limit_s

    def advance(self, updates: int) -> dict[str, float]:
        """So many updates, or as many as are left; their figures, none without an update."""
        losses: list[float] = []
        last = self.done + updates
        while self.done < last and not self.over:
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

    def state(self) -> dict[str, Any]:
        return {
            "done": self.done,
            "cpu_s": self._cpu_s,
            "network": self.network.state_dict(),
            "optimiser": self._optimiser.state_dict(),
            "further": self.further_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.done, self._cpu_s = state["done"], state["cpu_s"]
        self.network.load_state_dict(to_tensors(state["network"]))
        self._optimiser.load_state_dict(to_tensors(state["optimiser"]))
        self.restore_further(state["further"])


def arrays_of(name: str, layers: nn.ModuleList) -> dict[str, np.ndarray]:
    """The arrays of linear layers, as `name`.0.weight and so on."""
    arrays = {}
    for place, layer in enumerate(layers):
        weight, bias = (x.detach().numpy().copy() for x in layer.parameters())
        arrays[f"{name}.{place}.weight"], arrays[f"{name}.{place}.bias"] = weight, bias
    return arrays


def moments(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation (N,) of rows; the latter is never 0."""
    return inputs.mean(0), inputs.std(0) + MIN_SPREAD


def fold_units(
    arrays: dict[str, np.ndarray], layer: str, middle: np.ndarray, spread: np.ndarray
) -> None:
    """Make a first layer, which learned from (inputs - middle) / spread, one of inputs as they are.

    Inputs that hardly varied get no weight: what they had was never learned, and divided by next to
    nothing it would make the least noise count.
    """
    varied = spread > MIN_SPREAD + 1e-3 * np.sqrt(1.0 + middle**2)
    first = arrays[f"{layer}.weight"].astype(np.float64) / np.where(varied, spread, np.inf)
    arrays[f"{layer}.weight"] = first.astype(F32)
    arrays[f"{layer}.bias"] = (arrays[f"{layer}.bias"] - first @ middle).astype(F32)


CALM_STEPS = 4000
"""Undisturbed steps whose costs count as usual, at most."""


class Prediction(Training):
    """Learns each channel's change with the scale of its error; of binary ones the chance of 1."""

    name = "predict"

    def __init__(self, traces: Sequence[Trace], settings: ForwardModelSettings) -> None:
        before, actions, after, episode = flat(traces)
        self._step = np.abs(after - before).mean(0) + LEAST_CHANGE
        self.binary = np.isin(before, (0.0, 1.0)).all(0) & (before.min(0) < before.max(0))
        """(N,) True where a channel reads 0 or 1, and both."""
        self._middle, self._spread = moments(np.concatenate([before, actions], 1))
        inputs = (np.concatenate([before, actions], 1) - self._middle) / self._spread
        self._inputs = torch.from_numpy(inputs)
        self._change = torch.from_numpy((after - before) / self._step)
        self._reads = torch.from_numpy(after)
        held = np.arange(len(traces)) >= len(traces) * (1.0 - settings.held_out)
        self._train = torch.from_numpy(np.flatnonzero(~held[episode]))
        self._test = torch.from_numpy(np.flatnonzero(held[episode]))
        self._batch = settings.batch
        widths = [inputs.shape[1], *settings.hidden, 2 * before.shape[1]]
        self._network = _Predictor(widths, torch.from_numpy(self.binary))
        super().__init__(self._network, settings.rate, settings.updates)

    def loss(self) -> torch.Tensor:
        rows = self._train[torch.randint(0, len(self._train), (self._batch,))]
        return self._loss_of(rows)

    def figures(self, losses: list[float]) -> dict[str, float]:
        with torch.no_grad():
            return {"loss": losses[-1], "held_out": self._loss_of(self._test).item()}

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = arrays_of("forward", self._network.layers)
        fold_units(arrays, "forward.0", self._middle, self._spread)
        arrays["forward.step"] = self._step.astype(F32)
        return arrays

    def _loss_of(self, rows: torch.Tensor) -> torch.Tensor:
        what = self._inputs[rows], self._change[rows], self._reads[rows]
        return self._network.loss(*what).mean()


class _Predictor(nn.Module):
    """Layers with SiLU between; Elfwing et al. 2017."""

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
        """(B, N): the negative log likelihood, less constants."""
        first, second = self(inputs).chunk(2, -1)
        log_scale = second.clamp(MIN_LOG_SCALE, MAX_LOG_SCALE)
        error = (change - first) * torch.exp(-log_scale)
        half = 0.5 * (FREEDOM + 1.0)
        smooth = log_scale + half * torch.log1p(error * error / FREEDOM)
        chance = nn.functional.binary_cross_entropy_with_logits(
            first, reads.clamp(0.0, 1.0), reduction="none"
        )
        return torch.where(self._binary, chance, smooth)


def usual_costs(forward: ForwardModel, traces: Sequence[Trace]) -> np.ndarray:
    """What each channel's readings cost (N,), in steps that nothing disturbed."""
    calm = flat([trace for trace in traces if not trace.disturbed] or traces)
    before, actions, after = (part[-CALM_STEPS:] for part in calm[:3])
    costs, seen = np.zeros((before.shape[1],) * 2), forward.predict(before, actions)
    Costs(forward, MONITOR.costs).add(costs, after - before, seen.change, after, seen)
    usual: np.ndarray = (np.diagonal(costs) / len(before)).astype(F32)
    return usual


def flat(traces: Sequence[Trace]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Readings before, actions, readings after, and of which episode, a row for every step."""
    before = np.concatenate([trace.readings[:-1] for trace in traces]).astype(F32)
    after = np.concatenate([trace.readings[1:] for trace in traces]).astype(F32)
    actions = np.concatenate([trace.actions for trace in traces]).astype(F32)
    return before, actions, after, np.repeat(range(len(traces)), [len(t.actions) for t in traces])
