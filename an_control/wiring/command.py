"""From an action to the numbers that a command message carries, in physical units.

Only the conversion: limits, rate of change and the watchdog belong to the safety gate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

COMMAND_FIELDS = {
    "sensor_msgs/msg/JointState": ("position", "velocity", "effort"),
    "std_msgs/msg/Float64MultiArray": ("data",),
}
"""The message types that can carry a command, and the fields of each that can hold it."""


@dataclass(frozen=True)
class ActuatorConfig:
    """One actuator: value = action * scale + offset, in its physical unit.

    limits    lowest and highest value
    max_rate  greatest change, in units per second; 0 = off
    safe      the value that does no harm, within the limits
    """

    name: str
    scale: float
    offset: float
    limits: tuple[float, float]
    max_rate: float
    safe: float


@dataclass(frozen=True)
class CommandConfig:
    """Where commands go, and what an action means there; the actuators in the action's order."""

    topic: str
    type: str
    field: str
    actuators: tuple[ActuatorConfig, ...]

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The actuators' names, in the action's order."""
        return tuple(actuator.name for actuator in self.actuators)

    @cached_property
    def _scale(self) -> NDArray[np.float64]:
        return np.array([actuator.scale for actuator in self.actuators])

    @cached_property
    def _offset(self) -> NDArray[np.float64]:
        return np.array([actuator.offset for actuator in self.actuators])

    def command(self, action: ArrayLike) -> NDArray[np.float64]:
        """The values (A,) in physical units of an action (A,); not limited, not checked finite.

        Raises ValueError where the action has not one number an actuator.
        """
        values = np.asarray(action, np.float64)
        if values.shape != self._scale.shape:
            raise ValueError(f"an action of shape {values.shape} for {len(self.names)} actuators")
        return values * self._scale + self._offset

    def safe_command(self) -> NDArray[np.float64]:
        """The values (A,) that the wiring names as safe, a new array at each call."""
        return np.array([actuator.safe for actuator in self.actuators])
