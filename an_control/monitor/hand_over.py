"""Hand-over, in which a permutation-invariant student acts until the channels' order is known.

A policy that needs its channels in order cannot act while the order is unknown, and a monitor finds
the order only on a robot that moves. So a second policy, the student, which takes its channels in
any order, acts first. Meanwhile the ordered policy computes the same ticks, so that its state is up
to date. Once its monitor has known the order for some ticks, the ordered policy takes over between
two ticks, until the next reset.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.monitor.settings import HAND_OVER
from an_control.policy.interface import MonitorReport, Policy, WrappingPolicy


class HandOverPolicy(WrappingPolicy):
    """A wrapper in which a second policy, the student, acts until the main policy can.

    The main policy needs its channels in a fixed order, the student takes them in any order. Once a
    monitor has found out which sensor is which, the main policy takes over for the rest of the
    episode.

    Args:
        policy: The main policy with its monitor, which detects rewired sensors.
        student: The policy that acts first; it has the same channels and actuators.

    Raises:
        ValueError: The student has other channels or actuators, or needs its channels in order.
    """

    policy: MonitoredPolicy

    def __init__(self, policy: MonitoredPolicy, student: Policy) -> None:
        super().__init__(policy)
        for key in ("channels", "actuators"):
            if getattr(student.model.task, key) != getattr(policy.model.task, key):
                raise ValueError(f"hand_over: the student's {key} are not those of the policy")
        if not student.permutation_invariant:
            raise ValueError("hand_over: the student needs its channels in order, too")
        self.student = student
        self.reset()

    def reset(self) -> None:
        """Start an episode, in which the student acts first."""
        self.policy.reset()
        self.student.reset()
        self._sure_ticks = 0
        self.handed_over = False
        """Whether the ordered policy has taken over from the student."""

    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Compute one tick and return the action (A,) of the policy that acts at present.

        This is first the student, and the main policy once it has taken over.

        Args:
            values: (N,) the readings.
            ids: (N,) the channel id of each reading.

        Raises:
            ValueError: The readings are not valid, as in `Policy.step_array`.
        """
        action = self.policy.step_array(values, ids)
        if self.handed_over:
            return action
        student_action = self.student.step_array(values, ids)
        self._sure_ticks = 0 if self.policy.monitor.is_assignment_lost else self._sure_ticks + 1
        if self._sure_ticks >= HAND_OVER.sure_ticks:
            self.handed_over = True
            return action
        self.policy.previous_action = student_action
        return student_action

    def ignore_next_readings_for_wiring(self) -> None:
        """Do not draw conclusions about the sensors' wiring from the next tick's readings.

        Call it if the command that was sent corresponds to no action in [-1, 1], because a monitor
        of rewired sensors then cannot predict these readings.
        """
        self.policy.ignore_next_readings_for_wiring()
        self.student.ignore_next_readings_for_wiring()

    @property
    def _acting_policy(self) -> Policy:
        """The policy whose actions are sent: the student, or the policy that has taken over."""
        return self.policy if self.handed_over else self.student

    def _set_previous_action(self, action: np.ndarray) -> None:
        """Take another action (A,) as the previous one, because the robot got it."""
        self.policy.previous_action = action
        self.student.previous_action = action

    @property
    def recovery_count(self) -> int:
        """The number of recoveries since the last reset, of student and main policy together.

        A recovery is a short series of random actions, which frees a robot that stands still.
        """
        return self.student.recovery_count + self.policy.recovery_count

    @property
    def monitor_report(self) -> MonitorReport:
        """The present findings of the main policy's monitor, which detects rewired sensors."""
        return self.policy.monitor_report
