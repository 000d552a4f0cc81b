"""Readings that are none: what stands for them, sectors of beams, and what they weigh."""

from __future__ import annotations

import array
import math
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from an_control.wiring import ChannelTable, Readings, Wiring, WiringError
from an_control.wiring.readers import pool_values

Table = Callable[..., ChannelTable]
Load = Callable[..., Wiring]
JOINTS = "sensor_msgs/msg/JointState"
VECTOR = "geometry_msgs/msg/Vector3"
SCAN = "fake_msgs/msg/Scan"
INF, NAN = math.inf, math.nan
STANDS_FOR = "the channel's keys nan, inf, -inf and outside can name a value to use instead"


def scan(*ranges: float) -> Any:
    return SimpleNamespace(ranges=array.array("f", ranges), covariance=[0.0] * 3)


def beams(**options: Any) -> dict[str, Any]:
    return {"scan.*": {"source": "s", "field": "ranges[*]", **options}}


def present(table: ChannelTable, now_ns: int = 0) -> dict[str, float]:
    readings = table.read(now_ns)
    return dict(zip(readings.ids, readings.values.tolist(), strict=True))


def reasons(table: ChannelTable) -> tuple[str, ...]:
    (status,) = table.list_source_statuses(0)
    return status.reasons


def test_free_space_reads_as_far_and_what_is_too_near_for_the_scanner_is_missing(
    table: Table,
) -> None:
    laser = table({"s": SCAN}, beams(inf=10.0, valid=[0.1, 9.0], scale=0.5, offset=1, clip=[0, 4]))
    laser.store_message("s", scan(2.0, INF, 0.0, -INF, NAN, 9.5), None, 0)
    assert present(laser) == {"scan.0": 2.0, "scan.1": 4.0}
    assert reasons(laser) == ("the value is not finite, or outside 0.1 to 9: " + STANDS_FOR,)


def test_each_kind_of_number_has_a_value_of_its_own_that_is_not_checked_again(
    table: Table,
) -> None:
    options = {"nan": -1.0, "inf": 30.0, "-inf": 0.0, "valid": [1, 5], "outside": -2.0}
    laser = table({"s": SCAN}, beams(**options))
    laser.store_message("s", scan(2.0, NAN, INF, -INF, 0.5, 5.5, 5.0), None, 0)
    assert list(present(laser).values()) == [2.0, -1.0, 30.0, 0.0, -2.0, -2.0, 5.0]


def test_the_word_missing_is_the_default(table: Table) -> None:
    laser = table({"s": SCAN}, beams(nan="missing", inf="missing", valid=[0, 9], outside="missing"))
    laser.store_message("s", scan(2.0, NAN, INF, 10.0), None, 0)
    assert present(laser) == {"scan.0": 2.0}


def test_a_number_that_the_message_does_not_have_is_missing_whatever_stands_for_nan(
    table: Table,
) -> None:
    entry = {"source": "s", "nan": 7.0}
    arm = table(
        {"s": JOINTS, "t": SCAN},
        {
            "a": {**entry, "field": "position[a]"},
            "b": {**entry, "field": "position[b]"},
            "far": {"source": "t", "field": "ranges[5]", "nan": 7.0},
        },
    )
    arm.store_message("s", SimpleNamespace(name=["a"], position=array.array("d", [NAN])), None, 0)
    arm.store_message("t", scan(1.0), None, 0)
    assert present(arm) == {"a": 7.0}


def test_channels_of_one_source_have_options_of_their_own(table: Table) -> None:
    three = table(
        {"s": VECTOR},
        {
            "x": {"source": "s", "field": "x", "nan": 5.0},
            "y": {"source": "s", "field": "y", "valid": [-1, 1], "outside": 0.5},
            "z": "z",
        },
    )
    three.store_message("s", SimpleNamespace(x=NAN, y=3.0, z=NAN), None, 0)
    assert present(three) == {"x": 5.0, "y": 0.5}
    three.store_message("s", SimpleNamespace(x=2.0, y=0.25, z=1.0), None, 1)
    assert present(three, 1) == {"x": 2.0, "y": 0.25, "z": 1.0}


def test_beams_become_sectors_after_the_repairs_and_before_the_scale(table: Table) -> None:
    options = {"inf": 10.0, "valid": [0.1, 9.0], "scale": 2.0, "clip": [0, 12]}
    nearest = table({"s": SCAN}, beams(**options, pool={"size": 3, "by": "min"}))
    message = scan(4.0, INF, 3.0, NAN, 0.0, NAN, INF, NAN)
    nearest.store_message("s", message, None, 0)
    assert present(nearest) == {"scan.0": 6.0, "scan.2": 12.0}
    assert reasons(nearest) == ("none of its 3 elements is valid",)
    nearest.store_message("s", scan(4.0, INF, 3.0), None, 0)
    assert present(nearest) == {"scan.0": 6.0}
    assert reasons(nearest) == ("ranges has elements for 1 channels only",)
    middle = table({"s": SCAN}, beams(pool={"size": 3, "by": "mean"}))
    middle.store_message("s", message, None, 0)
    assert present(middle) == {"scan.0": 3.5, "scan.1": 0.0}


def test_two_channels_may_pool_a_part_of_the_beams_each(table: Table) -> None:
    parts = {"right.*": [0, 4], "left.*": [4, 9]}
    two = table(
        {"s": SCAN},
        {
            id_: beams(pool={"size": 2, "by": "min", "elements": elements})["scan.*"]
            for id_, elements in parts.items()
        },
    )
    two.store_message("s", scan(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0), None, 0)
    assert present(two) == {"right.0": 1.0, "right.1": 3.0, "left.0": 5.0, "left.1": 7.0}


def test_an_array_of_fixed_size_is_pooled_too(table: Table) -> None:
    entry = {"source": "s", "field": "covariance[*]", "pool": {"size": 2, "by": "mean"}}
    one = table({"s": SCAN}, {"c.*": entry})
    one.store_message("s", SimpleNamespace(covariance=[1.0, 3.0, 8.0]), None, 0)
    assert present(one) == {"c.0": 2.0, "c.1": 8.0}


def test_pooling_is_numpys_minimum_and_mean_of_what_is_finite() -> None:
    values = np.random.default_rng(1).normal(size=30)
    values[::4] = NAN
    sectors = np.pad(values, (0, 2), constant_values=NAN).reshape(-1, 8)
    np.testing.assert_array_equal(pool_values(values, 8, "min"), np.nanmin(sectors, axis=1))
    np.testing.assert_allclose(pool_values(values, 8, "mean"), np.nanmean(sectors, axis=1))
    assert len(pool_values(np.zeros(0), 8, "min")) == 0


@pytest.mark.parametrize(
    ("entry", "key", "said"),
    [
        ({"nan": "zero"}, "nan", "a finite number, or missing"),
        ({"inf": INF}, "inf", "a finite number, or missing"),
        ({"valid": [5, 1]}, "valid", "[lowest, highest]"),
        ({"outside": 1.0}, "outside", "valid: [lowest, highest], for outside"),
        ({"pool": {"size": 2.5, "by": "min"}}, "pool.size", "a whole number"),
        ({"pool": {"size": 2, "by": "max"}}, "pool.by", "min or mean"),
        (
            {"pool": {"size": 2, "by": "min", "elements": [4, 2]}},
            "pool.elements",
            "the first below the end",
        ),
        (
            {"pool": {"size": 2, "by": "min", "elements": [-1, 2]}},
            "pool.elements",
            "from 0 on",
        ),
        ({"weight": -1}, "weight", "0 or more"),
    ],
)
def test_options_that_cannot_be_are_refused(
    table: Table, entry: dict[str, Any], key: str, said: str
) -> None:
    with pytest.raises(WiringError) as caught:
        table({"s": SCAN}, beams(**entry))
    assert caught.value.key == f"channels.scan.*.{key}" and said in str(caught.value)


def test_only_elements_by_their_places_are_pooled(table: Table) -> None:
    pools = {"source": "s", "pool": {"size": 2, "by": "min"}}
    with pytest.raises(WiringError, match="a list of numbers known by their places"):
        table({"s": JOINTS}, {"p.*": {**pools, "field": "position[*]"}})
    with pytest.raises(WiringError, match=r"a channel with a \* in its id"):
        table({"s": SCAN}, {"p": {**pools, "field": "ranges[0]"}})


def weighed(load: Load, resolve: Any, **weights: float) -> ChannelTable:
    """A laser of four beams and a gyro, on two sources."""
    sources = {
        name: {"topic": name, "type": type_, "max_age_s": 0.1, **extra}
        for name, type_, extra in (
            ("laser", SCAN, {"weight": weights["laser"]} if "laser" in weights else {}),
            ("gyro", VECTOR, {}),
        )
    }
    gyro = {"source": "gyro", "field": "x"}
    channels = {
        "scan.*": {"source": "laser", "field": "ranges[*]"},
        "gyro.x": gyro | ({"weight": weights["gyro"]} if "gyro" in weights else {}),
        "gyro.y": {**gyro, "field": "y"},
    }
    return ChannelTable(load(sources=sources, channels=channels), resolve)


def share(table: ChannelTable, ranges: Any, now_ns: int = 0) -> float:
    table.store_message("laser", scan(*ranges), None, now_ns)
    table.store_message("gyro", SimpleNamespace(x=1.0, y=2.0, z=0.0), None, now_ns)
    readings = table.read(now_ns)
    assert readings.has_min_present_share(readings.present_share - 1e-9)
    assert not readings.has_min_present_share(readings.present_share + 1e-9)
    return readings.present_share


def test_without_weights_each_channel_counts_one(load: Load, resolver: Any) -> None:
    plain = weighed(load, resolver)
    assert share(plain, [1.0, NAN, NAN, NAN]) == 3 / 6
    assert plain.read(0).weights is None


def test_a_sources_weight_is_shared_by_its_channels(load: Load, resolver: Any) -> None:
    one = weighed(load, resolver, laser=1.0)
    assert share(one, [1.0, NAN, NAN, NAN]) == pytest.approx(2.25 / 3)
    assert share(one, [1.0] * 4, 1) == 1.0
    assert one.read(2 * 10**8).weights == (0.0, 3.0)


def test_a_channels_weight_counts_beside_those_of_one(load: Load, resolver: Any) -> None:
    heavy = weighed(load, resolver, gyro=5.0)
    assert share(heavy, [NAN] * 4) == pytest.approx(6 / 10)
    both = weighed(load, resolver, laser=2.0, gyro=5.0)
    assert share(both, [1.0, NAN, NAN, NAN]) == pytest.approx(6.5 / 8)


def test_a_share_that_is_just_reached_is_enough_however_sums_are_rounded() -> None:
    ids = tuple(f"{number}" for number in range(8))
    assert Readings(np.zeros(7), ids[:7], 25).has_min_present_share(0.28), (
        "0.28 * 25 is a little more than 7"
    )
    eight = Readings(np.zeros(8), ids, 10, weights=(sum([0.1] * 8), 1.0))
    assert eight.has_min_present_share(0.8), "eight times 0.1 are a little less than 0.8"
    assert not Readings(np.zeros(7), ids[:7], 25).has_min_present_share(0.2800001)


def test_a_wildcard_that_weighs_nothing_expects_nothing(load: Load, resolver: Any) -> None:
    sources = {
        "laser": {"topic": "laser", "type": SCAN, "max_age_s": 0.1},
        "gyro": {"topic": "gyro", "type": VECTOR, "max_age_s": 0.1},
    }
    channels = {
        "scan.*": {"source": "laser", "field": "ranges[*]", "weight": 0},
        "gyro.x": {"source": "gyro", "field": "x"},
        "gyro.y": {"source": "gyro", "field": "y"},
    }
    table = ChannelTable(load(sources=sources, channels=channels), resolver)
    assert table.expected_channel_count == 2
    assert share(table, [1.0, 2.0, NAN, NAN]) == 1.0
    table.store_message("laser", scan(1.0, 2.0), None, 10**9)
    readings = table.read(10**9)
    assert len(readings.ids) == 2 and readings.weights == (0.0, 2.0)


def test_a_channel_has_no_weight_beside_its_sources(load: Load) -> None:
    source = {"topic": "t", "type": JOINTS, "max_age_s": 0.1, "weight": 1}
    channel = {"source": "joints", "field": "position[a]", "weight": 2}
    with pytest.raises(WiringError, match="for all its channels"):
        load(sources={"joints": source}, channels={"a": channel})


def test_a_rewired_wildcard_keeps_its_options(load: Load, resolver: Any) -> None:
    sources = {"laser": {"topic": "scan", "type": SCAN, "max_age_s": 0.1}}
    options = {"inf": 10.0, "pool": {"size": 2, "by": "min"}}
    channels = {"scan.*": {"source": "laser", "field": "ranges[*]", **options}}
    first = ChannelTable(load(sources=sources, channels=channels), resolver)
    first.store_message("laser", scan(INF, 4.0, 3.0, INF), None, 0)
    assert present(first) == {"scan.0": 4.0, "scan.1": 3.0}
    change = {"channels.scan.*.field": "covariance[*]"}
    second = first.make_rewired_table(first.wiring.with_changes(change))
    message = scan()
    message.covariance = [INF, INF, 2.0]
    second.store_message("laser", message, None, 1)
    assert present(second, 1) == {"scan.0": 10.0, "scan.1": 2.0}
    with pytest.raises(WiringError, match="known by their places"):
        first.make_rewired_table(
            first.wiring.with_changes({"channels.scan.*.field": "orientation.*"})
        )
