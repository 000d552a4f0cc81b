"""The script that teaches a teacher of the Ant to get up from the ground."""

import sys
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="needs the train extra")

from an_control.learning.teacher.teachers import Teacher, make_network_teacher, read_teacher
from an_control.policy import MlpSizes, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.system.share import find_share_path
from an_control_sim.envs.tasks import ANT_TASK
from an_control_sim.gym.environments import find_environment_id, make_environment
from experiments.ant_policy import gets_up

TEACHER = find_share_path("models/ant_teacher.safetensors")
CHANNELS = list(ANT_TASK.channels)


@pytest.fixture(scope="module")
def teacher() -> Teacher:
    with closing(make_environment(find_environment_id("ant"))) as env:
        found = read_teacher(str(TEACHER), env)
    assert found is not None
    return found


@given(st.floats(-0.7, 0.5), st.integers(0, 2**20))
def test_the_network_is_the_reflex_on_the_ground_and_the_teacher_elsewhere(teacher, height, seed):
    rng = np.random.default_rng(seed)
    reflex = gets_up.Reflex(rng.standard_normal((8, len(CHANNELS) + 1)))
    arrays = gets_up.join_reflex_and_teacher(teacher.layers, reflex, CHANNELS.index("height"))
    both = make_network_teacher(
        [(arrays[f"head.{n}.weight"], arrays[f"head.{n}.bias"]) for n in range(3)], "tanh"
    )
    observation = rng.standard_normal(len(CHANNELS)).astype(np.float32)
    observation[0] = height
    if height > gets_up.LYING + 1e-3:
        assert both(observation) == pytest.approx(teacher(observation), abs=1e-5)
    elif height < gets_up.LYING - 2e-3:
        pushes = reflex.matrix[:, :-1] @ observation + reflex.matrix[:, -1]
        assert both(observation) == pytest.approx(np.tanh(gets_up.GAIN * pushes), abs=1e-3)


def test_a_reflex_uses_what_an_ant_on_the_ground_can_tell_its_legs_by():
    numbers = np.ones(8 * 22)
    matrix = gets_up.Reflex.from_flat_weights(numbers, CHANNELS, 8).matrix
    used = [name for name, column in zip(CHANNELS, matrix.T, strict=False) if column.any()]
    assert len(used) == 21 and not {"height", "goal.sin", "foot_1.contact"} & set(used)
    assert matrix[0, CHANNELS.index("hip_1.position")] == 1.0
    assert matrix[0, CHANNELS.index("hip_1.velocity")] == gets_up.SPEED_SCALE


def test_the_script_writes_a_teacher_that_walks_as_before(teacher, tmp_path, monkeypatch, capsys):
    for name, few in {"CANDIDATES": 2, "FINALISTS": 1, "GENERATIONS": 1, "POPULATION": 4}.items():
        monkeypatch.setattr(gets_up, name, few)
    monkeypatch.setattr(gets_up, "STEPS", 4)
    out = tmp_path / "up.safetensors"
    monkeypatch.setattr(sys, "argv", ["gets_up", str(TEACHER), str(out)])
    gets_up.main()
    assert capsys.readouterr().out.endswith(f"{out}\n")
    with closing(make_environment(find_environment_id("ant"))) as env:
        made = read_teacher(str(out), env)
        observation, _ = env.reset(seed=1)
        assert made(observation) == pytest.approx(teacher(observation), abs=1e-5)
    assert read_model(out).trained["of"]["how"].startswith("TD3")


def test_a_teacher_of_another_form_is_refused(tmp_path, monkeypatch, capsys):
    path = tmp_path / "clipped.safetensors"
    sizes = MlpSizes(28, 8, [4, 4], activation="relu", output="clip")
    write_model(path, make_random_model(sizes, seed=1, task=ANT_TASK))
    monkeypatch.setattr(sys, "argv", ["gets_up", str(path), str(tmp_path / "up")])
    with pytest.raises(SystemExit):
        gets_up.main()
    assert "clipped.safetensors: must have two hidden relu layers" in capsys.readouterr().err
