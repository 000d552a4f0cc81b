"""The script that shows what evolution reaches from nothing."""

import json
import subprocess

import pytest

from an_control.cli.help import parse_arguments
from an_control.cli.train import TrainCommand
from experiments.from_nothing import run as nothing

pytest.importorskip("cma", reason="needs the train extra")


def written(task, folder, kind, seed, last):
    file = task.make_result_path(folder, kind, seed)
    file.with_suffix("").mkdir(parents=True)
    lines = [
        {"wall_s": 60.0 * n, "steps": n * 10**6, "validation": last - 50.0 * (3 - n)}
        for n in (1, 2, 3)
    ]
    metrics = "\n".join(json.dumps(line) for line in [{"wall_s": 1.0, "steps": 1}, *lines])
    (file.with_suffix("") / "metrics.jsonl").write_text(metrics)
    result = {"workers": task.workers, "evaluations": [{"mean": last}], "metrics": lines}
    file.write_text(json.dumps(result))
    return file


def test_a_row_compares_a_policy_with_the_ordered_network_above_chance(tmp_path):
    task = nothing.TASKS[0]
    assert nothing.make_results_table_row(task, "attention", tmp_path, random_return=20.0) == []
    for seed, last in enumerate((420.0, 380.0)):
        written(task, tmp_path, "attention", seed, last)
        written(task, tmp_path, "mlp", seed, 520.0)
    *_, used, steps, each, mean, share, successes = nothing.make_results_table_row(
        task, "attention", tmp_path, random_return=20.0
    )
    assert (used, steps, each) == ("3.0", "3.0", "420, 380")
    assert (mean, share, successes) == ("400.0 +- 20.0", "76%", "")


def test_a_row_gives_the_mean_share_of_successes_where_the_task_says_what_one_is(tmp_path):
    task = nothing.SearchedTask("cartpole", 8.0, kinds=("hints",))
    for seed, share in enumerate((0.25, 0.75)):
        file = written(task, tmp_path, "hints", seed, 300.0)
        result = json.loads(file.read_text())
        result["evaluations"][0]["success_share"] = share
        file.write_text(json.dumps(result))
    assert nothing.make_results_table_row(task, "hints", tmp_path, random_return=20.0)[-1] == "50%"


def test_train_knows_the_arguments_of_every_run(tmp_path):
    runs = [(task, kind) for task in nothing.TASKS for kind in task.kinds]
    for task, kind in runs:
        given = parse_arguments(TrainCommand, "train", task.make_train_arguments(tmp_path, kind, 3))
        assert (given.task, given.minutes, given.seed) == (task.name, task.minutes, 3)
    ways = {kind for task, kind in runs if task.name == "cartpole"}
    assert ways == {"pgpe", "hints", "diagonal", "mlp"}


def test_the_page_has_a_row_for_each_kind_and_a_picture(tmp_path, monkeypatch):
    monkeypatch.setattr(nothing, "measure_random_return", lambda name: 20.0)
    task = nothing.TASKS[0]
    for kind in task.kinds:
        written(task, tmp_path, kind, 1, 400.0)
    assert nothing.make_markdown_results_table(tmp_path).count(task.name) == 2
    nothing.draw_pictures_of_returns(tmp_path, tmp_path / "pictures")
    (picture,) = (tmp_path / "pictures").iterdir()
    assert picture.name == task.picture and picture.stat().st_size > 10_000


def test_a_row_without_a_run_stays_as_it_is_on_the_page(tmp_path, monkeypatch):
    monkeypatch.setattr(nothing, "measure_random_return", lambda name: 20.0)
    before = nothing.make_markdown_results_table(tmp_path / "no runs", nothing.PAGE.read_text())
    assert before in nothing.PAGE.read_text()
    task = nothing.TASKS[0]
    written(task, tmp_path, "attention", 1, 123.0)
    after = nothing.make_markdown_results_table(tmp_path, nothing.PAGE.read_text())
    changed = [
        (old, new)
        for old, new in zip(before.splitlines(), after.splitlines(), strict=True)
        if old != new
    ]
    ((_, new),) = changed
    assert new.startswith(f"| {task.name} | permutation-invariant |") and "| 123.0 |" in new


def test_two_workers_use_the_minutes_of_two_cores(tmp_path):
    task = nothing.SearchedTask("ant", 90.0, workers=2, kinds=("shipped",))
    written(task, tmp_path, "shipped", 1, 400.0)
    assert nothing.make_results_table_row(task, "shipped", tmp_path, random_return=20.0)[2] == "6.0"
    assert task.read_validation_curves(tmp_path, "shipped")[0][0].tolist() == [2.0, 4.0, 6.0]
    now_of_one = nothing.SearchedTask("ant", 180.0, workers=1, kinds=("shipped",))
    assert (
        nothing.make_results_table_row(now_of_one, "shipped", tmp_path, random_return=20.0)[2]
        == "6.0"
    )


def test_a_run_that_is_not_done_is_in_the_picture_alone(tmp_path):
    task = nothing.TASKS[-1]
    written(task, tmp_path, "attention", 1, 400.0).unlink()
    assert nothing.make_markdown_results_table(tmp_path).count(task.name) == 0
    (minutes, steps, returns) = task.read_validation_curves(tmp_path, "attention")[0]
    assert minutes.tolist() == [2.0, 4.0, 6.0] and steps.tolist() == [1.0, 2.0, 3.0]
    assert returns.tolist() == [300.0, 350.0, 400.0]


def test_a_run_leaves_its_result_in_a_folder_that_was_not_there(tmp_path):
    task = nothing.SearchedTask("CartPole-v1", minutes=0.01, workers=1)
    task.run_training(tmp_path / "new", "mlp", seed=1)
    (result,) = task.read_results(tmp_path / "new", "mlp")
    assert nothing.get_final_returns([result])[0] > 0.0 and len(
        nothing.read_validation_curve(map(json.dumps, result["metrics"]))[0]
    )


def test_results_of_other_settings_are_not_mixed_in(tmp_path):
    nothing.SearchedTask("CartPole-v1", minutes=0.01, workers=1).run_training(
        tmp_path, "mlp", seed=1
    )
    with pytest.raises(subprocess.CalledProcessError):
        nothing.SearchedTask("CartPole-v1", minutes=0.01, workers=1, score=9.0).run_training(
            tmp_path, "mlp", 1
        )


def test_random_actions_are_where_the_scale_begins():
    assert 15.0 < nothing.measure_random_return("CartPole-v1") < 30.0
