"""Where the sources set the pace: a tick with each complete set, at the control rate."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from an_control.ros.tickers import FIRST_SETS, WINDOW, TickSchedule

PERIOD_NS = 10_000_000
Event = tuple[float, str]
"""When, in periods, and which source sends a message."""


class Tick(NamedTuple):
    """When (periods), whether every source has come since the last tick, how old the oldest of
    their newest messages is (periods), and whether the schedule has found the first sets."""

    at: float
    whole: bool
    age: float
    locked: bool


def play(
    events: list[Event], until: float, *names: str, pace: TickSchedule | None = None
) -> list[Tick]:
    """The ticks that a perfect timer and these messages make."""
    pace, ticks = pace or TickSchedule(names, PERIOD_NS), []
    newest: dict[str, int] = {}
    pending = sorted((round(at * PERIOD_NS), name) for at, name in events)
    pending.reverse()
    fresh: set[str] = set()
    timer_ns = pace.compute_next_tick_ns(0)
    while True:
        arrival_ns = pending[-1][0] if pending else 1 << 60
        now_ns = min(arrival_ns, timer_ns)
        if now_ns > until * PERIOD_NS:
            return ticks
        if arrival_ns <= timer_ns:
            name = pending.pop()[1]
            newest[name] = now_ns
            fresh.add(name)
            if not pace.record_message_and_check_tick_due(name, now_ns):
                timer_ns = pace.compute_next_tick_ns(now_ns)
                assert timer_ns >= now_ns
                continue
        pace.record_tick(now_ns)
        age_ns = now_ns - min(newest.values(), default=now_ns)
        whole, locked = fresh >= set(names), pace._sets > FIRST_SETS
        ticks.append(Tick(now_ns / PERIOD_NS, whole, age_ns / PERIOD_NS, locked))
        fresh.clear()
        timer_ns = pace.compute_next_tick_ns(now_ns)
        assert timer_ns > now_ns


def every(period: float, name: str, first: float = 0.0, count: int = 200) -> list[Event]:
    return [(first + k * period, name) for k in range(count)]


def times(ticks: list[Tick], after: float = 0.0) -> np.ndarray:
    return np.array([tick.at for tick in ticks if tick.at >= after])


def whole(ticks: list[Tick]) -> np.ndarray:
    return np.array([tick.at for tick in ticks if tick.whole])


def ages(ticks: list[Tick], after: float = 0.0) -> np.ndarray:
    return np.array([tick.age for tick in ticks if tick.at >= after])


def check_rate(at: np.ndarray) -> None:
    """In no WINDOW periods more than a tick too many or too few, and no two ticks too close."""
    gaps = np.diff(at)
    assert gaps.min(initial=1.0) >= 0.5 - 1e-6
    assert gaps.max(initial=1.0) <= 1.5 + 0.01
    if len(at) > WINDOW + 1:
        assert (at[WINDOW + 1 :] - at[: -WINDOW - 1]).min() >= WINDOW - 1e-6, "too many"
        assert (at[WINDOW - 1 :] - at[: 1 - WINDOW]).max() <= WINDOW + 1e-6, "too few"


def test_a_tick_follows_each_set_as_soon_as_its_last_message_is_there():
    ticks = play([*every(1.0, "a"), *every(1.0, "b", first=0.02)], 100.0, "a", "b")
    assert np.allclose(whole(ticks)[1:], np.arange(1, 100) + 0.02)
    assert len(ticks) <= len(whole(ticks)) + 1


def test_after_a_late_message_sets_are_not_mixed_for_good():
    b = [(at + (0.6 if k == 50 else 0.01), name) for k, (at, name) in enumerate(every(1.0, "b"))]
    ticks = play([*every(1.0, "a"), *b], 150.0, "a", "b")
    assert np.allclose(whole(ticks)[-90:] % 1.0, 0.01)


def test_a_source_that_comes_more_slowly_is_not_waited_for():
    ticks = play([*every(1.0, "a"), *every(6.0, "slow", 0.4)], 150.0, "a", "slow")
    assert np.allclose(np.diff(times(ticks, 10.0)), 1.0)
    assert np.allclose(times(ticks, 10.0) % 1.0, 0.0)


@pytest.mark.parametrize(
    "phases", [(0.0, 0.33, 0.67), (0.0, 0.25, 0.5, 0.75), (0.0, 0.3, 0.66, 0.8)]
)
def test_sources_whose_messages_are_spread_over_the_period_get_their_ticks(phases):
    names = [f"source {phase}" for phase in phases]
    events = [one for at, name in zip(phases, names, strict=True) for one in every(1.0, name, at)]
    at = times(play(events, 190.0, *names))
    assert at[0] < 3.0 and len(at) >= 187
    check_rate(at)


@pytest.mark.parametrize("hz", [5, 10, 20, 25, 33, 40, 45, 47, 49, 51, 55, 60, 75, 100, 200, 500])
@pytest.mark.parametrize("jitter", [0.0, 0.1, 0.2])
def test_at_any_rate_of_a_source_the_ticks_keep_theirs(hz, jitter):
    period, random = 50.0 / hz, np.random.default_rng(hz)
    count = int(400 / period) + 2
    late = min(period, 1.0) * jitter * random.uniform(-1.0, 1.0, count)
    ticks = play([(0.5 + k * period + late[k], "a") for k in range(count)], 400.0, "a")
    check_rate(times(ticks, 15.0 * max(1.0, period)))


@pytest.mark.parametrize("period", [0.996, 0.998, 1.0, 1.002, 1.004])
def test_a_source_that_nearly_keeps_the_rate_is_followed_without_delay(period):
    ticks = play(every(period, "a", first=0.4, count=400), 390.0, "a")
    assert ages(ticks).max() == 0.0
    assert np.allclose(np.diff(times(ticks, 1.0)), period)


@pytest.mark.parametrize(("period", "mean"), [(1.06, 0.3), (1.02, 0.3), (0.96, 0.2), (0.5, 0.05)])
def test_of_a_source_at_another_rate_the_readings_are_as_fresh_as_can_be(period, mean):
    ticks = play(every(period, "a", first=0.4, count=2000), 390.0, "a")
    assert ages(ticks, 100.0).mean() <= mean


def test_what_is_missing_is_waited_for_a_quarter_of_a_period_and_soon_not_at_all():
    ticks = play([*every(1.0, "a"), *every(1.0, "b", count=20)], 60.0, "a", "b")
    assert np.diff(times(ticks, 19.5)).max() <= 1.5
    assert np.allclose(times(ticks)[-20:] % 1.0, 0.0)


def test_in_silence_a_tick_is_due_every_period_and_later_sets_are_followed_within_two_seconds():
    later = every(1.0, "a", first=20.37, count=180)
    ticks = play([*every(1.0, "a", count=10), *later], 200.0, "a")
    silent = times(ticks, 10.0)[:9]
    assert np.allclose(np.diff(silent), 1.0)
    assert ages(ticks, 20.5).max() < 0.55 and ages(ticks, 120.0).max() == 0.0


@given(st.lists(st.floats(-0.12, 0.12), min_size=60, max_size=60))
def test_jitter_of_an_eighth_of_a_period_costs_no_set_and_no_time(jitter):
    ticks = play([(k + late, "a") for k, late in enumerate(jitter)], 59.2, "a")
    assert len(whole(ticks)) == 60 and ages(ticks).max() == 0.0


def test_random_jitter_of_a_fifth_of_a_period_costs_no_set_and_no_time():
    late = np.random.default_rng(0).uniform(-0.2, 0.2, 1000)
    ticks = play([(k + late[k], "a") for k in range(1000)], 999.5, "a")
    assert len(whole(ticks)) >= 995 and ages(ticks, 20.0).mean() < 1e-3


def test_after_a_stall_of_the_executor_lost_ticks_are_not_made_up_for():
    pace = TickSchedule(["a"], PERIOD_NS)
    for k in range(50):
        assert pace.record_message_and_check_tick_due("a", k * PERIOD_NS)
        pace.record_tick(k * PERIOD_NS)
    pace.record_message_and_check_tick_due("a", 70 * PERIOD_NS)
    pace.record_tick(70 * PERIOD_NS)
    assert pace.compute_next_tick_ns(70 * PERIOD_NS) >= 71 * PERIOD_NS


def test_a_clock_that_is_set_back_stops_nothing():
    pace = TickSchedule(["a"], PERIOD_NS)
    for now_ns in (0, PERIOD_NS, -(10**12), -(10**12) + PERIOD_NS):
        assert pace.record_message_and_check_tick_due("a", now_ns)
        pace.record_tick(now_ns)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[list[Event]], tuple[str, ...]]:
    """Messages of one to three sources, in stretches between which the clock is set back."""
    names = ("a", "b", "c")[: draw(st.integers(1, 3))]
    stretches = []
    for _ in range(draw(st.sampled_from([1, 1, 1, 2]))):
        events: list[Event] = []
        for name in names:
            at = draw(st.floats(0.0, 3.0))
            for _ in range(draw(st.integers(1, 3))):
                period = 50.0 / draw(
                    st.one_of(st.floats(5.0, 1000.0), st.floats(40.0, 60.0), st.just(50.0))
                )
                jitter = draw(st.sampled_from([0.0, 0.05, 0.2, 0.5, 1.0])) * min(period, 2.0)
                burst = draw(st.sampled_from([1, 1, 1, 2, 5]))
                seed = draw(st.integers(0, 2**16))
                count = min(int(draw(st.floats(1.0, 150.0)) / period) + 1, 600)
                late = np.random.default_rng(seed).uniform(-jitter, jitter, count)
                events += [(at + (k - k % burst) * period + late[k], name) for k in range(count)]
                at += count * period + draw(st.sampled_from([0.0, 0.0, 0.7, 5.0, 40.0]))
        stretches.append([(max(at, 0.0), name) for at, name in events])
    return stretches, names


def check_stream(stream) -> None:
    """Play the messages of one clock after the other, and check the rate on each."""
    stretches, names = stream
    pace = TickSchedule(names, PERIOD_NS)
    for number, events in enumerate(stretches):
        back = -1000.0 * number
        until = back + max(at for at, _ in events) + 60.0
        pace = pace if number else TickSchedule(names, PERIOD_NS)
        ticks = play([(back + at, name) for at, name in events], until, *names, pace=pace)
        scheduled = [tick.at for tick in ticks if tick.whole or tick.locked]
        assert np.diff(scheduled).min(initial=1.0) >= 0.5 - 1e-6
        check_rate(np.array([tick.at for tick in ticks if tick.locked]))


@given(streams())
def test_whatever_comes_and_when_the_ticks_keep_their_rate(stream):
    check_stream(stream)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@settings(max_examples=10_000, deadline=None)
@given(streams())
def test_in_ten_thousand_streams_the_ticks_keep_their_rate(stream):
    check_stream(stream)
