"""Measured positions: of the actuators that need them, from the sources that each message names."""

from __future__ import annotations

import array
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from an_control.wiring import ChannelTable, Wiring, WiringError

JOINTS = "sensor_msgs/msg/JointState"


def hold() -> dict[str, Any]:
    return {"limits": [-1, 1], "safe": "hold"}


def message(source: str, actuators: dict[str, Any], field: str = "position[*]") -> dict[str, Any]:
    measured = {"source": source, "field": field}
    return {
        "topic": f"{source}_commands",
        "type": JOINTS,
        "field": "position",
        "measured": measured,
        "actuators": actuators,
    }


def table(load: Callable[..., Wiring], resolver: Any, *messages: dict[str, Any]) -> ChannelTable:
    sources = {n: {"topic": n, "type": JOINTS, "max_age_s": 0.1} for n in ("arm", "grip")}
    channels = {"a": {"source": "arm", "field": "position[a]"}}
    command = messages[0] if len(messages) == 1 else list(messages)
    return ChannelTable(load(sources=sources, channels=channels, command=command), resolver)


def joints(**positions: float) -> Any:
    return SimpleNamespace(name=list(positions), position=array.array("d", positions.values()))


def test_each_message_of_a_command_has_its_own_measurement(
    load: Callable[..., Wiring], resolver: Any
) -> None:
    fixed = {"limits": [-1, 1], "safe": 0.5, "field": "velocity[a]"}
    two = table(
        load,
        resolver,
        message("arm", {"a": hold(), "a.speed": fixed, "b": hold()}),
        message("grip", {"g": hold()}),
    )
    measured = two.measured
    assert measured is not None
    two.store_message("arm", joints(b=2.0, a=1.0), None, 0)
    two.read(0)
    np.testing.assert_array_equal(measured.values, [1.0, np.nan, 2.0, np.nan])
    assert not measured.has_all_positions
    assert measured.list_unmeasured_actuators() == ["g (grip: position[g])"]
    two.store_message("grip", joints(g=3.0), None, 1)
    two.store_message("arm", joints(a=np.nan), None, 1)
    two.read(1)
    np.testing.assert_array_equal(measured.values, [1.0, np.nan, 2.0, 3.0])
    assert measured.has_all_positions


def test_an_actuator_with_another_name_than_its_joint_is_measured_by_the_name_in_its_field(
    load: Callable[..., Wiring], resolver: Any
) -> None:
    renamed = {**hold(), "field": "position[left_hip]"}
    one = table(load, resolver, message("arm", {"hip": renamed, "knee": hold()}))
    assert one.measured is not None
    one.store_message("arm", joints(left_hip=1.0, hip=9.0, knee=2.0), None, 0)
    one.read(0)
    np.testing.assert_array_equal(one.measured.values, [1.0, 2.0])


def test_a_position_is_old_though_another_driver_on_the_topic_still_sends(
    load: Callable[..., Wiring], resolver: Any
) -> None:
    one = table(load, resolver, message("arm", {"a": hold(), "b": hold()}))
    measured = one.measured
    assert measured is not None
    one.store_message("arm", joints(a=1.0), None, 0)
    one.store_message("arm", joints(b=2.0), None, 1)
    one.read(1)
    assert not measured.are_too_old
    for now_ns in range(10**7, 10**9, 10**7):
        one.store_message("arm", joints(b=3.0), None, now_ns)
        one.read(now_ns)
    np.testing.assert_array_equal(measured.values, [1.0, 3.0])
    np.testing.assert_array_equal(measured.is_old, [True, False])


def test_all_drivers_on_a_topic_are_measured_though_no_channel_reads_it(
    load: Callable[..., Wiring], resolver: Any
) -> None:
    one = table(load, resolver, message("grip", {"g": hold(), "h": hold()}))
    measured = one.measured
    assert measured is not None
    for position in (1.0, 2.0):
        one.store_message("grip", joints(g=position), None, 0)
        one.store_message("grip", joints(h=-position), None, 1)
    again = one.make_rewired_table(one.wiring)
    for read in (one, again):
        read.read(1)
        assert read.measured is not None
        np.testing.assert_array_equal(read.measured.values, [2.0, -2.0])


def test_a_measurement_that_leads_to_no_number_is_named_by_its_message(
    load: Callable[..., Wiring], resolver: Any
) -> None:
    with pytest.raises(WiringError) as caught:
        table(
            load,
            resolver,
            message("arm", {"a": hold()}),
            message("grip", {"g": hold()}, field="place[*]"),
        )
    assert caught.value.key == "command[1].measured.field"
