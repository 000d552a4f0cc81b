"""`an-control distill` trains from the command line and says what is wrong in one line."""

import json

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("pybullet", reason="needs the sim extra")
import gymnasium

from an_control.cli import main
from an_control.load import make_policy
from an_control.policy import MlpSizes, read_model, write_model
from an_control.policy.random_model import make_random_model
from an_control_sim.envs.tasks import ANT_TASK


def test_it_leaves_a_model_and_its_figures_and_continues_where_it_was(tmp_path, capsys):
    figures = tmp_path / "figures.json"
    arguments = [
        "distill",
        "ant",
        "--out",
        str(tmp_path / "run"),
        "--smoke",
        "--no-products",
        "--json",
        str(figures),
    ]
    assert main(arguments) == 0
    written = json.loads(figures.read_text())
    model = read_model(written["model"])
    assert [line["round"] for line in written["rounds"]] == [1, 2, 3]
    assert model.task.name == "ant" and "neuron.products" not in model.arrays
    assert main(arguments) == 0
    assert "3 of 3 rounds were done before" in capsys.readouterr().out


def test_a_student_that_keeps_its_head_may_imitate_a_teacher_with_another(tmp_path):
    """One whose layers are of other sizes, as where a reflex was added to it."""
    first, teacher = tmp_path / "first", tmp_path / "teacher.safetensors"
    assert main(["distill", "ant", "--out", str(first), "--smoke"]) == 0
    start = read_model(first / "model.safetensors")
    sizes = MlpSizes(28, 8, [12, 5], activation="relu", output="tanh")
    write_model(teacher, make_random_model(sizes, seed=1, task=ANT_TASK))
    recipe = tmp_path / "keeping.yaml"
    recipe.write_text(
        "an_control_recipe: 1\nobservation: scalar channels\n"
        "student: {products: true}\nkeep_head: true\n"
    )
    words = ["distill", "ant", "--recipe", recipe, "--teacher", teacher, "--smoke"]
    model = first / "model.safetensors"
    arguments = [*words, "--start-model", model, "--out", tmp_path / "second"]
    assert main([str(word) for word in arguments]) == 0
    student = read_model(tmp_path / "second/model.safetensors")
    assert student.sizes.head == start.sizes.head != sizes.head
    assert student.sizes.output == start.sizes.output


def test_a_student_whose_recipe_says_so_is_pushed_wherever_its_model_acts(tmp_path):
    recipe = tmp_path / "pushed.yaml"
    recipe.write_text(
        "an_control_recipe: 1\nobservation: scalar channels\nrecovery: 0.03\n"
        "student: {products: true}\n"
    )
    out = tmp_path / "run"
    assert main(["distill", "ant", "--recipe", str(recipe), "--out", str(out), "--smoke"]) == 0
    model = read_model(out / "model.safetensors")
    assert model.task.recovery == 0.03
    policy, channels = make_policy(model), model.task.channels
    for _ in range(120):
        policy.step_array(np.zeros(len(channels), np.float32), channels)
    assert policy.recovery_count


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nothing"], "environment 'nothing'"),
        (["pong", "--disturb", "missing=1.5"], "--disturb: 'missing=1.5': missing: 1.5 (allowed: "),
        (["pong", "--disturb", "missing=0.5..0.2"], "--disturb: 'missing=0.5..0.2'"),
        (["pong", "--disturb", "jitter=0.1"], "--disturb: 'jitter=0.1' is not a disturbance"),
        (["ant", "--backgrounds", "0.5"], "not for ant"),
        (["ant", "--seed", "4"], "other settings"),
        (["ant", "--rounds", "-1"], "--rounds -1"),
    ],
)
def test_bad_input_ends_with_2_and_names_it(arguments, named, tmp_path, capsys):
    run = ["--out", str(tmp_path), "--smoke"]
    (tmp_path / "config.json").write_text("{}")
    assert main(["distill", *arguments, *run]) == 2
    assert named in capsys.readouterr().err


class PatchesWithoutTeacher(gymnasium.Env):
    """An environment that shows image patches and knows no action for them."""

    observation_space = gymnasium.spaces.Box(0, 255, (4, 4, 6, 6), np.uint8)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (2,), np.float32)


def test_patches_without_a_teacher_are_referred_to_the_method_that_gives_one(tmp_path, capsys):
    gymnasium.register("an_control_test/Patches-v0", PatchesWithoutTeacher)
    assert main(["distill", "an_control_test/Patches-v0", "--out", str(tmp_path / "run")]) == 2
    assert "it must have a method teacher()" in capsys.readouterr().err
