"""Field paths followed through message types, and what the readers then read."""

from __future__ import annotations

import array
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from an_control.wiring import ChannelTable, WiringError
from an_control.wiring.readers import MAX_ELEMENTS

Table = Callable[..., ChannelTable]
Fake = Callable[..., Any]
JOINTS = {"s": "sensor_msgs/msg/JointState"}
SCAN = {"s": "fake_msgs/msg/Scan"}
EVERYTHING = {"s": "fake_msgs/msg/Everything"}
FRAMES = {"s": "fake_msgs/msg/Frames"}


def read(table: ChannelTable, message: Any) -> dict[str, float]:
    table.store_message("s", message, 1, 1)
    readings = table.read(1)
    return dict(zip(readings.ids, readings.values.tolist(), strict=True))


def vector(x: float, y: float, z: float) -> SimpleNamespace:
    return SimpleNamespace(x=x, y=y, z=z)


def turn(z: float, w: float) -> SimpleNamespace:
    return SimpleNamespace(x=0.0, y=0.0, z=z, w=w)


@pytest.mark.parametrize(
    ("sources", "field", "allowed"),
    [
        (JOINTS, "positon[a]", "did you mean 'position'"),
        (JOINTS, "header", "a number; 'header' is a message of stamp, frame_id"),
        (JOINTS, "header.frame_id", "a number; 'frame_id' is a string"),
        (JOINTS, "position", "position[0], position[NAME] or position[*]"),
        (JOINTS, "name[0]", "a number; 'name' is a string"),
        (JOINTS, "position[a].x", "nothing after 'position'"),
        (JOINTS, "roll(header)", "a number"),
        (JOINTS, "roll(position[a])", "an angle of a quaternion"),
        (SCAN, "ranges[a]", "the message has no list of names"),
        (SCAN, "covariance[3]", "covariance[0] to covariance[2]"),
        (SCAN, "gain[0]", "no index"),
        (SCAN, "orientation", "a number; 'orientation' is a message of x, y, z, w"),
        (SCAN, "orientation[0].x", "no index"),
        (EVERYTHING, "f64[4]", "f64[0] to f64[3]"),
        (EVERYTHING, "words[0]", "a number"),
        (FRAMES, "transforms.translation.x", "an element, as in transforms[0], transforms[NAME]"),
    ],
)
def test_a_path_that_leads_to_no_number_is_refused_and_says_what_would(
    table: Table, sources: dict[str, str], field: str, allowed: str
) -> None:
    with pytest.raises(WiringError) as caught:
        table(sources, {"x": field})
    assert caught.value.key == "channels.x.field"
    assert field in str(caught.value)
    assert allowed in caught.value.allowed


def test_a_wildcard_over_nothing_but_stamps_is_refused(table: Table) -> None:
    with pytest.raises(WiringError, match="other than stamps"):
        table({"s": "std_msgs/msg/Header"}, {"x.*": "*"})


def test_a_type_that_is_not_installed_names_the_source(table: Table) -> None:
    with pytest.raises(WiringError) as caught:
        table({"s": "some_msgs/msg/Thing"}, {"x": "y"})
    assert caught.value.key == "sources.s.type"


NUMBERS: dict[str, tuple[str, list[Any]]] = {
    "f32": ("f", [0.5, -1.5]), "f64": ("d", [1e300, 2.0]), "i8": ("b", [-128, 127]),
    "u8": ("B", [0, 255]), "i16": ("h", [-(2**15), 3]), "u16": ("H", [0, 65535]),
    "i32": ("i", [-(2**31), 3]), "u32": ("I", [0, 2**32 - 1]),
    "i64": ("q", [-(2**62), 3]), "u64": ("Q", [0, 2**63]),
}  # fmt: skip


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("as_list", [False, True])
def test_arrays_of_every_primitive_type_are_read_right(
    table: Table, fake: Fake, name: str, as_list: bool
) -> None:
    code, values = NUMBERS[name]
    data = values if as_list else array.array(code, values)
    message = fake("fake_msgs/msg/Everything", **{name: data})
    entry = {"source": "s", "scale": 1e-300 if name == "f64" else 1.0}
    channels = {f"{i}": {**entry, "field": f"{name}[{i}]"} for i in (1, 0)}
    want = {str(i): np.float32(values[i] * entry["scale"]) for i in (1, 0)}
    assert read(table(EVERYTHING, channels), message) == want
    whole = table(EVERYTHING, {"*": {**entry, "field": f"{name}[*]"}})
    assert read(whole, message) == want


def test_scalars_booleans_octets_and_fixed_arrays_are_read_right(table: Table, fake: Fake) -> None:
    message = fake(
        "fake_msgs/msg/Everything",
        flag=True, byte=b"\xfe", count=-3, flags=[True, False], bytes=[b"\x00", b"\xff"],
        fixed=np.array([1.5, 2.5, 3.5], np.float32), words=["7"],
        **{name: array.array(code, values[:1]) for name, (code, values) in NUMBERS.items()},
    )  # fmt: skip
    found = read(table(EVERYTHING, {"e.*": "*"}), message)
    assert found.pop("e.flag") == 1.0
    assert found.pop("e.byte") == 254.0
    assert found.pop("e.count") == -3.0
    assert [found.pop(f"e.flags.{i}") for i in range(2)] == [1.0, 0.0]
    assert [found.pop(f"e.bytes.{i}") for i in range(2)] == [0.0, 255.0]
    assert [found.pop(f"e.fixed.{i}") for i in range(3)] == [1.5, 2.5, 3.5]
    assert found.keys() == {f"e.{name}.0" for name in NUMBERS} - {"e.f64.0"}


def test_a_star_takes_every_number_but_the_stamps(table: Table, fake: Fake) -> None:
    scan = fake(
        "fake_msgs/msg/Scan",
        header=SimpleNamespace(stamp=SimpleNamespace(sec=1, nanosec=2), frame_id="f"),
        age=SimpleNamespace(sec=3, nanosec=4), gain=0.5, ranges=array.array("f", [1.0]),
        covariance=np.zeros(3), label="8", orientation=turn(0.0, 1.0),
    )  # fmt: skip
    assert list(read(table(SCAN, {"*": "*"}), scan)) == [
        "age.sec", "age.nanosec", "gain", "orientation.x", "orientation.y", "orientation.z",
        "orientation.w", "covariance.0", "covariance.1", "covariance.2", "ranges.0",
    ]  # fmt: skip
    assert list(read(table(SCAN, {"q_*": "orientation.*"}), scan)) == ["q_x", "q_y", "q_z", "q_w"]


def test_joints_under_a_star_go_by_name(table: Table, fake: Fake) -> None:
    message = fake(
        "sensor_msgs/msg/JointState",
        name=["b", "a"],
        position=array.array("d", [1.0, 2.0]),
        velocity=array.array("d", [3.0, 4.0]),
        effort=array.array("d"),
    )
    assert read(table(JOINTS, {"*": "*"}), message) == {
        "position.b": 1.0, "position.a": 2.0, "velocity.b": 3.0, "velocity.a": 4.0,
    }  # fmt: skip


def test_lists_of_messages_are_read_by_index_and_by_name(table: Table, fake: Fake) -> None:
    half = math.sqrt(0.5)
    frames = [
        SimpleNamespace(translation=vector(1.0, 2.0, 3.0), rotation=turn(0.0, 1.0)),
        SimpleNamespace(translation=vector(4.0, 5.0, 6.0), rotation=turn(half, half)),
    ]
    message = fake(
        "fake_msgs/msg/Frames", joint_names=["arm", "hand"], transforms=frames, poses=frames
    )
    channels = {
        "by_index": "transforms[1].translation.x",
        "by_name": "transforms[hand].translation.y",
        "missing": "transforms[foot].translation.y",
        "beyond": "transforms[2].translation.y",
        "angle": "yaw(transforms[hand].rotation)",
        "fixed": "poses[1].translation.z",
        "all.*": "transforms[*].translation.x",
        "angle.*": "yaw(poses[*].rotation)",
    }
    found = read(table(FRAMES, channels), message)
    assert found.pop("angle") == pytest.approx(math.pi / 2)
    assert [found.pop(f"angle.{i}") for i in range(2)] == pytest.approx([0.0, math.pi / 2])
    assert found == {"by_index": 4.0, "by_name": 5.0, "fixed": 6.0, "all.arm": 1.0, "all.hand": 4.0}
    whole = read(table(FRAMES, {"*": "*"}), message)
    assert len(whole) == 2 * 2 * 7
    assert whole["transforms.hand.rotation.w"] == np.float32(half)
    assert whole["poses.1.translation.z"] == 6.0


def test_names_of_the_enclosing_message_name_the_elements_too(table: Table, fake: Fake) -> None:
    actual = SimpleNamespace(positions=array.array("d", [1.0, 2.0]))
    message = fake("fake_msgs/msg/Controller", joint_names=["a", "b"], actual=actual)
    channels = {"b": "actual.positions[b]", "all.*": "actual.positions[*]", "star.*": "*"}
    assert read(table({"s": "fake_msgs/msg/Controller"}, channels), message) == {
        "b": 2.0, "all.a": 1.0, "all.b": 2.0,
        "star.actual.positions.a": 1.0, "star.actual.positions.b": 2.0,
    }  # fmt: skip


def test_a_channel_written_out_goes_before_a_wildcard(table: Table, fake: Fake) -> None:
    message = fake("fake_msgs/msg/Scan", ranges=array.array("f", [1.0, 2.0, 3.0]))
    entry = {"source": "s", "field": "ranges[0]", "scale": 10.0}
    found = read(table(SCAN, {"r.*": "ranges[*]", "r.1": entry}), message)
    assert found == {"r.0": 1.0, "r.1": 10.0, "r.2": 3.0}


def test_of_two_wildcards_the_first_has_the_id(table: Table, fake: Fake) -> None:
    message = fake(
        "sensor_msgs/msg/JointState", name=["a", "b"], position=[1.0, 2.0], velocity=[3.0, 4.0]
    )
    found = read(table(JOINTS, {"a*": "position[*]", "*a": "velocity[*]"}), message)
    assert found == {"aa": 1.0, "ab": 2.0, "ba": 4.0}


def test_a_message_too_large_for_a_wildcard_is_missing_and_diagnosed(
    table: Table, fake: Fake
) -> None:
    lidar = table(SCAN, {"r.*": "ranges[*]"})
    assert read(lidar, fake("fake_msgs/msg/Scan", ranges=np.zeros(MAX_ELEMENTS + 1))) == {}
    assert f"more than {MAX_ELEMENTS}" in str(lidar.pop_notices()[0])
    assert (
        len(read(lidar, fake("fake_msgs/msg/Scan", ranges=np.zeros(MAX_ELEMENTS)))) == MAX_ELEMENTS
    )
