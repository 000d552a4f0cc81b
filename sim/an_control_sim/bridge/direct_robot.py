"""A simulated robot that is wired to a policy directly, without topics, processes and clock.

Its messages are converted by the wiring as in the policy node.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from an_control.wiring import ChannelTable, CommandMessage, Wiring
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import Simulation


class DirectRobot:
    """A simulated robot whose readings are stored in channel tables, and which takes commands.

    Args:
        simulation: The content of the robot's simulation YAML.
        wiring: The wiring, by whose topics readings and commands are passed.
        messages: The message objects that carry a command, one for each command topic.

    Raises:
        WiringError: The simulation YAML does not fit its environment.
    """

    def __init__(
        self, simulation: Simulation, wiring: Wiring, messages: Sequence[CommandMessage]
    ) -> None:
        self.robot = SimulatedRobot(simulation)
        command, robot = wiring.command, self.robot
        topics = {
            topic: index
            for index, (topic, _) in enumerate(robot.commands.topics_and_message_classes)
        }
        self._commands = [
            (topics.get(config.topic), message, span)
            for config, message, span in zip(
                command.messages, messages, command.message_slices, strict=True
            )
        ]
        self._sources = [
            (sensor, [one.name for one in wiring.sources if one.topic == sensor.topic])
            for sensor in robot.sensor_topics
        ]
        self.now_ns = 0
        """The simulated time, which also is the stamp of the newest messages."""

    def store_readings_of_next_step(self, *tables: ChannelTable) -> None:
        """Advance the time by one step, and store the robot's readings in channel tables."""
        self.now_ns += self.robot.simulation.step_ns
        self.robot.fill_messages(self.now_ns)
        for sensor, names in self._sources:
            for name in names:
                for table in tables:
                    table.store_message(name, sensor.message, self.now_ns, self.now_ns)

    def step(self, values: np.ndarray) -> None:
        """Advance the simulation by one step under a command.

        Topics that the robot does not subscribe to are left out. If the wiring lacks a topic that
        the robot subscribes to, the robot gets its safe command.

        Args:
            values: The command (A,) in physical units, in the wiring's order.
        """
        commands = self.robot.commands
        commands.clear_commands()
        for index, message, span in self._commands:
            message.fill(values[span], self.now_ns)
            if index is not None:
                commands.store_commands(message.message, 0.0, index)
        newest = commands.newest_command
        self.robot.step(commands.safe if newest is None else newest)
