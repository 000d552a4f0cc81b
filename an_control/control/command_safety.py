"""Everything between the policy and the robot: the safety gate, the e-stop and the watchdog.

Every command of the policy passes the safety gate. The gate keeps each value finite, within its
actuator's limits, and within that actuator's largest change from the previous command, whichever
node sent that. After every safe command the gate can also blend gradually from the safe command to
the policy's commands (a ramp). The safe command itself is sent at once, however far it is from the
previous command. The e-stop (emergency stop) stays set until it is reset. The watchdog has a thread
of its own, uses the steady clock, and sends the safe command while nothing else sends commands.
Commands are in the physical units of the wiring, the robot's configuration file.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from an_control.wiring import CommandConfig

Values = NDArray[np.float64]
Limits = tuple[Values, Values]
"""A pair: the lowest values (A,) and the highest values (A,) that the A actuators may get."""


@dataclass
class SafetyGateCounts:
    """Counters of the commands that the safety gate changed, by reason.

    Attributes:
        not_finite: Commands with NaN or infinity, replaced by the safe command.
        limited: Commands beyond an actuator's limits.
        rate_limited: Commands that changed faster than an actuator's largest rate of change.
        ramped: Commands that were blended with the safe command by the ramp.
    """

    not_finite: int = 0
    limited: int = 0
    rate_limited: int = 0
    ramped: int = 0


class LastCommand:
    """A record of the newest command (A,) on the robot's topics, whichever node sent it.

    The safety gate limits how far the next command may differ from this command, and the policy
    gets it as its previous action. All methods may be called from any thread.
    """

    def __init__(self) -> None:
        self._known: tuple[Values, int, int, bool] | None = None
        self.count = 0
        """The number of commands that were recorded."""

    @property
    def values(self) -> Values | None:
        """The newest command (A,) on the robot's topics, which must not be modified.

        It is None if no command was recorded yet, or since `forget_command` was called.
        """
        return self.values_and_sequence_number[0]

    @property
    def values_and_sequence_number(self) -> tuple[Values | None, int]:
        """A pair: the newest command (A,) on the robot's topics, and its number.

        Recorded commands are numbered from 1. The pair is (None, -1) if no command was recorded
        yet, or since `forget_command` was called. The array must not be modified.
        """
        known = self._known
        return (None, -1) if known is None else (known[0], known[2])

    def record(self, values: Values, now_ns: int, *, is_own: bool = True) -> None:
        """Record a command (A,) that was sent at `now_ns`; ignore a command that is not finite.

        Args:
            values: The command (A,).
            now_ns: The time of sending in ns.
            is_own: Whether this node sent it.
        """
        if np.isfinite(values).all():
            self.count += 1
            self._known = values, now_ns, self.count, is_own

    def forget_command(self) -> None:
        """Forget the newest command, because it belongs to an episode that has ended."""
        self._known = None

    def forget_command_if_own(self) -> None:
        """Forget the newest command if this node sent it, as the robot may have moved since."""
        if (known := self._known) is not None and known[3]:
            self._known = None

    def compute_age_ns(self, now_ns: int) -> int | None:
        """Return the age of the newest command in ns, or None if no command is stored.

        The age is negative if the clock has been set back since that command.
        """
        known = self._known
        return None if known is None else now_ns - known[1]


class SafeCommand:
    """The command that does no harm: for each actuator a fixed value or its measured position.

    An actuator whose safe value is "hold" keeps the position that was measured when the safe
    command was first asked for, until `forget_held_positions` is called. All methods may be called
    from any thread.

    Args:
        command: The command section of the wiring, with the safe value of each actuator.
        limits: The lowest and the highest values (A,) of the actuators; None: the limits in the
            wiring.
    """

    def __init__(self, command: CommandConfig, limits: Limits | None = None) -> None:
        self._low, self._high = limits or get_command_limits(command)
        self._fixed = np.clip(command.make_safe_command(), self._low, self._high)
        self._holds = np.isnan(self._fixed)
        self._moves = bool(self._holds.any())
        self._measured = np.full(len(self._fixed), np.nan)
        self._held: Values | None = None

    def record_measured_positions(self, positions: Values) -> None:
        """Record the newest measured positions (A,); NaN for actuators that were never measured."""
        self._measured = positions

    @property
    def has_all_needed_positions(self) -> bool:
        """Whether the safe command is known: all positions that it has to hold were measured."""
        return bool(np.isfinite(self()).all())

    def __call__(self) -> Values:
        """Return the safe command (A,), which must not be modified.

        It has NaN for an actuator that has to hold its position while that position has not been
        measured.
        """
        held = self._held
        if held is None:
            within = np.clip(self._measured, self._low, self._high)
            held = np.where(self._holds, within, self._fixed)
            if np.isfinite(held).all():
                self._held = held
        return held

    def forget_held_positions(self, *, also_measured: bool = False) -> None:
        """Forget the held positions, so that the next safe command holds the newest measured ones.

        Args:
            also_measured: Whether to forget the measured positions too. Then the safe command is
                unknown until `record_measured_positions` is called.
        """
        if self._moves:
            self._held = None
            if also_measured:
                self._measured = np.full(len(self._fixed), np.nan)


class SafetyGate:
    """A filter that keeps commands (A,) within the actuators' limits and rates of change.

    Call the object with each wanted command; it returns the command to send. A change is measured
    from the newest command on the robot's topics (attribute `last`), whichever node sent it, or
    from the gate's previous result if that command is unknown. A wanted command with NaN or
    infinity is replaced by the safe command.

    Args:
        command: The command section of the wiring, with the limits, the largest rates of change and
            the safe values of the actuators.
        step_s: Seconds between two commands.
        ramp_s: Seconds of the ramp, a gradual change from the safe command or the start pose to the
            policy's commands. It begins whenever the gate restarts. 0: no ramp.
        limits: Narrower limits than the wiring's, for messages that cannot represent the wiring's
            limits exactly (see `compute_sendable_limits`).
        field_steps: (A,) distances between the values that the message fields can hold (see
            `compute_field_steps`); None if they are floating-point numbers.
    """

    def __init__(
        self,
        command: CommandConfig,
        step_s: float,
        ramp_s: float = 0.0,
        limits: Limits | None = None,
        field_steps: Values | None = None,
    ) -> None:
        self._low, self._high = limits or get_command_limits(command)
        self._rounding = (
            0.5 * field_steps if field_steps is not None and field_steps.any() else None
        )
        """By how much each actuator's field may round a command (A,); None if no field rounds."""
        rate = np.array([actuator.max_rate for actuator in command.actuators])
        self._rated = rate > 0
        self._any_rated = bool(self._rated.any())
        self._change = rate * step_s
        """The largest change (A,) of each actuator in one control period."""
        self._step_s = step_s
        self.set_ramp_duration_s(ramp_s)
        self.last = LastCommand()
        self.safe_command = SafeCommand(command, (self._low, self._high))
        self.counts = SafetyGateCounts()
        self.restart_ramp_from_safe_command()

    def set_ramp_duration_s(self, ramp_s: float) -> None:
        """Set the duration of the ramp from the safe command to the policy's commands, in seconds.

        The new duration applies from the next safe command on.
        """
        self._next_ramp_periods = max(0, round(ramp_s / self._step_s))

    def restart_ramp_from_safe_command(self) -> None:
        """Restart the ramp, the gradual change from the safe command to the policy's commands."""
        self._given = self.safe_command()
        self._ramped_periods, self._ramp_periods = 0.0, self._next_ramp_periods
        self._ramp_start: Values | None = None
        """The command (A,) from which the ramp starts; None: the safe command of the first tick."""
        self.authority = 0.0
        """The policy's share (0..1) in the previous command; the rest is the ramp's start."""

    def use_positions_as_previous_command(self, positions: Values) -> None:
        """Use measured positions (A,) as the previous command while the newest one is unknown.

        Args:
            positions: The positions. For an actuator with NaN, the safe command is used instead.
        """
        self._given = np.where(np.isfinite(positions), positions, self.safe_command())

    def forget_positions_and_restart_ramp(self) -> None:
        """Forget the measured positions, and restart the ramp from the safe command.

        Call this at activation, because positions that were measured before may be old.
        """
        self.safe_command.forget_held_positions(also_measured=True)
        self.restart_ramp_from_safe_command()

    def restart_ramp_and_get_safe_command(self) -> Values:
        """Return the safe command (A,), and restart the ramp from it to the policy's commands."""
        self.restart_ramp_from_safe_command()
        return self._given.copy()

    def compute_control_periods_since_command(self, now_ns: int | None) -> float:
        """Return the time since the previous command in control periods, at most 1.

        Args:
            now_ns: The time now in ns. None means that one period has passed, as between two steps
                of a simulator that waits for each command.

        Returns:
            The number of periods; 1 if the time of the previous command is unknown.
        """
        age_ns = None if now_ns is None else self.last.compute_age_ns(now_ns)
        return 1.0 if age_ns is None else min(max(age_ns / 1e9 / self._step_s, 0.0), 1.0)

    def __call__(
        self, command: Values, now_ns: int | None = None, *, ramped: bool = True
    ) -> Values:
        """Return the wanted command (A,), ramped and kept within all limits, in a new array.

        Args:
            command: The wanted command (A,); if it is not finite, the safe command is returned.
            now_ns: The time now in ns. An actuator may change by its largest rate times the time
                since the previous command, but at most by one period's change. None: one period has
                passed.
            ramped: Whether to blend the command with the ramp's start as long as the ramp lasts,
                which begins at each restart of the gate. The ramp does not begin before the first
                command that is ramped.
        """
        allowed = np.minimum(np.maximum(command, self._low), self._high)
        if not (allowed == command).all():
            if not np.isfinite(command).all():
                self.counts.not_finite += 1
                return self.restart_ramp_and_get_safe_command()
            self.counts.limited += 1
        periods = self.compute_control_periods_since_command(now_ns)
        if ramped:
            self._ramped_periods = min(self._ramped_periods + periods, self._ramp_periods)
        self.authority = 1.0
        if ramped and self._ramped_periods < self._ramp_periods:
            self.authority = self._ramped_periods / self._ramp_periods
            if self._ramp_start is None:
                self._ramp_start = self.safe_command()
            mixed = self.authority * allowed + (1.0 - self.authority) * self._ramp_start
            allowed = np.clip(mixed, self._low, self._high)
            self.counts.ramped += 1
        self.safe_command.forget_held_positions()
        if self._any_rated:
            slowed = self._limit_rate_of_change(allowed, periods)
            if (slowed != allowed).any():
                self.counts.rate_limited += 1
            allowed = slowed
        self._given = allowed
        if not ramped:
            self._ramp_start = allowed
        return allowed.copy()

    def _limit_rate_of_change(self, allowed: Values, periods: float) -> Values:
        """Return the wanted command (A,), moved towards the previous one where it changes too fast.

        The result is within the actuators' limits, because it lies between two commands that are.

        Args:
            allowed: The wanted command (A,), which is within the actuators' limits.
            periods: The time since the previous command, in control periods; an actuator may change
                by its largest rate times this time.
        """
        last = self.last.values
        if last is None:
            known = np.isfinite(self._given)  # at first a position to hold may be unknown
            last = self._given if known.all() else np.where(known, self._given, self.safe_command())
        if self._rounding is not None:
            # A whole number counts as before rounding; else small changes would add up to none.
            rounded = (self._rounding > 0.0) & (np.abs(last - self._given) <= self._rounding)
            last = np.where(rounded, self._given, last)
        last = np.minimum(np.maximum(last, self._low), self._high)
        change = self._change * periods
        slowed: Values = np.clip(allowed, last - change, last + change)
        return np.where(self._rated, slowed, allowed)


def get_command_limits(command: CommandConfig) -> Limits:
    """Return a pair: the lowest and the highest values (A,) that the actuators may get."""
    low, high = np.array([actuator.limits for actuator in command.actuators]).T
    return low.copy(), high.copy()


class EStop:
    """An emergency stop: once set it stays set until `reset` is called."""

    def __init__(self) -> None:
        self.reason = ""
        """The reason for which the e-stop was set; "" if it is not set."""

    def latch(self, reason: str) -> bool:
        """Set the e-stop, unless it is set already. Return whether this call has set it.

        Args:
            reason: The reason why it is set, for the log and the diagnostics.
        """
        clear = not self.reason
        self.reason = self.reason or reason
        return clear

    def reset(self) -> bool:
        """Clear the e-stop. Return whether it was set before."""
        latched, self.reason = bool(self.reason), ""
        return latched


class Watchdog:
    """A thread that sends the safe command while no other command is sent.

    The watchdog trips (starts to act) once the newest command is `timeout_s` old. It then sends the
    safe command every `period_s` until `record_command` is called. It also sends the safe command
    while the e-stop (emergency stop) is set, and if no first command comes after `start`; neither
    counts as a trip.

    Args:
        send_safe: Sends the safe command and returns whether that was possible. It is impossible
            while a position that the command has to hold has not been measured. Called on the
            watchdog's thread.
        period_s: Seconds between two safe commands.
        timeout_s: The age in seconds of the newest command at which the watchdog trips; 0: it never
            trips and acts for the e-stop only.
        estop: The e-stop.
        on_trip: Called on the watchdog's thread after the first safe command of each trip; its
            argument says whether the command could be sent.
        on_start: Called on the watchdog's thread whenever that thread starts.
    """

    def __init__(
        self,
        send_safe: Callable[[], bool],
        period_s: float,
        timeout_s: float,
        estop: EStop,
        on_trip: Callable[[bool], None] = lambda sent: None,
        on_start: Callable[[], object] = lambda: None,
    ) -> None:
        self._send_safe, self._on_trip, self._on_start = send_safe, on_trip, on_start
        self._period_s, self.timeout_s, self._estop = period_s, timeout_s, estop
        self._last_s = self._fed_s = 0.0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self.begun = True
        """Whether a command has been sent since the watchdog was started."""
        self.tripped = False
        self.trips = 0
        self.longest_s = 0.0
        """The longest time in seconds between two commands that exceeded `timeout_s`, whether or
        not the watchdog tripped; 0 if none did."""
        self.sent = 0
        """The number of safe commands that the watchdog has sent."""

    def start(self) -> None:
        """Start the thread that sends the safe command if no other command is sent."""
        self._last_s = self._fed_s = time.monotonic()
        self.begun = self.tripped = False
        self._end.clear()
        self._thread = threading.Thread(
            target=self._send_safe_when_due_until_stopped, name="watchdog", daemon=True
        )
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread. It sends no safe command once this method has returned."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.tripped = False

    def record_command(self, now_s: float) -> None:
        """Record that another part of the node sent a command, so that the watchdog need not act.

        Args:
            now_s: The time of sending in seconds, by the steady clock.
        """
        silent_s = now_s - self._fed_s
        overdue = self.begun and 0.0 < self.timeout_s < silent_s  # this thread may be late too
        if self.tripped or overdue:
            self.longest_s = max(self.longest_s, silent_s)
        self._last_s = self._fed_s = now_s
        self.begun, self.tripped = True, False

    def send_due_safe_command_and_get_wait_s(self, now_s: float) -> float:
        """Send the safe command if it is due; return the seconds to wait before the next call.

        Args:
            now_s: The time now in seconds, by the steady clock.
        """
        asserting = self.tripped or bool(self._estop.reason)
        starting = not self.begun
        repeating = asserting or (starting and self.timeout_s > 0.0 and self._fed_s < self._last_s)
        limit_s = self._period_s if repeating else self.timeout_s or np.inf
        left_s = self._last_s + limit_s - now_s
        if left_s > 0.0:
            return min(left_s, self._period_s)
        self._last_s = now_s
        sent = self._send_safe()
        self.sent += sent
        if not (asserting or starting):
            self.tripped = True
            self.trips += 1
            self._on_trip(sent)
        return self._period_s

    def _send_safe_when_due_until_stopped(self) -> None:
        self._on_start()
        wait_s = 0.0
        while not self._end.wait(wait_s):
            wait_s = self.send_due_safe_command_and_get_wait_s(time.monotonic())
