"""Drive a simulated robot with a wiring and a model in one process, and record it for the doctor.

The robot's messages pass the wiring as in the policy node, without topics and without a clock.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from an_control.commissioning.doctor import Recording
from an_control.commissioning.doctor.recorder import ReadingsRecorder
from an_control.control.controller import Controller
from an_control.disturbance import episode_seed
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import load_simulation


def record_simulation(
    controller: Controller, simulation: str | Path, seconds: float, seed: int = 0
) -> tuple[Recording, list[float]]:
    """Drive a simulated robot and return a recording of it.

    Args:
        controller: Controller of the wiring and model that are checked.
        simulation: Path of the robot's simulation YAML.
        seconds: Simulated time, in as many episodes as it takes.
        seed: Seed of the episodes.

    Returns:
        The recording, and the returns of the complete episodes.

    Raises:
        WiringError: If the YAML does not fit its environment, or the wiring not its messages.
    """
    robot = SimulatedRobot(load_simulation(simulation))
    recorder = ReadingsRecorder(controller.wiring, controller.acting.policy.model)
    step_ns = robot.simulation.step_ns
    ticks = max(1, round(seconds / robot.simulation.step_s))
    sources = [
        (outlet, [one.name for one in controller.wiring.sources if one.topic == outlet.topic])
        for outlet in robot.outlets
    ]
    now_ns, episode, returns = 0, 0, []
    try:
        while len(recorder) < ticks:
            robot.reset(episode_seed(seed, episode))
            controller.reset()
            controller.start()
            recorder.start()
            total = 0.0
            while not robot.over and len(recorder) < ticks:
                now_ns += step_ns
                robot.fill(now_ns)
                for outlet, names in sources:
                    for name in names:
                        controller.table.store(name, outlet.message, now_ns, now_ns)
                        recorder.table.store(name, outlet.message, now_ns, now_ns)
                controller.tick(now_ns, now_ns, None)
                sent = controller.command(None)
                _command(controller, robot, sent, now_ns)
                recorder.add(controller.acting.action(sent), now_ns, now_ns)
                answer = robot.commands.newest
                robot.step(robot.commands.safe if answer is None else answer)
                total += robot.reward
            if robot.over:
                returns.append(total)
            episode += 1
    finally:
        robot.close()
    return recorder.make_recording(), returns


def _command(
    controller: Controller, robot: SimulatedRobot, values: np.ndarray, stamp_ns: int
) -> None:
    """Hand a command (A,) over as the messages that carry it."""
    command = controller.wiring.command
    topics = {topic: number for number, (topic, _) in enumerate(robot.commands.topics)}
    robot.commands.clear()
    for config, message, span in zip(
        command.messages, controller.messages, command.slices, strict=True
    ):
        message.fill(values[span], stamp_ns)
        if config.topic in topics:
            robot.commands.store(message.message, 0.0, topics[config.topic])
