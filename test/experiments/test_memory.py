"""The comparison of memories: the tasks are what their papers say, and a stopped run resumes."""

import contextlib
import json
import math

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("popgym", reason="needs the train extra")

from an_control.learning.evaluation.comparison import write_markdown_tables
from an_control.learning.runs.run_folder import RunError, RunFolder
from an_control.system.files import lock_folder
from experiments.memory import comparison, report, run, training
from experiments.memory.comparison import MemoryComparison, TrainingBudget
from experiments.memory.report import TITLES
from experiments.memory.tasks import RepeatPrevious, TMaze
from experiments.memory.training import MEMORIES, PARAMETERS, DrawnSettings, MemoryNetwork

DRAW = DrawnSettings(rate=3e-3, heads=2, layers=2, episodes=16, max_norm=1.0)


@pytest.mark.parametrize(("level", "ago"), [("Easy", 4), ("Medium", 32), ("Hard", 64)])
def test_the_answers_that_are_taught_are_those_that_popgym_rewards(level, ago):
    task = RepeatPrevious(level)

    def remembered(seen, lag):
        suits = seen.argmax(-1).T
        return np.roll(suits, lag, axis=1)

    assert task.measure_share_of_right_answers(
        lambda seen: remembered(seen, ago - 1)
    ) == pytest.approx(1.0)
    assert task.measure_share_of_right_answers(lambda seen: remembered(seen, ago - 2)) < 0.35
    seen, right = task.make_batch(np.random.default_rng(0), 5)
    assert seen.shape == (task.steps, 5, 4) and right.shape == (5, task.steps)
    assert ((right == -1).sum(1) == ago - 1).all()
    assert (remembered(seen, ago - 1) == right)[right >= 0].all()


def test_no_episode_of_a_score_is_learned_from():
    task = RepeatPrevious("Easy")
    learned = {
        row.tobytes()
        for row in comparison.RepeatPrevious("Easy")
        .make_batch(np.random.default_rng(1), 4_000)
        .seen.swapaxes(0, 1)
    }
    played: list[np.ndarray] = []

    def see(seen):
        played.append(seen)
        return np.zeros(seen.shape[1::-1], int)

    task.measure_share_of_right_answers(see)
    assert not learned & {row.tobytes() for row in played[0].swapaxes(0, 1)}


def test_the_t_maze_shows_its_sign_at_the_start_and_nothing_of_it_afterwards():
    task, rng = TMaze(40), np.random.default_rng(0)
    lengths = set()
    for _ in range(50):
        seen, right = task.make_batch(rng, 6)
        lengths.add(len(seen) - 2)
        assert (seen[0] == np.stack([right, np.ones(6), 1 - right], 1)).all()
        assert (seen[1:-1, :, 1] == 0.0).all() and (seen[-1] == [0.0, 1.0, 0.0]).all()
    assert min(lengths) < 5 and 30 < max(lengths) <= 40
    assert task.measure_share_of_right_answers(lambda seen: seen[0, :, 0].astype(int)) == 1.0
    assert (
        0.3 < task.measure_share_of_right_answers(lambda seen: np.zeros(seen.shape[1], int)) < 0.7
    )


@pytest.mark.parametrize("memory", MEMORIES, ids=lambda one: one.name)
@pytest.mark.parametrize("task", [TMaze(20), RepeatPrevious("Easy")], ids=lambda one: one.name)
def test_all_networks_have_about_as_many_numbers(task, memory):
    for heads, layers in ((1, 1), (4, 2)):
        draw = DrawnSettings(1e-3, heads, layers, 16, math.inf)
        numbers = MemoryNetwork(task, memory, draw).numbers
        assert 0.75 * PARAMETERS < numbers <= PARAMETERS


@pytest.mark.parametrize("memory", MEMORIES[2:5], ids=lambda one: one.name)
def test_a_transformer_learns_a_short_t_maze(memory):
    found = training.train_memory_network(TMaze(20), memory, DRAW, 150, seed=1)
    assert found["score"] == 1.0 and not found["diverged"]
    assert found["curve"][-1] == [150, 1.0]


def test_a_training_that_explodes_has_diverged_and_scores_as_guessing():
    wild = DrawnSettings(rate=1e6, heads=1, layers=2, episodes=16, max_norm=math.inf)
    found = training.train_memory_network(RepeatPrevious("Easy"), MEMORIES[2], wild, 10, seed=1)
    assert found["diverged"] and found["score"] < 0.4
    json.dumps(found, allow_nan=False)


@pytest.fixture
def small(monkeypatch):
    """A comparison of seconds."""
    monkeypatch.setattr(comparison, "RepeatPrevious", lambda level: TMaze(4 + len(level)))
    monkeypatch.setattr(comparison, "MEMORIES", MEMORIES[1:3])
    monkeypatch.setattr(report, "MEMORIES", MEMORIES[1:3])
    return TrainingBudget(draws=2, draw_updates=5, seeds=2, updates=5, t_maze=12)


def lines_of(path, budget, stop_after=None):
    class Killed(Exception):
        pass

    def stop(line, done):
        if done == stop_after:
            raise Killed

    made = MemoryComparison(RunFolder(path, MemoryComparison.make_config(budget, 1)), budget, 1)
    with contextlib.suppress(Killed):
        made.run_trainings(stop)
    return made.lines


def timeless(lines):
    return [{k: v for k, v in line.items() if k != "cpu_s"} for line in lines]


def test_a_stopped_comparison_resumes_to_the_same_results(small, tmp_path):
    whole = lines_of(tmp_path / "whole", small)
    assert len(whole) == 2 * (2 + 4 * 2)
    for stop in (3, 9):
        assert len(lines_of(tmp_path / "cut", small, stop)) == stop
    assert timeless(lines_of(tmp_path / "cut", small)) == timeless(whole)
    with pytest.raises(RunError, match="other settings"):
        lines_of(tmp_path / "cut", TrainingBudget())


def test_a_folder_in_which_another_comparison_works_is_refused(small, tmp_path):
    """Two processes mixed their lines."""
    made = MemoryComparison(RunFolder(tmp_path, MemoryComparison.make_config(small, 1)), small, 1)
    with lock_folder(tmp_path), pytest.raises(RunError, match="another process is working"):
        made.run_trainings(lambda line, done: None)
    assert not list(tmp_path.iterdir())


def test_its_tables_and_picture_show_every_memory_on_every_task(small, tmp_path):
    lines = lines_of(tmp_path / "run", small)
    found = report.make_tables(lines)
    assert set(found) == set(TITLES)
    scores = found[report.SCORES].splitlines()
    assert scores[0] == "| memory | T-maze 8 | T-maze 10 | T-maze 12 | seconds a training |"
    assert [row.split(" | ")[0] for row in scores[2:]] == ["| GRU", "| TrXL"]
    assert all("+-" in row for row in scores[2:])
    assert "of 2" in found[report.DRAWS]
    write_markdown_tables(tmp_path / "page.md", found)
    report.draw_learning_curves(lines, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").read_bytes()[:4] == b"\x89PNG"


def test_a_smoke_run_leaves_its_tables_beside_its_trainings_and_none_on_the_page(small, tmp_path):
    page = run.PAGE.read_text()
    assert run.main(["--smoke", "--out", str(tmp_path / "run")]) == 0
    written = (tmp_path / "run/memory.md").read_text()
    assert all(f"<!-- table {title} -->" in written for title in TITLES)
    assert (tmp_path / "run/curves.png").is_file() and run.PAGE.read_text() == page


def test_a_folder_of_another_comparison_is_refused_with_one_line(small, tmp_path, capsys):
    lines_of(tmp_path / "run", small, 1)
    with pytest.raises(SystemExit):
        run.main(["--smoke", "--out", str(tmp_path / "run")])
    assert "other settings" in capsys.readouterr().err
