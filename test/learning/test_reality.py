"""Disturbances of reality in an episode: late and lost messages, stops, and another robot."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace

import gymnasium
import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the sim extra")

from an_control.disturbance import DisturbanceSettings, Disturber, Range, RobotStop
from an_control.disturbance.patches import PatchDisturber
from an_control.learning.rollout.engine import make_evaluation_seeds
from an_control.learning.rollout.episode import LiveEpisode, play_episode
from an_control.load import make_policy
from an_control.policy import read_model
from an_control.policy.task import Task
from an_control.system.environment_output import OUTPUT, BrokenEnvironmentError
from an_control.system.share import find_share_path
from an_control_sim.gym.environments import describe_task, make_environment
from an_control_sim.gym.varied_robot import VariedRobot, check_robot_settings, vary_robot

ANT = "an_control_sim:an_control/Ant-v0"
CART, POLE = "cart_env:Cart-v0", "CartPole-v1"
(START,) = make_evaluation_seeds(3, 1)


class Policy:
    """Gives 0.1, 0.2 and so on, one more at each step; keeps what it sees."""

    channel_state = monitor_report = None
    model = SimpleNamespace(task=Task())

    def __init__(self):
        self.seen, self.previous_action, self.told = [], None, []

    def reset(self):
        pass

    def step_array(self, values, ids):
        self.seen.append(values.copy())
        self.told.append(None if self.previous_action is None else self.previous_action.copy())
        self.previous_action = None
        return np.array([0.1 * len(self.seen) % 1.0], np.float32)


class Actions(gymnasium.Wrapper):
    """Keeps the actions of the steps."""

    def __init__(self, env):
        super().__init__(env)
        self.kept = []

    def step(self, action):
        self.kept.append(float(action[0]))
        return self.env.step(action)


def played(words, policy=None):
    env = Actions(make_environment(CART))
    channels = ("observation.0", "observation.1")
    disturber = Disturber(channels, DisturbanceSettings.parse(words), START.run)
    policy = policy or Policy()
    result = play_episode(policy, env, channels, disturber, START)
    env.close()
    return policy, env.kept, result


@pytest.fixture(scope="module")
def ant():
    pytest.importorskip("pybullet")
    env = make_environment(ANT)
    yield env
    env.close()


@pytest.mark.parametrize("monitor", ["off", "match"])
def test_delay_1_means_that_policy_and_monitor_act_on_the_readings_of_one_step_before(ant, monitor):
    policy = make_policy(read_model(find_share_path("models/ant.safetensors")), monitor)
    channels = describe_task(ant, "", "").channels
    disturber = Disturber(channels, DisturbanceSettings(delay=1), START.run)
    result = play_episode(policy, ant, channels, disturber, START)
    episode = LiveEpisode(ant, START.environment)
    policy.reset()
    before = None
    for tick in episode:
        before, now = tick.observation.copy(), before
        episode.send_action(policy.step_array(before if now is None else now, channels))
    assert result.steps == len(episode.rewards) > 300
    assert result.rewards.tolist() == episode.rewards
    assert policy.monitor_report is None or policy.monitor_report.rewires == result.detected


def test_where_a_message_is_lost_the_policy_waits_and_what_was_sent_is_sent_again():
    clean, _, _ = played("none")
    policy, sent, result = played("lose=0.4")
    assert len(clean.seen) == result.steps == 40 and 12 < len(policy.seen) < 36
    held = sum(a == b for a, b in pairwise(sent))
    assert held == 40 - len(policy.seen)
    own = Policy()
    own.model = SimpleNamespace(task=Task(repeats=True))
    policy, _, _ = played("lose=0.4", own)
    assert len(policy.seen) == 40, "one that was trained to steps on what it has seen"


def test_of_a_repeated_message_the_policy_makes_a_step():
    policy, _, _ = played("repeat=0.4")
    same = sum(np.array_equal(a, b) for a, b in pairwise(policy.seen))
    assert len(policy.seen) == 40 and 6 < same < 26


def test_in_a_stop_the_safe_command_is_sent_and_the_policy_hears_of_it(monkeypatch):
    monkeypatch.setattr(Disturber, "draw_robot_stop", lambda self, step_s: RobotStop(10, 5, 20))
    policy, sent, result = played("stop=1")
    assert sent[10:15] == [0.0] * 5 and 0.0 not in sent[:9] and len(policy.seen) == 40
    told = [step for step, action in enumerate(policy.told) if action is not None]
    assert told == [10, 11, 12, 13, 14, 15] and not any(policy.told[step].any() for step in told)
    assert result.walked_m is None, "the cart says no distance"


def test_a_stop_in_an_episode_is_of_its_length_and_the_way_after_it_is_measured(ant):
    policy = make_policy(read_model(find_share_path("models/ant.safetensors")))
    channels = describe_task(ant, "", "").channels
    disturber = Disturber(channels, DisturbanceSettings(stop=0.1), START.run)
    result = play_episode(policy, ant, channels, disturber, START)
    assert result.walked_m is not None and result.walked_m > 12.0


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.float32])
def test_motors_that_are_too_strong_for_the_type_of_the_actions_do_not_turn_round(dtype):
    class Wheel(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        low, high = (
            (-1.0, 1.0) if dtype == np.float32 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        )
        action_space = gymnasium.spaces.Box(low, high, (1,), dtype)

        def step(self, action):
            return np.zeros(1, np.float32), float(action[0]), False, False, {}

    robot = VariedRobot(Wheel())
    robot.vary_robot(DisturbanceSettings(gain=1.5))
    low, high = Wheel.action_space.low, Wheel.action_space.high
    assert robot.step(low)[1] <= low[0] and robot.step(high)[1] >= high[0]


def test_gain_and_lag_are_what_the_motors_make_of_an_action():
    env = make_environment(CART)
    actions = np.array([[0.8], [-0.4], [0.6]], np.float32)

    def speeds(words):
        vary_robot(env, DisturbanceSettings.parse(words))
        env.reset(seed=0)
        return np.diff([env.step(one)[0][1] for one in actions])

    np.testing.assert_allclose(speeds("none"), [-0.04, 0.06], atol=1e-6)
    np.testing.assert_allclose(speeds("gain=0.5"), [-0.02, 0.03], atol=1e-6)
    lagging = [-0.2 + 0.5 * 0.4, 0.3 + 0.5 * (-0.2 + 0.5 * 0.4)]
    np.testing.assert_allclose(speeds("lag=0.5"), 0.1 * np.array(lagging), atol=1e-6)
    np.testing.assert_allclose(speeds("none"), [-0.04, 0.06], atol=1e-6)
    env.close()


@pytest.mark.parametrize(
    ("environment", "words", "said"),
    [
        (CART, "mass=0.7", "mass: 0.7 .Cart cannot change it: it has no set_physics"),
        (CART, "start=rest", "start: rest .Cart supports only usual"),
        (POLE, "gain=0.6", "gain: 0.6 .*Discrete"),
        (CART, "gain=0.6..1", "no number has been drawn"),
    ],
)
def test_what_an_environment_does_not_offer_is_refused_by_name(environment, words, said):
    env = make_environment(environment)
    with pytest.raises((ValueError, BrokenEnvironmentError), match=said):
        vary_robot(env, DisturbanceSettings.parse(words))
        env.reset(seed=1)
        env.step(env.action_space.sample())
    env.close()


def trace(env, settings, steps=40):
    """Bytes of an episode's observations."""
    vary_robot(env, settings)
    rng, seen = np.random.default_rng(0), [env.reset(seed=2)[0]]
    for _ in range(steps):
        action = rng.uniform(-1.0, 1.0, env.action_space.shape).astype(np.float32)
        seen.append(env.step(action)[0])
    return np.array(seen).tobytes()


@pytest.mark.parametrize(
    ("environment", "package"),
    [
        (ANT, "pybullet"),
        ("Hopper-v5", "mujoco"),
        ("pybullet_envs_gymnasium:HopperBulletEnv-v0", "pybullet_envs_gymnasium"),
    ],
)
@pytest.mark.filterwarnings("ignore")
def test_mass_and_friction_change_the_movement_and_the_nominal_robot_comes_back(
    environment, package
):
    pytest.importorskip(package)
    env = make_environment(environment)
    env.reset(seed=2)  # PyBullet's first reset differs from the others
    nominal = trace(env, DisturbanceSettings())
    others = [trace(env, DisturbanceSettings(**one)) for one in ({"mass": 1.5}, {"friction": 0.2})]
    assert len({nominal, *others}) == 3
    assert trace(env, DisturbanceSettings(mass=1.5)) == others[0]
    assert trace(env, DisturbanceSettings()) == nominal
    env.close()


def test_an_ant_that_starts_at_rest_lies_on_the_ground_and_has_not_fallen(ant):
    vary_robot(ant, DisturbanceSettings(start="rest"))
    readings, _ = ant.reset(seed=1)
    assert readings[0] < -0.4, "half a metre below the usual start"
    still = np.zeros(8, np.float32)
    assert not any(ant.step(still)[2] for _ in range(30))
    vary_robot(ant, DisturbanceSettings(start="posture"))
    angles = [ant.reset(seed=seed)[0][8:24:2] for seed in range(20)]
    assert np.abs(angles).max() <= 1.0 and np.abs(angles).max() > 0.9
    vary_robot(ant)
    assert np.abs(ant.reset(seed=1)[0][8:24:4]).max() < 0.2


def test_frozen_sensors_count_as_missing_and_the_ant_walks_on(ant):
    """Its monitor took them for moved signals: 849."""
    policy = make_policy(read_model(find_share_path("models/ant.safetensors")))
    channels = describe_task(ant, "", "").channels
    disturber = Disturber(channels, DisturbanceSettings(freeze=0.1), 1)
    result = play_episode(policy, ant, channels, disturber, make_evaluation_seeds(1, 3)[2])
    assert result.total > 2200.0 and result.detected == 0


def test_of_a_repeated_message_the_monitor_takes_what_it_expected(ant):
    """It took the jump that follows for moved signals: 1615."""
    policy = make_policy(read_model(find_share_path("models/ant.safetensors")))
    channels = describe_task(ant, "", "").channels
    disturber = Disturber(channels, DisturbanceSettings(repeat=0.1), 1)
    result = play_episode(policy, ant, channels, disturber, make_evaluation_seeds(1, 1)[0])
    assert result.total > 2400.0 and result.detected == 0


def test_patches_come_late_and_lost_ones_are_not_in_the_stack():
    """Four frames of one patch each; a patch shows the number of its tick."""

    def frames(tick):
        newest = np.arange(max(0, tick - 3), tick + 1)
        padded = np.concatenate([np.full(4 - len(newest), newest[0]), newest])
        return np.broadcast_to(padded[None, :, None, None], (2, 4, 6, 6)).astype(np.uint8)

    def shown(words, ticks=30):
        disturber = Disturber(("a", "b"), DisturbanceSettings.parse(words), 1)
        patches = PatchDisturber(disturber)
        for tick in range(ticks):
            seen, _ = patches.disturb(frames(tick), ("a", "b"))
            yield (
                tick,
                seen[0, :, 0, 0].tolist(),
                disturber.has_message_arrived,
                disturber.is_message_new,
            )

    late = [seen for _, seen, _, _ in shown("delay=2")]
    assert late[1] == [0, 0, 0, 0] and late[9] == [4, 5, 6, 7]
    stack = [0, 0, 0, 0]
    for tick, seen, arrived, _ in shown("lose=0.3"):
        stack = [*stack[1:], tick] if arrived else stack
        assert seen == stack
    stack = [0, 0, 0, 0]
    for tick, seen, _, new in shown("repeat=0.3"):
        stack = [*stack[1:], tick if new else stack[-1]]
        assert seen == stack


def test_a_check_knows_a_range_too(ant):
    check_robot_settings(
        ant, DisturbanceSettings(gain=Range(0.6, 1), mass=Range(0.7, 1.3), start="rest")
    )


@pytest.mark.filterwarnings("ignore")
def test_mujocos_warnings_are_kept_with_what_else_is_printed_and_leave_no_file_behind(
    tmp_path, monkeypatch, capsys
):
    pytest.importorskip("mujoco")
    monkeypatch.chdir(tmp_path)
    env = make_environment("Hopper-v5")
    env.reset(seed=1)
    env.unwrapped.data.qpos[:] = np.nan
    env.step(np.zeros(3, np.float32))
    env.close()
    assert "MuJoCo: Nan, Inf or huge value" in OUTPUT.pop_new_output().text
    assert capsys.readouterr() == ("", "")
    assert list(tmp_path.iterdir()) == []
