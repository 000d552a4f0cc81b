"""The wiring file: what it may hold, and what it says when it holds something else."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from an_control.system.share import find_share_path
from an_control.wiring import ChannelConfig, SourceConfig, Wiring, WiringError, load_wiring

Load = Callable[..., Wiring]
CHANNEL = {"source": "joints", "field": "position[a]"}
SOURCE = {"topic": "joint_states", "type": "sensor_msgs/msg/JointState", "max_age_s": 0.1}
ACTUATOR = {"limits": [-1, 1], "safe": 0.0}


def command(**changes: Any) -> dict[str, Any]:
    base = {"topic": "c", "type": "std_msgs/msg/Float64MultiArray", "field": "data"}
    return {**base, "actuators": {"a": copy.deepcopy(ACTUATOR)}, **changes}


def test_two_sources_that_expect_other_types_on_one_topic_are_refused(load: Load) -> None:
    imu = {**SOURCE, "type": "sensor_msgs/msg/Imu"}
    said = r"sources\.imu\.type.*sensor_msgs/msg/JointState, as which source joints reads"
    with pytest.raises(WiringError, match=said):
        load(sources={"joints": SOURCE, "imu": imu})


def test_each_changed_setting_is_described(load: Load) -> None:
    before = load(min_present_share=0.5, channels={"a.position": CHANNEL})
    after = load(
        min_present_share=0.0,
        sources={"joints": {**SOURCE, "topic": "other", "max_age_s": 0.0, "required": True}},
        channels={"a.position": {**CHANNEL, "scale": 2.0}},
    )
    assert after.describe_changes(before) == [
        "sources.joints.topic = other",
        "min_present_share = 0.0",
        "sources.joints.max_age_s = 0.0",
        "sources.joints.required = True",
        "channels.a.position.scale = 2.0",
    ]


def test_a_file_is_read_as_written(load: Load) -> None:
    wiring = load(
        channels={
            "a.position": {**CHANNEL, "scale": 2, "offset": -1, "clip": [-5, 5], "max_age_s": 0},
            "*.velocity": {"source": "joints", "field": "velocity[*]"},
        }
    )
    assert wiring.robot == "arm"
    assert (wiring.rate_hz, wiring.min_present_share) == (50.0, 0.5)
    assert wiring.sources == (
        SourceConfig("joints", "joint_states", "sensor_msgs/msg/JointState", 0.1),
    )
    assert wiring.find_source("joints") is wiring.sources[0]
    assert wiring.channels == (
        ChannelConfig("a.position", "joints", "position[a]", 2.0, -1.0, (-5.0, 5.0), 0.0),
        ChannelConfig("*.velocity", "joints", "velocity[*]"),
    )
    assert wiring.command.names == ("a",)
    assert wiring.command.actuators[0].limits == (-3.0, 3.0)


CASES: list[tuple[str, dict[str, Any], str, str]] = [
    ("unknown key", {"chanels": {}}, "chanels", "did you mean 'channels'"),
    ("version", {"an_control_wiring": 2}, "an_control_wiring", "1, the version"),
    ("robot", {"robot": "my robot"}, "robot", "a name"),
    ("rate", {"rate_hz": 0}, "rate_hz", "ticks per second"),
    ("rate as text", {"rate_hz": "fast"}, "rate_hz", "ticks per second"),
    ("rate as truth", {"rate_hz": True}, "rate_hz", "ticks per second"),
    ("rate not finite", {"rate_hz": float("nan")}, "rate_hz", "ticks per second"),
    ("share", {"min_present_share": 1.5}, "min_present_share", "a share from 0 to 1"),
    ("no source", {"sources": {}}, "sources", "at least one source"),
    ("sources as list", {"sources": [SOURCE]}, "sources", "at least one source"),
    ("source name", {"sources": {"a b": SOURCE}}, "sources.a b", "a name"),
    (
        "no max age",
        {"sources": {"joints": {"topic": "t", "type": SOURCE["type"]}}},
        "sources.joints",
        "max_age_s",
    ),
    (
        "negative age",
        {"sources": {"joints": {**SOURCE, "max_age_s": -1}}},
        "sources.joints.max_age_s",
        "seconds, 0 (off)",
    ),
    (
        "topic",
        {"sources": {"joints": {**SOURCE, "topic": "a//b"}}},
        "sources.joints.topic",
        "a topic name",
    ),
    (
        "type",
        {"sources": {"joints": {**SOURCE, "type": "JointState"}}},
        "sources.joints.type",
        "a message type",
    ),
    ("no channel", {"channels": {}}, "channels", "at least one channel"),
    (
        "misspelt scale",
        {"channels": {"x": {**CHANNEL, "scael": 1}}},
        "channels.x.scael",
        "did you mean 'scale'",
    ),
    (
        "unknown source",
        {"channels": {"x": {**CHANNEL, "source": "imu"}}},
        "channels.x.source",
        "one of the sources joints",
    ),
    ("scale", {"channels": {"x": {**CHANNEL, "scale": 0}}}, "channels.x.scale", "other than 0"),
    (
        "infinite offset",
        {"channels": {"x": {**CHANNEL, "offset": float("inf")}}},
        "channels.x.offset",
        "a finite number",
    ),
    ("clip", {"channels": {"x": {**CHANNEL, "clip": [5, -5]}}}, "channels.x.clip", "[lowest"),
    ("wide clip", {"channels": {"x": {**CHANNEL, "clip": [0, 1e39]}}}, "channels.x.clip", "["),
    ("field", {"channels": {"x": {**CHANNEL, "field": "a b"}}}, "channels.x.field", "a path"),
    ("field type", {"channels": {"x": {**CHANNEL, "field": 3}}}, "channels.x.field", "a path"),
    (
        "many for one",
        {"channels": {"x": {**CHANNEL, "field": "position[*]"}}},
        "channels.x.field",
        "a * in the channel's id",
    ),
    ("one for many", {"channels": {"*.x": CHANNEL}}, "channels.*.x.field", "several numbers"),
    ("two stars", {"channels": {"*.*": CHANNEL}}, "channels.*.*", "at most one *"),
    ("id", {"channels": {"a b": CHANNEL}}, "channels.a b", "visible characters"),
    ("command type", {"command": command(type="Twist")}, "command.type", "a message type"),
    ("command type a list", {"command": command(type=[])}, "command.type", "a message type"),
    ("command field", {"command": command(field="a b")}, "command.field", "a path such as effort"),
    ("an angle as command", {"command": command(field="yaw(q)")}, "command.field", "a path"),
    ("two stars as command", {"command": command(field="a[*].b[*]")}, "command.field", "one *"),
    (
        "no command field",
        {"command": {k: v for k, v in command().items() if k != "field"}},
        "command.actuators.a",
        "a field, a path",
    ),
    (
        "several numbers for one actuator",
        {"command": command(actuators={"a": {**ACTUATOR, "field": "data[*]"}})},
        "command.actuators.a.field",
        "a path of one number",
    ),
    ("a list of one command", {"command": [command()]}, "command", "a list of several"),
    (
        "a topic twice",
        {"command": [command(), command(actuators={"b": copy.deepcopy(ACTUATOR)})]},
        "command[1].topic",
        "each topic once",
    ),
    (
        "an actuator twice",
        {"command": [command(), command(topic="d")]},
        "command[1].actuators.a",
        "each actuator once",
    ),
    (
        "a constant that is a list",
        {"command": command(constants={"header.frame_id": []})},
        "command.constants.header.frame_id",
        "a number, a text",
    ),
    (
        "a velocity that is held",
        {
            "command": command(
                measured={"source": "joints", "field": "position[*]"},
                actuators={"a": {**ACTUATOR, "safe": "hold", "field": "velocity[a]"}},
            )
        },
        "command.actuators.a.field",
        "a field of positions",
    ),
    ("no actuator", {"command": command(actuators={})}, "command.actuators", "at least one"),
    (
        "no safe value",
        {"command": command(actuators={"a": {"limits": [0, 1]}})},
        "command.actuators.a",
        "safe",
    ),
    (
        "unsafe safe value",
        {"command": command(actuators={"a": {"limits": [0, 1], "safe": 2}})},
        "command.actuators.a.safe",
        "within the limits 0 to 1",
    ),
    (
        "hold without a measurement",
        {"command": command(actuators={"a": {**ACTUATOR, "safe": "hold"}})},
        "command",
        "measured: {source, field}, for safe: hold",
    ),
    (
        "a safe word that is none",
        {"command": command(actuators={"a": {**ACTUATOR, "safe": "stay"}})},
        "command.actuators.a.safe",
        "or hold",
    ),
    (
        "a measured source that is none",
        {"command": command(measured={"source": "none", "field": "position[*]"})},
        "command.measured.source",
        "one of the sources",
    ),
    (
        "a measured field for one",
        {"command": command(measured={"source": "joints", "field": "position[a]"})},
        "command.measured.field",
        "with one *",
    ),
    (
        "bring-up without a start pose",
        {"command": command(bring_up={"max_rate": 1, "tolerance": 0.1, "timeout_s": 5})},
        "command.actuators.a",
        "start: POSITION, for bring_up",
    ),
    (
        "bring-up without a measurement",
        {
            "command": command(
                bring_up={"max_rate": 1, "tolerance": 0.1, "timeout_s": 5},
                actuators={"a": {**ACTUATOR, "start": 0.0}},
            )
        },
        "command",
        "measured: {source, field}, for bring_up",
    ),
    (
        "bring-up at no rate",
        {"command": command(bring_up={"max_rate": 0, "tolerance": 0.1, "timeout_s": 5})},
        "command.bring_up.max_rate",
        "more than 0",
    ),
    (
        "a start pose without bring-up",
        {"command": command(actuators={"a": {**ACTUATOR, "start": 0.0}})},
        "command",
        "bring_up: {max_rate, tolerance, timeout_s}, because an actuator has start",
    ),
    (
        "rate of change",
        {"command": command(actuators={"a": {**ACTUATOR, "max_rate": -1}})},
        "command.actuators.a.max_rate",
        "0 = off",
    ),
]


@pytest.mark.parametrize(
    ("changes", "key", "allowed"), [c[1:] for c in CASES], ids=[c[0] for c in CASES]
)
def test_an_error_names_file_key_value_and_what_is_allowed(
    load: Load, changes: dict[str, Any], key: str, allowed: str
) -> None:
    with pytest.raises(WiringError) as caught:
        load(**changes)
    error = caught.value
    assert error.key == key
    assert allowed in error.allowed
    assert all(part in str(error) for part in (error.file, key, error.value, error.allowed))
    assert error.file.endswith("robot.yaml")


def test_the_key_qos_of_a_source_is_said_to_follow_the_publishers(load: Load) -> None:
    joints = {"topic": "joint_states", "type": "sensor_msgs/msg/JointState", "max_age_s": 0.1}
    with pytest.raises(WiringError, match=r"sources\.joints\.qos: is now: .* the publishers"):
        load(sources={"joints": {**joints, "qos": "reliable"}})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", "an empty file"),
        ("- 1", "[1]"),
        ("a: 1\nb: 2\na: 3", "line 3: a second 'a'"),
        ("a: {x: &anchor 1, y: *anchor}", "line 1: an alias or anchor"),
        ("channels:\n  *.position: 1", "alias"),
        ("a: !!python/object:os.system x", "line 1: a tag"),
        ("a: !!float 1", "line 1: a tag"),
        ("a: 1\n---\nb: 2", "line 2: a second document"),
        ("? [a]\n: 1", "line 1: a key that is not a name"),
        ("a: " + "[" * 100 + "]" * 100, "line 1: one level more"),
        ("a: " + "[" * 300_000, "line 1: one level more"),
        ("a: [1", "line"),
        ("a: \x00", "unreadable text"),
        (b"a: \xff", "byte 3"),
        ("a: " + "x" * 1_000_000, "a larger file"),
    ],
)
def test_what_is_not_plain_yaml_is_refused(load: Load, text: str | bytes, value: str) -> None:
    with pytest.raises(WiringError, match=re.escape(value)):
        load(text)


def test_two_channels_of_one_id_are_refused_by_name(load: Load) -> None:
    text = find_share_path("config/ant.yaml").read_text().replace("goal.sin:", "goal.cos:")
    with pytest.raises(WiringError) as caught:
        load(text)
    assert caught.value.key == "channels.goal.cos"
    assert caught.value.allowed == "each name once"


def test_scalars_follow_yaml_1_2_so_that_1e_minus_3_is_a_number_and_on_a_name(load: Load) -> None:
    text = find_share_path("config/ant.yaml").read_text()
    wiring = load(text.replace("robot: ant", "robot: on").replace("scale: 0.1,", "scale: 1e-1,"))
    assert wiring.robot == "on"
    assert wiring.channels[9].scale == 0.1


def test_a_source_on_the_commands_topic_is_refused_but_two_may_share_a_topic(load: Load) -> None:
    shared = load(sources={"joints": SOURCE, "again": {**SOURCE}})
    assert [one.topic for one in shared.sources] == ["joint_states", "joint_states"]
    with pytest.raises(WiringError, match=r"sources\.joints\.topic: 'c' .* command\.topic"):
        load(sources={"joints": {**SOURCE, "topic": "c"}}, command=command())


@pytest.mark.parametrize("number", [".nan", ".inf", "-.inf", "1e999", "9" * 5000])
def test_a_number_that_is_not_finite_is_refused(load: Load, number: str) -> None:
    text = (
        find_share_path("config/ant.yaml")
        .read_text()
        .replace("rate_hz: 60.606", f"rate_hz: {number}")
    )
    with pytest.raises(WiringError, match="rate_hz"):
        load(text)


def test_a_file_that_is_not_there_is_a_wiring_error(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path, "a\0b"):
        with pytest.raises(WiringError, match="cannot be read"):
            load_wiring(path)


def test_a_wiring_cannot_be_changed_once_loaded(load: Load) -> None:
    wiring = load()
    with pytest.raises(AttributeError):
        wiring.rate_hz = 1.0  # type: ignore[misc]
