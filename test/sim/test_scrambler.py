"""The scrambler: inside the simulator and on its own, always with the same permutations."""

from __future__ import annotations

import time
from array import array
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from an_control.disturbance import DisturbanceSettings, Disturber, ScheduledChange, Shuffle
from an_control.system.share import find_share_path
from an_control.wiring import load_wiring


def test_the_derived_wiring_is_what_its_yaml_says(tmp_path):
    from an_control_sim.scrambler.wiring import derive_scrambled_wiring, write_wiring

    robot = load_wiring(find_share_path("config/ant.yaml"))
    derived = derive_scrambled_wiring(robot)
    assert derived.command == robot.command and derived.rate_hz == robot.rate_hz
    for wiring in (derived, robot, load_wiring(find_share_path("config/mobile_base.yaml"))):
        write_wiring(wiring, tmp_path / "wiring.yaml")
        assert replace(load_wiring(tmp_path / "wiring.yaml"), file=wiring.file) == wiring


def test_a_constant_text_that_looks_like_a_number_stays_text(tmp_path):
    from an_control_sim.scrambler.wiring import derive_scrambled_wiring, write_wiring

    base = find_share_path("config/mobile_base.yaml").read_text()
    (tmp_path / "robot.yaml").write_text(base.replace("frame_id: base_link", "frame_id: '1e5'"))
    derived = derive_scrambled_wiring(load_wiring(tmp_path / "robot.yaml"))
    write_wiring(derived, tmp_path / "wiring.yaml")
    (message,) = load_wiring(tmp_path / "wiring.yaml").command.messages
    assert message.constants == {"header.frame_id": "1e5"}


WIRING = """
an_control_wiring: 1
robot: tiny
rate_hz: 100
min_present_share: 0.5
sources:
  joints: {topic: joints, type: sensor_msgs/msg/JointState, max_age_s: 0.5}
  feet: {topic: feet, type: std_msgs/msg/Float64MultiArray, max_age_s: 0.5}
channels:
  "*.position": {source: joints, field: "position[*]", scale: 0.1}
  "foot.*": {source: feet, field: "data[*]"}
command:
  topic: commands
  type: std_msgs/msg/Float64MultiArray
  field: data
  actuators: {push: {limits: [-1, 1], safe: 0.0}}
"""


@pytest.fixture
def ros():
    rclpy = pytest.importorskip("rclpy")
    rclpy.init()
    yield
    rclpy.shutdown()


def messages(step: int) -> tuple[Any, Any]:
    from sensor_msgs.msg import JointState
    from std_msgs.msg import Float64MultiArray

    positions = array("d", [10.0 * step + i for i in range(6)])
    joints = JointState(name=list("abcdef"), position=positions)
    joints.header.stamp.sec = step
    return joints, Float64MultiArray(data=array("d", [float(step), 1.0]))


def channels(message: Any) -> dict[str, float]:
    return dict(zip(message.name, message.position, strict=True))


def test_inside_the_simulator_it_publishes_what_the_disturber_gives(ros, tmp_path):
    from rclpy.node import Node

    from an_control_sim.scrambler.scrambler import Scrambler

    (tmp_path / "tiny.yaml").write_text(WIRING)
    settings = DisturbanceSettings(Shuffle(True), noise_channels=1)
    node = Node("host", namespace="ant")
    scrambler = Scrambler(node, load_wiring(tmp_path / "tiny.yaml"), settings, 7)
    assert scrambler.topic == "/ant/scrambled"
    scrambler.start_episode(2)
    joints, feet = messages(1)
    scrambler.store_message("joints", joints)
    scrambler.store_message("/ant/feet", feet)
    scrambler.store_message("nobody_reads_this", feet)
    scrambler.disturb_messages_of_step(1_000_000_000)
    ids = (*(f"{name}.position" for name in "abcdef"), "foot.0", "foot.1")
    values = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.0, 1.0], np.float32)
    pure = Disturber(ids, settings, 7)
    pure.start_episode(2)
    expected, names = pure.disturb(values, ids)
    assert scrambler._output.message.name == list(names)
    assert list(scrambler._output.message.position) == expected.astype(float).tolist()
    assert scrambler._output.message.header.stamp.sec == 1
    assert scrambler.shuffle_count == 1
    node.destroy_node()


@pytest.mark.parametrize(("name", "count"), [("ant", 28), ("pong", 196)])
def test_more_signals_than_a_robot_has_channels_cannot_move(name, count):
    pytest.importorskip("rclpy")
    from an_control_sim.scrambler.messages import make_scrambled_message

    out = make_scrambled_message(load_wiring(find_share_path(f"config/{name}.yaml")))
    out.check_settings(DisturbanceSettings(swap=count))
    for settings, schedule in (
        (DisturbanceSettings(swap=count + 1), ()),
        (DisturbanceSettings(), [ScheduledChange(3, {"swap": count + 1})]),
    ):
        with pytest.raises(ValueError, match=f"swap: {count + 1} .*0 to {count}"):
            out.check_settings(settings, schedule)


def test_parameters_and_a_service_change_it_while_it_runs(ros, tmp_path):
    from rclpy.node import Node
    from rclpy.parameter import Parameter
    from std_srvs.srv import Trigger

    from an_control_sim.scrambler.scrambler import Scrambler

    (tmp_path / "tiny.yaml").write_text(WIRING)
    node = Node("host", namespace="ant")
    scrambler = Scrambler(node, load_wiring(tmp_path / "tiny.yaml"), DisturbanceSettings(), 7)

    def shown() -> dict[str, float]:
        for topic, message in zip(("joints", "feet"), messages(1), strict=True):
            scrambler.store_message(topic, message)
        scrambler.disturb_messages_of_step(1_000_000_000)
        return channels(scrambler._output.message)

    plain = shown()
    (result,) = node.set_parameters([Parameter("missing", value=0.5)])
    assert result.successful and np.isnan([*shown().values()]).sum() == 4
    for name, value in (("missing", 1.5), ("shuffle", "often"), ("copies", -1)):
        (result,) = node.set_parameters([Parameter(name, value=value)])
        assert not result.successful and "allowed" in result.reason
    both = [Parameter("missing", value=0.0), Parameter("freeze", value=1.0)]
    assert node.set_parameters_atomically(both).successful
    assert shown() == plain
    scrambler._on_shuffle(Trigger.Request(), Trigger.Response())
    moved = shown()
    assert moved != plain and sorted(moved.values()) == sorted(plain.values())
    node.destroy_node()


def test_what_is_made_missing_while_it_runs_is_missing_at_once_in_the_policy_node(ros, tmp_path):
    from rclpy.node import Node
    from rclpy.parameter import Parameter

    from an_control.wiring import ChannelTable
    from an_control_sim.scrambler.scrambler import Scrambler
    from an_control_sim.scrambler.wiring import derive_scrambled_wiring

    (tmp_path / "tiny.yaml").write_text(WIRING)
    wiring, ids = load_wiring(tmp_path / "tiny.yaml"), [f"{name}.position" for name in "abcdef"]
    stands_for = {"*.position": ids, "foot.*": ["foot.0", "foot.1"]}
    table = ChannelTable(derive_scrambled_wiring(wiring, stands_for))
    node, tick = Node("host", namespace="ant"), iter(range(100))
    scrambler = Scrambler(node, wiring, DisturbanceSettings(), 7)

    def read() -> tuple[str, ...]:
        now_ns = next(tick) * 10_000_000
        for topic, message in zip(("joints", "feet"), messages(1), strict=True):
            scrambler.store_message(topic, message)
        scrambler.disturb_messages_of_step(1_000_000_000)
        table.store_message("scrambled", scrambler._output.message, now_ns, now_ns)
        return table.read(now_ns).ids

    assert len(read()) == 8
    assert node.set_parameters([Parameter("missing", value=0.5)])[0].successful
    assert len(read()) == 4
    assert node.set_parameters([Parameter("missing", value=0)])[0].successful
    assert node.set_parameters([Parameter("order", value=["c.position="])])[0].successful
    assert sorted(read()) == sorted({*ids, "foot.0", "foot.1"} - {"c.position"})
    node.destroy_node()


def test_the_parameter_order_plugs_signals_into_other_channels_and_a_topic_tells_it(ros, tmp_path):
    from diagnostic_msgs.msg import DiagnosticStatus
    from rclpy.node import Node
    from rclpy.parameter import Parameter
    from std_srvs.srv import Trigger

    from an_control_sim.process import make_events_executor
    from an_control_sim.scrambler.scrambler import LATCHED, Scrambler

    (tmp_path / "tiny.yaml").write_text(WIRING)
    node, told = Node("host", namespace="ant"), []
    scrambler = Scrambler(node, load_wiring(tmp_path / "tiny.yaml"), DisturbanceSettings(), 7)
    node.create_subscription(DiagnosticStatus, "~/order", told.append, LATCHED)
    executor = make_events_executor(node.context)
    executor.add_node(node)

    def shown() -> dict[str, float]:
        for topic, message in zip(("joints", "feet"), messages(1), strict=True):
            scrambler.store_message(topic, message)
        scrambler.disturb_messages_of_step(1_000_000_000)
        return channels(scrambler._output.message)

    def order(*entries: str) -> str:
        return node.set_parameters([Parameter("order", value=list(entries))])[0].reason

    assert node.get_parameter("order").value == [], "without a value it hides all others"
    assert "none, as no reading has come" in order("a.position=")
    plain = shown()
    a, b = plain["a.position"], plain["b.position"]
    swapped = "a.position=b.position", "b.position=a.position"
    assert order(*swapped, "c.position=", "foot.0=noise") == ""
    moved = shown()
    assert (moved["a.position"], moved["b.position"]) == (b, a)
    assert {one for one, value in moved.items() if np.isnan(value)} == {"c.position"}
    assert moved["foot.0"] != plain["foot.0"]
    scrambler._on_shuffle(Trigger.Request(), Trigger.Response())
    assert sorted(scrambler.signal_by_channel.values()) == sorted(
        ["", "noise", *(id_ for id_ in plain if id_ not in ("c.position", "foot.0"))]
    )
    slot = next(slot for slot, signal in scrambler.signal_by_channel.items() if signal == "")
    assert order(f"{slot}=c.position") == "" and scrambler.signal_by_channel[slot] == "c.position"
    for entries, named in (
        (["a.position=x"], "'x' is not a signal"),
        (["x=a.position"], "'x' is not a channel"),
        (["a.position"], "CHANNEL=SIGNAL"),
        (["foot.0=", "foot.0="], "twice"),
    ):
        assert named in order(*entries)
    shown()
    until_s = time.monotonic() + 100.0
    while (
        not told or {one.key: one.value for one in told[-1].values} != scrambler.signal_by_channel
    ):
        assert time.monotonic() < until_s
        executor.spin_once(timeout_sec=0.05)
    (result,) = node.set_parameters([Parameter("announce", value=True)])
    assert result.successful and "while announce is true" in order("a.position=b.position")
    executor.remove_node(node)
    executor.shutdown()
    node.destroy_node()


def test_an_order_that_is_given_at_the_start_is_not_shown_as_if_it_held(ros, tmp_path, capfd):
    from rclpy.node import Node
    from rclpy.parameter import Parameter

    from an_control_sim.scrambler.scrambler import Scrambler

    (tmp_path / "tiny.yaml").write_text(WIRING)
    given = [Parameter("order", value=["a.position=noise"])]
    node = Node("host", parameter_overrides=given)
    Scrambler(node, load_wiring(tmp_path / "tiny.yaml"), DisturbanceSettings(), 7)
    assert node.get_parameter("order").value == []
    assert "parameter order: ignored at the start" in capfd.readouterr().err
    node.destroy_node()


def test_a_set_order_stays_through_episodes(ros, tmp_path):
    from rclpy.node import Node

    from an_control_sim.scrambler.scrambler import Scrambler

    (tmp_path / "tiny.yaml").write_text(WIRING)
    node = Node("host", namespace="ant")
    scrambler = Scrambler(node, load_wiring(tmp_path / "tiny.yaml"), DisturbanceSettings(), 7)
    for topic, message in zip(("joints", "feet"), messages(1), strict=True):
        scrambler.store_message(topic, message)
    scrambler.disturb_messages_of_step(1_000_000_000)
    scrambler.set_signals_of_channels({"a.position": "b.position"})
    scrambler.start_episode(1)
    assert scrambler.signal_by_channel["a.position"] == "b.position"
    node.destroy_node()


def test_a_patch_of_an_image_carries_another_ones_pixels_but_no_noise(ros):
    from rclpy.node import Node

    from an_control_sim.scrambler.scrambler import Scrambler

    node = Node("host", namespace="pong")
    wiring = load_wiring(find_share_path("config/pong.yaml"))
    scrambler = Scrambler(node, wiring, DisturbanceSettings(), 7)
    ids = tuple(f"camera.{row}.{column}" for row in range(14) for column in range(14))
    scrambler._add_new_channels(ids)
    scrambler.set_signals_of_channels({ids[3]: ids[5], ids[7]: ""})
    places, names = scrambler.disturb(np.arange(196, dtype=np.float32), ids)
    assert dict(zip(names, places, strict=True))[ids[3]] == 5.0 and ids[7] not in names
    with pytest.raises(ValueError, match="not for images"):
        scrambler.set_signals_of_channels({ids[3]: "noise"})
    node.destroy_node()


def test_behind_it_each_of_the_robots_channels_can_be_rewired_and_is_expected_from_the_start():
    from an_control.wiring import ChannelTable
    from an_control_sim.scrambler.wiring import derive_scrambled_wiring

    robot = load_wiring(find_share_path("config/ant.yaml"))
    derived = derive_scrambled_wiring(robot)
    assert [one.id for one in derived.channels] == [*(one.id for one in robot.channels), "*"]
    assert derived.rewirable_settings["channels.roll.field"] == "position[roll]"
    table = ChannelTable(derived)
    assert (
        table.ids == tuple(one.id for one in robot.channels) and table.expected_channel_count == 28
    )


def test_an_integer_is_a_value_of_a_setting_that_is_a_float(ros, tmp_path):
    from rclpy.node import Node
    from rclpy.parameter import Parameter

    from an_control_sim.scrambler.scrambler import Scrambler

    (tmp_path / "tiny.yaml").write_text(WIRING)
    given = [Parameter("noise_sd", value=2)]
    node = Node("host", namespace="ant", parameter_overrides=given)
    Scrambler(node, load_wiring(tmp_path / "tiny.yaml"), DisturbanceSettings(), 7)
    assert node.get_parameter("noise_sd").value == 2.0
    assert node.set_parameters([Parameter("noise_sd", value=1)])[0].successful
    assert node.get_parameter("noise_sd").value == 1.0
    assert not node.set_parameters([Parameter("noise_sd", value=-1)])[0].successful
    node.destroy_node()


@pytest.mark.parametrize("mode", ["lockstep", "rate"])
def test_on_its_own_it_stands_between_a_robots_topics_and_the_policy(ros, tmp_path, mode):
    from rclpy.node import Node
    from rclpy.parameter import Parameter
    from sensor_msgs.msg import JointState
    from std_msgs.msg import Float64MultiArray
    from std_srvs.srv import Trigger

    from an_control_sim.process import make_events_executor
    from an_control_sim.scrambler.scrambler import ScramblerNode

    (tmp_path / "tiny.yaml").write_text(WIRING)
    scrambler = ScramblerNode(
        parameter_overrides=[
            Parameter("wiring", value=str(tmp_path / "tiny.yaml")),
            Parameter("mode", value=mode),
            Parameter("shuffle", value="reset"),
        ]
    )
    robot, heard = Node("robot"), []
    sends = [robot.create_publisher(JointState, "joints", 10),
             robot.create_publisher(Float64MultiArray, "feet", 10)]  # fmt: skip
    listener = robot.create_subscription(JointState, "scrambled", heard.append, 10)
    client = robot.create_client(Trigger, "scrambler/reset")
    executor = make_events_executor(robot.context)
    for node in (scrambler, robot):
        executor.add_node(node)

    def wait(ready):
        until_s = time.monotonic() + 100.0
        while not ready():
            assert time.monotonic() < until_s
            executor.spin_once(timeout_sec=0.05)

    wait(lambda: all(one.get_subscription_count() for one in sends) and client.service_is_ready())
    wait(lambda: robot.count_publishers("scrambled") > 0 and listener is not None)

    def sent(step: int) -> dict[str, float]:
        for publisher, message in zip(sends, messages(step), strict=True):
            publisher.publish(message)
        there = np.float32(0.1 * (10 * step + 5))
        wait(lambda: heard and there in np.float32(heard[-1].position))
        return channels(heard[-1])

    first = sent(3)
    assert sorted(first) == sorted([*(f"{name}.position" for name in "abcdef"), "foot.0", "foot.1"])
    assert first["a.position"] != pytest.approx(3.0) or first["b.position"] != pytest.approx(3.1)
    if mode == "lockstep":
        assert heard[-1].header.stamp.sec == 3
    reply = client.call_async(Trigger.Request())
    wait(reply.done)
    assert reply.result().success
    second = sent(4)
    order = [sorted(one, key=lambda slot, one=one: one[slot])[-5:] for one in (first, second)]
    assert order[0] != order[1]
    for node in (scrambler, robot):
        executor.remove_node(node)
        node.destroy_node()
    executor.shutdown()


@pytest.mark.parametrize(
    ("setting", "lockstep", "said"),
    [
        ({"gain": 0.6}, False, "gain: 0.6 .allowed for the scrambler alone: 1; the simulator"),
        ({"stop": 2}, False, "stop: 2 .allowed for the scrambler alone: 0; the simulator"),
        ({"lose": 0.1}, True, "lose: 0.1 .allowed in lockstep: 0; the simulator"),
    ],
)
def test_what_only_the_simulator_can_do_the_scrambler_alone_refuses(setting, lockstep, said):
    from an_control_sim.scrambler.scrambler import _check_settings_need_no_simulator

    with pytest.raises(ValueError, match=said):
        _check_settings_need_no_simulator(DisturbanceSettings(**setting), lockstep=lockstep)
    _check_settings_need_no_simulator(DisturbanceSettings(lose=0.1, delay=1), lockstep=False)


def test_the_scramblers_own_node_handles_no_events_of_the_middleware(ros, tmp_path):
    from rclpy.parameter import Parameter

    from an_control_sim.scrambler.scrambler import ScramblerNode

    (tmp_path / "tiny.yaml").write_text(WIRING)
    overrides = [Parameter("wiring", value=str(tmp_path / "tiny.yaml"))]
    node = ScramblerNode(parameter_overrides=overrides)
    endpoints = [*node.publishers, *node.subscriptions]
    assert {"/scrambled", "/joints", "/feet"} < {one.topic_name for one in endpoints}
    assert [one.topic_name for one in endpoints if one.event_handlers] == []
    node.destroy_node()
