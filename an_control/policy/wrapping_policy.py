"""A policy around another one: what it does not do itself, that one does."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from an_control.policy.protocol import ChannelState, Policy


class WrappingPolicy(Policy):
    """The same calls as `policy`, which acts on numbers."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.model, self.engine, self.nominal_ids = policy.model, policy.engine, policy.nominal_ids
        self.permutation_invariant = policy.permutation_invariant

    def reset(self) -> None:
        """Start an episode: nothing is kept of the last one."""
        self.policy.reset()

    def step(self, readings: Mapping[str, float]) -> np.ndarray:
        """One tick on ``{channel id: value}``; returns the action (A,) float32 in [-1, 1]."""
        values = np.fromiter(readings.values(), np.float64, len(readings))
        return self.step_array(values, tuple(readings))

    @abstractmethod
    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """One tick on `values` (N,) of the channels `ids` (N,); errors as the policy's."""

    def prepare(self) -> None:
        """Work ahead for the next tick, see `Policy`."""
        self.policy.prepare()

    def ignore_next_tick(self) -> None:
        """See `Policy`."""
        self.policy.ignore_next_tick()

    @property
    def previous_action(self) -> np.ndarray:
        """The previous action (A,) in [-1, 1]; set it where something else was sent."""
        return self.policy.previous_action

    @previous_action.setter
    def previous_action(self, action: np.ndarray) -> None:
        self.policy.previous_action = action

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The ids of the last step's channels; those of signals where a monitor matches them."""
        return self.policy.channel_order

    @property
    def attention(self) -> np.ndarray | None:
        """The policy's attention (M, N), columns in `channel_order`; None where it has none."""
        return self.policy.attention

    @property
    def keys(self) -> np.ndarray | None:
        """The policy's keys (N, k), rows in `channel_order`; None where it has none."""
        return self.policy.keys

    @property
    def channel_state(self) -> ChannelState | None:
        """The policy's own."""
        return self.policy.channel_state

    @property
    def recoveries(self) -> int:
        """How often the robot stood still and was pushed since the last reset."""
        return self.policy.recoveries
