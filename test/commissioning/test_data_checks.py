"""Readings alone say that a rate is reversed, of another unit, or of another joint."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("rclpy")

from an_control.commissioning.doctor.data_checks import Series, describe_inconsistent_readings
from an_control.commissioning.listen import update_reading_ranges
from an_control.wiring import ChannelConfig

TIMES = np.arange(500) * 0.01
FIELDS = {
    f"{joint}.{kind}": ChannelConfig(f"{joint}.{kind}", "joints", f"{kind}[{joint}]")
    for joint in ("left", "right")
    for kind in ("position", "velocity")
}


def series(change=lambda raw: raw):
    raw = {
        "left.position": 0.5 * np.sin(3 * TIMES),
        "left.velocity": 1.5 * np.cos(3 * TIMES),
        "right.position": 0.4 * np.cos(5 * TIMES),
        "right.velocity": -2.0 * np.sin(5 * TIMES),
    }
    changed = change(dict(raw)) or raw
    return Series(tuple(raw), TIMES, np.stack([changed[id_] for id_ in raw], 1))


def test_nothing_is_said_of_rates_that_are_right_also_with_noise_and_a_delay():
    assert describe_inconsistent_readings(series(), FIELDS) == []
    rng = np.random.default_rng(0)
    one = series()
    noisy = one._replace(raw=np.roll(one.raw, 1, 0) + 0.01 * rng.standard_normal(one.raw.shape))
    assert describe_inconsistent_readings(noisy, FIELDS) == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r | {"left.velocity": -r["left.velocity"]}, "opposite sign"),
        (lambda r: r | {"left.velocity": 57.3 * r["left.velocity"]}, "degrees instead of radians"),
        (lambda r: r | {"left.position": 57.3 * r["left.position"] % 3}, ""),
        (
            lambda r: (
                r | {"left.velocity": r["right.velocity"], "right.velocity": r["left.velocity"]}
            ),
            "two fields are swapped",
        ),
        (lambda r: r | {"left.velocity": 0.0 * TIMES}, "always reads the same"),
        (
            lambda r: (
                r | {"left.velocity": np.round(r["left.velocity"] + 0.3 * np.sin(99 * TIMES))}
            ),
            "rounded",
        ),
    ],
)
def test_what_does_not_fit_is_said_with_the_channel(change, said):
    found = describe_inconsistent_readings(series(change), FIELDS)
    assert not said or any(said in text and "left.velocity" in text for text in found), found


def test_a_robot_that_stands_still_says_nothing():
    one = series()
    assert describe_inconsistent_readings(one._replace(raw=0.001 * one.raw), FIELDS) == []


def test_a_reading_that_is_missing_hides_no_mistake_and_makes_none():
    one = series(lambda r: r | {"left.velocity": -r["left.velocity"]})
    one.raw[[0, 250], 1] = np.nan  # the first message comes late, and one is lost
    (said,) = describe_inconsistent_readings(one, FIELDS)
    assert "left.velocity: has the opposite sign" in said
    level = np.where(np.arange(500) % 4, np.arange(500) // 200, np.nan)  # three values, seldom new
    gear = Series(("gear",), TIMES, level[:, None])
    assert describe_inconsistent_readings(gear, FIELDS) == []


def test_a_reading_at_a_bound_of_its_clip_is_not_compared():
    config = ChannelConfig("left.velocity", "joints", "velocity[left]", scale=2.0, clip=(-5.0, 5.0))
    history = []
    for value in (4.0, 5.0, -5.0):
        readings = SimpleNamespace(ids=(config.id,), values=np.array([value]), new=1)
        table = SimpleNamespace(
            read=lambda _, r=readings: r, configs={config.id: config}, cameras={}
        )
        update_reading_ranges(table, {}, 0, history)
    assert [row for _, row in history] == [{config.id: 2.0}, {}, {}]
