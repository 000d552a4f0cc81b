"""`an-control check --sim`: a mistaken line is found, shown as a diff, and written corrected."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from live_robot import Robot

from an_control.cli import main
from an_control.control.controller import Controller
from an_control.system.share import find_share_path
from an_control.wiring import load_wiring
from an_control_sim.bridge.direct_robot import run_and_record_simulated_robot
from an_control_sim.bridge.robot import SimulatedRobot as Simulated
from an_control_sim.bridge.simulation_file import load_simulation

SIMULATION = find_share_path("config/mobile_base_sim.yaml")
MODEL = find_share_path("models/mobile_base.safetensors")
RIGHT = Path(find_share_path("config/mobile_base.yaml"))
MISTAKES = {
    "gyro": ("field: angular_velocity.z}", "field: angular_velocity.z, scale: -1.0}"),
    "turn": ("scale: 2.0, limits", "scale: -2.0, limits"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistaken_line_is_a_problem_and_the_corrected_file_is_right(tmp_path, name, capsys):
    text = RIGHT.read_text(encoding="utf-8")
    assert MISTAKES[name][0] in text
    (tmp_path / "w.yaml").write_text(text.replace(*MISTAKES[name]))
    status = main([
        "check", str(tmp_path / "w.yaml"), "--model", str(MODEL), "--sim", str(SIMULATION),
        "--fix", str(tmp_path / "fixed.yaml"), "--json", str(tmp_path / "found.json"),
    ])  # fmt: skip
    found = json.loads((tmp_path / "found.json").read_text())
    assert status == 1 and any(name in one for one in found["problems"])
    assert [row["what"] for row in found["doctor"]] == [name]
    assert "(corrected)" in capsys.readouterr().out
    right, fixed = load_wiring(RIGHT), load_wiring(tmp_path / "fixed.yaml")
    assert fixed.channels == right.channels
    assert [one.scale for one in fixed.command.actuators] == [
        one.scale for one in right.command.actuators
    ]


def test_a_wiring_that_is_right_has_nothing_wrong_and_no_corrected_file(tmp_path, capsys):
    words = "--model", str(MODEL), "--sim", str(SIMULATION), "--fix", str(tmp_path / "f.yaml")
    assert main(["check", str(RIGHT), *words]) == 0
    assert "nothing is wrong" in capsys.readouterr().out
    assert not (tmp_path / "f.yaml").exists()


@pytest.mark.parametrize("with_model", [True, False])
@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("topic: imu", "topic: inertia", "inertia of sensor_msgs/msg/Imu is not allowed"),
        ("topic: cmd_vel", "topic: command", "allowed: what {} takes: cmd_vel of geometry_msgs"),
    ],
)
def test_a_topic_that_the_simulation_lacks_is_not_taken_for_a_dead_motor_or_for_nothing_wrong(
    tmp_path, capsys, old, new, said, with_model
):
    text = RIGHT.read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "w.yaml").write_text(text.replace(old, new))
    robot = ["--model", str(MODEL)] if with_model else ["--move"]
    words = [str(tmp_path / "w.yaml"), *robot, "--sim", str(SIMULATION)]
    assert main(["check", *words]) == 2
    assert said.format(SIMULATION) in capsys.readouterr().err


def test_the_actuators_of_another_simulated_robot_are_refused_in_one_line(tmp_path, capsys):
    for name in ("ant.yaml", "ant_sim.yaml"):
        text = Path(find_share_path(f"config/{name}")).read_text(encoding="utf-8")
        (tmp_path / name).write_text(text.replace("hip_1", "hip_9") if "sim" in name else text)
    words = [str(tmp_path / "ant.yaml"), "--move", "--sim", str(tmp_path / "ant_sim.yaml")]
    assert main(["check", *words]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "command.actuators: hip_1" in line and "(actuator hip_9 is not among the names" in line


def test_the_doctor_needs_a_model_and_a_robot_that_moves(tmp_path, capsys):
    assert main(["check", str(RIGHT), "--sim", str(SIMULATION)]) == 2
    assert main(["check", str(RIGHT), "--fix", str(tmp_path / "f.yaml")]) == 2
    shown = capsys.readouterr().err
    assert "--sim: with --model" in shown and "--fix: only with" in shown


class Driven(Robot):
    """A running robot that a policy drives through a wiring; as fast as its messages go out."""

    def __init__(self, wiring: Path) -> None:
        super().__init__("/bot", period_s=0.02)
        self._simulated = Simulated(load_simulation(SIMULATION))
        self._controller = Controller(str(wiring), str(MODEL), None)
        (self._command,) = self._controller.messages
        publish = self.node.create_publisher
        self._sensor_topics = [
            (one, publish(type(one.message), one.topic, 10))
            for one in self._simulated.sensor_topics
        ]
        self._commands = publish(type(self._command.message), "cmd_vel", 10)
        self.node.create_subscription(type(self._command.message), "cmd_vel", lambda _: None, 10)
        self._episode = 0
        self._reset()
        self.sends.append(self._step)

    def _reset(self) -> None:
        self._simulated.reset(self._episode)
        self._controller.reset()
        self._controller.start()
        self._episode += 1

    def _step(self, now_ns: int) -> None:
        robot, controller = self._simulated, self._controller
        if robot.over:
            self._reset()
        robot.fill_sensor_messages(time.time_ns())
        for sensor_topic, publisher in self._sensor_topics:
            publisher.publish(sensor_topic.message)
            for source in controller.wiring.sources:
                if source.topic == sensor_topic.topic:
                    controller.table.store_message(
                        source.name, sensor_topic.message, now_ns, now_ns
                    )
        controller.decide(now_ns, None)
        values = controller.compute_command(None)
        self._command.fill(values, time.time_ns())
        time.sleep(0.004)  # a policy takes a while to answer
        self._commands.publish(self._command.message)
        robot.commands.store_commands(self._command.message, 0.0)
        answer = robot.commands.newest_command
        assert answer is not None
        robot.step(answer)


def test_a_robot_that_runs_with_a_reversed_gyro_is_told_so(tmp_path):
    wiring = tmp_path / "w.yaml"
    wiring.write_text(RIGHT.read_text(encoding="utf-8").replace(*MISTAKES["gyro"]))
    robot = Driven(wiring)
    robot.start()
    try:
        status = main([
            "check", str(wiring), "--model", str(MODEL), "--live", "--namespace", "/bot",
            "--seconds", "20", "--json", str(tmp_path / "found.json"),
        ])  # fmt: skip
    finally:
        robot.close()
    found = json.loads((tmp_path / "found.json").read_text())
    assert status == 1
    assert "gyro" in [row["what"] for row in found["doctor"]], found["notes"]
    assert "scale: 1}" in found["diff"] or "scale: 1.0}" in found["diff"]


def test_the_simulated_ant_walks_for_the_doctor_as_over_ros():
    """The policy and its monitor must know which command was sent."""
    pytest.importorskip("pybullet")
    wiring, model = find_share_path("config/ant.yaml"), find_share_path("models/ant.safetensors")
    controller = Controller(str(wiring), str(model), None)
    simulation = find_share_path("config/ant_sim.yaml")
    _, returns = run_and_record_simulated_robot(controller, simulation, 1000 * 0.0165)
    assert len(returns) == 1 and returns[0] > 3000.0
    report = controller.acting.policy.monitor_report
    assert report is not None and not report.lost
