"""The messages of a recording are those of ROS."""

from array import array

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Imu, JointState
from std_msgs.msg import Int64MultiArray, String

from an_control.record.layout import (
    TICK,
    TICK_NUMBERS,
    BagError,
    decode_event,
    decode_joint_state,
    encode_event,
    encode_joint_state,
)
from an_control.record.writer import format_message_definition

NAMES = st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=9))


@given(NAMES, st.integers(0, 2**31 * 10**9 - 1))
def test_readings_are_read_by_ros_as_they_were_written(names: list[str], stamp_ns: int) -> None:
    positions = np.arange(len(names)) / 3.0
    data = encode_joint_state(stamp_ns, tuple(names), positions)
    message = JointState(name=names, position=array("d", positions.tolist()))
    message.header.stamp.sec, message.header.stamp.nanosec = divmod(stamp_ns, 10**9)
    assert deserialize_message(data, JointState) == message
    read, values = decode_joint_state(data)
    assert read == tuple(names)
    assert values.tolist() == positions.tolist()


def test_numbers_are_read_by_ros_with_their_names() -> None:
    numbers = (1, -(2**63), 2**63 - 1, *range(4))
    message = deserialize_message(TICK_NUMBERS.encode_numbers(*numbers), Int64MultiArray)
    assert tuple(message.data) == numbers
    assert message.layout.dim[0].label == " ".join(TICK)
    assert TICK_NUMBERS.decode_numbers(TICK_NUMBERS.encode_numbers(*numbers)) == numbers


def test_an_event_is_json_in_a_string() -> None:
    data = encode_event("estop", {"reason": "öffnen"})
    assert "estop" in deserialize_message(data, String).data
    assert decode_event(data) == {"event": "estop", "reason": "öffnen"}


@given(st.binary(max_size=200), st.integers(0, 200))
def test_other_bytes_are_refused_and_nothing_else_happens(noise: bytes, at: int) -> None:
    good = encode_joint_state(5, ("a", "b"), np.zeros(2))
    for data in (noise, good[:at], good[: at % len(good)] + noise):
        for read in (decode_joint_state, decode_event, TICK_NUMBERS.decode_numbers):
            try:
                read(data)
            except BagError:
                continue


def test_a_definition_holds_all_nested_types() -> None:
    text = format_message_definition("sensor_msgs/msg/Imu")
    assert "float64[9] orientation_covariance" in text
    assert "MSG: builtin_interfaces/Time" in text
    assert set(Imu.get_fields_and_field_types()) <= set(text.split())
    with pytest.raises(LookupError):
        format_message_definition("no_msgs/msg/Nothing")
