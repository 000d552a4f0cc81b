"""What every kind of policy takes and refuses, whatever wraps it."""

import numpy as np
import pytest
from small_vision import CONVOLUTION, TOP_PATCHES
from waves import CHANNELS, monitored_model, waves

from an_control.load import make_policy
from an_control.policy import MlpSizes
from an_control.policy.random_model import make_random_model

IDS = tuple(CHANNELS)
MLP = MlpSizes(5, 2, [6])
POLICIES = {
    "alone": lambda: make_policy(monitored_model(), "off"),
    "with recovery": lambda: make_policy(monitored_model(), "off", recovery=0.01),
    "with a monitor": lambda: make_policy(monitored_model(), "match"),
    "MLP": lambda: make_policy(monitored_model(MLP), "off"),
    "MLP without ids": lambda: make_policy(make_random_model(MLP, seed=1)),
    "MLP with a monitor": lambda: make_policy(monitored_model(MLP), "match"),
}


@pytest.fixture(params=POLICIES)
def policy(request):
    return POLICIES[request.param]()


@pytest.mark.parametrize("bad", [0.0, np.nan])
@pytest.mark.parametrize("ids", [("a", "b", "c", "d", "a"), np.array(["a", "b", "c", "d", "a"])])
def test_an_id_that_comes_twice_is_refused(policy, ids, bad):
    with pytest.raises(ValueError, match="channel id 'a' is given twice"):
        policy.step_array(np.array([0.1, 0.2, 0.3, 0.4, bad]), ids)


@pytest.mark.parametrize(
    "values", [np.ones(5, complex), np.array(list("abcde"), object), list("abcde")]
)
def test_what_is_no_real_number_is_refused(policy, values):
    with pytest.raises(TypeError):
        policy.step_array(values, IDS)


def test_what_was_sent_may_be_a_list_or_of_another_precision(policy):
    """A monitor whose previous action were float64 would compile a formula again, in a tick."""
    for sent in (
        [0.1, -0.2],
        (0.1, -0.2),
        np.array([0.1, -0.2]),
        np.array([0.1, -0.2], np.float32),
    ):
        policy.previous_action = sent
        assert policy.previous_action.dtype == np.float32
        assert (policy.previous_action == np.array(sent, np.float32)).all()
        assert np.isfinite(policy.step_array(waves(0), IDS)).all()


@pytest.mark.parametrize("wrong", [[0.0], [np.nan, 0.0], [1.5, 0.0], [[0.0, 0.0]]])
def test_what_cannot_have_been_sent_is_refused_and_changes_nothing(policy, wrong):
    policy.previous_action = [0.5, -0.5]
    with pytest.raises(ValueError, match="previous action"):
        policy.previous_action = wrong
    assert policy.previous_action.tolist() == [0.5, -0.5]


def test_the_previous_action_is_that_of_the_last_tick_until_a_reset(policy):
    assert (policy.step_array(waves(0), IDS) == policy.previous_action).all()
    policy.reset()
    assert (policy.previous_action == 0.0).all()


@pytest.mark.parametrize("sizes", [TOP_PATCHES, CONVOLUTION])
def test_a_reset_leaves_no_patches_attention(sizes):
    policy = make_policy(make_random_model(sizes, seed=1))
    shape = sizes.stack, sizes.patch, sizes.patch
    policy.step_array(np.full((3, *shape), 7, np.uint8), ("a", "b", "c"))
    assert policy.attention.shape[1] == len(policy.patch_vectors) == len(policy.channel_order) == 3
    policy.reset()
    assert policy.attention.shape[1] == len(policy.patch_vectors) == len(policy.channel_order) == 0
