"""Learning the forward model of a task under a policy: what the identity monitor tells contents by.

Episodes are driven by the policy among stretches of noise, random actions and actions that the
policy takes when some of its channels are swapped: what a robot does around a rewiring. The network
that fills in absent channels learns from these, and once more with episodes in which it fills them
in itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import nn

from an_control.learning.rollouts import TRAINING_SEEDS
from an_control.policy import AttentionNeuron, Model, Policy, Watched, make_policy
from an_control.policy.forward_model import (
    HIGHEST,
    LOWEST,
    NETWORKS,
    WINDOW,
    ForwardModel,
    ForwardSizes,
    Monitor,
    looks_of,
)
from an_control.policy.matching import FREEDOM
from an_control.policy.sensor_noise import LEAST_HEARD, roughness

F32 = np.float32
Report = Callable[[str, int, dict[str, float]], None]
"""Told what is learned, how many updates were made, and figures."""
CALM, LOST = ("plain",), ("lost",)
MODES = (
    "plain",
    "plain",
    "plain",
    "noisy",
    "noisy",
    "noisy",
    "random",
    "crossed",
    "crossed",
    "lost",
)
"""What a stretch of a disturbed episode can be, each as likely as it is often here."""
EPISODES = (CALM, MODES, MODES, LOST, MODES)
"""The modes of one episode after the other."""
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


@dataclass(frozen=True)
class Trace:
    """An episode of T steps: readings (T, N) and the actions (T, A) that followed them."""

    readings: np.ndarray
    actions: np.ndarray
    disturbed: bool


class Explorer:
    """Acts as the policy does, between stretches in which it is disturbed.

    The policy always sees what is; a second one sees some of its channels swapped, and acts in
    the stretches that are "crossed".
    """

    def __init__(self, model: Model, settings: Foresight, rng: np.random.Generator) -> None:
        self._policy, self._confused = make_policy(model, "off"), make_policy(model, "off")
        self._ids = self._policy.nominal_ids
        self._settings, self._rng = settings, rng

    def start(self, modes: Sequence[str]) -> None:
        """Begin an episode of stretches in these modes."""
        self._policy.reset()
        self._confused.reset()
        self._modes = modes
        self._begin()

    def _begin(self) -> None:
        rng = self._rng
        self._mode = str(rng.choice(self._modes))
        brief = self._mode in ("random", "crossed")
        self._left = int(rng.integers(3, 20) if brief else rng.integers(20, 120))
        self._sd = self._settings.noise * rng.random()
        self._drift: np.ndarray | None = None
        count = len(self._ids)
        self._order = np.arange(count)
        few = int(rng.integers(2, min(9, count + 1)))
        some = rng.choice(count, count if self._mode == "lost" else few, replace=False)
        self._order[some] = rng.permutation(some)

    def act(self, readings: np.ndarray) -> np.ndarray:
        """The action (A,) for readings (N,)."""
        own = self._policy.step_array(readings, self._ids)
        if self._modes == CALM:
            return own
        if self._left <= 0:
            self._begin()
        self._left -= 1
        action = self._confused.step_array(readings[self._order], self._ids)
        if self._mode == "random":
            step = self._rng.standard_normal(own.shape)
            drift = self._rng.random() * step if self._drift is None else self._drift
            self._drift = action = 0.8 * drift + 0.42 * step
        elif self._mode == "noisy":
            action = own + self._sd * self._rng.standard_normal(own.shape)
        elif self._mode == "plain":
            action = own
        action = np.clip(action, -1.0, 1.0).astype(F32)
        for policy in (self._policy, self._confused):
            _tell(policy, action)
        return action


def _tell(policy: Policy, action: np.ndarray) -> None:
    if isinstance(policy, AttentionNeuron | Watched):
        policy.previous_action = action


class Deprived:
    """Acts as the watched policy does while channels are absent, now and then others, and noise."""

    def __init__(self, model: Model, settings: Foresight, rng: np.random.Generator) -> None:
        self._policy = make_policy(model, "match")
        self._ids = self._policy.nominal_ids
        self._settings, self._rng = settings, rng

    def start(self, modes: Sequence[str]) -> None:
        """Begin an episode."""
        self._policy.reset()
        self._sd = 0.5 * self._settings.noise * self._rng.choice([0.0, self._rng.random()])
        self._absent = np.zeros(len(self._ids), bool)
        self._lose()

    def _lose(self) -> None:
        count = len(self._ids)
        most = max(1, int(self._settings.absent * count))
        self._absent[:] = False
        gone = self._rng.choice(count, self._rng.integers(1, most + 1), replace=False)
        self._absent[gone] = True

    def act(self, readings: np.ndarray) -> np.ndarray:
        """The action (A,) for readings (N,)."""
        if self._rng.random() < 0.003:
            self._lose()
        action = self._policy.step_array(np.where(self._absent, np.nan, readings), self._ids)
        if self._sd:
            action = action + self._sd * self._rng.standard_normal(action.shape)
            action = np.clip(action, -1.0, 1.0).astype(F32)
            _tell(self._policy, action)
        return action


def explore(
    env: gymnasium.Env[Any, Any],
    explorer: Explorer | Deprived,
    least: int,
    rng: np.random.Generator,
) -> list[Trace]:
    """Whole episodes until there are this many steps."""
    steps = 0
    traces: list[Trace] = []
    while steps < least:
        observation, _ = env.reset(seed=int(rng.integers(*TRAINING_SEEDS)))
        modes = EPISODES[len(traces) % len(EPISODES)]
        explorer.start(modes)
        readings, actions, done = [observation], [], False
        while not done:
            actions.append(explorer.act(observation))
            observation, _, terminated, truncated, _ = env.step(actions[-1])
            readings.append(observation)
            done = terminated or truncated
        calm = modes == CALM and isinstance(explorer, Explorer)
        traces.append(Trace(np.array(readings), np.array(actions), not calm))
        steps += len(actions)
    return traces


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
    fill = settings.fill if settings.fill_updates else 0
    sizes = ForwardSizes(list(settings.hidden), settings.looks, names, settings.monitor, fill)
    if fill:
        arrays |= learn_to_fill(traces, settings, seed, report)
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
    middle, spread = _moments(np.concatenate([before, actions], 1))
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
        _descend(network, optimiser, loss, settings.rate, update / settings.updates)
        if report is not None and _is_told(update, settings.updates):
            with torch.no_grad():
                off = network.loss(inputs[test], change[test], reads[test]).mean()
            report("predict", update + 1, {"loss": loss.item(), "held out": off.item()})
    arrays = _arrays("forward", network.layers)
    first = arrays["forward.0.weight"].astype(np.float64) / spread
    arrays["forward.0.weight"] = first.astype(F32)
    arrays["forward.0.bias"] = (arrays["forward.0.bias"] - first @ middle).astype(F32)
    arrays["forward.step"] = step.astype(F32)
    return arrays, binary


def _descend(
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


def _is_told(update: int, updates: int) -> bool:
    return update % 1000 == 999 or update == updates - 1


def _arrays(name: str, layers: nn.ModuleList) -> dict[str, np.ndarray]:
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
    forward.add_costs(costs, after - before, seen.change, after, seen)
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
        _descend(network, optimiser, loss, settings.rate, progress)
        if report is not None and _is_told(update, settings.looks_updates):
            with torch.no_grad():
                right = (network(*test).argmax(-1) == torch.arange(readings.shape[1])).float()
            report("looks", update + 1, {"loss": loss.item(), "told": right.mean().item()})
    arrays = _arrays("looks", network.layers)
    arrays["looks.common"] = network.common.weight.detach().numpy().copy()
    arrays["looks.units"] = units
    return arrays


def _stretches(
    traces: Sequence[Trace], count: int, ticks: int, units: np.ndarray, rng: np.random.Generator
) -> tuple[torch.Tensor, torch.Tensor]:
    """What `looks_of` makes of so many stretches of so many ticks."""
    reads, before, actions = [], [], []
    for place in rng.integers(len(traces), size=count):
        trace = traces[place]
        begin = int(rng.integers(len(trace.actions) - ticks + 1))
        before.append(trace.readings[begin : begin + ticks])
        reads.append(trace.readings[begin + 1 : begin + 1 + ticks])
        actions.append(trace.actions[begin : begin + ticks])
    change = np.array(reads) - np.array(before)
    own, common = looks_of(np.array(reads), change, np.array(actions), units)
    return torch.from_numpy(np.ascontiguousarray(own)), torch.from_numpy(common)


def learn_to_fill(
    traces: Sequence[Trace],
    settings: Foresight,
    seed: int,
    report: Report | None = None,
) -> dict[str, np.ndarray]:
    """The arrays of the network that fills in what is absent; the seed decides everything.

    It goes through the episodes with some channels absent, others now and then, and learns from
    what it filled in itself: `fill_ticks` ticks of each lane in an update, then the next ones.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    everything = np.concatenate([trace.readings for trace in traces]).astype(F32)
    start = np.mean([trace.readings[0] for trace in traces], 0)
    middle, spread = _moments(everything)
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
        _descend(network, optimiser, mean, settings.rate, update / settings.fill_updates)
        lately.append(mean.item())
        if report is not None and _is_told(update, settings.fill_updates):
            report("fill", update + 1, {"loss": float(np.mean(lately[-500:]))})
    arrays = _arrays("fill", network.layers)
    before = np.concatenate([middle, middle, np.zeros(count + actions)])
    units = np.concatenate([spread, spread, np.ones(count + actions)])
    first = arrays["fill.0.weight"].astype(np.float64) / units
    arrays["fill.0.weight"] = first.astype(F32)
    arrays["fill.0.bias"] = (arrays["fill.0.bias"] - first @ before).astype(F32)
    arrays["fill.2.weight"] = (arrays["fill.2.weight"].T * spread).T.astype(F32)
    arrays["fill.2.bias"] = (arrays["fill.2.bias"] * spread + middle).astype(F32)
    rough = [
        roughness(trace.readings[begin : begin + LEAST_HEARD])
        for trace in traces
        for begin in range(0, len(trace.readings) - LEAST_HEARD, LEAST_HEARD)
    ]
    arrays["fill.roughest"] = np.array([2.0 * max(rough, default=0.0)], F32)
    arrays["fill.typical"] = np.stack([start, everything.min(0), everything.max(0)]).astype(F32)
    return arrays


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


def _flat(traces: Sequence[Trace]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Readings before, actions, readings after, and of which episode, a row for every step."""
    before = np.concatenate([trace.readings[:-1] for trace in traces]).astype(F32)
    after = np.concatenate([trace.readings[1:] for trace in traces]).astype(F32)
    actions = np.concatenate([trace.actions for trace in traces]).astype(F32)
    return before, actions, after, np.repeat(range(len(traces)), [len(t.actions) for t in traces])


def _moments(inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
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


class _Fill(nn.Module):
    """Two hidden layers on the estimates before, the readings, what is absent, the action."""

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, last = self.layers
        return last(nn.functional.silu(second(nn.functional.silu(first(x)))))


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
