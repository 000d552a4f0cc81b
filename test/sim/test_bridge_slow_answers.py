"""The bridge beside a policy that is slow now and then, by a clock that the test turns.

The clock stands still while messages travel, so that nothing depends on how busy the machine is.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest

pytest.importorskip("rclpy")
import rclpy
from rclpy.node import Node
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

from an_control.disturbance import derive_episode_seed
from an_control.wiring import CommandMessage
from an_control.wiring.messages import import_message_class, make_stamp_reader
from an_control_sim.bridge.bridge import Bridge
from an_control_sim.bridge.episodes import EpisodeResult, RunSummary, run_episodes
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import Simulation, load_simulation

TIMEOUT_S = 0.9
"""Within a third of it a step of stamped commands is published once."""
YAML = """
an_control_simulation: 1
environment: test/Drift-v0
step_s: 0.01
publish:
  joints:
    type: sensor_msgs/msg/JointState
    fields: {name: [left, right], position: observation}
command: 
"""
STAMPED = "{topic: a, type: sensor_msgs/msg/JointState, field: effort, actuators: {%s}}"
ARRAY = "{topic: a, type: std_msgs/msg/Float64MultiArray, field: data, actuators: {%s}}"
TWIST = "{topic: b, type: geometry_msgs/msg/Twist, actuators: {%s}}"
LEFT, RIGHT = "left: {scale: 10.0, safe: 0.0}", "right: {scale: 10.0, safe: 5.0}"
TURNS = (
    "left: {scale: 10.0, safe: 0.0, field: linear.x},"
    " right: {scale: 10.0, safe: 5.0, field: angular.z}"
)
ONE_TURN = "right: {scale: 10.0, safe: 5.0, field: angular.z}"
COMMANDS = {
    "stamped": STAMPED % f"{LEFT}, {RIGHT}",
    "array": ARRAY % f"{LEFT}, {RIGHT}",
    "twist": TWIST % TURNS,
    "two unstamped": f"[{ARRAY % LEFT}, {TWIST % ONE_TURN}]",
    "one of two stamped": f"[{STAMPED % LEFT}, {TWIST % ONE_TURN}]",
}


class DriftEnv(gymnasium.Env):
    """Two numbers that drift and that the two actions push, for `steps` steps."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float64)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float64)
    steps: ClassVar[int] = 60

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict]:
        super().reset(seed=seed)
        self._count, self._place = 0, self.np_random.normal(size=2)
        return self._place.copy(), {}

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        self._count += 1
        self._place = 0.9 * self._place + 0.1 * action + 0.01 * self.np_random.normal(size=2)
        return self._place.copy(), float(self._place.sum()), False, self._count >= self.steps, {}


gymnasium.register("test/Drift-v0", DriftEnv)


def push_back(position: Any) -> np.ndarray:
    return np.float64(-5.0) * np.array(position)


class Policy(Node):
    """Answers a request as late as `late_s` says by the test's clock, and a repeated one again."""

    def __init__(self, simulation: Simulation, late_s: Callable[[], float]) -> None:
        super().__init__("policy")
        self.now_s, self.received, self._late_s = 0.0, 0, late_s
        self.held: deque[tuple[float, np.ndarray, int | None]] = deque()
        self.times = 1
        command = simulation.command
        self._slices = command.message_slices
        self._messages = [
            CommandMessage(
                one, import_message_class(one.type), import_message_class, simulation.file, key
            )
            for one, key in zip(
                command.messages, map(command.format_message_key, count()), strict=False
            )
        ]
        self._sends = [
            self.create_publisher(type(one.message), one.topic, 10) for one in self._messages
        ]
        self._stamp_of, self._stamp_ns = make_stamp_reader(JointState), 0
        self.create_subscription(JointState, "joints", self._hear, 10)
        self.create_service(Trigger, "~/reset_state", self._reset)

    def _hear(self, joints: JointState) -> None:
        self.received += 1
        stamp_ns, before_ns = self._stamp_of(joints), self._stamp_ns
        self._stamp_ns = stamp_ns
        begin_s = max([self.now_s, *(at_s for at_s, _, _ in self.held)])
        late_s = 0.0 if stamp_ns == before_ns else self._late_s()
        self.held.append((begin_s + late_s, push_back(joints.position), stamp_ns))
        self.release()

    def release(self) -> None:
        """Send what is due."""
        while self.held and self.held[0][0] <= self.now_s:
            _, values, stamp_ns = self.held.popleft()
            for _ in range(self.times):
                for message, span, publisher in zip(
                    self._messages, self._slices, self._sends, strict=True
                ):
                    message.fill(values[span], stamp_ns)
                    publisher.publish(message.message)

    def _reset(self, request: Any, response: Any) -> Any:
        response.success = True
        return response


class CountingBridge(Bridge):
    heard = 0

    def _on_command(self, number: int, message: Any) -> None:
        self.heard += 1
        super()._on_command(number, message)


class TurnedClock:
    """Drives a bridge's executor: time passes while the policy holds an answer back or is idle."""

    def __init__(self, executor: Any, policy: Policy) -> None:
        self._executor, self._policy = executor, policy
        self.bridge: Any = None

    def monotonic(self) -> float:
        return self._policy.now_s

    def time(self) -> float:
        return time.time()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._executor, name)

    def spin_once(self, timeout_sec: float) -> None:
        policy = self._policy
        if policy.held:
            policy.now_s += min(timeout_sec, policy.held[0][0] - policy.now_s + 1e-9)
            policy.release()
            self._executor.spin_once(timeout_sec=0.0)
            return
        before = policy.received, self.bridge.heard
        self._executor.spin_once(timeout_sec=min(timeout_sec, 0.01))
        if before == (policy.received, self.bridge.heard):
            policy.now_s += timeout_sec


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., EpisodeResult]]:
    """Runs an episode of that many steps with a policy that is `late_s()` late."""
    rclpy.init()

    def play(
        commands: str, late_s: Callable[[], float], steps: int, *, seed: int = 1, times: int = 1
    ) -> EpisodeResult:
        monkeypatch.setattr(DriftEnv, "steps", steps)
        path = tmp_path / "drift.yaml"
        path.write_text(YAML.rstrip() + " " + COMMANDS[commands] + "\n")
        simulation = load_simulation(path)
        policy = Policy(simulation, lambda: 0.0)
        bridge = CountingBridge(
            Node("simulator"),
            SimulatedRobot(simulation),
            command_timeout_s=TIMEOUT_S,
            start_timeout_s=60.0,
        )
        bridge.run.executor.add_node(policy)
        bridge.wait_for_policy()
        policy._late_s, policy.times = late_s, times
        clock = TurnedClock(bridge.run.executor, policy)
        clock.bridge, bridge.run.executor = bridge, clock
        for name in ("bridge", "run_control"):
            monkeypatch.setattr(f"an_control_sim.bridge.{name}.time", clock)
        bridge.exchange._clock = clock.monotonic
        monkeypatch.setattr(bridge, "wait_for_policy", lambda: None)
        try:
            (result,) = run_episodes(bridge, episodes=1, seed=seed)
            return result
        finally:
            monkeypatch.undo()
            clock.remove_node(policy)
            bridge.close()
            for node in (bridge.node, policy):
                node.destroy_node()

    yield play
    rclpy.shutdown()


def undisturbed(steps: int, seed: int = 1) -> float:
    """The return of the episode without ROS."""
    environment = DriftEnv()
    observation, _ = environment.reset(seed=derive_episode_seed(seed, 0))
    total = 0.0
    for _ in range(steps):
        action = np.clip(push_back(observation) / 10.0, -1.0, 1.0)
        observation, reward, *_ = environment.step(action)
        total += reward
    return total


def now_and_then(seed: int, share: float, low_s: float, high_s: float) -> Callable[[], float]:
    rng = random.Random(seed)
    return lambda: rng.uniform(low_s, high_s) if rng.random() < share else 0.0


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("commands", ["stamped", "array", "twist"])
def test_ten_thousand_steps_with_slow_answers_are_those_without_to_the_last_bit(
    run, commands, seed
):
    late_s = now_and_then(seed, 0.02, 0.35 * TIMEOUT_S, 0.95 * TIMEOUT_S)
    result = run(commands, late_s, 10_000, seed=seed)
    assert result.latency_s.max() > 0.9 * TIMEOUT_S
    assert result.return_ == undisturbed(10_000, seed)
    assert (result.timeouts, result.unmatched) == (0, 0)


@pytest.mark.parametrize("commands", list(COMMANDS))
def test_slow_answers_on_several_topics_change_nothing_either(run, commands):
    result = run(commands, now_and_then(3, 0.2, 0.35 * TIMEOUT_S, 0.95 * TIMEOUT_S), 300)
    assert result.return_ == undisturbed(300) and result.unmatched == 0


@pytest.mark.parametrize("commands", list(COMMANDS))
def test_an_answer_after_the_timeout_costs_its_own_step_alone(run, commands):
    late_s = iter([0.0] * 20 + [1.5 * TIMEOUT_S] + [0.0] * 1000)
    result = run(commands, lambda: next(late_s), 60)
    assert (result.timeouts, result.unmatched) == (1, 0)
    environment, safe = DriftEnv(), np.array([0.0, 0.5])
    observation, _ = environment.reset(seed=derive_episode_seed(1, 0))
    total = 0.0
    for step in range(60):
        action = safe if step == 20 else np.clip(push_back(observation) / 10.0, -1.0, 1.0)
        observation, reward, *_ = environment.step(action)
        total += reward
    assert result.return_ == total


@pytest.mark.parametrize("commands", ["array", "two unstamped"])
def test_a_policy_that_answers_twice_is_named_in_the_summary_and_the_json(run, commands, capfd):
    result = run(commands, lambda: 0.0, 60, times=2)
    assert result.unmatched > 0
    assert "came that no step was waiting for" in capfd.readouterr().err
    summary = RunSummary((result,))
    assert any(
        "unmatched" in line and str(result.unmatched) in line for line in summary.format_lines()
    )
    assert summary.as_dict()["episodes"][0]["unmatched"] == result.unmatched
