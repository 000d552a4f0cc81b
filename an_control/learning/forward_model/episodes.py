"""Recorded episodes from which the identity monitor's networks learn.

The policy drives them, with periods of noise, of random actions, and of the actions that it takes
when channels are swapped; or the policy with its monitor drives while channels are missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import gymnasium
import numpy as np

from an_control.disturbance import TRAINING_SEEDS, Disturber, Range, draw_present_mask
from an_control.learning.rollout.episode import LiveEpisode, NewestReadings
from an_control.learning.training_disturbances import (
    NO_FAULTS,
    Fault,
    draw_at_most_one_disturbance,
    make_disturber,
    make_placeholder_ids,
)
from an_control.load import make_policy
from an_control.policy import Model, Monitor
from an_control.policy.sizes import WINDOW
from an_control_sim.gym.failure import FailureCounter

F32 = np.float32
PATIENCE = 10
"""Maximum factor by which more steps are played than asked for, if all episodes are short."""
CALM, LOST, MISWIRED = ("plain",), ("lost",), ("miswired",)
MODES = (*("plain",) * 3, *("noisy",) * 3, "random", "crossed", "crossed", "lost")
"""Kinds of periods in a disturbed episode; each is drawn as often as it is listed."""
EPISODES = (CALM, MODES, MODES, LOST, MODES)
"""Kinds of periods in consecutive episodes, in turn."""
CHANNEL_MISTAKES = ("sign", "scale", "offset", "swapped", "group")
"""Kinds of mistakes of channels in a miswired episode; the first three concern one channel."""
MOTOR_SHARE, SWAPPED_SHARE = 0.4, 0.3
"""Share of the mistakes in a miswired episode that concern motors, and share of these in which two
motors are exchanged."""
MOTOR_GAINS = (-1.0, 0.0, 0.25, 3.0)
"""Gains of motors in a miswired episode."""
LOG_FACTOR, MAX_OFFSET, MAX_SEEN = (0.5, 7.0), 2.0, 1e4
"""Bounds of the logarithm of a wrong factor, maximum wrong offset, and maximum reading that the
policy gets."""


class EpisodeTrace(NamedTuple):
    """Recorded episode of T steps with N channels and A actions.

    Attributes:
        readings: Readings before each step and after the last one (T + 1, N). A missing reading is
            replaced by the last one that its channel had before.
        actions: The actions that were sent (T, A).
        disturbed: Whether actions of the policy may have been changed on purpose during the
            episode, for example by noise.
    """

    readings: np.ndarray
    actions: np.ndarray
    disturbed: bool


class PolicyDriver:
    """Policy that chooses the actions of episodes that are recorded.

    Args:
        model: The policy.
        monitor: Setting of the policy's identity monitor; "off" to let it act without the monitor.
    """

    def __init__(self, model: Model, monitor: Monitor = "off") -> None:
        self._policy = make_policy(model, monitor)
        self._ids = self._policy.nominal_ids

    def start_episode(self, period_kinds: Sequence[str] = ()) -> None:
        """Reset the policy for a new episode.

        Args:
            period_kinds: Not used here; `Explorer.start_episode` explains it.
        """
        self._policy.reset()

    def act(self, readings: np.ndarray) -> np.ndarray:
        """Return the action (A,) for readings (N,), which are NaN where missing."""
        return self._policy.step_array(readings, self._ids)

    def set_previous_action(self, action: np.ndarray) -> None:
        """Tell the policy that `action` (A,) was sent instead of the action that `act` returned."""
        self._policy.previous_action = action


class Explorer(PolicyDriver):
    """Policy with exploration, which chooses the actions of episodes that are recorded.

    An episode consists of periods of some ticks. The kind of a period decides which actions are
    sent:

    - "plain": those of the policy,
    - "noisy": those of the policy, with noise,
    - "random": random actions,
    - "crossed": those that the policy chooses if the readings of a few channels are permuted,
    - "lost": those that the policy chooses if the readings of all channels are permuted.

    Args:
        model: The policy.
        noise: Maximum standard deviation of the noise in periods of the kind "noisy".
        rng: Source of all random numbers.
    """

    def __init__(self, model: Model, noise: float, rng: np.random.Generator) -> None:
        super().__init__(model)
        self._confused = make_policy(model, "off")
        self._noise, self._rng = noise, rng

    def start_episode(self, period_kinds: Sequence[str] = ()) -> None:
        """Reset the policy for a new episode, and set which kinds of periods the episode has.

        A period is some ticks in which the policy's actions are used or disturbed in one way.

        Args:
            period_kinds: Kinds of periods, such as "plain" and "noisy". From them the kind of each
                period is drawn; a kind that is listed twice is drawn twice as often.
        """
        super().start_episode()
        self._confused.reset()
        self._modes = period_kinds
        self._draw_next_period()

    def _draw_next_period(self) -> None:
        """Draw the next period: its kind, length, noise, and the channels that it permutes."""
        rng = self._rng
        self._mode = str(rng.choice(self._modes))
        brief = self._mode in ("random", "crossed")
        self._left = int(rng.integers(3, 20) if brief else rng.integers(20, 120))
        self._sd = self._noise * rng.random()
        self._drift: np.ndarray | None = None
        count = len(self._ids)
        self._order = np.arange(count)
        few = int(rng.integers(2, min(9, count + 1))) if count > 1 else 1
        some = rng.choice(count, count if self._mode == "lost" else few, replace=False)
        self._order[some] = rng.permutation(some)

    def act(self, readings: np.ndarray) -> np.ndarray:
        """Return the action (A,) to send for readings (N,), the policy's own or a disturbed one."""
        own = self._policy.step_array(readings, self._ids)
        if self._modes == CALM:
            return own
        if self._left <= 0:
            self._draw_next_period()
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
        self._policy.previous_action = self._confused.previous_action = action
        return action

    def set_previous_action(self, action: np.ndarray) -> None:
        """Tell the policy that `action` (A,) was sent instead of the action that `act` returned."""
        self._policy.previous_action = self._confused.previous_action = action


class MiswiredDriver(PolicyDriver):
    """Policy that acts on a robot with one or two random mistakes in the wiring.

    For example, a sensor has the wrong sign, or two motors are exchanged. Such a robot gets into
    states that it never sees otherwise. A forward model that has learned from these states helps to
    find out which mistake explains the readings.

    Args:
        model: The policy. It does not know of the mistakes.
        rng: Source of all random numbers.
    """

    def __init__(self, model: Model, rng: np.random.Generator) -> None:
        super().__init__(model)
        self._rng = rng

    def start_episode(self, period_kinds: Sequence[str] = ()) -> None:
        """Reset the policy for a new episode, and choose at random which mistakes the wiring has.

        Args:
            period_kinds: Not used; `Explorer.start_episode` takes the same argument.
        """
        super().start_episode()
        count = len(self._ids)
        self._source, self._scale, self._offset = np.arange(count), np.ones(count), np.zeros(count)
        self._motor_mistakes = 0
        for _ in range(int(self._rng.integers(1, 3))):
            if self._rng.random() < MOTOR_SHARE:
                self._motor_mistakes += 1
            else:
                self._draw_channel_mistake()
        self._gain: np.ndarray | None = None

    def _draw_channel_mistake(self) -> None:
        """Draw a mistake of one channel, of two that are exchanged, or of about half of them."""
        rng, count = self._rng, len(self._ids)
        kind = str(rng.choice(CHANNEL_MISTAKES if count > 1 else CHANNEL_MISTAKES[:3]))
        first = int(rng.integers(count))
        if kind == "sign":
            self._scale[first] *= -1.0
        elif kind == "scale":
            self._scale[first] *= np.exp(rng.choice([-1.0, 1.0]) * rng.uniform(*LOG_FACTOR))
        elif kind == "offset":
            self._offset[first] += rng.uniform(-MAX_OFFSET, MAX_OFFSET)
        elif kind == "swapped":
            second = int((first + rng.integers(1, count)) % count)
            self._source[[first, second]] = self._source[[second, first]]
        else:
            self._scale[rng.random(count) < 0.5] *= rng.choice([-1.0, 0.1, 10.0])

    def _draw_motor_mistakes(self, count: int) -> None:
        """Draw the mistakes of the motors: gains, and which motor gets which action."""
        rng = self._rng
        self._gain, self._motor_source = np.ones(count), np.arange(count)
        for _ in range(self._motor_mistakes):
            first, second = int(rng.integers(count)), int(rng.integers(count))
            if rng.random() < SWAPPED_SHARE:
                swapped = self._motor_source[[second, first]]
                self._motor_source[[first, second]] = swapped
            else:
                self._gain[first] = rng.choice(MOTOR_GAINS)

    def act(self, readings: np.ndarray) -> np.ndarray:
        """Let the policy act on wrongly wired readings, and return the action (A,) of the motors.

        Args:
            readings: The correct readings (N,); NaN where missing.
        """
        seen = self._scale * readings[self._source] + self._offset
        seen = np.clip(seen, -MAX_SEEN, MAX_SEEN).astype(F32)
        action = np.clip(self._policy.step_array(seen, self._ids), -1.0, 1.0)
        self._policy.previous_action = action
        if self._gain is None:
            self._draw_motor_mistakes(len(action))
            assert self._gain is not None
        reached: np.ndarray = np.clip(self._gain * action[self._motor_source], -1.0, 1.0)
        return reached.astype(F32)

    def set_previous_action(self, action: np.ndarray) -> None:
        """Do nothing: the policy does not know that the motors got another action than its own."""


class MissingChannelsDriver(PolicyDriver):
    """Policy that acts, with its monitor, in episodes in which some channels are missing.

    The set of missing channels changes now and then. The monitor estimates the missing readings.

    Args:
        model: The policy, with its monitor's networks.
        missing: Range of the share (0..1) of the channels that are missing.
        noise: Largest standard deviation of the noise on the actions. Half of the episodes have no
            noise; each other episode has a random standard deviation.
        rng: Source of all random numbers.
    """

    def __init__(
        self, model: Model, missing: Range, noise: float, rng: np.random.Generator
    ) -> None:
        super().__init__(model, "match")
        self._share, self._noise, self._rng = missing, noise, rng

    def start_episode(self, period_kinds: Sequence[str] = ()) -> None:
        """Reset the driver for a new episode.

        Args:
            period_kinds: Not used; `Explorer.start_episode` takes the same argument.
        """
        super().start_episode()
        self._sd = self._noise * self._rng.choice([0.0, self._rng.random()])
        self._draw_missing_channels()

    def _draw_missing_channels(self) -> None:
        """Draw at random which channels are missing from now on."""
        share = self._share.draw(self._rng)
        self._present = draw_present_mask(self._rng, len(self._ids), share, min_missing=1)

    def act(self, readings: np.ndarray) -> np.ndarray:
        """Return the action (A,) that the policy chooses while some channels are missing.

        In some episodes noise is added to the action. At some random steps, another random set of
        channels becomes missing first.

        Args:
            readings: The readings (N,) of all channels. The policy gets NaN for the missing
                channels.
        """
        if self._rng.random() < 0.003:
            self._draw_missing_channels()
        action = super().act(np.where(self._present, readings, np.nan))
        if self._sd:
            action = action + self._sd * self._rng.standard_normal(action.shape)
            action = np.clip(action, -1.0, 1.0).astype(F32)
            self._policy.previous_action = action
        return action


def record_episodes(
    env: gymnasium.Env[Any, Any],
    explorer: PolicyDriver,
    min_steps: int,
    rng: np.random.Generator,
    faults: Mapping[Fault, float] = NO_FAULTS,
    limit_s: float = math.inf,
    miswired: tuple[MiswiredDriver, float] | None = None,
) -> list[EpisodeTrace]:
    """Play and record whole episodes, from which the networks of a monitor learn.

    Recording ends after `min_steps` steps. It ends earlier at the time limit, but not before there
    is an episode of each kind in `EPISODES`. One of the networks, the identity classifier, needs an
    episode of more than `WINDOW` ticks. While there is none, recording continues, up to ten times
    `min_steps` steps.

    Readings are recorded as disturbed. A missing reading is replaced by the channel's newest one.

    Args:
        env: The environment.
        explorer: Chooses the actions.
        min_steps: Minimum number of steps to record.
        rng: Source of all random numbers.
        faults: Probability of each disturbance; an episode has at most one disturbance.
        limit_s: Limit of the processor time in seconds.
        miswired: A second driver, and the probability that it drives an episode instead of
            `explorer`; None for no second driver.

    Returns:
        The episodes that did not fail.

    Raises:
        BrokenEnvironmentError: Too many episodes failed.
    """
    steps, begun = 0, time.process_time()
    (channels,) = env.observation_space.shape or (0,)
    traces: list[EpisodeTrace] = []
    long, failures = False, FailureCounter()
    while steps < min_steps * (1 if long else PATIENCE) and (
        not long or len(traces) < len(EPISODES) or time.process_time() - begun < limit_s
    ):
        seed = int(rng.integers(*TRAINING_SEEDS))
        modes = EPISODES[len(traces) % len(EPISODES)]
        driver = explorer
        if miswired is not None and rng.random() < miswired[1]:
            driver, modes = miswired[0], MISWIRED
        driver.start_episode(modes)
        disturber = make_disturber(channels, draw_at_most_one_disturbance(faults, rng), rng)
        calm = modes == CALM and isinstance(explorer, Explorer)
        trace = failures.try_episode(play_and_record_episode, env, seed, driver, disturber, calm)
        if trace is not None:
            traces.append(trace)
            steps += len(trace.actions)
            long = long or len(trace.actions) > WINDOW
    return traces


def choose_segment_length_and_traces(
    traces: Sequence[EpisodeTrace], ticks: int
) -> tuple[int, list[EpisodeTrace]]:
    """Choose the length of the pieces to cut from episodes, and the episodes that are long enough.

    Args:
        traces: Recorded episodes.
        ticks: The wanted length of a piece in ticks.

    Returns:
        The length, and the episodes to cut. If there are episodes longer than `ticks`, the length
        is `ticks`, and these episodes are returned. Otherwise the length is the median length of
        the episodes, and those that are at least that long are returned.
    """
    if long := [trace for trace in traces if len(trace.actions) > ticks]:
        return ticks, long
    ticks = int(np.median([len(trace.actions) for trace in traces]))
    return ticks, [trace for trace in traces if len(trace.actions) >= ticks]


def play_and_record_episode(
    env: gymnasium.Env[Any, Any],
    seed: int,
    driver: PolicyDriver,
    disturber: Disturber | None,
    undisturbed: bool,
    max_steps: int | None = None,
) -> EpisodeTrace:
    """Play an episode to its end and return its readings and actions.

    Args:
        env: The environment.
        seed: Seed of the environment.
        driver: Chooses the actions.
        disturber: Object that disturbs all readings, also those after the last step; None for no
            disturbance.
        undisturbed: True if the driver always returns the policy's own actions. It does not change
            the episode, but sets the field `disturbed` of the result to False.
        max_steps: Maximum number of steps; None for the environment's own.

    Raises:
        BrokenEnvironmentError: The environment failed, as in `LiveEpisode`.
    """
    (channels,) = env.observation_space.shape or (0,)
    ids = make_placeholder_ids(channels)
    episode = LiveEpisode(env, seed, disturber, ids, max_steps)
    readings, actions, newest = [], [], NewestReadings()
    for tick in episode:
        readings.append(newest(tick.values))
        action = driver.act(tick.values)
        episode.send_action(action)
        assert episode.sent is not None
        actions.append(episode.sent)
        if episode.sent is not action:
            driver.set_previous_action(episode.sent)
    last = episode.observation
    if disturber is not None:
        last = disturber.disturb(last, ids)[0]
    readings.append(newest(last))
    return EpisodeTrace(np.array(readings), np.array(actions), not undisturbed)
