"""Compiled rollouts of gymnasium's classic control play what gymnasium plays."""

import gymnasium
import numpy as np
import pytest

pytest.importorskip("numba", reason="needs the sim extra")

from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.learning.evaluation.evaluate import play_episodes
from an_control.learning.rollout.compiled.classic_control import (
    PHYSICS,
    find_physics_of_classic_control,
)
from an_control.learning.rollout.compiled.engine import FusedEngine
from an_control.learning.rollout.engine import make_evaluation_seeds
from an_control.learning.rollout.processes import ProcessEngine, make_rollout_engine
from an_control.load import make_policy
from an_control.policy import AttentionSizes
from an_control.policy.random_model import make_random_model
from an_control_sim.gym.environments import describe_task, make_environment


@pytest.fixture(params=PHYSICS)
def env(request):
    env = make_environment(request.param)
    yield env
    env.close()


def test_every_step_of_an_episode_is_gymnasiums(env):
    physics, rng = PHYSICS[env.spec.id], np.random.default_rng(0)
    reward, ended, steps = np.zeros(1), np.zeros(1, np.bool_), 0
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        state, seen = physics.start(seed)[:, None].copy(), np.zeros((len(observation), 1), "f4")
        over = False
        while not over:
            physics.observe(state, seen)
            np.testing.assert_allclose(seen[:, 0], observation, rtol=0, atol=1e-6)
            action = rng.uniform(-1.2, 1.2, env.action_space.shape).astype(np.float32)
            observation, gain, end, cut, _ = env.step(action)
            physics.advance(state, action[:, None].copy(), reward, ended)
            assert reward[0] == pytest.approx(gain, abs=1e-6) and ended[0] == end
            steps, over = steps + 1, end or cut
    assert steps > 400


@pytest.mark.parametrize("shuffle", [Shuffle(False), Shuffle(True, 30)], ids=str)
def test_a_policys_returns_are_those_of_gymnasiums_episodes(env, shuffle):
    task, disturbance = (
        describe_task(env, "a task", env.spec.id),
        DisturbanceSettings(shuffle=shuffle),
    )
    actions = env.action_space.shape[0]
    model = make_random_model(AttentionSizes(actions, 8, 16, 32, ["value"], []), seed=5, task=task)
    played = play_episodes(make_policy(model), env, task.channels, 10, 3, disturbance)
    engine = FusedEngine(PHYSICS[env.spec.id], task.channels, actions, 1)
    outcomes = engine.play([model], make_evaluation_seeds(3, 10), disturbance)
    engine.close()
    assert outcomes.steps[0].tolist() == [result.steps for result in played]
    assert outcomes.returns[0] == pytest.approx([result.total for result in played], abs=1e-3)


@pytest.mark.parametrize(
    ("name", "changed"),
    [("Pendulum-v1", {"g": 9.0}), ("CartPole-v1", {"max_episode_steps": 50})],
)
def test_an_environment_with_other_arguments_is_not_taken_for_the_compiled_one(name, changed):
    with make_environment(name, **changed) as other, make_environment(name) as plain:
        assert (
            find_physics_of_classic_control(other) is None
            and find_physics_of_classic_control(plain) is PHYSICS[name]
        )


def test_what_has_no_compiled_physics_trains_by_processes():
    sizes = AttentionSizes(1, 8, 16, 32, ["value"], [])
    for name, kind in (("Pendulum-v1", FusedEngine), ("MountainCarContinuous-v0", ProcessEngine)):
        env = make_environment(name)
        channels = describe_task(env, name, name).channels
        engine = make_rollout_engine("auto", env, name, channels, sizes, workers=1)
        assert type(engine) is kind
        engine.close()
        env.close()


def test_the_physics_has_an_episodes_length_of_gymnasiums_registry():
    for name, physics in PHYSICS.items():
        assert gymnasium.spec(name).max_episode_steps == physics.steps
