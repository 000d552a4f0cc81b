"""In real time, as on a robot; `make test` runs this when no other test does."""

import json

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("pybullet")

from program import Program


def test_the_shipped_ant_walks_with_every_default(tmp_path):
    program, path = Program(tmp_path), tmp_path / "r.json"
    arguments = ["--episodes", 2, "--realtime", "--shuffle", "reset", "--json", path]
    ended = program.run("sim", "ant", *arguments)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr
    result = json.loads(path.read_text())
    assert result["steps_per_s"] < 65
    walked = [one["distance_m"] for one in result["episodes"]]
    assert max(walked) > 15.0, f"38 m on a quiet machine: {walked} m\n{ended.stderr}"
    policy = result["policy"]
    assert policy["ticks"] > 500 and policy["age_p50_ms"] < 16.5
    for figure in ("old when the command went out", "missed their deadline", "trips"):
        assert figure in ended.stdout
    assert not program.processes()
