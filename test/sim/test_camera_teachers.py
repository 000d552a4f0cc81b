"""The teachers of the camera tasks play well, and notice a pupil who is lost."""

import gymnasium
import numpy as np
import pytest

for module in ("Box2D", "pygame", "ale_py", "cv2"):
    pytest.importorskip(module, reason="needs the sim extra")


@pytest.fixture
def car_racing():
    env = gymnasium.make("an_control_sim:an_control/CarRacing-v0").unwrapped
    blank = np.zeros((96, 96, 3), np.uint8)
    env.game._render = lambda mode: blank  # the teacher looks at no pixel
    yield env
    env.close()


def drive(env, teacher, seed):
    env.reset(seed=seed)
    teacher.start_episode()
    total, helps, done, steps = 0.0, 0, False, 0
    while not done and steps < 1000:
        action = teacher()
        helps += teacher.is_helping
        _, reward, done, _, _ = env.step(action)
        total, steps = total + reward, steps + 1
    return total, helps


def test_the_driver_finishes_its_laps(car_racing):
    teacher = car_racing.teacher()
    driven = [drive(car_racing, teacher, seed) for seed in range(900, 906)]
    assert np.mean([total for total, _ in driven]) > 890
    assert sum(helps for _, helps in driven) < 60  # of some 5000 steps: in hairpins it slides


def test_the_driver_helps_a_pupil_off_the_road_until_it_is_back(car_racing):
    teacher = car_racing.teacher()
    car_racing.reset(seed=900)
    teacher.start_episode()
    for _ in range(60):
        car_racing.step(teacher())
    for _ in range(60):
        teacher()
        if teacher.is_helping:
            break
        car_racing.step(np.array([0.8, 0.0, -1.0]))
    assert teacher.is_helping
    helped = 0
    while teacher.is_helping and helped < 120:
        car_racing.step(teacher())
        helped += 1
    assert 20 <= helped < 120 and not teacher.is_hopeless


def test_the_driver_gives_up_a_pupil_that_stays_lost(car_racing):
    teacher = car_racing.teacher()
    car_racing.reset(seed=900)
    teacher.start_episode()
    for _ in range(400):
        teacher()
        car_racing.step(np.array([1.0, 1.0, -1.0]))
        if teacher.is_hopeless:
            return
    raise AssertionError("it never gave up")


def test_the_pong_player_makes_the_first_points_whatever_the_start():
    env = gymnasium.make("an_control_sim:an_control/PuzzlePong-v0").unwrapped
    teacher = env.teacher()
    for seed in range(3):
        env.reset(seed=seed)
        teacher.start_episode()
        points, steps = [], 0
        while len(points) < 2 and steps < 700:
            _, reward, *_ = env.step(teacher())
            points += [reward] if reward else []
            steps += 1
        assert points == [1.0, 1.0]
    env.close()


def test_the_pong_player_scores_though_its_pupil_goes_up_late_or_began_at_random():
    env = gymnasium.make("an_control_sim:an_control/PuzzlePong-v0").unwrapped
    teacher, rng, buttons = env.teacher(), np.random.default_rng(0), np.eye(6)
    down, up = buttons[5], buttons[4]
    for late, wild in ((3, 0), (0, 60)):
        env.reset(seed=1)
        teacher.start_episode()
        points, ups = [], 0
        for step in range(420):
            action = teacher()
            ups = ups + 1 if (action == up).all() else 0
            if 0 < ups <= late:
                action = down
            elif step < wild:
                action = buttons[rng.choice([1, 4, 5])]
            _, reward, *_ = env.step(action)
            points += [reward] if reward else []
        assert points.count(1.0) >= 2 and points[-1] == 1.0
        assert wild or -1.0 not in points
    env.close()


def test_the_pong_player_thinks_on_a_copy_of_the_console():
    env = gymnasium.make("an_control_sim:an_control/PuzzlePong-v0").unwrapped
    teacher = env.teacher()
    env.reset(seed=0)
    teacher.start_episode()
    for _ in range(60):
        before = env.console.getRAM().copy()
        action = teacher()
        np.testing.assert_array_equal(env.console.getRAM(), before)
        env.step(action)
    env.close()
