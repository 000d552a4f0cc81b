"""Runs a simulated robot in this process, without topics and clock, for the doctor and the motion.

Its messages are converted by the wiring, the YAML file that connects topics to a policy, as in the
policy node.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from an_control.commissioning.doctor import Recording
from an_control.commissioning.doctor.recorder import ReadingsRecorder
from an_control.commissioning.motion.run import MotionRun
from an_control.control.controller import Controller
from an_control.disturbance import derive_episode_seed
from an_control.wiring import ChannelTable, CommandMessage, Wiring, WiringError
from an_control.wiring.checked_yaml import Description
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import Simulation, load_simulation


class DirectRobot:
    """A simulated robot that exchanges readings and commands by function calls, without ROS topics.

    Args:
        simulation: The content of the robot's simulation YAML.
        wiring: The content of the YAML file that says which topics and fields carry the readings
            and the command.
        messages: A message object for each command topic, which `CommandMessage` fills.

    Raises:
        WiringError: The simulation YAML does not fit its environment, or the simulation does not
            have the wiring's topics, types or actuators.
    """

    def __init__(
        self, simulation: Simulation, wiring: Wiring, messages: Sequence[CommandMessage]
    ) -> None:
        _check_topics(simulation, wiring)
        self.robot = SimulatedRobot(simulation)
        command, robot = wiring.command, self.robot
        topics = [topic for topic, _ in robot.commands.topics_and_message_classes]
        self._commands = [
            (topics.index(config.topic), message, span)
            for config, message, span in zip(
                command.messages, messages, command.message_slices, strict=True
            )
        ]
        for index, message, span in self._commands:
            message.fill(np.zeros(span.stop - span.start), 0)
            try:
                robot.commands.read_commands(message.message, index)
            except ValueError as error:
                robot.close()
                names = Description(", ".join(command.names[span]))
                allowed = f"the actuators of {simulation.file} ({error})"
                raise WiringError(wiring.file, "command.actuators", names, allowed) from error
        self._sources = [
            (sensor, [one.name for one in wiring.sources if one.topic == sensor.topic])
            for sensor in robot.sensor_topics
        ]
        self.now_ns = 0
        """The simulated time, which also is the stamp of the newest messages."""

    def store_readings_of_next_step(self, *tables: ChannelTable) -> None:
        """Advance the simulated clock by a step, and store the robot's readings in channel tables.

        The physics is not advanced; `step` does that.

        Args:
            *tables: Tables of the newest reading of each channel; each one gets all readings.
        """
        self.now_ns += self.robot.simulation.step_ns
        self.robot.fill_sensor_messages(self.now_ns)
        for sensor, names in self._sources:
            for name in names:
                for table in tables:
                    table.store_message(name, sensor.message, self.now_ns, self.now_ns)

    def step(self, values: np.ndarray) -> None:
        """Advance the physics by one step under a command.

        The wiring says on which topics the command is sent. If the wiring lacks one of the robot's
        command topics, the robot applies its safe command.

        Args:
            values: The command (A,) in physical units, in the wiring's order.
        """
        commands = self.robot.commands
        commands.clear_commands()
        for index, message, span in self._commands:
            message.fill(values[span], self.now_ns)
            commands.store_commands(message.message, 0.0, index)
        newest = commands.newest_command
        self.robot.step(commands.safe if newest is None else newest)


def _check_topics(simulation: Simulation, wiring: Wiring) -> None:
    """Check that the simulation publishes what the wiring reads, and takes what it sends.

    Otherwise the doctor would examine a robot that nobody drives, or that nobody reads.
    """
    published = {one.topic: one.type for one in simulation.publish}
    taken = {one.topic: one.type for one in simulation.command.messages}
    sources = [(f"sources.{one.name}", one.topic, one.type) for one in wiring.sources]
    keys = wiring.command.topic_keys
    commands = [(keys[one.topic], one.topic, one.type) for one in wiring.command.messages]
    for uses, verb, types in ((sources, "publishes", published), (commands, "takes", taken)):
        for key, topic, type_ in uses:
            if types.get(topic) != type_:
                known = ", ".join(f"{name} of {types[name]}" for name in types)
                allowed = f"what {simulation.file} {verb}: {known}"
                raise WiringError(wiring.file, key, Description(f"{topic} of {type_}"), allowed)


def run_and_record_simulated_robot(
    controller: Controller, simulation: str | Path, seconds: float
) -> tuple[Recording, list[float]]:
    """Let a controller drive a simulated robot, and record readings and actions for the doctor.

    The doctor is a tool that examines a recording for mistakes in the wiring.

    Args:
        controller: The controller, with the wiring and the model that the doctor examines.
        simulation: The path of the robot's simulation YAML.
        seconds: The simulated time in seconds to record, in as many episodes as are needed.

    Returns:
        The recording, and the return (sum of rewards) of each episode that was played to its end.

    Raises:
        WiringError: The simulation YAML does not fit its environment, or the wiring does not fit
            the robot's messages.
    """
    direct = DirectRobot(load_simulation(simulation), controller.wiring, controller.messages)
    robot = direct.robot
    recorder = ReadingsRecorder(controller.wiring, controller.acting.policy.model)
    ticks = max(1, round(seconds / robot.simulation.step_s))
    episode, returns = 0, []
    try:
        while len(recorder) < ticks:
            robot.reset(derive_episode_seed(0, episode))
            controller.reset()
            controller.gate.last.forget_command()
            controller.start()
            recorder.mark_gap_before_next_tick()
            total = 0.0
            while not robot.over and len(recorder) < ticks:
                direct.store_readings_of_next_step(controller.table, recorder.table)
                now_ns = direct.now_ns
                controller.decide(now_ns, now_ns)
                sent = controller.compute_command(None)
                controller.gate.last.record(sent, now_ns)
                recorder.add_tick(controller.acting.convert_to_action(sent), now_ns, now_ns)
                direct.step(sent)
                total += robot.reward
            if robot.over:
                returns.append(total)
            episode += 1
    finally:
        robot.close()
    return recorder.make_recording(), returns


def play_and_time_test_motion(run: MotionRun, simulation: str | Path, seed: int = 0) -> float:
    """Play a test motion on a simulated robot; return the simulated seconds that it took.

    The motion ends early if the simulated robot fails, for example by a fall.

    Args:
        run: The motion: it makes the commands and records the readings.
        simulation: The path of the robot's simulation YAML.
        seed: The seed of the episode.

    Raises:
        WiringError: The simulation YAML does not fit its environment, or the wiring does not fit
            the robot's messages.
    """
    direct = DirectRobot(load_simulation(simulation), run.wiring, run.messages)
    robot = direct.robot
    try:
        robot.reset(seed)
        while not run.is_over:
            direct.store_readings_of_next_step(run.table)
            run.start_tick(direct.now_ns, direct.now_ns)
            values = run.make_final_safe_command() if run.is_over else run.compute_command(None)
            run.gate.last.record(values, direct.now_ns)
            direct.step(values)
            if robot.terminated and not run.is_over:
                run.stop_early("the simulated episode has ended")
    finally:
        robot.close()
    return direct.now_ns / 1e9
