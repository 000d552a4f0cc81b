"""The follow-up study's cases with the authors' weights, on the Ant: what becomes of the memory.

reference/README.md has 20 episodes of each: never 2550, left in its slot 966 / 2223 / 2452 at
every 1 / 50 / 100 steps, reset 1816 at every 50, carried 2467-2551, zeroed at every step 305.
"""

from __future__ import annotations

import pytest

from an_control.learning.evaluation.comparison import compare_protocols
from an_control.learning.evaluation.evaluate import play_episodes
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol
from an_control.load import make_policy
from an_control_sim.envs.ant import ANT_CHANNELS

EPISODES = 6
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows(authors_ant, ant):
    policy = make_policy(authors_ant)
    words = ("none", "1,announced", "50,announced", "1", "50", "100", "50,reset", "none,zeroed")
    runs = {
        text: play_episodes(policy, ant, ANT_CHANNELS, EPISODES, 1, EvaluationProtocol.parse(text))
        for text in words
    }
    return {row["protocol"]: row for row in compare_protocols(runs, success_threshold=2000.0)}


@pytest.mark.parametrize("protocol", ["1,announced", "50,announced"])
def test_carried_along_nothing_is_lost_not_one_bit(rows, protocol):
    assert rows[protocol]["difference"] == {"mean": 0.0, "sd": 0.0, "same": EPISODES}
    assert rows[protocol]["mean"] > 2400


@pytest.mark.parametrize(("protocol", "low", "high"), [("1", 500, 1500), ("50", 1900, 2450)])
def test_left_in_its_slot_much_is_lost_the_more_the_oftener(rows, protocol, low, high):
    assert low < rows[protocol]["mean"] < high
    assert rows["1"]["mean"] < rows["50"]["mean"] < rows["100"]["mean"] < rows["none"]["mean"]


def test_reset_at_each_permutation_more_is_lost_than_left_in_its_slot(rows):
    assert 1400 < rows["50,reset"]["mean"] < rows["50"]["mean"]


def test_zeroed_at_every_step_nearly_all_is_lost(rows):
    assert rows["none,zeroed"]["mean"] < 700
    assert rows["none,zeroed"]["success_share"] == 0.0
