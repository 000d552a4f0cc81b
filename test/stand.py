"""A policy node and the robot around it in one process, driven on one thread and without sleeps."""

from __future__ import annotations

import gc
import threading
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import rclpy
from geometry_msgs.msg import Vector3Stamped
from lifecycle_msgs.srv import GetState
from rclpy.context import Context
from rclpy.node import Node
from rclpy.parameter import Parameter
from rclpy.qos import DurabilityPolicy, QoSProfile
from rclpy.signals import SignalHandlerOptions
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

import an_control
from an_control.policy import AttentionSizes, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control.ros.graph import QuietNode
from an_control.ros.node import PolicyNode, make_executor
from an_control.ros.outputs import set_stamp

STEP_NS = 10_000_000
LIMIT_S = 100.0
REPLY_S = 5.0
SAFE = [0.5, -0.25]
LIMITS = 8.0
SCALE = 10.0
JOINTS = ("left", "right")
IDS = ("left.position", "right.position", "tilt.x", "tilt.y")

WIRING = """
an_control_wiring: 1
robot: tiny
rate_hz: 100.0
min_present_share: 0.5
sources:
  joints: {topic: joint_states, type: sensor_msgs/msg/JointState, max_age_s: 0.05}
  tilt: {topic: tilt, type: geometry_msgs/msg/Vector3Stamped, max_age_s: 0.05}
channels:
  left.position: {source: joints, field: "position[left]"}
  right.position: {source: joints, field: "position[right]"}
  tilt.x: {source: tilt, field: vector.x}
  tilt.y: {source: tilt, field: vector.y}
command:
  topic: commands
  type: sensor_msgs/msg/JointState
  field: effort
  actuators:
    left: {scale: 10.0, limits: [-8, 8], max_rate: 0, safe: 0.5}
    right: {scale: 10.0, limits: [-8, 8], max_rate: 0, safe: -0.25}
"""


def tiny_model(path: Path, actions: int = 2, step_s: float = 0.01) -> Path:
    sizes = AttentionSizes(actions=actions, neuron=4, queries=6, key=3, inputs=["value"], head=[5])
    write_model(path, make_random_model(sizes, seed=1, gain=4.0, task=Task(step_s=step_s)))
    return path


LATCHED = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)


class Stand:
    """The node under test, the robot's side of its topics, and the executor of both."""

    def __init__(self, folder: Path, executor: str = "single_threaded") -> None:
        self.context = Context()
        rclpy.init(args=[], context=self.context, signal_handler_options=SignalHandlerOptions.NO)
        self.executor: Any = make_executor(executor, self.context)
        self.wiring = folder / "wiring.yaml"
        self.wiring.write_text(WIRING)
        self.model = tiny_model(folder / "model.safetensors")
        self.node: Any = None
        self.peer = self.add(QuietNode("robot", context=self.context))
        self.joints = self.peer.create_publisher(JointState, "joint_states", 10)
        self.tilt = self.peer.create_publisher(Vector3Stamped, "tilt", 10)
        self.commands: list[JointState] = []
        qos = QoSProfile(depth=1000)
        self.peer.create_subscription(JointState, "commands", self.commands.append, qos)

    def add(self, node: Node) -> Node:
        self.executor.add_node(node)
        return node

    def start(self, *, activate: bool = True, options: Any = None, **parameters: Any) -> PolicyNode:
        """The policy node, configured (and activated)."""
        values = {"wiring": str(self.wiring), "model": str(self.model), "engine": "numpy"}
        values |= {"mode": "lockstep", "lockstep_wait_s": 5.0, "ramp_s": 0.0, "watchdog_s": 0.0}
        values |= {"thread_priority": 0}
        values |= parameters
        overrides = [Parameter(name, value=value) for name, value in values.items()]
        options = {"context": self.context, "parameter_overrides": overrides} | (options or {})
        self.node = self.add(PolicyNode(**options))
        if activate:
            assert self.node.trigger_configure().to_label() == "transition_success"
            assert self.node.trigger_activate().to_label() == "transition_success"
            self.connect()
        return self.node

    def connect(self) -> None:
        """Wait until the robot and the node hear each other."""
        self.until(lambda: self.joints.get_subscription_count() == 1, "joint_states matched")
        self.until(lambda: self.tilt.get_subscription_count() == 1, "tilt matched")
        self.until(lambda: self.peer.count_publishers("commands") == 1, "commands matched")

    def until(self, condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
        """Spin until the condition holds."""
        end_s = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < end_s, f"waited {limit_s:g} s in vain: {what}"
            self.executor.spin_once(timeout_sec=0.02)

    def run_beside(self, run: Callable[[], Any], limit_s: float = 90.0) -> Any:
        """What `run` returns, such as an ended program, while the node runs here."""
        ended: list[Any] = []
        thread = threading.Thread(target=lambda: ended.append(run()))
        thread.start()
        self.until(lambda: ended, "the program's end", limit_s)
        thread.join()
        return ended[0]

    def call(self, type_: Any, name: str, request: Any = None) -> Any:
        """A service's reply; asked again, since the first reply to a new client can be lost."""
        client = self.peer.create_client(type_, name)
        self.until(client.service_is_ready, f"service {name}")
        end_s = time.monotonic() + LIMIT_S
        while time.monotonic() < end_s:
            future = client.call_async(request or type_.Request())
            patience_s = time.monotonic() + REPLY_S
            while not future.done() and time.monotonic() < patience_s:
                self.executor.spin_once(timeout_sec=0.02)
            if future.done():
                self.peer.destroy_client(client)
                return future.result()
        raise AssertionError(f"no reply from {name}")

    def state(self) -> str:
        return str(self.call(GetState, "policy/get_state").current_state.label)

    def reset(self) -> Trigger.Response:
        return self.call(Trigger, "policy/reset_state")

    def send_joints(self, stamp_ns: int, positions: Any, names: Any = JOINTS) -> None:
        message = JointState(name=list(names), position=array("d", map(float, positions)))
        set_stamp(message.header.stamp, stamp_ns)
        self.joints.publish(message)

    def send_tilt(self, stamp_ns: int, x: float, y: float) -> None:
        message = Vector3Stamped()
        message.vector.x, message.vector.y = float(x), float(y)
        set_stamp(message.header.stamp, stamp_ns)
        self.tilt.publish(message)

    def send(self, step: int, readings: Any = None) -> int:
        """All readings of a step; its stamp."""
        stamp_ns = stamp_of(step)
        left, right, x, y = readings_of(step) if readings is None else readings
        self.send_joints(stamp_ns, (left, right))
        self.send_tilt(stamp_ns, x, y)
        return stamp_ns

    def step(self, step: int, readings: Any = None) -> JointState:
        """Send a step, get its command."""
        before = len(self.commands)
        stamp_ns = self.send(step, readings)
        self.until(lambda: len(self.commands) > before, f"the command of step {step}")
        assert len(self.commands) == before + 1
        assert nanoseconds(self.commands[-1]) == stamp_ns
        return self.commands[-1]

    def answered(self, step: int, readings: Any = None) -> JointState:
        """Send a step and wait for a command with its stamp, whatever else is sent meanwhile."""
        stamp_ns = self.send(step, readings)

        def answers() -> list[JointState]:
            return [one for one in self.commands if nanoseconds(one) == stamp_ns]

        self.until(answers, f"the command of step {step}")
        return answers()[0]

    def watch(self, step: int) -> None:
        """Send a step to a node that does not command, and wait until its policy has seen it."""
        stamp_ns = self.send(step)
        controller = self.node._loop.controller
        self.until(lambda: controller.stepped_ns == stamp_ns, f"step {step} seen")

    def close(self) -> None:
        for node in list(self.executor.get_nodes()):
            self.executor.remove_node(node)
            node.destroy_node()
        del node
        self.executor.shutdown()
        rclpy.shutdown(context=self.context)
        self.node = self.executor = None
        # A lifecycle node's services hang in reference cycles; until they are collected the next
        # test would find them in the graph and wait for their replies.
        gc.collect()


class RosTime:
    """ROS time as the test makes it: a call is one period and one set of readings."""

    def __init__(self, stand: Stand, **parameters: Any) -> None:
        self._stand, self.step = stand, 0
        self._publisher = stand.peer.create_publisher(Clock, "/clock", 10)
        node = stand.start(activate=False, mode="rate", use_sim_time=True, **parameters)
        stand.until(self._publisher.get_subscription_count, "/clock matched")
        self.advance(0)
        assert node.trigger_configure().to_label() == "transition_success"
        assert node.trigger_activate().to_label() == "transition_success"
        stand.connect()

    def advance(self, periods: float) -> None:
        """Let time pass, and wait until the node knows."""
        self.step += periods
        now_ns = stamp_of(0) + round(self.step * STEP_NS)
        message = Clock()
        message.clock.sec, message.clock.nanosec = divmod(now_ns, 10**9)
        self._publisher.publish(message)
        clock = self._stand.node.get_clock()
        self._stand.until(lambda: clock.now().nanoseconds == now_ns, f"the clock at {self.step}")

    def __call__(self, step: int) -> None:
        """One period later, a set of readings; returns once the policy has stepped on it.

        The first set comes before the first tick without readings is due. Later, such a tick may
        have come just before the set, which then waits for the next one.
        """
        self.advance(1 if self.step else 0.5)
        controller = self._stand.node._loop.controller
        before, heard = controller.acting.wanted, self.messages()
        self._stand.send(step)
        self._stand.until(lambda: self.messages() == heard + 2, f"the readings of step {step}")
        self.until(lambda: controller.acting.wanted is not before)

    def until(self, condition: Callable[[], object]) -> None:
        """Let time pass until the condition holds."""
        while not condition():
            self.advance(0.5)
            self._stand.executor.spin_once(timeout_sec=0.02)

    def messages(self) -> int:
        """How many messages the node has received."""
        table = self._stand.node._loop.controller.table
        return sum(source.messages for source in table.list_source_statuses(0))


def stamp_of(step: int) -> int:
    return 1_000_000_000_000 + step * STEP_NS


def readings_of(step: int) -> np.ndarray:
    """(4,) the robot's readings at a step, in the order of IDS."""
    return np.sin(0.7 * step + np.arange(4.0))


def nanoseconds(message: Any) -> int:
    stamp = message.header.stamp
    return int(stamp.sec) * 1_000_000_000 + int(stamp.nanosec)


class Reference:
    """What the commands should be, computed without ROS: what was sent is the previous action."""

    def __init__(self, model: Path) -> None:
        self.policy = an_control.load_policy(model, engine="numpy")

    def __call__(self, readings: dict[str, float], sent: Any = None) -> list[float]:
        """The command for these readings; `sent`, where something else goes out instead."""
        wanted = self.policy.step(readings).astype(np.float64) * SCALE
        command = np.clip(wanted, -LIMITS, LIMITS) if sent is None else np.array(sent)
        if (command != wanted).any():
            self.policy.previous_action = command / SCALE
        return command.tolist()

    def step(self, step: int, sent: Any = None) -> list[float]:
        return self(dict(zip(IDS, readings_of(step), strict=True)), sent)

    def reset(self) -> None:
        self.policy.reset()
