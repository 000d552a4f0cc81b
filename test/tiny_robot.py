"""A tiny environment, its simulation YAML, and a node that answers the bridge."""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium
import numpy as np
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Float64MultiArray
from std_srvs.srv import SetBool, Trigger

from an_control_sim.bridge.bridge import Bridge

YAML = """
an_control_simulation: 1
environment: test/Tiny-v0
step_s: 0.01
publish:
  joints:
    type: sensor_msgs/msg/JointState
    fields: {name: [left, right], position: "observation[0:2]", velocity: sensors.speed}
  feet:
    type: std_msgs/msg/Float64MultiArray
    fields: {data: "observation[2:3]"}
command:
  topic: commands
  type: sensor_msgs/msg/JointState
  field: effort
  actuators: {left: {scale: 10.0, safe: 0.0}, right: {scale: 10.0, safe: 5.0}}
camera: {topic: camera, frame_id: eye}
"""


class TinyEnv(gymnasium.Env):
    """Two numbers that the two actions push; 20 steps; remembers what it was given."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}
    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    actions: ClassVar[list[np.ndarray]] = []
    pictures = 0

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode = render_mode

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self.place = self.np_random.normal(size=2)
        TinyEnv.actions.clear()
        return self._observe(), {"distance_m": 0.0}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        TinyEnv.actions.append(action)
        self.place = 0.9 * self.place + 0.1 * action + 0.01 * self.np_random.normal(size=2)
        over = len(TinyEnv.actions) >= 20
        return self._observe(), float(self.place.sum()), False, over, {"distance_m": 1.5}

    def sensors(self) -> dict[str, Any]:
        return {"speed": self.place * 2.0}

    def render(self) -> np.ndarray:
        TinyEnv.pictures += 1
        return np.full((4, 5, 3), TinyEnv.pictures, np.uint8)

    def _observe(self) -> np.ndarray:
        return np.array([*self.place, len(TinyEnv.actions)], np.float32)


gymnasium.register("test/Tiny-v0", TinyEnv)


class Responder(Node):
    """The policy's part: `answer` turns the messages of a step into what is sent, or nothing."""

    def __init__(self) -> None:
        super().__init__("policy")
        self.answer: Callable[[JointState], JointState | None] = self.push_back
        self.seen: dict[str, Any] = {}
        self.stamps: list[int] = []
        self.active, self.resets = True, 0
        for topic, kind in (("joints", JointState), ("feet", Float64MultiArray), ("/clock", Clock)):
            self.create_subscription(kind, topic, self._listen(topic), 10)
        self.publisher = self.create_publisher(JointState, "commands", 10)
        self.create_service(Trigger, "~/reset_state", self._reset)
        self.pause = self.create_client(SetBool, "simulator/pause")
        self.step = self.create_client(Trigger, "simulator/step")
        self.reset = self.create_client(Trigger, "simulator/reset")

    def push_back(self, joints: JointState) -> JointState:
        """Half of each joint's place, against it; the joints in the other order than the YAML's."""
        efforts = [-5.0 * value for value in reversed(joints.position)]
        return command(joints, ["right", "left"], efforts)

    def _listen(self, topic: str) -> Callable[[Any], None]:
        def listen(message: Any) -> None:
            self.seen[topic] = message
            if {"joints", "feet"} <= set(self.seen):
                joints = self.seen.pop("joints")
                self.seen.pop("feet")
                self.stamps.append(nanoseconds(joints.header.stamp))
                reply = self.answer(joints)
                if reply is not None:
                    self.publisher.publish(reply)

        return listen

    def _reset(self, request: Any, response: Any) -> Any:
        self.resets += 1
        self.seen.clear()
        response.success, response.message = self.active, "" if self.active else "not active"
        return response


def command(joints: JointState, names: list[str], efforts: list[float]) -> JointState:
    message = JointState(name=names, effort=array("d", efforts))
    message.header.stamp = joints.header.stamp
    return message


def nanoseconds(stamp: Any) -> int:
    return stamp.sec * 1_000_000_000 + stamp.nanosec


def finish(bridge: Bridge, future: Any) -> Any:
    """Run the executor until a service call has its reply."""
    until_s = time.monotonic() + 100.0
    while not future.done():
        assert time.monotonic() < until_s, "no reply from a service"
        bridge.run.executor.spin_once(timeout_sec=0.1)
    return future.result()


def begin(bridge: Bridge) -> None:
    bridge.wait_for_policy()
    bridge.start_episode(0, 0)
