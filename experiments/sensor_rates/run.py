"""Measure how a policy node's commands depend on the rate of the sensors.

The figures are the rate of the commands and their largest change.

    python -m experiments sensor_rates [--hz 25 45 100] [--seconds 10] [--json FILE]

Starts the node as a process with a wiring of six joints and a random model at 50 Hz, publishes its
joint states at each rate, and measures its commands by this process's clock.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

RATE_HZ, MAX_RATE = 50.0, 0.5
SETTLE_S = 3.0
"""Seconds after a change of the sensors' rate that are not measured; in a short run a third of
it."""
JOINTS = tuple(f"j{number}" for number in range(6))
WIRING = f"""
an_control_wiring: 1
robot: arm
rate_hz: {RATE_HZ:g}
min_present_share: 0.5
sources:
  joints: {{topic: joint_states, type: sensor_msgs/msg/JointState, max_age_s: 0.5}}
channels:
  "*.position": {{source: joints, field: "position[*]"}}
  "*.velocity": {{source: joints, field: "velocity[*]"}}
command:
  topic: commands
  type: std_msgs/msg/Float64MultiArray
  field: data
  actuators:
""" + "".join(
    f"    {joint}: {{limits: [-1, 1], max_rate: {MAX_RATE}, safe: 0.0}}\n" for joint in JOINTS
)


class Arm:
    """A stand-in for a robot arm, which publishes joint states and stores received commands."""

    def __init__(self) -> None:
        import rclpy
        from rclpy.qos import QoSProfile
        from sensor_msgs.msg import JointState
        from std_msgs.msg import Float64MultiArray

        self._rclpy, self._type = rclpy, JointState
        rclpy.init()
        self._node = rclpy.create_node("arm")
        self._joints = self._node.create_publisher(JointState, "joint_states", 10)
        self.heard: list[tuple[float, list[float]]] = []
        self._node.create_subscription(
            Float64MultiArray, "commands", self._store_command, QoSProfile(depth=1000)
        )

    def _store_command(self, message: Any) -> None:
        """Store a received command with its time of arrival."""
        self.heard.append((time.monotonic(), list(message.data)))

    def publish_joint_states_at_rate(self, hz: float, seconds: float) -> None:
        """Publish joint states at a rate for some seconds, and store the commands that arrive."""
        self.heard.clear()
        begin_s = next_s = time.monotonic()
        while (now_s := time.monotonic()) < begin_s + seconds:
            if now_s >= next_s:
                angle = 3.0 * now_s + np.arange(float(len(JOINTS)))
                message = self._type(
                    name=list(JOINTS),
                    position=array("d", np.sin(angle)),
                    velocity=array("d", np.cos(angle)),
                )
                message.header.stamp = self._node.get_clock().now().to_msg()
                self._joints.publish(message)
                next_s += 1.0 / hz
            wait_s = min(0.001, next_s - time.monotonic())
            self._rclpy.spin_once(self._node, timeout_sec=max(0.0, wait_s))

    def wait_for_command(self) -> None:
        """Publish joint states until the policy node sends a command."""
        end_s = time.monotonic() + 60.0
        while not self.heard:
            if time.monotonic() > end_s:
                raise TimeoutError("the policy node sent no command within a minute")
            self.publish_joint_states_at_rate(RATE_HZ, 0.5)

    def close(self) -> None:
        """Destroy the robot's node."""
        self._node.destroy_node()
        self._rclpy.shutdown()


def summarise_command_timing(
    hz: float, commands: list[tuple[float, list[float]]], settle_s: float
) -> dict[str, float]:
    """Return figures about received commands: their rate, gaps, and largest change of a value.

    Args:
        hz: The rate of the sensors, which is copied to the result.
        commands: For each command its time of arrival in seconds and its values.
        settle_s: Commands of the first `settle_s` seconds are left out.
    """
    begin_s = commands[0][0] + settle_s
    times_s = np.array([at for at, _ in commands if at >= begin_s])
    values = np.array([one for at, one in commands if at >= begin_s])
    counts = [
        np.sum((times_s >= at) & (times_s < at + 2.0)) for at in times_s if at + 2.0 < times_s[-1]
    ]
    change = 0.0
    for at, value in zip(times_s, values, strict=True):
        within = (times_s >= at) & (times_s <= at + 1.0)
        change = max(change, float(np.abs(values[within] - value).max()))
    gaps = np.diff(times_s) * RATE_HZ
    return {
        "sensor_hz": hz,
        "commands_per_s": (len(times_s) - 1) / (times_s[-1] - times_s[0]),
        "fewest_in_2_s": int(min(counts, default=0)),
        "most_in_2_s": int(max(counts, default=0)),
        "shortest_gap_periods": float(gaps.min()),
        "longest_gap_periods": float(gaps.max()),
        "change_in_a_second_by_max_rate": change / MAX_RATE,
    }


def measure_commands_by_sensor_rate(
    rates_hz: list[float], seconds: float
) -> list[dict[str, float]]:
    """Measure a policy node's commands at several rates of the sensors; return the figures."""
    from an_control.policy import AttentionSizes, write_model
    from an_control.policy.random_model import make_random_model
    from an_control.policy.task import Task

    sizes = AttentionSizes(actions=6, neuron=4, queries=6, key=3, inputs=["value"], head=[5])
    with tempfile.TemporaryDirectory() as folder:
        wiring, model = Path(folder) / "wiring.yaml", Path(folder) / "model.safetensors"
        wiring.write_text(WIRING)
        write_model(
            model, make_random_model(sizes, seed=1, gain=4.0, task=Task(step_s=1.0 / RATE_HZ))
        )
        settings = {"wiring": wiring, "model": model, "autostart": "true", "engine": "numpy"}
        words = [word for name, value in settings.items() for word in ("-p", f"{name}:={value}")]
        arm = Arm()
        node = subprocess.Popen([sys.executable, "-m", "an_control.ros.node", "--ros-args", *words])
        rows = []
        try:
            arm.wait_for_command()
            for hz in rates_hz:
                arm.publish_joint_states_at_rate(hz, seconds)
                rows.append(summarise_command_timing(hz, arm.heard, min(SETTLE_S, seconds / 3)))
                print(" ".join(f"{name} {value:.4g}" for name, value in rows[-1].items()))
        finally:
            node.send_signal(signal.SIGINT)
            node.wait(10.0)
            arm.close()
    return rows


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure how a policy node's commands depend on the sensors' rate; return the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--hz", type=float, nargs="+", default=[25, 33, 45, 60, 100, 500])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    rows = measure_commands_by_sensor_rate(options.hz, options.seconds)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")
    return 0
