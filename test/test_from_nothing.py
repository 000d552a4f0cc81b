"""The script that shows what evolution reaches from nothing."""

import json
import subprocess

import pytest

pytest.importorskip("cma", reason="needs the train extra")


@pytest.fixture
def nothing(load_script):
    return load_script("from_nothing")


def written(task, folder, form, seed, last):
    file = task.file(folder, form, seed)
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {"wall_s": 60.0 * n, "steps": n * 10**6, "validation": last - 50.0 * (3 - n)}
        for n in (1, 2, 3)
    ]
    file.write_text(json.dumps({"evaluations": [{"mean": last}], "metrics": lines}))


def test_a_row_compares_a_form_with_the_ordered_network_above_chance(nothing, tmp_path):
    task = nothing.TASKS[0]
    assert nothing.row(task, "attention", tmp_path, chance=20.0) == []
    for seed, last in enumerate((420.0, 380.0)):
        written(task, tmp_path, "attention", seed, last)
        written(task, tmp_path, "mlp", seed, 520.0)
    *_, used, each, mean, share = nothing.row(task, "attention", tmp_path, chance=20.0)
    assert (used, each, mean, share) == ("3.0", "420, 380", "400.0 +- 20.0", "76%")


def test_the_page_has_a_row_for_each_form_and_a_picture(nothing, tmp_path, monkeypatch):
    monkeypatch.setattr(nothing, "random_return", lambda name: 20.0)
    task = nothing.TASKS[0]
    for form in nothing.FORMS:
        written(task, tmp_path, form, 1, 400.0)
    assert nothing.table(tmp_path).count(task.name) == 2
    nothing.picture(tmp_path, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 10_000


def test_a_run_leaves_its_result_in_a_folder_that_was_not_there(nothing, tmp_path):
    task = nothing.Task("CartPole-v1", minutes=0.01, workers=1)
    task.make(tmp_path / "new", "mlp", seed=1)
    (result,) = task.results(tmp_path / "new", "mlp")
    assert nothing.finals([result])[0] > 0.0 and len(nothing.when(result)[0])


def test_results_of_other_settings_are_not_mixed_in(nothing, tmp_path):
    nothing.Task("CartPole-v1", minutes=0.01, workers=1).make(tmp_path, "mlp", seed=1)
    with pytest.raises(subprocess.CalledProcessError):
        nothing.Task("CartPole-v1", minutes=0.01, workers=1, score=9.0).make(tmp_path, "mlp", 1)


def test_random_actions_are_where_the_scale_begins(nothing):
    assert 15.0 < nothing.random_return("CartPole-v1") < 30.0
