"""A policy that first plays small motions, from which it finds the order of its channels.

While the motions are played, the policy that needs its channels in order does not compute. Once the
order is certain, it acts behind its monitor, which starts with this order. The order stays known
over resets, because a reset rewires nothing. It is found again if the monitor has lost it, or when
the model is loaded again.

If another action was sent than the motion's, as under a ramp or an e-stop, the motion starts again
from its beginning: only the recorded motion can be compared.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from an_control.monitor.excitation import ChannelOrderFinder, Excitation
from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.monitor.settings import EXCITATION
from an_control.policy.interface import MonitorReport, WrappingPolicy, check_and_convert_readings

F32 = np.float32
SAME_ACTION = 1e-3
"""The largest difference between the motion's action and the one sent, by rounding in messages."""
STEP_TOLERANCE = 0.01
"""Share by which the policy's period may differ from the recorded one."""


class ExcitingPolicy(WrappingPolicy):
    """A wrapper that first moves the robot a little to find out which sensor is which.

    Once this is known, the wrapped policy acts. It is for policies that need their channels in a
    fixed order, on robots whose sensors may arrive in another order.

    Args:
        policy: The wrapped policy with its monitor, which detects rewired sensors.
        excitation: The motion, and recordings of what the sensors read during it.

    Raises:
        ValueError: The excitation was recorded with other channels, actuators or another period.
    """

    policy: MonitoredPolicy

    def __init__(self, policy: MonitoredPolicy, excitation: Excitation) -> None:
        super().__init__(policy)
        task = policy.model.task
        again = "record it again (an-control record-excitation)"
        if excitation.channels != policy.nominal_ids:
            raise ValueError(f"excitation: its channels are not those of the policy; {again}")
        if excitation.motion.shape[1] != policy.model.sizes.actions or (
            task.actuators and excitation.actuators and excitation.actuators != task.actuators
        ):
            raise ValueError(f"excitation: its actuators are not those of the policy; {again}")
        if task.step_s and abs(excitation.step_s / task.step_s - 1.0) > STEP_TOLERANCE:
            raise ValueError(
                f"excitation: recorded at {excitation.step_s:g} s a tick, but the policy has"
                f" {task.step_s:g} s; {again}"
            )
        policy.step_array(np.zeros(len(policy.nominal_ids)), policy.nominal_ids)  # compiles it
        self._motion = excitation.motion
        self._matcher = ChannelOrderFinder(excitation)
        self._ticks = 0
        """The number of ticks in which the policy acted, in this episode."""
        self.order_known = False
        """Whether the order of the channels was found, so that the policy acts."""
        self.reset()

    def reset(self) -> None:
        """Start an episode.

        If the order of the channels was found in an earlier episode and is not lost, the policy
        acts at once. Otherwise the motion is played first.
        """
        self._tries, self._problem = 0, ""
        self._interruptions = 0
        self._restart_motion()
        monitor = self.policy.monitor
        lost = monitor.is_assignment_lost and self._ticks > EXCITATION.lost_ticks
        if self.order_known and not lost:
            self.policy.start_episode_with_assumed_slots(monitor.slot_by_channel)
        else:
            self.order_known = False
            self.policy.reset()
        self._ticks = 0

    def _restart_motion(self) -> None:
        """Start the motion from its beginning, and remove the readings of its last run."""
        self._readings: list[np.ndarray] = []
        self._wanted = np.zeros(self._motion.shape[1], F32)
        self._sent = self._wanted

    def step_array(self, values: np.ndarray, ids: Sequence[str]) -> np.ndarray:
        """Return the action (A,) for one tick.

        Once the order of the channels is known, it is the policy's action. Before that it is the
        action of the exciting motion, or zero if too many runs of the motion have failed to find
        the order.

        Args:
            values: (N,) the readings.
            ids: (N,) the channel id of each reading.

        Raises:
            ValueError: The readings are not valid, as in `Policy.step_array`.
        """
        if self.order_known:
            self._ticks += 1
            return self.policy.step_array(values, ids)
        readings = self.policy.arrange_by_slot(check_and_convert_readings(values, len(ids)), ids)
        if np.abs(self._sent - self._wanted).max() > SAME_ACTION:
            self._interruptions += bool(self._wanted.any())
            self._restart_motion()
        self._readings.append(readings)
        if len(self._readings) > len(self._motion):
            self._start_policy_if_order_is_found()
            if self.order_known:
                self.policy.previous_action = self._sent
                return self.policy.step_array(values, ids)
        if self._tries < EXCITATION.tries:
            self._wanted = self._sent = self._motion[len(self._readings) - 1]
        else:
            self._readings.clear()
            self._wanted = self._sent = np.zeros_like(self._motion[0])
        return self._wanted.copy()

    def _start_policy_if_order_is_found(self) -> None:
        """Search for the order of the channels by the stored readings of a whole motion.

        If the found order is certain, the policy starts with it; if not, the motion starts again.
        """
        found = self._matcher.find_channel_order(np.array(self._readings))
        self._problem = found.problem
        self._tries += 1
        if not found.problem:
            self.order_known = True
            self.policy.start_episode_with_assumed_slots(found.slots)
            return
        last = self._readings[-1]
        self._restart_motion()
        self._readings.append(last)

    def ignore_next_readings_for_wiring(self) -> None:
        """Do not draw conclusions about the wiring from the next tick's readings.

        Call it if the command that was sent corresponds to no action in [-1, 1]. If the motion is
        still being played, it starts again from its beginning.
        """
        if self.order_known:
            self.policy.ignore_next_readings_for_wiring()
        else:
            self._sent = np.full_like(self._wanted, 2.0)

    def prepare_next_tick(self) -> None:
        """Compute in advance what the next tick needs besides its readings.

        Call it after the command was sent, to save time when the readings arrive.
        """
        if self.order_known:
            self.policy.prepare_next_tick()

    def _get_previous_action(self) -> np.ndarray:
        """Return the previous action (A,)."""
        return self.policy.previous_action if self.order_known else self._sent.copy()

    def _set_previous_action(self, action: np.ndarray) -> None:
        """Take another action (A,) as the previous one, because the robot got it."""
        if self.order_known:
            self.policy.previous_action = action
        elif np.abs(self._sent).max(initial=0.0) <= 1.0:  # else that tick does not count anyway
            self._sent = np.array(action, F32)

    @property
    def monitor_report(self) -> MonitorReport:
        """The present findings of the monitor, and the reason why the policy does not act yet."""
        report = self.policy.monitor_report
        return (
            report if self.order_known else report._replace(lost=True, waiting=self._waiting_reason)
        )

    @property
    def _waiting_reason(self) -> str:
        """The reason why the policy does not act yet, as a text for the user."""
        if self._tries >= EXCITATION.tries:
            return (
                f"the order of the channels was not found by {self._tries} excitations, so the"
                f" policy does not act: {self._problem}; reset the policy to try again"
            )
        if self._problem:
            return f"the excitation is played again, as the order is not certain: {self._problem}"
        if self._interruptions > EXCITATION.interruptions:
            return (
                "the excitation is played from its start again and again, as other commands were"
                " sent than its own: the wiring's limits or max_rate may be too narrow for it"
            )
        return "the excitation is played, to find the order of the channels"
