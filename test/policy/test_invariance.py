"""The order of the channels does not change one bit of the action, however they are permuted."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from an_control.load import make_policy
from an_control.policy import AttentionSizes
from an_control.policy.random_model import make_random_model
from an_control_sim.envs.tasks import ANT_SIZES

TICKS = 6


def readings(channels, ticks=TICKS, seed=0):
    """Readings (T, N) of very different sizes, so that the order of a plain sum would show."""
    rng = np.random.default_rng(seed)
    scale = 10.0 ** rng.uniform(-3, 1.5, channels)
    return (rng.standard_normal((ticks, channels)) * scale).astype(np.float32)


def names(channels):
    return tuple(f"channel_{i}" for i in range(channels))


def play(policy, sequence, wiring):
    """The action bytes of an episode; `wiring(tick)` gives the order of readings and the ids."""
    policy.reset()
    actions = []
    for tick, values in enumerate(sequence):
        order, ids = wiring(tick)
        actions.append(policy.step_array(values[order], ids).tobytes())
    return actions


@pytest.mark.parametrize("channels", [1, 2, 7, 28, 33])
def test_a_permutation_that_ids_follow_or_not_changes_no_bit(model, engine, channels):
    policy = make_policy(model, engine=engine)
    sequence, ids = readings(channels), names(channels)
    expected = play(policy, sequence, lambda tick: (slice(None), ids))
    rng = np.random.default_rng(channels)
    for _ in range(12):
        order = rng.permutation(channels)
        carried = tuple(ids[i] for i in order)
        assert play(policy, sequence, lambda tick, o=order, c=carried: (o, c)) == expected
        assert play(policy, sequence, lambda tick, o=order: (o, ids)) == expected


def test_a_thousand_permutations_at_the_start_change_no_bit(engine):
    """The content is permuted behind the same ids: nobody tells the policy (paper, section 4)."""
    policy = make_policy(make_random_model(ANT_SIZES), engine=engine)
    sequence, ids = readings(28), names(28)
    expected = play(policy, sequence, lambda tick: (slice(None), ids))
    rng = np.random.default_rng(1)
    for _ in range(1000):
        order = rng.permutation(28)
        assert play(policy, sequence, lambda tick, order=order: (order, ids)) == expected


def test_a_new_permutation_at_every_tick_changes_no_bit_when_ids_are_carried(model, engine):
    policy = make_policy(model, engine=engine)
    sequence, ids = readings(28, ticks=60), names(28)
    expected = play(policy, sequence, lambda tick: (slice(None), ids))
    rng = np.random.default_rng(2)
    orders = [rng.permutation(28) for _ in sequence]
    carried = [tuple(ids[i] for i in order) for order in orders]
    assert play(policy, sequence, lambda tick: (orders[tick], carried[tick])) == expected


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_permutation_of_any_readings_changes_no_bit(data, permutable):
    """Also with readings too large for the ordinary grid, zeros of both signs, and many alike."""
    policy = data.draw(st.sampled_from(permutable))
    channels = data.draw(st.integers(1, 40))
    number = st.floats(width=32, allow_nan=True, allow_infinity=True) | st.sampled_from(
        [0.0, -0.0, 1.0, 1e-30, 1023.0, 1025.0, 1e17, -1e18]
    )
    sequence = np.array(
        data.draw(
            st.lists(st.lists(number, min_size=channels, max_size=channels), min_size=1, max_size=4)
        ),
        np.float32,
    )
    order = np.array(data.draw(st.permutations(range(channels))))
    ids = names(channels)
    expected = play(policy, sequence, lambda tick: (slice(None), ids))
    carried = tuple(ids[i] for i in order)
    assert play(policy, sequence, lambda tick: (order, carried)) == expected
    assert play(policy, sequence, lambda tick: (order, ids)) == expected
    assert all(np.isfinite(np.frombuffer(action, np.float32)).all() for action in expected)


@pytest.mark.parametrize("channels", [1000, 5000])
def test_thousands_of_channels_permute_without_changing_a_bit(engine, channels):
    """Enough for a matrix product to be cut into blocks."""
    policy = make_policy(make_random_model(ANT_SIZES, seed=3), engine=engine)
    sequence, ids = readings(channels, ticks=3), names(channels)
    expected = play(policy, sequence, lambda tick: (slice(None), ids))
    rng = np.random.default_rng(4)
    for _ in range(3):
        order = rng.permutation(channels)
        carried = tuple(ids[i] for i in order)
        assert play(policy, sequence, lambda tick, o=order, c=carried: (o, c)) == expected
        assert play(policy, sequence, lambda tick, o=order: (o, ids)) == expected


def test_the_other_channels_do_not_change_a_channels_key_and_attention(model, engine):
    policy = make_policy(model, engine=engine)
    sequence, ids = readings(28, ticks=1), names(28)
    policy.step_array(sequence[0], ids)
    keys, attention = policy.keys, policy.attention
    for i in range(28):
        policy.reset()
        policy.step_array(sequence[0, i : i + 1], ids[i : i + 1])
        np.testing.assert_array_equal(policy.keys[0], keys[i])
        np.testing.assert_array_equal(policy.attention[:, 0], attention[:, i])


NOMINAL = 6


@pytest.mark.parametrize("stack", [0, 3])
@settings(
    max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32 - 1), times=st.integers(2, 6))
def test_a_normalised_message_is_the_same_with_every_channel_doubled(stack, engine, seed, times):
    """To rounding; with the nominal channels to the last bit that of the policy as it was."""
    rng = np.random.default_rng(seed)
    sizes = AttentionSizes(2, 8, 9, 5, ["value"], [5], stack=stack)
    plain = make_random_model(sizes, seed=seed, gain=2.0)
    policies = [
        make_policy(model, engine=engine)
        for model in (plain, plain.copy_with_normalised_channel_sums(NOMINAL))
    ] + [make_policy(plain.copy_with_normalised_channel_sums(NOMINAL), engine=engine)]
    ids = names(NOMINAL)
    many = tuple(f"{name}.{copy}" for copy in range(times) for name in ids)
    for values in rng.standard_normal((5, NOMINAL)).astype(np.float32):
        as_it_was, normalised = (policy.step_array(values, ids) for policy in policies[:2])
        assert normalised.tobytes() == as_it_was.tobytes()
        policies[2].step_array(np.tile(values, times), many)
        np.testing.assert_allclose(
            policies[2].attention_message, policies[1].attention_message, atol=1e-6
        )
        policies[2].previous_action = normalised


def test_a_normalised_softmax_message_has_no_more_than_one_of_each_channel(engine):
    """What is there sixty times, or twice as often, says the same."""
    sizes = AttentionSizes(2, 8, 4, 5, ["value"], [5], attention="softmax")
    model = make_random_model(sizes, seed=3).copy_with_normalised_channel_sums(NOMINAL)
    values = np.random.default_rng(0).standard_normal(NOMINAL)
    messages = []
    for times in (60, 120):
        policy = make_policy(model, engine=engine)
        policy.step_array(np.tile(values, times), names(times * NOMINAL))
        messages.append(policy.attention_message)
    np.testing.assert_allclose(*messages, atol=1e-9)
    assert (messages[0][3:] == 0.0).all()
    assert np.abs(messages[0][:3]).max() <= np.abs(values).max()


def test_without_normalisation_doubled_channels_change_the_message(engine):
    policy = make_policy(make_random_model(ANT_SIZES, seed=3), engine=engine)
    policy.step_array(np.ones(3), ("a", "b", "c"))
    once = policy.attention_message
    policy.reset()
    policy.step_array(np.ones(6), tuple("abcdef"))
    assert np.abs(policy.attention_message - once).max() > 0.01
