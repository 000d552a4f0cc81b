"""A monitor moves signals only where its model fits the robot, and is off where it failed."""

from dataclasses import replace

import numpy as np
import pytest
from waves import (
    CHANNELS,
    SPEEDS,
    STRAIGHT,
    TURNED,
    monitored_model,
    telling_apart,
    validated,
    waves,
)

from an_control.load import (
    load_policy,
    make_policy,
    resolve_monitor_setting,
)
from an_control.monitor.evidence import CandidateAssignment
from an_control.monitor.forward_model import FitLimits
from an_control.monitor.monitored_policy import MonitoredPolicy
from an_control.monitor.robot_fit import RobotFitEstimator
from an_control.monitor.settings import MONITOR
from an_control.policy import ModelError, read_model, write_model

STARTS = np.arange(5) * 3.0
BETWEEN = 0.4 * SPEEDS + 0.6 * np.roll(SPEEDS, -1)
"""Speeds of a robot on which each channel is more like the next one than like itself."""


def played(readings_of, ticks=300):
    """The monitored policy, what it took for moved at each tick, and its ticks with other inputs
    than the readings as they are wired."""
    policy = make_policy(validated(telling_apart(monitored_model())), "match", engine="numpy")
    moved, permuted = [], 0
    for tick in range(ticks):
        policy.step_array(readings_of(tick).astype(np.float32), tuple(CHANNELS))
        moved.append(policy.monitor_report.moved)
        permuted += bool((policy.monitor.assignment.outputs != np.arange(5)).any())
    return policy, moved, permuted


@pytest.mark.parametrize(
    "readings_of",
    [
        lambda tick: STARTS + BETWEEN * tick,
        lambda tick: STARTS + SPEEDS * min(tick, 150) + BETWEEN * max(0, tick - 150),
        lambda tick: STARTS + 1.5 * SPEEDS * tick,
        lambda tick: STARTS + 2.3 * SPEEDS * tick,
        lambda tick: waves(tick) + np.random.default_rng(tick).normal(0.0, 0.1, 5),
    ],
)
def test_a_robot_that_moves_otherwise_than_the_model_expects_gets_no_signal_moved(readings_of):
    policy, moved, permuted = played(readings_of)
    assert not any(moved) and not permuted
    assert "nats a tick" in policy.monitor_report.misfit


@pytest.mark.parametrize("slow", [slice(None), slice(0, 3), slice(3, 5)])
def test_a_robot_whose_sensors_are_slower_than_the_policy_gets_no_signal_moved(slow):
    def half_rate(tick):
        readings = waves(tick)
        readings[slow] = waves(tick - tick % 2)[slow]
        return readings

    policy, moved, permuted = played(half_rate)
    assert not any(moved) and not permuted
    assert f"the sensors of {CHANNELS[slow][0]}" in policy.monitor_report.misfit


@pytest.mark.parametrize(("change", "slow"), [(1.2e-7, []), (1e-3, [0])])
def test_a_reading_of_a_robot_at_rest_that_changes_by_rounding_is_not_of_a_slow_sensor(
    change, slow
):
    fit = RobotFitEstimator(FitLimits(10.0, 24.0, 0), 2, np.zeros(0, np.float32))
    before = np.zeros(2, np.float32)
    for tick in range(1000):
        readings = np.array([0.3 + change * (tick // 3 % 2), np.sin(tick)], np.float32)
        fit.update_slow_sensors(readings == before, readings, readings)
        before = readings
    assert fit.slow.tolist() == slow


def test_a_signal_that_moves_on_a_robot_that_was_seen_to_fit_is_found_at_that_tick():
    at = MONITOR.fit.seen_ticks + 50
    policy, moved, _ = played(lambda tick: waves(tick)[list(TURNED if tick >= at else STRAIGHT)])
    assert not any(moved[:at]) and moved[at] == moved[-1]
    assert moved[at] == {CHANNELS[slot]: CHANNELS[one] for slot, one in enumerate(TURNED)}
    assert policy.monitor_report.misfit == ""


def test_signals_that_were_moved_from_the_start_are_found_where_the_model_explains_them_so():
    _, moved, _ = played(lambda tick: waves(tick)[list(TURNED)])
    assert moved[-1] == {CHANNELS[slot]: CHANNELS[one] for slot, one in enumerate(TURNED)}


def test_a_robot_that_fits_again_has_its_moves_found_again():
    def readings_of(tick):
        order = list(TURNED if tick >= 500 else STRAIGHT)
        return (STARTS + 1.5 * SPEEDS * tick if tick < 150 else waves(tick))[order]

    policy, moved, _ = played(readings_of, 560)
    assert not any(moved[:500]) and policy.monitor_report.misfit == ""
    assert moved[-1] == {CHANNELS[slot]: CHANNELS[one] for slot, one in enumerate(TURNED)}


def test_the_robot_fits_only_after_its_readings_were_explained_for_a_while():
    fit = RobotFitEstimator(FitLimits(10.0, 24.0, 0), 3, np.zeros(0, np.float32))
    for _ in range(MONITOR.fit.seen_ticks - 1):
        fit.update_fit_from_excess_nll(5.0, assignment_known=True)
    cautious = fit.min_replacement_gain
    assert fit.model_fits_robot is None
    fit.update_fit_from_excess_nll(5.0, assignment_known=True)
    assert fit.model_fits_robot and fit.limits.min_gain == fit.min_replacement_gain < cautious
    for _ in range(50):
        fit.update_fit_from_excess_nll(100.0, assignment_known=True)
    assert fit.model_fits_robot is False


def test_a_monitor_that_failed_its_validation_is_off_unless_it_is_asked_for(tmp_path):
    for failed in ({"false_moves_hour": 12.0}, {"found": 0.3}):
        path = tmp_path / "model.safetensors"
        write_model(path, validated(monitored_model(), **failed))
        model = read_model(path)
        assert (
            resolve_monitor_setting(model, None) == "off"
            and resolve_monitor_setting(model, "match") == "match"
        )
        assert not isinstance(load_policy(path), MonitoredPolicy)
        assert isinstance(load_policy(path, "match"), MonitoredPolicy)
        warning = model.monitor_default_off_reason
        assert warning.startswith("the monitor is off: ") and "train-monitor" in warning
        assert ("12 wrong moves an hour" in warning) or ("30% of the signals" in warning)
        assert "\n" not in warning


def test_a_monitor_that_passed_or_was_never_validated_watches(tmp_path):
    for model in (validated(monitored_model()), monitored_model()):
        path = tmp_path / "model.safetensors"
        write_model(path, model)
        assert read_model(path).forward == model.forward
        assert isinstance(load_policy(path), MonitoredPolicy)
        assert model.monitor_default_off_reason == ""


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("found", 1.5),
        ("found", "most"),
        ("ticks", 2.5),
        ("slow", -1),
        ("max_excess", 1e9),
        ("false_moves_hour", True),
    ],
)
def test_a_validation_with_an_impossible_number_is_refused_by_name(key, value, tmp_path):
    with pytest.raises(ModelError, match=f"forward.validation.{key}"):
        write_model(tmp_path / "m.safetensors", validated(monitored_model(), **{key: value}))


def test_a_validation_that_lacks_a_number_is_refused(tmp_path):
    model = monitored_model()
    model = replace(model, forward=replace(model.forward, validation={"found": 1.0}))
    with pytest.raises((ModelError, TypeError), match="validation"):
        write_model(tmp_path / "m.safetensors", model)


def candidates(moved, others, ticks):
    """The nominal assignment of twelve channels, and one that turns the first three of them.

    moved, others: nats that the readings of these three, and of the others, cost under each.
    """
    nominal, count = np.arange(12), 3
    turned = np.concatenate([np.roll(nominal[:count], 1), nominal[count:]])
    for slots, own, rest in zip((nominal, turned), moved, others, strict=True):
        excess = np.repeat([own / count, rest / (12 - count)], [count, 12 - count])
        yield CandidateAssignment(slots, np.zeros((12, 12)), own + rest, excess, ticks)


@pytest.mark.parametrize(
    ("moved", "others", "ticks", "believed"),
    [
        ((80.0, 55.0), (310.0, 250.0), 2, False),
        ((185.0, 88.0), (715.0, 438.0), 7, False),
        ((80.0, 15.0), (310.0, 250.0), 2, True),
        ((421.0, 123.0), (4900.0, 800.0), 14, True),
        ((100.0, 95.0), (4900.0, 800.0), 14, False),
        ((85.0, 3.0), (34.0, 81.0), 8, False),
    ],
    ids=[
        "just after a hit",
        "after a hit",
        "a swap",
        "a swap that was found late",
        "others'",
        "alike",
    ],
)
def test_a_move_must_explain_its_own_channels_and_leave_little_or_explain_the_others_too(
    moved, others, ticks, believed
):
    """As the Ant's, of three velocities whose readings cost so many nats before and after it."""
    fit = RobotFitEstimator(FitLimits(80.0, 24.0, 0), 12, np.zeros(0, np.float32))
    assert fit.does_move_explain_readings(*candidates(moved, others, ticks)) is believed


@pytest.mark.parametrize(
    ("moved", "others", "ticks", "believed"),
    [
        ((53.4, 10.8), (51.6, 53.2), 8, False),
        ((44.3, 6.3), (48.7, 27.7), 1, False),
        ((200.0, 10.0), (40.0, 20.0), 2, True),
    ],
    ids=["two alike that seem to swap", "three that explain a little better", "a swap"],
)
def test_a_robot_that_is_explained_otherwise_than_usual_needs_clearer_moves(
    moved, others, ticks, believed
):
    """The first two as of a cheetah whose motors lag, where nothing had moved."""
    first, other = candidates(moved, others, ticks)
    fit = RobotFitEstimator(FitLimits(80.0, 24.0, 0), 12, np.zeros(0, np.float32))
    assert fit.does_move_explain_readings(first, other)
    for _ in range(60):
        fit.update_fit_from_excess_nll(24.0, assignment_known=True)
    assert fit.does_move_explain_readings(first, other) is believed
