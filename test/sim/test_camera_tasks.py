"""CarRacing and Pong are the games that gymnasium and ale-py bring, cut into patches."""

import gymnasium
import numpy as np
import pytest

for module in ("Box2D", "pygame", "ale_py", "cv2"):
    pytest.importorskip(module, reason="needs the sim extra")
from an_control_sim.envs.car_racing import PANEL_ROWS, QuickCarRacing, game  # noqa: E402
from an_control_sim.envs.car_racing_game import BACKGROUNDS, GRASS, make_background  # noqa: E402
from an_control_sim.envs.puzzle_pong import SCORE_ROWS  # noqa: E402

CAR_RACING = "an_control_sim:an_control/CarRacing-v0"
PONG = "an_control_sim:an_control/PuzzlePong-v0"


def put_together(patches, side):
    """The newest frame (side, side) of patches (N, 4, 6, 6)."""
    across = side // 6
    grid = patches[:, -1].reshape(across, across, 6, 6)
    return grid.transpose(0, 2, 1, 3).reshape(side, side)


@pytest.mark.parametrize("seed", [0, 7])
def test_the_quick_painter_paints_gymnasiums_pixels(seed):
    ours, theirs = QuickCarRacing(), game.CarRacing()
    rng = np.random.default_rng(seed)
    frame, _ = ours.reset(seed=seed)
    expected, _ = theirs.reset(seed=seed)
    for _ in range(150):
        np.testing.assert_array_equal(frame[:-PANEL_ROWS], expected[:-PANEL_ROWS])
        assert not frame[-PANEL_ROWS:].any()
        action = np.array([rng.normal(0.0, 0.4), rng.random(), 0.1 * rng.random()])
        frame, reward, *_ = ours.step(action)
        expected, as_theirs, *_ = theirs.step(action)
        assert reward == as_theirs


@pytest.mark.parametrize(("task", "count", "side"), [(CAR_RACING, 256, 96), (PONG, 196, 84)])
def test_patches_are_the_frame_in_the_order_of_their_ids(task, count, side):
    env = gymnasium.make(task)
    patches, _ = env.reset(seed=3)
    assert patches.shape == env.observation_space.shape == (count, 4, 6, 6)
    assert patches.dtype == np.uint8 and len(set(env.unwrapped.channels)) == count
    np.testing.assert_array_equal(patches[:, 0], patches[:, 3])
    for _ in range(30):
        patches, *_ = env.step(np.ones(env.action_space.shape, np.float32))
        np.testing.assert_array_equal(put_together(patches, side), env.unwrapped.frames[-1])
    place = env.unwrapped.channels.index("camera.11.8")
    piece = env.unwrapped.frames[:, 66:72, 48:54]
    np.testing.assert_array_equal(patches[place], piece)
    env.close()


@pytest.mark.parametrize("task", [CAR_RACING, PONG])
def test_the_seed_decides_an_episode_to_the_last_bit(task):
    seen = []
    for _ in range(2):
        env = gymnasium.make(task)
        rng = np.random.default_rng(0)
        patches, _ = env.reset(seed=5)
        for _ in range(40):
            action = rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
            patches, reward, *_ = env.step(action)
        seen.append((patches, reward))
        env.close()
    np.testing.assert_array_equal(seen[0][0], seen[1][0])
    assert seen[0][1] == seen[1][1]


@pytest.mark.parametrize("task", [CAR_RACING, PONG])
@pytest.mark.parametrize("bad", [[0.0], [np.nan] * 3, [np.inf] * 6])
def test_an_action_that_is_none_is_refused(task, bad):
    env = gymnasium.make(task).unwrapped
    env.reset(seed=0)
    with pytest.raises(ValueError, match="finite numbers"):
        env.step(np.array(bad))
    env.close()


def test_gas_and_brake_are_brought_from_our_range_to_theirs():
    env = gymnasium.make(CAR_RACING).unwrapped
    theirs = game.CarRacing()
    env.reset(seed=2)
    theirs.reset(seed=2)
    for _ in range(30):
        env.step(np.array([0.2, 0.0, -1.0]))
        theirs.step(np.array([0.2, 0.5, 0.0]))
    assert env.game.car.hull.position == theirs.car.hull.position
    env.close()


@pytest.mark.parametrize("name", [name for name in BACKGROUNDS if name != GRASS])
def test_a_background_stands_where_the_grass_was_and_nowhere_else(name):
    plain, other = gymnasium.make(CAR_RACING), gymnasium.make(CAR_RACING, background=name)
    for env in (plain, other):
        env.reset(seed=4)
        for _ in range(60):
            env.step(np.array([0.1, -0.5, -1.0], np.float32))
    grass = plain.unwrapped.sensors()["camera"]
    changed = other.unwrapped.sensors()["camera"]
    red, green, blue = grass.transpose(2, 0, 1)
    there = (red == 100) & (blue == 100) & (green >= 202) & (green <= 228)
    there[-PANEL_ROWS:] = False
    assert there.mean() > 0.4
    np.testing.assert_array_equal(changed[~there], grass[~there])
    np.testing.assert_array_equal(changed[there], make_background(name)[there])
    plain.close()
    other.close()


def test_an_unknown_background_is_refused_by_name():
    with pytest.raises(ValueError, match="'desert' is not one of grass, mountain"):
        gymnasium.make(CAR_RACING, background="desert")


def test_pong_is_seen_as_gymnasiums_preprocessing_shows_it():
    import ale_py

    gymnasium.register_envs(ale_py)
    theirs = gymnasium.wrappers.AtariPreprocessing(
        gymnasium.make("ALE/Pong-v5", frameskip=1, repeat_action_probability=0.0), noop_max=0
    )
    env = gymnasium.make(PONG).unwrapped
    for idle_seed in range(40):  # one whose start idles as long as our game starts: a whole step
        if int(np.random.default_rng(idle_seed).integers(1, 31)) % 4 == 0:
            break
    env.reset(seed=idle_seed)
    theirs.reset()
    for _ in range(int(np.random.default_rng(idle_seed).integers(1, 31)) // 4):
        theirs.step(0)
    rng = np.random.default_rng(1)
    for _ in range(100):
        button = int(rng.integers(6))
        env.step(np.eye(6)[button])
        expected, *_ = theirs.step(button)
        frame = env.sensors()["camera"]
        assert not frame[:SCORE_ROWS].any()
        np.testing.assert_array_equal(frame[SCORE_ROWS:], expected[SCORE_ROWS:])
    env.close()
    theirs.close()
