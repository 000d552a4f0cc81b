"""What verbs print so that it can be typed again, and the JSON that they write."""

import json
import re
import shlex
from dataclasses import asdict

import pytest

from an_control.cli import main
from an_control.cli.common import write_json
from an_control.cli.help import parse_arguments
from an_control.learning.command_line import format_command

pytest.importorskip("torch", reason="needs the train extra")

from an_control.cli.train import (
    DistillCommand,
    LearnCommand,
    TrainCommand,
    TrainMonitorCommand,
    TrainTeacherCommand,
)

GTRXL = "--recurrence gtrxl --units 8 --window 5"
CASES = [
    (TrainCommand, "train cartpole --out runs/x"),
    (TrainCommand, "train cartpole --out runs/x --json result.json"),
    (
        TrainCommand,
        f"train cartpole --out runs/x --encoder isab --inducing 3 {GTRXL} --shuffle reset 100",
    ),
    (DistillCommand, f"distill ant --out 'a folder' --minutes 5 --learned-queries 4 {GTRXL}"),
    (DistillCommand, "distill ant --out runs/x --no-products --normalise"),
    (LearnCommand, "learn Pendulum-v1 --out runs/x --teacher-minutes 3"),
    (TrainMonitorCommand, "train-monitor m.safetensors --hidden 64 64"),
    (TrainTeacherCommand, "train-teacher Pendulum-v1 --out runs/x --algorithm sac"),
]


@pytest.mark.parametrize(("verb", "typed"), CASES, ids=[typed for _, typed in CASES])
def test_the_command_that_continues_a_run_asks_for_the_same(verb, typed):
    name, *words = shlex.split(typed)
    given = parse_arguments(verb, name, words)
    printed = shlex.split(format_command(given, name))
    assert printed[:2] == ["an-control", name]
    assert asdict(parse_arguments(verb, name, printed[2:])) == asdict(given)


def test_what_a_verb_writes_is_json_whatever_its_numbers_are(tmp_path):
    path, inf, nan = tmp_path / "result.json", float("inf"), float("nan")
    write_json(path, {"latency_p50_s": nan, "rows": [{"limits": (-inf, 1.5)}], "seed": 3})

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is no JSON")

    written = json.loads(path.read_text(), parse_constant=refuse)
    assert written == {"latency_p50_s": None, "rows": [{"limits": [None, 1.5]}], "seed": 3}


TOO_LONG = "a" * 300


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (f"info {TOO_LONG}", "neither a file nor a shipped model"),
        (f"info {TOO_LONG}.safetensors", "File name too long"),
        (f"info ant --json {TOO_LONG}", "--json a+: File name too long"),
        (f"new robot --env CartPole-v1 --out {TOO_LONG}/x", "--out a+/x: File name too long"),
        ("new robot --env CartPole-v1 --out link", "--out link: link is not a folder"),
        ("new robot --env CartPole-v1 --out link/x", "--out link/x: .*link is not a folder"),
    ],
)
def test_a_path_that_the_system_refuses_is_an_error_in_one_line(
    typed, said, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("nowhere")
    assert main(shlex.split(typed)) == 2
    assert re.fullmatch(f"an-control (info|new): .*{said}.*\n", capfd.readouterr().err)
