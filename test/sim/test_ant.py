"""The Ant environment keeps to AntBulletEnv-v0, to its seed and to the wiring's arithmetic."""

# ruff: noqa: E402
import json
import subprocess
import sys
import warnings

import numpy as np
import pytest

pytest.importorskip("pybullet", reason="needs the sim extra")
gymnasium = pytest.importorskip("gymnasium", reason="needs the sim extra")

from gymnasium.utils.env_checker import check_env

import an_control_sim
from an_control.wiring.messages import compute_pitch, compute_roll
from an_control_sim.envs.ant import ANT_CHANNELS, ANT_SCALING, AntEnv


@pytest.fixture
def env():
    env = AntEnv()
    yield env
    env.close()


def actions(seed: int, steps: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-0.7, 0.7, (steps, 8)).astype(np.float32)


def episode(env, seed: int, steps: int = 60) -> list:
    observation, _ = env.reset(seed=seed)
    trace = [observation.tobytes()]
    for action in actions(seed, steps):
        observation, reward, terminated, _, info = env.step(action)
        trace += [observation.tobytes(), reward, terminated, info["distance_m"]]
    return trace


def test_every_step_is_that_of_the_packages_ant(env):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        package = pytest.importorskip("pybullet_envs_gymnasium.gym_locomotion_envs")
        theirs = package.AntBulletEnv()
        theirs.reset(seed=0)  # its first reset leaves the floor out of the body's centre
        for seed in (1, 2):
            expected, _ = theirs.reset(seed=seed)
            observation, _ = env.reset(seed=seed)
            np.testing.assert_allclose(observation, expected, atol=1e-5)
            for action in actions(seed, 300):
                expected, expected_reward, expected_end, _, _ = theirs.step(action)
                observation, reward, terminated, _, _ = env.step(action)
                np.testing.assert_allclose(observation, expected, atol=1e-5)
                assert reward == pytest.approx(expected_reward, abs=1e-5)
                assert terminated == expected_end
                if terminated:
                    break
        theirs.close()


def test_a_seed_gives_the_same_episode_whatever_came_before(env):
    first = episode(env, seed=5)
    episode(env, seed=6)
    env.step(np.ones(8, np.float32))
    assert episode(env, seed=5) == first
    another = AntEnv()
    assert episode(another, seed=5) == first
    another.close()


def test_a_picture_does_not_change_the_episode(env):
    seen = AntEnv(render_mode="rgb_array")
    seen.reset(seed=9)
    seen.render()
    assert episode(seen, seed=5) == episode(env, seed=5)
    seen.close()


def test_a_seed_gives_the_same_episode_in_another_process(env):
    program = (
        "import json, numpy as np; from an_control_sim.envs.ant import AntEnv; env = AntEnv();"
        "env.reset(seed=3); a = np.random.default_rng(3).uniform(-0.7, 0.7, (60, 8));"
        "print('RESULT', json.dumps([env.step(x.astype(np.float32))[1] for x in a]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120
    )
    line = next(line for line in output.stdout.splitlines() if line.startswith("RESULT"))
    env.reset(seed=3)
    assert json.loads(line.removeprefix("RESULT")) == [env.step(a)[1] for a in actions(3, 60)]


def test_the_observation_is_the_scaled_readings_of_the_sensors_to_the_last_bit(env):
    scale, offset = np.array([ANT_SCALING[name] for name in ANT_CHANNELS]).T
    env.reset(seed=4)
    for action in actions(4, 50):
        observation = env.step(action)[0]
        sensors = env.sensors()
        joints = np.stack([sensors["joint_position"], sensors["joint_velocity"]], axis=1)
        readings = np.concatenate(
            [
                [sensors["height"]],
                sensors["goal"][::-1],
                sensors["velocity"],
                [compute_roll(*sensors["orientation"]), compute_pitch(*sensors["orientation"])],
                joints.ravel(),
                sensors["foot_contact"],
            ]
        )
        again = np.clip(readings * scale + offset, -5, 5).astype(np.float32)
        assert again.tobytes() == observation.tobytes()
        assert sensors["position"][2] == sensors["height"]


def test_it_passes_gymnasiums_own_check(env):
    check_env(env, skip_render_check=True)


def test_it_is_registered_once_with_its_time_limit():
    an_control_sim.register_envs()
    env = gymnasium.make("an_control/Ant-v0")
    assert env.spec.max_episode_steps == 1000
    assert env.observation_space.shape == (len(ANT_CHANNELS),)
    env.close()


def test_it_ends_when_the_torso_scrapes_the_ground(env):
    env.reset(seed=0)
    steps, terminated = 0, False
    while not terminated:
        before_m = env.sensors()["height"]
        _, reward, terminated, truncated, _ = env.step(np.zeros(8, np.float32))
        steps += 1
        assert not truncated and steps < 100
    assert steps > 5 and reward < 0
    assert env.sensors()["height"] <= 0.26 - 0.75 < before_m


@pytest.mark.parametrize("action", [np.full(8, np.nan), np.full(8, np.inf), np.zeros(7), 0.0])
def test_an_action_that_is_no_action_is_refused_before_it_moves_anything(env, action):
    env.reset(seed=0)
    before = env.sensors()["joint_position"]
    with pytest.raises(ValueError, match="finite"):
        env.step(action)
    assert (env.sensors()["joint_position"] == before).all()


def test_the_picture_has_the_size_asked_for():
    env = AntEnv(render_mode="rgb_array", width=64, height=48)
    env.reset(seed=0)
    picture = env.render()
    assert picture.shape == (48, 64, 3) and picture.dtype == np.uint8 and picture.std() > 5
    env.close()


def test_the_benchmark_measures_both_environments():
    pytest.importorskip("pybullet_envs_gymnasium")
    from an_control_sim.envs.ant_benchmark import compare_ant_simulation_speeds

    figures = compare_ant_simulation_speeds(rounds=1, steps=20)
    assert figures["ratio"] == figures["ant_steps_per_s"] / figures["package_steps_per_s"] > 0
