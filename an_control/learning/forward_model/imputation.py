"""Training of two of the monitor's networks: imputation and the identity classifier.

The imputation network estimates missing channels from its own estimates of the tick before. The
identity classifier finds out which channel a slot carries from its readings in the last ticks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import nn

from an_control.disturbance import draw_present
from an_control.learning.forward_model.episodes import EpisodeTrace, select_long_traces
from an_control.learning.forward_model.networks import (
    F32,
    ForwardModelSettings,
    NetworkTraining,
    fold_normalisation,
    layer_arrays,
    mean_and_sd,
)
from an_control.monitor.forward_model import identity_features
from an_control.monitor.sensor_noise import roughness
from an_control.monitor.settings import MONITOR
from an_control.policy.model_file import MAX_WEIGHT
from an_control.policy.sizes import WINDOW

NO_ARRAYS: Mapping[str, np.ndarray] = MappingProxyType({})
LAYERS = tuple(f"{layer}.{part}" for layer in range(3) for part in ("weight", "bias"))


class ImputationTraining(NetworkTraining):
    """Training of the imputation network, on episodes in which changing channels are missing.

    The network learns from its own estimates: an update runs each row of the batch over
    `imputation_ticks` ticks, and the next update continues with the ticks that follow.

    Args:
        traces: Episodes to learn from.
        settings: Sizes and numbers of updates.
        rng: Decides all random numbers.
        arrays: Arrays of a model file; if they contain an imputation network, training starts from
            it.
    """

    name = "impute"

    def __init__(
        self,
        traces: Sequence[EpisodeTrace],
        settings: ForwardModelSettings,
        rng: np.random.Generator,
        arrays: Mapping[str, np.ndarray] = NO_ARRAYS,
    ) -> None:
        everything = np.concatenate([trace.readings for trace in traces]).astype(F32)
        start = np.mean([trace.readings[0] for trace in traces], 0)
        self._middle, self._spread = middle, spread = mean_and_sd(everything)
        count, actions = everything.shape[1], traces[0].actions.shape[1]
        self._batch = _ImputationBatch(
            traces, settings, (start - middle) / spread, middle, spread, rng
        )
        self._typical = np.stack([start, everything.min(0), everything.max(0)])
        noise, ticks = MONITOR.noise, MONITOR.noise.min_ticks
        rough = [
            roughness(trace.readings[begin : begin + ticks], noise)
            for trace in traces
            for begin in range(0, len(trace.readings) - ticks, ticks)
        ]
        self._roughest = 2.0 * max(rough, default=0.0)
        self._shared = count + actions
        widths = [3 * count + actions, settings.imputation, settings.imputation, count]
        self._network = _ImputationNetwork(widths)
        if "imputation.0.weight" in arrays:
            self._load_arrays(arrays)
        super().__init__(self._network, settings.rate, settings.imputation_updates)

    def loss(self) -> torch.Tensor:
        """Return the error () of the imputed readings of the next batch."""
        readings, acts, missing, estimate = self._batch.next_ticks()
        total = torch.zeros(())
        for tick in range(acts.shape[1]):
            seen = readings[:, tick + 1]
            given = torch.where(missing, estimate, seen)
            imputed = self._network(torch.cat([estimate, given, missing.float(), acts[:, tick]], 1))
            loss = nn.functional.smooth_l1_loss(imputed, seen, reduction="none", beta=0.1)
            total = total + (loss * missing).sum() / missing.sum()
            estimate = torch.where(missing, imputed, seen)
        self._batch.advance(estimate.detach().numpy())
        return total / acts.shape[1]

    def figures(self, losses: list[float]) -> dict[str, float]:
        """Return the mean loss of the last 500 updates."""
        return {"loss": float(np.mean(losses[-500:]))}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the network for readings in their own units, under its names in a model file."""
        arrays = layer_arrays("imputation", self._network.layers)
        middle, spread = self._middle, self._spread
        fold_normalisation(arrays, "imputation.0", *self._input_moments())
        arrays["imputation.2.weight"] = (arrays["imputation.2.weight"].T * spread).T.astype(F32)
        arrays["imputation.2.bias"] = (arrays["imputation.2.bias"] * spread + middle).astype(F32)
        arrays["imputation.max_roughness"] = np.array([self._roughest], F32)
        typical = np.clip(self._typical, -MAX_WEIGHT, MAX_WEIGHT)  # bounds of a model file
        arrays["imputation.typical"] = typical.astype(F32)
        return arrays

    def _input_moments(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and scale of the first layer's inputs.

        These are the readings, twice, and then inputs that are not normalised.
        """
        middle, spread, shared = self._middle, self._spread, self._shared
        middles = np.concatenate([middle, middle, np.zeros(shared)])
        return middles, np.concatenate([spread, spread, np.ones(shared)])

    def _load_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy a network that `to_arrays` made, which takes readings in their own units."""
        middles, spreads = self._input_moments()
        own = {key: arrays[f"imputation.{key}"].astype(np.float64) for key in LAYERS}
        own["0.bias"] += own["0.weight"] @ middles
        own["0.weight"] *= spreads
        own["2.weight"] = (own["2.weight"].T / self._spread).T
        own["2.bias"] = (own["2.bias"] - self._middle) / self._spread
        tensors = {
            f"layers.{key}": torch.from_numpy(array.astype(F32)) for key, array in own.items()
        }
        self._network.load_state_dict(tensors)

    def batch_state(self) -> dict[str, Any]:
        """Return the state of the batches."""
        return self._batch.make_checkpoint()

    def restore_batches(self, state: dict[str, Any]) -> None:
        """Continue from the state of the batches."""
        self._batch.restore(state)


class _ImputationBatch:
    """Rows that run through episodes, each with its missing channels and their estimates.

    Readings and estimates are normalised by the channels' mean and standard deviation.
    """

    def __init__(
        self,
        traces: Sequence[EpisodeTrace],
        settings: ForwardModelSettings,
        start: np.ndarray,
        middle: np.ndarray,
        spread: np.ndarray,
        rng: np.random.Generator,
    ) -> None:
        self._share, self._rng = settings.missing, rng
        self._ticks, whole = select_long_traces(traces, settings.imputation_ticks)
        self._readings = [((trace.readings - middle) / spread).astype(F32) for trace in whole]
        self._actions = [trace.actions.astype(F32) for trace in whole]
        self._start = start.astype(F32)
        rows, count = settings.imputation_batch, len(start)
        self._episode, self._tick = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self._missing = np.zeros((rows, count), bool)
        self._estimate = np.zeros((rows, count), F32)
        for row in range(rows):
            self._place_row(row, anywhere=True)

    def make_checkpoint(self) -> dict[str, Any]:
        return {
            "rng": self._rng.bit_generator.state,
            "episode": self._episode,
            "tick": self._tick,
            "missing": self._missing,
            "estimate": self._estimate,
        }

    def restore(self, state: dict[str, Any]) -> None:
        self._rng.bit_generator.state = state["rng"]
        self._episode, self._tick = state["episode"].copy(), state["tick"].copy()
        self._missing, self._estimate = state["missing"].copy(), state["estimate"].copy()

    def next_ticks(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the next ticks of all rows.

        Returns:
            Readings (B, T + 1, N), actions (B, T, A), missing channels (B, N), and the estimates
                before (B, N).
        """
        for row, (episode, tick) in enumerate(zip(self._episode, self._tick, strict=True)):
            chance = self._rng.random()
            if tick + self._ticks > len(self._actions[episode]) or chance < 0.01:
                self._place_row(row, anywhere=bool(self._rng.random() < 0.6))
            elif chance < 0.03:
                self._draw_missing(row)
        places = list(zip(self._episode, self._tick, strict=True))
        readings = np.stack([self._readings[e][t : t + self._ticks + 1] for e, t in places])
        actions = np.stack([self._actions[e][t : t + self._ticks] for e, t in places])
        made = readings, actions, self._missing.copy(), self._estimate.copy()
        return tuple(torch.from_numpy(part) for part in made)  # type: ignore[return-value]

    def advance(self, estimate: np.ndarray) -> None:
        """Advance all rows to the next ticks, with these as their last estimates (B, N)."""
        self._estimate[:] = estimate
        self._tick += self._ticks

    def _place_row(self, row: int, anywhere: bool) -> None:
        """Move a row to an episode's start, or with `anywhere` to a random tick of it.

        At a random tick the missing channels may have been read before.
        """
        rng = self._rng
        episode = int(rng.integers(len(self._readings)))
        last = len(self._actions[episode]) - self._ticks
        self._episode[row] = episode
        self._tick[row] = rng.integers(last) if anywhere and last else 0
        self._draw_missing(row)
        seen = self._readings[episode][self._tick[row]]
        unknown = self._missing[row] if not anywhere or rng.random() < 0.5 else False
        self._estimate[row] = np.where(unknown, self._start, seen)

    def _draw_missing(self, row: int) -> None:
        """Draw which channels of a row are missing."""
        share, count = self._share.draw(self._rng), self._missing.shape[1]
        self._missing[row] = ~draw_present(self._rng, count, share, at_least=1)


class _ImputationNetwork(nn.Module):
    """Network with two hidden layers, which imputes the missing readings of a tick.

    Its inputs are the estimates of the tick before, the readings, what is missing, and the action.
    """

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, second, last = self.layers
        return last(nn.functional.silu(second(nn.functional.silu(first(x)))))


class IdentityTraining(NetworkTraining):
    """Training of the identity classifier on stretches of 1 to `WINDOW` ticks.

    Half of them have noise on the readings. If no episode is as long, stretches are at most as long
    as the episodes' median.

    Args:
        traces: Episodes to learn from; the last ones are held out.
        settings: Sizes and numbers of updates.
        rng: Decides all random numbers.
    """

    name = "identity"

    def __init__(
        self,
        traces: Sequence[EpisodeTrace],
        settings: ForwardModelSettings,
        rng: np.random.Generator,
    ) -> None:
        self._longest, whole = select_long_traces(traces, WINDOW)
        held = max(1, round(len(whole) * settings.held_out))
        readings = np.concatenate([trace.readings for trace in whole])
        change = np.concatenate([np.diff(trace.readings, axis=0) for trace in whole])
        spread = readings.std()
        self._units = np.array([spread, 0.3 * np.abs(change).mean()], F32) + F32(1e-6)
        self._traces, self._batch, self._rng = whole[:-held] or whole, settings.identity_batch, rng
        self._max_noise = settings.reading_noise * float(spread)
        self._channels = readings.shape[1]
        actions = whole[0].actions.shape[1]
        self._network = _IdentityNetwork(actions, settings.identity, self._channels)
        test, exact = np.random.default_rng(0), np.zeros(512)
        self._test = self._draw_stretches(whole[-held:], exact, self._longest, test)
        noisy = exact + self._max_noise
        self._noisy_test = self._draw_stretches(whole[-held:], noisy, self._longest, test)
        super().__init__(self._network, settings.rate, settings.identity_updates)

    def loss(self) -> torch.Tensor:
        """Return the cross-entropy () of the next batch."""
        rng, batch = self._rng, self._batch
        ticks = int(rng.integers(1, self._longest + 1))
        sd = self._max_noise * rng.random(batch) * rng.integers(2, size=batch)
        return self._network.loss(*self._draw_stretches(self._traces, sd, ticks, rng))

    def figures(self, losses: list[float]) -> dict[str, float]:
        """Return the last loss, and the share of test stretches that are identified."""
        shares = {}
        for name, test in ("identified", self._test), ("identified_noisy", self._noisy_test):
            with torch.no_grad():
                found = self._network(*test).argmax(-1)
            shares[name] = (found == torch.arange(self._channels)).float().mean().item()
        return {"loss": losses[-1], **shares}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the classifier under its names in a model file."""
        arrays = layer_arrays("identity", self._network.layers)
        arrays["identity.common"] = self._network.common.weight.detach().numpy().copy()
        arrays["identity.units"] = self._units
        return arrays

    def batch_state(self) -> dict[str, Any]:
        """Return the state of the random generator."""
        return {"rng": self._rng.bit_generator.state}

    def restore_batches(self, state: dict[str, Any]) -> None:
        """Continue from the state of the random generator."""
        self._rng.bit_generator.state = state["rng"]

    def _draw_stretches(
        self, traces: Sequence[EpisodeTrace], sd: np.ndarray, ticks: int, rng: np.random.Generator
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the classifier's inputs for random stretches of `ticks` ticks.

        Args:
            traces: Episodes to cut from.
            sd: (B,) standard deviation of the noise of each stretch.
            ticks: Their length.
            rng: Decides all random numbers.
        """
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


class _IdentityNetwork(nn.Module):
    """Network with two hidden layers for each slot, which shares the inputs common to all slots."""

    def __init__(self, actions: int, width: int, channels: int) -> None:
        super().__init__()
        self.common = nn.Linear(WINDOW * (actions + 1), width, bias=False)
        widths = [2 * WINDOW, width, width, channels]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, slot_inputs: torch.Tensor, shared_inputs: torch.Tensor) -> torch.Tensor:
        first, second, last = self.layers
        x = nn.functional.silu(first(slot_inputs) + self.common(shared_inputs).unsqueeze(1))
        return last(nn.functional.silu(second(x)))

    def loss(self, slot_inputs: torch.Tensor, shared_inputs: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy of the scores, if slots are in nominal order."""
        scores = self(slot_inputs, shared_inputs)
        channel = torch.arange(scores.shape[-1]).expand(len(scores), -1)
        return nn.functional.cross_entropy(scores.flatten(0, 1), channel.flatten())
