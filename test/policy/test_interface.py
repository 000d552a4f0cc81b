"""Every kind of policy answers the same questions, and what it does not have is None."""

import copy
import pickle

import numpy as np
import pytest

from an_control.load import load_policy
from an_control.policy.task import Task
from an_control.system.share import find_share_path

POLICIES = {
    "scalar": ("cartpole", "off"),
    "monitored": ("cartpole", "match"),
    "vision": ("pong", None),
}


@pytest.fixture(params=POLICIES)
def policy(request):
    name, monitor = POLICIES[request.param]
    return request.param, load_policy(find_share_path(f"models/{name}.safetensors"), monitor)


def test_stable_baselines3_plays_a_policy_as_one_of_its_own():
    evaluation = pytest.importorskip("stable_baselines3.common.evaluation")
    from an_control_sim import make_environment

    policy = load_policy("cartpole", "off")
    env = make_environment("an_control_sim:an_control/CartPoleSwingUpHarder-v0")
    returns, lengths = evaluation.evaluate_policy(
        policy, env, n_eval_episodes=2, return_episode_rewards=True, warn=False
    )
    observation, _ = env.reset(seed=0)
    action, state = policy.predict(observation)
    again, _ = policy.predict(observation, state)
    first, _ = policy.predict(observation[None], state, np.array([True]))
    assert first.shape == (1, *action.shape) and (first[0] == action).all()
    assert (again != action).any(), "the second step has a state"
    assert len(returns) == len(lengths) == 2
    with pytest.raises(ValueError, match=r"shape \(3, 5\); allowed are \(5,\) and \(1, 5\)"):
        policy.predict(np.zeros((3, 5)))


def test_readings_that_are_no_mapping_are_refused():
    with pytest.raises(TypeError, match="readings of type list; allowed is a mapping"):
        load_policy("cartpole").step([0.0] * 5)


def test_attention_keys_and_state_are_there_or_none(policy):
    kind, policy = policy
    ids = policy.nominal_ids
    dtype = np.uint8 if policy.reading_shape else np.float32
    action = policy.step_array(np.zeros((len(ids), *policy.reading_shape), dtype), ids)
    policy.prepare_next_tick()
    policy.ignore_next_readings_for_wiring()
    assert policy.previous_action.tobytes() == action.tobytes()
    assert set(policy.channel_order) == set(ids)
    assert policy.attention.shape[1] == len(ids)
    assert (policy.keys is None) == (policy.channel_state is None) == (kind == "vision")
    assert (policy.monitor_report is None) == (kind != "monitored")
    assert policy.reading_shape == ((4, 6, 6) if kind == "vision" else ())
    assert policy.permutation_invariant and policy.engine in ("numpy", "numba")


def test_an_mlp_policy_has_an_order_and_nothing_else():
    from an_control.load import make_policy
    from an_control.policy import MlpSizes
    from an_control.policy.random_model import make_random_model

    policy = make_policy(
        make_random_model(MlpSizes(3, 2, [4]), task=Task(channels=("a", "b", "c")))
    )
    assert not policy.permutation_invariant and policy.channel_order == ("a", "b", "c")
    assert policy.attention is policy.keys is policy.channel_state is policy.monitor_report is None


def test_a_policy_can_be_copied_and_pickled_while_its_monitor_searches():
    policy = load_policy("ant")
    channels, times = policy.model.task.channels, np.arange(120)
    readings = 0.5 * np.sin(0.2 * times[:, None] + np.arange(len(channels)))
    searched = 0
    for tick, values in enumerate(readings):
        policy.step(dict(zip(channels, values if tick < 50 else values[::-1], strict=True)))
        searched += policy.monitor._search._candidates is not None
        for other in (pickle.loads(pickle.dumps(policy)), copy.deepcopy(policy)):
            assert other.previous_action.tobytes() == policy.previous_action.tobytes()
    assert searched
