"""The baseline that needs its inputs in order, behind the same calls."""

import numpy as np
import pytest

from an_control.learning.import_authors import import_policy_of_authors
from an_control.load import load_policy, make_policy
from an_control.policy import MlpSizes, ModelError, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task

SIZES = MlpSizes(channels=3, actions=2, head=[4], activation="relu", output="clip")
TASK = Task(channels=("a", "b", "c"))


def test_the_authors_network_gives_the_recorded_actions(shared):
    reference = shared / "reference"
    policy = make_policy(
        import_policy_of_authors(reference / "official" / "ant_mlp.npz", "ant_mlp")
    )
    with np.load(reference / "vectors.npz") as vectors:
        observations, expected = vectors["ant_mlp/n28/obs"], vectors["ant_mlp/n28/action"]
    actions = [policy.step_array(values, policy.nominal_ids) for values in observations]
    assert np.abs(np.array(actions) - expected).max() <= 1e-5


def test_named_readings_are_put_into_the_nominal_order():
    policy = make_policy(make_random_model(SIZES, task=TASK))
    expected = policy.step_array(np.array([1.0, 2.0, 3.0]), ("a", "b", "c"))
    np.testing.assert_array_equal(policy.step({"c": 3.0, "a": 1.0, "b": 2.0}), expected)
    np.testing.assert_array_equal(policy.step_array([2, 1, 3], ["b", "a", "c"]), expected)


@pytest.mark.parametrize("broken", [np.nan, np.inf, 1e30, 1e300])
def test_missing_and_broken_readings_are_zero(broken):
    policy = make_policy(make_random_model(SIZES, task=TASK))
    expected = policy.step({"a": 1.0, "b": 0.0, "c": 3.0})
    np.testing.assert_array_equal(policy.step({"a": 1.0, "c": 3.0}), expected)
    np.testing.assert_array_equal(policy.step({"a": 1.0, "b": broken, "c": 3.0}), expected)


def test_an_id_given_twice_is_refused():
    policy = make_policy(make_random_model(SIZES, task=TASK))
    with pytest.raises(ValueError, match="'a' is given twice"):
        policy.step_array(np.zeros(3), ("a", "b", "a"))


def test_without_nominal_ids_the_given_order_counts_and_the_number_must_fit():
    policy = make_policy(make_random_model(SIZES))
    assert policy.step_array(np.zeros(3), ("x", "y", "z")).shape == (2,)
    with pytest.raises(ValueError, match="2 readings for 3 inputs"):
        policy.step_array(np.zeros(2), ("x", "y"))


def test_a_task_whose_channels_do_not_fit_the_network_is_refused_on_load(tmp_path):
    path = tmp_path / "ordered.safetensors"
    write_model(path, make_random_model(SIZES, task=Task(channels=("a", "b"))))
    with pytest.raises(ModelError, match=r"ordered\.safetensors: 2 readings for 3 inputs"):
        load_policy(path)
