"""The wheeled base: its teacher arrives, its wiring reads what it observes, a policy drives it."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import yaml

pytest.importorskip("gymnasium")

from an_control.system.share import find_share_path
from an_control.wiring import ChannelTable, load_wiring
from an_control_sim.envs.mobile_base import ARRIVED, CRASHED, MobileBaseEnv, teacher

STEPS = 600


def drive(env, seed):
    """The return of the teacher's episode."""
    observation, _ = env.reset(seed=seed)
    total = 0.0
    for _ in range(STEPS):
        observation, reward, over, _, _ = env.step(teacher(observation))
        total += reward
        if over:
            break
    return total


def test_the_teacher_arrives_also_with_a_third_of_the_beams_lost():
    returns = [drive(MobileBaseEnv(lost), seed) for lost in (0.0, 0.3) for seed in range(6)]
    assert sum(total > ARRIVED for total in returns) >= 11


@pytest.mark.parametrize("action", [[np.nan, 0.0], [0.0, np.inf], [0.0], [[0.0, 0.0]]])
def test_an_action_that_is_not_two_finite_numbers_is_refused(action):
    env = MobileBaseEnv()
    env.reset(seed=0)
    with pytest.raises(ValueError, match="is not two finite numbers"):
        env.step(np.array(action))


def test_a_base_that_drives_on_blindly_crashes():
    env = MobileBaseEnv()
    env.reset(seed=0)
    for _ in range(STEPS):
        _, reward, over, _, _ = env.step(np.array([1.0, 0.0]))
        if over:
            break
    assert over and reward < CRASHED / 2


def test_a_share_of_beams_that_is_none_is_refused():
    with pytest.raises(ValueError, match="lost_beams 2: must be a share"):
        MobileBaseEnv(2)


@pytest.mark.parametrize("lost", [0.0, 0.7])
def test_the_wiring_reads_what_the_environment_observes_to_the_last_bit(lost):
    pytest.importorskip("rclpy")
    from an_control_sim.bridge.robot import SimulatedRobot
    from an_control_sim.bridge.simulation_file import load_simulation

    simulation = load_simulation(find_share_path("config/mobile_base_sim.yaml"))
    robot = SimulatedRobot(replace(simulation, options={"lost_beams": lost}))
    robot.reset(1)
    table = ChannelTable(load_wiring(find_share_path("config/mobile_base.yaml")))
    channels = robot._environment.unwrapped.channels
    missing = 0
    for step in range(1, 60):
        stamp_ns = step * 50_000_000
        robot.fill_sensor_messages(stamp_ns)
        messages = {
            sensor_topic.topic: sensor_topic.message for sensor_topic in robot.sensor_topics
        }
        for source in table.wiring.sources:
            table.store_message(source.name, messages[source.topic], stamp_ns, step)
        readings = table.read(step, stamp_ns)
        observed = dict(zip(channels, robot._observation.tolist(), strict=True))
        there = {id_: value for id_, value in observed.items() if np.isfinite(value)}
        assert dict(zip(readings.ids, readings.values.tolist(), strict=True)) == there
        missing += len(observed) - len(there)
        robot.step(robot.commands.safe)
    assert bool(missing) == bool(lost)
    robot.close()


def test_it_drives_to_a_goal_over_ros_with_beams_lost_and_all_signals_moved(tmp_path):
    pytest.importorskip("rclpy")
    simulation = yaml.safe_load(find_share_path("config/mobile_base_sim.yaml").read_text())
    simulation["options"] = {"lost_beams": 0.3}
    file, result = tmp_path / "lossy.yaml", tmp_path / "result.json"
    file.write_text(yaml.safe_dump(simulation, sort_keys=False))
    files = {
        "simulation": file,
        "wiring": find_share_path("config/mobile_base.yaml"),
        "model": find_share_path("models/mobile_base.safetensors"),
    }
    given = [part for name, path in files.items() for part in (f"--{name}", str(path))]
    command = [sys.executable, "-m", "an_control", "sim", *given, "--episodes", "1", "--seed", "1"]
    command += ["--shuffle", "50", "--json", str(result)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    (episode,) = json.loads(result.read_text())["episodes"]
    assert episode["return"] > ARRIVED and episode["shuffles"] >= 1
