"""`train` and `distill` learn policies with an encoder, pooling, learned queries, a recurrence."""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("numba", reason="needs the sim extra")

from an_control.cli import main
from an_control.learning.api.parts import PolicyParts
from an_control.load import make_policy
from an_control.policy import MlpSizes, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.sizes import PONG_SIZES, RecurrenceSizes
from an_control_sim.envs.tasks import CARTPOLE_TASK

BRIEF = ["--generations", "1", "--popsize", "4", "--rollouts", "1", "--starts", "0"]
BRIEF += ["--episodes", "1", "--workers", "1"]
GTRXL = ["--recurrence", "gtrxl", "--units", "8", "--recurrent-heads", "2", "--window", "5"]
WORDS = {
    "isab, gtrxl": ["--encoder", "isab", "--inducing", "3", "--heads", "2", *GTRXL],
    "sab, pma": ["--encoder", "sab", "--pma", "2"],
    "learned queries, gru": ["--learned-queries", "6", "--recurrence", "gru", "--units", "5"],
}


def assert_has_the_parts(sizes, name):
    if name == "isab, gtrxl":
        assert (sizes.encoder, sizes.inducing, sizes.heads) == ("isab", 3, 2)
        assert sizes.recurrence == RecurrenceSizes("gtrxl", 8, 1, 2, 5)
    elif name == "sab, pma":
        assert (sizes.encoder, sizes.attention, sizes.queries) == ("sab", "pma", 2)
    else:
        assert (sizes.attention, sizes.queries) == ("tanh", 6)
        assert sizes.recurrence == RecurrenceSizes("gru", 5)


def assert_acts(path):
    policy = make_policy(read_model(path))
    assert np.isfinite(policy.step_array(np.zeros(5), tuple("abcde"))).all()


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    path = tmp_path_factory.mktemp("teacher") / "teacher.safetensors"
    write_model(path, make_random_model(MlpSizes(5, 1, [8]), seed=2, task=CARTPOLE_TASK))
    return str(path)


@pytest.mark.parametrize("name", WORDS)
def test_train_searches_policies_with_these_parts(tmp_path, name):
    assert main(["train", "cartpole", "--out", str(tmp_path / "run"), *BRIEF, *WORDS[name]]) == 0
    path = tmp_path / "run/model.safetensors"
    assert_has_the_parts(read_model(path).sizes, name)
    assert_acts(path)
    start = ["--start-model", str(path), *BRIEF]
    assert main(["train", "cartpole", "--out", str(tmp_path / "on"), *start]) == 0
    assert_has_the_parts(read_model(tmp_path / "on/model.safetensors").sizes, name)


@pytest.mark.parametrize("name", WORDS)
def test_distill_teaches_students_with_these_parts(tmp_path, teacher, name):
    out, words = tmp_path / "run", ["--teacher", teacher, "--smoke", *WORDS[name]]
    assert main(["distill", "cartpole", "--out", str(out), *words]) == 0
    assert_has_the_parts(read_model(out / "model.safetensors").sizes, name)
    assert_acts(out / "model.safetensors")


def test_options_override_a_recipe_also_by_what_is_usual(tmp_path, teacher):
    recipe = tmp_path / "recipe.yaml"
    student = "student: {encoder: isab, inducing: 3, heads: 2, pma: 2, normalise: false}"
    recipe.write_text(f"an_control_recipe: 1\nobservation: scalar channels\n{student}\n")
    words = ["--recipe", str(recipe), "--teacher", teacher, "--smoke"]
    words += ["--inducing", "16", "--heads", "1", "--pma", "0"]
    assert main(["distill", "cartpole", "--out", str(tmp_path / "run"), *words]) == 0
    sizes = read_model(tmp_path / "run/model.safetensors").sizes
    assert (sizes.encoder, sizes.inducing, sizes.heads) == ("isab", 16, 1)
    assert sizes.attention != "pma"


def test_image_patches_keep_what_the_recipe_has_where_no_option_says_otherwise():
    sizes = replace(PONG_SIZES, encoder="isab", inducing=3, heads=2)
    assert PolicyParts().apply_to_vision_sizes(sizes) == sizes
    assert PolicyParts(inducing=16, heads=1).apply_to_vision_sizes(sizes) == replace(
        sizes, inducing=16, heads=1
    )
    pooled = PolicyParts(pma=64).apply_to_vision_sizes(sizes)
    assert PolicyParts().apply_to_vision_sizes(pooled) == pooled
    with pytest.raises(ValueError, match="--pma 0: the recipe's head needs PMA seeds"):
        PolicyParts(pma=0).apply_to_vision_sizes(pooled)


@pytest.mark.parametrize("words", [["--units", "8"], ["--recurrence", "gru", "--window", "32"]])
@pytest.mark.parametrize("verb", ["train", "distill"])
def test_numbers_of_a_recurrence_that_is_not_there_are_refused(
    tmp_path, teacher, capsys, verb, words
):
    more = BRIEF if verb == "train" else ["--teacher", teacher, "--smoke"]
    assert main([verb, "cartpole", "--out", str(tmp_path / "run"), *more, *words]) == 2
    assert "only with --recurrence" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--heads", "3", "--pma", "2"], "heads"),
        (["--inducing", "0", "--encoder", "isab"], "--inducing 0: must be 1 or more"),
        (["--pma", "-1"], "--pma -1: must be 0 or more"),
        (["--recurrence", "gtrxl", "--units", "7"], "units: 7"),
        (["--recurrence", "gru", "--units", "0"], "--units 0: must be 1 or more"),
    ],
)
@pytest.mark.parametrize("verb", ["train", "distill"])
def test_sizes_that_cannot_be_are_refused_before_anything_is_written(
    tmp_path, teacher, capsys, verb, words, error
):
    more = BRIEF if verb == "train" else ["--teacher", teacher, "--smoke"]
    assert main([verb, "cartpole", "--out", str(tmp_path / "run"), *more, *words]) == 2
    assert error in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_distill_teaches_students_of_image_patches_with_these_parts(tmp_path):
    pytest.importorskip("ale_py", reason="needs the sim extra")
    words = ["--encoder", "isab", "--inducing", "3", "--heads", "2", "--pma", "64"]
    out = str(tmp_path / "run")
    assert main(["distill", "pong", "--smoke", "--out", out, *words]) == 0
    model = read_model(tmp_path / "run/model.safetensors")
    sizes = model.sizes
    assert (sizes.attention, sizes.grid, sizes.encoder) == ("pma", 8, "isab")
    assert (sizes.inducing, sizes.heads) == (3, 2)
    patches = np.zeros((5, 4, 6, 6), np.uint8)
    assert np.isfinite(make_policy(model).step_array(patches, tuple("abcde"))).all()


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--pma", "65"], "--pma 65: must be a square number"),
        (["--pma", "49"], "sizes.grid: 7, the convolutions need at least 8"),
        (["--heads", "5", "--pma", "64"], "sizes.heads: 5 does not divide"),
        (GTRXL, "--recurrence: not for image patches"),
        (["--learned-queries", "8"], "--learned-queries: not for image patches"),
        (["--minutes", "3"], "--minutes: not for pong"),
    ],
)
def test_parts_that_a_student_of_image_patches_cannot_have_are_refused(
    tmp_path, capsys, words, reason
):
    out = tmp_path / "run"
    assert main(["distill", "pong", "--smoke", "--out", str(out), *words]) == 2
    assert reason in capsys.readouterr().err
    assert not out.exists()
