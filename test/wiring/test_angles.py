"""Angles as channels: their sine and cosine, and angles that are brought into -pi..pi."""

from __future__ import annotations

import math
from array import array
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from an_control.wiring import WiringError
from an_control.wiring.channel_table import _wrap_angles

JOINTS = "sensor_msgs/msg/JointState"
WHEELS = ("left", "right")


def turned(*angles: float) -> Any:
    return SimpleNamespace(name=list(WHEELS), position=array("d", angles), velocity=array("d"))


def read(table: Any, message: Any) -> dict[str, float]:
    table.store_message("s", message, None, 0)
    readings = table.read(0)
    return dict(zip(readings.ids, readings.values.tolist(), strict=True))


def test_the_sine_and_the_cosine_of_an_angle_are_channels_before_scale_and_offset(table):
    base = table(
        {"s": JOINTS},
        {
            "a": "sin(position[left])",
            "b": {"source": "s", "field": "cos(position[left])", "scale": 2.0, "offset": 1.0},
            "*.sin": "sin(position[*])",
            "*.angle": "position[*]",
            "doubled": "sin(position[right])",
        },
    )
    found = read(base, turned(7.0, -0.5))
    expected = {
        "a": math.sin(7.0),
        "b": 2.0 * math.cos(7.0) + 1.0,
        "left.sin": math.sin(7.0),
        "right.sin": math.sin(-0.5),
        "left.angle": 7.0,
        "right.angle": -0.5,
        "doubled": math.sin(-0.5),
    }
    assert found == {name: pytest.approx(value, rel=1e-6) for name, value in expected.items()}
    assert read(base, turned(math.inf, 0.0)).keys() == {"right.sin", "right.angle", "doubled"}


def test_a_wheel_that_turns_on_and_on_is_brought_into_one_turn(table):
    base = table(
        {"s": JOINTS},
        {
            "w": {"source": "s", "field": "position[left]", "wrap": True, "scale": 0.5},
            "grows": "position[left]",
        },
    )
    for angle in (0.1, 3.1, 3.2, 6.3, -100.0, 1e6):
        found = read(base, turned(angle, 0.0))
        assert found["grows"] == pytest.approx(angle)
        assert found["w"] == pytest.approx(0.5 * math.remainder(angle, math.tau), abs=1e-6)


@given(st.floats(-1e9, 1e9))
def test_wrapped_angles_lie_in_one_turn_and_mean_the_same(angle):
    (wrapped,) = _wrap_angles(np.array([angle]))
    assert -math.pi <= wrapped <= math.pi + 1e-6
    assert math.cos(wrapped) == pytest.approx(math.cos(angle), abs=1e-6)
    if abs(angle) <= 3.14:
        assert wrapped == angle


@pytest.mark.parametrize("field", ["sin(position[left])", "yaw(orientation)"])
def test_a_function_needs_no_wrap(load, field):
    channels = {"a": {"source": "s", "field": field, "wrap": True}}
    with pytest.raises(WiringError, match=r"channels\.a\.wrap.*false, or no wrap: sin, cos"):
        load(channels=channels)


def test_an_angle_of_a_number_that_is_no_quaternion_is_refused(table):
    with pytest.raises(WiringError, match="an angle of a quaternion"):
        table({"s": JOINTS}, {"a": "yaw(position[left])"})


def test_the_sine_of_a_heading_is_read_from_the_quaternion(table, fake):
    base = table({"s": "geometry_msgs/msg/Transform"}, {"h": "cos(yaw(rotation))"})
    turn = SimpleNamespace(x=0.0, y=0.0, z=math.sin(1.0), w=math.cos(1.0))
    found = read(base, SimpleNamespace(rotation=turn))
    assert found["h"] == pytest.approx(math.cos(2.0), rel=1e-6)


@pytest.mark.parametrize("field", ["sin(cos(position[a]))", "yaw(sin(position[a]))", "tan(x)"])
def test_other_functions_are_no_field_path(load, field):
    with pytest.raises(WiringError, match="a path such as"):
        load(channels={"a": {"source": "s", "field": field}})
