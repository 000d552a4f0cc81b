"""The attention to noise channels, in experiments/tables/questions.md."""

import pytest

from an_control.load import make_policy
from an_control.policy import read_model
from an_control.system.share import find_share_path
from experiments.noise_attention import run as noise_attention


def test_attention_is_told_apart_by_signal_wherever_the_signals_are():
    policy = make_policy(read_model(find_share_path("models/cartpole.safetensors")), "off")
    nominal, total = noise_attention.measure_attention_and_mean_return(
        policy, "cartpole", "none", 1, 1
    )
    moved, again = noise_attention.measure_attention_and_mean_return(
        policy, "cartpole", "reset", 1, 1
    )
    assert again == pytest.approx(total) and total > 400
    assert moved == pytest.approx(nominal) and len(moved) == 5
    noisy, _ = noise_attention.measure_attention_and_mean_return(
        policy, "cartpole", "reset,noise=2", 1, 1
    )
    assert 0.0 < noisy["a noise channel"] < 1.0
