"""Hand over: a permutation-invariant student walks until the order of the channels is known.

A policy that needs its channels in order cannot act in an unknown order, and a monitor finds the
order only on a robot that moves. So the student acts at the start, in any order, and the policy
behind its monitor watches: with its states as if it had acted. Once the monitor is sure the policy
takes over between two ticks, until the next reset.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.monitor.settings import HAND_OVER, HandOverSettings
from an_control.policy.protocol import MonitorReport, Policy, WrappingPolicy


class HandOverPolicy(WrappingPolicy):
    """The same calls as the policy behind its monitor.

    Args:
        policy: acts as soon as its monitor is sure of the order.
        student: acts before; with the same actions, and channels in any order.
        settings: of the hand over.

    Raises:
        ValueError: the student has other channels or actuators, or needs its channels in order.
    """

    policy: MonitoredPolicy

    def __init__(
        self,
        policy: MonitoredPolicy,
        student: Policy,
        settings: HandOverSettings = HAND_OVER,
    ) -> None:
        super().__init__(policy)
        for key in ("channels", "actuators"):
            if getattr(student.model.task, key) != getattr(policy.model.task, key):
                raise ValueError(f"hand_over: the student's {key} are not those of the policy")
        if not student.permutation_invariant:
            raise ValueError("hand_over: the student needs its channels in order, too")
        self.student, self._settings = student, settings
        self.reset()

    def reset(self) -> None:
        """Start an episode, with the student."""
        self.policy.reset()
        self.student.reset()
        self._sure_ticks = 0
        self.handed_over = False
        """Whether the policy acts."""

    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Act on `values` (N,) of the channels `ids` (N,); raise as the policy does."""
        action = self.policy.step_array(values, ids)
        if self.handed_over:
            return action
        own = self.student.step_array(values, ids)
        self._sure_ticks = 0 if self.policy.monitor.lost else self._sure_ticks + 1
        if self._sure_ticks >= self._settings.sure_ticks:
            self.handed_over = True
            return action
        self.policy.previous_action = own
        return own

    def ignore_next_tick(self) -> None:
        """Let the next tick be no evidence of moves."""
        self.policy.ignore_next_tick()
        self.student.ignore_next_tick()

    @property
    def _acting(self) -> Policy:
        return self.policy if self.handed_over else self.student

    @property
    def previous_action(self) -> np.ndarray:
        """The previous action (A,) in [-1, 1]; set it where something else was sent."""
        return self.policy.previous_action

    @previous_action.setter
    def previous_action(self, action: np.ndarray) -> None:
        self.policy.previous_action = action
        self.student.previous_action = action

    @property
    def channel_order(self) -> tuple[str, ...]:
        """The ids of the last step's channels, of the policy that acts."""
        return self._acting.channel_order

    @property
    def attention(self) -> np.ndarray | None:
        """The student's attention (M, N) while it acts, then None."""
        return self._acting.attention

    @property
    def keys(self) -> np.ndarray | None:
        """The student's keys (N, k) while it acts, then None."""
        return self._acting.keys

    @property
    def recoveries(self) -> int:
        """How often the robot was pushed since the last reset."""
        return self.student.recoveries + self.policy.recoveries

    @property
    def monitor_report(self) -> MonitorReport:
        """What the monitor found by now."""
        return self.policy.monitor_report
