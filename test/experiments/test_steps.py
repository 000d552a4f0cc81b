"""Experiments that are lists of commands: each command can be parsed, and finds what it reads."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from an_control.cli.help import parse_arguments
from an_control.cli.verbs import load_verb_class
from experiments.ant_policy import run as ant_policy
from experiments.any_environment import run as any_environment
from experiments.camera_tables import run as camera_tables
from experiments.cartpole_evolution import run as cartpole_evolution
from experiments.cartpole_softmax import run as cartpole_softmax
from experiments.page_tables import PageTable
from experiments.pong_late import run as pong_late
from experiments.reality import run as reality
from experiments.recordings import learned as recordings_learned
from experiments.steps import ExperimentStep, make_step_parser, run_steps
from experiments.tables import run as tables

ROOT = Path(__file__).resolve().parents[2]


def page_steps(run) -> list[ExperimentStep]:
    return [*(table.make_step(run.RUNS) for table in run.TABLES), *run.OTHERS]


EXPERIMENTS = {
    "ant_policy": ant_policy.STEPS,
    "tables": page_steps(tables),
    "camera_tables": page_steps(camera_tables),
    "reality": reality.make_steps(reality.RUNS, 100, 20),
    "pong_late": [
        pong_late.make_student_step(Path("models/pong.safetensors"), Path("runs"), smoke=False)
    ],
    "any_environment": any_environment.STEPS,
    "cartpole_evolution": cartpole_evolution.make_steps([1, 2, 3], 20_000),
    "cartpole_softmax": cartpole_softmax.STEPS,
    "recordings": recordings_learned.STEPS,
}


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_command_can_be_parsed_and_reads_what_ships_or_an_earlier_step_makes(name):
    made = set()
    for step in EXPERIMENTS[name]:
        program, verb, *words = step.command_words
        if program == "an-control":
            parse_arguments(load_verb_class(verb), verb, words)
        else:
            assert (program, verb) == ("python", "-m") and importlib.import_module(words[0])
        for path in step.input_files:
            assert path in made or (ROOT / path).is_file(), step.command
        made.add(step.makes)


def test_the_ants_steps_use_every_recipe_of_their_folder():
    used = {
        path for step in ant_policy.STEPS for path in step.input_files if path.endswith(".yaml")
    }
    there = {str(path.relative_to(ROOT)) for path in (ROOT / ant_policy.RECIPES).iterdir()}
    assert used == there and len(ant_policy.STEPS) <= 8


def test_the_folder_of_an_experiment_is_there_for_its_first_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    step = ExperimentStep("made.txt", "python -c \"open('runs/new/state', 'w').close()\"")
    assert run_steps(Path("runs/new"), [step], make_step_parser("").parse_args([])) == 0
    assert (tmp_path / "runs/new/state").exists()


def smoke(name: str, folder: Path, *words: str) -> Path:
    """Run an experiment's smoke run in a copy of what it needs; return the folder of its runs."""
    for part in ("models", "experiments", "config"):
        (folder / part).symlink_to(ROOT / part)
    command = [sys.executable, "-m", "experiments", name, "--smoke", *words]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    done = subprocess.run(command, cwd=folder, env=environment, timeout=250, check=False)
    assert done.returncode == 0
    return folder / "runs/smoke" / name


def test_a_smoke_run_of_the_tables_plays_an_episode_into_a_folder_of_its_own(tmp_path):
    made = smoke("tables", tmp_path, "--only", "cartpole moved")
    assert "| `none,monitor=off` |" in (made / "cartpole moved.md").read_text()
    assert not (tmp_path / "docs").exists()


def test_a_smoke_run_of_the_camera_tables_is_one_episode_of_each_first_protocol():
    for table in camera_tables.TABLES:
        words = table.make_smoke_step(Path("runs/smoke")).command_words
        assert words[words.index("--episodes") + 1] == "1"
        assert words[words.index("--table") + 1 :] == [table.protocols[0]]
        assert not any(word.startswith("docs") for word in words)


@pytest.mark.slow
def test_a_smoke_run_of_reality_plays_the_ant_also_over_ros(tmp_path):
    pytest.importorskip("rclpy")
    pytest.importorskip("pybullet")
    made = smoke("reality", tmp_path)
    assert len(json.loads((made / "ant_realtime.json").read_text())["episodes"]) == 1


@pytest.mark.slow
def test_a_smoke_run_of_pong_with_late_frames_teaches_a_student(tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("ale_py")
    assert (smoke("pong_late", tmp_path) / "student/model.safetensors").is_file()


def test_a_table_has_its_options_and_pictures_in_its_command():
    table = PageTable("ant", "page", "a title", ["none", "25"], options="--monitor off", plots="p")
    assert table.make_step(Path("runs/x")).command == (
        "an-control evaluate models/ant.safetensors --markdown page --title 'a title'"
        " --monitor off --episodes 100 --seed 1 --state 'runs/x/a title.rows' --plots p"
        " --table none 25"
    )
