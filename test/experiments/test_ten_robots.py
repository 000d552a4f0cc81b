"""The script that takes ten foreign environments from their id to a robot in real time."""

import json
from pathlib import Path

from experiments.ten_robots import run as ten_robots


def written(folder: Path, what: str, returns: list[float]) -> None:
    rows = [{"return": one} for one in returns]
    (folder / f"{what}.json").write_text(json.dumps({"episodes": rows}))


def test_a_row_has_scores_between_random_and_teacher_and_what_ros_made_of_them(
    tmp_path, monkeypatch
):
    monkeypatch.setitem(ten_robots.PUBLISHED, "Pendulum-v1", -100.0)
    robot = ten_robots.LearnedRobot("Pendulum-v1", tmp_path)
    assert robot.make_results_table_row() is None

    def row(name, score, mean, sd=0.0, episodes=100):
        return {"name": name, "score": score, "mean": mean, "sd": sd, "episodes": episodes}

    rows = [
        row("random policy", 0.0, -1100.0),
        row("teacher", 1.0, -200.0),
        row("teacher, delay=1", 0.9, -290.0),
        row("student, clean", 0.98, -218.0, sd=90.0),
        row("student, delay=1", 0.8, -380.0, episodes=25, sd=90.0),
    ]
    (tmp_path / "learn.json").write_text(json.dumps({"rows": rows}))
    written(tmp_path, "offline", [-210.0, -220.0, -230.0, -240.0])
    written(tmp_path, "lockstep", [-210.0, -220.0])
    written(tmp_path, "real_time", [-201.0, -211.0, -221.0, -231.0])
    cells = robot.make_results_table_row()
    assert cells[:5] == ["Pendulum-v1", "-1100.0", "-200.0", "-100", "90%"]
    assert cells[5:7] == ["98.0% +- 1.0%", ""]
    assert cells[10] == "80.0% +- 2.0%, 25 ep. (90%)"
    assert cells[12:] == ["the same", "+1.0 +- 0.0"]
    written(tmp_path, "lockstep", [-210.0, -220.1])
    assert robot.make_results_table_row()[12] == "others"
    assert ten_robots.make_markdown_results_table([robot]).count("\n") == 2
