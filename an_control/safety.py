"""The gate that every command passes on its way to the robot: finite, within limits, not too fast.

The last command is the gate's memory; at the start it is the safe command, which is also what goes
out where a command is not finite. Units are the wiring's physical ones.
"""

from __future__ import annotations

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


class Gate:
    """Holds commands (A,) within what the wiring allows.

    Args:
        command: limits, greatest rates and safe values of each actuator.
        step_s: time between two commands, for the greatest change of each.
    """

    def __init__(self, command: CommandConfig, step_s: float) -> None:
        self._low = np.array([actuator.limits[0] for actuator in command.actuators])
        self._high = np.array([actuator.limits[1] for actuator in command.actuators])
        rate = np.array([actuator.max_rate for actuator in command.actuators])
        self._change = np.where(rate > 0, rate * step_s, np.inf)
        self._rated = bool((rate > 0).any())
        self._safe = command.safe_command()
        self.counts = GateCounts()
        self.reset()

    def reset(self) -> None:
        """Start again from the safe command."""
        self._last = self._safe

    def safe(self) -> Values:
        """The safe command (A,); the next command's change is counted from it."""
        self._last = self._safe
        return self._safe.copy()

    def __call__(self, command: Values) -> Values:
        """The command (A,) as it may go out, a new array."""
        if not np.isfinite(command).all():
            self.counts.not_finite += 1
            return self.safe()
        allowed = np.clip(command, self._low, self._high)
        if (allowed != command).any():
            self.counts.limited += 1
        if self._rated:
            slowed = np.clip(allowed, self._last - self._change, self._last + self._change)
            if (slowed != allowed).any():
                self.counts.rate_limited += 1
            allowed = slowed
        self._last = allowed
        return allowed.copy()
