"""What the monitor's networks make of channels that never vary, as a planar robot has them."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")

import torch

from an_control.learning.forward_model.episodes import EpisodeTrace
from an_control.learning.forward_model.imputation import IdentityTraining, ImputationTraining
from an_control.learning.forward_model.networks import ForwardModelSettings, PredictionTraining
from an_control.monitor.forward_model import compute_identity_classifier_inputs
from an_control.policy.sizes import WINDOW

CHANNELS, CONSTANT, CONTACT = 4, [1, 3], 2
SETTINGS = ForwardModelSettings(
    hidden=(8,), updates=3, imputation=8, imputation_updates=2, imputation_batch=4
)


@pytest.fixture
def traces():
    """Two walks beside a constant 0, a contact and a constant 0.7."""
    rng, found = np.random.default_rng(0), []
    for _ in range(4):
        readings = np.zeros((60, CHANNELS), np.float32)
        readings[:, 0] = 0.1 * np.cumsum(rng.standard_normal(60))
        readings[:, CONTACT] = rng.random(60) < 0.5
        readings[:, 3] = 0.7
        found.append(EpisodeTrace(readings, rng.uniform(-1, 1, (59, 2)).astype(np.float32), False))
    return found


def test_a_channel_that_never_varies_moves_no_prediction(traces):
    training = PredictionTraining(traces, SETTINGS)
    training.run_updates(3)
    weight = training.to_arrays()["forward.0.weight"]
    assert not weight[:, CONSTANT].any() and np.abs(weight[:, [0, CONTACT]]).min() > 0.0
    assert training.binary.tolist() == [False, False, True, False], "a constant 0 is no contact"


def test_of_few_episodes_none_is_held_out_and_no_figure_is_nan(traces):
    assert PredictionTraining(traces, SETTINGS).run_updates(1).keys() == {"loss"}
    assert PredictionTraining(10 * traces, SETTINGS).run_updates(1).keys() == {"loss", "held_out"}


def test_nor_what_is_imputed(traces):
    training = ImputationTraining(traces, SETTINGS, np.random.default_rng(1))
    training.run_updates(2)
    weight = training.to_arrays()["imputation.0.weight"]
    seen = [*CONSTANT, *(CHANNELS + place for place in CONSTANT)]
    assert not weight[:, seen].any() and np.abs(np.delete(weight, seen, 1)).min() > 0.0


def test_imputation_continues_from_arrays_as_if_they_had_been_its_own(traces):
    first = ImputationTraining(traces[:2], SETTINGS, np.random.default_rng(1))
    first.run_updates(2)
    other = ImputationTraining(traces[1:], SETTINGS, np.random.default_rng(2), first.to_arrays())
    for name, expected in first.to_arrays().items():
        if "max_roughness" not in name and "typical" not in name:
            np.testing.assert_allclose(other.to_arrays()[name], expected, rtol=1e-4, atol=1e-5)


def test_before_any_update_a_missing_position_follows_its_velocity_further_than_was_seen():
    rng, traces = np.random.default_rng(0), []
    for _ in range(8):
        velocity = np.cumsum(rng.standard_normal(60)) * 0.3
        readings = np.stack([np.cumsum(0.1 * velocity), velocity], 1).astype(np.float32)
        traces.append(EpisodeTrace(readings, np.zeros((59, 1), np.float32), False))
    torch.manual_seed(0)
    training = ImputationTraining(traces, SETTINGS, np.random.default_rng(1))
    far = 3.0 * np.abs(np.concatenate([one.readings for one in traces])).max(0)
    position, velocity = far.astype(np.float32)
    inputs = np.array([position, velocity, position, velocity, 1.0, 0.0, 0.0], np.float32)
    arrays, x = training.to_arrays(), inputs
    for layer in range(3):
        x = arrays[f"imputation.{layer}.weight"] @ x + arrays[f"imputation.{layer}.bias"]
        x = x * 0.5 * (1.0 + np.tanh(0.5 * x)) if layer < 2 else x
    assert x[0] - position == pytest.approx(0.1 * velocity, rel=0.2)


def test_identity_learned_with_noise_names_more_channels_of_noisy_readings():
    """Their levels differ a little and their changes much, which noise on the readings hides."""
    rng, traces = np.random.default_rng(0), []
    for _ in range(6):
        begin = rng.uniform(-1, 1, 6) + np.linspace(-1.5, 1.5, 6)
        readings = begin + np.arange(60)[:, None] * np.linspace(-0.01, 0.01, 6)
        traces.append(
            EpisodeTrace(readings.astype(np.float32), np.zeros((59, 2), np.float32), False)
        )
    seen = np.array([trace.readings[: WINDOW + 1] for trace in traces])
    noisy = seen + 0.1 * rng.standard_normal(seen.shape).astype(np.float32)
    actions = np.zeros((len(seen), WINDOW, 2), np.float32)

    def right(noise):
        torch.manual_seed(0)
        settings = replace(SETTINGS, reading_noise=noise, identity=16, identity_updates=300)
        training = IdentityTraining(traces, settings, np.random.default_rng(1))
        training.run_updates(300)
        units = training.to_arrays()["identity.units"]
        features = compute_identity_classifier_inputs(
            noisy[:, 1:], np.diff(noisy, axis=1), actions, units
        )
        with torch.no_grad():
            found = training.network(*map(torch.tensor, features)).argmax(-1).numpy()
        return (found == np.arange(6)).mean()

    exact, with_noise = right(0.0), right(0.1)
    assert with_noise > exact + 0.1
