"""CartPoleSwingUpHarder is the paper's task, and the same in every form in which it is offered."""

import math

import numpy as np
import pytest

gymnasium = pytest.importorskip("gymnasium", reason="needs the sim extra")
pytest.importorskip("numba", reason="needs the sim extra")

ID = "an_control_sim:an_control/CartPoleSwingUpHarder-v0"


@pytest.fixture
def env():
    env = gymnasium.make(ID)
    yield env
    env.close()


def step_as_published(x, v, th, w, a):
    """One explicit Euler step of 0.01 s, from the published equations."""
    g, mc, mp, length, b = 9.82, 0.5, 0.5, 0.6, 0.1
    total, mpl, force = mc + mp, mp * length, 10.0 * max(-1.0, min(1.0, a))
    s, c = math.sin(th), math.cos(th)
    cart = (-2 * mpl * w**2 * s + 3 * mp * g * s * c + 4 * force - 4 * b * v) / (
        4 * total - 3 * mp * c**2
    )
    pole = (-3 * mpl * w**2 * s * c + 6 * total * g * s + 6 * (force - b * v) * c) / (
        4 * length * total - 3 * mpl * c**2
    )
    x, th, v, w = x + 0.01 * v, th + 0.01 * w, v + 0.01 * cart, w + 0.01 * pole
    reward = (math.cos(th) + 1) / 2 * math.cos(x / 2.4 * math.pi / 2)
    return (x, v, th, w), reward, abs(x) > 2.4


def test_it_moves_and_rewards_as_published(env):
    rng = np.random.default_rng(0)
    for seed in range(20):
        observation, _ = env.reset(seed=seed)
        sensors = env.unwrapped.sensors()
        (x, th), (v, w) = sensors["joint_position"], sensors["joint_velocity"]
        state = x, v, th, w
        done, steps = False, 0
        while not done and steps < 100:
            action = rng.uniform(-1.5, 1.5, 1).astype(np.float32)
            observation, reward, done, _, _ = env.step(action)
            state, expected, out = step_as_published(*state, float(action[0]))
            x, v, th, w = state
            ours = np.array([x, v, math.cos(th), math.sin(th), w], np.float32)
            np.testing.assert_allclose(observation, ours, rtol=1e-6, atol=1e-6)
            assert reward == pytest.approx(expected, abs=1e-9) and done == out
            steps += 1


def test_it_starts_uniformly_where_the_paper_starts(env):
    starts = np.array([env.unwrapped.batch.start(seed) for seed in range(2000)])
    for column, (middle, spread) in enumerate([(0, 2.4), (0, 10), (np.pi, np.pi / 2), (0, 10)]):
        unit = (starts[:, column] - middle) / spread
        assert -1 <= unit.min() < -0.98 and 0.98 < unit.max() <= 1
        assert abs(unit.mean()) < 0.05


def test_the_seed_alone_decides_the_episode(env):
    def play(seed):
        rows = [env.reset(seed=seed)[0]]
        for _ in range(30):
            rows.append(env.step(np.array([0.3], np.float32))[0])
        return np.array(rows).tobytes()

    first = play(3)
    play(4)
    assert play(3) == first


def test_an_episode_ends_after_1000_steps_or_off_the_track(env):
    assert env.spec.max_episode_steps == env.unwrapped.batch.steps == 1000


def test_the_batch_starts_as_reset_does(env):
    observation, _ = env.reset(seed=5)
    batch = env.unwrapped.batch
    state, seen = batch.start(5)[:, None].copy(), np.zeros((5, 1), np.float32)
    batch.observe(state, seen)
    assert seen[:, 0].tobytes() == observation.tobytes()


def test_the_compiled_step_is_the_papers_physics(env):
    batch = env.unwrapped.batch
    state = np.array([batch.start(seed) for seed in range(64)]).T.copy()
    rng, reward, ended = np.random.default_rng(0), np.zeros(64), np.zeros(64, np.bool_)
    for _ in range(20):
        _, velocity, angle, spin = before = state[:4].copy()
        push = rng.uniform(-1.5, 1.5, (1, 64)).astype(np.float32)
        force, sin, cos = 10.0 * push[0].astype(float).clip(-1, 1), np.sin(angle), np.cos(angle)
        drag = 0.1 * velocity
        cart = -0.6 * spin**2 * sin + 14.73 * sin * cos + 4.0 * (force - drag)
        pole = -0.9 * spin**2 * sin * cos + 58.92 * sin + 6.0 * (force - drag) * cos
        rates = [velocity, cart / (4.0 - 1.5 * cos**2), spin, pole / (2.4 - 0.9 * cos**2)]
        batch.advance(state, push, reward, ended)
        np.testing.assert_allclose(state[:4], before + 0.01 * np.array(rates), rtol=1e-9, atol=1e-9)
        closeness = np.cos(state[0] * np.pi / 4.8)
        np.testing.assert_allclose(reward, (np.cos(state[2]) + 1.0) / 2.0 * closeness, atol=1e-9)
        assert (ended == (abs(state[0]) > 2.4)).all()


@pytest.mark.parametrize("action", [np.array([np.nan]), np.zeros(2), np.array(0.5)])
def test_an_action_that_is_none_is_refused(env, action):
    env.reset(seed=0)
    with pytest.raises(ValueError, match="not one finite number"):
        env.unwrapped.step(action)


def test_it_draws_the_pole_where_it_stands():
    name = "an_control_sim:an_control/CartPoleSwingUpHarder-v0"
    env = gymnasium.make(name, render_mode="rgb_array")
    observation, _ = env.reset(seed=3)
    picture = env.render()
    pole = np.argwhere((picture == (200, 90, 40)).all(axis=2))
    cart = np.argwhere((picture == (60, 60, 60)).all(axis=2))
    down, right = pole.mean(axis=0) - cart.mean(axis=0)
    assert np.sign(right) == np.sign(observation[3]) and np.sign(-down) == np.sign(observation[2])
    env.close()
