"""Readings that no assignment explains: the search of a tick has an end, and finds again after."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waves import CHANNELS, STRAIGHT, TURNED, monitored_model, telling_apart, waves

from an_control import load_policy
from an_control.load import make_policy
from an_control.monitor.evidence import SearchTimeBudget
from an_control.monitor.forward_model import ForwardModel, get_channel_ranges_in_training
from an_control.monitor.settings import MONITOR
from an_control.system.share import find_share_path

ANT = find_share_path("models/ant.safetensors")
REST_S = 4e-4
"""What a tick must do in any case, and what it finishes after its budget is spent."""


@pytest.fixture(scope="module")
def ant():
    """The shipped Ant with its monitor."""
    return load_policy(ANT)


def held(rng, low, high, ticks):
    """A pose that no robot takes, with the noise of its sensors: on a stand, or carried."""
    return rng.uniform(low, high) + 0.003 * rng.standard_normal((ticks, len(low)))


def swinging(rng, low, high, ticks):
    """Every channel by itself, at a speed of its own: on its side, with its legs in the air."""
    speed, start = rng.uniform(0.02, 0.3, len(low)), rng.uniform(0.0, 6.0, len(low))
    return low + (high - low) * (0.5 + 0.4 * np.sin(np.arange(ticks)[:, None] * speed + start))


def drawn(rng, low, high, ticks):
    """Anything that the channels read in training."""
    return rng.uniform(low, high, (ticks, len(low)))


KINDS = (held, swinging, drawn)
EPISODES = st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 60)), min_size=1, max_size=4)


def impossible(policy, episode, seed):
    """Readings (T, N) of an episode that is made of these kinds for so many ticks each."""
    rng, ranges = np.random.default_rng(seed), get_channel_ranges_in_training(policy.model)
    low, high = np.array([ranges[name] for name in policy.nominal_ids]).T
    return np.concatenate([kind(rng, low, high, ticks) for kind, ticks in episode])


def play(policy, readings, before_tick=lambda tick: None):
    """What each tick's search has counted (T,), and the actions (T, A)."""
    budget, spent, actions = policy.monitor._budget, [], []
    next_tick = type(budget).reset_for_tick.__get__(budget)

    def counted(*, model_fits):
        spent.append(budget.spent_s)
        next_tick(model_fits=model_fits)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "reset_for_tick", counted)
        policy.reset()
        for tick, values in enumerate(readings):
            before_tick(tick)
            actions.append(policy.step_array(values, policy.nominal_ids))
    return np.array(spent), np.array(actions)


@settings(deadline=None, max_examples=25)
@given(episode=EPISODES, seed=st.integers(0, 10_000))
def test_a_tick_computes_no_more_than_its_budget_and_what_it_must(ant, episode, seed):
    spent, _ = play(ant, impossible(ant, episode, seed))
    step_s = ant.model.task.step_s
    assert spent.max() <= MONITOR.budget.share * step_s + REST_S


def test_a_tick_computes_less_on_a_robot_that_the_model_does_not_fit(ant):
    fits, step_s = [], ant.model.task.step_s
    readings = impossible(ant, [(drawn, 400)], seed=2)
    spent, _ = play(ant, readings, lambda tick: fits.append(ant.monitor.fit.model_fits_robot))
    unfit = np.array([one is False for one in fits])
    for_long = unfit[1:] & unfit[:-1]
    assert for_long.sum() > 100
    assert 0.0 < spent[2:][for_long].max() <= MONITOR.budget.unfit_share * step_s + REST_S


@settings(deadline=None, max_examples=10)
@given(episode=EPISODES, seed=st.integers(0, 10_000))
def test_nothing_is_predicted_that_the_budget_does_not_count(ant, episode, seed):
    rows, predict, budget = [], ForwardModel.predict_changes, ant.monitor._budget

    def counted(self, readings, actions):
        rows.append(int(np.prod(readings.shape[:-1])))
        return predict(self, readings, actions)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ForwardModel, "predict_changes", counted)
        spent, _ = play(ant, impossible(ant, episode, seed))
    searched = [one for one in rows if one > 1]
    assert sum(searched) * budget._row_s <= 2.0 * spent.sum()


@pytest.mark.parametrize("kind", KINDS)
def test_where_the_budget_is_spent_every_run_has_the_same_bits(ant, kind):
    """In any order of the channels, and whether or not work is done ahead of the tick."""
    readings = impossible(ant, [(kind, 150)], seed=4)
    spent, actions = play(ant, readings)
    assert (spent > 0.9 * MONITOR.budget.share * ant.model.task.step_s).any()
    _, again = play(ant, readings, lambda tick: ant.prepare_next_tick() if tick % 3 else None)
    assert again.tobytes() == actions.tobytes()
    order = np.random.default_rng(0).permutation(len(ant.nominal_ids))
    ids = tuple(ant.nominal_ids[channel] for channel in order)
    ant.reset()
    permuted = [ant.step_array(values[order], ids) for values in readings]
    assert np.array(permuted).tobytes() == actions.tobytes()


@pytest.mark.parametrize("ticks", [5, 50, 500])
@pytest.mark.parametrize("order", [STRAIGHT, TURNED])
def test_signals_are_found_again_after_readings_that_nothing_explains(ticks, order):
    policy = make_policy(telling_apart(monitored_model()), "match")
    rng, ids = np.random.default_rng(ticks), tuple(CHANNELS)
    for tick in range(40):
        policy.step_array(waves(tick), ids)
    for values in rng.uniform(-5.0, 25.0, (ticks, 5)):
        policy.step_array(values, ids)
    for tick in range(40):
        policy.step_array(waves(tick)[list(order)], ids)
    expected = {CHANNELS[slot]: CHANNELS[place] for slot, place in enumerate(order)}
    assert policy.monitor.channel_by_rewired_slot == {a: b for a, b in expected.items() if a != b}


def test_a_search_that_the_budget_stops_continues_at_the_next_ticks():
    """With a budget of one assignment a tick it is found all the same."""
    model = telling_apart(monitored_model())
    model = replace(model, task=replace(model.task, step_s=0.0005))
    policy, ids = make_policy(model, "match"), tuple(CHANNELS)
    for tick in range(40):
        policy.step_array(waves(tick), ids)
    for values in np.random.default_rng(1).uniform(-5.0, 25.0, (60, 5)):
        policy.step_array(values, ids)
    for tick in range(300):
        policy.step_array(waves(tick)[list(TURNED)], ids)
        if len(policy.monitor.channel_by_rewired_slot) == 5:
            break
    assert [
        CHANNELS.index(policy.monitor.channel_by_rewired_slot[name]) for name in CHANNELS
    ] == list(TURNED)


def test_a_tick_may_compute_what_is_left_of_its_budget_and_the_next_one_all_again():
    model = monitored_model()
    model = replace(model, task=replace(model.task, step_s=1.0))
    forward = ForwardModel(model)
    budget = SearchTimeBudget(forward)
    whole = budget.count_affordable_comparisons(4)
    assert whole > 100
    budget.subtract_time_of_evaluations(4 * whole)
    assert budget.count_affordable_comparisons(4) == 0
    budget.reset_for_tick(model_fits=True)
    budget.subtract_time_of_evaluations(2 * whole)
    left_s = MONITOR.budget.share * forward.step_s - budget.spent_s
    count = budget.count_affordable_comparisons(4)
    budget.subtract_time_of_evaluations(4 * count)
    assert count and budget.count_affordable_comparisons(0.01) == 0 < left_s
    budget.subtract_time_of_evaluations(1e9)
    assert budget.count_affordable_comparisons(4) == 0
