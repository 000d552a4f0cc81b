"""`an-control learn` makes a policy of a gymnasium id, continues, and refuses before the work."""

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="needs the train extra")
pytest.importorskip("stable_baselines3", reason="needs the train extra")

from program import LIMIT_S

from an_control.cli import main
from an_control.learning.runs.run_folder import unpack_checkpoint
from an_control.load import load_policy
from an_control.policy import MlpSizes, read_model, write_model
from an_control.policy.model_file import Model
from an_control.policy.task import Task

CART = "cart_env:Cart-v0"
MADE = ("student/model.safetensors", "monitor/checkpoint.safetensors", "model.safetensors")


def watched(checkpoint: Path) -> bool:
    """Whether the monitor is done, as a run's checkpoint says."""
    done: bool = unpack_checkpoint(checkpoint.read_bytes())["watched"]
    return done


@pytest.fixture
def teacher(tmp_path) -> Path:
    """It pushes the cart towards the middle."""
    arrays = {
        "head.0.weight": np.array([[-2.0, -3.0]], np.float32),
        "head.0.bias": np.zeros(1, np.float32),
    }
    path = tmp_path / "teacher.safetensors"
    write_model(path, Model("mlp", MlpSizes(2, 1, [], output="clip"), arrays, Task(), {}))
    return path


def test_it_makes_teacher_student_monitor_table_and_card(tmp_path, capsys):
    out, figures = tmp_path / "run", tmp_path / "figures.json"
    arguments = ["learn", CART, "--smoke", "--out", str(out), "--json", str(figures)]
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert load_policy(out / "model.safetensors").monitor_report is None
    assert "the monitor is off: " in said, "that of a run of seconds finds no moves"
    policy = load_policy(out / "model.safetensors", "match")
    assert policy.permutation_invariant and policy.monitor_report is not None
    assert read_model(out / "teacher/model.safetensors").kind == "mlp"
    names = [row["name"] for row in json.loads(figures.read_text())["rows"]]
    assert names[:2] == ["random policy", "teacher"] and "student, clean" in names
    assert not any("25 steps" in name or "10%" in name for name in names), "40 steps, 2 channels"
    recorded = json.loads((out / "monitor/config.json").read_text())
    assert recorded["settings"]["minutes"] > 20, "of 30, as the student left nearly all of its 16"
    for text in (said, (out / "model.md").read_text()):
        assert "| teacher | " in text and "| student, delay=1 | " in text
    assert main(arguments) == 0
    assert capsys.readouterr().out.splitlines()[-1] == str(out / "model.safetensors")
    assert main([*arguments, "--seed", "2"]) == 2
    assert "other settings" in capsys.readouterr().err
    out.rename(tmp_path / "moved")
    assert main(["learn", CART, "--smoke", "--out", str(tmp_path / "moved")]) == 0


def test_a_seed_may_have_more_than_64_bits(tmp_path, teacher):
    arguments = ["learn", CART, "--smoke", "--teacher", str(teacher), "--seed", str(2**64)]
    assert main([*arguments, "--out", str(tmp_path / "run")]) == 0


def test_with_more_minutes_for_its_teacher_all_that_follows_is_learned_again(tmp_path):
    out = tmp_path / "run"
    arguments = ["learn", CART, "--smoke", "--out", str(out)]
    assert main([*arguments, "--teacher-minutes", "0.000001"]) == 0
    iterations = (out / "teacher/metrics.jsonl").read_text().count("\n")
    made = [(out / name).stat().st_mtime_ns for name in MADE]
    assert main(arguments) == 0
    assert (out / "teacher/metrics.jsonl").read_text().count("\n") > iterations
    again = [(out / name).stat().st_mtime_ns for name in MADE]
    assert all(late > early for early, late in zip(made, again, strict=True))
    assert main(arguments) == 0, "and nothing the next time"
    assert [(out / name).stat().st_mtime_ns for name in MADE[:2]] == again[:2]


def test_killed_in_any_step_the_same_command_ends_it(tmp_path, teacher, program, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=":")
    out = tmp_path / "run"
    arguments = ["learn", CART, "--teacher", teacher, "--smoke", "--out", out]
    for file in ("student/metrics.jsonl", "checkpoint.safetensors"):
        with program.started(*arguments) as process:
            program.wait(lambda file=out / file: file.exists(), file, LIMIT_S)
            process.send_signal(signal.SIGKILL)
    ended = program.run(*arguments)
    assert ended.returncode == 0, ended.stderr
    assert "| student, clean | " in ended.stdout and (out / "model.safetensors").exists()
    assert not (out / "teacher").exists(), "one was given"


def test_a_longer_run_that_is_killed_in_its_monitor_does_not_give_the_old_result(
    tmp_path, teacher, program, monkeypatch
):
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=":")
    out = tmp_path / "run"
    arguments = ["learn", CART, "--teacher", teacher, "--smoke", "--out", out]
    assert program.run(*arguments, "--minutes", "0.0001").returncode == 0
    first = read_model(out / "model.safetensors")
    with program.started(*arguments) as process:
        file = out / "checkpoint.safetensors"
        program.wait(lambda: not watched(file), file, LIMIT_S)
        process.send_signal(signal.SIGKILL)
    ended = program.run(*arguments)
    assert ended.returncode == 0, ended.stderr
    student, made = (read_model(out / name) for name in ("student/model.safetensors", MADE[2]))
    assert all(np.array_equal(made.arrays[name], student.arrays[name]) for name in student.arrays)
    assert made.trained["forward"]["updates"] > first.trained["forward"]["updates"]


def test_killed_while_an_old_step_is_deleted_the_same_command_ends_it(
    tmp_path, teacher, monkeypatch
):
    out = tmp_path / "run"
    arguments = ["learn", CART, "--teacher", str(teacher), "--smoke", "--out", str(out)]
    assert main([*arguments, "--minutes", "0.0001"]) == 0
    delete = shutil.rmtree

    def killed(path, **how):
        delete(path, **how) if not Path(path).exists() else next(Path(path).iterdir()).unlink()
        assert not Path(path).exists(), "killed"

    with monkeypatch.context() as patched:
        patched.setattr(shutil, "rmtree", killed)
        with pytest.raises(AssertionError, match="killed"):
            main([*arguments, "--minutes", "1"])
    assert main([*arguments, "--minutes", "1"]) == 0
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == ["monitor", "student"]


def test_killed_before_an_old_monitor_is_deleted_it_is_not_taken_for_the_new_one(
    tmp_path, teacher, monkeypatch
):
    out = tmp_path / "run"
    arguments = ["learn", CART, "--teacher", str(teacher), "--smoke", "--out", str(out)]
    assert main([*arguments, "--minutes", "0.0001"]) == 0
    first = read_model(out / "model.safetensors")
    rename = Path.rename

    def killed(path, target):
        assert path.name != "monitor", "killed"
        return rename(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(AssertionError, match="killed"):
            main([*arguments, "--minutes", "1"])
    assert main([*arguments, "--minutes", "1"]) == 0
    made = read_model(out / "model.safetensors")
    assert made.trained["forward"]["updates"] > first.trained["forward"]["updates"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["nothing"], "environment 'nothing'"),
        (["pong"], "image patches"),
        ([CART, "--minutes", "0"], "--minutes 0:"),
        ([CART, "--recipe", "nothing"], "--recipe 'nothing'"),
        ([CART, "--recipe", "{idle}"], "idle.yaml: rounds: 0 (allowed: 1 or more)"),
        ([CART, "--teacher", "nothing.safetensors"], "nothing.safetensors"),
        (["Pendulum-v1", "--teacher", "{teacher}"], "takes 2 readings"),
    ],
)
def test_what_cannot_be_learned_is_refused_before_the_work(
    tmp_path, capsys, teacher, arguments, named
):
    out, idle = tmp_path / "run", tmp_path / "idle.yaml"
    idle.write_text("an_control_recipe: 1\nobservation: scalar channels\nrounds: 0\n")
    arguments = [word.format(teacher=teacher, idle=idle) for word in arguments]
    assert main(["learn", *arguments, "--out", str(out)]) == 2
    assert named in capsys.readouterr().err and not out.exists()
