"""Everything between the policy and the robot: the gate, the e-stop and the watchdog.

Every command of the policy passes the gate, which makes it finite and keeps it within limits,
whatever was sent before and by whom. The gate also limits how fast commands change, and can blend
from the safe command to the policy's in a ramp after every safe command. Safe commands go out at
once, however far they are from the last one. The e-stop latches. The watchdog runs on a thread of
its own and on the steady clock, and sends the safe command while no other command goes out. Units
are the wiring's physical ones.
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
"""The lowest and the highest value (A,) of each actuator."""


@dataclass
class GateCounts:
    """The numbers of commands that the gate changed, by reason."""

    not_finite: int = 0
    limited: int = 0
    rate_limited: int = 0
    ramped: int = 0


class LastCommand:
    """The newest command (A,) on the robot's topics, from whatever sender, and its time.

    Only this object keeps it: the gate limits a command's change from it, and the policy gets it as
    its previous action. Calls may come from any thread.
    """

    def __init__(self) -> None:
        self._known: tuple[Values, int] | None = None

    @property
    def values(self) -> Values | None:
        """The command (A,), not to be written to; None while it is unknown."""
        known = self._known
        return None if known is None else known[0]

    def record(self, values: Values, now_ns: int) -> None:
        """Remember a command (A,) that went out now; ignore one that is not finite."""
        if np.isfinite(values).all():
            self._known = values, now_ns

    def forget(self) -> None:
        """Forget the command, as it belongs to an episode that has ended."""
        self._known = None

    def age_ns(self, now_ns: int) -> int | None:
        """Return the command's age, negative after a clock was set back; None while unknown."""
        known = self._known
        return None if known is None else now_ns - known[1]


class SafeCommand:
    """The command that does no harm: fixed values, or for "hold" the last measured positions.

    A position to hold is the one measured when the safe command starts, until `release`. Calls may
    come from any thread.

    Args:
        command: The wiring's command, with the safe values.
        limits: Bounds of its values; None: the wiring's.
    """

    def __init__(self, command: CommandConfig, limits: Limits | None = None) -> None:
        self._low, self._high = limits or command_limits(command)
        self._fixed = np.clip(command.safe_command(), self._low, self._high)
        self._holds = np.isnan(self._fixed)
        self._moves = bool(self._holds.any())
        self._measured = np.full(len(self._fixed), np.nan)
        self._held: Values | None = None

    def record_positions(self, positions: Values) -> None:
        """Record the last measured positions (A,) of the actuators, NaN where never measured."""
        self._measured = positions

    @property
    def known(self) -> bool:
        """Whether every position to hold has been measured."""
        return bool(np.isfinite(self()).all())

    def __call__(self) -> Values:
        """Return the safe command (A,), not to be written to; NaN for an unmeasured position."""
        held = self._held
        if held is None:
            within = np.clip(self._measured, self._low, self._high)
            held = np.where(self._holds, within, self._fixed)
            if np.isfinite(held).all():
                self._held = held
        return held

    def release(self) -> None:
        """Note that other commands go out: the next safe command holds the positions by then."""
        if self._moves:
            self._held = None


class SafetyGate:
    """The gate that keeps commands (A,) within the wiring's limits.

    Changes are limited from the last command that went out, from whatever sender (`last`); if that
    is outside the limits, from the nearest limit. If it is unknown, as in shadow mode, they are
    limited from the gate's own last result, and at the start from the safe command. A command that
    is not finite is replaced by the safe command.

    Args:
        command: The wiring's command, with limits, largest rates and safe values.
        step_s: Seconds between two commands.
        ramp_s: Seconds of the ramp from the safe command to the policy's, at the start and after
            every safe command; 0: off.
        limits: Limits narrower than the wiring's, if the messages cannot carry these exactly
            (`sendable_limits`).
    """

    def __init__(
        self,
        command: CommandConfig,
        step_s: float,
        ramp_s: float = 0.0,
        limits: Limits | None = None,
    ) -> None:
        self._low, self._high = limits or command_limits(command)
        rate = np.array([actuator.max_rate for actuator in command.actuators])
        self._rated = rate > 0
        self._any_rated = bool(self._rated.any())
        self._change = rate * step_s
        """The largest change (A,) in a period of each actuator with a limited rate."""
        self._step_s = step_s
        self.set_ramp(ramp_s)
        self.last = LastCommand()
        self.safe_command = SafeCommand(command, (self._low, self._high))
        self.counts = GateCounts()
        self.reset()

    def set_ramp(self, ramp_s: float) -> None:
        """Set the duration of the ramp, from the next safe command on."""
        self._next_ramp_periods = max(0, round(ramp_s / self._step_s))

    def reset(self) -> None:
        """Restart from the safe command, with the ramp."""
        self._given = self.safe_command()
        self._ramped_periods, self._ramp_periods = 0.0, self._next_ramp_periods
        self.authority = 0.0
        """The policy's share (0..1) in the last command; the rest is the safe command."""

    def start(self) -> None:
        """Start to command: restart, with a safe command that holds the present positions."""
        self.safe_command.release()
        self.reset()

    def safe(self) -> Values:
        """Return the safe command (A,), from which the next command's change is limited."""
        self.reset()
        return self._given.copy()

    def periods_since_last(self, now_ns: int | None) -> float:
        """Return the time since the last command in periods, at most 1; 1 if it is unknown.

        None for `now_ns` stands for one period, as from step to step of a simulator in lockstep.
        """
        age_ns = None if now_ns is None else self.last.age_ns(now_ns)
        return 1.0 if age_ns is None else min(max(age_ns / 1e9 / self._step_s, 0.0), 1.0)

    def __call__(
        self, command: Values, now_ns: int | None = None, *, ramped: bool = True
    ) -> Values:
        """Return the command (A,) that may go out, a new array.

        Args:
            command: The wanted command (A,); if it is not finite, the safe command goes out.
            now_ns: The time. The command may differ from the last one by the largest rate times the
                time since then, at most one period. None: one period has passed.
            ramped: Whether the ramp applies.
        """
        allowed = np.minimum(np.maximum(command, self._low), self._high)
        if not (allowed == command).all():
            if not np.isfinite(command).all():
                self.counts.not_finite += 1
                return self.safe()
            self.counts.limited += 1
        periods = self.periods_since_last(now_ns)
        self._ramped_periods = min(self._ramped_periods + periods, self._ramp_periods)
        self.authority = 1.0
        if ramped and self._ramped_periods < self._ramp_periods:
            self.authority = self._ramped_periods / self._ramp_periods
            mixed = self.authority * allowed + (1.0 - self.authority) * self.safe_command()
            allowed = np.clip(mixed, self._low, self._high)
            self.counts.ramped += 1
        else:
            self.safe_command.release()
        if self._any_rated:
            slowed = self._limit_rate(allowed, periods)
            if (slowed != allowed).any():
                self.counts.rate_limited += 1
            allowed = slowed
        self._given = allowed
        return allowed.copy()

    def _limit_rate(self, allowed: Values, periods: float) -> Values:
        """Return `allowed` (A,) with the changes of rate-limited actuators bounded.

        Both ends lie within the limits, and so do all values between them.
        """
        last = self.last.values
        if last is None:
            known = np.isfinite(self._given)  # at the start a position to hold may be unknown
            last = self._given if known.all() else np.where(known, self._given, self.safe_command())
        last = np.minimum(np.maximum(last, self._low), self._high)
        change = self._change * periods
        slowed: Values = np.clip(allowed, last - change, last + change)
        return np.where(self._rated, slowed, allowed)


def command_limits(command: CommandConfig) -> Limits:
    """Return the wiring's limits."""
    low, high = np.array([actuator.limits for actuator in command.actuators]).T
    return low.copy(), high.copy()


class EStop:
    """A latch: once set it stays set, whatever else changes, until `reset`."""

    def __init__(self) -> None:
        self.reason = ""
        """The reason for which it is latched; "" if it is clear."""

    def latch(self, reason: str) -> bool:
        """Latch it; return whether it was clear before."""
        clear = not self.reason
        self.reason = self.reason or reason
        return clear

    def reset(self) -> bool:
        """Clear it; return whether it was latched."""
        latched, self.reason = bool(self.reason), ""
        return latched


class Watchdog:
    """A thread that sends the safe command while no other command goes out.

    It trips once the last command is `timeout_s` old. From then on, and while the e-stop is
    latched, it sends the safe command whenever none has gone out for `period_s`, until
    `command_sent` is called. Between `start` and the first command it also sends the safe one,
    which does not count as a trip.

    Args:
        send_safe: Sends the safe command and returns whether it could be sent, which it cannot
            while a position to hold is unknown; called on the watchdog's thread.
        period_s: Seconds between two commands.
        timeout_s: The largest age of the last command in seconds; 0: off, only the e-stop counts.
        estop: The e-stop.
        tripped: Called on the watchdog's thread after the first safe command of each trip, with
            whether that could be sent.
        started: Called first on the watchdog's thread, at each start.
    """

    def __init__(
        self,
        send_safe: Callable[[], bool],
        period_s: float,
        timeout_s: float,
        estop: EStop,
        tripped: Callable[[bool], None] = lambda sent: None,
        started: Callable[[], object] = lambda: None,
    ) -> None:
        self._send_safe, self._on_trip, self._on_start = send_safe, tripped, started
        self._period_s, self.timeout_s, self._estop = period_s, timeout_s, estop
        self._last_s = self._fed_s = 0.0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self.begun = True
        """Whether a command has gone out since the start."""
        self.tripped = False
        self.trips = 0
        self.longest_s = 0.0
        """The longest time between two commands that exceeded `timeout_s`, with or without a
        trip."""
        self.sent = 0
        """The number of safe commands that the watchdog has sent."""

    def start(self) -> None:
        """Start the watchdog's thread."""
        self._last_s = self._fed_s = time.monotonic()
        self.begun = self.tripped = False
        self._end.clear()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread; nothing is sent once this has returned."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.tripped = False

    def command_sent(self, now_s: float) -> None:
        """Note that a command has gone out, at this time of the steady clock."""
        silent_s = now_s - self._fed_s
        overdue = self.begun and 0.0 < self.timeout_s < silent_s  # what held it up held us up too
        if self.tripped or overdue:
            self.longest_s = max(self.longest_s, silent_s)
        self._last_s = self._fed_s = now_s
        self.begun, self.tripped = True, False

    def check(self, now_s: float) -> float:
        """Send the safe command if it is due; return the seconds until the next check."""
        asserting = self.tripped or bool(self._estop.reason)
        starting = not self.begun
        limit_s = self._period_s if asserting else self.timeout_s or np.inf
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

    def _run(self) -> None:
        self._on_start()
        wait_s = 0.0
        while not self._end.wait(wait_s):
            wait_s = self.check(time.monotonic())
