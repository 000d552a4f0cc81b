"""Encoders between the channels, pooling by attention, recurrences: as in their papers' equations,
and the same to the last bit in any order of the channels."""

from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from set_equations import SetEquations

from an_control.load import make_policy
from an_control.policy import AttentionSizes, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.set_transformer import CanonicalChannelOrder
from an_control.policy.sizes import RecurrenceSizes, parse_model_sizes

PLAIN = AttentionSizes(2, 8, 9, 5, ["value"], [5])
PMA = replace(PLAIN, queries=4, key=8, attention="pma", heads=2)
FORMS = {
    "sab": replace(PLAIN, encoder="sab", heads=4),
    "isab": replace(PLAIN, encoder="isab", inducing=3, heads=2),
    "pma": PMA,
    "isab-pma": replace(PMA, encoder="isab", inducing=5),
    "sab-pma": replace(PMA, encoder="sab", stack=3),
    "sab-softmax-memory": replace(
        PLAIN, encoder="sab", attention="softmax", memory=6, prediction_attention=True
    ),
    "isab-normalised": replace(PLAIN, encoder="isab", inducing=3, normalise=28),
    "lstm": replace(PLAIN, recurrence=RecurrenceSizes("lstm", 6)),
    "softmax-gru": replace(PLAIN, attention="softmax", recurrence=RecurrenceSizes("gru", 6)),
    "isab-pma-gtrxl": replace(
        PMA, encoder="isab", inducing=5, recurrence=RecurrenceSizes("gtrxl", 8, 2, 2, 12)
    ),
}
COMPARING = [name for name, sizes in FORMS.items() if sizes.compares_channels]


@pytest.fixture(params=list(FORMS))
def model(request: pytest.FixtureRequest):
    return make_random_model(FORMS[request.param], seed=len(request.param), gain=2.0)


def names(channels):
    return tuple(f"channel_{i}" for i in range(channels))


def readings(ticks, channels=28):
    """Readings (T, N), some of them equal from channel to channel, as contacts are."""
    rng = np.random.default_rng(1)
    values = rng.standard_normal((ticks, channels)).astype(np.float32)
    values[:, ::5] = values[:, ::5] > 0.0
    return values


def actions(policy, sequence, wiring):
    policy.reset()
    given = (wiring(tick) for tick in range(len(sequence)))
    return [
        policy.step_array(values[order], ids).tobytes()
        for values, (order, ids) in zip(sequence, given, strict=True)
    ]


@pytest.mark.parametrize("name", COMPARING)
def test_attention_and_message_are_those_of_the_plain_equations(name):
    """While channels come and go; `test_engines` compares what stands before and behind."""
    model = make_random_model(FORMS[name], gain=2.0)
    weight = {name: array.astype(np.float64) for name, array in model.arrays.items()}
    parts, policy = SetEquations(weight, model.sizes), make_policy(model, keep_ticks=60)
    rng = np.random.default_rng(3)
    for tick, values in enumerate(readings(40, channels=12)):
        there = rng.permutation(12)[: rng.integers(0 if tick % 10 == 9 else 8, 13)]
        policy.step({f"channel_{i}": float(values[i]) for i in there})
        columns = [policy._column[channel] for channel in policy.channel_order]
        encoded = parts.encode(policy._engine.get_neuron_outputs(np.array(columns, np.int64)))
        if model.sizes.attention == "pma":
            np.testing.assert_allclose(
                policy.attention_message, parts.pool(encoded).ravel(), atol=1e-6
            )
        elif model.sizes.attention == "tanh":
            keys = encoded @ weight["attention.key"].T + weight["attention.key_bias"]
            expected = np.tanh(weight["attention.queries"] @ keys.T)
            np.testing.assert_allclose(policy.attention, expected, atol=1e-6)


def test_a_reset_forgets_what_was_before(model):
    policy, sequence = make_policy(model), readings(30)
    first = actions(policy, sequence, lambda tick: (slice(None), names(28)))
    assert actions(policy, sequence, lambda tick: (slice(None), names(28))) == first


def test_without_readings_there_is_an_action(model):
    policy = make_policy(model)
    assert np.isfinite(policy.step_array(np.full(28, np.nan), names(28))).all()


def test_a_thousand_permutations_change_no_bit(model):
    policy, sequence, ids = make_policy(model), readings(3), names(28)
    expected = actions(policy, sequence, lambda tick: (slice(None), ids))
    rng = np.random.default_rng(4)
    for _ in range(1000):
        order = rng.permutation(28)
        assert actions(policy, sequence, lambda tick, order=order: (order, ids)) == expected


def test_a_new_permutation_at_every_tick_changes_no_bit(model):
    policy, sequence, ids = make_policy(model), readings(200), names(28)
    expected = actions(policy, sequence, lambda tick: (slice(None), ids))
    rng = np.random.default_rng(5)
    orders = [rng.permutation(28) for _ in sequence]
    carried = [tuple(ids[i] for i in order) for order in orders]
    assert actions(policy, sequence, lambda tick: (orders[tick], carried[tick])) == expected


def test_thousands_of_channels_permute_without_changing_a_bit():
    """Enough for a matrix product to be cut into blocks, and for several of the engine's."""
    for form in ("isab", "isab-pma"):
        policy = make_policy(make_random_model(FORMS[form], gain=2.0))
        sequence, ids = readings(2, channels=3000), names(3000)
        expected = actions(policy, sequence, lambda tick, ids=ids: (slice(None), ids))
        order = np.random.default_rng(6).permutation(3000)
        assert actions(policy, sequence, lambda tick, o=order, i=ids: (o, i)) == expected


@settings(max_examples=50, deadline=None)
@given(
    rows=st.lists(st.tuples(*[st.sampled_from([-1.0, 0.0, 0.5])] * 3), min_size=1, max_size=12),
    seed=st.integers(0, 2**32 - 1),
)
def test_channels_with_equal_outputs_have_the_same_place(rows, seed):
    outputs = np.array(rows)
    order = CanonicalChannelOrder.from_neuron_outputs(outputs)
    for row, place in zip(outputs, order.places, strict=True):
        np.testing.assert_array_equal(outputs[order.sorted][place], row)
    shuffled = np.random.default_rng(seed).permutation(len(outputs))
    again = CanonicalChannelOrder.from_neuron_outputs(outputs[shuffled])
    np.testing.assert_array_equal(again.places, order.places[shuffled])


def test_a_model_file_keeps_it(model, tmp_path):
    write_model(tmp_path / "m.safetensors", model)
    again = read_model(tmp_path / "m.safetensors")
    assert again.sizes == model.sizes
    policies = make_policy(model), make_policy(again)
    for values in readings(3):
        one, other = (policy.step_array(values, names(28)) for policy in policies)
        assert one.tobytes() == other.tobytes()


def test_the_compiled_engine_refuses_it_by_name(model):
    with pytest.raises(ValueError, match=r"engine: 'numba'.*sizes\.encoder"):
        make_policy(model, engine="numba")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"encoder": "set"}, "sizes.encoder: 'set' is not one of 'none', 'isab', 'sab'"),
        ({"inducing": 3}, "sizes.inducing: 3, encoder none allows 0"),
        ({"encoder": "isab"}, "sizes.inducing: 0, encoder isab needs at least 1"),
        ({"heads": 2}, "sizes.heads: 2, tanh attention without an encoder allows 1"),
        ({"encoder": "sab", "heads": 3}, "sizes.heads: 3 does not divide the neurons' 8 units"),
        ({"attention": "pma"}, "sizes.key: 5, pma attention allows its neurons' 8"),
        ({"attention": "pma", "key": 8, "normalise": 3}, "sizes.normalise: 3, pma attention allo"),
        ({"attention": "pma", "key": 8, "memory": 3}, "sizes.memory: 3, pma attention allows 0"),
        ({"recurrence": 3}, "sizes.recurrence: 3 is not an object"),
        ({"recurrence": {"kind": "gru", "units": 0}}, "sizes.recurrence.units: 0 is not a whole"),
        (
            {"attention": "softmax", "memory": 3, "recurrence": {"kind": "gru", "units": 2}},
            "sizes.memory: 3, a recurrence allows 0",
        ),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(changes, error):
    with pytest.raises(ValueError, match=error):
        parse_model_sizes("attention_neuron", asdict(PLAIN) | changes)
