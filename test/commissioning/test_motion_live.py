"""`an-control check --live --move` on a robot behind topics: asks, moves, stops, finds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")

import rclpy
from builtin_interfaces.msg import Time
from program import Program
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import JointState
from std_msgs.msg import Bool

from an_control.cli import main
from an_control.system.share import find_share_path

WIRING = """
an_control_wiring: 1
robot: arm
rate_hz: 50
min_present_share: 0.5
sources:
  joints: {topic: joint_states, type: sensor_msgs/msg/JointState, max_age_s: 0.5, rate_hz: 100}
channels:
  left.position: {source: joints, field: 'position[left]'}
  right.position: {source: joints, field: 'position[right]'}
command:
  topic: commands
  type: sensor_msgs/msg/JointState
  field: position
  actuators:
    left: {scale: 1.0, limits: [-1.0, 1.0], max_rate: 2.0, safe: 0.25}
    right: {scale: 1.0, limits: [-1.0, 1.0], max_rate: 2.0, safe: 0.0}
"""
SAFE = [0.25, 0.0]


class Arm:
    """Two servos that follow their commands slowly, and remember them; a context of its own."""

    def __init__(self, *, rival: bool = False, reversed_right: bool = False) -> None:
        self.context = Context()
        rclpy.init(args=[], context=self.context)
        self.node = Node("arm", namespace="/bot", context=self.context)
        self.commands: list[list[float]] = []
        self.stamps_s: list[int] = []
        self.clock: Any = None
        self.place, self.goal = np.array(SAFE), np.array(SAFE)
        self._sign = np.array([1.0, -1.0 if reversed_right else 1.0])
        self._states = self.node.create_publisher(JointState, "joint_states", 10)
        self.node.create_subscription(JointState, "commands", self._receive, 10)
        self.node.create_timer(0.01, self._step)
        self.estop = self.node.create_publisher(Bool, "an_control_motion/estop", 10)
        if rival:
            self.node.create_publisher(JointState, "commands", 10)
        self._executor = SingleThreadedExecutor(context=self.context)
        self._executor.add_node(self.node)
        self._done = False
        self._thread = threading.Thread(target=self._spin)
        self._thread.start()

    @property
    def moves(self) -> bool:
        return any(command != SAFE for command in self.commands)

    def _spin(self) -> None:
        while not self._done:
            self._executor.spin_once(timeout_sec=0.05)

    def _receive(self, message: JointState) -> None:
        by_name = dict(zip(message.name, message.position, strict=True))
        self.goal = np.array([by_name["left"], by_name["right"]])
        self.commands.append(self.goal.tolist())
        self.stamps_s.append(message.header.stamp.sec)

    def _step(self) -> None:
        self.place = self.place + 0.3 * (self.goal - self.place)
        message = JointState(name=["left", "right"])
        message.header.stamp = self.node.get_clock().now().to_msg()
        message.position = array("d", (self._sign * self.place).tolist())
        self._states.publish(message)
        if self.clock is not None:
            self.clock.publish(Clock(clock=Time(sec=7)))

    def close(self) -> None:
        self._done = True
        self._thread.join()
        self._executor.shutdown()
        self.node.destroy_node()
        rclpy.shutdown(context=self.context)


@pytest.fixture
def arm() -> Iterator[Arm]:
    one = Arm()
    yield one
    one.close()


@pytest.fixture
def wiring(tmp_path: Path) -> Path:
    path = tmp_path / "wiring.yaml"
    path.write_text(WIRING)
    return path


def check(wiring: Path, *more: str) -> tuple[int, dict]:
    """The exit status and the findings of a check that moves the robot."""
    out = wiring.parent / "found.json"
    words = "--live", "--move", "--namespace", "/bot", "--seconds", "1.5", "--json", str(out)
    status = main(["check", str(wiring), *words, *more])
    return status, json.loads(out.read_text())


def when_it_moves(arm: Arm, act) -> threading.Thread:
    """A thread that acts soon after the arm has been told to move."""

    def wait() -> None:
        end_s = time.monotonic() + 60.0
        while not arm.moves and time.monotonic() < end_s:
            time.sleep(0.01)
        act()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


def test_the_sensors_of_a_robot_behind_topics_are_found_and_it_is_left_at_the_safe_command(
    arm, wiring
):
    status, found = check(wiring, "--yes", "--amplitude", "0.2")
    assert [(row["actuator"], row["sensor"], row["sign"]) for row in found["motion"]] == [
        ("left", "left.position", "+"), ("right", "right.position", "+"),
    ], found["problems"]  # fmt: skip
    assert status == 0 and not found["problems"]
    assert 0.7 < found["motion"][0]["gain"] < 1.1
    moved = np.array(arm.commands)
    assert arm.commands[-1] == SAFE
    assert np.abs(moved - SAFE).max() <= 0.2 + 1e-9, "a fifth of the way to the nearer limit"


def test_the_commands_to_a_simulated_robot_have_stamps_in_simulated_time(arm, wiring):
    arm.clock = arm.node.create_publisher(Clock, "/clock", 10)
    status, found = check(wiring, "--yes", "--amplitude", "0.2")
    assert status == 0, found["problems"]
    assert set(arm.stamps_s) == {7}


@pytest.mark.parametrize("answer", ["no", "Ctrl-D"])
def test_it_asks_first_and_moves_nothing_without_a_yes(arm, wiring, monkeypatch, capsys, answer):
    asked = []

    def read(text: str) -> str:
        asked.append(text)
        if answer == "Ctrl-D":
            raise EOFError
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", read)
    status, found = check(wiring)
    assert status == 1 and "motion: the robot was not moved" in found["problems"]
    assert asked and "yes" in asked[0] and not arm.commands
    assert "around the safe command (amounts in its units): " in capsys.readouterr().out


def test_without_a_terminal_it_is_refused_unless_yes_is_given(wiring, capsys):
    assert main(["check", str(wiring), "--live", "--move"]) == 2
    assert "add --yes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--move"], "--move: only with --live or --sim"),
        (["--live", "--yes"], "only with --move"),
        (["--live", "--move", "--yes", "--amplitude", "2"], "--amplitude 2: must be"),
    ],
)
def test_options_that_do_not_fit_are_refused(wiring, words, said, capsys):
    assert main(["check", str(wiring), *words]) == 2
    assert said in capsys.readouterr().err


def test_another_publisher_of_commands_is_named_and_nothing_is_sent(wiring):
    arm = Arm(rival=True)
    try:
        status, found = check(wiring, "--yes")
    finally:
        arm.close()
    assert status == 1 and not arm.commands
    assert any("/bot/arm commands /bot/commands" in one for one in found["problems"])


def test_an_control_estop_stops_the_motion_with_the_safe_command(arm, wiring, tmp_path):
    ended: list[subprocess.CompletedProcess[str]] = []
    program = Program(tmp_path)
    thread = when_it_moves(arm, lambda: ended.append(program.run("estop")))
    status, found = check(wiring, "--yes")
    thread.join()
    assert ended[0].returncode == 0 and "/bot/an_control_motion: e-stop" in ended[0].stdout
    assert status == 1 and any("motion: e-stop by " in one for one in found["problems"])
    assert arm.commands[-1] == SAFE and not found["motion"]


@pytest.mark.parametrize("how", ["topic", "interrupt"])
def test_a_message_to_the_estop_and_ctrl_c_stop_the_motion_with_the_safe_command(arm, wiring, how):
    act = {
        "topic": lambda: arm.estop.publish(Bool(data=True)),
        "interrupt": lambda: os.kill(os.getpid(), signal.SIGINT),
    }[how]
    thread = when_it_moves(arm, act)
    status, found = check(wiring, "--yes")
    thread.join()
    text = {"topic": "e-stop by topic", "interrupt": "stopped by SIGINT"}[how]
    assert status == 1 and f"motion: {text}" in found["problems"]
    assert arm.commands[-1] == SAFE


def test_a_node_that_begins_to_command_stops_the_motion(arm, wiring):
    thread = when_it_moves(arm, lambda: arm.node.create_publisher(JointState, "commands", 10))
    status, found = check(wiring, "--yes")
    thread.join()
    assert status == 1 and any("/bot/arm commands" in one for one in found["problems"])
    assert arm.commands[-1] == SAFE


def test_the_simulators_node_is_moved_over_topics_and_its_motors_are_found(tmp_path):
    text = Path(find_share_path("config/mobile_base.yaml")).read_text(encoding="utf-8")
    wiring = tmp_path / "wiring.yaml"
    wiring.write_text(text.replace("max_age_s: 0.2", "max_age_s: 1.0"))
    settings = {
        "simulation": find_share_path("config/mobile_base_sim.yaml"), "realtime": "true",
        "policy": "''", "episodes": "0", "start_timeout_s": "120.0",
    }  # fmt: skip
    words = [part for key, value in settings.items() for part in ("-p", f"{key}:={value}")]
    node = subprocess.Popen(
        [sys.executable, "-m", "an_control_sim.bridge.simulator_node", "--ros-args", *words,
         "-r", "__ns:=/bot"]
    )  # fmt: skip
    try:
        status, found = check(wiring, "--yes", "--amplitude", "0.4")
    finally:
        node.send_signal(signal.SIGINT)
        node.wait(60)
    pairs = [(row["actuator"], row["sensor"], row["sign"]) for row in found["motion"]]
    assert ("forward", "velocity.forward", "+") in pairs, found["problems"]
    assert ("turn", "velocity.turn", "+") in pairs
    assert status in (0, 1), "a busy machine may lose messages, which is said"
