"""What is rehearsed behind the scrambler is what runs: the node decides as on the robot itself."""

from __future__ import annotations

import copy
from array import array
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import yaml

pytest.importorskip("rclpy")
import rclpy
from rclpy.node import Node

from an_control.control.bring_up import BringUp
from an_control.control.command_safety import SafetyGate
from an_control.disturbance import DisturbanceSettings
from an_control.ros.outputs import set_stamp
from an_control.system.share import find_share_path
from an_control.wiring import ChannelTable, Readings, Wiring, import_message_class, load_wiring
from an_control_sim.bridge.rehearsal import (
    derive_wiring_for_disturbed_simulation,
    list_wildcard_matches,
)
from an_control_sim.scrambler.scrambler import Scrambler
from an_control_sim.scrambler.wiring import TOPIC, derive_scrambled_wiring, write_wiring

ROOT = Path(__file__).resolve().parents[2]
NEEDED = {"ant": "pybullet", "car_racing": "Box2D", "pong": "ale_py", "hopper": "mujoco"}
SHIPPED = {
    path.stem: path
    for folder in ("config", "examples")
    for path in sorted((ROOT / folder).glob("*.yaml"))
    if "an_control_wiring" in yaml.safe_load(path.read_text())
}
HARD = """
an_control_wiring: 1
robot: hard
rate_hz: 100
min_present_share: 0.6
sources:
  legs: {topic: legs, type: sensor_msgs/msg/JointState, max_age_s: 0.05}
  arms: {topic: arms, type: sensor_msgs/msg/JointState, max_age_s: 0.2, required: true, weight: 2.5}
  scan: {topic: scan, type: sensor_msgs/msg/LaserScan, max_age_s: 0.1}
  imu: {topic: imu, type: sensor_msgs/msg/Imu, max_age_s: 0.08, required: true}
  map: {topic: map, type: geometry_msgs/msg/PointStamped, max_age_s: 0, weight: 0}
channels:
  "*.position": {source: legs, field: "position[*]", scale: 0.5, offset: 1, clip: [-1, 3]}
  hip.speed: {source: legs, field: "velocity[hip]", max_age_s: 0.02}
  "arm.*": {source: arms, field: "position[*]"}
  "arm.*.effort": {source: arms, field: "effort[*]", max_age_s: 0.03, nan: 0}
  "beam.*": {source: scan, field: "ranges[*]", valid: [0.1, 9], outside: 9, weight: 0.7}
  "sector.*": {source: scan, field: "ranges[*]", inf: 10, pool: {size: 3, by: min}, weight: 4}
  scan.time: {source: scan, field: scan_time}
  roll: {source: imu, field: roll(orientation), weight: 3}
  gyro: {source: imu, field: angular_velocity.x}
  place.x: {source: map, field: point.x}
command:
  - topic: velocity
    type: geometry_msgs/msg/Twist
    actuators: {forward: {limits: [-1, 1], max_rate: 4, safe: 0, field: linear.x}}
  - topic: position_commands
    type: std_msgs/msg/Float64MultiArray
    field: data
    measured: {source: legs, field: "position[*]"}
    bring_up: {max_rate: 0.5, tolerance: 0.05, timeout_s: 20}
    actuators:
      hip: {scale: 0.7, limits: [-1.2, 1.2], safe: hold, start: 0.3}
      knee: {scale: 0.7, limits: [-1.2, 1.2], safe: hold, start: 0.1}
"""


def hard_messages() -> dict[str, Any]:
    """A message of each source of HARD, by topic."""
    joints, scan, imu, point = (
        import_message_class(f"{package}_msgs/msg/{name}")
        for package, name in (
            ("sensor", "JointState"), ("sensor", "LaserScan"), ("sensor", "Imu"),
            ("geometry", "PointStamped"),
        )
    )  # fmt: skip
    legs = joints(name=["hip", "knee"], position=[0.4, -0.2], velocity=[0.1, 0.2])
    arms = joints(name=["left", "right"], position=[1.0, 2.0], effort=[3.0, 4.0])
    beams = scan(ranges=array("f", [0.05, 1, 2, 3, 4, 5, 6, 7]), scan_time=0.5)
    turned, place = imu(), point()
    turned.orientation.x, turned.orientation.w = 0.1, 0.9
    turned.angular_velocity.x, place.point.x = 0.3, 7.0
    return {"legs": legs, "arms": arms, "scan": beams, "imu": turned, "map": place}


class Robot(NamedTuple):
    """A wiring, the one derived from it as the node loads it, and the robot's messages by topic."""

    wiring: Wiring
    derived: Wiring
    messages: dict[str, Any]


@pytest.fixture(scope="module", params=[*SHIPPED, "hard"])
def robot(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Robot:
    name, tmp_path = request.param, tmp_path_factory.mktemp(request.param)
    pytest.importorskip(NEEDED.get(name, "gymnasium"))
    if name == "hard":
        (tmp_path / "hard.yaml").write_text(HARD)
        wiring, messages = load_wiring(tmp_path / "hard.yaml"), hard_messages()
        derived = derive_scrambled_wiring(
            wiring, list_wildcard_matches(first_reading(wiring, messages))
        )
    else:
        simulation = SHIPPED[name].with_name(f"{name}_sim.yaml")
        wiring, messages = load_wiring(SHIPPED[name]), simulated_messages(simulation)
        derived = derive_wiring_for_disturbed_simulation(wiring, simulation)
    write_wiring(derived, tmp_path / "scrambled.yaml")
    return Robot(wiring, load_wiring(tmp_path / "scrambled.yaml"), messages)


def simulated_messages(simulation: Path) -> dict[str, Any]:
    from an_control_sim.bridge.robot import SimulatedRobot
    from an_control_sim.bridge.simulation_file import load_simulation

    simulated = SimulatedRobot(load_simulation(simulation))
    simulated.reset(0)
    simulated.fill_sensor_messages(1)
    messages = {one.topic: copy.deepcopy(one.message) for one in simulated.sensor_topics}
    simulated.close()
    return messages


def first_reading(wiring: Wiring, messages: dict[str, Any]) -> ChannelTable:
    table = ChannelTable(wiring)
    for source in wiring.sources:
        table.store_message(source.name, messages[source.topic], 1, 0)
    table.read(0)
    return table


@pytest.fixture
def node() -> Iterator[Node]:
    rclpy.init()
    one = Node("host")
    yield one
    one.destroy_node()
    rclpy.shutdown()


class Both:
    """The robot's messages, read directly and by way of the scrambler, without time between."""

    def __init__(self, node: Node, robot: Robot, *, lockstep: bool) -> None:
        self._robot, self._lockstep = robot, lockstep
        self.tables = ChannelTable(robot.wiring), ChannelTable(robot.derived)
        self._scrambler = Scrambler(node, robot.wiring, DisturbanceSettings(), 1)
        self._sent = 0

    def tick(self, now_ns: int, messages: dict[str, Any]) -> tuple[Readings, Readings]:
        """A tick on these messages by topic; what is read on both ways."""
        for topic, message in messages.items():
            set_stamp(message.header.stamp, now_ns)
            self._scrambler.store_message(topic, message)
            for table in self.tables:
                for source in table.wiring.sources:
                    if source.topic == topic:
                        table.store_message(source.name, message, now_ns, now_ns)
        self._scrambler.disturb_messages_of_step(now_ns, None if self._lockstep else now_ns)
        if self._sends:
            scrambled = copy.deepcopy(self._scrambler._output.message)
            self.tables[1].store_message(TOPIC, scrambled, now_ns, now_ns)
        stamp_ns = now_ns if self._lockstep else None
        first, second = (table.read(now_ns, stamp_ns) for table in self.tables)
        return first, second

    @property
    def _sends(self) -> bool:
        sent: list[Any] = []
        publisher = self._scrambler._publisher
        self._scrambler._publisher = type("Ear", (), {"publish": staticmethod(sent.append)})
        self._scrambler.publish_disturbed_messages()
        self._scrambler._publisher = publisher
        return bool(sent)

    def verdicts(self, readings: tuple[Readings, Readings]) -> list[tuple[Any, ...]]:
        """Why the safe command goes out, or not, for what was read on each way."""
        share = self._robot.wiring.min_present_share
        return [
            (
                table.list_missing_sources(),
                one.has_min_present_share(share),
                table.measured is None or table.measured.has_all_positions,
            )
            for table, one in zip(self.tables, readings, strict=True)
        ]


def spoiled(message: Any, rng: np.random.Generator, probability: float) -> Any:
    """A copy of which some numbers are NaN, and some elements of arrays are left out by name."""
    message = copy.deepcopy(message)

    def spoil(part: Any) -> None:
        for name, type_ in part.get_fields_and_field_types().items():
            value = getattr(part, name)
            if hasattr(value, "get_fields_and_field_types"):
                spoil(value)
            elif type_ == "double" and rng.random() < probability:
                setattr(part, name, float("nan"))
            elif type_ in ("sequence<double>", "sequence<float>") and len(value):
                gone = rng.random(len(value)) < probability
                setattr(part, name, np.where(gone, np.nan, value).tolist())

    spoil(message)
    if "encoding" in message.get_fields_and_field_types() and rng.random() < probability:
        message.data = bytes(len(message.data))
    return message


def by_name(readings: Readings) -> dict[str, bytes]:
    return {
        name: np.ascontiguousarray(value).tobytes()
        for name, value in zip(readings.ids, readings.values, strict=True)
    }


@pytest.mark.parametrize("lockstep", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_silent_sources_and_missing_channels_give_the_same_decision_at_the_same_tick(
    node, robot, lockstep, seed
):
    rng, both = np.random.default_rng(seed), Both(node, robot, lockstep=lockstep)
    step_ns, now_ns = round(1e9 / robot.wiring.rate_hz), 10**12
    topics, seen = list(robot.messages), set()
    both.verdicts(both.tick(now_ns, robot.messages))
    for _ in range(12):
        silent = {topic for topic in topics if rng.random() < 0.3}
        probability = rng.choice([0.0, 0.0, 0.1, 0.5])
        for _ in range(rng.integers(2, 26)):
            now_ns += step_ns
            heard = {
                topic: spoiled(message, rng, probability)
                for topic, message in robot.messages.items()
                if topic not in silent
            }
            readings = both.tick(now_ns, heard)
            first, second = both.verdicts(readings)
            assert first == second
            assert by_name(readings[0]) == by_name(readings[1])
            seen.add(str(first))
    assert len(seen) > 1, "the sources made a difference"


def test_the_gate_the_safe_command_and_bring_up_are_those_of_the_robot(robot):
    wiring, derived = robot.wiring, robot.derived
    assert (derived.robot, derived.rate_hz) == (wiring.robot, wiring.rate_hz)
    assert derived.min_present_share == wiring.min_present_share
    assert derived.command == wiring.command
    step_s, rng = 1.0 / wiring.rate_hz, np.random.default_rng(0)
    gates = [SafetyGate(one.command, step_s, 3 * step_s) for one in (wiring, derived)]
    ups = [BringUp(one.command, step_s) for one in (wiring, derived)]
    for table, gate in zip((wiring, derived), gates, strict=True):
        measured = first_reading(table, {TOPIC: joints(), **robot.messages}).measured
        if measured is not None:
            assert measured.has_all_positions
            gate.safe_command.record_measured_positions(measured.values)
            gate.restart_ramp_from_safe_command()
    for up in ups:
        up.start_moving_to_start_pose()
    for tick in range(50):
        command = 400.0 * rng.normal(size=len(wiring.command.names))
        command[0] = np.nan if tick == 20 else command[0]
        assert gates[0](command).tolist() == gates[1](command).tolist()
        if not ups[0].done:
            assert ups[0](command / 400.0).tolist() == ups[1](command / 400.0).tolist()
    assert (
        gates[0].restart_ramp_and_get_safe_command().tolist()
        == gates[1].restart_ramp_and_get_safe_command().tolist()
    )
    assert vars(gates[0].counts) == vars(gates[1].counts)


def joints() -> Any:
    return import_message_class("sensor_msgs/msg/JointState")()


def test_required_sources_ages_and_weights_are_those_of_the_robot(robot):
    wiring, derived = robot.wiring, robot.derived
    required = [(one.name, one.topic, one.max_age_s) for one in wiring.sources if one.required]
    assert [(s.name, s.topic, s.max_age_s) for s in derived.sources if s.required] == required
    entries = {one.id: one for one in wiring.channels}
    stands_for = list_wildcard_matches(first_reading(wiring, robot.messages))
    elements = {id_: entry for entry, ids in stands_for.items() for id_ in ids}
    total: dict[str, float] = dict.fromkeys([one.name for one in wiring.sources], 0.0)
    for one in derived.channels:
        if one.id == "*":
            assert one.weight == 0.0
            continue
        entry = entries.get(one.id) or entries[elements[one.id]]
        source = wiring.find_source(entry.source)
        age_s = source.max_age_s if entry.max_age_s is None else entry.max_age_s
        assert derived.find_source(one.source).topic == TOPIC
        own_s = (
            derived.find_source(one.source).max_age_s if one.max_age_s is None else one.max_age_s
        )
        assert own_s == age_s
        if source.weight is None and entry.weight is None:
            assert one.weight is None
        else:
            total[entry.source] += one.weight
    for source in wiring.sources:
        own = [one.weight for one in wiring.channels if one.source == source.name and one.weight]
        assert total[source.name] == pytest.approx(source.weight or sum(own))


def test_what_a_disturbance_adds_is_read_and_does_not_count(node, robot):
    if robot.wiring.images:
        assert all(one.image for one in robot.derived.channels), "to images nothing is added"
        return
    table, source = ChannelTable(robot.derived), {TOPIC: joints()}
    ids = [one.id for one in robot.derived.channels if one.id != "*"]
    source[TOPIC].name, source[TOPIC].position = [*ids, "noise.0"], [1.0] * (len(ids) + 1)
    for name in [one.name for one in robot.derived.sources if one.topic == TOPIC]:
        table.store_message(name, source[TOPIC], 1, 0)
    readings = table.read(0)
    assert set(readings.ids) == {*ids, "noise.0"}
    assert readings.expected == len(ids) + 1 and readings.present_share == 1.0
    source[TOPIC].name, source[TOPIC].position = ["noise.0"], [1.0]
    for name in [one.name for one in robot.derived.sources if one.topic == TOPIC]:
        table.store_message(name, source[TOPIC], 2, 10**9)
    readings = table.read(10**9)
    assert readings.ids == ("noise.0",) and readings.present_share == 0.0


def test_an_id_that_no_field_path_can_name_is_read_all_the_same(tmp_path):
    (tmp_path / "hard.yaml").write_text(HARD.replace("gyro:", '"7":').replace("roll:", '"a[b]":'))
    wiring = load_wiring(tmp_path / "hard.yaml")
    derived = derive_scrambled_wiring(
        wiring, list_wildcard_matches(first_reading(wiring, hard_messages()))
    )
    write_wiring(derived, tmp_path / "scrambled.yaml")
    table, message = ChannelTable(load_wiring(tmp_path / "scrambled.yaml")), joints()
    message.name, message.position = ["place.x", "a[b]", "7"], [1.0, 2.0, 3.0]
    table.store_message(TOPIC, message, 1, 0)
    readings = table.read(0)
    read = dict(zip(readings.ids, readings.values.tolist(), strict=True))
    assert read == {"place.x": 1.0, "a[b]": 2.0, "7": 3.0}


def test_an_entry_that_finds_no_element_is_expected_as_on_the_robot(tmp_path):
    (tmp_path / "hard.yaml").write_text(HARD)
    wiring = load_wiring(tmp_path / "hard.yaml")
    derived = derive_scrambled_wiring(
        wiring, {one.id: [] for one in wiring.channels if "*" in one.id}
    )
    write_wiring(derived, tmp_path / "scrambled.yaml")
    on_robot, behind = ChannelTable(wiring), ChannelTable(load_wiring(tmp_path / "scrambled.yaml"))
    assert on_robot.expected_channel_count == behind.expected_channel_count == len(wiring.channels)


def test_the_policy_that_sim_starts_may_compile_for_minutes():
    from an_control.cli import sim

    folder = find_share_path("config")
    files = sim._SimulationFiles(
        folder / "mobile_base_sim.yaml", folder / "mobile_base.yaml", folder / "no.safetensors"
    )
    settings = sim.SimCommand()._make_simulator_settings(
        files, load_wiring(files.wiring), DisturbanceSettings(), ()
    )
    assert settings.start_timeout_s >= 300.0


@pytest.mark.parametrize("view", [False, True])
def test_with_the_page_the_policy_reads_by_the_same_wiring(monkeypatch, tmp_path, view):
    from an_control.cli import sim

    class Seen(Exception):
        pass

    def stop(self: Any, wiring: Path, model: Path) -> Any:
        raise Seen(wiring.read_text())

    monkeypatch.setattr(sim.SimCommand, "_make_node_parameters", stop)
    monkeypatch.setattr(
        "an_control_sim.bridge.policy_link.wait_until_no_other_simulator", lambda *_: None
    )
    files = sim._SimulationFiles(
        find_share_path("config/mobile_base_sim.yaml"),
        find_share_path("config/mobile_base.yaml"),
        tmp_path / "model.safetensors",
    )
    verb = sim.SimCommand(view=view, scrambler=not view)
    with pytest.raises(Seen) as seen:
        verb._run_node_and_simulator(files, "base", DisturbanceSettings(), ())
    derived = derive_wiring_for_disturbed_simulation(load_wiring(files.wiring), files.simulation)
    write_wiring(derived, tmp_path / "expected.yaml")
    assert str(seen.value) == (tmp_path / "expected.yaml").read_text()


@pytest.mark.parametrize(
    "change",
    [
        lambda one: replace(one, sources=tuple(replace(s, required=False) for s in one.sources)),
        lambda one: replace(one, channels=tuple(replace(c, weight=None) for c in one.channels)),
        lambda one: replace(one, sources=(replace(one.sources[0], weight=2), *one.sources[1:])),
    ],
)
def test_another_wiring_decides_otherwise_so_that_the_comparison_above_can_fail(
    node, tmp_path, change: Callable[[Wiring], Wiring]
):
    (tmp_path / "hard.yaml").write_text(HARD)
    wiring, messages = load_wiring(tmp_path / "hard.yaml"), hard_messages()
    derived = derive_scrambled_wiring(
        wiring, list_wildcard_matches(first_reading(wiring, messages))
    )
    other = Robot(wiring, change(derived), messages)
    with pytest.raises(AssertionError):
        test_silent_sources_and_missing_channels_give_the_same_decision_at_the_same_tick(
            node, other, False, 0
        )
