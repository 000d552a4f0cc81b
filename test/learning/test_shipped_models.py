"""The shipped models do what their cards say."""

from dataclasses import replace

import pytest

pytest.importorskip("gymnasium", reason="needs the sim extra")
pytest.importorskip("pybullet", reason="needs the sim extra")

from an_control.disturbance import DisturbanceSettings, Shuffle
from an_control.learning.evaluation.evaluate import play_episodes, summarise_episode_results
from an_control.load import load_policy
from an_control.system.share import find_share_path
from an_control_sim.gym.environments import describe_task, find_environment_id, make_environment

SHUFFLED = Shuffle.parse("reset")


@pytest.mark.parametrize(
    ("name", "least", "metres"), [("ant", 3300, 50), ("ant_ppo", 2250, 30), ("ant_quick", 2250, 30)]
)
def test_the_shipped_ants_walk_with_their_sensors_shuffled(name, least, metres):
    policy = load_policy(find_share_path(f"models/{name}.safetensors"))
    environment = find_environment_id("ant")
    env = make_environment(environment)
    taught = {"repeats": True, "recovery": 0.03} if name == "ant" else {}
    assert policy.model.task == replace(describe_task(env, "ant", environment), **taught)
    shuffled = DisturbanceSettings(shuffle=Shuffle.parse("reset"))
    results = play_episodes(policy, env, policy.nominal_ids, 4, 1, shuffled)
    env.close()
    figures = summarise_episode_results(results, success_threshold=2000.0)
    assert figures["mean"] > least and figures["falls"] == 0 and figures["distance_m"] > metres


def walks(policy, words: str, episodes: int) -> float:
    """Its mean return under a disturbance in words."""
    env = make_environment(find_environment_id("ant"))
    disturbance = DisturbanceSettings.parse(words)
    results = play_episodes(policy, env, policy.nominal_ids, episodes, 1, disturbance)
    env.close()
    return summarise_episode_results(results, success_threshold=2000.0)["mean"]


def test_the_shipped_ant_walks_as_fast_while_all_signals_move():
    assert walks(load_policy(find_share_path("models/ant.safetensors")), "25", 3) > 3100


@pytest.mark.parametrize("words", ["delay=1", "delay=2", "lose=0.1"])
def test_late_and_lost_messages_hardly_slow_the_shipped_ant(words):
    assert walks(load_policy(find_share_path("models/ant.safetensors")), words, 2) > 3000


@pytest.mark.parametrize(
    ("words", "least"),
    [("gain=0.6", 2200), ("friction=0.5", 2750), ("mass=1.3", 2650), ("lag=0.5", 2750)],
)
def test_the_shipped_ant_walks_on_a_worn_robot(words, least):
    assert walks(load_policy(find_share_path("models/ant.safetensors")), words, 3) > least


@pytest.mark.parametrize("words", ["reset+100", "reset,missing=0.1"])
def test_the_shipped_ant_walks_alone_through_reshuffles_and_absences(words):
    assert walks(load_policy(find_share_path("models/ant.safetensors"), "off"), words, 3) > 2300


@pytest.mark.parametrize(
    ("words", "episodes"), [("start=rest", 4), ("start=posture", 4), ("reset,start=rest", 16)]
)
def test_the_shipped_ant_gets_up_from_the_ground_and_from_odd_postures(words, episodes):
    """Of 100 in an unknown order some do not walk, so more are asked there."""
    assert walks(load_policy(find_share_path("models/ant.safetensors")), words, episodes) > 2300
