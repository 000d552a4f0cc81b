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
    assert measured is not None and set(measured.source_names) == {"arm", "grip"}
    two.store_message("arm", joints(b=2.0, a=1.0), None, 0)
    two.read(0)
    np.testing.assert_array_equal(measured.values, [1.0, np.nan, 2.0, np.nan])
    assert not measured.has_all_positions
    two.store_message("grip", joints(g=3.0), None, 1)
    two.store_message("arm", joints(a=np.nan), None, 1)
    two.read(1)
    np.testing.assert_array_equal(measured.values, [1.0, np.nan, 2.0, 3.0])
    assert measured.has_all_positions


def test_positions_come_from_all_publishers_of_a_topic_that_feeds_no_channel(
    load: Callable[..., Wiring], resolver: Any
) -> None:
    two = table(load, resolver, message("grip", {"g": hold(), "h": hold()}))
    assert two.measured is not None
    for _ in range(2):
        for now_ns in (10, 20):
            two.store_message("grip", joints(g=now_ns / 10), None, now_ns)
            two.store_message("grip", joints(h=3.0), None, now_ns + 1)
            two.read(now_ns + 2)
            np.testing.assert_array_equal(two.measured.values, [now_ns / 10, 3.0])
        two = two.make_rewired_table(two.wiring)
        assert two.measured is not None


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
