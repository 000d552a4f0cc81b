"""Commands as messages: any type whose fields a path names, every value cast to its field."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("geometry_msgs.msg")

from an_control.control.command_safety import SafetyGate
from an_control.wiring import (
    CommandMessage,
    WiringError,
    compute_sendable_limits,
    load_wiring,
    make_command_messages,
)

STAMP_NS = 5_000_000_001
WIRING: dict[str, Any] = {
    "an_control_wiring": 1,
    "robot": "arm",
    "rate_hz": 50,
    "min_present_share": 0.5,
    "sources": {
        "joints": {"topic": "joints", "type": "sensor_msgs/msg/JointState", "max_age_s": 0.1}
    },
    "channels": {"a": {"source": "joints", "field": "position[a]"}},
}


def actuator(**changes: Any) -> dict[str, Any]:
    return {"limits": [-1, 1], "safe": 0.0, **changes}


def carriers(folder: Path, *messages: dict[str, Any]) -> tuple[CommandMessage, ...]:
    path = folder / "robot.yaml"
    command = messages[0] if len(messages) == 1 else list(messages)
    path.write_text(yaml.safe_dump({**WIRING, "command": command}, sort_keys=False))
    return make_command_messages(load_wiring(path).command, str(path))


def carrier(folder: Path, type_: str, **entry: Any) -> CommandMessage:
    return carriers(folder, {"topic": "c", "type": type_, **entry})[0]


def filled(carrier: CommandMessage, *values: float) -> Any:
    carrier.fill(np.array(values), STAMP_NS)
    assert carrier.read_values(carrier.message).tolist() == pytest.approx(values)
    return carrier.message


def two(field: str) -> dict[str, Any]:
    return {"field": field, "actuators": {"hip": actuator(), "knee": actuator()}}


def test_an_array_beside_names_is_filled_by_name_and_another_by_place(tmp_path: Path) -> None:
    joints = filled(carrier(tmp_path, "sensor_msgs/msg/JointState", **two("effort")), 0.1, 0.2)
    assert (joints.name, joints.effort.tolist()) == (["hip", "knee"], [0.1, 0.2])
    assert (joints.header.stamp.sec, joints.header.stamp.nanosec) == (5, 1)
    group = filled(carrier(tmp_path, "std_msgs/msg/Float64MultiArray", **two("data")), 0.1, 0.2)
    assert group.data.tolist() == [0.1, 0.2]
    starred = carrier(tmp_path, "sensor_msgs/msg/JointState", **two("velocity[*]"))
    assert filled(starred, 0.1, 0.2).velocity.tolist() == [0.1, 0.2]


def test_a_twist_takes_its_speeds_its_stamp_and_its_frame(tmp_path: Path) -> None:
    speeds = {
        "forward": actuator(field="twist.linear.x"),
        "turn": actuator(field="twist.angular.z"),
    }
    twist = filled(
        carrier(
            tmp_path,
            "geometry_msgs/msg/TwistStamped",
            actuators=speeds,
            constants={"header.frame_id": "base_link"},
        ),
        0.5,
        -0.25,
    )
    assert (twist.twist.linear.x, twist.twist.angular.z) == (0.5, -0.25)
    assert (twist.twist.linear.y, twist.header.frame_id) == (0.0, "base_link")
    assert twist.header.stamp.sec == 5


def test_a_trajectory_has_one_point_to_reach_in_one_period_from_now_on(tmp_path: Path) -> None:
    type_, fields = "trajectory_msgs/msg/JointTrajectory", two("points[0].positions")
    trajectory = filled(carrier(tmp_path, type_, **fields), 0.1, 0.2)
    (point,) = trajectory.points
    assert (trajectory.joint_names, point.positions.tolist()) == (["hip", "knee"], [0.1, 0.2])
    assert (point.time_from_start.sec, point.time_from_start.nanosec) == (0, 20_000_000)
    stamp = trajectory.header.stamp
    assert (stamp.sec, stamp.nanosec) == (0, 0), "a controller refuses one that ends in the past"
    slow = carrier(tmp_path, type_, **fields, constants={"points[0].time_from_start": 1.5})
    duration = slow.message.points[0].time_from_start
    assert (duration.sec, duration.nanosec) == (1, 500_000_000)


def test_one_message_takes_several_interfaces_of_its_joints(tmp_path: Path) -> None:
    actuators = {
        f"{joint}.{kind}": actuator(field=f"{kind}[{joint}]")
        for joint in ("hip", "knee")
        for kind in ("position", "velocity", "effort")
    }
    joints = carrier(tmp_path, "sensor_msgs/msg/JointState", actuators=actuators)
    message = filled(joints, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6)
    assert message.name == ["hip", "knee"]
    assert message.position.tolist() == [0.1, 0.4]
    assert message.velocity.tolist() == [0.2, 0.5]
    assert message.effort.tolist() == [0.3, 0.6]


def test_a_joint_whose_name_is_a_number_is_no_index(tmp_path: Path) -> None:
    actuators = {"7": actuator(), "1": actuator()}
    joints = carrier(tmp_path, "sensor_msgs/msg/JointState", field="effort", actuators=actuators)
    assert filled(joints, 0.1, 0.2).name == ["7", "1"]


def test_every_type_of_number_gets_exactly_what_it_takes(tmp_path: Path) -> None:
    wide = {"a": actuator(limits=[-300, 300]), "b": actuator()}
    whole = carrier(tmp_path, "std_msgs/msg/Int16MultiArray", field="data", actuators=wide)
    whole.fill(np.array([-200.6, 0.2]), None)
    assert whole.message.data.tolist() == [-201, 0]
    assert (
        whole.read_values(whole.message).tolist() == [-201.0, 0.0]
        and not whole.has_only_float64_fields
    )
    grip = {"grip": actuator(limits=[0, 1])}
    switch = carrier(tmp_path, "std_msgs/msg/Bool", field="data", actuators=grip)
    for value, on in ((0.7, True), (0.2, False)):
        switch.fill(np.array([value]), None)
        assert switch.message.data is on
    single = carrier(tmp_path, "std_msgs/msg/Float32", field="data", actuators=grip)
    single.fill(np.array([0.1]), None)
    assert single.read_values(single.message)[0] == np.float32(0.1)
    base = {"x": actuator(field="twist[base].linear.x")}
    nested = carrier(tmp_path, "sensor_msgs/msg/MultiDOFJointState", actuators=base)
    assert filled(nested, 0.5).joint_names == ["base"]


TWIST = "geometry_msgs/msg/Twist", {"actuators": {"a": actuator(field="linear.x")}}
ARRAY = "std_msgs/msg/Float64MultiArray", {"field": "data", "actuators": {"a": actuator()}}
SPEED = {"actuators": {"a": actuator(field="twist.linear.x")}}
TRAJECTORY = (
    "trajectory_msgs/msg/JointTrajectory",
    {"field": "points[0].positions", "actuators": {"a": actuator()}},
)
REFUSED: list[tuple[str, dict[str, Any], str, str]] = [
    ("sensor_msgs/msg/Nope", two("data"), "type", "an installed type"),
    ("sensor_msgs/msg/JointState", two("torque"), "field", "the fields here are"),
    ("geometry_msgs/msg/Twist", two("linear"), "field", "a message of x, y, z"),
    ("geometry_msgs/msg/Twist", two("linear.x"), "field", "no other actuator writes"),
    ("sensor_msgs/msg/JointState", two("name"), "field", "a string"),
    (
        "sensor_msgs/msg/JointState",
        {
            "actuators": {
                "hip": actuator(field="position[hip]"),
                "knee": actuator(field="velocity[knee]"),
            }
        },
        "actuators",
        "an actuator for each element",
    ),
    (
        "std_msgs/msg/Float64MultiArray",
        {"actuators": {"hip": actuator(field="data[1]")}},
        "actuators",
        "an actuator for each element",
    ),
    (
        "trajectory_msgs/msg/JointTrajectory",
        two("points[999999999].positions"),
        "field",
        "points[0] to points[0]",
    ),
    (
        "std_msgs/msg/Int8MultiArray",
        {"field": "data", "actuators": {"hip": actuator(limits=[-200, 1])}},
        "actuators.hip.limits",
        "-128 to 127",
    ),
    (
        "std_msgs/msg/Float64",
        {"field": "data", "actuators": {"a": actuator()}, "constants": {"frame": "x"}},
        "constants.frame",
        "the fields here are data",
    ),
    (
        "geometry_msgs/msg/TwistStamped",
        {
            "actuators": {"a": actuator(field="twist.linear.x")},
            "constants": {"header.frame_id": 3},
        },
        "constants.header.frame_id",
        "a string",
    ),
    (
        "geometry_msgs/msg/TwistStamped",
        {
            "actuators": {"a": actuator(field="twist.linear.x")},
            "constants": {"header.stamp": 3},
        },
        "constants.header.stamp",
        "a single number or text",
    ),
    *(
        (type_, {"actuators": {"a": actuator(field=field)}}, "actuators.a.field", "part of a time")
        for type_, field in [
            ("geometry_msgs/msg/TwistStamped", "header.stamp.sec"),
            ("trajectory_msgs/msg/JointTrajectory", "header.stamp.sec"),
            ("trajectory_msgs/msg/JointTrajectory", "points[0].time_from_start.nanosec"),
            ("std_msgs/msg/Header", "stamp.nanosec"),
        ]
    ),
    *(
        ("geometry_msgs/msg/TwistStamped", {**SPEED, "constants": {path: 3}}, key, allowed)
        for path, key, allowed in [
            ("twist.linear.x", "constants.twist.linear.x", "that no actuator commands"),
            ("header.stamp.sec", "constants.header.stamp.sec", "the node writes the stamp"),
        ]
    ),
    *(
        (
            "std_msgs/msg/Float32",
            {"field": "data", "actuators": {"a": actuator(limits=limits)}},
            "actuators.a.limits",
            "-3.40282e+38 to 3.40282e+38, which its field, a float, can hold",
        )
        for limits in ([-1, 1e300], [-1e300, 1])
    ),
    *(
        (type_, {**fields, "constants": {path: value}}, f"constants.{path}", allowed)
        for type_, fields, path, value, allowed in [
            (*TWIST, "linear.y", float("inf"), "-1.79769e+308 to 1.79769e+308"),
            (*TWIST, "linear.y", float("nan"), "which a double can hold"),
            (*ARRAY, "layout.data_offset", -1, "0 to 4.29497e+09, which a uint32 can hold"),
            (*ARRAY, "layout.data_offset", 2**32, "0 to 4.29497e+09"),
            (*ARRAY, "layout.data_offset", float("inf"), "0 to 4.29497e+09"),
            (*ARRAY, "layout.data_offset", float("nan"), "0 to 4.29497e+09"),
            (*ARRAY, "layout.data_offset", 1.5, "a whole number"),
            (*TRAJECTORY, "points[0].time_from_start", 1e12, "seconds from 0 to 2147483647"),
            (*TRAJECTORY, "points[0].time_from_start", -5, "seconds from 0 to 2147483647"),
            (*TRAJECTORY, "points[0].time_from_start", float("nan"), "seconds from 0"),
        ]
    ),
]


@pytest.mark.parametrize(("type_", "entry", "key", "allowed"), REFUSED)
def test_what_does_not_fit_its_message_is_refused(
    tmp_path: Path, type_: str, entry: dict[str, Any], key: str, allowed: str
) -> None:
    with pytest.raises(WiringError) as caught, warnings.catch_warnings():
        warnings.simplefilter("error")
        carrier(tmp_path, type_, **entry)
    assert caught.value.key == f"command.{key}"
    assert allowed in str(caught.value)


@pytest.mark.parametrize("value", [0, 7, 7.0, 2**32 - 1])
def test_a_constant_is_written_as_its_field_takes_it(tmp_path: Path, value: float) -> None:
    type_, fields = ARRAY
    constants = {"layout.data_offset": value}
    message = filled(carrier(tmp_path, type_, **fields, constants=constants), 0.5)
    assert message.layout.data_offset == value and type(message.layout.data_offset) is int


def test_the_second_of_several_messages_is_named_by_its_place(tmp_path: Path) -> None:
    first = {"topic": "c", "type": "std_msgs/msg/Float64", "field": "data"}
    with pytest.raises(WiringError, match=r"command\[1\]\.field"):
        carriers(
            tmp_path,
            {**first, "actuators": {"a": actuator()}},
            {**first, "topic": "d", "field": "date", "actuators": {"b": actuator()}},
        )


def test_a_message_of_others_is_read_by_name_and_as_a_whole(tmp_path: Path) -> None:
    from sensor_msgs.msg import JointState
    from std_msgs.msg import Float64MultiArray
    from trajectory_msgs.msg import JointTrajectory

    joints = carrier(tmp_path, "sensor_msgs/msg/JointState", **two("effort"))
    other = JointState(name=["knee", "x", "hip"], effort=[1.0, 2.0, 3.0])
    assert joints.read_values(other).tolist() == [3.0, 1.0]
    for wrong, why in (
        (JointState(name=["knee"], effort=[1.0]), "actuator hip is not among the names"),
        (JointState(name=["knee", "hip"], effort=[1.0]), "1 values for the names"),
        (JointState(name=["knee", "hip"], effort=[1.0, np.nan]), "not finite"),
    ):
        with pytest.raises(ValueError, match=why):
            joints.read_values(wrong)
    group = carrier(tmp_path, "std_msgs/msg/Float64MultiArray", **two("data"))
    with pytest.raises(ValueError, match="3 values for 2 actuators"):
        group.read_values(Float64MultiArray(data=[1.0, 2.0, 3.0]))
    path = carrier(tmp_path, "trajectory_msgs/msg/JointTrajectory", **two("points[0].positions"))
    with pytest.raises(ValueError, match=r"no points\[0\]"):
        path.read_values(JointTrajectory(joint_names=["hip", "knee"]))


FLOATS = {"type_": "std_msgs/msg/Float32MultiArray", "field": "data"}
WHOLE = {"type_": "std_msgs/msg/Int16MultiArray", "field": "data"}


@pytest.mark.parametrize("kind", [FLOATS, WHOLE], ids=["float32", "int16"])
@given(low=st.floats(-99, 99), width=st.floats(1e-3, 50), share=st.floats(0, 1))
def test_a_field_that_rounds_carries_no_value_outside_the_limits(
    tmp_path_factory: pytest.TempPathFactory,
    kind: dict[str, str],
    low: float,
    width: float,
    share: float,
) -> None:
    folder, high = tmp_path_factory.mktemp("rounding"), low + width
    entry = actuator(limits=[low, high], safe=low)
    try:
        one = carrier(folder, **kind, actuators={"hip": entry})
    except WiringError as error:
        assert kind is WHOLE and np.ceil(low) > np.floor(high)
        assert "limits with a value that its field, a int16, can hold" in str(error)
        return
    command = load_wiring(folder / "robot.yaml").command
    gate = SafetyGate(command, 0.02, limits=compute_sendable_limits(command, [one]))
    for value in (low + share * width, 200.0, -200.0):
        one.fill(gate(np.array([value])), STAMP_NS)
        assert low <= one.message.data[0] <= high
    one.fill(gate.restart_ramp_and_get_safe_command(), STAMP_NS)
    assert low <= one.message.data[0] <= high
