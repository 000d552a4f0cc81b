"""Record episodes of the Ant under a policy node, to learn from.

Simulator and node work in one process and in lockstep, so that episodes are played as fast as the
processor allows. The node gets its messages by direct calls of its subscription callbacks, and its
recording is the same as that of a node that runs by itself.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np

from an_control.system.files import write_file
from an_control.system.share import find_share_path

EPISODE_TICKS = 1000
STEP_NS = 16_500_000
SPIN_EVERY = 100
"""Number of ticks (control steps) between two calls of the node's executor, which runs timers."""


def record_noisy_ant_episodes(
    folder: Path, model: Path, episodes: int, seed: int, max_noise_sd: float
) -> None:
    """Record a ROS bag for training: episodes of the simulated Ant under a policy node.

    The robot gets the recorded actions (-1..1) plus noise. In each episode the noise has another
    standard deviation, chosen at random up to `max_noise_sd`.
    """
    from rclpy.parameter import Parameter

    from an_control.ros.node import PolicyNode
    from an_control_sim.process import initialise_ros

    unfinished = folder.parent / f"{folder.name}.unfinished"
    for old in folder, unfinished:
        shutil.rmtree(old, ignore_errors=True)
    values: dict[str, Any] = {
        "wiring": str(find_share_path("config/ant.yaml")),
        "model": str(model),
        "mode": "lockstep",
        "monitor": "off",
        "record": str(unfinished),
        "record_split_s": 0.0,
        "record_max_mb": 0.0,
    }
    with initialise_ros(["--ros-args", "--log-level", "fatal"]):
        node = PolicyNode(namespace="/ant")
        node.set_parameters([Parameter(name, value=value) for name, value in values.items()])
        node.trigger_configure()
        node.trigger_activate()
        drive = AntDrive(node, max_noise_sd)
        try:
            returns = [drive.play_episode(seed + number) for number in range(episodes)]
        finally:
            drive.close()
            node.destroy_node()
    (bag,) = unfinished.iterdir()
    bag.rename(folder)
    unfinished.rmdir()
    about = {"model": model.name, "seed": seed, "push": max_noise_sd, "returns": returns}
    write_file(folder.with_suffix(".json"), json.dumps(about, indent=1) + "\n")
    print(f"{episodes} episodes, mean return {sum(returns) / episodes:.0f}: {folder}")


class AntDrive:
    """A simulated Ant that plays episodes under a policy node in the same process.

    Args:
        node: The policy node, which must be active and in lockstep mode.
        max_noise_sd: Maximum standard deviation of the noise on the actions; see
            `record_noisy_ant_episodes`.
    """

    def __init__(self, node: Any, max_noise_sd: float) -> None:
        from rclpy.executors import SingleThreadedExecutor
        from sensor_msgs.msg import JointState

        from an_control_sim.bridge.robot import SimulatedRobot
        from an_control_sim.bridge.simulation_file import load_simulation

        self._node, self._push = node, max_noise_sd
        self._executor = SingleThreadedExecutor(context=node.context)
        self._executor.add_node(node)
        self._robot = SimulatedRobot(load_simulation(find_share_path("config/ant_sim.yaml")))
        wiring = node._get_configured_loop().controller.wiring
        self._command = JointState(name=list(wiring.command.names))
        self._limits = np.array([one.scale for one in wiring.command.actuators])
        self._stamp_ns = 10**18

    def play_episode(self, seed: int) -> float:
        """Play an episode that depends only on the seed, and return the sum of its rewards."""
        from rclpy.serialization import deserialize_message, serialize_message

        rng = np.random.default_rng(seed)
        noise = self._push * rng.random() * self._limits
        self._robot.reset(seed)
        reset = next(s for s in self._node.services if s.service_name.endswith("/reset_state"))
        reset.callback(reset.srv_type.Request(), reset.srv_type.Response())
        total = 0.0
        for tick in range(EPISODE_TICKS):
            if not tick % SPIN_EVERY:
                self._executor.spin_once(timeout_sec=0.0)
            self._stamp_ns += STEP_NS
            self._robot.fill_sensor_messages(self._stamp_ns)
            callbacks: dict[str, Any] = {
                one.topic_name: one.callback for one in self._node.subscriptions
            }
            for sensor in self._robot.sensor_topics:
                # The recorder keeps messages for some ticks, and the robot fills them again.
                copied = deserialize_message(
                    serialize_message(sensor.message), type(sensor.message)
                )
                callbacks[f"{self._node.get_namespace()}/{sensor.topic}"](copied)
            sent = self._node.last_command
            if sent is not None:
                self._command.effort = (sent + noise * rng.standard_normal(sent.shape)).tolist()
                self._robot.step(self._robot.commands.read_commands(self._command))
                total += self._robot.reward
            if self._robot.over:
                break
        return total

    def close(self) -> None:
        """Release the executor and the robot; the node is not destroyed."""
        self._executor.remove_node(self._node)
        self._executor.shutdown()
        self._robot.close()
