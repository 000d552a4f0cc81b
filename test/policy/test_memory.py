"""The head's memory outlasts the channels; `test_reference` holds it to its equations."""

from dataclasses import replace

import numpy as np
import pytest

from an_control.load import make_policy
from an_control.policy import AttentionSizes
from an_control.policy.random_model import make_random_model


@pytest.fixture
def model(expecting):
    return make_random_model(expecting, seed=4, gain=1.5)


def test_forgetting_the_channels_keeps_the_memory_and_a_reset_does_not(model, engine):
    policy, other = make_policy(model, engine=engine), make_policy(model, engine=engine)
    readings = {"a": 0.4, "b": -1.2, "c": 0.9}
    first = policy.step(readings)
    for _ in range(3):
        policy.step(readings)
    policy.reset_channels()
    other.previous_action = policy.previous_action
    assert (policy.step(readings) != other.step(readings)).any()
    policy.reset()
    assert policy.step(readings).tobytes() == first.tobytes()


def test_without_any_channel_the_head_acts_on_what_it_expects(model, engine):
    policy = make_policy(model, engine=engine)
    policy.step({"a": 0.4, "b": -1.2})
    blind = [policy.step({}) for _ in range(3)]
    assert np.isfinite(blind).all()
    assert len({action.tobytes() for action in blind}) > 1


@pytest.mark.parametrize("log_width", [7.0, 20.0])
def test_one_large_reading_leaves_no_action_without_a_number(engine, log_width):
    sizes = AttentionSizes(3, 6, 8, 4, ["value"], [5], attention="softmax", memory=5)
    model = make_random_model(replace(sizes, prediction_attention=True), seed=4, gain=1.5)
    arrays = {name: array.copy() for name, array in model.arrays.items()}
    arrays["attention.prediction"][0] = log_width
    policy = make_policy(replace(model, arrays=arrays), engine=engine)
    readings = {"a": 0.4, "b": -1.2, "c": 0.9}
    policy.step(readings)
    policy.step(readings | {"b": 9e17})
    assert np.isfinite([policy.step(readings) for _ in range(5)]).all()
