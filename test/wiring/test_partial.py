"""Messages with some of a source's named elements, and wildcards over what comes and goes."""

from __future__ import annotations

import array
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from an_control.wiring import ChannelTable

Table = Callable[..., ChannelTable]
JOINTS = "sensor_msgs/msg/JointState"
FRAMES = "fake_msgs/msg/Frames"
SCAN = "fake_msgs/msg/Scan"
MS = 1_000_000
STEP_NS = 10 * MS
ARM, GRIPPER = ("a", "b"), ("left", "right")


def joints(names: Sequence[str], value: float, velocity: bool = True) -> Any:
    """Positions of that value, velocities ten times as much."""
    return SimpleNamespace(
        name=list(names),
        position=array.array("d", [value] * len(names)),
        velocity=array.array("d", [10 * value] * len(names) if velocity else []),
    )


def present(table: ChannelTable, now_ns: int, stamp_ns: int | None = None) -> dict[str, float]:
    readings = table.read(now_ns, stamp_ns)
    assert len(readings.ids) <= readings.expected
    return dict(zip(readings.ids, readings.values.tolist(), strict=True))


def whole(table: Table, **options: Any) -> ChannelTable:
    """Four joints written out."""
    return table({"s": JOINTS}, {name: f"position[{name}]" for name in ARM + GRIPPER}, **options)


def wild(table: Table) -> ChannelTable:
    return table({"s": JOINTS}, {"*.position": "position[*]"})


def play(table: ChannelTable, steps: Iterable[int], *names: Sequence[str]) -> None:
    """At each step a message of each of these lists of names, and a read."""
    for step in steps:
        for one in names:
            table.store_message("s", joints(one, step), step + 1, step * STEP_NS)
        table.read(step * STEP_NS)


def test_publishers_of_one_topic_are_merged_by_name(table: Table) -> None:
    robot = whole(table)
    robot.store_message("s", joints(ARM, 1.0), 1, 0)
    assert present(robot, 0) == {"a": 1.0, "b": 1.0}
    robot.store_message("s", joints(GRIPPER, 2.0), 2, 1)
    assert present(robot, 1) == {"a": 1.0, "b": 1.0, "left": 2.0, "right": 2.0}
    robot.store_message("s", joints(("b", "left"), 3.0), 3, 2)
    assert present(robot, 2) == {"a": 1.0, "b": 3.0, "left": 3.0, "right": 2.0}


@pytest.mark.parametrize("order", [(ARM, GRIPPER), (GRIPPER, ARM), (ARM, GRIPPER, ARM, ARM)])
def test_none_is_lost_where_several_come_between_two_ticks(table: Table, order: Any) -> None:
    robot = whole(table)
    for place, names in enumerate(order):
        robot.store_message("s", joints(names, float(place)), place + 1, place)
    newest = {name: float(place) for place, names in enumerate(order) for name in names}
    assert present(robot, len(order)) == newest


def test_each_name_has_an_age_of_its_own(table: Table) -> None:
    robot = whole(table)
    robot.store_message("s", joints(GRIPPER, 1.0), None, 0)
    for now_ns in (0, 50 * MS, 100 * MS, 101 * MS, 150 * MS):
        robot.store_message("s", joints(ARM, 2.0), None, now_ns)
        expected = {"a", "b"} | (set(GRIPPER) if now_ns <= 100 * MS else set())
        assert present(robot, now_ns).keys() == expected
    robot.store_message("s", joints(GRIPPER, 3.0), None, 160 * MS)
    assert present(robot, 160 * MS) == {"a": 2.0, "b": 2.0, "left": 3.0, "right": 3.0}
    assert present(robot, 255 * MS) == {"left": 3.0, "right": 3.0}
    assert [str(notice) for notice in robot.pop_notices()][-3:] == [
        "source 's': left, right lost: no message with it for more than 0.1 s",
        "source 's': left, right recovered",
        "source 's': a, b lost: no message with it for more than 0.1 s",
    ]


def test_a_frozen_publisher_grows_old_beside_one_that_lives(table: Table) -> None:
    robot = whole(table)
    for step in range(30):
        robot.store_message(
            "s", joints(GRIPPER, 1.0), 7, step * STEP_NS
        )  # the same stamp each time
        robot.store_message("s", joints(ARM, 2.0), 8 + step, step * STEP_NS)
        found = present(robot, step * STEP_NS)
    assert found == {"a": 2.0, "b": 2.0}


def test_publishers_that_share_stamps_are_merged(table: Table) -> None:
    robot = whole(table)
    for step in range(30):
        robot.store_message("s", joints(ARM, step), step + 1, step * STEP_NS)
        robot.store_message("s", joints(GRIPPER, -step), step + 1, step * STEP_NS + MS)
        found = present(robot, step * STEP_NS + MS)
        assert found == {"a": step, "b": step, "left": -step, "right": -step}


def test_silence_after_publishers_that_share_a_stamp_is_told_as_silence(table: Table) -> None:
    robot = whole(table)
    for step in range(30):
        for names in (ARM, GRIPPER):
            robot.store_message("s", joints(names, step), step + 1, step * STEP_NS)
        robot.read(step * STEP_NS)
    robot.read(1000 * MS)
    assert [str(one) for one in robot.pop_notices()][-1] == (
        "source 's' lost: no message for more than 0.1 s"
    )


def test_in_lockstep_messages_of_one_step_are_merged_and_no_others(table: Table) -> None:
    robot = whole(table)
    robot.store_message("s", joints(ARM, 1.0), 5, 0)
    robot.store_message("s", joints(GRIPPER, 2.0), 5, 0)
    assert present(robot, 0, 5) == {"a": 1.0, "b": 1.0, "left": 2.0, "right": 2.0}
    robot.store_message("s", joints(ARM, 3.0), 6, 0)
    assert present(robot, 0, 6) == {"a": 3.0, "b": 3.0}
    robot.store_message("s", joints(GRIPPER, 4.0), 6, 0)
    assert present(robot, 0, 6) == {"a": 3.0, "b": 3.0, "left": 4.0, "right": 4.0}
    robot.store_message("s", joints(GRIPPER, 5.0), None, 0)
    assert present(robot, 0, 7) == {"left": 5.0, "right": 5.0}
    robot.store_message("s", joints(ARM, 6.0), None, 0)
    assert present(robot, 0, 8) == {"a": 6.0, "b": 6.0}


def test_without_a_greatest_age_only_the_newest_message_counts(table: Table) -> None:
    robot = whole(table, max_age_s=0)
    robot.store_message("s", joints(ARM, 1.0), None, 0)
    robot.store_message("s", joints(GRIPPER, 2.0), None, 0)
    assert present(robot, 0) == {"left": 2.0, "right": 2.0}


def test_what_is_named_but_cannot_be_told_is_missing_at_once(table: Table) -> None:
    robot = whole(table)
    robot.store_message("s", joints(ARM + GRIPPER, 1.0), None, 0)
    assert len(present(robot, 0)) == 4
    short = SimpleNamespace(name=["a", "b"], position=[2.0])
    robot.store_message("s", short, None, 1)
    assert present(robot, 1) == {"a": 2.0, "left": 1.0, "right": 1.0}
    robot.store_message("s", joints(("a", "left", "left"), 3.0), None, 2)
    assert present(robot, 2) == {"a": 3.0, "right": 1.0}


def test_an_array_that_is_left_out_now_and_then_is_no_loss(table: Table) -> None:
    robot = table({"s": JOINTS}, {"a.v": "velocity[a]", "b.v": "velocity[b]"})
    for step in range(100):
        robot.store_message("s", joints(ARM, 1.0, velocity=step % 3 == 0), step + 1, step * STEP_NS)
        assert present(robot, step * STEP_NS) == {"a.v": 10.0, "b.v": 10.0}
    assert robot.pop_notices() == []


def test_named_elements_behind_lists_of_messages_are_merged(table: Table) -> None:
    def frames(names: Sequence[str], x: float) -> Any:
        transforms = [SimpleNamespace(translation=SimpleNamespace(x=x)) for _ in names]
        return SimpleNamespace(joint_names=list(names), transforms=transforms)

    robot = table({"s": FRAMES}, {"*.x": "transforms[*].translation.x"})
    robot.store_message("s", frames(ARM, 1.0), None, 0)
    robot.store_message("s", frames(GRIPPER, 2.0), None, 1)
    assert present(robot, 1) == {"a.x": 1.0, "b.x": 1.0, "left.x": 2.0, "right.x": 2.0}
    robot.store_message("s", frames(GRIPPER, 2.0), None, 101 * MS)
    assert present(robot, 101 * MS) == {"left.x": 2.0, "right.x": 2.0}


def test_elements_behind_lists_of_messages_are_known_by_the_names_of_the_message(
    table: Table,
) -> None:
    channels = {
        "*.x": "transforms[*].translation.x",
        "every.*": "*",
        "a": "transforms[a].translation.y",
        "b": "transforms[b].translation.y",
        "first": "transforms[0].translation.y",
    }
    robot = table({"s": FRAMES}, channels)
    part = SimpleNamespace(x=1.0, y=2.0, z=3.0, w=1.0)
    transforms = [SimpleNamespace(translation=part, rotation=part)] * 2
    message = SimpleNamespace(joint_names=["a", "b"], transforms=transforms, poses=[])
    robot.store_message("s", message, None, 0)
    robot.read(0)
    found = robot.find_ids_by_element_name("s", ("b",))
    assert {"b.x", "b", "first", "every.transforms.b.translation.x"} <= set(found)
    assert not {"a.x", "a", "every.transforms.a.translation.x"} & set(found)
    assert set(robot.find_ids_by_element_name("s", ())) == set(robot.ids)


def test_growing_and_rewiring_keep_what_other_publishers_said(table: Table) -> None:
    robot = table({"s": JOINTS}, {"a": "position[a]", "*.v": "velocity[*]"})
    robot.store_message("s", joints(("a",), 1.0), 1, 0)
    robot.store_message("s", joints(("b",), 2.0), 2, 1)
    assert present(robot, 1) == {"a": 1.0, "a.v": 10.0, "b.v": 20.0}
    robot.store_message("s", joints(("c",), 3.0), 3, 2)
    said = {"a": 1.0, "a.v": 10.0, "b.v": 20.0, "c.v": 30.0}
    assert present(robot, 2) == said
    again = robot.make_rewired_table(robot.wiring)
    assert present(again, 3) == said
    assert present(again, 100 * MS + 1) == {"b.v": 20.0, "c.v": 30.0}


def test_a_wildcard_keeps_its_order_and_expects_a_name_that_has_come_for_a_second(
    table: Table,
) -> None:
    robot = wild(table)
    assert robot.read(0).expected == 1
    play(robot, range(101), ARM)
    ids = robot.read(1000 * MS).ids
    assert ids == ("a.position", "b.position")
    play(robot, range(101, 112), ("b",))
    readings = robot.read(1120 * MS)
    assert (readings.ids, readings.expected) == (("b.position",), 2)
    assert robot.list_source_statuses(1120 * MS)[0].missing == ("a.position",)
    play(robot, range(112, 900), ("b",))
    assert robot.read(9000 * MS).expected == 2
    assert [str(notice) for notice in robot.pop_notices()] == [
        "source 's': no message yet on s",
        "source 's' recovered",
        "source 's': a.position lost: no message with it for more than 0.1 s",
    ]


def test_one_odd_message_leaves_what_is_expected_as_it_was(table: Table) -> None:
    robot = wild(table)
    play(robot, range(200), ARM)
    play(robot, [200], [*ARM, "w", "x", "y", "z"])
    assert len(present(robot, 2000 * MS)) == 6
    play(robot, range(201, 220), ARM)
    readings = robot.read(2190 * MS)
    assert readings.present_share == 1.0 and len(readings.ids) == 2
    assert [str(notice) for notice in robot.pop_notices()][-1] == (
        "source 's': w.position, x.position, y.position, z.position new:"
        " expected once they have come for 1 s"
    )
    status = robot.list_source_statuses(2190 * MS)[0]
    assert (status.unexpected, status.dropped) == (0, 4)


def test_an_odd_message_at_the_start_is_no_loss_either(table: Table) -> None:
    robot = wild(table)
    play(robot, [0], [*ARM, "w", "x", "y", "z"])
    play(robot, range(1, 200), ARM)
    readings = robot.read(1990 * MS)
    assert (len(readings.ids), readings.expected) == (2, 2)


def test_new_names_in_every_message_do_not_pile_up(table: Table) -> None:
    robot = wild(table)
    for step in range(500):
        play(robot, [step], [*ARM, f"x{step}", f"y{step}", f"z{step}"])
    readings = robot.read(4_990 * MS)
    assert readings.present_share == 1.0
    assert {"a.position", "b.position"} <= set(readings.ids)
    status = robot.list_source_statuses(4_990 * MS)[0]
    assert len(robot.ids) <= 2 + 3 * 12
    assert status.unexpected == len(robot.ids) - 2
    assert status.dropped + status.unexpected == 3 * 500


def test_a_name_that_was_dropped_may_come_again_and_stay(table: Table) -> None:
    robot = wild(table)
    play(robot, [0], [*ARM, "x"])
    play(robot, range(1, 150), ARM)
    play(robot, range(150, 300), [*ARM, "y"])
    assert robot.list_source_statuses(3000 * MS)[0].dropped == 1
    play(robot, range(300, 420), [*ARM, "x", "y"])
    readings = robot.read(4190 * MS)
    assert (set(readings.ids), readings.expected) == (
        {"a.position", "b.position", "x.position", "y.position"},
        4,
    )


def test_a_name_that_is_dropped_and_comes_again_between_two_reads_is_new_once(table: Table) -> None:
    robot = wild(table)
    play(robot, [0], ("a",))
    robot.pop_notices()
    for step, names in ((20, ("b", "c")), (21, ("d", "e", "f")), (22, ("c", "b"))):
        robot.store_message("s", joints(names, step), step + 1, step * STEP_NS)
    robot.read(22 * STEP_NS)
    (new,) = robot.pop_notices()
    assert sorted(new.channels) == [f"{name}.position" for name in "bcdef"]


def test_a_silent_source_loses_no_expected_name(table: Table) -> None:
    robot = wild(table)
    play(robot, range(200), ARM)
    readings = robot.read(10**6 * MS)
    assert (readings.ids, readings.expected) == ((), 2)


def test_what_is_gone_when_the_robot_starts_to_act_is_no_longer_expected(table: Table) -> None:
    robot = wild(table)
    play(robot, range(200), ARM + GRIPPER)
    play(robot, range(200, 250), ARM)
    robot.stop_expecting_absent_channels()
    assert robot.expected_channel_count == 4  # gone for half a second only
    play(robot, range(250, 400), ARM)
    assert robot.expected_channel_count == 4
    robot.stop_expecting_absent_channels()
    assert robot.expected_channel_count == 2


def test_a_rewired_table_expects_what_it_expected(table: Table) -> None:
    robot = wild(table)
    play(robot, range(200), ARM + GRIPPER)
    play(robot, range(200, 250), ARM)
    again = robot.make_rewired_table(robot.wiring)
    assert again.expected_channel_count == 4
    play(again, range(250, 400), ARM)
    assert again.expected_channel_count == 4


def test_a_clock_that_is_set_back_makes_no_name_unexpected(table: Table) -> None:
    robot = wild(table)
    play(robot, range(1000, 1200), ARM)
    play(robot, range(200), ARM)
    readings = robot.read(1990 * MS)
    assert (len(readings.ids), readings.expected) == (2, 2)


def test_a_wildcard_by_index_forgets_the_length_of_one_odd_message(table: Table) -> None:
    lidar = table({"s": SCAN}, {"lidar.*": "ranges[*]"})
    sizes = []
    for step in range(300):
        ranges = array.array("f", [1.0] * (20_000 if step == 10 else 5))
        lidar.store_message("s", SimpleNamespace(ranges=ranges), step + 1, step * STEP_NS)
        readings = lidar.read(step * STEP_NS)
        assert readings.present_share == 1.0
        sizes.append(len(lidar.ids))
    assert (sizes[9], sizes[10], sizes[-1]) == (5, 20_000, 5)


def test_a_slow_source_is_expected_as_well(table: Table) -> None:
    robot = wild(table)
    for step in range(3):
        robot.store_message("s", joints(ARM, 1.0), None, step * 2000 * MS)
        robot.read(step * 2000 * MS)
    robot.store_message("s", joints(("b",), 1.0), None, 6000 * MS)
    assert robot.read(6000 * MS).expected == 2
