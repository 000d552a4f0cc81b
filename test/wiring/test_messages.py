"""What is known of message types."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from an_control.wiring.messages import (
    FieldType,
    import_message_class,
    list_field_types,
    make_stamp_reader,
)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("double", FieldType("double")),
        ("float[3]", FieldType("float", True, 3, True)),
        ("sequence<uint8>", FieldType("uint8", True)),
        ("sequence<double, 5>", FieldType("double", True, 5)),
        ("string<10>", FieldType("string<10>")),
        ("sequence<string<10>, 5>", FieldType("string<10>", True, 5)),
        ("geometry_msgs/Vector3", FieldType("geometry_msgs/Vector3")),
        ("sequence<geometry_msgs/Vector3>", FieldType("geometry_msgs/Vector3", True)),
        ("geometry_msgs/Vector3[2]", FieldType("geometry_msgs/Vector3", True, 2, True)),
    ],
)
def test_the_type_of_a_field_is_read_as_rosidl_writes_it(text: str, type_: FieldType) -> None:
    cls = SimpleNamespace(get_fields_and_field_types=lambda: {"x": text})
    assert list_field_types(cls)["x"] == type_


def test_numbers_and_booleans_are_numeric_and_text_is_not() -> None:
    numeric = ("boolean", "octet", "float", "double", "int8", "uint64")
    assert all(FieldType(base).is_numeric for base in numeric)
    assert not any(FieldType(base).is_numeric for base in ("string", "wstring<3>", "a_msgs/B"))
    assert FieldType("geometry_msgs/Vector3").message_type == "geometry_msgs/msg/Vector3"
    assert FieldType("double").message_type is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("JointState", "PACKAGE/msg/NAME"),
        ("sensor_msgs/JointState", "PACKAGE/msg/NAME"),
        ("os/msg/Path", "no message package 'os'"),
        ("nowhere_msgs/msg/Thing", "no message package 'nowhere_msgs'"),
        ("../x/msg/Y", "PACKAGE/msg/NAME"),
        ("sensor_msgs/msg/Nothing", "has no message 'Nothing'|no message package"),
    ],
)
def test_a_type_that_is_not_installed_is_a_lookup_error_that_says_why(
    name: str, reason: str
) -> None:
    with pytest.raises(LookupError, match=reason):
        import_message_class(name)


def test_looking_up_a_type_imports_no_package_that_has_no_messages() -> None:
    assert "antigravity" not in sys.modules
    with pytest.raises(LookupError):
        import_message_class("antigravity/msg/Fly")
    assert "antigravity" not in sys.modules


def test_a_stamp_is_read_where_the_type_has_one_and_zero_is_none(
    fake: Callable[..., Any],
) -> None:
    def stamped(sec: int, nanosec: int) -> Any:
        return SimpleNamespace(
            header=SimpleNamespace(stamp=SimpleNamespace(sec=sec, nanosec=nanosec))
        )

    read = make_stamp_reader(type(fake("sensor_msgs/msg/JointState")))
    assert read(stamped(2, 5)) == 2_000_000_005
    assert read(stamped(0, 0)) is None
    read = make_stamp_reader(type(fake("std_msgs/msg/Header")))
    assert read(SimpleNamespace(stamp=SimpleNamespace(sec=0, nanosec=7))) == 7
    assert make_stamp_reader(type(fake("geometry_msgs/msg/Vector3")))(None) is None


def test_the_wiring_works_where_rclpy_cannot_be_imported() -> None:
    code = """
import sys
sys.modules["rclpy"] = None
from an_control.system.share import find_share_path
from an_control.wiring import ChannelTable, load_wiring
wiring = load_wiring(find_share_path("config/ant.yaml"))
try:
    table = ChannelTable(wiring)
except ValueError as error:
    assert "no message package" in str(error), error
else:
    assert table.read(0).ids == ()
assert [name for name in sys.modules if name.startswith("rclpy")] == ["rclpy"]
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=120)
