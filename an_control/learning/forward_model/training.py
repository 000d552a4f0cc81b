"""Learning a task's forward model: what the identity monitor tells contents by."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from torch import nn

from an_control.learning.forward_model.episodes import Trace
from an_control.policy import Model
from an_control.policy.monitor.assignment import FREEDOM
from an_control.policy.monitor.costs import Costs
from an_control.policy.monitor.forward_model import (
    HIGHEST,
    LOWEST,
    NETWORKS,
    ForwardModel,
    identity_features,
)
from an_control.policy.sizes import WINDOW, ForwardSizes, Monitor

F32 = np.float32
Report = Callable[[str, int, dict[str, float]], None]
"""Told what is learned, how many updates were made, and figures."""
CALM_STEPS = 4000
"""Undisturbed steps whose costs count as usual, at most."""


@dataclass(frozen=True)
class Foresight:
    """A run's numbers."""

    hidden: tuple[int, ...] = (192, 192)
    steps: int = 60_000
    """To record, in whole episodes."""
    held_out: float = 0.05
    """Share of the episodes that are not learned from."""
    updates: int = 20_000
    """Of the network that predicts."""
    batch: int = 512
    rate: float = 2e-3
    looks: int = 128
    """Units in the layers of the network that tells channels by their looks."""
    looks_updates: int = 10_000
    looks_batch: int = 64
    fill: int = 192
    """Units in the layers of the network that fills in absent channels, 0 = none."""
    fill_updates: int = 8_000
    fill_batch: int = 192
    fill_ticks: int = 12
    """Ticks of each update, through which it learns from what it filled in itself."""
    absent: float = 0.45
    """The most that is absent, as a share of the channels."""
    noise: float = 0.4
    """The most that the normal noise of a noisy stretch has as sd."""
    monitor: Monitor = "match"


def learn(
    model: Model,
    traces: Sequence[Trace],
    settings: Foresight,
    seed: int,
    report: Report | None = None,
) -> Model:
    """`model` with a forward model learned from these episodes; the seed decides everything."""
    torch.manual_seed(seed)
    arrays = {name: a for name, a in model.arrays.items() if not name.startswith(NETWORKS)}
    predicted, binary = _learn_to_predict(traces, settings, report)
    arrays |= predicted
    arrays |= _learn_looks(traces, settings, np.random.default_rng(seed), report)
    channels = model.task["channels"]
    names = [name for name, is_binary in zip(channels, binary, strict=True) if is_binary]
    sizes = ForwardSizes(
        list(settings.hidden), settings.looks, names, settings.monitor, imputation=0
    )
    arrays["forward.usual"] = np.zeros(len(channels), F32)
    found = replace(model, arrays=arrays, forward=sizes)
    arrays["forward.usual"] = _usual(ForwardModel(found), traces)
    return found


def _learn_to_predict(
    traces: Sequence[Trace], settings: Foresight, report: Report | None
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The arrays of the network that predicts, and which channels are binary."""
    before, actions, after, episode = _flat(traces)
    step = np.abs(after - before).mean(0) + 1e-4
    binary = np.asarray(np.isin(before, (0.0, 1.0)).all(0))
    middle, spread = moments(np.concatenate([before, actions], 1))
    inputs = torch.from_numpy((np.concatenate([before, actions], 1) - middle) / spread)
    change, reads = torch.from_numpy((after - before) / step), torch.from_numpy(after)
    held = np.arange(len(traces)) >= len(traces) * (1.0 - settings.held_out)
    train = torch.from_numpy(np.flatnonzero(~held[episode]))
    test = torch.from_numpy(np.flatnonzero(held[episode]))
    widths = [inputs.shape[1], *settings.hidden, 2 * before.shape[1]]
    network = _Network(widths, torch.from_numpy(binary))
    optimiser = torch.optim.Adam(network.parameters(), settings.rate)
    for update in range(settings.updates):
        rows = train[torch.randint(0, len(train), (settings.batch,))]
        loss = network.loss(inputs[rows], change[rows], reads[rows]).mean()
        descend(network, optimiser, loss, settings.rate, update / settings.updates)
        if report is not None and is_told(update, settings.updates):
            with torch.no_grad():
                off = network.loss(inputs[test], change[test], reads[test]).mean()
            report("predict", update + 1, {"loss": loss.item(), "held out": off.item()})
    arrays = arrays_of("forward", network.layers)
    first = arrays["forward.0.weight"].astype(np.float64) / spread
    arrays["forward.0.weight"] = first.astype(F32)
    arrays["forward.0.bias"] = (arrays["forward.0.bias"] - first @ middle).astype(F32)
    arrays["forward.step"] = step.astype(F32)
    return arrays, binary


def descend(
    network: nn.Module,
    optimiser: torch.optim.Optimizer,
    loss: torch.Tensor,
    rate: float,
    progress: float,
) -> None:
    """One update, at a rate that falls with the progress (0..1)."""
    for group in optimiser.param_groups:
        group["lr"] = rate * 0.5 * (1.0 + math.cos(math.pi * progress)) + 1e-5
    optimiser.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(network.parameters(), 5.0)
    optimiser.step()


def is_told(update: int, updates: int) -> bool:
    return update % 1000 == 999 or update == updates - 1


def arrays_of(name: str, layers: nn.ModuleList) -> dict[str, np.ndarray]:
    arrays = {}
    for place, layer in enumerate(layers):
        weight, bias = (x.detach().numpy().copy() for x in layer.parameters())
        arrays[f"{name}.{place}.weight"], arrays[f"{name}.{place}.bias"] = weight, bias
    return arrays


def _usual(forward: ForwardModel, traces: Sequence[Trace]) -> np.ndarray:
    """What each channel's readings cost (N,), in steps that nothing disturbed."""
    calm = _flat([trace for trace in traces if not trace.disturbed] or traces)
    before, actions, after = (part[-CALM_STEPS:] for part in calm[:3])
    costs, seen = np.zeros((before.shape[1],) * 2), forward.predict(before, actions)
    Costs(forward).add(costs, after - before, seen.change, after, seen)
    usual: np.ndarray = (np.diagonal(costs) / len(before)).astype(F32)
    return usual


def _learn_looks(
    traces: Sequence[Trace],
    settings: Foresight,
    rng: np.random.Generator,
    report: Report | None,
) -> dict[str, np.ndarray]:
    """The arrays of the network that tells a channel by what its slot read lately."""
    whole = [trace for trace in traces if len(trace.actions) > WINDOW]
    held = max(1, round(len(whole) * settings.held_out))
    readings = np.concatenate([trace.readings for trace in whole])
    change = np.concatenate([np.diff(trace.readings, axis=0) for trace in whole])
    units = np.array([readings.std(), 0.3 * np.abs(change).mean()], F32) + F32(1e-6)
    actions = whole[0].actions.shape[1]
    network = _Looks(actions, settings.looks, readings.shape[1])
    optimiser = torch.optim.Adam(network.parameters(), settings.rate)
    test = _stretches(whole[-held:], 512, WINDOW, units, np.random.default_rng(0))
    for update in range(settings.looks_updates):
        ticks = int(rng.integers(1, WINDOW + 1))
        batch = _stretches(whole[:-held] or whole, settings.looks_batch, ticks, units, rng)
        loss = network.loss(*batch)
        progress = update / settings.looks_updates
        descend(network, optimiser, loss, settings.rate, progress)
        if report is not None and is_told(update, settings.looks_updates):
            with torch.no_grad():
                right = (network(*test).argmax(-1) == torch.arange(readings.shape[1])).float()
            report("looks", update + 1, {"loss": loss.item(), "told": right.mean().item()})
    arrays = arrays_of("identity", network.layers)
    arrays["identity.common"] = network.common.weight.detach().numpy().copy()
    arrays["identity.units"] = units
    return arrays


def _stretches(
    traces: Sequence[Trace], count: int, ticks: int, units: np.ndarray, rng: np.random.Generator
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
    own, common = identity_features(np.array(reads), change, np.array(actions), units)
    return torch.from_numpy(np.ascontiguousarray(own)), torch.from_numpy(common)


def _flat(traces: Sequence[Trace]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Readings before, actions, readings after, and of which episode, a row for every step."""
    before = np.concatenate([trace.readings[:-1] for trace in traces]).astype(F32)
    after = np.concatenate([trace.readings[1:] for trace in traces]).astype(F32)
    actions = np.concatenate([trace.actions for trace in traces]).astype(F32)
    return before, actions, after, np.repeat(range(len(traces)), [len(t.actions) for t in traces])


def moments(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return inputs.mean(0), inputs.std(0) + F32(1e-3)


class _Network(nn.Module):
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


class _Looks(nn.Module):
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
