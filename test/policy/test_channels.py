"""Channels come and go: state belongs to an id, and what is not a sound reading is absent."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from an_control.load import make_policy
from an_control.policy import AttentionSizes
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control_sim.envs.tasks import ANT_SIZES

IDS = tuple(f"channel_{i}" for i in range(7))


def readings(tick, channels=7):
    return np.random.default_rng(tick).standard_normal(channels).astype(np.float32)


@pytest.fixture(params=[0, 3])
def policy(request, engine):
    """The authors' Ant, and the same with stacked readings."""
    model = make_random_model(replace(ANT_SIZES, stack=request.param), seed=5)
    return make_policy(model, engine=engine, keep_ticks=3)


def key_of(policy, channel):
    return policy.keys[policy.channel_order.index(channel)].tolist()


def ticks(policy, start, count, ids=IDS):
    for tick in range(start, start + count):
        policy.step_array(readings(tick)[: len(ids)], ids)


def test_a_channel_that_comes_back_in_time_finds_its_state(policy):
    """Absent for exactly `keep_ticks` ticks; its neuron goes on from where it stood."""
    ticks(policy, 0, 5)
    kept = policy.keys[policy.channel_order.index(IDS[6])]
    ticks(policy, 5, 3, IDS[:6])
    assert IDS[6] not in policy.channel_order
    action = policy.previous_action
    policy.step_array(readings(8), IDS)
    returned = key_of(policy, IDS[6])

    alone = make_policy(policy.model, engine=policy.engine)
    ticks(alone, 0, 5)
    assert (alone.keys[6] == kept).all()
    alone.previous_action = action
    alone.step_array(readings(8), IDS)
    assert key_of(alone, IDS[6]) == returned


def test_a_channel_that_stays_away_too_long_starts_at_zero(policy):
    ticks(policy, 0, 5)
    ticks(policy, 5, 4, IDS[:6])
    action = policy.previous_action
    policy.step_array(readings(9), IDS)

    fresh = make_policy(policy.model, engine=policy.engine)
    fresh.previous_action = action
    fresh.step_array(readings(9)[6:], IDS[6:])
    assert key_of(policy, IDS[6]) == key_of(fresh, IDS[6])


def test_an_absent_channel_is_left_out_of_the_sum(policy):
    """The same as a policy that never had it, when neither has a past."""
    action = policy.step_array(np.array([0.3, np.nan, -0.7]), ("a", "b", "c"))
    other = make_policy(policy.model, engine=policy.engine)
    np.testing.assert_array_equal(action, other.step_array(np.array([0.3, -0.7]), ("a", "c")))
    assert policy.channel_order == ("a", "c")


@pytest.mark.parametrize("broken", [np.nan, np.inf, -np.inf, 1e30, -1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_reading_that_is_not_finite_or_beyond_sense_counts_as_absent(policy, broken, dtype):
    other = make_policy(policy.model, engine=policy.engine, keep_ticks=3)
    for tick in range(12):
        values = readings(tick).astype(dtype)
        there = IDS
        if tick in (3, 4, 9):
            values[2] = broken
            there = IDS[:2] + IDS[3:]
        action = policy.step_array(values, IDS)
        kept = np.array([values[IDS.index(name)] for name in there])
        np.testing.assert_array_equal(action, other.step_array(kept, there))
        assert np.isfinite(action).all()


def test_channels_that_are_dropped_leave_no_trace_in_the_others(policy):
    """A crowd passes through; the actions are those of a policy that never met it, then."""
    ticks(policy, 0, 2)
    for tick in range(20):
        crowd = tuple(f"visitor_{tick}_{i}" for i in range(5))
        policy.step_array(np.concatenate([readings(tick), np.ones(5)]), IDS + crowd)
    action = policy.previous_action
    keys = dict(zip(policy.channel_order, policy.keys.tolist(), strict=True))
    ticks(policy, 20, 5)
    assert len(policy._column) == 7, "the visitors' state was dropped"
    assert set(policy.channel_order) == set(IDS)
    assert np.isfinite(action).all() and len(keys) == 12


def test_without_channels_the_action_is_finite_and_nothing_is_lost(policy):
    ticks(policy, 0, 3)
    assert np.isfinite(policy.step({})).all()
    assert np.isfinite(policy.step_array(np.full(7, np.nan), IDS)).all()
    assert policy.attention.shape == (32, 0)
    action = policy.previous_action
    other = make_policy(policy.model, engine=policy.engine)
    ticks(other, 0, 3)
    other.previous_action = action
    np.testing.assert_array_equal(
        policy.step_array(readings(3), IDS), other.step_array(readings(3), IDS)
    )


def test_an_id_given_twice_is_refused_and_changes_nothing(policy):
    """It once left columns behind that the engine did not have."""
    other = make_policy(policy.model, engine=policy.engine)
    for tick in range(4):
        with pytest.raises(ValueError, match="'new' is given twice"):
            policy.step_array(np.zeros(3), ("new", "b", "new"))
        np.testing.assert_array_equal(
            policy.step_array(readings(tick), IDS), other.step_array(readings(tick), IDS)
        )


@pytest.mark.parametrize("values", [np.zeros(6), np.zeros((7, 1)), np.zeros((1, 7)), np.float64(1)])
def test_values_that_do_not_match_the_ids_are_refused(policy, values):
    with pytest.raises(ValueError, match="for 7 ids"):
        policy.step_array(values, IDS)


@pytest.mark.parametrize("values", [["a"], [None], [1j], ["1.0"]])
def test_values_that_are_no_real_numbers_are_refused(policy, values):
    with pytest.raises(TypeError):
        policy.step_array(np.array(values), ("a",))


@pytest.mark.parametrize(
    "dtype", [np.float64, np.float16, np.int64, np.int8, np.uint8, np.int32, bool, ">f4"]
)
def test_every_kind_of_number_gives_the_same_action(policy, dtype):
    values = np.array([0, 1, 1, 0, 1, 0, 0])
    other = make_policy(policy.model, engine=policy.engine)
    for _ in range(3):
        expected = other.step_array(values.astype(np.float32), IDS)
        np.testing.assert_array_equal(policy.step_array(values.astype(dtype), IDS), expected)


def test_whole_numbers_whose_squares_overflow_are_large_readings(policy):
    """They once passed for ordinary ones, and the sum was no longer exact."""
    values = np.array([2**32, 3, -(2**62), 5, 2**40 + 1, 7, 1])
    order = np.array([4, 2, 6, 0, 1, 5, 3])
    other = make_policy(policy.model, engine=policy.engine)
    for _ in range(3):
        action = policy.step_array(values, IDS)
        np.testing.assert_array_equal(action, other.step_array(values[order], IDS))
        np.testing.assert_array_equal(policy.attention_message, other.attention_message)


def test_lists_tuples_and_mappings_are_taken_alike(policy):
    other = make_policy(policy.model, engine=policy.engine)
    third = make_policy(policy.model, engine=policy.engine)
    for tick in range(4):
        values = readings(tick)
        action = policy.step_array(values, IDS)
        np.testing.assert_array_equal(action, other.step_array(values.tolist(), list(IDS)))
        reading = dict(zip(IDS, values.tolist(), strict=True))
        np.testing.assert_array_equal(action, third.step(dict(reversed(reading.items()))))


def test_the_callers_arrays_are_neither_kept_nor_changed(model, engine):
    """A float32 array that its owner fills anew once became the channels' last values."""
    policy, other = make_policy(model, engine=engine), make_policy(model, engine=engine)
    buffer = np.zeros(7, np.float32)
    for tick in range(5):
        buffer[:] = readings(tick)
        action = policy.step_array(buffer, IDS)
        np.testing.assert_array_equal(buffer, readings(tick))
        np.testing.assert_array_equal(action, other.step_array(readings(tick), IDS))
        action[:] = 9.0
        assert (np.abs(policy.previous_action) <= 1.0).all()


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_no_readings_give_an_action_that_is_not_finite(data, permutable):
    policy = data.draw(st.sampled_from(permutable))
    policy.reset()
    for _ in range(data.draw(st.integers(1, 5))):
        given_ids = data.draw(st.lists(st.sampled_from(IDS), unique=True))
        values = [data.draw(st.floats() | st.sampled_from([1e18, -1e18])) for _ in given_ids]
        action = policy.step_array(np.array(values, np.float64), tuple(given_ids))
        assert action.dtype == np.float32 and action.shape == (policy.model.sizes.actions,)
        assert (np.abs(action) <= 1.0).all()


def test_attention_message_and_keys_can_be_asked_for(model, engine):
    policy = make_policy(model, engine=engine)
    ids = ("b", "a", "c")
    values = np.array([0.5, -1.0, 2.0])
    policy.step_array(values, ids)
    shown = ("c", "b", "a")
    policy.step_array(np.array([2.0, 0.5, -1.0]), shown)
    assert sorted(policy.channel_order) == sorted(shown)
    by_id = dict(zip(shown, (2.0, 0.5, -1.0), strict=True))
    ordered = np.array([by_id[name] for name in policy.channel_order])
    pulled = policy.attention @ ordered
    normalise = model.sizes.normalise
    message = np.tanh(pulled * normalise / 3 if normalise else pulled)
    if model.sizes.attention == "softmax":
        assert policy.attention.shape == (model.sizes.queries - 1, 3)
        mass = policy.attention.sum(axis=1)
        if normalise:
            pulled, mass = pulled / np.maximum(mass, 1.0), np.minimum(mass, 1.0)
        message = np.concatenate([pulled, mass - 1.0])
    np.testing.assert_allclose(policy.attention_message, message, atol=2e-6)

    arrays = model.arrays
    scores = arrays["attention.queries"] @ policy.keys.T
    expected = np.tanh(scores)
    if model.sizes.attention == "softmax":
        weights = np.exp(scores - scores.max(axis=0))
        expected = (weights / weights.sum(axis=0))[:-1]
    if not model.sizes.memory:  # else see test_memory
        np.testing.assert_allclose(policy.attention, expected, atol=2e-6)


def test_reset_forgets_everything(policy):
    first = [policy.step_array(readings(tick), IDS) for tick in range(4)]
    policy.step_array(readings(4)[:3], IDS[:3])
    policy.reset()
    assert policy.channel_order == () and not policy.previous_action.any()
    again = [policy.step_array(readings(tick), IDS) for tick in range(4)]
    np.testing.assert_array_equal(first, again)


def test_the_previous_action_can_be_set_to_actions_only(policy):
    policy.previous_action = np.full(8, -1.0)
    assert (policy.previous_action == -1.0).all()
    for wrong in (np.zeros(7), np.full(8, 1.5), np.full(8, np.nan), 0.0):
        with pytest.raises(ValueError, match="previous action"):
            policy.previous_action = wrong


def test_the_state_waits_one_second_of_the_tasks_steps():
    model = make_random_model(ANT_SIZES, task=Task(step_s=0.02))
    assert make_policy(model, engine="numpy").keep_ticks == 50
    with pytest.raises(ValueError, match="keep_ticks: -1"):
        make_policy(model, engine="numpy", keep_ticks=-1)


def test_a_stacked_neuron_sees_its_k_newest_readings_and_nothing_else(engine):
    """Two episodes that differ, until the last k readings and the last action are the same."""
    sizes = AttentionSizes(1, 8, 16, 32, ["value"], [], stack=3)
    policy = make_policy(make_random_model(sizes, seed=2, gain=2.0), engine=engine)
    rng, ids = np.random.default_rng(0), ("a", "b", "c")
    newest = rng.standard_normal((3, 3))
    acted = []
    for steps in (0, 1, 20):
        policy.reset()
        for readings in [*rng.standard_normal((steps, 3)), *newest]:
            policy.previous_action = np.zeros(1, np.float32)
            action = policy.step_array(readings, ids)
        acted.append(action.tobytes())
    assert len(set(acted)) == 1


def test_a_stacked_neurons_first_reading_stands_for_those_before_it(engine):
    sizes = AttentionSizes(1, 8, 16, 32, ["value"], [], stack=3)
    policy = make_policy(make_random_model(sizes, seed=2, gain=2.0), engine=engine)
    first = policy.step({"a": 0.3, "b": -0.8})
    for _ in range(5):
        policy.previous_action = np.zeros(1, np.float32)
        assert policy.step({"a": 0.3, "b": -0.8}).tobytes() == first.tobytes()


def test_a_neuron_goes_on_under_another_id_and_starts_anew_where_it_is_to_forget(policy):
    ticks(policy, 0, 5)
    other, first = dict(zip(IDS, IDS[1:] + IDS[:1], strict=True)), key_of(policy, IDS[0])
    policy.rename_channels(other)
    assert key_of(policy, IDS[1]) == first
    policy.reset_channels(IDS[:1])
    policy.previous_action = np.zeros(8, np.float32)
    policy.step_array(readings(5), IDS)
    kept, anew = key_of(policy, IDS[1]), key_of(policy, IDS[0])
    policy.reset()
    policy.step_array(readings(5), IDS)
    assert key_of(policy, IDS[0]) == anew and key_of(policy, IDS[1]) != kept
