"""The policy that knows nothing: the zero of every score that is compared between tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from an_control.policy import Policy


class RandomPolicy(Policy):
    """Acts uniformly at random in [-1, 1], from `seed`; of a Discrete space, any action."""

    engine = "numpy"
    nominal_ids: tuple[str, ...] = ()

    def __init__(self, actions: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.previous_action = np.zeros(actions, np.float32)
        """The last action; the next one does not depend on it."""

    def reset(self) -> None:
        """Its random numbers continue."""

    def step(self, readings: Mapping[str, Any]) -> np.ndarray:
        return self.step_array(np.empty(0), ())

    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        return self._rng.uniform(-1.0, 1.0, len(self.previous_action)).astype(np.float32)
