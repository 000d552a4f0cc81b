"""Keeps the last ticks (control steps), and says when their readings have become improbable."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from an_control.control.recent_ticks import RecentTicks
from an_control.policy.interface import MonitorReport, Policy
from an_control.wiring import ChannelTable, Readings

DOUBT_NATS = 0.35
"""Excess NLL in nats a tick and channel from which on the readings count as improbable, as for the
doctor (`DoctorSettings.misfit`)."""
CHECK_S = 0.1
"""Time between two looks at the monitor's report. Ticks are recorded all the time."""
DOUBT_S, LEAST_DOUBT_TICKS = 0.5, 20
"""Time, and ticks at least, for which readings must be improbable before the doctor is asked."""


class ReadingsWatch:
    """A recorder of ticks that says when the readings have become improbable.

    The policy's monitor, which predicts the next readings, judges them. They are improbable if the
    running mean of their negative log-likelihood is more than 0.35 nats a tick and channel above
    its usual value, if the monitor is lost, if it subtracts offsets from the readings, or if the
    robot does not fit the model. They do not count as improbable while the monitor reports moved
    signals, or the policy does not act yet.

    Args:
        table: The channel table whose readings are recorded.
        policy: The policy whose monitor judges the readings. It must have a monitor.
        actuators: The number of the robot's actuators.
        step_s: The control period in seconds.
    """

    def __init__(self, table: ChannelTable, policy: Policy, actuators: int, step_s: float) -> None:
        channels = policy.model.task.channels
        self._table, self._policy = table, policy
        self.ticks = RecentTicks(channels, actuators, step_s)
        """The recorded ticks."""
        self._doubt_nats = DOUBT_NATS * len(channels)
        self._check_ticks = max(1, round(CHECK_S / step_s))
        self._unchecked = 0
        """Number of ticks that were recorded since the last look at the monitor's report."""
        needed_ticks = max(LEAST_DOUBT_TICKS, round(DOUBT_S / step_s))
        self._needed_doubts = -(-needed_ticks // self._check_ticks)
        self._doubts = 0
        """Number of looks in a row at which the readings were improbable."""
        self._moved: Mapping[str, str] = {}

    @property
    def are_readings_improbable(self) -> bool:
        """Whether the readings were improbable (see the class) at the newest check.

        It is False before the first check. `check_readings_probability_if_due` makes the checks.
        """
        return self._doubts > 0

    @property
    def have_readings_long_been_improbable(self) -> bool:
        """Whether the readings were improbable at all checks in a row for long enough.

        This is for 0.5 s or 20 ticks, whichever is longer.
        """
        return self._doubts >= self._needed_doubts

    def record_tick(
        self, readings: Readings, previous_command: np.ndarray | None, time_ns: int
    ) -> None:
        """Record the readings of a tick in which the policy made a step.

        The arguments are those of `RecentTicks.record_tick`.
        """
        self._unchecked += 1
        self.ticks.record_tick(self._table, readings, previous_command, time_ns)

    def check_readings_probability_if_due(self) -> bool:
        """Check how probable the readings are, once for every 0.1 s of recorded ticks.

        Returns:
            Whether this call has checked them, and so updated the properties of this object.
        """
        if self._unchecked < self._check_ticks:
            return False
        self._unchecked = 0
        report = self._policy.monitor_report
        if report is None:
            return False
        if report.moved is not self._moved:
            if report.moved != self._moved:  # what came before has another order
                self.ticks.clear()
            self._moved = report.moved
        self._doubts = self._doubts + 1 if self._is_improbable(report) else 0
        return True

    def _is_improbable(self, report: MonitorReport) -> bool:
        """Return whether the readings are improbable and no move of signals explains that."""
        if report.moved or report.waiting:
            return False
        improbable = report.excess_nll > self._doubt_nats or report.lost
        return improbable or bool(report.misfit or report.offsets)
