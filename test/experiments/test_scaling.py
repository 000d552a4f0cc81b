"""What evolution would cost with more workers: the figures are not judged here."""

import json

import pytest

pytest.importorskip("cma", reason="needs the train extra")

from experiments.scaling import run as scaling
from experiments.scaling.run import GenerationCosts, estimate_generation_time


def test_what_more_workers_give_follows_from_what_the_parts_cost():
    costs = GenerationCosts(episode_s=0.1, optimiser_s=0.5, message_s=0.001)
    rows = {
        workers: estimate_generation_time(costs, workers) for workers in (1, 2, 16, 256, 1000, 4096)
    }
    assert rows[1]["generation_s"] == pytest.approx(0.5 + 256 * 16 * 0.1)
    assert rows[16]["generation_s"] == pytest.approx(0.5 + 16 * 16 * 0.1)
    assert rows[256]["generation_s"] == pytest.approx(0.5 + 4 * 4 * 0.1)
    assert rows[2]["speed_up"] == pytest.approx(2.0, rel=0.01)
    assert [rows[workers]["bound"] for workers in (1, 256, 4096)] == [
        "playing", "playing", "messages",
    ]  # fmt: skip
    assert rows[4096]["generation_s"] == pytest.approx(0.5 + 4096 * 0.001)
    slow = estimate_generation_time(costs._replace(optimiser_s=60.0), 256)
    assert slow["bound"] == "optimiser" and slow["efficiency"] < 0.1


def test_scaling_is_measured_and_written(tmp_path, capsys, monkeypatch):
    pytest.importorskip("distributed", reason="needs the train extra")
    monkeypatch.setattr(scaling, "POPULATION", 8)
    result = tmp_path / "result.json"
    assert scaling.main(["--seconds", "0.1", "--json", str(result)]) == 0
    shown = json.loads(result.read_text())
    assert [row["workers"] for row in shown["rows"]] == [1, 2, 16, 256, 1000]
    assert min(shown["episode_s"], shown["optimiser_s"], shown["message_s"]) > 0.0
    assert shown["rows"][0]["speed_up"] == 1.0
    assert "bottleneck" in capsys.readouterr().out
