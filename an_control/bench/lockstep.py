"""Measure steps per second in lockstep: the simulator here, a node in a second process.

In lockstep the simulator and the node wait for each other at every step. The node is the policy
node or a stub, which receives all messages of a step and answers once.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from std_srvs.srv import Trigger

from an_control.ros.graph import QuietNode
from an_control.system.interrupts import run_child_process
from an_control.system.share import find_share_path
from an_control.wiring import CommandMessage
from an_control.wiring.messages import import_message_class, make_stamp_reader
from an_control_sim.bridge.bridge import Bridge
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import Simulation, load_simulation
from an_control_sim.process import (
    RELIABLE,
    SLICE_S,
    catch_signals,
    initialise_ros,
    initialise_ros_and_create_node,
    make_events_executor,
)

START_S = 60.0
"""Seconds to wait until the node answers."""
CALLS = 1000
"""Number of calls of which the mean duration is measured."""


class EchoNode(QuietNode):
    """A node that answers every step of a simulation with commands of 0, in place of a policy node.

    Args:
        simulation: The simulation whose messages the node answers.
        **node_options: Keyword arguments of rclpy's Node.
    """

    def __init__(self, simulation: Simulation, **node_options: Any) -> None:
        super().__init__("policy", **node_options)
        command = simulation.command
        self._replies = [
            CommandMessage(
                one, import_message_class(one.type), import_message_class, simulation.file, key
            )
            for one, key in zip(
                command.messages, map(command.format_message_key, count()), strict=False
            )
        ]
        self._publishers_of_replies = [
            self.create_publisher(type(one.message), one.topic, RELIABLE) for one in self._replies
        ]
        self._zeros = [np.zeros(len(one.actuators)) for one in command.messages]
        self._stamp_ns: int | None = None
        self._heard: set[str] = set()
        self._sources = {one.topic for one in simulation.publish}
        for one in simulation.publish:
            kind = import_message_class(one.type)
            self.create_subscription(
                kind, one.topic, self._make_message_callback(one.topic, kind), RELIABLE
            )
        self.create_service(Trigger, "~/reset_state", self._on_reset)

    def _make_message_callback(self, topic: str, kind: Any) -> Callable[[Any], None]:
        """Return a callback for a topic, which sends the reply after a step's last message."""
        stamp_of = make_stamp_reader(kind)

        def receive_message(message: Any) -> None:
            """Count a message of this topic; answer the step once every topic has had one."""
            self._stamp_ns = stamp_of(message) or self._stamp_ns
            self._heard.add(topic)
            if self._heard == self._sources:
                self._heard.clear()
                self._send_replies()

        return receive_message

    def _send_replies(self) -> None:
        """Publish all command messages with values of 0 and the time stamp of the present step."""
        for reply, zeros, publisher in zip(
            self._replies, self._zeros, self._publishers_of_replies, strict=True
        ):
            reply.fill(zeros, self._stamp_ns)
            publisher.publish(reply.message)

    def _on_reset(self, request: Any, response: Any) -> Any:
        """Answer a call of the service `reset_state`: forget the messages of the present step."""
        self._heard.clear()
        response.success = True
        return response


def measure_lockstep_speed(
    simulation: str | Path | None = None,
    *,
    steps: int = 3000,
    node_command_line: Sequence[str] | None = None,
) -> dict[str, float]:
    """Measure the speed of a simulator that waits for the command of a node in each step.

    The simulator runs in this process, the node in another one. They exchange ROS messages. rclpy
    must not be initialised yet.

    Args:
        simulation: Path of a simulation YAML file; by default the file of the Ant.
        steps: Number of steps to measure.
        node_command_line: Command line that starts a node named `policy`; None starts an
            `EchoNode`.

    Returns:
        A mapping from name to figure. "steps_per_s" is the rate, and "step_us" the time of one step
        in microseconds. "environment_us" and "messages_us" are the microseconds that the
        environment and the conversion of messages take, measured in this process without ROS.
        "latency_p50_us" and "latency_p99_us" are the median and the 99th percentile of the
        microseconds from publishing the sensor messages to the command. "timeouts" is the number of
        steps without a command in time.
    """
    path = Path(simulation or find_share_path("config/ant_sim.yaml"))
    command = node_command_line or [sys.executable, "-m", "an_control.bench.lockstep", str(path)]
    # Jazzy's ROS graph keeps a node that was dropped without being destroyed.
    with initialise_ros_and_create_node("simulator", "") as simulator, run_child_process(command):
        robot = SimulatedRobot(load_simulation(path))
        bridge = Bridge(simulator, robot, start_timeout_s=START_S)
        try:
            return _measure_step_times(bridge, steps)
        finally:
            bridge.close()


def _measure_step_times(bridge: Bridge, steps: int) -> dict[str, float]:
    """Run steps in lockstep, and return the figures that `measure_lockstep_speed` describes."""
    bridge.wait_for_policy()
    bridge.start_episode(0, 0)
    robot = bridge.robot
    for _ in range(steps // 10):
        _reset_if_episode_over_and_step(bridge, bridge.step)
    bridge.latency_s.clear()
    timeouts, begin_s = bridge.timeouts, time.perf_counter()
    for _ in range(steps):
        _reset_if_episode_over_and_step(bridge, bridge.step)
    wall_s = time.perf_counter() - begin_s
    latency_s = np.array(bridge.latency_s)

    return {
        "steps_per_s": steps / wall_s,
        "step_us": 1e6 * wall_s / steps,
        "latency_p50_us": 1e6 * float(np.quantile(latency_s, 0.5)),
        "latency_p99_us": 1e6 * float(np.quantile(latency_s, 0.99)),
        "environment_us": _measure_mean_call_time_us(
            lambda: _reset_if_episode_over_and_step(bridge, lambda: robot.step(robot.commands.safe))
        ),
        "messages_us": _measure_mean_call_time_us(lambda: robot.fill_sensor_messages(1)),
        "timeouts": float(bridge.timeouts - timeouts),
    }


def _reset_if_episode_over_and_step(bridge: Bridge, step: Callable[[], None]) -> None:
    """Make one step of the simulation; if the episode has ended, reset the robot first."""
    if bridge.robot.over:
        bridge.robot.reset(0)
    step()


def _measure_mean_call_time_us(call: Callable[[], None]) -> float:
    """Return the mean duration of a function's call in microseconds."""
    begin_s = time.perf_counter()
    for _ in range(CALLS):
        call()
    return 1e6 * (time.perf_counter() - begin_s) / CALLS


def main() -> int:
    """Run an `EchoNode`, which answers a simulation with commands of 0, until it is stopped.

    Usage: ``python -m an_control.bench.lockstep SIMULATION``, where SIMULATION is the path of a
    simulation file (YAML).
    """
    with catch_signals() as stopped, initialise_ros():
        executor = make_events_executor(rclpy.get_default_context())
        executor.add_node(EchoNode(load_simulation(sys.argv[1])))
        while not stopped():
            executor.spin_once(timeout_sec=SLICE_S)
    return 0


if __name__ == "__main__":
    sys.exit(main())
