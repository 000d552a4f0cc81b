"""experiments/ant_policy/constant_bias.py: what a constant on some sensors costs the Ant."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

pytest.importorskip("pybullet", reason="needs the sim extra")

from an_control_sim.envs.ant import ANT_CHANNELS
from experiments.ant_policy import constant_bias

ROOT = Path(__file__).resolve().parents[2]


class Zeros(gymnasium.Env):
    """Its observation is 0 everywhere, and it ends after one step."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (28,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (8,), np.float32)

    def reset(self, *, seed=None, options=None):
        return np.zeros(28, np.float32), {}

    def step(self, action):
        return np.zeros(28, np.float32), 1.0, True, False, {}


def test_the_constant_is_on_the_named_sensors_only(monkeypatch):
    seen = []

    def play(policy, env, *_):
        seen.append(env.reset()[0])
        return type("Played", (), {"total": 1.0})

    monkeypatch.setattr(constant_bias, "make_environment", lambda _: Zeros())
    monkeypatch.setattr(constant_bias, "play_episode", play)
    model = ROOT / "models/ant_quick.safetensors"
    assert constant_bias.measure_returns_with_sensor_bias(model, 0.05, "roll and pitch", 2) == [
        1.0,
        1.0,
    ]
    expected = [0.05 if name in ("roll", "pitch") else 0.0 for name in ANT_CHANNELS]
    np.testing.assert_allclose(seen, [expected] * 2, rtol=1e-6)
    assert seen[0].dtype == np.float32
