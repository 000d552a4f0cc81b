"""The script that compares students of Pong and of the Ant."""

import json

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from an_control.policy import write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import PONG_SIZES
from experiments.students import run as script


def student_of(number, folder, task="pong"):
    what = script.COMPARISONS[task]
    return script.ComparedStudent(list(what.students)[number], what, folder)


def written(student, seed: int, returns: list[float]) -> None:
    rows = [
        {"protocol": name, "mean": mean, "sd": 4.0, "success_share": 0.5, "episodes": [{}] * 5}
        for name, mean in zip(student.comparison.protocols, returns, strict=True)
    ]
    run = student.runs_folder / str(seed)
    run.mkdir(parents=True)
    (run / "rows.json").write_text(json.dumps({"protocols": rows}))
    write_model(run / "model.safetensors", make_random_model(PONG_SIZES))


def collected(kept, *students):
    return script.update_results_file(
        kept, {one.runs_folder: one.make_run_settings(5, None) for one in students}
    )


def test_a_row_has_the_error_over_games_and_with_several_seeds_over_these(tmp_path):
    student, kept = student_of(3, tmp_path), tmp_path / "kept.json"
    written(student, 1, [20.0, 10.0, 0.0, -10.0, 5.0])
    assert student.make_results_table_row(collected(kept, student)) == [
        *("PMA", "1687726", "1"),
        *("20.0 +- 2.0", "10.0 +- 2.0", "0.0 +- 2.0", "-10.0 +- 2.0", "5.0 +- 2.0"),
    ]
    written(student, 2, [18.0, 10.0, 0.0, -10.0, 5.0])
    row = student.make_results_table_row(collected(kept, student))
    assert row[2:5] == ["2", "19.0 +- 1.0", "10.0 +- 0.0"]


@pytest.mark.parametrize("task", ["pong", "ant"])
def test_the_table_and_the_picture_have_what_is_there(tmp_path, task):
    what = script.COMPARISONS[task]
    students = [student_of(i, tmp_path, task) for i in range(len(what.students))]
    assert len({one.runs_folder for one in students}) == len(students)
    written(students[1], 1, [20.0] * len(what.protocols))
    found = collected(tmp_path / "kept.json", *students)
    assert script.make_markdown_results_table(what, students, found).count("\n") == 2
    script.draw_returns_as_bars(what, students, found, tmp_path / "students.png")
    assert (tmp_path / "students.png").stat().st_size > 10_000


@pytest.mark.parametrize(
    ("task", "number", "expected"),
    [
        ("pong", 4, {"--encoder", "isab", "--pma", "100", "--rounds", "10"}),
        ("ant", 2, {"--encoder", "isab", "--pma", "8", "--minutes", "15", "gtrxl"}),
    ],
)
def test_a_student_learns_and_is_evaluated_by_the_words_of_its_row(
    tmp_path, monkeypatch, task, number, expected
):
    called = []
    for place in (vars(script), script.evaluate_model_of_run.__globals__):
        monkeypatch.setitem(place, "run_an_control", lambda *words: called.append(words))
    student_of(number, tmp_path, task).train_and_evaluate(seed=3, episodes=2)
    learn, evaluate = called
    assert learn[:2] == ("distill", task) and expected <= set(learn)
    assert evaluate[evaluate.index("--table") + 1 :] == tuple(script.COMPARISONS[task].protocols)


def test_students_of_another_number_of_episodes_or_teacher_are_refused(tmp_path, monkeypatch):
    for place in (vars(script), script.evaluate_model_of_run.__globals__):
        monkeypatch.setitem(place, "run_an_control", lambda *words: None)
    student = student_of(1, tmp_path, "ant")
    student.train_and_evaluate(seed=3, episodes=2, teacher="a")
    with pytest.raises(script.SettingsMismatchError, match="PMA/3: episodes was 2, not 20"):
        student.train_and_evaluate(seed=3, episodes=20, teacher="a")
    with pytest.raises(script.SettingsMismatchError, match="PMA/3: teacher was a, not b"):
        student.train_and_evaluate(seed=3, episodes=2, teacher="b")
