"""What stands between the policy and the robot: the gate, the e-stop and the watchdog.

Every command of the policy passes the gate, which makes it finite and within limits, whatever was
sent before and by whom. The gate also bounds how fast commands change and, where a ramp is asked
for, lets authority grow after every safe command. Safe commands go out at once, however far they
are from the last one. The e-stop latches. The watchdog runs on a thread of its own and on the
steady clock, and asserts the safe command while nothing else goes out. Units are the wiring's
physical ones.
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
    """How many commands the gate changed, by reason."""

    not_finite: int = 0
    limited: int = 0
    rate_limited: int = 0
    ramped: int = 0


class LastCommand:
    """The newest command (A,) on the robot's topics, whoever sent it, and when that was.

    This is the only place that keeps it: from it the gate counts how far a command may change, and
    the policy takes it for its previous action. Calls may come from any thread.
    """

    def __init__(self) -> None:
        self._known: tuple[Values, int, int] | None = None
        self.count = 0
        """How many commands were recorded."""

    @property
    def values(self) -> Values | None:
        """The command (A,), not to be written to; None while none is known."""
        return self.numbered[0]

    @property
    def numbered(self) -> tuple[Values | None, int]:
        """The command (A,), not to be written to, and its number; None and -1 while unknown."""
        known = self._known
        return (None, -1) if known is None else (known[0], known[2])

    def record(self, values: Values, now_ns: int) -> None:
        """Remember a command (A,) that went out now; ignore one that is not finite."""
        if np.isfinite(values).all():
            self.count += 1
            self._known = values, now_ns, self.count

    def forget(self) -> None:
        """Forget the command, as it was part of an episode that has ended."""
        self._known = None

    def age_ns(self, now_ns: int) -> int | None:
        """Return the command's age, negative after a clock was set back; None while unknown."""
        known = self._known
        return None if known is None else now_ns - known[1]


class SafeCommand:
    """The command that does no harm: fixed values, and for "hold" the positions measured last.

    What is held is measured when the safe command begins, and stays until `release`. Calls may
    come from any thread.

    Args:
        command: the safe values of each actuator.
        limits: what its values stay within.
    """

    def __init__(self, command: CommandConfig, limits: Limits | None = None) -> None:
        self._low, self._high = limits or limits_of(command)
        self._fixed = np.clip(command.safe_command(), self._low, self._high)
        self._holds = np.isnan(self._fixed)
        self._moves = bool(self._holds.any())
        self._measured = np.full(len(self._fixed), np.nan)
        self._held: Values | None = None

    def measure(self, positions: Values) -> None:
        """The actuators' positions (A,) as last measured, NaN where never."""
        self._measured = positions

    @property
    def known(self) -> bool:
        """Whether every position to hold has been measured."""
        return bool(np.isfinite(self()).all())

    def __call__(self) -> Values:
        """The safe command (A,), not to be written to; NaN where a position was never measured."""
        held = self._held
        if held is None:
            within = np.clip(self._measured, self._low, self._high)
            held = np.where(self._holds, within, self._fixed)
            if np.isfinite(held).all():
                self._held = held
        return held

    def release(self) -> None:
        """Other commands go out: the next safe command holds where the robot is by then."""
        if self._moves:
            self._held = None


class Gate:
    """Holds commands (A,) within what the wiring allows.

    Changes count from the last command that went out, whoever sent it (`last`); where that is
    outside the limits, from the border. Where nobody is known to command, as in shadow mode, they
    count from what the gate itself gave last, at the start the safe command. That is also what goes
    out where a command is not finite.

    Args:
        command: limits, greatest rates and safe values of each actuator.
        step_s: time between two commands.
        ramp_s: how long authority grows from none (the safe command) to all (the policy's), from
            the start and from every safe command on; 0 = off.
        limits: narrower ones than the wiring's, where the messages cannot carry its exact limits
            (`sendable_limits`).
    """

    def __init__(
        self,
        command: CommandConfig,
        step_s: float,
        ramp_s: float = 0.0,
        limits: Limits | None = None,
    ) -> None:
        self._low, self._high = limits or limits_of(command)
        rate = np.array([actuator.max_rate for actuator in command.actuators])
        self._rated = rate > 0
        self._any_rated = bool(self._rated.any())
        self._change = rate * step_s
        """The greatest change (A,) in a period, of those that are rated."""
        self._step_s = step_s
        self.set_ramp(ramp_s)
        self.last = LastCommand()
        self.safe_command = SafeCommand(command, (self._low, self._high))
        self.counts = GateCounts()
        self.reset()

    def set_ramp(self, ramp_s: float) -> None:
        """Let authority grow for this long from the next safe command on."""
        self._next_ramp_periods = max(0, round(ramp_s / self._step_s))

    def reset(self) -> None:
        """Start again from the safe command, and with the ramp."""
        self._given = self.safe_command()
        self._ramped_periods, self._ramp_periods = 0.0, self._next_ramp_periods
        self.authority = 0.0
        """The policy's share (0..1) in the last command; the rest is the safe command."""

    def start(self) -> None:
        """Begin to command: the same, with a safe command that holds where the robot is now."""
        self.safe_command.release()
        self.reset()

    def safe(self) -> Values:
        """Return the safe command (A,), from which the next command's change is counted."""
        self.reset()
        return self._given.copy()

    def periods_since_last(self, now_ns: int | None) -> float:
        """Return the time since the last command in periods, 1 at most; 1 where it is unknown.

        None as time stands for one period, as from step to step of a simulator in lockstep.
        """
        age_ns = None if now_ns is None else self.last.age_ns(now_ns)
        return 1.0 if age_ns is None else min(max(age_ns / 1e9 / self._step_s, 0.0), 1.0)

    def __call__(
        self, command: Values, now_ns: int | None = None, *, ramped: bool = True
    ) -> Values:
        """Return the command (A,) as it may go out, a new array.

        Args:
            command: what is wanted; the safe command goes out where it is not finite.
            now_ns: the time, which bounds how far the command may be from the last one: by the
                greatest rate times the time since then, and by that of one period at most. None:
                one period has passed.
            ramped: whether authority grows; else all of it counts at once.
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
            slowed = self._slowed(allowed, periods)
            if (slowed != allowed).any():
                self.counts.rate_limited += 1
            allowed = slowed
        self._given = allowed
        return allowed.copy()

    def _slowed(self, allowed: Values, periods: float) -> Values:
        """Return `allowed` (A,), of rated actuators no further from the last command than it may.

        Both ends lie within the limits, and so does what lies between them.
        """
        last = self.last.values
        if last is None:
            known = np.isfinite(self._given)  # at the start a position to hold may be unknown
            last = self._given if known.all() else np.where(known, self._given, self.safe_command())
        last = np.minimum(np.maximum(last, self._low), self._high)
        change = self._change * periods
        slowed: Values = np.clip(allowed, last - change, last + change)
        return np.where(self._rated, slowed, allowed)


def limits_of(command: CommandConfig) -> Limits:
    """Return the wiring's limits."""
    low, high = np.array([actuator.limits for actuator in command.actuators]).T
    return low.copy(), high.copy()


class EStop:
    """A latch: once set it stays, whatever else changes, until `reset`."""

    def __init__(self) -> None:
        self.reason = ""
        """Who latched it, empty where it is clear."""

    def latch(self, reason: str) -> bool:
        """Set it; whether it was clear before."""
        clear = not self.reason
        self.reason = self.reason or reason
        return clear

    def reset(self) -> bool:
        """Clear it; whether it was latched."""
        latched, self.reason = bool(self.reason), ""
        return latched


class Watchdog:
    """Sends the safe command from a thread of its own while no other command goes out.

    It trips once the last command is `timeout_s` old. From then on, and while the e-stop is
    latched, the safe command goes out whenever none has for `period_s`. `fed` ends that. Between
    `start` and the first command the safe one goes out too, but that is no trip.

    Args:
        send_safe: sends the safe command and returns whether it could be sent, which it cannot
            while a position to hold is unknown; called from the watchdog's thread.
        period_s: time between two commands.
        timeout_s: the greatest age of the last command; 0 = off, only the e-stop is asserted.
        estop: the latch.
        tripped: called from the watchdog's thread after the first safe command of each trip, with
            whether that could be sent.
        started: called first on the watchdog's thread, at each start.
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
        """The longest time between two commands that was over `timeout_s`, tripped or not."""
        self.sent = 0
        """Safe commands that it has sent, without those that could not be sent."""

    def start(self) -> None:
        """Watch from now on."""
        self._last_s = self._fed_s = time.monotonic()
        self.begun = self.tripped = False
        self._end.clear()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; nothing is sent once this has returned."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.tripped = False

    def fed(self, now_s: float) -> None:
        """A command has gone out, at this time of the steady clock."""
        silent_s = now_s - self._fed_s
        overdue = self.begun and 0.0 < self.timeout_s < silent_s  # what held it up held us up too
        if self.tripped or overdue:
            self.longest_s = max(self.longest_s, silent_s)
        self._last_s = self._fed_s = now_s
        self.begun, self.tripped = True, False

    def check(self, now_s: float) -> float:
        """Send the safe command if it is due; how long to wait until the next check, in s."""
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
