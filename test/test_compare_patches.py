"""The script that compares poolings and missing patches on Pong."""

import json

import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("ale_py", reason="needs the sim extra")

from an_control.policy import write_model
from an_control.policy.random_model import random_model
from an_control.policy.sizes import PONG_SIZES


@pytest.fixture
def patches(load_script):
    load_script("compare_parts")  # which it imports from its own folder
    return load_script("compare_patches")


def written(patches, student, seed: int, returns: list[float]) -> None:
    rows = [
        {"protocol": name, "mean": mean, "sd": 4.0, "episodes": [{}] * 5}
        for name, mean in zip(patches.PROTOCOLS, returns, strict=True)
    ]
    student.run(seed).mkdir(parents=True)
    (student.run(seed) / "rows.json").write_text(json.dumps({"protocols": rows}))
    write_model(student.run(seed) / "model.safetensors", random_model(PONG_SIZES))


def test_a_row_has_the_error_over_games_and_with_several_seeds_over_these(patches, tmp_path):
    student = patches.Student("PMA", 0.0, tmp_path)
    written(patches, student, 1, [20.0, 10.0, 0.0, -10.0, 5.0])
    assert student.row() == [
        *("PMA", "0%", "1687726", "1"),
        *("20.0 +- 2.0", "10.0 +- 2.0", "0.0 +- 2.0", "-10.0 +- 2.0", "5.0 +- 2.0"),
    ]
    written(patches, student, 2, [18.0, 10.0, 0.0, -10.0, 5.0])
    assert student.row()[3:6] == ["2", "19.0 +- 1.0", "10.0 +- 0.0"]


def test_the_table_and_the_picture_have_what_is_there(patches, tmp_path):
    students = [patches.Student(*one, tmp_path) for one in patches.STUDENTS]
    written(patches, students[1], 1, [20.0, 10.0, 0.0, -10.0, 5.0])
    assert patches.table(students).count("\n") == 2
    patches.picture(students, tmp_path / "patches.png")
    assert (tmp_path / "patches.png").stat().st_size > 10_000


def test_a_student_is_learned_with_the_parts_that_its_row_names(patches, tmp_path, monkeypatch):
    called = []
    monkeypatch.setattr(patches, "call", lambda *words: called.append(words))
    patches.Student("ISAB + PMA", 0.5, tmp_path).make(seed=3, rounds=7, episodes=2)
    learn, evaluate = called
    assert {"--encoder", "isab", "--pma", "100", "--rounds", "7"} <= set(learn)
    assert learn[learn.index("--missing-patches") + 1] == "0.5"
    assert evaluate[evaluate.index("--table") + 1 :] == tuple(patches.PROTOCOLS)
