"""Reset on jump: all neurons are reset where most readings jump at once, and only there."""

import numpy as np
import pytest

from an_control.load import make_policy
from an_control.policy import AttentionSizes
from an_control.policy.random_model import make_random_model

SIZES = AttentionSizes(3, 6, 13, 4, ["value", "change"], [5], False, "softmax", reset_on_jump=True)
IDS = tuple(f"channel_{i}" for i in range(12))
LEVELS = np.linspace(-2.0, 2.0, 12, dtype=np.float32)


@pytest.fixture
def policy(engine):
    """A policy that has watched twelve channels about levels of their own for a while."""
    policy = make_policy(make_random_model(SIZES, seed=1, gain=2.0), engine=engine)
    for step in range(30):
        policy.step_array(wave(step), IDS)
    return policy


def wave(step: int) -> np.ndarray:
    """Readings that move as those of a robot that walks."""
    return LEVELS + np.float32(0.2) * np.sin(0.5 * step + np.arange(12, dtype=np.float32))


def as_new(policy, readings, ids=IDS) -> np.ndarray:
    """What a policy would do that saw these first, after the same action."""
    other = make_policy(policy.model, engine=policy.engine)
    other.previous_action = policy.previous_action
    return other.step_array(readings, ids)


def test_signals_that_move_to_other_channels_reset_every_neuron(policy):
    order = np.random.default_rng(0).permutation(12)
    new = as_new(policy, wave(30)[order])
    assert policy.step_array(wave(30)[order], IDS).tobytes() == new.tobytes()
    new = as_new(policy, wave(31)[order])
    assert policy.step_array(wave(31)[order], IDS).tobytes() != new.tobytes()


def test_a_few_jumps_and_the_usual_movement_reset_nothing(policy):
    readings = wave(30)
    readings[:2] = readings[1::-1] + 1.0
    new = as_new(policy, readings)
    assert not np.array_equal(policy.step_array(readings, IDS), new)


def test_channels_of_noise_reset_neurons_only_at_first(engine):
    policy = make_policy(make_random_model(SIZES, seed=1, gain=2.0), engine=engine)
    rng, ids = np.random.default_rng(2), (*IDS, *(f"noise_{i}" for i in range(8)))
    resets = []
    for step in range(200):
        readings = np.concatenate([wave(step), rng.standard_normal(8)]).astype(np.float32)
        new = as_new(policy, readings, ids)
        resets.append(np.array_equal(policy.step_array(readings, ids), new))
    assert not any(resets[40:])


def test_a_channel_that_was_missing_while_signals_moved_is_reset_as_well(policy):
    readings = wave(30)[np.random.default_rng(0).permutation(12)]
    other = make_policy(policy.model, engine=policy.engine)
    for shown in (11, 12, 12):
        other.previous_action = policy.previous_action
        ours, theirs = (each.step_array(readings[:shown], IDS[:shown]) for each in (policy, other))
        assert ours.tobytes() == theirs.tobytes()
