"""A network of another tool is the teacher of a permutation-invariant student."""

from pathlib import Path

import gymnasium
import numpy as np
import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("torch")

from foreign.networks import NAMED, linear, recurrent, save

from an_control import load_policy
from an_control.learning.teacher.teachers import read_teacher


class Named(gymnasium.Env):
    """Three readings with names, in another order than the network's."""

    observation_space = gymnasium.spaces.Box(-1.0, 1.0, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)
    channels = ("c", "a", "b")

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, np.float32), {}

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, False, False, {}


gymnasium.register("test/Named-v0", Named)


@pytest.fixture
def env():
    from an_control_sim.gym.environments import make_environment

    made = make_environment("test/Named-v0")
    yield made
    made.close()


def test_a_teacher_gets_the_readings_by_name(tmp_path, env):
    path = save(tmp_path, linear())
    teacher, policy = read_teacher(str(path), env), load_policy(path)
    seen = np.array([0.1, -0.2, 0.3], np.float32)
    expected = policy.step(dict(zip(("c", "a", "b"), seen.tolist(), strict=True)))
    np.testing.assert_allclose(teacher(seen), expected, atol=1e-7)
    assert teacher.digest == policy.model.network.sha256[:12]


def test_a_network_that_remembers_is_refused(tmp_path: Path, env):
    for network, yaml in (
        (recurrent(), None),
        (linear(5, 2, {**NAMED, "observation_names": "a,b,c,actions"}), None),
        (linear(6, 2), "history: {length: 2}\n"),
    ):
        path = save(tmp_path, network, yaml)
        with pytest.raises(ValueError, match="must act on one observation alone"):
            read_teacher(str(path), env)
