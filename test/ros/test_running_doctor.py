"""The wiring doctor beside a node that runs: the Ant over ROS 2, with wrong lines in its wiring."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pybullet")
pytest.importorskip("gymnasium")
from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from rclpy.parameter import Parameter
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import JointState
from stand import Stand
from std_srvs.srv import Trigger

from an_control.disturbance import DisturbanceSettings
from an_control.record.reader import Bag
from an_control.record.replay import SessionReplay
from an_control.ros import control_loop
from an_control.ros.doctor.running_doctor import RunningDoctor
from an_control.ros.outputs import set_stamp
from an_control.system.share import find_share_path
from an_control_sim.bridge.robot import SimulatedRobot
from an_control_sim.bridge.simulation_file import load_simulation
from experiments.doctor import running
from experiments.doctor.running import ControlLoop

ANT = find_share_path("config/ant.yaml").read_text()
RIGHT, WRONG = "scale: 1.4323945", "scale: -1.4323945"
LINE = next(n for n, text in enumerate(ANT.splitlines(), 1) if "hip_1.position:" in text)
PERIOD_S = 1.0 / 60.606
pytestmark = pytest.mark.timeout(900)  # the doctor's answers take long on a busy machine
WALKS = 2500.0
"""A return of 1000 steps that only an Ant that walks has."""


def with_wrong_sign(text: str = ANT) -> str:
    lines = text.splitlines(keepends=True)
    lines[LINE - 1] = lines[LINE - 1].replace(RIGHT, WRONG)
    return "".join(lines)


class Walker:
    """The Ant's simulator in lockstep with a node. It waits for the doctor's answers.

    So the time that counts is the simulated one, however busy the machine is.
    """

    ticks = 0
    """Ticks of the newest walker."""

    def __init__(self, stand: Stand, wiring: str, **parameters: Any) -> None:
        self.stand, self._number, Walker.ticks = stand, 0, 0
        stand.wiring.write_text(wiring)
        stand.model = find_share_path("models/ant.safetensors")
        self.robot = SimulatedRobot(load_simulation(find_share_path("config/ant_sim.yaml")))
        self._publishers = [
            stand.peer.create_publisher(type(one.message), one.topic, 10)
            for one in self.robot.sensor_topics
        ]
        self._heard: list[JointState] = []
        stand.peer.create_subscription(JointState, "joint_commands", self._heard.append, 10)
        self.reported: list[DiagnosticArray] = []
        stand.peer.create_subscription(DiagnosticArray, "/diagnostics", self.reported.append, 10)
        stand.start(activate=False, engine="auto", **parameters)
        assert stand.node.trigger_configure().to_label() == "transition_success"
        assert stand.node.trigger_activate().to_label() == "transition_success"
        for publisher in self._publishers:
            stand.until(publisher.get_subscription_count, "the node's subscriptions")
        stand.until(lambda: stand.peer.count_publishers("joint_commands"), "the commands")

    @property
    def loop(self) -> control_loop.Loop:
        return self.stand.node._loop

    @property
    def doctor(self) -> Any:
        return self.loop.doctor

    def walk(self, ticks: int, ready: Callable[[], object] = lambda: False) -> float:
        """An episode, or its beginning until the condition holds; its return."""
        if self._number:
            assert self.stand.reset().success
        self.robot.reset(self._number)
        self._number += 1
        total = 0.0
        for _ in range(ticks):
            if self.robot.over or ready():
                break
            self._step()
            total += self.robot.reward
        return total

    def _step(self) -> None:
        Walker.ticks += 1
        stamp_ns = 1_000_000_000 + round(self.ticks * PERIOD_S * 1e9)
        self._heard.clear()
        self.robot.fill_sensor_messages(stamp_ns)
        for publisher, one in zip(self._publishers, self.robot.sensor_topics, strict=True):
            set_stamp(one.message.header.stamp, stamp_ns)
            publisher.publish(one.message)
        self.stand.until(lambda: self._heard, f"the command of tick {self.ticks}")
        self.robot.commands.clear_commands()
        self.robot.commands.store_commands(self._heard[-1], 0.0, 0)
        self.robot.step(self.robot.commands.newest_command)
        process = None if self.doctor is None else self.doctor.process
        while process is not None and process.is_busy and process._answer is None:
            time.sleep(0.002)

    def status(self, part: str = "doctor") -> DiagnosticStatus | None:
        """The part's status in a report that begins after now."""
        self.reported.clear()
        self.stand.until(lambda: len(self.reported) > 1, "diagnostics")
        parts = {one.name.partition(": ")[2]: one for one in self.reported[-1].status}
        return parts.get(part)

    def scale(self, id_: str = "hip_1.position") -> float:
        return self.loop.controller.table.configs[id_].scale

    def set(self, name: str, value: Any) -> Any:
        return self.stand.node.set_parameters([Parameter(name, value=value)])[0]


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_loop, "DIAGNOSTICS_S", 0.2)


@pytest.fixture
def ant(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Walker]:
    """Starts the node and the simulator; the doctor's pauses are in simulated time, too."""
    doctor = partial(RunningDoctor, clock=lambda: Walker.ticks * PERIOD_S)
    monkeypatch.setattr(control_loop, "RunningDoctor", doctor)
    return partial(Walker, stand)


def lines_of(said: list[str], start: str) -> list[str]:
    return [one for one in said if one.startswith(start)]


def test_a_wrong_sign_is_named_with_its_line_and_corrected_on_request_until_that_is_undone(
    ant, said, stand
):
    robot = ant(with_wrong_sign())
    robot.walk(900, lambda: robot.doctor.findings)
    assert robot.ticks * PERIOD_S <= 10.0
    (line,) = lines_of(said, "doctor: ")
    assert line.startswith("doctor: hip_1.position has the wrong sign, certain (")
    assert f"{stand.wiring}, line {LINE}: hip_1.position: " in line
    before, after = line.split("  ->  ")
    assert WRONG in before and RIGHT in after
    status = robot.status()
    assert status.level == DiagnosticStatus.WARN
    assert status.message.startswith("hip_1.position has the wrong sign; ")
    values = {pair.key: pair.value for pair in status.values}
    assert values["findings"] == "1" and values["1 corrected"] == "no"
    assert values["1 what"] == "hip_1.position" and values["1 would become"] == "scale: 1.432395"
    assert robot.scale() == pytest.approx(-1.4323945)

    answer = stand.call(Trigger, "policy/apply_corrections")
    assert answer.success and robot.scale() == pytest.approx(1.4323945)
    assert len(lines_of(said, "doctor: corrected while the node runs: hip_1.position: ")) == 1
    status = robot.status()
    assert status.level == DiagnosticStatus.WARN and "corrected while the node" in status.message
    assert robot.walk(1000) > WALKS
    again = stand.call(Trigger, "policy/apply_corrections")
    assert not again.success and "nothing that can be corrected" in again.message

    assert stand.call(Trigger, "policy/undo_corrections").success
    assert robot.scale() == pytest.approx(-1.4323945)
    assert len(lines_of(said, "doctor: correction undone, the wiring file counts again: hip")) == 1
    assert not stand.call(Trigger, "policy/undo_corrections").success
    assert stand.wiring.read_text() == with_wrong_sign()


def test_what_may_be_corrected_is_corrected_unasked_and_replays_to_the_last_bit(
    ant, said, stand, tmp_path
):
    robot = ant(
        with_wrong_sign(), monitor_corrects=["sign", "offset"], record=str(tmp_path / "bags")
    )
    robot.walk(900, lambda: robot.scale() > 0.0)
    assert robot.scale() == pytest.approx(1.4323945) and robot.ticks * PERIOD_S <= 10.0
    assert robot.walk(1000) > WALKS
    assert not robot.set("monitor_corrects", ["sing"]).successful
    assert robot.set("monitor_corrects", []).successful
    assert robot.scale() == pytest.approx(-1.4323945)
    robot.walk(60)
    stand.node.trigger_deactivate()
    stand.node.trigger_cleanup()
    (folder,) = (tmp_path / "bags").iterdir()
    with SessionReplay(Bag(folder), deserialize_message) as replay:
        commands = list(replay.replay_commands())
    assert len(commands) >= robot.ticks and replay.summary.events["correct"] == 2
    assert all((one.replayed == one.recorded).all() for one in commands)


def test_corrections_begin_with_their_kind_and_end_with_a_rewiring_or_a_reload(ant, said, stand):
    robot = ant(with_wrong_sign(), monitor_corrects=["scale", "offset"])
    robot.walk(900, lambda: robot.doctor.findings)
    assert robot.doctor.findings and robot.scale() < 0.0
    assert not lines_of(said, "doctor: corrected")
    assert robot.set("monitor_corrects", ["sign"]).successful
    assert robot.scale() > 0.0

    # A rewired channel drops its correction, and a reload drops all.
    assert robot.set("channels.hip_2.position.field", "position[hip_2]").successful
    assert robot.scale() > 0.0, "another channel's rewiring"
    assert robot.set("channels.hip_1.position.field", "position[ankle_1]").successful
    assert robot.scale() == pytest.approx(-1.4323945)
    assert lines_of(said, "doctor: correction dropped by the rewiring: hip_1.position")
    assert (
        robot.doctor.findings == [] and not stand.call(Trigger, "policy/undo_corrections").success
    )
    stand.wiring.write_text(ANT)
    assert stand.call(Trigger, "policy/reload_wiring").success
    assert robot.scale() == pytest.approx(1.4323945)
    assert robot.walk(1000) > WALKS


def test_a_motor_is_named_and_never_corrected(ant, said):
    wrong = ANT.replace("hip_3: {scale: 250.0", "hip_3: {scale: -250.0")
    robot = ant(wrong, monitor_corrects=["scale", "sign", "offset"])
    for _ in range(3):
        robot.walk(1000, lambda: robot.doctor.findings)
    (found,) = robot.doctor.findings
    assert found.members == ("hip_3",) and found.kind == "motor reversed"
    scales = [one.scale for one in robot.loop.controller.wiring.command.actuators]
    robot.walk(120)
    assert [one.scale for one in robot.loop.controller.wiring.command.actuators] == scales
    assert not lines_of(said, "doctor: corrected")
    answer = robot.stand.call(Trigger, "policy/apply_corrections")
    assert not answer.success
    values = {pair.key: pair.value for pair in robot.status().values}
    assert values["1 corrected"] == "by hand only"


SLOW = pytest.mark.slow


@pytest.mark.parametrize(
    "other",
    [
        "mass=1",
        "friction=0.5",
        pytest.param("mass=1.4", marks=SLOW),
        pytest.param("lag=0.4", marks=SLOW),
    ],
)
def test_nothing_is_said_of_a_robot_whose_wiring_is_right(ant, said, other):
    robot = ant(ANT, monitor_corrects=["scale", "sign", "offset"])
    name, value = other.split("=")
    robot.robot.vary_robot(DisturbanceSettings.from_values({name: float(value)}))
    robot.walk(700)
    assert not lines_of(said, "doctor: ") and robot.doctor.findings == []
    assert robot.status().level == DiagnosticStatus.OK


def test_the_end_of_the_doctors_process_is_logged_and_nothing_else_happens(ant, said):
    robot = ant(with_wrong_sign())
    robot.walk(900, lambda: robot.doctor.process.pid)
    os.kill(robot.doctor.process.pid, signal.SIGKILL)
    robot.walk(400, lambda: robot.doctor.process.failure)
    robot.walk(200)
    assert len(lines_of(said, "the wiring doctor is off until the node is configured again: ")) == 1
    assert robot.stand.node._loop.active and robot.doctor.findings == []
    status = robot.status()
    assert status.level == DiagnosticStatus.WARN
    assert re.search("the doctor is off: its process has ended with status -9", status.message)


def test_there_is_no_doctor_if_it_is_turned_off(ant):
    robot = ant(with_wrong_sign(), doctor=False)
    robot.walk(200)
    assert robot.doctor is None and robot.status() is None
    answer = robot.stand.call(Trigger, "policy/apply_corrections")
    assert not answer.success and answer.message == "parameter doctor is false"


def test_a_model_without_a_monitor_has_no_doctor_at_work(
    stand: Stand, monkeypatch: pytest.MonkeyPatch
):
    begun: list[object] = []
    start = RunningDoctor._start_watch
    monkeypatch.setattr(
        RunningDoctor, "_start_watch", lambda *how: begun.append(how) or start(*how)
    )
    stand.start()
    for step in range(150):
        stand.step(step)
    assert stand.node._loop.doctor.process.pid is None
    assert stand.node._loop.doctor._watch is None and len(begun) == 1


def test_an_error_in_the_doctors_part_of_a_tick_stops_the_doctor_and_not_the_robot(
    ant, said, monkeypatch
):
    robot = ant(with_wrong_sign())

    def fail(*how: object) -> bool:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(RunningDoctor, "_handle_answer_or_send_request", fail)
    robot.walk(200)
    assert robot.stand.node._loop.active
    assert len(lines_of(said, "the wiring doctor is off until the node is configured again: ")) == 1
    assert "can't start new thread" in robot.status().message


class CannedDoctor:
    """A doctor's process that gives the same answer to each request at once."""

    failure, is_busy = "", False

    def __init__(self, certainty: str, alternatives: Sequence[str] = ()) -> None:
        self.asked = 0
        self._answers: list[list[dict[str, Any]]] = []
        self.findings = [{
            "kind": "motor reversed",
            "members": ["hip_3"],
            "text": "turns the wrong way",
            "correction": "scale times -1",
            "log_odds": -40.0,
            "certainty": certainty,
            "alternatives": alternatives,
            "lines": [],
            "conversions": {},
        }]  # fmt: skip

    def send_request(self, request: object) -> None:
        self.asked += 1
        self._answers.append([dict(one) for one in self.findings])

    def pop_answer(self) -> list[dict[str, Any]] | None:
        return self._answers.pop() if self._answers else None


@pytest.fixture
def improbable_ant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., ControlLoop]:
    """Makes a control loop without ROS whose readings are improbable."""
    simulation = find_share_path("config/ant_sim.yaml")
    (tmp_path / "ant_sim.yaml").write_text(simulation.read_text())
    (tmp_path / "ant.yaml").write_text(with_wrong_sign())
    monkeypatch.setattr(running, "CONFIG", tmp_path)
    return partial(ControlLoop, "ant", "")


@pytest.mark.parametrize(("certainty", "answers"), [("certain", 2), ("likely", 4)])
def test_a_finding_is_announced_once_enough_answers_agree(improbable_ant, certainty, answers):
    process = CannedDoctor(certainty)
    loop = improbable_ant(process)
    for _ in range(1000):
        loop.step(1, watched=True)
        if loop.said:
            break
    assert process.asked == answers
    assert loop.said == [f"doctor: hip_3 turns the wrong way, {certainty}: scale times -1"]


def test_a_finding_that_is_as_likely_as_another_is_never_announced(improbable_ant):
    process = CannedDoctor("certain", ["motor dead: hip_3"])
    loop = improbable_ant(process)
    for _ in range(1000):
        loop.step(1, watched=True)
    assert process.asked > 2 and not loop.said


WRONG_SIGN = {
    "kind": "sign",
    "members": ["hip_1.position"],
    "text": "has the wrong sign",
    "correction": RIGHT,
    "log_odds": -400.0,
    "certainty": "certain",
    "alternatives": (),
    "lines": [],
    "conversions": {"hip_1.position": (1.4323945, 0.0)},
}


def answer(loop: ControlLoop, process: CannedDoctor, count: int) -> None:
    """Let the robot walk until the doctor has answered `count` times more."""
    until = process.asked + count
    for _ in range(2000):
        loop.step(1, watched=True)
        if process.asked > until:  # the answers before the newest request have been handled
            return
    raise AssertionError("the doctor is not asked")


def test_while_the_newest_answer_blames_a_motor_nothing_is_corrected_unasked(improbable_ant):
    process = CannedDoctor("certain")
    motor = process.findings[0]
    loop = improbable_ant(process)
    doctor = loop.doctor
    process.findings = [WRONG_SIGN]
    answer(loop, process, 2)
    process.findings = [WRONG_SIGN, motor]
    answer(loop, process, 1)
    doctor.set_mistake_kinds_to_correct(["sign"])
    assert [one.corrected for one in doctor.findings if one.kind == "sign"] == [False]
    process.findings = [WRONG_SIGN]
    answer(loop, process, 1)
    assert [one.corrected for one in doctor.findings if one.kind == "sign"] == [True]


def test_a_report_of_the_monitor_counts_only_once_while_the_policy_does_not_step(improbable_ant):
    process = CannedDoctor("certain")
    loop = improbable_ant(process)
    answer(loop, process, 1)
    asked = process.asked
    loop.controller._should_step = lambda readings, stamp_ns: False
    for _ in range(300):
        loop.step(1, watched=True)
    assert process.asked == asked
