"""Run a planned motion, tick by tick: read, limit, record. It needs no ROS and no clock.

Every command passes the same safety gate as a policy's. While sensors that the wiring requires are
missing the command is the safe one, and the actuator that was moving begins again afterwards. The
run stops for good if the e-stop is set, or if sensors are missing for long or often.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from an_control.commissioning.motion.plan import MotionPlan, MotionSettings, plan_motion
from an_control.control.command_safety import EStop, SafetyGate
from an_control.wiring import (
    ChannelConfig,
    ChannelTable,
    Readings,
    Wiring,
    compute_field_steps,
    compute_sendable_limits,
    make_command_messages,
)

MAX_REPEATS = 20
"""Number of times that the motion of an actuator may be interrupted by missing readings."""
MAX_LACK_S = 1.0
"""Seconds for which readings may be missing until the motion is stopped."""
WAIT_S = 5.0
"""Seconds to wait for the first readings before the motion."""


@dataclass(frozen=True)
class MotionRecording:
    """Readings and commands of a robot whose actuators were moved one at a time.

    Attributes:
        ids: Ids of the C channels.
        configs: The wiring's entry for each channel.
        readings: (T, C) readings after scale and offset, not clipped; NaN where missing.
        commands: (T, A) commands in physical units, each sent after the readings of the same tick.
        centre: (A,) the command around which the actuators moved.
        plan: The motion that was planned.
        rate_hz: Ticks per second.
        actuators: Names of the A actuators.
    """

    ids: tuple[str, ...]
    configs: tuple[ChannelConfig, ...]
    readings: np.ndarray
    commands: np.ndarray
    centre: np.ndarray
    plan: MotionPlan
    rate_hz: float
    actuators: tuple[str, ...]


class MotionRun:
    """One run of a test motion, which moves one actuator after another and records the readings.

    The caller stores the robot's messages in `table`. In each tick it calls `start_tick` and then
    `compute_command`, and sends that command, until `is_over`. At the end it sends the command of
    `make_final_safe_command`.

    Args:
        wiring: The robot's wiring.
        settings: The settings of the motion.

    Raises:
        WiringError: The wiring does not fit its message types.
    """

    def __init__(self, wiring: Wiring, settings: MotionSettings) -> None:
        self.wiring, self.settings = wiring, settings
        unclipped = tuple(replace(one, clip=None) for one in wiring.channels)
        self.table = ChannelTable(replace(wiring, channels=unclipped))
        self.messages = make_command_messages(wiring.command, wiring.file)
        self.step_s = 1.0 / wiring.rate_hz
        self.limits = compute_sendable_limits(wiring.command, self.messages)
        steps = compute_field_steps(self.messages)
        self.gate = SafetyGate(wiring.command, self.step_s, 0.0, self.limits, steps)
        self.estop = EStop()
        self.plan: MotionPlan | None = None
        """The plan; None until the first readings have come."""
        self.stopped = ""
        """Why the motion was stopped early; "" if it was not."""
        self.repeats = 0
        """Number of times that an actuator's motion was interrupted and begun again."""
        self._pauses = False
        self._number = self._waited = self._lacking = 0
        self._centre = np.empty(0)
        self._rows: list[dict[str, float]] = []
        self._commands: list[np.ndarray] = []

    @property
    def is_over(self) -> bool:
        """Whether the motion has ended or was stopped early."""
        return bool(self.stopped) or (self.plan is not None and self._number >= self.plan.ticks)

    def start_tick(self, now_ns: int, stamp_ns: int | None) -> None:
        """Read and record all channels, and react to missing readings.

        The motion is planned once all needed readings are there. If some are missing later, the
        present actuator's motion is repeated. If they are missing for over `MAX_LACK_S` seconds, or
        more often than `MAX_REPEATS` times, all motion is stopped.

        Args:
            now_ns: The present time, from which the age of readings is computed.
            stamp_ns: The time stamp that all readings of this tick have, if a simulator waits for
                each command (lockstep); else None.
        """
        readings, lacking = self._read_channels_and_explain_lack(now_ns, stamp_ns)
        if self.estop.reason:
            self.stop_early(self.estop.reason)
        elif self.plan is None:
            self._plan_or_wait(lacking)
        elif lacking:
            self._repeat_actuator_or_stop(lacking)
        self._pauses = bool(lacking)
        if self.plan is not None and not (self.is_over or lacking):
            self._rows.append(dict(zip(readings.ids, readings.values.tolist(), strict=True)))

    def plan_motion_if_readings_complete(self, now_ns: int) -> None:
        """Plan the motion if all readings that it needs have arrived; call this in each tick.

        If they have not arrived after `WAIT_S` seconds, the motion is stopped.

        Args:
            now_ns: The present time, from which the age of readings is computed.
        """
        self._plan_or_wait(self._read_channels_and_explain_lack(now_ns, None)[1])

    def forget_plan(self) -> None:
        """Discard the plan, so that the next one starts from newly measured positions."""
        self.plan = None
        self._waited = 0
        self.gate.forget_positions_and_restart_ramp()

    def compute_command(self, now_ns: int | None) -> np.ndarray:
        """Return the command (A,) to be sent in this tick, within all limits.

        It is the safe command while readings are missing, and before and after the motion.

        Args:
            now_ns: The time at which it is sent; None if it is sent exactly one control period
                after the previous command.
        """
        if self.plan is None or self.is_over or self._pauses or self.estop.reason:
            return self.gate.restart_ramp_and_get_safe_command()
        wanted = self._centre + self.plan.waves[self._number]
        self._number += 1
        sent = self.gate(wanted, now_ns)
        self._commands.append(sent)
        return sent

    def stop_early(self, reason: str) -> None:
        """Stop the motion for good; from now on all commands are the safe command.

        Args:
            reason: Why the motion is stopped, for the user.
        """
        self.stopped = self.stopped or reason

    def make_final_safe_command(self) -> np.ndarray:
        """Return the safe command (A,), which the caller must send as the last command."""
        return self.gate.restart_ramp_and_get_safe_command()

    def make_recording(self) -> MotionRecording:
        """Return the readings and commands of the motion so far, which must have started."""
        assert self.plan is not None
        configs = self.table.configs
        ids = tuple(dict.fromkeys(id_ for row in self._rows for id_ in row))
        count = min(len(self._rows), len(self._commands))
        readings = np.array([[row.get(id_, np.nan) for id_ in ids] for row in self._rows[:count]])
        return MotionRecording(
            ids, tuple(configs[id_] for id_ in ids), readings.reshape(count, len(ids)),
            np.array(self._commands[:count]).reshape(count, -1), self._centre, self.plan,
            self.wiring.rate_hz, self.wiring.command.names,
        )  # fmt: skip

    def _read_channels_and_explain_lack(
        self, now_ns: int, stamp_ns: int | None
    ) -> tuple[Readings, str]:
        """Read all channels, and check whether readings that the motion needs are missing.

        The text is "" if none is missing.
        """
        readings = self.table.read(now_ns, stamp_ns)
        if (measured := self.table.measured) is not None:
            fresh = np.where(measured.is_old, np.nan, measured.values)
            self.gate.safe_command.record_measured_positions(fresh)
        enough = readings.has_min_present_share(self.wiring.min_present_share)
        return readings, self._explain_missing_readings(enough)

    def _explain_missing_readings(self, enough_channels: bool) -> str:
        """Return as text which readings that the motion needs are missing, "" if none."""
        if missing := self.table.list_missing_sources():
            return f"required source {missing[0]!r} is missing"
        if not self.gate.safe_command.has_all_needed_positions:
            return "no new positions of the actuators have been measured"
        if not enough_channels:
            return (
                "too few channels are present (min_present_share:"
                f" {self.wiring.min_present_share:g})"
            )
        return ""

    def _repeat_actuator_or_stop(self, lacking: str) -> None:
        """Let the motion of the present actuator begin again, because readings are missing.

        If readings are missing for too long or too often, the motion is stopped instead.
        """
        assert self.plan is not None
        self._lacking = self._lacking + 1 if self._pauses else 1
        self.repeats += not self._pauses
        if self.repeats > MAX_REPEATS or self._lacking * self.step_s > MAX_LACK_S:
            self.stop_early(lacking)
        ends = [0, *(end for begin, end in self.plan.spans if begin < end)]
        self._number = max(end for end in ends if end <= self._number)
        del self._rows[self._number :], self._commands[self._number :]

    def _plan_or_wait(self, lacking: str) -> None:
        """Plan the motion if no reading is missing; stop it if some are missing for too long."""
        self._waited += 1
        if not lacking:
            self.table.stop_expecting_absent_channels()
            self._centre = self.gate.safe_command().copy()
            self.plan = plan_motion(
                self.wiring.command, self.wiring.rate_hz, self._centre, self.limits, self.settings
            )
        elif self._waited * self.step_s > WAIT_S:
            self.stop_early(f"the motion did not begin: {lacking}")
