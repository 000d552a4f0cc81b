"""Episodes of what a robot does around a rewiring, for networks that learn what happens next.

They are driven by the policy among stretches of noise, random actions and actions that the policy
takes when some of its channels are swapped; or by the monitored policy while channels are missing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import gymnasium
import numpy as np

from an_control.disturbance import TRAINING_SEEDS, Disturber, Range, draw_present
from an_control.learning.rollout.episode import LiveEpisode, NewestReadings
from an_control.learning.training_disturbances import Fault, disturber, draw, ids_of
from an_control.load import make_policy
from an_control.policy import Model
from an_control.policy.sizes import WINDOW
from an_control_sim.gym.failure import BrokenEnvironmentError, Failures

F32 = np.float32
NO_FAULTS: Mapping[Fault, float] = MappingProxyType({})
PATIENCE = 10
"""Times as many steps as asked for are played at most, where all episodes are short."""
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


class Trace(NamedTuple):
    """An episode of T steps: readings (T, N) and the actions (T, A) that followed them."""

    readings: np.ndarray
    actions: np.ndarray
    disturbed: bool


class Actor(Protocol):
    """Drives an episode."""

    def act(self, readings: np.ndarray) -> np.ndarray:
        """The action (A,) for readings (N,), NaN where one is missing."""

    def sent(self, action: np.ndarray) -> None:
        """The robot got this action (A,) instead."""


class Explorer:
    """Acts as the policy does, between stretches in which it is disturbed.

    The policy always sees what is; a second one sees some of its channels swapped, and acts in
    the stretches that are "crossed". `noise` is the largest sd of a noisy stretch.
    """

    def __init__(self, model: Model, noise: float, rng: np.random.Generator) -> None:
        self._policy, self._confused = make_policy(model, "off"), make_policy(model, "off")
        self._ids = self._policy.nominal_ids
        self._noise, self._rng = noise, rng

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
        self._sd = self._noise * rng.random()
        self._drift: np.ndarray | None = None
        count = len(self._ids)
        self._order = np.arange(count)
        few = int(rng.integers(2, min(9, count + 1))) if count > 1 else 1
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
        self._policy.previous_action = self._confused.previous_action = action
        return action

    def sent(self, action: np.ndarray) -> None:
        """The robot got this action (A,) instead."""
        self._policy.previous_action = self._confused.previous_action = action


class MissingChannels:
    """Acts as the monitored policy does while channels are missing, now and then others.

    A share `missing` of them is; `noise` is twice the largest sd of noise on the actions.
    """

    def __init__(
        self, model: Model, missing: Range, noise: float, rng: np.random.Generator
    ) -> None:
        self._policy = make_policy(model, "match")
        self._ids = self._policy.nominal_ids
        self._share, self._noise, self._rng = missing, noise, rng

    def start(self, modes: Sequence[str]) -> None:
        """Begin an episode."""
        self._policy.reset()
        self._sd = 0.5 * self._noise * self._rng.choice([0.0, self._rng.random()])
        self._lose()

    def _lose(self) -> None:
        share = self._share.draw(self._rng)
        self._present = draw_present(self._rng, len(self._ids), share, at_least=1)

    def act(self, readings: np.ndarray) -> np.ndarray:
        """The action (A,) for readings (N,)."""
        if self._rng.random() < 0.003:
            self._lose()
        action = self._policy.step_array(np.where(self._present, readings, np.nan), self._ids)
        if self._sd:
            action = action + self._sd * self._rng.standard_normal(action.shape)
            action = np.clip(action, -1.0, 1.0).astype(F32)
            self._policy.previous_action = action
        return action

    def sent(self, action: np.ndarray) -> None:
        """The robot got this action (A,) instead."""
        self._policy.previous_action = action


def explore(
    env: gymnasium.Env[Any, Any],
    explorer: Explorer | MissingChannels,
    min_steps: int,
    rng: np.random.Generator,
    faults: Mapping[Fault, float] = NO_FAULTS,
    limit_s: float = math.inf,
) -> list[Trace]:
    """Whole episodes until there are this many steps, or so much processor time is spent.

    At least one of each kind, and one that is longer than a stretch of the identity classifier,
    for which up to ten times as many steps are played.
    What is recorded is what is seen under the `faults`, the newest reading where one is missing.
    Episodes that fail are left out; BrokenEnvironmentError where too many do.
    """
    steps, begun = 0, time.process_time()
    (channels,) = env.observation_space.shape or (0,)
    traces: list[Trace] = []
    long, failures = False, Failures()
    while steps < min_steps * (1 if long else PATIENCE) and (
        not long or len(traces) < len(EPISODES) or time.process_time() - begun < limit_s
    ):
        seed, ids = int(rng.integers(*TRAINING_SEEDS)), ids_of(channels)
        modes = EPISODES[len(traces) % len(EPISODES)]
        explorer.start(modes)
        disturbed = disturber(channels, draw(faults, rng), rng)
        calm = modes == CALM and isinstance(explorer, Explorer)
        try:
            episode = LiveEpisode(env, seed, disturbed, ids)
            trace = play_trace(episode, explorer, disturbed, calm)
        except BrokenEnvironmentError as failure:
            failures.note(failure)
            continue
        failures.succeed()
        traces.append(trace)
        steps += len(trace.actions)
        long = long or len(trace.actions) > WINDOW
    return traces


def stretches(traces: Sequence[Trace], ticks: int) -> tuple[int, list[Trace]]:
    """Return how many ticks a stretch has, and the episodes that are longer.

    These are `ticks`, or where no episode is as long, as many as half of the episodes have.
    """
    if long := [trace for trace in traces if len(trace.actions) > ticks]:
        return ticks, long
    ticks = int(np.median([len(trace.actions) for trace in traces]))
    return ticks, [trace for trace in traces if len(trace.actions) >= ticks]


def play_trace(
    episode: LiveEpisode, actor: Actor, disturbed: Disturber | None, calm: bool
) -> Trace:
    """Play an episode to its end and return it with the newest reading where one is missing.

    BrokenEnvironmentError as of `LiveEpisode`.
    """
    readings, actions, newest = [], [], NewestReadings()
    for tick in episode:
        readings.append(newest(tick.values))
        action = actor.act(tick.values)
        episode.act(action)
        assert episode.sent is not None
        actions.append(episode.sent)
        if episode.sent is not action:
            actor.sent(episode.sent)
    last = episode.observation
    if disturbed is not None:
        last = disturbed.apply(last, ids_of(len(last)))[0]
    readings.append(newest(last))
    return Trace(np.array(readings), np.array(actions), not calm)
