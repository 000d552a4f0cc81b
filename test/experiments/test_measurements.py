"""The experiments that measure the node and the monitor run; their figures are not judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from an_control.cli import main

ROOT = Path(__file__).resolve().parents[2]


def run(name: str, *words: str, timeout_s: float = 200.0) -> None:
    """Run an experiment as its page says."""
    command = [sys.executable, "-m", "experiments", name, *words]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, timeout=timeout_s, check=False)
    assert done.returncode == 0


def test_the_rates_of_commands_are_measured(tmp_path):
    pytest.importorskip("rclpy")
    run("sensor_rates", "--hz", "45", "--seconds", "3", "--json", str(tmp_path / "r.json"))
    (row,) = json.loads((tmp_path / "r.json").read_text())
    assert row["sensor_hz"] == 45 and row["commands_per_s"] > 0


def test_starts_are_counted(tmp_path):
    pytest.importorskip("rclpy")
    pytest.importorskip("pybullet")
    words = "--times", "1", "--seconds", "1", "--json", str(tmp_path / "s.json")
    run("starts", *words)
    (rows,) = json.loads((tmp_path / "s.json").read_text()).values()
    assert rows[0]["acts_after_s"] > 0 and rows[0]["longest_gap_ms"] > 0


def test_what_a_monitor_does_on_another_robot_is_counted(tmp_path):
    pytest.importorskip("pybullet")
    results = tmp_path / "r.json"
    words = "--ticks", "1", "--off-ticks", "0", "--results", str(results)
    words += "--subjects", "ant", "--trained", "full", "--robots", "half rate"
    run("monitor_fit", *words)
    (counts,) = json.loads(results.read_text())["after"].values()
    assert counts["ticks"] > 0 and counts["invented"] == counts["moved"] == 0


def test_ticks_on_impossible_readings_are_measured(tmp_path):
    pytest.importorskip("rclpy")
    words = "--library", "20", "--node", "20", "--loops", "0", "--kinds", "carried"
    run("impossible_readings", *words, "--json", str(tmp_path / "i.json"))
    rows = json.loads((tmp_path / "i.json").read_text())
    assert [(row["called"], row["ticks"]) for row in rows] == [("library", 20), ("node", 20)]
    assert all(0 < row["p50_cpu_ms"] <= row["max_cpu_ms"] for row in rows)


def test_what_the_doctor_finds_of_a_mistake_is_counted(tmp_path):
    results = tmp_path / "d.json"
    words = "random", "robots", "--trials", "1", "--seeds", "1", "--robots", "base"
    run("doctor", *words, "--json", str(results))
    rows = json.loads(results.read_text())
    assert rows["random/base/1/0"]["mistakes"] and "outcome" in rows["robots/base/none/0"]


def test_an_order_that_small_motions_find_is_counted(tmp_path):
    for package in "onnxruntime", "pybullet":
        pytest.importorskip(package)
    policy, results = tmp_path / "teacher.onnx", tmp_path / "e.json"
    (tmp_path / "teacher.policy.yaml").write_text(
        "an_control_policy: 1\nexcitation: teacher.excitation.safetensors\n"
    )
    teacher, ant = (str(ROOT / f"models/{name}.safetensors") for name in ("ant_teacher", "ant"))
    assert main(["export", teacher, "--onnx", str(policy)]) == 0
    assert main(["train-monitor", str(policy), "--take", ant]) == 0
    asked = ["--amplitude", "0.5", "--disturb", "start=rest", "--runs", "12", "--seconds", "4"]
    assert main(["record-excitation", str(policy), *asked]) == 0
    words = "--excitation", "1", "--steps", "60", "--policy", str(policy), "--json", str(results)
    run("foreign_policies", *words)
    measured = json.loads(results.read_text())["excitation"]
    assert measured["order found"] == 1 and measured["wrong but for foot contacts"] == 0
    assert 0.8 < measured["mean share"] < 1.2
    run("foreign_policies", *words, "--walking")
    assert json.loads(results.read_text())["excitation, walking"]["episodes"] == 1


@pytest.mark.slow
def test_a_replay_repeats_every_command_of_a_robot_in_trouble(tmp_path):
    for package in "rclpy", "pybullet", "mcap":
        pytest.importorskip(package)
    results = tmp_path / "t.json"
    words = str(tmp_path / "bags"), "--pieces", "1", "--ticks", "200", "--json", str(results)
    run("recordings", "troubled", *words, timeout_s=600.0)
    (row,) = json.loads(results.read_text())
    assert row["ticks"] > 100 and row["different"] == 0
    run("recordings", "troubled", *words)  # nothing is left to do
    assert json.loads(results.read_text()) == [row]


@pytest.mark.slow
def test_what_recording_costs_is_measured(tmp_path):
    for package in "rclpy", "pybullet", "mcap":
        pytest.importorskip(package)
    results = tmp_path / "c.json"
    run("recordings", "costs", "--blocks", "1", "--json", str(results), timeout_s=800.0)
    kinds = json.loads(results.read_text())["kinds"]
    assert [one["kind"] for one in kinds] == ["nothing", "black box", "recording"]
    assert all(0 < one["p50_us"] <= one["p99_us"] for one in kinds)
