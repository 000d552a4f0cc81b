"""The identity classifier: which channel a slot carries, by what it read in the last ticks."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import nn

from an_control.learning.forward_model.episodes import Trace, stretches
from an_control.learning.forward_model.networks import (
    F32,
    ForwardModelSettings,
    Training,
    arrays_of,
)
from an_control.monitor.forward_model import identity_features
from an_control.policy.sizes import WINDOW


class Identity(Training):
    """Learns from stretches of 1 to `WINDOW` ticks, half of them with noise on the readings.

    Where no episode is as long, from stretches of up to as many ticks as half of them have."""

    name = "identity"

    def __init__(
        self, traces: Sequence[Trace], settings: ForwardModelSettings, rng: np.random.Generator
    ) -> None:
        self._longest, whole = stretches(traces, WINDOW)
        held = max(1, round(len(whole) * settings.held_out))
        readings = np.concatenate([trace.readings for trace in whole])
        change = np.concatenate([np.diff(trace.readings, axis=0) for trace in whole])
        spread = readings.std()
        self._units = np.array([spread, 0.3 * np.abs(change).mean()], F32) + F32(1e-6)
        self._traces, self._batch, self._rng = whole[:-held] or whole, settings.identity_batch, rng
        self._max_noise = settings.reading_noise * float(spread)
        self._channels = readings.shape[1]
        actions = whole[0].actions.shape[1]
        self._network = _Classifier(actions, settings.identity, self._channels)
        test, exact = np.random.default_rng(0), np.zeros(512)
        self._test = self._stretches(whole[-held:], exact, self._longest, test)
        noisy = exact + self._max_noise
        self._noisy_test = self._stretches(whole[-held:], noisy, self._longest, test)
        super().__init__(self._network, settings.rate, settings.identity_updates)

    def loss(self) -> torch.Tensor:
        rng, batch = self._rng, self._batch
        ticks = int(rng.integers(1, self._longest + 1))
        sd = self._max_noise * rng.random(batch) * rng.integers(2, size=batch)
        return self._network.loss(*self._stretches(self._traces, sd, ticks, rng))

    def figures(self, losses: list[float]) -> dict[str, float]:
        shares = {}
        for name, test in ("identified", self._test), ("identified_noisy", self._noisy_test):
            with torch.no_grad():
                found = self._network(*test).argmax(-1)
            shares[name] = (found == torch.arange(self._channels)).float().mean().item()
        return {"loss": losses[-1], **shares}

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
        self, traces: Sequence[Trace], sd: np.ndarray, ticks: int, rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """What `identity_features` makes of stretches (B,) of so many ticks, with noise of `sd`."""
        readings, actions = [], []
        for place in rng.integers(len(traces), size=len(sd)):
            trace = traces[place]
            begin = int(rng.integers(len(trace.actions) - ticks + 1))
            readings.append(trace.readings[begin : begin + ticks + 1])
            actions.append(trace.actions[begin : begin + ticks])
        seen = np.array(readings)
        seen += sd[:, None, None].astype(F32) * rng.standard_normal(seen.shape, F32)
        change = np.diff(seen, axis=1)
        own, common = identity_features(seen[:, 1:], change, np.array(actions), self._units)
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
