"""Announced over ROS 2: the Ant's sensors move between topics at every step, nothing is lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest

pytest.importorskip("rclpy")
pytest.importorskip("pybullet")

from rcl_interfaces.srv import SetParametersAtomically
from rclpy.node import Node
from rclpy.parameter import Parameter

from an_control.disturbance import DisturbanceSettings
from an_control.learning.evaluation.evaluate import play_episodes
from an_control.load import load_policy
from an_control.system.share import find_share_path
from an_control.wiring import load_wiring
from an_control_sim.bridge.bridge import Bridge
from an_control_sim.bridge.episodes import run_episodes
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import load_simulation
from an_control_sim.gym.environments import find_environment_id, make_environment
from an_control_sim.process import RELIABLE, initialise_ros

MODEL = find_share_path("models/ant.safetensors")
WIRING = find_share_path("config/ant.yaml")
SWAPS = 1000
STEPS = 300
COMMAND_S = 4.0
"""A message that a new subscription misses is sent again after a third of this."""
WARM = 20
"""Swaps before memory is first read: by then every topic has been subscribed once."""
PAGE = 4096


class MovingSensors:
    """A tap that publishes each sensor on one of two topics and announces it when one moves."""

    is_message_dropped = False

    def __init__(self, node: Node, pid: int) -> None:
        self._node, self._pid = node, pid
        self._rng = np.random.default_rng(1)
        self._sources = {one.topic: one for one in load_wiring(WIRING).sources}
        self._places = dict.fromkeys(self._sources, 0)
        self._publishers: dict[str, list[Any]] = {}
        self._messages: dict[str, Any] = {}
        self._set = node.create_client(SetParametersAtomically, "policy/set_parameters_atomically")
        self.bridge: Bridge | None = None
        self.topic = node.resolve_topic_name("joint_states_0")
        self.shuffle_count = 0
        self.resident: list[int] = []

    def start_episode(self, episode: int) -> None: ...

    def store_message(self, topic: str, message: Any) -> None:
        name = topic.rpartition("/")[2]
        if name not in self._publishers:
            self._publishers[name] = [
                self._node.create_publisher(type(message), f"{name}_{place}", RELIABLE)
                for place in (0, 1)
            ]
        self._messages[name] = message

    def disturb_messages_of_step(self, stamp_ns: int) -> None:
        self._move()

    def publish_disturbed_messages(self) -> None:
        for name, message in self._messages.items():
            self._publishers[name][self._places[name]].publish(message)

    def _move(self) -> None:
        """Some of the sensors move to their other topic, and the node is told, all at once."""
        names = list(self._places)
        moved = self._rng.choice(names, int(self._rng.integers(1, len(names) + 1)), replace=False)
        for name in moved:
            self._places[name] = 1 - self._places[name]
        future = self._set.call_async(self._request(moved))
        assert self.bridge is not None
        while not future.done():
            self.bridge.run.executor.spin_once(timeout_sec=1.0)
        assert future.result().result.successful, future.result().result.reason
        self.shuffle_count += 1
        self.resident.append(_resident(self._pid))

    def _request(self, moved: Iterable[str]) -> SetParametersAtomically.Request:
        changes = [
            Parameter(
                f"sources.{self._sources[name].name}.topic", value=f"{name}_{self._places[name]}"
            ).to_parameter_msg()
            for name in moved
        ]
        return SetParametersAtomically.Request(parameters=changes)


class RestlessTopics(MovingSensors):
    """Publishes every sensor on both topics; they move at any time, as often as they can."""

    moving = False
    _asked: Any = None

    def disturb_messages_of_step(self, stamp_ns: int) -> None: ...

    def publish_disturbed_messages(self) -> None:
        for name, message in self._messages.items():
            for publisher in self._publishers[name]:
                publisher.publish(message)

    def move(self) -> None:
        """Announce the next move as soon as the last one is answered."""
        if self.moving and (self._asked is None or self._asked.done()):
            for name in self._places:
                self._places[name] = 1 - self._places[name]
            self._asked = self._set.call_async(self._request(list(self._places)))
            self.shuffle_count += 1


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE


@contextmanager
def policy_process() -> Iterator[int]:
    """The node on the first topics of all sensors; its process id."""
    command = [sys.executable, "-m", "an_control.ros.node", "--ros-args", "-r", "__ns:=/ant"]
    values = {"wiring": WIRING, "model": MODEL, "mode": "lockstep", "autostart": "true"}
    # The black box holds the wiring of each of the last 30 s: up to 64 MiB that are no leak.
    values |= {"lockstep_wait_s": 2.0 * COMMAND_S, "black_box_s": 0.0}
    for source in load_wiring(WIRING).sources:
        values[f"sources.{source.name}.topic"] = f"{source.topic}_0"
    for name, value in values.items():
        command += ["-p", f"{name}:={value}"]
    process = subprocess.Popen(command)
    try:
        yield process.pid
    finally:
        process.terminate()
        assert process.wait(20) == 0


Sensors = TypeVar("Sensors", bound=MovingSensors)


@contextmanager
def simulated(make: Callable[[Node, int], Sensors]) -> Iterator[tuple[Bridge, Sensors]]:
    with policy_process() as pid, initialise_ros(["--ros-args", "-r", "__ns:=/ant"]):
        node = Node("simulator")
        sensors = make(node, pid)
        robot = SimulatedRobot(load_simulation(find_share_path("config/ant_sim.yaml")))
        bridge = sensors.bridge = Bridge(node, robot, tap=sensors, command_timeout_s=COMMAND_S)
        for sensor_topic in robot.sensor_topics:
            sensors.store_message(sensor_topic.topic, sensor_topic.message)
        try:
            yield bridge, sensors
        finally:
            bridge.close()
            node.destroy_node()


@pytest.mark.slow
def test_a_thousand_announced_swaps_cost_no_tick_no_bit_and_no_memory():
    env = make_environment(find_environment_id("ant"))
    policy = load_policy(MODEL)
    (still,) = play_episodes(policy, env, policy.nominal_ids, 1, 1, DisturbanceSettings())
    env.close()
    with simulated(MovingSensors) as (bridge, sensors):
        (result,) = run_episodes(bridge, episodes=1, seed=1)
    grown = sensors.resident[-1] - sensors.resident[WARM]
    print(f"{sensors.shuffle_count} swaps, {result.wall_s:.1f} s, memory {grown / 1e6:+.2f} MB")
    assert result.timeouts == 0 and result.steps == still.steps == sensors.shuffle_count == SWAPS
    assert result.return_ == still.total
    assert grown < 5e6


def test_topics_that_move_at_any_time_cost_no_tick_and_no_bit():
    with simulated(RestlessTopics) as (bridge, sensors):
        bridge.wait_for_policy()
        bridge.run.executor.add_node(restless := Node("restless"))
        restless.create_timer(0.005, sensors.move)
        walks = []
        for sensors.moving in (False, True):
            bridge.start_episode(1, 0)
            commands: list[list[float]] = []
            walks.append(commands)
            for _ in range(STEPS):
                bridge.step()
                commands.append(list(bridge.robot.commands.newest_command))
        bridge.run.executor.remove_node(restless)
        restless.destroy_node()
        print(f"{sensors.shuffle_count} moves in {STEPS} steps")
        assert bridge.timeouts == 0 and sensors.shuffle_count > STEPS / 10
        assert walks[1] == walks[0]
