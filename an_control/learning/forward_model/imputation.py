"""Training of two of the monitor's networks: imputation and the identity classifier.

The imputation network estimates missing channels from its own estimates of the tick before. The
identity classifier estimates which channel's signal an input slot carries, from the slot's readings
in the last ticks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import nn

from an_control.disturbance import draw_present_mask
from an_control.learning.forward_model.episodes import (
    EpisodeTrace,
    choose_segment_length_and_traces,
)
from an_control.learning.forward_model.networks import (
    F32,
    ForwardModelSettings,
    NetworkTraining,
    compute_mean_and_sd,
    export_layers,
    fold_normalisation_into_layer,
)
from an_control.monitor.forward_model import compute_identity_classifier_inputs
from an_control.monitor.sensor_noise import estimate_noise_of_smoothest_channels
from an_control.monitor.settings import MONITOR
from an_control.policy.model_file import MAX_WEIGHT
from an_control.policy.sizes import WINDOW

NO_ARRAYS: Mapping[str, np.ndarray] = MappingProxyType({})
LINEAR_TICKS = 40_000
"""Most ticks from which the linear estimate is computed with which the training starts."""
OTHER_UNITS = 0.1
"""Factor on the weights with which all other units start."""
RIDGE = 1e-3
"""Variance that the linear estimate adds to that of each input."""
LAYERS = tuple(f"{layer}.{part}" for layer in range(3) for part in ("weight", "bias"))


class ImputationTraining(NetworkTraining):
    """Training of the imputation network, which estimates the readings of missing channels.

    It learns from recorded episodes, some of whose channels are treated as missing. The network
    also reads its own estimates of the tick before. Each update therefore runs it over
    `settings.imputation_ticks` successive ticks, and the next update continues after them.

    Args:
        traces: Episodes to learn from.
        settings: Sizes and numbers of updates.
        rng: Source of all random numbers.
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
        self._middle, self._spread = middle, spread = compute_mean_and_sd(everything)
        count, actions = everything.shape[1], traces[0].actions.shape[1]
        self._batch = _ImputationBatch(
            traces, settings, (start - middle) / spread, middle, spread, rng
        )
        self._typical = np.stack([start, everything.min(0), everything.max(0)])
        ticks = MONITOR.noise.min_ticks
        rough = [
            estimate_noise_of_smoothest_channels(trace.readings[begin : begin + ticks])
            for trace in traces
            for begin in range(0, len(trace.readings) - ticks, ticks)
        ]
        self._roughest = 2.0 * max(rough, default=0.0)
        self._shared = count + actions
        units = settings.imputation + 2 * count
        if "imputation.0.bias" in arrays:
            units = len(arrays["imputation.0.bias"])
        self._network = _ImputationNetwork([3 * count + actions, units, units, count])
        if "imputation.0.bias" in arrays:
            self._load_weights_from_arrays(arrays)
        else:
            self._network.set_to_linear_model(
                *self._batch.fit_linear_estimates_of_channels(LINEAR_TICKS)
            )
        super().__init__(self._network, settings.rate, settings.imputation_updates)

    def compute_loss(self) -> torch.Tensor:
        """Estimate the missing readings of the next batch and return their mean error, a scalar."""
        readings, acts, missing, estimate = (
            self._batch.draw_readings_actions_missing_and_estimates()
        )
        total = torch.zeros(())
        for tick in range(acts.shape[1]):
            seen = readings[:, tick + 1]
            given = torch.where(missing, estimate, seen)
            imputed = self._network(torch.cat([estimate, given, missing.float(), acts[:, tick]], 1))
            loss = nn.functional.smooth_l1_loss(imputed, seen, reduction="none", beta=0.1)
            total = total + (loss * missing).sum() / missing.sum()
            estimate = torch.where(missing, imputed, seen)
        self._batch.advance_batch_rows(estimate.detach().numpy())
        return total / acts.shape[1]

    def compute_metrics(self, losses: list[float]) -> dict[str, float]:
        """Return the mean loss of the last 500 updates.

        Args:
            losses: Losses of the newest updates, at least one.
        """
        return {"loss": float(np.mean(losses[-500:]))}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the network's arrays by their names in a model file.

        The training uses normalised readings; the returned arrays are converted so that the
        network's inputs and outputs are readings that are not normalised.
        """
        arrays = export_layers("imputation", self._network.layers)
        middle, spread = self._middle, self._spread
        fold_normalisation_into_layer(arrays, "imputation.0", *self._compute_input_mean_and_sd())
        arrays["imputation.2.weight"] = (arrays["imputation.2.weight"].T * spread).T.astype(F32)
        arrays["imputation.2.bias"] = (arrays["imputation.2.bias"] * spread + middle).astype(F32)
        arrays["imputation.max_roughness"] = np.array([self._roughest], F32)
        typical = np.clip(self._typical, -MAX_WEIGHT, MAX_WEIGHT)  # bounds of a model file
        arrays["imputation.typical"] = typical.astype(F32)
        return arrays

    def _compute_input_mean_and_sd(self) -> tuple[np.ndarray, np.ndarray]:
        """Return mean and standard deviation of each input of the first layer, (3 N + A,) each.

        The first 2 N inputs are readings (N estimates, then N readings), which are normalised. For
        the other inputs mean and standard deviation are 0 and 1, because they are not normalised.
        """
        middle, spread, shared = self._middle, self._spread, self._shared
        middles = np.concatenate([middle, middle, np.zeros(shared)])
        return middles, np.concatenate([spread, spread, np.ones(shared)])

    def _load_weights_from_arrays(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Load weights from a model file, converted to the normalised readings of the training."""
        middles, spreads = self._compute_input_mean_and_sd()
        own = {key: arrays[f"imputation.{key}"].astype(np.float64) for key in LAYERS}
        own["0.bias"] += own["0.weight"] @ middles
        own["0.weight"] *= spreads
        own["2.weight"] = (own["2.weight"].T / self._spread).T
        own["2.bias"] = (own["2.bias"] - self._middle) / self._spread
        tensors = {
            f"layers.{key}": torch.from_numpy(array.astype(F32)) for key, array in own.items()
        }
        self._network.load_state_dict(tensors)

    def get_batch_sampler_state(self) -> dict[str, Any]:
        """Return all that decides the next batches, for a checkpoint.

        That is the positions in the episodes, the missing channels with their estimated readings,
        and the state of the random generator.
        """
        return self._batch.make_checkpoint()

    def restore_batch_sampler_state(self, state: dict[str, Any]) -> None:
        """Continue with the batches that follow a state that `get_batch_sampler_state` returned."""
        self._batch.restore(state)


class _ImputationBatch:
    """Batch of B rows, each of which runs through a recorded episode with some channels missing.

    Readings and estimates are normalised by the channels' mean and standard deviation.

    Args:
        traces: Episodes to learn from.
        settings: Numbers of rows and ticks, and the share of missing channels.
        start: Mean normalised reading (N,) at the start of an episode. It is the estimate of a
            missing channel before the first tick.
        middle: Mean of each channel (N,).
        spread: Standard deviation of each channel (N,).
        rng: Source of all random numbers.
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
        self._ticks, whole = choose_segment_length_and_traces(traces, settings.imputation_ticks)
        self._readings = [((trace.readings - middle) / spread).astype(F32) for trace in whole]
        self._actions = [trace.actions.astype(F32) for trace in whole]
        self._start = start.astype(F32)
        rows, count = settings.imputation_batch, len(start)
        self._episode, self._tick = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
        self._missing = np.zeros((rows, count), bool)
        self._estimate = np.zeros((rows, count), F32)
        for row in range(rows):
            self._move_row_to_other_episode(row, at_random_tick=True)

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state of the batch, from which `restore` continues."""
        return {
            "rng": self._rng.bit_generator.state,
            "episode": self._episode,
            "tick": self._tick,
            "missing": self._missing,
            "estimate": self._estimate,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned."""
        self._rng.bit_generator.state = state["rng"]
        self._episode, self._tick = state["episode"].copy(), state["tick"].copy()
        self._missing, self._estimate = state["missing"].copy(), state["estimate"].copy()

    def draw_readings_actions_missing_and_estimates(
        self,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the next T ticks of all rows; `advance_batch_rows` then moves the rows on.

        First, each row with fewer than T ticks left moves to another episode. At random, a few
        other rows also move, or get other missing channels. The result is readings (B, T + 1, N),
        actions (B, T, A), whether each channel is missing (B, N), and the estimates (B, N) at the
        first reading.
        """
        for row, (episode, tick) in enumerate(zip(self._episode, self._tick, strict=True)):
            chance = self._rng.random()
            if tick + self._ticks > len(self._actions[episode]) or chance < 0.02:
                self._move_row_to_other_episode(row, at_random_tick=bool(self._rng.random() < 0.4))
            elif chance < 0.04:
                self._draw_missing_channels(row)
        places = list(zip(self._episode, self._tick, strict=True))
        readings = np.stack([self._readings[e][t : t + self._ticks + 1] for e, t in places])
        actions = np.stack([self._actions[e][t : t + self._ticks] for e, t in places])
        made = readings, actions, self._missing.copy(), self._estimate.copy()
        return tuple(torch.from_numpy(part) for part in made)  # type: ignore[return-value]

    def fit_linear_estimates_of_channels(
        self, max_ticks: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the M channels that vary, and weights (M, 3 N + A) and biases of linear estimates.

        They are fitted by ridge regression to random ticks, with randomly drawn missing channels.
        """
        rng, count = np.random.default_rng(0), self._missing.shape[1]
        before = np.concatenate([readings[: len(readings) - 1] for readings in self._readings])
        after = np.concatenate([readings[1:] for readings in self._readings])
        actions = np.concatenate(self._actions)
        some = rng.permutation(len(actions))[:max_ticks]
        before, after, actions = before[some], after[some], actions[some]
        missing = rng.random((len(some), count)) < [[self._share.draw(rng)] for _ in some]
        x = np.concatenate([before, np.where(missing, before, after), missing, actions], 1)
        x = np.concatenate([x, np.ones((len(x), 1))], 1).astype(np.float64)
        channels = np.flatnonzero(np.ptp(before, 0))
        weights = np.zeros((len(channels), x.shape[1]))
        for line, channel in enumerate(channels):
            known = x[missing[:, channel]]
            wanted = (after - before)[missing[:, channel], channel]
            moments = known.T @ known + RIDGE * max(1, len(known)) * np.eye(x.shape[1])
            weights[line] = np.linalg.solve(moments, known.T @ wanted)
            weights[line, channel] += 1.0
        return channels, weights[:, :-1], weights[:, -1]

    def advance_batch_rows(self, last_estimates: np.ndarray) -> None:
        """Move all rows on by the T ticks that were drawn last, to new estimates (B, N)."""
        self._estimate[:] = last_estimates
        self._tick += self._ticks

    def _move_row_to_other_episode(self, row: int, at_random_tick: bool) -> None:
        """Move a row to another episode, with new missing channels.

        The first estimate of a missing channel is its mean reading at the start of an episode. In
        half of the starts at a random tick it is the channel's true reading instead.
        """
        rng = self._rng
        episode = int(rng.integers(len(self._readings)))
        last = len(self._actions[episode]) - self._ticks
        self._episode[row] = episode
        self._tick[row] = rng.integers(last) if at_random_tick and last else 0
        self._draw_missing_channels(row)
        seen = self._readings[episode][self._tick[row]]
        unknown = self._missing[row] if not at_random_tick or rng.random() < 0.5 else False
        self._estimate[row] = np.where(unknown, self._start, seen)

    def _draw_missing_channels(self, row: int) -> None:
        """Draw at random which channels are missing from now on in one row of the batch."""
        share, count = self._share.draw(self._rng), self._missing.shape[1]
        self._missing[row] = ~draw_present_mask(self._rng, count, share, min_missing=1)


class _ImputationNetwork(nn.Module):
    """Network with two hidden layers, which imputes the missing readings of a tick.

    Its inputs are the N estimates of the tick before, N readings (for missing channels the
    estimates again), N numbers that are 1 for missing channels and 0 for others, and the A numbers
    of the action.

    Args:
        widths: Four numbers: inputs, units of the first and of the second hidden layer, outputs.
    """

    def __init__(self, widths: list[int]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def set_to_linear_model(
        self, channels: np.ndarray, weights: np.ndarray, biases: np.ndarray
    ) -> None:
        """Set the weights so that the outputs for M channels are nearly linear in the inputs.

        The first 2 M units of each hidden layer compute linear estimates of the channels, with
        weights (M, 3 N + A). This is exact because silu(x) - silu(-x) = x. The other units add
        little at first.
        """
        first, second, last = (layer for layer in self.layers if isinstance(layer, nn.Linear))
        lines, one = 2 * len(channels), torch.eye(len(channels))
        weight, bias = (torch.from_numpy(array.astype(F32)) for array in (weights, biases))
        with torch.no_grad():
            first.weight[:lines] = torch.cat([weight, -weight])
            first.bias[:lines] = torch.cat([bias, -bias])
            second.weight[:lines] = 0.0
            second.bias[:lines] = 0.0
            second.weight[:lines, :lines] = torch.cat(
                [torch.cat([one, -one], 1), torch.cat([-one, one], 1)]
            )
            last.weight *= OTHER_UNITS
            last.bias[:] = 0.0
            last.weight[:, :lines] = 0.0
            last.weight[channels, :lines] = torch.cat([one, -one], 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the estimated readings (B, N) for inputs (B, 3 N + A)."""
        first, second, last = self.layers
        return last(nn.functional.silu(second(nn.functional.silu(first(x)))))


class IdentityTraining(NetworkTraining):
    """Training of the identity classifier, which estimates which channel an input slot carries.

    An input slot is the place at which a reading arrives. The classifier learns from random pieces
    of episodes, each of 1 to `WINDOW` ticks. Half of the pieces have noise on the readings. If no
    episode is longer than `WINDOW`, a piece is at most as long as the median episode.

    Args:
        traces: Episodes to learn from; the last ones are held out for a test.
        settings: Sizes and numbers of updates.
        rng: Source of all random numbers.
    """

    name = "identity"

    def __init__(
        self,
        traces: Sequence[EpisodeTrace],
        settings: ForwardModelSettings,
        rng: np.random.Generator,
    ) -> None:
        self._longest, whole = choose_segment_length_and_traces(traces, WINDOW)
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
        self._test = self._cut_slot_and_shared_inputs(whole[-held:], exact, self._longest, test)
        noisy = exact + self._max_noise
        self._noisy_test = self._cut_slot_and_shared_inputs(
            whole[-held:], noisy, self._longest, test
        )
        super().__init__(self._network, settings.rate, settings.identity_updates)

    def compute_loss(self) -> torch.Tensor:
        """Draw the next batch and return its cross-entropy, a scalar."""
        rng, batch = self._rng, self._batch
        ticks = int(rng.integers(1, self._longest + 1))
        sd = self._max_noise * rng.random(batch) * rng.integers(2, size=batch)
        return self._network.compute_loss(
            *self._cut_slot_and_shared_inputs(self._traces, sd, ticks, rng)
        )

    def compute_metrics(self, losses: list[float]) -> dict[str, float]:
        """Return the last loss, and the share of input slots whose channel is recognised, by name.

        The share is measured in two tests, with the recorded readings and with noise added to them.

        Args:
            losses: Losses of the newest updates, at least one.
        """
        shares = {}
        for name, test in ("identified", self._test), ("identified_noisy", self._noisy_test):
            with torch.no_grad():
                found = self._network(*test).argmax(-1)
            shares[name] = (found == torch.arange(self._channels)).float().mean().item()
        return {"loss": losses[-1], **shares}

    def to_arrays(self) -> dict[str, np.ndarray]:
        """Return the classifier's weights by their array names in a model file."""
        arrays = export_layers("identity", self._network.layers)
        arrays["identity.common"] = self._network.common.weight.detach().numpy().copy()
        arrays["identity.units"] = self._units
        return arrays

    def get_batch_sampler_state(self) -> dict[str, Any]:
        """Return the state of the random generator, which decides the next batches."""
        return {"rng": self._rng.bit_generator.state}

    def restore_batch_sampler_state(self, state: dict[str, Any]) -> None:
        """Set the state of the random generator to what `get_batch_sampler_state` returned."""
        self._rng.bit_generator.state = state["rng"]

    def _cut_slot_and_shared_inputs(
        self,
        traces: Sequence[EpisodeTrace],
        noise_sd: np.ndarray,
        piece_ticks: int,
        rng: np.random.Generator,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Cut B random pieces out of episodes; return the inputs of the slots, and the shared ones.

        The noise (B,) of each piece is added. `_IdentityNetwork.forward` has the shapes.
        """
        readings, actions = [], []
        for place in rng.integers(len(traces), size=len(noise_sd)):
            trace = traces[place]
            begin = int(rng.integers(len(trace.actions) - piece_ticks + 1))
            readings.append(trace.readings[begin : begin + piece_ticks + 1])
            actions.append(trace.actions[begin : begin + piece_ticks])
        seen = np.array(readings)
        seen += noise_sd[:, None, None].astype(F32) * rng.standard_normal(seen.shape, F32)
        change = np.diff(seen, axis=1)
        own, common = compute_identity_classifier_inputs(
            seen[:, 1:], change, np.array(actions), self._units
        )
        return torch.from_numpy(np.ascontiguousarray(own)), torch.from_numpy(common)


class _IdentityNetwork(nn.Module):
    """Network with two hidden layers that gives every channel a score for each input slot.

    A high score means that the slot probably carries that channel's signal. Some inputs of the
    network belong to the slot alone, the others are the same for all slots.

    Args:
        actions: Number of actions.
        width: Units of each hidden layer.
        channels: Number of channels.
    """

    def __init__(self, actions: int, width: int, channels: int) -> None:
        super().__init__()
        self.common = nn.Linear(WINDOW * (actions + 1), width, bias=False)
        widths = [2 * WINDOW, width, width, channels]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in pairwise(widths))

    def forward(self, slot_inputs: torch.Tensor, shared_inputs: torch.Tensor) -> torch.Tensor:
        """Return the scores (B, N, N): for each slot, how likely it carries each channel's signal.

        The inputs are those of each slot (B, N, 2 W) for W = `WINDOW` ticks, and those common to
        all slots (B, W (A + 1)) for A actions.
        """
        first, second, last = self.layers
        x = nn.functional.silu(first(slot_inputs) + self.common(shared_inputs).unsqueeze(1))
        return last(nn.functional.silu(second(x)))

    def compute_loss(self, slot_inputs: torch.Tensor, shared_inputs: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy (a scalar) of the scores where slot i carries channel i."""
        scores = self(slot_inputs, shared_inputs)
        channel = torch.arange(scores.shape[-1]).expand(len(scores), -1)
        return nn.functional.cross_entropy(scores.flatten(0, 1), channel.flatten())
