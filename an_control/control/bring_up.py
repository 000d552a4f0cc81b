"""Bring-up: the motion to the start pose before the policy acts.

It applies to actuators that are commanded by position. Positions are in the units of the wiring,
the YAML file that connects the robot's topics to the policy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from an_control.wiring import CommandConfig

Values = NDArray[np.float64]


class BringUpError(RuntimeError):
    """An error that says which actuator did not reach its start pose in time."""


class BringUp:
    """A controller that moves the actuators at a limited speed to their start pose.

    Calling the object returns the next command (A,), one value for each actuator. Actuators without
    a start pose get their safe value.

    Args:
        command: The command section of the wiring, with start pose, speed, tolerance and timeout of
            each actuator. If no actuator has a start pose, there is no motion: `done` is True from
            the start.
        step_s: Seconds between two commands.
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
        self._pose = np.where(self._moved, starts, command.make_safe_command())
        self._target: Values | None = None
        self.done = True

    def start_moving_to_start_pose(self) -> None:
        """Start the motion to the start pose from the positions that are measured next."""
        self.done = not self._moved.any()
        self._target = None
        self._waited_s = 0.0

    def cancel(self) -> None:
        """End the motion to the start pose, even if the actuators have not reached it."""
        self.done = True

    def pause(self) -> None:
        """Pause the motion to the start pose; call this while other commands are sent instead.

        When the motion is next asked for a command, it resumes from the positions measured then.
        """
        self._target = None

    def __call__(self, measured: Values, periods: float = 1.0) -> Values:
        """Return the next command (A,). Set `done` once all actuators are at their start pose.

        Args:
            measured: The measured positions (A,) of the actuators.
            periods: The time since the previous command, in control periods.

        Raises:
            BringUpError: An actuator did not reach its start pose in time.
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
