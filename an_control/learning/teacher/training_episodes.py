"""The environment as the learning library plays it: endless episodes, with bursts in between."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from an_control.learning.environments import of_choices
from an_control.learning.rollout.engine import TRAINING_SEEDS
from an_control.learning.rollout.live_episode import LiveEpisode

LONGEST_BURST = 20


class TrainingEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Episodes from training seeds, drawn by `seed`; each step begins a burst with chance `burst`.

    In a burst of up to 20 steps the environment gets random or no actions, so that the learner
    also knows the way back from where a confused student leads. The learner sees an episode that
    is cut off there, whose value it bootstraps, and another that starts where the burst ended:
    a burst teaches nothing itself.

    A Discrete action space stays one. `info` is left out: the library copies it in every step, and
    nothing reads it. BadStep where the environment gives a number that is not
    finite.
    """

    def __init__(self, env: gymnasium.Env[Any, Any], burst: float, seed: int) -> None:
        super().__init__(env)
        space = env.action_space
        assert isinstance(space, spaces.Box)
        self._actions = int(np.prod(space.shape))
        if of_choices(env):
            self.action_space = spaces.Discrete(self._actions)
        self._burst = burst
        self._rng = np.random.default_rng(seed)
        self._burst_begins = False
        self._start()
        self.returns: list[float] = []
        """Of the episodes that ended, bursts included; the reader empties it."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """The start of the next episode; where a burst cut the last one off, it is played first."""
        if self._burst_begins:
            self._play_burst()
        if self._episode.done or (self._played and not self._burst_begins):
            self._start()
        self._burst_begins = False
        return self._episode.observation, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward = self._act(np.eye(self._actions)[action] if self._chooses else action)
        episode = self._episode
        if not episode.done:
            self._burst_begins = self._rng.random() < self._burst
        cut = (episode.done and not episode.fell) or self._burst_begins
        return episode.observation, reward, episode.fell, cut, {}

    def state(self) -> dict[str, Any]:
        """What `restore` continues from."""
        return {
            "rng": self._rng.bit_generator.state,
            "seed": self._seed,
            "played": np.array(self._played, np.float32).reshape(-1, self._actions),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Play the episode at hand again, from its seed and actions."""
        self._start(int(state["seed"]))
        for action in state["played"]:
            self._act(action)
        self.returns.clear()
        self._rng.bit_generator.state = state["rng"]

    @property
    def _chooses(self) -> bool:
        return isinstance(self.action_space, spaces.Discrete)

    def _start(self, seed: int | None = None) -> None:
        self._seed = int(self._rng.integers(*TRAINING_SEEDS)) if seed is None else seed
        self._played: list[np.ndarray] = []
        self._episode = LiveEpisode(self.env, self._seed)

    def _act(self, action: np.ndarray) -> float:
        self._played.append(np.asarray(action, np.float32))
        reward = self._episode.act(self._played[-1])
        if self._episode.done:
            self.returns.append(self._episode.total)
        return reward

    def _play_burst(self) -> None:
        strength = 0.7 * self._rng.integers(2)
        for _ in range(int(self._rng.integers(3, LONGEST_BURST))):
            if self._episode.done:
                return
            noise = strength * self._rng.standard_normal(self._actions)
            self._act(np.clip(noise, -1.0, 1.0))
