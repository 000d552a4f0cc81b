"""Noise on all sensors is estimated by the channels that are smooth without it."""

import numpy as np
import pytest

from an_control.monitor.sensor_noise import (
    SensorNoiseEstimator,
    estimate_noise_of_smoothest_channels,
)
from an_control.monitor.settings import MONITOR

TICKS = MONITOR.noise.ticks


def smooth_and_rough(ticks, rng):
    """Three ramps, a contact and a channel that jumps about."""
    time = np.arange(ticks)[:, None]
    ramps = time * np.array([0.01, -0.2, 0.5])
    return np.hstack([ramps, time // 7 % 2, rng.normal(size=(ticks, 1))])


@pytest.mark.parametrize("sd", [0.005, 0.02, 0.1])
def test_the_noise_is_estimated_by_the_smoothest_channels(sd):
    rng = np.random.default_rng(1)
    clean = smooth_and_rough(TICKS, rng)
    assert estimate_noise_of_smoothest_channels(clean) == pytest.approx(0.0, abs=1e-9)
    noisy = [
        estimate_noise_of_smoothest_channels(clean + sd * rng.normal(size=clean.shape))
        for _ in range(20)
    ]
    assert 0.5 * sd < np.mean(noisy) < 1.1 * sd


def test_noise_sets_in_and_ends():
    rng, noise = np.random.default_rng(2), SensorNoiseEstimator(0.003, np.zeros(5, bool))
    clean = smooth_and_rough(300, rng)
    clean[100:200] += 0.02 * rng.normal(size=(100, 5))
    began = [
        tick for tick, row in enumerate(clean) if noise.update_noise_estimate_and_check_onset(row)
    ]
    assert len(began) == 1 and 100 < began[0] < 100 + TICKS
    assert noise.sd == 0.0


def test_noise_is_estimated_and_filtered_while_channels_are_missing():
    rng, noise = np.random.default_rng(2), SensorNoiseEstimator(0.003, np.zeros(5, bool))
    clean = smooth_and_rough(100, rng)
    clean += 0.02 * rng.normal(size=clean.shape)
    clean[:, 1] = clean[40:, 0] = np.nan
    for row in clean:
        noise.update_noise_estimate_and_check_onset(row)
    assert 0.01 < noise.sd < 0.04
    expected, scale = np.zeros(5, np.float32), np.full(5, 0.01, np.float32)
    readings = np.array([np.nan, 0.02, -0.02, 0.01, np.nan], np.float32)
    for _ in range(3):
        found = noise.filter_noise(expected, scale, readings)
        assert np.isnan(found).tolist() == np.isnan(readings).tolist()
        assert (np.abs(found[1:4]) < np.abs(readings[1:4])).all()


def test_signals_that_move_are_no_noise():
    rng, noise = np.random.default_rng(4), SensorNoiseEstimator(0.003, np.zeros(5, bool))
    clean, order = smooth_and_rough(400, rng), np.arange(5)
    for tick, row in enumerate(clean):
        if tick % 10 == 9:
            order = rng.permutation(5)
            noise.discard_recorded_readings()
        noise.update_noise_estimate_and_check_onset(row[order])
        assert noise.sd == 0.0


@pytest.mark.parametrize(("bias", "worst"), [(0.0, 0.6), (0.05, 1.5)])
def test_a_model_that_is_right_filters_noise_and_one_that_is_wrong_does_not_overrule(bias, worst):
    """`worst` is the filtered readings' error, as a share of the readings' own."""
    sd, rng, noise = (
        0.02,
        np.random.default_rng(3),
        SensorNoiseEstimator(0.003, np.zeros(5, bool)),
    )
    true = np.zeros((TICKS + 200, 5), np.float32)
    readings = (true + sd * rng.normal(size=true.shape)).astype(np.float32)
    sure = np.full(5, 0.001, np.float32)
    errors = []
    for row in readings:
        noise.update_noise_estimate_and_check_onset(row)
        if noise.sd:
            errors.append(
                np.abs(noise.filter_noise(np.full(5, bias, np.float32), sure, row)).mean()
            )
    assert np.mean(errors[100:]) < worst * np.abs(readings).mean()
