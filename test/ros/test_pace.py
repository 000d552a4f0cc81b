"""Where the sources set the pace: a tick once their newest set is complete. Time is given."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from an_control.ros.pace import Pace

PERIOD_NS = 10_000_000


def play(events: list[tuple[float, str]], until: float, *names: str) -> list[tuple[float, bool]]:
    """Ticks (time in periods, whether on a complete set) for messages (time in periods, source)."""
    pace, ticks, now_ns = Pace(names, PERIOD_NS), [], 0
    pending = sorted((round(at * PERIOD_NS), name) for at, name in events)
    timer_ns = pace.wait_ns(0)
    while True:
        arrival_ns = pending[0][0] if pending else 1 << 60
        now_ns = min(arrival_ns, timer_ns)
        if now_ns > until * PERIOD_NS:
            return ticks
        complete = False
        if arrival_ns <= timer_ns:
            complete = pace.arrived(pending.pop(0)[1], now_ns)
            if not complete:
                continue
        pace.ticked(now_ns)
        ticks.append((now_ns / PERIOD_NS, complete))
        timer_ns = now_ns + pace.wait_ns(now_ns)


def every(period: float, name: str, first: float = 0.0, count: int = 200) -> list:
    return [(first + k * period, name) for k in range(count)]


def complete(ticks: list[tuple[float, bool]]) -> np.ndarray:
    return np.array([at for at, whole in ticks if whole])


def test_a_tick_follows_each_set_as_soon_as_its_last_message_is_there():
    ticks = play([*every(1.0, "a"), *every(1.0, "b", first=0.02)], 100.0, "a", "b")
    assert np.allclose(complete(ticks)[1:], np.arange(1, 100) + 0.02)
    assert len(ticks) <= len(complete(ticks)) + 1


def test_after_a_late_message_sets_are_not_mixed_for_good():
    b = [(at + (0.6 if k == 50 else 0.01), name) for k, (at, name) in enumerate(every(1.0, "b"))]
    ticks = play([*every(1.0, "a"), *b], 150.0, "a", "b")
    assert np.allclose(complete(ticks)[-90:] % 1.0, 0.01)


def test_a_source_that_comes_more_slowly_is_not_waited_for():
    ticks = complete(play([*every(1.0, "a"), *every(6.0, "slow", 0.4)], 150.0, "a", "slow"))
    assert np.allclose(np.diff(ticks[5:]), 1.0)


def test_sources_that_come_faster_are_taken_at_about_the_control_rate():
    for period in (0.1, 0.3, 0.5, 0.6):
        gaps = np.diff(complete(play(every(period, "a", count=2000), 100.0, "a")))
        assert 0.85 <= gaps.mean() <= 1.15, period
        assert gaps.min() >= 0.45


@pytest.mark.parametrize("period", [0.92, 1.0, 1.08])
def test_no_set_is_left_out_where_the_rates_differ_by_less_than_a_tenth(period):
    ticks = complete(play(every(period, "a"), 150.0, "a"))
    assert np.allclose(np.diff(ticks), period)


def test_what_is_missing_is_waited_for_a_quarter_of_a_period_and_soon_not_at_all():
    ticks = play([*every(1.0, "a"), *every(1.0, "b", count=20)], 60.0, "a", "b")
    times = np.array([at for at, _ in ticks if at > 19.5])
    assert np.diff(times).max() <= 1.5
    assert np.allclose(times[-20:] % 1.0, 0.0)


def test_in_silence_a_tick_is_due_every_period_and_the_next_set_is_taken_at_once():
    ticks = play([*every(1.0, "a", count=10), *every(1.0, "a", first=20.37, count=10)], 30.0, "a")
    silent = [at for at, whole in ticks if 10.0 < at < 20.0]
    assert np.allclose(np.diff(silent), 1.0)
    assert np.allclose(complete(ticks)[-9:] % 1.0, 0.37)


@given(st.lists(st.floats(-0.2, 0.2), min_size=60, max_size=60))
def test_jitter_of_a_fifth_of_a_period_costs_no_set(jitter):
    events = [(k + late, "a") for k, late in enumerate(jitter)]
    assert len(complete(play(events, 70.0, "a"))) == 60


def test_a_clock_that_is_set_back_stops_nothing():
    pace = Pace(["a"], PERIOD_NS)
    for now_ns in (0, PERIOD_NS, -(10**12), -(10**12) + PERIOD_NS):
        assert pace.arrived("a", now_ns)
        pace.ticked(now_ns)
