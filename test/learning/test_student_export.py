# ruff: noqa: E402
"""What a student exports acts as the student did, with every part that it may have."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("pybullet", reason="needs the sim extra")

from an_control.learning.dagger.settings import StudentSizes
from an_control.learning.dagger.streams import NoisyTeacher, StreamBatch, record_episode
from an_control.learning.dagger.student import Student
from an_control.learning.teacher.teachers import load_pybullet_ant_teacher
from an_control.load import load_policy
from an_control.policy import write_model
from an_control.policy.sizes import RecurrenceSizes
from an_control_sim.envs.tasks import ANT_TASK
from an_control_sim.gym.environments import TASK_ENVIRONMENTS, make_environment

TEACHER = load_pybullet_ant_teacher()


@pytest.fixture(scope="module")
def episode():
    env, rng = make_environment(TASK_ENVIRONMENTS["ant"]), np.random.default_rng(0)
    episode = record_episode(env, TEACHER, NoisyTeacher(rng, 0.1), rng)
    env.close()
    return episode


STUDENTS = {
    "plain": StudentSizes(),
    "products": StudentSizes(products=True),
    "reset on jump": StudentSizes(reset_on_jump=True),
    "one reading": StudentSizes(stack=1),
    "stacked": StudentSizes(products=True, stack=4, reset_on_jump=True),
    "remembering": StudentSizes(products=True, memory=16),
    "all": StudentSizes(
        products=True,
        memory=16,
        outlier_weighting=True,
        reset_on_jump=True,
        prediction_attention=True,
    ),
}


WITH_PARTS = {
    "sab": StudentSizes(neuron=12, head=(9,), encoder="sab", heads=3),
    "isab, remembering": StudentSizes(neuron=12, encoder="isab", inducing=5, memory=8),
    "pma": StudentSizes(neuron=12, head=(9,), pma=3, heads=2),
    "isab, pma, gtrxl": StudentSizes(
        neuron=12,
        head=(9,),
        encoder="isab",
        pma=3,
        recurrence=RecurrenceSizes("gtrxl", units=8, layers=2, heads=2, window=7),
    ),
    "gru": StudentSizes(neuron=12, head=(9,), recurrence=RecurrenceSizes("gru", units=8)),
}


@pytest.mark.parametrize("sizes", WITH_PARTS.values(), ids=WITH_PARTS)
def test_the_exported_policy_has_the_parts_of_the_student(episode, tmp_path, sizes):
    assert_acts_alike(episode, tmp_path, sizes, "numpy")


@pytest.mark.parametrize("sizes", STUDENTS.values(), ids=STUDENTS)
@pytest.mark.parametrize("engine", ["numpy", "numba"])
def test_the_exported_policy_acts_as_the_student(episode, tmp_path, sizes, engine):
    assert_acts_alike(episode, tmp_path, sizes, engine)


def assert_acts_alike(episode, tmp_path, sizes, engine):
    """Step by step, through a reshuffle."""
    torch.manual_seed(0)
    student = Student(28, 8, sizes)
    if sizes.head == StudentSizes().head:
        student.copy_teacher_into_head(TEACHER.layers)
    path = tmp_path / "student.safetensors"
    write_model(path, student.make_model(ANT_TASK, {}))
    policy = load_policy(path, engine=engine)
    acted, previous, last = [], np.zeros(8, np.float32), episode.observations[0]
    state = student.make_initial_state(1, 28)
    for step, observation in enumerate(episode.observations[:300]):
        if step >= 150:
            observation = observation[::-1].copy()
        moved = sizes.reset_on_jump and step == 150
        change = np.zeros(28, np.float32) if moved else observation - last
        policy.previous_action = previous
        with torch.no_grad():
            outcome = student(_one_step(observation, change, previous, moved), state)
        previous, state = outcome.action.clip(-1, 1)[0, 0].numpy(), outcome.state
        acted.append((previous, policy.step_array(observation, policy.nominal_ids)))
        last = observation
    ours, exported = np.array(acted).transpose(1, 0, 2)
    assert len(acted) > 100
    np.testing.assert_allclose(exported, ours, atol=1e-4 if sizes.memory else 1e-5)


def _one_step(observation, change, previous, moved) -> StreamBatch:
    values, changed, acted = (
        torch.from_numpy(array)[None, None] for array in (observation, change, previous)
    )
    channel = torch.arange(28)[None, None]
    one, fresh = torch.ones(1, 1), torch.zeros(1, dtype=torch.bool)
    ones, resets = torch.ones_like(values), one * moved
    return StreamBatch(values, changed, acted, values, acted, channel, ones, one, resets, fresh)
