"""`an-control sim ant`: two processes over ROS 2, one seed one result, clean ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("pybullet")

from an_control.policy.task import Task
from an_control.system.share import find_share_path


def test_a_seed_gives_the_same_returns_in_separate_processes_and_json_holds_them(
    program, ant_model, tmp_path
):
    results: list[dict[str, Any]] = []
    for name, episodes in (("first.json", 2), ("second.json", 1)):
        arguments = ["--model", ant_model, "--seed", 5, "--json", tmp_path / name]
        ended = program.run("sim", "ant", "--episodes", episodes, *arguments)
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in ended.stderr
        results.append(json.loads((tmp_path / name).read_text()))
    first, second = results
    assert {"task", "model", "seed", "episodes", "mean", "sd", "success_share", "steps_per_s"} <= (
        first.keys()
    )
    assert (first["task"], first["model"], first["seed"]) == ("ant", str(ant_model), 5)
    assert len(first["episodes"]) == 2
    for episode in first["episodes"]:
        assert {"return", "steps", "shuffles"} <= episode.keys()
        assert episode["shuffles"] == 0 and episode["timeouts"] == 0 and episode["steps"] > 0
    assert first["episodes"][:1] == second["episodes"]
    assert first["mean"] == sum(one["return"] for one in first["episodes"]) / 2
    assert not program.processes()


BASE = [
    f"--{name}={find_share_path(path)}"
    for name, path in (
        ("simulation", "config/mobile_base_sim.yaml"),
        ("wiring", "config/mobile_base.yaml"),
        ("model", "models/mobile_base.safetensors"),
    )
]


@pytest.mark.parametrize(
    "robot",
    [
        ["cartpole"],
        BASE,
        pytest.param(["ant"], marks=pytest.mark.slow),
        pytest.param(["pong"], marks=pytest.mark.slow),
        pytest.param(["car_racing"], marks=pytest.mark.slow),
    ],
    ids=["cartpole", "base", "ant", "pong", "car_racing"],
)
def test_a_normal_run_of_a_robot_that_ships_logs_no_warning(program, robot):
    ended = program.run("sim", *robot, "--episodes", 1)
    assert ended.returncode == 0, ended.stderr
    lines = ended.stderr.splitlines()
    told = [line for line in lines if line.startswith(("[WARN]", "[ERROR]", "[FATAL]"))]
    assert [line for line in told if "compil" not in line] == []  # with a cold cache it compiles


def test_over_ros_the_returns_are_those_of_evaluate_under_every_disturbance(
    program, ant_model, tmp_path
):
    import gymnasium

    from an_control import load_policy
    from an_control.disturbance import DisturbanceSettings, Shuffle
    from an_control.learning.evaluation.evaluate import play_episodes
    from an_control_sim.envs.ant import ANT_CHANNELS

    schedule = tmp_path / "schedule.yaml"
    schedule.write_text(
        "an_control_schedule: 1\nchanges:\n  0: {freeze: 0.1, delay: 1, nan: 0.01}\n"
    )
    ended = program.run(
        "sim", "ant", "--model", ant_model, "--seed", 2, "--episodes", 2, "--shuffle", "reset+40",
        "--noise-channels", 3, "--missing", 0.2, "--schedule", schedule,
        "--json", tmp_path / "r.json",
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr
    over_ros = json.loads((tmp_path / "r.json").read_text())["episodes"]
    environment = gymnasium.make("an_control/Ant-v0", disable_env_checker=True)
    faults = {"freeze": 0.1, "delay": 1, "nan": 0.01}
    settings = DisturbanceSettings(Shuffle(True, 40), noise_channels=3, missing=0.2, **faults)
    alone = play_episodes(load_policy(ant_model), environment, ANT_CHANNELS, 2, 2, settings)
    environment.close()
    assert [one["return"] for one in over_ros] == [one.total for one in alone]
    assert [one["steps"] for one in over_ros] == [one.steps for one in alone]
    assert [one["shuffles"] for one in over_ros] == [one.shuffles for one in alone]
    assert "episode 2" in ended.stdout and "steps/s" in ended.stdout and "latency" in ended.stdout


@pytest.mark.slow
def test_the_cartpole_over_ros_returns_what_it_returns_alone(program, tmp_path):
    import gymnasium

    from an_control import load_policy
    from an_control.disturbance import DisturbanceSettings, Shuffle
    from an_control.learning.evaluation.evaluate import play_episodes
    from an_control.system.share import find_share_path
    from an_control_sim.envs.tasks import CARTPOLE_CHANNELS

    results = []
    for name, more in (("plain", ()), ("shuffled", ("--shuffle", "reset+50"))):
        path = tmp_path / f"{name}.json"
        ended = program.run("sim", "cartpole", "--seed", 4, "--episodes", 3, "--json", path, *more)
        assert ended.returncode == 0, ended.stderr
        results.append([one["return"] for one in json.loads(path.read_text())["episodes"]])
    name = "an_control_sim:an_control/CartPoleSwingUpHarder-v0"
    environment = gymnasium.make(name, disable_env_checker=True)
    policy = load_policy(find_share_path("models/cartpole.safetensors"))
    for returns, shuffle in zip(results, (Shuffle(), Shuffle(True, 50)), strict=True):
        settings = DisturbanceSettings(shuffle)
        alone = play_episodes(policy, environment, tuple(CARTPOLE_CHANNELS), 3, 4, settings)
        assert returns == [one.total for one in alone]
    environment.close()


def test_after_an_estop_in_its_way_the_ant_walks_on(program, tmp_path):
    path = tmp_path / "result.json"
    ended = program.run(
        "sim",
        "ant",
        "--episodes",
        2,
        "--shuffle",
        "reset",
        "--seed",
        5,
        "--stop",
        2,
        "--json",
        path,
    )
    assert ended.returncode == 0, ended.stderr
    assert "still up when the stop ended came 12 m or more in the 8 s after it" in ended.stdout
    episodes = json.loads(path.read_text())["episodes"]
    walked = [one["walked_m"] for one in episodes if one["walked_m"] is not None]
    assert walked and min(walked) > 12.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--model", "gone.safetensors"], "gone.safetensors"),
        (["--model", "garbage"], "garbage"),
        (["--model", "{model}", "--shuffle", "sometimes"], "none, reset, K, reset+K"),
        (["--model", "{model}", "--missing", "1.5"], "missing"),
        (["--model", "{model}", "--swap", "99"], "swap: 99 (allowed: 0 to 28"),
        (["--model", "{model}", "--swap", "2"], "--swap 2: does nothing without --shuffle"),
        (["--model", "{model}", "--stop", "-1"], "stop: -1 (allowed: a number or LOW..HIGH, 0"),
        (["--model", "{model}", "--start", "asleep"], "start: 'asleep' (allowed: usual, rest"),
        (["--model", "{model}", "--ramp", "-0.5"], "--ramp -0.5: must be 0 or more"),
        (["--model", "{model}", "--thread-priority", "99"], "--thread-priority 99: must be 0 to"),
        (["--model", "{model}", "--missing", "nan"], "missing"),
        (["--model", "{model}", "--schedule", "garbage"], "garbage"),
        (["--model", "{model}", "--noise-channels", "-1"], "noise_channels"),
        (["--model", "{model}", "--episodes", "0"], "--episodes"),
        (["--model", "{model}", "--seed", "-1"], "--seed"),
        (["--model", "{model}", "--video", "walk.gif"], "walk.gif"),
        (["--model", "three"], "3 actuators"),
        (["--model", "slow"], "30 Hz"),
    ],
)
def test_bad_input_ends_it_with_2_and_one_line_and_leaves_nothing(
    program, ant_model, tmp_path, arguments, said
):
    from an_control.policy import AttentionSizes, write_model
    from an_control.policy.random_model import make_random_model

    (tmp_path / "garbage").write_text("no model")
    for name, actions, step_s in (("three", 3, 0.0165), ("slow", 8, 1 / 30)):
        sizes = AttentionSizes(actions, neuron=2, queries=4, key=2, inputs=["value"], head=[])
        write_model(tmp_path / name, make_random_model(sizes, task=Task(step_s=step_s)))
    ended = program.run("sim", "ant", *(str(ant_model) if a == "{model}" else a for a in arguments))
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    assert not program.processes()


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        ("cartpole.yaml", "topic: cart_force", "topic: other", "command: other of sensor_msgs"),
        ("cartpole.yaml", "    cart:", "    wagon:", "command.actuators: wagon"),
        ("cartpole.yaml", "rate_hz: 100", "rate_hz: 60", "one tick a step"),
        ("cartpole.yaml", "topic: pole_d", "topic: pole", "sources.pole.topic: 'poleirection'"),
        ("cartpole_sim.yaml", "an_control/C", "no_robots:C", "No module named 'no_robots'"),
    ],
)
def test_files_of_ones_own_that_do_not_fit_each_other_end_it_with_2(
    program, tmp_path, file, old, new, said
):
    from an_control.policy import AttentionSizes, write_model
    from an_control.policy.random_model import make_random_model
    from an_control.system.share import find_share_path

    sizes = AttentionSizes(1, neuron=2, queries=4, key=2, inputs=["value"], head=[])
    write_model(tmp_path / "m.safetensors", make_random_model(sizes))
    for name in ("cartpole.yaml", "cartpole_sim.yaml"):
        (tmp_path / name).write_text(find_share_path(f"config/{name}").read_text())
    text = (tmp_path / file).read_text()
    assert old in text
    (tmp_path / file).write_text(text.replace(old, new))
    ended = program.run(
        "sim", "--simulation", tmp_path / "cartpole_sim.yaml",
        "--wiring", tmp_path / "cartpole.yaml", "--model", tmp_path / "m.safetensors",
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert said in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
    assert not program.processes("an_control.ros.node")


def test_without_a_task_the_files_must_be_given(capsys):
    from an_control.cli import main

    assert main(["sim", "--model", "m.safetensors"]) == 2
    assert "--simulation, --wiring not given" in capsys.readouterr().err


def endless(program, ant_model: Path, *more: object):
    return program.started("sim", "ant", "--model", ant_model, "--episodes", 100000, *more)


def walking(process) -> None:
    """Wait until an episode has ended."""
    while "episode 1:" not in (line := process.stdout.readline()):
        assert line, process.stderr.read()


def test_without_its_policy_node_it_ends_with_1_soon_and_keeps_what_has_finished(
    program, ant_model, tmp_path
):
    with endless(program, ant_model, "--json", tmp_path / "r.json") as process:
        walking(process)
        (policy,) = program.processes("an_control.ros.node")
        os.kill(policy, signal.SIGKILL)
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 1, errors
        assert "policy node ended by itself" in errors and "Traceback" not in errors
        result = json.loads((tmp_path / "r.json").read_text())
        assert result["episodes"] and result["episodes_asked"] == 100000
        assert "steps/s" in out
        program.wait(lambda: not program.processes(), "no process left", 10)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_what_has_finished_and_leaves_nothing(
    program, ant_model, tmp_path, number
):
    with endless(program, ant_model, "--json", tmp_path / "r.json") as process:
        walking(process)
        process.send_signal(number)
        out, errors = process.communicate(timeout=120)
        assert process.returncode == 130, "fewer episodes than asked for"
        assert "Traceback" not in errors and "steps/s" in out
        result = json.loads((tmp_path / "r.json").read_text())
        assert 1 <= len(result["episodes"]) < result["episodes_asked"] == 100000
        program.wait(lambda: not program.processes(), "no process left", 10)


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv (util-linux)")
def test_killed_it_takes_its_policy_node_with_it(program, ant_model):
    with endless(program, ant_model) as process:
        walking(process)
        process.kill()
        process.communicate()
        program.wait(lambda: not program.processes(), "no process left", 10)


def test_an_interrupt_before_the_first_episode_ends_it_with_130(program, ant_model):
    with endless(program, ant_model) as process:
        program.wait(lambda: program.processes("an_control.ros.node"), "the policy node")
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 130, errors
        assert "Traceback" not in errors, errors
        program.wait(lambda: not program.processes(), "no process left", 10)


def test_what_cannot_be_done_to_images_ends_it_with_2(program, tmp_path):
    pytest.importorskip("ale_py")
    from an_control.policy import write_model
    from an_control.policy.random_model import make_random_model
    from an_control.policy.sizes import PONG_SIZES

    write_model(tmp_path / "pong.safetensors", make_random_model(PONG_SIZES))
    ended = program.run(
        "sim", "pong", "--model", tmp_path / "pong.safetensors", "--noise-channels", 2
    )
    assert ended.returncode == 2, ended.stderr
    assert "noise_channels: 2 (allowed for images: shuffle, swap, missing, delay, " in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr
