"""A cart on a line, in double precision; 2 channels, episodes of 40 steps (`cart_env:Cart-v0`)."""

from __future__ import annotations

import gymnasium
import numpy as np
from gymnasium import spaces


class Cart(gymnasium.Env):
    """Pushed towards the middle it gets the most reward."""

    observation_space = spaces.Box(-9.0, 9.0, (2,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._state, self._left = self.np_random.uniform(-1.0, 1.0, 2), 40
        return self._state.copy(), {}

    def step(self, action):
        place, speed = self._state
        speed = np.clip(speed + 0.1 * float(action[0]), -1.0, 1.0)
        self._state = np.array([np.clip(place + 0.1 * speed, -5.0, 5.0), speed])
        self._left -= 1
        return self._state.copy(), -abs(float(self._state[0])), False, self._left == 0, {}


if "Cart-v0" not in gymnasium.registry:
    gymnasium.register("Cart-v0", Cart)
