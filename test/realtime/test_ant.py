"""In real time, as on a robot; `make test` runs this when no other test does."""

import json

import pytest

pytest.importorskip("rclpy")
pytest.importorskip("pybullet")

from program import Program


def test_the_shipped_ant_walks_with_every_default(tmp_path):
    """In one of two episodes: it may fall in the first."""
    program, path, walked_m = Program(tmp_path), tmp_path / "r.json", 0.0
    for seed in (0, 1):
        if walked_m > 15.0:
            break
        arguments = ["--episodes", 1, "--realtime", "--shuffle", "reset", "--seed", seed]
        ended = program.run("sim", "ant", *arguments, "--json", path)
        assert ended.returncode == 0, ended.stderr
        assert "Traceback" not in ended.stderr
        result = json.loads(path.read_text())
        (walked_m,) = (one["distance_m"] for one in result["episodes"])
    assert walked_m > 15.0, f"38 m on a quiet machine: {walked_m} m\n{ended.stderr}"
    assert result["steps_per_s"] < 65
    policy = result["policy"]
    assert policy["ticks"] > 500 and policy["age_p50_ms"] < 16.5
    for figure in ("old when the command went out", "missed their deadline", "trips"):
        assert figure in ended.stdout
    assert not program.processes()
