"""The policy for image patches: the authors' record, any patches in any order, valid models."""

from dataclasses import asdict, replace
from importlib.util import find_spec

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from set_equations import SetEquations
from small_vision import (
    CONVOLUTION,
    CONVOLUTION_ISAB_PMA,
    CONVOLUTION_MEMORY,
    CONVOLUTION_PMA,
    TOP_PATCHES,
)

from an_control.learning.import_authors import import_policy_of_authors
from an_control.load import load_policy, make_policy
from an_control.policy import ModelError, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.recurrence import step_gru
from an_control.policy.set_transformer import make_positional_table
from an_control.policy.sizes import CAR_RACING_SIZES, PONG_SIZES, get_model_kind, parse_model_sizes

ENGINES = ["numpy", "numba"] if find_spec("numba") else ["numpy"]
SMALL = {
    "top_patches": TOP_PATCHES,
    "convolution": CONVOLUTION,
    "convolution_memory": CONVOLUTION_MEMORY,
    "top_patches_sab": replace(TOP_PATCHES, message=6, encoder="sab", heads=3),
    "convolution_pma": CONVOLUTION_PMA,
    "convolution_isab_pma": CONVOLUTION_ISAB_PMA,
}


@pytest.fixture(params=ENGINES)
def engine(request):
    return request.param


@pytest.fixture(params=list(SMALL))
def model(request):
    return make_random_model(SMALL[request.param], seed=1, gain=3.0)


def cut(frames, patch=6):
    """(frames, rows, columns) into patches (N, frames, patch, patch), row by row."""
    count, rows, columns = frames.shape
    parts = frames.reshape(count, rows // patch, patch, columns // patch, patch)
    return parts.transpose(1, 3, 0, 2, 4).reshape(-1, count, patch, patch)


def pictures(sizes, patches, ticks=5, seed=0):
    """Patches (T, N, stack, p, p): noise, smooth ones, flat ones."""
    rng = np.random.default_rng(seed)
    shape = ticks, patches, sizes.stack, sizes.patch, sizes.patch
    contrast = rng.choice([0, 2, 40, 256], (1, patches, 1, 1, 1))
    base = rng.integers(0, 256, (1, patches, 1, 1, 1))
    return np.clip(base + rng.integers(0, 256, shape) * contrast // 256, 0, 255).astype(np.uint8)


def names(count):
    return tuple(f"patch_{i}" for i in range(count))


def test_the_authors_car_racing_policy_gives_the_recorded_actions(shared, engine):
    reference = shared / "reference"
    model = import_policy_of_authors(reference / "official" / "carracing_pi.npz", "carracing_pi")
    policy = make_policy(model, engine=engine)
    with np.load(reference / "vectors.npz") as vectors:
        frames, expected = vectors["carracing_pi/frames"], vectors["carracing_pi/action"]
    actions = [policy.step_array(cut(one), policy.nominal_ids) for one in frames]
    assert np.abs(np.array(actions) - expected).max() <= 1e-5


@pytest.mark.parametrize("patches", [1, 2, 7, 100, 256])
def test_the_order_of_the_patches_changes_no_bit(model, engine, patches):
    policy = make_policy(model, engine=engine)
    sequence, ids = pictures(model.sizes, patches), names(patches)
    expected = [
        (policy.step_array(one, ids).tobytes(), policy.attention_message.tobytes())
        for one in sequence
    ]
    rng = np.random.default_rng(patches)
    for _ in range(10):
        policy.reset()
        for one, (action, message) in zip(sequence, expected, strict=True):
            order = rng.permutation(patches)
            carried = tuple(ids[i] for i in order)
            assert policy.step_array(one[order], carried).tobytes() == action
            assert policy.attention_message.tobytes() == message


def test_the_order_changes_no_bit_of_the_authors_policy_on_their_frames(shared, engine):
    reference = shared / "reference"
    model = import_policy_of_authors(reference / "official" / "carracing_pi.npz", "carracing_pi")
    policy = make_policy(model, engine=engine)
    with np.load(reference / "vectors.npz") as vectors:
        sequence = [cut(one) for one in vectors["carracing_pi/frames"]]
    expected = [policy.step_array(one, policy.nominal_ids).tobytes() for one in sequence]
    policy.reset()
    rng = np.random.default_rng(0)
    for one, action in zip(sequence, expected, strict=True):
        assert policy.step_array(rng.permutation(one), policy.nominal_ids).tobytes() == action


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_any_subset_of_the_patches_in_any_order_gives_the_same_bits(data):
    model = make_random_model(SMALL[data.draw(st.sampled_from(sorted(SMALL)))], seed=3, gain=4.0)
    policy = make_policy(model, engine=data.draw(st.sampled_from(ENGINES)))
    patches = pictures(model.sizes, 30, ticks=1)[0]
    chosen = data.draw(st.lists(st.integers(0, 29), unique=True))
    order = data.draw(st.permutations(chosen))
    ids = names(30)
    expected = policy.step_array(patches[chosen], [ids[i] for i in chosen])
    policy.reset()
    action = policy.step({ids[i]: patches[i] for i in order})
    assert action.tobytes() == expected.tobytes()
    assert np.isfinite(action).all() and (np.abs(action) <= 1.0).all()


def test_attention_has_a_column_for_each_patch_and_rows_that_sum_to_one(model, engine):
    policy = make_policy(model, engine=engine)
    patches, ids = pictures(model.sizes, 12)[0], names(12)
    policy.step_array(patches, ids)
    attention = policy.attention
    assert attention.shape == (model.sizes.queries, 12) and policy.channel_order == ids
    np.testing.assert_allclose(attention.sum(axis=1), 1.0, atol=1e-5)
    order = np.random.default_rng(0).permutation(12)
    policy.reset()
    policy.step_array(patches[order], [ids[i] for i in order])
    np.testing.assert_array_equal(policy.attention, attention[:, order])


@pytest.mark.parametrize("value", [0, 255])
def test_a_flat_picture_and_no_picture_at_all_give_a_finite_action(model, engine, value):
    policy = make_policy(model, engine=engine)
    flat = np.full_like(pictures(model.sizes, 9)[0], value)
    for patches in (flat, policy.empty_patches, flat):
        action = policy.step_array(patches, names(len(patches)))
        assert np.isfinite(action).all() and np.isfinite(policy.attention_message).all()


def test_a_reset_forgets_the_episode(model, engine):
    policy = make_policy(model, engine=engine)
    sequence, ids = pictures(model.sizes, 20), names(20)
    expected = [policy.step_array(one, ids) for one in sequence]
    policy.reset()
    np.testing.assert_array_equal([policy.step_array(one, ids) for one in sequence], expected)


def test_the_convolving_policy_chooses_one_action_and_begins_with_its_first():
    policy = make_policy(make_random_model(SMALL["convolution"], gain=3.0))
    np.testing.assert_array_equal(policy.previous_action, [0, 0, 0, 1, 0, 0])
    action = policy.step_array(pictures(SMALL["convolution"], 9)[0], names(9))
    assert sorted(action.tolist()) == [0.0] * 5 + [1.0]
    np.testing.assert_array_equal(policy.previous_action, action)


def test_the_memory_computes_its_equations_from_the_layer_below_and_the_action_taken(engine):
    sizes = SMALL["convolution_memory"]
    model = make_random_model(sizes, seed=1, gain=3.0)
    policy = make_policy(model, engine=engine)
    plain = make_policy(without_memory(model), engine=engine)
    array = {name: one.astype(np.float64) for name, one in model.arrays.items()}
    units = np.zeros(sizes.memory)
    rng = np.random.default_rng(0)
    for view in pictures(sizes, 20, ticks=8):
        previous = rng.uniform(-1.0, 1.0, sizes.actions)
        policy.previous_action = plain.previous_action = previous
        policy.step_array(view, names(20))
        plain.step_array(view, names(20))
        np.testing.assert_array_equal(policy.attention_message, plain.attention_message)
        hidden = np.maximum(policy._head.compute_first_layer_sums(policy.attention_message), 0.0)
        units = step_gru(array, "memory", np.concatenate([hidden, previous]), units)
        scores = array["head.1.weight"] @ np.concatenate([hidden, units]) + array["head.1.bias"]
        np.testing.assert_allclose(policy._head.scores, scores, atol=1e-4)


def plain_norm(rows, array, name):
    """Layer norm (Ba et al. 2016), with PyTorch's 1e-5 beside the variance."""
    normed = (rows - rows.mean(-1, keepdims=True)) / np.sqrt(rows.var(-1, keepdims=True) + 1e-5)
    return normed * array.get(f"{name}.weight", 1.0) + array.get(f"{name}.bias", 0.0)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("patches", [0, 1, 30])
def test_the_message_is_that_of_the_plain_equations(name, patches, engine):
    """Section 3.3 of the paper; with an encoder or pma those of the Set Transformer behind it."""
    sizes = SMALL[name]
    model = make_random_model(sizes, seed=2, gain=2.0)
    policy = make_policy(model, engine=engine)
    array = {key: one.astype(np.float64) for key, one in model.arrays.items()}
    parts = SetEquations(array, sizes)
    view, previous = pictures(sizes, patches, ticks=1)[0], policy.previous_action
    policy.step_array(view, names(patches))
    pixels = view.reshape(patches, sizes.stack, sizes.patch**2) / 255.0
    change = np.diff(pixels, axis=1).reshape(patches, (sizes.stack - 1) * sizes.patch**2)
    keys = change @ array["key.change"].T + array["key.action"] @ previous + array["key.bias"]
    normed = plain_norm(pixels, array, "value_norm").reshape(patches, sizes.stack * sizes.patch**2)
    values = normed @ array["value.weight"].T + array["value.bias"]
    if sizes.attention == "pma":
        expected = parts.pool(parts.encode(keys + values))
    else:
        table = make_positional_table(sizes.queries, sizes.positions)
        queries = table @ array["query.weight"].T + array["query.bias"]
        scores = np.exp(queries @ parts.encode(keys).T / np.sqrt(sizes.message))
        total = np.maximum(scores.sum(1, keepdims=True), 1e-300)
        expected = plain_norm(np.maximum(scores / total @ values, 0.0), array, "message_norm")
    np.testing.assert_allclose(policy.attention_message, expected, rtol=0, atol=1e-4)


def without_memory(model):
    """The same policy, whose last layer sees no memory."""
    sizes = replace(model.sizes, memory=0)
    arrays = {name: model.arrays[name] for name in sizes.list_array_shapes()}
    arrays["head.1.weight"] = arrays["head.1.weight"][:, : sizes.hidden].copy()
    return replace(model, sizes=sizes, arrays=arrays)


def test_a_memory_that_is_not_heard_changes_no_bit(engine):
    model = make_random_model(SMALL["convolution_memory"], seed=1, gain=3.0)
    model.arrays["head.1.weight"][:, model.sizes.hidden :] = 0.0
    policy, plain = (make_policy(one, engine=engine) for one in (model, without_memory(model)))
    for view in pictures(model.sizes, 20):
        action = policy.step_array(view, names(20))
        assert action.tobytes() == plain.step_array(view, names(20)).tobytes()


def test_a_file_from_before_memory_and_parts_is_one_without():
    header = asdict(PONG_SIZES)
    for name in ("memory", "choice", "attention", "encoder", "inducing", "heads"):
        del header[name]
    assert parse_model_sizes("vision_convolution", header) == PONG_SIZES


def test_patches_of_another_shape_or_kind_of_number_are_refused(model):
    policy = make_policy(model)
    good = pictures(model.sizes, 2)[0]
    with pytest.raises(TypeError, match="float64, not uint8"):
        policy.step_array(good.astype(float), names(2))
    with pytest.raises(ValueError, match="patches of shape"):
        policy.step_array(good[:, :1], names(2))
    with pytest.raises(ValueError, match="patches of shape"):
        policy.step_array(good, names(3))
    with pytest.raises(ValueError, match="'a' is given twice"):
        policy.step_array(good, ("a", "a"))


def test_a_model_file_keeps_a_vision_policy(model, tmp_path):
    path = tmp_path / "vision.safetensors"
    write_model(path, model)
    again = read_model(path)
    assert (again.kind, again.sizes) == (model.kind, model.sizes)
    patches = pictures(model.sizes, 9)[0]
    expected = make_policy(model).step_array(patches, names(9))
    np.testing.assert_array_equal(load_policy(path).step_array(patches, names(9)), expected)


@pytest.mark.parametrize(
    ("head", "change", "reason"),
    [
        ("top_patches", {"grid": 65}, "sizes.grid: 65 is not from 1 to 64"),
        ("top_patches", {"stack": 1}, "sizes.stack: 1, differences need at least 2 frames"),
        ("top_patches", {"top": 65}, "sizes.top: 65 of 64 queries"),
        ("top_patches", {"norm_weights": 1}, "sizes.norm_weights: 1 is not one of False, True"),
        ("convolution", {"grid": 7}, "sizes.grid: 7, the convolutions need at least 8"),
        ("convolution", {"first_action": 6}, "sizes.first_action: 6 of 6 actions"),
        ("convolution", {"hidden": 0}, "sizes.hidden: 0 is not a whole number from 1"),
        ("convolution", {"attention": "tanh"}, "sizes.attention: 'tanh' is not one of 'softmax', "),
        ("convolution", {"encoder": "isab"}, "sizes.inducing: 0, encoder isab needs at least 1"),
        ("convolution", {"heads": 2}, "sizes.heads: 2, softmax attention without an encoder all"),
        ("convolution_pma", {"heads": 4}, "sizes.heads: 4 does not divide the message's 6 numbers"),
    ],
)
def test_sizes_that_do_not_fit_are_refused_by_name(head, change, reason):
    with pytest.raises(ValueError, match=reason):
        parse_model_sizes(get_model_kind(SMALL[head]), asdict(SMALL[head]) | change)


def test_a_memory_of_less_than_no_units_is_refused():
    with pytest.raises(ValueError, match=r"sizes\.memory: -1 is not a whole number from 0"):
        parse_model_sizes(
            "vision_convolution", asdict(SMALL["convolution_memory"]) | {"memory": -1}
        )


def test_the_authors_sizes_have_the_published_numbers_of_parameters():
    """The import adds up the LSTM's two biases, 64 numbers each."""
    assert make_random_model(CAR_RACING_SIZES).parameter_count == 7212 - 64
    assert make_random_model(PONG_SIZES).parameter_count == 1_687_726


def test_a_positional_table_that_takes_gigabytes_is_refused(tmp_path):
    huge = replace(CONVOLUTION, grid=64, positions=65_536, message=1)
    wrong = r"sizes.positions: 65536 is not from 1 to 256, with a grid of 64"
    with pytest.raises(ModelError, match=wrong):
        write_model(tmp_path / "model.safetensors", make_random_model(huge))
