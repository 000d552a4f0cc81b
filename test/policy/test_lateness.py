"""The monitor finds out by how many ticks readings are late, and predicts the present from them."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from an_control.monitor.costs import CostCalculator
from an_control.monitor.forward_model import ChangePrediction, ExpectedReadings
from an_control.monitor.sensor_delay import SensorDelayEstimator
from an_control.monitor.settings import MONITOR

CHANNELS, ACTIONS, SD = 6, 2, 0.01
PULL = np.random.default_rng(0).normal(size=(ACTIONS, CHANNELS)).astype(np.float32)


class Pulled:
    """A forward model of channels that actions pull, and that else come to rest."""

    actions = ACTIONS
    binary = constant = np.zeros(CHANNELS, bool)
    usual_costs = np.zeros(CHANNELS, np.float32)

    def predict_changes(self, readings, actions):
        change = -0.2 * readings + 0.1 * actions @ PULL
        return ChangePrediction(change, np.full_like(change, SD), np.zeros_like(change))

    def compute_expected_readings(self, signals, action):
        prediction = self.predict_changes(signals[None], action[None])
        expected = signals + prediction.change[0]
        return ExpectedReadings(signals, action, prediction, expected, expected)


def late_robot(delays, noise=SD / 2, actions=None, seed=1):
    """For each tick how late its readings are taken to be, and how far its prediction of the
    present is from the truth; `delays` (T,) says how late they are."""
    rng = np.random.default_rng(seed)
    forward = Pulled()
    lateness = SensorDelayEstimator(forward, CostCalculator(forward))
    states = [np.zeros(CHANNELS, np.float32)]
    action, before, found = np.zeros(ACTIONS, np.float32), None, []
    for tick, delay in enumerate(delays):
        followed = lateness.store_and_get_delayed_action(action)
        seen = states[max(0, tick - delay)] + noise * rng.normal(size=CHANNELS).astype(np.float32)
        if before is not None:
            lateness.store_tick_for_trying_delays(
                forward.compute_expected_readings(before, followed), seen
            )
            lateness.try_another_delay_on_stored_tick()
        error = np.abs(lateness.predict_undelayed_signals(seen) - states[-1]).max()
        found.append(SimpleNamespace(ticks=lateness.ticks, error=error))
        before = seen
        action = rng.uniform(-1, 1, ACTIONS) if actions is None else actions[tick]
        action = np.asarray(action, np.float32)
        states.append(forward.compute_expected_readings(states[-1], action).expected)
    return found


@pytest.mark.parametrize("delay", range(1, MONITOR.delay.max_ticks + 1))
def test_a_delay_is_found_and_the_present_is_predicted(delay):
    found = late_robot([delay] * 100)
    assert [one.ticks for one in found[-60:]] == [delay] * 60
    assert max(one.error for one in found[-60:]) < 4 * SD


@given(st.integers(0, 2**31))
def test_in_time_nothing_is_predicted(seed):
    assert {one.ticks for one in late_robot([0] * 200, seed=seed)} == {0}


def test_a_delay_that_sets_in_changes_and_ends_is_followed():
    found = late_robot([0] * 100 + [2] * 100 + [1] * 100 + [0] * 100)
    assert [found[end - 1].ticks for end in (100, 200, 300, 400)] == [0, 2, 1, 0]


def test_while_the_action_stays_the_same_nothing_can_be_told():
    still = np.full((200, ACTIONS), 0.5)
    assert {one.ticks for one in late_robot([2] * 200, actions=still)} == {0}


def test_where_the_model_is_wrong_by_every_action_no_delay_is_found():
    assert {one.ticks for one in late_robot([0] * 500, noise=4 * SD)} == {0}


def test_what_is_missing_says_nothing():
    forward = Pulled()
    lateness = SensorDelayEstimator(forward, CostCalculator(forward))
    missing = np.full(CHANNELS, np.nan, np.float32)
    for tick in range(100):
        followed = lateness.store_and_get_delayed_action(np.full(ACTIONS, tick % 2, np.float32))
        lateness.store_tick_for_trying_delays(
            forward.compute_expected_readings(np.zeros(CHANNELS, np.float32), followed), missing
        )
        lateness.try_another_delay_on_stored_tick()
    assert lateness.ticks == 0


def test_what_follows_is_what_the_next_tick_asks_for():
    lateness = SensorDelayEstimator(Pulled(), CostCalculator(Pulled()))
    actions = np.arange(12, dtype=np.float32).reshape(6, ACTIONS)
    for late in range(MONITOR.delay.max_ticks + 1):
        lateness.ticks = late
        for action in actions:
            following = lateness.get_action_that_next_readings_follow(action)
            assert lateness.store_and_get_delayed_action(action) is following
