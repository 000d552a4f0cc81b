"""Bring-up: the robot is moved to its start pose, and the policy acts from there.

For robots that are commanded by position. Units are the wiring's physical ones.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from an_control.wiring import CommandConfig

Values = NDArray[np.float64]


class BringUpError(RuntimeError):
    """The start pose was not reached in time; the text says by which actuator."""


class BringUp:
    """Moves commands (A,) at a set rate from where the robot is to its start pose.

    Args:
        command: the start pose, its rate, tolerance and timeout; without bring-up it is done at
            once. Actuators of messages without it are sent their safe value meanwhile.
        step_s: time between two commands.
    """

    def __init__(self, command: CommandConfig, step_s: float) -> None:
        self._names = command.names
        self._step_s = step_s
        ups = [one.bring_up for one in command.messages for _ in one.actuators]
        self._moved = np.array([up is not None for up in ups])
        self._rate = np.array([up.max_rate if up else 0.0 for up in ups])
        self._tolerance = np.array([up.tolerance if up else np.inf for up in ups])
        self._timeout_s = np.array([up.timeout_s if up else np.inf for up in ups])
        starts = np.array([actuator.start or 0.0 for actuator in command.actuators])
        self._pose = np.where(self._moved, starts, command.safe_command())
        self._target: Values | None = None
        self.done = True

    def begin(self) -> None:
        """Bring up from now on, from wherever the robot is."""
        self.done = not self._moved.any()
        self._target = None
        self._waited_s = 0.0

    def cancel(self) -> None:
        """It is over, wherever the robot is."""
        self.done = True

    def pause(self) -> None:
        """Other commands go out: continue from wherever the robot is by then."""
        self._target = None

    def __call__(self, measured: Values, periods: float = 1.0) -> Values:
        """Return the next command (A,) with the robot at `measured` (A,); `done` once it is there.

        `periods` is the time since the last command, in periods. Raises BringUpError once it takes
        too long.
        """
        if self._target is None:
            held = self._moved | np.isnan(self._pose)
            self._target = np.where(held, measured, self._pose)
        passed_s = periods * self._step_s
        change = self._rate * passed_s
        step = np.clip(self._pose - self._target, -change, change)
        self._target = self._target + np.where(self._moved, step, 0.0)
        self._waited_s += passed_s
        away = np.where(self._moved, np.abs(measured - self._pose), 0.0)
        there = away <= self._tolerance
        self.done = bool(there.all())
        late = ~there & (self._waited_s > self._timeout_s)
        if late.any():
            worst = int(np.argmax(np.where(late, away, -1.0)))
            raise BringUpError(
                f"bring-up: {self._names[worst]} is {away[worst]:.3g} from its start pose after"
                f" {self._timeout_s[worst]:g} s (tolerance {self._tolerance[worst]:g})"
            )
        return self._target
