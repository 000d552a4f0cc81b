"""What the monitor says of itself: whether it knows which slot carries which signal."""

import numpy as np
from waves import CHANNELS, STRAIGHT, TURNED, imputing_model, missing_one, telling_apart, waves

from an_control.load import make_policy


def test_who_knows_the_order_does_not_report_to_be_lost_when_a_sensor_fails():
    policy = make_policy(telling_apart(imputing_model(np.full(5, 3.0))), "match")
    reports = []
    for tick in range(120):
        policy.step_array(
            waves(tick) if tick < 40 else missing_one(tick, STRAIGHT), tuple(CHANNELS)
        )
        reports.append(policy.monitor_report.lost)
    assert reports[0] and not any(reports[39:])


def test_a_search_for_signals_that_moved_when_the_missing_one_came_back_is_reported():
    policy = make_policy(telling_apart(imputing_model(np.full(5, 3.0))), "match")
    for tick in range(62):
        if tick == 59:
            policy.ignore_next_readings_for_wiring()
        missing = 40 <= tick < 60
        values = missing_one(tick, STRAIGHT) if missing else waves(tick)
        policy.step_array(values if tick < 60 else waves(tick)[list(TURNED)], tuple(CHANNELS))
    assert policy.monitor.assignment.lost and policy.monitor_report.lost


def test_who_finds_the_order_while_a_sensor_is_missing_is_not_lost_any_more():
    policy = make_policy(telling_apart(imputing_model(np.full(5, 3.0))), "match")
    reports = []
    for tick in range(120):
        policy.step_array(missing_one(tick, TURNED), tuple(CHANNELS))
        reports.append(policy.monitor_report.lost)
    assert reports[0] and not reports[-1]
