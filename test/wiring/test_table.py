"""The channel table: what counts at a tick, what is said about the rest."""

from __future__ import annotations

import array
import dataclasses
import math
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from an_control.wiring import ChannelTable, Wiring, WiringError

Table = Callable[..., ChannelTable]
JOINTS = "sensor_msgs/msg/JointState"
VECTOR = "geometry_msgs/msg/Vector3"
SCAN = "fake_msgs/msg/Scan"
MS = 1_000_000


def joints(names: list[str], position: list[float]) -> Any:
    return SimpleNamespace(name=names, position=array.array("d", position))


def vector(x: float) -> Any:
    return SimpleNamespace(x=x, y=0.0, z=0.0)


def scan(*ranges: float) -> Any:
    return SimpleNamespace(ranges=array.array("f", ranges))


def present(table: ChannelTable, now_ns: int = 0, stamp_ns: int | None = None) -> dict[str, float]:
    readings = table.read(now_ns, stamp_ns)
    assert readings.values.dtype == np.float32
    assert np.isfinite(readings.values).all()
    return dict(zip(readings.ids, readings.values.tolist(), strict=True))


def two(table: Table) -> ChannelTable:
    """Two sources, s with channels a and b, t with channel x."""
    return table(
        {"s": JOINTS, "t": VECTOR},
        {"a": "position[a]", "b": "position[b]", "x": {"source": "t", "field": "x"}},
    )


def test_before_any_message_all_is_missing_and_expected(table: Table) -> None:
    readings = two(table).read(0)
    assert (readings.ids, readings.values.shape, readings.expected) == ((), (0,), 3)
    assert readings.present_share == 0.0


def test_joints_are_found_by_name_in_any_order(table: Table) -> None:
    arm = two(table)
    arm.store_message("s", joints(["b", "other", "a"], [1.0, 2.0, 3.0]), None, 0)
    assert present(arm) == {"a": 3.0, "b": 1.0}
    arm.store_message("s", joints(["a", "b"], [4.0, 5.0]), None, 0)
    assert present(arm) == {"a": 4.0, "b": 5.0}


def test_scale_offset_and_clip_are_applied_in_float64(table: Table) -> None:
    entry = {"source": "s", "field": "x", "scale": 0.1, "offset": 0.2, "clip": [-5, 5]}
    one = table({"s": VECTOR}, {"x": entry, "raw": {"source": "s", "field": "x"}})
    for reading in (0.3, 1e-17, -0.0, 1e6, -1e300):
        one.store_message("s", vector(reading), None, 0)
        want = np.float32(min(max(reading * 0.1 + 0.2, -5.0), 5.0))
        got = present(one)
        assert np.float32(got["x"]).tobytes() == want.tobytes()
        assert ("raw" in got) == (abs(reading) < 1e38)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_missing_even_where_it_would_be_clipped(
    table: Table, bad: float
) -> None:
    one = table({"s": VECTOR}, {"x": {"source": "s", "field": "x", "clip": [-5, 5]}})
    one.store_message("s", vector(bad), None, 0)
    assert present(one) == {}
    assert str(one.pop_notices()[0]).endswith(
        "x lost: the value is not finite: the channel's keys nan, inf, -inf and outside can name a"
        " value to use instead"
    )


def test_a_number_too_large_for_the_scale_is_missing_without_a_warning(table: Table) -> None:
    one = table({"s": VECTOR}, {"x": {"source": "s", "field": "x", "scale": 1e300}})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one.store_message("s", vector(1e300), None, 0)
        assert present(one) == {}


def test_the_ids_are_the_same_object_while_the_same_channels_are_present(table: Table) -> None:
    arm = two(table)
    seen = []
    for tick in range(6):
        names = ["a", "b"] if tick % 2 else ["b", "a"]
        arm.store_message(
            "s", joints(names, [1.0, math.nan if tick in (2, 5) else 2.0]), None, tick
        )
        seen.append(arm.read(tick).ids)
    assert seen[0] is seen[1] is seen[3] is seen[4]
    assert (seen[2], seen[5]) == (("b",), ("a",))


def test_the_values_of_a_tick_stay_when_the_next_is_read(table: Table) -> None:
    arm = two(table)
    arm.store_message("s", joints(["a", "b"], [1.0, 2.0]), None, 0)
    first = arm.read(0).values
    arm.store_message("s", joints(["a", "b"], [3.0, 4.0]), None, 0)
    arm.read(0)
    assert first.tolist() == [1.0, 2.0]


def test_a_message_counts_up_to_its_greatest_age(table: Table) -> None:
    arm = two(table)
    arm.store_message("s", joints(["a", "b"], [1.0, 2.0]), None, 50 * MS)
    assert present(arm, 150 * MS) == {"a": 1.0, "b": 2.0}
    assert present(arm, 150 * MS + 1) == {}
    arm.store_message("s", joints(["a", "b"], [1.0, 2.0]), None, 200 * MS)
    assert present(arm, 200 * MS) == {"a": 1.0, "b": 2.0}


def test_a_greatest_age_of_zero_is_off(table: Table) -> None:
    one = table({"s": VECTOR}, {"x": "x"}, max_age_s=0)
    one.store_message("s", vector(1.0), None, 0)
    assert present(one, 10**18) == {"x": 1.0}


def test_a_channels_own_age_goes_before_its_sources(table: Table) -> None:
    one = table(
        {"s": VECTOR},
        {
            "x": "x",
            "y": {"source": "s", "field": "y", "max_age_s": 0.2},
            "z": {"source": "s", "field": "z", "max_age_s": 0},
        },
    )
    one.store_message("s", vector(1.0), None, 0)
    assert list(present(one, 100 * MS)) == ["x", "y", "z"]
    assert list(present(one, 150 * MS)) == ["y", "z"]
    assert list(present(one, 250 * MS)) == ["z"]
    assert [str(notice) for notice in one.pop_notices()] == [
        "source 's': x lost: no message for more than 0.1 s",
        "source 's': y lost: no message for more than 0.2 s",
    ]


def test_a_clock_that_was_set_back_makes_no_old_message_fresh(table: Table) -> None:
    arm = two(table)
    arm.store_message("s", joints(["a"], [1.0]), None, 10_000 * MS)
    assert present(arm, 10_000 * MS) == {"a": 1.0}
    arm.pop_notices()
    assert present(arm, 5_000 * MS) == {}
    assert str(arm.pop_notices()[0]) == "source 's' lost: the clock was set back"


def test_in_lockstep_only_messages_of_the_step_count(table: Table) -> None:
    arm = two(table)
    arm.store_message("s", joints(["a", "b"], [1.0, 2.0]), 7, 0)
    arm.store_message("t", vector(3.0), 6, 0)
    assert present(arm, 0, 7) == {"a": 1.0, "b": 2.0}
    arm.store_message("t", vector(4.0), 7, 0)
    assert present(arm, 10**15, 7) == {"a": 1.0, "b": 2.0, "x": 4.0}
    assert present(arm, 0, 8) == {}


@pytest.mark.parametrize("unstamped", [None, 0])
def test_in_lockstep_a_message_without_stamp_counts_once(
    table: Table, unstamped: int | None
) -> None:
    arm = two(table)
    arm.store_message("s", joints(["a"], [1.0]), 7, 0)
    arm.store_message("t", vector(3.0), unstamped, 0)
    assert present(arm, 0, 7) == {"a": 1.0, "x": 3.0}
    arm.store_message("s", joints(["a"], [1.0]), 8, 0)
    assert present(arm, 0, 8) == {"a": 1.0}
    arm.store_message("t", vector(4.0), unstamped, 0)
    arm.store_message("s", joints(["a"], [1.0]), 9, 0)
    assert present(arm, 0, 9) == {"a": 1.0, "x": 4.0}


def test_lost_and_recovered_are_told_once_each(table: Table) -> None:
    arm = two(table)
    good, short = joints(["a", "b"], [1.0, 2.0]), joints(["a", "b"], [1.0])
    told: list[list[str]] = []
    for now, message in enumerate([None, good, good, short, short, joints(["a"], [1.0]), good]):
        arm.store_message("t", vector(0.0), None, now)
        if message:
            arm.store_message("s", message, None, now)
        arm.read(now)
        told.append([str(notice) for notice in arm.pop_notices()])
    assert told == [
        ["source 's': no message yet on s"],
        ["source 's' recovered"],
        [],
        [
            "source 's': b lost: position has 1 of 2 elements: the sender must send one for each"
            " name"
        ],
        [],
        [],
        ["source 's': b recovered"],
    ]


def test_channels_lost_for_one_reason_are_told_together(table: Table) -> None:
    arm = table({"s": JOINTS}, {f"j{i}": f"position[j{i}]" for i in range(8)})
    arm.store_message("s", joints(["j0"], [0.0]), None, 0)
    arm.read(0)
    assert [str(notice) for notice in arm.pop_notices()] == [
        "source 's': j1, j2, j3, j4, j5 and 2 more lost: the message does not name it: it names j0"
    ]
    arm.store_message("s", joints([f"j{i}" for i in range(8)], [0.0] + [math.nan] * 7), None, 0)
    arm.read(0)
    arm.store_message("s", joints([f"j{i}" for i in range(8)], [0.0] * 8), None, 0)
    arm.read(0)
    assert [str(notice) for notice in arm.pop_notices()] == [
        "source 's': j1, j2, j3, j4, j5 and 2 more recovered"
    ]


def test_notices_that_nobody_takes_do_not_pile_up(table: Table) -> None:
    one = table({"s": VECTOR}, {"x": "x"})
    for tick in range(2000):
        one.store_message("s", vector(math.nan if tick % 2 else 1.0), None, tick)
        one.read(tick)
    assert len(one.pop_notices()) <= 256
    assert one.pop_notices() == []


def test_a_name_that_stands_twice_is_missing_as_nobody_knows_which(table: Table) -> None:
    arm = two(table)
    arm.store_message("s", joints(["a", "b", "a"], [1.0, 2.0, 3.0]), None, 0)
    assert present(arm) == {"b": 2.0}
    assert "the message names it twice" in [n.reason for n in arm.pop_notices()]


@pytest.mark.parametrize(
    "message",
    [
        None,
        SimpleNamespace(),
        SimpleNamespace(name=None, position=None),
        SimpleNamespace(name=["a"], position=[[1.0]]),
        SimpleNamespace(name=["a"], position=["x"]),
        SimpleNamespace(name=[[]], position=[1.0]),
        SimpleNamespace(name=["a"], position=3.0),
        SimpleNamespace(name=["a"], position=[10**400]),
    ],
)
def test_a_message_that_is_not_of_its_type_is_missing_and_the_next_one_counts(
    table: Table, message: Any
) -> None:
    arm = two(table)
    arm.store_message("s", message, None, 0)
    assert present(arm) == {}
    assert "unreadable message" in str(arm.pop_notices()[0])
    assert "unreadable message" in arm.list_source_statuses(0)[0].error
    assert present(arm) == {}
    arm.store_message("s", joints(["a", "b"], [1.0, 2.0]), None, 0)
    assert present(arm) == {"a": 1.0, "b": 2.0}
    assert arm.list_source_statuses(0)[0].error == ""


def test_a_wildcard_by_index_follows_the_length_of_the_message_without_a_notice(
    table: Table,
) -> None:
    lidar = table({"s": SCAN}, {"lidar.*": "ranges[*]"})
    lidar.read(0)
    lidar.pop_notices()
    for ranges in ([1.0], [1.0, 2.0, 3.0], [4.0], [], [5.0, math.inf, 7.0]):
        lidar.store_message("s", scan(*ranges), None, 0)
        readings = lidar.read(0)
        want = {f"lidar.{i}": value for i, value in enumerate(ranges) if math.isfinite(value)}
        assert dict(zip(readings.ids, readings.values.tolist(), strict=True)) == want
        assert readings.expected == max(1, len(ranges))
    assert [notice.kind for notice in lidar.pop_notices()] == ["recovered"]


def test_a_wildcard_by_index_without_any_valid_element_is_lost_until_one_is_valid(
    table: Table,
) -> None:
    lidar = table({"s": SCAN}, {"lidar.*": "ranges[*]"})
    lidar.read(0)
    lidar.pop_notices()
    said = []
    for ranges in ([1.0, 2.0], [math.nan, 2.0], [math.nan] * 2, [], [math.inf] * 2, [1.0, 2.0]):
        lidar.store_message("s", scan(*ranges), None, 0)
        lidar.read(0)
        said.append([str(notice) for notice in lidar.pop_notices()])
    assert said[0] == ["source 's' recovered"] and said[1] == said[3] == said[4] == []
    (lost,), (recovered,) = said[2], said[5]
    assert lost.startswith("source 's': lidar.0, lidar.1 lost: the value is not finite")
    assert recovered == "source 's': lidar.0, lidar.1 recovered"
    lidar.store_message("s", scan(math.nan, math.nan), None, 0)
    lidar.read(0)
    lidar.clear_notices_and_report_anew()
    lidar.read(0)
    assert [notice.kind for notice in lidar.pop_notices()] == ["lost"]


def test_growing_keeps_what_other_sources_said(table: Table) -> None:
    both = table(
        {"s": SCAN, "t": VECTOR}, {"lidar.*": "ranges[*]", "x": {"source": "t", "field": "x"}}
    )
    both.store_message("t", vector(9.0), None, 0)
    assert present(both) == {"x": 9.0}
    both.store_message("s", scan(1.0, 2.0), None, 0)
    assert present(both) == {"lidar.0": 1.0, "lidar.1": 2.0, "x": 9.0}


def test_a_message_is_extracted_once_and_only_when_read(table: Table) -> None:
    class Counting:
        reads = 0

        @property
        def x(self) -> float:
            type(self).reads += 1
            return 1.0

    one = table({"s": VECTOR}, {"x": "x"})
    for tick in range(10):
        one.store_message("s", Counting(), None, tick)
    assert Counting.reads == 0
    for _ in range(10):
        one.read(10)
    assert Counting.reads == 1


def test_the_status_of_a_source_is_there_for_diagnostics(table: Table) -> None:
    arm = two(table)
    arm.store_message("s", joints(["a"], [1.0]), 5, 10 * MS)
    arm.read(20 * MS)
    first, second = arm.list_source_statuses(30 * MS)
    assert (first.name, first.topic, first.messages, first.stamp_ns) == ("s", "s", 1, 5)
    assert (first.age_s, first.fresh, first.present, first.expected) == (0.02, True, 1, 2)
    assert (second.age_s, second.fresh, second.present, second.expected) == (None, False, 0, 1)


def renamed(wiring: Wiring, source: str, topic: str) -> Wiring:
    sources = tuple(
        dataclasses.replace(s, topic=topic) if s.name == source else s for s in wiring.sources
    )
    return dataclasses.replace(wiring, sources=sources)


def test_a_rewired_table_keeps_every_message_until_a_new_one_comes(table: Table) -> None:
    arm = two(table)
    arm.store_message("s", joints(["a", "b"], [1.0, 2.0]), 3, 0)
    arm.store_message("t", vector(3.0), None, 0)
    arm.read(0)
    rewired = arm.make_rewired_table(renamed(arm.wiring, "s", "elsewhere"))
    assert present(rewired) == {"a": 1.0, "b": 2.0, "x": 3.0}
    rewired.store_message("s", joints(["a", "b"], [5.0, 6.0]), 4, 0)
    assert present(rewired) == {"a": 5.0, "b": 6.0, "x": 3.0}
    assert present(arm) == {"a": 1.0, "b": 2.0, "x": 3.0}


def test_a_rewired_table_drops_the_message_of_a_source_that_has_another_type(table: Table) -> None:
    arm = two(table)
    arm.store_message("s", joints(["a", "b"], [1.0, 2.0]), 3, 0)
    retyped = tuple(
        dataclasses.replace(s, type="geometry_msgs/msg/Vector3") if s.name == "s" else s
        for s in arm.wiring.sources
    )
    fields = ("y", "z", arm.wiring.channels[2].field)
    channels = tuple(
        dataclasses.replace(c, field=f) for c, f in zip(arm.wiring.channels, fields, strict=True)
    )
    rewired = arm.make_rewired_table(
        dataclasses.replace(arm.wiring, sources=retyped, channels=channels)
    )
    assert present(rewired) == {}


def test_a_rewired_table_does_not_count_an_unstamped_message_twice(table: Table) -> None:
    arm = two(table)
    arm.store_message("t", vector(3.0), None, 0)
    assert present(arm, 0, 1) == {"x": 3.0}
    assert present(arm.make_rewired_table(arm.wiring), 0, 2) == {}


def test_a_rewiring_that_cannot_work_leaves_the_table_as_it_was(table: Table) -> None:
    arm = two(table)
    arm.store_message("t", vector(3.0), None, 0)
    wrong = dataclasses.replace(arm.wiring.channels[2], field="w")
    wiring = dataclasses.replace(arm.wiring, channels=(*arm.wiring.channels[:2], wrong))
    with pytest.raises(WiringError, match=r"channels\.x\.field"):
        arm.make_rewired_table(wiring)
    assert present(arm) == {"x": 3.0}


def test_an_unknown_source_is_a_key_error(table: Table) -> None:
    with pytest.raises(KeyError):
        two(table).store_message("nobody", vector(0.0), None, 0)


def test_a_reload_with_another_age_removes_elements_after_that_age(load, fake, resolver) -> None:
    type_ = "sensor_msgs/msg/JointState"

    def wiring(max_age_s: float) -> Wiring:
        return load(
            sources={"joints": {"topic": "joints", "type": type_, "max_age_s": max_age_s}},
            channels={"j.*": {"source": "joints", "field": "position[*]"}},
        )

    table, now_ns = ChannelTable(wiring(0.5), resolver), 10**9

    def hear(names: list[str], seconds: float) -> None:
        nonlocal now_ns
        for _ in range(round(50 * seconds)):
            now_ns += 20_000_000
            message = fake(type_, name=names, position=[0.1] * len(names))
            table.store_message("joints", message, None, now_ns)
            table.read(now_ns)

    hear(["a", "b"], 3.0)
    table = table.make_rewired_table(wiring(30.0))
    hear(["a"], 4.0)
    table.stop_expecting_absent_channels()
    assert table.expected_channel_count == 2
