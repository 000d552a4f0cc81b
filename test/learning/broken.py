"""Environments that break, registered when this file is imported (module:id)."""

from __future__ import annotations

import os

import gymnasium
import numpy as np
from gymnasium import spaces


class Breaking(gymnasium.Env):
    """Ends after 5 steps; before that it may raise, or give NaN, or kill its process.

    `how` breaks: "raise", "nan", "sometimes" (in episodes whose seed is odd). With a `fuse` it
    breaks only once the file that AN_CONTROL_TEST_FUSE names is there.
    """

    shape = (3,)
    observation_space = spaces.Box(-1.0, 1.0, shape, np.float32)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, how: str = "raise", fuse: bool = False) -> None:
        self._how, self._fuse = how, os.environ.get("AN_CONTROL_TEST_FUSE") if fuse else None
        self._step, self._odd = 0, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._step, self._odd = 0, bool(seed is not None and seed % 2)
        return self._readings(), {}

    def step(self, action):
        self._step += 1
        observation, lit = self._readings(), True
        if self._fuse:
            lit = os.path.exists(self._fuse)
        if self._step == 3 and lit:
            if self._how == "raise" or (self._how == "sometimes" and self._odd):
                raise RuntimeError("the motor is on fire")
            if self._how == "nan":
                observation[1] = np.nan
        return observation, float(action[0]), self._step == 5, False, {}

    def _readings(self):
        return self.np_random.uniform(-1, 1, self.shape).astype(np.float32)


class Pictures(Breaking):
    observation_space = spaces.Sequence(spaces.Box(0, 255, (4, 4), np.uint8))


class Wide(Breaking):
    shape = (40,)
    observation_space = spaces.Box(-1.0, 1.0, shape, np.float32)


class Words(Breaking):
    action_space = spaces.Text(5)


for name, cls, arguments in (
    ("Raises", Breaking, {"how": "raise"}),
    ("Nan", Breaking, {"how": "nan"}),
    ("WideNan", Wide, {"how": "nan"}),
    ("Sometimes", Breaking, {"how": "sometimes"}),
    ("Later", Breaking, {"how": "raise", "fuse": True}),
    ("Pictures", Pictures, {}),
    ("Words", Words, {}),
):
    if f"an_control_test/{name}-v0" not in gymnasium.registry:
        gymnasium.register(f"an_control_test/{name}-v0", cls, kwargs=arguments)
