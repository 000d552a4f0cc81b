"""The readings and commands of the last ticks, as the doctor gets them while the robot runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from an_control.control import recent_ticks
from an_control.control.recent_ticks import RecentTicks
from an_control.wiring import Readings

IDS = ("a", "b", "c")
PERIOD_S = 0.05


def record(ticks: RecentTicks, number: int, before: Any, **changes: Any) -> None:
    """A tick whose numbers are 10 times its number plus 0, 1, 2 in the order of the table."""
    ids = changes.get("table", IDS)
    table: Any = SimpleNamespace(ids=ids, numbers=10.0 * number + np.arange(len(ids)))
    readings = Readings(np.zeros(0), changes.get("present", ids), len(ids))
    sent = None if before is None else np.array([float(before)])
    ticks.record_tick(table, readings, sent, changes.get("time_ns", round(number * PERIOD_S * 1e9)))


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> RecentTicks:
    """A buffer of five ticks."""
    monkeypatch.setattr(recent_ticks, "LEAST_TICKS", 5)
    monkeypatch.setattr(recent_ticks, "KEPT_S", 5 * PERIOD_S)
    return RecentTicks(IDS, 1, PERIOD_S)


def test_each_tick_has_the_command_that_was_sent_after_its_readings(ticks):
    for number in range(4):
        record(ticks, number, before=None if number == 0 else number - 1)
    found = ticks.copy_arrays_oldest_first()
    assert found.raw.tolist() == [[0, 1, 2], [10, 11, 12], [20, 21, 22]]
    assert found.commands.tolist() == [[0], [1], [2]], "the last tick's command is not sent yet"
    assert found.starts.tolist() == [True, False, False]


def test_the_oldest_ticks_are_forgotten(ticks):
    for number in range(12):
        record(ticks, number, before=number - 1)
    found = ticks.copy_arrays_oldest_first()
    assert found.raw[:, 0].tolist() == [70, 80, 90, 100] and found.commands[:, 0].tolist() == [
        7, 8, 9, 10,
    ]  # fmt: skip
    assert not found.starts.any() and len(ticks) == 5


def test_channels_are_in_the_models_order_and_missing_ones_are_nan(ticks):
    record(ticks, 1, before=None, table=("x", "c", "a"), present=("x", "a"))
    record(ticks, 2, before=0, table=("c", "b", "a"))
    record(ticks, 3, before=0)
    found = ticks.copy_arrays_oldest_first().raw
    assert found[0, 0] == 12.0 and np.isnan(found[0, 1:]).all()
    assert found[1].tolist() == [22, 21, 20]


def test_a_tick_after_a_gap_a_lost_tick_or_an_unknown_command_is_a_start(ticks):
    record(ticks, 0, before=None)
    record(ticks, 1, before=0)
    ticks.mark_gap_before_next_tick()
    record(ticks, 2, before=0)
    record(ticks, 4, before=0)
    record(ticks, 5, before=None)
    record(ticks, 6, before=0)
    assert ticks.copy_arrays_oldest_first().starts.tolist() == [False, True, True, True]
    ticks.clear()
    assert len(ticks) == 0 and len(ticks.copy_arrays_oldest_first().raw) == 0
    record(ticks, 7, before=0)
    record(ticks, 8, before=3)
    found = ticks.copy_arrays_oldest_first()
    assert found.raw[:, 0].tolist() == [70] and found.commands.tolist() == [[3]]
