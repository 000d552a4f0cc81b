"""From an action to the numbers that a command message carries, in physical units, and back.

Only the conversion: limits, rate of change and the watchdog belong to the safety gate.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

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
    max_rate  greatest change per second of what the policy commands; 0 = off; the safe command
              goes out at once
    safe      the value that does no harm, within the limits; "hold": the position measured last
    start     where bring-up moves it before the policy acts, within the limits
    """

    name: str
    scale: float
    offset: float
    limits: tuple[float, float]
    max_rate: float
    safe: float | Literal["hold"]
    start: float | None = None


@dataclass(frozen=True)
class MeasuredConfig:
    """Where the actuators' positions are measured, in the units of the commands.

    The `*` in `field` stands for an actuator's name.
    """

    source: str
    field: str


@dataclass(frozen=True)
class BringUpConfig:
    """How the robot is moved to its start pose before the policy acts.

    max_rate   greatest change of each command, in units per second
    tolerance  how near each measured position must come to its start
    timeout_s  after this without success the node deactivates
    """

    max_rate: float
    tolerance: float
    timeout_s: float


@dataclass(frozen=True)
class CommandConfig:
    """Where commands go, and what an action means there; the actuators in the action's order."""

    topic: str
    type: str
    field: str
    actuators: tuple[ActuatorConfig, ...]
    measured: MeasuredConfig | None = None
    bring_up: BringUpConfig | None = None

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

    def action(self, values: ArrayLike) -> NDArray[np.float64]:
        """The action (A,) that means these values (A,); beyond +-1 where no action does."""
        return (np.asarray(values, np.float64) - self._offset) / self._scale

    @property
    def holds(self) -> bool:
        """Whether the safe command holds a measured position."""
        return any(actuator.safe == "hold" for actuator in self.actuators)

    def safe_command(self) -> NDArray[np.float64]:
        """The values (A,) that the wiring names as safe, NaN for "hold"; a new array each time."""
        return np.array(
            [np.nan if actuator.safe == "hold" else actuator.safe for actuator in self.actuators]
        )
