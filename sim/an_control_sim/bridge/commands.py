"""Converts command messages to an environment's action, by actuator name if the message has names.

A message is accepted or refused as a whole: if an actuator is missing or a number is not finite, it
counts as not received. If a command is split over several topics, one message from each topic is
needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from an_control.wiring import CommandMessage
from an_control.wiring.checked_yaml import WiringError
from an_control.wiring.messages import import_message_class, make_stamp_reader
from an_control_sim.bridge.simulation_file import Simulation
from an_control_sim.gym.spaces import make_action_conversion


def import_message_class_of_topic(type_name: str, file: str, key: str) -> Any:
    """Import a message type that a YAML file names, such as "sensor_msgs/msg/JointState".

    Args:
        type_name: The name of the message type.
        file: The path of the YAML file, for errors.
        key: The key of the topic in that file, for errors.

    Raises:
        WiringError: The type is not known.
    """
    try:
        return import_message_class(type_name)
    except LookupError as error:
        raise WiringError(file, f"{key}.type", type_name, f"a message type ({error})") from None


class CommandReader:
    """A converter from ROS 2 command messages to a simulated environment's actions.

    It stores the newest message of each command topic. A command is complete when every topic has
    sent a message.

    Attributes:
        safe: The actuators' safe values in the unit of the action (A,) float64.

    Args:
        simulation: The content of the simulation YAML, which describes the command topics.
        space: The environment's action space.

    Raises:
        WiringError: The commands do not fit the message types or the action space.
    """

    def __init__(self, simulation: Simulation, space: gymnasium.Space[Any]) -> None:
        self._space, command = space, simulation.command
        self._messages: list[CommandMessage] = []
        self._stamps: list[Callable[[Any], int | None]] = []
        for number, config in enumerate(command.messages):
            key = command.format_message_key(number)
            cls = import_message_class_of_topic(config.type, simulation.file, key)
            self._messages.append(
                CommandMessage(config, cls, import_message_class, simulation.file, key)
            )
            self._stamps.append(make_stamp_reader(cls))
        actuators = [actuator for config in command.messages for actuator in config.actuators]
        self._slices = command.message_slices
        self._scales = np.array([actuator.scale for actuator in actuators])
        self._offsets = np.array([actuator.offset for actuator in actuators])
        safe = np.array([actuator.safe for actuator in actuators])
        self.safe = (safe - self._offsets) / self._scales
        self._check_actuator_count_and_store_action_conversion(len(actuators), simulation)
        self.clear_commands()

    @property
    def topics_and_message_classes(self) -> list[tuple[str, Any]]:
        """The pair (topic name, message class) of each command topic."""
        return [(one.topic, type(one.message)) for one in self._messages]

    @property
    def topics_have_stamps(self) -> list[bool]:
        """For each command topic, whether its messages have a stamp that identifies the step."""
        return [one.is_stamped for one in self._messages]

    def read_stamp_ns(self, message: Any, topic_index: int = 0) -> int | None:
        """Return the time stamp of a command message in nanoseconds, or None if it has none.

        The stamp tells which step a command is for: the policy node copies it from the readings
        that it answers.

        Args:
            message: The command message.
            topic_index: The index of the topic on which the message arrived.
        """
        return self._stamps[topic_index](message)

    def read_commands(self, message: Any, topic_index: int = 0) -> NDArray[np.float64]:
        """Return the actuator values in a command message, converted to the unit of the action.

        Args:
            message: The command message.
            topic_index: The index of the topic on which the message arrived.

        Returns:
            The values (n,) of the topic's n actuators, in the order of the simulation YAML.

        Raises:
            ValueError: The message lacks an actuator, or a value is not finite.
        """
        span = self._slices[topic_index]
        values = self._messages[topic_index].read_values(message)
        return (values - self._offsets[span]) / self._scales[span]

    def store_commands(self, message: Any, now_s: float, topic_index: int = 0) -> None:
        """Store the actuator values in a command message, in place of older ones on its topic.

        Args:
            message: The command message.
            now_s: The time in seconds at which the message was received.
            topic_index: The index of the topic on which the message arrived.

        Raises:
            ValueError: The message lacks an actuator, or a value is not finite. Nothing is stored.
        """
        self._parts[topic_index] = self.read_commands(message, topic_index)
        self._taken_s[topic_index] = now_s

    def clear_commands(self) -> None:
        """Discard all stored commands, so that they are not applied to a later step."""
        self._parts: list[NDArray[np.float64] | None] = [None] * len(self._messages)
        self._taken_s = [-np.inf] * len(self._messages)

    @property
    def newest_command(self) -> NDArray[np.float64] | None:
        """The newest values of all A actuators (A,), in the unit of the action.

        It is None until a message has arrived on every command topic.
        """
        parts = [part for part in self._parts if part is not None]
        return np.concatenate(parts) if len(parts) == len(self._parts) else None

    @property
    def last_command_time_s(self) -> float:
        """The time in seconds at which `newest_command` was received.

        If its parts came on several topics, it is the time of the oldest part. It is -inf until a
        message has arrived on every command topic.
        """
        return min(self._taken_s)

    def make_action(self, commands: NDArray[np.float64]) -> Any:
        """Convert a command to an action of the environment, clipped to its action space.

        Args:
            commands: The command (A,) in the unit of the action. For a choice among n options (a
                Discrete space) it has either n numbers, of which the largest wins, or a single
                number, the index of the option.
        """
        if isinstance(self._space, gymnasium.spaces.Discrete) and len(commands) == 1:
            return int(min(max(round(commands[0]), 0), self._space.n - 1) + self._space.start)
        return self._actions.from_own_units(commands)

    def _check_actuator_count_and_store_action_conversion(
        self, actuator_count: int, simulation: Simulation
    ) -> None:
        """Check that the simulation YAML has as many actuators as the action space needs.

        The conversion of commands to actions of this space is stored for `make_action`.
        """
        try:
            self._actions = make_action_conversion(self._space)
        except ValueError as error:
            kind = type(self._space).__name__
            raise WiringError(simulation.file, "environment", kind, str(error)) from None
        wanted = [len(self._actions.names)]
        if isinstance(self._space, gymnasium.spaces.Discrete):
            wanted = sorted({1, *wanted})
        if actuator_count not in wanted:
            allowed = f"{' or '.join(map(str, wanted))} actuators, as the environment's action has"
            key = "command.actuators" if len(self._messages) == 1 else "command"
            raise WiringError(simulation.file, key, actuator_count, allowed)
