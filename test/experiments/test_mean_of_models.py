"""experiments/ant_policy/mean_of_models.py: the mean of several models' weights, as one model."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from an_control.policy import read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import make_paper_sizes
from an_control_sim.envs.tasks import ANT_SIZES, ANT_TASK

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments):
    words = [sys.executable, "-m", "experiments.ant_policy.mean_of_models", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)


@pytest.fixture
def models(tmp_path):
    paths = [tmp_path / f"{seed}.safetensors" for seed in (1, 2)]
    for seed, path in enumerate(paths, 1):
        write_model(path, make_random_model(ANT_SIZES, seed=seed, task=ANT_TASK))
    return paths


def test_every_weight_is_the_mean_and_the_file_says_of_what(models, tmp_path):
    out = tmp_path / "mean.safetensors"
    result = run(*models, "--out", out)
    assert result.returncode == 0, result.stderr
    one, other = map(read_model, models)
    mean = read_model(out)
    for name, array in mean.arrays.items():
        expected = (one.arrays[name].astype(np.float64) + other.arrays[name]) / 2
        np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-7)
    assert mean.trained == {"how": "mean of models", "of": [one.trained, other.trained]}
    assert mean.task == one.task


def test_what_tasks_say_differently_is_taken_from_the_last_file(models, tmp_path):
    """The mean of a policy without recovery and one with it had none."""
    later, out = read_model(models[1]), tmp_path / "mean.safetensors"
    write_model(models[1], replace(later, task=replace(ANT_TASK, recovery=0.03)))
    assert run(*models, "--out", out).returncode == 0
    assert read_model(out).task.recovery == 0.03


def test_models_of_other_sizes_are_refused(models, tmp_path):
    other, out = tmp_path / "other.safetensors", tmp_path / "mean.safetensors"
    write_model(
        other, make_random_model(make_paper_sizes(8, queries=16, hidden_layers=1), task=ANT_TASK)
    )
    result = run(models[0], other, "--out", out)
    assert result.returncode == 2 and "sizes: " in result.stderr
    assert not out.exists()
