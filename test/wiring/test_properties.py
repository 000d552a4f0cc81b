"""Whatever comes over ROS or out of a file: right values, missing ones, or a WiringError."""

from __future__ import annotations

import array
import math
import random
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from an_control.system.share import find_share_path
from an_control.wiring import ChannelTable, Wiring, WiringError, checked_yaml, load_wiring

MS = 1_000_000
FLOAT32_MAX = float(np.finfo(np.float32).max)

NAMES = st.sampled_from(["hip", "knee", "ankle", "toe", "", "*", "hip.x", "\u00e9\u0000"])
NUMBERS = st.floats() | st.sampled_from([math.nan, math.inf, -math.inf, 1e39, -0.0])


@st.composite
def joint_states(draw: st.DrawFn) -> Any:
    """Any JointState: names in any order, twice or missing, arrays of any length."""
    arrays = {
        field: array.array("d", draw(st.lists(NUMBERS, max_size=8)))
        for field in ("position", "velocity")
    }
    return SimpleNamespace(name=draw(st.lists(NAMES, max_size=8)), **arrays)


def by_name(message: Any, field: str) -> dict[str, float | None]:
    """What a message says of each joint, written as plainly as can be; None: not a number."""
    count, numbers = Counter(message.name), getattr(message, field)
    said: dict[str, float | None] = dict.fromkeys(message.name if numbers else ())
    if len(numbers) > len(message.name):
        return said  # which number is whose is not known
    for name, value in zip(message.name, numbers, strict=False):
        if count[name] == 1 and abs(value) <= FLOAT32_MAX:
            said[name] = float(np.float32(value))
    return said


def joint_table(table: Any) -> ChannelTable:
    channels = {f"{name}.p": f"position[{name}]" for name in ("toe", "hip", "knee")}
    return table(
        {"s": "sensor_msgs/msg/JointState"},
        {**channels, "*.v": "velocity[*]", "first": "velocity[0]"},
    )


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    messages=st.lists(joint_states(), min_size=1, max_size=6),
    ticks=st.sets(st.integers(0, 5)),
    lockstep=st.booleans(),
)
def test_any_joint_states_give_what_was_said_last_of_each_name_or_nothing(
    table: Any, messages: Any, ticks: set[int], lockstep: bool
) -> None:
    """Several messages may come between two ticks; in lockstep each is of a step of its own."""
    joints = joint_table(table)
    position: dict[str, float | None] = {}
    velocity: dict[str, float | None] = {}
    for place, message in enumerate(messages):
        if lockstep:
            position, velocity = {}, {}
        position |= by_name(message, "position")
        velocity |= by_name(message, "velocity")
        joints.store_message("s", message, place + 1, place)
        if place not in ticks and place + 1 < len(messages):
            continue
        stamp_ns = place + 1 if lockstep else None
        readings = joints.read(place, stamp_ns)
        found = dict(zip(readings.ids, readings.values.tolist(), strict=True))
        want = {f"{name}.p": position.get(name) for name in ("toe", "hip", "knee")}
        want |= {f"{name}.v": value for name, value in velocity.items()}
        if len(message.velocity) and abs(message.velocity[0]) <= FLOAT32_MAX:
            want["first"] = float(np.float32(message.velocity[0]))
        assert found == {id_: value for id_, value in want.items() if value is not None}
        assert len(set(readings.ids)) == len(readings.ids) <= readings.expected
        assert readings.ids is joints.read(place, stamp_ns).ids


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(name=ANYTHING, position=ANYTHING, velocity=ANYTHING)
def test_no_content_of_a_message_makes_a_tick_fail(
    table: Any, name: Any, position: Any, velocity: Any
) -> None:
    joints = joint_table(table)
    joints.store_message(
        "s", SimpleNamespace(name=name, position=position, velocity=velocity), None, 0
    )
    readings = joints.read(0)
    assert np.isfinite(readings.values).all()
    good = SimpleNamespace(name=["hip"], position=array.array("d", [1.0]), velocity=[2.0])
    joints.store_message("s", good, None, 1000 * MS)
    readings = joints.read(1000 * MS)
    found = dict(zip(readings.ids, readings.values.tolist(), strict=True))
    assert found == {"hip.p": 1.0, "hip.v": 2.0, "first": 2.0}


def mutations(data: bytes, count: int) -> Any:
    """Byte mutations of a file: bytes changed, taken out, put in, repeated."""
    chance = random.Random(1)
    for _ in range(count):
        text = bytearray(data)
        for _ in range(chance.randint(1, 4)):
            place, kind = chance.randrange(len(text)), chance.randrange(4)
            if kind == 0:
                text[place] = chance.randrange(256)
            elif kind == 1:
                del text[place : place + chance.randint(1, 20)]
            elif kind == 2:
                text[place:place] = bytes([chance.choice(b"*&!{}[]:,'\"#-|>%@\n\t 0.e")])
            else:
                text[place:place] = text[place : place + chance.randint(1, 60)]
        yield bytes(text)


@pytest.mark.parametrize(
    ("parser", "count"),
    [("C", 1_000), ("Python", 100), pytest.param("C", 10_000, marks=pytest.mark.slow)],
)
def test_a_mutated_file_loads_or_is_a_wiring_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parser: str, count: int
) -> None:
    if parser == "Python":
        monkeypatch.setattr(checked_yaml, "_PARSER", yaml.SafeLoader)
    path = tmp_path / "robot.yaml"
    loaded = 0
    for data in mutations(find_share_path("config/ant.yaml").read_bytes(), count):
        path.write_bytes(data)
        try:
            wiring = load_wiring(path)
        except WiringError as error:
            assert error.file == str(path)
            assert error.allowed
        else:
            loaded += isinstance(wiring, Wiring)
    assert 0 < loaded < count


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(max_size=200) | st.text(max_size=200).map(lambda text: text.encode("utf-8")))
def test_any_bytes_are_a_wiring_error(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "robot.yaml"
    path.write_bytes(data)
    with pytest.raises(WiringError):
        load_wiring(path)
