"""What a policy keeps by channel id: saved, restored, renamed, advanced and identified."""

import numpy as np
import pytest
from waves import CHANNELS, monitored_model, waves

from an_control.load import make_policy
from an_control.policy import read_model
from an_control.system.share import find_share_path


def test_neurons_continue_from_a_saved_state(engine):
    policy = make_policy(monitored_model(), "off", engine=engine)
    for tick in range(5):
        policy.step_array(waves(tick), tuple(CHANNELS))
    kept = policy.save_state()
    for tick in range(5, 9):
        policy.step_array(waves(tick)[::-1], tuple(CHANNELS))
    changed = policy.save_state()
    policy.restore_state(
        {name: kept[name] for name in CHANNELS[:2]} | {"no such": kept[CHANNELS[0]]}
    )
    now = policy.save_state()
    for name in CHANNELS:
        expected = kept if name in CHANNELS[:2] else changed
        assert now[name].tobytes() == expected[name].tobytes()


@pytest.mark.parametrize("model", ["ant", "cartpole_reshuffle", "cartpole_stacked"])
def test_neurons_advance_alone_as_in_a_tick_of_all(engine, model):
    model = read_model(find_share_path(f"models/{model}.safetensors"))
    one, all_ = (make_policy(model, "off", engine=engine, recovery=0.0) for _ in range(2))
    ids, rng = all_.nominal_ids, np.random.default_rng(5)
    some, rest = ids[::2], ids[1::2]
    kept = {}
    for tick in range(9):
        values = np.sin(np.arange(len(ids)) + 0.03 * tick).astype(np.float32)  # nothing jumps
        previous = rng.uniform(-1, 1, model.sizes.actions).astype(np.float32)
        for policy in (one, all_):
            policy.previous_action = previous
        all_.step_array(values, ids)
        if tick < 4:
            one.step_array(values, ids)
        else:
            one.advance_channel_states((*some, "no such"), np.append(values[::2], 0.0), previous)
        if tick == 3:
            kept = one.save_state()
    own = model.sizes.neuron * (1 if model.sizes.stack else 2)
    now, expected = one.save_state(), all_.save_state()
    assert all(now[name][:own].tobytes() == expected[name][:own].tobytes() for name in some)
    assert all(now[name].tobytes() == kept[name].tobytes() for name in rest)


def test_the_shipped_ants_neurons_continue_from_a_saved_state(engine):
    model = read_model(find_share_path("models/ant.safetensors"))
    policy = make_policy(model, "off", engine=engine, recovery=0.0)
    rng = np.random.default_rng(7)
    kept = {}
    for tick in range(9):
        policy.step_array(rng.normal(size=28).astype(np.float32), policy.nominal_ids)
        if tick == 4:
            kept = policy.save_state()
    policy.restore_state(kept)
    for name, now in policy.save_state().items():
        assert now.tobytes() == kept[name].tobytes()
    action = policy.step_array(rng.normal(size=28).astype(np.float32), policy.nominal_ids)
    assert np.isfinite(action).all()


def test_the_attention_takes_a_channel_for_what_it_is_known_to_be(engine):
    """The evidence stays where it is larger; an id that the policy does not know is left out."""
    model = read_model(find_share_path("models/ant.safetensors"))
    policy, told = (make_policy(model, "off", engine=engine, recovery=0.0) for _ in range(2))
    ids, n = policy.nominal_ids, len(policy.nominal_ids)
    values = np.linspace(-0.5, 0.5, n).astype(np.float32)
    turned = np.roll(np.arange(n), 1)
    for _ in range(2):
        policy.step_array(values, ids)
        told.step_array(values, ids)
        told.increase_identity_evidence((*ids, "no such"), np.append(turned, 0), 40.0)
    told.step_array(values, ids)
    assert (told.attention.argmax(0) == turned).all()
    kept = told.save_state()
    told.increase_identity_evidence(ids, turned, 1.0)
    assert all(kept[name].tobytes() == now.tobytes() for name, now in told.save_state().items())


def test_neurons_without_such_evidence_stay_as_they_are(engine):
    policy = make_policy(monitored_model(), "off", engine=engine)
    policy.step_array(waves(0), tuple(CHANNELS))
    kept = policy.save_state()
    policy.increase_identity_evidence(CHANNELS, np.arange(5), 40.0)
    assert all(kept[name].tobytes() == now.tobytes() for name, now in policy.save_state().items())


def test_neurons_continue_under_other_ids_as_if_these_had_always_been_theirs(engine):
    names = {"wave_0": "wave_2", "wave_2": "wave_0"}
    one, other = (make_policy(monitored_model(), "off", engine=engine) for _ in range(2))
    for tick in range(5):
        one.step_array(waves(tick), tuple(CHANNELS))
        other.step_array(waves(tick), tuple(names.get(name, name) for name in CHANNELS))
    one.rename_channels(names)
    for tick in range(5, 8):
        values = waves(tick)
        action = one.step_array(values, tuple(CHANNELS))
        assert action.tobytes() == other.step_array(values, tuple(CHANNELS)).tobytes()
