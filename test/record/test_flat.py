"""The content of a message is kept as numbers and bytes, and the message made of it is the same."""

import gc
import random
from array import array

import geometry_msgs.msg
import nav_msgs.msg
import numpy as np
import pytest
import sensor_msgs.msg
import std_msgs.msg
from rclpy.serialization import deserialize_message, serialize_message

from an_control.record.flat_messages import Flattener


def classes():
    """All message classes of four packages."""
    packages = geometry_msgs, nav_msgs, sensor_msgs, std_msgs
    found = (getattr(one.msg, name) for one in packages for name in dir(one.msg))
    return [cls for cls in found if hasattr(cls, "get_fields_and_field_types")]


def fill(message, rng):
    """Put random content into everything that a message holds."""
    for name in message.get_fields_and_field_types():
        value = getattr(message, name)
        if hasattr(value, "get_fields_and_field_types"):
            fill(value, rng)
        elif isinstance(value, bool):
            setattr(message, name, rng.random() < 0.5)
        elif isinstance(value, int):
            setattr(message, name, rng.randrange(100))
        elif isinstance(value, float):
            setattr(message, name, rng.choice([rng.randrange(-99, 99) / 8.0, -0.0, float("inf")]))
        elif isinstance(value, str):
            setattr(message, name, rng.choice(["", "base_link", "é\n"]))
        elif isinstance(value, array):
            count = rng.randrange(5)
            numbers = [rng.randrange(100) for _ in range(count)]
            setattr(message, name, array(value.typecode, numbers))
        elif isinstance(value, np.ndarray):
            value[:] = [rng.randrange(100) for _ in value]
        elif isinstance(value, list) and "string" in message.get_fields_and_field_types()[name]:
            setattr(message, name, rng.choice([[], [""], ["a", ""], ["hip_1", "ankle_1"]]))


@pytest.mark.parametrize("cls", classes(), ids=lambda one: one.__name__)
def test_a_message_that_was_flat_is_the_same_again(cls):
    rng = random.Random(0)
    try:
        flattener = Flattener(cls)
    except ValueError:
        assert any(
            isinstance(getattr(cls(), name), list) or "[" in type_ or "/" in type_
            for name, type_ in cls.get_fields_and_field_types().items()
        )
        return
    for _ in range(5):
        message = cls()
        fill(message, rng)
        again = flattener.restore(flattener.flatten(message))
        assert again == message
        assert deserialize_message(serialize_message(again), cls) == message


def test_the_usual_sensors_messages_can_be_flat():
    for cls in (
        sensor_msgs.msg.JointState,
        sensor_msgs.msg.Imu,
        sensor_msgs.msg.Image,
        sensor_msgs.msg.LaserScan,
        nav_msgs.msg.Odometry,
        geometry_msgs.msg.Vector3Stamped,
    ):
        Flattener(cls)


def test_what_is_flat_counts_its_size_and_is_no_burden_for_the_garbage_collector():
    cls = sensor_msgs.msg.JointState
    flattener = Flattener(cls)
    message = cls(name=["a" * 50, "b"], position=array("d", range(1000)))
    flat = flattener.flatten(message)
    assert 8000 < flat[-1] < 9000
    kept = [flattener.flatten(message) for _ in range(10)]
    gc.collect()
    gc.collect()
    assert not any(map(gc.is_tracked, kept))


def test_a_message_that_changes_later_does_not_change_what_was_kept():
    cls = sensor_msgs.msg.JointState
    message = cls(position=array("d", [1.0]))
    flat = Flattener(cls).flatten(message)
    message.position[0] = 2.0
    assert Flattener(cls).restore(flat).position == array("d", [1.0])
