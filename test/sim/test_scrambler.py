"""The scrambler: pure, inside the simulator and on its own, always with the same permutations."""

from __future__ import annotations

import time
from array import array
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from an_control.disturbance import (
    Change,
    DisturbanceSettings,
    Disturber,
    Shuffle,
    episode_seed,
)
from an_control.share import share_path
from an_control.wiring import load_wiring

IDS = tuple(f"channel_{i}" for i in range(12))
VALUES = np.arange(12, dtype=np.float32)


def scramble(seed: int = 1, **settings: Any) -> Disturber:
    shuffle = Shuffle.parse(settings.pop("shuffle", "none"))
    return Disturber(IDS, DisturbanceSettings(shuffle, **settings), seed)


def run(one: Disturber, ticks: int) -> list[tuple[list[float], tuple[str, ...]]]:
    outs = (one.apply(VALUES + 100 * t, IDS) for t in range(ticks))
    return [(values.tolist(), ids) for values, ids in outs]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("none", Shuffle()),
        ("reset", Shuffle(True)),
        ("25", Shuffle(False, 25)),
        ("reset+25", Shuffle(True, 25)),
    ],
)
def test_shuffle_texts(text, expected):
    assert Shuffle.parse(text) == expected


@pytest.mark.parametrize("text", ["", "0", "-3", "resets", "none+5", "reset+", "2.5", "reset+0"])
def test_any_other_shuffle_text_is_refused_with_what_is_allowed(text):
    with pytest.raises(ValueError, match=r"allowed: none, reset, K, reset\+K"):
        Shuffle.parse(text)


def test_a_swap_moves_so_many_contents_and_no_other():
    one = scramble(shuffle="1", swap=2)
    values = [np.array(tick[0]) % 100 for tick in run(one, 20)]
    assert all((a != b).sum() == 2 for a, b in pairwise(values))
    assert all(sorted(a.tolist()) == VALUES.tolist() for a in values)


def test_jitter_is_noise_of_that_size_and_changes_no_permutation():
    plain, noisy = (run(scramble(shuffle="5", jitter=sd), 200) for sd in (0.0, 0.02))
    apart = np.array([one[0] for one in noisy]) - np.array([one[0] for one in plain])
    assert 0.018 < apart.std() < 0.022 and abs(apart.mean()) < 0.002


@pytest.mark.parametrize(
    "settings",
    [
        {"drop": 1.5},
        {"drop": float("nan")},
        {"noise_channels": -1},
        {"nan": -0.1},
        {"swap": 1},
        {"jitter": -1.0},
    ],
)
def test_settings_out_of_bounds_are_refused_by_name(settings):
    with pytest.raises(ValueError, match=next(iter(settings))):
        DisturbanceSettings(**settings)


def test_none_changes_nothing():
    values, ids = scramble().apply(VALUES, IDS)
    assert dict(zip(ids, values.tolist(), strict=True)) == dict(
        zip(IDS, VALUES.tolist(), strict=True)
    )
    assert not DisturbanceSettings().active


def test_an_unannounced_shuffle_moves_contents_behind_the_same_ids():
    one = scramble(shuffle="reset")
    values, ids = one.apply(VALUES, IDS)
    assert set(ids) == set(IDS) and sorted(values.tolist()) == VALUES.tolist()
    shown = dict(zip(ids, values.tolist(), strict=True))
    truth = dict(zip(one.ids, one.order, strict=True))
    assert all(shown[slot] == VALUES[IDS.index(truth[slot])] for slot in IDS)
    assert any(truth[slot] != slot for slot in IDS)
    assert one.shuffles == 1


def test_an_announced_shuffle_leaves_every_content_with_its_id():
    one = scramble(shuffle="reset+2", announce=True)
    orders = set()
    for _ in range(6):
        values, ids = one.apply(VALUES, IDS)
        orders.add(ids)
        assert dict(zip(ids, values.tolist(), strict=True)) == dict(
            zip(IDS, VALUES.tolist(), strict=True)
        )
    assert len(orders) == 3 == one.shuffles


def test_every_k_steps_starts_nominal_and_permutes_anew():
    one = scramble(shuffle="3")
    outs = [values for values, _ in (one.apply(VALUES, IDS) for _ in range(9))]
    assert [a.tolist() == b.tolist() for a, b in pairwise(outs)] == [
        True, True, False, True, True, False, True, True]  # fmt: skip
    assert outs[0].tolist() == scramble().apply(VALUES, IDS)[0].tolist()


def test_everything_follows_from_seed_and_episode():
    settings = {"shuffle": "reset+3", "noise_channels": 2, "drop": 0.25, "spike": 0.2, "nan": 0.1}
    one, other = scramble(**settings), scramble(**settings)
    one.reset(4)
    run(one, 10)
    for episode in (4, 2, 4):
        one.reset(episode)
        other.reset(episode)
        np.testing.assert_equal(run(one, 10), run(other, 10))
    other.reset(5)
    assert str(run(one, 10)) != str(run(other, 10))


def test_the_order_of_the_ids_does_not_matter():
    one, other = scramble(shuffle="reset+2"), scramble(shuffle="reset+2")
    for _ in range(5):
        values, ids = one.apply(VALUES, IDS)
        reversed_values, reversed_ids = other.apply(VALUES[::-1], IDS[::-1])
        assert (values.tolist(), ids) == (reversed_values.tolist(), reversed_ids)


def test_noise_channels_come_after_the_shuffle_and_leave_it_alone():
    plain, noisy = scramble(shuffle="reset"), scramble(shuffle="reset", noise_channels=3)
    values, ids = noisy.apply(VALUES, IDS)
    assert values[:12].tolist() == plain.apply(VALUES, IDS)[0].tolist()
    assert ids[12:] == ("noise.0", "noise.1", "noise.2")
    noise = np.array([noisy.apply(VALUES, IDS)[0][12:] for _ in range(2000)])
    assert noise.std() == pytest.approx(0.1, rel=0.05) and abs(noise.mean()) < 0.01


def test_a_dropped_share_is_absent_for_the_whole_episode():
    one = scramble(drop=0.25)
    shown = {ids for _, ids in run(one, 5)}
    assert len(shown) == 1 and len(shown.pop()) == 9
    one.reset(1)
    assert {ids for _, ids in run(one, 5)} != shown


def test_an_absent_channel_leaves_its_slot_empty_wherever_it_is_shown():
    one = scramble(shuffle="reset")
    values, ids = one.apply(VALUES[1:], IDS[1:])
    hidden = one.ids[one.order.index(IDS[0])]
    assert set(ids) == set(IDS) - {hidden}
    assert sorted(values.tolist()) == VALUES[1:].tolist()
    assert len(one.apply(VALUES, IDS)[1]) == 12


def test_the_same_ids_come_back_as_the_same_tuple():
    one = scramble(shuffle="reset", noise_channels=1)
    assert one.apply(VALUES, IDS)[1] is one.apply(VALUES, IDS)[1]


def test_delay_freeze_spike_and_nan_do_what_they_say():
    late = [min(values) for values, _ in run(scramble(delay=2), 5)]
    assert late == [0.0, 0.0, 0.0, 100.0, 200.0]
    frozen = np.array([values for values, _ in run(scramble(freeze=0.5), 3)])
    assert (np.ptp(frozen, axis=0) == 0).sum() == 6
    spiked = np.array([values for values, _ in run(scramble(spike=0.5), 50)])
    clean = np.array([values for values, _ in run(scramble(), 50)])
    assert 0.4 < (spiked != clean).mean() < 0.6
    lost = np.array([values for values, _ in run(scramble(nan=0.5), 50)])
    assert 0.4 < np.isnan(lost).mean() < 0.6


def test_settings_that_change_on_the_way_draw_anew_only_what_they_decide():
    one, steady = scramble(shuffle="reset", drop=0.25), scramble(shuffle="reset", drop=0.25)
    run(one, 3)
    run(steady, 3)
    one.change(replace(one.settings, noise_channels=2, nan=0.0))
    (values, ids), (before, names) = one.apply(VALUES, IDS), steady.apply(VALUES, IDS)
    assert ids[: len(names)] == names and values[: len(names)].tolist() == before.tolist()
    assert ids[len(names) :] == ("noise.0", "noise.1")
    one.change(replace(one.settings, noise_channels=0, drop=0.0))
    assert len(one.apply(VALUES, IDS)[1]) == 12
    assert one.order == steady.order
    one.shuffle()
    assert one.order != steady.order and one.shuffles == 2
    one.reset(1)
    steady.reset(1)
    assert one.order == steady.order and one.settings.drop == 0.0


def test_a_delay_that_grows_holds_the_reading_until_it_is_that_late():
    one = scramble(delay=1)
    run(one, 5)
    one.change(replace(one.settings, delay=3))
    late = [min(values) for values, _ in run(one, 4)]
    assert late == [300.0, 300.0, 400.0, 0.0]
    one.change(replace(one.settings, delay=0, spike=1e-9))
    assert min(one.apply(VALUES + 900, IDS)[0]) == 900.0


def test_a_schedule_changes_the_same_steps_of_every_episode():
    schedule = (Change(4, {"drop": 0.0, "shuffle": Shuffle(False, 2)}), Change(2, {"drop": 0.5}))
    one = Disturber(IDS, DisturbanceSettings(), 1, schedule)
    for episode in (0, 1):
        one.reset(episode)
        counts = [(len(ids), one.shuffles) for _, ids in run(one, 2)]
        assert counts == [(12, 0), (12, 0)]
        assert [len(ids) for _, ids in run(one, 2)] == [6, 6]
        assert [len(ids) for _, ids in run(one, 3)] == [12, 12, 12]
        assert one.shuffles == 2
    one.reset(0)
    first = run(one, 8)
    again = Disturber(IDS, DisturbanceSettings(), 1, schedule[::-1])
    assert run(again, 8) == first


@given(st.booleans(), st.integers(0, 999))
def test_a_shuffle_reads_back_from_its_text(at_reset: bool, every: int):
    assert Shuffle.parse(str(Shuffle(at_reset, every))) == Shuffle(at_reset, every)


SCHEDULE = "an_control_schedule: 1\nchanges:\n  2: {drop: 0.5, shuffle: 3}\n  7: {announce: true}\n"


def test_a_schedule_file_says_from_which_step_on_what_changes(tmp_path):
    from an_control.disturbance import load_schedule

    (tmp_path / "schedule.yaml").write_text(SCHEDULE)
    assert load_schedule(tmp_path / "schedule.yaml") == (
        Change(2, {"drop": 0.5, "shuffle": Shuffle(False, 3)}),
        Change(7, {"announce": True}),
    )


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("drop: 0.5", "drop: 1.5", "changes.2.drop.*0 to 1"),
        ("drop: 0.5", "lose: 0.5", "drop"),
        ("drop: 0.5", "copies: 1.5", "whole"),
        ("shuffle: 3", "shuffle: often", "changes.2.shuffle.*reset"),
        ("announce: true", "announce: 1", "true or false"),
        ("  7:", "  later:", "a step"),
        ("schedule: 1", "schedule: 2", "version"),
    ],
)
def test_a_schedule_file_that_is_not_right_is_refused_with_place_and_choices(
    tmp_path, right, wrong, said
):
    from an_control.disturbance import load_schedule
    from an_control.wiring import WiringError

    (tmp_path / "schedule.yaml").write_text(SCHEDULE.replace(right, wrong))
    with pytest.raises(WiringError, match=said):
        load_schedule(tmp_path / "schedule.yaml")


def test_episode_seeds_differ_and_are_fixed():
    seeds = {episode_seed(seed, episode) for seed in range(20) for episode in range(20)}
    assert len(seeds) == 400 and all(0 <= seed < 2**31 for seed in seeds)
    assert episode_seed(1, 2) == episode_seed(1, 2)


def test_the_derived_wiring_is_what_its_yaml_says(tmp_path):
    from an_control_sim.bridge.scrambled_wiring import scrambled_wiring, write_wiring

    robot = load_wiring(share_path("config/ant.yaml"))
    derived = scrambled_wiring(robot)
    assert derived.command == robot.command and derived.rate_hz == robot.rate_hz
    for wiring in (derived, robot):
        write_wiring(wiring, tmp_path / "wiring.yaml")
        assert replace(load_wiring(tmp_path / "wiring.yaml"), file=wiring.file) == wiring


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


def test_inside_the_simulator_it_publishes_what_the_pure_scramble_gives(ros, tmp_path):
    from rclpy.node import Node

    from an_control_sim.bridge.scrambler import Scrambler

    (tmp_path / "tiny.yaml").write_text(WIRING)
    settings = DisturbanceSettings(Shuffle(True), noise_channels=1)
    node = Node("host", namespace="ant")
    scrambler = Scrambler(node, load_wiring(tmp_path / "tiny.yaml"), settings, 7)
    assert scrambler.topic == "/ant/scrambled"
    scrambler.reset(2)
    joints, feet = messages(1)
    scrambler.take("joints", joints)
    scrambler.take("/ant/feet", feet)
    scrambler.take("nobody_reads_this", feet)
    scrambler.prepare(1_000_000_000)
    ids = (*(f"{name}.position" for name in "abcdef"), "foot.0", "foot.1")
    values = np.array([1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.0, 1.0], np.float32)
    pure = Disturber(ids, settings, 7)
    pure.reset(2)
    expected, names = pure.apply(values, ids)
    assert scrambler._out.message.name == list(names)
    assert list(scrambler._out.message.position) == expected.astype(float).tolist()
    assert scrambler._out.message.header.stamp.sec == 1
    assert scrambler.shuffles == 1
    node.destroy_node()


def test_parameters_and_a_service_change_it_while_it_runs(ros, tmp_path):
    from rclpy.node import Node
    from rclpy.parameter import Parameter
    from std_srvs.srv import Trigger

    from an_control_sim.bridge.scrambler import Scrambler

    (tmp_path / "tiny.yaml").write_text(WIRING)
    node = Node("host", namespace="ant")
    scrambler = Scrambler(node, load_wiring(tmp_path / "tiny.yaml"), DisturbanceSettings(), 7)

    def shown() -> dict[str, float]:
        for topic, message in zip(("joints", "feet"), messages(1), strict=True):
            scrambler.take(topic, message)
        scrambler.prepare(1_000_000_000)
        return channels(scrambler._out.message)

    plain = shown()
    (result,) = node.set_parameters([Parameter("drop", value=0.5)])
    assert result.successful and len(shown()) == 4
    for name, value in (("drop", 1.5), ("shuffle", "often"), ("copies", -1)):
        (result,) = node.set_parameters([Parameter(name, value=value)])
        assert not result.successful and "allowed" in result.reason
    both = [Parameter("drop", value=0.0), Parameter("freeze", value=1.0)]
    assert node.set_parameters_atomically(both).successful
    assert shown() == plain
    scrambler._on_shuffle(Trigger.Request(), Trigger.Response())
    moved = shown()
    assert moved != plain and sorted(moved.values()) == sorted(plain.values())
    node.destroy_node()


@pytest.mark.parametrize("mode", ["lockstep", "rate"])
def test_on_its_own_it_stands_between_a_robots_topics_and_the_policy(ros, tmp_path, mode):
    from rclpy.node import Node
    from rclpy.parameter import Parameter
    from sensor_msgs.msg import JointState
    from std_msgs.msg import Float64MultiArray
    from std_srvs.srv import Trigger

    from an_control_sim.bridge.process import new_executor
    from an_control_sim.bridge.scrambler import ScramblerNode

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
    executor = new_executor(robot.context)
    for node in (scrambler, robot):
        executor.add_node(node)

    def wait(ready):
        until_s = time.monotonic() + 10.0
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
