"""Recipes: every one in the repository can be read, and a wrong one is refused with its place."""

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the train extra")

from an_control.cli import main
from an_control.learning.dagger.image_patches.settings import PatchDaggerSettings
from an_control.learning.dagger.settings import (
    DaggerSettings,
    choose_recipe_name,
    list_recipes,
    read_recipe,
)
from an_control.wiring import WiringError

EXPERIMENTS = Path(__file__).resolve().parents[2] / "experiments"
STUDIED = sorted(map(str, EXPERIMENTS.glob("*/**/*.yaml")))
HEADER = "an_control_recipe: 1\nobservation: scalar channels\n"
PATCHES = (
    "an_control_recipe: 1\nobservation: image patches\nstudent: {actions: 3, grid: 10, message: 16,"
    " stack: 4, patch: 6, positions: 8, norm_weights: true, filters: 32, hidden: 64,"
    " first_action: 0, choice: false}\n"
)


@pytest.mark.parametrize("name", [*list_recipes(), *STUDIED], ids=lambda name: Path(name).stem)
def test_every_recipe_is_one(name):
    patches = name in ("car_racing", "pong") or "pong_late" in name
    assert type(read_recipe(name)) is (PatchDaggerSettings if patches else DaggerSettings)


def test_the_recipes_that_ship_are_those_of_robots_and_the_generic_ones():
    assert list_recipes() == ("ant", "car_racing", "cartpole", "pong", "quick", "robust")


def test_a_stage_of_the_ant_whose_start_model_remembers_keeps_its_head():
    """Without `keep_head` a student begins with the head of the teacher, which forgets."""
    paths = [path for path in STUDIED if "/ant_policy/recipes/" in path]
    stages = {Path(path).stem: read_recipe(path) for path in paths}
    keeps = {name: settings.keep_head for name, settings in stages.items()}
    assert keeps == {"first": False, "second": True, "third": True}


def test_a_file_gives_what_differs_from_the_defaults(tmp_path):
    path = tmp_path / "own.yaml"
    path.write_text(
        HEADER + "rounds: 3\nmin_return: -20\nstudent: {head: [8, 4], paper: true}\n"
        "streams: {disturb: {missing=0.1: 1}, reshuffle_every: [7]}\nkept: null\n"
    )
    settings = read_recipe(str(path))
    assert (settings.rounds, settings.min_return, settings.kept) == (3, -20.0, None)
    assert settings.student.head == (8, 4) and settings.student.paper
    assert settings.streams.disturb == {
        "missing=0.1": 1.0
    } and settings.streams.reshuffle_every == (7,)
    assert settings.batch == DaggerSettings().batch


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "own.yaml: an empty file is not allowed; allowed: a mapping"),
        ("an_control_recipe: 1\nrounds: 3\n", "observation"),
        ("an_control_recipe: 2\nobservation: scalar channels\n", "an_control_recipe: 2"),
        ("an_control_recipe: 1\nobservation: sound\n", "observation: 'sound'"),
        (HEADER + "round: 3\n", "did you mean 'rounds'"),
        (HEADER + "rounds: 2.5\n", "rounds: 2.5 is not allowed; allowed: a whole number, 0 or"),
        (HEADER + "batch: 0\n", "batch: 0 is not allowed; allowed: a whole number, 1 or more"),
        (HEADER + "updates: 0\n", "updates: 0 is not allowed; allowed: a whole number, 1 or more"),
        (HEADER + "identify_updates: 0\n", "identify_updates: 0 is not allowed; allowed: a whole"),
        (HEADER + "newest: 0\n", "newest: 0 is not allowed; allowed: a whole number, 1 or more"),
        (PATCHES + "newest: 0\n", "newest: 0 is not allowed; allowed: a whole number, 1 or more"),
        (PATCHES + "memory: 0\n", "memory: 0 is not allowed; allowed: a whole number, 1 or more"),
        (HEADER + "rate: 0\n", "rate: 0 is not allowed; allowed: a number, over 0"),
        (HEADER + "rate: -0.1\n", "rate: -0.1 is not allowed; allowed: a number, over 0"),
        (HEADER + "rounds: 0\nminutes: 5\n", "rounds: 0 is not allowed; allowed: 1 or more if"),
        (
            HEADER + "faults: {delay=1: 0.7, lose=0.1: 0.7}\n",
            "faults: probabilities with the sum 1.4",
        ),
        (PATCHES + "rounds: 0\n", "rounds: 0 is not allowed; allowed: a whole number, 1 or more"),
        (PATCHES + "validate_every: 0\n", "validate_every: 0 is not allowed; allowed: a whole"),
        (HEADER + "averaged: 1\n", "averaged: 1 is not allowed; allowed: true or false"),
        (
            HEADER + "streams: {disturb: {missing=0.1: 1.5}}\n",
            "streams.disturb.missing=0.1: 1.5 is not allowed; allowed: a",
        ),
        (
            HEADER + "streams: {disturb: {gain=0.6: 1}}\n",
            "gain=0.6: 'gain=0.6' is not a disturbance",
        ),
        (HEADER + "streams: {missing: 0.3}\n", "streams.missing: is now: streams: {disturb: {mis"),
        (PATCHES + "missing: [0, 0.7]\n", "missing: is now: for image patches, disturb: {missing"),
        (HEADER + "student: {head: 3}\n", "student.head: 3 is not allowed; allowed: a list"),
        (HEADER + "student: {head: [3, x]}\n", "student.head[1]: 'x'"),
        ("an_control_recipe: 1\nobservation: image patches\n", "student"),
    ],
)
def test_a_wrong_recipe_is_refused_with_its_place(tmp_path, text, named):
    path = tmp_path / "own.yaml"
    path.write_text(text)
    with pytest.raises(WiringError) as refused:
        read_recipe(str(path))
    assert str(path) in str(refused.value) and named in str(refused.value)


def test_a_task_without_a_recipe_of_its_own_takes_the_robust_one():
    assert (choose_recipe_name("ant"), choose_recipe_name("Hopper-v5")) == ("ant", "robust")


def test_an_unknown_recipe_ends_distill_with_2_and_the_names_that_there_are(tmp_path, capsys):
    out = tmp_path / "run"
    assert main(["distill", "ant", "--recipe", "../ant", "--out", str(out)]) == 2
    said = capsys.readouterr().err
    assert "--recipe '../ant'" in said and "ant, car_racing" in said and not out.exists()
