"""The Ant and the policy node in two processes, with the authors' weights."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("pybullet")

import gymnasium
from rclpy.node import Node

import an_control
from an_control.disturbance import DisturbanceSettings, Shuffle, derive_episode_seed
from an_control.learning.evaluation.evaluate import play_episodes
from an_control.learning.import_authors import import_policy_of_authors
from an_control.policy.model_file import write_model
from an_control.system.share import find_share_path
from an_control.wiring import load_wiring
from an_control_sim.bridge.episodes import RunSummary
from an_control_sim.bridge.simulator_node import SimulatorSettings, simulate
from an_control_sim.envs.ant import ANT_CHANNELS
from an_control_sim.gym.environments import make_environment
from an_control_sim.process import initialise_ros
from an_control_sim.scrambler.wiring import derive_scrambled_wiring, write_wiring

WIRING = find_share_path("config/ant.yaml")


@pytest.fixture(scope="module")
def model(shared: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "ant_pi.safetensors"
    write_model(path, import_policy_of_authors(shared / "reference/official/ant_pi.npz", "ant_pi"))
    return path


@pytest.fixture(scope="module")
def in_process(model: Path) -> float:
    """The return of episode 0 of seed 1 without ROS."""
    environment = gymnasium.make("an_control/Ant-v0", disable_env_checker=True)
    policy = an_control.load_policy(model)
    observation, _ = environment.reset(seed=derive_episode_seed(1, 0))
    total, over = 0.0, False
    while not over:
        action = policy.step_array(observation, ANT_CHANNELS)
        observation, reward, fallen, late, _ = environment.step(action)
        total, over = total + float(reward), fallen or late
    environment.close()
    return total


@contextmanager
def policy_node(wiring: Path, model: Path, **more: object) -> Iterator[None]:
    command = [sys.executable, "-m", "an_control.ros.node", "--ros-args", "-r", "__ns:=/ant"]
    values = {"wiring": wiring, "model": model, "mode": "lockstep", "autostart": "true"}
    values |= more
    for name, value in values.items():
        command += ["-p", f"{name}:={value}"]
    process = subprocess.Popen(command)
    try:
        yield
    finally:
        process.terminate()
        assert process.wait(20) == 0


def walk(scramble: DisturbanceSettings | None = None, **more: Any) -> RunSummary:
    settings = SimulatorSettings(
        simulation=str(find_share_path("config/ant_sim.yaml")),
        wiring=str(WIRING),
        seed=1,
        disturbance=scramble or DisturbanceSettings(),
    )
    settings = replace(settings, **more)
    with initialise_ros(["--ros-args", "-r", "__ns:=/ant"]):
        node = Node("simulator")
        try:
            return simulate(node, settings)
        finally:
            node.destroy_node()


def test_over_ros_the_ant_walks_as_in_process_to_the_last_bit(model, in_process):
    with policy_node(WIRING, model):
        summary = walk()
    assert [one.return_ for one in summary.episodes] == [in_process]
    assert summary.timeout_count == 0 and summary.episodes[0].steps == 1000


def test_late_lost_and_repeated_messages_a_stop_and_a_worn_robot_are_those_of_evaluation(
    model, tmp_path
):
    """One meaning everywhere: the same steps of the same episode, to the last bit."""
    words = (
        "reset,delay=0..2,jitter=0..0.02,lose=0.1,repeat=0.1,stop=0.2..0.4,"
        "gain=0.8..1,lag=0..0.3,mass=0.9..1.1,friction=0.8"
    )
    disturbance = DisturbanceSettings.parse(words)
    env = make_environment("an_control/Ant-v0")
    (alone,) = play_episodes(an_control.load_policy(model), env, ANT_CHANNELS, 1, 1, disturbance)
    env.close()
    write_wiring(derive_scrambled_wiring(load_wiring(WIRING)), tmp_path / "scrambled.yaml")
    with policy_node(tmp_path / "scrambled.yaml", model):
        summary = walk(disturbance)
    (over_ros,) = summary.episodes
    assert alone.steps > 300 and summary.timeout_count == 0
    assert (over_ros.return_, over_ros.steps) == (alone.total, alone.steps)
    assert over_ros.walked_m == alone.walked_m


def test_rewiring_announced_at_every_step_changes_no_bit(model, in_process, tmp_path):
    write_wiring(derive_scrambled_wiring(load_wiring(WIRING)), tmp_path / "scrambled.yaml")
    with policy_node(tmp_path / "scrambled.yaml", model):
        summary = walk(DisturbanceSettings(Shuffle(True, 1), announce=True))
    assert [one.return_ for one in summary.episodes] == [in_process]
    assert summary.episodes[0].shuffles == 1000


def test_in_real_time_a_policy_in_shadow_leaves_the_ant_to_the_safe_command(model):
    with policy_node(WIRING, model, mode="rate", shadow="true"):
        summary = walk(realtime=True)
    assert not summary.failure
    (result,) = summary.episodes
    assert result.timeouts == result.steps > 0
