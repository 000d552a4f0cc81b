"""An episode is played tick by tick, by the same loop for everybody."""

import numpy as np
import pytest

pytest.importorskip("gymnasium", reason="needs the sim extra")
pytest.importorskip("numba", reason="needs the sim extra")

from an_control.disturbance import DisturbanceSettings, Disturber, Shuffle
from an_control.learning.rollout.live_episode import BadStep, LiveEpisode

from .broken import Breaking

REST = np.zeros(1, np.float32)


def test_it_ends_with_the_environment_or_at_its_limit(cartpole):
    for limit, steps in ((7, 7), (None, None)):
        episode = LiveEpisode(cartpole, 5, limit=limit)
        ticks = []
        for tick in episode:
            ticks.append(tick)
            episode.act(np.ones(1, np.float32))
        assert len(ticks) == len(episode.rewards) == (steps or len(ticks))
        assert episode.total == sum(episode.rewards)
        assert episode.fell == (limit is None)
        assert ticks[0].values is ticks[0].observation and ticks[0].ids == ()


def test_ticks_show_what_the_disturbance_leaves_and_when_signals_move(cartpole):
    channels = cartpole.unwrapped.channels
    disturber = Disturber(channels, DisturbanceSettings(Shuffle(True, 4), noise_channels=2), 1)
    disturber.reset(0)
    episode = LiveEpisode(cartpole, 5, disturber, channels, limit=9)
    moved = []
    for tick in episode:
        moved.append(tick.moved)
        assert len(tick.values) == len(tick.ids) == 7
        assert set(tick.observation) <= set(tick.values)
        episode.act(REST)
    assert np.flatnonzero(moved).tolist() == [4, 8], "the shuffle at the reset is no move"


def test_a_reading_that_is_not_finite_is_refused():
    episode = LiveEpisode(Breaking("nan"), 1)
    with pytest.raises(BadStep, match="step 3 gave reward"):
        for _ in episode:
            episode.act(REST)


def test_a_tick_without_an_action_is_an_error(cartpole):
    with pytest.raises(RuntimeError, match="0 actions"):
        list(LiveEpisode(cartpole, 1))
