"""The executables as processes of their own: exit codes, clean stops, same results."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import pytest

pytest.importorskip("rclpy")

from an_control.bench.lockstep import measure_lockstep_speed

LIMIT_S = 60.0
PENDULUM = """
an_control_simulation: 1
environment: Pendulum-v1
step_s: 0.05
publish:
  angle:
    type: geometry_msgs/msg/Vector3Stamped
    fields: {vector.x: "observation[0]", vector.y: "observation[1]", vector.z: "observation[2]"}
command:
  topic: torque
  type: sensor_msgs/msg/JointState
  field: effort
  actuators: {pivot: {scale: 1.0, safe: 0.0}}
"""


@pytest.fixture
def pendulum(tmp_path: Path) -> Path:
    path = tmp_path / "pendulum.yaml"
    path.write_text(PENDULUM)
    return path


def start(module: str, *arguments: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True)


def simulator(**parameters: object) -> subprocess.Popen[str]:
    return start("an_control_sim.bridge.simulator_node", "--ros-args", *(
        part for name, value in parameters.items() for part in ("-p", f"{name}:={value}")
    ))  # fmt: skip


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"did not end within {LIMIT_S} s\n{out}\n{err}")
    return process.returncode, out, err


@contextmanager
def echo(simulation: Path) -> Iterator[subprocess.Popen[str]]:
    """The stub policy, which must end cleanly too."""
    process = start("an_control.bench.lockstep", str(simulation))
    try:
        yield process
    finally:
        process.terminate()
        code, _, err = finish(process)
    assert code == 0, err


def test_a_run_says_what_it_gave_and_gives_the_same_in_the_next_process(pendulum):
    outputs = []
    for _ in range(2):
        with echo(pendulum):
            code, out, err = finish(simulator(simulation=pendulum, episodes=2, seed=3))
        assert code == 0, err
        assert "over 2 episodes" in out and "steps/s" in out and "latency" in out
        outputs.append(re.findall(r"return +\S+ \+- \S+", out) + re.findall(r"episode.*", err))
    assert len(outputs[0]) == 3 and outputs[0] == outputs[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_an_endless_run_cleanly(pendulum, number):
    with echo(pendulum):
        process = simulator(simulation=pendulum, episodes=0)
        assert process.stderr is not None
        while "episode 1" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(number)
        code, out, err = finish(process)
    assert code == 0 and "Traceback" not in err
    assert "steps/s" in out


def test_a_signal_ends_the_wait_for_a_policy_too(pendulum):
    process = simulator(simulation=pendulum, policy="nobody", start_timeout_s=LIMIT_S)
    assert process.stderr is not None
    while "waiting for /nobody" not in process.stderr.readline():
        assert process.poll() is None
    process.send_signal(signal.SIGINT)
    code, out, _ = finish(process)
    assert code == 0 and "no episode finished" in out


def test_without_a_policy_it_ends_with_1_and_says_why(pendulum):
    code, _, err = finish(simulator(simulation=pendulum, policy="nobody", start_timeout_s=0.3))
    assert code == 1
    assert "/nobody/reset_state" in err and "Traceback" not in err


@pytest.mark.parametrize("module", ["bridge.simulator_node", "scrambler.scrambler"])
@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-p", "episodes"], "episodes"),
        (["--nonsense"], "--nonsense"),
        (["-r", "__ns:=//x"], "//x"),
    ],
)
def test_arguments_that_ros_cannot_take_end_with_2_and_one_line(capsys, module, arguments, said):
    main = import_module(f"an_control_sim.{module}").main
    assert main(["--ros-args", *arguments]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"simulation": "gone.yaml"}, "gone.yaml"),
        ({"episodes": "many"}, "parameter episodes"),
        ({"episodes": -1}, "parameter episodes"),
        ({"missing": 1.5}, "parameter missing"),
        ({"shuffle": "sometimes"}, "allowed: none, reset, K, reset+K"),
        ({"shuffle": 25}, "to disturb its readings"),
        ({"camera_hz": 10.0}, "topic and frame_id"),
        ({"shuffle": "reset", "wiring": "gone.yaml"}, "gone.yaml"),
    ],
)
def test_bad_parameters_end_with_2_and_name_what_was_allowed(pendulum, parameters, said):
    code, _, err = finish(simulator(**{"simulation": pendulum, **parameters}))
    assert code == 2, err
    assert said in err and "Traceback" not in err


def test_the_scrambler_stops_cleanly_and_refuses_a_missing_wiring():
    code, _, err = finish(
        start("an_control_sim.scrambler.scrambler", "--ros-args", "-p", "wiring:=gone.yaml")
    )
    assert code == 2 and "gone.yaml" in err and "Traceback" not in err


def test_the_lockstep_bench_runs_two_processes_without_a_timeout(pendulum):
    figures = measure_lockstep_speed(pendulum, steps=200)
    assert figures["timeouts"] == 0
    assert figures["steps_per_s"] > 0 and figures["latency_p50_us"] > 0
