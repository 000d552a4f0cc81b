"""Odd environments, as their authors might have written them; registered when this is imported.

All are the cart of `Cart`: a position that is pushed towards the middle. Each differs in one thing
that an environment may do, and that learning must bear or refuse in one line. Name one as
``odd:Odd/NAME-v0``.
"""

from __future__ import annotations

import os
import signal
import sys
import warnings
from pathlib import Path

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 40
STOP_AT = 500
"""A step after those of the random actions by which units are measured."""


class Cart(gymnasium.Env):
    """Position and velocity of a cart; the action pushes it, the reward is for the middle."""

    observation_space = spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)
    scale, offset = 1.0, 0.0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.x, self.v, self.steps = self.np_random.uniform(-1.0, 1.0), 0.0, 0
        return self.observe(), {}

    def step(self, action):
        self.push(float(self.force(action)))
        return self.observe(), 1.0 - abs(self.x), abs(self.x) > 3.0, False, {}

    def push(self, force):
        self.steps += 1
        self.v = 0.9 * self.v + 0.2 * float(np.clip(force, -1.0, 1.0))
        self.x += 0.2 * self.v

    def force(self, action):
        assert self.action_space.contains(action), f"{action!r} is not in {self.action_space}"
        return action[0]

    def observe(self):
        return np.array([self.x, self.v]) * self.scale + self.offset


class Milli(Cart):
    scale = 6e-4


class Baro(Cart):
    scale, offset = 20.0, 101_325.0


class Counts(Cart):
    scale = 2e6


class BlindStart(Cart):
    """The reading of the velocity is not there before the first step, and now and then later."""

    def observe(self):
        seen = super().observe()
        if self.steps % 10 == 0:
            seen[1] = np.nan
        return seen


class Gaps(Cart):
    """One reading in a hundred is missing."""

    def observe(self):
        seen = super().observe()
        return np.where(self.np_random.random(2) < 0.01, np.nan, seen)


class Blind(Cart):
    """No reading ever is a number."""

    def observe(self):
        return np.full(2, np.nan)


class Short(Cart):
    """Its episodes end after 5 steps."""

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, self.steps == 5, False, info


class Flaky(Cart):
    """Raises now and then: at step 3 of every episode whose seed is divisible by 5."""

    def reset(self, *, seed=None, options=None):
        self.bad = seed is not None and seed % 5 == 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        if self.bad and self.steps == 2:
            raise RuntimeError("the gripper is stuck")
        return super().step(action)


class NanReward(Cart):
    def step(self, action):
        observation, reward, *over = super().step(action)
        return observation, np.nan if self.x > 0.9 else reward, *over


class SameArray(Cart):
    """Returns one array, which it writes over; writes into the action that it was given."""

    def __init__(self):
        self.array = np.zeros(2)

    def observe(self):
        self.array[:] = super().observe()
        return self.array

    def step(self, action):
        result = super().step(action)
        action[:] = 7.0
        return result


class One(Cart):
    observation_space = spaces.Box(-np.inf, np.inf, (1,), np.float64)

    def observe(self):
        return np.array([self.x + self.v])


class Wide(Cart):
    """Actions are float64 between bounds that float32 does not hold."""

    action_space = spaces.Box(-0.1, 0.3, (1,), np.float64)

    def force(self, action):
        return 5.0 * super().force(action) - 0.5


class Half(Cart):
    action_space = spaces.Box(0.0, np.inf, (1,), np.float32)

    def force(self, action):
        return super().force(action) - 1.0


class Whole(Cart):
    """Actions are whole numbers."""

    action_space = spaces.Box(-3, 3, (1,), np.int64)

    def force(self, action):
        return super().force(action) / 3.0


class Unbounded(Cart):
    action_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)


class NoActions(Cart):
    action_space = spaces.Box(-1.0, 1.0, (0,), np.float32)


class NoReadings(Cart):
    observation_space = spaces.Box(-1.0, 1.0, (0,), np.float32)

    def observe(self):
        return np.zeros(0, np.float32)


class Goal(Cart):
    """A goal environment: readings, what is reached, what is desired."""

    observation_space = spaces.Dict(
        {
            "observation": spaces.Box(-np.inf, np.inf, (2,), np.float64),
            "achieved_goal": spaces.Box(-np.inf, np.inf, (1,), np.float64),
            "desired_goal": spaces.Box(-np.inf, np.inf, (1,), np.float64),
        }
    )

    def observe(self):
        return {
            "observation": np.array([self.x, self.v]),
            "achieved_goal": np.array([self.x]),
            "desired_goal": np.zeros(1),
        }


class Signs(Cart):
    """Its reading is one of three choices, and a pair of bits; its actions are choices too."""

    observation_space = spaces.Tuple((spaces.Discrete(3, start=-1), spaces.MultiBinary(2)))
    action_space = spaces.MultiDiscrete([2, 3])

    def observe(self):
        return int(np.sign(self.x)), np.array([self.v > 0.0, self.v < 0.0], np.int8)

    def force(self, action):
        assert self.action_space.contains(action)
        return (action[0] - 0.5) * action[1]


class Bits(Signs):
    action_space = spaces.MultiBinary(2)

    def force(self, action):
        assert self.action_space.contains(action)
        return float(action[0]) - float(action[1])


class Loud(Cart):
    """Prints at every step, and warns."""

    def step(self, action):
        print("the wheel turns")
        print("and squeaks", file=sys.stderr)
        warnings.warn("the wheel is old", stacklevel=1)
        return super().step(action)


class BadInit(Cart):
    def __init__(self):
        raise OSError("no controller on the bus")


class BadReset(Cart):
    def reset(self, *, seed=None, options=None):
        raise OSError("no controller on the bus")


class Threads(Cart):
    """Sets torch's threads, as a library does that it uses."""

    def reset(self, *, seed=None, options=None):
        import torch

        torch.set_num_threads(3)
        return super().reset(seed=seed, options=options)


class Endless(Cart):
    """Never ends, and is registered without a time limit."""

    def step(self, action):
        observation, reward, _, _, info = super().step(action)
        return observation, reward, False, False, info


class Stopped(Endless):
    """Never ends; in its first long episode somebody stops the command (SIGTERM).

    ODD_STOP is the command's process and a file that is made by the first such episode.
    """

    def step(self, action):
        if self.steps == STOP_AT and (stop := os.environ.get("ODD_STOP")):
            pid, _, asked = stop.partition(":")
            if not Path(asked).exists():
                Path(asked).touch()
                os.kill(int(pid), signal.SIGTERM)
        return super().step(action)


def push(observation):
    """A teacher of all these carts: pushes one towards the middle."""
    return np.array([-2.0 * observation[0] - 3.0 * observation[1]])


LIMITLESS = (Endless, Stopped)
for cls in list(vars().values()):
    if isinstance(cls, type) and issubclass(cls, Cart):
        name = f"Odd/{cls.__name__}-v0"
        limit = None if cls in LIMITLESS else STEPS
        if name not in gymnasium.registry:
            gymnasium.register(name, cls, max_episode_steps=limit)
