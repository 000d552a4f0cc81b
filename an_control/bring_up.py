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
            once.
        step_s: time between two commands.
    """

    def __init__(self, command: CommandConfig, step_s: float) -> None:
        self._config, self._names = command.bring_up, command.names
        self._step_s = step_s
        self._pose = np.array([actuator.start or 0.0 for actuator in command.actuators])
        self._target: Values | None = None
        self.done = True

    def begin(self) -> None:
        """Bring up from now on, from wherever the robot is."""
        self.done = self._config is None
        self._target = None
        self._waited_s = 0.0

    def pause(self) -> None:
        """Other commands go out: continue from wherever the robot is by then."""
        self._target = None

    def __call__(self, measured: Values) -> Values:
        """The next command (A,) with the robot at `measured` (A,); `done` once it is there.

        Raises BringUpError once it takes too long.
        """
        assert self._config is not None
        if self._target is None:
            self._target = measured.copy()
        change = self._config.max_rate * self._step_s
        self._target = self._target + np.clip(self._pose - self._target, -change, change)
        self._waited_s += self._step_s
        away = np.abs(measured - self._pose)
        self.done = bool((away <= self._config.tolerance).all())
        if not self.done and self._waited_s > self._config.timeout_s:
            worst = int(np.nanargmax(away))
            raise BringUpError(
                f"bring-up: {self._names[worst]} is {away[worst]:.3g} from its start pose after"
                f" {self._config.timeout_s:g} s (tolerance {self._config.tolerance:g})"
            )
        return self._target
