"""The network that predicts what every channel reads next, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from an_control.learning.forward_model.episodes import Trace
from an_control.learning.forward_model.networks import (
    F32,
    ForwardModelSettings,
    Training,
    arrays_of,
    fold_units,
    moments,
)
from an_control.monitor.assignment import FREEDOM
from an_control.monitor.costs import Costs
from an_control.monitor.forward_model import HIGHEST, LEAST_CHANGE, LOWEST, ForwardModel

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
        log_scale = second.clamp(LOWEST, HIGHEST)
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
    Costs(forward).add(costs, after - before, seen.change, after, seen)
    usual: np.ndarray = (np.diagonal(costs) / len(before)).astype(F32)
    return usual


def flat(traces: Sequence[Trace]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Readings before, actions, readings after, and of which episode, a row for every step."""
    before = np.concatenate([trace.readings[:-1] for trace in traces]).astype(F32)
    after = np.concatenate([trace.readings[1:] for trace in traces]).astype(F32)
    actions = np.concatenate([trace.actions for trace in traces]).astype(F32)
    return before, actions, after, np.repeat(range(len(traces)), [len(t.actions) for t in traces])
