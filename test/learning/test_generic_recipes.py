# ruff: noqa: E402
"""What the recipes for any robot need: steps instead of episodes, time limits, delay and noise."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs the train extra")

from an_control.learning.dagger.episodes import Episode, RolloutSettings, StudentRollout
from an_control.learning.dagger.learner import Dagger
from an_control.learning.dagger.recipes import read_recipe, smoke
from an_control.learning.dagger.settings import Collection
from an_control.learning.dagger.streams import Streams, StreamSettings
from an_control.learning.environments import make_environment
from an_control.learning.faults import FaultSettings, faulty
from an_control.learning.forward_model.episodes import explore
from an_control.learning.runs.run_folder import RunFolder
from an_control.learning.runs.run_loop import RunLoop
from an_control.learning.teacher.teachers import ChoiceTeacher, FunctionTeacher, NetworkTeacher

CART, POLE = "cart_env:Cart-v0", "CartPole-v1"
PUSH = np.array([[-2.0, -3.0]])
LATE = FaultSettings(delay=1.0, max_delay=2, jitter=1.0, max_jitter=0.5)


def small(**changes):
    """The robust recipe, but of seconds."""
    return replace(smoke(read_recipe("robust")), **changes)


def dagger(folder, settings, environment=CART, teacher=None):
    teacher = teacher or NetworkTeacher([(PUSH, np.zeros(1))], "tanh")
    student = replace(settings.student, head=(), output=teacher.output)
    return Dagger(folder, environment, environment, teacher, replace(settings, student=student), 1)


def test_rounds_record_steps_however_long_an_episode_is(tmp_path):
    plan = Collection(
        episode_steps=100, clean=1, noisy=0, perturbed=2, on_policy=1, rewired=0, mixed=0
    )
    learner = dagger(tmp_path, small(collection=plan))
    episodes = [learner.step()["episodes"] for _ in range(2)]
    assert episodes == [3 + 5, 3], "100 steps are 3 episodes of 40, 200 steps are 5"
    learner.close()


def test_a_run_with_a_time_limit_ends_by_it_and_keeps_its_best_student(tmp_path):
    settings = small(rounds=1000, minutes=1 / 60, validation_episodes=1)
    learner = dagger(tmp_path, settings)
    run = RunLoop(RunFolder(tmp_path, learner.config), learner)
    run.run()
    assert run.finished and 1 < run.done < 1000 and learner.progress >= 1.0
    again = dagger(tmp_path, settings)
    assert RunLoop(RunFolder(tmp_path, again.config), again).finished
    longer = dagger(tmp_path, replace(settings, minutes=100.0))
    assert not RunLoop(RunFolder(tmp_path, longer.config), longer).finished
    for one in (learner, again, longer):
        one.close()


def test_the_head_begins_as_a_teacher_that_is_squashed_by_tanh(tmp_path):
    learner = dagger(tmp_path, small())
    model = learner.model()
    assert model.sizes.output == "tanh"
    np.testing.assert_allclose(model.arrays["head.0.weight"][:, :2], PUSH)
    learner.close()


def test_a_discrete_teachers_labels_are_its_choice_alone(tmp_path):
    chosen = ChoiceTeacher(FunctionTeacher(lambda seen: np.array([0.2, 0.3, -0.9])))
    assert chosen(np.zeros(2)).tolist() == [-1.0, 1.0, -1.0]
    teacher = FunctionTeacher(lambda seen: np.array([0.1, 0.1 + seen[2] + 0.2 * seen[3]]))
    learner = dagger(tmp_path, small(), POLE, teacher)
    learner.step()
    (first, *_) = learner._recordings.read(0)
    assert set(np.unique(first.labels)) == {-1.0, 1.0}
    learner.close()


def test_what_comes_late_and_with_noise_is_what_the_simulator_would_give(tmp_path):
    """Of streams as of the student's own episodes; the label stays that of the present."""
    rng = np.random.default_rng(0)
    readings = np.arange(30, dtype=np.float32)[:, None].repeat(2, 1)
    for faults in (LATE.draw(rng) for _ in range(20)):
        assert faults.delay in (1, 2) and 0.0 < faults.jitter < 0.5
        seen = faulty(readings, faults, rng)
        late = np.maximum(np.arange(30) - faults.delay, 0)[:, None]
        assert 0.0 < np.abs(seen - late).max() < 5 * faults.jitter
    labels = np.arange(30, dtype=np.float32)[:, None]
    episode = Episode(readings, np.zeros((30, 1), np.float32), labels)
    settings = StreamSettings(0.0, 0.0, 0.0, action_noise=0.0)
    only_late = FaultSettings(delay=1.0)
    batch = Streams([episode], 1, 30, settings, 1, rng, faults=only_late).batch()
    assert batch.values[:, 0, 0].tolist() == [0.0, *range(29)]
    assert batch.labels[:, 0, 0].tolist() == batch.ordered[:, 0, 0].tolist() == [*range(30)]


def test_the_student_acts_on_late_readings_in_its_own_episodes():
    seen = []
    policy = SimpleNamespace(
        reset=lambda: None,
        step_array=lambda values, ids: seen.append(sorted(values)) or np.zeros(1),
    )
    rng = np.random.default_rng(0)
    how = RolloutSettings(faults=FaultSettings(delay=1.0, max_delay=1))
    rollout = StudentRollout(rng, policy, 2, how)
    for step in range(4):
        reading = np.array([step, 10.0 + step], np.float32)
        rollout.act(reading, np.ones(1), np.zeros(1))
    assert seen == [[0, 10], [0, 10], [1, 11], [2, 12]]


def test_the_monitor_learns_from_late_readings_where_it_is_asked_to():
    still = SimpleNamespace(start=lambda modes: None, act=lambda readings: np.zeros(1))
    env = make_environment(CART)
    now, late = (
        explore(env, still, 40, np.random.default_rng(0), faults)[0].readings
        for faults in (FaultSettings(), FaultSettings(delay=1.0))
    )
    env.close()
    assert len(now) == len(late) == 41 and (np.diff(now[:, 0]) != 0).any()
    assert (late[0] == late[1]).all() and not (now[0] == now[1]).all()


def test_a_chance_of_none_takes_no_random_number():
    rng = np.random.default_rng(0)
    assert not FaultSettings().draw(rng).active
    assert rng.random() == np.random.default_rng(0).random()


def test_an_environment_in_double_precision_is_distilled(tmp_path):
    env = make_environment(CART)
    assert env.unwrapped.observation_space.dtype == np.float64
    env.close()
    learner = dagger(tmp_path, small())
    assert learner.step()["episodes"] == 3
    learner.close()
