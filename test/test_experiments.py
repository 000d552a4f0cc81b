"""Every experiment runs: a smoke run of seconds, whose figures are not judged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def run(script: str, *words: str) -> None:
    """Run an experiment's script as its page says."""
    path = ROOT / "experiments" / script
    command = [sys.executable, str(path), *words]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, timeout=200, check=False)
    assert done.returncode == 0


def test_the_rates_of_commands_are_measured(tmp_path):
    pytest.importorskip("rclpy")
    run("sensor_rates/run.py", "--hz", "45", "--seconds", "3", "--json", str(tmp_path / "r.json"))
    (row,) = json.loads((tmp_path / "r.json").read_text())
    assert row["sensor_hz"] == 45 and row["commands_per_s"] > 0
