"""The identity classifier: which channel a slot carries, by what it read in the last ticks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from an_control.learning.forward_model.episodes import Trace
from an_control.learning.forward_model.networks import (
    F32,
    ForwardModelSettings,
    Training,
    arrays_of,
)
from an_control.policy.monitor.forward_model import identity_features
from an_control.policy.sizes import WINDOW


class Identity(Training):
    """Learns from stretches of 1 to `WINDOW` ticks."""

    name = "identity"

    def __init__(
        self, traces: Sequence[Trace], settings: ForwardModelSettings, rng: np.random.Generator
    ) -> None:
        whole = [trace for trace in traces if len(trace.actions) > WINDOW]
        if not whole:
            raise ValueError(f"no episode is longer than the {WINDOW} steps of a stretch")
        held = max(1, round(len(whole) * settings.held_out))
        readings = np.concatenate([trace.readings for trace in whole])
        change = np.concatenate([np.diff(trace.readings, axis=0) for trace in whole])
        self._units = np.array([readings.std(), 0.3 * np.abs(change).mean()], F32) + F32(1e-6)
        self._traces, self._batch, self._rng = whole[:-held] or whole, settings.identity_batch, rng
        self._channels = readings.shape[1]
        actions = whole[0].actions.shape[1]
        self._network = _Classifier(actions, settings.identity, self._channels)
        self._test = self._stretches(whole[-held:], 512, WINDOW, np.random.default_rng(0))
        super().__init__(self._network, settings.rate, settings.identity_updates)

    def loss(self) -> torch.Tensor:
        ticks = int(self._rng.integers(1, WINDOW + 1))
        return self._network.loss(*self._stretches(self._traces, self._batch, ticks, self._rng))

    def figures(self, losses: list[float]) -> dict[str, float]:
        with torch.no_grad():
            found = self._network(*self._test).argmax(-1)
            right = (found == torch.arange(self._channels)).float()
        return {"loss": losses[-1], "identified": right.mean().item()}

    def arrays(self) -> dict[str, np.ndarray]:
        arrays = arrays_of("identity", self._network.layers)
        arrays["identity.common"] = self._network.common.weight.detach().numpy().copy()
        arrays["identity.units"] = self._units
        return arrays

    def further_state(self) -> dict[str, Any]:
        return {"rng": self._rng.bit_generator.state}

    def restore_further(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]

    def _stretches(
        self, traces: Sequence[Trace], count: int, ticks: int, rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What `identity_features` makes of so many stretches of so many ticks."""
        reads, before, actions = [], [], []
        for place in rng.integers(len(traces), size=count):
            trace = traces[place]
            begin = int(rng.integers(len(trace.actions) - ticks + 1))
            before.append(trace.readings[begin : begin + ticks])
            reads.append(trace.readings[begin + 1 : begin + 1 + ticks])
            actions.append(trace.actions[begin : begin + ticks])
        change = np.array(reads) - np.array(before)
        own, common = identity_features(np.array(reads), change, np.array(actions), self._units)
        return torch.from_numpy(np.ascontiguousarray(own)), torch.from_numpy(common)


class _Classifier(nn.Module):
    """Two hidden layers for every slot, which share what is common to all."""

    def __init__(self, actions: int, width: int, channels: int) -> None:
        super().__init__()
        self.common = nn.Linear(WINDOW * (actions + 1), width, bias=False)
        widths = [2 * WINDOW, width, width, channels]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, own: torch.Tensor, common: torch.Tensor) -> torch.Tensor:
        first, second, last = self.layers
        x = nn.functional.silu(first(own) + self.common(common).unsqueeze(1))
        return last(nn.functional.silu(second(x)))

    def loss(self, own: torch.Tensor, common: torch.Tensor) -> torch.Tensor:
        scores = self(own, common)
        channel = torch.arange(scores.shape[-1]).expand(len(scores), -1)
        return nn.functional.cross_entropy(scores.flatten(0, 1), channel.flatten())
