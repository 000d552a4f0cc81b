"""Learning to fill in absent channels, from episodes and from what was filled in itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from an_control.learning.forward_model.episodes import Trace
from an_control.learning.forward_model.training import (
    Foresight,
    Report,
    arrays_of,
    descend,
    is_told,
    moments,
)
from an_control.policy import Model
from an_control.policy.monitor.sensor_noise import MIN_TICKS, roughness

F32 = np.float32


def learn_to_fill(
    model: Model,
    traces: Sequence[Trace],
    settings: Foresight,
    seed: int,
    report: Report | None = None,
) -> Model:
    """`model`, which has a forward model, with a network that fills in what is absent.

    The seed decides everything. The network goes through the episodes with some channels absent,
    others now and then, and learns from what it filled in itself: `fill_ticks` ticks of each lane
    in an update, then the next ones.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    everything = np.concatenate([trace.readings for trace in traces]).astype(F32)
    start = np.mean([trace.readings[0] for trace in traces], 0)
    middle, spread = moments(everything)
    count, actions = everything.shape[1], traces[0].actions.shape[1]
    lanes = _Lanes(traces, settings, (start - middle) / spread, middle, spread, rng)
    widths = [3 * count + actions, settings.fill, settings.fill, count]
    network = _Fill(widths)
    optimiser = torch.optim.Adam(network.parameters(), settings.rate)
    lately: list[float] = []
    for update in range(settings.fill_updates):
        readings, acts, absent, estimate = lanes.next()
        total = torch.zeros(())
        for tick in range(acts.shape[1]):
            seen = readings[:, tick + 1]
            given = torch.where(absent, estimate, seen)
            filled = network(torch.cat([estimate, given, absent.float(), acts[:, tick]], 1))
            loss = nn.functional.smooth_l1_loss(filled, seen, reduction="none", beta=0.1)
            total = total + (loss * absent).sum() / absent.sum()
            estimate = torch.where(absent, filled, seen)
        lanes.go_on(estimate.detach().numpy())
        mean = total / acts.shape[1]
        descend(network, optimiser, mean, settings.rate, update / settings.fill_updates)
        lately.append(mean.item())
        if report is not None and is_told(update, settings.fill_updates):
            report("fill", update + 1, {"loss": float(np.mean(lately[-500:]))})
    arrays = arrays_of("imputation", network.layers)
    before = np.concatenate([middle, middle, np.zeros(count + actions)])
    units = np.concatenate([spread, spread, np.ones(count + actions)])
    first = arrays["imputation.0.weight"].astype(np.float64) / units
    arrays["imputation.0.weight"] = first.astype(F32)
    arrays["imputation.0.bias"] = (arrays["imputation.0.bias"] - first @ before).astype(F32)
    arrays["imputation.2.weight"] = (arrays["imputation.2.weight"].T * spread).T.astype(F32)
    arrays["imputation.2.bias"] = (arrays["imputation.2.bias"] * spread + middle).astype(F32)
    rough = [
        roughness(trace.readings[begin : begin + MIN_TICKS])
        for trace in traces
        for begin in range(0, len(trace.readings) - MIN_TICKS, MIN_TICKS)
    ]
    arrays["imputation.max_roughness"] = np.array([2.0 * max(rough, default=0.0)], F32)
    arrays["imputation.typical"] = np.stack([start, everything.min(0), everything.max(0)]).astype(
        F32
    )
    assert model.forward is not None
    sizes = replace(model.forward, imputation=settings.fill)
    return replace(model, arrays=model.arrays | arrays, forward=sizes)


class _Lanes:
    """Places in the episodes, with what is absent there and what was filled in, in usual units."""

    def __init__(
        self,
        traces: Sequence[Trace],
        settings: Foresight,
        start: np.ndarray,
        middle: np.ndarray,
        spread: np.ndarray,
        rng: np.random.Generator,
    ) -> None:
        self._ticks, self._absent_share, self._rng = settings.fill_ticks, settings.absent, rng
        whole = [trace for trace in traces if len(trace.actions) > self._ticks]
        self._readings = [((trace.readings - middle) / spread).astype(F32) for trace in whole]
        self._actions = [trace.actions.astype(F32) for trace in whole]
        self._start = start.astype(F32)
        lanes, count = settings.fill_batch, len(start)
        self._episode, self._tick = np.zeros(lanes, np.int64), np.zeros(lanes, np.int64)
        self._absent = np.zeros((lanes, count), bool)
        self._estimate = np.zeros((lanes, count), F32)
        for lane in range(lanes):
            self._begin(lane, anywhere=True)

    def _begin(self, lane: int, anywhere: bool) -> None:
        """Go to an episode's start, or anywhere, where the absent ones may have been seen."""
        rng = self._rng
        episode = int(rng.integers(len(self._readings)))
        last = len(self._actions[episode]) - self._ticks
        self._episode[lane] = episode
        self._tick[lane] = rng.integers(last) if anywhere else 0
        self._lose(lane)
        seen = self._readings[episode][self._tick[lane]]
        unknown = self._absent[lane] if not anywhere or rng.random() < 0.5 else False
        self._estimate[lane] = np.where(unknown, self._start, seen)

    def _lose(self, lane: int) -> None:
        count = self._absent.shape[1]
        share = self._rng.uniform(0.02, self._absent_share)
        gone = max(1, int(self._rng.binomial(count, share)))
        self._absent[lane] = False
        self._absent[lane, self._rng.choice(count, gone, replace=False)] = True

    def next(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Readings (B, T + 1, N), actions (B, T, A), absent (B, N), estimates before (B, N)."""
        for lane, (episode, tick) in enumerate(zip(self._episode, self._tick, strict=True)):
            chance = self._rng.random()
            if tick + self._ticks > len(self._actions[episode]) or chance < 0.01:
                self._begin(lane, anywhere=bool(self._rng.random() < 0.6))
            elif chance < 0.03:
                self._lose(lane)
        places = list(zip(self._episode, self._tick, strict=True))
        readings = np.stack([self._readings[e][t : t + self._ticks + 1] for e, t in places])
        actions = np.stack([self._actions[e][t : t + self._ticks] for e, t in places])
        made = readings, actions, self._absent.copy(), self._estimate.copy()
        return tuple(torch.from_numpy(part) for part in made)  # type: ignore[return-value]

    def go_on(self, estimate: np.ndarray) -> None:
        """To the ticks that follow."""
        self._estimate[:] = estimate
        self._tick += self._ticks


class _Fill(nn.Module):
    """Two hidden layers on the estimates before, the readings, what is absent, the action."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, last = self.layers
        return last(nn.functional.silu(second(nn.functional.silu(first(x)))))
