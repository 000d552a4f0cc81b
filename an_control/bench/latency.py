"""Measure the time from a sensor message to the command, beside that of a bare echo process.

The echo process and the policy node each run in a process of their own and get the same JointState
in turn, so that other load on the machine affects echo and node alike. The echo publishes the
message that it received. The policy node also reads the sensor channels from the message, runs the
policy and sends a command. It runs in lockstep, so that it answers each message at once.
"""

from __future__ import annotations

import array
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
import yaml
from rclpy.signals import SignalHandlerOptions
from sensor_msgs.msg import JointState

from an_control.monitor.forward_model import NETWORKS
from an_control.policy import AttentionSizes, Model, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.ros.graph import QuietNode
from an_control.ros.node import make_executor
from an_control.ros.outputs import set_stamp
from an_control.system.interrupts import run_child_process
from an_control_sim.envs.tasks import ANT_SIZES

CHANNELS = 28
STEP_NS = 16_500_000
WARM_UP = 50
START_S = 60.0
ANSWER_S = 2.0
EXECUTOR = "events"
ANSWER_TOPICS = {"echo": "echoed", "node": "joint_commands"}


def measure_latency(model: Path | None, seconds: float) -> dict[str, Any]:
    """Measure how long a policy node takes to answer a sensor message with a command.

    A second process, the echo, only sends each message back. It shows how much of this time ROS
    itself takes. rclpy must not be initialised yet.

    Args:
        model: Path of an attention_neuron model file; None for random weights.
        seconds: Duration of the measurement.

    Returns:
        A dict with three keys. "rows" has a row for the echo and one for the node, with the median
        and the 99th percentile of the time in microseconds. "ratio" is the node's median divided by
        that of the echo. "lost" is the number of messages without an answer.

    Raises:
        RuntimeError: A process does not answer.
    """
    os.environ.setdefault("ROS_AUTOMATIC_DISCOVERY_RANGE", "LOCALHOST")
    namespace = f"/an_control_bench_{os.getpid()}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        weights = make_random_model(ANT_SIZES) if model is None else read_model(model)
        write_model(folder / "model.safetensors", remove_task_and_monitor(weights))
        wiring = folder / "wiring.yaml"
        wiring.write_text(yaml.safe_dump(_make_wiring_content(weights)), encoding="utf-8")
        echo = [sys.executable, "-m", __name__, "--ros-args", "-r", f"__ns:={namespace}"]
        node = make_policy_node_command_line(wiring, folder / "model.safetensors", namespace)
        processes = [stack.enter_context(run_child_process(command)) for command in (echo, node)]
        rclpy.init(args=[], signal_handler_options=SignalHandlerOptions.NO)
        stack.callback(rclpy.try_shutdown)
        prober = _Prober(namespace)
        for path, process in zip(ANSWER_TOPICS, processes, strict=True):
            _wait_for_answer(prober, path, process)
        return _measure_node_and_echo_latency(prober, seconds)


def make_policy_node_command_line(wiring: Path, model: Path, namespace: str = "/") -> list[str]:
    """Return the command line that starts a policy node, which answers each message at once.

    The node runs in the mode "lockstep" and activates itself.

    Args:
        wiring: Path of the wiring file, which names the robot's topics.
        model: Path of the model file.
        namespace: ROS namespace of the node.
    """
    values = {
        "wiring": wiring,
        "model": model,
        "mode": "lockstep",
        "autostart": "true",
        "check_rate": "false",
        "executor": EXECUTOR,
    }
    parameters = [part for name, value in values.items() for part in ("-p", f"{name}:={value}")]
    remap = ["-r", f"__ns:={namespace}", "--log-level", "warn"]
    return [sys.executable, "-m", "an_control.ros.node", "--ros-args", *remap, *parameters]


class _Prober:
    """Sender of JointState messages that measures the time until the answer with the same stamp.

    Args:
        namespace: ROS namespace of the topics.
    """

    def __init__(self, namespace: str) -> None:
        self._node = QuietNode("prober", namespace=namespace)
        self._executor = make_executor(EXECUTOR, self._node.context)
        self._executor.add_node(self._node)
        self._message = JointState(name=[f"joint_{i}" for i in range(CHANNELS)])
        self._publishers = {
            path: self._node.create_publisher(JointState, f"{path}_states", 10)
            for path in ANSWER_TOPICS
        }
        for answer in ANSWER_TOPICS.values():
            self._node.create_subscription(JointState, answer, self._on_answer, 10)
        self._rng = np.random.default_rng(0)
        self._stamp_ns, self._answer_ns, self._answered_s = STEP_NS, 0, 0.0

    def _on_answer(self, message: JointState) -> None:
        """Store an answer's time stamp and arrival time, for which `measure_latency_s` waits."""
        self._answered_s = time.perf_counter()
        self._answer_ns = message.header.stamp.sec * 10**9 + message.header.stamp.nanosec

    def measure_latency_s(self, answerer: str, wait_s: float) -> float | None:
        """Publish a message, wait for the answer, and return the seconds until it came."""
        self._stamp_ns += STEP_NS
        set_stamp(self._message.header.stamp, self._stamp_ns)
        self._message.position = array.array("d", self._rng.standard_normal(CHANNELS))
        begin_s = time.perf_counter()
        self._publishers[answerer].publish(self._message)
        while self._answer_ns != self._stamp_ns:
            if time.perf_counter() - begin_s > wait_s:
                return None
            self._executor.spin_once(timeout_sec=wait_s)
        return self._answered_s - begin_s


def _measure_node_and_echo_latency(prober: _Prober, seconds: float) -> dict[str, Any]:
    """Send messages to the echo process and to the node in turn, and return the latencies."""
    taken_s: dict[str, list[float]] = {path: [] for path in ANSWER_TOPICS}
    lost = 0
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s or len(taken_s["node"]) < 2 * WARM_UP:
        for path, taken in taken_s.items():
            latency_s = prober.measure_latency_s(path, ANSWER_S)
            if latency_s is None:
                lost += 1
                if lost > WARM_UP:
                    raise RuntimeError(f"the {path} stopped answering")
            else:
                taken.append(latency_s)
    p50_us, p99_us = (
        {path: 1e6 * float(np.quantile(taken[WARM_UP:], q)) for path, taken in taken_s.items()}
        for q in (0.5, 0.99)
    )
    rows = [
        {"path": path, "p50_us": p50_us[path], "p99_us": p99_us[path]} for path in ANSWER_TOPICS
    ]
    return {"rows": rows, "ratio": p50_us["node"] / p50_us["echo"], "lost": lost}


def _wait_for_answer(prober: _Prober, answerer: str, process: subprocess.Popen[bytes]) -> None:
    """Send messages until the echo process or the node answers for the first time."""
    end_s = time.perf_counter() + START_S
    while prober.measure_latency_s(answerer, 0.1) is None:
        if process.poll() is not None:
            raise RuntimeError(f"the {answerer} ended with status {process.returncode}")
        if time.perf_counter() > end_s:
            raise RuntimeError(f"the {answerer} did not answer within {START_S:.0f} s")


def remove_task_and_monitor(model: Model) -> Model:
    """Return a model that has only the policy of another model, not its task and its monitor.

    Task and monitor need channels that the wiring of this measurement does not have.
    """
    arrays = {name: one for name, one in model.arrays.items() if not name.startswith(NETWORKS)}
    return Model(model.kind, model.sizes, arrays, trained=model.trained)


def _make_wiring_content(model: Model) -> dict[str, Any]:
    """Return the content of the wiring file with which the measured policy node runs.

    Its channels are the positions of `CHANNELS` (28) joints in one JointState message.
    """
    assert isinstance(model.sizes, AttentionSizes)
    message_type = "sensor_msgs/msg/JointState"
    return {
        "an_control_wiring": 1,
        "robot": "bench",
        "rate_hz": 1e9 / STEP_NS,
        "min_present_share": 0.5,
        "sources": {"joints": {"topic": "node_states", "type": message_type, "max_age_s": 0.0}},
        "channels": {
            f"joint_{i}": {"source": "joints", "field": f"position[joint_{i}]"}
            for i in range(CHANNELS)
        },
        "command": {
            "topic": ANSWER_TOPICS["node"],
            "type": message_type,
            "field": "effort",
            "actuators": {
                f"motor_{i}": {"limits": [-1.0, 1.0], "safe": 0.0}
                for i in range(model.sizes.actions)
            },
        },
    }


def main() -> int:
    """Run a ROS node that answers each JointState message with a copy of it, until interrupted.

    `measure_latency` starts it as `python -m an_control.bench.latency`, to compare the policy node
    with it.
    """
    stop: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda signum, frame: stop.append(signum))
    rclpy.init(signal_handler_options=SignalHandlerOptions.NO)
    node = QuietNode("echo")
    publisher = node.create_publisher(JointState, ANSWER_TOPICS["echo"], 10)
    node.create_subscription(JointState, "echo_states", publisher.publish, 10)
    executor = make_executor(EXECUTOR, node.context)
    executor.add_node(node)
    while not stop:
        executor.spin_once(timeout_sec=0.1)
    executor.shutdown()
    node.destroy_node()
    rclpy.try_shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
