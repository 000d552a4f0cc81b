"""From command messages to an environment's action, by actuator name where there are names.

A message is taken or refused as one: one actuator missing or one number that is not finite, and it
counts as not come. Where several topics command, all of them together are a command.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from an_control.wiring import CommandMessage
from an_control.wiring.checked_yaml import WiringError
from an_control.wiring.messages import Resolver, stamp_reader
from an_control_sim.bridge.simulation_file import Simulation
from an_control_sim.gym.spaces import actions_of


class Commands:
    """Reads the command messages of one environment.

    `safe` (A,) float64 are the actuators' safe values in the unit of the action. `answer` (A,) is
    the newest command in that unit, None before every topic has one.
    """

    def __init__(
        self, simulation: Simulation, space: gymnasium.Space[Any], resolve: Resolver
    ) -> None:
        self._space, command = space, simulation.command
        self._messages: list[CommandMessage] = []
        self._stamps: list[Callable[[Any], int | None]] = []
        for number, config in enumerate(command.messages):
            key = command.key(number)
            try:
                cls = resolve(config.type)
            except LookupError as error:
                allowed = f"a message type ({error})"
                raise WiringError(simulation.file, f"{key}.type", config.type, allowed) from None
            self._messages.append(CommandMessage(config, cls, resolve, simulation.file, key))
            self._stamps.append(stamp_reader(cls))
        actuators = [actuator for config in command.messages for actuator in config.actuators]
        self._slices = command.slices
        self._scales = np.array([actuator.scale for actuator in actuators])
        self._offsets = np.array([actuator.offset for actuator in actuators])
        safe = np.array([actuator.safe for actuator in actuators])
        self.safe = (safe - self._offsets) / self._scales
        self._check(len(actuators), simulation)
        self.forget()

    @property
    def topics(self) -> list[tuple[str, Any]]:
        """Each topic that commands, and its message class."""
        return [(one.topic, type(one.message)) for one in self._messages]

    @property
    def stamped(self) -> list[bool]:
        """Return of each topic whether its type has a stamp that names the step."""
        return [one.stamped for one in self._messages]

    def stamp_ns(self, message: Any, number: int = 0) -> int | None:
        """The stamp of the readings that a message of a topic answers; None where it has none."""
        return self._stamps[number](message)

    def read(self, message: Any, number: int = 0) -> NDArray[np.float64]:
        """The commands (n,) of a topic's message in the unit of the action.

        ValueError says why it cannot be taken.
        """
        span = self._slices[number]
        values = self._messages[number].read(message)
        return (values - self._offsets[span]) / self._scales[span]

    def take(self, message: Any, now_s: float, number: int = 0) -> None:
        """Keep what a topic's message says; ValueError as of `read`."""
        self._parts[number] = self.read(message, number)
        self._taken_s[number] = now_s

    def forget(self) -> None:
        """What was taken answers another step."""
        self._parts: list[NDArray[np.float64] | None] = [None] * len(self._messages)
        self._taken_s = [-np.inf] * len(self._messages)

    @property
    def answer(self) -> NDArray[np.float64] | None:
        parts = [part for part in self._parts if part is not None]
        return np.concatenate(parts) if len(parts) == len(self._parts) else None

    @property
    def answered_s(self) -> float:
        """When the oldest part of `answer` was taken."""
        return min(self._taken_s)

    def action(self, commands: NDArray[np.float64]) -> Any:
        """The environment's action, always inside its space; of a Discrete one also by its index.

        See `Actions.steering`.
        """
        if isinstance(self._space, gymnasium.spaces.Discrete) and len(commands) == 1:
            return int(min(max(round(commands[0]), 0), self._space.n - 1) + self._space.start)
        return self._actions.steering(commands)

    def _check(self, count: int, simulation: Simulation) -> None:
        try:
            self._actions = actions_of(self._space)
        except ValueError as error:
            kind = type(self._space).__name__
            raise WiringError(simulation.file, "environment", kind, str(error)) from None
        wanted = [len(self._actions.names)]
        if isinstance(self._space, gymnasium.spaces.Discrete):
            wanted = sorted({1, *wanted})
        if count not in wanted:
            allowed = f"{' or '.join(map(str, wanted))} actuators, as the environment's action has"
            key = "command.actuators" if len(self._messages) == 1 else "command"
            raise WiringError(simulation.file, key, count, allowed)
