"""Moves the actuators of a simulated robot one at a time, in this process, and records it."""

from __future__ import annotations

from pathlib import Path

from an_control.commissioning.motion.run import MotionRun
from an_control_sim.bridge.direct_robot import DirectRobot
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
    direct = DirectRobot(load_simulation(simulation), run.wiring, run.messages)
    robot = direct.robot
    try:
        robot.reset(seed)
        while not run.is_over:
            direct.store_readings_of_next_step(run.table)
            run.start_tick(direct.now_ns, direct.now_ns)
            values = run.make_last_command() if run.is_over else run.compute_command(None)
            run.gate.last.record(values, direct.now_ns)
            direct.step(values)
            if robot.terminated and not run.is_over:
                run.stop_early("the simulated episode has ended")
    finally:
        robot.close()
    return direct.now_ns / 1e9
