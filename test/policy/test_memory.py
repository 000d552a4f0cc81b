"""The head's memory outlasts the channels; `test_reference` holds it to its equations."""

import numpy as np
import pytest

from an_control.policy import make_policy
from an_control.policy.random_model import random_model


@pytest.fixture
def model(expecting):
    return random_model(expecting, seed=4, gain=1.5)


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
