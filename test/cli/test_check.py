"""`an-control check`: what is wrong with a wiring, by itself and on a robot that runs."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rclpy")
import rclpy
from geometry_msgs.msg import Vector3Stamped
from live_robot import Robot
from rclpy.context import Context
from rclpy.node import Node
from rosgraph_msgs.msg import Clock
from sensor_msgs.msg import Image, JointState
from stand import IDS, WIRING
from std_msgs.msg import Float64MultiArray

from an_control.cli import main
from an_control.cli.check import Findings, _print_findings
from an_control.commissioning.listen import listen_to_sources
from an_control.control.controller import Controller
from an_control.policy import AttentionSizes, MlpSizes, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control.system.share import find_share_path
from an_control.wiring import load_wiring

TASK = Task(channels=IDS, actuators=("left", "right"), step_s=0.01)


def files(folder: Path, *changes: tuple[str, str], ordered: bool = False, **task: Any) -> list[str]:
    """A wiring with these changes and a model; the arguments that check them."""
    text = WIRING
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    (folder / "wiring.yaml").write_text(text)
    sizes = (
        MlpSizes(4, 2, [8])
        if ordered
        else AttentionSizes(2, neuron=4, queries=6, key=3, inputs=["value"], head=[5])
    )
    write_model(folder / "m.safetensors", make_random_model(sizes, task=replace(TASK, **task)))
    return [str(folder / "wiring.yaml"), "--model", str(folder / "m.safetensors")]


def checked(arguments: list[str], folder: Path) -> tuple[int, dict[str, Any]]:
    status = main(["check", *arguments, "--json", str(folder / "found.json")])
    return status, json.loads((folder / "found.json").read_text())


def test_what_fits_is_listed_and_ends_with_0(tmp_path, capsys):
    status, found = checked(files(tmp_path), tmp_path)
    assert status == 0 and found["problems"] == []
    assert [row["model"] for row in found["channels"]] == ["known"] * 4
    assert [row["action"] for row in found["actuators"]] == ["left", "right"]
    shown = capsys.readouterr().out
    assert "nothing is wrong" in shown and "joints: position[left]" in shown
    assert "looked at: names and rate of the model\nnot looked at: types, rates and ages" in shown
    assert (
        found["looked_at"] == ["names and rate of the model"] and len(found["not_looked_at"]) == 4
    )


SOURCE = {
    "source": "joints", "topic": "/walker/front/joint_states", "type": "sensor_msgs/msg/JointState",
    "publishers": "/walker/front/joint_state_broadcaster", "qos": "best effort", "messages": 12345,
    "rate_hz": 99.98765, "longest_gap_s": 0.01234, "max_age_s": 0.05, "stamp_to_arrival_s": 0.00123,
}  # fmt: skip
CHANNEL = {
    "channel": "left_front_ankle_2.velocity", "from": "joints: velocity[left_front_ankle_2]",
    "model": "not wired", "present": 0.98765, "low": -12.345, "high": 6.789,
    "trained_low": -10.987, "trained_high": 10.123,
}  # fmt: skip
FOUND = Findings(channels=[CHANNEL], sources=[SOURCE])


def test_in_a_pipe_each_row_of_a_table_is_a_line(capsys):
    _print_findings(FOUND)
    shown = capsys.readouterr().out.splitlines()
    for texts in (
        [SOURCE["topic"], SOURCE["type"], SOURCE["publishers"], "best effort"],
        ["joints", "12345", "99.99", "0.01234", "0.05", "0.00123"],
        [CHANNEL["channel"], CHANNEL["from"], "0.9877", "-12.3 .. 6.79", "-11 .. 10.1"],
    ):
        assert any(all(text in line for text in texts) for line in shown), (texts, shown)


def test_a_unit_in_brackets_in_the_title_of_a_column_is_printed(capsys):
    _print_findings(Findings(motion=[{"actuator": "hip_1", "late by at least [ticks]": "0"}]))
    assert "late by at least [ticks]" in capsys.readouterr().out


def test_in_a_window_of_80_columns_long_texts_are_folded_and_nothing_is_cut(capsys, monkeypatch):
    monkeypatch.setattr("an_control.cli.check.WIDE", 80)
    _print_findings(FOUND)
    shown = capsys.readouterr().out
    assert max(map(len, shown.splitlines())) <= 80 and "\u2026" not in shown
    for text in ("12345", "99.99", "0.01234", "0.00123", "0.9877", "-12.3", "10.1"):
        assert text in shown.split(), text
    letters = [shown.count(one) for one in "/_"]
    texts = "".join(str(value) for value in (*SOURCE.values(), *CHANNEL.values()))
    assert letters >= [texts.count(one) for one in "/_"], "no part of a name is left out"


def test_what_a_draft_leaves_to_be_decided_is_a_problem_until_the_comment_is_deleted(tmp_path):
    safe = "safe: 0.5}"
    _, found = checked(files(tmp_path, (safe, f"{safe}   # SET scale, limits and safe")), tmp_path)
    (problem,) = found["problems"]
    line = 1 + WIRING[: WIRING.index(safe)].count("\n")
    assert f"wiring.yaml:{line}: 'SET scale, limits and safe': decide" in problem
    status, _ = checked(files(tmp_path, (safe, f"{safe}   # as on the datasheet")), tmp_path)
    assert status == 0


def test_actuators_in_another_order_are_a_note_and_show_their_action(tmp_path, capsys):
    status, found = checked(files(tmp_path, actuators=["right", "left"]), tmp_path)
    assert status == 0
    assert [row["action"] for row in found["actuators"]] == ["left", "right"]
    assert "another order; each gets its own action" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "more", "said"),
    [
        ((("left.position:", "a:"),), {}, "does not know: a;"),
        ((("left.position:", "a:"),), {}, "1 of the 4 channels"),
        ((), {"actuators": ["left", "top"]}, "top has no actuator here"),
        ((("left.position:", "a:"),), {"ordered": True}, "an ordered model"),
        ((), {"step_s": 0.02}, "trained at 50 Hz"),
        ((), {"actuators": ["x", "y"]}, "left, right is not allowed"),
    ],
)
def test_what_differs_from_the_model_is_a_problem_and_ends_with_1(
    tmp_path, capsys, changes, more, said
):
    status, found = checked(files(tmp_path, *changes, **more), tmp_path)
    assert status == 1
    assert any(said in one for one in found["problems"]), found["problems"]
    assert f"problem: {found['problems'][0]}" in capsys.readouterr().out


@pytest.mark.parametrize("with_model", [True, False])
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("  field: effort", "  field: torque"), "torque"),
        (
            ("  type: sensor_msgs/msg/JointState\n  field", "  type: no_msgs/msg/X\n  field"),
            "no_msgs",
        ),
        (("  actuators:", "  constants: {header.nonsense: 3}\n  actuators:"), "header.nonsense"),
    ],
)
def test_a_command_that_does_not_fit_its_message_is_a_problem(tmp_path, with_model, change, said):
    arguments = files(tmp_path, change)
    status, found = checked(arguments if with_model else arguments[:1], tmp_path)
    assert status == 1
    (problem,) = found["problems"]
    assert said in problem and "wiring.yaml" in problem and "command" in problem


@pytest.mark.parametrize("ordered", [False, True])
def test_a_policy_whose_weights_are_all_0_is_a_problem_and_the_node_says_it(tmp_path, ordered):
    words = files(tmp_path, ordered=ordered)
    assert "all weights" not in str(checked(words, tmp_path))
    assert Controller(words[0], words[2], "numpy").list_configuration_notes() == ()
    model = read_model(words[2])
    dead = {name: np.zeros_like(array) for name, array in model.arrays.items()}
    write_model(words[2], replace(model, arrays=dead))
    status, found = checked(words, tmp_path)
    said = f"{words[2]}: all weights of its policy are 0, so its command never changes"
    assert status == 1 and found["problems"][0].startswith(said)
    (note,) = Controller(words[0], words[2], "numpy").list_configuration_notes()
    assert note.startswith(said)


def test_renamed_and_lacking_channels_stand_in_the_table(tmp_path):
    _, found = checked(files(tmp_path, ("left.position:", "a:")), tmp_path)
    by_id = {row["channel"]: row["model"] for row in found["channels"]}
    assert (by_id["a"], by_id["left.position"]) == ("unknown", "not wired")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["gone.yaml"], "gone.yaml"),
        (["{wiring}", "--model", "gone.safetensors"], "gone.safetensors"),
        (["{wiring}", "--namespace", "/x"], "--namespace: only with --live"),
        (["{wiring}", "--live", "--seconds", "-1"], "--seconds -1"),
        (["{wiring}", "--live", "--namespace", "no name"], "--namespace no name: "),
    ],
)
def test_bad_input_ends_it_with_2(tmp_path, capsys, arguments, said):
    wiring, *_ = files(tmp_path)
    assert main(["check", *(one.format(wiring=wiring) for one in arguments)]) == 2
    assert said in capsys.readouterr().err


@pytest.fixture
def robot() -> Iterator[Robot]:
    one = Robot("/bot")
    yield one
    one.close()


LIVE = ["--live", "--namespace", "/bot", "--seconds", "2"]


def test_a_robot_that_fits_is_heard_with_its_rates_quality_and_ranges(tmp_path, robot):
    robot.joints(("left", "right"))
    robot.tilt()
    robot.node.create_subscription(JointState, "commands", lambda message: None, 10)
    robot.start()
    slow = ("max_age_s: 0.05", "max_age_s: 1.5")
    status, found = checked([*files(tmp_path, slow), *LIVE], tmp_path)
    assert status == 0, found["problems"]
    joints, tilt = found["sources"]
    assert joints["topic"] == "/bot/joint_states" and joints["publishers"] == "/bot/robot"
    assert (joints["qos"], tilt["qos"]) == ("best effort", "reliable")
    assert 10.0 < joints["rate_hz"] < 110.0 and 0.0 <= joints["stamp_to_arrival_s"] < 1.0
    left = found["channels"][0]
    assert left["channel"] == "left.position" and -0.5 <= left["low"] < left["high"] <= 0.5
    assert any("heard by /bot/robot" in one for one in found["notes"])
    assert any("did not change" in one and "tilt.x" in one for one in found["notes"])
    assert any("units are not checked" in one for one in found["notes"])
    assert any("signs, offsets and swapped wires" in one for one in found["not_looked_at"])


def test_private_topics_are_those_of_the_policy_node(tmp_path, robot):
    robot.joints(("left", "right"))
    robot.publish("policy/tilt", Vector3Stamped())
    robot.node.create_subscription(JointState, "policy/commands", lambda message: None, 10)
    robot.start()
    private = [
        ("max_age_s: 0.05", "max_age_s: 1.5"),
        ("topic: tilt", "topic: ~/tilt"),
        ("topic: commands", "topic: ~/commands"),
    ]
    status, found = checked([*files(tmp_path, *private), *LIVE], tmp_path)
    assert status == 0, found["problems"]
    assert found["sources"][1]["publishers"] == "/bot/robot"
    assert "/bot/policy/commands: heard by /bot/robot" in found["notes"]


def test_what_is_wrong_with_a_running_robot_is_named(tmp_path, robot):
    robot.joints(("left",))
    robot.node.create_publisher(Float64MultiArray, "tilt", 10)
    robot.start()
    status, found = checked([*files(tmp_path), *LIVE], tmp_path)
    assert status == 1
    said = "\n".join(found["problems"])
    assert "missing at the end: right.position: the message does not name it: it names left" in said
    assert "std_msgs/msg/Float64MultiArray (/bot/robot) on /bot/tilt" in said
    assert "nobody hears commands on /bot/commands" in said


def test_an_actuator_whose_measured_position_never_comes_is_a_problem(tmp_path, robot):
    robot.joints(("right", "wheel"))
    robot.start()
    measured = '  field: position\n  measured: {source: joints, field: "position[*]"}'
    changes = [("  field: effort", measured), ("safe: 0.5", "safe: hold")]
    _, found = checked([*files(tmp_path, *changes), *LIVE], tmp_path)
    assert "no position has been measured of left (joints: position[left])" in found["problems"]
    changes.append(("safe: hold", 'safe: hold, field: "position[wheel]"'))
    _, found = checked([*files(tmp_path, *changes), *LIVE], tmp_path)
    assert not any("measured" in one for one in found["problems"]), found["problems"]


EYES = """
  eye: {topic: eye, type: sensor_msgs/msg/Image, max_age_s: 2}
  tail: {topic: tail, type: sensor_msgs/msg/Image, max_age_s: 2}
channels:
  eye.*: {source: eye, image: {size: [8, 8], patch: 4, stack: 2}}
  tail.*: {source: tail, image: {size: [8, 8], patch: 4, stack: 2}}
command:
"""


def test_a_camera_of_another_encoding_is_named_and_one_that_fits_is_present(tmp_path, robot):
    start, _, end = WIRING.partition("sources:")
    path = tmp_path / "wiring.yaml"
    path.write_text(start + "sources:" + EYES.rstrip() + end.partition("command:")[2])
    for topic, encoding in (("eye", "mono8"), ("tail", "8UC1")):
        message = Image(height=8, width=8, step=8, encoding=encoding)
        message.data.extend(range(100, 164))
        robot.publish(topic, message)
    robot.start()
    status, found = checked(
        [str(path), "--live", "--namespace", "/bot", "--seconds", "1"], tmp_path
    )
    assert status == 1
    (problem,) = [one for one in found["problems"] if "missing at the end" in one]
    assert (
        "tail.0.0, tail.0.1, tail.1.0, tail.1.1: unreadable message (encoding '8UC1' is" in problem
    )
    eye, tail = found["channels"]
    assert (eye["channel"], eye["low"], eye["high"]) == ("eye.*", 100, 163)
    assert eye["present"] > 0.0 and tail["present"] == 0.0


def test_a_policy_of_image_patches_is_not_said_to_need_ranges(tmp_path, monkeypatch):
    monkeypatch.setattr("an_control.commissioning.listen.DISCOVERY_S", 0.5)
    wiring, model = map(find_share_path, ("config/pong.yaml", "models/pong.safetensors"))
    _, found = checked([str(wiring), "--model", str(model), *LIVE[:-1], "0.5"], tmp_path)
    assert found["sources"] and not any("units" in one for one in found["notes"])


def test_a_silent_robot_has_no_publishers(tmp_path, monkeypatch):
    monkeypatch.setattr("an_control.commissioning.listen.DISCOVERY_S", 0.5)
    status, found = checked([*files(tmp_path), *LIVE[:-1], "0.5"], tmp_path)
    assert status == 1
    assert "source joints (/bot/joint_states): no publisher" in found["problems"]


def test_what_records_the_commands_for_the_doctor_does_not_count_as_one_who_hears_them(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("an_control.commissioning.listen.DISCOVERY_S", 0.5)
    wiring, *_ = files(tmp_path)

    class Recorder:
        def subscribe_to_robot(self, node):
            node.create_subscription(JointState, "commands", lambda message: None, 10)

        def close(self):
            pass

    heard = listen_to_sources(load_wiring(wiring), "/bot", 0.5, Recorder())
    assert heard.commands == ("/bot/commands: heard by nobody",)
    assert heard.wrong_commands[0].startswith("nobody hears commands on /bot/commands")


def test_frozen_stamps_are_named(tmp_path, robot):
    robot.joints(("left", "right"))
    robot.tilt(frozen=True)
    robot.start()
    _, found = checked([*files(tmp_path), *LIVE], tmp_path)
    assert any("every message has the same stamp" in one for one in found["problems"])


def test_stamps_in_simulated_time_are_a_problem_only_if_nobody_publishes_the_clock(tmp_path, robot):
    robot.joints(("left", "right"))
    robot.tilt()
    sends, start_ns = robot.sends, time.time_ns()
    robot.sends = [lambda now_ns: [send(now_ns - start_ns + 1) for send in sends]]
    robot.start()
    wiring, *_ = files(tmp_path)
    _, found = checked([wiring, *LIVE], tmp_path)
    assert sum("behind this node's clock" in one for one in found["problems"]) == 2
    robot.node.create_publisher(Clock, "/clock", 10)
    _, found = checked([wiring, *LIVE], tmp_path)
    assert not any("clock" in one for one in found["problems"]), found["problems"]


def test_degrees_instead_of_radians_are_guessed_by_what_the_model_saw_in_training(tmp_path, robot):
    model = find_share_path("models/ant.safetensors")
    robot.joints(("hip_1", "ankle_1"), value=50.0)
    robot.start()
    text = (
        find_share_path("config/ant.yaml").read_text().replace("clip: [-5, 5]", "clip: [-500, 500]")
    )
    (tmp_path / "ant.yaml").write_text(text)
    arguments = [str(tmp_path / "ant.yaml"), "--model", str(model), *LIVE]
    status, found = checked(arguments, tmp_path)
    assert status == 1
    (said,) = [one for one in found["problems"] if "channel hip_1.position" in one]
    assert "times as much; degrees instead of radians" in said


@pytest.mark.parametrize("verb", ["check", "new"])
def test_ctrl_c_ends_the_listening_at_once(program, tmp_path, verb):
    wiring, *_ = files(tmp_path)
    work = {"check": [wiring], "new": [f"mine_{tmp_path.name}", "--out", tmp_path]}[verb]
    with program.started(verb, *work, "--live", "--seconds", 600) as process:
        program.wait(lambda: discovered("an_control_" + verb), f"the node of {verb}")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "interrupted" in errors and "Traceback" not in errors


def discovered(name: str) -> bool:
    """Whether a node of that name runs."""
    context = Context()
    rclpy.init(args=[], context=context)
    node = Node("looker", context=context)
    try:
        time.sleep(0.5)
        return name in node.get_node_names()
    finally:
        node.destroy_node()
        rclpy.shutdown(context=context)
