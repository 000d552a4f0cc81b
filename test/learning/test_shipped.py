"""The shipped CartPole policies are what their cards say."""

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs the sim extra")
pytest.importorskip("gymnasium", reason="needs the sim extra")

from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.learning.es.parametrisation import PaperForm, choose_policy_parametrisation
from an_control.learning.evaluation.evaluate import play_episodes_with_compiled_code
from an_control.policy import read_model
from an_control.system.share import find_share_path


def mean_and_success(cartpole, name, **disturbance):
    model = read_model(find_share_path(f"models/{name}.safetensors"))
    settings = DisturbanceSettings(**disturbance)
    channels = cartpole.unwrapped.channels
    results = play_episodes_with_compiled_code(model, cartpole, channels, 2000, 1, settings)
    returns = np.array([result.total for result in results])
    return returns.mean(), (returns > 400.0).mean()


def test_the_cartpole_policy_has_the_authors_size():
    assert (
        choose_policy_parametrisation(read_model(find_share_path("models/cartpole.safetensors")))
        == PaperForm()
    )


def test_the_cartpole_policy_balances_whatever_the_order_and_among_noise(cartpole):
    shuffled, success = mean_and_success(cartpole, "cartpole", shuffle=Shuffle(True))
    assert shuffled > 520.0 and success > 0.59
    among_noise, _ = mean_and_success(cartpole, "cartpole", shuffle=Shuffle(True), noise_channels=5)
    assert among_noise > 0.98 * shuffled


@pytest.mark.slow
def test_the_stacked_policy_hardly_minds_reshuffles(cartpole):
    assert read_model(find_share_path("models/cartpole_stacked.safetensors")).sizes.stack == 4
    shuffled, success = mean_and_success(cartpole, "cartpole_stacked", shuffle=Shuffle(True))
    assert shuffled > 420.0 and success > 0.59
    every_25, _ = mean_and_success(cartpole, "cartpole_stacked", shuffle=Shuffle(True, 25))
    assert every_25 > 0.9 * shuffled


def test_copies_of_channels_cost_a_normalised_policy_nothing(cartpole):
    model = read_model(
        find_share_path("models/cartpole.safetensors")
    ).copy_with_normalised_channel_sums(5)
    returns = [
        [
            result.total
            for result in play_episodes_with_compiled_code(
                model, cartpole, model.task.channels, *what
            )
        ]
        for what in ((500, 1, DisturbanceSettings()), (500, 1, DisturbanceSettings(copies=20)))
    ]
    assert np.mean(returns[1]) == pytest.approx(np.mean(returns[0]), abs=2.0)


@pytest.mark.slow
def test_the_reshuffle_policy_balances_and_finds_its_channels_again(cartpole):
    shuffled, success = mean_and_success(cartpole, "cartpole_reshuffle", shuffle=Shuffle(True))
    assert shuffled > 560.0 and success > 0.62
    every_100, _ = mean_and_success(cartpole, "cartpole_reshuffle", shuffle=Shuffle(True, 100))
    assert every_100 > 420.0
