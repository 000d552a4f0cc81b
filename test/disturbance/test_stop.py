"""The stop of an episode: when it comes, and what comes after it."""

from __future__ import annotations

import pytest

from an_control.disturbance import DisturbanceSettings, Disturber, Range, RobotStop


def test_a_stop_comes_within_its_time_and_the_seed_decides_when():
    def drawn(stop: Range) -> list[RobotStop]:
        disturber, found = Disturber((), DisturbanceSettings(stop=stop), 1), []
        for episode in range(50):
            disturber.start_episode(episode)
            found.append(disturber.draw_robot_stop(0.01))
        return found

    stops = drawn(Range(2, 2))
    assert all(300 <= one.begin <= 600 and one.end == one.begin + 200 for one in stops)
    assert len({one.begin for one in stops}) > 30
    assert [one.begin for one in stops] == [one.begin for one in drawn(Range(0.5, 2))]
    assert {50 <= one.end - one.begin <= 200 for one in drawn(Range(0.5, 2))} == {True}
    assert Disturber((), DisturbanceSettings(), 1).draw_robot_stop(0.01) is None


def test_what_counts_is_how_far_the_robot_comes_in_the_time_after_the_stop():
    stop = RobotStop(begin_step=10, stopped_steps=5, measured_steps=20)
    for step in range(1, 60):
        stop.update_walked_distance(step, 0.5 * step)
    assert stop.walked_m == pytest.approx(10.0)


def test_of_a_robot_that_fell_during_the_stop_nothing_is_said():
    stop = RobotStop(begin_step=10, stopped_steps=5, measured_steps=20)
    for step in range(1, 14):
        stop.update_walked_distance(step, 0.5 * step)
    assert stop.walked_m is None
