"""Message classes of our own, so that the wiring's promises are kept without ROS installed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from an_control.wiring import ChannelTable, Wiring, load_wiring


def message_type(cls_name: str, /, **fields: str) -> Any:
    """A class that describes its fields as rosidl's classes do; instances start with no field."""
    return type(
        cls_name,
        (SimpleNamespace,),
        {"get_fields_and_field_types": classmethod(lambda cls: dict(fields))},
    )


TYPES = {
    "geometry_msgs/msg/Vector3": message_type("Vector3", x="double", y="double", z="double"),
    "geometry_msgs/msg/Quaternion": message_type(
        "Quaternion", x="double", y="double", z="double", w="double"
    ),
    "builtin_interfaces/msg/Time": message_type("Time", sec="int32", nanosec="uint32"),
    "std_msgs/msg/Header": message_type(
        "Header", stamp="builtin_interfaces/Time", frame_id="string"
    ),
    "geometry_msgs/msg/Transform": message_type(
        "Transform", translation="geometry_msgs/Vector3", rotation="geometry_msgs/Quaternion"
    ),
    "sensor_msgs/msg/JointState": message_type(
        "JointState",
        header="std_msgs/Header",
        name="sequence<string>",
        position="sequence<double>",
        velocity="sequence<double>",
        effort="sequence<double>",
    ),
    "sensor_msgs/msg/Image": message_type(
        "Image",
        header="std_msgs/Header",
        height="uint32",
        width="uint32",
        encoding="string",
        is_bigendian="uint8",
        step="uint32",
        data="sequence<uint8>",
    ),
    "sensor_msgs/msg/CompressedImage": message_type(
        "CompressedImage", header="std_msgs/Header", format="string", data="sequence<uint8>"
    ),
    "fake_msgs/msg/Scan": message_type(
        "Scan",
        header="std_msgs/Header",
        age="builtin_interfaces/Duration",
        gain="float",
        ranges="sequence<float>",
        covariance="double[3]",
        label="string",
        orientation="geometry_msgs/Quaternion",
    ),
    "fake_msgs/msg/Everything": message_type(
        "Everything",
        flag="boolean",
        byte="octet",
        count="int64",
        flags="sequence<boolean>",
        bytes="sequence<octet>",
        f32="sequence<float>",
        f64="sequence<double, 4>",
        i8="sequence<int8>",
        u8="sequence<uint8>",
        i16="sequence<int16>",
        u16="sequence<uint16>",
        i32="sequence<int32>",
        u32="sequence<uint32>",
        i64="sequence<int64>",
        u64="sequence<uint64>",
        fixed="float[3]",
        words="sequence<string<10>, 5>",
    ),
    "fake_msgs/msg/Frames": message_type(
        "Frames",
        joint_names="sequence<string>",
        transforms="sequence<geometry_msgs/Transform>",
        poses="geometry_msgs/Transform[2]",
    ),
    "fake_msgs/msg/Controller": message_type(
        "Controller", joint_names="sequence<string>", actual="fake_msgs/Point"
    ),
    "fake_msgs/msg/Point": message_type("Point", positions="sequence<double>"),
    "builtin_interfaces/msg/Duration": message_type("Duration", sec="int32", nanosec="uint32"),
}


def resolve(name: str) -> Any:
    """The class of a fake message type, as `message_class` gives a real one's."""
    try:
        return TYPES[name]
    except KeyError:
        raise LookupError(f"no {name}") from None


@pytest.fixture
def resolver() -> Callable[[str], Any]:
    """Gives the fake message classes by name."""
    return resolve


def document(**changes: Any) -> dict[str, Any]:
    """A wiring of one source and one channel, with the top-level entries that are given."""
    base: dict[str, Any] = {
        "an_control_wiring": 1,
        "robot": "arm",
        "rate_hz": 50,
        "min_present_share": 0.5,
        "sources": {
            "joints": {
                "topic": "joint_states",
                "type": "sensor_msgs/msg/JointState",
                "max_age_s": 0.1,
            }
        },
        "channels": {"a.position": {"source": "joints", "field": "position[a]"}},
        "command": {
            "topic": "commands",
            "type": "std_msgs/msg/Float64MultiArray",
            "field": "data",
            "actuators": {"a": {"scale": 2.0, "offset": 1.0, "limits": [-3, 3], "safe": 0.5}},
        },
    }
    return {**base, **changes}


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Wiring]:
    """Load a wiring from the text of a file, or from changes to the smallest wiring."""

    def load(text: str | bytes | None = None, **changes: Any) -> Wiring:
        path = tmp_path / "robot.yaml"
        if text is None:
            text = yaml.safe_dump(document(**changes), sort_keys=False)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return load_wiring(path)

    return load


@pytest.fixture
def table(load: Callable[..., Wiring]) -> Callable[..., ChannelTable]:
    """A table over fake messages: table({source: type}, {channel: field or entry})."""

    def table(
        sources: dict[str, str], channels: dict[str, Any], max_age_s: float = 0.1
    ) -> ChannelTable:
        first = next(iter(sources))
        return ChannelTable(
            load(
                sources={
                    name: {"topic": name, "type": type_, "max_age_s": max_age_s}
                    for name, type_ in sources.items()
                },
                channels={
                    id_: {"source": first, "field": entry} if isinstance(entry, str) else entry
                    for id_, entry in channels.items()
                },
            ),
            resolve,
        )

    return table


@pytest.fixture
def fake() -> Callable[..., Any]:
    """Make a fake message: fake("geometry_msgs/msg/Vector3", x=1.0, ...)."""
    return lambda type_, /, **fields: TYPES[type_](**fields)
