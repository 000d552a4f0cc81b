"""What stands between the policy and the robot: the gate, the e-stop and the watchdog.

Every command passes the gate: finite, within limits, not too fast, with authority that grows after
every start. The e-stop latches. The watchdog runs on a thread of its own and on the steady clock,
and asserts the safe command while nothing else goes out. Units are the wiring's physical ones.
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
        self._low = np.array([actuator.limits[0] for actuator in command.actuators])
        self._high = np.array([actuator.limits[1] for actuator in command.actuators])
        rate = np.array([actuator.max_rate for actuator in command.actuators])
        self._change = np.where(rate > 0, rate * step_s, np.inf)
        self._rated = bool((rate > 0).any())
        self._ramp_ticks = max(1, round(ramp_s / step_s))
        self._safe = command.safe_command()
        self.counts = GateCounts()
        self.reset()

    def reset(self) -> None:
        """Start again from the safe command."""
        self._last = self._safe
        self._ticks = 0

    @property
    def authority(self) -> float:
        """The policy's share (0..1) in the last command; the rest is the safe command."""
        return self._ticks / self._ramp_ticks

    def safe(self) -> Values:
        """The safe command (A,); the next command's change is counted from it."""
        self.reset()
        return self._safe.copy()

    def __call__(self, command: Values) -> Values:
        """The command (A,) as it may go out, a new array."""
        if not np.isfinite(command).all():
            self.counts.not_finite += 1
            return self.safe()
        allowed = np.clip(command, self._low, self._high)
        if (allowed != command).any():
            self.counts.limited += 1
        if self._ticks < self._ramp_ticks:
            self._ticks += 1
        if (authority := self.authority) < 1.0:
            mixed = authority * allowed + (1.0 - authority) * self._safe
            allowed = np.clip(mixed, self._low, self._high)
            self.counts.ramped += 1
        if self._rated:
            slowed = np.clip(allowed, self._last - self._change, self._last + self._change)
            if (slowed != allowed).any():
                self.counts.rate_limited += 1
            allowed = slowed
        self._last = allowed
        return allowed.copy()


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
    latched, the safe command goes out whenever none has for `period_s`. `fed` ends that.

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
        self._last_s = 0.0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self.tripped = False
        self.trips = 0
        self.sent = 0
        """Safe commands that it has sent."""

    def start(self) -> None:
        """Watch from now on."""
        self.fed(time.monotonic())
        self._end.clear()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; nothing is sent once this has returned."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def fed(self, now_s: float) -> None:
        """A command has gone out, at this time of the steady clock."""
        self._last_s = now_s
        self.tripped = False

    def look(self, now_s: float) -> float:
        """Send the safe command if it is due; how long to wait until the next look, in s."""
        asserting = self.tripped or bool(self._estop.reason)
        limit_s = self._period_s if asserting else self.timeout_s or np.inf
        left_s = self._last_s + limit_s - now_s
        if left_s > 0.0:
            return min(left_s, self._period_s)
        self._last_s = now_s
        self._send_safe()
        self.sent += 1
        if not asserting:
            self.tripped = True
            self.trips += 1
            self._on_trip()
        return self._period_s

    def _run(self) -> None:
        wait_s = 0.0
        while not self._end.wait(wait_s):
            wait_s = self.look(time.monotonic())
