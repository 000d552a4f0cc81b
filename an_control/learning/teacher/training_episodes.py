"""Gymnasium wrapper in which a teacher is trained, with disturbed episodes one after another."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from an_control.disturbance import TRAINING_SEEDS, DisturbanceSettings
from an_control.learning.rollout.episode import LiveEpisode, NewestReadings, Tick
from an_control.learning.training_disturbances import (
    NO_FAULTS,
    Fault,
    draw_at_most_one_disturbance,
    make_disturber,
    make_placeholder_ids,
)
from an_control_sim.gym.environments import count_action_numbers_by_choice
from an_control_sim.gym.failure import BrokenEnvironmentError, FailureCounter
from an_control_sim.gym.spaces import encode_choices_as_numbers

LONGEST_BURST = 20
"""Upper limit, not reached, of the number of steps of a burst of random or zero actions."""


def make_disturbed_episode(
    env: gymnasium.Env[Any, Any], seed: int, fault: DisturbanceSettings
) -> LiveEpisode:
    """Start an episode with a disturbance; all its random numbers are derived from the seed.

    Args:
        env: The environment.
        seed: Seed of environment and disturbance.
        fault: The disturbance; `DisturbanceSettings()` for none.
    """
    (channels,) = env.observation_space.shape or (0,)
    disturbed = make_disturber(channels, fault, np.random.default_rng(seed))
    return LiveEpisode(env, seed, disturbed, make_placeholder_ids(channels))


class TrainingEpisodes(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Gymnasium wrapper that plays disturbed episodes for a reinforcement learning library.

    At random steps a burst of 3 to 19 random or zero actions begins. It leads to unusual states of
    the kind that students later get into. From them the trained policy, the teacher, learns to
    recover. The library must not learn the actions of the burst. For the library the episode is
    therefore truncated before the burst, and another one starts after it. A stop of the robot, one
    of the disturbances, also ends one episode and starts another. After an exception of the
    environment, the library's episode is truncated and the environment is reset.

    The library observes the readings that arrived. A missing reading is replaced by the channel's
    last one. While messages are lost, the previous action is sent again, and the library's next
    step starts when a message arrives.

    Discrete action spaces are kept. `info` is always empty.

    Args:
        env: The environment.
        burst_probability: Probability per step that a burst begins.
        seed: Seed of all random numbers.
        faults: Probability of each disturbance, of which an episode has at most one.
        failures: Counter of the episodes in which the environment raised an exception; None for a
            new counter.

    Raises:
        BrokenEnvironmentError: Too many episodes failed in a row. `reset`, `step` and `restore`
            raise it too.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        burst_probability: float,
        seed: int,
        faults: Mapping[Fault, float] = NO_FAULTS,
        failures: FailureCounter | None = None,
    ) -> None:
        super().__init__(env)
        self._faults = faults
        self._failures = FailureCounter() if failures is None else failures
        space = env.action_space
        assert isinstance(space, spaces.Box)
        self._actions = int(np.prod(space.shape))
        self._choices = count_action_numbers_by_choice(env)
        if self._choices:
            self.action_space = _make_discrete_action_space(self._choices)
        self._burst = burst_probability
        self._rng = np.random.default_rng(seed)
        self._burst_begins = self._stop_begins = self._failed = False
        self._start_random_episode()
        self.returns: list[float] = []
        """Returns of the episodes that ended, with the rewards during bursts. The reader of the
        list also clears it."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Start the next episode of the reinforcement learning library.

        It is usually a new episode of the environment. If `step` truncated the last one because a
        burst (some random or zero actions) or a stop of the robot begins, the burst or stop is
        played here, and the next episode is the rest of the environment's.

        Args:
            seed: Not used; the wrapper draws its own seeds.
            options: Not used.

        Returns:
            The first observation (N,), and an empty dict as `info`.
        """
        try:
            if self._burst_begins:
                self._play_action_burst()
            elif self._stop_begins:
                self._send_zeros_during_stop()
        except BrokenEnvironmentError as failure:
            self._mark_episode_as_failed(failure)
        cut = self._burst_begins or self._stop_begins
        if self._failed or self._episode.done or (self._played and not cut):
            self._start_random_episode()
        self._burst_begins = self._stop_begins = False
        return self._observed, {}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Send an action and run the environment until the next message with readings arrives.

        That takes several steps of the environment if messages are lost.

        Args:
            action: The action that the reinforcement learning library chose, an element of this
                wrapper's `action_space`.

        Returns:
            The observation (N,), the reward, whether the robot fell (terminated), whether the
            episode was truncated, and an empty dict as `info`.
        """
        try:
            reward = self._send_action_and_sum_rewards(
                encode_choices_as_numbers(self._choices, action) if self._choices else action
            )
        except BrokenEnvironmentError as failure:
            self._mark_episode_as_failed(failure)
            return self._observed, 0.0, False, True, {}
        episode = self._episode
        if not episode.done:
            self._burst_begins = self._rng.random() < self._burst
            self._stop_begins = self._is_robot_stopped
        cut = (episode.done and not episode.fell) or self._burst_begins or self._stop_begins
        return self._observed, reward, episode.fell, cut, {}

    def make_checkpoint(self) -> dict[str, Any]:
        """Return the state from which `restore` continues.

        It holds the state of the random generator, and the seed, the disturbance and all actions of
        the current episode.
        """
        return {
            "rng": self._rng.bit_generator.state,
            "seed": self._seed,
            "fault": str(self._fault),
            "played": np.array(self._played, np.float32).reshape(-1, self._actions),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a checkpoint that `make_checkpoint` returned.

        The state of an environment cannot be stored. Therefore the episode of the checkpoint is
        started again from its seed, and all actions that were sent before the checkpoint are sent
        again. The list `returns` of finished episodes is emptied.
        """
        try:
            self._start_episode(int(state["seed"]), DisturbanceSettings.parse(state["fault"]))
            for action in state["played"]:
                self._send_action_and_sum_rewards(action)
        except BrokenEnvironmentError as failure:  # the environment does not repeat its episode
            self._mark_episode_as_failed(failure)
        self.returns.clear()
        self._rng.bit_generator.state = state["rng"]

    def _mark_episode_as_failed(self, failure: BrokenEnvironmentError) -> None:
        """Count a failed episode, and mark it so that the next `reset` starts another one."""
        self._failures.count_failure(failure)
        self._failed = True

    @property
    def _is_robot_stopped(self) -> bool:
        """Return whether the robot is stopped now, so that the safe command replaces the action."""
        stop = self._episode.stop
        return stop is not None and stop.begin <= len(self._episode.rewards) < stop.end

    def _start_random_episode(self) -> None:
        """Start a new episode with a random seed and disturbance; try again if it fails."""
        self._failed = True
        while self._failed:
            seed = int(self._rng.integers(*TRAINING_SEEDS))
            try:
                self._start_episode(seed, draw_at_most_one_disturbance(self._faults, self._rng))
            except BrokenEnvironmentError as failure:
                self._mark_episode_as_failed(failure)

    def _start_episode(self, seed: int, fault: DisturbanceSettings) -> None:
        """Start an episode."""
        self._seed, self._fault = seed, fault
        self._played: list[np.ndarray] = []
        self._newest = NewestReadings()
        self._episode = make_disturbed_episode(self.env, seed, fault)
        self._ticks: Iterator[Tick] = iter(self._episode)
        self._failed = False
        self._advance_tick()

    def _advance_tick(self) -> None:
        """Advance the episode to its next tick, and store the tick's readings for the library.

        At the end of the episode, the environment's final observation is stored.
        """
        self._tick = next(self._ticks, None)
        self._observed = self._newest(
            self._episode.observation if self._tick is None else self._tick.values
        )

    def _send_action_and_sum_rewards(self, action: np.ndarray) -> float:
        """Send an action until a message with readings arrives, and return the sum of rewards."""
        self._played.append(np.asarray(action, np.float32))
        reward = self._episode.send_action(self._played[-1])
        self._advance_tick()
        while self._tick is not None and not self._tick.arrived:
            assert self._episode.sent is not None
            reward += self._episode.send_action(self._episode.sent)
            self._advance_tick()
        if self._episode.done:
            self.returns.append(self._episode.total)
            self._failures.reset_consecutive_failures()
        return reward

    def _send_zeros_during_stop(self) -> None:
        """Send zero actions while the robot is stopped, or until the episode ends.

        While it is stopped the robot gets the safe command, whatever action is sent.
        """
        while self._is_robot_stopped and not self._episode.done:
            self._send_action_and_sum_rewards(np.zeros(self._actions, np.float32))

    def _play_action_burst(self) -> None:
        """Send random or zero actions for 3 to 19 steps."""
        strength = 0.7 * self._rng.integers(2)
        for _ in range(int(self._rng.integers(3, LONGEST_BURST))):
            if self._episode.done:
                return
            noise = strength * self._rng.standard_normal(self._actions)
            self._send_action_and_sum_rewards(np.clip(noise, -1.0, 1.0))


def _make_discrete_action_space(choices: tuple[int, ...]) -> gymnasium.Space[Any]:
    """Return the space of groups of options (a group of one is a bit) for stable-baselines3."""
    if len(choices) == 1 and choices[0] > 1:
        return spaces.Discrete(choices[0])
    if set(choices) == {1}:
        return spaces.MultiBinary(len(choices))
    return spaces.MultiDiscrete(list(choices))
