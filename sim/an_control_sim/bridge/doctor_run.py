"""Runs a simulated robot under a policy in this process, and records it for the wiring doctor.

The doctor looks for mistakes in a wiring, the YAML file that connects topics to a policy. Therefore
the robot's messages are converted by the wiring as in the policy node, but they are passed
directly, without topics and clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from an_control.commissioning.doctor import Recording
from an_control.commissioning.doctor.recorder import ReadingsRecorder
from an_control.control.controller import Controller
from an_control.disturbance import derive_episode_seed
from an_control.wiring import CommandConfig, CommandMessage
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import load_simulation


def record_simulation_and_returns(
    controller: Controller, simulation: str | Path, seconds: float, seed: int = 0
) -> tuple[Recording, list[float]]:
    """Run a simulated robot under a controller, and record its readings and actions.

    Args:
        controller: The controller, with the wiring and the model that the doctor examines.
        simulation: The path of the robot's simulation YAML.
        seconds: The simulated time in seconds to record, in as many episodes as are needed.
        seed: The number from which the seeds of the episodes are derived.

    Returns:
        The recording, and the return (sum of rewards) of each episode that was played to its end.

    Raises:
        WiringError: The simulation YAML does not fit its environment, or the wiring does not fit
            the robot's messages.
    """
    robot = SimulatedRobot(load_simulation(simulation))
    recorder = ReadingsRecorder(controller.wiring, controller.acting.policy.model)
    step_ns = robot.simulation.step_ns
    ticks = max(1, round(seconds / robot.simulation.step_s))
    sources = [
        (
            sensor_topic,
            [one.name for one in controller.wiring.sources if one.topic == sensor_topic.topic],
        )
        for sensor_topic in robot.sensor_topics
    ]
    now_ns, episode, returns = 0, 0, []
    try:
        while len(recorder) < ticks:
            robot.reset(derive_episode_seed(seed, episode))
            controller.reset()
            controller.gate.last.forget_command()
            controller.start()
            recorder.mark_gap()
            total = 0.0
            while not robot.over and len(recorder) < ticks:
                now_ns += step_ns
                robot.fill_messages(now_ns)
                for sensor_topic, names in sources:
                    for name in names:
                        controller.table.store_message(name, sensor_topic.message, now_ns, now_ns)
                        recorder.table.store_message(name, sensor_topic.message, now_ns, now_ns)
                controller.tick(now_ns, now_ns)
                sent = controller.compute_command(None)
                controller.gate.last.record(sent, now_ns)
                pass_command_to_robot(
                    controller.wiring.command, controller.messages, robot, sent, now_ns
                )
                recorder.add_tick(controller.acting.convert_to_action(sent), now_ns, now_ns)
                answer = robot.commands.newest_command
                robot.step(robot.commands.safe if answer is None else answer)
                total += robot.reward
            if robot.over:
                returns.append(total)
            episode += 1
    finally:
        robot.close()
    return recorder.make_recording(), returns


def pass_command_to_robot(
    command: CommandConfig,
    messages: Sequence[CommandMessage],
    robot: SimulatedRobot,
    values: np.ndarray,
    stamp_ns: int,
) -> None:
    """Pass a command to a simulated robot in ROS messages, but without topics.

    Args:
        command: The command section of the wiring.
        messages: The message objects into which the command is written, one for each topic.
        robot: The robot, which stores the command for its next step.
        values: The command (A,) in physical units.
        stamp_ns: The stamp of the messages.
    """
    topics = {
        topic: number for number, (topic, _) in enumerate(robot.commands.topics_and_message_classes)
    }
    robot.commands.clear_commands()
    for config, message, span in zip(
        command.messages, messages, command.message_slices, strict=True
    ):
        message.fill(values[span], stamp_ns)
        if config.topic in topics:
            robot.commands.store_commands(message.message, 0.0, topics[config.topic])
