"""`an-control info` shows what a model file holds."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from program import START

from an_control.cli import main
from an_control.cli.common import replace_model_names_by_paths
from an_control.cli.verbs import load_verb_class
from an_control.policy import write_model
from an_control.policy.random_model import make_random_model
from an_control.policy.task import Task
from an_control.system.share import find_share_path
from an_control_sim.envs.tasks import ANT_SIZES

MODEL = make_random_model(ANT_SIZES, task=Task(name="ant", step_s=0.0165))


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "ant.safetensors"
    write_model(path, MODEL)
    return path


def test_kind_sizes_task_and_arrays_are_shown_and_written(model, tmp_path, capsys):
    shown = tmp_path / "shown.json"
    assert main(["info", str(model), "--json", str(shown)]) == 0
    out = capsys.readouterr().out
    for line in ("kind: attention_neuron", "  queries: 32", "  step_s: 0.0165"):
        assert line in out
    assert f"parameters: {MODEL.parameter_count}" in out
    result = json.loads(shown.read_text())
    assert result["sizes"]["neuron"] == 8
    assert result["arrays"]["head.1.weight"] == [8, 32]
    assert result["task"] == {"name": "ant", "step_s": 0.0165}


def test_what_is_no_model_ends_with_exit_2(tmp_path, capsys):
    path = tmp_path / "wrong.safetensors"
    path.write_bytes(b"wrong")
    assert main(["info", str(path)]) == 2
    assert capsys.readouterr().err.startswith(f"an-control info: {path}: ")


def test_a_json_path_that_cannot_be_written_ends_with_exit_2(model, tmp_path, capsys):
    assert main(["info", str(model), "--json", str(tmp_path / "no" / "x.json")]) == 2
    assert "--json" in capsys.readouterr().err


def test_help_is_there(capsys):
    with pytest.raises(SystemExit) as end:
        main(["info", "--help"])
    assert end.value.code == 0
    assert "model file" in capsys.readouterr().out


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_ends_it_without_a_traceback(model, unbuffered):
    reader, writer = os.pipe()
    os.close(reader)
    try:
        ended = subprocess.run(
            [sys.executable, "-c", START, "info", str(model)],
            stdout=writer,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            timeout=120,
            check=False,
        )
    finally:
        os.close(writer)
    assert ended.stderr == b""
    assert ended.returncode == 141


def run_in_shell(command: str, **variables: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        ["sh", "-c", command, sys.executable],
        capture_output=True,
        env={**os.environ, **variables},
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_on_a_full_disk_ends_it_in_one_line(unbuffered):
    ended = run_in_shell('"$0" -m an_control info ant > /dev/full', PYTHONUNBUFFERED=unbuffered)
    assert ended.returncode == 1
    assert ended.stderr == b"an-control info: No space left on device\n"


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_change_nothing(closed, tmp_path):
    written = tmp_path / "info.json"
    ended = run_in_shell(f'"$0" -m an_control info ant --json {written} {closed}')
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert written.read_text().startswith("{")


def test_a_name_that_the_terminal_cannot_show_is_printed_as_an_escape(model, tmp_path):
    path = shutil.copy(model, tmp_path / "日本.safetensors")
    ended = run_in_shell(f'"$0" -m an_control info {path}', PYTHONIOENCODING="latin1")
    assert (ended.returncode, ended.stderr) == (0, b"")
    assert b"\\u65e5\\u672c.safetensors" in ended.stdout


@pytest.mark.parametrize(
    "verb", ["evaluate", "info", "bench", "check", "new", "replay", "run", "sim"]
)
def test_a_verb_that_reads_a_model_takes_the_name_of_a_shipped_one(verb, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {one.name: None for one in fields(load_verb_class(verb))}
    command = load_verb_class(verb)(**{**options, "model": Path("ant")})
    assert replace_model_names_by_paths(command).model == find_share_path("models/ant.safetensors")
    Path("ant").touch()
    assert replace_model_names_by_paths(command).model == Path("ant")
