"""Runs a simulated robot under a policy in this process, and records it for the wiring doctor.

The doctor looks for mistakes in a wiring, the YAML file that connects topics to a policy.
"""

from __future__ import annotations

from pathlib import Path

from an_control.commissioning.doctor import Recording
from an_control.commissioning.doctor.recorder import ReadingsRecorder
from an_control.control.controller import Controller
from an_control.disturbance import derive_episode_seed
from an_control_sim.bridge.direct_robot import DirectRobot
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
    direct = DirectRobot(load_simulation(simulation), controller.wiring, controller.messages)
    robot = direct.robot
    recorder = ReadingsRecorder(controller.wiring, controller.acting.policy.model)
    ticks = max(1, round(seconds / robot.simulation.step_s))
    episode, returns = 0, []
    try:
        while len(recorder) < ticks:
            robot.reset(derive_episode_seed(seed, episode))
            controller.reset()
            controller.gate.last.forget_command()
            controller.start()
            recorder.mark_gap()
            total = 0.0
            while not robot.over and len(recorder) < ticks:
                direct.store_readings_of_next_step(controller.table, recorder.table)
                now_ns = direct.now_ns
                controller.tick(now_ns, now_ns)
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
