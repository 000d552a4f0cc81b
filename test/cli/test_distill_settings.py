"""`an-control distill` refuses what would fail after a round, or change behind a file's name."""

import json
from contextlib import closing
from dataclasses import replace

import cart_env
import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")

from an_control.cli import main
from an_control.learning.dagger.image_patches.learner import PatchDagger, make_student
from an_control.learning.dagger.settings import read_recipe
from an_control.learning.runs.run_loop import RunLoop
from an_control.policy import MlpSizes, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control.system.share import find_share_path
from an_control_sim.gym.environments import describe_task, find_environment_id, make_environment

CART = "cart_env:Cart-v0"
SIZES = MlpSizes(2, 1, [4], activation="relu", output="clip")
HEADER = "an_control_recipe: 1\nobservation: scalar channels\n"


@pytest.fixture
def teacher(tmp_path):
    path = tmp_path / "teacher.safetensors"
    write_model(path, make_random_model(SIZES, seed=1))
    return path


@pytest.fixture
def distill(tmp_path, teacher):
    def run(*words):
        start = ["distill", CART, "--teacher", str(teacher), "--out", str(tmp_path / "run")]
        return main([*start, *map(str, words)])

    return run


def test_a_teacher_that_has_changed_behind_its_name_is_refused(tmp_path, teacher, distill, capsys):
    """Old episodes kept the labels of the old one, new rounds got the new one's."""
    assert distill("--smoke") == 0
    assert distill("--smoke") == 0
    capsys.readouterr()
    before = json.loads((tmp_path / "run/config.json").read_text())["teacher_hash"]
    write_model(teacher, make_random_model(SIZES, seed=2))
    assert distill("--smoke") == 2
    assert f'(the content of --teacher is "{before}", not "' in capsys.readouterr().err
    write_model(teacher, make_random_model(SIZES, seed=1))
    assert distill("--smoke") == 0


def test_a_start_model_that_has_changed_behind_its_name_is_refused(tmp_path, distill, capsys):
    assert distill("--smoke") == 0
    start = tmp_path / "start.safetensors"
    model = read_model(tmp_path / "run/model.safetensors")
    write_model(start, model)
    words = ["--smoke", "--start-model", start, "--out", tmp_path / "second"]
    assert distill(*words) == 0
    moved = {name: array + 1.0 for name, array in model.arrays.items()}
    write_model(start, replace(model, arrays=moved))
    assert distill(*words) == 2
    assert "the content of --start-model is" in capsys.readouterr().err


def test_a_start_model_of_image_patches_is_known_by_its_numbers(tmp_path):
    pytest.importorskip("ale_py", reason="needs the sim extra")
    settings = read_recipe("pong")
    with closing(make_environment(find_environment_id("pong"))) as env:
        task = describe_task(env, "pong", find_environment_id("pong"))
        one, same, other = (
            PatchDagger(
                tmp_path,
                env,
                task,
                settings,
                5,
                start=make_student(settings, seed).make_model(task, {}),
            ).config
            for seed in (3, 3, 4)
        )
    assert one == same and one["start_hash"] != other["start_hash"]


def test_a_run_from_before_there_were_hashes_goes_on(tmp_path, distill, capsys):
    assert distill("--smoke") == 0
    file = tmp_path / "run/config.json"
    config = json.loads(file.read_text())
    del config["teacher_hash"]
    file.write_text(json.dumps(config))
    assert distill("--smoke", "--rounds", "3") == 0
    assert "3 of 4 rounds were done before" in capsys.readouterr().out
    assert "teacher_hash" not in json.loads(file.read_text())


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--updates", "0"], "--updates 0: must be 1 or more"),
        (["--rounds", "0", "--minutes", "5"], "--rounds 0: must be 1 or more where minutes are 5"),
        (["--minutes", "nan"], "--minutes nan: must be 0 or more"),
        (["--rate", "0"], "--rate 0: must be over 0"),
        (["--rate", "-0.01"], "--rate -0.01: must be over 0"),
        (["--rate", "nan"], "--rate nan: must be over 0"),
    ],
)
def test_numbers_that_would_fail_after_a_round_are_refused(
    tmp_path, distill, capsys, monkeypatch, words, named
):
    monkeypatch.setattr(RunLoop, "run", lambda *_: pytest.fail("learned"))
    assert distill(*words) == 2
    assert named in capsys.readouterr().err and not (tmp_path / "run").exists()


def test_minutes_cannot_stand_beside_a_recipe_without_rounds(
    tmp_path, distill, capsys, monkeypatch
):
    monkeypatch.setattr(RunLoop, "run", lambda *_: pytest.fail("learned"))
    recipe = tmp_path / "own.yaml"
    recipe.write_text(HEADER + "rounds: 0\n")
    assert distill("--recipe", recipe, "--minutes", "5") == 2
    assert "rounds: 0 (allowed: 1 or more if minutes are set)" in capsys.readouterr().err


def test_next_to_no_minutes_still_make_an_update_a_round(tmp_path, distill):
    recipe = tmp_path / "brief.yaml"
    counts = "clean: 1, noisy: 0, perturbed: 0, on_policy: 1, rewired: 0, mixed: 0"
    recipe.write_text(HEADER + f"rounds: 1\nbatch: 2\nsteps: 5\ncollection: {{{counts}}}\n")
    assert distill("--recipe", recipe, "--minutes", "1e-9") == 0
    assert len((tmp_path / "run/metrics.jsonl").read_text().splitlines()) == 1


def test_a_student_of_image_patches_has_rounds(tmp_path, capsys):
    """It printed the path of a model that was never written."""
    pytest.importorskip("ale_py", reason="needs the sim extra")
    assert main(["distill", "pong", "--rounds", "0", "--out", str(tmp_path / "run")]) == 2
    assert "--rounds 0: must be 1 or more for pong" in capsys.readouterr().err


def test_no_backgrounds_replace_a_recipes(tmp_path):
    pytest.importorskip("Box2D", reason="needs the sim extra")
    recipe, out = tmp_path / "own.yaml", tmp_path / "run"
    recipe.write_text(find_share_path("recipes/car_racing.yaml").read_text() + "backgrounds: 0.5\n")
    words = ["--recipe", str(recipe), "--backgrounds", "0", "--smoke", "--rounds", "1"]
    assert main(["distill", "car_racing", "--out", str(out), *words]) == 0
    assert json.loads((out / "config.json").read_text())["settings"]["backgrounds"] == 0.0


@pytest.mark.filterwarnings("ignore::UserWarning:gymnasium")  # its checker sees it too
@pytest.mark.parametrize(
    ("readings", "reason"),
    [
        (200, "step 1: ValueError: observation has 200 numbers, but its space has 2"),
        (2, "gave no finite reading"),
    ],
)
def test_an_environment_that_breaks_ends_it_with_one_line_and_the_rounds_so_far(
    readings, reason, tmp_path, distill, capsys, monkeypatch
):
    step, checkpoint = cart_env.Cart.step, tmp_path / "run/checkpoint.safetensors"
    reset = cart_env.Cart.reset

    def bad(seen):
        return np.full(readings, np.nan) if checkpoint.exists() else seen

    def bad_step(env, action):
        seen, *others = step(env, action)
        return bad(seen), *others

    def bad_reset(env, *, seed=None, options=None):
        seen, info = reset(env, seed=seed, options=options)
        return bad(seen) if readings == 2 else seen, info

    monkeypatch.setattr(RunLoop, "save_every_s", 0.0)
    with monkeypatch.context() as broken:
        broken.setattr(cart_env.Cart, "step", bad_step)
        broken.setattr(cart_env.Cart, "reset", bad_reset)
        assert distill("--smoke") == 1
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and len(said) < 400
    assert said.startswith("an-control distill: environment ") and reason in said
    assert "; 20 episodes in a row failed" in said
    assert distill("--smoke") == 0
    assert "1 of 3 rounds were done before" in capsys.readouterr().out
