"""`an-control bench` measures and writes what it printed; the figures are not judged here."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from an_control.bench import inference as bench_inference
from an_control.cli import main
from an_control.load import make_policy
from an_control.policy import AttentionSizes, MlpSizes, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import CAR_RACING_SIZES
from an_control.system.share import find_share_path
from an_control_sim.envs.tasks import ANT_SIZES


@pytest.fixture
def saved(tmp_path):
    def save(sizes):
        path = tmp_path / "model.safetensors"
        write_model(path, make_random_model(sizes))
        return path

    return save


def test_inference_shows_every_engine_and_number_of_channels(saved, tmp_path, capsys):
    result = tmp_path / "result.json"
    model = saved(AttentionSizes(actions=1, neuron=2, queries=3, key=2, inputs=["value"], head=[]))
    command = ["bench", "inference", "--seconds", "0.02", "--model", str(model)]
    assert main([*command, "--json", str(result)]) == 0
    out = capsys.readouterr().out
    assert "10,000" in out and "numpy: time per added channel, 1000 to 10000" in out
    shown = json.loads(result.read_text())
    assert shown["bench"] == "inference" and shown["model"] == str(model)
    for row in shown["rows"]:
        assert 0 < row["step_array_p50_us"] <= row["step_array_p99_us"]
        assert 0 < row["step_p50_us"] <= row["step_p99_us"]
    engines = shown["linearity"].keys()
    assert [(row["engine"], row["channels"]) for row in shown["rows"]] == [
        (engine, channels)
        for engine in sorted(engines, reverse=True)
        for channels in bench_inference.CHANNELS
    ]


def test_parts_shows_every_part_and_what_a_further_channel_costs(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(bench_inference, "CHANNELS", (2, 4, 8, 16))
    monkeypatch.setattr(bench_inference, "MOST_ALL_TO_ALL", 8)
    bench_inference.main("0.001", "--parts")
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {row["parts"] for row in rows} == set(bench_inference.PARTS)
    monkeypatch.setattr("an_control.cli.bench.measure_tick_time_on_one_core", lambda *_, **__: rows)
    result = tmp_path / "result.json"
    assert main(["bench", "parts", "--json", str(result)]) == 0
    shown = json.loads(result.read_text())
    assert shown["linearity"].keys() == set(bench_inference.PARTS) - {"sab"}
    assert "gtrxl" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("what", "more", "said"),
    [
        (
            "parts",
            ["--model", "m.onnx"],
            "--model m.onnx: not for bench parts (allowed: --seconds, --json)",
        ),
        ("ant", ["--model", "m.onnx"], "--model m.onnx: not for bench ant"),
        ("training", ["--model", "m.onnx"], "--model m.onnx: not for bench training"),
    ],
)
def test_an_option_that_a_benchmark_would_not_read_is_refused(
    what, more, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert main(["bench", what, *more]) == 2
    assert said in capsys.readouterr().err


def test_the_monitor_is_measured_for_an_episode_and_its_model_named(tmp_path, monkeypatch):
    """However long the environment takes to be made."""
    pytest.importorskip("pybullet", reason="needs the sim extra")
    monkeypatch.setattr("an_control.bench.monitor.STEPS", 120)
    result = tmp_path / "result.json"
    assert main(["bench", "monitor", "--seconds", "0.000001", "--json", str(result)]) == 0
    shown = json.loads(result.read_text())
    assert shown["model"] == str(find_share_path("models/ant.safetensors"))
    rows = {(row["engine"], row["tick"]): row for row in shown["rows"]}
    assert all(row["p50_us"] <= row["p99_us"] <= row["max_us"] for row in rows.values())
    assert rows["numpy", "nothing happens"]["p50_us"] > 0.0
    assert rows["numpy", "nothing explains the readings"]["p50_us"] > 0.0


def test_inference_is_measured_with_one_thread(monkeypatch):
    """Whatever the caller's environment says; the measuring process inherits the rest."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "7")
    seen = {}

    class Process:
        stdout = ()
        returncode = 0

        def __init__(self, command, env, **_):
            seen.update(env)

        __enter__ = __exit__ = lambda self, *_: self

    monkeypatch.setattr(bench_inference.subprocess, "Popen", Process)
    assert list(bench_inference.measure_tick_time_on_one_core(None, 0.1)) == []
    assert seen["OPENBLAS_NUM_THREADS"] == seen["OMP_NUM_THREADS"] == "1"
    assert seen["PATH"] == os.environ["PATH"]


def test_linearity_is_one_where_every_channel_costs_the_same():
    rows = [
        {
            "inputs": "readings",
            "engine": "numpy",
            "channels": n,
            "step_array_p50_us": 20.0 + 0.1 * n,
        }
        for n in bench_inference.CHANNELS
    ]
    assert bench_inference.compute_tick_time_growth_with_channels(rows) == {
        "numpy": pytest.approx(1.0)
    }


def test_a_row_has_the_median_and_the_99th_percentile():
    policy = make_policy(make_random_model(ANT_SIZES), engine="numpy")
    row = bench_inference.measure_policy_tick_time(policy, 28, 0.02)
    assert row["channels"] == 28 and row["engine"] == "numpy"
    assert np.isfinite([row[f"step_{way}p50_us"] for way in ("", "array_")]).all()


def test_a_vision_policy_is_measured_on_its_tasks_patches(saved, tmp_path):
    result = tmp_path / "result.json"
    model = saved(replace(CAR_RACING_SIZES, grid=4))
    command = ["bench", "inference", "--seconds", "0.02", "--model", str(model)]
    assert main([*command, "--json", str(result)]) == 0
    shown = json.loads(result.read_text())
    assert {(row["inputs"], row["channels"]) for row in shown["rows"]} == {("patches", 256)}
    assert shown["linearity"] == {}


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--seconds", "0"], "--seconds 0.0: must be over 0"),
        (["--seconds", "nan"], "--seconds nan"),
        (["--model", "missing.safetensors"], "missing.safetensors: "),
    ],
)
def test_bad_arguments_end_with_exit_2(arguments, reason, capsys):
    assert main(["bench", "inference", *arguments]) == 2
    assert reason in capsys.readouterr().err


def test_a_model_that_cannot_be_measured_ends_with_exit_2(saved, capsys):
    ordered = saved(MlpSizes(channels=28, actions=8, head=[]))
    assert main(["bench", "inference", "--model", str(ordered)]) == 2
    assert "must be an attention_neuron" in capsys.readouterr().err
    few = saved(AttentionSizes(actions=1, neuron=2, queries=3, key=2, inputs=["value"], head=[]))
    assert main(["bench", "ros", "--model", str(few)]) == 2
    assert "has 1 actions, the Ant takes 8" in capsys.readouterr().err


def test_a_missing_package_ends_with_exit_2_and_its_extra(monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["bench", "ros"]) == 2
    assert "needs rclpy: source ROS 2, or pip install 'an_control[ros]'" in capsys.readouterr().err
    assert main(["bench", "ant"]) == 2
    assert "an_control[sim]" in capsys.readouterr().err


def test_the_ant_is_measured_beside_the_packages_own(tmp_path, capsys):
    pytest.importorskip("pybullet_envs_gymnasium", reason="needs the package's AntBulletEnv")
    result = tmp_path / "result.json"
    assert main(["bench", "ant", "--seconds", "0.05", "--json", str(result)]) == 0
    assert "AntBulletEnv" in capsys.readouterr().out
    assert json.loads(result.read_text())["ratio"] > 0


def test_the_latency_of_a_model_with_a_monitor_can_be_measured(tmp_path):
    pytest.importorskip("rclpy", reason="needs rclpy")
    from an_control.bench.latency import remove_task_and_monitor

    model = read_model(find_share_path("models/ant.safetensors"))
    assert model.forward is not None
    write_model(tmp_path / "model.safetensors", remove_task_and_monitor(model))
    bare = read_model(tmp_path / "model.safetensors")
    assert bare.forward is None and not bare.task.channels


def test_the_nodes_latency_is_measured_beside_a_bare_echo(tmp_path, capfd):
    """Real processes over real ROS 2; then the Ant in lockstep with the policy and with a stub."""
    for package in ("rclpy", "pybullet"):
        pytest.importorskip(package, reason=f"needs {package}")
    result = tmp_path / "result.json"
    assert main(["bench", "ros", "--seconds", "0.1", "--json", str(result)]) == 0
    assert "times as long as the echo" in capfd.readouterr().out
    shown = json.loads(result.read_text())
    assert [row["path"] for row in shown["latency"]["rows"]] == ["echo", "node"]
    assert shown["latency"]["ratio"] > 0
    assert [row["node"] for row in shown["lockstep"]] == ["policy", "stub"]


def test_ctrl_c_ends_it_with_130_and_one_line():
    command = [sys.executable, "-m", "an_control", "bench", "parts", "--seconds", "60"]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    ) as process:
        measured = None
        while measured is None and process.poll() is None:
            time.sleep(0.1)
            measured = next(
                (pid for pid, line in list_processes() if "bench.inference" in line), None
            )
        time.sleep(0.5)  # so that Python runs there
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "Traceback" not in errors and errors.endswith("an-control bench: interrupted\n")
    assert measured is not None and not Path(f"/proc/{measured}").exists()


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="needs setpriv (util-linux)")
def test_killed_it_takes_the_processes_that_it_measures_with_it(program):
    pytest.importorskip("rclpy")
    with program.started("bench", "ros", "--seconds", "60") as process:
        mine = f"__ns:=/an_control_bench_{process.pid}"
        program.wait(lambda: len(processes(mine)) == 2, "echo and node")
        process.kill()
        program.wait(lambda: not processes(mine), "no process left", 10)


def processes(word: str) -> list[str]:
    """The command lines of running processes that have this word."""
    return [line for _, line in list_processes() if word in line]


def list_processes() -> list[tuple[int, str]]:
    """The id and the command line of each running process."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append((int(path.parent.name), path.read_text()))
    return found
