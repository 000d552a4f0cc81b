"""The batched engine: a whole population's episodes as torch tensors, the same on CPU and CUDA.

For environments that offer their physics on batches (`env.unwrapped.batched`). Episodes that have
ended are taken out of the batch whenever a quarter of it has, so that little is computed on them.
The neurons run in float32, the physics in float64, as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from an_control.disturbance import DisturbanceSettings
from an_control.learning.rollout.engine import NOTHING, Outcomes, Start
from an_control.policy import AttentionSizes, Model, OrderedSizes
from an_control.policy.scalar.weights import Weights, head_of

COMPACT_BELOW = 0.75
"""The share of the batch that still plays, at which the rest is taken out."""


class TorchEngine:
    """Plays all candidates' episodes in one batch; candidates of one size."""

    def __init__(
        self, inner: Any, channels: Sequence[str], actions: int, device: str = "cpu"
    ) -> None:
        from an_control.learning.rollout.compiled.engine import FusedEngine

        self._batched, self._steps = inner.batched, inner.lanes.steps
        self._starts = FusedEngine(inner.lanes, channels, actions, 1)
        self._channels, self._actions = len(channels), actions
        try:
            self._device = torch.device(device)
            torch.zeros(1, device=self._device)
        except (RuntimeError, AssertionError) as error:
            raise ValueError(f"device {device!r}: {error}") from error

    def close(self) -> None:
        self._starts.close()

    @torch.no_grad()
    def play(
        self,
        models: Sequence[Model],
        starts: Sequence[Start],
        scrambling: DisturbanceSettings = NOTHING,
    ) -> Outcomes:
        """See `Engine`; ValueError where the scrambling is more than a shuffle."""
        conditions = self._starts.conditions(starts, scrambling)
        if conditions.noise.shape[2] or conditions.copied.shape[1] or len(conditions.present):
            raise ValueError(
                "the torch engine shuffles only: no noise channels, copies or missing channels"
            )
        order = torch.as_tensor(conditions.order, device=self._device)
        first = torch.as_tensor(self._starts.states(starts).T, device=self._device)
        people, episodes = len(models), len(starts)
        policy = _Population(models, self._device)
        state = first.repeat(1, people)
        row = torch.arange(people, device=self._device).repeat_interleave(episodes)
        episode = torch.arange(episodes, device=self._device).repeat(people)
        place = row * episodes + episode
        returns = torch.zeros(people * episodes, dtype=torch.float64, device=self._device)
        steps = torch.zeros(people * episodes, dtype=torch.int64, device=self._device)
        total, playing = torch.zeros_like(returns), torch.ones_like(returns, dtype=torch.bool)
        memory = policy.begin(len(row), self._channels, self._actions)
        for t in range(self._steps):
            observation = self._batched.observe(state, torch).float()
            if len(order):
                block = t // conditions.every if conditions.every else 0
                observation = observation.gather(1, order[episode, block])
            action, memory = policy.act(observation, row, memory)
            state, reward, ended = self._batched.advance(state, action.double(), torch)
            total = torch.where(playing, total + reward, total)
            done = playing & (ended | (t + 1 == self._steps) | ~total.isfinite())
            returns[place[done]], steps[place[done]] = total[done], t + 1
            playing = playing & ~done
            left = int(playing.sum()) if t % 8 == 7 else len(playing)
            if left == 0:
                break
            if left < COMPACT_BELOW * len(playing):
                state, memory = state[:, playing], [part[playing] for part in memory]
                row, episode, place = row[playing], episode[playing], place[playing]
                total, playing = total[playing], playing[playing]
        found = returns.cpu().numpy().reshape(people, episodes)
        found = np.where(np.isfinite(found), found, np.nan)
        failed = "a reward was not finite" if np.isnan(found).any() else None
        return Outcomes(found, steps.cpu().numpy().reshape(people, episodes), failed)


class _Population:
    """P policies of one size; every row of a batch names the one that acts in it."""

    def __init__(self, models: Sequence[Model], device: torch.device) -> None:
        sizes = models[0].sizes
        if any(model.sizes != sizes for model in models):
            raise ValueError("the torch engine plays candidates of one size")
        assert isinstance(sizes, AttentionSizes | OrderedSizes)
        self._sizes, self._device = sizes, device
        self._attends = isinstance(self._sizes, AttentionSizes)
        if self._attends:
            weights = [Weights.of(model) for model in models]
            if models[0].sizes.products or self._sizes.inputs != ["value"]:  # type: ignore[union-attr]
                raise ValueError("the torch engine knows no products or changes as inputs")
            if models[0].sizes.memory:  # type: ignore[union-attr]
                raise ValueError("the torch engine knows no head with a memory")
            if models[0].sizes.startle:  # type: ignore[union-attr]
                raise ValueError("the torch engine knows no neurons that are startled")
            self._neurons = (_Stacks if self._sizes.stack else _Lstms)(weights, self._device)  # type: ignore[union-attr]
            self._scores = self._together([w.scores.T for w in weights])
            self._scores_bias = self._together([w.scores_bias for w in weights])
            heads = [w.head for w in weights]
        else:
            layers = len(self._sizes.head) + 1
            heads = [head_of(model.arrays, layers) for model in models]
        self._head = [
            (
                self._together([weight.T for weight, _ in layer]),
                self._together([bias for _, bias in layer]),
            )
            for layer in zip(*heads, strict=True)
        ]

    def begin(self, rows: int, channels: int, actions: int) -> list[Tensor]:
        """The memory of `rows` episodes: previous action, then the neurons' state."""
        previous = torch.zeros((rows, actions), device=self._device)
        return [previous, *(self._neurons.begin(rows, channels) if self._attends else ())]

    def act(
        self, observation: Tensor, row: Tensor, memory: list[Tensor]
    ) -> tuple[Tensor, list[Tensor]]:
        """Actions (B, A) for observations (B, N) by the policies `row` (B,)."""
        if not self._attends:
            action = self._behind(observation, row)
            return action, memory
        previous, *state = memory
        h, *state = self._neurons.advance(observation, previous, row, state)
        scores = h @ self._scores[row] + self._scores_bias[row][:, None]
        normalise = self._sizes.normalise  # type: ignore[union-attr]
        if self._sizes.attention == "tanh":  # type: ignore[union-attr]
            share = normalise / observation.shape[1] if normalise else 1.0
            message = torch.tanh(share * (torch.tanh(scores) * observation[..., None]).sum(1))
        else:
            weights = scores.softmax(-1)[..., :-1]
            routed = (weights * observation[..., None]).sum(1)
            mass = weights.sum(1)
            if normalise:
                routed, mass = routed / mass.clamp(min=1.0), mass.clamp(max=1.0)
            message = torch.cat([routed, mass - 1.0], -1)
        action = self._behind(message, row)
        return action, [action, *state]

    def _behind(self, x: Tensor, row: Tensor) -> Tensor:
        """The head."""
        for weight, bias in self._head[:-1]:
            x = _times(x, weight[row]) + bias[row]
            x = torch.tanh(x) if self._sizes.activation == "tanh" else torch.relu(x)
        weight, bias = self._head[-1]
        x = _times(x, weight[row]) + bias[row]
        return torch.tanh(x) if self._sizes.output == "tanh" else x.clamp(-1.0, 1.0)

    def _together(self, arrays: Sequence[np.ndarray]) -> Tensor:
        return _together(arrays, self._device)


class _Neurons:
    """P policies' neurons: what a form of them keeps (B, N, .), and how it advances."""

    def __init__(self, weights: Sequence[Weights], device: torch.device) -> None:
        self._device = device
        self._inputs = _together([w.features for w in weights], device)
        self._action = _together([w.action.T for w in weights], device)
        self._hidden = _together([w.hidden.T for w in weights], device)
        self._bias = _together([w.bias for w in weights], device)

    def _common(self, previous: Tensor, row: Tensor) -> Tensor:
        """What all channels share, (B, 1, units)."""
        return (self._bias[row] + _times(previous, self._action[row]))[:, None]

    def begin(self, rows: int, channels: int) -> list[Tensor]:
        """The state of `rows` episodes."""
        raise NotImplementedError

    def advance(
        self, observation: Tensor, previous: Tensor, row: Tensor, state: list[Tensor]
    ) -> list[Tensor]:
        """The outputs h (B, N, d), then the state."""
        raise NotImplementedError


class _Lstms(_Neurons):
    """State: outputs h, cells c."""

    def begin(self, rows: int, channels: int) -> list[Tensor]:
        shape = rows, channels, self._hidden.shape[1]
        return [torch.zeros(shape, device=self._device) for _ in range(2)]

    def advance(
        self, observation: Tensor, previous: Tensor, row: Tensor, state: list[Tensor]
    ) -> list[Tensor]:
        h, c = state
        gates = (
            h @ self._hidden[row]
            + self._common(previous, row)
            + (observation[..., None] * self._inputs[row])
        )
        enter, forget, leave, new = torch.tanh(gates).chunk(4, -1)
        c = (0.5 * forget + 0.5) * c + (0.5 * enter + 0.5) * new
        h = (0.5 * leave + 0.5) * torch.tanh(c)
        return [h, h, c]


class _Stacks(_Neurons):
    """State: the newest readings, NaN before the first."""

    def begin(self, rows: int, channels: int) -> list[Tensor]:
        shape = rows, channels, self._inputs.shape[1]
        return [torch.full(shape, torch.nan, device=self._device)]

    def advance(
        self, observation: Tensor, previous: Tensor, row: Tensor, state: list[Tensor]
    ) -> list[Tensor]:
        newest = observation[..., None]
        readings = torch.cat([newest, state[0][..., :-1]], -1)
        readings = torch.where(readings.isnan(), newest, readings)
        h = torch.tanh(self._common(previous, row) + readings @ self._inputs[row])
        return [h, readings]


def _together(arrays: Sequence[np.ndarray], device: torch.device) -> Tensor:
    return torch.as_tensor(np.stack(arrays).astype(np.float32), device=device)


def _times(x: Tensor, weights: Tensor) -> Tensor:
    """(B, n) times (B, n, m), row by row."""
    return (x[:, None] @ weights)[:, 0]
