"""PPO (Schulman et al. 2017) on an MLP: a stronger teacher from one that can walk.

The teacher must also know the way back from where a confused student leads it, so episodes are
disturbed by bursts of no or random actions, which count as the environment's and teach nothing.
An iteration follows from the run's seed, its number and the state before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import gymnasium
import numpy as np
import torch
from torch import Tensor, nn

from an_control.learning.rollout.engine import TRAINING_SEEDS
from an_control.learning.rollout.live_episode import LiveEpisode
from an_control.learning.teacher.teachers import Layers, NetworkTeacher


@dataclass(frozen=True)
class PpoSettings:
    """A run's numbers; rates fall linearly to a tenth."""

    iterations: int = 500
    environments: int = 16
    steps: int = 512
    """A iteration's, of each environment."""
    discount: float = 0.99
    trace: float = 0.95
    """Lambda of the generalised advantage estimate."""
    clip: float = 0.2
    epochs: int = 8
    batch: int = 1024
    rate: float = 3e-4
    critic_rate: float = 1e-3
    max_divergence: float = 0.03
    """An iteration's updates end beyond this Kullback-Leibler divergence."""
    warm_up: int = 5
    """First iterations, which train the critic alone."""
    noise: float = 0.3
    """The first standard deviation of the actions."""
    burst: float = 0.003
    """Chance a step that a burst begins."""
    reward_scale: float = 0.02


class Actor(nn.Module):
    """A relu network of the teacher's form, and the standard deviation of its noise."""

    def __init__(self, layers: Layers, noise: float) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(w.shape[1], w.shape[0]) for w, _ in layers)
        with torch.no_grad():
            for own, (weight, bias) in zip(self._linear, layers, strict=True):
                own.weight.copy_(torch.from_numpy(weight))
                own.bias.copy_(torch.from_numpy(bias))
        self.log_sd = nn.Parameter(torch.full((layers[-1][0].shape[0],), math.log(noise)))

    @property
    def _linear(self) -> list[nn.Linear]:
        return [layer for layer in self.layers if isinstance(layer, nn.Linear)]

    def forward(self, observations: Tensor) -> Tensor:
        *hidden, last = self._linear
        x = observations
        for layer in hidden:
            x = torch.relu(layer(x))
        mean: Tensor = last(x)
        return mean

    def teacher(self) -> NetworkTeacher:
        return NetworkTeacher(
            [
                (layer.weight.detach().double().numpy(), layer.bias.detach().double().numpy())
                for layer in self._linear
            ]
        )


@dataclass
class Rollout:
    """T steps of E environments."""

    observations: np.ndarray  # (T + 1, E, N)
    actions: np.ndarray  # (T, E, A) before clipping
    rewards: np.ndarray  # (T, E)
    ends: np.ndarray  # (T, E) 1 where an episode ended after the step
    left: np.ndarray  # (T, E, N) what the environment showed after the step
    fell: np.ndarray  # (T, E) 1 where the environment ended it
    own: np.ndarray  # (T, E) 0 where a burst acted
    totals: list[float]


class Players:
    """Environments side by side; episodes continue from one rollout to the next.

    A restored one plays the episodes at hand again, from their seeds and actions.
    """

    def __init__(
        self, envs: list[gymnasium.Env[Any, Any]], settings: PpoSettings, seed: int
    ) -> None:
        self._envs, self._settings = envs, settings
        self._rng = np.random.default_rng(seed)
        self._seeds = [0] * len(envs)
        self._actions: list[list[np.ndarray]] = [[] for _ in envs]
        self._episodes = [self._reset(e) for e in range(len(envs))]
        self._left = np.zeros(len(envs), int)
        self._still = np.zeros(len(envs), bool)

    def state(self) -> dict[str, Any]:
        """What `restore` continues from."""
        return {
            "rng": self._rng.bit_generator.state,
            "seeds": self._seeds,
            "actions": [np.array(actions) for actions in self._actions],
            "left": self._left,
            "still": self._still,
        }

    def restore(self, state: dict[str, Any]) -> None:
        for e, (seed, actions) in enumerate(zip(state["seeds"], state["actions"], strict=True)):
            self._seeds[e], self._actions[e] = seed, list(actions)
            self._episodes[e] = LiveEpisode(self._envs[e], seed)
            for action in actions:
                self._episodes[e].act(action)
        self._left, self._still = state["left"].copy(), state["still"].copy()
        self._rng.bit_generator.state = state["rng"]

    def _reset(self, e: int) -> LiveEpisode:
        self._seeds[e], self._actions[e] = int(self._rng.integers(*TRAINING_SEEDS)), []
        return LiveEpisode(self._envs[e], self._seeds[e])

    def _now(self) -> np.ndarray:
        """The newest observations (E, N) float32."""
        return np.array([episode.observation for episode in self._episodes], np.float32)

    def play(self, actor: Actor, steps: int) -> Rollout:
        """Let the noisy actor act; returns of finished episodes are in `totals`."""
        weights = [(p.weight.detach().numpy(), p.bias.detach().numpy()) for p in actor._linear]
        sd = actor.log_sd.detach().exp().numpy()
        count, actions = len(self._envs), len(sd)
        shape = steps, count
        channels = len(self._episodes[0].observation)
        seen = np.zeros((steps + 1, count, channels), np.float32)
        left = np.zeros((steps, count, channels), np.float32)
        acted = np.zeros((*shape, actions), np.float32)
        rewards, ends = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
        fell, own = np.zeros(shape, np.float32), np.ones(shape, np.float32)
        totals = []
        for t in range(steps):
            seen[t] = x = self._now()
            for weight, bias in weights[:-1]:
                x = np.maximum(x @ weight.T + bias, 0.0)
            mean = x @ weights[-1][0].T + weights[-1][1]
            noise = self._rng.standard_normal(mean.shape, np.float32)
            acted[t] = mean + sd * noise
            self._bursts(acted[t], own[t])
            for e, episode in enumerate(self._episodes):
                self._actions[e].append(np.clip(acted[t, e], -1.0, 1.0))
                rewards[t, e] = episode.act(self._actions[e][-1])
                left[t, e], fell[t, e] = episode.observation, episode.fell
                if episode.done:
                    ends[t, e] = 1.0
                    totals.append(episode.total)
                    self._left[e] = 0
                    self._episodes[e] = self._reset(e)
        seen[steps] = self._now()
        return Rollout(seen, acted, rewards, ends, left, fell, own, totals)

    def _bursts(self, actions: np.ndarray, own: np.ndarray) -> None:
        """Replace the actions of environments that a burst has hold of."""
        begin = (self._left <= 0) & (self._rng.random(len(own)) < self._settings.burst)
        for e in np.flatnonzero(begin):
            self._left[e] = self._rng.integers(3, 20)
            self._still[e] = self._rng.random() < 0.5
        for e in np.flatnonzero(self._left > 0):
            strength = 0.0 if self._still[e] else 0.7
            actions[e] = strength * self._rng.standard_normal(actions.shape[1])
            own[e] = 0.0
        self._left -= 1


class Ppo:
    """Actor, critic and their optimisers; one `improve` an iteration."""

    def __init__(self, layers: Layers, settings: PpoSettings, seed: int) -> None:
        torch.manual_seed(seed)
        self.settings = settings
        self.actor = Actor(layers, settings.noise)
        widths = [layers[0][0].shape[1], 256, 128, 1]
        parts: list[nn.Module] = []
        for a, b in pairwise(widths):
            parts += [nn.Linear(a, b), nn.Tanh()]
        self.critic = nn.Sequential(*parts[:-1])
        self.optimiser = torch.optim.Adam(
            [
                {"params": list(self.actor.parameters()), "first": settings.rate},
                {"params": list(self.critic.parameters()), "first": settings.critic_rate},
            ]
        )

    def state(self) -> dict[str, Any]:
        """What `restore` continues from."""
        return {
            "actor": self.actor.state_dict(),
            "critic": self.critic.state_dict(),
            "optimiser": self.optimiser.state_dict(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.actor.load_state_dict(state["actor"])
        self.critic.load_state_dict(state["critic"])
        self.optimiser.load_state_dict(state["optimiser"])

    def improve(self, played: Rollout, number: int, rng: np.random.Generator) -> dict[str, float]:
        """One iteration's updates in place."""
        settings = self.settings
        progress = number / max(1, settings.iterations)
        for group in self.optimiser.param_groups:
            group["lr"] = group["first"] * (1.0 - 0.9 * progress)
        advantages, targets = self._advantages(played)
        own = torch.from_numpy(played.own.ravel())
        observations = torch.from_numpy(played.observations[:-1].reshape(len(own), -1))
        actions = torch.from_numpy(played.actions.reshape(len(own), -1))
        advantage, target = (torch.from_numpy(x.ravel()) for x in (advantages, targets))
        with torch.no_grad():
            before = self._log_chance(observations, actions)
        divergence = wrong = 0.0
        for _ in range(settings.epochs):
            order = torch.from_numpy(rng.permutation(len(own)))
            for part in order.split(settings.batch):
                value = self.critic(observations[part]).squeeze(-1)
                critic = ((value - target[part]) ** 2).mean()
                loss = 0.5 * critic
                if number >= settings.warm_up:
                    chance = self._log_chance(observations[part], actions[part])
                    ratio = (chance - before[part]).clamp(-10.0, 10.0)
                    gain, bounded = (
                        ratio.exp(),
                        ratio.exp().clamp(1.0 - settings.clip, 1.0 + settings.clip),
                    )
                    scaled = advantage[part]
                    scaled = (scaled - scaled.mean()) / (scaled.std() + 1e-6)
                    actor = torch.minimum(gain * scaled, bounded * scaled) * own[part]
                    loss = loss - actor.mean()
                    divergence = float((((gain - 1.0) - ratio) * own[part]).mean())
                self.optimiser.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(self.actor.parameters(), 0.5)
                nn.utils.clip_grad_norm_(self.critic.parameters(), 0.5)
                self.optimiser.step()
                wrong = critic.item()
            if divergence > settings.max_divergence:
                break
        return {
            "divergence": divergence,
            "critic_loss": wrong,
            "unexplained": wrong / float(target.var()),
            "noise": self.actor.log_sd.exp().mean().item(),
        }

    def _log_chance(self, observations: Tensor, actions: Tensor) -> Tensor:
        """The log density (B,) of the actions, up to a constant."""
        log_sd = self.actor.log_sd
        distance = (actions - self.actor(observations)) / log_sd.exp()
        return -(0.5 * distance**2 + log_sd).sum(-1)

    def _advantages(self, played: Rollout) -> tuple[np.ndarray, np.ndarray]:
        """Generalised advantage estimates (Schulman et al. 2016) and the critic's targets."""
        settings = self.settings
        with torch.no_grad():
            value = self.critic(torch.from_numpy(played.observations[:-1])).squeeze(-1).numpy()
            after = self.critic(torch.from_numpy(played.left)).squeeze(-1).numpy()
        reward = settings.reward_scale * played.rewards
        surprise = reward + settings.discount * after * (1.0 - played.fell) - value
        advantages, running = np.zeros_like(surprise), np.zeros(surprise.shape[1], np.float32)
        for t in reversed(range(len(surprise))):
            keep = settings.discount * settings.trace * (1.0 - played.ends[t])
            advantages[t] = running = surprise[t] + keep * running
        return advantages, advantages + value
