"""Stuck sensors count as missing: frozen ones, and those that stay at the end of their range."""

from __future__ import annotations

import numpy as np
import pytest

from an_control.monitor.settings import MONITOR
from an_control.monitor.stuck_sensors import StuckSensorDetector

STUCK = MONITOR.stuck
SLOTS = 8
MUCH = np.full(SLOTS, STUCK.min_excess)
CONTACT = np.array([7])
ALONE = np.where(np.arange(SLOTS) == 2, STUCK.min_excess, 0.0)


@pytest.fixture
def sensors() -> StuckSensorDetector:
    return StuckSensorDetector(SLOTS, np.array([0.0, 1.0]), max_excess=10.0)


def moving(tick: int, **held: float) -> np.ndarray:
    """Readings that differ at every tick, but for the slots `sN`."""
    readings = np.linspace(0.1, 0.8, SLOTS).astype(np.float32) + np.float32(0.0013 * tick)
    for slot, value in held.items():
        readings[int(slot[1:])] = value
    return readings


def run(
    sensors: StuckSensorDetector, ticks: range, excess: np.ndarray, **held: float
) -> list[list[int]]:
    """The stuck slots after each tick, where slot 7 is a contact's."""
    found = []
    for tick in ticks:
        sensors.replace_stuck_readings_by_nan(moving(tick, **held))
        if sensors.has_repeated_reading(np.arange(1, SLOTS)):
            sensors.update_stuck_slots_and_check_new(excess, CONTACT)
        found.append(np.flatnonzero(sensors.stuck).tolist())
    return found


def test_a_slot_that_should_move_is_missing_until_it_reads_something_else(sensors):
    found = run(sensors, range(STUCK.ticks + 3), np.where(np.arange(SLOTS) == 2, 3.0, 0.0), s2=-5.0)
    assert found == [[]] * (STUCK.ticks + 1) + [[2]] * 2
    readings = moving(20, s2=-5.0)
    seen = sensors.replace_stuck_readings_by_nan(readings)
    assert np.isnan(seen[2]) and np.isfinite(np.delete(seen, 2)).all()
    assert sensors.replace_stuck_readings_by_nan(moving(21)) is not None and not sensors.stuck.any()


def test_a_slot_that_may_well_stay_is_not_stuck(sensors):
    assert not any(run(sensors, range(50), np.full(SLOTS, 0.1), s2=0.37))


def test_a_slot_at_the_end_of_its_range_that_costs_little_in_a_tick_is_not_stuck(sensors):
    """Beams of a lidar that saw nothing for a second were left out, in the middle of a move."""
    little = np.where(np.arange(SLOTS) == 2, 0.8 * STUCK.min_mean_excess, 0.0)
    assert not any(run(sensors, range(100), little, s2=2.5))


def test_a_robot_that_stands_still_has_no_stuck_sensor(sensors):
    for _ in range(50):
        sensors.replace_stuck_readings_by_nan(moving(0))
        assert not sensors.update_stuck_slots_and_check_new(MUCH, CONTACT)


def test_of_a_contact_it_must_be_known_which_channel_it_is(sensors):
    """All that moves costs too much, so the assignment is wrong: 1.0 may be a foot that stands."""
    assert not any(run(sensors, range(50), MUCH, s2=1.0))
    found = run(sensors, range(50, 60 + STUCK.still_ticks), ALONE, s2=1.0)
    assert [2] not in found[: STUCK.still_ticks - 1] and found[-1] == [2]


def test_while_all_contacts_read_as_contacts_do_another_slot_that_reads_zero_is_stuck(sensors):
    """Velocities that froze at 0 were left to the search for a second: 1129 of 2580."""
    assert run(sensors, range(STUCK.ticks + 3), ALONE, s2=0.0, s7=1.0)[-1] == [2]


def test_a_contact_that_is_known_to_have_moved_there_is_not_stuck(sensors):
    assert not any(run(sensors, range(STUCK.still_ticks - 10), ALONE, s2=1.0))
    sensors.restart_unchanged_tick_counts(np.arange(SLOTS) == 2)
    nothing = np.zeros(SLOTS)
    assert not any(run(sensors, range(STUCK.still_ticks, 3 * STUCK.still_ticks), nothing, s2=1.0))


def test_a_message_that_comes_twice_is_told_from_a_robot_that_stands_still(sensors):
    told = []
    for tick in (0, 1, 1, 2, 3, 3, 3, 3, 3, 3):
        sensors.replace_stuck_readings_by_nan(moving(tick))
        told.append(sensors.is_repeated_message)
    assert told == [False, False, True, False, False, True, True, True, False, False]


def test_a_contact_alone_is_no_suspect(sensors):
    run(sensors, range(5), MUCH, s2=1.0)
    assert sensors.has_repeated_reading(np.array([2])) and not sensors.has_repeated_reading(
        np.array([0, 1])
    )


def test_a_reset_forgets(sensors):
    run(sensors, range(20), np.where(np.arange(SLOTS) == 2, 3.0, 0.0), s2=-5.0)
    sensors.reset()
    assert (
        not sensors.stuck.any()
        and np.isfinite(sensors.replace_stuck_readings_by_nan(moving(0, s2=-5.0))).all()
    )


def test_nothing_is_stuck_while_most_signals_are_elsewhere_than_believed(sensors):
    assert not any(run(sensors, range(4 * STUCK.ticks), MUCH, s2=0.37))
    assert run(sensors, range(4 * STUCK.ticks, 6 * STUCK.ticks), ALONE, s2=0.37)[-1] == [2]


def test_a_slot_that_may_carry_a_constant_is_stuck_only_after_longer():
    values = np.array([0.0, 0.37, 1.0], np.float32)
    sensors = StuckSensorDetector(SLOTS, values, max_excess=10.0)
    found = run(sensors, range(2 * STUCK.still_ticks), ALONE, s2=np.float32(0.37))
    assert not any(found[: STUCK.still_ticks]) and found[-1] == [2]
