"""Unannounced: signals move without notice, and the monitor brings every one to its own neuron."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from an_control import load_policy
from an_control.disturbance import DisturbanceSettings, Disturber
from an_control.learning.evaluation.evaluate import play_episodes, summarise_episode_results
from an_control.learning.rollout.engine import EpisodeSeeds
from an_control.learning.rollout.episode import play_episode
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol
from an_control.system.share import find_share_path
from an_control_sim.envs.ant import ANT_CHANNELS
from an_control_sim.envs.cartpole import CARTPOLE_CHANNELS
from an_control_sim.gym.environments import find_environment_id, make_environment

SEED = 4


@pytest.fixture(scope="module")
def ant_model():
    path = find_share_path("models/ant.safetensors")
    if load_policy(path).model.forward is None:
        pytest.skip("the shipped Ant carries no forward model")
    return path


def returns(policy, env, channels, episodes, text):
    results = play_episodes(policy, env, channels, episodes, SEED, EvaluationProtocol.parse(text))
    return [result.total for result in results], results


COMPILED = """
import sys

from an_control import load_policy
from an_control_sim.gym.environments import find_environment_id, make_environment
from an_control.learning.evaluation.evaluate import play_episodes
from an_control.learning.rollout.evaluation_protocol import EvaluationProtocol


def compiled():
    rooms = "an_control.policy", "an_control.monitor"
    names = [name for name in sys.modules if name.startswith(rooms)]
    parts = [part for name in names for part in vars(sys.modules[name]).values()]
    return {(p.__module__, p.__name__, s) for p in parts for s in getattr(p, "signatures", ())}


policy, env = load_policy(sys.argv[1]), make_environment(find_environment_id("ant"))
loaded = compiled()
for words in sys.argv[2:]:
    play_episodes(policy, env, policy.nominal_ids, 1, 1, EvaluationProtocol.parse(words))
assert len(loaded) > 3, "numba compiles"
print(*(f"{module}.{name}{signature}" for module, name, signature in compiled() - loaded))
"""


def test_no_tick_compiles_anything(ant, ant_model):
    """That takes a second, in which a robot gets no command; so all is compiled when it loads."""
    protocols = "reset+25,missing=0.25", "25,jitter=0.05,freeze=0.1", "delay=1,start=rest,stop=2"
    pytest.importorskip("numba")
    done = subprocess.run(
        [sys.executable, "-c", COMPILED, str(ant_model), *protocols],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "", "compiled in a tick"


def test_while_nothing_moves_the_monitored_ant_walks_as_well_and_nothing_is_detected(
    ant, ant_model
):
    """Set to reset, to the last bit; set to match, it also knows its channels sooner."""
    alone, _ = returns(load_policy(ant_model, "off"), ant, ANT_CHANNELS, 1, "none")
    watched, (one,) = returns(load_policy(ant_model, "reset"), ant, ANT_CHANNELS, 1, "none")
    assert watched == alone and one.detected == 0
    matched, (one,) = returns(load_policy(ant_model, "match"), ant, ANT_CHANNELS, 1, "none")
    assert matched[0] > 0.98 * alone[0] and one.detected == 0


def test_all_signals_moved_every_100_steps_the_ant_walks_on(ant, ant_model):
    policy = load_policy(ant_model, "match")
    moved, results = returns(policy, ant, ANT_CHANNELS, 2, "100")
    clean, _ = returns(policy, ant, ANT_CHANNELS, 2, "none")
    assert np.mean(moved) >= 0.9 * np.mean(clean)
    assert all(9 <= one.detected <= 12 for one in results)


def test_moved_every_5_steps_the_ant_walks_on_only_with_the_monitor(ant, ant_model):
    unmonitored, _ = returns(load_policy(ant_model, "off"), ant, ANT_CHANNELS, 2, "5")
    monitored, _ = returns(load_policy(ant_model, "match"), ant, ANT_CHANNELS, 2, "5")
    clean, _ = returns(load_policy(ant_model, "off"), ant, ANT_CHANNELS, 2, "none")
    assert np.mean(monitored) >= 0.9 * np.mean(clean)
    assert np.mean(unmonitored) < 0.6 * np.mean(clean)


def test_a_few_signals_swapped_are_found_too_also_where_one_is_a_foot_that_stands(ant, ant_model):
    policy = load_policy(ant_model, "match")
    clean, _ = returns(policy, ant, ANT_CHANNELS, 2, "none")
    for swapped in "100,swap=2", "25,swap=4":
        moved, _ = returns(policy, ant, ANT_CHANNELS, 2, swapped)
        assert np.mean(moved) >= 0.9 * np.mean(clean), swapped


def test_signals_that_move_among_noise_are_found_whatever_was_believed_before(ant, ant_model):
    """Filtered by the belief, the readings once spoke for it: in four of ten episodes the Ant
    stood, and the wiring was never found again."""
    moved, _ = returns(load_policy(ant_model, "match"), ant, ANT_CHANNELS, 4, "100,jitter=0.02")
    assert min(moved) > 2800.0


def test_while_a_swap_is_verified_what_could_hardly_be_confused_stays_identified(ant, ant_model):
    policy, known = load_policy(ant_model, "match"), []
    disturber = Disturber(ANT_CHANNELS, DisturbanceSettings.parse("100,swap=2"), 1, episode=None)

    def watch(policy, disturber):
        known.append(policy.monitor.identified_channel_mask.mean())

    play_episode(policy, ant, ANT_CHANNELS, disturber, EpisodeSeeds(1, 1, 0), None, watch)
    shares = np.array(known[100:]).reshape(9, 100)
    assert known[0] == 0.0 and known[50] == 1.0
    lowest = shares[:, :10].min(1)
    assert (lowest > 0.0).all() and (lowest < 1.0).all(), "some channels, not all"
    assert np.median(shares[:, 5:20]) > 0.8
    assert np.median(shares[:, 60:]) == 1.0


@pytest.mark.parametrize("words", ["reset+25,missing=0.1", "100,missing=0.25"])
def test_signals_that_move_are_found_also_while_others_are_missing(ant, ant_model, words):
    """What was missing was imputed by the order from before the moves: 1,855 and 1,248."""
    moved, _ = returns(load_policy(ant_model, "match"), ant, ANT_CHANNELS, 2, words)
    assert np.mean(moved) > 2200.0


@pytest.mark.slow
def test_the_cartpole_keeps_its_return_whatever_moves_between_its_channels():
    path = find_share_path("models/cartpole.safetensors")
    if load_policy(path).model.forward is None:
        pytest.skip("the shipped CartPole policy carries no forward model")
    env = make_environment(find_environment_id("cartpole"))
    policy = load_policy(path, "match")
    means = {
        text: summarise_episode_results(returns(policy, env, CARTPOLE_CHANNELS, 40, text)[1])[
            "mean"
        ]
        for text in ("none", "25", "reset+100,noise=2,noise-sd=0.1")
    }
    unmonitored = load_policy(path, "off")
    alone = summarise_episode_results(returns(unmonitored, env, CARTPOLE_CHANNELS, 40, "none")[1])[
        "mean"
    ]
    env.close()
    assert means["none"] >= 0.99 * alone
    assert means["25"] >= 0.95 * means["none"]
    assert means["reset+100,noise=2,noise-sd=0.1"] >= 0.8 * means["none"]


def test_over_ros_a_monitored_ant_returns_what_it_returns_in_process(ant, ant_model, tmp_path):
    pytest.importorskip("rclpy")
    from program import Program

    path = tmp_path / "sim.json"
    ended = Program(tmp_path).run(
        "sim", "ant", "--model", ant_model, "--episodes", 1, "--seed", SEED,
        "--shuffle", "100", "--monitor", "match", "--json", path,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    (one,) = json.loads(path.read_text())["episodes"]
    assert one["timeouts"] == 0 and one["shuffles"] == 9
    alone, _ = returns(load_policy(ant_model, "match"), ant, ANT_CHANNELS, 1, "100")
    assert [one["return"]] == alone
