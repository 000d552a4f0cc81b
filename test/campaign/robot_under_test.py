"""The robot under test: the Ant in real time, what it publishes, and the commands it hears.

Everything here runs on one thread, by the steady clock. A fault changes `deliver`, through which
every message goes out, or works on the policy node's process.
"""

from __future__ import annotations

import copy
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.node import Node
from rclpy.publisher import Publisher
from rclpy.qos import QoSProfile
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool

from an_control.system.share import find_share_path
from an_control.wiring import load_wiring
from an_control_sim.bridge.bridge import MAX_COMMAND_STEPS
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import load_simulation
from an_control_sim.process import RELIABLE, SLICE_S, make_events_executor
from campaign.policy_process import PolicyProcess

NAMESPACE = "/ant"
OTHER = "another controller"
"""The frame_id of commands that are not the policy node's."""
ACTING = 10
"""So many commands of the policy in a row, and it acts."""
WALKING_M_S, WINDOW_S = 1.5, 0.5
"""Half of the Ant's speed; it walks where it has been that fast for as long as the window."""
STEADY_S = 1.0
"""So long it has walked without a break before something is broken."""
PATIENCE_S = 8.0
"""After this without walking the Ant is put back to its start."""

Deliver = Callable[[str, Any], None]
"""Sends one message on a topic."""


@dataclass
class CommandsHeard:
    """What was heard on the command topic."""

    at_s: list[float] = field(default_factory=list)
    safe: list[bool] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def acting(self) -> bool:
        """Whether the newest commands are the policy's."""
        return len(self.safe) >= ACTING and not any(self.safe[-ACTING:])


@dataclass
class Motion:
    """What the robot did since this was made; `stopped` by the safe command, or by having none."""

    slowest_m_s: float = inf
    stopped: bool = False
    falls: int = 0

    def in_words(self) -> str:
        """One of `outcome.ROBOT`."""
        if self.falls:
            return "fell"
        if self.slowest_m_s >= WALKING_M_S:
            return "walked on"
        return "stood safe" if self.stopped else "slowed"


def endless_ant() -> SimulatedRobot:
    """The Ant, whose episode ends only where it falls."""
    simulation = load_simulation(find_share_path("config/ant_sim.yaml"))
    robot = SimulatedRobot(replace(simulation, options={"max_episode_steps": 10**9}))
    robot.reset(0)
    return robot


class RobotUnderTest:
    """The Ant, its topics, and the policy node as a process."""

    def __init__(self, node: Node, policy: PolicyProcess) -> None:
        self.node, self.policy = node, policy
        self.setting: object = None
        """What the policy node was started with."""
        self.wiring = load_wiring(find_share_path("config/ant.yaml"))
        self.heard = CommandsHeard()
        command = self.wiring.command
        self._low, self._high = np.array([one.limits for one in command.actuators]).T
        self._safe = command.make_safe_command()
        self._names = list(command.names)
        self._robot = endless_ant()
        self._step_s = self._robot.simulation.step_s
        self._action, self._commanded_s = self._robot.commands.safe, 0.0
        self._clock = node.create_publisher(Clock, "/clock", RELIABLE)
        self.clock_offset_s: float | None = 0.0
        """Added to what /clock says; None stops that clock."""
        self.publishers: dict[str, Publisher[Any]] = {}
        self.clients: dict[str, Any] = {}
        """The services' clients that faults use."""
        self.open()
        self.estop = node.create_publisher(Bool, "policy/estop", 10)
        node.create_subscription(
            JointState, command.messages[0].topic, self._receive, QoSProfile(depth=1000)
        )
        self.diagnosed: list[tuple[float, DiagnosticStatus]] = []
        """What the policy node's diagnostics said, and when, on the steady clock."""
        self.troubles: list[DiagnosticStatus] = []
        """What was not OK in its newest diagnostics, and when something was so."""
        self.troubled_s = 0.0
        node.create_subscription(DiagnosticArray, "/diagnostics", self._diagnose, 100)
        self.deliver: Deliver = self.publish
        self.broken_s = 0.0
        """When the fault began, on the steady clock."""
        self.log_bytes = 0
        """How long the policy node's log was then."""
        self.executor = make_events_executor(node.context)
        self.executor.add_node(node)
        self.motion = Motion()
        self.complaints: list[str] = []
        """Promises that a fault itself found broken."""
        self.random = random.Random()
        """What a fault draws from."""
        self._next_s = time.monotonic()
        self._steps = 0
        self._track: deque[tuple[float, float]] = deque()
        """The newest times (s) and distances (m), one window long."""

    def begin(self) -> None:
        """From here on it counts what is heard and seen: a try begins."""
        heard = self.heard
        for kept in (heard.violations, heard.at_s, heard.safe, self.complaints, self.diagnosed):
            kept.clear()
        self.log_bytes = self.policy.log_bytes
        self.motion = Motion()
        self.broken_s = time.monotonic()

    def open(self, qos: QoSProfile = RELIABLE) -> None:
        """(Re)create the sensors' publishers."""
        self.shut()
        for sensor_topic in self._robot.sensor_topics:
            publisher = self.node.create_publisher(
                type(sensor_topic.message), sensor_topic.topic, qos
            )
            self.publishers[sensor_topic.topic] = publisher

    def shut(self) -> None:
        """Destroy the sensors' publishers."""
        for publisher in self.publishers.values():
            self.node.destroy_publisher(publisher)
        self.publishers.clear()

    def publish(self, topic: str, message: Any) -> None:
        """What `deliver` does where no fault is at work."""
        if topic in self.publishers:
            self.publishers[topic].publish(message)

    def play(self, for_s: float) -> None:
        """Go on for that long."""
        self.until(lambda: False, for_s)

    def until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Go on until the condition holds; False where the time ran out first."""
        end_s = time.monotonic() + limit_s
        while not condition():
            now_s = time.monotonic()
            if now_s >= end_s:
                return False
            if now_s >= self._next_s:
                self._step()
                self._next_s = max(self._next_s + self._step_s, now_s)
            wait_s = max(0.0, min(self._next_s, end_s) - time.monotonic())
            self.executor.spin_once(timeout_sec=min(wait_s, SLICE_S))
        return True

    def acting(self, limit_s: float = 120.0) -> None:
        """Wait until the policy acts. RuntimeError where it does not."""
        mark = len(self.heard.safe) + ACTING
        if not self.until(lambda: len(self.heard.safe) >= mark and self.heard.acting(), limit_s):
            raise RuntimeError(f"the policy does not act within {limit_s:g} s")

    @property
    def step_s(self) -> float:
        """How long a step of the robot takes."""
        return self._step_s

    @property
    def speed_m_s(self) -> float:
        """Of the Ant over the last window; 0 where it was put back meanwhile."""
        if len(self._track) < 2 or self._track[-1][0] - self._track[0][0] < 0.9 * WINDOW_S:
            return 0.0
        (begin_s, begin_m), (end_s, end_m) = self._track[0], self._track[-1]
        return (end_m - begin_m) / (end_s - begin_s)

    def walks(self) -> bool:
        """Whether the Ant walks."""
        return self.speed_m_s >= WALKING_M_S

    def walking(self, restart: Callable[[], object], limit_s: float = 120.0) -> None:
        """Wait until the Ant has walked for STEADY_S; RuntimeError where it does not.

        Where it stands or has fallen it starts again, and `restart` begins the policy's episode.
        """
        until_s = time.monotonic() + limit_s
        while time.monotonic() < until_s:
            if not self.until(self.walks, PATIENCE_S):
                self._put_back()
                restart()
                continue
            self.motion = Motion()
            self.play(STEADY_S)
            if self.motion.in_words() == "walked on":
                return
        raise RuntimeError(f"the robot does not walk within {limit_s:g} s")

    def _put_back(self) -> None:
        self._robot.reset(self._steps)
        self._track.clear()

    def _step(self) -> None:
        self._steps += 1
        self._move()
        stamp_ns = time.time_ns()
        self._robot.fill_sensor_messages(stamp_ns)
        if self.clock_offset_s is not None:
            message = Clock()
            ros_ns = stamp_ns + int(self.clock_offset_s * 1e9)
            message.clock.sec, message.clock.nanosec = divmod(ros_ns, 1_000_000_000)
            self._clock.publish(message)
        for sensor_topic in self._robot.sensor_topics:
            self.deliver(sensor_topic.topic, copy.deepcopy(sensor_topic.message))

    def _move(self) -> None:
        """One step under the newest command, or the safe one where that is too old."""
        now_s = time.monotonic()
        if now_s - self._commanded_s > MAX_COMMAND_STEPS * self._step_s:
            self._action = self._robot.commands.safe
        self.motion.stopped |= np.array_equal(self._action, self._robot.commands.safe)
        self._robot.step(self._action)
        if self._robot.over:
            self.motion.falls += 1
            self._put_back()
        self._track.append((now_s, self._robot.distance_m or 0.0))
        while now_s - self._track[0][0] > WINDOW_S:
            self._track.popleft()
        self.motion.slowest_m_s = min(self.motion.slowest_m_s, self.speed_m_s)

    def _diagnose(self, message: DiagnosticArray) -> None:
        prefix, now_s = f"{NAMESPACE}/{self.policy.name}: ", time.monotonic()
        if found := [one for one in message.status if one.name.startswith(prefix)]:
            self.diagnosed += [(now_s, one) for one in found]
            self.troubles = [one for one in found if one.level != DiagnosticStatus.OK]
            self.troubled_s = now_s if self.troubles else self.troubled_s

    def _receive(self, message: Any) -> None:
        if message.header.frame_id == OTHER:
            return
        values = np.array(message.effort)
        self.heard.at_s.append(time.monotonic())
        self.heard.safe.append(np.array_equal(values, self._safe))
        if list(message.name) != self._names or values.shape != self._safe.shape:
            self.heard.violations.append(f"names {message.name}, {len(values)} values")
        elif not (np.isfinite(values).all() and self._within(values)):
            self.heard.violations.append(f"not within the limits: {values.tolist()}")
        else:
            self._action = self._robot.commands.read_commands(message)
            self._commanded_s = self.heard.at_s[-1]

    def _within(self, values: np.ndarray) -> bool:
        return bool((values >= self._low).all() and (values <= self._high).all())

    def close(self) -> None:
        """Let go of everything but the node and the policy."""
        self.executor.remove_node(self.node)
        self.executor.shutdown()
        self._robot.close()
