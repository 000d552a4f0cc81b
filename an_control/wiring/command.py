"""From an action to the numbers that command messages carry, in physical units, and back.

Only the conversion: limits, rate of change and the watchdog belong to the safety gate, the fields
of the messages to `CommandMessage`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from functools import cached_property
from typing import Generic, Literal, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from an_control.wiring.errors import WiringError

Constant = bool | float | str


@dataclass(frozen=True)
class ActuatorConfig:
    """One actuator: value = action * scale + offset, in its physical unit.

    limits    lowest and highest value
    max_rate  greatest change per second of what the policy commands; 0 = off; the safe command
              goes out at once
    safe      the value that does no harm, within the limits; "hold": the position measured last
    start     where bring-up moves it before the policy acts, within the limits
    field     path of the field that holds its value; None: the message's `field` says it
    """

    name: str
    scale: float
    offset: float
    limits: tuple[float, float]
    max_rate: float
    safe: float | Literal["hold"]
    start: float | None = None
    field: str | None = None


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
class MessageConfig:
    """One message of a command: its topic, and the actuators whose values it carries.

    field      for actuators without one of their own: an array that holds their values, by name
               where the message has names, else in their order; or a path with a `*` for the
               actuator's name
    constants  what else the message says, by field path
    measured, bring_up  of its actuators
    """

    topic: str
    type: str
    field: str | None
    actuators: tuple[ActuatorConfig, ...]
    measured: MeasuredConfig | None = None
    bring_up: BringUpConfig | None = None
    constants: Mapping[str, Constant] = dataclass_field(default_factory=dict)


class Actuator(Protocol):
    """An actuator as a message knows it."""

    @property
    def name(self) -> str: ...
    @property
    def field(self) -> str | None: ...


class MessageFields(Protocol):
    """What of a `MessageConfig` says how the message is filled."""

    @property
    def topic(self) -> str: ...
    @property
    def type(self) -> str: ...
    @property
    def field(self) -> str | None: ...
    @property
    def actuators(self) -> tuple[Actuator, ...]: ...
    @property
    def constants(self) -> Mapping[str, Constant]: ...


M = TypeVar("M", bound=MessageFields)


@dataclass(frozen=True)
class Messages(Generic[M]):
    """The messages of a command, in the order in which they are sent in every tick.

    Their actuators, one message after the other, are in the action's order.
    """

    messages: tuple[M, ...]

    def key(self, number: int) -> str:
        """Where a message stands in the file."""
        return "command" if len(self.messages) == 1 else f"command[{number}]"

    @cached_property
    def topics(self) -> dict[str, str]:
        """By topic, where the file says so."""
        return {one.topic: f"{self.key(i)}.topic" for i, one in enumerate(self.messages)}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The actuators' names, in the action's order."""
        return tuple(actuator.name for one in self.messages for actuator in one.actuators)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Which values each message carries."""
        ends = np.cumsum([len(one.actuators) for one in self.messages]).tolist()
        return tuple(slice(i, end) for i, end in zip([0, *ends], ends, strict=False))

    def check_once(self, file: str) -> None:
        """WiringError where a topic or an actuator comes twice."""
        topics: set[str] = set()
        names: set[str] = set()
        for number, one in enumerate(self.messages):
            if one.topic in topics:
                raise WiringError(file, f"{self.key(number)}.topic", one.topic, "each topic once")
            topics.add(one.topic)
            for actuator in one.actuators:
                if actuator.name in names:
                    key = f"{self.key(number)}.actuators.{actuator.name}"
                    raise WiringError(file, key, actuator.name, "each actuator once")
                names.add(actuator.name)


@dataclass(frozen=True)
class CommandConfig(Messages[MessageConfig]):
    """What an action means in physical units, and the messages that say so to the robot."""

    @cached_property
    def actuators(self) -> tuple[ActuatorConfig, ...]:
        """All actuators, in the action's order."""
        return tuple(actuator for message in self.messages for actuator in message.actuators)

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
    def measured(self) -> tuple[MeasuredConfig, ...]:
        """Where positions are measured, of each message that needs that."""
        return tuple(one.measured for one in self.messages if one.measured is not None)

    def safe_command(self) -> NDArray[np.float64]:
        """The values (A,) that the wiring names as safe, NaN for "hold"; a new array each time."""
        return np.array(
            [np.nan if actuator.safe == "hold" else actuator.safe for actuator in self.actuators]
        )
