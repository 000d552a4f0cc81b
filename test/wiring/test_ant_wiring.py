"""The wiring that ships for the Ant, on real messages."""

from __future__ import annotations

import array
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from an_control.system.share import find_share_path
from an_control.wiring import (
    ChannelConfig,
    ChannelTable,
    SourceConfig,
    load_wiring,
    make_stamp_reader,
)
from an_control.wiring.messages import compute_pitch, compute_roll

WIRING = load_wiring(find_share_path("config/ant.yaml"))
TEXT_OR_STAMPS = {"String", "Header", "Empty", "TimeReference"}
"""Messages without a number that is no stamp."""


def messages(random: np.random.Generator) -> dict[str, Any]:
    """One message of each source with random readings, the joints in any order."""
    geometry = pytest.importorskip("geometry_msgs.msg")
    nav, sensor = (pytest.importorskip(f"{name}_msgs.msg") for name in ("nav", "sensor"))
    names = [str(name) for name in random.permutation(WIRING.command.names)]
    joints = sensor.JointState(name=names)
    joints.position = array.array("d", random.normal(size=8).tolist())
    joints.velocity = array.array("d", (10.0 * random.normal(size=8)).tolist())
    imu, odometry, goal = sensor.Imu(), nav.Odometry(), geometry.Vector3Stamped()
    quaternion = random.normal(size=4)
    quaternion /= np.linalg.norm(quaternion)
    for axis, value in zip("xyzw", quaternion.tolist(), strict=True):
        setattr(imu.orientation, axis, value)
    odometry.pose.pose.position.z = float(random.normal())
    for axis, value in zip("xyz", random.normal(size=3).tolist(), strict=True):
        setattr(odometry.twist.twist.linear, axis, value)
    goal.vector.x, goal.vector.y = random.normal(size=2).tolist()
    feet = sensor.JointState(name=["foot_4", "foot_3", "foot_1", "foot_2"])
    feet.effort = array.array("d", random.integers(0, 2, 4).astype(float).tolist())
    return {"joints": joints, "imu": imu, "odometry": odometry, "goal": goal, "feet": feet}


def physical(found: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """The readings of the messages, by channel id, written as plainly as can be."""
    joints, linear = found["joints"], found["odometry"].twist.twist.linear
    q, goal = found["imu"].orientation, found["goal"].vector
    yield "height", found["odometry"].pose.pose.position.z
    yield from (("goal.sin", goal.y), ("goal.cos", goal.x))
    yield from ((f"velocity.{axis}", getattr(linear, axis)) for axis in "xyz")
    yield from (
        ("roll", compute_roll(q.x, q.y, q.z, q.w)),
        ("pitch", compute_pitch(q.x, q.y, q.z, q.w)),
    )
    for index, name in enumerate(joints.name):
        yield f"{name}.position", joints.position[index]
        yield f"{name}.velocity", joints.velocity[index]
    for name, value in zip(found["feet"].name, found["feet"].effort, strict=True):
        yield f"{name}.contact", value


def test_the_wiring_of_the_ant_is_the_scaling_of_its_environment_to_the_last_bit() -> None:
    ant = pytest.importorskip("an_control_sim.envs.ant")
    channels = {channel.id: channel for channel in WIRING.channels}
    assert tuple(channels) == ant.ANT_CHANNELS
    for id_, (scale, offset) in ant.ANT_SCALING.items():
        assert repr((channels[id_].scale, channels[id_].offset)) == repr((scale, offset))
        assert channels[id_].clip == (-ant.CLIP, ant.CLIP)
    assert WIRING.command.names == ant.ANT_ACTUATORS
    assert {actuator.scale for actuator in WIRING.command.actuators} == {ant.TORQUE_NM}
    assert WIRING.rate_hz == pytest.approx(1.0 / ant.STEP_S, rel=1e-5)


def test_readings_of_real_messages_are_the_environments_arithmetic_to_the_last_bit() -> None:
    random = np.random.default_rng(0)
    table = ChannelTable(WIRING)
    stamps = {name: make_stamp_reader(cls) for name, cls in table.message_classes.items()}
    scaling = {c.id: (c.scale, c.offset) for c in WIRING.channels}
    for step in range(1, 51):
        found = messages(random)
        for name, message in found.items():
            message.header.stamp.nanosec = step
            table.store_message(name, message, stamps[name](message), 0)
        assert all(one.stamp_ns == step for one in table.list_source_statuses(0))
        readings = table.read(0, step)
        assert (len(readings.ids), readings.expected) == (28, 28)
        got = dict(zip(readings.ids, readings.values, strict=True))
        for id_, reading in physical(found):
            scale, offset = scaling[id_]
            want = np.float32(np.clip(np.float64(reading) * scale + offset, -5.0, 5.0))
            assert got[id_].tobytes() == want.tobytes()


@pytest.mark.parametrize("package", ["sensor_msgs", "geometry_msgs", "nav_msgs", "std_msgs"])
def test_every_number_of_every_standard_message_can_be_had(package: str) -> None:
    module = pytest.importorskip(f"{package}.msg")
    names = [n for n in dir(module) if hasattr(getattr(module, n), "get_fields_and_field_types")]
    for name in set(names) - TEXT_OR_STAMPS:
        source = SourceConfig("s", "s", f"{package}/msg/{name}", 0.0)
        channels = (ChannelConfig("*", "s", "*"),)
        table = ChannelTable(replace(WIRING, sources=(source,), channels=channels))
        table.store_message("s", getattr(module, name)(), None, 0)
        assert np.isfinite(table.read(0).values).all()
        assert table.list_source_statuses(0)[0].error == ""


def test_reading_a_tick_of_the_ant_costs_less_than_250_operations_of_numpy() -> None:
    """It is some 100 of them; both are measured side by side, whatever the machine does."""
    random = np.random.default_rng(0)
    table = ChannelTable(WIRING)
    found = [messages(random) for _ in range(50)]
    numbers, out = random.standard_normal(28), np.empty(28)
    costs_ns, operations_ns = [], []
    for tick in range(3000):
        for name, message in found[tick % 50].items():
            table.store_message(name, message, None, tick)
        begin_ns = time.perf_counter_ns()
        table.read(tick)
        read_ns = time.perf_counter_ns()
        for _ in range(250):
            np.multiply(numbers, numbers, out=out)
        costs_ns.append(read_ns - begin_ns)
        operations_ns.append(time.perf_counter_ns() - read_ns)
    assert np.percentile(costs_ns, 10) < np.percentile(operations_ns, 10)
