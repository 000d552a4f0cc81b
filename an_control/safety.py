"""What stands between the policy and the robot: the gate, the e-stop and the watchdog.

Every command of the policy passes the gate: finite, within limits, not too far from the last one
and, where a ramp is asked for, with authority that grows after every safe command. Safe commands go
out at once, however far they are from the last one. The e-stop latches. The watchdog runs on a
thread of its own and on the steady clock, and asserts the safe command while nothing else goes
out. Units are the wiring's physical ones.
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


@dataclass
class GateCounts:
    """How many commands the gate changed, by reason."""

    not_finite: int = 0
    limited: int = 0
    rate_limited: int = 0
    ramped: int = 0


class SafeCommand:
    """The command that does no harm: fixed values, and for "hold" the positions measured last.

    What is held is measured when the safe command begins, and stays until `release`. Calls may
    come from any thread.
    """

    def __init__(self, command: CommandConfig) -> None:
        self._fixed = command.safe_command()
        self._holds = np.isnan(self._fixed)
        self._moves = bool(self._holds.any())
        self._low, self._high = _limits(command)
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

    The last command is its memory; at the start it is the safe command, which is also what goes
    out where a command is not finite.

    Args:
        command: limits, greatest rates and safe values of each actuator.
        step_s: time between two commands, for the greatest change of each.
        ramp_s: how long authority grows from none (the safe command) to all (the policy's), from
            the start and from every safe command on; 0 = off.
    """

    def __init__(self, command: CommandConfig, step_s: float, ramp_s: float = 0.0) -> None:
        self._low, self._high = _limits(command)
        rate = np.array([actuator.max_rate for actuator in command.actuators])
        self._change = np.where(rate > 0, rate * step_s, np.inf)
        self._rated = bool((rate > 0).any())
        self._step_s = step_s
        self.set_ramp(ramp_s)
        self.safe_command = SafeCommand(command)
        self.counts = GateCounts()
        self.reset()

    def set_ramp(self, ramp_s: float) -> None:
        """How long authority grows from the next safe command on."""
        self._next_ramp_ticks = max(1, round(ramp_s / self._step_s))

    def reset(self) -> None:
        """Start again from the safe command, and with the ramp."""
        self._last = self.safe_command()
        self._ticks, self._ramp_ticks = 0, self._next_ramp_ticks

    @property
    def authority(self) -> float:
        """The policy's share (0..1) in the last command; the rest is the safe command."""
        return self._ticks / self._ramp_ticks

    def sent(self, command: Values) -> None:
        """What went out last (A,); the next command's change is counted from it."""
        self._last = command

    def safe(self) -> Values:
        """The safe command (A,); the next command's change is counted from it."""
        self.reset()
        return self._last.copy()

    def __call__(self, command: Values, *, ramped: bool = True) -> Values:
        """The command (A,) as it may go out, a new array; not `ramped`: with full authority."""
        allowed = np.minimum(np.maximum(command, self._low), self._high)
        if not (allowed == command).all():
            if not np.isfinite(command).all():
                self.counts.not_finite += 1
                return self.safe()
            self.counts.limited += 1
        if self._ticks < self._ramp_ticks:
            self._ticks += 1
        if ramped and (authority := self.authority) < 1.0:
            mixed = authority * allowed + (1.0 - authority) * self.safe_command()
            allowed = np.clip(mixed, self._low, self._high)
            self.counts.ramped += 1
        else:
            self.safe_command.release()
        if self._rated:
            slowed = np.clip(allowed, self._last - self._change, self._last + self._change)
            if (slowed != allowed).any():
                self.counts.rate_limited += 1
            allowed = slowed
        self._last = allowed
        return allowed.copy()


def _limits(command: CommandConfig) -> tuple[Values, Values]:
    """The lowest and highest values (A,)."""
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
        send_safe: sends the safe command; called from the watchdog's thread.
        period_s: time between two commands.
        timeout_s: the greatest age of the last command; 0 = off, only the e-stop is asserted.
        estop: the latch.
        tripped: called from the watchdog's thread after the first safe command of each trip.
    """

    def __init__(
        self,
        send_safe: Callable[[], None],
        period_s: float,
        timeout_s: float,
        estop: EStop,
        tripped: Callable[[], None] = lambda: None,
    ) -> None:
        self._send_safe, self._on_trip = send_safe, tripped
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
        """Safe commands that it has sent."""

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
        self._send_safe()
        self.sent += 1
        if not (asserting or starting):
            self.tripped = True
            self.trips += 1
            self._on_trip()
        return self._period_s

    def _run(self) -> None:
        wait_s = 0.0
        while not self._end.wait(wait_s):
            wait_s = self.check(time.monotonic())
