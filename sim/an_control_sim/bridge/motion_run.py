"""Moves the actuators of a simulated robot one at a time, in this process, and records it.

The robot's messages are converted by the wiring as in the policy node, but they are passed
directly, without topics and clock.
"""

from __future__ import annotations

from pathlib import Path

from an_control.commissioning.motion.run import MotionRun
from an_control_sim.bridge.doctor_run import pass_command_to_robot
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import load_simulation


def move_and_time_simulated_robot(run: MotionRun, simulation: str | Path, seed: int = 0) -> float:
    """Run a motion on a simulated robot, and return the simulated seconds that it took.

    The motion is stopped early if the simulated episode ends, except by a time limit.

    Args:
        run: The run of the motion, which records the readings.
        simulation: The path of the robot's simulation YAML.
        seed: The seed of the episode.

    Raises:
        WiringError: The simulation YAML does not fit its environment, or the wiring does not fit
            the robot's messages.
    """
    robot = SimulatedRobot(load_simulation(simulation))
    step_ns = robot.simulation.step_ns
    sources = [
        (one, [source.name for source in run.wiring.sources if source.topic == one.topic])
        for one in robot.sensor_topics
    ]
    now_ns = 0
    try:
        robot.reset(seed)
        while not run.is_over:
            now_ns += step_ns
            robot.fill_messages(now_ns)
            for sensor_topic, names in sources:
                for name in names:
                    run.table.store_message(name, sensor_topic.message, now_ns, now_ns)
            run.start_tick(now_ns, now_ns)
            values = run.make_last_command() if run.is_over else run.compute_command(None)
            pass_command_to_robot(run.wiring.command, run.messages, robot, values, now_ns)
            run.gate.last.record(values, now_ns)
            answer = robot.commands.newest_command
            robot.step(robot.commands.safe if answer is None else answer)
            if robot.terminated and not run.is_over:
                run.stop_early("the simulated episode has ended")
    finally:
        robot.close()
    return now_ns / 1e9
