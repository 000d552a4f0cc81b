"""An episode is played tick by tick, by the same loop for everybody."""

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the sim extra")
pytest.importorskip("numba", reason="needs the sim extra")

from an_control.disturbance import DisturbanceSettings, Disturber, Shuffle
from an_control.learning.rollout.episode import MAX_BLIND, LiveEpisode
from an_control_sim.gym.failure import BrokenEnvironmentError

from .broken import Breaking

REST = np.zeros(1, np.float32)


def test_it_ends_with_the_environment_or_at_its_limit(cartpole):
    for limit, steps in ((7, 7), (None, None)):
        episode = LiveEpisode(cartpole, 5, limit=limit)
        ticks = []
        for tick in episode:
            ticks.append(tick)
            episode.send_action(np.ones(1, np.float32))
        assert len(ticks) == len(episode.rewards) == (steps or len(ticks))
        assert episode.total == np.cumsum(episode.rewards)[-1]  # sum() compensates from 3.12 on
        assert episode.fell == (limit is None)
        assert ticks[0].values is ticks[0].observation and ticks[0].ids == ()


def test_ticks_show_what_the_disturbance_leaves_and_when_signals_move(cartpole):
    channels = cartpole.unwrapped.channels
    disturber = Disturber(channels, DisturbanceSettings(Shuffle(True, 4), noise_channels=2), 1)
    disturber.start_episode(0)
    episode = LiveEpisode(cartpole, 5, disturber, channels, limit=9)
    moved = []
    for tick in episode:
        moved.append(tick.moved)
        assert len(tick.values) == len(tick.ids) == 7
        assert set(tick.observation) <= set(tick.values)
        episode.send_action(REST)
    assert np.flatnonzero(moved).tolist() == [4, 8], "the shuffle at the reset is no move"


def test_a_reading_that_is_not_finite_is_missing_and_the_episode_continues():
    episode, missing = LiveEpisode(Breaking("nan"), 1), []
    for tick in episode:
        missing.append(int(np.isnan(tick.observation).sum()))
        episode.send_action(REST)
    assert missing == [0, 0, 0, 1, 0]


def test_a_reward_that_is_not_finite_ends_the_episode_as_failed():
    episode = LiveEpisode(Breaking("nothing"), 1)
    with pytest.raises(BrokenEnvironmentError, match="'Breaking': step 1 gave the reward nan"):
        for _ in episode:
            episode.send_action(REST * np.nan)


def test_after_many_steps_without_any_reading_the_episode_has_failed():
    env = Breaking("nothing")
    env._readings = lambda: np.full(3, np.nan, np.float32)
    env.step = lambda action: (env._readings(), 0.0, False, False, {})
    episode = LiveEpisode(env, 1)
    with pytest.raises(BrokenEnvironmentError, match=f"step {MAX_BLIND} gave no finite reading"):
        for tick in episode:
            assert not tick.arrived
            episode.send_action(REST * np.nan)
    assert episode.rewards == [0.0] * MAX_BLIND


def test_a_tick_without_an_action_is_an_error(cartpole):
    with pytest.raises(RuntimeError, match="called 0 times"):
        list(LiveEpisode(cartpole, 1))
