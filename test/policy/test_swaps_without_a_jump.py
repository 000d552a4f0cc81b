"""Two signals that swap slots while they read the same: no tick alone shows it."""

import numpy as np
import pytest
from waves import SPEEDS, monitored_model, telling_apart, waves

from an_control.load import make_policy
from an_control.monitor.assignment import Assignment
from an_control.monitor.evidence import TickRecord

SWAPPED_AT = 60
SWAPPED = np.array([4, 1, 2, 3, 0])
FOUND = {"wave_0": "wave_4", "wave_4": "wave_0"}


def signals(tick):
    """Waves of which the first and the last read the same when they swap."""
    readings = waves(tick)
    readings[[0, 4]] = 5.0 + SPEEDS[[0, 4]] * (tick - SWAPPED_AT + 0.5)
    return readings


def resolve_monitor(model):
    """One that expects errors of half of what the two signals' changes differ by."""
    model.arrays["forward.1.bias"][5:] = np.log(0.5 * (SPEEDS[4] - SPEEDS[0]))
    model.arrays["forward.usual"][:] = model.arrays["forward.1.bias"][5:]
    return make_policy(model, "match").monitor


def found_after(monitor, ticks):
    """Ticks from the swap until it is found, None where it is not within so many."""
    for tick in range(SWAPPED_AT + ticks):
        readings = signals(tick)
        monitor.step(readings[SWAPPED] if tick >= SWAPPED_AT else readings, np.zeros(2, np.float32))
        monitor.prepare_next_tick(np.zeros(2, np.float32))
        if monitor.channel_by_rewired_slot:
            assert monitor.channel_by_rewired_slot == FOUND
            return tick - SWAPPED_AT
    return None


def test_a_swap_without_a_jump_is_found_by_the_newest_ticks():
    after = found_after(resolve_monitor(telling_apart(monitored_model())), 60)
    assert after is not None and 4 <= after <= 12


def test_no_correction_is_made_that_the_identity_classifier_does_not_agree_to():
    assert found_after(resolve_monitor(monitored_model()), 60) is None


@pytest.mark.parametrize("agrees", [False, True])
def test_nor_is_an_assignment_that_does_not_hold_left_for_what_it_does_not_agree_to(agrees):
    model = monitored_model()
    search = resolve_monitor(telling_apart(model) if agrees else model)._search
    assignment = Assignment.make_nominal(5)
    search.start_verifying_assignment(assignment)
    for tick in range(20):
        before, now = signals(tick)[SWAPPED], signals(tick + 1)[SWAPPED]
        search._add_record(TickRecord(before, np.zeros(2, np.float32), now - before, now))
    found = search._search_all_assignments(assignment).slots
    assert found.tolist() == (SWAPPED.tolist() if agrees else [0, 1, 2, 3, 4])


@pytest.mark.parametrize("drift", [-0.3, 0.3])
def test_a_robot_that_moves_otherwise_than_predicted_has_no_swapped_channels(drift):
    """Its readings are surprising all the time."""
    monitor = resolve_monitor(telling_apart(monitored_model()))
    for tick in range(200):
        readings = signals(tick)
        readings[2] += drift * tick
        monitor.step(readings, np.zeros(2, np.float32))
        monitor.prepare_next_tick(np.zeros(2, np.float32))
    assert monitor.channel_by_rewired_slot == {} and monitor.detected_move_count == 0
